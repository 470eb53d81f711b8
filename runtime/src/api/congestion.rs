//! What decides how fast RC queue pairs send, as programs wish it.

use softnic_fault_injector::units::{parse_rate, parse_size, parse_time};
use softnic_nic::transports::congestion::Units;

pub use softnic_nic::transports::congestion::{Cc, CcError};

/// Reads a congestion control with its settings: `none`, `fixed:2Gbit:256K`, `dcqcn`, `dcqcn:ai=5Mbit,timer=300us`.
///
/// # Errors
/// When there is none of that name, or it has no such setting.
pub fn parse_cc(text: &str) -> Result<Cc, CcError> {
    Cc::parse(text, &Units { rate: parse_rate, size: parse_size, time: parse_time })
}
