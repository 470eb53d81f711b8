//! Short timed sleeps for queues without an interrupt: a descriptor that becomes readable after a moment.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::Duration;

use rustix::time::{
    Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, timerfd_create, timerfd_settime,
};

/// The first sleep, and the longest. The length doubles while no frame arrives.
const SHORTEST: Duration = Duration::from_micros(50);
const LONGEST: Duration = Duration::from_millis(1);

/// A timer for short sleeps.
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

    /// Arms the timer: the descriptor becomes readable after the sleep.
    pub(super) fn begin(&mut self) -> io::Result<()> {
        let it_value = Timespec { tv_sec: 0, tv_nsec: i64::from(self.next.subsec_nanos()) };
        let it_interval = Timespec { tv_sec: 0, tv_nsec: 0 };
        timerfd_settime(&self.timer, TimerfdTimerFlags::empty(), &Itimerspec { it_interval, it_value })?;
        self.next = (self.next * 2).min(LONGEST);
        Ok(())
    }

    /// A frame arrived: makes the next sleep short.
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
