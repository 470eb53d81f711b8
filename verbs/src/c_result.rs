//! The result of a verb as C gets it. Most verbs return an errno; those that return a pointer, or -1, set it.

use std::ffi::c_int;

use crate::errno::Errno;

/// A verb that returns 0 or an errno.
pub(crate) fn status(verb: impl FnOnce() -> Result<(), Errno>) -> c_int {
    match verb() {
        Ok(()) => 0,
        Err(e) => {
            e.set();
            e.0
        }
    }
}

/// A verb that returns 0, or -1 with errno set.
pub(crate) fn minus_one(verb: impl FnOnce() -> Result<(), Errno>) -> c_int {
    match status(verb) {
        0 => 0,
        _ => -1,
    }
}

/// A verb that makes something, or returns NULL with errno set.
pub(crate) fn pointer<T, U>(verb: impl FnOnce() -> Result<Box<T>, Errno>) -> *mut U {
    match verb() {
        Ok(made) => Box::into_raw(made).cast(),
        Err(e) => {
            e.set();
            std::ptr::null_mut()
        }
    }
}

/// Refuses what there is no memory for. Rust ends the process where an allocation fails, so large ones are tried before.
pub(crate) fn check_memory(count: usize, size: usize) -> Result<(), Errno> {
    let mut room = Vec::<u8>::new();
    let tried = count.checked_mul(size).is_some_and(|bytes| room.try_reserve_exact(bytes).is_ok());
    // Lest the compiler finds out that nobody uses it.
    std::hint::black_box(&room);
    if tried { Ok(()) } else { Err(Errno::ENOMEM) }
}

/// Pointers in memory of C's, with a NULL behind them; NULL, and errno, where there is none.
pub(crate) fn c_list<T>(items: impl ExactSizeIterator<Item = *mut T>) -> *mut *mut T {
    // SAFETY: plain memory, with a NULL at the end because it is zeroed.
    let list: *mut *mut T = unsafe { libc::calloc(items.len() + 1, size_of::<*mut T>()) }.cast();
    if list.is_null() {
        Errno::ENOMEM.set();
        return list;
    }
    let room = items.len();
    for (i, item) in items.enumerate().take(room) {
        // SAFETY: `i` is below the number of elements that there are.
        unsafe { list.add(i).write(item) };
    }
    list
}
