//! The responder's answers with data: READ responses and values of atomics, sent again until the requester has them.

use softnic_wire::opcode::{Position, Service};
use softnic_wire::segment::{MessageKind, opcode_of};
use softnic_wire::sr::SrEth;
use softnic_wire::{ExtHeaders, Instant, Opcode, PacketFields, TxFrame};

use super::flight::{Progress, Selective};
use super::responder::Responder;
use super::timer::{Expired, Watched};
use crate::Host;
use crate::memory::{Access, Region};
use crate::message::{self, Link};
use crate::qp::PayloadMode;
use crate::rc::responder::remote;
use crate::round_trip::RoundTrip;
use crate::timers::TimerTable;

/// Number of high timeouts without any packet of the requester after which answers are no longer sent again; any packet of the requester
/// starts again.
const PATIENCE: u32 = 8;

/// An answer.
#[derive(Debug, Clone, Copy)]
pub(super) enum Answer {
    Read { addr: u64, rkey: u32, len: u32 },
    Atomic { found: u64 },
}

/// An answer that the requester does not have completely.
#[derive(Debug, Clone, Copy)]
pub(super) struct Job {
    /// The number of the request.
    request: u64,
    /// The number of the answer's first packet, and its number of packets.
    first: u64,
    packets: u32,
    answer: Answer,
}

impl Job {
    fn end(&self) -> u64 {
        self.first + u64::from(self.packets)
    }
}

impl Responder {
    /// Makes room for one more answer; returns `false` if the requester exceeds the agreed number.
    ///
    /// A requester that sends a new request has fewer than the limit outstanding. So if the limit of answers is stored, the oldest has
    /// arrived.
    pub(super) fn make_room(&mut self) -> bool {
        if self.jobs.len() < self.max_rd_atomic {
            return true;
        }
        let arrived = |job: &Job| job.end() <= self.flight.next();
        let Some(oldest) = self.jobs.front().copied().filter(arrived) else { return false };
        self.flight.acknowledge(Instant::from_nanos(0), oldest.end(), Selective::NONE, None);
        self.jobs.pop_front();
        true
    }

    /// Adds an answer of `packets` packets to request `n`.
    pub(super) fn add_job(&mut self, n: u64, answer: Answer, packets: u32) {
        self.jobs.push_back(Job { request: n, first: self.end, packets, answer });
        self.end += u64::from(packets);
    }

    /// Whether an answer can be sent now.
    #[inline]
    pub(super) fn has_answers(&self) -> bool {
        let may_go = self.flight.has_room() || self.flight.in_flight() == 0;
        may_go && (self.flight.has_lost() || self.flight.next() < self.end && self.flight.has_room_for_new())
    }

    /// Writes the next packet of an answer, if one is due.
    pub(super) fn transmit_answer(
        &mut self,
        now: Instant,
        tx: &mut TxFrame<'_>,
        link: &Link,
        rtt: &RoundTrip,
        timers: &mut TimerTable,
        host: &mut impl Host,
    ) -> bool {
        if !self.has_answers() {
            return false;
        }
        let lost = self.flight.next_lost();
        let n = lost.unwrap_or(self.flight.next());
        let Some(&job) = self.jobs.iter().find(|job| n < job.end()) else { return false };
        let tail = n + 1 == self.end;
        let ack_req =
            lost.is_some() || tail || self.since_ack_req + 1 >= self.ack_every || self.flight.is_nearly_full();
        match self.emit(tx, link, n, &job, ack_req, host) {
            Some(true) => {}
            Some(false) => return false,
            // It is unknown whether the requester needs this packet: an acknowledgement may have been lost, and then the memory was allowed
            // to go.
            None if lost.is_some() => {
                if !self.transmit_doubt(tx, link, job.request) {
                    return false;
                }
            }
            None => {
                self.refuse_late(job.request, host);
                return false;
            }
        }
        self.since_ack_req = if ack_req { 0 } else { self.since_ack_req + 1 };
        match lost {
            Some(n) => {
                self.flight.on_resent(now, n, rtt.shortest());
                // An answer could belong to either transmission, so the measurement is dropped.
                self.timed = self.timed.filter(|&(timed, _)| timed != n);
                host.counters().retransmitted_packets += 1;
            }
            None => {
                if ack_req && self.timed.is_none() {
                    self.timed = Some((n, now));
                }
                self.flight.on_sent();
            }
        }
        self.timer.on_sent(now);
        self.start_timer(now, rtt, timers);
        true
    }

    /// Writes packet `n`; returns `None` if the memory may not be read any more.
    fn emit(
        &self,
        tx: &mut TxFrame<'_>,
        link: &Link,
        n: u64,
        job: &Job,
        ack_req: bool,
        host: &impl Host,
    ) -> Option<bool> {
        let index = (n - job.first) as u32;
        let offset = index * link.mtu.bytes();
        let number = self.numbers.psn(job.request).value();
        let mut ext = ExtHeaders { sr: Some(SrEth { flags: 0, number, offset }), ..ExtHeaders::default() };
        let (opcode, payload_len, region) = match job.answer {
            Answer::Atomic { found } => {
                ext.atomic_ack = Some(found);
                (Some(Opcode::RC_ATOMIC_ACKNOWLEDGE.selective()), 0, None)
            }
            Answer::Read { addr, rkey, len } => {
                let position: Position = message::position(index, job.packets);
                let part = (len - offset).min(link.mtu.bytes());
                let region = remote(link, rkey, addr.wrapping_add(u64::from(offset)), Access::REMOTE_READ);
                (opcode_of(Service::Sr, MessageKind::ReadResponse, position), part as usize, Some(region))
            }
        };
        let psn = self.numbers.psn(n);
        let fields = PacketFields { opcode: opcode?, psn, ack_req, solicited: false, becn: false, payload_len };
        if link.payload == PayloadMode::Elided {
            return Some(link.template.build_elided(tx, &fields, &ext).is_ok());
        }
        let Ok(started) = link.template.start(tx, &fields, &ext) else { return Some(false) };
        if let Some(region) = region {
            let (a, b) = tx.slices_mut(started.payload, payload_len);
            let behind = Region { addr: region.addr.wrapping_add(a.len() as u64), ..region };
            host.read(region, a).ok()?;
            host.read(behind, b).ok()?;
        }
        link.template.finish(tx, started);
        Some(true)
    }

    /// Handles the requester's acknowledgement of answers.
    pub(super) fn note_acknowledged(
        &mut self,
        now: Instant,
        expected: u64,
        selective: Selective<'_>,
        rtt: &mut RoundTrip,
        timers: &mut TimerTable,
    ) {
        if expected > self.flight.next() {
            return;
        }
        let Progress { came, .. } = self.flight.acknowledge(now, expected, selective, rtt.shortest());
        if let Some((n, left)) = self.timed
            && self.flight.has_come(n)
        {
            rtt.on_sample(now.saturating_since(left));
            self.timed = None;
        }
        while self.jobs.front().is_some_and(|job| job.end() <= self.flight.una()) {
            self.jobs.pop_front();
        }
        if self.flight.is_empty() {
            self.timer.stop(timers);
        } else if came > 0 || self.silent > PATIENCE {
            self.timer.on_progress();
            self.start_timer(now, rtt, timers);
        }
        self.silent = 0;
    }

    fn start_timer(&mut self, now: Instant, rtt: &RoundTrip, timers: &mut TimerTable) {
        let watched = Watched::of(self.flight.in_flight(), self.flight.next() == self.end);
        self.timer.start(timers, now, watched, rtt, Some(self.high));
    }

    /// Handles a timeout.
    pub(super) fn handle_timeout(&mut self, now: Instant, rtt: &RoundTrip, timers: &mut TimerTable) {
        match self.timer.expire(timers, now) {
            Some(Expired::Low) => {
                self.flight.probe();
                self.start_timer(now, rtt, timers);
            }
            Some(Expired::High) => {
                self.silent += 1;
                if self.silent <= PATIENCE {
                    self.flight.give_up();
                }
            }
            None => {}
        }
    }
}
