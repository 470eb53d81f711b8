//! When to hold an acknowledgement back: a program that answers every message at once is waited for, for a moment, so that its reply is
//! there before the acknowledgement of what it replies to.
//!
//! It is what TCP does with interactive traffic (RFC 1122, 4.2.3.2), for another reason. A program that waits for the reply in its memory
//! looks at its completion queue only to hear that its own message arrived. Where such looks are what moves frames, a reply that comes
//! before the acknowledgement finds the program looking; one that comes behind it waits until somebody else does.

use std::time::Duration;

use softnic_wire::Instant;

use crate::timers::{Timer, TimerTable};

/// How long a program may take to answer, at most.
const PATIENCE: Duration = Duration::from_micros(20);
/// The part of an ACK timeout that may be spent so; the peer is likely to have the same.
const PART_OF_TIMEOUT: u32 = 4;
/// How much of a habit it must be before an acknowledgement is held, and how much it can become.
const HABIT: u8 = 3;
const FIRM: u8 = 8;

/// How soon the program replied to the last messages. An acknowledgement is held while [`Timer::AckDelay`] is set.
#[derive(Debug, Default)]
pub(super) struct PingPong {
    /// When a message came, if nothing was posted since; later if nobody looked for long.
    arrived: Option<Instant>,
    /// Nanoseconds that the program has.
    patience: u32,
    /// One more for each message that was answered in time, two less for one that was not, none after two at a time.
    habit: u8,
    /// The acknowledgement is held once more, because nobody looked for long.
    again: bool,
}

impl PingPong {
    /// Where requests are given up as lost after `timeout`.
    pub(super) fn set_timeout(&mut self, timeout: Option<Duration>, timers: &mut TimerTable) {
        self.patience = timeout.map_or(PATIENCE, |t| PATIENCE.min(t / PART_OF_TIMEOUT)).as_nanos() as u32;
        if timers.is_set(Timer::AckDelay) {
            timers.set_or_stop(Timer::AckDelay, self.deadline());
        }
    }

    /// A message has come whole; `may_wait` says that all that is owed is to acknowledge it, and that this may wait.
    #[inline]
    pub(super) fn on_message(&mut self, now: Instant, may_wait: bool, timers: &mut TimerTable) {
        if self.arrived.replace(now).is_some() {
            self.habit = 0;
        }
        if may_wait && self.habit >= HABIT {
            self.again = false;
            timers.set(Timer::AckDelay, self.after(now));
        }
    }

    /// A message has come that is answered by data, not by the program.
    pub(super) fn on_data_request(&mut self) {
        (self.arrived, self.habit) = (None, 0);
    }

    /// The program has posted something.
    #[inline]
    pub(super) fn on_post(&mut self, now: Instant, timers: &mut TimerTable) {
        timers.stop(Timer::AckDelay);
        let deadline = self.deadline();
        if self.arrived.take().is_some() {
            let in_time = deadline.is_some_and(|at| now < at);
            self.habit = if in_time { FIRM.min(self.habit + 1) } else { self.habit.saturating_sub(2) };
        }
    }

    #[inline]
    fn after(&self, at: Instant) -> Instant {
        at + Duration::from_nanos(self.patience.into())
    }

    #[inline]
    fn deadline(&self) -> Option<Instant> {
        self.arrived.map(|at| self.after(at))
    }

    /// Whether an acknowledgement that is owed is to wait.
    ///
    /// Who looks much too late was kept from its core, and so, most likely, was the program: it gets its time then.
    #[inline]
    pub(super) fn holds(&mut self, now: Instant, timers: &mut TimerTable) -> bool {
        let Some(at) = timers.get(Timer::AckDelay) else { return false };
        if !self.again && now >= self.after(at) {
            (self.arrived, self.again) = (Some(now), true);
            timers.set(Timer::AckDelay, self.after(now));
        }
        !timers.take_expired(Timer::AckDelay, now)
    }
}
