//! The change of a CRC that follows from a change of its message: a carry-less multiplication instead of another pass.
//!
//! A CRC is linear: two messages of one length that differ in some bytes have CRCs whose difference (their XOR) depends on the
//! differing bytes and on their distance from the end, and on nothing else. A register that differs by `d` differs, `n` bytes later, by
//! d * x^(8n) modulo the polynomial, whatever these bytes are.

use crate::polynomial::{Distance, power, product};
use crate::portable;
#[cfg(all(target_arch = "x86_64", feature = "std"))]
use crate::vector::Multiplier;

/// The change of a CRC that follows from several changes of its message, added up one by one and reduced once.
///
/// ```
/// let (old, new) = (*b"to A: some long letter", *b"to B: some long letter");
/// let mut change = softnic_crc::Change::default();
/// change.add(u32::from(b'A' ^ b'B'), old.len() - 3); // 'A' and all behind it
/// assert_eq!(softnic_crc::update(0, &new), softnic_crc::update(0, &old) ^ change.finish());
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Change {
    /// Terms of degree up to 63, reflected.
    sum: u64,
}

impl Change {
    /// Takes in that the register differed by `difference`, `bytes` bytes before the message's end.
    ///
    /// Of bytes that were changed, up to four: `difference` is the XOR of the old and the new ones as a little-endian number, and
    /// `bytes` counts from the first of them to the end of the message, themselves included. There are at least as many as were changed.
    #[inline]
    pub fn add(&mut self, difference: u32, bytes: usize) {
        let power = power(bytes);
        #[cfg(all(target_arch = "x86_64", feature = "std"))]
        if let Some(multiplier) = Multiplier::get() {
            self.sum ^= multiplier.product(difference, power);
            return;
        }
        self.sum ^= product(difference, power);
    }

    /// What the old CRC and the new one differ by.
    #[inline]
    pub fn finish(self) -> u32 {
        #[cfg(all(target_arch = "x86_64", feature = "std"))]
        if let Some(multiplier) = Multiplier::get() {
            return multiplier.reduced(self.sum);
        }
        self.finish_portable()
    }

    /// [`Change::finish`] by the CRC of four bytes, which is what the higher terms are multiplied by x^32.
    #[inline]
    fn finish_portable(self) -> u32 {
        (self.sum >> 32) as u32 ^ !portable::update(!0, &(self.sum as u32).to_le_bytes())
    }
}

/// The change of a CRC that follows from other words at these distances from the end of its message: [`Change`] for all of them in one
/// call. Words are little-endian numbers; what one of the slices has more of than another is left out.
#[inline]
pub fn change_of(old: &[u32], new: &[u32], distances: &[Distance]) -> u32 {
    #[cfg(all(target_arch = "x86_64", feature = "std"))]
    if let Some(multiplier) = Multiplier::get() {
        return multiplier.change_of(old, new, distances);
    }
    let words = old.iter().zip(new).zip(distances);
    let sum = words.fold(0, |sum, ((old, new), distance)| sum ^ product(old ^ new, distance.0));
    Change { sum }.finish_portable()
}

/// By how much two CRCs differ that differed by `difference` and then took in the same `bytes` bytes, whatever these are. The time does
/// not depend on how many they are, as long as they are words and fewer than 16 KiB; beyond that it is a few multiplications more.
#[inline]
pub fn carry(difference: u32, bytes: usize) -> u32 {
    let mut change = Change::default();
    change.add(difference, bytes);
    change.finish()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::polynomial::reduced;

    /// A processor that has the instruction never comes to the portable form by itself.
    #[test]
    fn the_portable_form_agrees_with_whatever_this_processor_uses() {
        let mut difference = 1u32;
        for n in (0..20_000).chain([65_535, 1 << 24, usize::MAX]) {
            difference = difference.wrapping_mul(0x9e37_79b1).wrapping_add(1);
            let sum = product(difference, power(n));
            let portable = Change { sum }.finish_portable();
            assert_eq!((portable, reduced(sum)), (carry(difference, n), carry(difference, n)), "{n} bytes");
        }
    }

    #[test]
    fn changes_of_several_words_are_what_each_of_them_is_together() {
        let words: Vec<(u32, usize)> = (1..40u32).map(|i| (i.wrapping_mul(0x9e37_79b1), i as usize * 52)).collect();
        let old: Vec<u32> = words.iter().map(|(word, _)| word.rotate_left(7)).collect();
        let new: Vec<u32> = words.iter().zip(&old).map(|((word, _), old)| word ^ old).collect();
        let distances: Vec<Distance> = words.iter().map(|(_, bytes)| Distance::new(*bytes)).collect();
        for n in 0..words.len() {
            let one_by_one = words[..n].iter().fold(0, |sum, &(word, bytes)| sum ^ carry(word, bytes));
            assert_eq!(change_of(&old[..n], &new, &distances), one_by_one, "{n} words");
        }
    }
}
