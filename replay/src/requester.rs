//! Our NIC in the place of the requester: it gets the work requests that the packets show, and the captured answers; what it
//! sends is held against the captured requests.
//!
//! An answer reaches the requester some time after it was captured, or never. So answers are kept back until a captured request
//! can only be explained by one of them: that decides when our NIC hears of it, not what it makes of it.

mod order;
mod window;

use std::collections::{BTreeMap, VecDeque};

use order::Match;
use softnic_nic::QpKind;
use softnic_wire::aeth::{Credits, NakCode, Syndrome};
use softnic_wire::opcode::{Kind, Service};
use softnic_wire::{Psn, Qpn};
use window::Window;

use crate::capture::{Packet, sign};
use crate::findings::{Findings, Words};
use crate::flows::{Flow, Request};
use crate::messages::{Segment, is_outlier};
use crate::peers::Rule;
use crate::posting::Posting;
use crate::report::Role;
use crate::rig::{Rig, Sent, Setup};

const ROLE: Role = Role::Requester;
/// No timer runs out sooner, in nanoseconds: 4.096 µs · 2.
const SHORTEST_TIMEOUT: u64 = 8_192;
/// Who goes back within this time of a NAK does so because of it, in nanoseconds.
const REACTION: u64 = 1_000_000;
/// A requester that was told of a gap fills it within this time, in nanoseconds.
const PATIENCE: u64 = 200_000_000;

struct Requester<'a> {
    flow: &'a Flow,
    packets: &'a [Packet],
    found: &'a mut Findings,
    rig: Rig,
    posting: Posting<'a>,
    window: Window,
    /// Captured answers that our NIC has not heard of, by index in the flow.
    kept: Vec<usize>,
    /// Answers looked at so far.
    seen: usize,
    /// A packet that our NIC sent and that no captured one has matched yet.
    held: Option<(i64, Sent)>,
    /// The PSN behind the highest that was captured.
    highest: i64,
    /// Answers that made our NIC go back.
    reasons: Vec<usize>,
    /// When the last packet was captured that this flow's requester sent, or heard of.
    quiet_since: u64,
    /// When the last answer was captured that the requester heard of.
    progress: u64,
    /// Requests were lost before they were captured.
    captured_behind: bool,
    /// Packets of ours that the capture did not have where they were due, by PSN.
    skipped: BTreeMap<i64, Sent>,
    /// The last captured requests, the newest behind.
    recent: VecDeque<Request>,
}

/// Replays a flow at a requester. `gaps` says that the capture lacks packets in many places, `damaged` that there are some in
/// it which no NIC takes; it ends at `end`.
pub(crate) fn replay(
    flow: &Flow,
    segments: &[Segment],
    packets: &[Packet],
    (gaps, damaged): (bool, bool),
    end: u64,
    found: &mut Findings,
) {
    for (i, r) in flow.requests.iter().enumerate() {
        if is_outlier(&flow.requests, i) {
            let captured = Words::of(&packets[r.at]).to_string();
            let why = "its PSN is far from all others of the connection";
            found.differ(ROLE, packets[r.at].number, "another PSN".into(), captured, why);
        }
    }
    if !gaps {
        strays(flow, segments, packets, found);
    }
    for segment in segments {
        let inside = |r: &&Request| segment.first() <= r.psn && r.psn < segment.end();
        let requests: Vec<Request> = flow.requests.iter().filter(inside).copied().collect();
        let Some(mut requester) = Requester::new(flow, segment, packets, found) else {
            if let Some(r) = requests.first() {
                found.unknown(packets[r.at].number, "the requester's messages are too long to rebuild");
            }
            continue;
        };
        requester.captured_behind |= damaged;
        for (i, &r) in requests.iter().enumerate() {
            if !requester.explain(r, &requests[i + 1..]) {
                break;
            }
        }
        requester.finish(end);
    }
}

/// Requests that belong to no message that could be rebuilt.
fn strays(flow: &Flow, segments: &[Segment], packets: &[Packet], found: &mut Findings) {
    let Some(first) = segments.first() else { return };
    let covered = |psn: i64| flow.answers.iter().any(|a| a.psn >= psn);
    for (i, r) in flow.requests.iter().enumerate() {
        if is_outlier(&flow.requests, i) || flow.service != Service::Rc {
            continue;
        }
        let p = &packets[r.at];
        let why = if r.psn < first.first() {
            // From before the capture, unless that was answered already.
            let answered = flow.answers.iter().any(|a| a.at < r.at && a.psn >= first.first());
            answered.then_some("it was acknowledged before")
        } else if !segments.iter().any(|s| s.first() <= r.psn && r.psn < s.end()) {
            let lonely = segments.len() == 1 && !flow.answers.is_empty() && !covered(r.psn);
            lonely.then_some("it belongs to no message, and was not answered")
        } else {
            let alone = segments.len() == 2 && segments[1].messages.len() == 1 && r.psn >= segments[1].first();
            let lonely = alone && !flow.answers.is_empty() && !covered(r.psn);
            lonely.then_some("there is a gap before it, and it was not answered")
        };
        if let Some(why) = why {
            found.differ(ROLE, p.number, "another PSN".into(), Words::of(p).to_string(), why);
        }
    }
}

impl<'a> Requester<'a> {
    fn new(
        flow: &'a Flow,
        segment: &'a Segment,
        packets: &'a [Packet],
        found: &'a mut Findings,
    ) -> Option<Requester<'a>> {
        let first = segment.messages.first()?;
        let qkeys = segment.messages.iter().filter_map(|m| packets[m.at].ext.deth.map(|d| d.qkey));
        let setup = Setup {
            kind: match flow.service {
                Service::Uc => QpKind::Uc,
                Service::Ud => QpKind::Ud,
                _ => QpKind::Rc,
            },
            own_qp: flow.requester_qp.filter(|q| !matches!(q.value(), 0..2 | 0xff_ffff)).unwrap_or(Qpn::new(2)),
            peer: packets[first.at].dst,
            // A key with the highest bit set is the sender's own.
            qkey: qkeys.into_iter().find(|k| k >> 31 == 1).unwrap_or(0),
            ..Setup::requester(flow, first.first, segment.messages.len())
        };
        let mut rig = Rig::new(&setup)?;
        let posting = Posting::new(&mut rig, &segment.messages, packets)?;
        let awaited = segment.messages.iter().filter(|m| m.awaits_data()).map(|m| (m.first, m.first + m.packets));
        Some(Requester {
            captured_behind: captured_behind(flow, packets),
            flow,
            packets,
            found,
            rig,
            posting,
            window: Window::new(first.first, awaited.collect()),
            kept: Vec::new(),
            seen: 0,
            held: None,
            highest: first.first,
            reasons: Vec::new(),
            quiet_since: 0,
            progress: 0,
            skipped: BTreeMap::new(),
            recent: VecDeque::new(),
        })
    }

    /// The next packet of our NIC.
    fn poll(&mut self) -> Option<i64> {
        if self.held.is_none() {
            let near = self.highest;
            self.held =
                self.rig.poll().map(|s| (near + i64::from(s.packet.bth.psn.distance(Psn::new(near as u32))), s));
        }
        self.held.as_ref().map(|h| h.0)
    }

    /// Tells our NIC of a captured answer.
    fn feed(&mut self, answer: usize) {
        let a = self.flow.answers[answer];
        let p = &self.packets[a.at];
        self.rig.go_to(p.time);
        self.quiet_since = self.quiet_since.max(p.time);
        self.progress = self.progress.max(p.time);
        let mut frame = p.frame.clone();
        if let Some(aeth) = p.ext.aeth
            && matches!(aeth.syndrome, Syndrome::Ack(_))
        {
            // How many receives are posted decides when a requester sends, not what.
            let at = p.layout.bth + softnic_wire::bth::LEN;
            frame[at] = Syndrome::Ack(Credits::UNLIMITED).to_byte();
            sign(&mut frame, &p.layout);
        }
        let goes_back = self.window.effect(a.psn, p).resend.is_some();
        self.window.take(a.psn, p);
        self.rig.feed(&frame);
        // What left our NIC before it heard of this stays sent, unless it is superfluous now or comes again.
        if goes_back || self.held.as_ref().is_some_and(|h| h.0 < self.window.una) {
            self.held = None;
        }
    }

    /// Forgets answers that can do nothing any more, and those that were heard.
    fn forget(&mut self, heard: &[usize]) {
        let (window, answers, packets) = (&self.window, &self.flow.answers, self.packets);
        self.kept.retain(|k| {
            let a = answers[*k];
            let effect = window.effect(a.psn, &packets[a.at]);
            !heard.contains(k) && (effect.una > window.una || effect.resend.is_some())
        });
    }

    /// Answers that lead on to where nothing before `psn` is missing, in the order in which they do so, and the window then.
    fn way_to(&self, psn: i64, mut window: Window) -> (Vec<usize>, Window) {
        let mut way = Vec::new();
        // On their way, answers may have changed places.
        let mut sorted = self.kept.clone();
        sorted.sort_by_key(|&k| self.flow.answers[k].psn);
        for k in sorted {
            let a = self.flow.answers[k];
            let p = &self.packets[a.at];
            let effect = window.effect(a.psn, p);
            if effect.resend.is_none() && effect.una <= psn && effect.una > window.una {
                window.take(a.psn, p);
                way.push(k);
            }
        }
        (way, window)
    }

    /// Feeds the answers that acknowledge nothing from `psn` on.
    fn feed_before(&mut self, psn: i64) {
        let (way, _) = self.way_to(psn, self.window.clone());
        if !way.is_empty() {
            way.iter().for_each(|&k| self.feed(k));
            self.forget(&[]);
        }
    }

    /// Finds the answer that makes a requester go back to `psn`, and feeds what leads to it.
    fn feed_reason(&mut self, psn: i64) -> bool {
        let (way, window) = self.way_to(psn, self.window.clone());
        let is_reason = |&&k: &&usize| {
            let a = self.flow.answers[k];
            window.effect(a.psn, &self.packets[a.at]).resend == Some(psn)
        };
        let Some(&reason) = self.kept.iter().find(is_reason) else { return self.feed_earlier_reason(psn) };
        self.reasons.push(reason);
        way.into_iter().chain([reason]).for_each(|k| self.feed(k));
        // Any data behind what is missing would have done; which one it was shows in what is missing next.
        let is_data = self.packets[self.flow.answers[reason].at].opcode.kind() != Kind::Acknowledge;
        self.forget(if is_data { &[] } else { std::slice::from_ref(&reason) });
        true
    }

    /// A requester that was told to go back, and told before it came to that how far the responder is by now, begins there.
    fn feed_earlier_reason(&mut self, psn: i64) -> bool {
        for i in 0..self.kept.len() {
            let reason = self.kept[i];
            let a = self.flow.answers[reason];
            let p = &self.packets[a.at];
            if self.window.effect(a.psn, p).resend.is_none_or(|to| to >= psn) {
                continue;
            }
            let mut window = self.window.clone();
            window.take(a.psn, p);
            let (way, window) = self.way_to(psn, window);
            if window.una == psn {
                self.reasons.push(reason);
                [reason].into_iter().chain(way).for_each(|k| self.feed(k));
                self.forget(&[reason]);
                return true;
            }
        }
        false
    }

    /// Holds a captured request against what our NIC sends; `false` when nothing more can be compared. `rest` is what was
    /// captured behind it.
    fn explain(&mut self, r: Request, rest: &[Request]) -> bool {
        let p = &self.packets[r.at];
        while self.seen < self.flow.answers.len() && self.flow.answers[self.seen].at < r.at {
            self.kept.push(self.seen);
            self.seen += 1;
        }
        let reached = self.highest.max(r.psn);
        if !self.posting.post_until(&mut self.rig, r.psn) {
            self.found.unknown(p.number, "a work request that our NIC does not take");
            return false;
        }
        // Where only one side was captured, any answer may have made it go back.
        let again = self.flow.answers.is_empty() && r.psn < self.highest && r.psn != self.window.una;
        if again && self.flow.service == Service::Rc && self.poll() != Some(r.psn) {
            self.found.unknown(p.number, "why it was sent again: no answers were captured");
            return true;
        }
        let matched = self.bring_to(r, p, rest);
        self.quiet_since = p.time;
        self.highest = reached.max(r.psn + r.span);
        self.remember(r);
        let ours = match matched {
            Match::Next => self.held.take().map(|h| h.1),
            Match::Late(ours) => Some(*ours),
            Match::Again => None,
            Match::Nothing => {
                if !self.rig.is_alive() {
                    if !self.found.allows(p.number, Rule::RetriesForEver, self.flow.requester_kind) {
                        self.found.unknown(p.number, "our NIC gave up by then, after seven retries");
                    }
                    return false;
                }
                let ours = self.held.as_ref().map_or("nothing".into(), |(_, s)| Words::of_ours(s).to_string());
                let why = "no answer, and no timer that ran out, makes a requester send this now";
                self.found.differ(ROLE, p.number, ours, Words::of(p).to_string(), why);
                return false;
            }
        };
        if let Some(ours) = ours {
            match compare(&ours, p) {
                None => self.found.counts.requests_equal += 1,
                Some((ours, why)) => self.found.differ(ROLE, p.number, ours, Words::of(p).to_string(), why),
            }
        }
        true
    }

    /// A gap that the requester was told of, and that it never filled.
    fn finish(&mut self, end: u64) {
        let last = self.flow.answers[self.seen.min(self.flow.answers.len())..].iter().enumerate();
        let rest: Vec<usize> = last.map(|(i, _)| self.seen + i).collect();
        for k in self.kept.clone().into_iter().chain(rest) {
            let a = self.flow.answers[k];
            let p = &self.packets[a.at];
            let gap = p.ext.aeth.is_some_and(|x| x.syndrome == Syndrome::Nak(NakCode::PSN_SEQUENCE_ERROR));
            let inside = self.window.una <= a.psn && a.psn < self.highest;
            let covered = self.flow.answers.iter().any(|o| o.at > a.at && o.psn >= a.psn);
            let again = self.flow.requests.iter().any(|r| r.at > a.at && r.psn <= a.psn);
            if gap && inside && !covered && !again && end.saturating_sub(p.time) > PATIENCE {
                let ours = format!("psn {} again", Psn::new(a.psn as u32));
                let captured = "nothing".into();
                self.found.differ(ROLE, p.number, ours, captured, "a requester fills the gap that it is told of");
            }
        }
    }
}

/// Whether requests were lost before they were captured: then a NAK asks for one that the capture never had.
fn captured_behind(flow: &Flow, packets: &[Packet]) -> bool {
    flow.answers.iter().any(|a| {
        let gap = packets[a.at].ext.aeth.map(|x| x.syndrome) == Some(Syndrome::Nak(NakCode::PSN_SEQUENCE_ERROR));
        gap && !flow.requests.iter().any(|r| r.at < a.at && r.psn <= a.psn && a.psn < r.psn + r.span)
    })
}

/// What our request has otherwise than the captured one of the same PSN.
pub(crate) fn compare(ours: &Sent, p: &Packet) -> Option<(String, &'static str)> {
    let words = || Words::of_ours(ours).to_string();
    let (bth, ext) = (ours.packet.bth, ours.packet.ext);
    if bth.opcode != p.opcode {
        return Some((words(), "the opcode says what is done, and where the packet stands in its message"));
    }
    if ext != p.ext {
        // Of an atomic that adds, nobody looks at the value to compare with.
        let adds = p.opcode.kind() == Kind::FetchAdd;
        let same = match (ext.atomic, p.ext.atomic) {
            (Some(a), Some(b)) if adds => (a.va, a.rkey, a.swap_add) == (b.va, b.rkey, b.swap_add),
            _ => false,
        };
        if !same {
            return Some((words(), "the extension headers follow from the work request"));
        }
    }
    if ours.packet.payload.len() != p.payload.len() {
        return Some((format!("{} bytes", ours.packet.payload.len()), "packets but the last are full"));
    }
    if p.opcode.ends_message() && bth.solicited != p.solicited {
        return Some((format!("solicited event {}", bth.solicited), "it was sent with the other before"));
    }
    if p.whole
        && let Some(at) = ours.payload().iter().zip(p.payload()).position(|(x, y)| x != y)
    {
        let ours = format!("{} with byte {at} = {:#04x}", p.opcode, ours.payload()[at]);
        return Some((ours, "the same packet was sent with other data before"));
    }
    None
}
