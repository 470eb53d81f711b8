//! The sending half of a reliable connection: requests are sent, acknowledgements are received (IBA 9.7.5, 9.7.7).

mod answers;
mod data;
mod next;
mod packet;

use std::time::Duration;

pub(crate) use packet::data_request;
use softnic_wire::{Instant, Psn, Qpn, TxFrame};

use super::Update;
use super::flight_limit::FlightLimit;
use super::go_back_n::{GoBackN, Window};
use super::probe::Probe;
use crate::completion::CqId;
use crate::congestion::{CongestionPoint, Feedback};
use crate::invariants::{ON, invariant};
use crate::message::Link;
use crate::outstanding::OutstandingSends;
use crate::posting::{SendRules, Supported};
use crate::qp::Config;
use crate::send_queue::{SendQueue, Slot, completion};
use crate::timers::{Timer, TimerTable, ack_timeout};
use crate::{CqOverflow, Host, Status, Vitals};

/// Maximum number of packets without an acknowledgement request: a long message must show progress before its end.
const ACK_EVERY: u32 = 64;
/// Short messages share one acknowledgement for up to this many packets, while more messages follow.
const ACK_BATCH: u32 = 16;
/// Maximum number of outstanding PSNs: half the number space less one, so that old and new PSNs can be told apart (IBA 9.7.2). A READ that
/// is the only outstanding request may have one more: 2^31 bytes at a path MTU of 256.
pub(super) const MAX_WINDOW: u32 = Psn::SPACE / 2 - 1;
/// Not a packet number.
const NO_PACKET: u64 = u64::MAX;
/// The retry count that means "unlimited" for RNR (IBA 9.7.5.2.8); the other retry count has no such value.
pub(crate) const RNR_RETRY_FOREVER: u8 = 7;

/// Why the requester, and with it the queue pair, must stop.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Failure {
    /// The oldest work request completes with this status; the others are flushed.
    Work(Status),
    /// A completion was lost.
    CqOverflow,
}

impl From<CqOverflow> for Failure {
    fn from(_: CqOverflow) -> Failure {
        Failure::CqOverflow
    }
}

/// Timeouts, retry counts, and the number of READs and atomics.
#[derive(Debug, Clone, Copy)]
pub(super) struct Limits {
    pub(super) timeout: Option<Duration>,
    pub(super) retry_cnt: u8,
    pub(super) rnr_retry: u8,
    pub(super) max_rd_atomic: u8,
}

pub(crate) struct Requester {
    pub(crate) queue: SendQueue,
    pub(crate) window: Window,
    go_back_n: GoBackN,
    /// The packet number of the start of the window, counted as in the send queue.
    pub(crate) una: u64,
    cq: CqId,
    sig_all: bool,
    /// The ACK timeout; `None` for no timer.
    pub(crate) timeout: Option<Duration>,
    pub(crate) retry_cnt: u8,
    pub(crate) rnr_retry: u8,
    /// Number of retries since the last progress.
    pub(crate) retries: u8,
    pub(crate) rnr_retries: u8,
    /// The next messages, in this number, that are not complete request an acknowledgement in their last packet.
    pub(crate) hastened: u8,
    /// All timers of the queue pair.
    pub(crate) timers: TimerTable,
    /// Number of packets sent since the last acknowledgement request.
    since_ack_req: u32,
    /// The number after the last packet that requested an acknowledgement: up to here an answer is owed.
    answer_due: u64,
    /// The credit limit: the number of messages that use a receive and that the peer has room for, counted as [`Slot::sends`]; `None`
    /// before the peer reported it.
    pub(crate) credit_limit: Option<u32>,
    /// Number of such messages that are complete.
    sends_done: u32,
    /// The first packet of the SEND that was started without credit; [`NO_PACKET`] if there is none.
    limited: u64,
    /// The work request at this position cannot be executed. It fails with this status after the earlier ones are complete.
    broken: Option<(u32, Status)>,
    /// No new message is started (SQD).
    pub(crate) draining: bool,
    /// Maximum number of outstanding READs and atomics, and the current number.
    max_rd_atomic: u32,
    pub(crate) rd_atomic: u32,
    /// The skipped answer whose request was already sent again, and the answer that implied the skip, by packet numbers. Further answers
    /// that imply the same skip are ignored.
    implied_nak: Option<(u64, u64)>,
    /// The packet number in the last sequence NAK, until a second NAK with this number arrives; otherwise [`NO_PACKET`].
    sequence_nak: u64,
    pub(crate) congestion: CongestionPoint,
    /// The limit on outstanding packets.
    pub(crate) flight: FlightLimit,
    /// If a shim repairs losses: the probe for losses that the shim could not repair.
    pub(super) probe: Option<Box<Probe>>,
}

impl Requester {
    pub(super) fn new(c: &Config, supported: Supported) -> Requester {
        Requester {
            queue: SendQueue::new(c.caps.max_send_wr, SendRules::new(&c.caps, supported)),
            window: Window { una: Psn::new(0), next: Psn::new(0) },
            go_back_n: GoBackN::default(),
            una: 0,
            cq: c.send_cq,
            sig_all: c.sig_all,
            timeout: None,
            retry_cnt: 0,
            rnr_retry: 0,
            retries: 0,
            rnr_retries: 0,
            timers: TimerTable::default(),
            since_ack_req: 0,
            hastened: 0,
            answer_due: 0,
            credit_limit: None,
            sends_done: 0,
            limited: NO_PACKET,
            broken: None,
            draining: false,
            max_rd_atomic: 0,
            rd_atomic: 0,
            implied_nak: None,
            sequence_nak: NO_PACKET,
            congestion: CongestionPoint::default(),
            flight: FlightLimit::NONE,
            probe: None,
        }
    }

    /// Makes the requester ready to send, starting with `psn`.
    pub(super) fn start(&mut self, psn: Psn, a: &Limits) {
        let Limits { timeout, retry_cnt, rnr_retry, max_rd_atomic } = *a;
        self.queue.clear();
        (self.max_rd_atomic, self.rd_atomic) = (u32::from(max_rd_atomic), 0);
        (self.implied_nak, self.sequence_nak, self.limited) = (None, NO_PACKET, NO_PACKET);
        (self.window, self.go_back_n) = (Window { una: psn, next: psn }, GoBackN::default());
        self.una = 0;
        self.hastened = 0;
        (self.timeout, self.retry_cnt, self.rnr_retry) = (timeout, retry_cnt, rnr_retry);
        (self.retries, self.rnr_retries, self.since_ack_req, self.answer_due) = (0, 0, 0, 0);
        self.stop_timers();
        self.broken = None;
        (self.credit_limit, self.sends_done, self.draining) = (None, 0, false);
        self.congestion.start();
    }

    /// Drops all work and its timers.
    pub(super) fn reset(&mut self) {
        self.congestion.reset();
        self.timers = TimerTable::default();
        self.start(Psn::new(0), &Limits { timeout: None, retry_cnt: 0, rnr_retry: 0, max_rd_atomic: 0 });
    }

    /// Changes those attributes that may change while connected.
    pub(super) fn update(&mut self, u: &Update) {
        self.timeout = u.timeout.map_or(self.timeout, ack_timeout);
        self.retry_cnt = u.retry_cnt.unwrap_or(self.retry_cnt);
        self.rnr_retry = u.rnr_retry.unwrap_or(self.rnr_retry);
        self.max_rd_atomic = u.max_rd_atomic.map_or(self.max_rd_atomic, u32::from);
    }

    /// Whether nothing is outstanding and no message is partly sent.
    pub(super) fn is_drained(&mut self) -> bool {
        let n = self.number(self.window.next);
        let between = |slot: &Slot| slot.first == n;
        self.window.is_empty() && self.queue.locate(n).is_none_or(|p| self.queue.get(p).is_some_and(between))
    }

    /// Whether nothing was ever sent or executed.
    pub(crate) fn is_untouched(&self) -> bool {
        self.una == 0 && self.window.is_empty() && self.queue.is_untouched()
    }

    pub(super) fn sig_all(&self) -> bool {
        self.sig_all
    }

    /// The work requests that have not completed.
    pub(super) fn outstanding(&self) -> OutstandingSends<'_> {
        OutstandingSends::new(&self.queue, self.una, self.number(self.window.next))
    }

    /// The state of the requester, for observers.
    pub(super) fn vitals(&self) -> Vitals {
        let (congestion_window, rate) = self.congestion.limits();
        Vitals {
            requested: self.una,
            in_flight: self.window.len(),
            window: self.flight.limit(),
            congestion_window,
            rate,
            retries: self.retries,
            rnr_retries: self.rnr_retries,
            ..self.queue.vitals()
        }
    }

    /// The packet number of a PSN inside the window, or directly after it.
    #[inline]
    pub(crate) fn number(&self, psn: Psn) -> u64 {
        self.una + u64::from(psn.forward_from(self.window.una))
    }

    /// Whether none of the outstanding packets requested an answer. Then one packet may exceed credit and window, and requests an answer;
    /// otherwise neither limit would ever grow again (IBA 9.7.7.2.5 allows it for credits).
    #[inline]
    fn is_unanswerable(&self) -> bool {
        self.answer_due <= self.una
    }

    /// Writes the next request packet, if one is due.
    #[inline]
    pub(super) fn poll_transmit(
        &mut self,
        now: Instant,
        tx: &mut TxFrame<'_>,
        link: &Link,
        host: &mut impl Host,
    ) -> Result<bool, Failure> {
        if let Some(position) = self.next_plain() {
            let psn = self.window.next;
            let n = self.number(psn);
            let slot = self.queue.at(position);
            let ends = slot.ends_with(n);
            if let Some(ack_req) = self.wants_ack_plain(position, ends)
                && self.emit_message(tx, link, (n, psn), position, slot, ack_req, host).is_ok()
            {
                self.window.next = psn.next();
                host.counters().sent_requests += 1;
                self.note_sent(now, n + 1, ack_req);
                if ack_req {
                    self.note_asked(now, n, false);
                    self.hastened = self.hastened.saturating_sub(u8::from(ends));
                }
                return Ok(true);
            }
        }
        self.poll_transmit_any(now, tx, link, host)
    }

    /// Writes the next packet, in the general case.
    #[inline(never)]
    fn poll_transmit_any(
        &mut self,
        now: Instant,
        tx: &mut TxFrame<'_>,
        link: &Link,
        host: &mut impl Host,
    ) -> Result<bool, Failure> {
        let Some((psn, position, resent)) = self.choose(now, link, host)? else { return Ok(false) };
        let n = self.number(psn);
        let slot = self.queue.at(position);
        let (awaits_data, ends) = (slot.awaits_data(), slot.ends_with(n));
        // A READ request covers the PSNs of all responses that it asks for.
        let psns = if awaits_data { self.read_packets(slot, n) } else { 1 };
        if resent {
            self.go_back_n.on_resent(self.window, psns);
        } else {
            self.window.next = psn.add(psns);
            self.rd_atomic += u32::from(awaits_data);
            self.note_begun(n, position);
        }
        let ack_req = awaits_data || self.wants_ack(position, ends, link, resent);
        if self.emit(tx, link, (n, psn), position, ack_req, host).is_err() {
            if !resent {
                self.window.next = psn;
                self.rd_atomic -= u32::from(awaits_data);
            }
            self.break_at(position, Status::LocProtErr)?;
            self.ask_before_broken();
            // Another packet may be due instead, and the caller would not poll again.
            return self.poll_transmit_any(now, tx, link, host);
        }
        let counters = host.counters();
        if resent {
            counters.retransmitted_packets += 1;
        } else {
            counters.sent_requests += 1;
        }
        self.note_sent(now, n + u64::from(psns), ack_req);
        self.congestion.on_sent(now, tx);
        self.congestion.time(now, n, resent, ack_req);
        if resent {
            self.flight.on_resent();
        }
        if ack_req {
            self.note_asked(now, n, resent);
            self.hastened = self.hastened.saturating_sub(u8::from(ends));
        }
        Ok(true)
    }

    /// A packet was sent; `behind` is the packet number after its last PSN.
    #[inline]
    fn note_sent(&mut self, now: Instant, behind: u64, ack_req: bool) {
        if !ack_req {
            self.since_ack_req += 1;
            return;
        }
        self.since_ack_req = 0;
        // Only a packet that requests an answer starts the timer (IBA 9.7.6.1.3): packets before it may remain unanswered.
        self.answer_due = self.answer_due.max(behind);
        if !self.timers.is_set(Timer::Ack) {
            self.arm(now);
        }
    }

    /// Packet `n` was sent and requests an answer.
    #[inline]
    fn note_asked(&mut self, now: Instant, n: u64, resent: bool) {
        if !resent {
            self.flight.on_asked(now, n);
        }
        if let Some(probe) = &mut self.probe {
            let wait = probe.on_asked(now, n, resent, self.timeout);
            self.timers.set_or_stop(Timer::Probe, wait.map(|wait| now + wait));
        }
    }

    /// The work request at `position` cannot be executed. It fails once it is the oldest: earlier work requests may still succeed, and
    /// completions keep their order.
    pub(crate) fn break_at(&mut self, position: u32, status: Status) -> Result<(), Failure> {
        self.broken = Some((position, status));
        self.check_broken()
    }

    /// A work request cannot be executed. The packets before it relied on it to request an answer. They are sent again, and the last of
    /// them requests the answer.
    pub(super) fn ask_before_broken(&mut self) {
        if !self.window.is_empty() && (self.is_unanswerable() || !self.timers.is_set(Timer::Ack)) {
            self.go_back_n.on_timeout(self.window);
        }
    }

    pub(crate) fn check_broken(&self) -> Result<(), Failure> {
        match self.broken {
            Some((p, status)) if p == self.queue.head_position() => Err(Failure::Work(status)),
            _ => Ok(()),
        }
    }

    #[inline]
    pub(crate) fn is_broken(&self, position: u32) -> bool {
        self.broken.is_some_and(|(p, _)| p == position)
    }

    /// Executes the local operations whose turn it is: everything before them has been sent, and with a fence all data has arrived.
    pub(crate) fn run_local(&mut self, link: &Link, host: &mut impl Host) -> Result<(), Failure> {
        while let Some((position, slot)) = self.queue.next_local() {
            let due = slot.first == self.number(self.window.next) && !(slot.fence && self.rd_atomic > 0);
            if !due || self.draining || self.broken.is_some() {
                return Ok(());
            }
            match slot.execute(link.qpn, link.pd, host) {
                Ok(()) => self.queue.set_executed(position),
                Err(status) => self.break_at(position, status)?,
            }
            self.complete_done(link, host)?;
        }
        Ok(())
    }

    /// Packets were lost: informs the congestion controller.
    fn on_loss(&mut self, now: Instant, how: Feedback) {
        self.congestion.feed_back(now, how);
        self.flight.on_loss(self.una, self.number(self.window.next));
    }

    /// As [`Requester::run_local`], and ensures that the packets before a failed operation are answered.
    pub(super) fn run_due_locals(&mut self, link: &Link, host: &mut impl Host) -> Result<(), Failure> {
        let broken = self.broken.is_some();
        self.run_local(link, host)?;
        if self.broken.is_some() != broken {
            self.ask_before_broken();
        }
        Ok(())
    }

    /// Whether the peer requested a pause (RNR) that has not ended.
    #[inline]
    pub(crate) fn is_waiting(&self, now: Instant) -> bool {
        self.timers.get(Timer::Rnr).is_some_and(|t| now < t)
    }

    /// Starts the ACK timer. During an RNR pause the peer does not answer, so the timer counts from the end of the pause.
    fn arm(&mut self, now: Instant) {
        let from = self.timers.get(Timer::Rnr).map_or(now, |t| t.max(now));
        self.timers.set_or_stop(Timer::Ack, self.timeout.map(|t| from + t));
    }

    /// Whether an answer with data must wait for its turn.
    #[inline]
    pub(crate) fn must_pace_answer(&mut self, now: Instant) -> bool {
        self.congestion.must_pace_answer(now, &mut self.timers)
    }

    /// Stops all timers of requests.
    pub(super) fn stop_timers(&mut self) {
        for timer in [Timer::Ack, Timer::Rnr, Timer::Pacing, Timer::Probe] {
            self.timers.stop(timer);
        }
    }

    pub(super) fn handle_timeout(&mut self, now: Instant, host: &mut impl Host) -> Result<(), Failure> {
        self.timers.take_expired(Timer::Rnr, now);
        let probes = self.timers.take_expired(Timer::Probe, now);
        if !self.timers.take_expired(Timer::Ack, now) {
            // During an RNR pause the peer does not answer, and packets to be sent again are already scheduled.
            let idle = !self.is_waiting(now) && self.go_back_n.next_resend(self.window).is_none();
            if let Some(probe) = self.probe.as_mut().filter(|_| probes && idle && !self.window.is_empty()) {
                probe.on_expired();
                self.go_back_n.on_timeout(self.window);
            }
            return Ok(());
        }
        host.counters().local_ack_timeout_err += 1;
        self.count_retry(host)?;
        self.go_back_n.on_timeout(self.window);
        self.on_loss(now, Feedback::Timeout);
        // The timer starts again when the retransmitted packet leaves: other queue pairs may have their turn first.
        Ok(())
    }

    /// Checks the invariants between two calls.
    pub(super) fn check_invariants(&self) {
        if !ON {
            return;
        }
        self.queue.check_invariants();
        let next = self.number(self.window.next);
        invariant!(self.window.len() <= MAX_WINDOW + 1, "a window of {} PSNs", self.window.len());
        invariant!(next <= self.queue.end(), "packet {next} was sent of {} that there are", self.queue.end());
        invariant!(self.answer_due <= next, "an answer is due to what was not sent");
        invariant!(
            self.go_back_n.next_resend(self.window).is_none_or(|p| self.window.contains(p)),
            "resent from outside"
        );
        // If an answer is owed, either the timer runs, or it will start when a packet that is still to be sent leaves.
        let owed = self.answer_due > self.una && self.timeout.is_some();
        let waits = self.timers.is_set(Timer::Ack)
            || self.go_back_n.next_resend(self.window).is_some()
            || next < self.queue.end();
        invariant!(!owed || waits, "an answer is owed, no clock runs, and nothing more will be sent");
        // These checks walk over the queue: always if it is short, otherwise now and then.
        if !self.una.is_multiple_of(64) && self.queue.end() - self.una > 64 {
            return;
        }
        let pieces = |s: &Slot| {
            let (una, next) = (self.una.max(s.first), next.min(s.end()));
            if una < next { 1 + self.pieces_done(s, una, next - 1) } else { 0 }
        };
        let outstanding = self.queue.iter().filter(|s| s.awaits_data()).map(pieces).sum::<u32>();
        invariant!(self.rd_atomic == outstanding, "{} READs and atomics, counted {}", outstanding, self.rd_atomic);
        let done = self.queue.iter().filter(|s| s.uses_receive()).map(|s| s.sends.wrapping_sub(self.sends_done)).min();
        invariant!(done.is_none_or(|first| first == 1), "messages that use a receive are counted one by one");
    }

    /// Completes all work: the oldest work request with `status`, the others as flushed. Completions that find no room are lost; nothing
    /// can be done about that here.
    pub(super) fn flush(&mut self, status: Status, qpn: Qpn, host: &mut impl Host) {
        let mut status = status;
        self.stop_timers();
        while let Some(slot) = self.queue.pop_any() {
            host.counters().req_cqe_error += u64::from(status != Status::WrFlushErr);
            let _ = host.complete(self.cq, completion(&slot, qpn, status));
            self.queue.note_end();
            status = Status::WrFlushErr;
        }
        self.una = self.number(self.window.next);
        self.window.una = self.window.next;
    }
}
