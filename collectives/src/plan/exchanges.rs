//! What the ranks of a group exchange: which of them need a connection, and how much it must hold.

use super::Plan;
use crate::call::{Call, CallError};

/// Who sends to whom in some calls.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Exchanges {
    ranks: usize,
    /// Whether two ranks exchange messages; every pair twice.
    pairs: Vec<bool>,
    lane: usize,
}

impl Exchanges {
    /// Of all calls that a group will make; `bounded` as for [`Plan::new`].
    ///
    /// # Errors
    /// When the group cannot make one of them.
    pub fn of(calls: &[Call], ranks: usize, bounded: bool) -> Result<Exchanges, CallError> {
        let mut all = Exchanges { ranks, pairs: vec![false; ranks * ranks], lane: 1 };
        for call in calls {
            for rank in 0..ranks {
                let plan = Plan::new(call, ranks, rank, bounded)?;
                all.lane = all.lane.max(plan.deepest_lane());
                for step in &plan.steps {
                    all.pairs[rank * ranks + step.peer] = true;
                    all.pairs[step.peer * ranks + rank] = true;
                }
            }
        }
        Ok(all)
    }

    /// Whether two ranks exchange messages.
    pub fn has(&self, a: usize, b: usize) -> bool {
        self.pairs[a * self.ranks + b]
    }

    /// How many others a rank exchanges messages with.
    pub fn peers(&self, rank: usize) -> usize {
        (0..self.ranks).filter(|other| self.has(rank, *other)).count()
    }

    /// The most messages from a rank to another, in one collective.
    pub fn lane(&self) -> u32 {
        self.lane as u32
    }

    /// All pairs of ranks, each once.
    pub fn all_pairs(&self) -> impl Iterator<Item = [usize; 2]> + use<> {
        let ranks = self.ranks;
        (0..ranks).flat_map(move |a| (a + 1..ranks).map(move |b| [a, b]))
    }
}
