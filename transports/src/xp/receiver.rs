//! The receiving half of XP: one active message, whose packets are placed when they arrive (OptiNIC §3.1.1, §3.1.2).

use std::time::Duration;

use softnic_wire::opcode::Kind;
use softnic_wire::xp::XpEth;
use softnic_wire::{Instant, Psn};

use super::bitmap::{Bit, Bitmap};
use super::fragment::Fragment;
use super::{NEVER, SEQ_MASK, XpSettings, ahead, packet};
use crate::memory::{Access, Region};
use crate::message::Link;
use crate::planted::{Bug, planted};
use crate::recv_queue::Receives;
use crate::{Completion, CqOverflow, Host, Inbound, PartialReason, Status, WcOpcode};

/// Why the queue pair must stop.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Failure {
    /// The receive in use completes with this status.
    Receive(Status),
    /// A completion was lost.
    CqOverflow,
}

impl From<CqOverflow> for Failure {
    fn from(_: CqOverflow) -> Failure {
        Failure::CqOverflow
    }
}

/// Maximum distance of the next packet's message from the active one, in both directions. A single packet with a larger distance is from an
/// earlier connection, or forged: accepting it would make all following messages look old.
const NEAR: i32 = 1024;
/// This many consecutive packets with consistent numbers are neither: the network was interrupted for long.
const RESYNC: u8 = 16;

/// The treatment of the packets of the active message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Active {
    /// There is no active message: the next one may start.
    None,
    /// The packets are placed.
    Open,
    /// The packets are dropped, because there was no receive for the message.
    Dropped,
    /// The packets are dropped, because the receive expired before the first one arrived.
    Late,
}

/// The state of a receiver.
pub(super) struct Receiver {
    active: Active,
    /// The active message is a SEND.
    is_send: bool,
    /// The active message uses a receive.
    uses_receive: bool,
    solicited: bool,
    /// The last fragment of the active message has arrived.
    last_seen: bool,
    /// The active message ends by itself: `until` is a time. Read for every packet.
    bounded: bool,
    /// The number of the receive of the next message that uses one.
    next_receive: u16,
    /// The number of the active message. Without one, messages with lower numbers have ended.
    seq: u32,
    len: u32,
    /// Number of bytes of the active message that were placed.
    placed: u32,
    imm: Option<u32>,
    /// When the active message ends by its age, or at the end of the grace time for late fragments.
    until: Instant,
    /// The last packet that was far from the active message, and the number of consecutive packets near it.
    far: u32,
    far_run: u8,
    /// Number of packets placed, 24 bits.
    taken: u32,
    /// Number of packets for messages that had ended.
    pub(super) late: u32,
    /// The total number of payload bytes and of congestion marks received.
    pub(super) bytes: u64,
    pub(super) marks: u32,
    /// The last packet that requested feedback, and when it arrived.
    pub(super) asked: Option<(Psn, Instant)>,
}

impl Receiver {
    /// Creates a receiver whose first message has this number.
    pub(super) fn new(seq: u32) -> Receiver {
        Receiver {
            active: Active::None,
            is_send: false,
            uses_receive: false,
            solicited: false,
            last_seen: false,
            bounded: false,
            next_receive: 0,
            seq,
            len: 0,
            placed: 0,
            imm: None,
            until: NEVER,
            far: 0,
            far_run: 0,
            taken: 0,
            late: 0,
            bytes: 0,
            marks: 0,
            asked: None,
        }
    }

    /// Handles a packet of a SEND or WRITE.
    pub(super) fn receive(
        &mut self,
        now: Instant,
        packet: &Inbound<'_>,
        (link, receives, settings): (&Link, &mut Receives, &XpSettings),
        host: &mut impl Host,
    ) -> Result<(), Failure> {
        let Some(xp) = &packet.ext.xp else { return Ok(()) };
        let fragment = Fragment { offset: xp.offset, len: packet.payload_len, stride: xp.stride };
        let Some(index) = fragment.index(xp.len, link.mtu).filter(|_| is_consistent(packet, xp)) else {
            host.counters().xp_rejected_packets += 1;
            return Ok(());
        };
        let ahead = ahead(xp.wqe_seq, self.seq);
        if ahead.abs() > NEAR && !self.is_far_for_long(xp.wqe_seq) {
            host.counters().xp_rejected_packets += 1;
            return Ok(());
        }
        if (-NEAR..0).contains(&ahead) {
            self.count_late(host);
            if planted(Bug::XpLatePlaced) {
                self.write(packet, &fragment, link, host);
            }
            return Ok(());
        }
        self.far_run = 0;
        if ahead != 0 || self.active == Active::None {
            if self.active == Active::Open {
                self.end(Some(PartialReason::Preempted), receives, host)?;
            }
            self.begin(now, packet, xp, receives, settings, host)?;
        } else if self.len != xp.len || self.uses_receive != xp.uses_receive() || self.imm != packet.ext.imm {
            host.counters().xp_rejected_packets += 1;
            return Ok(());
        }
        match self.active {
            Active::Open => {}
            Active::Late => {
                self.count_late(host);
                return Ok(());
            }
            _ => return Ok(()),
        }
        self.place(now, packet, xp, (&fragment, index), (link, receives, settings), host)
    }

    fn count_late(&mut self, host: &mut impl Host) {
        host.counters().xp_late_packets += 1;
        self.late = self.late.wrapping_add(1);
    }

    /// Whether the messages of the peer have been far from the active one for so long that the local number must be wrong.
    #[cold]
    fn is_far_for_long(&mut self, seq: u32) -> bool {
        let agrees = ahead(seq, self.far).abs() <= NEAR;
        self.far_run = if agrees { self.far_run + 1 } else { 1 };
        self.far = seq;
        self.far_run >= RESYNC
    }

    /// The first packet of a message has arrived.
    fn begin(
        &mut self,
        now: Instant,
        packet: &Inbound<'_>,
        xp: &XpEth,
        receives: &mut Receives,
        settings: &XpSettings,
        host: &mut impl Host,
    ) -> Result<(), Failure> {
        self.seq = xp.wqe_seq;
        self.is_send = packet.bth.opcode.kind() == Kind::Send;
        self.uses_receive = xp.uses_receive();
        self.solicited = packet.bth.solicited;
        (self.last_seen, self.len, self.placed, self.imm) = (false, xp.len, 0, packet.ext.imm);
        (self.until, self.bounded) = (NEVER, false);
        self.active = Active::Open;
        let skipped = xp.receive.wrapping_sub(self.next_receive) as i16;
        // No packet of these messages arrived. They use their receives nevertheless, so that receive n always belongs to message n.
        for _ in 0..skipped.max(0) {
            if !receives.are_own() || !has_receive(receives, host) {
                break;
            }
            self.end_unused(PartialReason::Preempted, receives, host)?;
        }
        if !self.uses_receive {
            if skipped > 0 {
                self.next_receive = xp.receive;
            }
            return Ok(());
        }
        if skipped < 0 && receives.are_own() {
            self.active = Active::Late;
            return Ok(());
        }
        self.next_receive = xp.receive.wrapping_add(1);
        if planted(Bug::XpReceiveSkipped) && xp.receive % 16 == 7 {
            let _ = receives.pop();
        }
        if receives.lacks_receive(self.is_send, host) {
            host.counters().out_of_buffer += 1;
            self.active = Active::Dropped;
            return Ok(());
        }
        if let Some(active) = settings.active() {
            (self.until, self.bounded) = (now + active, true);
        }
        if let Some(bitmap) = self.bitmap(receives) {
            bitmap.clear(&*host).map_err(|_| Failure::Receive(Status::LocProtErr))?;
        }
        Ok(())
    }

    /// The bitmap of the receive at the head, if it has one.
    fn bitmap(&self, receives: &Receives) -> Option<Bitmap> {
        let memory = receives.head_best_effort().bitmap?;
        Some(Bitmap { qpn: receives.qpn(), pd: receives.pd(), memory })
    }

    fn place(
        &mut self,
        now: Instant,
        packet: &Inbound<'_>,
        xp: &XpEth,
        (fragment, index): (&Fragment, u32),
        (link, receives, settings): (&Link, &mut Receives, &XpSettings),
        host: &mut impl Host,
    ) -> Result<(), Failure> {
        let local = |_| Failure::Receive(Status::LocProtErr);
        let bitmap = if self.uses_receive { self.bitmap(receives) } else { None };
        if let Some(bitmap) = &bitmap {
            match bitmap.look(index, &*host).map_err(local)? {
                Bit::New => {}
                Bit::Known if planted(Bug::XpCountedTwice) => {}
                Bit::Known => return Ok(()),
                Bit::Outside => {
                    host.counters().resp_local_length_error += 1;
                    return Ok(());
                }
            }
        }
        if self.is_send {
            let Some(receive) = receives.head(host) else { return Ok(()) };
            if fragment.end(link.mtu) > receive.capacity {
                host.counters().resp_local_length_error += 1;
                return Ok(());
            }
            packet::place(fragment, link, receives.target(&receive), packet.payload, &*host).map_err(local)?;
        } else if !self.write(packet, fragment, link, host) {
            return Ok(());
        }
        if let Some(bitmap) = &bitmap {
            bitmap.set(index, &*host).map_err(local)?;
        }
        self.taken = self.taken.wrapping_add(1) & SEQ_MASK;
        // A copy of the last fragment has no new data.
        if !(xp.is_last() && self.last_seen) {
            self.placed = self.placed.saturating_add(fragment.len).min(self.len);
        }
        self.last_seen |= xp.is_last();
        if self.placed == self.len && self.is_whole(xp) {
            return self.end(None, receives, host).map_err(Failure::from);
        }
        if xp.is_last() {
            match settings.linger() {
                Some(Duration::ZERO) => return Ok(self.end(Some(PartialReason::Last), receives, host)?),
                Some(linger) => (self.until, self.bounded) = (self.until.min(now + linger), true),
                None => {}
            }
        }
        Ok(())
    }

    /// Whether a message with all bytes received is complete. A message without bytes is complete when its packet has arrived.
    fn is_whole(&self, xp: &XpEth) -> bool {
        self.len > 0 || xp.is_last()
    }

    /// Writes the bytes of a WRITE; returns `false` if the peer may not.
    fn write(&self, packet: &Inbound<'_>, fragment: &Fragment, link: &Link, host: &mut impl Host) -> bool {
        let Some(reth) = packet.ext.reth else { return false };
        if !link.access.allows(Access::REMOTE_WRITE) {
            host.counters().resp_remote_invalid_request += 1;
            return false;
        }
        let Link { qpn, pd, .. } = *link;
        let region = Region { qpn, pd, key: reth.rkey, addr: reth.va, access: Access::REMOTE_WRITE };
        let runs = fragment.runs(link.mtu);
        let written = match (fragment.stride, packet.payload.len() as u32 == fragment.len) {
            (1, _) => host.write(region, packet.payload),
            (_, true) if planted(Bug::XpStrideOffByARun) => {
                let addr = region.addr.wrapping_add(runs.run.into());
                host.write_runs(Region { addr, ..region }, runs, packet.payload)
            }
            (_, true) => host.write_runs(region, runs, packet.payload),
            // Elided: the bytes are not used, but the peer must be permitted to write them.
            (_, false) => host.check(region, runs.span()),
        };
        if written.is_err() {
            host.count_access_error();
        }
        written.is_ok()
    }

    /// The active message has ended: completes its receive, if it has one, completely or for this reason.
    pub(super) fn end(
        &mut self,
        why: Option<PartialReason>,
        receives: &mut Receives,
        host: &mut impl Host,
    ) -> Result<(), CqOverflow> {
        (self.active, self.until, self.bounded) = (Active::None, NEVER, false);
        self.seq = self.seq.wrapping_add(1) & SEQ_MASK;
        let partial = why.filter(|_| self.placed < self.len || self.len == 0 && !self.last_seen);
        count(partial, self.len - self.placed, host);
        let counters = host.counters();
        *(if self.is_send { &mut counters.rx_send_requests } else { &mut counters.rx_write_requests }) += 1;
        if !self.uses_receive {
            return Ok(());
        }
        let opcode = if self.is_send { WcOpcode::Recv } else { WcOpcode::RecvWriteImm };
        let completion = Completion {
            byte_len: self.placed,
            message_len: self.len,
            imm: self.imm,
            solicited: self.solicited,
            partial,
            ..Completion::new(0, Status::Success, opcode, receives.qpn())
        };
        match self.is_send || !receives.are_in_sink() {
            true => receives.end_head(completion, host),
            false => host.complete(receives.cq, completion),
        }
    }

    /// Completes the receive at the head without any packet of its message.
    fn end_unused(&mut self, why: PartialReason, receives: &mut Receives, host: &mut impl Host) -> Result<(), Failure> {
        self.next_receive = self.next_receive.wrapping_add(1);
        if let Some(bitmap) = self.bitmap(receives) {
            bitmap.clear(&*host).map_err(|_| Failure::Receive(Status::LocProtErr))?;
        }
        count(Some(why), 0, host);
        let none = Completion::new(0, Status::Success, WcOpcode::Recv, receives.qpn());
        Ok(receives.end_head(Completion { partial: Some(why), ..none }, host)?)
    }

    /// When the active message ends by itself; otherwise [`NEVER`].
    pub(super) fn until(&self) -> Instant {
        self.until
    }

    /// Whether the active message ends by itself.
    #[inline]
    pub(super) fn is_bounded(&self) -> bool {
        self.bounded
    }

    /// Ends the messages and receives whose time is over.
    pub(super) fn expire(
        &mut self,
        now: Instant,
        receives: &mut Receives,
        host: &mut impl Host,
    ) -> Result<(), Failure> {
        while let Some((count, at)) = receives.first_deadline()
            && at <= now
        {
            let count = if planted(Bug::XpDeadlineOfAnother) { count + 1 } else { count };
            for _ in 0..count {
                if self.active == Active::Open && self.uses_receive {
                    self.end(Some(PartialReason::Expired), receives, host)?;
                } else if has_receive(receives, host) {
                    self.end_unused(PartialReason::Expired, receives, host)?;
                }
            }
        }
        if self.until <= now && self.active == Active::Open {
            let why = if self.last_seen { PartialReason::Last } else { PartialReason::Expired };
            self.end(Some(why), receives, host)?;
        }
        Ok(())
    }

    /// Number of packets placed; wraps around.
    pub(super) fn taken(&self) -> u32 {
        self.taken
    }

    /// The receive of the active message is flushed with the others.
    pub(super) fn stop(&mut self) {
        (self.active, self.until, self.bounded, self.asked) = (Active::None, NEVER, false, None);
    }
}

/// Whether the headers of a SEND or WRITE are consistent.
#[inline]
fn is_consistent(packet: &Inbound<'_>, xp: &XpEth) -> bool {
    let uses = match packet.ext.reth {
        None => true,
        Some(reth) => {
            if reth.len != packet.payload_len {
                return false;
            }
            packet.ext.imm.is_some()
        }
    };
    uses == xp.uses_receive() && xp.len <= softnic_wire::segment::MAX_MESSAGE
}

/// Whether there is a receive; takes one from a shared queue if necessary.
fn has_receive(receives: &mut Receives, host: &mut impl Host) -> bool {
    receives.head(host).is_some()
}

/// Counts a message or READ that ended without all of its bytes.
pub(super) fn count(why: Option<PartialReason>, missing: u32, host: &mut impl Host) {
    let Some(why) = why else { return };
    let counters = host.counters();
    counters.xp_partial_messages += 1;
    counters.xp_missing_bytes += u64::from(missing);
    match why {
        PartialReason::Preempted => counters.xp_preempted_messages += 1,
        PartialReason::Expired => counters.xp_expired_messages += 1,
        PartialReason::Last => {}
    }
}

/// Number of bytes that every packet reads here: whether feedback was requested, without its details.
#[cfg(test)]
pub(super) fn looked_at() -> usize {
    size_of::<u64>()
}

/// Number of further bytes that an unmarked packet in the middle of its message reads or writes here.
#[cfg(test)]
pub(super) fn written() -> usize {
    let message =
        crate::footprint::of_fields!(Receiver: active, is_send, uses_receive, last_seen, seq, len, placed, imm);
    message + crate::footprint::of_fields!(Receiver: bounded, far_run, taken, bytes)
}
