//! The unwinder of libgcc_s, by which Rust's own backtraces are taken, too.

use std::ffi::{c_int, c_void};

/// Go on to the next frame.
pub(crate) const GO_ON: c_int = 0;
/// No more frames are wanted.
pub(crate) const STOP: c_int = 4;

unsafe extern "C" {
    pub(crate) fn _Unwind_Backtrace(
        each: extern "C" fn(*mut c_void, *mut c_void) -> c_int,
        argument: *mut c_void,
    ) -> c_int;
    pub(crate) fn _Unwind_GetIP(context: *mut c_void) -> usize;
    /// Where the stack of the caller of a frame ends.
    pub(crate) fn _Unwind_GetCFA(context: *mut c_void) -> usize;
    /// And whether it is the instruction itself, as in a frame that a signal interrupted, and not the one to return to.
    pub(crate) fn _Unwind_GetIPInfo(context: *mut c_void, is_itself: *mut c_int) -> usize;
}
