//! The deterministic simulator: the same Nodes that run on a wire, in virtual time.
//!
//! A run is a pure function of code, options and seed: the same seed twice gives the same trace, event for event.
#![forbid(unsafe_code)]

mod delivery;
pub mod digest;
pub mod link;
pub mod node;
pub mod pair;
pub mod report;
pub mod simulator;
pub mod switch;
pub mod topology;
pub mod workload;

pub use softnic_fault_injector::time;

pub use link::LinkConfig;
pub use pair::QKEY;
pub use report::Report;
pub use simulator::Simulator;
pub use softnic_nic::transports::Transport;
pub use time::Time;
pub use workload::{Cc, Op, Options, SimError, UNITS, run};
