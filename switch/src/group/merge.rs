//! One acknowledgement of many (MC-RDMA §IV-C): what the members of a group have said, and what their sender is told.
//!
//! An ACK of PSN n says that all up to n is there, so the group has what its last member has: the sender is told the minimum. The
//! paper's switches overwrite what a member said before, read no state of others twice, and are silent until the last member
//! speaks; a processor needs none of that, so here PSNs are compared in circular order, and the minimum goes out when it moves.

use softnic_wire::aeth::{Aeth, Credits, NakCode, RnrTimer, Syndrome};
use softnic_wire::{Instant, Psn};

use crate::planted::{Bug, planted};

/// What the sender is told.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Answer {
    /// Of the BTH.
    pub psn: Psn,
    /// ACK, RNR NAK or NAK, with the MSN of the last member.
    pub aeth: Aeth,
}

/// What became of something that a member said.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Merged {
    /// The sender is told this.
    Tell(Answer),
    /// The sender need not know, or not yet.
    Keep,
    /// It is about what was never sent, or means nothing.
    Lie,
}

/// What a member has said.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Member {
    /// All up to this one is there.
    pub acked: Psn,
    /// Messages that it has completed, as it says.
    msn: u32,
    /// The last message that it has a receive for; `None` where it gives no credits.
    limit: Option<u32>,
    /// It has no receive for the packet behind `acked`.
    rnr: Option<RnrTimer>,
    /// It will never take the packet behind `acked`.
    fatal: Option<NakCode>,
    /// When it last said anything.
    pub heard: Option<Instant>,
}

/// Sequence NAKs for one PSN, as long as nothing more is acknowledged. A sender counts what it does again until then: members that lose
/// packets would use up its retries for another one that is far away, or silent for a while. After these its own clock decides.
const MAX_NAKS: u8 = 2;

/// A NAK that the sender was told.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Asked {
    psn: Psn,
    /// It may wait before it follows.
    rnr: bool,
    /// What had never been sent then.
    end: Psn,
    /// How far it has come since it went back to `psn`. A late packet of before is not it: only `psn` itself says that it did.
    again: Option<Psn>,
    /// How often it was told to go back to `psn` at once.
    naks: u8,
}

impl Asked {
    /// The sender's packet passes.
    #[inline]
    fn pass(&mut self, psn: Psn) {
        let further = self.again.is_some_and(|at| psn.is_after(at) && psn.is_before(self.end));
        if psn == self.psn || further {
            self.again = Some(psn);
        }
    }

    /// Whether a NAK of `psn`, after which the sender would go back to `from`, brings nothing new: it was told so and has not followed
    /// yet, or it has and `psn` is still to come. Otherwise members that lose packets in turn would use up its retries.
    fn covers(&self, psn: Psn, from: Psn) -> bool {
        match self.again {
            None => from == self.psn,
            Some(at) => psn.is_after(at) && psn.is_before(self.end),
        }
    }
}

/// The state of a group at its sender's switch.
#[derive(Debug, Clone)]
pub struct Merge {
    members: Vec<Member>,
    /// The first PSN that was never sent.
    next: Psn,
    /// The minimum of what members have.
    merged: Psn,
    /// The smallest limit that the sender knows of; only where members give credits.
    told_limit: Option<u32>,
    asked: Option<Asked>,
    /// A request that no member gets, and why.
    refused: Option<(Psn, NakCode)>,
    /// The fatal NAK has gone out.
    failed: bool,
}

impl Merge {
    /// Nothing was sent yet; the first packet will be `first`.
    pub fn new(first: Psn, members: usize) -> Merge {
        let acked = first.sub(1);
        let member = Member { acked, msn: 0, limit: None, rnr: None, fatal: None, heard: None };
        Merge {
            members: vec![member; members],
            next: first,
            merged: acked,
            told_limit: None,
            asked: None,
            refused: None,
            failed: false,
        }
    }

    /// What members have said, in their order.
    pub fn members(&self) -> &[Member] {
        &self.members
    }

    /// All members have everything up to this one.
    pub fn merged(&self) -> Psn {
        self.merged
    }

    /// How many packets a member has not acknowledged yet.
    pub fn behind(&self, member: usize) -> u32 {
        self.members.get(member).map_or(0, |m| self.next.forward_from(m.acked).saturating_sub(1))
    }

    /// The first PSN that was never sent.
    #[inline]
    pub fn next(&self) -> Psn {
        self.next
    }

    /// A packet of the sender's passes. Whether members get it, and an answer that is due again.
    #[inline]
    pub fn sent(&mut self, psn: Psn) -> (bool, Option<Answer>) {
        // What is half of all numbers ahead of the last member is behind it.
        let new = !psn.is_before(self.next) && psn.is_after(self.merged);
        if new {
            self.next = psn.next();
        } else if let Some(asked) = &mut self.asked {
            asked.pass(psn);
        }
        let refused = self.refused.is_some_and(|(from, _)| !psn.is_before(from));
        // Whoever sends again what failed has not heard of it; those who could tell are gone.
        let again = if !new && self.failed && psn == self.merged.next() { self.failure() } else { None };
        (!refused, again)
    }

    /// No member gets the sender's request at `psn`, nor what is behind it: what the sender is told now, if it is the request's turn.
    pub fn refuse(&mut self, psn: Psn, code: NakCode) -> Option<Answer> {
        if self.refused.is_none_or(|(before, _)| psn.is_before(before)) && psn.is_after(self.merged) {
            self.refused = Some((psn, code));
        }
        self.fail()
    }

    /// A member spoke.
    pub fn heard(&mut self, now: Instant, from: usize, psn: Psn, aeth: Aeth) -> Merged {
        let unsent = self.refused.map_or(self.next, |(psn, _)| psn);
        if !psn.is_before(unsent) {
            return Merged::Lie;
        }
        let Some(member) = self.members.get_mut(from) else { return Merged::Lie };
        let said = match aeth.syndrome {
            Syndrome::Ack(_) => psn,
            // What nobody has defined says nothing, not even that what was before it came (IBA 9.7.5.2.1).
            Syndrome::Nak(code) if code.0 > NakCode::REMOTE_OPERATIONAL_ERROR.0 => return Merged::Lie,
            // A NAK is an acknowledgement of all before it.
            Syndrome::Nak(_) | Syndrome::RnrNak(_) => psn.sub(1),
            Syndrome::Reserved(_) => return Merged::Lie,
        };
        member.heard = Some(now);
        let old = said.is_before(member.acked);
        if said.is_after(member.acked) {
            *member = Member { acked: said, msn: aeth.msn, rnr: None, fatal: None, ..*member };
            member.outgrow();
        }
        match aeth.syndrome {
            Syndrome::Ack(credits) => {
                if !old {
                    member.grant(aeth.msn, credits);
                }
                self.acknowledge(from)
            }
            // It has said more since.
            _ if old => Merged::Keep,
            Syndrome::RnrNak(timer) => {
                member.rnr = Some(timer);
                self.ask(psn, true)
            }
            Syndrome::Nak(NakCode::PSN_SEQUENCE_ERROR) => self.ask(psn, false),
            Syndrome::Nak(code) => {
                member.fatal = Some(code);
                let moved = self.advance();
                match self.fail() {
                    Some(answer) => Merged::Tell(answer),
                    None if moved => Merged::Tell(self.acknowledgement()),
                    None => Merged::Keep,
                }
            }
            Syndrome::Reserved(_) => Merged::Lie,
        }
    }

    /// Behind an ACK.
    fn acknowledge(&mut self, from: usize) -> Merged {
        let moved = self.advance();
        if moved && let Some(answer) = self.fail() {
            return Merged::Tell(answer);
        }
        let is_last = self.members.get(from).is_some_and(|m| m.acked == self.merged) && !planted(Bug::AckNotRepeated);
        let limit = self.limit();
        let freed = limit != self.told_limit && self.merged_once();
        if moved || is_last || freed { Merged::Tell(self.acknowledgement()) } else { Merged::Keep }
    }

    /// Behind a NAK of `nak` that can be repaired.
    fn ask(&mut self, nak: Psn, rnr: bool) -> Merged {
        let moved = self.advance();
        if let Some(answer) = self.fail() {
            return Merged::Tell(answer);
        }
        let psn = if planted(Bug::NakAsItCame) { nak } else { self.merged.next() };
        // One NAK for a loss, however many members it struck; who is told to wait need not be told to hurry.
        if self.asked.is_some_and(|asked| asked.covers(nak, psn) && (asked.rnr || !rnr)) {
            return if moved { Merged::Tell(self.acknowledgement()) } else { Merged::Keep };
        }
        let naks = self.asked.filter(|asked| asked.psn == psn).map_or(0, |asked| asked.naks) + u8::from(!rnr);
        if !rnr && naks > MAX_NAKS {
            return Merged::Keep;
        }
        self.asked = Some(Asked { psn, rnr, end: self.next, again: None, naks });
        let waits = self.members.iter().filter_map(|m| m.rnr).max_by_key(|timer| timer.duration());
        let syndrome = match waits.filter(|_| rnr) {
            Some(timer) => Syndrome::RnrNak(timer),
            None => Syndrome::Nak(NakCode::PSN_SEQUENCE_ERROR),
        };
        Merged::Tell(Answer { psn, aeth: Aeth { syndrome, msn: self.last().msn } })
    }

    /// Looks for the minimum; whether it moved.
    fn advance(&mut self) -> bool {
        let merged = self.last().acked;
        let moved = merged.is_after(self.merged);
        if moved {
            self.merged = merged;
        }
        moved
    }

    /// The member that has least; the first of several.
    fn last(&self) -> &Member {
        let behind = |m: &&Member| match () {
            () if planted(Bug::MaximumForMinimum) => !m.acked.forward_from(self.merged),
            () if planted(Bug::WrapAsIntegers) => m.acked.value(),
            () => m.acked.forward_from(self.merged),
        };
        self.members.iter().min_by_key(behind).expect("a group has members")
    }

    /// The fatal NAK, if all before it is acknowledged by all, once.
    fn fail(&mut self) -> Option<Answer> {
        if self.failed {
            return None;
        }
        let answer = self.failure()?;
        self.failed = true;
        Some(answer)
    }

    fn failure(&self) -> Option<Answer> {
        let psn = self.merged.next();
        let own = self.refused.filter(|(at, _)| *at == psn).map(|(_, code)| code);
        let code = own.or_else(|| self.members.iter().filter(|m| m.acked == self.merged).find_map(|m| m.fatal))?;
        Some(Answer { psn, aeth: Aeth { syndrome: Syndrome::Nak(code), msn: self.last().msn } })
    }

    /// The smallest limit of all members; `None` when none of them gives credits.
    fn limit(&self) -> Option<u32> {
        let base = self.last().msn;
        self.members.iter().filter_map(|m| m.limit).min_by_key(|limit| Psn::new(*limit).forward_from(Psn::new(base)))
    }

    /// Whether all members have spoken.
    fn merged_once(&self) -> bool {
        self.members.iter().all(|m| m.heard.is_some())
    }

    /// What all have, with the fewest credits of all.
    fn acknowledgement(&mut self) -> Answer {
        let (mut msn, mut limit) = (self.last().msn, self.limit());
        self.told_limit = limit;
        if planted(Bug::MsnOfAnother) {
            msn = self.members.iter().map(|m| m.msn).max().unwrap_or(msn);
        }
        if planted(Bug::CreditsOfAnother) {
            limit = self.members.iter().rev().find_map(|m| m.limit);
        }
        let left = |limit: u32| Psn::new(limit).distance(Psn::new(msn)).max(0) as u32;
        let credits = limit.map_or(Credits::UNLIMITED, |limit| Credits::at_most(left(limit)));
        Answer { psn: self.merged, aeth: Aeth { syndrome: Syndrome::Ack(credits), msn } }
    }
}

impl Member {
    /// Remembers up to which message it has receives; what it promised once stays promised, whatever comes late.
    fn grant(&mut self, msn: u32, credits: Credits) {
        let limit = credits.count().map(|n| msn.wrapping_add(n) & (Psn::SPACE - 1));
        let later = |new: u32, old: u32| Psn::new(new).is_after(Psn::new(old));
        match (limit, self.limit) {
            (Some(new), Some(old)) if !later(new, old) => {}
            _ => self.limit = limit,
        }
    }

    /// A NAK gives no credits, but who has completed more than it had promised has had receives for that.
    fn outgrow(&mut self) {
        self.limit =
            self.limit.map(|limit| if Psn::new(self.msn).is_after(Psn::new(limit)) { self.msn } else { limit });
    }
}

#[cfg(test)]
mod tests;
