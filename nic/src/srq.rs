//! Shared receive queues (IBA 10.2.9).

use softnic_transports::memory::PdId;
use softnic_transports::{RecvQueue, RecvRules};

/// Receives shared by many queue pairs.
pub(crate) struct Srq {
    pub(crate) pd: PdId,
    pub(crate) queue: RecvQueue,
    /// With fewer receives than this an event is raised, once; 0 for none.
    pub(crate) limit: u32,
    /// Number of queue pairs that take receives from it.
    pub(crate) users: u32,
}

impl Srq {
    pub(crate) fn new(pd: PdId, max_wr: u32, rules: RecvRules) -> Srq {
        Srq { pd, queue: RecvQueue::new(max_wr, rules), limit: 0, users: 0 }
    }

    /// Moves the oldest receive to a queue pair.
    pub(crate) fn take(&mut self, into: &mut RecvQueue) -> bool {
        self.queue.move_oldest(into)
    }

    /// Whether the limit was reached. The limit is cleared then, and has to be set again (IBA 10.2.9.1).
    pub(crate) fn fell_below_limit(&mut self) -> bool {
        let fell = self.queue.len() < self.limit;
        if fell {
            self.limit = 0;
        }
        fell
    }
}
