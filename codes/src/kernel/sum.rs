//! Exclusive or of bytes: the sum of any number of sources, by the longest registers.

use super::{SUMMANDS, common_length};

/// Calls a function by how many sources there are, which it has as a constant.
macro_rules! by_number {
    ($function:ident, $sources:expr, $($argument:expr),*) => {
        by_number!(@arms $function, $sources, ($($argument),*), [1, 2, 3, 4, 5, 6, 7, 8])
    };
    (@arms $function:ident, $sources:expr, $arguments:tt, [$($n:literal),*]) => {
        match $sources.len() {
            $($n => {
                let sources: [&[u8]; $n] = $sources.try_into().expect("as many");
                by_number!(@call $function, $n, sources, $arguments)
            })*
            n => unreachable!("{n} sources"),
        }
    };
    (@call $function:ident, $n:literal, $sources:ident, ($($argument:expr),*)) => {
        $function::<$n>($sources, $($argument),*)
    };
}

/// Adds `from` to `into`, as far as the shorter one goes.
#[inline]
pub fn xor(into: &mut [u8], from: &[u8]) {
    let n = into.len().min(from.len());
    sum([&from[..n]], &mut into[..n], true);
}

/// Sets `into` to the sum of all sources. One that is shorter counts as if zeros were behind it, one that is longer as if it were cut.
pub fn xor_all(into: &mut [u8], sources: &[&[u8]]) {
    let all_reach = |sources: &[&[u8]], n: usize| sources.iter().all(|source| source.len() >= n);
    let mut add = sources.is_empty() || !all_reach(sources, into.len());
    if add {
        into.fill(0);
    }
    for group in sources.chunks(SUMMANDS) {
        if all_reach(group, into.len()) {
            let mut cut: [&[u8]; SUMMANDS] = [&[]; SUMMANDS];
            cut.iter_mut().zip(group).for_each(|(cut, source)| *cut = &source[..into.len()]);
            let cut = &cut[..group.len()];
            by_number!(sum, cut, into, add);
        } else {
            group.iter().for_each(|source| xor(into, source));
        }
        add = true;
    }
}

/// By the longest registers that there are.
#[inline]
fn sum<const S: usize>(sources: [&[u8]; S], into: &mut [u8], add: bool) {
    // Each of these is a look at a word that was filled in before.
    #[cfg(target_arch = "x86_64")]
    if is_x86_feature_detected!("avx512f") && is_x86_feature_detected!("avx512bw") {
        // SAFETY: the processor has the instructions, as was just asked.
        return unsafe { wide_sum(sources, into, add) };
    } else if is_x86_feature_detected!("avx2") {
        // SAFETY: the same.
        return unsafe { by_32(&sources, into, add) };
    }
    portable_sum(sources, into, add);
}

/// [`super::Kernel::sum`], in a form that compilers make vector instructions of.
pub(super) fn portable(sources: &[&[u8]], into: &mut [u8], add: bool) {
    by_number!(portable_sum, sources, into, add);
}

#[inline(always)]
fn portable_sum<const S: usize>(sources: [&[u8]; S], into: &mut [u8], add: bool) {
    let len = into.len();
    assert_eq!(common_length(&sources, &[]), len);
    let keep = if add { 0xff } else { 0 };
    // So cut, no index needs a check.
    let sources = sources.map(|source| &source[..len]);
    for i in 0..len {
        into[i] = sources.iter().fold(into[i] & keep, |sum, source| sum ^ source[i]);
    }
}

/// By registers of 32 bytes: half the instructions of what every processor has.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2")]
pub(super) fn by_32(sources: &[&[u8]], into: &mut [u8], add: bool) {
    by_number!(portable_sum, sources, into, add);
}

/// By registers of 64 bytes, those of `into` on cache lines, with masks for what is before and behind: a compiler left to itself takes
/// registers of 32, anywhere.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx512f,avx512bw")]
pub(super) fn by_64(sources: &[&[u8]], into: &mut [u8], add: bool) {
    by_number!(wide_sum, sources, into, add);
}

#[cfg(target_arch = "x86_64")]
use wide::wide_sum;

#[cfg(target_arch = "x86_64")]
mod wide {
    use core::arch::x86_64::*;

    use super::common_length;

    /// Bytes of a register.
    const BLOCK: usize = 64;
    /// The table of three bits whose sum is odd.
    const XOR3: i32 = 0x96;

    #[target_feature(enable = "avx512f,avx512bw")]
    pub(super) fn wide_sum<const S: usize>(sources: [&[u8]; S], into: &mut [u8], add: bool) {
        if add { blocks::<S, true>(sources, into) } else { blocks::<S, false>(sources, into) }
    }

    #[inline]
    #[target_feature(enable = "avx512f,avx512bw")]
    fn blocks<const S: usize, const ADD: bool>(sources: [&[u8]; S], into: &mut [u8]) {
        let len = into.len();
        assert_eq!(common_length(&sources, &[]), len);
        let (to, from) = (into.as_mut_ptr(), sources.map(|source| source.as_ptr()));
        let mut at = (to.addr().wrapping_neg() % BLOCK).min(len);
        // SAFETY: each block lies before `len`, where all end, or is cut there by its mask.
        unsafe {
            masked::<S, ADD>(from, to, 0, (1 << at) - 1);
            while at + 2 * BLOCK <= len {
                // Both are loaded before the first is stored.
                let sums = [block::<S, ADD>(from, to, at, !0), block::<S, ADD>(from, to, at + BLOCK, !0)];
                _mm512_storeu_si512(to.add(at).cast(), sums[0]);
                _mm512_storeu_si512(to.add(at + BLOCK).cast(), sums[1]);
                at += 2 * BLOCK;
            }
            if at + BLOCK <= len {
                masked::<S, ADD>(from, to, at, !0);
                at += BLOCK;
            }
            masked::<S, ADD>(from, to, at, (1 << (len - at)) - 1);
        }
    }

    /// Writes the sum of the bytes of a block that the mask has, `at` bytes behind the beginning.
    ///
    /// # Safety
    /// These bytes are there.
    #[inline]
    #[target_feature(enable = "avx512f,avx512bw")]
    unsafe fn masked<const S: usize, const ADD: bool>(from: [*const u8; S], to: *mut u8, at: usize, mask: u64) {
        // SAFETY: as our caller promises; bytes that the mask leaves out are not touched.
        unsafe { _mm512_mask_storeu_epi8(to.wrapping_add(at).cast(), mask, block::<S, ADD>(from, to, at, mask)) };
    }

    /// The sum of the bytes of a block that the mask has, with those of `to` if they are kept.
    ///
    /// # Safety
    /// As for [`masked`].
    #[inline]
    #[target_feature(enable = "avx512f,avx512bw")]
    unsafe fn block<const S: usize, const ADD: bool>(
        from: [*const u8; S],
        to: *const u8,
        at: usize,
        mask: u64,
    ) -> __m512i {
        // SAFETY: as our caller promises; bytes that the mask leaves out are not touched.
        unsafe {
            let load = |from: *const u8| _mm512_maskz_loadu_epi8(mask, from.wrapping_add(at).cast());
            let mut sum = if ADD { load(to) } else { _mm512_setzero_si512() };
            let mut s = 0;
            while s + 2 <= S {
                sum = _mm512_ternarylogic_epi64::<XOR3>(sum, load(from[s]), load(from[s + 1]));
                s += 2;
            }
            if s < S { _mm512_xor_si512(sum, load(from[s])) } else { sum }
        }
    }
}
