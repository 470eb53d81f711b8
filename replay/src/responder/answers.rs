//! Explaining captured answers, one kind after the other.

use softnic_wire::Aeth;
use softnic_wire::aeth::{NakCode, Syndrome};
use softnic_wire::opcode::Kind;

use super::{BEFORE, Fate, Ours, RECENT, ROLE, Responder, Stuck, went_on};
use crate::capture::Packet;
use crate::findings::{Words, ack_words};
use crate::flows::Answer;
use crate::memory::needed_access;
use crate::messages::{OVERTAKEN, remote_key};
use crate::peers::{PeerKind, Rule};
use crate::skew;

pub(super) const NOTHING: &str = "nothing";

impl Responder<'_> {
    /// Explains an answer; `false` where the capture has a gap before it. `gaps` says that it has some at all.
    pub(super) fn explain(&mut self, a: Answer, gaps: bool) -> bool {
        let p = &self.packets[a.at];
        self.limit = self.flow.requests.partition_point(|r| r.at < a.at);
        if a.psn < self.start {
            self.explain_earlier(p);
            return true;
        }
        let explained = match (p.opcode.kind(), p.ext.aeth) {
            (Kind::Acknowledge, Some(aeth)) => match aeth.syndrome {
                Syndrome::Ack(_) => self.explain_ack(a, p, aeth),
                Syndrome::Nak(NakCode::PSN_SEQUENCE_ERROR) => self.explain_sequence_nak(a, p, aeth),
                Syndrome::Nak(code) => self.explain_refusal(a, p, aeth, code),
                Syndrome::RnrNak(_) => self.explain_rnr(a, p, aeth),
                Syndrome::Reserved(_) => {
                    self.differ(p, NOTHING.into(), "the IBTA reserves this syndrome");
                    Ok(())
                }
            },
            _ => self.explain_data(a, p),
        };
        if self.recent.len() == RECENT {
            self.recent.pop_front();
        }
        self.recent.push_back(a);
        let asks = p.ext.aeth.is_some_and(|x| !matches!(x.syndrome, Syndrome::Ack(_)));
        self.shown = self.shown.max(Some(a.psn - i64::from(asks)));
        match explained {
            Ok(()) => true,
            Err(Stuck::Refused(ours)) => {
                self.differ(p, ack_words(ours.psn, &ours.aeth), "our NIC refuses what was carried out");
                self.dead = true;
                true
            }
            Err(Stuck::Missing(psn)) => self.explain_missing(a, p, psn, gaps),
        }
    }

    /// An answer to a request from before the capture.
    fn explain_earlier(&mut self, p: &Packet) {
        let is_nak = p.ext.aeth.is_some_and(|x| !matches!(x.syndrome, Syndrome::Ack(_)));
        if self.begins {
            self.differ(p, NOTHING.into(), "the connection begins with the capture, behind this PSN");
        } else if is_nak {
            self.differ(p, NOTHING.into(), "no request from there on was sent again");
        } else if self.shown.is_some() {
            self.differ(p, NOTHING.into(), "it goes back behind what was answered");
        } else {
            self.found.unknown(p.number, BEFORE);
            if let Some(aeth) = p.ext.aeth {
                self.msns.note_earlier(p.number, aeth.msn);
            }
        }
    }

    pub(super) fn differ(&mut self, p: &Packet, ours: String, why: &'static str) {
        self.found.differ(ROLE, p.number, ours, Words::of(p).to_string(), why);
    }

    /// The answer rests on a request that is not in the capture so far.
    fn explain_missing(&mut self, a: Answer, p: &Packet, missing: i64, gaps: bool) -> bool {
        let captured = self.copies.get(&missing).is_some_and(|list| list.iter().any(|&i| i < self.limit));
        if captured {
            self.differ(p, NOTHING.into(), "a request before it was refused, and was not sent again");
            return true;
        }
        let sent = self.flow.requests[..self.limit].iter().map(|r| r.psn + r.span).max().unwrap_or(missing);
        let next = self.flow.requests[self.limit..].first().map(|r| r.psn);
        let within = missing < sent && a.psn < sent;
        // Either later requests were captured, or the next one begins behind what was answered.
        if within || next.map_or(gaps, |next| next > a.psn) {
            return false;
        }
        if self.is_behind_the_end(a, p) {
            self.found.unknown(p.number, "its request, which was recorded late, behind the end of the capture");
        } else {
            self.differ(p, NOTHING.into(), "it answers a request that was not sent");
        }
        true
    }

    /// Whether an answer may be to requests that were recorded late, when the capture had ended: it counts no more messages than there are PSNs
    /// behind the last request, and at least one where that ended its message.
    fn is_behind_the_end(&self, a: Answer, p: &Packet) -> bool {
        let Some(last) = self.flow.requests.last().filter(|_| self.flow.recorded_late) else { return false };
        let end = self.packets.last().map_or(0, |p| p.time);
        let behind = a.psn - (last.psn + last.span - 1);
        let near = end.saturating_sub(p.time) <= skew::MOST && (1..=OVERTAKEN).contains(&behind);
        let Some(aeth) = p.ext.aeth.filter(|x| near && matches!(x.syndrome, Syndrome::Ack(_))) else { return false };
        let before = self.completed.len() as u32 + self.waiting_messages();
        let ended = self.packets[last.at].opcode.ends_message();
        (i64::from(ended)..=behind).contains(&i64::from(self.msns.behind(aeth.msn, before)))
    }

    pub(super) fn matched(&mut self, p: &Packet, captured: Aeth, ours: Aeth) {
        self.found.counts.answers_equal += 1;
        self.last_ack = Some(self.expected - 1);
        self.msns.note(p.number, captured.msn, ours.msn);
    }

    /// Takes the newest answer of ours that fits.
    fn take(&mut self, fits: impl Fn(&Ours) -> bool) -> Option<Ours> {
        let at = self.ours.iter().rposition(fits)?;
        Some(self.ours.remove(at))
    }

    /// What was said before this PSN has become superfluous; it may still come, out of order.
    pub(super) fn pass(&mut self, psn: i64) {
        let (before, rest) = self.ours.iter().partition::<Vec<Ours>, _>(|o| o.psn < psn);
        self.ours = rest;
        for o in before.into_iter().filter(|o| matches!(o.aeth.syndrome, Syndrome::Ack(_))) {
            self.past.insert(o.psn, o.aeth);
        }
    }

    fn explain_ack(&mut self, a: Answer, p: &Packet, aeth: Aeth) -> Result<(), Stuck> {
        self.deliver_through(a.psn)?;
        let is_ack = |o: &Ours| o.psn == a.psn && matches!(o.aeth.syndrome, Syndrome::Ack(_));
        if let Some(ours) = self.take(is_ack) {
            self.pass(a.psn);
            self.matched(p, aeth, ours.aeth);
            return Ok(());
        }
        if let Some(ours) = self.past.remove(&a.psn) {
            self.matched(p, aeth, ours);
            return Ok(());
        }
        if a.psn + 1 < self.expected {
            return self.explain_old_ack(a, p, aeth);
        }
        let owed = self.ours.iter().rev().find(|o| matches!(o.aeth.syndrome, Syndrome::Ack(_))).copied();
        if let Some(owed) = owed {
            if !self.found.allows(p.number, Rule::LateAck, self.flow.responder_kind) {
                self.differ(p, ack_words(owed.psn, &owed.aeth), "no request of this PSN asked for an answer");
            }
            self.pass(a.psn);
            return self.repeat(p, aeth);
        }
        // Nothing asked for it: a duplicate did.
        let Some(i) = self.find_duplicate() else {
            // Somebody duplicated the last packet behind the capture. One that was not acknowledged yet still will be.
            let last = self.last_message.is_some_and(|i| self.flow.requests[i].psn == a.psn);
            let goes_on =
                self.last_ack == Some(a.psn) || self.flow.answers.iter().any(|o| o.at > a.at && o.psn > a.psn);
            if last && goes_on {
                self.found.counts.duplicated += 1;
                return self.repeat(p, aeth);
            }
            if !self.is_repeated(p) {
                self.differ(p, NOTHING.into(), "no request asked for it");
            }
            return Ok(());
        };
        self.deliver(i, true);
        match self.take(|o| matches!(o.aeth.syndrome, Syndrome::Ack(_))) {
            Some(ours) if ours.psn == a.psn => self.matched(p, aeth, ours.aeth),
            Some(ours) => {
                if !self.found.allows(p.number, Rule::AckNamesData, self.flow.responder_kind) {
                    let why = "a READ or atomic is acknowledged by its data alone";
                    self.differ(p, ack_words(ours.psn, &ours.aeth), why);
                }
                self.matched(p, aeth, ours.aeth);
            }
            None => self.differ(p, NOTHING.into(), "no request asked for it"),
        }
        Ok(())
    }

    /// An acknowledgement that is behind what was carried out.
    fn explain_old_ack(&mut self, a: Answer, p: &Packet, aeth: Aeth) -> Result<(), Stuck> {
        let late = self.is_late(a);
        let found = self.find_duplicate_of(a.psn, |_| true).or_else(|| self.find_duplicate().filter(|_| late));
        let Some(i) = found else {
            // Behind a READ, our own NIC repeats the ACK of the last SEND or WRITE by its own PSN.
            if self.last_message.is_some_and(|i| self.flow.requests[i].psn == a.psn) {
                self.found.counts.duplicated += 1;
                return self.repeat(p, aeth);
            }
            if self.is_repeated(p) {
                return Ok(());
            }
            let newest = self.expected - 1;
            let ours = format!("an ACK of psn {} at least", newest & 0xff_ffff);
            self.differ(p, ours, "it goes back behind what was carried out, and no request came again");
            return Ok(());
        };
        self.deliver(i, true);
        if let Some(ours) = self.take(|o| matches!(o.aeth.syndrome, Syndrome::Ack(_))) {
            let own = ours.psn != a.psn;
            let then = Aeth { msn: self.msn_at(a.psn), ..ours.aeth };
            if own && late && self.was_asked_for(a.psn) && self.msns.fits(self.begins, aeth.msn, then.msn) {
                self.found.counts.reordered += 1;
                self.matched(p, aeth, then);
                return Ok(());
            }
            if own && !self.found.allows(p.number, Rule::DuplicateOwnPsn, self.flow.responder_kind) {
                self.differ(p, ack_words(ours.psn, &ours.aeth), "a duplicate is acknowledged with all that has come");
            }
            self.matched(p, aeth, ours.aeth);
        }
        Ok(())
    }

    /// Delivers the last SEND or WRITE once more, to hear what our NIC says to that.
    fn repeat(&mut self, p: &Packet, aeth: Aeth) -> Result<(), Stuck> {
        if let Some(i) = self.last_message {
            let fate = self.fates.of(i);
            self.deliver(i, true);
            self.fates.set(i, fate);
        }
        match self.take(|o| matches!(o.aeth.syndrome, Syndrome::Ack(_))) {
            Some(ours) => self.matched(p, aeth, ours.aeth),
            None => self.differ(p, NOTHING.into(), "no request asked for it"),
        }
        Ok(())
    }

    fn explain_sequence_nak(&mut self, a: Answer, p: &Packet, aeth: Aeth) -> Result<(), Stuck> {
        self.deliver_through(a.psn - 1)?;
        let is_nak = |o: &Ours| o.psn == a.psn && o.aeth.syndrome == aeth.syndrome;
        if let Some(ours) = self.take(is_nak) {
            self.matched(p, aeth, ours.aeth);
            return Ok(());
        }
        if a.psn < self.expected {
            let msn = self.msn_at(a.psn - 1);
            // Nothing but an MSN may have said that it was carried out, and that of a READ may be later than its answer.
            let shown = self.shown.is_some_and(|psn| psn >= a.psn);
            if (self.is_late(a) || !shown) && self.msns.fits(self.begins, aeth.msn, msn) {
                self.found.counts.reordered += 1;
                self.msns.note(p.number, aeth.msn, msn);
            } else if !self.is_repeated(p) {
                self.differ(p, NOTHING.into(), "it asks for a request that was carried out");
            }
            return Ok(());
        }
        let behind = |&i: &usize| self.flow.requests[i].psn > a.psn;
        // If need be, one that came too early for another NAK, which may have had another reason.
        let early = Fate::OPEN.into_iter().find_map(|fate| self.fates.with(fate, self.limit).find(behind));
        let Some(early) = early else {
            // The requester does as it is told, unless the capture ends before that.
            let behind = |&i: &usize| self.flow.requests[i].at > a.at;
            let sent_again = self.copies.get(&a.psn).is_some_and(|list| list.iter().any(behind));
            if sent_again
                && a.psn > self.start
                && let Some(dropped) = self.find_copy(a.psn)
                && self.found.allows(p.number, Rule::NakForDropped, self.flow.responder_kind)
            {
                self.fates.set(dropped, Fate::Early);
                let ours = Aeth { msn: self.msn_at(a.psn - 1), ..aeth };
                self.matched(p, aeth, ours);
                return Ok(());
            }
            if !self.is_repeated(p) {
                self.differ(p, NOTHING.into(), "nothing behind this PSN was sent, so nothing is missing");
            }
            return Ok(());
        };
        for &i in self.copies.get(&a.psn).into_iter().flatten() {
            if i < self.limit && self.fates.of(i) == Fate::Pending {
                self.fates.set(i, Fate::Lost);
            }
        }
        self.deliver(early, true);
        if let Some(ours) = self.take(is_nak) {
            self.pass(a.psn);
            self.matched(p, aeth, ours.aeth);
            return Ok(());
        }
        if let Some((psn, ours)) = self.not_ready
            && psn == a.psn
            && self.found.allows(p.number, Rule::NakAfterRnr, self.flow.responder_kind)
        {
            self.msns.note(p.number, aeth.msn, ours.msn);
            return Ok(());
        }
        if !self.is_repeated(p) {
            self.differ(p, NOTHING.into(), "the requester was told of this gap before");
        }
        Ok(())
    }

    /// Whether it is the same packet as an answer shortly before it: duplicated on its way, or captured twice.
    pub(super) fn is_repeated(&mut self, p: &Packet) -> bool {
        let same = self.recent.iter().any(|a| self.packets[a.at].frame == p.frame);
        self.found.counts.duplicated += u64::from(same);
        same
    }

    /// Whether later answers overtook it on its way to the capture: it says what was so a few answers ago.
    fn is_late(&self, a: Answer) -> bool {
        let overtaken = self.recent.iter().any(|o| o.psn > a.psn);
        overtaken && (self.recent.len() < RECENT || self.recent.iter().any(|o| o.psn <= a.psn))
    }

    /// Whether an acknowledgement with this PSN was sent some time ago: the packet asked for it, or others with it were captured. Our own
    /// NIC names what has come when there is room to say so, which may be any packet.
    fn was_asked_for(&self, psn: i64) -> bool {
        let asked = self.copies.get(&psn).is_some_and(|copies| copies.iter().any(|&i| self.packet(i).ack_req));
        asked || self.recent.iter().any(|o| o.psn == psn) || self.flow.responder_kind == PeerKind::Softnic
    }

    fn explain_rnr(&mut self, a: Answer, p: &Packet, aeth: Aeth) -> Result<(), Stuck> {
        self.deliver_through(a.psn - 1)?;
        if a.psn < self.expected {
            self.differ(p, NOTHING.into(), "it refuses a request that was carried out");
            return Ok(());
        }
        let Some(i) = self.find_copy(a.psn) else {
            if self.is_repeated(p) {
                return Ok(());
            }
            return Err(Stuck::Missing(a.psn));
        };
        self.deliver(i, false);
        match self.take(|o| o.psn == a.psn && matches!(o.aeth.syndrome, Syndrome::RnrNak(_))) {
            Some(ours) if ours.aeth.syndrome == aeth.syndrome => {
                self.not_ready = Some((a.psn, ours.aeth));
                self.pass(a.psn);
                self.matched(p, aeth, ours.aeth);
            }
            Some(ours) => {
                self.not_ready = Some((a.psn, ours.aeth));
                self.differ(p, ack_words(ours.psn, &ours.aeth), "the time to wait is that of the queue pair");
            }
            None => self.differ(p, NOTHING.into(), "this request takes no receive"),
        }
        Ok(())
    }

    /// A NAK with which the responder stops.
    fn explain_refusal(&mut self, a: Answer, p: &Packet, aeth: Aeth, code: NakCode) -> Result<(), Stuck> {
        if went_on(self.flow, self.packets, a.psn) {
            self.differ(p, NOTHING.into(), "a responder stops with this NAK, and this one went on");
            return Ok(());
        }
        self.deliver_through(a.psn - 1)?;
        if a.psn < self.expected {
            self.differ(p, NOTHING.into(), "it refuses a request that was carried out");
            return Ok(());
        }
        let Some(i) = self.find_copy(a.psn) else { return Err(Stuck::Missing(a.psn)) };
        let request = self.packet(i);
        let by_side = self.side.qp(self.flow.responder, self.flow.responder_qp);
        let is_send = request.opcode.kind() == Kind::Send;
        let told = by_side.is_some_and(|s| if is_send { s.receives.is_some() } else { s.access().is_some() });
        let plain_send = is_send && request.ext.ieth.is_none();
        let too_long = matches!(code, NakCode::INVALID_REQUEST | NakCode::REMOTE_OPERATIONAL_ERROR);
        if plain_send && !told && too_long && !request.payload.is_empty() {
            self.dead = true;
            self.found.unknown(p.number, "the size of the receive, which a side file can tell");
            return Ok(());
        }
        if request.ext.ieth.is_some() && !told && code == NakCode::REMOTE_ACCESS_ERROR {
            self.dead = true;
            self.found.unknown(p.number, "whether the key could be invalidated");
            return Ok(());
        }
        let key = remote_key(request).filter(|_| code == NakCode::REMOTE_ACCESS_ERROR && self.regions.grants(request));
        let taken_back = key.filter(|&key| self.side.mr(self.flow.responder, key).is_none());
        if let Some(key) = taken_back {
            self.regions.revoke(key);
        }
        self.deliver(i, true);
        self.dead = true;
        let ours = self.take(|o| o.psn == a.psn && super::is_fatal(Some(o.aeth.syndrome)));
        let Some(ours) = ours else {
            let ours = self.ours.last().map_or(NOTHING.into(), |o| ack_words(o.psn, &o.aeth));
            self.differ(p, ours, "our NIC carries this request out: nothing in the capture speaks against it");
            return Ok(());
        };
        if taken_back.is_some() && ours.aeth.syndrome == aeth.syndrome {
            self.msns.note(p.number, aeth.msn, ours.aeth.msn);
            self.found.unknown(p.number, "whether the owner took the key back, which worked before");
            return Ok(());
        }
        if ours.aeth.syndrome == aeth.syndrome {
            self.pass(a.psn);
            self.matched(p, aeth, ours.aeth);
            return Ok(());
        }
        let short = plain_send && code == NakCode::REMOTE_OPERATIONAL_ERROR;
        if short && self.found.allows(p.number, Rule::ShortReceive, self.flow.responder_kind) {
            self.matched(p, aeth, ours.aeth);
            return Ok(());
        }
        let rights = !is_send && !told && code == NakCode::INVALID_REQUEST;
        if rights && !self.was_allowed(request) {
            self.msns.note(p.number, aeth.msn, ours.aeth.msn);
            self.found.unknown(p.number, "what the queue pair allows its peer, which a side file can tell");
            return Ok(());
        }
        self.differ(p, ack_words(ours.psn, &ours.aeth), "the code says what was wrong with the request");
        Ok(())
    }

    /// Whether a request of the same kind was carried out on this queue pair.
    fn was_allowed(&self, request: &Packet) -> bool {
        let needed = needed_access(request);
        let names_memory = |p: &Packet| p.ext.reth.is_some() || p.ext.atomic.is_some();
        (0..self.limit).any(|i| {
            let p = self.packet(i);
            names_memory(p) && needed_access(p) == needed && self.flow.requests[i].psn < self.expected
        })
    }
}
