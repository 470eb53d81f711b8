//! What it shows that the sender goes back: what was lost, by who asked for it, or because nobody did.

use softnic_wire::Opcode;

use super::super::doubts::Side;
use super::super::half::Sent;
use super::super::record::{Found, What};
use super::{Gap, LEAP, MOST_MISSING, Walk};
use crate::analysis::Says;

impl Walk<'_> {
    /// The sender goes back to the PSN of request `i`: why?
    pub(super) fn went_back(&mut self, i: usize) {
        let s = self.sent[i];
        let exact = self.last.get(&s.psn).copied();
        let unseen = self.missing.get(&s.psn).copied();
        let covering = exact.or_else(|| {
            let (_, &j) = self.last.range(..=s.psn).next_back()?;
            (self.sent[j].by_data && self.sent[j].psn + self.sent[j].most > s.psn).then_some(j)
        });
        if !self.half.answers_are_known {
            return self.sent_again(i, exact);
        }
        // One that came late was asked for before it came, and is sent again for that.
        if let Some(&before) = exact.and_then(|j| self.late.get(&j)) {
            let since = self.sent[before].at;
            if self.recent(since).any(|n| self.said[n].asks_for(s.psn)) {
                return;
            }
        }
        let since = match (exact, unseen, covering) {
            (Some(j), ..) | (None, None, Some(j)) => self.sent[j].at,
            (None, Some(gap), _) => self.sent[self.gaps[gap].before].at,
            (None, None, None) => return,
        };
        let recent = self.recent(since);
        // Some send the whole message again for a receiver that was not ready for its last packet.
        let waits = |n: usize| self.said[n].says == Says::NotReady && self.said[n].psn >= s.psn;
        let not_ready = recent.clone().find(|&n| waits(n)).filter(|&n| {
            self.sent[..i].iter().rev().take_while(|sent| sent.at > self.said[n].at).all(|sent| sent.psn != s.psn)
        });
        if let Some(place) = self.naks.iter().position(|&n| self.said[n].asks_for(s.psn)) {
            let n = self.naks.remove(place);
            return self.asked_for(i, n, not_ready);
        }
        if not_ready.is_some() || unseen.is_some() {
            return; // no loss, or one that the gap tells of
        }
        // A NAK for what lies before: that is missing from the retransmission, too.
        let earlier = recent.clone().find(|&n| {
            let said = &self.said[n];
            said.asks_for(said.psn) && said.psn < s.psn && s.psn - said.psn < LEAP
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

    /// Which answers are those of this connection is not known: what was sent again first is most likely what was lost.
    fn sent_again(&mut self, i: usize, exact: Option<usize>) {
        let why = format!(
            "packet {} sends it again; which answers are to it, the capture does not show",
            self.name(self.sent[i].at)
        );
        if let Some(lost) = exact {
            self.lose(lost, why);
        }
    }

    /// Answers between this packet and the present, the latest first, by their places in `said`.
    fn recent(&self, since: usize) -> impl Iterator<Item = usize> + Clone + use<> {
        let first = self.said[..self.heard].partition_point(|said| said.at <= since);
        (first..self.heard).rev()
    }

    /// The beginning of a retransmission is missing.
    fn gap_again(&mut self, i: usize, from: i64, to: i64) {
        let mut psn = from;
        while psn < to && self.gaps.len() < MOST_MISSING {
            self.gaps.push(Gap { before: i, psn, came: false });
            psn += self.opcodes.get(&psn).map_or(1, |(_, span)| *span);
        }
    }

    /// A NAK names the PSN that the sender goes back to.
    fn asked_for(&mut self, i: usize, nak: usize, not_ready: Option<usize>) {
        let (s, said) = (self.sent[i], self.said[nak]);
        let delay = s.time - said.time;
        // A receiver that was not ready asks for the packet that it could not take.
        let is_loss = not_ready.is_none_or(|n| n > nak) && self.doubts.requests != Side::Behind;
        // The one that was sent before the NAK.
        let sent = self.sent.partition_point(|sent| sent.at < said.at).min(i);
        let lost = self.sent[..sent].iter().rev().take(LEAP as usize).position(|sent| sent.psn == s.psn);
        if let Some(lost) = lost.map(|back| sent - 1 - back).filter(|_| is_loss) {
            let why =
                format!("packet {} is a NAK for it, packet {} sends it again", self.name(said.at), self.name(s.at));
            self.lose(lost, why);
        }
        match self.doubts.patience {
            Some(patience) if delay > patience => {
                let again = self.name(s.at);
                self.lose_answer(
                    nak,
                    format!("it was followed late, by packet {again}: the requester timed out instead"),
                );
            }
            _ => self.delays.push(delay),
        }
    }

    /// Nothing in the capture asks for a retransmission: data of a READ was missing, or the requester timed out.
    fn nobody_asked(&mut self, i: usize, covering: Option<usize>) {
        let s = self.sent[i];
        let Some(covering) = covering else { return };
        let since = self.sent[covering].at;
        let data = self.recent(since).find(|&n| self.said[n].psn == s.psn && self.said[n].is_data());
        if self.sent[covering].by_data {
            return self.data_was_missing(i, covering, data);
        }
        // What came only just may not have been there yet when the requester gave up.
        let late = s.time - self.half.round_trip.unwrap_or(0);
        let beyond: Vec<usize> =
            self.recent(since).filter(|&n| self.said[n].covers() >= s.psn && self.said[n].time <= late).collect();
        self.timed_out(s.psn);
        if self.doubts.answers != Side::Behind {
            for n in beyond.iter().copied() {
                let why =
                    format!("packet {} is sent again all the same: the requester did not get it", self.name(s.at));
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
    fn data_was_missing(&mut self, i: usize, covering: usize, data: Option<usize>) {
        let s = self.sent[i];
        let since = self.sent[covering].at;
        let later: Vec<usize> =
            self.recent(since).filter(|&n| self.said[n].covers() >= s.psn && self.said[n].psn > s.psn).collect();
        let first_later = later.last().map(|&n| self.said[n]);
        let again = self.name(s.at);
        // What came behind a later one was late, and what came before an earlier one was too early: not lost.
        let in_order = |n: usize| {
            let data = self.said[n];
            let earlier = |m: usize| self.said[m].psn < s.psn && self.said[m].is_data();
            first_later.is_none_or(|later| data.at < later.at) && !self.recent(data.at).any(earlier)
        };
        if let Some(n) = data.filter(|&n| in_order(n)) {
            self.lose_answer(n, format!("packet {again} asks for it again"));
        }
        let asked = self.sent[covering];
        // Where what is before it came, or what is behind it, the request did arrive, and its answer is not in the capture.
        let arrived = first_later.is_some() || s.psn > asked.psn;
        // A READ that the responder has answered before is answered again without those before it: that it was lost draws no NAK.
        let known = self.said.partition_point(|said| said.at < since).checked_sub(1).map(|n| self.reach[n]);
        let repeated = s.psn == asked.psn && known.is_some_and(|reach| reach >= s.psn);
        if data.is_none() && first_later.is_some() && repeated && self.doubts.requests != Side::Behind {
            self.lose(covering, format!("packet {again} asks again, and what is behind it was answered"));
        } else if data.is_none() && arrived && self.doubts.answers != Side::Before {
            let data = later.iter().filter(|&&n| self.said[n].is_data()).map(|&n| self.said[n].psn);
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
        let Some(flow) = self.half.answers_flow.filter(|_| self.found.len() < MOST_MISSING) else { return };
        let opcode = asked.answered_by(self.records, psn);
        let why = format!("packet {} asks for it again: lost before the capture point", self.name(again));
        self.found.push(Found { what: What::Missing { before, flow, psn: self.wrapped(psn), opcode }, why });
    }

    /// Nothing answers the requests from this PSN on, and the sender goes back with request `again`, or gives up.
    pub(super) fn unanswered(&mut self, from: i64, again: Option<usize>) {
        let Some((&newest, _)) = self.last.last_key_value() else { return };
        if newest < from {
            return;
        }
        let shown = match again {
            Some(i) => format!("nothing answers it until packet {} sends it again", self.name(self.sent[i].at)),
            None => "it was sent again and again, and nothing answers it to the end of the capture".to_owned(),
        };
        if self.doubts.requests != Side::Before && self.tail_is_missing(again) {
            return;
        }
        let told = again.and_then(|i| self.told_by_next_answer(i, newest));
        // A responder says only once what it misses.
        let stuck = self.asked.filter(|psn| *psn >= from && self.covered.is_none_or(|c| c < *psn));
        let came = |psn: i64| matches!(told, Some(Told::Until(until)) if until >= psn);
        if let Some(&lost) = stuck.filter(|psn| !came(*psn)).and_then(|psn| self.last.get(&psn)) {
            return self.lose(lost, format!("{shown}, and a NAK had asked for it before"));
        }
        let first_asking = self.last.range(from..).find(|&(_, &i)| self.sent[i].asks).map(|(psn, _)| *psn);
        let mut first = first_asking.unwrap_or(newest);
        if let Some(i) = again {
            match told {
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

    /// What was sent last, before the sender goes back, is not all that it had sent before, or has not the end of its message: the rest was lost
    /// before the capture point.
    fn tail_is_missing(&mut self, again: Option<usize>) -> bool {
        let (Some(i), Some((&newest, _))) = (again, self.last.last_key_value()) else { return false };
        let Some(&last) = self.sent[..i].last() else { return false };
        let again = self.sent[i].at;
        let opcode = self.records[last.at].opcode;
        let whole = opcode.ends_message() || opcode.kind().is_answered_by_data();
        if self.covered.is_some_and(|c| c >= last.psn) || last.psn >= newest && whole {
            return false;
        }
        let (mut psn, mut ended) = (last.psn + last.most, whole);
        let from = psn;
        while let Some(&(opcode, span)) = self.opcodes.get(&psn).filter(|_| psn <= newest || !ended) {
            let why = format!(
                "the sender did not come as far before packet {}: lost before the capture point",
                self.name(again)
            );
            self.lost_unseen(psn, again, why);
            ended = opcode.ends_message();
            psn += span;
        }
        psn > from
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
        let what =
            What::Missing { before: again, flow, psn: self.wrapped(newest), opcode: Some(Opcode::RC_ACKNOWLEDGE) };
        let why = format!(
            "packet {} sends again what the responder had already: its acknowledgement was lost before the capture point",
            self.name(again)
        );
        self.found.push(Found { what, why });
    }
}

/// What an answer says of what had come before a retransmission.
enum Told {
    /// All up to this PSN.
    Until(i64),
    /// All.
    All,
}
