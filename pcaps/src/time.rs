//! The time of a packet: whole nanoseconds since 1970, whatever the unit in the file.

use std::fmt;

const NANOS_PER_SEC: i128 = 1_000_000_000;

/// Nanoseconds since 1970-01-01 00:00 UTC.
///
/// 128 bits hold every time that pcap and pcapng can express, so no conversion overflows. Units finer than a
/// nanosecond are rounded down.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Timestamp(i128);

impl Timestamp {
    /// 1970-01-01 00:00 UTC; also the time of packets whose block stores none.
    pub const EPOCH: Timestamp = Timestamp(0);

    /// `nanos` nanoseconds after 1970.
    pub const fn from_nanos(nanos: i128) -> Timestamp {
        Timestamp(nanos)
    }

    /// `secs` seconds and `nanos` nanoseconds after 1970; `nanos` may exceed a second.
    pub const fn new(secs: i64, nanos: u32) -> Timestamp {
        Timestamp(secs as i128 * NANOS_PER_SEC + nanos as i128)
    }

    /// Nanoseconds since 1970.
    pub const fn nanos(self) -> i128 {
        self.0
    }

    /// Whole seconds since 1970, rounded down.
    pub const fn secs(self) -> i128 {
        self.0.div_euclid(NANOS_PER_SEC)
    }

    /// Nanoseconds after [`secs`](Self::secs): below 10^9.
    pub(crate) const fn subsec_nanos(self) -> u32 {
        self.0.rem_euclid(NANOS_PER_SEC) as u32
    }

    /// Seconds since 1970 as a float, which today resolves about a quarter of a microsecond.
    pub fn as_secs_f64(self) -> f64 {
        self.secs() as f64 + f64::from(self.subsec_nanos()) / NANOS_PER_SEC as f64
    }
}

/// Seconds with nine decimals, exact.
impl fmt::Display for Timestamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let sign = if self.0 < 0 { "-" } else { "" };
        let nanos = self.0.unsigned_abs();
        let second = NANOS_PER_SEC as u128;
        write!(f, "{sign}{}.{:09}", nanos / second, nanos % second)
    }
}

/// The unit in which an interface of a pcapng file counts time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Resolution {
    /// 10^-n seconds.
    Decimal(u8),
    /// 2^-n seconds.
    Binary(u8),
}

impl Resolution {
    /// What holds without an `if_tsresol` option.
    pub(crate) const MICROS: Resolution = Resolution::Decimal(6);

    /// From the byte of an `if_tsresol` option: the top bit chooses the base.
    pub(crate) const fn from_option(v: u8) -> Resolution {
        if v & 0x80 == 0 { Resolution::Decimal(v) } else { Resolution::Binary(v & 0x7f) }
    }

    /// `ticks` of this unit, in nanoseconds.
    pub(crate) const fn nanos(self, ticks: u64) -> i128 {
        // 2^64 ticks of 10^9 ns take 94 bits.
        let scaled = ticks as i128 * NANOS_PER_SEC;
        match self {
            Resolution::Binary(n) => scaled >> n,
            Resolution::Decimal(n) => match 10i128.checked_pow(n as u32) {
                Some(unit) => scaled / unit,
                None => 0, // Units so small that 2^64 of them are no nanosecond.
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn splits_into_seconds_and_nanoseconds() {
        let t = Timestamp::new(1_700_000_000, 123_456_789);
        assert_eq!((t.secs(), t.subsec_nanos()), (1_700_000_000, 123_456_789));
        assert_eq!(t.to_string(), "1700000000.123456789");
        assert!((t.as_secs_f64() - 1_700_000_000.123_456_7).abs() < 1e-6);
    }

    #[test]
    fn before_1970() {
        let t = Timestamp::from_nanos(-1_500_000_000);
        assert_eq!((t.secs(), t.subsec_nanos()), (-2, 500_000_000));
        assert_eq!(t.to_string(), "-1.500000000");
    }

    #[test]
    fn every_resolution() {
        assert_eq!(Resolution::from_option(6).nanos(3), 3_000);
        assert_eq!(Resolution::from_option(9).nanos(3), 3);
        assert_eq!(Resolution::from_option(0).nanos(u64::MAX), u64::MAX as i128 * NANOS_PER_SEC);
        assert_eq!(Resolution::from_option(12).nanos(1_999), 1);
        assert_eq!(Resolution::from_option(0x80 | 1).nanos(3), 1_500_000_000);
        assert_eq!(Resolution::from_option(0x80 | 32).nanos(1 << 31), 500_000_000);
        for v in 0..=255 {
            assert!(Resolution::from_option(v).nanos(u64::MAX) >= 0);
        }
    }
}
