//! 24-bit packet sequence numbers and their circular arithmetic (IBA 9.7.2, C9-57).

use core::cmp::Ordering;
use core::fmt;

/// A packet sequence number: 24 bits, wrapping.
///
/// PSNs are ordered only within half the number space of each other, so there is no `Ord`: ask [`Psn::cmp_circular`].
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct Psn(u32);

impl Psn {
    /// How many PSNs there are.
    pub const SPACE: u32 = 1 << 24;
    /// The largest PSN.
    pub const MAX: Psn = Psn(Self::SPACE - 1);

    /// The low 24 bits of `v`.
    #[inline]
    pub const fn new(v: u32) -> Psn {
        Psn(v & 0x00ff_ffff)
    }

    /// As an integer below 2^24.
    #[inline]
    pub const fn value(self) -> u32 {
        self.0
    }

    /// `n` packets later.
    #[inline]
    #[allow(clippy::should_implement_trait)] // `psn + 3u32` would hide that it wraps
    pub const fn add(self, n: u32) -> Psn {
        Psn::new(self.0.wrapping_add(n))
    }

    /// `n` packets earlier.
    #[inline]
    #[allow(clippy::should_implement_trait)]
    pub const fn sub(self, n: u32) -> Psn {
        Psn::new(self.0.wrapping_sub(n))
    }

    /// The next one.
    #[inline]
    pub const fn next(self) -> Psn {
        self.add(1)
    }

    /// How far `self` is ahead of `other`, in −2^23 … 2^23 − 1.
    #[inline]
    pub const fn distance(self, other: Psn) -> i32 {
        // The difference moved to the top of 32 bits makes its sign bit the 24-bit one.
        ((self.0.wrapping_sub(other.0) << 8) as i32) >> 8
    }

    /// How many packets lie from `other` up to `self`, going forward: 0 … 2^24 − 1.
    #[inline]
    pub const fn forward_from(self, other: Psn) -> u32 {
        Psn::new(self.0.wrapping_sub(other.0)).0
    }

    /// Circular order: which of the two comes first when they are less than half the space apart.
    #[inline]
    pub const fn cmp_circular(self, other: Psn) -> Ordering {
        match self.distance(other) {
            0 => Ordering::Equal,
            d if d < 0 => Ordering::Less,
            _ => Ordering::Greater,
        }
    }

    /// Whether `self` comes before `other`.
    #[inline]
    pub const fn is_before(self, other: Psn) -> bool {
        self.distance(other) < 0
    }

    /// Whether `self` comes after `other`.
    #[inline]
    pub const fn is_after(self, other: Psn) -> bool {
        self.distance(other) > 0
    }
}

impl From<Psn> for u32 {
    fn from(p: Psn) -> u32 {
        p.0
    }
}

impl fmt::Debug for Psn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Psn({:#08x})", self.0)
    }
}

impl fmt::Display for Psn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wraps_both_ways() {
        assert_eq!(Psn::MAX.next(), Psn::new(0));
        assert_eq!(Psn::new(0).sub(1), Psn::MAX);
        assert_eq!(Psn::new(5).distance(Psn::MAX), 6);
        assert_eq!(Psn::MAX.distance(Psn::new(5)), -6);
        assert_eq!(Psn::new(5).forward_from(Psn::MAX), 6);
        assert!(Psn::MAX.is_before(Psn::new(0)) && Psn::new(0).is_after(Psn::MAX));
    }

    #[test]
    fn half_the_space_is_the_past() {
        let half = Psn::SPACE / 2;
        assert_eq!(Psn::new(half).distance(Psn::new(0)), -(half as i32));
        assert_eq!(Psn::new(half - 1).distance(Psn::new(0)), half as i32 - 1);
    }

    proptest::proptest! {
        #[test]
        fn distance_undoes_add(base: u32, n in 0u32..Psn::SPACE / 2) {
            let (b, p) = (Psn::new(base), Psn::new(base).add(n));
            proptest::prop_assert_eq!(p.distance(b), n as i32);
            proptest::prop_assert_eq!(p.sub(n), b);
            proptest::prop_assert_eq!(p.forward_from(b), n);
        }
    }
}
