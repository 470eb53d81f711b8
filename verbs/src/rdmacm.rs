//! `librdmacm.so.1`: its functions are here, so that programs load that can connect without it. The connection manager is not there yet:
//! they fail with ENOSYS.

use crate::abi::{c_int, c_void};
use crate::errno::Errno;

/// A function that returns -1 and sets errno.
pub(crate) extern "C" fn fails() -> c_int {
    Errno(libc::ENOSYS).set();
    -1
}

/// A function that returns a pointer.
pub(crate) extern "C" fn null() -> *mut c_void {
    Errno(libc::ENOSYS).set();
    std::ptr::null_mut()
}

/// A port that is not bound.
pub(crate) extern "C" fn no_port() -> u16 {
    0
}
