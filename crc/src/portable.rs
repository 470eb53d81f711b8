//! The same by `crc32fast`, for every processor.

use crate::Mask;

#[inline]
pub(crate) fn update(crc: u32, bytes: &[u8]) -> u32 {
    let mut hasher = crc32fast::Hasher::new_with_initial(crc);
    hasher.update(bytes);
    hasher.finalize()
}

pub(crate) fn masked(crc: u32, mask: &Mask, bytes: &[u8]) -> u32 {
    let (head, rest) = bytes.split_at(bytes.len().min(Mask::MAX));
    // A compiler that sees which bytes are ones stores them by themselves, and the CRC's vector loads wait for that.
    let mask = core::hint::black_box(&mask.padded);
    // A short packet is summed in one piece: of two sums the second waits for the first.
    let mut copy = [0; Mask::MAX + SHORT];
    let taken = if rest.len() <= SHORT { bytes.len() } else { head.len() };
    copy[..taken].copy_from_slice(&bytes[..taken]);
    for (byte, ones) in copy[..Mask::MAX].iter_mut().zip(&mask[64..]) {
        *byte |= ones;
    }
    update(update(crc, &copy[..taken]), &bytes[taken..])
}

/// What may follow the masked bytes in a packet that is short.
const SHORT: usize = 96;
