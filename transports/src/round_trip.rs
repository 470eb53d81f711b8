//! Round-trip times of a connection, and the timeouts derived from them.

use std::time::Duration;

/// The minimum timeout: a program that lost its core for a moment has not lost packets.
const SHORTEST: Duration = Duration::from_micros(50);
/// The timeout before a round trip was measured.
const UNKNOWN: Duration = Duration::from_millis(100);

/// Measured round-trip times.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct RoundTrip {
    smoothed: Option<Duration>,
    variation: Duration,
    shortest: Option<Duration>,
}

impl RoundTrip {
    pub(crate) fn on_sample(&mut self, sample: Duration) {
        self.shortest = Some(self.shortest.map_or(sample, |s| s.min(sample)));
        let Some(smoothed) = self.smoothed else {
            // The first sample gives no information about the variation.
            self.smoothed = Some(sample);
            return;
        };
        self.variation = (self.variation * 3 + smoothed.abs_diff(sample)) / 4;
        self.smoothed = Some((smoothed * 7 + sample) / 8);
    }

    /// Uses the round-trip time of the negotiation, if no other is known.
    pub(crate) fn on_first_sample(&mut self, sample: Duration) {
        if self.smoothed.is_none() {
            self.on_sample(sample);
        }
    }

    pub(crate) fn shortest(&self) -> Option<Duration> {
        self.shortest
    }

    /// The time after which no answer to an arrived packet is expected any more: a little more than a round trip.
    pub(crate) fn low(&self) -> Duration {
        let low = self.smoothed.map(|smoothed| smoothed + (smoothed / 8).max(self.variation * 4));
        low.map_or(UNKNOWN, |low| low.max(SHORTEST))
    }

    /// The time after which some answer should have arrived: two round trips, as in the tail loss probe of TCP (RFC 8985, 7.2).
    pub(crate) fn probe(&self) -> Duration {
        self.smoothed.map_or(UNKNOWN, |smoothed| self.low().max(2 * smoothed))
    }
}
