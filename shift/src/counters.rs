//! Failover counters, and the duration of each failover.

use std::time::Duration;

/// The number of durations kept; older ones are overwritten.
const KEPT: usize = 4096;

/// What the failover of a NIC has done so far.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct FailoverCounters {
    /// Connections that have a backup at both ends.
    pub protected: u64,
    /// Connections that moved to the backup after a failure.
    pub failovers: u64,
    /// Connections whose sends returned to the default side.
    pub failbacks: u64,
    /// Connections that ended in errors although they were protected.
    pub refused: u64,
    /// Sends that were sent again.
    pub resubmitted: u64,
    /// Sends that were not sent again, because the peer had received them.
    pub skipped: u64,
    /// Time from each failure to the first successful completion after it.
    times: Vec<Duration>,
    next: usize,
}

impl FailoverCounters {
    pub(crate) fn note_time(&mut self, took: Duration) {
        if self.times.len() < KEPT {
            self.times.push(took);
        } else {
            self.times[self.next % KEPT] = took;
        }
        self.next += 1;
    }

    /// The counters, by their names among the counters of a NIC.
    pub fn iter(&self) -> impl Iterator<Item = (&'static str, u64)> + use<> {
        let FailoverCounters { protected, failovers, failbacks, refused, resubmitted, skipped, .. } = *self;
        let counts = [
            ("failover_protected", protected),
            ("failover_failovers", failovers),
            ("failover_failbacks", failbacks),
            ("failover_refused", refused),
            ("failover_resubmitted", resubmitted),
            ("failover_skipped", skipped),
        ];
        counts.into_iter()
    }

    /// A quantile of the time from a failure to the first completion after it, in microseconds; `None` if no failure happened.
    pub fn fallback_us(&self, quantile: f64) -> Option<f64> {
        let mut times = self.times.clone();
        times.sort_unstable();
        let rank = (quantile * times.len() as f64).ceil() as usize;
        Some(times.get(rank.saturating_sub(1))?.as_nanos() as f64 / 1e3)
    }

    /// Times from each failure to the first successful completion after it: the latest 4096, in no particular order.
    pub fn times(&self) -> &[Duration] {
        &self.times
    }

    /// Adds the counters of another NIC.
    pub fn add(&mut self, other: &FailoverCounters) {
        self.protected += other.protected;
        self.failovers += other.failovers;
        self.failbacks += other.failbacks;
        self.refused += other.refused;
        self.resubmitted += other.resubmitted;
        self.skipped += other.skipped;
        other.times.iter().for_each(|&took| self.note_time(took));
    }
}
