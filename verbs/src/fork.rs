//! fork(2): the child has the parent's memory but none of the NIC's threads, so it has no NIC.
//!
//! libibverbs promises a child nothing but that the parent goes on undisturbed. Here the parent's NIC writes to the parent's pages,
//! so nothing needs to be kept from being copied; the child only lets go of the descriptors, or it would keep the interface busy after
//! the parent's end. Verbs of the child fail with EIO.

use std::sync::Once;
use std::sync::atomic::{AtomicBool, Ordering};

use libc::c_int;
use softnic_runtime::forked;

use crate::errno::Errno;

static CHILD: AtomicBool = AtomicBool::new(false);

/// Refuses in the child of a fork.
#[inline]
pub(crate) fn check() -> Result<(), Errno> {
    match CHILD.load(Ordering::Relaxed) {
        false => Ok(()),
        true => Err(Errno(libc::EIO)),
    }
}

extern "C" fn in_child() {
    CHILD.store(true, Ordering::Relaxed);
    forked::close_in_child();
}

/// From now on children are recognised.
pub(crate) fn watch() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        // SAFETY: the handler does what may be done in the child of a process with threads: atomics and close(2). The library is
        // never unloaded.
        unsafe { libc::pthread_atfork(None, None, Some(in_child)) };
    });
}

/// `ibv_fork_init`: there is nothing to do, whenever it is called.
pub(crate) extern "C" fn init() -> c_int {
    0
}

/// `ibv_is_fork_initialized`: IBV_FORK_UNNEEDED.
pub(crate) extern "C" fn is_initialized() -> c_int {
    2
}

/// `ibv_dontfork_range` and `ibv_dofork_range`, for drivers.
pub(crate) extern "C" fn range(_base: *mut libc::c_void, _size: usize) -> c_int {
    0
}
