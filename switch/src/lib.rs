//! A switch, free of IO: it forwards by MAC addresses and routes, with a queue before each port that drops and marks.
#![forbid(unsafe_code)]

mod switch;
mod tables;

pub use switch::{PortStats, Switch, SwitchConfig, SwitchCounters};
pub use tables::{NextHop, Prefix};
