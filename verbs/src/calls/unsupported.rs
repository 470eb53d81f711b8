//! Verbs that this device does not have, and what drivers of other vendors import: it must exist, or their libraries do not load.
//!
//! perftest and others are linked with the libraries of vendors, whose devices are not here. They register themselves when they are
//! loaded, which is heard and forgotten.

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

/// A verb that returns a pointer: an errno in its place would be followed.
pub(crate) extern "C" fn null() -> *mut c_void {
    Errno::EOPNOTSUPP.set();
    std::ptr::null_mut()
}

/// A call that has nothing to say.
pub(crate) extern "C" fn nothing() {}
