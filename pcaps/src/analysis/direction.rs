//! One direction of a connection: what was sent, how often, and which answers it got.

use std::collections::VecDeque;

use softnic_wire::aeth::{NakCode, Syndrome};
use softnic_wire::opcode::{Kind, Position, Service};
use softnic_wire::sr::SrEth;
use softnic_wire::{Opcode, PathMtu, Psn};

use super::pace::Pace;
use super::trouble::{Ended, Trouble};
use super::verdict::EndedBy;
use super::{Cause, Packets, PairedBy, RoundTrips};
use crate::decode::Dissection;
use crate::sequence::{Order, read_span};
use crate::summary::FlowKey;

/// Requests that are remembered for each direction. Where more are outstanding, some are forgotten, evenly.
const WINDOW: usize = 4096;

/// What was seen of one direction of a connection.
#[derive(Debug)]
pub struct Direction {
    /// Sender, receiver, and the receiver's queue pair.
    pub key: FlowKey,
    /// Packets.
    pub packets: u64,
    /// Requests among the packets, each time that they were sent.
    pub requests: u64,
    /// Bytes of payload, each counted once however often it was sent.
    pub payload_bytes: u64,
    /// Requests and READ responses that were sent again.
    pub retransmissions: u64,
    /// When the first and the last packet were seen, in nanoseconds after the capture's first packet.
    pub span: (i64, i64),
    /// How long the requests of this direction waited for their answers; those that were sent again do not count.
    pub round_trips: RoundTrips,
    /// Payload of a packet that is not the last of its message.
    pub mtu: Option<PathMtu>,
    pub(super) partner: Option<(usize, PairedBy)>,
    /// Directions that could be the partner, as long as that is open.
    pub(super) candidates: Option<Vec<usize>>,
    pub(super) src_port: Option<u16>,
    pub(super) sent: SentWindow,
    pub(super) seen: Packets,
    /// Requests that ask for an acknowledgement or data, and answers.
    pub(super) wants_answer: u64,
    pub(super) answers: u64,
    /// A full packet; one whose length within a message is another, and that length.
    pub(super) full_at: Option<u64>,
    pub(super) uneven: Option<(u64, u32)>,
    /// The path MTU in the REQ.
    pub(super) agreed_mtu: Option<u32>,
    pub(super) trouble: Trouble,
    pub(super) pace: Pace,
    pub(super) ended: Option<Ended>,
}

impl Direction {
    pub(super) fn new(key: FlowKey, now: i64) -> Direction {
        Direction {
            key,
            packets: 0,
            requests: 0,
            payload_bytes: 0,
            retransmissions: 0,
            span: (now, now),
            round_trips: RoundTrips::default(),
            mtu: None,
            partner: None,
            candidates: None,
            src_port: None,
            sent: SentWindow::default(),
            seen: Packets::default(),
            wants_answer: 0,
            answers: 0,
            full_at: None,
            uneven: None,
            agreed_mtu: None,
            trouble: Trouble::default(),
            pace: Pace::default(),
            ended: None,
        }
    }

    /// Bits of payload a second from the first packet to the last; `None` where there is only one instant.
    pub fn payload_rate(&self) -> Option<f64> {
        let nanos = self.span.1 - self.span.0;
        (nanos > 0 && self.payload_bytes > 0).then(|| self.payload_bytes as f64 * 8e9 / nanos as f64)
    }

    /// Counts a packet and, if it is a request, remembers it; why it was sent again, if it was.
    pub(super) fn add(&mut self, d: &Dissection<'_>, opcode: Opcode, at: At, order: Option<Order>) -> Option<Cause> {
        self.packets += 1;
        self.seen.push(at.number);
        self.span = (self.span.0.min(at.time), self.span.1.max(at.time));
        self.src_port = d.src_port;
        self.answers += u64::from(opcode.is_response());
        let again = order == Some(Order::Again);
        self.retransmissions += u64::from(again);
        let size = d.payload_len.unwrap_or(0) as u32;
        if !matches!(opcode, Opcode::LOWAR | Opcode::CNP | Opcode::SR_ACKNOWLEDGE) && size > 0 {
            self.payload_bytes += if again { 0 } else { u64::from(size) };
            self.pace.sent(size, at.time);
        }
        if matches!(opcode.position(), Position::First | Position::Middle) {
            self.full(size, at.number);
        }
        if d.traffic_class & 3 == 3 && (opcode.is_request() || opcode.kind() == Kind::ReadResponse) {
            if self.trouble.marked.count() == 0 {
                self.trouble.first_mark = at.time;
            }
            self.trouble.marked.push(at.number);
        }
        let psn = d.psn.filter(|_| opcode.is_request())?;
        self.request(d, opcode, psn, at, order)
    }

    /// A packet that is not the last of its message has the length of the path MTU.
    fn full(&mut self, size: u32, number: u64) {
        match self.mtu {
            Some(mtu) if mtu.bytes() != size && size > 0 => self.uneven = self.uneven.or(Some((number, size))),
            Some(_) => {}
            None => {
                self.mtu = PathMtu::from_bytes(size);
                self.full_at = Some(number);
            }
        }
    }

    fn request(&mut self, d: &Dissection<'_>, opcode: Opcode, psn: Psn, at: At, order: Option<Order>) -> Option<Cause> {
        self.requests += 1;
        // An answer of XP names its READ by the number of the message, not by its PSN.
        let by_data = opcode.kind().is_answered_by_data() && opcode.service() != Service::Xp;
        let reliable = matches!(opcode.service(), Service::Rc | Service::Xrc | Service::Sr);
        self.wants_answer += u64::from(reliable && (by_data || d.ack_req == Some(true)));
        let span = match (opcode.service(), opcode.kind(), d.ext.reth) {
            (Service::Rc | Service::Xrc, Kind::ReadRequest, Some(reth)) => read_span(reth.len, self.mtu).1,
            _ => 1,
        };
        let size = d.payload_len.unwrap_or(0) as u32;
        let new = Sent { psn, span, at, tries: 1, by_data, size };
        let again = order == Some(Order::Again);
        let cause = if again {
            let min = self.round_trips.min().map(|t| t.as_nanos() as i64);
            Some(self.trouble.sent_again(&new, &self.sent, min))
        } else {
            self.trouble.sent();
            let grace = self.round_trips.max().map_or(0, |t| 2 * t.as_nanos() as i64).max(1_000_000);
            // A PSN that leaps belongs to a connection that this queue pair has now.
            if order == Some(Order::Next) && self.ended.is_some_and(|e| at.time > e.at.time + grace) {
                self.trouble.after_end.push(at.number);
            }
            None
        };
        let points_to = d.ext.reth.map(|r| (r.va, r.rkey, r.len)).or(d.ext.atomic.map(|a| (a.va, a.rkey, 8)));
        if let Some(place) = points_to {
            self.trouble.asks(psn, at.number, opcode, place);
        }
        self.sent.push(new, again);
        cause
    }

    /// Takes an answer to a request of this direction; the round trip that it ends.
    pub(super) fn answered(&mut self, answer: Answer, at: At) -> Option<u64> {
        if self.trouble.answered(answer, at) && self.ended.is_none() {
            self.ended = Some(Ended { at, by: EndedBy::Nak });
        }
        let waited = self.sent.answered(answer, at.time)?;
        self.round_trips.add(waited);
        Some(waited)
    }
}

/// Where a packet is in the capture.
#[derive(Debug, Clone, Copy)]
pub(super) struct At {
    pub(super) number: u64,
    /// Nanoseconds after the capture's first packet.
    pub(super) time: i64,
}

/// What an answer says, and of which request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Answer {
    pub(crate) says: Says,
    pub(crate) psn: Psn,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Says {
    /// The request with the PSN and all before it have come.
    Ack,
    /// Selective Repeat: all before the PSN have come, and of those behind it some, where `gap` is set.
    Expects { gap: bool },
    /// Data that the request with the PSN asked for.
    Data { first: bool },
    /// A NAK of this code: all before the PSN have come.
    Nak(NakCode),
    /// The receiver has no receive for the request with the PSN.
    NotReady,
}

impl Answer {
    /// Reads a packet; `None` where it is no answer to a request, or not captured far enough.
    pub(crate) fn of(d: &Dissection<'_>, opcode: Opcode) -> Option<Answer> {
        let psn = d.psn?;
        let sr = opcode.service() == Service::Sr;
        let says = match opcode.kind() {
            Kind::ReadResponse | Kind::AtomicAcknowledge if sr => {
                let header = d.ext.sr?;
                return Some(Answer { says: Says::Data { first: header.offset == 0 }, psn: Psn::new(header.number) });
            }
            Kind::ReadResponse if opcode.service() == Service::Xp => return None,
            Kind::Feedback => Says::Ack,
            Kind::ReadResponse => Says::Data { first: opcode.begins_message() },
            Kind::AtomicAcknowledge => Says::Data { first: true },
            Kind::Acknowledge if sr && d.ext.sr?.flags & SrEth::RESPONSES != 0 => return None,
            Kind::Acknowledge => match d.ext.aeth?.syndrome {
                Syndrome::Ack(_) if sr => Says::Expects { gap: d.payload.iter().any(|&bits| bits != 0) },
                Syndrome::Ack(_) => Says::Ack,
                Syndrome::Nak(code) => Says::Nak(code),
                Syndrome::RnrNak(_) => Says::NotReady,
                Syndrome::Reserved(_) => return None,
            },
            _ => return None,
        };
        Some(Answer { says, psn })
    }
}

/// A request that was sent.
#[derive(Debug, Clone, Copy)]
pub(super) struct Sent {
    pub(super) psn: Psn,
    /// PSNs that it takes, at most.
    pub(super) span: u32,
    /// When it was last sent.
    pub(super) at: At,
    /// How often it was sent.
    tries: u32,
    /// Its answer carries data.
    pub(super) by_data: bool,
    /// Bytes of payload.
    pub(super) size: u32,
}

impl Sent {
    fn covers(&self, psn: Psn) -> bool {
        psn.forward_from(self.psn) < self.span
    }
}

/// The latest requests of a direction, in the order of their PSNs.
#[derive(Debug, Default)]
pub(super) struct SentWindow {
    sent: VecDeque<Sent>,
    /// Of PSNs that have one of these bits, requests were forgotten while they were outstanding.
    thinned: u32,
    /// The last PSN that was answered, and whether a request up to it was sent again.
    acked: Option<Psn>,
    sent_again: Option<Psn>,
    /// The longest payload that was acknowledged.
    pub(super) longest_acked: u32,
}

impl SentWindow {
    /// The place of the first request that does not lie before `psn`.
    fn place(&self, psn: Psn) -> usize {
        self.sent.partition_point(|s| s.psn.is_before(psn))
    }

    /// The request that takes `psn`; where requests were forgotten, the nearest before it.
    pub(super) fn find(&self, psn: Psn) -> Option<&Sent> {
        let found = self.sent.get(self.place(psn.next()).checked_sub(1)?)?;
        (self.thinned != 0 || found.covers(psn)).then_some(found)
    }

    fn push(&mut self, new: Sent, again: bool) {
        if !again && self.thinned & new.psn.value() != 0 {
            return;
        }
        if again {
            self.sent_again = Some(self.sent_again.filter(|p| p.is_after(new.psn)).unwrap_or(new.psn));
        }
        let place = self.place(new.psn);
        match self.sent.get_mut(place) {
            Some(s) if s.psn == new.psn => {
                s.at = new.at;
                s.tries += 1;
            }
            _ if again && self.thinned != 0 => {}
            _ => self.sent.insert(place, new),
        }
        if self.sent.len() < WINDOW {
            return;
        }
        match (self.sent.front(), self.acked) {
            (Some(oldest), Some(acked)) if !oldest.psn.is_after(acked) => drop(self.sent.pop_front()),
            _ => {
                self.thinned = self.thinned << 1 | 1;
                let mask = self.thinned;
                self.sent.retain(|s| s.psn.value() & mask == 0);
                // PSNs that are alike in their low bits would all stay.
                if self.sent.len() >= WINDOW {
                    self.sent.drain(..WINDOW / 2);
                }
            }
        }
    }

    /// Whether this could be an answer to a request in the window that has none yet.
    pub(super) fn fits(&self, answer: Answer) -> bool {
        let (Some(first), Some(last)) = (self.sent.front(), self.sent.back()) else { return false };
        let psn = answer.psn;
        if self.acked.is_some_and(|a| psn.is_before(a)) {
            return false;
        }
        match answer.says {
            Says::Ack => self.find(psn).is_some_and(|s| !s.by_data) && psn.distance(last.psn) < last.span as i32,
            Says::Data { .. } => self.find(psn).is_some_and(|s| s.by_data && s.covers(psn)),
            Says::Expects { .. } => self.find(psn.sub(1)).or(self.find(psn)).is_some(),
            Says::Nak(NakCode::PSN_SEQUENCE_ERROR) => {
                !psn.is_before(first.psn) && !psn.is_after(last.psn.add(last.span))
            }
            Says::Nak(_) | Says::NotReady => self.find(psn).is_some(),
        }
    }

    fn answered(&mut self, answer: Answer, now: i64) -> Option<u64> {
        let upto = match answer.says {
            Says::Ack | Says::Data { .. } => answer.psn,
            Says::Expects { .. } | Says::Nak(_) | Says::NotReady => answer.psn.sub(1),
        };
        let before = self.acked;
        if before.is_none_or(|acked| upto.is_after(acked)) {
            self.acked = Some(upto);
        }
        let sent = self.sent.get(self.place(upto)).filter(|s| s.psn == upto)?;
        self.longest_acked = self.longest_acked.max(sent.size);
        let sent = Some(sent).filter(|s| s.tries == 1)?;
        let is_new = before.is_none_or(|acked| upto.is_after(acked));
        let measures = match answer.says {
            Says::Ack => is_new && !sent.by_data,
            // A gap in between holds an acknowledgement of Selective Repeat back.
            Says::Expects { gap } => is_new && !gap && !sent.by_data,
            Says::Data { first } => first && sent.by_data,
            Says::Nak(_) | Says::NotReady => false,
        };
        // What was sent again on the way there makes it unclear which packet the answer is to.
        let unclear = self.sent_again.is_some_and(|p| !p.is_after(upto) && before.is_none_or(|b| p.is_after(b)));
        (measures && !unclear).then(|| u64::try_from(now - sent.at.time).ok()).flatten()
    }

    /// Everything up to this PSN was answered.
    pub(super) fn acked(&self) -> Option<Psn> {
        self.acked
    }
}
