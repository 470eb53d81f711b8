//! The best stretch of a run: how fast messages went there.

use std::time::{Duration, Instant};

use super::report::Rates;

/// The shortest stretch of time whose rate can be the peak.
const WINDOW: Duration = Duration::from_millis(1);

/// The stretch that is being counted.
pub(crate) struct Peak {
    start: Instant,
    count: u64,
}

impl Peak {
    pub(crate) fn new(start: Instant) -> Peak {
        Peak { start, count: 0 }
    }

    /// So many messages completed.
    #[inline]
    pub(crate) fn add(&mut self, count: u64) {
        self.count += count;
    }

    /// Ends the stretch if it is long enough, and begins another.
    pub(crate) fn look(&mut self, now: Instant, rates: &mut Rates) {
        if now - self.start >= WINDOW {
            rates.window(self.count, now - self.start);
            *self = Peak::new(now);
        }
    }
}
