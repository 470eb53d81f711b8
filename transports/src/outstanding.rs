//! The work requests that a halted queue pair still holds: its owner may post them elsewhere.

use crate::recv_queue::RecvQueue;
use crate::send_queue::{SendQueue, Slot, Source};
use crate::{Data, RecvWr, SendFlags, SendWr};

/// The progress of a send work request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum SendProgress {
    /// No packet of the work request was sent.
    Unsent,
    /// A packet was sent, and none is acknowledged: it is unknown whether the peer executed the work request. A local operation was
    /// executed.
    Sent,
    /// The first packets are acknowledged, or the first data of a READ has arrived; the rest may have arrived, too.
    PartlyAcknowledged,
}

/// A send work request that has not completed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OutstandingSend<'a> {
    /// The work request as it was posted; signaled if all sends of the queue pair are.
    pub wr: SendWr<'a>,
    /// Its progress.
    pub progress: SendProgress,
}

/// All send work requests of a queue pair that have not completed, oldest first, followed by those whose doorbell was not rung.
pub struct OutstandingSends<'a> {
    queue: &'a SendQueue,
    position: u32,
    /// The numbers of the oldest unacknowledged packet, and of the first packet not sent yet.
    una: u64,
    next: u64,
}

impl<'a> OutstandingSends<'a> {
    /// Of a reliable connection, whose work requests have no best-effort attributes.
    pub(crate) fn new(queue: &'a SendQueue, una: u64, next: u64) -> OutstandingSends<'a> {
        OutstandingSends { queue, position: queue.head_position(), una, next }
    }

    fn progress(&self, position: u32) -> SendProgress {
        // An unpublished work request has no packet numbers yet.
        let Some(slot) = self.queue.get(position) else { return SendProgress::Unsent };
        match slot {
            _ if slot.is_local() && slot.executed => SendProgress::Sent,
            _ if slot.is_local() || slot.first >= self.next => SendProgress::Unsent,
            _ if slot.first >= self.una => SendProgress::Sent,
            _ => SendProgress::PartlyAcknowledged,
        }
    }

    fn wr(&self, position: u32, slot: &Slot) -> SendWr<'a> {
        let Slot { wr_id, op, signaled, solicited, fence, to, .. } = *slot;
        let data = match self.queue.source(position, slot) {
            Source::Gather(sges) => Data::Gather(sges),
            Source::Inline(bytes) => Data::Inline(bytes),
        };
        SendWr { wr_id, op, data, flags: SendFlags { signaled, solicited, fence }, best_effort: None, to }
    }
}

impl<'a> Iterator for OutstandingSends<'a> {
    type Item = OutstandingSend<'a>;

    fn next(&mut self) -> Option<OutstandingSend<'a>> {
        let position = self.position;
        let wr = self.wr(position, self.queue.written(position)?);
        self.position = position.wrapping_add(1);
        Some(OutstandingSend { wr, progress: self.progress(position) })
    }
}

/// All posted receives of a queue pair that are not used up, oldest first, including one that is partly filled by a message.
pub struct OutstandingRecvs<'a> {
    queue: &'a RecvQueue,
    ahead: u32,
}

impl<'a> OutstandingRecvs<'a> {
    pub(crate) fn new(queue: &'a RecvQueue) -> OutstandingRecvs<'a> {
        OutstandingRecvs { queue, ahead: 0 }
    }
}

impl<'a> Iterator for OutstandingRecvs<'a> {
    type Item = RecvWr<'a>;

    fn next(&mut self) -> Option<RecvWr<'a>> {
        let wr = self.queue.nth_wr(self.ahead)?;
        self.ahead += 1;
        Some(wr)
    }
}

/// Why receives cannot be withdrawn.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RecvsKept {
    /// The queue pair has no receives of its own, or its transport cannot withdraw them.
    NotOwn,
    /// A message that still arrives has partly filled one of them.
    InUse,
}
