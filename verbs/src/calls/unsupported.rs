//! Verbs that this device does not support, and functions that drivers of other vendors import: they must exist, or those libraries do not
//! load.
//!
//! perftest and other programs are linked with libraries of vendors whose devices do not exist here. These libraries register themselves
//! when they are loaded, which is ignored.

use crate::abi::{c_int, c_void};
use crate::errno::Errno;

/// A verb that returns an errno.
pub(crate) extern "C" fn fails() -> c_int {
    Errno::EOPNOTSUPP.set();
    libc::EOPNOTSUPP
}

/// A verb that returns -1 and sets errno.
pub(crate) extern "C" fn minus_one() -> c_int {
    Errno::EOPNOTSUPP.set();
    -1
}

/// A verb that returns a pointer: an errno in its place would be dereferenced.
pub(crate) extern "C" fn null() -> *mut c_void {
    Errno::EOPNOTSUPP.set();
    std::ptr::null_mut()
}

/// A call without a result.
pub(crate) extern "C" fn nothing() {}
