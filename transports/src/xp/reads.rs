//! READs of XP, at both ends: the requester's one active READ, and the responder's answers until their time is over.

use softnic_wire::segment::MAX_MESSAGE;
use softnic_wire::xp::XpEth;
use softnic_wire::{ExtHeaders, Instant, PathMtu, TxFrame};

use super::bitmap::{Bit, Bitmap};
use super::fragment::Fragment;
use super::packet::{self, From};
use super::receiver::count;
use super::sender::{Failure, Sender, response_fields};
use super::{NEVER, Way, XpSettings, ahead};
use crate::memory::{Access, Region};
use crate::message::Link;
use crate::send_queue::{Slot, Source, completion};
use crate::wr::Sge;
use crate::{Completion, CqOverflow, Host, Inbound, PartialReason, Status};

/// The READs of a requester. The oldest outstanding one is the active READ. It is at the head of the send queue, because everything before
/// it is done.
#[derive(Debug, Clone, Copy)]
pub(super) struct Reads {
    /// Number of requests sent whose READ is not done.
    pub(super) outstanding: u8,
    pub(super) max: u8,
    /// The last fragment of the active READ has arrived.
    last_seen: bool,
    /// Number of bytes placed.
    placed: u32,
    /// The end of the grace time for late fragments.
    until: Instant,
    /// Number of responses to READs that had ended.
    pub(super) late: u32,
}

impl Default for Reads {
    fn default() -> Reads {
        Reads { outstanding: 0, max: 0, last_seen: false, placed: 0, until: NEVER, late: 0 }
    }
}

impl Reads {
    /// Whether another request may be sent.
    pub(super) fn has_room(&self) -> bool {
        self.outstanding < self.max
    }
}

impl Sender {
    /// Handles a response.
    pub(super) fn on_response(
        &mut self,
        now: Instant,
        packet: &Inbound<'_>,
        link: &Link,
        settings: &XpSettings,
        host: &mut impl Host,
    ) -> Result<(), Failure> {
        let Some(xp) = &packet.ext.xp else { return Ok(()) };
        let head = self.queue.head_position();
        let distance = ahead(xp.wqe_seq, self.seq(head));
        let position = head.wrapping_add(distance as u32);
        // The READ was never requested, or is done.
        if distance < 0 || self.reads.outstanding == 0 || position.wrapping_sub(head) >= self.cursor.wrapping_sub(head)
        {
            host.counters().xp_late_packets += 1;
            self.reads.late = self.reads.late.wrapping_add(1);
            return Ok(());
        }
        let fragment = Fragment { offset: xp.offset, len: packet.payload_len, stride: xp.stride };
        let asked = self.queue.get(position).copied().filter(|slot| slot.awaits_data() && slot.len == xp.len);
        let cut = self.queue.best_effort(position).stride;
        let index = fragment.index(xp.len, link.mtu);
        // The requester knows how the READ is segmented.
        let index = index.filter(|&i| Fragment::of(i, xp.len, cut, link.mtu) == fragment);
        let (Some(slot), Some(index)) = (asked, index) else {
            host.counters().xp_rejected_packets += 1;
            return Ok(());
        };
        while self.queue.head_position() != position {
            self.end_read(Some(PartialReason::Preempted), host)?;
        }
        self.place_response(now, packet, (&slot, position), (&fragment, index), (link, settings), host)
    }

    fn place_response(
        &mut self,
        now: Instant,
        packet: &Inbound<'_>,
        (slot, position): (&Slot, u32),
        (fragment, index): (&Fragment, u32),
        (link, settings): (&Link, &XpSettings),
        host: &mut impl Host,
    ) -> Result<(), Failure> {
        let failed = |_| Failure::Work(position, Status::LocProtErr);
        let (qpn, pd) = (self.qpn, self.pd);
        let bitmap = self.queue.best_effort(position).bitmap.map(|memory| Bitmap { qpn, pd, memory });
        if let Some(bitmap) = &bitmap {
            match bitmap.look(index, &*host).map_err(failed)? {
                Bit::New => {}
                Bit::Known => return Ok(()),
                Bit::Outside => {
                    host.counters().resp_local_length_error += 1;
                    return Ok(());
                }
            }
        }
        let Source::Gather(sges) = self.queue.source(position, slot) else { return Ok(()) };
        packet::place(fragment, link, (pd, sges), packet.payload, &*host).map_err(failed)?;
        if let Some(bitmap) = &bitmap {
            bitmap.set(index, &*host).map_err(failed)?;
        }
        let last = packet.ext.xp.is_some_and(|xp| xp.is_last());
        let reads = &mut self.reads;
        if !(last && reads.last_seen) {
            reads.placed = reads.placed.saturating_add(fragment.len).min(slot.len);
        }
        reads.last_seen |= last;
        if reads.placed == slot.len && (slot.len > 0 || last) {
            return Ok(self.end_read(None, host)?);
        }
        if last {
            match settings.linger() {
                Some(linger) if linger.is_zero() => return Ok(self.end_read(Some(PartialReason::Last), host)?),
                Some(linger) => reads.until = reads.until.min(now + linger),
                None => {}
            }
        }
        Ok(())
    }

    /// The active READ has ended, completely or for this reason; completes it, and the work requests sent after it.
    pub(super) fn end_read(&mut self, why: Option<PartialReason>, host: &mut impl Host) -> Result<(), CqOverflow> {
        self.complete_sent(host)?;
        let Some(&slot) = self.queue.head().filter(|slot| slot.awaits_data()) else { return Ok(()) };
        let Reads { placed, last_seen, .. } = self.reads;
        let partial = why.filter(|_| placed < slot.len || slot.len == 0 && !last_seen);
        count(partial, slot.len - placed, host);
        let whole = completion(&slot, self.qpn, Status::Success);
        let done = Completion { byte_len: placed, message_len: slot.len, partial, ..whole };
        let Reads { outstanding, max, late, .. } = self.reads;
        self.reads = Reads { outstanding: outstanding.saturating_sub(1), max, late, ..Reads::default() };
        self.end_head(&slot, done, host)?;
        self.complete_sent(host)
    }

    /// When the active READ ends by itself.
    #[inline]
    pub(super) fn poll_read_timeout(&self, settings: &XpSettings) -> Instant {
        if self.reads.outstanding == 0 {
            return NEVER;
        }
        let Some(slot) = self.queue.head() else { return NEVER };
        let left = Instant::from_nanos(slot.answers);
        self.read_deadline(self.queue.head_position(), left, settings).min(self.reads.until)
    }

    /// Ends the READs whose time is over. A READ with its own deadline is ended by that deadline.
    pub(super) fn expire_reads(
        &mut self,
        now: Instant,
        settings: &XpSettings,
        host: &mut impl Host,
    ) -> Result<(), CqOverflow> {
        while self.poll_read_timeout(settings) <= now {
            let why = if self.reads.last_seen { PartialReason::Last } else { PartialReason::Expired };
            self.end_read(Some(why), host)?;
        }
        Ok(())
    }
}

/// A READ that is being answered.
#[derive(Debug, Clone, Copy)]
struct Job {
    seq: u32,
    addr: u64,
    rkey: u32,
    len: u32,
    stride: u16,
    /// The packet that is sent next, and how often the last one was sent.
    next: u32,
    copies: u8,
    until: Instant,
}

/// The READs that a responder answers, oldest first: a ring.
#[derive(Debug, Default)]
pub(super) struct Jobs {
    ring: Box<[Option<Job>]>,
    first: u8,
    len: u8,
}

impl Jobs {
    /// Creates room for `max` READs at a time.
    pub(super) fn new(max: u8) -> Jobs {
        Jobs { ring: vec![None; usize::from(max)].into(), first: 0, len: 0 }
    }

    pub(super) fn clear(&mut self) {
        (self.first, self.len) = (0, 0);
    }

    #[inline]
    pub(super) fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Number of payload bytes that were not sent yet.
    pub(super) fn bytes_left(&self, mtu: PathMtu) -> u64 {
        let jobs = (0..self.len).filter_map(|i| self.job(i));
        jobs.map(|job| u64::from(job.len).saturating_sub(u64::from(job.next) * u64::from(mtu.bytes()))).sum()
    }

    /// Handles a request: the READ is answered, if the peer is permitted to make it.
    pub(super) fn request(&mut self, now: Instant, packet: &Inbound<'_>, link: &Link, host: &mut impl Host) {
        let (Some(xp), Some(reth), Some(time)) = (&packet.ext.xp, &packet.ext.reth, packet.ext.xp_time) else { return };
        let stride = xp.stride;
        let possible = stride.is_power_of_two() && stride <= crate::BestEffort::MAX_STRIDE;
        if !possible
            || xp.len != reth.len
            || reth.len > MAX_MESSAGE
            || packet.payload_len != 0
            || xp.flags & XpEth::LAST != 0
        {
            host.counters().xp_rejected_packets += 1;
            return;
        }
        if !link.access.allows(Access::REMOTE_READ) {
            host.counters().resp_remote_invalid_request += 1;
            return;
        }
        let Link { qpn, pd, .. } = *link;
        let region = Region { qpn, pd, key: reth.rkey, addr: reth.va, access: Access::REMOTE_READ };
        if host.check(region, u64::from(reth.len)).is_err() {
            host.count_access_error();
            return;
        }
        if usize::from(self.len) == self.ring.len() {
            host.counters().xp_dropped_reads += 1;
            if !self.is_newer(xp.wqe_seq) {
                return;
            }
            // The requester has no more READs outstanding than there is room for. So the oldest one is over there, because its time ended, and
            // its request was only late.
            self.end_first();
        }
        host.counters().rx_read_requests += 1;
        let at = (usize::from(self.first) + usize::from(self.len)) % self.ring.len();
        let until = now + std::time::Duration::from_micros(time.into());
        let (seq, addr, rkey, len) = (xp.wqe_seq, reth.va, reth.rkey, reth.len);
        self.ring[at] = Some(Job { seq, addr, rkey, len, stride, next: 0, copies: 0, until });
        self.len += 1;
    }

    /// Writes the next packet of the oldest READ whose time is not over.
    pub(super) fn transmit(
        &mut self,
        now: Instant,
        tx: &mut TxFrame<'_>,
        (way, settings, ask): (&Way<'_>, &XpSettings, bool),
        sender: &mut Sender,
        host: &mut impl Host,
    ) -> bool {
        while self.len > 0 {
            let at = usize::from(self.first);
            let Some(job) = &mut self.ring[at] else { break };
            let packets = way.link.mtu.packets(job.len);
            if job.until <= now {
                self.end_first();
                continue;
            }
            let last = job.next + 1 == packets;
            let fragment = Fragment::of(job.next, job.len, job.stride, way.link.mtu);
            let xp = XpEth {
                flags: if last { XpEth::LAST } else { 0 },
                wqe_seq: job.seq,
                offset: fragment.offset,
                len: job.len,
                stride: fragment.stride,
                receive: 0,
            };
            let sges = [Sge { addr: job.addr, len: job.len, lkey: job.rkey }];
            let from = From { source: &Source::Gather(&sges), access: Access::REMOTE_READ };
            let psn = sender.take_psn();
            let fields = response_fields(psn, fragment.len, ask);
            let ext = ExtHeaders { xp: Some(xp), ..ExtHeaders::default() };
            job.copies += u8::from(last);
            let ends = last && job.copies >= settings.tail;
            job.next += u32::from(!last);
            let sent = packet::write(tx, (way.link, way.template()), &fields, &ext, &fragment, &from, &*host);
            // If the memory was deregistered after the request arrived, the requester is not notified: the READ ends at its deadline.
            if sent.is_err() {
                host.count_access_error();
            }
            if ends || sent.is_err() {
                self.end_first();
            }
            if sent.is_ok() {
                return true;
            }
        }
        false
    }

    /// The READ at a place of the ring, from the oldest one on.
    fn job(&self, i: u8) -> Option<Job> {
        self.ring.get((usize::from(self.first) + usize::from(i)) % self.ring.len().max(1)).copied().flatten()
    }

    /// Whether a READ was requested after all those that are being answered: its request is no duplicate, and was not overtaken.
    fn is_newer(&self, seq: u32) -> bool {
        self.len.checked_sub(1).and_then(|last| self.job(last)).is_some_and(|job| ahead(seq, job.seq) > 0)
    }

    fn end_first(&mut self) {
        self.first = ((usize::from(self.first) + 1) % self.ring.len()) as u8;
        self.len -= 1;
    }
}
