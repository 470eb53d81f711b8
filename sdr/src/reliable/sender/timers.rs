//! When chunks of all messages are to be sent again, and when a peer that is silent is to be made to speak.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};
use std::time::Duration;

use softnic_wire::Instant;

/// So often a chunk is sent with the same timeout, as the paper has it; then each further time waits twice as long, so many times.
const PATIENT_TRIES: u32 = 5;
const MOST_DOUBLINGS: u32 = 6;

/// A chunk of a message.
pub(super) type Chunk = (u64, u32);

/// What is waited for.
#[derive(Default)]
pub(super) struct Timers {
    /// Chunks in the order in which they left, each with the time.
    usual: VecDeque<(Instant, Chunk)>,
    /// Those that were sent so often that they wait longer, by when they are due.
    slow: BinaryHeap<Reverse<(Instant, Chunk)>>,
    /// Messages whose peer should say something, by when.
    probes: BinaryHeap<Reverse<(Instant, u64)>>,
}

/// How much longer the next timeout is after so many tries.
pub(super) fn patience(tries: u32) -> u32 {
    1 << tries.saturating_sub(PATIENT_TRIES).min(MOST_DOUBLINGS)
}

impl Timers {
    /// A chunk left now.
    pub(super) fn start(&mut self, now: Instant, chunk: Chunk) {
        self.usual.push_back((now, chunk));
    }

    /// A message's peer should say something until then.
    pub(super) fn expect(&mut self, until: Instant, write: u64) {
        self.probes.push(Reverse((until, write)));
    }

    /// The next chunk in the order in which they left whose time is over, or that `is_over` says nothing is to be waited for of; with the time.
    pub(super) fn next_usual(
        &mut self,
        now: Instant,
        rto: Duration,
        is_over: impl Fn(Chunk) -> bool,
    ) -> Option<(Instant, Chunk)> {
        let &(sent, chunk) = self.usual.front()?;
        if sent + rto > now && !is_over(chunk) {
            return None;
        }
        self.usual.pop_front()
    }

    /// It waits longer.
    pub(super) fn wait_longer(&mut self, until: Instant, chunk: Chunk) {
        self.slow.push(Reverse((until, chunk)));
    }

    /// The next chunk that waited longer and is due.
    pub(super) fn next_slow(&mut self, now: Instant) -> Option<Chunk> {
        self.slow.peek().filter(|Reverse((due, _))| *due <= now)?;
        self.slow.pop().map(|Reverse((_, chunk))| chunk)
    }

    /// The next message whose peer should have said something.
    pub(super) fn next_silent(&mut self, now: Instant) -> Option<u64> {
        self.probes.peek().filter(|Reverse((due, _))| *due <= now)?;
        self.probes.pop().map(|Reverse((_, write))| write)
    }

    /// When the first is due.
    pub(super) fn poll_timeout(&self, rto: Duration) -> Option<Instant> {
        let usual = self.usual.front().map(|&(sent, _)| sent + rto);
        let slow = self.slow.peek().map(|Reverse((due, _))| *due);
        let probe = self.probes.peek().map(|Reverse((due, _))| *due);
        usual.into_iter().chain(slow).chain(probe).min()
    }
}
