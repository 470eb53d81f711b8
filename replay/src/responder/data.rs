//! Explaining READ responses and the values of atomics.

use softnic_wire::Aeth;
use softnic_wire::aeth::Syndrome;
use softnic_wire::opcode::{Kind, Position};

use super::answers::NOTHING;
use super::{Data, Responder, Stuck};
use crate::capture::Packet;
use crate::findings::Words;
use crate::flows::Answer;
use crate::peers::Rule;
use crate::rig::Sent;

const WRONG_MSN: &str = "the MSN counts the messages that were completed";

/// How an answer of ours is different.
struct Mismatch {
    /// Its place among those of the same PSN.
    at: usize,
    ours: String,
    why: &'static str,
}

/// Whether a response is ours, but for an opcode that says that the answer had begun before.
fn is_same_going_on(ours: &Sent, p: &Packet) -> bool {
    let (own, captured) = (ours.packet.bth.opcode, p.opcode);
    let positions = (own.position(), captured.position());
    own.kind() == Kind::ReadResponse
        && captured.kind() == Kind::ReadResponse
        && matches!(positions, (Position::First, Position::Middle) | (Position::Only, Position::Last))
}

impl Responder<'_> {
    /// A READ response or the value of an atomic.
    pub(super) fn explain_data(&mut self, a: Answer, p: &Packet) -> Result<(), Stuck> {
        self.deliver_through(a.psn)?;
        let mut verdict = self.compare_data(a, p);
        // It may answer a request that came again: then the whole answer, or its tail, begins anew.
        while verdict.is_err()
            && let Some(i) = self.find_duplicate_of(a.psn, Kind::is_answered_by_data)
        {
            self.deliver(i, true);
            verdict = self.compare_data(a, p);
        }
        if verdict.is_err() && self.is_repeated(p) {
            return Ok(());
        }
        // Who was answered before, or asked more than once, may be answered with a later MSN.
        let before = |list: &Vec<usize>| list.first().is_some_and(|&at| at < a.at);
        let asked_again = self.copies.get(&a.psn).is_some_and(|list| list.len() > 1);
        // So may be who was held back by LoWAR until another came.
        let again = asked_again || self.flow.protected || self.data_answers.get(&a.psn).is_some_and(before);
        if let (Err(Mismatch { why: WRONG_MSN, .. }), Some(aeth), true) = (&verdict, p.ext.aeth, again) {
            // An answer that is given again tells by its MSN how much was carried out meanwhile.
            self.catch_up(a, aeth);
        }
        if verdict.is_err()
            && again
            // The whole answer begins anew then.
            && let Some(i) = self.find_delivered(a.psn)
        {
            // Our NIC answers it again only when it comes again; behind the capture somebody duplicated it.
            self.deliver(i, true);
            verdict = self.compare_data(a, p);
            self.found.counts.duplicated += u64::from(verdict.is_ok());
        }
        let mut counted = true;
        let matched = match verdict {
            Ok(at) => Some(at),
            Err(Mismatch { at, why: WRONG_MSN, .. }) => {
                counted = !self.came_again(a, p);
                Some(at)
            }
            Err(_) if self.is_given_again(a, p) => {
                self.found.counts.duplicated += 1;
                None
            }
            Err(Mismatch { ours, why, .. }) => {
                self.differ(p, ours, why);
                None
            }
        };
        if let Some(at) = matched
            && let Some(list) = self.data.get_mut(&a.psn)
        {
            let ours = list.remove(at).sent;
            if ours.packet.bth.opcode != p.opcode {
                self.found.allow(p.number, Rule::ReadGoesOn);
            }
            self.pass(a.psn);
            self.found.counts.answers_equal += 1;
            self.found.counts.given += u64::from(self.given.contains(&a.at));
            if let (Some(captured), Some(own), true) = (p.ext.aeth, ours.packet.ext.aeth, counted) {
                self.msns.note(p.number, captured.msn, own.msn);
            }
            if !p.whole {
                self.found.unknown(p.number, "the data, which the capture cut off");
            }
        }
        Ok(())
    }

    /// Whether a READ response was given before, with the same data, and its request came more than once. A READ that comes
    /// while it is being answered breaks that answer off: which parts of which answers remain is a matter of nanoseconds.
    fn is_given_again(&self, a: Answer, p: &Packet) -> bool {
        let same = |&at: &usize| self.packets[at].payload() == p.payload();
        let before = |list: &Vec<usize>| list.iter().take_while(|&&at| at < a.at).any(same);
        self.came_again(a, p) && self.data_answers.get(&a.psn).is_some_and(before)
    }

    /// Whether the READ behind a response came more than once. Then its MSN is that of some time since.
    fn came_again(&self, a: Answer, p: &Packet) -> bool {
        let begins = matches!(p.opcode.position(), Position::First | Position::Only);
        let requests = self.copies.range(a.psn - self.longest + 1..=a.psn).flat_map(|(_, list)| list);
        let sent = requests.filter(|&&i| i < self.limit).map(|&i| self.flow.requests[i]);
        let asked: Vec<i64> = sent.filter(|r| a.psn < r.psn + r.span).map(|r| r.psn).collect();
        let own = self.msn_at(a.psn);
        // No MSN can count beyond what was sent by now.
        let most = self.completed.len() as u32 + self.waiting_messages();
        let counted = |x: Aeth| self.msns.behind(x.msn, own) <= most - own;
        p.opcode.kind() == Kind::ReadResponse
            && asked.len() > 1
            && (!begins || asked.contains(&a.psn))
            && p.ext.aeth.is_none_or(|x| matches!(x.syndrome, Syndrome::Ack(_)) && counted(x))
    }

    /// Messages that follow in order on what was carried out, as far as they were sent by now.
    pub(super) fn waiting_messages(&self) -> u32 {
        const MOST: u32 = 256;
        let (mut psn, mut count) = (self.expected, 0);
        while count < MOST
            && let Some(&i) = self.copies.get(&psn).and_then(|list| list.first()).filter(|&&i| i < self.limit)
        {
            count += u32::from(self.packet(i).opcode.ends_message());
            psn += self.flow.requests[i].span;
        }
        count
    }

    /// Delivers requests until our MSN, too, is that of an answer, if they are there.
    fn catch_up(&mut self, a: Answer, aeth: Aeth) {
        const MOST: u32 = 256;
        let own = self.data.get(&a.psn).and_then(|list| list.last()).and_then(|d| d.sent.packet.ext.aeth);
        let Some(own) = own else { return };
        let mut behind = self.msns.behind(aeth.msn, own.msn);
        while (1..=MOST).contains(&behind)
            && let Some(i) = self.find_copy(self.expected)
        {
            let (before, ends) = (self.expected, self.packet(i).opcode.ends_message());
            self.deliver(i, true);
            if self.expected == before {
                return;
            }
            behind -= u32::from(ends);
        }
    }

    /// Holds a data answer against ours of the same PSN: which of them it is, or what is different.
    fn compare_data(&self, a: Answer, p: &Packet) -> Result<usize, Mismatch> {
        let mut verdict = Mismatch { at: 0, ours: NOTHING.into(), why: "no request asked for this data" };
        for (at, ours) in self.data.get(&a.psn).into_iter().flatten().enumerate() {
            match self.compare_with(ours, p) {
                Ok(()) => return Ok(at),
                // What is nearest to it says best what is wrong.
                Err((ours, why)) if at == 0 || why == WRONG_MSN => verdict = Mismatch { at, ours, why },
                Err(_) => {}
            }
        }
        Err(verdict)
    }

    fn compare_with(&self, Data { sent: ours, again }: &Data, p: &Packet) -> Result<(), (String, &'static str)> {
        let words = || Words::of_ours(ours).to_string();
        let goes_on = || *again && Rule::ReadGoesOn.allows(self.flow.responder_kind) && is_same_going_on(ours, p);
        if ours.packet.bth.opcode != p.opcode && !goes_on() {
            return Err((words(), "the opcode says where the packet stands in the answer"));
        }
        if ours.packet.payload.len() != p.payload.len() {
            return Err((format!("{} bytes of data", ours.packet.payload.len()), "the READ asked for another length"));
        }
        if ours.packet.ext.atomic_ack != p.ext.atomic_ack {
            return Err((words(), "the value follows from the atomics before it"));
        }
        if let Some(aeth) = p.ext.aeth
            && !matches!(aeth.syndrome, Syndrome::Ack(_))
        {
            return Err((words(), "data comes with a positive acknowledgement"));
        }
        let differs = ours.payload().iter().zip(p.payload()).position(|(x, y)| x != y);
        if let (Some(at), true) = (differs, p.whole) {
            let ours = format!("{} with byte {at} = {:#04x}", p.opcode, ours.payload()[at]);
            return Err((ours, "the byte was written or read before, and nothing shows that it changed since"));
        }
        if let (Some(captured), Some(own)) = (p.ext.aeth, ours.packet.ext.aeth)
            && !self.msns.fits(self.begins, captured.msn, own.msn)
        {
            return Err((words(), WRONG_MSN));
        }
        Ok(())
    }
}
