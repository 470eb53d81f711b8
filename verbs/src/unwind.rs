//! The unwinder of libgcc_s, which Rust's own backtraces use, too.

use std::ffi::{c_int, c_void};

/// Continue with the next frame.
pub(crate) const GO_ON: c_int = 0;
/// No more frames are requested.
pub(crate) const STOP: c_int = 4;

unsafe extern "C" {
    pub(crate) fn _Unwind_Backtrace(
        each: extern "C" fn(*mut c_void, *mut c_void) -> c_int,
        argument: *mut c_void,
    ) -> c_int;
    pub(crate) fn _Unwind_GetIP(context: *mut c_void) -> usize;
    /// The end of the stack of a frame's caller.
    pub(crate) fn _Unwind_GetCFA(context: *mut c_void) -> usize;
    /// As `_Unwind_GetIP`; `is_itself` tells whether the address is the instruction itself, as in a frame that a signal interrupted, rather
    /// than a return address.
    pub(crate) fn _Unwind_GetIPInfo(context: *mut c_void, is_itself: *mut c_int) -> usize;
}
