//! Unreliable connection: messages of any length, none of them acknowledged (IBA 9.8.2).
//!
//! A congestion controller paces the packets, and gets its signals from CNPs. Packets are not acknowledged, so the amount in flight is
//! unknown: the window of a controller never limits it, and no round-trip time is measured.

use softnic_wire::opcode::{Kind, Position, Service};
use softnic_wire::segment::{MAX_MESSAGE, Reassembly};
use softnic_wire::{Instant, PathMtu, Psn, Qpn, Template, TxFrame};

use crate::completion::Arrival;
use crate::congestion::{CongestionControl, CongestionPoint};
use crate::memory::{Access, Region};
use crate::message::{self, Link, Which};
use crate::planted::{Bug, planted};
use crate::posting::{Operations, RecvRules, SendRules, Supported};
use crate::qp::{Config, NoCongestionControl, PathProps, PayloadMode, ReceiveAttr, SendAttr, Update};
use crate::timers::{Timer, TimerTable};
use crate::unreliable::Common;
use crate::{Host, Inbound, PostError, QpState, QueuePair, RecvWr, SendWr, Status, Vitals};

/// A queue pair of an unreliable connection.
pub struct Uc {
    pub(crate) common: Common,
    payload: PayloadMode,
    pub(crate) link: Option<Link>,
    pub(crate) expected: Psn,
    pub(crate) message: Reassembly,
    /// The message in progress is incomplete: no packet is accepted before the next message starts.
    dropping: bool,
    /// The destination of the WRITE in progress.
    target: (u64, u32),
    pub(crate) congestion: CongestionPoint,
    timers: TimerTable,
}

/// The consequence of a packet that cannot be accepted.
pub(crate) enum Refusal {
    /// The message is dropped silently.
    Drop,
    /// The receive cannot be used: it completes with this status, and the queue pair stops.
    Receive(Status),
    /// A completion was lost.
    CqOverflow,
}

impl Uc {
    /// The work requests that UC supports.
    const SUPPORTED: Supported = Supported { operations: Operations::Unanswered, deadlines: false };

    /// Creates a queue pair in the reset state.
    pub fn new(c: &Config) -> Uc {
        Uc::supporting(c, Self::SUPPORTED)
    }

    /// Creates a queue pair in the reset state, as the part of a transport that supports these work requests.
    pub(crate) fn supporting(c: &Config, supported: Supported) -> Uc {
        Uc {
            common: Common::new(c, supported, SendRules::new(&c.caps, supported)),
            payload: c.payload,
            link: None,
            expected: Psn::new(0),
            message: Reassembly::new(PathMtu::B256),
            dropping: false,
            target: (0, 0),
            congestion: CongestionPoint::default(),
            timers: TimerTable::default(),
        }
    }

    /// Handles a packet. A gap ends the message in progress. The next FIRST or ONLY is accepted whatever its PSN is, because the missing
    /// packets are not sent again (IBA 9.8.2.2.1).
    fn receive(&mut self, packet: &Inbound<'_>, host: &mut impl Host) {
        let psn = packet.bth.psn;
        let starts = matches!(packet.bth.opcode.position(), Position::First | Position::Only);
        if psn != self.expected {
            host.counters().out_of_sequence += 1;
            host.misfits().psn += 1;
        }
        if starts {
            self.lose_message(host);
            self.dropping = false;
        } else if self.dropping || psn != self.expected && !planted(Bug::UcMixes) {
            self.lose_message(host);
            return;
        }
        self.expected = psn.next();
        match self.take(packet, host) {
            Ok(()) => {}
            Err(Refusal::Drop) => self.lose_message(host),
            Err(refusal) => self.stop(refusal, host),
        }
    }

    /// Stops the queue pair, unless the packet was only dropped.
    pub(crate) fn stop(&mut self, refusal: Refusal, host: &mut impl Host) {
        match refusal {
            Refusal::Drop => {}
            Refusal::Receive(status) => self.common.fail(Some(status), host),
            Refusal::CqOverflow => self.common.stop_fatally(host),
        }
    }

    /// The message in progress is lost. A shared receive is returned for the next message of any queue pair.
    #[inline]
    fn lose_message(&mut self, host: &mut impl Host) {
        self.abandon();
        self.common.receives.give_back(host);
    }

    /// Abandons the message in progress; its receive is free for the next one.
    pub(crate) fn abandon(&mut self) {
        if let Some(link) = &self.link {
            self.message = Reassembly::new(link.mtu);
        }
        self.dropping = true;
    }

    fn take(&mut self, packet: &Inbound<'_>, host: &mut impl Host) -> Result<(), Refusal> {
        let Some(link) = self.link else { return Err(Refusal::Drop) };
        let opcode = packet.bth.opcode;
        let Ok(place) = self.message.accept(opcode, packet.payload_len, packet.ext.reth.map(|r| r.len)) else {
            host.counters().resp_remote_invalid_request += 1;
            return Err(Refusal::Drop);
        };
        let is_send = opcode.kind() == Kind::Send;
        let receives = &mut self.common.receives;
        // A SEND takes its receive with the first packet, a WRITE with immediate with its last one.
        if (is_send && place.offset == 0 || packet.ext.imm.is_some()) && receives.lacks_receive(is_send, host) {
            host.counters().out_of_buffer += 1;
            return Err(Refusal::Drop);
        }
        if receives.are_in_sink()
            && let (Some(imm), Some(reth)) = (packet.ext.imm, packet.ext.reth)
        {
            let (qpn, byte_len, solicited) = (link.qpn, packet.payload_len, packet.bth.solicited);
            let arrival = Arrival { qpn, imm, remote_addr: reth.va, rkey: reth.rkey, byte_len, solicited };
            let cq = receives.cq;
            if !host.admits(cq, &arrival) {
                return Err(Refusal::Drop);
            }
            self.place_write(packet, place.offset, &link, host)?;
            host.counters().rx_write_requests += 1;
            host.arrived(cq, &arrival);
            return Ok(());
        }
        if is_send {
            let Some(receive) = receives.head(host) else { return Err(Refusal::Drop) };
            if u64::from(place.offset) + u64::from(packet.payload_len) > receive.capacity {
                host.counters().resp_local_length_error += 1;
                return Err(Refusal::Drop);
            }
            let placed = receives.scatter(&receive, u64::from(place.offset), packet.payload, &*host);
            placed.map_err(|_| Refusal::Receive(Status::LocProtErr))?;
        } else {
            self.place_write(packet, place.offset, &link, host)?;
        }
        if !place.complete {
            return Ok(());
        }
        self.common.receives.end_message(packet, place.offset, host).map_err(|_| Refusal::CqOverflow)
    }

    /// Places the payload of a WRITE. If the peer may not access the memory, nothing is written; the message is dropped, and the connection
    /// continues (IBA 9.9.3: class D).
    pub(crate) fn place_write(
        &mut self,
        packet: &Inbound<'_>,
        offset: u32,
        link: &Link,
        host: &mut impl Host,
    ) -> Result<(), Refusal> {
        let region = |(addr, key): (u64, u32), offset: u32| Region {
            qpn: link.qpn,
            pd: link.pd,
            key,
            addr: addr.wrapping_add(u64::from(offset)),
            access: Access::REMOTE_WRITE,
        };
        if let Some(reth) = packet.ext.reth {
            if !link.access.allows(Access::REMOTE_WRITE) || reth.len > MAX_MESSAGE {
                host.counters().resp_remote_invalid_request += 1;
                return Err(Refusal::Drop);
            }
            self.target = (reth.va, reth.rkey);
            // The whole range is checked before a byte of it is written. If this packet is the whole range, the write itself checks it.
            let is_all = reth.len as usize == packet.payload.len();
            if !is_all && host.check(region(self.target, 0), u64::from(reth.len)).is_err() {
                host.count_access_error();
                return Err(Refusal::Drop);
            }
        }
        host.write(region(self.target, offset), packet.payload).map_err(|_| {
            host.count_access_error();
            Refusal::Drop
        })
    }

    /// Writes the next packet, of UC or of a service whose messages are segmented as those of UC.
    #[inline]
    pub(crate) fn transmit(
        &mut self,
        now: Instant,
        tx: &mut TxFrame<'_>,
        host: &mut impl Host,
        service: Service,
    ) -> bool {
        let Some(link) = &self.link else { return false };
        if self.congestion.owes_notification() {
            let receives = self.common.state.receives();
            let link = Some(link).filter(|_| receives);
            if self.congestion.transmit_notification(now, tx, link, host) {
                return true;
            }
        }
        if self.congestion.is_controlled() {
            let until = self.congestion.pacing(now).filter(|_| self.common.has_something());
            self.timers.set_or_stop(Timer::Pacing, until);
            if until.is_some() {
                return false;
            }
        }
        let sent = self.common.send_next(tx, host, |tx, due, host| {
            let which = Which { service, index: due.index, psn: due.psn, ack_req: false };
            message::emit(tx, link, which, due.slot, due.source, host).map_err(|_| Status::LocProtErr)
        });
        if sent {
            self.congestion.on_sent(now, tx);
        }
        sent
    }
}

impl QueuePair for Uc {
    fn send_rules(&self) -> &SendRules {
        self.common.send_rules()
    }

    fn recv_rules(&self) -> &RecvRules {
        self.common.receives.rules()
    }

    fn qpn(&self) -> Qpn {
        self.common.qpn
    }

    fn state(&self) -> QpState {
        self.common.state
    }

    fn reset(&mut self) {
        self.common.reset();
        (self.link, self.timers) = (None, TimerTable::default());
        self.congestion.reset();
    }

    fn init(&mut self) {
        self.common.state = QpState::Init;
    }

    fn ready_to_receive(&mut self, connection: Option<&ReceiveAttr>, _: &PathProps) {
        let Some(a) = connection else { return };
        self.link = Some(Link {
            qpn: self.common.qpn,
            pd: self.common.pd,
            template: Template::new(&a.path, a.dest_qp, a.pkey),
            mtu: a.mtu,
            access: a.access,
            payload: self.payload,
        });
        (self.expected, self.message, self.dropping) = (a.rq_psn, Reassembly::new(a.mtu), false);
        self.common.state = QpState::ReadyToReceive;
    }

    fn ready_to_send(&mut self, a: &SendAttr) {
        self.common.ready_to_send(a.sq_psn);
    }

    fn drain(&mut self, notify: bool, host: &mut impl Host) {
        self.common.drain(notify, host);
    }

    fn resume(&mut self) {
        self.common.state = QpState::ReadyToSend;
    }

    fn is_drained(&mut self) -> bool {
        self.common.is_drained()
    }

    fn update(&mut self, u: &Update) {
        if let Some(link) = &mut self.link {
            link.access = u.access.unwrap_or(link.access);
            link.template = u.template.unwrap_or(link.template);
        }
    }

    fn write_send(&mut self, wr: &SendWr<'_>) -> Result<(), PostError> {
        self.common.write_send(wr)
    }

    fn ring_doorbell(&mut self, _now: Instant, host: &mut impl Host) {
        let mtu = self.link.map_or(PathMtu::B256, |link| link.mtu);
        self.common.ring_doorbell(mtu, host);
    }

    fn post_recv(&mut self, wr: &RecvWr<'_>, host: &mut impl Host) -> Result<(), PostError> {
        self.common.post_recv(wr, host)
    }

    fn handle_packet(&mut self, now: Instant, packet: &Inbound<'_>, host: &mut impl Host) -> bool {
        let notified = self.congestion.on_packet(now, packet, host);
        if !notified && self.common.state.receives() {
            self.common.note_arrival(host);
            self.receive(packet, host);
        }
        self.common.check_invariants();
        // No packet is answered otherwise; but the pace may have changed.
        notified && self.congestion.is_controlled() || self.congestion.owes_notification()
    }

    fn poll_transmit(&mut self, now: Instant, tx: &mut TxFrame<'_>, host: &mut impl Host) -> bool {
        self.transmit(now, tx, host, Service::Uc)
    }

    fn poll_timeout(&self) -> Option<Instant> {
        self.timers.next()
    }

    fn handle_timeout(&mut self, now: Instant, _host: &mut impl Host) {
        self.timers.take_expired(Timer::Pacing, now);
    }

    fn fail(&mut self, host: &mut impl Host) {
        self.common.fail(None, host);
    }

    fn fail_sends(&mut self, host: &mut impl Host) -> bool {
        self.common.fail_sends(host)
    }

    fn vitals(&self) -> Vitals {
        let (_, rate) = self.congestion.limits();
        Vitals { requested: self.common.next, answered: self.expected.value(), rate, ..self.common.vitals() }
    }

    /// The controller determines the pace; its window has no effect.
    fn set_congestion_control(&mut self, cc: Option<Box<dyn CongestionControl>>) -> Result<(), NoCongestionControl> {
        self.congestion.set_controller(cc);
        Ok(())
    }
}
