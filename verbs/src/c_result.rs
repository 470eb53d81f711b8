//! Results of verbs in C form. Most verbs return an errno; those that return a pointer, or -1, set errno.

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

/// A verb that returns a new object, or NULL with errno set.
pub(crate) fn pointer<T, U>(verb: impl FnOnce() -> Result<Box<T>, Errno>) -> *mut U {
    match verb() {
        Ok(made) => Box::into_raw(made).cast(),
        Err(e) => {
            e.set();
            std::ptr::null_mut()
        }
    }
}

/// Checks that there is memory for a large allocation. Rust ends the process if an allocation fails, so large ones are tried first.
pub(crate) fn check_memory(count: usize, size: usize) -> Result<(), Errno> {
    let mut room = Vec::<u8>::new();
    let tried = count.checked_mul(size).is_some_and(|bytes| room.try_reserve_exact(bytes).is_ok());
    // Prevents the compiler from removing the unused allocation.
    std::hint::black_box(&room);
    if tried { Ok(()) } else { Err(Errno::ENOMEM) }
}

/// A C array of pointers that ends with NULL; NULL with errno set if there is no memory.
pub(crate) fn c_list<T>(items: impl ExactSizeIterator<Item = *mut T>) -> *mut *mut T {
    // SAFETY: plain memory; the last element is NULL because the memory is zeroed.
    let list: *mut *mut T = unsafe { libc::calloc(items.len() + 1, size_of::<*mut T>()) }.cast();
    if list.is_null() {
        Errno::ENOMEM.set();
        return list;
    }
    let room = items.len();
    for (i, item) in items.enumerate().take(room) {
        // SAFETY: `i` is less than the number of elements.
        unsafe { list.add(i).write(item) };
    }
    list
}
