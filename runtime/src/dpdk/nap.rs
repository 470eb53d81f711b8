//! Naps, for queues that have no interrupt: a descriptor that can be read from a moment later.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::Duration;

use rustix::time::{
    Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, timerfd_create, timerfd_settime,
};

/// The first nap, and the longest: each is twice the one before while nothing comes.
const SHORTEST: Duration = Duration::from_micros(50);
const LONGEST: Duration = Duration::from_millis(1);

/// A timer.
#[derive(Debug)]
pub(super) struct Nap {
    timer: OwnedFd,
    next: Duration,
}

impl Nap {
    pub(super) fn new() -> io::Result<Nap> {
        let timer = timerfd_create(TimerfdClockId::Monotonic, TimerfdFlags::CLOEXEC | TimerfdFlags::NONBLOCK)?;
        Ok(Nap { timer, next: SHORTEST })
    }

    /// The descriptor can be read from after a nap.
    pub(super) fn begin(&mut self) -> io::Result<()> {
        let it_value = Timespec { tv_sec: 0, tv_nsec: i64::from(self.next.subsec_nanos()) };
        let it_interval = Timespec { tv_sec: 0, tv_nsec: 0 };
        timerfd_settime(&self.timer, TimerfdTimerFlags::empty(), &Itimerspec { it_interval, it_value })?;
        self.next = (self.next * 2).min(LONGEST);
        Ok(())
    }

    /// A frame came: the next nap is short.
    #[inline]
    pub(super) fn reset(&mut self) {
        self.next = SHORTEST;
    }
}

impl AsFd for Nap {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.timer.as_fd()
    }
}
