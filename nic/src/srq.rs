//! Shared receive queues (IBA 10.2.9).

use softnic_transports::memory::PdId;
use softnic_transports::{RecvQueue, RecvRules};

/// Receives for many queue pairs.
pub(crate) struct Srq {
    pub(crate) pd: PdId,
    pub(crate) queue: RecvQueue,
    /// Fewer receives than this raise an event, once; 0 for none.
    pub(crate) limit: u32,
    /// Queue pairs that take from it.
    pub(crate) users: u32,
}

impl Srq {
    pub(crate) fn new(pd: PdId, max_wr: u32, rules: RecvRules) -> Srq {
        Srq { pd, queue: RecvQueue::new(max_wr, rules), limit: 0, users: 0 }
    }

    /// Hands the oldest receive over.
    pub(crate) fn take(&mut self, into: &mut RecvQueue) -> bool {
        self.queue.move_oldest(into)
    }

    /// Whether the limit was reached; then it has to be set again (IBA 10.2.9.1).
    pub(crate) fn fell_below_limit(&mut self) -> bool {
        let fell = self.queue.len() < self.limit;
        if fell {
            self.limit = 0;
        }
        fell
    }
}
