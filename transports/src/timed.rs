//! Timed: an unreliable connection with deadlines, the example of docs/adding-a-transport.md, behind the feature `timed`.
//!
//! Messages are cut and sent as those of [`Uc`]. With a peer that agreed, each packet says to which message it belongs and where in it
//! ([`TimedEth`]), so that a gap costs the missing bytes and not the message; with another peer the packets are those of UC.
//!
//! - A receive whose message is not whole at the deadline completes with the bytes that were placed. Receives complete in the order in
//!   which they were posted: a deadline comes due when the receives before it are done.
//! - A SEND that lacks packets makes room for the next message when that begins: [`PartialReason::Superseded`]. A WRITE that lacks
//!   packets is dropped as with UC, and so is a packet that comes after a later one of its message.
//! - A send of which packets are left at the deadline leaves the queue, and completes with the bytes that were sent.

use std::time::Duration;

use softnic_wire::mad::vendor::{Extensions, Settings};
use softnic_wire::opcode::{Kind, Service};
use softnic_wire::timed::TimedEth;
use softnic_wire::{Instant, Qpn, TxFrame};

use crate::congestion::CongestionControl;
use crate::negotiation::{Extension, NegotiationOutcome, Offer};
use crate::posting::{Operations, RecvRules, SendRules, Supported};
use crate::qp::{Config, NoCongestionControl, PathProps, ReceiveAttr, SendAttr, Update, earlier};
use crate::send_queue::completion;
use crate::uc::{Refusal, Uc};
use crate::unreliable::Common;
use crate::{
    Completion, CqOverflow, Host, Inbound, PartialReason, PostError, QpState, QueuePair, RecvWr, SendWr, Status,
    WcOpcode,
};

/// What the negotiation needs to know: there are no settings.
pub(crate) const EXTENSION: Extension = Extension { bit: Extensions::TIMED, range: 0..0, is_usable: |_| true };

/// The offer of every queue pair.
pub(crate) fn offer() -> Offer {
    Offer { extensions: Extensions::TIMED, settings: Settings::NONE }
}

/// A queue pair of an unreliable connection with deadlines.
pub struct Timed {
    uc: Uc,
    /// What the next message is sent by; `None` while the peer has not answered.
    wanted: Option<Service>,
    /// What the message under way is sent by.
    service: Service,
    /// The message of Timed that packets are missing of.
    open: Option<Open>,
    /// Messages with a lower number are over.
    over: u32,
    /// The last message of UC was a SEND.
    plain_send: bool,
}

/// A message of which not all packets have come.
#[derive(Clone, Copy)]
struct Open {
    number: u32,
    is_send: bool,
    /// Bytes that were placed.
    placed: u32,
    /// Where the last packet that was placed ends.
    end: u32,
    /// Bytes that the message has room for.
    limit: u64,
}

impl Timed {
    const SUPPORTED: Supported = Supported { operations: Operations::Unanswered, deadlines: true };

    /// In the reset state.
    pub(crate) fn new(c: &Config) -> Timed {
        let uc = Uc::supporting(c, Self::SUPPORTED);
        Timed { uc, wanted: None, service: Service::Uc, open: None, over: 0, plain_send: false }
    }

    fn receive(&mut self, packet: &Inbound<'_>, host: &mut impl Host) -> Result<(), Refusal> {
        let (Some(TimedEth { number, offset }), Some(link)) = (packet.ext.timed, self.uc.link) else {
            return Err(Refusal::Drop);
        };
        if packet.bth.psn != self.uc.expected {
            host.counters().out_of_sequence += 1;
        }
        self.uc.expected = packet.bth.psn.next();
        if (number.wrapping_sub(self.over) as i32) < 0 {
            return Err(Refusal::Drop);
        }
        let (opcode, len) = (packet.bth.opcode, packet.payload_len);
        let is_send = opcode.kind() == Kind::Send;
        let mut message = match self.open {
            Some(open) if open.number == number => open,
            _ => self.begin(number, is_send, packet, host)?,
        };
        if message.is_send != is_send || offset < message.end || len > link.mtu.bytes() {
            return Err(Refusal::Drop);
        }
        // Taken up again below, if the packet can be placed and others are missing.
        (self.open, self.over) = (None, number.wrapping_add(1));
        let end = u64::from(offset) + u64::from(len);
        if end > message.limit {
            host.counters().resp_local_length_error += u64::from(is_send);
            return Err(Refusal::Drop);
        }
        if is_send {
            let receives = &mut self.uc.common.receives;
            let Some(receive) = receives.head(host) else { return Err(Refusal::Drop) };
            let placed = receives.scatter(&receive, u64::from(offset), packet.payload, &*host);
            placed.map_err(|_| Refusal::Receive(Status::LocProtErr))?;
        } else {
            self.uc.place_write(packet, offset, &link, host)?;
        }
        message.placed += len;
        message.end = end as u32;
        let whole = message.placed == message.end && (is_send || end == message.limit);
        if !opcode.ends_message() || !whole {
            (self.open, self.over) = (Some(message), number);
            return Ok(());
        }
        let receives = &mut self.uc.common.receives;
        if packet.ext.imm.is_some() && receives.lacks_receive(is_send, host) {
            host.counters().out_of_buffer += 1;
            return Err(Refusal::Drop);
        }
        receives.end_message(packet, offset, host).map_err(|_| Refusal::CqOverflow)
    }

    /// A packet of a message came, and none of it before. The message before it is over.
    fn begin(&mut self, number: u32, is_send: bool, p: &Inbound<'_>, host: &mut impl Host) -> Result<Open, Refusal> {
        self.supersede(host).map_err(|_| Refusal::CqOverflow)?;
        self.uc.abandon();
        let limit = if is_send {
            let Some(receive) = self.uc.common.receives.head(host) else {
                host.counters().out_of_buffer += 1;
                self.over = number.wrapping_add(1);
                return Err(Refusal::Drop);
            };
            receive.capacity
        } else {
            // Without its first packet nobody knows where a WRITE goes.
            p.ext.reth.map_or(0, |reth| u64::from(reth.len))
        };
        Ok(Open { number, is_send, placed: 0, end: 0, limit })
    }

    /// Another message begins: a SEND that lacks packets completes with what is there.
    fn supersede(&mut self, host: &mut impl Host) -> Result<(), CqOverflow> {
        match self.open.take() {
            Some(open) if open.is_send => self.complete_partly(open.placed, PartialReason::Superseded, host),
            _ => Ok(()),
        }
    }

    /// The receive at the head completes with so many bytes.
    fn complete_partly(&mut self, placed: u32, why: PartialReason, host: &mut impl Host) -> Result<(), CqOverflow> {
        let receives = &mut self.uc.common.receives;
        let Some(receive) = receives.pop() else { return Ok(()) };
        let whole = Completion::new(receive.wr_id, Status::Success, WcOpcode::Recv, self.uc.common.qpn);
        host.complete(receives.cq, Completion { byte_len: placed, partial: Some(why), ..whole })
    }

    /// Ends the work whose deadline has come.
    fn expire(&mut self, now: Instant, host: &mut impl Host) {
        let mtu = self.uc.link.map_or(0, |link| link.mtu.bytes());
        let ended = self.expire_receives(now, host).and_then(|()| self.uc.common.expire_sends(now, mtu, host));
        if ended.is_err() {
            self.uc.common.stop_fatally(host);
        }
    }

    fn expire_receives(&mut self, now: Instant, host: &mut impl Host) -> Result<(), CqOverflow> {
        while self.uc.common.receives.head_deadline().is_some_and(|deadline| deadline <= now) {
            let placed = match self.open.take_if(|open| open.is_send) {
                Some(open) => {
                    self.over = open.number.wrapping_add(1);
                    open.placed
                }
                None => self.uc.message.received().filter(|_| self.plain_send).unwrap_or(0),
            };
            if self.plain_send {
                self.uc.abandon();
            }
            self.complete_partly(placed, PartialReason::Deadline, host)?;
        }
        Ok(())
    }
}

impl Common {
    /// The deadline of the oldest send. Operations without packets are carried out whatever theirs is.
    fn send_deadline(&self) -> Option<Instant> {
        let has_packets = self.queue.head().is_some_and(|slot| !slot.is_local());
        has_packets.then(|| self.queue.deadline(self.queue.head_position())).flatten()
    }

    /// Ends the sends whose deadline has come.
    fn expire_sends(&mut self, now: Instant, mtu: u32, host: &mut impl Host) -> Result<(), CqOverflow> {
        while self.send_deadline().is_some_and(|deadline| deadline <= now)
            && let Some(slot) = self.queue.pop()
        {
            let left = ((self.next - slot.first) * u64::from(mtu)).min(u64::from(slot.len));
            self.next = slot.end();
            self.queue.note_end();
            if slot.signaled {
                let partial = Some(PartialReason::Deadline);
                let done = completion(&slot, self.qpn, Status::Success);
                host.complete(self.send_cq, Completion { byte_len: left as u32, partial, ..done })?;
            }
        }
        self.check_drained(host);
        Ok(())
    }
}

impl QueuePair for Timed {
    fn send_rules(&self) -> &SendRules {
        self.uc.send_rules()
    }

    fn recv_rules(&self) -> &RecvRules {
        self.uc.recv_rules()
    }

    fn qpn(&self) -> Qpn {
        self.uc.qpn()
    }

    fn state(&self) -> QpState {
        self.uc.state()
    }

    fn reset(&mut self) {
        self.uc.reset();
        (self.wanted, self.open, self.over) = (None, None, 0);
    }

    fn init(&mut self) {
        self.uc.init();
    }

    fn ready_to_receive(&mut self, connection: Option<&ReceiveAttr>, props: &PathProps) {
        self.uc.ready_to_receive(connection, props);
    }

    fn ready_to_send(&mut self, a: &SendAttr) {
        self.uc.ready_to_send(a);
    }

    fn drain(&mut self, notify: bool, host: &mut impl Host) {
        self.uc.drain(notify, host);
    }

    fn resume(&mut self) {
        self.uc.resume();
    }

    fn is_drained(&mut self) -> bool {
        self.uc.is_drained()
    }

    fn update(&mut self, u: &Update) {
        self.uc.update(u);
    }

    fn fail(&mut self, host: &mut impl Host) {
        self.uc.fail(host);
    }

    fn write_send(&mut self, wr: &SendWr<'_>) -> Result<(), PostError> {
        self.uc.write_send(wr)
    }

    fn ring_doorbell(&mut self, now: Instant, host: &mut impl Host) {
        self.uc.ring_doorbell(now, host);
    }

    fn post_recv(&mut self, wr: &RecvWr<'_>, host: &mut impl Host) -> Result<(), PostError> {
        self.uc.post_recv(wr, host)
    }

    fn handle_packet(&mut self, now: Instant, packet: &Inbound<'_>, host: &mut impl Host) -> bool {
        let due = self.poll_timeout();
        self.expire(now, host);
        let active = match packet.bth.opcode.service() {
            Service::Timed => {
                self.uc.congestion.on_packet(now, packet, host);
                if self.uc.state().receives() {
                    self.uc.common.note_arrival(host);
                    if let Err(refusal) = self.receive(packet, host) {
                        self.uc.stop(refusal, host);
                    }
                }
                self.uc.common.check_invariants();
                self.uc.congestion.owes_notification()
            }
            Service::Uc => {
                self.plain_send = packet.bth.opcode.kind() == Kind::Send;
                if self.supersede(host).is_err() {
                    self.uc.common.stop_fatally(host);
                }
                self.uc.handle_packet(now, packet, host)
            }
            _ => self.uc.handle_packet(now, packet, host),
        };
        active || due != self.poll_timeout()
    }

    fn poll_transmit(&mut self, now: Instant, tx: &mut TxFrame<'_>, host: &mut impl Host) -> bool {
        self.expire(now, host);
        let Some(wanted) = self.wanted else { return false };
        if self.uc.is_drained() {
            self.service = wanted;
        }
        self.uc.transmit(now, tx, host, self.service)
    }

    fn poll_timeout(&self) -> Option<Instant> {
        let Common { receives, .. } = &self.uc.common;
        earlier(self.uc.poll_timeout(), earlier(receives.head_deadline(), self.uc.common.send_deadline()))
    }

    fn handle_timeout(&mut self, now: Instant, host: &mut impl Host) {
        self.expire(now, host);
        self.uc.handle_timeout(now, host);
    }

    fn takes(&self, service: Service) -> bool {
        service == Service::Timed
    }

    fn set_congestion_control(&mut self, cc: Option<Box<dyn CongestionControl>>) -> Result<(), NoCongestionControl> {
        self.uc.set_congestion_control(cc)
    }

    fn on_negotiation(&mut self, outcome: Option<&NegotiationOutcome>, _: Option<Duration>) {
        self.wanted = outcome.map(|outcome| match outcome {
            NegotiationOutcome::Agreed(_) => Service::Timed,
            NegotiationOutcome::Standard(_) => Service::Uc,
        });
    }
}
