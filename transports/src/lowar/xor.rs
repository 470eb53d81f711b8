//! Exclusive or of packets: all the arithmetic there is.
#![allow(unsafe_code)]

/// Adds `from` to `into`, as far as the shorter one goes.
#[inline]
pub(super) fn xor(into: &mut [u8], from: &[u8]) {
    #[cfg(target_arch = "x86_64")]
    if std::arch::is_x86_feature_detected!("avx2") {
        // SAFETY: the processor has AVX2, as was just asked.
        return unsafe { xor_avx2(into, from) };
    }
    portable(into, from);
}

/// The same, compiled for registers of 32 bytes: half the instructions.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2")]
fn xor_avx2(into: &mut [u8], from: &[u8]) {
    portable(into, from);
}

#[inline(always)]
fn portable(into: &mut [u8], from: &[u8]) {
    for (a, b) in into.iter_mut().zip(from) {
        *a ^= b;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_are_added_as_far_as_both_go() {
        for len in (0..200).chain([1052, 4140]) {
            for off in 0..4 {
                let from: Vec<u8> = (0..len + off).map(|i| (i * 7 + 3) as u8).collect();
                let mut into: Vec<u8> = (0..len + 5).map(|i| (i * 13) as u8).collect();
                let expected: Vec<u8> =
                    (0..len + 5).map(|i| into[i] ^ from[off..].get(i).copied().unwrap_or(0)).collect();
                xor(&mut into, &from[off..]);
                assert_eq!(into, expected, "{len} bytes at {off}");
            }
        }
    }
}
