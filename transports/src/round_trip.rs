//! Round-trip times of a connection, and how long an answer can take by them.

use std::time::Duration;

/// Nobody waits for less: a program that lost its core for a moment has not lost packets.
const SHORTEST: Duration = Duration::from_micros(50);
/// What is waited for before a round trip was measured.
const UNKNOWN: Duration = Duration::from_millis(100);

/// Round-trip times as they were seen.
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
            // The first sample says nothing about how much they vary.
            self.smoothed = Some(sample);
            return;
        };
        self.variation = (self.variation * 3 + smoothed.abs_diff(sample)) / 4;
        self.smoothed = Some((smoothed * 7 + sample) / 8);
    }

    /// Takes the round trip of the negotiation, where none other is known.
    pub(crate) fn on_first_sample(&mut self, sample: Duration) {
        if self.smoothed.is_none() {
            self.on_sample(sample);
        }
    }

    pub(crate) fn shortest(&self) -> Option<Duration> {
        self.shortest
    }

    /// When nothing can be heard any more of a packet that came: a little more than a round trip.
    pub(crate) fn low(&self) -> Duration {
        let low = self.smoothed.map(|smoothed| smoothed + (smoothed / 8).max(self.variation * 4));
        low.map_or(UNKNOWN, |low| low.max(SHORTEST))
    }

    /// When something should have been heard of others by far: two round trips, as the tail loss probe of TCP has it (RFC 8985, 7.2).
    pub(crate) fn probe(&self) -> Duration {
        self.smoothed.map_or(UNKNOWN, |smoothed| self.low().max(2 * smoothed))
    }
}
