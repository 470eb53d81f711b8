//! The sending half: sends requests, and missing packets again; receives acknowledgements and answers with data.
//!
//! The send queue, credits, retries and completions are those of RC's requester, the `base` of every call. Its window extends from the
//! oldest packet whose work request is not done to the next new one.

use softnic_wire::aeth::{Credits, NakCode, RnrTimer, Syndrome};
use softnic_wire::opcode::{Kind, Service};
use softnic_wire::{Instant, PacketFields, Psn, TxFrame};

use super::acknowledgement::{self, AckContents};
use super::arrivals::{Arrivals, PacketOrder};
use super::flight::{Flight, Progress, Selective};
use super::numbers::Numbers;
use super::timer::{Expired, FlightTimer, Watched};
use crate::congestion::Feedback;
use crate::memory::AccessError;
use crate::message::{self, Link, Which};
use crate::qp::PayloadMode;
use crate::rc::requester::{Failure, RNR_RETRY_FOREVER, Requester as Base, data_request};
use crate::round_trip::RoundTrip;
use crate::send_queue::Slot;
use crate::timers::{Timer, TimerTable};
use crate::{Host, Inbound, SendOp, Status, Vitals};

pub(super) struct Requester {
    pub(super) flight: Flight,
    numbers: Numbers,
    /// READ responses and values of atomics; their PSNs start with that of the first request.
    answers: Arrivals,
    timer: FlightTimer,
    /// Number of packets sent since the last acknowledgement request, and the number after which the next packet requests one.
    since_ack_req: u32,
    ack_every: u32,
    /// The packet whose answer gives the round-trip time, and when it was sent.
    timed: Option<(u64, Instant)>,
    /// The peer refused this request; it fails after the earlier ones are done.
    refused: Option<(u64, Status)>,
    /// The loss of packets before this one was reported to congestion control.
    told_lost: u64,
}

impl Requester {
    pub(super) fn new(first: Psn, span: u32, limit: u32, window: u32, ack_every: u32) -> Requester {
        Requester {
            flight: Flight::new(span, limit),
            numbers: Numbers::from(first),
            answers: Arrivals::new(window),
            timer: FlightTimer::new(Timer::Ack),
            since_ack_req: 0,
            ack_every,
            timed: None,
            refused: None,
            told_lost: 0,
        }
    }

    /// The state for observers; `base` is the state of the standard's half.
    pub(super) fn vitals(&self, base: Vitals) -> Vitals {
        let (requested, in_flight) = (self.flight.una(), self.flight.in_flight());
        Vitals { requested, in_flight, window: Some(self.flight.limit()), ..base }
    }

    /// Stops all timers, and drops the answers that are owed.
    pub(super) fn stop(&mut self, timers: &mut TimerTable) {
        self.timer.stop(timers);
        self.answers.fall_silent();
    }

    // ---- out ----

    /// Writes the acknowledgement of answers, if one is due.
    pub(super) fn transmit_acknowledgement(&mut self, tx: &mut TxFrame<'_>, link: &Link) -> bool {
        if !self.answers.is_due() {
            return false;
        }
        let (expected, syndrome) = (self.answers.expected(), Syndrome::Ack(Credits::UNLIMITED));
        let contents = AckContents { responses: true, expected, syndrome, msn: 0 };
        acknowledgement::emit(tx, link, &mut self.answers, self.numbers, &contents)
    }

    /// Writes the next request packet, if one is due.
    #[allow(clippy::too_many_arguments)] // the caller has all of these at hand
    pub(super) fn poll_transmit(
        &mut self,
        now: Instant,
        tx: &mut TxFrame<'_>,
        link: &Link,
        base: &mut Base,
        rtt: &RoundTrip,
        host: &mut impl Host,
    ) -> Result<bool, Failure> {
        if base.is_waiting(now) {
            return Ok(false);
        }
        base.timers.stop(Timer::Rnr);
        base.run_local(link, host)?;
        let has_something = self.flight.has_lost() || self.flight.next() != base.queue.end();
        let until = base.congestion.pacing(now).filter(|_| has_something);
        base.timers.set_or_stop(Timer::Pacing, base.congestion.wake_at(until));
        if until.is_some() || self.awaits_credit(now, base) {
            return Ok(false);
        }
        if base.draining && self.since_ack_req > 0 && !self.flight.is_empty() {
            // The packets sent relied on a successor to request an answer, and that successor may not start any more (SQD).
            self.flight.mark_lost(self.flight.next() - 1);
        }
        let Some((n, position)) = self.choose(base, link) else { return Ok(false) };
        let again = n < self.flight.next();
        if !again {
            base.window.next = self.numbers.psn(n + 1);
            base.note_begun(n, position);
        }
        let slot = base.queue.at(position);
        let (awaits_data, pauses) = (slot.awaits_data(), slot.ends_with(n) || !base.may_continue(slot));
        base.rd_atomic += u32::from(!again && awaits_data);
        // A request for data is answered by the data.
        let ack_req = self.must_ask(again, base, link)
            || !base.credit_goes_on(position, slot.ends_with(n), link)
            || !awaits_data && pauses && (base.hastened > 0 || base.next_new(false).is_none());
        if self.emit(tx, link, n, position, ack_req, base, host).is_err() {
            if !again {
                base.window.next = self.numbers.psn(n);
                base.rd_atomic -= u32::from(awaits_data);
            }
            base.break_at(position, Status::LocProtErr)?;
            return Ok(false);
        }
        self.since_ack_req = if ack_req { 0 } else { self.since_ack_req + 1 };
        base.hastened = base.hastened.saturating_sub(u8::from(ack_req && pauses));
        if again {
            self.flight.on_resent(now, n, rtt.shortest());
            host.counters().retransmitted_packets += 1;
            // An answer could belong to either transmission, so the measurement is dropped.
            self.timed = self.timed.filter(|&(timed, _)| timed != n);
        } else {
            self.flight.on_sent();
            host.counters().sent_requests += 1;
            if ack_req && self.timed.is_none() {
                self.timed = Some((n, now));
            }
        }
        base.congestion.on_sent(now, tx);
        self.timer.on_sent(now);
        self.start_timer(now, base, rtt);
        Ok(true)
    }

    /// The next packet: a lost one, or else a new one; with the position of its work request.
    fn choose(&mut self, base: &mut Base, link: &Link) -> Option<(u64, u32)> {
        if !self.flight.has_room() && self.flight.in_flight() > 0 {
            return None;
        }
        let with_next = (u64::from(self.flight.in_flight()) + 1) * u64::from(link.mtu.bytes());
        if self.flight.in_flight() > 0 && !base.congestion.fits_window(with_next) {
            return None;
        }
        if let Some(n) = self.flight.next_lost() {
            let position = base.queue.locate(n)?;
            // A packet that cannot be read any more is not sent again, and no other packet is sent before it.
            return (!base.is_broken(position)).then_some((n, position));
        }
        if !self.flight.has_room_for_new() {
            return None;
        }
        // Credits arrive in acknowledgements. With nothing in flight none would arrive, so one message may exceed the credits.
        let (_, position) = base.next_new(self.flight.is_empty())?;
        Some((self.flight.next(), position))
    }

    /// Whether a packet must request an acknowledgement: at the end of the flight no other packet may be sent before an answer arrives.
    #[inline]
    fn must_ask(&self, again: bool, base: &Base, link: &Link) -> bool {
        again || self.since_ack_req + 1 >= self.ack_every || self.flight.is_nearly_full() || self.cc_asks(base, link)
    }

    /// Whether congestion control needs an answer to the current packet: to measure, or because it permits no further packet.
    fn cc_asks(&self, base: &Base, link: &Link) -> bool {
        let mtu = u64::from(link.mtu.bytes());
        base.congestion.is_controlled()
            && (u64::from(self.since_ack_req + 1) * mtu >= base.congestion.ask_every()
                || !base.congestion.fits_window((u64::from(self.flight.in_flight()) + 2) * mtu))
    }

    #[allow(clippy::too_many_arguments)]
    fn emit(
        &self,
        tx: &mut TxFrame<'_>,
        link: &Link,
        n: u64,
        position: u32,
        ack_req: bool,
        base: &Base,
        host: &impl Host,
    ) -> Result<(), AccessError> {
        let slot = base.queue.at(position);
        let psn = self.numbers.psn(n);
        if !slot.awaits_data() {
            let which = Which { service: Service::Sr, index: (n - slot.first) as u32, psn, ack_req };
            return message::emit(tx, link, which, slot, &base.queue.source(position, slot), host);
        }
        let (opcode, ext) = data_request(slot, 0, slot.len).ok_or(AccessError::Key)?;
        let opcode = opcode.selective();
        let fields = PacketFields { opcode, psn, ack_req, solicited: false, becn: false, payload_len: 0 };
        let built = match link.payload {
            PayloadMode::Real => link.template.build(tx, &fields, &ext, &[]),
            PayloadMode::Elided => link.template.build_elided(tx, &fields, &ext),
        };
        built.map_err(|_| AccessError::Bounds)
    }

    // ---- in ----

    /// Handles an acknowledgement of requests.
    pub(super) fn handle_acknowledgement(
        &mut self,
        now: Instant,
        packet: &Inbound<'_>,
        link: &Link,
        base: &mut Base,
        rtt: &mut RoundTrip,
        host: &mut impl Host,
    ) -> Result<(), Failure> {
        let (Some(aeth), Some((expected, selective))) =
            (packet.ext.aeth, acknowledgement::parse(packet, self.numbers, self.flight.una()))
        else {
            return Ok(());
        };
        if expected > self.flight.next() {
            host.count_stale_answer();
            return Ok(());
        }
        let old = expected < self.flight.una();
        host.counters().stale_acks += u64::from(old);
        self.note(now, expected, selective, link, base, rtt);
        match aeth.syndrome {
            // An older acknowledgement has older credits.
            Syndrome::Ack(credits) if !old => {
                let before = base.queue.sends_before(expected);
                base.credit_limit = credits.count().map(|n| before.wrapping_add(n));
            }
            Syndrome::RnrNak(timer) if !old => self.handle_rnr(now, expected, timer, base, rtt, host)?,
            Syndrome::Nak(code) if !old || self.awaits_data(expected, link, base) => {
                self.handle_nak(expected, code, host)
            }
            // The data has arrived; the peer does not know.
            Syndrome::Nak(_) => self.answers.demand(),
            _ => {}
        }
        self.settle(link, base, host)
    }

    /// All packets before `expected` have arrived, and those in `selective`.
    fn note(
        &mut self,
        now: Instant,
        expected: u64,
        selective: Selective<'_>,
        link: &Link,
        base: &mut Base,
        rtt: &mut RoundTrip,
    ) {
        let una = self.flight.una();
        let Progress { came, lost } = self.flight.acknowledge(now, expected, selective, rtt.shortest());
        let timed = self.timed.filter(|&(n, _)| self.flight.has_come(n));
        let sample = timed.map(|(_, left)| now.saturating_since(left));
        if let Some(sample) = sample {
            rtt.on_sample(sample);
            self.timed = None;
        }
        if self.flight.una() > una {
            base.rnr_retries = 0;
        }
        if came > 0 {
            base.retries = 0;
            self.timer.on_progress();
            self.start_timer(now, base, rtt);
            let bytes = u64::from(came) * u64::from(link.mtu.bytes());
            base.congestion.feed_back(now, Feedback::Acknowledged { bytes, rtt: sample });
        }
        if lost > 0 && self.flight.una() >= self.told_lost {
            self.told_lost = self.flight.next();
            base.congestion.feed_back(now, Feedback::Loss);
        }
    }

    fn handle_rnr(
        &mut self,
        now: Instant,
        n: u64,
        timer: RnrTimer,
        base: &mut Base,
        rtt: &RoundTrip,
        host: &mut impl Host,
    ) -> Result<(), Failure> {
        host.counters().rnr_naks_received += 1;
        if n >= self.flight.next() || base.is_waiting(now) {
            return Ok(()); // a duplicate
        }
        if base.rnr_retry != RNR_RETRY_FOREVER {
            if base.rnr_retries >= base.rnr_retry {
                host.counters().rnr_nak_retry_err += 1;
                return Err(Failure::Work(Status::RnrRetryExcErr));
            }
            base.rnr_retries += 1;
        }
        self.flight.mark_lost(n);
        let until = now + timer.duration();
        base.timers.set(Timer::Rnr, until);
        self.timer.on_sent(until);
        self.start_timer(now, base, rtt);
        Ok(())
    }

    /// The peer refuses request `n`, and all earlier packets have arrived.
    fn handle_nak(&mut self, n: u64, code: NakCode, host: &mut impl Host) {
        let counters = host.counters();
        let status = match code {
            NakCode::INVALID_REQUEST => {
                counters.req_remote_invalid_request += 1;
                Status::RemInvReqErr
            }
            NakCode::REMOTE_ACCESS_ERROR => {
                counters.req_remote_access_errors += 1;
                Status::RemAccessErr
            }
            NakCode::REMOTE_OPERATIONAL_ERROR => Status::RemOpErr,
            _ => return,
        };
        if n < self.flight.next() {
            self.refused = Some((n, status));
        }
    }

    /// Whether data that answers request `n` is missing.
    fn awaits_data(&self, n: u64, link: &Link, base: &mut Base) -> bool {
        let Some(position) = base.queue.locate(n) else { return false };
        let slot = base.queue.at(position);
        let mut answers = slot.answers..slot.answers + u64::from(link.mtu.packets(slot.len));
        slot.awaits_data() && answers.any(|a| self.answers.judge(a) != PacketOrder::Duplicate)
    }

    /// Handles a READ response or the value of an atomic.
    pub(super) fn handle_answer(
        &mut self,
        now: Instant,
        packet: &Inbound<'_>,
        link: &Link,
        base: &mut Base,
        rtt: &mut RoundTrip,
        host: &mut impl Host,
    ) -> Result<(), Failure> {
        let Some(sr) = packet.ext.sr else { return Ok(()) };
        let expected = self.answers.expected();
        let Some(n) = self.numbers.number(packet.bth.psn, expected) else { return Ok(()) };
        match self.answers.judge(n) {
            PacketOrder::InOrder | PacketOrder::Early => {}
            PacketOrder::Duplicate => {
                host.count_stale_answer();
                self.answers.on_duplicate(n);
                return Ok(());
            }
            PacketOrder::Beyond => return Ok(()),
        }
        let bad = Err(Failure::Work(Status::BadRespErr));
        let near = base.una;
        let Some(request) = self.numbers.number(Psn::new(sr.number), near) else { return bad };
        if request >= self.flight.next() {
            return bad;
        }
        let Some(position) = base.queue.locate(request) else { return bad };
        let slot = *base.queue.at(position);
        let mtu = link.mtu.bytes();
        let placed = match (packet.bth.opcode.kind(), slot.op) {
            (Kind::ReadResponse, SendOp::Read { .. }) => {
                let index = sr.offset / mtu;
                let fits = sr.offset.is_multiple_of(mtu) && n == slot.answers + u64::from(index);
                let last = index + 1 == link.mtu.packets(slot.len);
                let left = slot.len.saturating_sub(sr.offset);
                let part = if last { left } else { mtu };
                if !fits || index >= link.mtu.packets(slot.len) || packet.payload_len != part {
                    return bad;
                }
                base.copy_in(position, &slot, u64::from(sr.offset), packet.payload, link, host)
            }
            (Kind::AtomicAcknowledge, SendOp::CompareSwap { .. } | SendOp::FetchAdd { .. }) if n == slot.answers => {
                let value = packet.ext.atomic_ack.unwrap_or(0).to_ne_bytes();
                base.copy_in(position, &slot, 0, &value, link, host)
            }
            _ => return bad,
        };
        if placed.is_err() {
            return Err(Failure::Work(Status::LocProtErr));
        }
        self.answers.take(n, packet.bth.ack_req);
        while self.answers.advance() {}
        base.retries = 0;
        self.timer.on_progress();
        self.start_timer(now, base, rtt);
        // A READ is executed after everything before it has arrived.
        self.note(now, request + 1, Selective::NONE, link, base, rtt);
        self.settle(link, base, host)
    }

    /// Completes the work requests that are done: sent, acknowledged, and with all data received.
    fn settle(&mut self, link: &Link, base: &mut Base, host: &mut impl Host) -> Result<(), Failure> {
        let (una, answered) = (self.flight.una(), self.answers.expected());
        let waits = |slot: &Slot| slot.awaits_data() && slot.answers + u64::from(link.mtu.packets(slot.len)) > answered;
        let waiting = base.queue.iter().take_while(|slot| slot.first < una).find(|slot| waits(slot));
        let done = waiting.map_or(una, |slot| slot.first);
        base.window.una = self.numbers.psn(done);
        base.una = done;
        base.complete_done(link, host)?;
        if self.flight.is_empty() && base.rd_atomic == 0 {
            self.timer.stop(&mut base.timers);
        }
        match self.refused {
            Some((n, status)) if n <= done => Err(Failure::Work(status)),
            _ => Ok(()),
        }
    }

    // ---- time ----

    pub(super) fn start_timer(&mut self, now: Instant, base: &mut Base, rtt: &RoundTrip) {
        if self.is_starved(now, base) {
            return self.timer.stop(&mut base.timers);
        }
        // During an RNR pause the peer does not answer.
        let from = base.timers.get(Timer::Rnr).map_or(now, |t| t.max(now));
        let watched = if !self.flight.is_empty() {
            Watched::of(self.flight.in_flight(), self.flight.next() == base.queue.end())
        } else if base.rd_atomic > 0 {
            Watched::Data
        } else {
            return self.timer.stop(&mut base.timers);
        };
        self.timer.start(&mut base.timers, from, watched, rtt, base.timeout);
    }

    pub(super) fn handle_timeout(
        &mut self,
        now: Instant,
        base: &mut Base,
        rtt: &RoundTrip,
        host: &mut impl Host,
    ) -> Result<(), Failure> {
        base.timers.take_expired(Timer::Rnr, now);
        let Some(expired) = self.timer.expire(&mut base.timers, now) else { return Ok(()) };
        // If no packet of the peer arrives at all, the retry limit applies as usual.
        if self.flight.has_lost() && base.awaits_credit(now, true) {
            self.expire_behind_credit(now, expired, base, rtt);
            return Ok(());
        }
        if expired == Expired::High {
            host.counters().local_ack_timeout_err += 1;
            base.count_retry(host)?;
            base.congestion.feed_back(now, Feedback::Timeout);
        }
        match expired {
            _ if self.flight.is_empty() => {
                // Notifies the responder of the missing data.
                self.answers.demand();
                self.start_timer(now, base, rtt);
            }
            Expired::Low => {
                self.flight.probe();
                // The retransmission may have to wait for packets in flight: then those are waited for.
                self.start_timer(now, base, rtt);
            }
            Expired::High => self.flight.give_up(),
        }
        Ok(())
    }
}
