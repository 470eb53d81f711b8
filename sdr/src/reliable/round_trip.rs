//! The round trip of a connection, measured by chunks that were sent once.

use std::time::Duration;

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
    /// It is no longer than this, as far as chunks say that were sent again: all that is known where the timeout is shorter than the round
    /// trip, and every chunk is.
    at_most: Option<Duration>,
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
            at_most: None,
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

    /// A chunk that was sent again was acknowledged this time after it was sent first.
    pub(super) fn at_most(&mut self, took: Duration) {
        self.at_most = Some(self.at_most.map_or(took, |known| known.min(took)));
    }

    pub(super) fn rtt(&self) -> Duration {
        self.measured().unwrap_or(self.initial).max(Duration::from_nanos(1))
    }

    /// The round trip, if one was measured.
    pub(super) fn measured(&self) -> Option<Duration> {
        self.last.into_iter().chain(self.current).min().or(self.at_most)
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
        round_trip.at_most(ms(60));
        round_trip.at_most(ms(90));
        assert_eq!(round_trip.rtt(), ms(60), "all were sent again: the timeout was too short");
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
