//! Answers with data: READ responses and the values of atomics. Also detects skipped answers.

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
    /// The number of the oldest packet whose answer is data that has not arrived, if it is before `end`.
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

    /// The PSN of the oldest packet whose answer is data that has not arrived.
    pub(in crate::rc) fn awaited_response(&self) -> Option<Psn> {
        let missing = self.first_missing(self.number(self.window.next))?;
        Some(self.window.una.add((missing - self.una) as u32))
    }

    /// Everything before `una` is acknowledged. But an acknowledgement does not replace data: a skipped READ response or atomic value is an
    /// implied NAK, and its request is sent again (IBA 9.7.5.2.2). Returns whether nothing was skipped.
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
        // Answers in flight after the skipped one imply the same skip again, and are ignored. But if the READ response that implied the
        // skip first arrives a second time, after the request was sent again, the skipped answer was lost again.
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

    /// Handles a READ response or the value of an atomic.
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
                // A response that restarts in the middle of a READ may be a FIRST or ONLY; the last response must be a LAST or ONLY.
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

    /// Scatters bytes over the memory of a READ or atomic.
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
