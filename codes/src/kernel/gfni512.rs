//! Products by matrices of bits (GFNI), 64 bytes at a time (AVX-512). GFNI's own multiplication is for another polynomial.

use core::arch::x86_64::*;

use super::tables::MATRICES;
use super::{Step, by_shape, common_length};

/// Bytes of a register.
const BLOCK: usize = 64;

/// [`super::Kernel::multiply`].
#[target_feature(enable = "avx512f,avx512bw,gfni")]
pub(super) fn multiply(step: &Step, sources: &[&[u8]], destinations: &mut [&mut [u8]]) {
    by_shape!(shaped, step, sources, destinations);
}

#[target_feature(enable = "avx512f,avx512bw,gfni")]
fn shaped<const D: usize, const S: usize>(step: &Step, sources: &[&[u8]; S], destinations: &mut [&mut [u8]; D]) {
    let len = common_length(sources, destinations);
    let mut matrices = [[_mm512_setzero_si512(); S]; D];
    for (row, coefficients) in matrices.iter_mut().zip(&step.coefficients) {
        for (matrix, &coefficient) in row.iter_mut().zip(coefficients) {
            *matrix = _mm512_set1_epi64(MATRICES[usize::from(coefficient)].cast_signed());
        }
    }
    // What a destination had is loaded behind a mask of ones, or of zeros: a branch less, and half the code.
    let keep = if step.add { !0 } else { 0 };
    let mut at = 0;
    while at < len {
        let mask = if len - at >= BLOCK { !0 } else { (1 << (len - at)) - 1 };
        let mut x = [_mm512_setzero_si512(); S];
        for s in 0..S {
            // SAFETY: `at` is inside of the source, and bytes behind its end are left out by the mask.
            x[s] = unsafe { _mm512_maskz_loadu_epi8(mask, sources[s].as_ptr().add(at).cast()) };
        }
        for d in 0..D {
            // SAFETY: `at` is inside of the destination.
            let to = unsafe { destinations[d].as_mut_ptr().add(at) };
            // SAFETY: bytes behind its end are left out by the mask.
            let mut sum = unsafe { _mm512_maskz_loadu_epi8(mask & keep, to.cast()) };
            let mut s = 0;
            while s + 2 <= S {
                let a = _mm512_gf2p8affine_epi64_epi8::<0>(x[s], matrices[d][s]);
                let b = _mm512_gf2p8affine_epi64_epi8::<0>(x[s + 1], matrices[d][s + 1]);
                sum = _mm512_ternarylogic_epi64::<XOR3>(sum, a, b);
                s += 2;
            }
            if s < S {
                sum = _mm512_xor_si512(sum, _mm512_gf2p8affine_epi64_epi8::<0>(x[s], matrices[d][s]));
            }
            // SAFETY: as for the load.
            unsafe { _mm512_mask_storeu_epi8(to.cast(), mask, sum) };
        }
        at += BLOCK;
    }
}

/// The table of three bits whose sum is odd.
const XOR3: i32 = 0x96;
