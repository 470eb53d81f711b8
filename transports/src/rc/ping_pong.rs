//! Determines when to delay an acknowledgement. If a program replies to every message at once, the acknowledgement waits a moment for the
//! reply, so that the reply arrives before the acknowledgement of the message that it answers.
//!
//! TCP does the same with interactive traffic (RFC 1122, 4.2.3.2), for another reason. A program that waits for the reply in its memory
//! polls its completion queue only for the completion of its own message. If the polls move the frames, a reply that arrives before the
//! acknowledgement finds the program polling. A reply that arrives after the acknowledgement waits until another thread polls.

use std::time::Duration;

use softnic_wire::Instant;

use crate::timers::{Timer, TimerTable};

/// The longest delay of an acknowledgement for a reply.
const PATIENCE: Duration = Duration::from_micros(20);
/// The fraction of the ACK timeout that the delay may use: one in this number. The peer's timeout is probably the same.
const PART_OF_TIMEOUT: u32 = 4;
/// The habit counter from which an acknowledgement is delayed, and the maximum of the counter.
const HABIT: u8 = 3;
const FIRM: u8 = 8;

/// Tracks how fast the program replied to the last messages. An acknowledgement is delayed while [`Timer::AckDelay`] is set.
#[derive(Debug, Default)]
pub(super) struct PingPong {
    /// The arrival time of the last message, if nothing was posted since. Set to a later time if the queue pair was not polled for long.
    arrived: Option<Instant>,
    /// The delay in nanoseconds.
    patience: u32,
    /// The habit counter: plus one for each message answered in time, minus two for each other one, 0 after two messages without a reply
    /// between them.
    habit: u8,
    /// The acknowledgement is delayed a second time, because the queue pair was not polled for long.
    again: bool,
}

impl PingPong {
    /// Sets the delay from the ACK timeout.
    pub(super) fn set_timeout(&mut self, timeout: Option<Duration>, timers: &mut TimerTable) {
        self.patience = timeout.map_or(PATIENCE, |t| PATIENCE.min(t / PART_OF_TIMEOUT)).as_nanos() as u32;
        if timers.is_set(Timer::AckDelay) {
            timers.set_or_stop(Timer::AckDelay, self.deadline());
        }
    }

    /// A message is complete. `may_wait` says that only its acknowledgement is owed, and that this acknowledgement may be delayed.
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

    /// A request arrived that is answered by data rather than by the program.
    pub(super) fn on_data_request(&mut self) {
        (self.arrived, self.habit) = (None, 0);
    }

    /// The program has posted a work request.
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

    /// Whether the acknowledgement that is owed is to be delayed.
    ///
    /// If this is called much too late, the calling thread did not get its core, and most likely the program did not either. In this case
    /// the delay starts again.
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
