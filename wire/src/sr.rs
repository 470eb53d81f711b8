//! The header of Selective Repeat: where a packet belongs that comes out of order, and what an acknowledgement's bitmap covers.
//!
//! It stands right behind the BTH of those packets of service 0xC0 that need it (docs/wire-formats.md has the table). What its
//! two numbers mean follows from the opcode:
//!
//! | packet | number | offset |
//! |---|---|---|
//! | SEND, WRITE with immediate (its last packet) | which receive of the queue pair it takes, counted from 0 | of the payload in its message |
//! | READ response, atomic's answer | PSN of the request | of the payload in the READ |
//! | acknowledgement | PSN of the bitmap's first bit | how many bits the bitmap has |

use core::fmt;
use core::ops::Range;

use crate::bytes::{be24, be32, put24, put32};
use crate::settings::ExtensionSettings;

/// Selective Repeat extended transport header.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct SrEth {
    /// [`SrEth::RESPONSES`], [`SrEth::FURTHEST`], and reserved bits.
    pub flags: u8,
    /// 24 bits.
    pub number: u32,
    /// Bytes, or bits.
    pub offset: u32,
}

impl SrEth {
    /// Bytes of the header.
    pub const LEN: usize = 8;

    /// In an acknowledgement: it is about READ responses and atomics' answers, whose PSNs are counted apart from those of requests.
    pub const RESPONSES: u8 = 0x80;

    /// In an acknowledgement: nothing has come that is behind the bitmap's end.
    pub const FURTHEST: u8 = 0x40;

    /// Reads the header.
    #[inline]
    pub fn parse(b: &[u8; Self::LEN]) -> SrEth {
        SrEth { flags: b[0], number: be24(b, 1), offset: be32(b, 4) }
    }

    /// Writes the header.
    #[inline]
    pub fn emit(&self, b: &mut [u8; Self::LEN]) {
        b[0] = self.flags;
        put24(b, 1, self.number);
        put32(b, 4, self.offset);
    }
}

impl fmt::Display for SrEth {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "sr {} at {}", self.number, self.offset)?;
        if self.flags & Self::RESPONSES != 0 {
            f.write_str(" of responses")?;
        }
        if self.flags & Self::FURTHEST != 0 { f.write_str(" furthest") } else { Ok(()) }
    }
}

/// The settings of Selective Repeat in a negotiation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct SrSettings {
    /// Window in packets: the length of the bitmap of the MAD's sender.
    pub window: u32,
}

impl ExtensionSettings for SrSettings {
    const RANGE: Range<usize> = 4..8;

    fn parse(bytes: &[u8]) -> SrSettings {
        SrSettings { window: be32(bytes, 0) }
    }

    fn emit(&self, bytes: &mut [u8]) {
        put32(bytes, 0, self.window);
    }
}

impl fmt::Display for SrSettings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "window {}", self.window)
    }
}
