//! What worlds came to: counts that tell whether they were worth running.

use std::ops::Add;

/// What a world came to; sums tell whether the worlds were worth running.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Passed {
    pub(crate) connected: u64,
    pub(crate) rejected: u64,
    pub(crate) stale: u64,
    pub(crate) unreachable: u64,
    pub(crate) disconnected: u64,
    pub(crate) no_answer: u64,
    pub(crate) comm_est: u64,
    pub(crate) resolved: u64,
    pub(crate) retransmitted: u64,
    pub(crate) duplicates: u64,
    pub(crate) reused: u64,
    pub(crate) crashes: u64,
    pub(crate) mads: u64,
}

impl Add for Passed {
    type Output = Passed;
    fn add(self, o: Passed) -> Passed {
        Passed {
            connected: self.connected + o.connected,
            rejected: self.rejected + o.rejected,
            stale: self.stale + o.stale,
            unreachable: self.unreachable + o.unreachable,
            disconnected: self.disconnected + o.disconnected,
            no_answer: self.no_answer + o.no_answer,
            comm_est: self.comm_est + o.comm_est,
            resolved: self.resolved + o.resolved,
            retransmitted: self.retransmitted + o.retransmitted,
            duplicates: self.duplicates + o.duplicates,
            reused: self.reused + o.reused,
            crashes: self.crashes + o.crashes,
            mads: self.mads + o.mads,
        }
    }
}
