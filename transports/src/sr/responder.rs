//! The receiving half: handles requests, also out of order; sends acknowledgements and answers with data.
//!
//! A payload is placed when it arrives. Effects that must occur in order wait until everything before them has arrived: completions,
//! invalidated keys, READs and atomics, and the end of a WRITE (`held`). A packet that cannot be placed early, because there is no receive
//! or the memory may not be written, is dropped like a lost one. When its turn comes, it is answered as RC would answer it.

use std::collections::VecDeque;
use std::time::Duration;

use softnic_wire::aeth::{NakCode, Syndrome};
use softnic_wire::opcode::{Kind, Position};
use softnic_wire::segment::MAX_MESSAGE;
use softnic_wire::{Instant, Psn, TxFrame};

use super::acknowledgement::{self, AckContents};
use super::answers::{Answer, Job};
use super::arrivals::{Arrivals, PacketOrder};
use super::bitmap::Bitmap;
use super::data_request::DataRequest;
use super::flight::Flight;
use super::held::HeldWrites;
use super::numbers::Numbers;
use super::receives_taken::ReceivesTaken;
use super::timer::FlightTimer;
use crate::memory::Access;
use crate::message::Link;
use crate::planted::{Bug, planted};
use crate::rc::responder::{Failure, remote};
use crate::recv_queue::{Receives, Whole};
use crate::round_trip::RoundTrip;
use crate::timers::{Timer, TimerTable};
use crate::{Host, Inbound, Status};

/// The high timeout of answers if the program has set none.
const HIGH: Duration = Duration::from_millis(500);

/// Why a packet cannot be executed.
#[derive(Debug, Clone, Copy)]
pub(super) enum Hindrance {
    NoReceive,
    Refuse { code: NakCode, receive: Option<Status> },
}

impl Hindrance {
    pub(super) const INVALID: Hindrance = Hindrance::Refuse { code: NakCode::INVALID_REQUEST, receive: None };
    /// The packet may be sent again when there is room, or when its turn has come.
    const LATER: Hindrance = Hindrance::NoReceive;
}

/// The role of a packet in its message, besides its payload.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Role {
    /// A part of a message, or a complete WRITE.
    Part,
    /// The last packet of a message that takes a receive.
    EndsReceive,
    /// A READ or atomic.
    Data,
}

pub(super) struct Responder {
    arrivals: Arrivals,
    pub(super) numbers: Numbers,
    /// Packets that arrived early and end a message that takes a receive.
    ends: Bitmap,
    /// Packets that arrived early and request data.
    asks: Bitmap,
    /// Packets that arrived early and end a WRITE.
    held: HeldWrites,
    /// The receives taken by messages.
    pub(super) taken: ReceivesTaken,
    /// Complete messages, by the receive that they take.
    whole: Box<[Option<Whole>]>,
    /// READs and atomics that arrived early, by their number.
    wanted: Vec<(u64, DataRequest)>,
    /// Maximum number of outstanding READs and atomics.
    pub(super) max_rd_atomic: usize,
    /// A NAK is due for this packet.
    nak: Option<(u64, Syndrome)>,
    // The answers with data; see `answers`.
    pub(super) jobs: VecDeque<Job>,
    pub(super) flight: Flight,
    pub(super) end: u64,
    pub(super) timer: FlightTimer,
    /// The answer whose acknowledgement gives the round-trip time, and when it was sent.
    pub(super) timed: Option<(u64, Instant)>,
    pub(super) since_ack_req: u32,
    pub(super) ack_every: u32,
    pub(super) silent: u32,
    /// The maximum time for a requester to acknowledge answers.
    pub(super) high: Duration,
    /// A failure found while an answer was written; its NAK is due.
    pub(super) failure: Option<Failure>,
}

/// The settings of a new responder.
pub(super) struct Made {
    /// The first PSN of requests, and so of answers.
    pub(super) first: Psn,
    /// Number of packets in its bitmaps.
    pub(super) window: u32,
    /// Maximum number of last packets of WRITEs that may be held, and their maximum length.
    pub(super) held: u32,
    pub(super) held_len: usize,
    /// How far ahead answers may be sent, and how many may be in flight.
    pub(super) span: u32,
    pub(super) limit: u32,
    pub(super) ack_every: u32,
    /// Maximum number of outstanding READs and atomics.
    pub(super) max_rd_atomic: u8,
    /// Number of receives that messages may take ahead of the expected one.
    pub(super) receives: u32,
}

impl Responder {
    pub(super) fn new(m: &Made) -> Responder {
        let limit = usize::from(m.max_rd_atomic);
        Responder {
            arrivals: Arrivals::new(m.window),
            numbers: Numbers::from(m.first),
            ends: Bitmap::new(m.window),
            asks: Bitmap::new(m.window),
            held: HeldWrites::new(m.held, m.held_len),
            taken: ReceivesTaken::default(),
            whole: vec![None; m.receives.max(1).next_power_of_two() as usize].into(),
            wanted: Vec::with_capacity(limit),
            max_rd_atomic: limit,
            nak: None,
            jobs: VecDeque::with_capacity(limit),
            flight: Flight::new(m.span, m.limit),
            end: 0,
            timer: FlightTimer::new(Timer::Answers),
            timed: None,
            since_ack_req: 0,
            ack_every: m.ack_every,
            silent: 0,
            high: HIGH,
            failure: None,
        }
    }

    /// Number of request packets that have arrived without a gap.
    pub(super) fn came(&self) -> u64 {
        self.arrivals.expected()
    }

    /// Drops all answers that are owed.
    pub(super) fn fall_silent(&mut self, timers: &mut TimerTable) {
        self.nak = None;
        self.arrivals.fall_silent();
        self.jobs.clear();
        self.timer.stop(timers);
        self.end = self.flight.next();
    }

    /// Handles a request.
    pub(super) fn handle_request(
        &mut self,
        packet: &Inbound<'_>,
        link: &Link,
        receives: &mut Receives,
        rnr: Syndrome,
        host: &mut impl Host,
    ) -> Result<(), Failure> {
        let Some(n) = self.numbers.number(packet.bth.psn, self.arrivals.expected()) else { return Ok(()) };
        let early = match self.arrivals.judge(n) {
            PacketOrder::InOrder => false,
            PacketOrder::Early => true,
            PacketOrder::Duplicate => {
                host.counters().duplicate_request += 1;
                host.misfits().psn += 1;
                self.arrivals.on_duplicate(n);
                if planted(Bug::SrAtomicAgain)
                    && let Some(DataRequest::Atomic { addr, rkey, op }) = DataRequest::read(packet, link)
                {
                    let _ = host.atomic(remote(link, rkey, addr, Access::REMOTE_ATOMIC), op);
                }
                return Ok(());
            }
            PacketOrder::Beyond => {
                host.misfits().psn += 1;
                return Ok(());
            }
        };
        host.counters().out_of_sequence += u64::from(early);
        let role = match self.place(n, packet, link, receives, host) {
            Ok(role) => role,
            // The packet is sent again when its turn comes.
            Err(_) if early => return Ok(()),
            Err(Hindrance::NoReceive) => {
                host.counters().out_of_buffer += 1;
                self.nak = Some((n, rnr));
                return Ok(());
            }
            Err(Hindrance::Refuse { code, receive }) => return Err(self.refuse(n, code, receive, host)),
        };
        self.arrivals.take(n, packet.bth.ack_req);
        if early {
            let next_whole = || self.whole[self.taken.used() as usize & (self.whole.len() - 1)].is_some();
            match role {
                Role::Data if planted(Bug::SrDataEarly) && self.wanted.len() == 1 => {
                    return self.carry_out(n, role, link, receives, host);
                }
                Role::EndsReceive if planted(Bug::SrCompletesEarly) && next_whole() => {
                    return self.carry_out(n, role, link, receives, host);
                }
                Role::Part => {}
                Role::EndsReceive => self.ends.set(n),
                Role::Data => self.asks.set(n),
            }
            return Ok(());
        }
        // A NAK that still waits was for this very packet, which has arrived meanwhile.
        if self.nak.take().is_some() {
            self.arrivals.demand();
        }
        self.carry_out(n, role, link, receives, host)?;
        // Packets after it that arrived early are executed now.
        while self.arrivals.advance() {
            let n = self.arrivals.expected() - 1;
            if let Some((region, bytes)) = self.held.take(n)
                && !planted(Bug::SrNotPlaced)
                && host.write(region, bytes).is_err()
            {
                return Err(self.refuse(n, NakCode::REMOTE_ACCESS_ERROR, None, host));
            }
            let role = match (self.ends.take(n), self.asks.take(n)) {
                (true, _) => Role::EndsReceive,
                (_, true) => Role::Data,
                _ => continue,
            };
            self.carry_out(n, role, link, receives, host)?;
        }
        Ok(())
    }

    /// Places the payload of packet `n`, early or not.
    fn place(
        &mut self,
        n: u64,
        packet: &Inbound<'_>,
        link: &Link,
        receives: &mut Receives,
        host: &mut impl Host,
    ) -> Result<Role, Hindrance> {
        let opcode = packet.bth.opcode;
        let ends = opcode.ends_message();
        let mtu = link.mtu.bytes();
        // All packets of a message except the last are full, and the last is not empty (IBA 9.7.4.1.6).
        let fits = match opcode.position() {
            Position::First | Position::Middle => packet.payload_len == mtu,
            Position::Last => packet.payload_len >= 1 && packet.payload_len <= mtu,
            Position::Only => packet.payload_len <= mtu,
        };
        if !fits {
            return Err(Hindrance::INVALID);
        }
        match opcode.kind() {
            Kind::Send => {
                let sr = packet.ext.sr.ok_or(Hindrance::INVALID)?;
                let begins = opcode.begins_message();
                if begins != (sr.offset == 0) || !sr.offset.is_multiple_of(mtu) || sr.offset > MAX_MESSAGE {
                    return Err(Hindrance::INVALID);
                }
                let ahead = self.taken.ahead(sr.number, receives.room())?;
                // WRITEs among the earlier messages take no receive if they complete in a sink: the packet's own receive is known once they
                // have arrived.
                if receives.are_in_sink() && ahead > 0 {
                    return Err(Hindrance::NoReceive);
                }
                let receive = receives.nth(ahead, host).ok_or(Hindrance::NoReceive)?;
                let receive =
                    if planted(Bug::SrWrongReceive) { receives.nth(0, host).unwrap_or(receive) } else { receive };
                if u64::from(sr.offset) + u64::from(packet.payload_len) > receive.capacity {
                    host.counters().resp_local_length_error += u64::from(n == self.arrivals.expected());
                    let (code, receive) = (NakCode::INVALID_REQUEST, Some(Status::LocLenErr));
                    return Err(Hindrance::Refuse { code, receive });
                }
                if receives.scatter(&receive, u64::from(sr.offset), packet.payload, &*host).is_err() {
                    let (code, receive) = (NakCode::REMOTE_OPERATIONAL_ERROR, Some(Status::LocProtErr));
                    return Err(Hindrance::Refuse { code, receive });
                }
                self.taken.note_filled(ahead);
                Ok(self.note_end(ends, sr.number, packet, sr.offset, host))
            }
            Kind::Write => {
                let reth = packet.ext.reth.ok_or(Hindrance::INVALID)?;
                let left = if ends { reth.len == packet.payload_len } else { reth.len > packet.payload_len };
                if !link.access.allows(Access::REMOTE_WRITE) || reth.len > MAX_MESSAGE || !left {
                    return Err(Hindrance::INVALID);
                }
                if let Some(sr) = packet.ext.sr {
                    let ahead = self.taken.ahead(sr.number, receives.room())?;
                    if !receives.are_in_sink() {
                        receives.nth(ahead, host).ok_or(Hindrance::NoReceive)?;
                        self.taken.note_filled(ahead);
                    }
                }
                let region = remote(link, reth.rkey, reth.va, Access::REMOTE_WRITE);
                // The rest of the message is checked before a byte of it is written. If this packet is the whole rest, writing checks it
                // anyway.
                let more = reth.len != packet.payload_len || packet.payload.is_empty();
                let early = n != self.arrivals.expected();
                let left_out = planted(Bug::SrNotPlaced) && early;
                let held = early && ends;
                if (more || held) && host.check(region, u64::from(reth.len)).is_err()
                    || !left_out && !held && host.write(region, packet.payload).is_err()
                {
                    let (code, receive) = (NakCode::REMOTE_ACCESS_ERROR, receives.ended_by(packet));
                    return Err(Hindrance::Refuse { code, receive });
                }
                if held && !self.held.hold(n, region, packet.payload) {
                    return Err(Hindrance::LATER);
                }
                match packet.ext.sr {
                    Some(sr) => Ok(self.note_end(ends, sr.number, packet, sr.offset, host)),
                    None => {
                        host.counters().rx_write_requests += u64::from(ends);
                        Ok(Role::Part)
                    }
                }
            }
            Kind::ReadRequest | Kind::CompareSwap | Kind::FetchAdd => {
                let wanted = DataRequest::read(packet, link).ok_or(Hindrance::INVALID)?;
                if self.wanted.len() >= self.max_rd_atomic {
                    return Err(Hindrance::INVALID);
                }
                self.wanted.push((n, wanted));
                Ok(Role::Data)
            }
            _ => Err(Hindrance::INVALID),
        }
    }

    /// A packet of a message that takes a receive was placed.
    fn note_end(&mut self, ends: bool, number: u32, packet: &Inbound<'_>, offset: u32, host: &mut impl Host) -> Role {
        if !ends {
            return Role::Part;
        }
        let counters = host.counters();
        match packet.bth.opcode.kind() {
            Kind::Send => counters.rx_send_requests += 1,
            _ => counters.rx_write_requests += 1,
        }
        let at = number as usize & (self.whole.len() - 1);
        self.whole[at] = Some(Whole::with(packet, offset));
        Role::EndsReceive
    }

    /// Executes the in-order effects: everything before packet `n` has arrived and was executed.
    fn carry_out(
        &mut self,
        n: u64,
        role: Role,
        link: &Link,
        receives: &mut Receives,
        host: &mut impl Host,
    ) -> Result<(), Failure> {
        match role {
            Role::Part => Ok(()),
            Role::EndsReceive => {
                let at = self.taken.used() as usize & (self.whole.len() - 1);
                // A peer that names another receive than the expected one has miscounted.
                let Some(whole) = self.whole[at].take() else {
                    return Err(self.refuse(n, NakCode::INVALID_REQUEST, None, host));
                };
                if let Some(key) = whole.invalidate
                    && host.invalidate(link.qpn, link.pd, key).is_err()
                {
                    // The requester is not notified: nothing from here on is acknowledged.
                    self.arrivals.fall_silent();
                    return Err(Failure::Invalidate);
                }
                self.taken.note_used();
                if planted(Bug::CompletionLost) && self.taken.used().is_multiple_of(32) {
                    return Ok(());
                }
                receives.complete(&whole, host)?;
                Ok(())
            }
            Role::Data => {
                let Some(at) = self.wanted.iter().position(|&(m, _)| m == n) else { return Ok(()) };
                let (_, wanted) = self.wanted.swap_remove(at);
                self.carry_out_data(n, wanted, link, host)
            }
        }
    }

    fn carry_out_data(
        &mut self,
        n: u64,
        wanted: DataRequest,
        link: &Link,
        host: &mut impl Host,
    ) -> Result<(), Failure> {
        // The agreed number is the limit (IBA 9.7.4.1.7).
        if !self.make_room() {
            return Err(self.refuse(n, NakCode::INVALID_REQUEST, None, host));
        }
        let (answer, packets) = match wanted {
            DataRequest::Read { addr, rkey, len } => {
                if host.check(remote(link, rkey, addr, Access::REMOTE_READ), u64::from(len)).is_err() {
                    return Err(self.refuse(n, NakCode::REMOTE_ACCESS_ERROR, None, host));
                }
                host.counters().rx_read_requests += 1;
                (Answer::Read { addr, rkey, len }, link.mtu.packets(len))
            }
            DataRequest::Atomic { addr, rkey, op } => {
                let Ok(found) = host.atomic(remote(link, rkey, addr, Access::REMOTE_ATOMIC), op) else {
                    return Err(self.refuse(n, NakCode::REMOTE_ACCESS_ERROR, None, host));
                };
                host.counters().rx_atomic_requests += 1;
                (Answer::Atomic { found }, 1)
            }
        };
        self.add_job(n, answer, packets);
        Ok(())
    }

    /// Refuses request `n` permanently: the queue pair stops (IBA 9.9.2.4).
    fn refuse(&mut self, n: u64, code: NakCode, receive: Option<Status>, host: &mut impl Host) -> Failure {
        match code {
            NakCode::INVALID_REQUEST => host.counters().resp_remote_invalid_request += 1,
            NakCode::REMOTE_ACCESS_ERROR => host.count_access_error(),
            _ => {}
        }
        self.nak = Some((n, Syndrome::Nak(code)));
        Failure::Refused { code, receive }
    }

    /// The memory of request `n` was deregistered after the request arrived.
    pub(super) fn refuse_late(&mut self, n: u64, host: &mut impl Host) {
        self.jobs.clear();
        self.end = self.flight.next();
        self.failure = Some(self.refuse(n, NakCode::REMOTE_ACCESS_ERROR, None, host));
    }

    /// Writes a NAK for request `n`, whose answer cannot be sent again. The requester fails if it needs the answer; otherwise it says that
    /// it has it.
    pub(super) fn transmit_doubt(&mut self, tx: &mut TxFrame<'_>, link: &Link, n: u64) -> bool {
        let due = self.arrivals.is_due();
        let syndrome = Syndrome::Nak(NakCode::REMOTE_ACCESS_ERROR);
        let contents = AckContents { responses: false, expected: n, syndrome, msn: self.taken.used() };
        let sent = acknowledgement::emit(tx, link, &mut self.arrivals, self.numbers, &contents);
        if due {
            self.arrivals.demand();
        }
        sent
    }

    /// Writes the acknowledgement that is due.
    pub(super) fn transmit_acknowledgement(&mut self, tx: &mut TxFrame<'_>, link: &Link, receives: &Receives) -> bool {
        let (expected, syndrome) = match self.nak.take() {
            Some((n, syndrome)) => (n, syndrome),
            None if self.arrivals.is_due() => (self.arrivals.expected(), Syndrome::Ack(receives.credits())),
            None => return false,
        };
        let contents = AckContents { responses: false, expected, syndrome, msn: self.taken.used() };
        let sent = acknowledgement::emit(tx, link, &mut self.arrivals, self.numbers, &contents);
        if matches!(syndrome, Syndrome::Nak(_)) {
            // A refused request is not acknowledged later, nor are those after it.
            self.arrivals.fall_silent();
        }
        sent
    }

    /// Handles the peer's acknowledgement of answers.
    pub(super) fn handle_acknowledgement(
        &mut self,
        now: Instant,
        packet: &Inbound<'_>,
        rtt: &mut RoundTrip,
        timers: &mut TimerTable,
    ) {
        if let Some((expected, selective)) = acknowledgement::parse(packet, self.numbers, self.flight.una()) {
            self.note_acknowledged(now, expected, selective, rtt, timers);
        }
    }
}
