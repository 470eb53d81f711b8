//! The receives of a queue pair, its own or taken from a shared queue: how messages fill and complete them.

pub(crate) use crate::recv_ring::Receive;
pub use crate::recv_ring::RecvQueue;
use softnic_wire::aeth::Credits;
use softnic_wire::opcode::Kind;
use softnic_wire::{Instant, Qpn};

use crate::completion::CqId;
use crate::invariants::Tally;
use crate::memory::{Access, AccessError, PdId, Region};
use crate::outstanding::{OutstandingRecvs, RecvsKept};
use crate::planted::{Bug, planted};
use crate::posting::{Operations, RecvRules, Supported};
use crate::vitals::Vitals;
use crate::wr::scatter;
use crate::{BestEffort, Completion, CqOverflow, Host, Inbound, Memory, PostError, RecvWr, Sge, Status, WcOpcode};

/// The name of a shared receive queue at its NIC.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct SrqId(pub u32);

/// Number of WRITEs with immediate that complete in a sink, and that may arrive before the expected one.
const AHEAD_IN_SINK: u32 = 256;

/// A complete message: the contents of its receive's completion.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Whole {
    /// The message is a SEND, not a WRITE with immediate.
    is_send: bool,
    byte_len: u32,
    imm: Option<u32>,
    /// The key that it invalidates.
    pub(crate) invalidate: Option<u32>,
    solicited: bool,
}

impl Whole {
    /// The message that is complete with this packet, which is at `offset` of the message.
    pub(crate) fn with(packet: &Inbound<'_>, offset: u32) -> Whole {
        Whole {
            is_send: packet.bth.opcode.kind() == Kind::Send,
            byte_len: offset + packet.payload_len,
            imm: packet.ext.imm,
            invalidate: packet.ext.ieth,
            solicited: packet.bth.solicited && !(planted(Bug::SolicitedLost) && offset > 0),
        }
    }
}

/// The receives of one queue pair: posted to the queue pair, or taken one at a time from a shared queue when a message starts.
pub(crate) struct Receives {
    queue: RecvQueue,
    srq: Option<SrqId>,
    pub(crate) cq: CqId,
    qpn: Qpn,
    /// The protection domain of the receives' memory.
    pd: PdId,
    /// Receives complete in a sink, so WRITEs with immediate need none.
    in_sink: bool,
    /// The number of receives does not limit the messages that may arrive.
    unlimited: bool,
    tally: Tally,
}

impl Receives {
    /// If receives come from a shared queue, at most `ahead` are taken at a time: as many as there may be messages in progress out of
    /// order.
    pub(crate) fn new(c: &crate::qp::Config, ahead: u32, supported: Supported) -> Receives {
        let rules = |max_sge| RecvRules { deadlines: supported.deadlines, ..RecvRules::new(max_sge) };
        let (queue, pd) = match c.srq {
            None => (RecvQueue::new(c.caps.max_recv_wr, rules(c.caps.max_recv_sge)), c.pd),
            // The deadlines of a queue that is shared are not supported.
            Some(srq) => (RecvQueue::new(ahead, RecvRules::new(srq.rules.max_sge.into())), srq.pd),
        };
        Receives {
            queue,
            srq: c.srq.map(|srq| srq.id),
            cq: c.recv_cq,
            qpn: c.qpn,
            pd,
            in_sink: c.recv_sink,
            unlimited: c.srq.is_some() || c.recv_sink,
            tally: Tally::default(),
        }
    }

    /// No receives, and no room for any: replaces receives that were moved elsewhere.
    pub(crate) fn none(c: &crate::qp::Config) -> Receives {
        let caps = crate::qp::Caps { max_recv_wr: 0, max_recv_sge: 0, ..c.caps };
        let none = Supported { operations: Operations::Datagrams, deadlines: false };
        Receives::new(&crate::qp::Config { caps, srq: None, ..*c }, 1, none)
    }

    /// Adds the state of the receives, for observers.
    pub(crate) fn vitals(&self, base: Vitals) -> Vitals {
        // Receives of a shared queue were not posted here.
        let receives_posted = if self.are_shared() { 0 } else { self.queue.tail };
        Vitals { receives_posted, receives_completed: self.queue.head, ..base }
    }

    /// Whether receives come from a shared queue.
    pub(crate) fn are_shared(&self) -> bool {
        self.srq.is_some()
    }

    pub(crate) fn clear(&mut self) {
        self.queue.clear();
        self.tally.forget();
    }

    /// The rules for receives.
    #[inline]
    pub(crate) fn rules(&self) -> &RecvRules {
        &self.queue.rules
    }

    /// Posts a receive that follows the rules to the queue pair itself.
    pub(crate) fn post(&mut self, wr: &RecvWr<'_>) -> Result<(), PostError> {
        // With a shared receive queue, receives are posted there (IBA 10.2.9.1).
        if self.srq.is_some() {
            return Err(PostError::NoSuchOperation);
        }
        self.queue.post(wr)?;
        self.tally.posted();
        Ok(())
    }

    /// Checks the invariants between two calls.
    pub(crate) fn check_invariants(&self) {
        self.tally.check(self.queue.len(), "receive queue");
    }

    /// The credits in an acknowledgement. For shared receives there are none to promise (IBA 9.7.7.2.2), and WRITEs that complete in a sink
    /// must not wait for any.
    #[inline]
    pub(crate) fn credits(&self) -> Credits {
        if self.unlimited { Credits::UNLIMITED } else { Credits::at_most(self.queue.len()) }
    }

    /// Whether WRITEs with immediate need no receive.
    #[inline]
    pub(crate) fn are_in_sink(&self) -> bool {
        self.in_sink
    }

    /// The status of the receive that a WRITE packet takes, if it takes one and may not write.
    pub(crate) fn ended_by(&self, packet: &Inbound<'_>) -> Option<Status> {
        (packet.ext.imm.is_some() && !self.in_sink).then_some(Status::LocAccessErr)
    }

    /// Whether a message needs a receive with this packet and there is none.
    #[inline]
    pub(crate) fn lacks_receive(&mut self, is_send: bool, host: &mut impl Host) -> bool {
        (is_send || !self.in_sink) && self.head(host).is_none()
    }

    /// The receive of the message that starts now, or of the message in progress.
    #[inline]
    pub(crate) fn head(&mut self, host: &mut impl Host) -> Option<Receive> {
        match self.queue.head() {
            None => self.take_head(host),
            head => head,
        }
    }

    /// The head of an empty queue: a receive of the shared queue, if it has any.
    fn take_head(&mut self, host: &mut impl Host) -> Option<Receive> {
        if host.take_shared(self.srq?, &mut self.queue) {
            self.tally.posted();
        }
        self.queue.head()
    }

    /// The best-effort attributes of the receive at the head.
    pub(crate) fn head_best_effort(&self) -> BestEffort {
        self.queue.best_effort(self.queue.head)
    }

    /// The earliest deadline of a receive; [`NEVER`](crate::best_effort::NEVER) if none has one.
    #[inline]
    pub(crate) fn earliest_deadline(&self) -> Instant {
        self.queue.best_effort.earliest()
    }

    /// The earliest deadline of all receives, and the number of receives that end at that time.
    #[inline]
    pub(crate) fn first_deadline(&self) -> Option<(u32, Instant)> {
        let (position, at) = self.queue.best_effort.first_deadline()?;
        Some((position.wrapping_sub(self.queue.head) + 1, at))
    }

    /// The receive for the message after `ahead` others. From a shared queue, the receives before it are taken too.
    pub(crate) fn nth(&mut self, ahead: u32, host: &mut impl Host) -> Option<Receive> {
        if let Some(srq) = self.srq {
            while self.queue.len() <= ahead {
                if !host.take_shared(srq, &mut self.queue) {
                    return None;
                }
                self.tally.posted();
            }
        }
        self.queue.nth(ahead)
    }

    /// Maximum number of messages with a receive (or that would have one without a sink) by which a message may be ahead of the expected
    /// one.
    pub(crate) fn room(&self) -> u32 {
        if self.in_sink { self.queue.max_wr.max(AHEAD_IN_SINK) } else { self.queue.max_wr }
    }

    /// The message that took a shared receive was lost: the receive is returned to the shared queue for the next message of any queue pair.
    #[inline]
    pub(crate) fn give_back(&mut self, host: &mut impl Host) {
        if let (Some(srq), false) = (self.srq, self.queue.is_empty())
            && host.return_shared(srq, &mut self.queue)
        {
            self.tally.ended();
        }
    }

    /// Removes the receive at the head, which is used up.
    #[inline]
    pub(crate) fn pop(&mut self) -> Option<Receive> {
        let receive = self.queue.pop()?;
        self.tally.ended();
        Some(receive)
    }

    /// A SEND or WRITE is complete with this packet, which is at `offset` of the message: counts it, and completes its receive if it has
    /// one.
    #[inline(always)] // a WRITE is only counted
    pub(crate) fn end_message(
        &mut self,
        packet: &Inbound<'_>,
        offset: u32,
        host: &mut impl Host,
    ) -> Result<(), CqOverflow> {
        let is_send = packet.bth.opcode.kind() == Kind::Send;
        let counters = host.counters();
        *(if is_send { &mut counters.rx_send_requests } else { &mut counters.rx_write_requests }) += 1;
        match is_send || packet.ext.imm.is_some() {
            true => self.complete_with(packet, offset, host),
            false => Ok(()),
        }
    }

    #[inline(never)]
    fn complete_with(&mut self, packet: &Inbound<'_>, offset: u32, host: &mut impl Host) -> Result<(), CqOverflow> {
        self.complete(&Whole::with(packet, offset), host)
    }

    /// Completes the receive at the head with the message in it; a WRITE that completes in a sink leaves the receive in place.
    #[inline]
    pub(crate) fn complete(&mut self, whole: &Whole, host: &mut impl Host) -> Result<(), CqOverflow> {
        let wr_id = match whole.is_send || !self.in_sink {
            true => match self.pop() {
                Some(receive) => receive.wr_id,
                None => return Ok(()),
            },
            false => 0,
        };
        let opcode = if whole.is_send { WcOpcode::Recv } else { WcOpcode::RecvWriteImm };
        let completion = Completion {
            byte_len: whole.byte_len,
            imm: whole.imm,
            invalidated: whole.invalidate,
            solicited: whole.solicited,
            ..Completion::new(wr_id, Status::Success, opcode, self.qpn)
        };
        host.complete(self.cq, completion)
    }

    /// Whether receives may have deadlines from now on, if the queue was created for them.
    pub(crate) fn keep_deadlines(&mut self, keeps: bool) {
        self.queue.rules.deadlines = keeps && self.srq.is_none();
    }

    /// The queue pair.
    pub(crate) fn qpn(&self) -> Qpn {
        self.qpn
    }

    /// The protection domain of the receives' memory.
    pub(crate) fn pd(&self) -> PdId {
        self.pd
    }

    /// The elements of a receive, and the protection domain of their memory.
    #[inline]
    pub(crate) fn target(&self, receive: &Receive) -> (PdId, &[Sge]) {
        (self.pd, self.queue.sges_of(receive))
    }

    /// Completes the receive at the head, with or without data: the completion says which.
    pub(crate) fn end_head(&mut self, completion: Completion, host: &mut impl Host) -> Result<(), CqOverflow> {
        let Some(receive) = self.pop() else { return Ok(()) };
        host.complete(self.cq, Completion { wr_id: receive.wr_id, ..completion })
    }

    /// Whether receives are posted here, so that a message of which nothing arrived uses one up.
    pub(crate) fn are_own(&self) -> bool {
        self.srq.is_none() && !self.in_sink
    }

    /// Places bytes at `offset` of the message in a receive.
    #[inline]
    pub(crate) fn scatter(
        &self,
        receive: &Receive,
        offset: u64,
        bytes: &[u8],
        memory: &impl Memory,
    ) -> Result<(), AccessError> {
        let (qpn, pd) = (self.qpn, self.pd);
        let region = |key, addr| Region { qpn, pd, key, addr, access: Access::LOCAL_WRITE };
        scatter(self.queue.sges_of(receive), offset, bytes, |sge, at, part| {
            memory.write(region(sge.lkey, sge.addr.wrapping_add(at)), part)
        })
    }

    /// The receives that are posted here and not used up; `None` if they come from a shared queue.
    pub(crate) fn outstanding(&self) -> Option<OutstandingRecvs<'_>> {
        (!self.are_shared()).then(|| OutstandingRecvs::new(&self.queue))
    }

    /// Withdraws all receives posted here, oldest first, without completing them; returns their number. `in_use`: a message that still
    /// arrives has partly filled one.
    pub(crate) fn take_all(&mut self, in_use: bool, mut take: impl FnMut(&RecvWr<'_>)) -> Result<u32, RecvsKept> {
        match (self.are_shared(), in_use) {
            (true, _) => return Err(RecvsKept::NotOwn),
            (false, true) => return Err(RecvsKept::InUse),
            (false, false) => {}
        }
        let count = self.queue.len();
        while let Some(wr) = self.queue.nth_wr(0) {
            take(&wr);
            self.pop();
        }
        Ok(count)
    }

    /// Completes all receives: the one in use with `status`, the others as flushed.
    pub(crate) fn flush(&mut self, status: Option<Status>, host: &mut impl Host) {
        let mut status = status.unwrap_or(Status::WrFlushErr);
        while let Some(receive) = self.pop() {
            host.counters().resp_cqe_error += u64::from(status != Status::WrFlushErr);
            let _ = host.complete(self.cq, Completion::new(receive.wr_id, status, WcOpcode::Recv, self.qpn));
            status = Status::WrFlushErr;
        }
    }
}

/// Number of bytes that every packet of XP reads here: whether there are receives, which is known from a pointer.
#[cfg(test)]
pub(crate) fn looked_at() -> usize {
    size_of::<usize>()
}

/// Number of bytes that a packet in the middle of a SEND reads here, including that pointer.
#[cfg(test)]
pub(crate) fn read() -> usize {
    use crate::footprint::of_fields;
    of_fields!(Receives: pd)
        + of_fields!(RecvQueue: slots, sges, best_effort, head, tail)
        + of_fields!(RecvRules: max_sge)
}
