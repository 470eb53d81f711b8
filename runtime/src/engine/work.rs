//! Work requests on the engine's side: the queues that programs post to, and the transfer of their work into the NIC.

use softnic_nic::transports::{CqId, PostError, SrqId};
use softnic_shift::DualNic;
use softnic_sync::doorbell::Doorbells;
use softnic_sync::ring::Consumer;
use softnic_wire::{Instant, Qpn};

use super::{MAX_QUEUES, PostedRecv, PostedSend};

/// The owner of the work in a queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Target {
    Qp(Qpn),
    Srq(SrqId),
}

/// The engine's end of a queue of work requests.
pub(crate) struct WorkQueue {
    pub(crate) target: Target,
    /// The connection that the queue pair belongs to ([`DualNic::connection`]), if there is a backup.
    pub(crate) connection: Option<usize>,
    pub(crate) sends: Consumer<PostedSend>,
    pub(crate) recvs: Consumer<PostedRecv>,
    /// The completion queues of sends and of receives, if they are known.
    pub(crate) cqs: Option<(CqId, CqId)>,
}

/// All queues of an engine.
#[derive(Default)]
pub(super) struct Work {
    queues: Vec<Option<WorkQueue>>,
    /// Indexes of removed queues, to be reused.
    free: Vec<u32>,
    /// Queues whose work did not fit into the NIC.
    stalled: Vec<u32>,
}

impl Work {
    /// Adds a queue; returns its number.
    pub(super) fn add(&mut self, queue: WorkQueue) -> Option<u32> {
        let index = match self.free.pop() {
            Some(index) => index as usize,
            None if self.queues.len() >= MAX_QUEUES => return None,
            None => {
                self.queues.push(None);
                self.queues.len() - 1
            }
        };
        self.queues[index] = Some(queue);
        Some(index as u32)
    }

    pub(super) fn remove(&mut self, index: u32) {
        if let Some(place) = self.queues.get_mut(index as usize)
            && place.take().is_some()
        {
            self.free.push(index);
        }
    }

    /// Drops the work in a queue.
    pub(super) fn forget(&mut self, index: u32) {
        if let Some(Some(queue)) = self.queues.get_mut(index as usize) {
            while queue.sends.pop().is_some() || queue.recvs.pop().is_some() {}
        }
    }

    /// The queue pairs among the owners of the queues.
    pub(super) fn queue_pairs(&self) -> impl Iterator<Item = Qpn> + '_ {
        self.queues.iter().flatten().filter_map(|queue| match queue.target {
            Target::Qp(qpn) => Some(qpn),
            Target::Srq(_) => None,
        })
    }

    /// Whether work is waiting for room.
    pub(super) fn has_stalled(&self) -> bool {
        !self.stalled.is_empty()
    }

    /// Whether there may be work to take.
    #[inline]
    pub(super) fn is_waiting(&self, doorbells: &Doorbells) -> bool {
        !self.stalled.is_empty() || !doorbells.is_empty()
    }

    /// Takes the work of the queues that rang and of the stalled queues; returns whether there was any. No work is started whose completion
    /// queue is `full`.
    pub(super) fn take(&mut self, node: &mut DualNic, now: Instant, full: &[CqId], doorbells: &Doorbells) -> bool {
        let mut taken = false;
        // From the end, because work that stalls again is appended behind the entries still to be visited.
        for i in (0..self.stalled.len()).rev() {
            let index = self.stalled.swap_remove(i);
            taken |= self.take_of(index, node, now, full);
        }
        doorbells.take(|index| taken |= self.take_of(index, node, now, full));
        taken
    }

    /// Takes the work of all queues, whether they rang or not.
    pub(super) fn take_all(&mut self, node: &mut DualNic, now: Instant, full: &[CqId]) {
        for index in 0..self.queues.len() {
            self.take_of(index as u32, node, now, full);
        }
    }

    /// Takes the work of one queue: when the queue rang, and before its queue pair changes its state. Returns whether there was any.
    pub(super) fn take_of(&mut self, index: u32, node: &mut DualNic, now: Instant, full: &[CqId]) -> bool {
        let Some(Some(queue)) = self.queues.get_mut(index as usize) else { return false };
        let (mut any, mut no_room) = (false, false);
        let mut taken = |done: Result<(), PostError>| match done {
            Err(PostError::QueueFull) => {
                no_room = true;
                false
            }
            // The request was checked at posting; the queue pair was reset since.
            _ => {
                any = true;
                true
            }
        };
        let (target, connection) = (queue.target, queue.connection);
        let recv = |wr: &PostedRecv, node: &mut DualNic| match (target, connection) {
            (_, Some(at)) => node.post_recv_at(at, &wr.wr()),
            (Target::Qp(qpn), None) => node.nic.post_checked_recv(qpn, &wr.wr()),
            (Target::Srq(srq), None) => node.nic.post_checked_srq_recv(srq, &wr.wr()),
        };
        // A program may post as long as there is room, and poll its completions later. No completion may be lost, so work waits in its ring
        // until the program polls. The completions of work started before have room in the NIC's own queue.
        let waits = queue.cqs.map_or([false; 2], |(send, recv)| [send, recv].map(|cq| full.contains(&cq)));
        while !waits[1] && queue.recvs.peek(|wr| taken(recv(wr, node))) == Some(true) {
            queue.recvs.pop();
        }
        if let Target::Qp(qpn) = target
            && !queue.sends.is_empty()
        {
            let (mut rang, mut messages) = (false, 0);
            let direct = connection.is_none_or(|at| node.is_direct(at));
            let mut send = |wr: &PostedSend, node: &mut DualNic| match connection {
                Some(at) if !direct => node.write_send(at, &wr.wr()),
                _ => {
                    let wr = wr.wr();
                    let done = node.nic.write_checked_send(qpn, &wr);
                    messages += u32::from(done.is_ok() && wr.op.uses_receive());
                    done
                }
            };
            while !waits[0] && queue.sends.peek(|wr| taken(send(wr, node))) == Some(true) {
                queue.sends.pop();
                rang = true;
            }
            match connection {
                _ if !rang => {}
                None => node.nic.ring_doorbell(now, qpn),
                Some(at) if direct => node.ring_direct(now, at, messages),
                Some(at) => node.ring_doorbell(now, at),
            }
        }
        if (no_room || waits != [false; 2]) && !self.stalled.contains(&index) {
            self.stalled.push(index);
        }
        any
    }
}
