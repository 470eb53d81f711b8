//! Completions of one completion queue on their way to the program: some with another status, some held back.
//!
//! The completions of one queue of a queue pair stay in order: a held one also holds the later ones.

use std::collections::{HashSet, VecDeque};
use std::time::{Duration, Instant};

use softnic_runtime::api::call_faults::{CompletionAction, Side};
use softnic_runtime::api::{Completion, Status, WcOpcode};

use crate::abi::c_int;

/// IBV_WC_WR_FLUSH_ERR.
const FLUSHED: c_int = 5;

/// A queue of a queue pair: the number, and whether it is the send queue.
type Key = (u32, bool);

/// When a completion is released.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Release {
    Now,
    At(Instant),
    /// At this poll.
    Poll(u64),
    /// When this many completions of other queues have passed.
    Behind(u32),
}

#[derive(Debug, Clone, Copy)]
struct Entry {
    completion: Completion,
    changed: Option<(c_int, u32)>,
    release: Release,
}

/// A completion as the program gets it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Given {
    pub(crate) completion: Completion,
    /// A status and a vendor error that replace its own.
    pub(crate) changed: Option<(c_int, u32)>,
}

/// The held completions of one queue.
#[derive(Debug, Default)]
pub(crate) struct Held {
    entries: VecDeque<Entry>,
    /// Queues whose work fails: later successes there are flushed.
    failed: HashSet<Key>,
    /// No more completions arrive.
    is_overrun: bool,
    polls: u64,
    /// The program armed the queue, and has taken no event since: it may sleep.
    pub(crate) is_armed: bool,
    /// The vendor error of the completion that is read field by field.
    pub(crate) vendor_err: Option<u32>,
}

/// The queue to which a completion belongs.
pub(crate) fn side_of(completion: &Completion) -> Side {
    match completion.opcode {
        WcOpcode::Recv | WcOpcode::RecvWriteImm => Side::Recv,
        _ => Side::Send,
    }
}

fn key_of(completion: &Completion) -> Key {
    (completion.qpn.value(), side_of(completion) == Side::Send)
}

impl Held {
    /// Takes in a completion, with the decision of a fault about it. If it is delayed by a time, returns the release time.
    pub(crate) fn take_in(
        &mut self,
        completion: Completion,
        action: Option<CompletionAction>,
        now: Instant,
    ) -> Option<Instant> {
        if self.is_overrun {
            return None;
        }
        let key = key_of(&completion);
        let mut entry = Entry { completion, changed: None, release: Release::Now };
        if self.failed.contains(&key) && completion.status == Status::Success {
            entry.changed = Some((FLUSHED, 0));
        }
        let later = |delay: Duration| now.checked_add(delay).unwrap_or(now);
        match action {
            // A flushed completion keeps its status.
            Some(CompletionAction::Status(status, vendor_err)) if entry.changed.is_none() => {
                self.failed.insert(key);
                entry.changed = Some((status.code(), vendor_err));
            }
            Some(CompletionAction::Late(delay)) => entry.release = Release::At(later(delay)),
            Some(CompletionAction::Polls(polls)) => entry.release = Release::Poll(self.polls + u64::from(polls)),
            Some(CompletionAction::Reorder(behind)) => entry.release = Release::Behind(behind),
            Some(CompletionAction::Overrun) => {
                self.is_overrun = true;
                return None;
            }
            Some(CompletionAction::Status(..)) | None => {}
        }
        self.entries.push_back(entry);
        match entry.release {
            Release::At(at) => Some(at),
            _ => None,
        }
    }

    /// No more completions arrive.
    pub(crate) fn overrun(&mut self) {
        self.is_overrun = true;
    }

    /// The program polls.
    pub(crate) fn polled(&mut self) {
        self.polls += 1;
    }

    /// Returns at most `max` released completions; an error if there are none and none will arrive.
    pub(crate) fn hand_out(&mut self, max: usize, now: Instant) -> Result<Vec<Given>, ()> {
        let mut given = Vec::new();
        let mut waiting: HashSet<Key> = HashSet::new();
        let mut place = 0;
        while place < self.entries.len() && given.len() < max {
            let entry = self.entries[place];
            let key = key_of(&entry.completion);
            let goes = match entry.release {
                Release::Now | Release::Behind(0) => true,
                Release::At(at) => at <= now,
                Release::Poll(poll) => poll <= self.polls,
                Release::Behind(_) => false,
            };
            if !goes || waiting.contains(&key) {
                waiting.insert(key);
                place += 1;
                continue;
            }
            self.entries.remove(place);
            given.push(Given { completion: entry.completion, changed: entry.changed });
            for before in self.entries.iter_mut().take(place) {
                if let Release::Behind(left) = &mut before.release
                    && key_of(&before.completion) != key
                {
                    *left = left.saturating_sub(1);
                }
            }
        }
        // No other completion is there that could pass it.
        if given.is_empty()
            && max > 0
            && let Some(first) = self.entries.iter_mut().find(|entry| matches!(entry.release, Release::Behind(_)))
        {
            first.release = Release::Now;
            return self.hand_out(max, now);
        }
        if given.is_empty() && self.entries.is_empty() && self.is_overrun && max > 0 { Err(()) } else { Ok(given) }
    }

    /// The program sleeps, and does not poll until an event: completions that wait for polls are released. Returns whether there is a
    /// completion to poll.
    pub(crate) fn sleeps(&mut self, now: Instant) -> bool {
        for entry in &mut self.entries {
            let is_due = match entry.release {
                Release::Poll(_) | Release::Behind(_) => true,
                Release::At(at) => at <= now,
                Release::Now => false,
            };
            if is_due {
                entry.release = Release::Now;
            }
        }
        // A completion after another one of its queue waits for that one.
        let mut seen = HashSet::new();
        let mut heads = self.entries.iter().filter(|entry| seen.insert(key_of(&entry.completion)));
        heads.any(|entry| entry.release == Release::Now)
    }

    /// A queue pair was reset or destroyed: its completions are dropped.
    pub(crate) fn forget(&mut self, qpn: u32) {
        self.entries.retain(|entry| entry.completion.qpn.value() != qpn);
        self.failed.retain(|(of, _)| *of != qpn);
    }

    /// The send queue works again.
    pub(crate) fn mend(&mut self, qpn: u32) {
        self.failed.remove(&(qpn, true));
    }
}

#[cfg(test)]
mod tests {
    use softnic_runtime::api::Qpn;
    use softnic_runtime::api::call_faults::WcStatus;

    use super::*;

    fn sent(qpn: u32, wr_id: u64) -> Completion {
        Completion::new(wr_id, Status::Success, WcOpcode::Send, Qpn::new(qpn))
    }

    /// The result of a poll: work requests, and their statuses if these were changed.
    fn poll(held: &mut Held, now: Instant) -> Vec<(u64, c_int)> {
        held.polled();
        let given = held.hand_out(16, now).unwrap();
        given.iter().map(|g| (g.completion.wr_id, g.changed.map_or(0, |(status, _)| status))).collect()
    }

    #[test]
    fn what_succeeds_behind_a_failure_is_flushed_in_that_queue_alone() {
        let (mut held, now) = (Held::default(), Instant::now());
        let fails = CompletionAction::Status(WcStatus::RetryExcErr, 0x81);
        held.take_in(sent(1, 1), None, now);
        held.take_in(sent(1, 2), Some(fails), now);
        held.take_in(sent(1, 3), None, now);
        held.take_in(sent(2, 4), None, now);
        held.take_in(Completion::new(5, Status::Success, WcOpcode::Recv, Qpn::new(1)), None, now);
        assert_eq!(poll(&mut held, now), [(1, 0), (2, 12), (3, 5), (4, 0), (5, 0)]);
        held.forget(1);
        held.take_in(sent(1, 6), None, now);
        assert_eq!(poll(&mut held, now), [(6, 0)], "it began anew");
    }

    #[test]
    fn a_late_completion_holds_those_behind_it_in_its_queue() {
        let (mut held, now) = (Held::default(), Instant::now());
        let late = Duration::from_millis(5);
        assert_eq!(held.take_in(sent(1, 1), Some(CompletionAction::Late(late)), now), Some(now + late));
        held.take_in(sent(1, 2), None, now);
        held.take_in(sent(2, 3), None, now);
        assert_eq!(poll(&mut held, now), [(3, 0)]);
        assert!(!held.sleeps(now), "there is nothing for it to find yet");
        assert_eq!(poll(&mut held, now + late), [(1, 0), (2, 0)]);
    }

    #[test]
    fn a_completion_comes_some_polls_later_or_when_the_program_sleeps() {
        let (mut held, now) = (Held::default(), Instant::now());
        held.take_in(sent(1, 1), Some(CompletionAction::Polls(3)), now);
        assert_eq!([poll(&mut held, now), poll(&mut held, now)], [vec![], vec![]]);
        assert_eq!(poll(&mut held, now), [(1, 0)]);
        held.take_in(sent(1, 2), Some(CompletionAction::Polls(100)), now);
        assert!(held.sleeps(now));
        assert_eq!(poll(&mut held, now), [(2, 0)]);
    }

    #[test]
    fn others_pass_and_when_there_are_none_it_waits_for_nobody() {
        let (mut held, now) = (Held::default(), Instant::now());
        held.take_in(sent(1, 1), Some(CompletionAction::Reorder(2)), now);
        for (qpn, wr_id) in [(2, 2), (1, 3), (2, 4), (2, 5)] {
            held.take_in(sent(qpn, wr_id), None, now);
        }
        assert_eq!(poll(&mut held, now), [(2, 0), (4, 0), (5, 0)]);
        assert_eq!(poll(&mut held, now), [(1, 0), (3, 0)]);
        held.take_in(sent(1, 6), Some(CompletionAction::Reorder(2)), now);
        held.take_in(sent(1, 7), None, now);
        assert_eq!(poll(&mut held, now), [(6, 0), (7, 0)]);
    }

    #[test]
    fn behind_an_overrun_nothing_comes() {
        let (mut held, now) = (Held::default(), Instant::now());
        held.take_in(sent(1, 1), None, now);
        held.take_in(sent(1, 2), Some(CompletionAction::Overrun), now);
        held.take_in(sent(1, 3), None, now);
        assert_eq!(poll(&mut held, now), [(1, 0)], "what came before is there");
        assert!(held.hand_out(16, now).is_err());
    }
}
