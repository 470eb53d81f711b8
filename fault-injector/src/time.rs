//! Virtual time in picoseconds: at 400 Gbit/s a byte takes 20 of them.

use std::time::Duration;

use softnic_wire::Instant;

/// A point in virtual time, in picoseconds; 213 days of them fit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default, Hash)]
pub struct Time(pub u64);

impl Time {
    /// What a Node is told: whole nanoseconds.
    #[inline]
    pub const fn instant(self) -> Instant {
        Instant::from_nanos(self.0 / 1000)
    }

    /// The first whole nanosecond that is not before it: when to come back for something.
    #[inline]
    pub(crate) const fn instant_after(self) -> Instant {
        Instant::from_nanos(self.0.div_ceil(1000))
    }

    /// The beginning of a nanosecond.
    #[inline]
    pub const fn from_instant(i: Instant) -> Time {
        Time(i.as_nanos().saturating_mul(1000))
    }

    /// Later by a duration.
    #[inline]
    pub fn after(self, d: Duration) -> Time {
        Time(self.0.saturating_add(u64::try_from(d.as_nanos() * 1000).unwrap_or(u64::MAX)))
    }

    /// Later by picoseconds.
    #[inline]
    pub const fn after_ps(self, ps: u64) -> Time {
        Time(self.0.saturating_add(ps))
    }
}
