//! CRC-32 (the Ethernet polynomial) in the forms that a NIC in software needs and a general library does not have: over a
//! packet whose first bytes are read through a mask, and over memory while it is copied.
//!
//! A CRC over bytes that were just copied waits for the copy's stores, and one over the source beside the copy may see other
//! bytes than the copy did, because a program may write to its memory at any time. [`copy`] loads each byte once and uses it for
//! both, and each aligned word whole. Where the processor has no 512-bit carry-less multiplication, or where blocks would cut words, the
//! copy and the CRC of it are two steps.
//!
//! And one that reads nothing: [`Change`] says how a CRC changes with a few bytes of its message, however long that is.
#![cfg_attr(not(feature = "std"), no_std)]

mod carry;
mod polynomial;
mod portable;
#[cfg(all(target_arch = "x86_64", feature = "std"))]
mod vector;
mod words;

pub use carry::{Change, carry, change_of};
pub use polynomial::Distance;

/// Ones to be put over the first bytes of a packet, prepared so that they can be loaded at any distance from a block's begin.
#[derive(Debug, Clone)]
pub struct Mask {
    /// 64 zeros, the mask, 64 zeros or more.
    padded: [u8; 192],
}

impl Mask {
    /// The longest mask.
    pub const MAX: usize = 64;

    /// A mask of at most [`Mask::MAX`] bytes.
    ///
    /// # Panics
    /// When it is longer.
    pub const fn new(bytes: &[u8]) -> Mask {
        assert!(bytes.len() <= Mask::MAX);
        let mut padded = [0; 192];
        let mut i = 0;
        while i < bytes.len() {
            padded[64 + i] = bytes[i];
            i += 1;
        }
        Mask { padded }
    }
}

/// The CRC of what `crc` is the CRC of (0 for nothing), followed by `bytes`.
#[inline]
pub fn update(crc: u32, bytes: &[u8]) -> u32 {
    #[cfg(all(target_arch = "x86_64", feature = "std"))]
    if let Some(vector) = vector::Vector::get() {
        return vector.update(crc, bytes);
    }
    portable::update(crc, bytes)
}

/// [`update`], with the ones of `mask` put over the first bytes; `bytes` itself stays as it is.
#[inline]
pub fn masked(crc: u32, mask: &Mask, bytes: &[u8]) -> u32 {
    #[cfg(all(target_arch = "x86_64", feature = "std"))]
    if let Some(vector) = vector::Vector::get() {
        return vector.masked(crc, mask, bytes);
    }
    portable::masked(crc, mask, bytes)
}

/// Copies from `src` to `dst` and says the CRC of `head` and what was copied, behind what `crc` is the CRC of. Somebody may
/// write to `src` meanwhile: the CRC is that of the bytes that `dst` got, and each aligned word of eight bytes is as it was at one moment.
///
/// # Safety
/// `src` is valid for reads of `dst.len()` bytes, and does not overlap `dst`.
#[inline]
#[allow(unsafe_code)]
pub unsafe fn copy(crc: u32, head: &[u8], src: *const u8, dst: &mut [u8]) -> u32 {
    #[cfg(all(target_arch = "x86_64", feature = "std"))]
    if let Some(vector) = vector::Vector::get() {
        // Blocks are counted from the end: where that ends no word, their borders lie inside words, which would be read in two steps.
        if (src.addr() + dst.len()).is_multiple_of(words::WORD) {
            // SAFETY: as our caller promises.
            return unsafe { vector.copy(crc, head, src, dst) };
        }
        // SAFETY: as our caller promises.
        unsafe { words::copy(src, dst) };
        return vector.update(vector.update(crc, head), dst);
    }
    // SAFETY: as our caller promises.
    unsafe { words::copy(src, dst) };
    portable::update_both(crc, head, dst)
}
