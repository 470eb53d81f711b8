//! Selective Repeat on a reliable connection, where both sides agreed on it; else RC as it is.
//!
//! In the manner of IRN: packets are placed as they come, what has come is told selectively, and only what is missing is sent again.
//! The two directions are apart: each side's requests, and the answers to them, are of the kind that it decided on when its
//! negotiation ended, and each side takes requests of either kind until the first one of this kind has come. So nothing is lost where
//! an answer of the negotiation is.

mod acknowledgement;
mod agreement;
mod answers;
mod arrivals;
mod bitmap;
mod flight;
mod numbers;
mod requester;
mod responder;
mod timer;

use requester::Requester;
use responder::{Made, Responder};
use softnic_wire::aeth::Syndrome;
use softnic_wire::mad::vendor::Extensions;
use softnic_wire::opcode::{Kind, Service};
use softnic_wire::sr::SrEth;
use softnic_wire::{Instant, Opcode, Psn, Qpn, TxFrame};
use timer::RoundTrip;

use crate::congestion::CongestionControl;
use crate::invariants;
use crate::negotiation::{Agreement, Choice, Offer};
use crate::outstanding::OutstandingSends;
use crate::qp::{Config, earlier};
use crate::rc::{self, Rc, ReceiveAttr, SendAttr, Update};
use crate::send_queue::Numbering;
use crate::timers::Timer;
use crate::{Host, Inbound, PostError, QpState, QueuePair, RecvWr, SendWr};

/// Packets after which an acknowledgement is asked for.
const ACK_EVERY: u32 = 16;
/// Receives of a shared queue that one queue pair may hold for messages that come out of order.
const RECEIVES_AHEAD: u32 = 64;
/// The longest window: old and new PSNs must be told apart.
pub const MAX_WINDOW: u32 = 1 << 21;

/// What Selective Repeat is set to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SrConfig {
    /// Packets from the oldest missing one to the newest, at most: four bandwidth-delay products.
    pub window: u32,
    /// The line's rate in bits a second: with the round-trip time it says how many packets may be under way.
    pub rate: u64,
}

impl Default for SrConfig {
    /// For a round trip of up to 3 ms at 10 Gbit/s and a path MTU of 1024.
    fn default() -> SrConfig {
        SrConfig { window: 1 << 14, rate: 10_000_000_000 }
    }
}

/// A reliable connection with Selective Repeat where the peer has it.
pub struct Sr {
    rc: Rc,
    config: SrConfig,
    agreement: Agreement,
    choice: Choice,
    rtt: RoundTrip,
    rq_psn: Psn,
    max_dest_rd_atomic: u8,
    sq_psn: Psn,
    requester: Option<Box<Requester>>,
    responder: Option<Box<Responder>>,
}

impl Sr {
    /// In the reset state. Answers of the negotiation are known by the transaction id.
    pub fn new(c: &Config, config: SrConfig, transaction_id: u64) -> Sr {
        let config = SrConfig { window: config.window.clamp(64, MAX_WINDOW), ..config };
        Sr {
            rc: Rc::with_receives_ahead(c, RECEIVES_AHEAD),
            config,
            agreement: Agreement::new(c.qpn, transaction_id),
            choice: Choice::Waiting,
            rtt: RoundTrip::default(),
            rq_psn: Psn::new(0),
            max_dest_rd_atomic: 0,
            sq_psn: Psn::new(0),
            requester: None,
            responder: None,
        }
    }

    /// To the reset state: all work is forgotten.
    pub fn reset(&mut self) {
        self.rc.reset();
        self.agreement.reset();
        self.choice = Choice::Waiting;
        (self.requester, self.responder, self.rtt) = (None, None, RoundTrip::default());
    }

    /// RESET to INIT.
    pub fn init(&mut self) {
        self.rc.init();
    }

    /// INIT to RTR: the negotiation begins. `known_silent`: the peer's address answered none before.
    pub fn ready_to_receive(&mut self, a: &ReceiveAttr, known_silent: bool) {
        self.rc.ready_to_receive(a);
        (self.rq_psn, self.max_dest_rd_atomic) = (a.rq_psn, a.max_dest_rd_atomic);
        let offer = Offer { extensions: Extensions::SR, sr_window: self.config.window, lowar: None };
        self.agreement.begin(offer, (a.path.addresses.dst(), a.dest_qp), known_silent);
        self.decide();
    }

    /// RTR to RTS.
    pub fn ready_to_send(&mut self, a: &SendAttr) {
        self.rc.ready_to_send(a);
        self.sq_psn = a.sq_psn;
        self.decide();
    }

    /// RTS to SQD.
    pub fn drain(&mut self, notify: bool, host: &mut impl Host) {
        self.rc.drain(notify, host);
    }

    /// SQD to RTS.
    pub fn resume(&mut self) {
        self.rc.resume();
    }

    /// Whether nothing that was sent is unanswered and no message is half sent.
    pub fn is_drained(&mut self) -> bool {
        self.rc.is_drained()
    }

    /// Changes what may change while connected.
    pub fn update(&mut self, u: &Update) {
        self.rc.update(u);
        self.pass_on_timeout();
    }

    /// Puts a congestion controller in charge of what is sent.
    pub fn set_congestion_control(&mut self, cc: Option<Box<dyn CongestionControl>>) {
        self.rc.set_congestion_control(cc);
    }

    /// Acknowledgements go at once, and before any request, also where RC is spoken.
    pub fn set_prompt_acks(&mut self) {
        self.rc.set_prompt_acks();
    }

    /// An acknowledgement that waits for the program's reply goes with the next packet.
    pub fn release_ack(&mut self) {
        self.rc.release_ack();
    }

    /// The sends that have not completed, oldest first.
    pub fn outstanding_sends(&self) -> OutstandingSends<'_> {
        self.rc.outstanding_sends()
    }

    /// What its requests are sent by.
    pub fn choice(&self) -> Choice {
        self.choice
    }

    fn pass_on_timeout(&mut self) {
        if let (Some(responder), Some(timeout)) = (&mut self.responder, self.rc.requester.timeout) {
            responder.high = timeout;
        }
    }

    /// The half that takes requests, from the first of them on.
    fn make_responder(&mut self) {
        let (span, limit) = self.reach();
        let made = Made {
            first: self.rq_psn,
            window: self.config.window,
            span,
            limit,
            ack_every: ACK_EVERY,
            max_rd_atomic: self.max_dest_rd_atomic,
            receives: self.rc.responder.receives.room(),
        };
        self.responder = Some(Box::new(Responder::new(&made)));
        self.pass_on_timeout();
    }

    /// Whether it stopped because it refused a request, and has not given all answers to what was before that: the peer's
    /// acknowledgements of them are still heard.
    pub fn owes_answers(&self) -> bool {
        self.rc.state == QpState::Error && self.responder.as_ref().is_some_and(|r| !r.jobs.is_empty())
    }

    /// The queue pair stopped, for whatever reason: it asks for nothing more. What was refused is still told, and what was before it
    /// is still answered, unless it falls silent.
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

    /// A half that speaks RC did something, and may have stopped the queue pair: then the other one stops, too.
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

    /// Takes a packet of Selective Repeat.
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
                responder.handle_acknowledgement(now, packet, &self.rtt, &mut self.rc.requester.timers);
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

    /// One packet of an answer or an acknowledgement, if one is owed.
    fn transmit_answer(&mut self, now: Instant, tx: &mut TxFrame<'_>, host: &mut impl Host) -> bool {
        let Some(link) = &self.rc.link else { return false };
        if let Some(responder) = &mut self.responder
            && responder.transmit_acknowledgement(tx, link, &self.rc.responder.receives)
        {
            return true;
        }
        if let Some(requester) = &mut self.requester
            && requester.transmit_acknowledgement(tx, link)
        {
            return true;
        }
        if let Some(responder) = &mut self.responder {
            if responder.has_answers() && self.rc.requester.must_pace_answer(now) {
                return false;
            }
            let Some(link) = &self.rc.link else { return false };
            let sent = responder.transmit_answer(now, tx, link, &self.rtt, &mut self.rc.requester.timers, host);
            if sent {
                self.rc.count_for_pacing(now, tx);
            }
            if let Some(f) = responder.failure.take() {
                self.on_response_failure(f, host);
                return self.transmit_answer(now, tx, host);
            }
            return sent;
        }
        // The peer's requests are standard ones; no answer of theirs waits for requests that are of the other kind.
        self.rc.release_ack();
        let before = self.rc.state;
        let sent = self.rc.responder.has_answer() && self.rc.transmit_answer(now, tx, host).0;
        self.follow_rc(before);
        sent
    }

    /// Whether an answer with data is to be sent.
    fn has_answers(&self) -> bool {
        self.responder.as_ref().map_or_else(|| self.rc.responder.owes_data(), |r| r.has_answers())
    }

    /// One packet, where at least one of the two halves speaks Selective Repeat.
    fn transmit_any(&mut self, now: Instant, tx: &mut TxFrame<'_>, host: &mut impl Host) -> bool {
        if self.transmit_answer(now, tx, host) {
            return true;
        }
        if !self.rc.state.sends() || self.has_answers() && self.rc.requester.congestion.pacing(now).is_some() {
            return false;
        }
        let (Some(requester), Some(link)) = (&mut self.requester, &self.rc.link) else {
            let before = self.rc.state;
            let sent = matches!(self.choice, Choice::Standard(_)) && self.rc.poll_transmit(now, tx, host);
            self.follow_rc(before);
            return sent;
        };
        let base = &mut self.rc.requester;
        match requester.poll_transmit(now, tx, link, base, &self.rtt, host) {
            Ok(sent) => sent,
            Err(f) => {
                self.on_request_failure(f, host);
                false
            }
        }
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
    fn qpn(&self) -> Qpn {
        self.rc.qpn()
    }

    fn state(&self) -> QpState {
        self.rc.state
    }

    fn write_send(&mut self, wr: &SendWr<'_>) -> Result<(), PostError> {
        self.rc.write_send(wr)
    }

    fn ring_doorbell(&mut self, now: Instant, host: &mut impl Host) {
        match (self.choice, &self.rc.link) {
            // Numbered when it is known how.
            (Choice::Waiting, _) if self.rc.state != QpState::Error => {}
            (Choice::Agreed, Some(link)) if self.rc.state.sends() => {
                let mtu = link.mtu;
                self.rc.requester.queue.publish(mtu, Numbering::Apart);
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
        } else {
            // Of each kind of requests, and of their answers, one is spoken.
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
        if self.transmit_mad(now, tx) || self.rc.owes_notification() && self.rc.transmit_notification(now, tx, host) {
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
        earlier(self.rc.poll_timeout(), self.agreement.poll_timeout())
    }

    fn handle_timeout(&mut self, now: Instant, host: &mut impl Host) {
        self.agreement.handle_timeout(now);
        self.decide();
        self.rc.requester.timers.take_expired(Timer::Pacing, now);
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
}
