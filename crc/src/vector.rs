//! CRC-32 by carry-less multiplication of 512 bits at a time (AVX-512 with VPCLMULQDQ).
//!
//! The method is that of Gopal et al., "Fast CRC Computation for Generic Polynomials Using PCLMULQDQ Instruction" (Intel, 2009), in
//! its form for reflected bits: what was read is kept as a polynomial of a block's size with the same remainder; to take in
//! more, it is multiplied by a power of x for the distance, and the new block is added. Zeros in front of a message do not change its
//! remainder as long as the register begins with zero, so blocks are counted from the message's end and the first is filled up with
//! zeros in front: no other than the first is ever short. A register that begins with something else is added to the first four bytes.
#![allow(unsafe_code)]

use core::arch::x86_64::*;
use core::sync::atomic::{AtomicU8, Ordering};

use crate::polynomial::{Distance, ONE, POLYNOMIAL, shifted};
use crate::{Mask, portable};

/// Bytes of a block.
const BLOCK: usize = 64;

/// x^n modulo the polynomial, reflected, as a factor: one bit further left, because a product of reflected factors lies one bit
/// further right than the reflected product.
const fn factor(n: u32) -> u64 {
    (shifted(ONE, n) as u64) << 1
}

/// What the two halves of 128 bits are multiplied by to move them `bits` further: the lower half, which comes first on the wire, is
/// 64 bits further away. Both are 32 short of it, which the reduction at the end makes up for.
const fn factors(bits: u32) -> [u64; 2] {
    [factor(bits + 32), factor(bits - 32)]
}

/// The quotient of x^64 by the polynomial, and the polynomial with its highest term, reflected: for Barrett's reduction.
const BARRETT: [u64; 2] = [(POLYNOMIAL as u64) << 1 | 1, 0x1_f701_1641];

/// The same factors in each lane of 128 bits.
const fn every_lane(bits: u32) -> [u64; 8] {
    let [a, b] = factors(bits);
    [a, b, a, b, a, b, a, b]
}

const BY_1: [u64; 8] = every_lane(512);
const BY_2: [u64; 8] = every_lane(2 * 512);
const BY_3: [u64; 8] = every_lane(3 * 512);
const BY_4: [u64; 8] = every_lane(4 * 512);
/// What moves each of a block's lanes to the last one, which stays.
const LANES: [u64; 8] = {
    let ([a, b], [c, d], [e, f]) = (factors(384), factors(256), factors(128));
    [a, b, c, d, e, f, 0, 0]
};

/// Which instructions are there: 0 as long as that is not known, then [`LOOKED`] and those that were found.
static THERE: AtomicU8 = AtomicU8::new(0);
const LOOKED: u8 = 1;
/// Those of a [`Multiplier`].
const MULTIPLIER: u8 = 2;
/// Those of a [`Vector`].
const VECTOR: u8 = 4;

/// What of [`THERE`] is set. Asked for every packet, so the answer is kept.
#[inline]
fn there() -> u8 {
    match THERE.load(Ordering::Relaxed) {
        0 => look(),
        found => found,
    }
}

#[cold]
fn look() -> u8 {
    let multiplier = is_x86_feature_detected!("pclmulqdq") && is_x86_feature_detected!("sse4.1");
    let vector = multiplier
        && is_x86_feature_detected!("avx512f")
        && is_x86_feature_detected!("avx512bw")
        && is_x86_feature_detected!("avx512vbmi2")
        && is_x86_feature_detected!("vpclmulqdq");
    let found = LOOKED | if multiplier { MULTIPLIER } else { 0 } | if vector { VECTOR } else { 0 };
    THERE.store(found, Ordering::Relaxed);
    found
}

/// Proof that the instructions for whole blocks are there.
#[derive(Clone, Copy)]
pub(crate) struct Vector(());

/// Proof that carry-less multiplication of 64 bits is there.
#[derive(Clone, Copy)]
pub(crate) struct Multiplier(());

impl Multiplier {
    /// `None` where it is not.
    #[inline]
    pub(crate) fn get() -> Option<Multiplier> {
        (there() & MULTIPLIER != 0).then_some(Multiplier(()))
    }

    /// The product of two reflected polynomials of 32 terms: one of 64.
    #[inline]
    pub(crate) fn product(self, a: u32, b: u32) -> u64 {
        // SAFETY: a `Multiplier` proves that the instruction is there.
        unsafe { product(a, b) }
    }

    /// The sum of all differences, each multiplied by its power of x, modulo the polynomial.
    #[inline]
    pub(crate) fn change_of(self, old: &[u32], new: &[u32], distances: &[Distance]) -> u32 {
        // SAFETY: a `Multiplier` proves that the instructions are there.
        unsafe { change_of(old, new, distances) }
    }

    /// What is left of 64 terms modulo the polynomial.
    #[inline]
    pub(crate) fn reduced(self, sum: u64) -> u32 {
        // SAFETY: a `Multiplier` proves that the instructions are there.
        unsafe { barrett(_mm_cvtsi64_si128(sum as i64)) }
    }
}

#[inline]
#[target_feature(enable = "pclmulqdq,sse4.1")]
fn product(a: u32, b: u32) -> u64 {
    let b = (u64::from(b) << 1) as i64;
    _mm_cvtsi128_si64(_mm_clmulepi64_si128(_mm_cvtsi32_si128(a as i32), _mm_cvtsi64_si128(b), 0x00)) as u64
}

#[target_feature(enable = "pclmulqdq,sse4.1")]
fn change_of(old: &[u32], new: &[u32], distances: &[Distance]) -> u32 {
    let n = old.len().min(new.len()).min(distances.len());
    let mut sum = _mm_setzero_si128();
    for ((old, new), distance) in old[..n].iter().zip(&new[..n]).zip(&distances[..n]) {
        let by = _mm_cvtsi64_si128((u64::from(distance.0) << 1) as i64);
        sum = _mm_xor_si128(sum, _mm_clmulepi64_si128(_mm_cvtsi32_si128((old ^ new) as i32), by, 0x00));
    }
    barrett(sum)
}

/// The first block, which may be short, and what is done to the one behind it.
struct Front {
    short: __m512i,
    or: __m512i,
    xor: __m512i,
}

impl Vector {
    /// `None` where they are not.
    #[inline]
    pub(crate) fn get() -> Option<Vector> {
        (there() & VECTOR != 0).then_some(Vector(()))
    }

    #[inline]
    pub(crate) fn update(self, crc: u32, bytes: &[u8]) -> u32 {
        if bytes.len() < 4 {
            return portable::update(crc, bytes);
        }
        // SAFETY: a `Vector` proves that the instructions are there.
        unsafe { update(!crc, bytes) }
    }

    #[inline]
    pub(crate) fn masked(self, crc: u32, mask: &Mask, bytes: &[u8]) -> u32 {
        if bytes.len() < 4 {
            return portable::masked(crc, mask, bytes);
        }
        // SAFETY: a `Vector` proves that the instructions are there.
        unsafe { masked(!crc, mask, bytes) }
    }

    /// # Safety
    /// As [`crate::copy`].
    #[inline]
    pub(crate) unsafe fn copy(self, crc: u32, head: &[u8], src: *const u8, dst: &mut [u8]) -> u32 {
        // SAFETY: a `Vector` proves that the instructions are there; the rest is our caller's promise.
        unsafe { copy(crc, head, src, dst) }
    }
}

/// `x`, moved further by what `by` says.
#[inline]
#[target_feature(enable = "avx512f,vpclmulqdq")]
fn moved(x: __m512i, by: __m512i) -> (__m512i, __m512i) {
    (_mm512_clmulepi64_epi128(x, by, 0x00), _mm512_clmulepi64_epi128(x, by, 0x11))
}

/// `x`, moved further by what `by` says, and `block` added.
#[inline]
#[target_feature(enable = "avx512f,vpclmulqdq")]
fn fold(x: __m512i, by: __m512i, block: __m512i) -> __m512i {
    let (low, high) = moved(x, by);
    _mm512_ternarylogic_epi64(low, high, block, 0x96) // the sum of all three
}

#[inline]
#[target_feature(enable = "avx512f")]
fn constant(c: &[u64; 8]) -> __m512i {
    // SAFETY: 64 bytes that are there.
    unsafe { _mm512_loadu_si512(c.as_ptr().cast()) }
}

/// The last `n` bytes of a block, from 0 to 64; the others are zero.
#[inline]
fn last(n: usize) -> u64 {
    debug_assert!(n <= BLOCK);
    (!0u64).checked_shl((BLOCK - n) as u32).unwrap_or(0)
}

/// The register's beginning `state` at the first bytes of a short block of `n` bytes, and what of it reaches into the block behind it.
#[inline]
#[target_feature(enable = "avx512f,avx512vbmi2")]
fn begin(state: u32, n: usize) -> (__m512i, __m512i) {
    let state_alone = |s: u32| _mm512_zextsi128_si512(_mm_cvtsi32_si128(s as i32));
    let four = 0xfu64.checked_shl((BLOCK - n) as u32).unwrap_or(0);
    let here = _mm512_maskz_expand_epi8(four, state_alone(state));
    let behind = if n < 4 { state_alone(state >> (8 * n)) } else { _mm512_setzero_si512() };
    (here, behind)
}

/// The first `n` bytes from `from`, at the end of a block.
///
/// # Safety
/// They can be read.
#[inline]
#[target_feature(enable = "avx512f,avx512bw")]
unsafe fn load_short(from: *const u8, n: usize) -> __m512i {
    // SAFETY: bytes that the mask leaves out, those in front of `from`, are not touched.
    unsafe { _mm512_maskz_loadu_epi8(last(n), from.wrapping_sub(BLOCK - n).cast()) }
}

/// What is left of a block's polynomial and the 32 zero bits behind it: the CRC.
#[inline]
#[target_feature(enable = "avx512f,vpclmulqdq,pclmulqdq,sse4.1")]
fn reduce(x: __m512i) -> u32 {
    let (low, high) = moved(x, constant(&LANES));
    let sum = _mm512_xor_si512(low, high);
    let (a, b) = (_mm512_castsi512_si128(sum), _mm512_extracti32x4_epi32(sum, 1));
    let (c, d) = (_mm512_extracti32x4_epi32(sum, 2), _mm512_extracti32x4_epi32(x, 3));
    let x = _mm_xor_si128(_mm_xor_si128(a, b), _mm_xor_si128(c, d));
    let [_, by_64] = factors(128);
    let lower = _mm_set_epi32(0, 0, 0, !0);
    // 128 bits to 96, to 64, and these by Barrett to 32.
    let x = _mm_xor_si128(_mm_clmulepi64_si128(x, _mm_cvtsi64_si128(by_64 as i64), 0x00), _mm_srli_si128(x, 8));
    let by_32 = _mm_cvtsi64_si128(const { factor(64) as i64 });
    let x = _mm_xor_si128(_mm_clmulepi64_si128(_mm_and_si128(x, lower), by_32, 0x00), _mm_srli_si128(x, 4));
    !barrett(x)
}

/// What is left of the 64 terms in the lower half of `x`.
#[inline]
#[target_feature(enable = "pclmulqdq,sse4.1")]
fn barrett(x: __m128i) -> u32 {
    let lower = _mm_set_epi32(0, 0, 0, !0);
    let barrett = _mm_set_epi64x(BARRETT[1] as i64, BARRETT[0] as i64);
    let t = _mm_clmulepi64_si128(_mm_and_si128(x, lower), barrett, 0x10);
    let t = _mm_clmulepi64_si128(_mm_and_si128(t, lower), barrett, 0x00);
    _mm_extract_epi32(_mm_xor_si128(x, t), 1) as u32
}

/// Blocks to be read one by one and, if `COPY`, written elsewhere.
struct Blocks<const COPY: bool> {
    src: *const u8,
    dst: *mut u8,
}

impl<const COPY: bool> Blocks<COPY> {
    /// # Safety
    /// There is one more block to be read at `src` and, if `COPY`, room for it at `dst`.
    #[inline]
    #[target_feature(enable = "avx512f")]
    unsafe fn next(&mut self) -> __m512i {
        // SAFETY: as our caller promises.
        let block = unsafe { _mm512_loadu_si512(self.src.cast()) };
        self.src = self.src.wrapping_add(BLOCK);
        if COPY {
            // SAFETY: as our caller promises.
            unsafe { _mm512_storeu_si512(self.dst.cast(), block) };
            self.dst = self.dst.wrapping_add(BLOCK);
        }
        block
    }
}

/// The CRC of what `front` begins and `n` whole blocks.
///
/// # Safety
/// There are so many `blocks`.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,vpclmulqdq,pclmulqdq,sse4.1")]
unsafe fn sum<const COPY: bool>(front: Front, mut blocks: Blocks<COPY>, n: usize) -> u32 {
    let mut x = front.short;
    if n == 0 {
        return reduce(x);
    }
    // SAFETY: each call of `next` below takes one of the `n` blocks that our caller promises.
    unsafe {
        let by_1 = constant(&BY_1);
        let first = blocks.next();
        x = fold(x, by_1, _mm512_xor_si512(_mm512_or_si512(first, front.or), front.xor));
        // The first stands for one of the four that then go side by side, so that none waits for the one before it.
        for _ in 0..(n - 1) % 4 {
            x = fold(x, by_1, blocks.next());
        }
        let fours = (n - 1) / 4;
        if fours > 0 {
            let by_4 = constant(&BY_4);
            let mut side = [fold(x, by_1, blocks.next()), blocks.next(), blocks.next(), blocks.next()];
            for _ in 1..fours {
                for s in &mut side {
                    *s = fold(*s, by_4, blocks.next());
                }
            }
            let [a, b, c, d] = side;
            let far = fold(a, constant(&BY_3), d);
            let near = fold(b, constant(&BY_2), far);
            x = fold(c, by_1, near);
        }
    }
    reduce(x)
}

/// The CRC from a register that holds `state`; at least four bytes.
#[target_feature(enable = "avx512f,avx512bw,avx512vbmi2,vpclmulqdq,pclmulqdq,sse4.1")]
fn update(state: u32, bytes: &[u8]) -> u32 {
    let n = bytes.len() % BLOCK;
    let (here, behind) = begin(state, n);
    // SAFETY: the first `n` bytes are there, and behind them whole blocks.
    unsafe {
        let short = _mm512_xor_si512(load_short(bytes.as_ptr(), n), here);
        let front = Front { short, or: _mm512_setzero_si512(), xor: behind };
        let blocks = Blocks::<false> { src: bytes.as_ptr().wrapping_add(n), dst: core::ptr::null_mut() };
        sum(front, blocks, bytes.len() / BLOCK)
    }
}

/// The same with ones over the first bytes.
#[target_feature(enable = "avx512f,avx512bw,avx512vbmi2,vpclmulqdq,pclmulqdq,sse4.1")]
fn masked(state: u32, mask: &Mask, bytes: &[u8]) -> u32 {
    let n = bytes.len() % BLOCK;
    let (here, behind) = begin(state, n);
    let ones = mask.padded[n..n + 2 * BLOCK].as_ptr();
    // SAFETY: the first `n` bytes are there, and behind them whole blocks; of `ones` there are two blocks.
    unsafe {
        let (or, or_behind) = (_mm512_loadu_si512(ones.cast()), _mm512_loadu_si512(ones.wrapping_add(BLOCK).cast()));
        // Ones in front of the message would be part of it.
        let or = _mm512_maskz_mov_epi8(last(n), or);
        let short = _mm512_xor_si512(_mm512_or_si512(load_short(bytes.as_ptr(), n), or), here);
        let front = Front { short, or: or_behind, xor: behind };
        let blocks = Blocks::<false> { src: bytes.as_ptr().wrapping_add(n), dst: core::ptr::null_mut() };
        sum(front, blocks, bytes.len() / BLOCK)
    }
}

/// # Safety
/// As [`crate::copy`].
#[target_feature(enable = "avx512f,avx512bw,avx512vbmi2,vpclmulqdq,pclmulqdq,sse4.1")]
unsafe fn copy(crc: u32, head: &[u8], src: *const u8, dst: &mut [u8]) -> u32 {
    let n = dst.len() % BLOCK;
    let zero = _mm512_setzero_si512();
    let to = dst.as_mut_ptr();
    // A payload of whole blocks: the headers are the short block in front of it, or that and a whole one.
    if n == 0 && (4..=2 * BLOCK).contains(&head.len()) {
        let before = if head.len() > BLOCK { head.len() - BLOCK } else { head.len() };
        let (here, behind) = begin(!crc, before);
        // SAFETY: the headers are there; the blocks are as our caller promises.
        unsafe {
            let mut short = _mm512_xor_si512(load_short(head.as_ptr(), before), here);
            if head.len() > BLOCK {
                let whole = _mm512_loadu_si512(head.as_ptr().wrapping_add(before).cast());
                short = fold(short, constant(&BY_1), _mm512_xor_si512(whole, behind));
            }
            return sum(Front { short, or: zero, xor: zero }, Blocks::<true> { src, dst: to }, dst.len() / BLOCK);
        }
    }
    let crc = match head.len() {
        0 => crc,
        1..4 => portable::update(crc, head),
        _ => update(!crc, head),
    };
    if dst.len() < 4 {
        // SAFETY: as our caller promises.
        unsafe { core::ptr::copy_nonoverlapping(src, to, dst.len()) };
        return portable::update(crc, dst);
    }
    let (here, behind) = begin(!crc, n);
    // SAFETY: the first `n` bytes and then whole blocks can be read and written, as our caller promises; bytes that the mask
    // leaves out are not touched.
    unsafe {
        let bytes = load_short(src, n);
        _mm512_mask_storeu_epi8(to.wrapping_sub(BLOCK - n).cast(), last(n), bytes);
        let front = Front { short: _mm512_xor_si512(bytes, here), or: zero, xor: behind };
        let blocks = Blocks::<true> { src: src.wrapping_add(n), dst: to.wrapping_add(n) };
        sum(front, blocks, dst.len() / BLOCK)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The constants of the paper, section "Reflected", and of every implementation of it.
    #[test]
    fn factors_are_those_of_the_paper() {
        assert_eq!(factors(512), [0x1_5444_2bd4, 0x1_c6e4_1596]);
        assert_eq!(factors(128), [0x1_7519_97d0, 0x0_ccaa_009e]);
        assert_eq!(factor(64), 0x1_63cd_6124);
        assert_eq!(BARRETT[0], 0x1_db71_0641);
    }
}
