//! A fixed rate and a fixed window: for manual pacing, and as a reference for other controllers.

use std::time::Duration;

use softnic_wire::Instant;

use super::{CongestionControl, Feedback, TokenBucket};

/// A fixed rate and a fixed window.
#[derive(Debug, Clone)]
pub struct Fixed {
    bucket: TokenBucket,
    window: u64,
}

impl Fixed {
    /// `rate` bits per second on the wire; `window` payload bytes in flight.
    pub fn new(rate: u64, window: u64) -> Fixed {
        Fixed { bucket: TokenBucket::new(rate, 0), window }
    }

    /// A packet that leaves late may be made up for within this time.
    pub fn with_burst(self, burst: Duration) -> Fixed {
        Fixed { bucket: self.bucket.with_depth(burst), ..self }
    }
}

impl CongestionControl for Fixed {
    fn on_feedback(&mut self, _now: Instant, _feedback: Feedback) {}

    fn on_sent(&mut self, now: Instant, bytes: u32) {
        self.bucket.on_sent(now, bytes);
    }

    fn window(&self) -> u64 {
        self.window
    }

    fn next_send(&self) -> Instant {
        self.bucket.next_send()
    }

    fn reset(&mut self) {} // there is no state to reset
}
