//! A copy out of memory that others write to at the same time: each aligned word of eight bytes is read whole.
#![allow(unsafe_code)]

/// Bytes of a word that is read whole.
pub(crate) const WORD: usize = 8;

/// Copies `dst.len()` bytes from `src`.
///
/// # Safety
/// As [`crate::copy`].
#[inline]
pub(crate) unsafe fn copy(src: *const u8, dst: &mut [u8]) {
    // SAFETY: as our caller promises.
    unsafe {
        match (src.addr() | dst.len()).is_multiple_of(WORD) {
            // memcpy reads by words or more, counted from the begin or from the end.
            true => core::ptr::copy_nonoverlapping(src, dst.as_mut_ptr(), dst.len()),
            false => copy_unaligned(src, dst),
        }
    }
}

/// [`copy`], where words begin or end outside.
///
/// # Safety
/// As [`crate::copy`].
#[inline(never)]
unsafe fn copy_unaligned(src: *const u8, dst: &mut [u8]) {
    let (head, rest) = dst.split_at_mut(src.align_offset(WORD).min(dst.len()));
    let body = src.wrapping_add(head.len());
    let (words, tail) = rest.as_chunks_mut::<WORD>();
    let end = body.wrapping_add(words.len() * WORD);
    // SAFETY: the three parts are what our caller promises. Volatile, so that each word is one load.
    unsafe {
        core::ptr::copy_nonoverlapping(src, head.as_mut_ptr(), head.len());
        for (i, word) in words.iter_mut().enumerate() {
            *word = body.cast::<u64>().wrapping_add(i).read_volatile().to_ne_bytes();
        }
        core::ptr::copy_nonoverlapping(end, tail.as_mut_ptr(), tail.len());
    }
}
