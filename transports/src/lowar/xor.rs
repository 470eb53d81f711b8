//! Exclusive or of packets: all the arithmetic there is.
#![allow(unsafe_code)]

/// Adds `from` to `into`, as far as the shorter one goes.
#[inline]
pub(super) fn xor(into: &mut [u8], from: &[u8]) {
    #[cfg(target_arch = "x86_64")]
    match x86::width() {
        // SAFETY: the processor has the instructions, as was asked.
        x86::Width::Bytes64 => return unsafe { x86::xor_64(into, from) },
        // SAFETY: the same.
        x86::Width::Bytes32 => return unsafe { x86::xor_32(into, from) },
        x86::Width::Other => {}
    }
    portable(into, from);
}

#[inline(always)]
fn portable(into: &mut [u8], from: &[u8]) {
    for (a, b) in into.iter_mut().zip(from) {
        *a ^= b;
    }
}

#[cfg(target_arch = "x86_64")]
mod x86 {
    use core::arch::x86_64::*;

    /// The longest registers.
    pub(super) enum Width {
        Bytes64,
        Bytes32,
        Other,
    }

    #[inline]
    pub(super) fn width() -> Width {
        // Each of these is a look at a word that was filled in before.
        if is_x86_feature_detected!("avx512bw") {
            return Width::Bytes64;
        }
        if is_x86_feature_detected!("avx2") { Width::Bytes32 } else { Width::Other }
    }

    /// By registers of 64 bytes, those of `into` on cache lines, with masks for what is before and behind: a compiler left to itself takes
    /// registers of 32, anywhere.
    #[target_feature(enable = "avx512f,avx512bw")]
    pub(super) fn xor_64(into: &mut [u8], from: &[u8]) {
        const BLOCK: usize = 64;
        let n = into.len().min(from.len());
        let (a, b) = (into.as_mut_ptr(), from.as_ptr());
        let mut at = (a.addr().wrapping_neg() % BLOCK).min(n);
        // SAFETY: each block lies before `n`, the end of the shorter one.
        unsafe {
            masked(a, b, 0, at);
            while at + 2 * BLOCK <= n {
                let x = _mm512_xor_si512(load(a, at), load(b, at));
                let y = _mm512_xor_si512(load(a, at + BLOCK), load(b, at + BLOCK));
                _mm512_storeu_si512(a.add(at).cast(), x);
                _mm512_storeu_si512(a.add(at + BLOCK).cast(), y);
                at += 2 * BLOCK;
            }
            if at + BLOCK <= n {
                _mm512_storeu_si512(a.add(at).cast(), _mm512_xor_si512(load(a, at), load(b, at)));
                at += BLOCK;
            }
            masked(a, b, at, n - at);
        }
    }

    /// Adds `n` bytes of `b` to those of `a`, less than 64, `at` bytes behind their beginning.
    ///
    /// # Safety
    /// They are there.
    #[inline]
    #[target_feature(enable = "avx512f,avx512bw")]
    unsafe fn masked(a: *mut u8, b: *const u8, at: usize, n: usize) {
        let mask = (1u64 << n) - 1;
        // SAFETY: bytes that the mask leaves out are not touched.
        unsafe {
            let (to, from) = (a.add(at).cast(), b.add(at).cast());
            let sum = _mm512_xor_si512(_mm512_maskz_loadu_epi8(mask, to), _mm512_maskz_loadu_epi8(mask, from));
            _mm512_mask_storeu_epi8(to, mask, sum);
        }
    }

    /// # Safety
    /// 64 bytes can be read `at` bytes behind `p`.
    #[inline]
    #[target_feature(enable = "avx512f")]
    unsafe fn load(p: *const u8, at: usize) -> __m512i {
        // SAFETY: as our caller promises.
        unsafe { _mm512_loadu_si512(p.add(at).cast()) }
    }

    /// By registers of 32 bytes: half the instructions of what every processor has.
    #[target_feature(enable = "avx2")]
    pub(super) fn xor_32(into: &mut [u8], from: &[u8]) {
        crate::lowar::xor::portable(into, from);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    type Way = fn(&mut [u8], &[u8]);

    fn ways() -> Vec<Way> {
        let mut ways: Vec<Way> = vec![xor, portable];
        #[cfg(target_arch = "x86_64")]
        if is_x86_feature_detected!("avx2") {
            // SAFETY: the processor has the instructions, as was just asked.
            ways.push(|a, b| unsafe { x86::xor_32(a, b) });
        }
        ways
    }

    #[test]
    fn bytes_are_added_as_far_as_both_go() {
        for way in ways() {
            for len in (0..300).chain([1052, 4140]) {
                for off in 0..4 {
                    let from: Vec<u8> = (0..len + off).map(|i| (i * 7 + 3) as u8).collect();
                    let mut into: Vec<u8> = (0..len + 5).map(|i| (i * 13) as u8).collect();
                    let expected: Vec<u8> =
                        (0..len + 5).map(|i| into[i] ^ from[off..].get(i).copied().unwrap_or(0)).collect();
                    way(&mut into, &from[off..]);
                    assert_eq!(into, expected, "{len} bytes at {off}");
                }
            }
        }
    }
}
