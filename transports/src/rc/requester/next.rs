//! Selects the next packet: a retransmission, a new packet, or none for now. Also determines whether the packet requests an
//! acknowledgement.

use softnic_wire::{Instant, PathMtu, Psn};

use super::{ACK_BATCH, ACK_EVERY, Failure, MAX_WINDOW, Requester};
use crate::Host;
use crate::message::Link;
use crate::planted::{Bug, planted};
use crate::send_queue::Slot;
use crate::timers::Timer;

impl Requester {
    /// Whether the peer's receive credits permit the message at `slot` to start.
    #[inline]
    fn has_credit(&self, slot: &Slot) -> bool {
        match self.credit_limit {
            Some(limit) if slot.uses_receive() => limit.wrapping_sub(slot.sends) as i32 >= 0,
            _ => true,
        }
    }

    /// Whether a started message may continue. A SEND that started without credit waits for credit, or for the answer to its first packet,
    /// which shows that there is a receive for it (IBA 9.7.7.2.5).
    #[inline]
    pub(crate) fn may_continue(&self, slot: &Slot) -> bool {
        self.limited != slot.first || self.una > slot.first || self.has_credit(slot)
    }

    /// Packet `n`, of the work request at `position`, is sent for the first time: possibly the first one of a SEND without credit.
    #[inline]
    pub(crate) fn note_begun(&mut self, n: u64, position: u32) {
        let slot = self.queue.at(position);
        if n == slot.first && !slot.is_write() && !self.has_credit(slot) {
            self.limited = n;
        }
    }

    /// The next packet to send for the first time: its PSN and work request.
    #[inline]
    pub(crate) fn next_new(&mut self, beyond_limits: bool) -> Option<(Psn, u32)> {
        let n = self.number(self.window.next);
        if n == self.queue.end() {
            return None;
        }
        let limit = if beyond_limits { MAX_WINDOW } else { self.flight.packets() };
        if self.window.len() >= limit {
            self.flight.on_reached();
            return None;
        }
        let position = self.queue.locate(n)?;
        let behind_local = self.queue.next_local().is_some_and(|(_, local)| local.first <= n);
        let slot = self.queue.get(position)?;
        let may_begin = || {
            let room = if self.window.is_empty() { Psn::SPACE / 2 } else { MAX_WINDOW - self.window.len() };
            (beyond_limits || self.has_credit(slot))
                && (!self.draining || planted(Bug::DrainedBegins))
                && !behind_local
                && !(slot.fence && self.rd_atomic > 0 && !planted(Bug::FenceIgnored))
                && !(slot.awaits_data() && (self.rd_atomic >= self.max_rd_atomic || slot.packets > room))
        };
        let may_go = match n == slot.first {
            true => may_begin(),
            // The next piece of a READ: the peer limits the number of such requests.
            false if slot.awaits_data() => self.rd_atomic < self.max_rd_atomic,
            false => beyond_limits || self.may_continue(slot),
        };
        let may_go = may_go && !self.is_broken(position);
        may_go.then_some((self.window.next, position))
    }

    /// The next packet to retransmit: its PSN and work request, unless its data cannot be read any more.
    #[inline]
    fn next_again(&mut self) -> Option<(Psn, u32)> {
        let psn = self.go_back_n.next_resend(self.window)?;
        let position = self.queue.locate(self.number(psn))?;
        (!self.is_broken(position)).then_some((psn, position))
    }

    /// Whether the congestion window has room for a packet.
    #[inline]
    fn fits_window(&mut self, mtu: PathMtu) -> bool {
        if !self.congestion.is_controlled() {
            return true;
        }
        let next = self.number(self.window.next);
        let sent = self.queue.bytes_before(next, mtu);
        // Including the next packet.
        let with_next = self.queue.bytes_before(next + 1, mtu).max(sent);
        self.congestion.fits_window(self.congestion.unacknowledged(with_next))
    }

    /// Whether congestion control permits another packet before this one, or an earlier one, is answered.
    #[inline]
    fn may_go_on_unasked(&mut self, mtu: PathMtu) -> bool {
        let unasked = u64::from(self.since_ack_req + 1) * u64::from(mtu.bytes());
        !self.congestion.is_controlled() || unasked < self.congestion.ask_every() && self.fits_window(mtu)
    }

    /// The work request of the next packet in the simple case, which is that of most packets: a SEND or WRITE that nothing delays. `None`
    /// means that the general case applies.
    #[inline]
    pub(super) fn next_plain(&mut self) -> Option<u32> {
        let hindered = self.timers.is_set(Timer::Rnr)
            || self.congestion.is_controlled()
            || self.broken.is_some()
            || self.draining
            || self.queue.has_locals()
            || self.window.len() >= self.flight.packets()
            || self.go_back_n.next_resend(self.window).is_some();
        if hindered {
            return None;
        }
        let n = self.number(self.window.next);
        let position = self.queue.locate_near(n)?;
        let slot = self.queue.at(position);
        let may_go = match n == slot.first {
            true => !slot.fence && self.has_credit(slot),
            false => self.may_continue(slot),
        };
        (may_go && !slot.awaits_data()).then_some(position)
    }

    /// The next packet, a retransmission or a new one: its PSN, its work request, and whether it was sent before. `None` if no packet may
    /// be sent now.
    #[inline(never)]
    pub(super) fn choose(
        &mut self,
        now: Instant,
        link: &Link,
        host: &mut impl Host,
    ) -> Result<Option<(Psn, u32, bool)>, Failure> {
        if self.is_waiting(now) {
            return Ok(None);
        }
        self.timers.stop(Timer::Rnr);
        let until = self.congestion.pacing(now).filter(|_| self.has_something());
        self.timers.set_or_stop(Timer::Pacing, self.congestion.wake_at(until));
        if until.is_some() {
            return Ok(None);
        }
        self.run_due_locals(link, host)?;
        if self.awaits_credit(now, self.has_nothing_under_way()) {
            return Ok(None);
        }
        if let Some((psn, position)) = self.next_again() {
            return Ok(Some((psn, position, true)));
        }
        // A packet that must be sent again cannot be read any more, and no other packet may be sent before it.
        let stuck = self.go_back_n.next_resend(self.window).is_some();
        if stuck || !self.is_unanswerable() && !self.fits_window(link.mtu) {
            return Ok(None);
        }
        if let Some((psn, position)) = self.next_new(self.is_unanswerable()) {
            return Ok(Some((psn, position, false)));
        }
        // The packets sent relied on a successor to request an answer, and that successor may not start any more (SQD). They are sent
        // again, and the last of them requests the answer.
        if !self.window.is_empty() && self.is_unanswerable() {
            self.go_back_n.on_timeout(self.window);
            return Ok(self.next_again().map(|(psn, position)| (psn, position, true)));
        }
        Ok(None)
    }

    /// The next packet to retransmit, if there is one.
    pub(in crate::rc) fn next_resend(&self) -> Option<Psn> {
        self.go_back_n.next_resend(self.window)
    }

    /// Whether no answer is in flight: all sent packets are acknowledged, or all will be sent again, or none requested an answer.
    pub(super) fn has_nothing_under_way(&self) -> bool {
        self.is_unanswerable() || self.next_resend() == Some(self.window.una)
    }

    /// Whether there is any packet to send, now or later.
    #[inline]
    pub(in crate::rc) fn has_something(&self) -> bool {
        self.go_back_n.next_resend(self.window).is_some() || self.number(self.window.next) != self.queue.end()
    }

    /// AckReq pacing: the last packet that can be sent always requests an acknowledgement; before that, one of several packets does.
    #[inline]
    pub(super) fn wants_ack(&mut self, position: u32, ends: bool, link: &Link, resent: bool) -> bool {
        let known = match resent {
            true => (ends || self.since_ack_req + 1 >= ACK_EVERY).then_some(true),
            false => self.wants_ack_plain(position, ends),
        };
        if let Some(known) = known {
            return known;
        }
        // No new packet may be sent while retransmissions are pending, even if their data cannot be read any more.
        let more = self.credit_goes_on(position, ends, link);
        let more = more
            && match self.go_back_n.next_resend(self.window) {
                Some(_) => self.next_again().is_some(),
                None => self.may_go_on_unasked(link.mtu) && self.next_new(false).is_some(),
            };
        !more
    }

    /// As [`Requester::wants_ack`], for a packet that is sent for the first time; `None` if the answer is not simple.
    #[inline]
    pub(super) fn wants_ack_plain(&self, position: u32, ends: bool) -> Option<bool> {
        if self.since_ack_req + 1 >= ACK_EVERY || ends && (self.since_ack_req + 1 >= ACK_BATCH || self.hastened > 0) {
            return Some(true);
        }
        self.surely_goes_on(position, ends).then_some(false)
    }

    /// Whether a packet certainly follows the current one of `position`, which is sent for the first time. For most packets this is
    /// sufficient, at a fraction of the cost of the exact answer.
    #[inline(always)]
    fn surely_goes_on(&self, position: u32, ends: bool) -> bool {
        let unhindered =
            !self.congestion.is_controlled() && self.broken.is_none() && self.window.len() + 1 < self.flight.packets();
        unhindered
            && (!ends && self.may_continue(self.queue.at(position))
                || ends
                    && !self.draining
                    && self.queue.get(position.wrapping_add(1)).is_some_and(|next| {
                        !next.fence && !next.awaits_data() && !next.is_local() && self.has_credit(next)
                    }))
    }
}
