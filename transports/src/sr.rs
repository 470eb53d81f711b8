//! Selective Repeat on a reliable connection, if both sides agreed on it; otherwise plain RC.
//!
//! As in IRN, packets are placed as they arrive, received packets are acknowledged selectively, and only missing packets are sent again.
//! The two directions are independent. Each side decides on the kind of its requests, and of the answers to them, at the end of its
//! negotiation, and accepts requests of either kind until the first request of Selective Repeat arrives. So nothing is lost if an answer of
//! the negotiation is lost.

mod acknowledgement;
mod answers;
mod arrivals;
mod bitmap;
mod credit;
mod data_request;
mod flight;
mod held;
mod numbers;
mod outcome;
mod receives_taken;
mod requester;
mod responder;
mod timer;
mod transmit;

use std::time::Duration;

use requester::Requester;
use responder::{Made, Responder};
use softnic_wire::aeth::Syndrome;
use softnic_wire::mad::vendor::{ExtensionSettings, Extensions, Settings};
use softnic_wire::opcode::{Kind, Service};
use softnic_wire::sr::{SrEth, SrSettings};
use softnic_wire::{Instant, Opcode, Psn, Qpn, TxFrame};

use crate::congestion::{CongestionControl, EqdsConfig};
use crate::invariants;
use crate::negotiation::{Choice, Extension, NegotiationOutcome, Offer};
use crate::outstanding::{OutstandingRecvs, OutstandingSends, RecvsKept};
use crate::posting::{RecvRules, SendRules};
use crate::qp::{Config, NextPsns, NoCongestionControl, PathProps, PayloadMode, ReceiveAttr, SendAttr, Update};
use crate::rc::{self, Rc};
use crate::round_trip::RoundTrip;
use crate::send_queue::Numbering;
use crate::timers::Timer;
use crate::{Host, Inbound, PostError, QpState, QueuePair, RecvWr, SendWr, Vitals};

/// Number of packets after which an acknowledgement is requested.
const ACK_EVERY: u32 = 16;
/// Number of receives of a shared queue that one queue pair may hold for messages that arrive out of order.
const RECEIVES_AHEAD: u32 = 64;
/// The minimum window.
pub(crate) const MIN_WINDOW: u32 = 64;
/// The default window: for a round-trip time of up to 3 ms at 10 Gbit/s and a path MTU of 1024.
pub const DEFAULT_WINDOW: u32 = 1 << 14;
/// The maximum window: old and new PSNs must be distinguishable.
pub const MAX_WINDOW: u32 = 1 << 21;

/// The maximum number of packets in flight with this window.
pub const fn most_in_flight(window: u32) -> u32 {
    window / 4
}

/// The settings that the negotiation exchanges.
pub(crate) const EXTENSION: Extension = Extension {
    bit: Extensions::SR,
    range: SrSettings::RANGE,
    is_usable: |settings| settings.get::<SrSettings>().window > 0,
};

/// The offer of a queue pair with this window.
pub(crate) fn offer(window: u32) -> Offer {
    Offer { extensions: Extensions::SR, settings: Settings::NONE.with(SrSettings { window: clamp(window) }) }
}

/// The nearest permitted window.
fn clamp(window: u32) -> u32 {
    window.clamp(MIN_WINDOW, MAX_WINDOW)
}

/// A reliable connection with Selective Repeat, if the peer supports it.
pub struct Sr {
    rc: Rc,
    /// Maximum number of packets from the oldest missing one to the newest: four bandwidth-delay products, or more.
    window: u32,
    /// The rate of the link in bits per second: together with the round-trip time it determines the number of packets in flight.
    rate: u64,
    /// The outcome of the negotiation.
    outcome: Option<NegotiationOutcome>,
    choice: Choice,
    rtt: RoundTrip,
    rq_psn: Psn,
    max_dest_rd_atomic: u8,
    sq_psn: Psn,
    requester: Option<Box<Requester>>,
    responder: Option<Box<Responder>>,
    /// The last packet was an answer with data: the next one is a request packet, if there is any.
    requests_turn: bool,
}

impl Sr {
    /// Creates a queue pair in the reset state.
    pub fn new(c: &Config, window: u32) -> Sr {
        Sr {
            rc: Rc::with_receives_ahead(c, RECEIVES_AHEAD),
            window: clamp(window),
            rate: 0,
            outcome: None,
            choice: Choice::Waiting,
            rtt: RoundTrip::default(),
            rq_psn: Psn::new(0),
            max_dest_rd_atomic: 0,
            sq_psn: Psn::new(0),
            requester: None,
            responder: None,
            requests_turn: false,
        }
    }

    fn pass_on_timeout(&mut self) {
        if let (Some(responder), Some(timeout)) = (&mut self.responder, self.rc.requester.timeout) {
            responder.high = timeout;
        }
    }

    /// Creates the half that handles requests, when the first one arrives.
    fn make_responder(&mut self) {
        let (span, limit) = self.reach();
        let real = self.rc.link.as_ref().filter(|link| link.payload == PayloadMode::Real);
        let made = Made {
            held: most_in_flight(self.window),
            held_len: real.map_or(0, |link| link.mtu.bytes() as usize),
            first: self.rq_psn,
            window: self.window,
            span,
            limit,
            ack_every: ACK_EVERY,
            max_rd_atomic: self.max_dest_rd_atomic,
            receives: self.rc.responder.receives.room(),
        };
        self.responder = Some(Box::new(Responder::new(&made)));
        self.pass_on_timeout();
    }

    /// The queue pair stopped, for whatever reason: it sends no more requests. A refusal is still sent, and requests before it are still
    /// answered, unless `silent`.
    fn follow_state(&mut self, silent: bool) {
        if self.rc.state != QpState::Error {
            return;
        }
        if let Some(requester) = &mut self.requester {
            requester.stop(&mut self.rc.requester.timers);
        }
        if let (Some(responder), true) = (&mut self.responder, silent) {
            responder.fall_silent(&mut self.rc.requester.timers);
        }
    }

    /// A half that uses RC may have stopped the queue pair: then the other half stops, too.
    fn follow_rc(&mut self, before: QpState) {
        if before != QpState::Error {
            self.follow_state(true);
        }
    }

    fn on_request_failure(&mut self, f: rc::requester::Failure, host: &mut impl Host) {
        self.rc.on_request_failure(f, host);
        self.follow_state(true);
    }

    fn on_response_failure(&mut self, f: rc::responder::Failure, host: &mut impl Host) {
        self.rc.on_response_failure(f, host);
        self.follow_state(f == rc::responder::Failure::CqOverflow);
    }

    /// Handles a packet of Selective Repeat.
    fn handle_selective(&mut self, now: Instant, packet: &Inbound<'_>, host: &mut impl Host) -> bool {
        self.rc.note_established(host);
        let opcode = packet.bth.opcode;
        if !opcode.is_response() {
            if !opcode.is_known() || !self.rc.state.receives() {
                return false;
            }
            let rnr = Syndrome::RnrNak(self.rc.responder.rnr_timer);
            if self.responder.is_none() {
                self.make_responder();
            }
            let (Some(responder), Some(link)) = (&mut self.responder, &self.rc.link) else { return false };
            if let Err(f) = responder.handle_request(packet, link, &mut self.rc.responder.receives, rnr, host) {
                self.on_response_failure(f, host);
            }
            return true;
        }
        let of_responses = packet.ext.sr.is_some_and(|sr| sr.flags & SrEth::RESPONSES != 0);
        if opcode == Opcode::SR_ACKNOWLEDGE && of_responses {
            if let Some(responder) = &mut self.responder {
                let shortest = self.rtt.shortest();
                responder.handle_acknowledgement(now, packet, &mut self.rtt, &mut self.rc.requester.timers);
                if self.rtt.shortest() != shortest {
                    self.follow_round_trip();
                }
            }
            return true;
        }
        let (Some(requester), Some(link)) = (&mut self.requester, &self.rc.link) else { return false };
        if !self.rc.state.sends() {
            return false;
        }
        let shortest = self.rtt.shortest();
        let (base, rtt) = (&mut self.rc.requester, &mut self.rtt);
        let done = match opcode.kind() {
            Kind::Acknowledge => requester.handle_acknowledgement(now, packet, link, base, rtt, host),
            _ => requester.handle_answer(now, packet, link, base, rtt, host),
        };
        if self.rtt.shortest() != shortest {
            self.follow_round_trip();
        }
        if let Err(f) = done {
            self.on_request_failure(f, host);
        }
        self.rc.check_drained(host);
        true
    }

    fn check_invariants(&self) {
        if !invariants::ON {
            return;
        }
        if let Some(requester) = &self.requester {
            requester.flight.check_invariants();
        }
        if let Some(responder) = &self.responder {
            responder.flight.check_invariants();
        }
    }
}

impl QueuePair for Sr {
    fn send_rules(&self) -> &SendRules {
        self.rc.send_rules()
    }

    fn recv_rules(&self) -> &RecvRules {
        self.rc.recv_rules()
    }

    fn qpn(&self) -> Qpn {
        self.rc.qpn()
    }

    fn state(&self) -> QpState {
        self.rc.state
    }

    fn reset(&mut self) {
        self.rc.reset();
        (self.outcome, self.choice) = (None, Choice::Waiting);
        (self.requester, self.responder, self.rtt) = (None, None, RoundTrip::default());
        self.requests_turn = false;
    }

    fn init(&mut self) {
        self.rc.init();
    }

    fn ready_to_receive(&mut self, connection: Option<&ReceiveAttr>, props: &PathProps) {
        let Some(a) = connection else { return };
        self.rc.ready_to_receive(connection, props);
        (self.rq_psn, self.max_dest_rd_atomic, self.rate) = (a.rq_psn, a.max_dest_rd_atomic, props.link_rate);
    }

    fn ready_to_send(&mut self, a: &SendAttr) {
        self.rc.ready_to_send(a);
        self.sq_psn = a.sq_psn;
        self.decide();
    }

    fn drain(&mut self, notify: bool, host: &mut impl Host) {
        self.rc.drain(notify, host);
    }

    fn resume(&mut self) {
        self.rc.resume();
    }

    fn is_drained(&mut self) -> bool {
        self.rc.is_drained()
    }

    fn update(&mut self, u: &Update) {
        self.rc.update(u);
        self.pass_on_timeout();
    }

    fn write_send(&mut self, wr: &SendWr<'_>) -> Result<(), PostError> {
        self.rc.write_send(wr)
    }

    fn ring_doorbell(&mut self, now: Instant, host: &mut impl Host) {
        match (self.choice, &self.rc.link) {
            (Choice::Waiting, Some(link)) if self.rc.state.sends() => {
                let mtu = link.mtu;
                self.rc.requester.queue.publish_locals(mtu);
                let before = self.rc.state;
                self.rc.run_locals(host);
                self.follow_rc(before);
            }
            // Packets are numbered once the numbering is decided.
            (Choice::Waiting, _) if self.rc.state != QpState::Error => {}
            (Choice::Agreed, Some(link)) if self.rc.state.sends() => {
                let mtu = link.mtu;
                self.rc.requester.queue.publish(mtu, Numbering::Apart);
                let before = self.rc.state;
                self.rc.run_locals(host);
                self.follow_rc(before);
            }
            _ => self.rc.ring_doorbell(now, host),
        }
    }

    fn post_recv(&mut self, wr: &RecvWr<'_>, host: &mut impl Host) -> Result<(), PostError> {
        self.rc.post_recv(wr, host)
    }

    fn handle_packet(&mut self, now: Instant, packet: &Inbound<'_>, host: &mut impl Host) -> bool {
        let opcode = packet.bth.opcode;
        let active = if opcode.service() == Service::Sr {
            self.rc.requester.congestion.on_packet(now, packet, host);
            self.handle_selective(now, packet, host) || self.rc.owes_notification()
        } else if opcode.service() == Service::Xp {
            // Credit; no other packets of XP are accepted.
            self.rc.requester.congestion.on_packet(now, packet, host)
        } else {
            // In each direction, one kind of requests and answers is used.
            let other = if opcode.is_response() { self.requester.is_some() } else { self.responder.is_some() };
            if other && opcode != Opcode::CNP {
                host.counters().rx_malformed += 1;
                return false;
            }
            let before = self.rc.state;
            let active = self.rc.handle_packet(now, packet, host);
            self.follow_rc(before);
            active
        };
        self.check_invariants();
        active
    }

    fn poll_transmit(&mut self, now: Instant, tx: &mut TxFrame<'_>, host: &mut impl Host) -> bool {
        if self.rc.owes_notification() && self.rc.transmit_notification(now, tx, host) {
            return true;
        }
        if self.rc.requester.congestion.has_credit() && self.transmit_credit(now, tx, host) {
            return true;
        }
        match self.choice {
            Choice::Standard(_) if self.responder.is_none() => return self.rc.poll_transmit(now, tx, host),
            _ => {}
        }
        let sent = self.transmit_any(now, tx, host);
        self.check_invariants();
        sent
    }

    fn poll_timeout(&self) -> Option<Instant> {
        self.rc.poll_timeout()
    }

    fn handle_timeout(&mut self, now: Instant, host: &mut impl Host) {
        self.rc.requester.timers.take_expired(Timer::Pacing, now);
        self.rc.expire_credit(now, host);
        if let Some(responder) = &mut self.responder {
            responder.handle_timeout(now, &self.rtt, &mut self.rc.requester.timers);
        }
        if self.requester.is_some() {
            self.rc.release_ack();
        }
        match &mut self.requester {
            None => {
                let before = self.rc.state;
                self.rc.handle_timeout(now, host);
                self.follow_rc(before);
            }
            Some(_) if !self.rc.state.sends() => {}
            Some(requester) => {
                if let Err(f) = requester.handle_timeout(now, &mut self.rc.requester, &self.rtt, host) {
                    self.on_request_failure(f, host);
                }
            }
        }
    }

    fn fail(&mut self, host: &mut impl Host) {
        self.rc.fail(host);
        self.follow_state(true);
    }

    fn set_congestion_control(&mut self, cc: Option<Box<dyn CongestionControl>>) -> Result<(), NoCongestionControl> {
        self.rc.set_congestion_control(cc)
    }

    fn use_credit(&mut self, config: Option<EqdsConfig>) -> Result<(), NoCongestionControl> {
        self.rc.use_credit(config)
    }

    fn offers_credit(&self) -> bool {
        self.rc.offers_credit()
    }

    fn on_credit_negotiation(&mut self, outcome: Option<&NegotiationOutcome>) {
        self.rc.on_credit_negotiation(outcome);
    }

    fn release_ack(&mut self) {
        self.rc.release_ack();
    }

    fn choice(&self) -> Option<Choice> {
        Some(self.choice)
    }

    fn owes_answers(&self) -> bool {
        self.rc.state == QpState::Error && self.responder.as_ref().is_some_and(|r| !r.jobs.is_empty())
    }

    #[inline]
    fn takes(&self, service: Service) -> bool {
        service == Service::Sr || self.rc.takes(service)
    }

    fn on_negotiation(&mut self, outcome: Option<&NegotiationOutcome>, rtt: Option<Duration>) {
        self.outcome = outcome.copied();
        if let Some(rtt) = rtt {
            self.rtt.on_first_sample(rtt);
            self.follow_round_trip();
        }
        self.decide();
    }

    fn outstanding_sends(&self) -> Option<OutstandingSends<'_>> {
        self.rc.outstanding_sends()
    }

    fn outstanding_recvs(&self) -> Option<OutstandingRecvs<'_>> {
        self.rc.outstanding_recvs()
    }

    fn take_recvs(&mut self, take: impl FnMut(&RecvWr<'_>)) -> Result<u32, RecvsKept> {
        match &self.responder {
            Some(responder) => {
                let in_use = self.rc.state.receives() && responder.taken.is_filling();
                self.rc.responder.receives.take_all(in_use, take)
            }
            None => self.rc.take_recvs(take),
        }
    }

    fn next_psns(&self) -> Option<NextPsns> {
        let standard = self.rc.next_psns()?;
        // The window of the local requests is the same for both kinds.
        let receive = self.responder.as_ref().map_or(standard.receive, |r| r.numbers.psn(r.came()));
        Some(NextPsns { receive, ..standard })
    }

    fn hasten_acks(&mut self, messages: u8) {
        self.rc.hasten_acks(messages);
    }

    fn halt(&mut self) -> bool {
        let halted = self.rc.halt();
        if halted {
            self.follow_state(true);
        }
        halted
    }

    fn is_halted(&self) -> bool {
        self.rc.is_halted()
    }

    fn vitals(&self) -> Vitals {
        let mut vitals = self.rc.vitals();
        if let Some(selective) = &self.requester {
            vitals = selective.vitals(vitals);
        }
        if let Some(selective) = &self.responder {
            vitals.answered = self.rq_psn.add(selective.came() as u32).value();
        }
        vitals
    }
}
