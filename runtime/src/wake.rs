//! Waking a thread that sleeps in poll(2): an eventfd, written to only when somebody sleeps.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::event::{EventfdFlags, eventfd};
use softnic_sync::sleeper::Sleeper;
use softnic_sync::takeover::Bell;

#[derive(Debug)]
pub(crate) struct Wake {
    sleeper: Sleeper,
    fd: OwnedFd,
}

impl Wake {
    pub(crate) fn new() -> io::Result<Wake> {
        let fd = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        Ok(Wake { sleeper: Sleeper::default(), fd })
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

    /// Makes the descriptor readable.
    pub(crate) fn wake(&self) {
        // It cannot be full: nobody writes 2^64 times without a read.
        let _ = rustix::io::write(&self.fd, &1u64.to_ne_bytes());
    }
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
