//! The functions that would have been called without this library.

use std::ffi::CStr;
use std::sync::atomic::{AtomicPtr, Ordering};

use nix::libc::{self, c_void};

/// The function that would have been called without this library: NULL where there is none.
pub(crate) fn next(name: &CStr, known: &AtomicPtr<c_void>) -> *mut c_void {
    let mut function = known.load(Ordering::Relaxed);
    if function.is_null() {
        // SAFETY: it is a name.
        function = unsafe { libc::dlsym(libc::RTLD_NEXT, name.as_ptr()) };
        known.store(function, Ordering::Relaxed);
    }
    function
}
