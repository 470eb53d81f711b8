//! Measures bandwidth and latency between two NICs, in one process or in two: what `softnic perf` does, and experiments on devices.

/// Says a line on stderr. Where nobody hears it, or the disk behind it is full, the work goes on.
#[macro_export]
macro_rules! say {
    ($($words:tt)*) => {{
        use std::io::Write as _;
        let _ = writeln!(std::io::stderr(), $($words)*);
    }};
}

mod bandwidth;
mod best_effort;
mod client;
mod control;
mod failover;
mod interval;
mod latency;
mod meeting;
pub mod options;
mod pattern;
mod peak;
mod plan;
mod raw;
mod reliable;
mod report;
mod sdr;
mod serve;
pub mod session;
mod side;
pub mod stop;
pub mod table;

pub use best_effort::Delivered;
pub use client::Tell;
pub use failover::{failover_json, failover_text};
pub use interval::{AskedIntervals, Interval, Intervals};
pub use plan::{Amount, MAX_DEPTH, MAX_QPS, Op, Plan, ReliablePlan, SdrPlan, Verb};
pub use reliable::ReliableOutcome;
pub use report::{Measured, Rates, Times, columns, heading, print, written};
pub use sdr::{Chunks, sink_rate};
