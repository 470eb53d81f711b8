//! The Repair Header of LoWAR (section IV-C of its paper): what a repair packet repairs, and with what parameters.
//!
//! It stands right behind the BTH of packets with opcode 0x1F. The paper's figure 8 has the opcode and the QPN in its first four bytes and
//! no BTH; here the BTH is whole, so that steering, ICRC and tools need not know of it, and its PSN is the paper's bPSN.
//!
//! | offset | bytes | field |
//! |---|---|---|
//! | 0 | 1 | Type: 1 repair, 2 notice, 3 request |
//! | 1 | 1 | flags: bit 7 has_First, bit 6 has_Last, bit 5 of READ responses, whose PSNs are the receiver's; others zero |
//! | 2 | 1 | ISN: which of the block's repair packets, from 0 |
//! | 3 | 1 | R: data packets in a full block |
//! | 4 | 1 | C: interleaving depth |
//! | 5 | 1 | N: data packets in this block |
//! | 6 | 2 | Last_Length: bytes from BTH to ICRC, inclusive, of the block's last packet |
//! | 8 | 4 | digest of the ICRCs of the packets that were added up, see [`digest`] |
//!
//! Behind it a repair packet has the sum (exclusive or) of its packets from BTH to ICRC, inclusive, each continued by zeros to the longest
//! of them; notice and request end with it.

use core::fmt;
use core::ops::Range;

use crate::bytes::{be16, be32, put16, put32};
use crate::settings::ExtensionSettings;

/// The settings of LoWAR in a negotiation: the blocks that the MAD's sender sends.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct LowarSettings {
    /// Data packets in a coding block.
    pub r: u8,
    /// Interleaving depth: repair packets a block.
    pub c: u8,
}

impl ExtensionSettings for LowarSettings {
    const RANGE: Range<usize> = 0..2;

    fn parse(bytes: &[u8]) -> LowarSettings {
        LowarSettings { r: bytes[0], c: bytes[1] }
    }

    fn emit(&self, bytes: &mut [u8]) {
        (bytes[0], bytes[1]) = (self.r, self.c);
    }
}

impl fmt::Display for LowarSettings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "lowar {},{}", self.r, self.c)
    }
}

/// What a packet with a Repair Header is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Type {
    /// The sum of some packets follows.
    Repair,
    /// The sender of data says which parameters its next blocks have.
    Notice,
    /// The receiver of data asks for other parameters.
    Request,
}

impl Type {
    /// As on the wire.
    pub const fn value(self) -> u8 {
        match self {
            Type::Repair => 1,
            Type::Notice => 2,
            Type::Request => 3,
        }
    }

    /// Its name in text and JSON; a request is "wish" there.
    pub const fn name(self) -> &'static str {
        match self {
            Type::Repair => "repair",
            Type::Notice => "notice",
            Type::Request => "wish",
        }
    }

    /// From the wire.
    pub const fn from_value(v: u8) -> Option<Type> {
        match v {
            1 => Some(Type::Repair),
            2 => Some(Type::Notice),
            3 => Some(Type::Request),
            _ => None,
        }
    }
}

/// Repair Header.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct RepairHeader {
    /// What the packet is for.
    pub kind: Type,
    /// The block begins its message.
    pub has_first: bool,
    /// The block ends its message.
    pub has_last: bool,
    /// The block is one of READ responses.
    pub responses: bool,
    /// Interleaving sequence number: packets of the block whose offset modulo `c` is this were added up.
    pub isn: u8,
    /// Data packets in a full block.
    pub r: u8,
    /// Interleaving depth.
    pub c: u8,
    /// Data packets in this block.
    pub n: u8,
    /// Bytes from BTH to ICRC of the block's last packet.
    pub last_len: u16,
    /// Sum of [`digest`] of the packets' ICRCs, wrapping.
    pub digest: u32,
}

impl RepairHeader {
    /// Bytes of the header.
    pub const LEN: usize = 12;
    /// What a link's MTU must have beyond the path MTU, so that the longest repair packet fits: IPv6, UDP, BTH, this header, then BTH,
    /// RETH, immediate and ICRC of the longest data packet, and the ICRC; and some to spare for what later versions add.
    pub const MTU_ROOM: u32 = 120;

    const FIRST: u8 = 0x80;
    const LAST: u8 = 0x40;
    const RESPONSES: u8 = 0x20;

    /// Reads the header; `None` where the type is unknown.
    #[inline]
    pub fn parse(b: &[u8; Self::LEN]) -> Option<RepairHeader> {
        let flag = |bit| b[1] & bit != 0;
        Some(RepairHeader {
            kind: Type::from_value(b[0])?,
            has_first: flag(Self::FIRST),
            has_last: flag(Self::LAST),
            responses: flag(Self::RESPONSES),
            isn: b[2],
            r: b[3],
            c: b[4],
            n: b[5],
            last_len: be16(b, 6),
            digest: be32(b, 8),
        })
    }

    /// Writes the header.
    #[inline]
    pub fn emit(&self, b: &mut [u8; Self::LEN]) {
        let flag = |set, bit| if set { bit } else { 0 };
        b[0] = self.kind.value();
        b[1] =
            flag(self.has_first, Self::FIRST) | flag(self.has_last, Self::LAST) | flag(self.responses, Self::RESPONSES);
        (b[2], b[3], b[4], b[5]) = (self.isn, self.r, self.c, self.n);
        put16(b, 6, self.last_len);
        put32(b, 8, self.digest);
    }
}

impl fmt::Display for RepairHeader {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "lowar {} ({},{})", self.kind.name(), self.r, self.c)?;
        if self.kind == Type::Repair {
            write!(f, " isn {} of {} packets last {}", self.isn, self.n, self.last_len)?;
            for (set, name) in [(self.has_first, " first"), (self.has_last, " last"), (self.responses, " of responses")]
            {
                if set {
                    f.write_str(name)?;
                }
            }
        }
        Ok(())
    }
}

/// What an ICRC adds to the digest of a repair packet.
///
/// A CRC is linear: the sum of an odd number of packets of one length, each with a right ICRC, has a right ICRC, whatever the packets are.
/// So a right ICRC alone does not prove that a packet was recovered from the very packets that were added up: READ responses that were sent
/// twice may differ. This scatters the ICRCs by multiplications, which is not linear, and its sum over the packets shows that they
/// are the same.
#[inline]
pub const fn digest(icrc: u32) -> u32 {
    let x = (icrc ^ icrc >> 16).wrapping_mul(0x7feb_352d);
    let x = (x ^ x >> 15).wrapping_mul(0x846c_a68b);
    x ^ x >> 16
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_header_is_written_and_read_back() {
        let header = RepairHeader {
            kind: Type::Repair,
            has_first: true,
            has_last: false,
            responses: true,
            isn: 3,
            r: 64,
            c: 8,
            n: 17,
            last_len: 1052,
            digest: 0xdead_beef,
        };
        let mut b = [0xff; RepairHeader::LEN];
        header.emit(&mut b);
        assert_eq!(b, [1, 0xa0, 3, 64, 8, 17, 0x04, 0x1c, 0xde, 0xad, 0xbe, 0xef]);
        assert_eq!(RepairHeader::parse(&b), Some(header));
        b[0] = 9;
        assert_eq!(RepairHeader::parse(&b), None);
    }

    #[test]
    fn every_type_leads_back_to_itself() {
        for v in 0..=255 {
            assert!(Type::from_value(v).is_none_or(|t| t.value() == v));
        }
    }

    /// What makes the digest needed, and that it is not linear itself.
    #[test]
    fn digests_do_not_add_up_where_icrcs_do() {
        let (p, a, b) = (0x1234_5678u32, 0x9abc_def0u32, 0x0fed_cba9u32);
        let wrong = p ^ a ^ b; // the ICRC of a packet recovered from `b` in place of `a`
        assert_ne!(digest(wrong).wrapping_add(digest(b)), digest(p).wrapping_add(digest(a)));
    }
}
