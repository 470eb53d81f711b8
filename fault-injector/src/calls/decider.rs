//! Decides over calls, completions and events: which rule is for each, if any.
//!
//! Each rule counts by itself, and draws from a stream of its own: what it decides depends on the seed and on the calls that it could be for,
//! and on nothing else.

use std::collections::HashMap;
use std::fmt::Debug;
use std::time::Duration;

use super::{
    Applied, CallAction, CallFaults, CmEvent, CompletionAction, Happening, Named, QpMatch, TableKind, Verb, When, Which,
};
use crate::random::Random;

/// Streams of rules have this bit: those of links have small numbers.
const STREAMS: u64 = 1 << 63;

/// The stream that a rule draws from: of its content, so that rules before it change nothing. Equal rules are told apart by their order.
fn stream(content: &str, order: u64) -> u64 {
    // FNV-1a, which is the same everywhere, and in every release of Rust.
    let bytes = content.bytes().chain(order.to_le_bytes());
    let hash =
        bytes.fold(0xcbf2_9ce4_8422_2325, |hash: u64, byte| (hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3));
    hash | STREAMS
}

/// A queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Side {
    /// Of sends.
    Send,
    /// Of receives.
    Recv,
}

/// A call, as far as rules ask.
#[derive(Debug, Clone, Copy)]
pub struct CallSeen<'a> {
    /// The verb.
    pub verb: Verb,
    /// The number of its queue pair, and its place in the order of making.
    pub qp: Option<(u32, u32)>,
    /// Its work requests.
    pub wr_ids: &'a [u64],
}

/// A completion, as far as rules ask.
#[derive(Debug, Clone, Copy)]
pub struct CompletionSeen {
    /// Which queue it is of.
    pub side: Side,
    /// The number of its queue pair, and its place in the order of making.
    pub qp: (u32, u32),
    /// Its work request.
    pub wr_id: u64,
    /// Whether it succeeded: the status of one that did not stays.
    pub is_success: bool,
}

/// A rule at work.
#[derive(Debug, Clone)]
struct Entry<R> {
    named: Named<R>,
    which: Which,
    /// How many it could have been for, `nth` and chance aside.
    matched: u64,
    /// How many it decided over.
    applied: u64,
    random: Random,
}

impl<R: Copy> Entry<R> {
    /// Another one that the rule may be for: whether it is.
    fn takes(&mut self) -> bool {
        self.matched += 1;
        if self.which.nth.is_some_and(|nth| nth != self.matched) {
            return false;
        }
        self.which.chance.is_none_or(|chance| self.random.chance(chance))
    }

    /// It decides over this one.
    fn apply(&mut self, kind: TableKind) -> Applied {
        self.applied += 1;
        Applied { kind, number: self.named.number }
    }

    fn is_for(&self, qp: Option<(u32, u32)>) -> bool {
        self.which.qp.is_none_or(|wanted| match (wanted, qp) {
            (_, None) => false,
            (QpMatch::Number(n), Some((number, _))) => n == number,
            (QpMatch::Made(n), Some((_, place))) => n == place,
        })
    }
}

/// Decides over the calls of one process.
#[derive(Debug, Clone)]
pub struct CallDecider {
    calls: Vec<Entry<super::CallRule>>,
    completions: Vec<Entry<super::CompletionRule>>,
    late: Vec<Entry<super::LateRule>>,
    happenings: Vec<Entry<super::HappeningRule>>,
    /// Since somebody asked.
    applied: Vec<Applied>,
}

/// Of what happens by itself.
fn kind_of(what: Happening) -> TableKind {
    match what {
        Happening::Async { .. } => TableKind::Async,
        Happening::Cm(_) => TableKind::Cm,
    }
}

impl CallDecider {
    /// From the faults and a seed.
    pub fn new(faults: &CallFaults, seed: u64) -> CallDecider {
        let mut equal: HashMap<String, u64> = HashMap::new();
        let mut random = |content: String| {
            let order = equal.entry(content.clone()).and_modify(|order| *order += 1).or_default();
            Random::stream(seed, stream(&content, *order))
        };
        fn entries<R: Clone + Debug>(
            rules: &[Named<R>],
            which: impl Fn(&R) -> Which,
            mut random: impl FnMut(String) -> Random,
        ) -> Vec<Entry<R>> {
            let entry = |named: &Named<R>| Entry {
                which: which(&named.rule),
                named: named.clone(),
                matched: 0,
                applied: 0,
                random: random(format!("{:?}", named.rule)),
            };
            rules.iter().map(entry).collect()
        }
        CallDecider {
            calls: entries(&faults.calls, |r| r.which, &mut random),
            completions: entries(&faults.completions, |r| r.which, &mut random),
            late: entries(&faults.late, |r| r.which, &mut random),
            happenings: entries(&faults.happenings, |_| Which::default(), &mut random),
            applied: Vec::new(),
        }
    }

    /// What happens to a call, and at which of its work requests: with the first, unless the rule names one.
    pub fn call(&mut self, call: CallSeen<'_>) -> Option<(CallAction, usize)> {
        let mut decided = None;
        for entry in self.calls.iter_mut().filter(|entry| entry.named.rule.verb == call.verb) {
            let at = match entry.which.wr_id {
                None => Some(0),
                Some(wanted) => call.wr_ids.iter().position(|&wr_id| wr_id == wanted),
            };
            let Some(at) = at.filter(|_| entry.is_for(call.qp)) else { continue };
            // Every rule counts and draws for itself, whether or not one before it took the call.
            if entry.takes() && decided.is_none() {
                self.applied.push(entry.apply(TableKind::Call));
                decided = Some((entry.named.rule.action, at));
            }
        }
        decided
    }

    /// What happens before a call of this verb, beside what happens to it, by its place for [`CallDecider::happened`].
    pub fn happens(&mut self, verb: Verb) -> Vec<(usize, Happening)> {
        let mut found = Vec::new();
        for (place, entry) in self.happenings.iter_mut().enumerate() {
            if let When::Call(of, nth) = entry.named.rule.when
                && of == verb
            {
                entry.matched += 1;
                if entry.matched == nth {
                    found.push((place, entry.named.rule.what));
                }
            }
        }
        found
    }

    /// What happens at times, by its place for [`CallDecider::happened`].
    pub fn at_times(&self) -> impl Iterator<Item = (usize, Duration, Happening)> + '_ {
        self.happenings.iter().enumerate().filter_map(|(place, entry)| match entry.named.rule.when {
            When::At(at) => Some((place, at, entry.named.rule.what)),
            When::Call(..) => None,
        })
    }

    /// It happened, and to something: an object that it is about was there.
    pub fn happened(&mut self, place: usize) {
        if let Some(entry) = self.happenings.get_mut(place) {
            self.applied.push(entry.apply(kind_of(entry.named.rule.what)));
        }
    }

    /// What happens to a completion.
    pub fn completion(&mut self, seen: CompletionSeen) -> Option<CompletionAction> {
        let mut decided = None;
        for entry in &mut self.completions {
            let rule = entry.named.rule;
            let can_be = match rule.action {
                // What failed keeps its status, and each queue has statuses of its own.
                CompletionAction::Status(status, _) => {
                    let (send, recv) = status.occurs();
                    seen.is_success && if seen.side == Side::Send { send } else { recv }
                }
                _ => true,
            };
            let here = can_be
                && rule.side.is_none_or(|side| side == seen.side)
                && entry.which.wr_id.is_none_or(|wr_id| wr_id == seen.wr_id)
                && entry.is_for(Some(seen.qp));
            if here && entry.takes() && decided.is_none() {
                self.applied.push(entry.apply(TableKind::Completion));
                decided = Some(rule.action);
            }
        }
        decided
    }

    /// How much later an event of the connection manager comes.
    pub fn cm_event(&mut self, event: CmEvent) -> Option<Duration> {
        let mut decided = None;
        for entry in self.late.iter_mut().filter(|entry| entry.named.rule.event == event) {
            if entry.takes() && decided.is_none() {
                self.applied.push(entry.apply(TableKind::Cm));
                decided = Some(entry.named.rule.delay);
            }
        }
        decided
    }

    /// The rules that decided over something since this was asked last, in their order. To be asked after every decision: they are kept.
    pub fn take_applied(&mut self) -> std::vec::Drain<'_, Applied> {
        self.applied.drain(..)
    }

    /// Whether completions pass by here.
    pub fn has_completions(&self) -> bool {
        !self.completions.is_empty()
    }

    /// The rules that were for nothing in this run, by their names, and what they would have been for. What chance left alone is no mistake.
    pub fn unused(&self) -> Vec<(&str, &'static str)> {
        fn names<'a, R>(entries: &'a [Entry<R>], of: &'static str) -> impl Iterator<Item = (&'a str, &'static str)> {
            let unused = |e: &&Entry<R>| e.applied == 0 && (e.which.chance.is_none() || e.matched == 0);
            entries.iter().filter(unused).map(move |e| (e.named.name.as_str(), of))
        }
        let all = names(&self.calls, "call").chain(names(&self.completions, "completion"));
        all.chain(names(&self.late, "event")).chain(names(&self.happenings, "moment")).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::calls::WcStatus;
    use crate::spec::Spec;

    fn decider(spec: &str, seed: u64) -> CallDecider {
        CallDecider::new(&spec.parse::<Spec>().unwrap().calls, seed)
    }

    fn scripted(text: &str) -> CallDecider {
        CallDecider::new(&crate::Script::parse(text).unwrap().calls, 1)
    }

    fn call(verb: Verb) -> CallSeen<'static> {
        CallSeen { verb, qp: None, wr_ids: &[] }
    }

    /// The calls, from 1, of so many that something happens to.
    fn struck(decider: &mut CallDecider, verb: Verb, calls: u64) -> Vec<u64> {
        (1..=calls).filter(|_| decider.call(call(verb)).is_some()).collect()
    }

    #[test]
    fn the_same_seed_decides_alike_and_each_rule_by_itself() {
        let hits = |spec: &str, seed| struck(&mut decider(spec, seed), Verb::RegMr, 10_000);
        let alone = hits("verbs.reg_mr=ENOMEM:1e-2", 7);
        assert_eq!(alone, hits("verbs.reg_mr=ENOMEM:1e-2", 7));
        assert_ne!(alone, hits("verbs.reg_mr=ENOMEM:1e-2", 8));
        for rules in [
            "verbs.reg_mr=ENOMEM:1e-2,verbs.create_qp=EIO:0.5",
            "verbs.create_qp=EIO:0.5,verbs.reg_mr=ENOMEM:1e-2",
            "verbs.poll_cq=late:1ms:0.5,cm.ESTABLISHED=late:1s:0.5,verbs.reg_mr=ENOMEM:1e-2,event.QP_FATAL=5s",
        ] {
            assert_eq!(alone, hits(rules, 7), "{rules}: another rule draws for itself");
        }
        let twice = hits("verbs.reg_mr=ENOMEM:1e-2,verbs.reg_mr=ENOMEM:1e-2", 7);
        assert!(twice.len() > alone.len() && alone.iter().all(|call| twice.contains(call)), "equal rules draw apart");
        // Calls of other verbs change nothing.
        let mut mixed = decider("verbs.reg_mr=ENOMEM:1e-2", 7);
        let between = |d: &mut CallDecider| {
            d.call(call(Verb::PollCq));
            d.call(call(Verb::RegMr)).is_some()
        };
        assert_eq!(alone, (1..=10_000).filter(|_| between(&mut mixed)).collect::<Vec<u64>>());
    }

    #[test]
    fn chance_is_as_often_as_it_says() {
        let n = 200_000;
        let hits = struck(&mut decider("verbs.post_send=ENOMEM:1e-2", 3), Verb::PostSend, n).len() as f64;
        let (mean, deviation) = (n as f64 * 1e-2, (n as f64 * 1e-2 * 0.99).sqrt());
        assert!((hits - mean).abs() < 5.0 * deviation, "{hits}");
        assert_eq!(struck(&mut decider("verbs.post_send=EIO:0", 3), Verb::PostSend, 1000), []);
        assert_eq!(struck(&mut decider("verbs.post_send=EIO:1", 3), Verb::PostSend, 1000).len(), 1000);
    }

    #[test]
    fn a_rule_names_the_call_the_queue_pair_and_the_work_request() {
        assert_eq!(struck(&mut decider("verbs.reg_mr#3=ENOMEM", 1), Verb::RegMr, 10), [3]);
        let rule = "[[call]]\nverb = \"post_send\"\naction = \"fail\"\nerrno = \"EIO\"\n";
        let mut second = scripted(&format!("{rule}qp = \"#2\"\nnth = 2"));
        let send = |qp, wr_ids| CallSeen { verb: Verb::PostSend, qp: Some(qp), wr_ids };
        let hits: Vec<bool> = [(17, 1), (18, 2), (17, 1), (18, 2), (18, 2)]
            .into_iter()
            .map(|qp| second.call(send(qp, &[])).is_some())
            .collect();
        assert_eq!(hits, [false, false, false, true, false]);
        let mut third = scripted(&format!("{rule}wr_id = 9"));
        assert_eq!(third.call(send((17, 1), &[7, 8])), None);
        assert_eq!(third.call(send((17, 1), &[7, 8, 9])), Some((CallAction::Fail(5), 2)));
        let mut number = scripted(&format!("{rule}qp = 18"));
        assert_eq!(number.call(send((17, 1), &[])), None);
        assert!(number.call(send((18, 2), &[])).is_some());
    }

    #[test]
    fn only_a_success_gets_another_status_and_only_one_that_its_queue_has() {
        let seen = |side, is_success| CompletionSeen { side, qp: (17, 1), wr_id: 1, is_success };
        let mut retry = decider("verbs.poll_cq=RETRY_EXC_ERR", 1);
        assert_eq!(retry.completion(seen(Side::Recv, true)), None);
        assert_eq!(retry.completion(seen(Side::Send, false)), None);
        let status = CompletionAction::Status(WcStatus::RetryExcErr, 0);
        assert_eq!(retry.completion(seen(Side::Send, true)), Some(status));
    }

    #[test]
    fn what_happens_by_itself_happens_once() {
        let mut events = decider("event.PORT_ERR=post_send#2+1s,event.GID_CHANGE=5s,cm.ADDR_CHANGE=post_send#2", 1);
        let counts: Vec<usize> = (0..4).map(|_| events.happens(Verb::PostSend).len()).collect();
        assert_eq!(counts, [0, 2, 0, 0]);
        assert_eq!(
            events.at_times().map(|(place, at, _)| (place, at)).collect::<Vec<_>>(),
            [(1, Duration::from_secs(5))]
        );
        assert_eq!(events.unused().len(), 3, "whether there was anything for it to be about is not known yet");
        [0, 2].into_iter().for_each(|place| events.happened(place));
        assert_eq!(events.unused(), [("event.GID_CHANGE=5s", "moment")]);
        events.happened(1);
        assert_eq!(events.unused(), []);
    }

    #[test]
    fn rules_that_decided_are_told_once_by_their_numbers() {
        let kill = "[[call]]\nverb = \"reg_mr\"\naction = \"kill\"\n";
        let event = "[[async]]\nevent = \"PORT_ERR\"\nverb = \"reg_mr\"\n[[cm]]\nevent = \"ADDR_CHANGE\"\nat = \"1s\"";
        let mut rules = scripted(&format!("{kill}nth = 2\n{kill}nth = 1\n{event}"));
        // What a rule is for was there.
        for (place, _) in rules.happens(Verb::RegMr) {
            rules.happened(place);
        }
        struck(&mut rules, Verb::RegMr, 1);
        rules.happened(1);
        let told: Vec<_> = rules.take_applied().map(|applied| (applied.kind, applied.number)).collect();
        assert_eq!(told, [(TableKind::Async, 1), (TableKind::Call, 2), (TableKind::Cm, 1)]);
        assert_eq!(rules.take_applied().len(), 0);
    }

    #[test]
    fn rules_that_were_for_nothing_are_named() {
        let mut rules = decider("verbs.reg_mr#3=ENOMEM,verbs.post_send=EIO:1e-9,cm.ESTABLISHED=late:1s", 1);
        struck(&mut rules, Verb::RegMr, 2);
        struck(&mut rules, Verb::PostSend, 5);
        assert_eq!(rules.unused(), [("verbs.reg_mr#3=ENOMEM", "call"), ("cm.ESTABLISHED=late:1s", "event")]);
        struck(&mut rules, Verb::RegMr, 1);
        assert_eq!(rules.cm_event(CmEvent::Established), Some(Duration::from_secs(1)));
        assert_eq!(rules.unused(), []);
    }
}
