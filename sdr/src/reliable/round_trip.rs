//! The round trip of a connection, measured by chunks that were sent once.

use std::time::Duration;

use softnic_wire::Instant;

/// The longest round trip that is guessed: by satellite it is little more than half of it.
const LONGEST_GUESS: Duration = Duration::from_secs(1);
/// Samples of a window.
const WINDOW: u32 = 16;

/// The shortest round trip of the last windows of samples: what queues add on top of it is the timeout's α, and a path that got longer is known
/// two windows later. Where answers take longer than that, and now longer, now less long, as they do when programs share a processor, the
/// timeout is as TCP's (RFC 6298): a mean and four times how far samples lie from it.
#[derive(Debug, Clone, Copy)]
pub(super) struct RoundTrip {
    initial: Duration,
    last: Option<Duration>,
    current: Option<Duration>,
    samples: u32,
    /// When the guess was doubled last.
    guessed_at: Instant,
    mean: Option<Duration>,
    deviation: Duration,
    alpha: f64,
    /// How long a receiver may wait before it acknowledges.
    pub(super) ack_delay: Duration,
}

impl RoundTrip {
    pub(super) fn new(initial: Duration, alpha: f64, ack_delay: Duration) -> RoundTrip {
        RoundTrip {
            initial,
            last: None,
            current: None,
            samples: 0,
            guessed_at: Instant::ZERO,
            mean: None,
            deviation: Duration::ZERO,
            alpha,
            ack_delay,
        }
    }

    /// A chunk that was sent once was acknowledged after this time.
    pub(super) fn sample(&mut self, took: Duration) {
        self.current = Some(self.current.map_or(took, |known| known.min(took)));
        let mean = *self.mean.get_or_insert(took);
        let off = mean.abs_diff(took);
        self.deviation = self.deviation.mul_f64(0.75) + off.mul_f64(0.25);
        self.mean = Some(mean.mul_f64(0.875) + took.mul_f64(0.125));
        self.samples += 1;
        if self.samples == WINDOW {
            (self.last, self.current, self.samples) = (self.current, None, 0);
        }
    }

    /// Something was not acknowledged in time. As long as nothing was measured the first guess may be too short, and then nothing ever is: all
    /// is sent again before its answer comes. So it is doubled, once in each such time, up to what no path takes.
    pub(super) fn on_timeout(&mut self, now: Instant) {
        if self.measured().is_none() && now >= self.guessed_at + self.rto() {
            (self.initial, self.guessed_at) = ((self.initial * 2).min(LONGEST_GUESS).max(self.initial), now);
        }
    }

    pub(super) fn rtt(&self) -> Duration {
        self.measured().unwrap_or(self.initial).max(Duration::from_nanos(1))
    }

    /// The round trip, if one was measured.
    pub(super) fn measured(&self) -> Option<Duration> {
        self.last.into_iter().chain(self.current).min()
    }

    /// After what time a chunk is sent again.
    pub(super) fn rto(&self) -> Duration {
        let queues = self.rtt().mul_f64(1.0 + self.alpha);
        let measured = self.mean.unwrap_or_default() + self.deviation * 4;
        queues.max(measured) + self.ack_delay
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_longer_path_is_known_two_windows_later() {
        let ms = Duration::from_millis;
        let mut round_trip = RoundTrip::new(ms(10), 2.0, ms(1));
        assert_eq!((round_trip.rtt(), round_trip.rto()), (ms(10), ms(31)));
        let at = |ms: u64| Instant::from_nanos(ms * 1_000_000);
        [40, 50, 100].into_iter().for_each(|ms| round_trip.on_timeout(at(ms)));
        assert_eq!(round_trip.rtt(), ms(20), "the guess was too short, perhaps; once in a timeout");
        round_trip.on_timeout(at(102));
        assert_eq!(round_trip.rtt(), ms(40));
        let mut silent = round_trip;
        (0..100).for_each(|n| silent.on_timeout(at(1000 + 100_000 * n)));
        assert_eq!(silent.rtt(), LONGEST_GUESS, "nobody answers, and the next try is not put off for ever");
        (0..WINDOW).for_each(|_| round_trip.sample(ms(20)));
        round_trip.sample(ms(7));
        assert_eq!(round_trip.rtt(), ms(7));
        (0..2 * WINDOW).for_each(|_| round_trip.sample(ms(50)));
        assert_eq!(round_trip.rtt(), ms(50));
    }

    #[test]
    fn answers_that_take_now_longer_now_less_long_are_waited_for() {
        let us = Duration::from_micros;
        let mut steady = RoundTrip::new(us(10), 2.0, us(1));
        (0..100).for_each(|_| steady.sample(us(10)));
        assert_eq!(steady.rto(), us(31));
        let mut shaky = steady;
        (0..100).for_each(|i| shaky.sample(us(10 + 2000 * u64::from(i % 10 == 0))));
        assert!(shaky.rto() > us(500) && shaky.rtt() == us(10), "{:?}", shaky.rto());
    }
}
