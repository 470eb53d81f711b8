//! The work requests that a queue pair has in place: for the owner of one that halted, who may post them elsewhere.

use crate::recv_queue::RecvQueue;
use crate::send_queue::{SendQueue, Slot, Source};
use crate::{Data, RecvWr, SendFlags, SendWr};

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
pub struct OutstandingSend<'a> {
    /// The work request, as it was posted; signaled also where all sends of the queue pair are.
    pub wr: SendWr<'a>,
    /// How far it has come.
    pub progress: SendProgress,
}

/// All send work requests of a queue pair that have not completed, oldest first, and those whose doorbell was not rung
/// behind them.
pub struct OutstandingSends<'a> {
    queue: &'a SendQueue,
    position: u32,
    /// The numbers of the oldest packet that is not acknowledged, and of the packet that was not sent yet.
    una: u64,
    next: u64,
}

impl<'a> OutstandingSends<'a> {
    /// Of a reliable connection, whose work requests say nothing of best effort.
    pub(crate) fn new(queue: &'a SendQueue, una: u64, next: u64) -> OutstandingSends<'a> {
        OutstandingSends { queue, position: queue.head_position(), una, next }
    }

    fn progress(&self, position: u32) -> SendProgress {
        // What is not published has no number yet.
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

/// All receives of a queue pair that are posted and not used up, oldest first. One that a message is half in is among
/// them.
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

/// Why receives are not withdrawn.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RecvsKept {
    /// The queue pair has no receives of its own, or its transport cannot give them up.
    NotOwn,
    /// A message that still arrives is half in one of them.
    InUse,
}
