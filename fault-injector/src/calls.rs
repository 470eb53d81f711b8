//! Faults of the calls that a program makes of verbs and of the connection manager, as data.

mod verb;

pub use verb::{Failure, Verb};
