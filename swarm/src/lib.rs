//! What is found out with the simulator: whether everything holds in a swarm of worlds. The tables of goodput and completion times, and
//! how fair congestion control is, are checked here, too; the simulator has them, because commands use them.
#![forbid(unsafe_code)]

pub mod best_effort;
pub mod collective;
pub mod failover;
pub mod multicast;
pub mod reliable;
pub mod sdr;
mod seeds;
mod swarm;

pub use seeds::seeds;
pub use swarm::{Broken, Passed, World, run_seed, run_seed_watched};
