//! Threads of the NIC's own. All signals are blocked in them: a signal is for a thread of the program, which may have blocked it, or may
//! take it by signalfd(2), after the NIC was opened.
#![allow(unsafe_code)]

use std::io;
use std::mem::MaybeUninit;
use std::thread::JoinHandle;

/// Starts a thread in which all signals are blocked.
///
/// # Errors
/// When the system has no thread left.
pub fn spawn_own<T: Send + 'static>(
    name: impl Into<String>,
    body: impl FnOnce() -> T + Send + 'static,
) -> io::Result<JoinHandle<T>> {
    // A thread begins with the mask of the thread that starts it.
    let _blocked = AllBlocked::new();
    std::thread::Builder::new().name(name.into()).spawn(body)
}

/// A core that this process may use.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Core(core_affinity::CoreId);

impl Core {
    /// The core with this number, if it is there and allowed.
    pub(crate) fn find(number: usize) -> Option<Core> {
        core_affinity::get_core_ids()?.into_iter().find(|core| core.id == number).map(Core)
    }

    /// The calling thread stays on it.
    pub(crate) fn stay(self) {
        core_affinity::set_for_current(self.0);
    }
}

/// All signals are blocked in this thread as long as the value lives.
struct AllBlocked {
    before: libc::sigset_t,
}

impl AllBlocked {
    fn new() -> AllBlocked {
        let mut all = MaybeUninit::uninit();
        let mut before = MaybeUninit::uninit();
        // SAFETY: `sigfillset` writes the whole set, and `pthread_sigmask` reads that and writes the one before: it cannot fail with these
        // arguments.
        let before = unsafe {
            libc::sigfillset(all.as_mut_ptr());
            libc::pthread_sigmask(libc::SIG_SETMASK, all.as_ptr(), before.as_mut_ptr());
            before.assume_init()
        };
        AllBlocked { before }
    }
}

impl Drop for AllBlocked {
    fn drop(&mut self) {
        // SAFETY: the set is one that the system wrote.
        unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, &raw const self.before, std::ptr::null_mut()) };
    }
}
