//! The sending half of XP: packets are sent once, and a send is done when its last one was sent, or at its deadline (OptiNIC §3.1.2).

use softnic_wire::ext::Reth;
use softnic_wire::xp::XpEth;
use softnic_wire::{ExtHeaders, Instant, Opcode, PacketFields, PathMtu, Psn, Qpn, TxFrame};

use super::bitmap::Bitmap;
use super::fragment::Fragment;
use super::packet::{self, From};
use super::reads::Reads;
use super::{SEQ_MASK, Way, XpSettings, op};
use crate::completion::CqId;
use crate::invariants::invariant;
use crate::memory::{Access, PdId};
use crate::posting::SendRules;
use crate::qp::Config;
use crate::send_queue::{SendQueue, Slot, completion};
use crate::{Completion, CqOverflow, Host, PartialReason, SendOp, Status};

/// Why sending must stop.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Failure {
    /// The work request at this position completes with this status; all others are flushed.
    Work(u32, Status),
    /// A completion was lost.
    CqOverflow,
}

impl std::convert::From<CqOverflow> for Failure {
    fn from(_: CqOverflow) -> Failure {
        Failure::CqOverflow
    }
}

/// Work requests in progress.
pub(super) struct Sender {
    pub(super) queue: SendQueue,
    pub(super) qpn: Qpn,
    pub(super) pd: PdId,
    cq: CqId,
    pub(super) sig_all: bool,
    /// The PSN of the next packet of any kind: each packet of this direction has its own.
    pub(super) psn: Psn,
    /// The number of the first message: the first PSN, which both ends know, and which others cannot guess.
    pub(super) first_seq: u32,
    /// The work request whose packet is sent next, the index of that packet, and how often the last one was sent.
    pub(super) cursor: u32,
    index: u32,
    copies: u8,
    pub(super) reads: Reads,
}

impl Sender {
    pub(super) fn new(c: &Config, rules: SendRules) -> Sender {
        Sender {
            queue: SendQueue::new(c.caps.max_send_wr, rules),
            qpn: c.qpn,
            pd: c.pd,
            cq: c.send_cq,
            sig_all: c.sig_all,
            psn: Psn::new(0),
            first_seq: 0,
            cursor: 0,
            index: 0,
            copies: 0,
            reads: Reads::default(),
        }
    }

    pub(super) fn reset(&mut self) {
        self.queue.clear();
        (self.cursor, self.index, self.copies, self.reads) = (0, 0, 0, Reads::default());
    }

    /// Makes the sender ready to send, starting with this PSN.
    pub(super) fn start(&mut self, psn: Psn, max_reads: u8) {
        (self.psn, self.first_seq, self.reads.max) = (psn, psn.value(), max_reads);
    }

    /// The number of the message at a position.
    #[inline]
    pub(super) fn seq(&self, position: u32) -> u32 {
        self.first_seq.wrapping_add(position) & SEQ_MASK
    }

    /// Whether no message is partly sent, and no READ unanswered.
    pub(super) fn is_drained(&self) -> bool {
        self.index == 0 && self.copies == 0 && self.reads.outstanding == 0
    }

    /// Whether there may be a packet to send, as far as the state permits.
    pub(super) fn has_something(&self, draining: bool) -> bool {
        self.queue.get(self.cursor).is_some() && (!draining || self.index > 0 || self.copies > 0)
    }

    /// Number of payload bytes of all posted work that were not sent yet.
    pub(super) fn bytes_left(&self, mtu: PathMtu) -> u64 {
        let Some(slot) = self.queue.get(self.cursor) else { return 0 };
        let of_message = (u64::from(self.index) * u64::from(mtu.bytes())).min(slot.len.into());
        let of_message = if slot.awaits_data() || slot.is_local() { 0 } else { of_message };
        self.queue.bytes_from(slot).saturating_sub(of_message)
    }

    /// Number of packets sent since the queue pair became ready to send; wraps around.
    pub(super) fn sent(&self) -> u32 {
        self.psn.forward_from(Psn::new(self.first_seq))
    }

    /// Takes the PSN of the current packet.
    pub(super) fn take_psn(&mut self) -> Psn {
        let psn = self.psn;
        self.psn = psn.next();
        psn
    }

    /// Executes the local operations at the cursor; returns whether there is then a work request with packets that may start.
    pub(super) fn advance(&mut self, draining: bool, host: &mut impl Host) -> Result<bool, Failure> {
        while let Some(slot) = self.queue.get(self.cursor) {
            let begins = self.index == 0 && self.copies == 0;
            if begins && (draining || slot.fence && self.reads.outstanding > 0) {
                return Ok(false);
            }
            if !slot.is_local() {
                return Ok(!slot.awaits_data() || self.reads.has_room());
            }
            let slot = *slot;
            let done = slot.execute(self.qpn, self.pd, host);
            done.map_err(|status| Failure::Work(self.cursor, status))?;
            self.queue.set_executed(self.cursor);
            self.cursor = self.cursor.wrapping_add(1);
            self.complete_sent(host)?;
        }
        Ok(false)
    }

    /// Writes the next packet, if one is due.
    pub(super) fn transmit(
        &mut self,
        now: Instant,
        tx: &mut TxFrame<'_>,
        (way, settings, draining, ask): (&Way<'_>, &XpSettings, bool, bool),
        host: &mut impl Host,
    ) -> Result<bool, Failure> {
        // In the middle of a message there is nothing to wait for.
        if self.index == 0 && !self.advance(draining, host)? {
            return Ok(false);
        }
        let slot = self.queue.at(self.cursor);
        let failed = Failure::Work(self.cursor, Status::LocProtErr);
        if slot.awaits_data() {
            let (slot, until) = (*slot, self.read_deadline(self.cursor, now, settings));
            self.request(now, until, tx, way, &slot, host).ok_or(failed)?;
            return Ok(true);
        }
        let last = self.index + 1 == slot.packets;
        self.emit(tx, way, slot, last, ask, host).ok_or(failed)?;
        self.psn = self.psn.next();
        host.counters().sent_requests += 1;
        if !last {
            self.index += 1;
            return Ok(true);
        }
        self.copies += 1;
        if self.copies >= settings.tail {
            (self.cursor, self.index, self.copies) = (self.cursor.wrapping_add(1), 0, 0);
            self.complete_sent(host)?;
        }
        Ok(true)
    }

    /// Writes the next packet of a SEND or WRITE; returns `None` if its memory may not be read.
    #[inline]
    fn emit(
        &self,
        tx: &mut TxFrame<'_>,
        way: &Way<'_>,
        slot: &Slot,
        last: bool,
        ask: bool,
        host: &impl Host,
    ) -> Option<()> {
        let link = way.link;
        let stride = self.queue.stride(self.cursor);
        let fragment = Fragment::of(self.index, slot.len, stride, link.mtu);
        let (opcode, target, imm) = match slot.op {
            SendOp::Send => (op::SEND, None, None),
            SendOp::SendImm { imm } => (op::SEND_IMM, None, Some(imm)),
            SendOp::Write { remote_addr, rkey } => (op::WRITE, Some((remote_addr, rkey)), None),
            SendOp::WriteImm { remote_addr, rkey, imm } => (op::WRITE_IMM, Some((remote_addr, rkey)), Some(imm)),
            _ => return None,
        };
        let uses = slot.uses_receive();
        let xp = XpEth {
            flags: if last { XpEth::LAST } else { 0 } | if uses { XpEth::RECEIVE } else { 0 },
            wqe_seq: self.seq(self.cursor),
            offset: fragment.offset,
            len: slot.len,
            stride: fragment.stride,
            receive: slot.sends.wrapping_sub(u32::from(uses)) as u16,
        };
        let reth = target.map(|(addr, rkey)| Reth {
            va: u64::wrapping_add(addr, fragment.offset.into()),
            rkey,
            len: fragment.len,
        });
        let ext = ExtHeaders { xp: Some(xp), reth, imm, ..ExtHeaders::default() };
        let solicited = slot.solicited && uses;
        let payload_len = fragment.len as usize;
        let fields = PacketFields { opcode, psn: self.psn, ack_req: ask, solicited, becn: false, payload_len };
        let source = self.queue.source(self.cursor, slot);
        let from = From { source: &source, access: Access::NONE };
        packet::write(tx, (link, way.template()), &fields, &ext, &fragment, &from, host).ok()
    }

    /// Writes the request of a READ, which ends at `until`; returns `None` if its bitmap may not be written.
    fn request(
        &mut self,
        now: Instant,
        until: Instant,
        tx: &mut TxFrame<'_>,
        way: &Way<'_>,
        slot: &Slot,
        host: &mut impl Host,
    ) -> Option<()> {
        let SendOp::Read { remote_addr, rkey } = slot.op else { return None };
        let work = self.queue.best_effort(self.cursor);
        if let Some(memory) = work.bitmap {
            Bitmap { qpn: self.qpn, pd: self.pd, memory }.clear(&*host).ok()?;
        }
        let (wqe_seq, stride) = (self.seq(self.cursor), work.stride.max(1));
        let xp = XpEth { flags: 0, wqe_seq, offset: 0, len: slot.len, stride, receive: slot.sends as u16 };
        let left = until.saturating_since(now).as_nanos().div_ceil(1000).min(u32::MAX.into()) as u32;
        let reth = Reth { va: remote_addr, rkey, len: slot.len };
        let ext = ExtHeaders { xp: Some(xp), reth: Some(reth), xp_time: Some(left), ..ExtHeaders::default() };
        let (opcode, psn) = (op::READ_REQUEST, self.take_psn());
        let fields = PacketFields { opcode, psn, ack_req: false, solicited: false, becn: false, payload_len: 0 };
        way.build(tx, &fields, &ext)?;
        host.counters().sent_requests += 1;
        self.queue.set_left(self.cursor, now);
        self.reads.outstanding += 1;
        self.cursor = self.cursor.wrapping_add(1);
        Some(())
    }

    /// The deadline of the READ at `position`, if its request was sent at `left`.
    pub(super) fn read_deadline(&self, position: u32, left: Instant, settings: &XpSettings) -> Instant {
        let own = self.queue.best_effort(position).deadline.unwrap_or(left + settings.timeout());
        // The deadline of a later work request applies to it, too; that of an earlier one does not.
        self.queue.deadline_of(position).map_or(own, |first| own.min(first))
    }

    /// Completes the work requests that were sent, up to a READ that is not answered.
    pub(super) fn complete_sent(&mut self, host: &mut impl Host) -> Result<(), CqOverflow> {
        while self.queue.head_position() != self.cursor
            && let Some(slot) = self.queue.head()
            && !slot.awaits_data()
        {
            let (done, signaled) = (completion(slot, self.qpn, Status::Success), slot.signaled);
            self.drop_head(signaled, done, host)?;
        }
        Ok(())
    }

    /// The work request at the head is done, with this completion.
    pub(super) fn end_head(&mut self, slot: &Slot, done: Completion, host: &mut impl Host) -> Result<(), CqOverflow> {
        self.drop_head(slot.signaled, done, host)
    }

    #[inline]
    fn drop_head(&mut self, signaled: bool, done: Completion, host: &mut impl Host) -> Result<(), CqOverflow> {
        self.queue.drop_head();
        self.queue.note_end();
        match signaled {
            true => host.complete(self.cq, done),
            false => Ok(()),
        }
    }

    /// Ends the work requests whose deadline has passed, and all earlier ones.
    pub(super) fn expire(&mut self, now: Instant, mtu: u32, host: &mut impl Host) -> Result<(), Failure> {
        while let Some((position, at)) = self.queue.first_deadline()
            && at <= now
        {
            // The end of a READ also ends the work requests sent after it.
            while position.wrapping_sub(self.queue.head_position()) as i32 >= 0 {
                self.expire_head(mtu, host)?;
            }
        }
        Ok(())
    }

    fn expire_head(&mut self, mtu: u32, host: &mut impl Host) -> Result<(), Failure> {
        let position = self.queue.head_position();
        let Some(&slot) = self.queue.head() else { return Ok(()) };
        let whole = completion(&slot, self.qpn, Status::Success);
        let has_left = position != self.cursor;
        if slot.awaits_data() && has_left {
            return Ok(self.end_read(Some(PartialReason::Expired), host)?);
        }
        if has_left {
            return Ok(self.end_head(&slot, whole, host)?);
        }
        if slot.is_local() {
            slot.execute(self.qpn, self.pd, host).map_err(|status| Failure::Work(position, status))?;
            self.queue.set_executed(position);
        } else if slot.awaits_data()
            && let Some(memory) = self.queue.best_effort(position).bitmap
        {
            let cleared = Bitmap { qpn: self.qpn, pd: self.pd, memory }.clear(&*host);
            cleared.map_err(|_| Failure::Work(position, Status::LocProtErr))?;
        }
        let all_left = slot.is_local() || self.copies > 0;
        let left = (u64::from(self.index) * u64::from(mtu)).min(slot.len.into()) as u32;
        (self.cursor, self.index, self.copies) = (position.wrapping_add(1), 0, 0);
        if all_left {
            return Ok(self.end_head(&slot, whole, host)?);
        }
        host.counters().xp_expired_sends += 1;
        let partial = Some(PartialReason::Expired);
        let done = Completion { byte_len: left, message_len: slot.len, partial, ..whole };
        Ok(self.end_head(&slot, done, host)?)
    }

    /// Completes all sends: one with its own status, the others as flushed.
    pub(super) fn flush(&mut self, failed: Option<(u32, Status)>, host: &mut impl Host) {
        loop {
            let position = self.queue.head_position();
            let Some(slot) = self.queue.pop_any() else { break };
            let status = failed.filter(|(at, _)| *at == position).map_or(Status::WrFlushErr, |(_, status)| status);
            host.counters().req_cqe_error += u64::from(status != Status::WrFlushErr);
            let _ = host.complete(self.cq, completion(&slot, self.qpn, status));
            self.queue.note_end();
        }
        self.cursor = self.queue.head_position();
        (self.index, self.copies, self.reads.outstanding) = (0, 0, 0);
    }

    /// Checks the invariants between two calls.
    pub(super) fn check_invariants(&self) {
        self.queue.check_invariants();
        let ahead = self.cursor.wrapping_sub(self.queue.head_position());
        invariant!(ahead == 0 || self.queue.get(self.cursor.wrapping_sub(1)).is_some(), "more was sent than there is");
        invariant!(u32::from(self.reads.outstanding) <= ahead, "more READs than requests are outstanding");
    }
}

/// The headers of a READ response to the request with this number.
pub(super) fn response_fields(psn: Psn, payload_len: u32, ask: bool) -> PacketFields {
    let opcode: Opcode = op::READ_RESPONSE;
    PacketFields { opcode, psn, ack_req: ask, solicited: false, becn: false, payload_len: payload_len as usize }
}

/// Number of bytes that a packet in the middle of its message reads or writes here.
#[cfg(test)]
pub(super) fn written() -> usize {
    crate::footprint::of_fields!(Sender: cursor, psn, first_seq, index, copies)
        + crate::footprint::of_fields!(Reads: outstanding)
        + crate::send_queue::read()
}
