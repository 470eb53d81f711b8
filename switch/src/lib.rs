//! A switch, free of IO: it forwards by MAC addresses and routes, with a queue before each port that drops and marks; and it
//! copies the packets of a group to all of its receivers and merges their acknowledgements (MC-RDMA).
#![forbid(unsafe_code)]

mod answers;
mod copies;
mod few;
pub mod group;
mod hashed;
mod held;
mod neighbours;
pub mod pfc;
pub mod planted;
mod port;
mod report;
mod switch;
mod tables;

pub use port::PortStats;
pub use report::{GroupReport, MemberReport};
pub use switch::{Switch, SwitchConfig, SwitchCounters};
pub use tables::{NextHop, Prefix};
