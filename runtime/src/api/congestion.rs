//! Congestion control of RC queue pairs, as a program asks for it.

use std::time::Duration;

use softnic_fault_injector::units::{parse_rate, parse_size, parse_time};
use softnic_nic::transports::congestion::Units;

pub use softnic_nic::transports::congestion::{Cc, CcError};

/// How much later than it might a packet leaves, at most, without the rate being less for it: the thread that moves frames has other
/// things to do, and sometimes it is not running.
pub(crate) const LATE: Duration = Duration::from_micros(500);

/// Reads a congestion control with its settings: `none`, `window`, `fixed:2Gbit:256K`, `dcqcn`, `dcqcn:ai=5Mbit,timer=300us`.
///
/// # Errors
/// When there is none of that name, or it has no such setting.
pub fn parse_cc(text: &str) -> Result<Cc, CcError> {
    Cc::parse(text, &Units { rate: parse_rate, size: parse_size, time: parse_time })
}
