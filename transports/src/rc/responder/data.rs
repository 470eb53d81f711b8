//! Requests that are answered by data: READs and atomics. Also their replay when the answer was lost (IBA 9.7.5.1.5, .6).

use std::collections::VecDeque;

use softnic_wire::aeth::{Aeth, NakCode, Syndrome};
use softnic_wire::ext::Reth;
use softnic_wire::opcode::{Kind, Position, Service};
use softnic_wire::segment::{MAX_MESSAGE, MessageKind, opcode_of};
use softnic_wire::{ExtHeaders, Opcode, PacketFields, Psn, TxFrame};

use super::{Failure, Responder, remote};
use crate::invariants::invariant;
use crate::memory::{Access, AtomicOp, Region};
use crate::message::{self, Link};
use crate::planted::{Bug, planted};
use crate::qp::PayloadMode;
use crate::{Host, Inbound};

/// An answer in progress.
#[derive(Debug, Clone, Copy)]
struct Job {
    psn: Psn,
    msn: u32,
    /// The answer was sent before, so the requester may not need it any more.
    replay: bool,
    answer: DataAnswer,
}

#[derive(Debug, Clone, Copy)]
enum DataAnswer {
    /// Responses to a READ: response `next` of `packets` is sent next.
    Read { addr: u64, rkey: u32, len: u32, next: u32, packets: u32 },
    /// The original value of an atomic.
    Atomic { found: u64 },
}

impl Job {
    fn last_psn(&self) -> Psn {
        match self.answer {
            DataAnswer::Read { packets, .. } => self.psn.add(packets - 1),
            DataAnswer::Atomic { .. } => self.psn,
        }
    }

    /// The request arrived again, completely or from the first missing response on: continues from there, unless all of that is still to be
    /// sent. The requester sends no other repetition, so any other request is not one of its own.
    fn begin_again(&mut self, again: &Job) {
        let ends = |job: &Job| match job.answer {
            DataAnswer::Read { addr, rkey, len, .. } => (job.last_psn(), rkey, addr.wrapping_add(u64::from(len))),
            DataAnswer::Atomic { .. } => (job.psn, 0, 0),
        };
        let inside = self.replay || !again.psn.is_before(self.psn);
        if !inside || ends(self) != ends(again) {
            return;
        }
        self.msn = again.msn;
        if let DataAnswer::Read { next, .. } = self.answer
            && again.psn.is_before(self.psn.add(next))
        {
            (self.psn, self.answer) = (again.psn, again.answer);
        }
    }
}

/// The READs and atomics of the peer: the pending answers, and the values of answered atomics. An atomic must never be executed twice, so
/// its value is kept as long as the peer can request it again.
#[derive(Debug, Default)]
pub(super) struct DataAnswers {
    jobs: VecDeque<Job>,
    done: VecDeque<(Psn, u64)>,
    /// Maximum number of READs and atomics that the peer may have outstanding.
    limit: usize,
}

impl DataAnswers {
    pub(super) fn new(limit: u8) -> DataAnswers {
        let limit = usize::from(limit);
        DataAnswers { jobs: VecDeque::with_capacity(limit), done: VecDeque::with_capacity(limit), limit }
    }

    pub(super) fn clear(&mut self) {
        self.jobs.clear();
    }

    /// Checks the invariants between two calls: no more answers are owed than agreed on, and none that was not requested.
    pub(super) fn check_invariants(&self, expected: Psn) {
        let (jobs, done) = (self.jobs.len(), self.done.len());
        invariant!(jobs <= self.limit && done <= self.limit, "{jobs} answers owed, {done} kept, {} agreed", self.limit);
        let asked = |job: &Job| job.last_psn().is_before(expected);
        invariant!(self.jobs.iter().all(asked), "an answer to what has not come");
        let in_order = self.jobs.iter().zip(self.jobs.iter().skip(1)).all(|(a, b)| a.last_psn().is_before(b.psn));
        invariant!(in_order, "answers out of order");
    }

    #[inline]
    pub(super) fn is_due(&self) -> bool {
        !self.jobs.is_empty()
    }

    /// Whether the oldest answer is a READ response.
    #[inline]
    pub(super) fn is_read_due(&self) -> bool {
        self.jobs.front().is_some_and(|job| matches!(job.answer, DataAnswer::Read { .. }))
    }

    /// Makes room for the answer to a new request; returns `false` if the peer exceeds the agreed number.
    ///
    /// A requester that sends a new request has fewer than the limit outstanding. So if the limit of answers is pending, the oldest one is
    /// a replay whose first transmission has arrived meanwhile.
    fn make_room(&mut self) -> bool {
        if self.jobs.len() >= self.limit && self.jobs.front().is_some_and(|job| job.replay) {
            self.jobs.pop_front();
        }
        self.jobs.len() < self.limit
    }

    /// Stores the value that an atomic found. The value of 2^24 packets ago had the same PSN.
    fn remember(&mut self, psn: Psn, found: u64) {
        self.done.retain(|&(p, _)| p != psn);
        if self.done.len() + usize::from(planted(Bug::AtomicForgotten)) >= self.limit {
            self.done.pop_front();
        }
        self.done.push_back((psn, found));
    }

    /// Queues an answer to a repeated request, in the order of the PSNs; answers to later requests stay. If the answer is still in
    /// progress, the part already sent is sent again.
    fn replay(&mut self, again: Job) {
        let mut at = self.jobs.iter().position(|job| !job.last_psn().is_before(again.psn)).unwrap_or(self.jobs.len());
        if let Some(job) = self.jobs.get_mut(at)
            && !job.psn.is_after(again.last_psn())
        {
            job.begin_again(&again);
            return;
        }
        if self.jobs.len() >= self.limit {
            // One of the pending answers has arrived meanwhile: the oldest, because the requester accepts them in order.
            if at == 0 || !self.jobs[0].replay {
                return;
            }
            self.jobs.pop_front();
            at -= 1;
        }
        self.jobs.insert(at, again);
    }
}

impl Responder {
    /// Executes the expected READ or atomic.
    pub(super) fn execute_data(
        &mut self,
        packet: &Inbound<'_>,
        link: &Link,
        host: &mut impl Host,
    ) -> Result<(), Failure> {
        let psn = packet.bth.psn;
        // No other request may interrupt a message of several packets, and the agreed number is the limit (IBA 9.7.4.1.2, .7).
        if self.message.received().is_some() || packet.payload_len != 0 || !self.data.make_room() {
            return self.refuse(packet, NakCode::INVALID_REQUEST, None, host);
        }
        let msn = (self.msn + 1) & 0x00ff_ffff;
        let packets = if let Some(reth) = packet.ext.reth {
            let allowed = packet.bth.opcode.kind() == Kind::ReadRequest && link.access.allows(Access::REMOTE_READ);
            if !allowed || reth.len > MAX_MESSAGE {
                return self.refuse(packet, NakCode::INVALID_REQUEST, None, host);
            }
            let region = remote(link, reth.rkey, reth.va, Access::REMOTE_READ);
            if host.check(region, u64::from(reth.len)).is_err() {
                return self.refuse(packet, NakCode::REMOTE_ACCESS_ERROR, None, host);
            }
            host.counters().rx_read_requests += 1;
            let packets = link.mtu.packets(reth.len);
            let answer = DataAnswer::Read { addr: reth.va, rkey: reth.rkey, len: reth.len, next: 0, packets };
            self.data.jobs.push_back(Job { psn, msn, replay: false, answer });
            packets
        } else if let Some(atomic) = packet.ext.atomic {
            if !link.access.allows(Access::REMOTE_ATOMIC) || atomic.va % 8 != 0 {
                return self.refuse(packet, NakCode::INVALID_REQUEST, None, host);
            }
            let region = remote(link, atomic.rkey, atomic.va, Access::REMOTE_ATOMIC);
            let op = match packet.bth.opcode.kind() {
                Kind::CompareSwap => AtomicOp::CompareSwap { compare: atomic.compare, swap: atomic.swap_add },
                _ => AtomicOp::FetchAdd { add: atomic.swap_add },
            };
            let Ok(found) = host.atomic(region, op) else {
                return self.refuse(packet, NakCode::REMOTE_ACCESS_ERROR, None, host);
            };
            host.counters().rx_atomic_requests += 1;
            self.data.remember(psn, found);
            self.data.jobs.push_back(Job { psn, msn, replay: false, answer: DataAnswer::Atomic { found } });
            1
        } else {
            return self.refuse(packet, NakCode::INVALID_REQUEST, None, host);
        };
        self.msn = msn;
        self.expected = psn.add(packets);
        self.data_last = true;
        if self.answer.is_some() {
            // A NAK that still waits was for this very packet, which has arrived meanwhile.
            self.answer = None;
            self.ask_for_dropped();
        }
        Ok(())
    }

    /// A READ or atomic arrived again: its answer was lost, the requester did not wait for it, or the network duplicated the request.
    pub(super) fn answer_again(&mut self, packet: &Inbound<'_>, link: &Link, host: &mut impl Host) {
        let (psn, msn) = (packet.bth.psn, self.msn);
        let answer = if let Some(reth) = packet.ext.reth {
            self.read_again(packet, reth, link, host)
        } else if let (Some(a), true) = (packet.ext.atomic, planted(Bug::AtomicTwice)) {
            let region = remote(link, a.rkey, a.va, Access::REMOTE_ATOMIC);
            let found = host.atomic(region, AtomicOp::FetchAdd { add: a.swap_add }).unwrap_or(0);
            Some(DataAnswer::Atomic { found })
        } else {
            self.data.done.iter().find(|(p, _)| *p == psn).map(|&(_, found)| DataAnswer::Atomic { found })
        };
        if let Some(answer) = answer {
            self.data.replay(Job { psn, msn, replay: true, answer });
        }
    }

    /// The answer to a repeated READ, if it requests no more than an earlier one did, from memory that may still be read.
    fn read_again(&self, packet: &Inbound<'_>, reth: Reth, link: &Link, host: &mut impl Host) -> Option<DataAnswer> {
        let Reth { va: addr, rkey, len } = reth;
        let is_read = packet.bth.opcode.kind() == Kind::ReadRequest && packet.payload_len == 0;
        if !is_read || len > MAX_MESSAGE || !link.access.allows(Access::REMOTE_READ) {
            return None;
        }
        let packets = link.mtu.packets(len);
        let in_the_past = packets <= self.expected.forward_from(packet.bth.psn);
        if !in_the_past {
            return None;
        }
        if host.check(remote(link, rkey, addr, Access::REMOTE_READ), u64::from(len)).is_err() {
            host.misfits().rkey += 1;
            return None;
        }
        Some(DataAnswer::Read { addr, rkey, len, next: 0, packets })
    }

    /// Writes the next packet of the oldest answer.
    pub(super) fn send_data(&mut self, tx: &mut TxFrame<'_>, link: &Link, host: &mut impl Host) -> bool {
        let credits = Syndrome::Ack(self.receives.credits());
        let Some(Job { psn, msn, replay, answer }) = self.data.jobs.front_mut() else { return false };
        match answer {
            DataAnswer::Atomic { found } => {
                let ext = ExtHeaders {
                    aeth: Some(Aeth { syndrome: credits, msn: *msn }),
                    atomic_ack: Some(*found),
                    ..ExtHeaders::default()
                };
                let fields = response(Opcode::RC_ATOMIC_ACKNOWLEDGE, *psn, 0);
                let built = match link.payload {
                    PayloadMode::Real => link.template.build(tx, &fields, &ext, &[]),
                    PayloadMode::Elided => link.template.build_elided(tx, &fields, &ext),
                };
                self.data.jobs.pop_front();
                built.is_ok()
            }
            DataAnswer::Read { addr, rkey, len, next, packets } => {
                let position = message::position(*next, *packets);
                let offset = *next * link.mtu.bytes();
                let part = if *next + 1 == *packets { *len - offset } else { link.mtu.bytes() };
                let aeth = (position != Position::Middle).then_some(Aeth { syndrome: credits, msn: *msn });
                let ext = ExtHeaders { aeth, ..ExtHeaders::default() };
                let Some(opcode) = opcode_of(Service::Rc, MessageKind::ReadResponse, position) else { return false };
                let packet_psn = psn.add(*next);
                let fields = response(opcode, packet_psn, part as usize);
                let addr = addr.wrapping_add(u64::from(offset));
                let region = remote(link, *rkey, addr, Access::REMOTE_READ);
                *next += 1;
                let (replay, ends) = (*replay, *next == *packets);
                if ends {
                    self.data.jobs.pop_front();
                }
                match write_response(tx, link, &fields, &ext, region, host) {
                    Some(sent) => sent,
                    // The requester may have received the answer before the memory was deregistered; if not, it will request the data
                    // again.
                    None if replay => {
                        if !ends {
                            self.data.jobs.pop_front();
                        }
                        self.poll_transmit(tx, link, host)
                    }
                    None => {
                        // The memory was deregistered after the request arrived; later requests cannot be answered either.
                        host.counters().resp_remote_access_errors += 1;
                        self.data.jobs.clear();
                        let code = NakCode::REMOTE_ACCESS_ERROR;
                        self.nak(packet_psn, code);
                        self.failure = Some(Failure::Refused { code, receive: None });
                        self.poll_transmit(tx, link, host)
                    }
                }
            }
        }
    }
}

fn response(opcode: Opcode, psn: Psn, payload_len: usize) -> PacketFields {
    PacketFields { opcode, psn, ack_req: false, solicited: false, becn: false, payload_len }
}

/// Writes one READ response; returns `None` if the memory may not be read.
fn write_response(
    tx: &mut TxFrame<'_>,
    link: &Link,
    fields: &PacketFields,
    ext: &ExtHeaders,
    region: Region,
    host: &impl Host,
) -> Option<bool> {
    if link.payload == PayloadMode::Elided {
        return Some(link.template.build_elided(tx, fields, ext).is_ok());
    }
    let Ok(started) = link.template.start(tx, fields, ext) else { return Some(false) };
    let (a, b) = tx.slices_mut(started.payload, fields.payload_len);
    let behind = Region { addr: region.addr.wrapping_add(a.len() as u64), ..region };
    host.read(region, a).ok()?;
    host.read(behind, b).ok()?;
    link.template.finish(tx, started);
    Some(true)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_value_of_an_atomic_is_not_the_one_of_the_same_psn_2_24_packets_ago() {
        let mut answers = DataAnswers::new(16);
        for (psn, found) in [(7, 5), (9, 1), (7, 8)] {
            answers.remember(Psn::new(psn), found);
        }
        assert_eq!(answers.done, [(Psn::new(9), 1), (Psn::new(7), 8)]);
    }
}
