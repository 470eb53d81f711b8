//! A thread of the NIC's own that waits for something, and ends when its owner does.

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, RawFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags};

use crate::io::sleep_on;
use crate::threads::spawn_own;
use crate::wake::Wake;

/// Whether the thread is to end.
pub(crate) struct Stop {
    told: AtomicBool,
    wake: Wake,
}

impl Stop {
    pub(crate) fn is_told(&self) -> bool {
        self.told.load(Ordering::Acquire)
    }

    /// Sleeps until `fd` can be read from, the time is over, or the thread is to end.
    pub(crate) fn wait(&self, fd: impl AsFd, timeout: Option<Duration>) {
        self.wait_on(&[fd.as_fd()], timeout);
    }

    /// As [`Stop::wait`] for several descriptors.
    pub(crate) fn wait_on(&self, fds: &[BorrowedFd<'_>], timeout: Option<Duration>) {
        let all = fds.iter().copied().chain([self.wake.as_fd()]);
        // Whatever it says, whoever waits looks at everything anyway.
        let _ = sleep_on(all.map(|fd| PollFd::from_borrowed_fd(fd, PollFlags::IN)), timeout.unwrap_or(Duration::MAX));
    }
}

/// The thread; it ends with this value.
pub(crate) struct Background {
    stop: Arc<Stop>,
    thread: Option<JoinHandle<()>>,
    held: Vec<RawFd>,
}

impl Background {
    /// Starts it. `body` returns soon after it is told to stop.
    pub(crate) fn start(name: &str, body: impl FnOnce(&Stop) + Send + 'static) -> io::Result<Background> {
        let stop = Arc::new(Stop { told: AtomicBool::new(false), wake: Wake::new()? });
        let told = Arc::clone(&stop);
        let thread = spawn_own(name, move || body(&told))?;
        let held = vec![stop.wake.as_fd().as_raw_fd()];
        Ok(Background { stop, thread: Some(thread), held })
    }

    /// Its thread has this descriptor.
    pub(crate) fn holding(mut self, fd: RawFd) -> Background {
        self.held.push(fd);
        self
    }

    /// The descriptors that it holds.
    pub(crate) fn descriptors(&self) -> &[RawFd] {
        &self.held
    }
}

impl Drop for Background {
    fn drop(&mut self) {
        self.stop.told.store(true, Ordering::Release);
        self.stop.wake.wake();
        if let Some(thread) = self.thread.take() {
            // It panicked, and said so itself.
            let _ = thread.join();
        }
    }
}
