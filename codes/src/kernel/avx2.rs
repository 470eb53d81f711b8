//! Products by tables of half bytes that a shuffle looks up, 32 bytes at a time (AVX2).

use core::arch::x86_64::*;

use super::tables::{HALVES, Halves};
use super::{Step, by_shape, common_length, portable};

/// Bytes of a register.
const BLOCK: usize = 32;
/// Registers of a source at a time: each table is loaded once for both.
const AT_ONCE: usize = 2;

/// [`super::Kernel::multiply`].
#[target_feature(enable = "avx2")]
pub(super) fn multiply(step: &Step, sources: &[&[u8]], destinations: &mut [&mut [u8]]) {
    by_shape!(shaped, step, sources, destinations);
}

#[target_feature(enable = "avx2")]
fn shaped<const D: usize, const S: usize>(step: &Step, sources: &[&[u8]; S], destinations: &mut [&mut [u8]; D]) {
    let len = common_length(sources, destinations);
    let whole = len - len % (AT_ONCE * BLOCK);
    // Side by side: the loop then needs no pointer for each.
    let mut tables = [[Halves { lower: [0; 16], upper: [0; 16] }; S]; D];
    for (row, coefficients) in tables.iter_mut().zip(&step.coefficients) {
        for (table, &coefficient) in row.iter_mut().zip(coefficients) {
            *table = HALVES[usize::from(coefficient)];
        }
    }
    let half = _mm256_set1_epi8(0x0f);
    let mut at = 0;
    while at < whole {
        let mut sums = [[_mm256_setzero_si256(); AT_ONCE]; D];
        if step.add {
            for d in 0..D {
                for (i, sum) in sums[d].iter_mut().enumerate() {
                    // SAFETY: both blocks are there, for the destination is as long as `len`.
                    *sum = unsafe { _mm256_loadu_si256(destinations[d].as_ptr().add(at + i * BLOCK).cast()) };
                }
            }
        }
        for s in 0..S {
            let mut lower = [_mm256_setzero_si256(); AT_ONCE];
            let mut upper = lower;
            for i in 0..AT_ONCE {
                // SAFETY: both blocks are there, for the source is as long as `len`.
                let x = unsafe { _mm256_loadu_si256(sources[s].as_ptr().add(at + i * BLOCK).cast()) };
                lower[i] = _mm256_and_si256(x, half);
                upper[i] = _mm256_and_si256(_mm256_srli_epi64::<4>(x), half);
            }
            for d in 0..D {
                // SAFETY: a table has sixteen bytes.
                let of_lower = unsafe { _mm_loadu_si128(tables[d][s].lower.as_ptr().cast()) };
                // SAFETY: the same.
                let of_upper = unsafe { _mm_loadu_si128(tables[d][s].upper.as_ptr().cast()) };
                let of_lower = _mm256_broadcastsi128_si256(of_lower);
                let of_upper = _mm256_broadcastsi128_si256(of_upper);
                for i in 0..AT_ONCE {
                    let a = _mm256_shuffle_epi8(of_lower, lower[i]);
                    let b = _mm256_shuffle_epi8(of_upper, upper[i]);
                    sums[d][i] = _mm256_xor_si256(sums[d][i], _mm256_xor_si256(a, b));
                }
            }
        }
        for d in 0..D {
            for (i, &sum) in sums[d].iter().enumerate() {
                // SAFETY: as for the loads.
                unsafe { _mm256_storeu_si256(destinations[d].as_mut_ptr().add(at + i * BLOCK).cast(), sum) };
            }
        }
        at += AT_ONCE * BLOCK;
    }
    portable::multiply_from(whole, step, sources, destinations);
}
