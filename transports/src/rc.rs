//! Reliable connection: the requester and the responder of one queue pair, with Go-Back-N.

mod credit;
mod flight_limit;
mod go_back_n;
mod ping_pong;
mod probe;
pub(crate) mod requester;
pub(crate) mod responder;
mod stop;
mod transmit;

use std::time::Duration;

pub(crate) use flight_limit::FlightLimit;
use ping_pong::PingPong;
use requester::{Limits, Requester};
use responder::Responder;
use softnic_wire::opcode::Service;
use softnic_wire::{Instant, Opcode, Qpn, Template, TxFrame};

use crate::congestion::{CongestionControl, EqdsConfig};
use crate::invariants::ON;
use crate::memory::PdId;
use crate::message::Link;
use crate::negotiation::NegotiationOutcome;
use crate::outstanding::{OutstandingRecvs, OutstandingSends, RecvsKept};
use crate::posting::{Operations, RecvRules, SendRules, Supported};
use crate::qp::{
    Config, ExpectedPsns, NextPsns, NoCongestionControl, PathProps, PayloadMode, ReceiveAttr, SendAttr, Update,
};
use crate::send_queue::Numbering;
use crate::timers::{Timer, ack_timeout};
use crate::{Event, Host, Inbound, PostError, QpState, QueuePair, RecvWr, SendWr, Status, Vitals};

/// A queue pair of a reliable connection.
pub struct Rc {
    qpn: Qpn,
    pd: PdId,
    payload: PayloadMode,
    pub(crate) state: QpState,
    pub(crate) link: Option<Link>,
    pub(crate) requester: Requester,
    pub(crate) responder: Responder,
    /// A packet has arrived since the queue pair became ready to receive.
    established: bool,
    /// The program waits for the event that the send queue is drained.
    tell_drained: bool,
    /// A request packet was sent before the acknowledgement that is owed.
    ack_passed: bool,
    /// The last packet was a READ response: the next one is a request packet, if there is any.
    requests_turn: bool,
    /// Determines whether the acknowledgement that is owed waits for the program's reply.
    ping_pong: PingPong,
    /// No packet is sent before an acknowledgement. If the programs do not poll, a reply that arrives first has no advantage. A program
    /// with one channel for both directions may also rely on the event for its own message before the event for the answer, as with
    /// hardware.
    prompt_acks: bool,
    /// The number of outstanding packets is limited.
    limits_flight: bool,
    /// Requests wait, for the negotiation of a shim, or for credit.
    held: bool,
    /// When retries are exhausted, the queue pair halts with its work in place.
    halts: bool,
    /// The queue pair has halted; a later flush completes the oldest send with this status.
    halted: Option<Status>,
}

impl Rc {
    /// The work requests that RC supports.
    const SUPPORTED: Supported = Supported { operations: Operations::All, deadlines: false };

    /// Creates a queue pair in the reset state.
    pub fn new(c: &Config) -> Rc {
        Rc::with_receives_ahead(c, 1)
    }

    /// Creates a queue pair whose messages may arrive out of order; takes at most `ahead` receives of a shared queue in advance.
    pub(crate) fn with_receives_ahead(c: &Config, ahead: u32) -> Rc {
        Rc::supporting(c, ahead, Self::SUPPORTED)
    }

    /// Creates the RC part of a transport that supports these work requests.
    pub(crate) fn supporting(c: &Config, ahead: u32, supported: Supported) -> Rc {
        Rc {
            qpn: c.qpn,
            pd: c.pd,
            payload: c.payload,
            state: QpState::Reset,
            link: None,
            requester: Requester::new(c, supported),
            responder: Responder::new(c, ahead, supported),
            established: false,
            tell_drained: false,
            ack_passed: false,
            requests_turn: false,
            ping_pong: PingPong::default(),
            prompt_acks: c.prompt_acks,
            limits_flight: c.limit_flight,
            held: false,
            halts: c.halt_on_retry_exceeded,
            halted: None,
        }
    }

    /// Whether posted work is flushed at once: in the error state, unless the queue pair has halted, when it accepts no work.
    fn flushes(&self) -> bool {
        self.state == QpState::Error && !self.is_halted()
    }

    pub(crate) fn check_drained(&mut self, host: &mut impl Host) {
        if self.tell_drained && self.state == QpState::SendQueueDrain && self.requester.is_drained() {
            self.tell_drained = false;
            host.notify(Event::SqDrained(self.qpn));
        }
    }

    /// Counts an answer with data, or a packet of a shim, for pacing: the next one waits its turn.
    #[inline]
    pub(crate) fn count_for_pacing(&mut self, now: Instant, tx: &TxFrame<'_>) {
        self.requester.congestion.on_sent(now, tx);
    }

    /// Whether a congestion notification is due.
    #[inline]
    pub(crate) fn owes_notification(&self) -> bool {
        self.requester.congestion.owes_notification()
    }

    /// Writes the congestion notification that is due.
    pub(crate) fn transmit_notification(&mut self, now: Instant, tx: &mut TxFrame<'_>, host: &mut impl Host) -> bool {
        let receives = self.state.receives();
        let link = self.link.as_ref().filter(|_| receives);
        self.requester.congestion.transmit_notification(now, tx, link, host)
    }

    /// The peer's first message can arrive before the last message of the connection manager (IBA 12.9.6).
    #[inline]
    pub(crate) fn note_established(&mut self, host: &mut impl Host) {
        if self.state == QpState::ReadyToReceive && !self.established {
            self.established = true;
            host.notify(Event::CommEst(self.qpn));
        }
    }

    /// Checks the invariants between two calls.
    #[inline]
    fn check_invariants(&self) {
        if ON {
            self.responder.check_invariants();
            if self.state.sends() {
                self.requester.check_invariants();
            }
        }
    }
}

impl QueuePair for Rc {
    fn send_rules(&self) -> &SendRules {
        self.requester.queue.rules()
    }

    fn recv_rules(&self) -> &RecvRules {
        self.responder.receives.rules()
    }

    fn qpn(&self) -> Qpn {
        self.qpn
    }

    fn state(&self) -> QpState {
        self.state
    }

    fn reset(&mut self) {
        self.state = QpState::Reset;
        self.link = None;
        self.requester.reset();
        self.responder.receives.clear();
        (self.established, self.tell_drained, self.ack_passed, self.held) = (false, false, false, false);
        (self.ping_pong, self.halted, self.requests_turn) = (PingPong::default(), None, false);
    }

    fn init(&mut self) {
        self.state = QpState::Init;
    }

    fn ready_to_receive(&mut self, connection: Option<&ReceiveAttr>, props: &PathProps) {
        let Some(a) = connection else { return };
        self.link = Some(Link {
            qpn: self.qpn,
            pd: self.pd,
            template: Template::new(&a.path, a.dest_qp, a.pkey),
            mtu: a.mtu,
            access: a.access,
            payload: self.payload,
        });
        self.responder.start(a.rq_psn, a.mtu, a.min_rnr_timer, a.max_dest_rd_atomic);
        self.connect_credit(a.dest_qp, props.port);
        self.state = QpState::ReadyToReceive;
    }

    fn ready_to_send(&mut self, a: &SendAttr) {
        let SendAttr { sq_psn, timeout, retry_cnt, rnr_retry, max_rd_atomic } = *a;
        self.ping_pong.set_timeout(ack_timeout(timeout), &mut self.requester.timers);
        self.requester.start(sq_psn, &Limits { timeout: ack_timeout(timeout), retry_cnt, rnr_retry, max_rd_atomic });
        self.limit_flight();
        self.state = QpState::ReadyToSend;
    }

    fn drain(&mut self, notify: bool, host: &mut impl Host) {
        self.state = QpState::SendQueueDrain;
        self.requester.draining = true;
        self.tell_drained = notify;
        self.check_drained(host);
    }

    fn resume(&mut self) {
        self.state = QpState::ReadyToSend;
        self.requester.draining = false;
    }

    fn is_drained(&mut self) -> bool {
        self.requester.is_drained()
    }

    fn update(&mut self, u: &Update) {
        if let Some(link) = &mut self.link {
            link.access = u.access.unwrap_or(link.access);
            link.template = u.template.unwrap_or(link.template);
        }
        if let Some(timer) = u.min_rnr_timer {
            self.responder.set_rnr_timer(timer);
        }
        if let Some(timeout) = u.timeout {
            self.ping_pong.set_timeout(ack_timeout(timeout), &mut self.requester.timers);
        }
        self.requester.update(u);
    }

    fn write_send(&mut self, wr: &SendWr<'_>) -> Result<(), PostError> {
        if !self.state.sends() && !self.flushes() {
            return Err(PostError::State);
        }
        self.requester.queue.write(wr, self.requester.sig_all())
    }

    fn ring_doorbell(&mut self, now: Instant, host: &mut impl Host) {
        self.ping_pong.on_post(now, &mut self.requester.timers);
        match (self.state, &self.link) {
            (QpState::ReadyToSend | QpState::SendQueueDrain, Some(link)) => {
                self.requester.queue.publish(link.mtu, Numbering::Standard);
                self.run_locals(host);
            }
            // Work posted to a queue pair in the error state is flushed at once (IBA 10.3.1.6).
            (QpState::Error, _) if self.flushes() => self.requester.flush(Status::WrFlushErr, self.qpn, host),
            _ => {}
        }
    }

    fn post_recv(&mut self, wr: &RecvWr<'_>, host: &mut impl Host) -> Result<(), PostError> {
        if self.state == QpState::Reset || self.is_halted() {
            return Err(PostError::State);
        }
        self.responder.receives.post(wr)?;
        if self.flushes() {
            self.responder.receives.flush(None, host);
        }
        Ok(())
    }

    fn handle_packet(&mut self, now: Instant, packet: &Inbound<'_>, host: &mut impl Host) -> bool {
        let opcode = packet.bth.opcode;
        let is_response = opcode.is_response();
        if self.requester.congestion.on_packet(now, packet, host) {
            return true;
        }
        self.note_established(host);
        let Some(link) = &self.link else { return false };
        if is_response {
            if !self.state.sends() {
                return false;
            }
            let done = match packet.ext.aeth {
                Some(aeth) if opcode == Opcode::RC_ACKNOWLEDGE => {
                    self.requester.handle_aeth(now, packet.bth.psn, aeth, link, host)
                }
                _ => self.requester.handle_data(now, packet, link, host),
            };
            if let Err(f) = done {
                self.on_request_failure(f, host);
            }
            self.check_drained(host);
        } else if self.state.receives() {
            // The peer waits for more than one answer, or continues without it.
            self.requester.timers.stop(Timer::AckDelay);
            let before = self.responder.messages();
            let done = self.responder.handle_request(packet, link, host);
            if self.responder.messages() != before {
                match opcode.kind().is_answered_by_data() {
                    true => self.ping_pong.on_data_request(),
                    false => {
                        let may_wait = self.responder.owes_ack_only() && !self.prompt_acks;
                        self.ping_pong.on_message(now, may_wait, &mut self.requester.timers);
                    }
                }
            }
            if let Err(f) = done {
                self.on_response_failure(f, host);
            }
        }
        self.check_invariants();
        // A request of the peer has no effect on the local requests.
        is_response || self.responder.has_answer() || self.owes_notification()
    }

    fn poll_transmit(&mut self, now: Instant, tx: &mut TxFrame<'_>, host: &mut impl Host) -> bool {
        if self.owes_notification() && self.transmit_notification(now, tx, host) {
            return true;
        }
        if self.requester.congestion.has_credit() && self.transmit_credit(now, tx, 0, host) {
            return true;
        }
        // The reply to a message is sent before the acknowledgement of that message, because the peer's program waits for the reply. Only
        // one packet, so that a long message does not delay the acknowledgement.
        if self.responder.owes_ack_only() && !self.ack_passed && !self.prompt_acks {
            if self.transmit_request(now, tx, host) {
                self.ack_passed = true;
                self.release_ack();
                return true;
            }
            if self.ping_pong.holds(now, &mut self.requester.timers) {
                return false;
            }
        }
        // Request packets and READ responses alternate. Otherwise continuous READs of the peer would block all requests.
        if self.requests_turn && self.requester.has_something() && self.transmit_request(now, tx, host) {
            return true;
        }
        // Other answers go first: the peer waits for them, and a queue pair that stopped still owes its NAK.
        if self.responder.has_answer() {
            let (sent, ends) = self.transmit_answer(now, tx, host);
            if sent || ends {
                return sent;
            }
        }
        self.transmit_request(now, tx, host)
    }

    fn poll_timeout(&self) -> Option<Instant> {
        self.requester.timers.next()
    }

    fn handle_timeout(&mut self, now: Instant, host: &mut impl Host) {
        self.ping_pong.holds(now, &mut self.requester.timers);
        self.requester.timers.take_expired(Timer::Pacing, now);
        self.expire_credit(now, host);
        if !self.state.sends() {
            return;
        }
        if let Err(f) = self.requester.handle_timeout(now, host) {
            self.on_request_failure(f, host);
        }
        self.check_invariants();
    }

    fn fail(&mut self, host: &mut impl Host) {
        self.stop(Status::WrFlushErr, host);
    }

    fn set_congestion_control(&mut self, cc: Option<Box<dyn CongestionControl>>) -> Result<(), NoCongestionControl> {
        self.requester.congestion.set_controller(cc);
        Ok(())
    }

    fn use_credit(&mut self, config: Option<EqdsConfig>) -> Result<(), NoCongestionControl> {
        self.requester.congestion.set_credit(config);
        Ok(())
    }

    fn offers_credit(&self) -> bool {
        self.requester.congestion.has_credit()
    }

    fn on_credit_negotiation(&mut self, outcome: Option<&NegotiationOutcome>) {
        self.agree_on_credit(outcome);
    }

    #[inline]
    fn takes(&self, service: Service) -> bool {
        service == Service::Xp && self.requester.congestion.has_credit()
    }

    fn release_ack(&mut self) {
        self.requester.timers.stop(Timer::AckDelay);
    }

    #[inline]
    fn prefetch_work(&self) {
        self.requester.queue.prefetch();
    }

    /// Requests wait for the outcome of a negotiation; answers do not.
    fn on_negotiation(&mut self, outcome: Option<&NegotiationOutcome>, _: Option<Duration>) {
        self.held = outcome.is_none();
        match outcome {
            // This outcome may be reported more than once.
            Some(NegotiationOutcome::Agreed(_)) => _ = self.requester.probe.get_or_insert_default(),
            _ => self.requester.probe = None,
        }
    }

    #[inline]
    fn expected_psns(&self) -> ExpectedPsns {
        ExpectedPsns { request: Some(self.responder.expected()), response: self.requester.awaited_response() }
    }

    fn on_shim_sent(&mut self, now: Instant, tx: &TxFrame<'_>) {
        self.count_for_pacing(now, tx);
    }

    fn on_shim_marked(&mut self, now: Instant) {
        self.requester.congestion.on_marked_of_shim(now);
    }

    fn outstanding_sends(&self) -> Option<OutstandingSends<'_>> {
        Some(self.requester.outstanding())
    }

    fn outstanding_recvs(&self) -> Option<OutstandingRecvs<'_>> {
        self.responder.receives.outstanding()
    }

    fn take_recvs(&mut self, take: impl FnMut(&RecvWr<'_>)) -> Result<u32, RecvsKept> {
        let in_use = self.state.receives() && self.responder.is_filling_receive();
        self.responder.receives.take_all(in_use, take)
    }

    fn next_psns(&self) -> Option<NextPsns> {
        let connected = self.link.is_some();
        connected.then(|| NextPsns { send: self.requester.window.next, receive: self.responder.expected() })
    }

    fn hasten_acks(&mut self, messages: u8) {
        self.requester.hastened = messages;
    }

    fn halt(&mut self) -> bool {
        if self.state.receives() {
            self.halt_with(Status::WrFlushErr);
        }
        self.is_halted()
    }

    fn is_halted(&self) -> bool {
        self.halted.is_some()
    }

    fn vitals(&self) -> Vitals {
        let requester = Vitals { answered: self.responder.expected().value(), ..self.requester.vitals() };
        self.responder.receives.vitals(requester)
    }
}
