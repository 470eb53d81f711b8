//! fork(2): the child has the parent's memory but none of the NIC's threads, so nothing that the parent opened is of use in the child.
//!
//! Objects know the process that made them ([`Generation`]). In a child verbs on the parent's objects fail with EIO and change nothing: the parent's NIC goes
//! on undisturbed. The child may open the device anew and has a NIC of its own then; what the library knows of the process begins anew
//! ([`crate::per_process`]). The child lets go of the descriptors of the parent's NIC, or it would keep the interface busy after the parent's end.

use std::sync::Once;
use std::sync::atomic::{AtomicU32, Ordering};

use libc::c_int;
use softnic_runtime::forked;

use crate::errno::Errno;

/// How many forks there are between this process and the one that asked for devices first.
static GENERATION: AtomicU32 = AtomicU32::new(0);

/// The process that made an object, among those that have the object in their memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Generation(u32);

impl Generation {
    /// This process.
    #[inline]
    pub(crate) fn current() -> Generation {
        Generation(GENERATION.load(Ordering::Relaxed))
    }

    /// Whether the process is the child of one that asked for devices.
    pub(crate) fn is_child(self) -> bool {
        self.0 > 0
    }

    /// Refuses what another process made.
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
