//! The requests of a connection in the order of the capture: where PSNs are missing, what came twice or late, where the sender went back.

mod again;

use std::collections::{BTreeMap, HashMap, HashSet};

use softnic_wire::{Opcode, Psn};

use super::Action;
use super::doubts::{Of, Side};
use super::half::{Half, Recovery, Said, Sent, unwrap, wrapped};
use super::record::{Found, Record, What};
use crate::PacketNumber;
use crate::analysis::Says;

/// What comes again sooner, in nanoseconds, right behind the first, is a copy that the network or the capture made.
pub(super) const COPY: i64 = 25_000;
/// Requests between a packet and its copy, at most.
const COPY_WITHIN: usize = 4;
/// A PSN that leaps farther belongs to another connection of the same queue pair.
pub(super) const LEAP: i64 = 1 << 16;
/// PSNs that are missing, and remembered: as many as a script can name. Each packet of a capture that lies may leave out [`LEAP`] of them.
pub(super) const MOST_MISSING: usize = super::MOST_EVENTS;
/// Packets that pass one that is late, at most: what a script can say.
pub(super) const MOST_BEHIND: usize = 1000;
/// Transmissions of one request after which it was given up, if nothing follows.
const TRIES: u32 = 3;

/// PSNs that were missing when a packet came.
#[derive(Debug, Clone, Copy)]
struct Gap {
    /// The packet before which they would stand, by its place in `sent`.
    before: usize,
    psn: i64,
    /// It came late, and was not lost.
    came: bool,
}

/// Follows the requests of a half.
pub(super) struct Walk<'a> {
    records: &'a [Record],
    half: &'a Half,
    doubts: Of,
    sent: Vec<Sent>,
    said: Vec<Said>,
    /// The most that answers up to each cover.
    reach: Vec<i64>,
    /// What each PSN is, wherever in the capture it was seen.
    opcodes: HashMap<i64, (Opcode, i64)>,
    /// The last transmission of each request.
    last: BTreeMap<i64, usize>,
    gaps: Vec<Gap>,
    /// Gaps that nothing has filled yet, by PSN.
    missing: BTreeMap<i64, usize>,
    /// Packets that came late, each with the first packet that overtook it.
    late: HashMap<usize, usize>,
    lost: HashSet<usize>,
    /// Packets that came while an earlier one was missing: the responder took none of them.
    early: HashSet<usize>,
    /// The first packet since the sender last went back.
    pass: usize,
    /// Answers that were lost, by their place in `said`.
    lost_answers: HashSet<usize>,
    /// Answers up to this request, by their place in `said`.
    heard: usize,
    /// The most that answers so far cover.
    covered: Option<i64>,
    /// The PSN that the last NAK among them asks for.
    asked: Option<i64>,
    /// NAKs that the sender has not gone back for, by their places in `said`.
    naks: Vec<usize>,
    /// The request that timed out last, and how often in a row.
    tries: Option<(i64, u32)>,
    pub(super) found: Vec<Found>,
    pub(super) delays: Vec<i64>,
}

impl<'a> Walk<'a> {
    pub(super) fn new(records: &'a [Record], half: &'a Half, doubts: Of) -> Walk<'a> {
        let (sent, said) = unwrap(records, half);
        let so_far = |most: &mut i64, said: &Said| {
            *most = said.covers().max(*most);
            Some(*most)
        };
        let reach = said.iter().scan(i64::MIN, so_far).collect();
        let opcodes = sent.iter().map(|s| (s.psn, (records[s.at].opcode, s.most))).collect();
        Walk {
            records,
            half,
            doubts,
            sent,
            said,
            reach,
            opcodes,
            last: BTreeMap::new(),
            gaps: Vec::new(),
            missing: BTreeMap::new(),
            late: HashMap::new(),
            lost: HashSet::new(),
            early: HashSet::new(),
            pass: 0,
            lost_answers: HashSet::new(),
            heard: 0,
            covered: None,
            asked: None,
            naks: Vec::new(),
            tries: None,
            found: Vec::new(),
            delays: Vec::new(),
        }
    }

    pub(super) fn run(&mut self) {
        // The least and the greatest PSN that could be next.
        let mut next: Option<(i64, i64)> = None;
        for i in 0..self.sent.len() {
            let s = self.sent[i];
            self.hear(s.at);
            let after = (s.psn + s.least, s.psn + s.most);
            let (low, high) = *next.get_or_insert((s.psn, s.psn));
            if s.psn > high {
                if self.strays(i, high) {
                    continue;
                }
                self.gap(i, high, s.psn);
            } else if s.psn < low {
                self.begun_before(i);
                if let Some(of) = self.copied(i) {
                    self.copy(i, of);
                    continue;
                }
                if self.came_late(i) {
                    continue;
                }
                if self.half.service == Recovery::GoBackN {
                    self.went_back(i);
                }
                self.pass = i;
            }
            self.missing.remove(&s.psn);
            let before = self.missing.range(..s.psn).next_back();
            if before.is_some_and(|(psn, _)| self.covered.is_none_or(|c| c < *psn)) {
                self.early.insert(i);
            }
            self.last.insert(s.psn, i);
            next = Some(after);
        }
        self.hear(usize::MAX);
        if let Some((psn, tries)) = self.tries
            && tries + 1 >= TRIES
            && self.half.answers_are_known
        {
            self.unanswered(psn, None);
        }
        self.tell_gaps();
    }

    /// Takes the answers before this packet.
    fn hear(&mut self, before: usize) {
        while let Some(said) = self.said.get(self.heard).filter(|said| said.at < before) {
            self.covered = self.covered.max(Some(said.covers()));
            if said.asks_for(said.psn) {
                self.asked = Some(said.psn);
                let covered = said.covers();
                self.naks.retain(|n| self.said[*n].psn >= covered);
                self.naks.push(self.heard);
            }
            self.heard += 1;
        }
        self.tries = self.tries.filter(|(psn, _)| self.covered.is_none_or(|c| c < *psn));
    }

    fn name(&self, at: usize) -> PacketNumber {
        PacketNumber(self.records[at].number)
    }

    /// PSNs are missing before packet `i`.
    fn gap(&mut self, i: usize, from: i64, to: i64) {
        // Where an answer came meanwhile, the sender leaves out what need not be sent again.
        let from = from.max(self.covered.filter(|_| i > 0).map_or(from, |covered| covered + 1));
        if to - from > LEAP || self.doubts.requests == Side::Before {
            return;
        }
        let mut psn = from;
        while psn < to && self.gaps.len() < MOST_MISSING {
            self.missing.insert(psn, self.gaps.len());
            self.gaps.push(Gap { before: i, psn, came: false });
            psn += self.opcodes.get(&psn).map_or(1, |(_, span)| *span);
        }
    }

    /// A packet of an earlier pass that comes among those that are sent again, so late was it: the next one goes on where they were.
    fn strays(&mut self, i: usize, high: i64) -> bool {
        let (s, newest) = (self.sent[i], self.last.last_key_value().map(|(psn, _)| *psn));
        let goes_on = self.sent.get(i + 1).is_some_and(|next| next.psn <= high);
        let is_new = newest.is_some_and(|newest| newest < s.psn);
        if self.pass == 0 || !goes_on || !is_new || i - self.pass > MOST_BEHIND || self.doubts.requests == Side::Before
        {
            return false;
        }
        let before = self.sent[self.pass].at;
        let why = format!("packet {}, which is sent again for others, came before it", self.name(before));
        self.found.push(Found { what: What::Late { at: s.at, before, behind: (i - self.pass) as u32 }, why });
        self.late.insert(i, self.pass);
        self.last.insert(s.psn, i);
        true
    }

    /// The first packets of the capture may have come behind packet `i`, which is missing before them; or the capture began behind it.
    fn begun_before(&mut self, i: usize) {
        let s = self.sent[i];
        let Some((&first, _)) = self.last.first_key_value().filter(|(first, _)| **first > s.psn) else { return };
        let asked = self.said[..self.heard].iter().any(|said| said.asks_for(s.psn));
        let at_once = s.time - self.sent[0].time < COPY;
        if (asked || at_once) && first - s.psn <= MOST_BEHIND as i64 && !self.missing.contains_key(&s.psn) {
            self.gap(0, s.psn, first);
            self.early.extend(0..i);
        }
    }

    fn tell_gaps(&mut self) {
        for gap in std::mem::take(&mut self.gaps).into_iter().filter(|gap| !gap.came) {
            let before = self.sent[gap.before].at;
            let why = format!("its PSN is missing before packet {}: lost before the capture point", self.name(before));
            self.lost_unseen(gap.psn, before, why);
        }
    }

    /// A request that is not in the capture was lost; it would stand before this packet.
    fn lost_unseen(&mut self, psn: i64, before: usize, why: String) {
        let Some(flow) = self.half.requests_flow else { return };
        let opcode = self.opcodes.get(&psn).map(|(opcode, _)| *opcode);
        let what = What::Missing { before, flow, psn: self.wrapped(psn), opcode };
        self.found.push(Found { what, why });
    }

    fn wrapped(&self, psn: i64) -> Psn {
        wrapped(self.records, self.half, psn)
    }

    /// The packet that this one is a copy of.
    fn copied(&self, i: usize) -> Option<usize> {
        let s = self.sent[i];
        if self.doubts.requests == Side::Before {
            return None;
        }
        let opcode = |i: usize| self.records[self.sent[i].at].opcode;
        let of = (i.saturating_sub(COPY_WITHIN)..i)
            .rev()
            .find(|&j| self.sent[j].psn == s.psn && opcode(j) == opcode(i) && s.time - self.sent[j].time < COPY)?;
        // A copy comes right behind the packet, or the sender goes on behind it where it was.
        let before = self.sent[i - 1];
        let goes_on = self.sent.get(i + 1).is_none_or(|next| next.psn >= before.psn + before.least);
        let since = self.sent[of].at;
        let mut asked = self.said[..self.heard].iter().rev().take_while(|said| said.at > since);
        let asked = asked.any(|said| !matches!(said.says, Says::Ack) && said.psn >= s.psn);
        ((of == i - 1 || goes_on) && !asked).then_some(of)
    }

    fn copy(&mut self, i: usize, of: usize) {
        let (at, of) = (self.sent[i].at, self.sent[of].at);
        let why = format!(
            "packet {} is a second copy of it, {} ns later",
            self.name(at),
            self.sent[i].time - self.records[of].time
        );
        self.found.push(Found { what: What::Copy { at, of }, why });
    }

    /// Whether a packet that was missing came late, and was not sent again: then its sender goes on where it was.
    fn came_late(&mut self, i: usize) -> bool {
        let s = self.sent[i];
        let Some(&gap) = self.missing.get(&s.psn) else { return false };
        let before = self.gaps[gap].before;
        if i - before > MOST_BEHIND {
            return false;
        }
        let since = self.sent[before].at;
        let asked = self.said[..self.heard].iter().rev().take_while(|said| said.at > since);
        let asked = asked.filter(|said| said.asks_for(s.psn)).count();
        let comes_again = || self.sent[i + 1..].iter().take(2 * MOST_BEHIND).any(|later| later.psn == s.psn);
        // What follows, others that were missing left aside.
        let next = self.sent[i + 1..].iter().find(|later| !self.missing.contains_key(&later.psn) || later.psn == s.psn);
        let late = match next {
            Some(next) if next.psn <= s.psn => true,
            Some(next) if self.last.get(&next.psn).is_some_and(|seen| *seen >= self.pass) => false,
            Some(_) => self.half.service != Recovery::GoBackN || asked == 0 || comes_again(),
            None => asked == 0 && s.time - self.sent[before].time < COPY,
        };
        if !late {
            return false;
        }
        self.gaps[gap].came = true;
        self.missing.remove(&s.psn);
        self.late.insert(i, before);
        self.last.insert(s.psn, i);
        let why =
            format!("packet {}, which has a later PSN, came before it, and nothing was sent again", self.name(since));
        self.found.push(Found { what: What::Late { at: s.at, before: since, behind: (i - before) as u32 }, why });
        true
    }

    fn lose(&mut self, i: usize, why: String) {
        if self.doubts.requests != Side::Behind
            && !self.late.contains_key(&i)
            && !self.early.contains(&i)
            && self.lost.insert(i)
        {
            self.found.push(Found { what: What::Seen(self.sent[i].at, Action::Drop), why });
        }
    }

    fn lose_answer(&mut self, n: usize, why: String) {
        // A damaged one is told of by itself.
        let is_whole = self.records[self.said[n].at].damage.is_none();
        if self.doubts.answers != Side::Behind && self.lost_answers.insert(n) && is_whole {
            self.found.push(Found { what: What::Seen(self.said[n].at, Action::Drop), why });
        }
    }
}
