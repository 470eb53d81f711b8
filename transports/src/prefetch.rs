//! Prefetch hints to the processor.
//!
//! With thousands of queue pairs, the state of the next one is not in a near cache when its turn comes. If it is prefetched while the
//! previous one still sends, it is.
#![allow(unsafe_code)]

/// Number of bytes that one hint covers.
const LINE: usize = 64;

/// Hints that all of `value` will be read soon; has no other effect.
#[inline]
pub fn prefetch<T: ?Sized>(value: &T) {
    lines(value).for_each(hint);
}

/// Hints that all of `value` will be written soon: memory that another core had last is fetched from there. Has no other effect.
#[inline]
pub fn prefetch_to_write<T: ?Sized>(value: &T) {
    lines(value).for_each(hint_to_write);
}

#[inline]
fn lines<T: ?Sized>(value: &T) -> impl Iterator<Item = *const u8> {
    let begin = std::ptr::from_ref(value).cast::<u8>();
    (0..size_of_val(value)).step_by(LINE).map(move |at| begin.wrapping_add(at))
}

#[inline]
#[cfg(target_arch = "x86_64")]
fn hint(at: *const u8) {
    use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
    // SAFETY: a hint reads nothing and never faults, whatever the address is.
    unsafe { _mm_prefetch::<_MM_HINT_T0>(at.cast()) }
}

/// Inline assembly, because the intrinsic prefetches for reading if the target is not known to have the instruction. Processors without the
/// instruction ignore it.
#[inline]
#[cfg(all(target_arch = "x86_64", not(miri)))]
fn hint_to_write(at: *const u8) {
    // SAFETY: a hint writes nothing and never faults, whatever the address is.
    unsafe { std::arch::asm!("prefetchw [{}]", in(reg) at, options(nostack, preserves_flags, readonly)) }
}

#[inline]
#[cfg(not(target_arch = "x86_64"))]
fn hint(_: *const u8) {}

#[inline]
#[cfg(any(not(target_arch = "x86_64"), miri))]
fn hint_to_write(_: *const u8) {}
