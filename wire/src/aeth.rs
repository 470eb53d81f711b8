//! The ACK extended transport header: credits, RNR timers, NAK codes, MSN (IBA 9.7.5.1).

use core::fmt;
use core::time::Duration;

use crate::bytes::{be24, put24};

/// Bytes of an AETH.
pub const LEN: usize = 4;

/// An acknowledgement, positive or negative.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Aeth {
    /// What is said.
    pub syndrome: Syndrome,
    /// Message sequence number: messages completed so far, 24 bits.
    pub msn: u32,
}

/// The meaning of the AETH syndrome byte (IBA table 43).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Syndrome {
    /// A positive acknowledgement with the receiver's credits.
    Ack(Credits),
    /// Receiver not ready: come back after the time.
    RnrNak(RnrTimer),
    /// A negative acknowledgement.
    Nak(NakCode),
    /// A value that the IBTA reserves, whole.
    Reserved(u8),
}

impl Aeth {
    /// Reads the header.
    #[inline]
    pub fn parse(b: &[u8; LEN]) -> Aeth {
        Aeth { syndrome: Syndrome::from_byte(b[0]), msn: be24(b, 1) }
    }

    /// Writes the header.
    #[inline]
    pub fn emit(&self, b: &mut [u8; LEN]) {
        b[0] = self.syndrome.to_byte();
        put24(b, 1, self.msn);
    }
}

impl Syndrome {
    /// From the byte on the wire.
    #[inline]
    pub const fn from_byte(b: u8) -> Syndrome {
        match b >> 5 {
            0b000 => Syndrome::Ack(Credits(b)),
            0b001 => Syndrome::RnrNak(RnrTimer(b & 0x1f)),
            0b011 => Syndrome::Nak(NakCode(b & 0x1f)),
            _ => Syndrome::Reserved(b),
        }
    }

    /// To the byte on the wire.
    #[inline]
    pub const fn to_byte(self) -> u8 {
        match self {
            Syndrome::Ack(c) => c.0 & 0x1f,
            Syndrome::RnrNak(t) => 0x20 | (t.0 & 0x1f),
            Syndrome::Nak(n) => 0x60 | (n.0 & 0x1f),
            Syndrome::Reserved(b) => b,
        }
    }
}

/// A 5-bit end-to-end credit code (IBA 9.7.7.2.4, table 46).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Credits(pub u8);

impl Credits {
    /// The responder does not do credits: send at will.
    pub const UNLIMITED: Credits = Credits(31);

    /// How many requests may be outstanding; `None` when the responder does not say.
    pub const fn count(self) -> Option<u32> {
        match self.0 & 0x1f {
            31 => None,
            c @ 0..=3 => Some(c as u32),
            // From 4 on, even codes are the powers of two from 4, odd ones the middles between: 4 6 8 12 16 24 …
            c => Some(if c & 1 == 0 { 1 << (c / 2) } else { 3 << (c / 2 - 1) }),
        }
    }

    /// The largest code that promises no more than `n` requests.
    pub const fn at_most(n: u32) -> Credits {
        let mut c = 30;
        loop {
            match Credits(c).count() {
                Some(v) if v > n => c -= 1,
                _ => return Credits(c),
            }
        }
    }
}

/// A 5-bit RNR NAK timer code (IBA table 45).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RnrTimer(pub u8);

impl RnrTimer {
    /// IBA table 45 in units of 10 µs. Code 0 is the longest time.
    const TABLE: [u32; 32] = [
        65536, 1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512, 768, 1024, 1536, 2048, 3072,
        4096, 6144, 8192, 12288, 16384, 24576, 32768, 49152,
    ];

    /// The time to wait.
    pub const fn duration(self) -> Duration {
        Duration::from_micros(Self::TABLE[(self.0 & 0x1f) as usize] as u64 * 10)
    }
}

/// A 5-bit NAK code (IBA table 44).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NakCode(pub u8);

impl NakCode {
    /// A packet is missing: the PSN is the one expected.
    pub const PSN_SEQUENCE_ERROR: NakCode = NakCode(0);
    /// The request cannot be right: unknown opcode, bad length, bad order.
    pub const INVALID_REQUEST: NakCode = NakCode(1);
    /// The key, range or right does not allow the access.
    pub const REMOTE_ACCESS_ERROR: NakCode = NakCode(2);
    /// The responder failed by itself.
    pub const REMOTE_OPERATIONAL_ERROR: NakCode = NakCode(3);
    /// Reliable datagram only.
    pub const INVALID_RD_REQUEST: NakCode = NakCode(4);
}

impl fmt::Display for NakCode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            NakCode::PSN_SEQUENCE_ERROR => f.write_str("psn sequence error"),
            NakCode::INVALID_REQUEST => f.write_str("invalid request"),
            NakCode::REMOTE_ACCESS_ERROR => f.write_str("remote access error"),
            NakCode::REMOTE_OPERATIONAL_ERROR => f.write_str("remote operational error"),
            NakCode::INVALID_RD_REQUEST => f.write_str("invalid rd request"),
            NakCode(c) => write!(f, "code {c}"),
        }
    }
}

/// `ack credits 4 msn 7`, `rnr nak 5.12ms msn 7`, `nak psn sequence error msn 7`.
impl fmt::Display for Aeth {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.syndrome {
            Syndrome::Ack(c) => match c.count() {
                Some(n) => write!(f, "ack credits {n}")?,
                None => f.write_str("ack")?,
            },
            Syndrome::RnrNak(t) => write!(f, "rnr nak {:?}", t.duration())?,
            Syndrome::Nak(n) => write!(f, "nak {n}")?,
            Syndrome::Reserved(b) => write!(f, "syndrome {b:#04x}")?,
        }
        write!(f, " msn {}", self.msn)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn syndrome_bytes_are_a_bijection() {
        for b in 0..=255 {
            assert_eq!(Syndrome::from_byte(b).to_byte(), b);
        }
        assert_eq!(Syndrome::from_byte(0x1f), Syndrome::Ack(Credits::UNLIMITED));
        assert_eq!(Syndrome::from_byte(0x32), Syndrome::RnrNak(RnrTimer(18)));
        assert_eq!(Syndrome::from_byte(0x62), Syndrome::Nak(NakCode::REMOTE_ACCESS_ERROR));
        assert_eq!(Syndrome::from_byte(0x40), Syndrome::Reserved(0x40));
        assert_eq!(Syndrome::from_byte(0x80), Syndrome::Reserved(0x80));
    }

    #[test]
    fn credits_follow_table_46() {
        let t: Vec<_> = (0..=30).map(|c| Credits(c).count().unwrap()).collect();
        assert_eq!(t[..16], [0, 1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192]);
        assert_eq!(t[16..], [256, 384, 512, 768, 1024, 1536, 2048, 3072, 4096, 6144, 8192, 12288, 16384, 24576, 32768]);
        assert_eq!(Credits(31).count(), None);
        assert_eq!(Credits::at_most(5), Credits(4));
        assert_eq!(Credits::at_most(0), Credits(0));
        assert_eq!(Credits::at_most(u32::MAX), Credits(30));
    }

    #[test]
    fn rnr_times_follow_table_45() {
        let us = |c| RnrTimer(c).duration().as_micros();
        assert_eq!([us(0), us(1), us(5), us(12), us(18), us(31)], [655_360, 10, 60, 640, 5_120, 491_520]);
    }

    #[test]
    fn reads_like_tcpdump() {
        let show = |b| Aeth::parse(&b).to_string();
        assert_eq!(show([0x04, 0, 0, 7]), "ack credits 4 msn 7");
        assert_eq!(show([0x1f, 0, 1, 0]), "ack msn 256");
        assert_eq!(show([0x32, 0, 0, 1]), "rnr nak 5.12ms msn 1");
        assert_eq!(show([0x60, 0, 0, 1]), "nak psn sequence error msn 1");
    }
}
