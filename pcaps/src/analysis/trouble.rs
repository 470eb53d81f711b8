//! What goes wrong in one direction of a connection, as its packets come in.

use std::collections::VecDeque;

use softnic_wire::aeth::NakCode;
use softnic_wire::{Opcode, Psn};

use super::direction::{Answer, At, Says, Sent, SentWindow};
use super::verdict::{EndedBy, RefusedRequest};
use super::{Cause, Packets};

/// Requests with an address that are remembered for each direction.
const ASKED: usize = 512;
/// What comes again sooner, in nanoseconds, is a copy, and no retransmission after a timeout.
const LEAST_TIMEOUT: i64 = 100_000;

/// What was seen to go wrong with the requests of a direction.
#[derive(Debug, Default)]
pub(super) struct Trouble {
    /// The first retransmission of each that nothing asked for.
    pub(super) timeouts: Packets,
    /// Packets that came twice at the same time, and that came again though they were acknowledged.
    pub(super) copies: Packets,
    pub(super) acked_again: Packets,
    pub(super) not_ready: Packets,
    /// The request that found no receive last, and how often in a row; the longest row.
    not_ready_psn: Option<(Psn, u32)>,
    pub(super) not_ready_in_a_row: u32,
    pub(super) refusals: Vec<Refusal>,
    pub(super) stuck: Option<Stuck>,
    /// Packets marked as having met congestion, and when the first was.
    pub(super) marked: Packets,
    pub(super) first_mark: i64,
    pub(super) after_end: Packets,
    /// The retransmission that goes on: its next PSN, why it began, and when its last packet was sent.
    run: Option<(Psn, Cause, i64)>,
    /// The last word of the responder that asks for a retransmission.
    signal: Option<Signal>,
    /// PSN and time of the last data that answered.
    data: Option<(Psn, i64)>,
    asked: VecDeque<(Psn, RefusedRequest)>,
}

/// What asks for a retransmission, from which PSN on.
#[derive(Debug, Clone, Copy)]
struct Signal {
    cause: Cause,
    psn: Psn,
    time: i64,
    /// The retransmission has begun.
    followed: bool,
}

/// A request that is sent again and again.
#[derive(Debug, Clone, Copy)]
pub(super) struct Stuck {
    pub(super) psn: Psn,
    pub(super) tries: u32,
    pub(super) packets: Packets,
    pub(super) not_ready: bool,
    pub(super) size: u32,
}

/// A NAK that ended the connection.
#[derive(Debug, Clone, Copy)]
pub(super) struct Refusal {
    pub(super) code: NakCode,
    pub(super) number: u64,
    pub(super) request: Option<RefusedRequest>,
}

/// When and by what a connection ended.
#[derive(Debug, Clone, Copy)]
pub(super) struct Ended {
    pub(super) at: At,
    pub(super) by: EndedBy,
}

impl Trouble {
    /// A request that was not sent before.
    pub(super) fn sent(&mut self) {
        self.run = None;
    }

    /// Remembers where a request points to, for the NAK that may come.
    pub(super) fn asks(&mut self, psn: Psn, number: u64, opcode: Opcode, (va, rkey, len): (u64, u32, u32)) {
        if self.asked.len() == ASKED {
            self.asked.pop_front();
        }
        self.asked.push_back((psn, RefusedRequest { number, opcode, va, rkey, len }));
    }

    /// A request that was sent before, or that others behind it overtook; says why.
    pub(super) fn sent_again(&mut self, new: &Sent, window: &SentWindow, min_round_trip: Option<i64>) -> Cause {
        let before = window.find(new.psn);
        // Packets of a retransmission may be missing, where they were damaged or lost before the capture point.
        let goes_on = self
            .run
            .filter(|&(next, _, time)| next == new.psn || new.psn.is_after(next) && new.at.time - time < LEAST_TIMEOUT);
        let cause = goes_on.map_or_else(|| self.cause(new, before, min_round_trip), |(_, cause, _)| cause);
        if cause != Cause::Late {
            self.run = Some((new.psn.add(new.span), cause, new.at.time));
            if let Some(signal) = self.signal.as_mut().filter(|s| s.psn == new.psn) {
                signal.followed = true;
            }
        }
        let is_acked = window.acked().is_some_and(|acked| !new.psn.is_after(acked));
        if cause == Cause::Copy {
            self.copies.push(new.at.number);
        } else if is_acked && before.is_some() {
            self.acked_again.push(new.at.number);
        }
        if cause == Cause::Timeout && goes_on.is_none() {
            self.timeouts.push(new.at.number);
        }
        if goes_on.is_none() && matches!(cause, Cause::Timeout | Cause::NotReady) {
            let first = before.map(|s| s.at.number);
            match &mut self.stuck {
                Some(stuck) if stuck.psn == new.psn => {
                    stuck.tries += 1;
                    stuck.packets.push(new.at.number);
                    stuck.not_ready &= cause == Cause::NotReady;
                }
                stuck => {
                    *stuck = Some(Stuck {
                        psn: new.psn,
                        tries: 2,
                        packets: first.into_iter().chain([new.at.number]).collect(),
                        not_ready: cause == Cause::NotReady,
                        size: new.size,
                    });
                }
            }
        }
        cause
    }

    fn cause(&self, new: &Sent, before: Option<&Sent>, min_round_trip: Option<i64>) -> Cause {
        let Some(before) = before else {
            // Lost before the capture point, or overtaken.
            return self
                .signal
                .filter(|s| !s.followed && s.time + LEAST_TIMEOUT <= new.at.time)
                .map_or(Cause::Late, |s| s.cause);
        };
        let since = before.at.time;
        if let Some(signal) = self.signal.filter(|s| s.time >= since || s.psn == new.psn && !s.followed) {
            return signal.cause;
        }
        if new.by_data && self.data.is_some_and(|(psn, time)| psn.is_after(new.psn) && time >= since) {
            return Cause::ImpliedNak;
        }
        let least = min_round_trip.map_or(LEAST_TIMEOUT, |rtt| (2 * rtt).max(LEAST_TIMEOUT));
        if new.at.time - since < least { Cause::Copy } else { Cause::Timeout }
    }

    /// Whether no request that was not sent before came after this one was sent again.
    pub(super) fn is_last(&self, stuck: &Stuck) -> bool {
        self.run.is_some_and(|(next, ..)| next.is_after(stuck.psn))
    }

    fn ask(&mut self, cause: Cause, answer: Answer, at: At) {
        self.signal = Some(Signal { cause, psn: answer.psn, time: at.time, followed: false });
    }

    /// An answer to the requests; whether it ends the connection.
    pub(super) fn answered(&mut self, answer: Answer, at: At) -> bool {
        let upto = match answer.says {
            Says::Ack | Says::Data { .. } => answer.psn,
            Says::Expects { .. } | Says::Nak(_) | Says::NotReady => answer.psn.sub(1),
        };
        if self.stuck.is_some_and(|s| !s.psn.is_after(upto)) {
            self.stuck = None;
        }
        match answer.says {
            Says::Ack | Says::Expects { gap: false } => {}
            Says::Expects { gap: true } => self.ask(Cause::SelectiveAck, answer, at),
            Says::Data { first } => {
                let gap = self.data.is_some_and(|(last, _)| !first && answer.psn.is_after(last.next()));
                if gap {
                    self.ask(Cause::ImpliedNak, answer, at);
                }
                self.data = Some((answer.psn, at.time));
            }
            Says::Nak(NakCode::PSN_SEQUENCE_ERROR) => self.ask(Cause::Nak, answer, at),
            Says::Nak(code) => {
                let of = self.asked.iter().rev().find(|(psn, _)| !psn.is_after(answer.psn)).map(|&(_, r)| r);
                if self.refusals.len() < ASKED {
                    self.refusals.push(Refusal { code, number: at.number, request: of });
                }
                return true;
            }
            Says::NotReady => {
                self.ask(Cause::NotReady, answer, at);
                self.not_ready.push(at.number);
                let in_a_row = self.not_ready_psn.filter(|&(psn, _)| psn == answer.psn).map_or(1, |(_, n)| n + 1);
                self.not_ready_psn = Some((answer.psn, in_a_row));
                self.not_ready_in_a_row = self.not_ready_in_a_row.max(in_a_row);
            }
        }
        false
    }
}
