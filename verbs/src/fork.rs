//! fork(2): the child has the parent's memory but none of the NIC's threads, so objects opened by the parent cannot be used in the child.
//!
//! Objects record the process that created them ([`Generation`]). In a child, verbs on the parent's objects fail with EIO and change
//! nothing: the parent's NIC continues undisturbed. The child may open the device again and then has its own NIC; the library's state of
//! the process is created again ([`crate::per_process`]). The child closes the descriptors of the parent's NIC, which would otherwise keep
//! the interface in use after the parent's end.

use std::sync::Once;
use std::sync::atomic::{AtomicU32, Ordering};

use libc::c_int;
use softnic_runtime::forked;

use crate::errno::Errno;

/// Number of forks between this process and the one that listed the devices first.
static GENERATION: AtomicU32 = AtomicU32::new(0);

/// The process that created an object, among those that have the object in their memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Generation(u32);

impl Generation {
    /// This process.
    #[inline]
    pub(crate) fn current() -> Generation {
        Generation(GENERATION.load(Ordering::Relaxed))
    }

    /// Whether the process is the child of one that listed devices.
    pub(crate) fn is_child(self) -> bool {
        self.0 > 0
    }

    /// Refuses objects of another process.
    #[inline]
    pub(crate) fn check(self) -> Result<(), Errno> {
        match self == Generation::current() {
            true => Ok(()),
            false => Err(Errno(libc::EIO)),
        }
    }
}

extern "C" fn in_child() {
    GENERATION.fetch_add(1, Ordering::Relaxed);
    forked::close_in_child();
}

/// Detects child processes from now on.
pub(crate) fn watch() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        // SAFETY: the handler does only what is permitted in the child of a multithreaded process: atomics and close(2). The library is
        // never unloaded.
        unsafe { libc::pthread_atfork(None, None, Some(in_child)) };
    });
}

/// `ibv_fork_init`: nothing is necessary, whenever it is called.
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
