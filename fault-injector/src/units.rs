//! Sizes, rates and times as people write them: `64K`, `10Gbit`, `40ms`.

use std::time::Duration;

/// The longest delay of a frame: far beyond every use, and far from the end of virtual time.
pub(crate) const MAX_DELAY: Duration = Duration::from_secs(1000);

/// Bytes: a number with K, M or G for powers of 1024.
pub fn parse_size(s: &str) -> Result<u64, String> {
    let (digits, factor) = match s.trim_end_matches(['B', 'b']).trim_end_matches('i') {
        d if d.ends_with(['K', 'k']) => (&d[..d.len() - 1], 1u64 << 10),
        d if d.ends_with(['M', 'm']) => (&d[..d.len() - 1], 1 << 20),
        d if d.ends_with(['G', 'g']) => (&d[..d.len() - 1], 1 << 30),
        d => (d, 1),
    };
    let n: u64 = digits.parse().map_err(|_| format!("'{s}' is no size: write 4096, 64K, 1M or 2G"))?;
    n.checked_mul(factor).ok_or_else(|| format!("'{s}' is too large"))
}

/// Bits a second: a number with kbit, Mbit, Gbit or Tbit, powers of 1000.
pub fn parse_rate(s: &str) -> Result<u64, String> {
    let bad = || format!("'{s}' is no rate: write 10Gbit or 100Mbit");
    let number = s.strip_suffix("bit").ok_or_else(bad)?;
    let (digits, factor) = match number.chars().last() {
        Some('k' | 'K') => (&number[..number.len() - 1], 1e3),
        Some('M') => (&number[..number.len() - 1], 1e6),
        Some('G') => (&number[..number.len() - 1], 1e9),
        Some('T') => (&number[..number.len() - 1], 1e12),
        _ => (number, 1.0),
    };
    let n: f64 = digits.parse().map_err(|_| bad())?;
    let rate = n * factor;
    if rate.is_finite() && (1.0..=1e15).contains(&rate) { Ok(rate as u64) } else { Err(bad()) }
}

/// A time: a number with ns, us (or µs), ms or s.
pub fn parse_time(s: &str) -> Result<Duration, String> {
    let bad = || format!("'{s}' is no time: write 10us, 40ms or 2s");
    let suffixes = [("ns", 1.0), ("us", 1e3), ("µs", 1e3), ("ms", 1e6), ("s", 1e9)];
    let (digits, factor) =
        suffixes.iter().find_map(|(suffix, f)| Some((s.strip_suffix(suffix)?, *f))).ok_or_else(bad)?;
    let n: f64 = digits.parse().map_err(|_| bad())?;
    let ns = n * factor;
    if ns.is_finite() && (0.0..=1e18).contains(&ns) { Ok(Duration::from_nanos(ns.round() as u64)) } else { Err(bad()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_people_write() {
        assert_eq!(parse_size("4096"), Ok(4096));
        assert_eq!((parse_size("64K"), parse_size("1M"), parse_size("2GiB")), (Ok(65536), Ok(1 << 20), Ok(2 << 30)));
        assert_eq!((parse_rate("10Gbit"), parse_rate("2.5Gbit")), (Ok(10_000_000_000), Ok(2_500_000_000)));
        assert_eq!(parse_time("40ms"), Ok(Duration::from_millis(40)));
        assert_eq!(
            (parse_time("10us"), parse_time("1.5s")),
            (Ok(Duration::from_micros(10)), Ok(Duration::from_millis(1500)))
        );
    }

    #[test]
    fn what_is_refused() {
        assert!(["", "K", "-1", "1.5M", "12Q", "99999999999G"].iter().all(|s| parse_size(s).is_err()));
        assert!(["10", "10G", "0Gbit", "-1Gbit", "nanGbit", "bit"].iter().all(|s| parse_rate(s).is_err()));
        assert!(["40", "ms", "-1ms", "infs", "1 h"].iter().all(|s| parse_time(s).is_err()));
    }
}
