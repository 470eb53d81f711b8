//! Answers that carry data: READ responses and the values of atomics; and noticing that one was skipped.

use softnic_wire::opcode::Kind;
use softnic_wire::{Instant, Psn};

use super::{Failure, Requester};
use crate::congestion::Feedback;
use crate::memory::{Access, AccessError, Region};
use crate::message::Link;
use crate::planted::{Bug, planted};
use crate::send_queue::{Slot, Source};
use crate::timers::Timer;
use crate::{Host, Inbound, Memory, SendOp, Status};

impl Requester {
    /// The number of the oldest packet whose answer is data that has not come, if it is before `end`.
    #[inline]
    fn first_missing(&self, end: u64) -> Option<u64> {
        if self.rd_atomic == 0 || planted(Bug::ReadWithoutData) {
            return None;
        }
        let mut position = self.queue.head_position();
        while let Some(slot) = self.queue.get(position) {
            if slot.first >= end {
                return None;
            }
            if slot.awaits_data() {
                return Some(slot.first.max(self.una)).filter(|&n| n < end);
            }
            position = position.wrapping_add(1);
        }
        None
    }

    /// The PSN of the oldest packet whose answer is data that has not come.
    pub(in crate::rc) fn awaited_response(&self) -> Option<Psn> {
        let missing = self.first_missing(self.number(self.window.next))?;
        Some(self.window.una.add((missing - self.una) as u32))
    }

    /// Everything before `una` is acknowledged, but data cannot be acknowledged away: a READ response or an atomic's value
    /// that was skipped is an implied NAK, and its request is sent again (IBA 9.7.5.2.2). Says whether nothing was skipped.
    pub(super) fn acknowledge_requests(
        &mut self,
        now: Instant,
        una: Psn,
        is_read: bool,
        link: &Link,
        host: &mut impl Host,
    ) -> Result<bool, Failure> {
        let end = self.number(una);
        let Some(missing) = self.first_missing(end) else {
            self.acknowledge(now, una, link, host)?;
            return Ok(true);
        };
        let psn = self.window.una.add((missing - self.una) as u32);
        self.acknowledge(now, psn, link, host)?;
        // What was under way behind the skipped answer implies the same again, and is to be ignored. But if the READ response that implied
        // it first comes a second time, once the request has left again, what was skipped was lost again.
        let implied = match self.implied_nak {
            Some((n, first)) if n == missing => {
                is_read && end == first && self.go_back_n.next_resend(self.window) != Some(psn)
            }
            _ => true,
        };
        if implied {
            self.implied_nak = Some((missing, end));
            host.counters().implied_nak_seq_err += 1;
            self.count_retry(host)?;
            self.go_back_n.on_sequence_nak(psn);
            self.on_loss(now, Feedback::Loss);
            self.timers.stop(Timer::Ack);
        }
        Ok(false)
    }

    /// Takes a READ response or the value of an atomic.
    pub(in crate::rc) fn handle_data(
        &mut self,
        now: Instant,
        packet: &Inbound<'_>,
        link: &Link,
        host: &mut impl Host,
    ) -> Result<(), Failure> {
        let psn = packet.bth.psn;
        if !self.window.contains(psn) {
            host.count_stale_answer();
            return Ok(());
        }
        if !self.acknowledge_requests(now, psn, packet.bth.opcode.kind() == Kind::ReadResponse, link, host)? {
            return Ok(());
        }
        let n = self.number(psn);
        let Some(position) = self.queue.locate(n) else { return Ok(()) };
        let Some(&slot) = self.queue.get(position) else { return Ok(()) };
        let index = (n - slot.first) as u32;
        let placed = match (packet.bth.opcode.kind(), slot.op) {
            (Kind::ReadResponse, SendOp::Read { .. }) => {
                let offset = index * link.mtu.bytes();
                let expected = if slot.ends_with(n) { slot.len - offset } else { link.mtu.bytes() };
                // A response that begins again in the middle of a READ may be a FIRST or ONLY; an end must be an end.
                if packet.payload_len != expected || packet.bth.opcode.ends_message() != self.ends_read(&slot, n) {
                    return Err(Failure::Work(Status::BadRespErr));
                }
                self.copy_in(position, &slot, u64::from(offset), packet.payload, link, host)
            }
            (Kind::AtomicAcknowledge, SendOp::CompareSwap { .. } | SendOp::FetchAdd { .. }) => {
                let value = packet.ext.atomic_ack.unwrap_or(0).to_ne_bytes();
                self.copy_in(position, &slot, 0, &value, link, host)
            }
            _ => return Err(Failure::Work(Status::BadRespErr)),
        };
        if placed.is_err() {
            return Err(Failure::Work(Status::LocProtErr));
        }
        self.acknowledge(now, psn.next(), link, host)
    }

    /// Scatters bytes over the memory that a READ or atomic names.
    pub(crate) fn copy_in(
        &self,
        position: u32,
        slot: &Slot,
        offset: u64,
        bytes: &[u8],
        link: &Link,
        memory: &impl Memory,
    ) -> Result<(), AccessError> {
        let Source::Gather(sges) = self.queue.source(position, slot) else { return Err(AccessError::Key) };
        let (qpn, pd) = (link.qpn, link.pd);
        let region = |key, addr| Region { qpn, pd, key, addr, access: Access::LOCAL_WRITE };
        crate::wr::scatter(sges, offset, bytes, |sge, at, part| {
            memory.write(region(sge.lkey, sge.addr.wrapping_add(at)), part)
        })
    }
}
