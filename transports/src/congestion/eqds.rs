//! EQDS (Olteanu et al., NSDI 2022): the receiver decides when a sender may send. This module is one queue pair's part, in both directions.
//!
//! Both sides count bytes on the wire since the start of the connection, modulo 2^32. A sender reports the total that it has sent and has
//! to send. It sends up to the total that was granted, and a little further: the speculative window, for the first bytes after an idle
//! period. The receiver grants what was requested, one quantum at each of its turns, which the pacer of its port assigns. All figures are
//! totals, so a lost credit packet costs time until the next one arrives, but no credit.

#[cfg(test)]
mod tests;

use std::time::Duration;

use softnic_wire::xp::XpCredit;
use softnic_wire::{Instant, Psn, Qpn};

use super::CreditPacer;
use crate::best_effort::NEVER;
use crate::planted::{Bug, planted};

/// Bytes of a frame on a wire besides those from its Ethernet header to its ICRC: preamble, FCS, gap.
pub(crate) const FRAMING: u32 = 8 + 4 + 12;
/// The maximum that a sender requests beyond what it has sent. The amount sent may exceed the amount granted by the speculative window.
const MOST_ASKED: u32 = 1 << 29;
/// The maximum that a receiver accepts as requested: totals can be compared within half of their range.
const MOST: u32 = 1 << 30;
/// A peer gets no more credit after this time without any packet from it.
const SILENCE: Duration = Duration::from_millis(100);
/// How often the wait for an answer doubles.
const DOUBLINGS: u32 = 6;

/// The parameters of EQDS. Each side has its own values.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct EqdsConfig {
    /// Number of bytes on the wire that a sender may send before it was granted any, and ahead of what it was granted.
    pub speculative: u32,
    /// Number of bytes that a receiver grants in one turn.
    pub quantum: u32,
    /// The fraction of the link rate that a receiver grants, in thousandths. The rest empties the queue that speculative packets caused.
    pub share: u32,
    /// A sender repeats its request after this time without an answer, then after twice this time, up to 64 times.
    pub retry: Duration,
    /// Late turns are made up for within this time.
    pub burst: Duration,
}

impl Default for EqdsConfig {
    fn default() -> EqdsConfig {
        EqdsConfig {
            speculative: 32 << 10,
            quantum: 16 << 10,
            share: 980,
            retry: Duration::from_micros(200),
            burst: Duration::ZERO,
        }
    }
}

/// Why a credit packet was refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Refused {
    /// The packet is older than another one, or a duplicate.
    Stale,
    /// The packet is of another queue pair, grants more than was requested or less than before, or contains an impossible request.
    Wrong,
}

/// The credit of one queue pair: as a sender it receives credit, as a receiver it grants credit.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Credit {
    config: EqdsConfig,
    own: Qpn,
    peer: Qpn,
    /// The NIC port whose pacer assigns the turns.
    pub(crate) port: usize,
    /// The longest frame of the connection.
    longest: u32,
    /// The peer agreed to use credit. If not, no packet waits for credit, and none is requested.
    agreed: bool,
    /// Requests of the peer are granted: the peer agreed, or may have agreed without its answer having arrived.
    grants: bool,
    /// As a sender: the total sent or given up, the total granted, the last total requested, and the highest total ever requested.
    sent: u32,
    granted: u32,
    said: u32,
    said_most: u32,
    /// As a sender: when to stop waiting for an answer, how often that has happened since the last answer, and whether to repeat the
    /// request.
    ask_at: Instant,
    asked: u32,
    asks_again: bool,
    /// As a receiver: the total granted, the total that the peer requested, and when a packet of the peer last arrived.
    given: u32,
    wanted: u32,
    heard_at: Instant,
    /// As a receiver: the time of the next turn, and its amount.
    turn: Instant,
    amount: u32,
    /// The peer must be informed of the credit granted.
    owes: bool,
    /// The PSN of the next credit packet, and that of the newest one received.
    next: Psn,
    newest: Option<Psn>,
}

/// How far total `a` is ahead of `b`; totals wrap around.
fn ahead(a: u32, b: u32) -> i32 {
    a.wrapping_sub(b) as i32
}

impl Credit {
    pub(crate) fn new(config: EqdsConfig) -> Credit {
        Credit {
            config,
            own: Qpn::new(0),
            peer: Qpn::new(0),
            port: 0,
            longest: 0,
            agreed: false,
            grants: false,
            sent: 0,
            granted: 0,
            said: 0,
            said_most: 0,
            ask_at: NEVER,
            asked: 0,
            asks_again: false,
            given: 0,
            wanted: 0,
            heard_at: Instant::ZERO,
            turn: NEVER,
            amount: 0,
            owes: false,
            next: Psn::new(0),
            newest: None,
        }
    }

    /// The queue pairs were connected, at this port, with frames of at most this length.
    pub(crate) fn connect(&mut self, own: Qpn, peer: Qpn, port: usize, longest: u32) {
        *self = Credit { own, peer, port, longest, ..Credit::new(self.config) };
    }

    /// Whether the queue pair is connected, and has not stopped.
    pub(crate) fn is_connected(&self) -> bool {
        self.longest != 0
    }

    /// The queue pair was reset.
    pub(crate) fn reset(&mut self) {
        *self = Credit::new(self.config);
    }

    pub(crate) fn set_agreed(&mut self, agreed: bool) {
        (self.agreed, self.grants) = (agreed, agreed);
    }

    /// The peer has not answered, and may have received the local offer: its requests are granted.
    pub(crate) fn set_open(&mut self) {
        (self.agreed, self.grants) = (false, true);
    }

    /// Whether requests of the peer are granted.
    pub(crate) fn grants(&self) -> bool {
        self.grants
    }

    /// Whether the peer agreed to use credit, so that packets wait for credit.
    pub(crate) fn is_agreed(&self) -> bool {
        self.agreed
    }

    // ---- as a sender ----

    /// Number of bytes on the wire that may be sent now.
    pub(crate) fn room(&self) -> u32 {
        ahead(self.granted.wrapping_add(self.config.speculative), self.sent).max(0) as u32
    }

    /// Whether a frame of this length may be sent.
    #[inline]
    pub(crate) fn may_send(&self, frame: u32) -> bool {
        !self.agreed || frame + FRAMING <= self.room()
    }

    /// Whether any frame of the connection may be sent.
    #[inline]
    pub(crate) fn may_send_any(&self) -> bool {
        self.may_send(self.longest)
    }

    /// Whether any frame may be sent after one of this length.
    #[inline]
    pub(crate) fn may_send_behind(&self, frame: u32) -> bool {
        self.may_send(frame + FRAMING + self.longest)
    }

    /// Whether the request was repeated several times without any packet from the peer. Otherwise a sender that waits for credit would
    /// never detect that the peer is gone.
    pub(crate) fn is_deserted(&self, now: Instant) -> bool {
        self.asked >= DOUBLINGS && self.heard_at + SILENCE < now
    }

    /// A frame of this length is sent.
    #[inline]
    pub(crate) fn on_sent(&mut self, frame: u32) {
        self.sent = self.sent.wrapping_add(frame + FRAMING);
    }

    /// Whether a credit packet is to be sent, if `waiting` bytes wait. Credit beyond the waiting bytes is given up, because its later use
    /// would be at a time for which the receiver does not plan.
    pub(crate) fn has_something(&mut self, waiting: u32) -> bool {
        if !self.agreed {
            return self.grants && self.owes;
        }
        let waiting = waiting.min(MOST_ASKED);
        let total = self.sent.wrapping_add(waiting);
        let unused = ahead(self.granted, total);
        if unused > 0 {
            self.sent = self.sent.wrapping_add(unused as u32);
        }
        self.owes || self.asks_again || self.is_to_ask(waiting)
    }

    /// Whether the request has grown enough since the last report, and is needed, so that it is to be sent. Bytes that fit into the
    /// speculative window are not requested.
    fn is_to_ask(&self, waiting: u32) -> bool {
        let total = self.sent.wrapping_add(waiting);
        let (new, pending) = (ahead(total, self.said), ahead(self.said, self.granted));
        let needed = ahead(total, self.granted);
        new > 0 && needed > (self.config.speculative / 2) as i32 && new >= pending / 4
    }

    /// The credit packet that is due, and its PSN.
    pub(crate) fn write(&mut self, now: Instant, waiting: u32) -> (Psn, XpCredit) {
        // Without an agreement of the peer, no credit is requested.
        let total = if self.agreed { self.sent.wrapping_add(waiting.min(MOST_ASKED)) } else { self.granted };
        if ahead(total, self.said_most) > 0 {
            self.said_most = total;
        }
        self.said = total;
        let flags = if self.asks_again { XpCredit::ASKS } else { 0 };
        (self.owes, self.asks_again) = (false, false);
        self.ask_at = if ahead(self.said, self.granted) > 0 { now + self.patience() } else { NEVER };
        let psn = self.next;
        self.next = psn.next();
        (psn, XpCredit { flags, giver: self.own.value(), granted: self.given, wanted: total })
    }

    fn patience(&self) -> Duration {
        self.config.retry * (1 << self.asked.min(DOUBLINGS))
    }

    // ---- what comes ----

    /// A packet of the peer has arrived.
    #[inline]
    pub(crate) fn on_heard(&mut self, now: Instant) {
        self.heard_at = now;
    }

    /// Handles a credit packet. A packet that is wrong in any field changes nothing.
    pub(crate) fn on_packet(&mut self, now: Instant, psn: Psn, credit: &XpCredit) -> Result<(), Refused> {
        if credit.giver != self.peer.value() {
            return Err(Refused::Wrong);
        }
        if self.newest.is_some_and(|newest| !newest.is_before(psn)) {
            return Err(Refused::Stale);
        }
        let more = ahead(credit.granted, self.granted);
        let wants = ahead(credit.wanted, self.given);
        if more < 0 || ahead(credit.granted, self.said_most) > 0 || wants.unsigned_abs() > MOST {
            return Err(Refused::Wrong);
        }
        (self.newest, self.wanted, self.heard_at) = (Some(psn), credit.wanted, now);
        if more > 0 {
            (self.granted, self.asked) = (credit.granted, 0);
            if planted(Bug::EqdsCountedTwice) {
                self.granted = self.granted.wrapping_add(more as u32);
            }
            self.ask_at = if ahead(self.said, self.granted) > 0 { now + self.patience() } else { NEVER };
        }
        self.owes |= credit.flags & XpCredit::ASKS != 0;
        Ok(())
    }

    // ---- as a receiver ----

    /// Takes a turn, if the peer waits for credit and no turn is assigned yet.
    pub(crate) fn take_turn(&mut self, now: Instant, pacer: &mut CreditPacer) {
        let waits = ahead(self.wanted, self.given);
        if self.turn != NEVER || !self.grants || waits <= 0 || self.heard_at + SILENCE < now {
            return;
        }
        self.amount = (self.config.quantum * weight(waits as u32)).min(waits as u32);
        let cost = u64::from(self.amount) * 1000 / u64::from(self.config.share.clamp(1, 1000));
        self.turn = pacer.take_turn(now, cost.min(u32::MAX.into()) as u32, self.config.burst);
        if planted(Bug::EqdsUnpaced) {
            self.turn = now;
        }
    }

    // ---- time ----

    /// The time of the next turn or retry.
    pub(crate) fn due(&self) -> Instant {
        self.turn.min(self.ask_at)
    }

    /// Handles a timeout: a turn, or a missing answer. Returns the number of bytes granted, and whether the request is repeated.
    pub(crate) fn on_time(&mut self, now: Instant) -> (u32, bool) {
        let mut granted = 0;
        if self.turn <= now {
            granted = (ahead(self.wanted, self.given).max(0) as u32).min(self.amount);
            self.given = self.given.wrapping_add(granted);
            (self.turn, self.owes) = (NEVER, self.owes || granted > 0);
        }
        let again = self.ask_at <= now;
        if again {
            (self.ask_at, self.asked, self.asks_again) = (NEVER, self.asked.saturating_add(1), true);
        }
        (granted, again)
    }
}

/// Number of quanta of one turn, by the number of waiting bytes: one more for each factor of sixteen from 64 KiB on, so that a long backlog
/// gets more, but never everything.
fn weight(waits: u32) -> u32 {
    match waits {
        0..0x1_0000 => 1,
        0x1_0000..0x10_0000 => 2,
        0x10_0000..0x100_0000 => 3,
        _ => 4,
    }
}
