//! Values of options that several commands take.

use std::time::Duration;

use softnic_fault_injector::units;
use softnic_wire::PathMtu;

/// How long a run takes: seconds, or a time with its unit.
pub fn duration_arg(s: &str) -> Result<Duration, String> {
    let plain = s.parse().ok().and_then(|seconds| Duration::try_from_secs_f64(seconds).ok());
    let time = plain.map_or_else(|| units::parse_time(s), Ok)?;
    match time > Duration::ZERO && time < Duration::from_secs(86400) {
        true => Ok(time),
        false => Err("a run takes more than nothing and less than a day".into()),
    }
}

/// A path MTU.
pub fn mtu_arg(s: &str) -> Result<PathMtu, String> {
    let mtu = s.parse().ok().and_then(PathMtu::from_bytes);
    mtu.ok_or_else(|| format!("'{s}' is no path MTU: 256, 512, 1024, 2048 or 4096"))
}
