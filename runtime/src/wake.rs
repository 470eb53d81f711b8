//! Waking a thread that sleeps in poll(2): an eventfd, written to only when somebody sleeps.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicI32, Ordering};

use rustix::event::{EventfdFlags, eventfd};
use softnic_sync::sleeper::Sleeper;
use softnic_sync::takeover::Bell;

/// No core: nobody woke the thread yet.
const NOWHERE: i32 = -2;

#[derive(Debug)]
pub(crate) struct Wake {
    sleeper: Sleeper,
    fd: OwnedFd,
    /// The core of the thread that called [`Wake::wake`] last.
    woken_from: AtomicI32,
}

impl Wake {
    pub(crate) fn new() -> io::Result<Wake> {
        let fd = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        Ok(Wake { sleeper: Sleeper::default(), fd, woken_from: AtomicI32::new(NOWHERE) })
    }

    /// About to sleep on the descriptor: look for work once more, and sleep only if there is none.
    pub(crate) fn prepare_sleep(&self) {
        Bell::prepare_sleep(self);
    }

    /// What it was woken for is seen. That there is nothing to read is the usual case.
    pub(crate) fn drain(&self) {
        let _ = rustix::io::read(&self.fd, &mut [0; 8]);
    }

    /// There is work, published before this: wakes the thread if it sleeps.
    #[inline]
    pub(crate) fn wake_sleeper(&self) {
        Bell::wake_sleeper(self);
    }

    /// Whether whoever woke the thread last was on the core where the caller is now: on the way there it may have lost that core to it.
    pub(crate) fn was_from_here(&self) -> bool {
        self.woken_from.load(Ordering::Relaxed) == current_core()
    }

    /// Makes the descriptor readable.
    pub(crate) fn wake(&self) {
        self.woken_from.store(current_core(), Ordering::Relaxed);
        // It cannot be full: nobody writes 2^64 times without a read.
        let _ = rustix::io::write(&self.fd, &1u64.to_ne_bytes());
    }
}

/// The core that runs the caller; -1 where the kernel does not say. By libc, which reads it from memory (rseq), where rustix calls the vDSO:
/// valgrind hides the vDSO, and rustix crashes in search of it.
#[allow(unsafe_code)]
fn current_core() -> i32 {
    // SAFETY: it takes nothing, and writes to no memory of ours.
    unsafe { libc::sched_getcpu() }
}

impl Bell for Wake {
    #[inline]
    fn sleeper(&self) -> &Sleeper {
        &self.sleeper
    }

    fn wake(&self) {
        Wake::wake(self);
    }

    fn drain(&self) {
        Wake::drain(self);
    }
}

impl AsFd for Wake {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_knows_whether_whoever_woke_it_was_on_this_core() {
        let cores = core_affinity::get_core_ids().unwrap();
        let wake = Wake::new().unwrap();
        let on = |core, body: &(dyn Fn() -> bool + Sync)| {
            std::thread::scope(|scope| {
                let thread = scope.spawn(move || core_affinity::set_for_current(core) && body());
                thread.join().unwrap()
            })
        };
        let is_from_here = || wake.was_from_here();
        assert!(!on(cores[0], &is_from_here), "nobody woke it yet");
        for &core in &cores {
            assert!(on(core, &|| {
                wake.wake();
                true
            }));
            for &other in &cores {
                assert_eq!(on(other, &is_from_here), other == core, "{core:?} {other:?}");
            }
        }
    }
}
