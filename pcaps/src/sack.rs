//! What an acknowledgement of Selective Repeat says, as far as it was captured.

use std::fmt;

use softnic_wire::sr::SrEth;
use softnic_wire::{Opcode, Psn};

use crate::decode::Dissection;

/// How many missing PSNs are told one by one.
pub const SHOWN: usize = 32;

/// An acknowledgement of Selective Repeat.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Sack {
    /// It is about READ responses and atomics' answers, not about requests.
    pub of_responses: bool,
    /// Everything before this PSN has come.
    pub expected: Psn,
    /// The PSN of the bitmap's first bit.
    pub first: Psn,
    /// How many PSNs the bitmap is about.
    pub bits: u32,
    /// What the bitmap says; `None` where it was not captured whole, or is not as long as it should be.
    pub bitmap: Option<Bitmap>,
}

/// What a bitmap says of the PSNs from [`Sack::expected`] on: of those before it, it says nothing.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Bitmap {
    /// How many have come.
    pub received: u32,
    /// How many have not.
    pub missing: u32,
    /// The first [`SHOWN`] of those that have not.
    pub first_missing: Vec<Psn>,
}

impl Sack {
    /// Reads a packet; `None` where it is no such acknowledgement, or cut off before its bitmap.
    pub fn of(d: &Dissection<'_>) -> Option<Sack> {
        let (Some(Opcode::SR_ACKNOWLEDGE), Some(expected), Some(sr)) = (d.opcode, d.psn, d.ext.sr) else { return None };
        let first = Psn::new(sr.number);
        let whole = d.payload_len == Some(bitmap_len(sr.offset)) && d.payload.len() == bitmap_len(sr.offset);
        Some(Sack {
            of_responses: sr.flags & SrEth::RESPONSES != 0,
            expected,
            first,
            bits: sr.offset,
            bitmap: whole.then(|| Bitmap::read(expected, first, sr.offset, d.payload)),
        })
    }
}

/// Bytes of a bitmap.
pub(crate) fn bitmap_len(bits: u32) -> usize {
    bits.div_ceil(8) as usize
}

impl Bitmap {
    fn read(expected: Psn, first: Psn, bits: u32, bytes: &[u8]) -> Bitmap {
        let mut map = Bitmap::default();
        for (i, byte) in (0..bits).map(|i| (i, bytes[i as usize / 8])) {
            let psn = first.add(i);
            if psn.is_before(expected) {
                continue;
            }
            if byte >> (i % 8) & 1 == 1 {
                map.received += 1;
            } else {
                map.missing += 1;
                if map.first_missing.len() < SHOWN {
                    map.first_missing.push(psn);
                }
            }
        }
        map
    }
}

/// `sack 8..40 missing 8 12`, the range without its end; `sack empty` where nothing is told of what came too early.
impl fmt::Display for Sack {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.of_responses { "sack of responses" } else { "sack" })?;
        if self.bits == 0 {
            return f.write_str(" empty");
        }
        write!(f, " {}..{}", self.first, self.first.add(self.bits))?;
        let Some(map) = &self.bitmap else { return f.write_str(" ?") };
        f.write_str(" missing")?;
        for psn in &map.first_missing {
            write!(f, " {psn}")?;
        }
        match map.missing as usize - map.first_missing.len() {
            0 if map.missing == 0 => f.write_str(" none"),
            0 => Ok(()),
            more => write!(f, " and {more} more"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bits_are_counted_from_the_least_of_the_first_byte() {
        // PSNs 8 … 19, of which 8 and 12 have not come.
        let map = Bitmap::read(Psn::new(7), Psn::new(8), 12, &[0b1110_1110, 0b0000_1111]);
        assert_eq!((map.received, map.missing), (10, 2));
        assert_eq!(map.first_missing, [Psn::new(8), Psn::new(12)]);
    }

    #[test]
    fn of_psns_before_the_expected_one_it_says_nothing() {
        let map = Bitmap::read(Psn::new(1), Psn::new(0xff_fffe), 8, &[0b1010_0010]);
        assert_eq!((map.received, map.missing), (2, 3), "0xfffffe, 0xffffff and 0 lie before");
        assert_eq!(map.first_missing, [Psn::new(1), Psn::new(2), Psn::new(4)]);
    }

    #[test]
    fn of_many_missing_the_first_are_named_and_all_counted() {
        let map = Bitmap::read(Psn::new(0), Psn::new(0), 80, &[0; 10]);
        assert_eq!((map.received, map.missing, map.first_missing.len()), (0, 80, SHOWN));
        let (expected, first) = (Psn::new(0), Psn::new(0));
        let sack = Sack { of_responses: true, expected, first, bits: 80, bitmap: Some(map) };
        let text = sack.to_string();
        assert!(text.starts_with("sack of responses 0..80 missing 0 1 2 "), "{text}");
        assert!(text.ends_with(" 31 and 48 more"), "{text}");
    }
}
