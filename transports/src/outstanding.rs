//! The send work requests that a queue pair has in place: for the owner of one that halted, who may post them elsewhere.

use crate::SendOp;
use crate::send_queue::{SendQueue, Slot};

/// How far a send work request has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum SendProgress {
    /// No packet of the work request has left.
    Unsent,
    /// A packet has left, and none is acknowledged: nobody knows whether the peer carried out the work request. A local operation was
    /// carried out.
    Sent,
    /// The first packets are acknowledged, or the first data of a READ has come; the rest may have arrived, too.
    PartlyAcknowledged,
}

/// A send work request that has not completed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OutstandingSend {
    /// The program's own name for the work request.
    pub wr_id: u64,
    /// The operation.
    pub op: SendOp,
    /// How far it has come.
    pub progress: SendProgress,
}

/// All send work requests of a queue pair that have not completed, oldest first.
pub struct OutstandingSends<'a> {
    queue: &'a SendQueue,
    position: u32,
    /// The numbers of the oldest packet that is not acknowledged, and of the packet that was not sent yet.
    una: u64,
    next: u64,
}

impl<'a> OutstandingSends<'a> {
    pub(crate) fn new(queue: &'a SendQueue, una: u64, next: u64) -> OutstandingSends<'a> {
        OutstandingSends { queue, position: queue.head_position(), una, next }
    }

    fn progress(&self, slot: &Slot) -> SendProgress {
        match slot {
            _ if slot.is_local() && slot.executed => SendProgress::Sent,
            _ if slot.is_local() || slot.first >= self.next => SendProgress::Unsent,
            _ if slot.first >= self.una => SendProgress::Sent,
            _ => SendProgress::PartlyAcknowledged,
        }
    }
}

impl Iterator for OutstandingSends<'_> {
    type Item = OutstandingSend;

    fn next(&mut self) -> Option<OutstandingSend> {
        let slot = self.queue.get(self.position)?;
        self.position = self.position.wrapping_add(1);
        Some(OutstandingSend { wr_id: slot.wr_id, op: slot.op, progress: self.progress(slot) })
    }
}
