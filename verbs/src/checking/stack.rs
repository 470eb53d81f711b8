//! Where in the program a call is made: the return addresses of the calling thread, from the first that is not of this library.

use std::cell::RefCell;
use std::collections::HashMap;
use std::ffi::{c_int, c_void};
use std::ops::Range;
use std::sync::OnceLock;

use softnic_check::Place;

use super::modules;
use crate::unwind::{_Unwind_Backtrace, _Unwind_GetIP, GO_ON, STOP};

/// Places are told apart by so many frames: wrappers around verbs are common.
const TOLD_APART_BY: usize = 3;
/// Frames of a stack.
const DEPTH: usize = 24;
/// Places that a thread remembers.
const REMEMBERED: usize = 4096;

type Key = [u64; TOLD_APART_BY];

/// Addresses that are collected.
struct Frames {
    own: Range<u64>,
    addresses: [u64; DEPTH],
    len: usize,
    at_most: usize,
}

extern "C" fn each(context: *mut c_void, frames: *mut c_void) -> c_int {
    // SAFETY: `take` passes its own, which nobody else uses meanwhile.
    let frames = unsafe { &mut *frames.cast::<Frames>() };
    // SAFETY: the unwinder passes its context.
    let address = unsafe { _Unwind_GetIP(context) } as u64;
    // Only at the beginning: a callback of ours may call the program.
    if frames.len == 0 && frames.own.contains(&address) {
        return GO_ON;
    }
    if frames.len == frames.at_most || address == 0 {
        return STOP;
    }
    // The call lies before the address to which it returns.
    frames.addresses[frames.len] = address.saturating_sub(1);
    frames.len += 1;
    if frames.len == frames.at_most { STOP } else { GO_ON }
}

/// The innermost frames of the program, at most so many.
fn take(at_most: usize) -> Frames {
    static OWN: OnceLock<Range<u64>> = OnceLock::new();
    let own = OWN.get_or_init(|| modules::range_of(each as *const () as u64)).clone();
    let mut frames = Frames { own, addresses: [0; DEPTH], len: 0, at_most: at_most.min(DEPTH) };
    // SAFETY: the callback has the type that the unwinder calls, and does not unwind.
    unsafe { _Unwind_Backtrace(each, (&raw mut frames).cast()) };
    frames
}

/// Where the thread is. A whole stack is only taken at a place where it was not yet.
pub(super) fn here() -> Place {
    thread_local! {
        static PLACES: RefCell<HashMap<Key, Place>> = RefCell::default();
    }
    let first = take(TOLD_APART_BY);
    let key: Key = [first.addresses[0], first.addresses[1], first.addresses[2]];
    let whole = || {
        let frames = take(DEPTH);
        let site = key.iter().fold(0u64, |site, address| site.rotate_left(21) ^ address);
        Place { site, ..Place::new(&frames.addresses[..frames.len]) }
    };
    // A thread that ends may post for the last time when its own values are gone.
    let found = PLACES.try_with(|places| {
        let mut places = places.borrow_mut();
        if places.len() >= REMEMBERED {
            places.clear();
        }
        places.entry(key).or_insert_with(whole).clone()
    });
    found.unwrap_or_else(|_| whole())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[inline(never)]
    fn outer(depth: u32) -> Frames {
        let mut frames = Frames { own: 0..0, addresses: [0; DEPTH], len: 0, at_most: 8 };
        if depth > 0 {
            return std::hint::black_box(outer(depth - 1));
        }
        // SAFETY: as in `take`.
        unsafe { _Unwind_Backtrace(each, (&raw mut frames).cast()) };
        frames
    }

    #[test]
    fn frames_are_taken_up_to_a_number_and_ours_are_left_out_at_the_beginning() {
        let all = outer(10);
        assert_eq!(all.len, 8);
        let own = modules::range_of(each as *const () as u64);
        assert!(own.contains(&all.addresses[1]), "{own:x?} {:x?}", all.addresses);
        // The test is in the same module as the library is, so nothing but what lies below main is left.
        assert!(take(8).addresses[..take(8).len].iter().all(|address| !own.contains(address)));
    }
}
