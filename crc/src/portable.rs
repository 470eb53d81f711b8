//! Portable CRC-32 fallback: `crc32fast`, for every processor.

use crate::Mask;

#[inline]
pub(crate) fn update(crc: u32, bytes: &[u8]) -> u32 {
    let mut hasher = crc32fast::Hasher::new_with_initial(crc);
    hasher.update(bytes);
    hasher.finalize()
}

/// [`update`] by two parts at once: each hasher asks what the processor can do.
#[inline]
pub(crate) fn update_both(crc: u32, first: &[u8], second: &[u8]) -> u32 {
    let mut hasher = crc32fast::Hasher::new_with_initial(crc);
    hasher.update(first);
    if !second.is_empty() {
        hasher.update(second);
    }
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
    update_both(crc, &copy[..taken], &bytes[taken..])
}

/// What may follow the masked bytes in a packet that is short.
const SHORT: usize = 96;

#[cfg(test)]
mod tests {
    use super::*;

    /// A processor that has the vectors never comes here by itself.
    #[test]
    fn it_agrees_with_whatever_this_processor_uses() {
        let bytes: Vec<u8> = (0..700u32).map(|i| (i.wrapping_mul(0x9e37_79b9) >> 23) as u8).collect();
        let mask = Mask::new(&[0xff, 0, 0x0f, 0xf0, 0xff, 0xff]);
        for len in 0..=bytes.len() {
            for crc in [0, !0, 0x1234_5678] {
                assert_eq!(update(crc, &bytes[..len]), crate::update(crc, &bytes[..len]), "{len} bytes");
                assert_eq!(masked(crc, &mask, &bytes[..len]), crate::masked(crc, &mask, &bytes[..len]), "{len} bytes");
            }
        }
    }
}
