//! XP as the NIC sees it: its states, the effects of the negotiation, and the half that handles each call.

use std::mem;

use softnic_wire::Qpn;

use super::feedback::Limit;
use super::*;
use crate::congestion::{CongestionControl, EqdsConfig, longest_frame};
use crate::negotiation::NegotiationOutcome;
use crate::posting::RecvRules;
use crate::qp::{NoCongestionControl, ReceiveAttr, SendAttr, Update, earlier};
use crate::rc::FlightLimit;
use crate::send_queue::Numbering;
use crate::{PostError, RecvWr, SendWr, Vitals};

impl Xp {
    /// Applies the outcome of the negotiation, once there is one and requests can be sent.
    fn decide(&mut self) {
        let (Some(agreed), true, Some(link)) = (self.rest.outcome, self.state.sends(), &self.link) else { return };
        let mtu = link.mtu;
        let Rest { standard, choice, unkept, .. } = &mut *self.rest;
        match (agreed, *choice, &mut *standard) {
            (Ok(()), Choice::Waiting, _) => *choice = Choice::Agreed,
            // The answer arrived late; too late, if requests of the standard were sent.
            (Ok(()), Choice::Standard(_), Some(below)) if below.is_untouched() => {
                *choice = Choice::Agreed;
                below.sends_mut().unpublish();
                below.sends_mut().keep_deadlines(true);
                below.receives_mut().keep_deadlines(true);
                mem::swap(below.sends_mut(), &mut self.sender.queue);
                mem::swap(below.congestion_mut(), &mut self.congestion);
                self.sender.queue.publish(mtu, Numbering::Apart);
            }
            (Err(reason), Choice::Waiting, Some(below)) => {
                *choice = Choice::Standard(reason);
                // Work with a deadline would lose its deadline.
                let bound = self.sender.queue.first_deadline().or(below.receives().first_deadline());
                *unkept = bound.is_some();
                self.sender.queue.unpublish();
                mem::swap(below.sends_mut(), &mut self.sender.queue);
                mem::swap(below.congestion_mut(), &mut self.congestion);
                below.sends_mut().publish(mtu, Numbering::Standard);
                below.sends_mut().keep_deadlines(false);
                below.receives_mut().keep_deadlines(false);
            }
            (Err(reason), Choice::Standard(_), _) => *choice = Choice::Standard(reason),
            _ => {}
        }
        self.drop_standard();
        // The controller may have moved with the sends.
        if self.limited != (self.rest.flight.is_some() || self.congestion.is_controlled() || self.is_credited()) {
            self.follow_controller();
        }
        self.refresh();
    }

    /// The first packet of XP has arrived: the receives are taken from the standard's queue pair, which accepts no more requests.
    pub(super) fn take_receives(&mut self) {
        let Rest { standard, config, .. } = &mut *self.rest;
        let Some(standard) = standard else { return };
        self.receives = Some(mem::replace(standard.receives_mut(), Receives::none(config)));
        self.drop_standard();
    }

    /// Drops the standard's queue pair when it is not needed any more.
    fn drop_standard(&mut self) {
        if self.receives.is_some() && self.rest.choice == Choice::Agreed {
            self.rest.standard = None;
        }
    }

    /// The standard's queue pair may have stopped.
    fn follow_standard(&mut self, host: &mut impl Host) {
        let Some(standard) = &self.rest.standard else { return };
        match either!(standard, qp => qp.state()) {
            QpState::Error if self.state != QpState::Error => self.stop(None, None, host),
            QpState::SendQueueError if self.state.sends() => self.state = QpState::SendQueueError,
            _ => {}
        }
        self.refresh();
    }

    /// The peer's first message can arrive before the last message of the connection manager (IBA 12.9.6).
    fn note_established(&mut self, host: &mut impl Host) {
        if self.state == QpState::ReadyToReceive && !self.established {
            self.established = true;
            host.notify(Event::CommEst(self.sender.qpn));
        }
    }

    /// Writes the next packet of the standard's queue pair, if one can be sent now.
    #[cold]
    fn transmit_standard(&mut self, now: Instant, tx: &mut TxFrame<'_>, host: &mut impl Host) -> bool {
        if self.is_standard_idle() {
            return false;
        }
        let Some(standard) = &mut self.rest.standard else { return false };
        let sent = either!(standard, qp => qp.poll_transmit(now, tx, host));
        self.follow_standard(host);
        sent
    }

    /// The next timeout besides those of XP's own work.
    #[cold]
    fn poll_other_timeouts(&self) -> Option<Instant> {
        if self.rest.unkept && self.state != QpState::Error {
            return Some(Instant::ZERO);
        }
        let standard = self.rest.standard.as_ref().filter(|_| !self.is_standard_idle())?;
        either!(standard, qp => qp.poll_timeout())
    }

    /// Whether the receiver decides when packets are sent.
    fn is_credited(&self) -> bool {
        self.rest.credit.as_ref().is_some_and(|credit| credit.is_agreed())
    }

    /// Starts or stops collecting feedback, as the controller requires.
    fn follow_controller(&mut self) {
        let usual = |mtu| u64::from(FlightLimit::usual(mtu)) * u64::from(mtu.bytes());
        let credited = self.is_credited();
        let limited = self.rest.config.limit_flight && !credited;
        let limit = self.link.filter(|_| limited).map(|link| Limit::new(usual(link.mtu)));
        let wanted = limit.is_some() || self.congestion.wants_feedback();
        self.rest.flight = wanted.then(|| Box::new(Flight::new(limit)));
        self.limited = self.rest.flight.is_some() || self.congestion.is_controlled() || credited;
    }
}

impl QueuePair for Xp {
    fn send_rules(&self) -> &SendRules {
        match (&self.rest.choice, &self.rest.standard) {
            (Choice::Standard(_), Some(standard)) => either!(standard, qp => qp.send_rules()),
            _ => self.sender.queue.rules(),
        }
    }

    fn recv_rules(&self) -> &RecvRules {
        match (&self.receives, &self.rest.standard) {
            (None, Some(standard)) => standard.receives().rules(),
            (Some(receives), _) => receives.rules(),
            (None, None) => &RecvRules::NONE,
        }
    }

    fn qpn(&self) -> Qpn {
        self.sender.qpn
    }

    fn state(&self) -> QpState {
        self.state
    }

    fn reset(&mut self) {
        if let (Choice::Standard(_), Some(standard)) = (self.rest.choice, &mut self.rest.standard) {
            mem::swap(standard.sends_mut(), &mut self.sender.queue);
            mem::swap(standard.congestion_mut(), &mut self.congestion);
            self.sender.queue.keep_deadlines(true);
        }
        self.state = QpState::Reset;
        (self.established, self.tell_drained, self.requests_turn, self.standard_took) = (false, false, false, false);
        self.answers = false;
        self.sender.reset();
        (self.receiver, self.receives, self.link, self.paced) = (Receiver::new(0), None, None, NEVER);
        self.congestion.reset();
        let mut credit = self.rest.credit.take();
        credit.iter_mut().for_each(|credit| credit.reset());
        *self.rest = Rest { credit, ..Rest::new(&self.rest.config, &self.settings) };
        self.follow_controller();
        self.refresh();
    }

    fn init(&mut self) {
        self.state = QpState::Init;
        if let Some(standard) = &mut self.rest.standard {
            either!(standard, qp => qp.init());
        }
    }

    fn ready_to_receive(&mut self, connection: Option<&ReceiveAttr>, props: &PathProps) {
        let Some(a) = connection else { return };
        let Config { qpn, pd, payload, .. } = self.rest.config;
        let template = Template::new(&a.path, a.dest_qp, a.pkey);
        let link = Link { qpn, pd, template, mtu: a.mtu, access: a.access, payload };
        self.link = Some(link);
        (self.rest.jobs, self.answers) = (Jobs::new(a.max_dest_rd_atomic), false);
        self.receiver = Receiver::new(a.rq_psn.value());
        if let Some(credit) = &mut self.rest.credit {
            credit.connect(qpn, a.dest_qp, props.port, longest_frame(&link));
        }
        if let Some(standard) = &mut self.rest.standard {
            either!(standard, qp => qp.ready_to_receive(connection, props));
        }
        self.follow_controller();
        self.state = QpState::ReadyToReceive;
        self.refresh();
    }

    fn ready_to_send(&mut self, a: &SendAttr) {
        self.sender.start(a.sq_psn, a.max_rd_atomic);
        if let Some(standard) = &mut self.rest.standard {
            either!(standard, qp => qp.ready_to_send(a));
        }
        self.state = QpState::ReadyToSend;
        self.decide();
    }

    fn drain(&mut self, notify: bool, host: &mut impl Host) {
        self.state = QpState::SendQueueDrain;
        if let (false, Some(standard)) = (self.sends_own(), &mut self.rest.standard) {
            return either!(standard, qp => qp.drain(notify, host));
        }
        self.tell_drained = notify;
        self.check_drained(host);
    }

    fn resume(&mut self) {
        self.state = QpState::ReadyToSend;
        if let (false, Some(standard)) = (self.sends_own(), &mut self.rest.standard) {
            either!(standard, qp => qp.resume());
        }
        self.decide();
    }

    fn is_drained(&mut self) -> bool {
        match (self.sends_own(), &mut self.rest.standard) {
            (false, Some(standard)) => either!(standard, qp => qp.is_drained()),
            _ => self.sender.is_drained(),
        }
    }

    fn update(&mut self, u: &Update) {
        if let Some(link) = &mut self.link {
            link.access = u.access.unwrap_or(link.access);
            link.template = u.template.unwrap_or(link.template);
        }
        if let Some(standard) = &mut self.rest.standard {
            either!(standard, qp => qp.update(u));
        }
    }

    fn fail(&mut self, host: &mut impl Host) {
        self.stop(None, None, host);
    }

    fn write_send(&mut self, wr: &SendWr<'_>) -> Result<(), PostError> {
        if matches!(self.state, QpState::Reset | QpState::Init | QpState::ReadyToReceive) {
            return Err(PostError::State);
        }
        match (self.sends_own(), &mut self.rest.standard) {
            (false, Some(standard)) => {
                // Posted before it was known that its deadline cannot be kept, and passed on since. A deadline must never be dropped
                // silently.
                self.rest.unkept |= wr.best_effort.is_some();
                self.settled &= !self.rest.unkept;
                either!(standard, qp => qp.write_send(&SendWr { best_effort: None, ..*wr }))
            }
            _ => self.sender.queue.write(wr, self.sender.sig_all),
        }
    }

    fn ring_doorbell(&mut self, now: Instant, host: &mut impl Host) {
        if let (false, Some(standard)) = (self.sends_own(), &mut self.rest.standard) {
            either!(standard, qp => qp.ring_doorbell(now, host));
            return self.follow_standard(host);
        }
        match (self.state, &self.link) {
            (QpState::Error | QpState::SendQueueError, _) => {
                self.sender.flush(None, host);
                self.refresh();
            }
            (_, Some(link)) => {
                self.sender.queue.publish(link.mtu, Numbering::Apart);
                if self.sender.queue.has_locals() {
                    // Local operations that wait for no packet are executed even if no packet can be sent.
                    let draining = self.state == QpState::SendQueueDrain;
                    if let Err(failure) = self.sender.advance(draining, host) {
                        self.on_send_failure(failure, host);
                    }
                }
                self.refresh();
                if self.due <= now {
                    self.expire(now, host);
                }
            }
            _ => {}
        }
    }

    fn post_recv(&mut self, wr: &RecvWr<'_>, host: &mut impl Host) -> Result<(), PostError> {
        if self.state == QpState::Reset {
            return Err(PostError::State);
        }
        if wr.best_effort.is_some() && !self.sends_own() {
            self.rest.unkept = true;
        }
        let bound = wr.best_effort.filter(|_| self.sends_own());
        let wr = &RecvWr { best_effort: bound, ..*wr };
        let receives = match (&mut self.receives, &mut self.rest.standard) {
            (Some(receives), _) => receives,
            (None, Some(standard)) => standard.receives_mut(),
            (None, None) => return Err(PostError::State),
        };
        receives.post(wr)?;
        if self.state == QpState::Error {
            receives.flush(None, host);
        }
        self.refresh();
        Ok(())
    }

    fn handle_packet(&mut self, now: Instant, packet: &Inbound<'_>, host: &mut impl Host) -> bool {
        let due = self.due;
        if due <= now {
            self.expire(now, host);
        }
        if !self.state.receives() {
            return false;
        }
        let opcode = packet.bth.opcode;
        // A request of the peer has no effect on the local requests.
        let mut may_send = true;
        match opcode.service() {
            Service::Xp => {
                self.congestion.on_packet(now, packet, host);
                self.note_established(host);
                self.handle_own(now, packet, host);
                may_send = opcode.is_response();
                if self.due != NEVER || self.receiver.is_bounded() {
                    self.refresh();
                }
            }
            Service::Cnp if self.sends_own() => {
                self.congestion.on_packet(now, packet, host);
            }
            _ => {
                let own = self.sends_own();
                // In each direction, one kind of requests and answers is used.
                let other = if opcode.is_response() { own } else { self.receives.is_some() };
                match &mut self.rest.standard {
                    Some(standard) if !other || opcode.service() == Service::Cnp => {
                        self.standard_took = true;
                        either!(standard, qp => qp.handle_packet(now, packet, host));
                        self.follow_standard(host);
                    }
                    _ => host.counters().rx_malformed += 1,
                }
            }
        }
        self.check_invariants();
        let answers = self.answers || self.receiver.asked.is_some() || self.congestion.owes_notification();
        answers
            || !self.settled
            || self.limited
            || self.due != due
            || may_send && self.sender.queue.get(self.sender.cursor).is_some()
    }

    fn poll_transmit(&mut self, now: Instant, tx: &mut TxFrame<'_>, host: &mut impl Host) -> bool {
        if self.due <= now {
            self.expire(now, host);
        }
        if !self.settled && self.transmit_standard(now, tx, host) {
            return true;
        }
        let sent = self.transmit_own(now, tx, host);
        // If no work has a deadline yet, only the request of a READ can add one.
        if self.limited || self.due != NEVER || self.sender.reads.outstanding > 0 {
            self.refresh();
        }
        self.check_invariants();
        sent
    }

    fn poll_timeout(&self) -> Option<Instant> {
        let own = Some(self.due).filter(|&at| at != NEVER);
        if self.settled { own } else { earlier(own, self.poll_other_timeouts()) }
    }

    fn handle_timeout(&mut self, now: Instant, host: &mut impl Host) {
        if self.rest.unkept {
            return self.stop(None, None, host);
        }
        if self.paced <= now {
            self.paced = NEVER;
        }
        self.expire(now, host);
        if let Some(standard) = &mut self.rest.standard {
            either!(standard, qp => qp.handle_timeout(now, host));
            self.follow_standard(host);
        }
    }

    #[inline]
    fn takes(&self, service: Service) -> bool {
        service == Service::Xp
    }

    fn set_congestion_control(&mut self, cc: Option<Box<dyn CongestionControl>>) -> Result<(), NoCongestionControl> {
        if let (false, Some(standard)) = (self.sends_own(), &mut self.rest.standard) {
            return either!(standard, qp => qp.set_congestion_control(cc));
        }
        self.congestion.set_controller(cc);
        self.paced = NEVER;
        self.follow_controller();
        self.refresh();
        Ok(())
    }

    fn use_credit(&mut self, config: Option<EqdsConfig>) -> Result<(), NoCongestionControl> {
        self.rest.credit = config.map(|config| Box::new(Credit::new(config)));
        self.follow_controller();
        self.refresh();
        Ok(())
    }

    fn offers_credit(&self) -> bool {
        self.rest.credit.is_some()
    }

    fn release_ack(&mut self) {
        if let Some(standard) = &mut self.rest.standard {
            either!(standard, qp => qp.release_ack());
        }
    }

    fn on_negotiation(&mut self, outcome: Option<&NegotiationOutcome>, _: Option<Duration>) {
        self.rest.outcome = outcome.map(|outcome| match outcome {
            NegotiationOutcome::Agreed(_) => Ok(()),
            NegotiationOutcome::Standard(reason) => Err(*reason),
        });
        if let Some(credit) = &mut self.rest.credit {
            let of = |outcome: &NegotiationOutcome| match outcome {
                NegotiationOutcome::Agreed(agreed) => agreed.extensions.contains(Extensions::EQDS),
                NegotiationOutcome::Standard(_) => false,
            };
            credit.set_agreed(outcome.is_some_and(of));
            self.follow_controller();
        }
        self.decide();
    }

    fn choice(&self) -> Option<Choice> {
        Some(self.rest.choice)
    }

    fn vitals(&self) -> Vitals {
        if let (false, Some(standard)) = (self.sends_own(), &self.rest.standard) {
            return either!(standard, qp => qp.vitals());
        }
        let (window, rate) = self.congestion.limits();
        let credit = self.rest.credit.as_ref().filter(|credit| credit.is_agreed());
        let congestion_window = credit.map(|credit| credit.room().into()).or(window);
        let receives = self.receives.as_ref().or(self.rest.standard.as_ref().map(Standard::receives));
        let base = self.sender.queue.vitals();
        let base = receives.map_or(base, |receives| receives.vitals(base));
        let requested = u64::from(self.sender.sent());
        let late_packets = self.receiver.late.wrapping_add(self.sender.reads.late);
        Vitals { requested, answered: self.receiver.taken(), late_packets, congestion_window, rate, ..base }
    }
}
