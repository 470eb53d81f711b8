//! The round trip of a connection, measured by chunks that were sent once.

use std::time::Duration;

/// The shortest round trip that was seen: what queues add on top of it is the timeout's α.
#[derive(Debug, Clone, Copy)]
pub(super) struct RoundTrip {
    usual: Duration,
    measured: Option<Duration>,
    alpha: f64,
}

impl RoundTrip {
    pub(super) fn new(usual: Duration, alpha: f64) -> RoundTrip {
        RoundTrip { usual, measured: None, alpha }
    }

    /// A chunk that was sent once was acknowledged after this time.
    pub(super) fn sample(&mut self, took: Duration) {
        let took = took.max(Duration::from_nanos(1));
        self.measured = Some(self.measured.map_or(took, |known| known.min(took)));
    }

    pub(super) fn rtt(&self) -> Duration {
        self.measured.unwrap_or(self.usual)
    }

    /// After what time a chunk is sent again.
    pub(super) fn rto(&self) -> Duration {
        self.rtt().mul_f64(1.0 + self.alpha)
    }
}
