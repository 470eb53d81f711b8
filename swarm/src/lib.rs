//! What is found out with the simulator: whether everything holds in a swarm of worlds, how goodput and completion times are beside
//! reviewed tables, and how fair congestion control is.
#![forbid(unsafe_code)]

pub mod best_effort;
pub mod fairness;
mod swarm;
pub mod table;

pub use swarm::{Broken, Passed, World, run_seed, run_seed_watched};
