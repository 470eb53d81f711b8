//! The deterministic simulator: the same Nodes that run on a wire, in virtual time.
//!
//! A run is a pure function of code, options and seed: the same seed twice gives the same trace, event for event.
#![forbid(unsafe_code)]

mod bounded;
mod delivery;
mod digest;
pub mod dual_pair;
pub mod fairness;
mod link;
pub mod node;
pub mod pair;
mod paused_host;
mod report;
pub mod shared_port;
mod simulator;
pub mod table;
pub mod topology;
mod traced;
pub mod training;
mod workload;

pub use link::{End, LinkConfig};
pub use report::{Chunks, CompletionTimes, Delivered, Failover, Reliability, Report};
pub use simulator::Simulator;
pub use softnic_fault_injector::Time;
pub use softnic_nic::transports::Transport;
pub use softnic_sdr::reliable::{Fallback, Family, Protection, Scheme, SchemeError};
pub use workload::{
    Backup, Cc, Op, Options, Outage, Progress, SdrOptions, SimError, UNITS, run, run_timed, run_traced,
};
