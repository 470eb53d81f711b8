//! Completions that the program takes, and events.

use super::{About, Model};
use crate::calls::{Completed, ObjectId, ObjectKind, Outcome, QpState, QpType, ReceiveQueue};
use crate::finding::{Kind, Severity};
use crate::memory::Memory;
use crate::queue_pair::{Send, end_receive};

impl Model {
    /// The program has polled a completion queue, whether there was anything or not.
    pub fn polled(&mut self, queue: ObjectId) {
        if let Some(queue) = self.queues.get_mut(&queue) {
            queue.polled = true;
        }
    }

    /// The program has a completion.
    pub fn completed(&mut self, queue: ObjectId, completion: &Completed, memory: &(impl Memory + ?Sized)) {
        self.polled(queue);
        let Some(&id) = self.by_queue.get(&(queue, completion.qp_number)) else { return };
        let Some(pair) = self.pairs.get_mut(&id) else { return };
        let success = completion.outcome == Outcome::Success;
        if completion.is_receive {
            pair.received += u64::from(success);
            let from = pair.attributes.srq.map_or(ReceiveQueue::Own(id), ReceiveQueue::Shared);
            let receives = match from {
                ReceiveQueue::Own(_) => Some(&mut pair.receives),
                ReceiveQueue::Shared(srq) => self.shared.get_mut(&srq),
            };
            if let Some(receive) = receives.and_then(|receives| end_receive(receives, completion.wr_id)) {
                self.release_receive(&receive);
            }
        } else {
            let sends = pair.end_sends(completion.wr_id, success);
            let done = if success { sends.len() } else { sends.len().saturating_sub(1) };
            for send in &sends[..done] {
                self.check_unchanged(id, send, memory);
            }
            if let Some(failed) = sends.last().filter(|_| completion.outcome == Outcome::RemoteAccess) {
                self.explain_remote_access(id, failed);
            }
            sends.iter().for_each(|send| self.release_send(queue, send));
        }
        if !success && let Some(pair) = self.pairs.get_mut(&id) {
            // Unconnected sends stop, receives go on; a receive that fails on its own on UD stops nothing.
            match (pair.attributes.kind, completion.is_receive) {
                (QpType::Rc, _) | (QpType::Uc, true) => pair.state = QpState::Err,
                (_, false) if pair.state != QpState::Err => pair.state = QpState::Sqe,
                _ => {}
            }
        }
    }

    /// A send is done: its data must be what they were when it was posted.
    fn check_unchanged(&mut self, id: ObjectId, send: &Send, memory: &(impl Memory + ?Sized)) {
        let Some(before) = send.sum.filter(|_| !self.was_told(Kind::SendBufferChanged, &send.place)) else { return };
        // Memory of a region that is gone may be gone, too.
        if send.buffers.iter().any(|buffer| self.regions.get(buffer.region).is_none()) {
            return;
        }
        let now = self.scratch.digest(memory, send.buffers.iter().map(|buffer| buffer.span), send.ticket);
        let (Some(pair), true) = (self.pairs.get(&id), now.is_some_and(|now| now != before)) else { return };
        let bytes: u64 = send.buffers.iter().map(|buffer| buffer.span.1).sum();
        let address = send.buffers.first().map_or(0, |buffer| buffer.span.0);
        let others_write =
            send.others_write || send.buffers.iter().any(|buffer| self.others_write(buffer.span, send.ticket));
        let (severity, perhaps) = match others_write {
            false => (Severity::Error, ""),
            true => (
                Severity::Warning,
                " (or a peer, or a receive, wrote there: the region lets peers write, or other work is posted for the same bytes)",
            ),
        };
        let message = format!(
            "the {bytes} bytes at {address:#x} of a {} changed between its post and its completion: what was sent, or is sent again, may \
             be either{perhaps}",
            send.op.name()
        );
        let about = About { wr_id: Some(send.wr_id), severity: Some(severity), ..About::pair(pair) };
        self.report(Kind::SendBufferChanged, &send.place, about, message);
    }

    /// Whether peers, or outstanding work, may change the bytes. A region that lets them need not be that of the work request.
    fn others_write(&self, span: (u64, u64), since: u64) -> bool {
        self.regions.may_change(span, since) || self.work_writes(span)
    }

    /// The peer refused a key: it may be of a region of this process that is gone.
    fn explain_remote_access(&mut self, id: ObjectId, send: &Send) {
        let Some((address, rkey)) = send.remote else { return };
        let (Some(gone), Some(pair)) = (self.regions.gone_by_rkey(rkey, address), self.pairs.get(&id)) else { return };
        let message = format!(
            "a {} to {address:#x} ended with a remote access error: the region with rkey {rkey:#x} was deregistered, and the peer's \
             program still has its key",
            send.op.name()
        );
        let made = Some(gone.made.clone());
        let related = Some(("deregistered", gone.ended.clone()));
        let about = About { wr_id: Some(send.wr_id), made, related, ..About::pair(pair) };
        self.report(Kind::StaleRkey, &send.place, about, message);
    }

    /// The program has an event of an object, which it must acknowledge.
    pub fn event_taken(&mut self, kind: ObjectKind, id: ObjectId) {
        if let Some(object) = self.objects.get_mut(&(kind, id)) {
            object.unacknowledged += 1;
        }
    }

    /// It has acknowledged so many.
    pub fn events_acknowledged(&mut self, kind: ObjectKind, id: ObjectId, count: u64) {
        let object = match self.objects.get_mut(&(kind, id)) {
            Some(object) => Some(object),
            // A verb that destroys it waits for that.
            None => self.going.get_mut(&(kind, id)).map(|going| &mut going.object),
        };
        if let Some(object) = object {
            object.unacknowledged = object.unacknowledged.saturating_sub(count);
        }
    }
}
