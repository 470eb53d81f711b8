//! The place in the program where a call is made: the return addresses of the calling thread, from the first one outside this library.

use std::cell::RefCell;
use std::collections::HashMap;
use std::ffi::{c_int, c_void};
use std::ops::Range;
use std::sync::OnceLock;

use softnic_check::Place;

use super::modules;
use crate::unwind::{_Unwind_Backtrace, _Unwind_GetCFA, _Unwind_GetIP, GO_ON, STOP};

/// Number of frames that distinguish places: wrappers around verbs are common.
const TOLD_APART_BY: usize = 3;
/// Maximum number of frames of a stack.
const DEPTH: usize = 24;
/// Maximum number of places that a thread caches.
const REMEMBERED: usize = 4096;

type Key = [u64; TOLD_APART_BY];

/// The collected addresses.
struct Frames {
    own: Range<u64>,
    addresses: [u64; DEPTH],
    /// The stack locations of the return addresses, if they have the usual position on this architecture.
    slots: [usize; TOLD_APART_BY],
    len: usize,
    at_most: usize,
}

extern "C" fn each(context: *mut c_void, frames: *mut c_void) -> c_int {
    // SAFETY: `take` passes its own value, which no other code uses meanwhile.
    let frames = unsafe { &mut *frames.cast::<Frames>() };
    // SAFETY: the unwinder passes its context.
    let (address, end) = unsafe { (_Unwind_GetIP(context) as u64, _Unwind_GetCFA(context)) };
    // On x86, a call pushes its return address directly below the end of the caller's stack frame.
    let slot = end.wrapping_sub(size_of::<usize>());
    // Only at the start: a callback of this library may call the program.
    if frames.len == 0 && frames.own.contains(&address) {
        return GO_ON;
    }
    if frames.len == frames.at_most || address == 0 {
        return STOP;
    }
    // The call instruction is before the return address.
    frames.addresses[frames.len] = address.saturating_sub(1);
    if let Some(place) = frames.slots.get_mut(frames.len) {
        *place = slot;
    }
    frames.len += 1;
    if frames.len == frames.at_most { STOP } else { GO_ON }
}

/// The innermost frames of the program, at most `at_most`.
fn take(at_most: usize) -> Frames {
    static OWN: OnceLock<Range<u64>> = OnceLock::new();
    let own = OWN.get_or_init(|| modules::range_of(each as *const () as u64)).clone();
    let mut frames =
        Frames { own, addresses: [0; DEPTH], slots: [0; TOLD_APART_BY], len: 0, at_most: at_most.min(DEPTH) };
    // SAFETY: the callback has the type that the unwinder calls, and does not unwind.
    unsafe { _Unwind_Backtrace(each, (&raw mut frames).cast()) };
    frames
}

/// The cached places of a thread.
#[derive(Default)]
struct Known {
    /// Places by the frames that distinguish them.
    places: HashMap<Key, Place>,
    /// Places by the kind of the call and the stack pointer, with the return addresses that the stack must contain for the same place.
    again: HashMap<(usize, usize), (Marks, Place)>,
    /// The stack of the thread, once determined; other stacks on which the program runs the thread are unknown.
    stack: Option<Range<usize>>,
}

/// The stack locations of the return addresses that distinguish places, and these addresses.
#[derive(Clone, Copy)]
struct Marks([(usize, usize); TOLD_APART_BY]);

impl Marks {
    /// The marks of frames that were just collected, if all of them are on the stack of the thread.
    fn of(frames: &Frames, from: usize, stack: &Range<usize>) -> Option<Marks> {
        let mut marks = [(0, 0); TOLD_APART_BY];
        for (mark, (slot, address)) in marks.iter_mut().zip(frames.slots.iter().zip(frames.addresses)) {
            let inside = from <= *slot && slot % size_of::<usize>() == 0 && slot + size_of::<usize>() <= stack.end;
            *mark = (*slot, address as usize + 1);
            // If the unwinder is right, the location contains the address.
            if !inside || !stack.contains(&from) || read(*slot) != mark.1 {
                return None;
            }
        }
        Some(Marks(marks))
    }

    fn hold(&self) -> bool {
        self.0.iter().all(|&(slot, address)| read(slot) == address)
    }
}

/// Reads a word of this thread's stack.
fn read(slot: usize) -> usize {
    // SAFETY: the location is aligned, and is on this thread's stack, above the current stack pointer: `Marks::of` has checked that, and
    // the stack pointer is the same now. It is read by its address only.
    unsafe { std::ptr::with_exposed_provenance::<usize>(slot).read_volatile() }
}

/// The stack of this thread, according to the C library.
fn stack_of_thread() -> Range<usize> {
    let (mut from, mut len) = (std::ptr::null_mut(), 0);
    // SAFETY: the attributes are created by the first call, and destroyed if it succeeded.
    unsafe {
        let mut attributes = std::mem::zeroed();
        if libc::pthread_getattr_np(libc::pthread_self(), &raw mut attributes) != 0 {
            return 0..0;
        }
        libc::pthread_attr_getstack(&raw const attributes, &raw mut from, &raw mut len);
        libc::pthread_attr_destroy(&raw mut attributes);
    }
    from.addr()..from.addr() + len
}

/// The place of the current call. `kind` is a number that distinguishes the call paths from the program to this function.
///
/// Programs make the same call from the same place millions of times. Then the return addresses are in the same locations, and no unwinding
/// is necessary. A whole stack is collected only at a place that is new to the thread.
#[inline(never)]
pub(super) fn here(kind: usize) -> Place {
    thread_local! {
        static KNOWN: RefCell<Known> = RefCell::default();
    }
    let on_stack = 0usize;
    let pointer = std::hint::black_box(&raw const on_stack).addr();
    // An ending thread may post after its thread-local values were destroyed, and a signal handler may run during this function.
    let found = KNOWN.try_with(|known| known.try_borrow_mut().ok().map(|mut known| known.place(kind, pointer)));
    found.ok().flatten().unwrap_or_else(|| whole(&key_of(&take(TOLD_APART_BY))))
}

fn key_of(frames: &Frames) -> Key {
    [frames.addresses[0], frames.addresses[1], frames.addresses[2]]
}

fn whole(key: &Key) -> Place {
    let frames = take(DEPTH);
    let site = key.iter().fold(0u64, |site, address| site.rotate_left(21) ^ address);
    Place { site, ..Place::new(&frames.addresses[..frames.len]) }
}

impl Known {
    fn place(&mut self, kind: usize, pointer: usize) -> Place {
        if let Some((marks, place)) = self.again.get(&(kind, pointer))
            && marks.hold()
        {
            return place.clone();
        }
        for is_full in [self.places.len() >= REMEMBERED, self.again.len() >= REMEMBERED] {
            if is_full {
                (self.places, self.again) = Default::default();
            }
        }
        let frames = take(TOLD_APART_BY);
        let key = key_of(&frames);
        let place = self.places.entry(key).or_insert_with(|| whole(&key)).clone();
        let stack = self.stack.get_or_insert_with(stack_of_thread);
        if let Some(marks) = Marks::of(&frames, pointer, stack) {
            self.again.insert((kind, pointer), (marks, place.clone()));
        }
        place
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[inline(never)]
    fn outer(depth: u32) -> Frames {
        let mut frames = Frames { own: 0..0, addresses: [0; DEPTH], slots: [0; TOLD_APART_BY], len: 0, at_most: 8 };
        if depth > 0 {
            return std::hint::black_box(outer(depth - 1));
        }
        // SAFETY: as in `take`.
        unsafe { _Unwind_Backtrace(each, (&raw mut frames).cast()) };
        frames
    }

    /// The marks of the current calls.
    #[inline(never)]
    fn marked(stack: &Range<usize>) -> Option<Marks> {
        let mut frames = Frames { own: 0..0, addresses: [0; DEPTH], slots: [0; TOLD_APART_BY], len: 0, at_most: 4 };
        let pointer = std::hint::black_box(&raw const frames).addr();
        // SAFETY: as in `take`.
        unsafe { _Unwind_Backtrace(each, (&raw mut frames).cast()) };
        // The first frame is that of the unwinder's caller, which is this function.
        frames.addresses.rotate_left(1);
        frames.slots.rotate_left(1);
        // Of the last frame only the address is known to be right, which the frame before it contains.
        frames.slots[2] = frames.slots[1];
        frames.addresses[2] = frames.addresses[1];
        Marks::of(&frames, pointer, stack).filter(Marks::hold)
    }

    #[test]
    #[cfg(target_arch = "x86_64")]
    fn return_addresses_are_found_on_the_stack_of_the_thread_and_on_no_other() {
        let stack = stack_of_thread();
        let marks = marked(&stack).expect("each return address is where the unwinder has it from");
        assert!(marks.0.iter().all(|(slot, _)| stack.contains(slot)));
        assert!(marked(&(0..0)).is_none() && marked(&(0..usize::MAX)).is_some());
        let wrong = Marks(marks.0.map(|(slot, address)| (slot, address + 1)));
        assert!(!wrong.hold());
    }

    #[test]
    fn frames_are_taken_up_to_a_number_and_ours_are_left_out_at_the_beginning() {
        let all = outer(10);
        assert_eq!(all.len, 8);
        let own = modules::range_of(each as *const () as u64);
        assert!(own.contains(&all.addresses[1]), "{own:x?} {:x?}", all.addresses);
        // The test is in the same module as the library, so only frames below main are left.
        assert!(take(8).addresses[..take(8).len].iter().all(|address| !own.contains(address)));
    }
}
