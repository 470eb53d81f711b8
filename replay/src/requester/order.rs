//! Bringing our NIC to send what was captured next: by answers, by time, or because packets changed places on their way.

use softnic_wire::aeth::{NakCode, Syndrome};
use softnic_wire::opcode::Service;

use super::{REACTION, Requester, SHORTEST_TIMEOUT};
use crate::capture::Packet;
use crate::flows::Request;
use crate::messages::OVERTAKEN;
use crate::peers::Rule;
use crate::rig::Sent;

/// Between two copies of a packet that was duplicated there are fewer.
const COPIES: usize = 16;
/// PSNs that a packet may be behind the newest: those of READs count for many.
const MOST_OVERTAKEN: i64 = 1 << 16;

/// What a captured request is of ours.
pub(super) enum Match {
    /// What our NIC sends next.
    Next,
    /// What it sent before, and was not captured yet.
    Late(Box<Sent>),
    /// What was captured before, duplicated on its way.
    Again,
    /// None of these.
    Nothing,
}

impl Requester<'_> {
    /// Makes our NIC's next packet the one with this PSN, if there is any reason for that.
    pub(super) fn bring_to(&mut self, r: Request, p: &Packet, rest: &[Request]) -> Match {
        let psn = r.psn;
        if self.poll() == Some(psn) {
            return Match::Next;
        }
        let back = self.held.as_ref().is_none_or(|h| h.0 > psn);
        if back && self.feed_reason(psn) && self.await_turn(psn, p) {
            return Match::Next;
        }
        self.feed_before(psn);
        if self.poll() == Some(psn) {
            return Match::Next;
        }
        // While it sends again, another NAK may make it go on further ahead.
        if !back && psn < self.highest && self.feed_reason(psn) && self.await_turn(psn, p) {
            return Match::Next;
        }
        let back = self.held.as_ref().is_none_or(|h| h.0 > psn);
        if back && let Some(ours) = self.find_overtaken(r, p, rest) {
            return Match::Late(Box::new(ours));
        }
        self.rig.go_to(p.time);
        if back && self.hear_again(psn) && self.poll() == Some(psn) {
            return Match::Next;
        }
        if back && self.is_duplicated(r, p) {
            return Match::Again;
        }
        let quiet = p.time.saturating_sub(self.quiet_since);
        // A NAK may be lost: then time alone brings it back, and to the oldest packet without an answer.
        let soon = psn != self.window.una && self.was_told_otherwise(psn);
        let patience = if soon { REACTION } else { SHORTEST_TIMEOUT };
        // The timer runs from the last answer, also of a requester that has so much to send that it never pauses.
        let overdue = psn == self.window.una && p.time.saturating_sub(self.progress) >= REACTION / 2;
        if back && (quiet >= patience || overdue) {
            // Nothing but time explains it.
            self.held = None;
            self.rig.wait();
            if self.poll().is_some_and(|ours| ours <= psn) {
                self.found.counts.timeouts += 1;
            }
        }
        while self.poll().is_some_and(|ours| ours < psn) {
            let Some((ours, sent)) = self.held.take() else { break };
            let new = ours >= self.highest;
            let overtaken = || rest.iter().take(OVERTAKEN as usize).any(|r| r.psn == ours);
            if !new && !self.captured_behind && !overtaken() {
                self.held = Some((ours, sent));
                return Match::Nothing;
            }
            self.found.counts.requests_not_captured += u64::from(new);
            self.skipped.insert(ours, sent);
        }
        if self.poll() == Some(psn) || self.goes_back_further(psn, p) {
            return Match::Next;
        }
        Match::Nothing
    }

    /// A packet of ours that others overtook before it was captured.
    fn find_overtaken(&mut self, r: Request, p: &Packet, rest: &[Request]) -> Option<Sent> {
        // After a pause, with more of what was sent already behind it, it is the beginning of all that is sent again.
        let quiet = p.time.saturating_sub(self.quiet_since) >= SHORTEST_TIMEOUT;
        let goes_on = rest.first().is_some_and(|next| next.psn == r.psn + r.span && next.psn < self.highest);
        if quiet && goes_on {
            return None;
        }
        let ours = self.skipped.remove(&r.psn)?;
        let counts = &mut self.found.counts;
        counts.requests_not_captured = counts.requests_not_captured.saturating_sub(1);
        counts.reordered += 1;
        self.captured_behind = true;
        Some(ours)
    }

    /// Whether the very same packet was captured a moment ago.
    fn is_duplicated(&mut self, r: Request, p: &Packet) -> bool {
        let same = self.flow.service == Service::Rc
            && self.recent.iter().any(|o| {
                let before = &self.packets[o.at];
                o.psn == r.psn && before.frame == p.frame && p.time.saturating_sub(before.time) < REACTION
            });
        self.found.counts.duplicated += u64::from(same);
        self.captured_behind |= same;
        same
    }

    /// Keeps what was captured last, and forgets what cannot come any more.
    pub(super) fn remember(&mut self, r: Request) {
        if self.recent.len() == COPIES {
            self.recent.pop_front();
        }
        self.recent.push_back(r);
        while let Some(oldest) = self.skipped.first_entry().filter(|e| *e.key() < self.highest - MOST_OVERTAKEN) {
            oldest.remove();
        }
    }

    /// Whether a NAK that our NIC has not heard of asks for another packet.
    fn was_told_otherwise(&self, psn: i64) -> bool {
        self.kept.iter().any(|&k| {
            let a = self.flow.answers[k];
            let p = &self.packets[a.at];
            let asks = p.ext.aeth.is_some_and(|x| x.syndrome == Syndrome::Nak(NakCode::PSN_SEQUENCE_ERROR));
            asks && self.window.effect(a.psn, p).resend.is_some_and(|other| other != psn)
        })
    }

    /// A NAK that was duplicated on its way makes a requester go back twice.
    fn hear_again(&mut self, psn: i64) -> bool {
        let same = |&&k: &&usize| {
            let a = self.flow.answers[k];
            let syndrome = self.packets[a.at].ext.aeth.map(|x| x.syndrome);
            let asks = matches!(syndrome, Some(Syndrome::Nak(_) | Syndrome::RnrNak(_)));
            asks && a.psn == psn && psn >= self.window.una
        };
        let Some(&k) = self.reasons.iter().rev().take(8).find(same) else { return false };
        self.feed(k);
        self.forget(&[]);
        self.found.counts.duplicated += 1;
        true
    }

    /// After an RNR NAK our NIC waits.
    fn await_turn(&mut self, psn: i64, p: &Packet) -> bool {
        if self.poll().is_none() {
            self.rig.go_to(p.time);
            self.rig.time_out();
            if self.poll().is_none() {
                // The captured requester did not wait as long.
                if !self.found.allows(p.number, Rule::RnrTooSoon, self.flow.requester_kind) {
                    return false;
                }
                self.rig.wait();
            }
        }
        self.poll() == Some(psn)
    }

    /// A requester that sends again what was acknowledged already.
    fn goes_back_further(&mut self, psn: i64, p: &Packet) -> bool {
        let acknowledged = psn < self.window.una;
        if acknowledged && self.found.allows(p.number, Rule::GoesBackFurther, self.flow.requester_kind) {
            // Ours has forgotten it: there is nothing to compare.
            self.held = None;
            return true;
        }
        false
    }
}
