//! The requests of a connection in the order of the capture: where PSNs are missing, where the sender went back, and what that shows was lost.

use std::collections::{BTreeMap, HashMap, HashSet};

use softnic_wire::aeth::NakCode;
use softnic_wire::opcode::Kind;
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
    /// What each PSN is, wherever in the capture it was seen.
    opcodes: HashMap<i64, (Opcode, i64)>,
    /// The last transmission of each request.
    last: BTreeMap<i64, usize>,
    gaps: Vec<Gap>,
    /// Gaps that nothing has filled yet, by PSN.
    missing: HashMap<i64, usize>,
    late: HashSet<usize>,
    lost: HashSet<usize>,
    /// Answers that were lost, by their place in `said`.
    lost_answers: HashSet<usize>,
    /// Answers up to this request, by their place in `said`.
    heard: usize,
    /// The most that answers so far cover.
    covered: Option<i64>,
    /// The PSN that the last NAK among them asks for.
    asked: Option<i64>,
    /// The request that timed out last, and how often in a row.
    tries: Option<(i64, u32)>,
    pub(super) found: Vec<Found>,
    pub(super) delays: Vec<i64>,
}

impl<'a> Walk<'a> {
    pub(super) fn new(records: &'a [Record], half: &'a Half, doubts: Of) -> Walk<'a> {
        let (sent, said) = unwrap(records, half);
        let opcodes = sent.iter().map(|s| (s.psn, (records[s.at].opcode, s.most))).collect();
        Walk {
            records,
            half,
            doubts,
            sent,
            said,
            opcodes,
            last: BTreeMap::new(),
            gaps: Vec::new(),
            missing: HashMap::new(),
            late: HashSet::new(),
            lost: HashSet::new(),
            lost_answers: HashSet::new(),
            heard: 0,
            covered: None,
            asked: None,
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
                self.gap(i, high, s.psn);
            } else if s.psn < low {
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
            }
            self.missing.remove(&s.psn);
            self.last.insert(s.psn, i);
            next = Some(after);
        }
        self.hear(usize::MAX);
        if let Some((psn, tries)) = self.tries
            && tries + 1 >= TRIES
        {
            self.unanswered(psn, None);
        }
        self.tell_gaps();
    }

    /// Takes the answers before this packet.
    fn hear(&mut self, before: usize) {
        while let Some(said) = self.said.get(self.heard).filter(|said| said.at < before) {
            self.covered = self.covered.max(Some(said.covers()));
            if said.says == Says::Nak(NakCode::PSN_SEQUENCE_ERROR) {
                self.asked = Some(said.psn);
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
        let again = self.last.last_key_value().is_some_and(|(newest, _)| *newest >= to);
        let from = match self.covered {
            Some(covered) if again || self.half.service == Recovery::GoBackN => from.max(covered + 1),
            _ => from,
        };
        if to - from > LEAP || self.doubts.requests == Side::Before {
            return;
        }
        let mut psn = from;
        while psn < to {
            self.missing.insert(psn, self.gaps.len());
            self.gaps.push(Gap { before: i, psn, came: false });
            psn += self.opcodes.get(&psn).map_or(1, |(_, span)| *span);
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
        let since = self.sent[of].at;
        let mut asked = self.said[..self.heard].iter().rev().take_while(|said| said.at > since);
        (!asked.any(|said| !matches!(said.says, Says::Ack) && said.psn >= s.psn)).then_some(of)
    }

    fn copy(&mut self, i: usize, of: usize) {
        let (at, of) = (self.sent[i].at, self.sent[of].at);
        let why = format!("packet {} is a second copy of it, {} ns later", self.name(at), self.sent[i].time - self.records[of].time);
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
        let asked = asked.filter(|said| said.says == Says::Nak(NakCode::PSN_SEQUENCE_ERROR) && said.psn == s.psn).count();
        let comes_again = || self.sent[i + 1..].iter().take(2 * MOST_BEHIND).any(|later| later.psn == s.psn);
        // What follows, others that were missing left aside.
        let next = self.sent[i + 1..].iter().find(|later| !self.missing.contains_key(&later.psn) || later.psn == s.psn);
        let late = match next {
            Some(next) if next.psn <= s.psn => true,
            Some(next) if self.last.contains_key(&next.psn) => false,
            Some(_) => self.half.service != Recovery::GoBackN || asked == 0 || comes_again(),
            None => asked == 0 && s.time - self.sent[before].time < COPY,
        };
        if !late {
            return false;
        }
        self.gaps[gap].came = true;
        self.missing.remove(&s.psn);
        self.late.insert(i);
        self.last.insert(s.psn, i);
        let why = format!("packet {}, which has a later PSN, came before it, and nothing was sent again", self.name(since));
        self.found.push(Found { what: What::Late { at: s.at, before: since, behind: (i - before) as u32 }, why });
        true
    }

    // ---- going back ----

    /// The sender goes back to the PSN of request `i`: why?
    fn went_back(&mut self, i: usize) {
        let s = self.sent[i];
        let exact = self.last.get(&s.psn).copied();
        let unseen = self.missing.get(&s.psn).copied();
        let covering = exact.or_else(|| {
            let (_, &j) = self.last.range(..=s.psn).next_back()?;
            (self.sent[j].by_data && self.sent[j].psn + self.sent[j].most > s.psn).then_some(j)
        });
        let since = match (exact.filter(|j| !self.late.contains(j)), unseen, covering) {
            (Some(j), ..) => self.sent[j].at,
            (None, Some(gap), _) => self.sent[self.gaps[gap].before].at,
            (None, None, Some(j)) if exact.is_none() => self.sent[j].at,
            // It came late, was asked for before that, and is sent again for it.
            _ => return,
        };
        let recent = self.recent(since);
        let not_ready = recent.clone().find(|&n| self.said[n].says == Says::NotReady && self.said[n].psn == s.psn);
        let nak = recent.clone().find(|&n| {
            let said = &self.said[n];
            said.says == Says::Nak(NakCode::PSN_SEQUENCE_ERROR) && said.psn == s.psn
        });
        if let Some(n) = nak {
            return self.asked_for(i, n, exact, not_ready);
        }
        if not_ready.is_some() || unseen.is_some() {
            return; // no loss, or one that the gap tells of
        }
        // A NAK for what lies before: that is missing from the retransmission, too.
        let earlier = recent.clone().find(|&n| {
            let said = &self.said[n];
            said.says == Says::Nak(NakCode::PSN_SEQUENCE_ERROR) && said.psn < s.psn && s.psn - said.psn < LEAP
        });
        if let Some(n) = earlier
            && self.doubts.requests != Side::Before
        {
            let (from, since) = (self.said[n].psn, self.said[n].at);
            if !self.sent[..i].iter().rev().take_while(|s| s.at > since).any(|s| s.psn == from) {
                return self.gap_again(i, from, s.psn);
            }
        }
        self.nobody_asked(i, covering);
    }

    /// Answers between this packet and the present, the latest first, by their places in `said`.
    fn recent(&self, since: usize) -> impl Iterator<Item = usize> + Clone + use<> {
        let first = self.said[..self.heard].partition_point(|said| said.at <= since);
        (first..self.heard).rev()
    }

    /// The beginning of a retransmission is missing.
    fn gap_again(&mut self, i: usize, from: i64, to: i64) {
        let mut psn = from;
        while psn < to {
            self.gaps.push(Gap { before: i, psn, came: false });
            psn += self.opcodes.get(&psn).map_or(1, |(_, span)| *span);
        }
    }

    /// A NAK names the PSN that the sender goes back to.
    fn asked_for(&mut self, i: usize, nak: usize, exact: Option<usize>, not_ready: Option<usize>) {
        let (s, said) = (self.sent[i], self.said[nak]);
        let delay = s.time - said.time;
        // A receiver that was not ready asks for the packet that it could not take.
        let is_loss = not_ready.is_none_or(|n| n > nak) && self.doubts.requests != Side::Behind;
        if let Some(lost) = exact.filter(|_| is_loss) {
            let why = format!("packet {} is a NAK for it, packet {} sends it again", self.name(said.at), self.name(s.at));
            self.lose(lost, why);
        }
        match self.doubts.patience {
            Some(patience) if delay > patience => {
                let again = self.name(s.at);
                self.lose_answer(nak, format!("it was followed late, by packet {again}: the requester timed out instead"));
            }
            _ => self.delays.push(delay),
        }
    }

    /// Nothing in the capture asks for a retransmission: data of a READ was missing, or the requester timed out.
    fn nobody_asked(&mut self, i: usize, covering: Option<usize>) {
        let s = self.sent[i];
        let Some(covering) = covering else { return };
        let since = self.sent[covering].at;
        let data = self.recent(since).find(|&n| self.said[n].psn == s.psn && matches!(self.said[n].says, Says::Data { .. }));
        // What came only just may not have been there yet when the requester gave up.
        let late = s.time - self.half.round_trip.unwrap_or(0);
        let beyond: Vec<usize> = self.recent(since).filter(|&n| self.said[n].covers() >= s.psn && self.said[n].time <= late).collect();
        if self.sent[covering].by_data {
            return self.data_was_missing(i, covering, data, &beyond);
        }
        self.timed_out(s.psn);
        if self.doubts.answers != Side::Behind {
            for n in beyond.iter().copied() {
                let why = format!("packet {} is sent again all the same: the requester did not get it", self.name(s.at));
                self.lose_answer(n, why);
            }
        }
        match beyond.iter().map(|&n| self.said[n].covers()).max() {
            Some(most) => self.unanswered(most + 1, Some(i)),
            None => self.unanswered(s.psn, Some(i)),
        }
    }

    fn timed_out(&mut self, psn: i64) {
        let before = self.tries.filter(|(tried, _)| *tried == psn).map_or(0, |(_, n)| n);
        self.tries = Some((psn, before + 1));
    }

    /// A READ, or an atomic, is asked for again.
    fn data_was_missing(&mut self, i: usize, covering: usize, data: Option<usize>, beyond: &[usize]) {
        let s = self.sent[i];
        let later: Vec<usize> = beyond.iter().copied().filter(|&n| self.said[n].psn > s.psn).collect();
        let first_later = later.last().map(|&n| self.said[n]);
        let again = self.name(s.at);
        // What came behind a later one was late, and not lost.
        if let Some(n) = data.filter(|&n| first_later.is_none_or(|later| self.said[n].at < later.at)) {
            self.lose_answer(n, format!("packet {again} asks for it again"));
        }
        let asked = self.sent[covering];
        // Where what is before it came, or what is behind it, the request did arrive, and its answer is not in the capture.
        let arrived = first_later.is_some() || s.psn > asked.psn;
        if data.is_none() && arrived && self.doubts.answers != Side::Before {
            let data = later.iter().filter(|&&n| matches!(self.said[n].says, Says::Data { .. })).map(|&n| self.said[n].psn);
            let until = data.min().unwrap_or(i64::MAX).min(asked.psn + asked.least);
            for psn in s.psn..until {
                self.answer_is_missing(first_later.map_or(s.at, |later| later.at), psn, asked, s.at);
            }
        }
        match first_later {
            // An answer behind the missing one tells the requester at once; where it was slow, that was lost, too.
            Some(first) if self.doubts.patience.is_some_and(|patience| s.time - first.time > patience) => {
                self.timed_out(s.psn);
                for n in later {
                    self.lose_answer(n, format!("packet {again} asks late for what is before it"));
                }
            }
            Some(_) => {}
            None => {
                self.timed_out(s.psn);
                if data.is_none() && !arrived {
                    self.unanswered(s.psn, Some(i));
                }
            }
        }
    }

    /// Data that a request asks for was lost before the capture point.
    fn answer_is_missing(&mut self, before: usize, psn: i64, asked: Sent, again: usize) {
        let Some(flow) = self.half.answers_flow else { return };
        let opcode = match self.records[asked.at].opcode.kind() {
            Kind::ReadRequest if asked.least != asked.most => None,
            Kind::ReadRequest if asked.most == 1 => Some(Opcode(0x10)),
            Kind::ReadRequest if psn == asked.psn => Some(Opcode(0x0d)),
            Kind::ReadRequest if psn == asked.psn + asked.most - 1 => Some(Opcode(0x0f)),
            Kind::ReadRequest => Some(Opcode(0x0e)),
            Kind::CompareSwap | Kind::FetchAdd => Some(Opcode::RC_ATOMIC_ACKNOWLEDGE),
            _ => None,
        };
        let why = format!("packet {} asks for it again: lost before the capture point", self.name(again));
        self.found.push(Found { what: What::Missing { before, flow, psn: self.wrapped(psn), opcode }, why });
    }

    /// Nothing answers the requests from this PSN on, and the sender goes back with request `again`, or gives up.
    fn unanswered(&mut self, from: i64, again: Option<usize>) {
        let Some((&newest, _)) = self.last.last_key_value() else { return };
        if newest < from {
            return;
        }
        let shown = match again {
            Some(i) => format!("nothing answers it until packet {} sends it again", self.name(self.sent[i].at)),
            None => "it was sent again and again, and nothing answers it to the end of the capture".to_owned(),
        };
        // A responder says only once what it misses.
        let stuck = self.asked.filter(|psn| *psn >= from && self.covered.is_none_or(|c| c < *psn));
        if let Some(&lost) = stuck.and_then(|psn| self.last.get(&psn)) {
            return self.lose(lost, format!("{shown}, and a NAK had asked for it before"));
        }
        if self.doubts.requests != Side::Before && self.tail_is_missing(again) {
            return;
        }
        let first_asking = self.last.range(from..).find(|&(_, &i)| self.sent[i].asks).map(|(psn, _)| *psn);
        let mut first = first_asking.unwrap_or(newest);
        if let Some(i) = again {
            match self.told_by_next_answer(i, newest) {
                Some(Told::Until(psn)) if psn + 1 >= from && psn < newest => first = psn + 1,
                Some(Told::All) if self.doubts.answers != Side::Before => return self.ack_is_missing(i, newest),
                _ => {}
            }
        }
        if self.doubts.requests == Side::Behind {
            return;
        }
        let lost: Vec<usize> = self.last.range(first..).map(|(_, &i)| i).collect();
        for i in lost {
            self.lose(i, shown.clone());
        }
    }

    /// The last message that was seen has no end: that was lost before the capture point.
    fn tail_is_missing(&mut self, again: Option<usize>) -> bool {
        let (Some(i), Some((&newest, &last))) = (again, self.last.last_key_value()) else { return false };
        let opcode = self.records[self.sent[last].at].opcode;
        if opcode.ends_message() || opcode.kind().is_answered_by_data() {
            return false;
        }
        let mut psn = newest + 1;
        while let Some(&(opcode, span)) = self.opcodes.get(&psn).filter(|(o, _)| !o.begins_message()) {
            let why = format!("its message was not sent to its end before packet {}: lost before the capture point", self.name(self.sent[i].at));
            self.lost_unseen(psn, self.sent[i].at, why);
            psn += span;
            if opcode.ends_message() {
                break;
            }
        }
        psn > newest + 1
    }

    /// What the first answer to a retransmission that begins with request `i` says of what had come before it.
    fn told_by_next_answer(&self, i: usize, newest: i64) -> Option<Told> {
        let at = self.sent[i].at;
        let mut answers = self.said[self.said.partition_point(|said| said.at <= at)..].iter();
        let first = answers.next().filter(|said| said.says == Says::Ack)?;
        if first.psn < newest {
            // An acknowledgement that the retransmission asked for says nothing of what had come.
            let asked = self.sent[i..].iter().take_while(|s| s.at < first.at).any(|s| s.psn == first.psn && s.asks);
            return (!asked).then_some(Told::Until(first.psn));
        }
        // One acknowledgement for each packet that came twice.
        let second = answers.next()?;
        let new = self.sent[i..].iter().find(|s| s.psn > newest).map_or(usize::MAX, |s| s.at);
        (second.says == Says::Ack && second.psn == first.psn && second.at < new).then_some(Told::All)
    }

    /// The acknowledgement was lost before the capture point.
    fn ack_is_missing(&mut self, i: usize, newest: i64) {
        let Some(flow) = self.half.answers_flow else { return };
        let again = self.sent[i].at;
        let what = What::Missing { before: again, flow, psn: self.wrapped(newest), opcode: Some(Opcode::RC_ACKNOWLEDGE) };
        let why = format!(
            "packet {} sends again what the responder had already: its acknowledgement was lost before the capture point",
            self.name(again)
        );
        self.found.push(Found { what, why });
    }

    fn lose(&mut self, i: usize, why: String) {
        if self.doubts.requests != Side::Behind && !self.late.contains(&i) && self.lost.insert(i) {
            self.found.push(Found { what: What::Seen(self.sent[i].at, Action::Drop), why });
        }
    }

    fn lose_answer(&mut self, n: usize, why: String) {
        if self.doubts.answers != Side::Behind && self.lost_answers.insert(n) {
            self.found.push(Found { what: What::Seen(self.said[n].at, Action::Drop), why });
        }
    }
}

/// What an answer says of what had come before a retransmission.
enum Told {
    /// All up to this PSN.
    Until(i64),
    /// All.
    All,
}
