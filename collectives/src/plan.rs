//! What one rank does in a collective: its steps, what each of them waits for, and the phases that deadlines are cut by.
//!
//! A plan is made once for a call and used for every collective of that kind. All ranks make theirs by the same rules, so that the n-th
//! message that a rank sends to another is the n-th that the other expects from it.

mod bcube;
mod builder;
mod exchanges;
mod ring;
mod steps;
mod trees;

use crate::call::{Algorithm, Call, CallError, Operation};
use builder::Builder;
pub use exchanges::Exchanges;
pub use steps::{Act, Plan, Step};

impl Plan {
    /// The steps of a rank. `bounded` says that what a step waits for may never have come, so that nothing is known about when the next
    /// message lands: it is kept apart until its turn.
    ///
    /// # Errors
    /// When no group of that size can make the call.
    pub fn new(call: &Call, ranks: usize, rank: usize, bounded: bool) -> Result<Plan, CallError> {
        call.check(ranks)?;
        let mut builder = Builder::new(*call, ranks, rank, bounded);
        if ranks > 1 {
            match (call.operation, call.algorithm) {
                (Operation::Barrier, _) => {}
                (_, Algorithm::Ring) => ring::build(&mut builder),
                (_, Algorithm::Tree) => trees::build(&mut builder),
                (_, Algorithm::Bcube) => bcube::build(&mut builder),
            }
        }
        Ok(builder.finish())
    }
}
