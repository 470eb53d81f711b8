//! The header of Timed, the example of docs/adding-a-transport.md: to which message a packet belongs, and where in it.

use core::fmt;

use crate::bytes::{be32, put32};

/// Timed extended transport header, right behind the BTH of every packet of service 0x40.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct TimedEth {
    /// Of the message: how many packets the sender had for all messages before it, modulo 2^32.
    pub number: u32,
    /// Of the payload in its message, in bytes.
    pub offset: u32,
}

impl TimedEth {
    /// Bytes of the header.
    pub const LEN: usize = 8;

    /// Reads the header.
    #[inline]
    pub fn parse(b: &[u8; Self::LEN]) -> TimedEth {
        TimedEth { number: be32(b, 0), offset: be32(b, 4) }
    }

    /// Writes the header.
    #[inline]
    pub fn emit(&self, b: &mut [u8; Self::LEN]) {
        put32(b, 0, self.number);
        put32(b, 4, self.offset);
    }
}

impl fmt::Display for TimedEth {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "timed {} at {}", self.number, self.offset)
    }
}
