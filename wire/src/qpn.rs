//! 24-bit queue pair numbers.

use core::fmt;

/// A queue pair number: 24 bits.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
pub struct Qpn(u32);

impl Qpn {
    /// The subnet management interface; unused on Ethernet.
    pub const QP0: Qpn = Qpn(0);
    /// The general services interface: communication management and vendors' MADs.
    pub const GSI: Qpn = Qpn(1);
    /// The destination of multicast packets (IBA 9.4.1.1).
    pub const MULTICAST: Qpn = Qpn(0x00ff_ffff);

    /// The low 24 bits of `v`.
    #[inline]
    pub const fn new(v: u32) -> Qpn {
        Qpn(v & 0x00ff_ffff)
    }

    /// As an integer below 2^24.
    #[inline]
    pub const fn value(self) -> u32 {
        self.0
    }
}

impl fmt::Display for Qpn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:#08x}", self.0)
    }
}

impl fmt::Debug for Qpn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Qpn({:#08x})", self.0)
    }
}
