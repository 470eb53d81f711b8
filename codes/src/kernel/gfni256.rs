//! Products by matrices of bits (GFNI), 32 bytes at a time (AVX2).

use core::arch::x86_64::*;

use super::tables::MATRICES;
use super::{Step, by_shape, common_length, portable};

/// Bytes of a register.
const BLOCK: usize = 32;

/// [`super::Kernel::multiply`].
#[target_feature(enable = "avx2,gfni")]
pub(super) fn multiply(step: &Step, sources: &[&[u8]], destinations: &mut [&mut [u8]]) {
    by_shape!(shaped, step, sources, destinations);
}

#[target_feature(enable = "avx2,gfni")]
fn shaped<const D: usize, const S: usize>(step: &Step, sources: &[&[u8]; S], destinations: &mut [&mut [u8]; D]) {
    let len = common_length(sources, destinations);
    let whole = len - len % BLOCK;
    let mut matrices = [[_mm256_setzero_si256(); S]; D];
    for (row, coefficients) in matrices.iter_mut().zip(&step.coefficients) {
        for (matrix, &coefficient) in row.iter_mut().zip(coefficients) {
            *matrix = _mm256_set1_epi64x(MATRICES[usize::from(coefficient)].cast_signed());
        }
    }
    let mut at = 0;
    while at < whole {
        let mut x = [_mm256_setzero_si256(); S];
        for s in 0..S {
            // SAFETY: a block is there, for the source is as long as `len`.
            x[s] = unsafe { _mm256_loadu_si256(sources[s].as_ptr().add(at).cast()) };
        }
        for d in 0..D {
            // SAFETY: a block is there, for the destination is as long as `len`.
            let to: *mut __m256i = unsafe { destinations[d].as_mut_ptr().add(at) }.cast();
            // SAFETY: the same.
            let mut sum = if step.add { unsafe { _mm256_loadu_si256(to) } } else { _mm256_setzero_si256() };
            for s in 0..S {
                sum = _mm256_xor_si256(sum, _mm256_gf2p8affine_epi64_epi8::<0>(x[s], matrices[d][s]));
            }
            // SAFETY: as for the load.
            unsafe { _mm256_storeu_si256(to, sum) };
        }
        at += BLOCK;
    }
    portable::multiply_from(whole, step, sources, destinations);
}
