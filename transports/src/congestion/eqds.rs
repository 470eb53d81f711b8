//! EQDS (Olteanu et al., NSDI 2022): the receiver decides when a sender may send. One queue pair's part in it, in both directions.
//!
//! Both sides count bytes on the wire since the connection began, modulo 2^32. A sender says how much it has sent and has to send in all,
//! and sends as far as it was granted, and a little further: the speculative window, for the first bytes of whoever was idle. The
//! receiver grants what was asked for, a quantum at each of its turns, which the pacer of its port hands out. All figures are totals:
//! a lost packet of credit costs the time until the next one, and no credit.

#[cfg(test)]
mod tests;

use std::time::Duration;

use softnic_wire::xp::XpCredit;
use softnic_wire::{Instant, Psn, Qpn};

use super::CreditPacer;
use crate::best_effort::NEVER;
use crate::planted::{Bug, planted};

/// Bytes that a frame takes on a wire beside those from its Ethernet header to its ICRC: preamble, FCS, gap.
pub(crate) const FRAMING: u32 = 8 + 4 + 12;
/// No sender asks for more at a time than it has sent. That may be ahead of what it was granted by its speculative window.
const MOST_ASKED: u32 = 1 << 29;
/// No receiver believes that more is wanted: totals can be told apart within half of their range.
const MOST: u32 = 1 << 30;
/// A peer that nothing was heard of for so long gets no more credit until something is.
const SILENCE: Duration = Duration::from_millis(100);
/// Times that the wait for an answer doubles.
const DOUBLINGS: u32 = 6;

/// The parameters of EQDS. Each side has its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct EqdsConfig {
    /// Bytes on the wire that a sender sends before it was granted any, and keeps ahead of what it was granted.
    pub speculative: u32,
    /// Bytes that a receiver grants in one turn.
    pub quantum: u32,
    /// Thousandths of the link that a receiver hands out: what is left empties the queue that speculative packets made.
    pub share: u32,
    /// Without an answer a sender asks again after this time, then after twice that, up to 64 times.
    pub retry: Duration,
    /// Turns that come late are made up for within this time.
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

/// What is wrong with a packet of credit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Refused {
    /// An older one, or one that came before.
    Stale,
    /// Of another queue pair, more than was asked for, less than was granted before, or a request that cannot be.
    Wrong,
}

/// Credit of one queue pair: as a sender it is granted some, as a receiver it grants some.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Credit {
    config: EqdsConfig,
    own: Qpn,
    peer: Qpn,
    /// The port of the NIC, whose pacer hands out turns.
    pub(crate) port: usize,
    /// The longest frame of the connection.
    longest: u32,
    /// The peer speaks it: else nothing waits for credit, and the peer is not asked for any.
    agreed: bool,
    /// A peer that asks is granted what it asks for: one that speaks it, or may without our having heard so.
    grants: bool,
    /// As a sender: bytes that left or were given up, what was granted, what was said to be wanted, and the most that was ever said.
    sent: u32,
    granted: u32,
    said: u32,
    said_most: u32,
    /// When an answer is waited for no longer, how often that was so since the last one, and that the sender asks again.
    ask_at: Instant,
    asked: u32,
    asks_again: bool,
    /// As a receiver: what was granted, what the peer wants in all, and when something was heard of it.
    given: u32,
    wanted: u32,
    heard_at: Instant,
    /// The next turn and what it is for.
    turn: Instant,
    amount: u32,
    /// The peer is to be told what was granted.
    owes: bool,
    /// Of the next packet of credit, and of the newest that came.
    next: Psn,
    newest: Option<Psn>,
}

/// How far total `a` is ahead of `b`; totals count round.
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

    /// The queue pairs were connected, by this port, with frames that are so long at most.
    pub(crate) fn connect(&mut self, own: Qpn, peer: Qpn, port: usize, longest: u32) {
        *self = Credit { own, peer, port, longest, ..Credit::new(self.config) };
    }

    /// Whether its queue pair is connected, and has not stopped.
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

    /// The peer has not said whether it speaks it, and may have been told that we do: what it asks for is granted.
    pub(crate) fn set_open(&mut self) {
        (self.agreed, self.grants) = (false, true);
    }

    /// Whether a peer that asks is granted what it asks for.
    pub(crate) fn grants(&self) -> bool {
        self.grants
    }

    /// Whether the peer speaks it, so that what is sent waits for credit.
    pub(crate) fn is_agreed(&self) -> bool {
        self.agreed
    }

    // ---- as a sender ----

    /// Bytes on the wire that may leave now.
    pub(crate) fn room(&self) -> u32 {
        ahead(self.granted.wrapping_add(self.config.speculative), self.sent).max(0) as u32
    }

    /// Whether a frame of this length may leave.
    #[inline]
    pub(crate) fn may_send(&self, frame: u32) -> bool {
        !self.agreed || frame + FRAMING <= self.room()
    }

    /// Whether any frame of the connection may leave.
    #[inline]
    pub(crate) fn may_send_any(&self) -> bool {
        self.may_send(self.longest)
    }

    /// Whether any frame may leave behind one of this length.
    #[inline]
    pub(crate) fn may_send_behind(&self, frame: u32) -> bool {
        self.may_send(frame + FRAMING + self.longest)
    }

    /// Whether the peer was asked again and again, and nothing at all was heard of it: whoever waits for its credit would never notice that
    /// it is gone.
    pub(crate) fn is_deserted(&self, now: Instant) -> bool {
        self.asked >= DOUBLINGS && self.heard_at + SILENCE < now
    }

    /// A frame of this length leaves.
    #[inline]
    pub(crate) fn on_sent(&mut self, frame: u32) {
        self.sent = self.sent.wrapping_add(frame + FRAMING);
    }

    /// Whether the peer is to be told something, where so many bytes wait. Credit for more than that is given up: whoever used it later
    /// would send when nobody counts on it.
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

    /// Whether so much is new beside what the peer knows, and needed, that it is told. What a speculative window can take is not.
    fn is_to_ask(&self, waiting: u32) -> bool {
        let total = self.sent.wrapping_add(waiting);
        let (new, pending) = (ahead(total, self.said), ahead(self.said, self.granted));
        let needed = ahead(total, self.granted);
        new > 0 && needed > (self.config.speculative / 2) as i32 && new >= pending / 4
    }

    /// The packet that is due, and its PSN.
    pub(crate) fn write(&mut self, now: Instant, waiting: u32) -> (Psn, XpCredit) {
        // Who has not heard that the peer speaks it wants nothing.
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

    /// Something was heard of the peer.
    #[inline]
    pub(crate) fn on_heard(&mut self, now: Instant) {
        self.heard_at = now;
    }

    /// A packet of credit came. One that is wrong in anything changes nothing.
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

    /// Takes a turn, if the peer waits for credit and has none yet.
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

    /// When something is due by itself.
    pub(crate) fn due(&self) -> Instant {
        self.turn.min(self.ask_at)
    }

    /// Its turn has come, or no answer; how many bytes were granted, and whether it asks again.
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

/// Quanta of one turn, by how much waits: one for each factor of sixteen from 64 KiB on, so that a long backlog has more and never all.
fn weight(waits: u32) -> u32 {
    match waits {
        0..0x1_0000 => 1,
        0x1_0000..0x10_0000 => 2,
        0x10_0000..0x100_0000 => 3,
        _ => 4,
    }
}
