//! Telling the processor which memory will be wanted soon.
//!
//! With thousands of queue pairs the state of the next one is in no near cache when its turn comes; asked for while the one before it
//! still sends, it is.
#![allow(unsafe_code)]

/// Bytes that one hint is good for.
const LINE: usize = 64;

/// Hints that all of `value` will be wanted soon; does nothing else.
#[inline]
pub fn prefetch<T: ?Sized>(value: &T) {
    let begin = std::ptr::from_ref(value).cast::<u8>();
    for at in (0..size_of_val(value)).step_by(LINE) {
        hint(begin.wrapping_add(at));
    }
}

#[inline]
#[cfg(target_arch = "x86_64")]
fn hint(at: *const u8) {
    use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
    // SAFETY: a hint reads nothing and never faults, whatever the address.
    unsafe { _mm_prefetch::<_MM_HINT_T0>(at.cast()) }
}

#[inline]
#[cfg(not(target_arch = "x86_64"))]
fn hint(_: *const u8) {}
