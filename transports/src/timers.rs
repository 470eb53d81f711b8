//! The timers of a queue pair: the list of them, and a small table of their expiry times.

use std::time::Duration;

use softnic_wire::Instant;

/// The local ACK timeout of a code (IBA 9.7.6.1.3): 4.096 µs · 2^code; 0 means no timeout.
pub const fn ack_timeout(code: u8) -> Option<Duration> {
    match code & 0x1f {
        0 => None,
        n => Some(Duration::from_nanos(4096 << n)),
    }
}

/// A timer of a queue pair.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Timer {
    /// Requests were not answered in time: some are sent again (IBA 9.7.6.1.3).
    Ack,
    /// The peer had no receive: no request is sent before this time.
    Rnr,
    /// A packet waits for its turn, by congestion control.
    Pacing,
    /// The end of the wait of an acknowledgement for the program's reply.
    AckDelay,
    /// For two round trips no answer arrived to packets whose losses a shim should have repaired: they are sent again.
    Probe,
    /// Selective Repeat: answers with data were not acknowledged in time; some are sent again.
    Answers,
}

/// Number of timers.
const COUNT: usize = Timer::Answers as usize + 1;

/// The expiry times of a queue pair's timers.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct TimerTable {
    /// One bit for each running timer.
    set: u8,
    at: [Instant; COUNT],
}

impl TimerTable {
    const fn bit(timer: Timer) -> u8 {
        1 << timer as u8
    }

    /// Starts a timer, whether or not it was running.
    #[inline]
    pub(crate) fn set(&mut self, timer: Timer, at: Instant) {
        self.set |= Self::bit(timer);
        self.at[timer as usize] = at;
    }

    /// Starts a timer, or stops it if there is no time.
    #[inline]
    pub(crate) fn set_or_stop(&mut self, timer: Timer, at: Option<Instant>) {
        match at {
            Some(at) => self.set(timer, at),
            None => self.stop(timer),
        }
    }

    /// Stops a timer, whether or not it was running.
    #[inline]
    pub(crate) fn stop(&mut self, timer: Timer) {
        self.set &= !Self::bit(timer);
    }

    /// Whether a timer is running.
    #[inline]
    pub(crate) fn is_set(&self, timer: Timer) -> bool {
        self.set & Self::bit(timer) != 0
    }

    /// When a running timer expires.
    #[inline]
    pub(crate) fn get(&self, timer: Timer) -> Option<Instant> {
        self.is_set(timer).then_some(self.at[timer as usize])
    }

    /// Whether a running timer has expired by now; it is stopped then.
    #[inline]
    pub(crate) fn take_expired(&mut self, timer: Timer, now: Instant) -> bool {
        let expired = self.get(timer).is_some_and(|at| at <= now);
        if expired {
            self.stop(timer);
        }
        expired
    }

    /// The earliest expiry time of all timers.
    #[inline]
    pub(crate) fn next(&self) -> Option<Instant> {
        const ACK: u8 = TimerTable::bit(Timer::Ack);
        match self.set {
            0 => None,
            ACK => Some(self.at[Timer::Ack as usize]), // nearly always
            _ => self.earliest(),
        }
    }

    #[inline(never)]
    fn earliest(&self) -> Option<Instant> {
        let is_set = |&(i, _): &(usize, &Instant)| self.set & 1 << i != 0;
        self.at.iter().enumerate().filter(is_set).map(|(_, &at)| at).min()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ALL: [Timer; COUNT] = [Timer::Ack, Timer::Rnr, Timer::Pacing, Timer::AckDelay, Timer::Probe, Timer::Answers];

    fn at(nanos: u64) -> Instant {
        Instant::from_nanos(nanos)
    }

    #[test]
    fn the_next_timer_is_the_earliest_of_those_that_are_set() {
        let mut table = TimerTable::default();
        assert_eq!(table.next(), None);
        for (i, timer) in ALL.into_iter().enumerate() {
            table.set(timer, at(100 - i as u64));
            assert_eq!(table.next(), Some(at(100 - i as u64)));
        }
        for (i, timer) in ALL.into_iter().enumerate().rev() {
            assert_eq!((table.next(), table.get(timer)), (table.get(timer), Some(at(100 - i as u64))));
            table.stop(timer);
            assert_eq!(table.get(timer), None);
        }
        assert_eq!(table.next(), None);
    }

    #[test]
    fn a_timer_expires_once_at_its_time_and_not_before() {
        for timer in ALL {
            let mut table = TimerTable::default();
            table.set(timer, at(20));
            table.set(timer, at(10));
            assert!(!table.take_expired(timer, at(9)) && table.is_set(timer));
            assert!(table.take_expired(timer, at(10)));
            assert!(!table.take_expired(timer, at(30)) && table.next().is_none());
        }
    }

    #[test]
    fn a_time_of_none_stops_a_timer() {
        let mut table = TimerTable::default();
        table.set_or_stop(Timer::Rnr, Some(at(5)));
        assert_eq!(table.next(), Some(at(5)));
        table.set_or_stop(Timer::Rnr, None);
        assert_eq!(table.next(), None);
    }
}
