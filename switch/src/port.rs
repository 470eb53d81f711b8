//! A port: the queue before it, which drops and marks, and what it did.

use std::collections::VecDeque;

use softnic_fault_injector::random::Random;
use softnic_fault_injector::{Policy, QueueDecision};
use softnic_wire::pause::PRIORITIES;

use crate::held::Kept;
use crate::pfc::Tag;

/// What a port did.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct PortStats {
    /// Frames that came in.
    pub received: u64,
    /// Frames that went out.
    pub sent: u64,
    /// Frames that found the queue full.
    pub dropped: u64,
    /// Frames that were marked.
    pub marked: u64,
    /// Frames that are longer than what the port's driver has room for.
    pub too_long: u64,
    /// The most bytes that ever waited.
    pub max_queue: u64,
}

/// A frame in a queue.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Waiting {
    pub(crate) kept: Kept,
    pub(crate) wire_len: u32,
    pub(crate) tag: Tag,
}

/// Frames by priority, each with its place in the order in which all came.
#[derive(Debug, Default)]
struct ByPriority {
    queues: [VecDeque<(u64, Waiting)>; PRIORITIES],
    next: u64,
}

impl ByPriority {
    fn push(&mut self, waiting: Waiting) {
        self.queues[usize::from(waiting.tag.priority)].push_back((self.next, waiting));
        self.next += 1;
    }

    /// The oldest of a priority that is not paused.
    fn pop(&mut self, paused: u8) -> Option<Waiting> {
        let heads = self.queues.iter_mut().enumerate().filter(|(priority, _)| paused >> priority & 1 == 0);
        let oldest = heads.filter_map(|(_, queue)| queue.front().map(|head| head.0).map(|order| (order, queue)));
        let (_, queue) = oldest.min_by_key(|(order, _)| *order)?;
        queue.pop_front().map(|(_, waiting)| waiting)
    }
}

/// A port.
#[derive(Debug)]
pub(crate) struct Port {
    policy: Policy,
    queue: VecDeque<Waiting>,
    /// In place of the queue, where a peer may pause priorities.
    by_priority: Option<Box<ByPriority>>,
    /// Frames to all leave here, too.
    pub(crate) floods: bool,
    /// Frames that may wait; further ones are dropped.
    pub(crate) most_frames: usize,
    /// In the queue. What is being sent has left it.
    bytes: u64,
    pub(crate) stats: PortStats,
}

impl Port {
    pub(crate) fn new(policy: Policy) -> Port {
        let queue = VecDeque::new();
        let (floods, most_frames) = (true, usize::MAX);
        Port { policy, queue, by_priority: None, floods, most_frames, bytes: 0, stats: PortStats::default() }
    }

    /// Keeps priorities apart, and drops nothing: room is looked after where frames come in.
    pub(crate) fn make_lossless(&mut self) {
        self.policy.limit = u64::MAX;
        self.by_priority = Some(Box::default());
    }

    /// Bytes that wait.
    pub(crate) fn queued(&self) -> u64 {
        self.bytes
    }

    /// What is to become of a frame that comes now; one that is dropped is counted.
    #[inline]
    pub(crate) fn decide(&mut self, wire_len: usize, random: &mut Random) -> QueueDecision {
        let decision = match self.queue.len() < self.most_frames {
            true => self.policy.decide(self.bytes, wire_len as u64, random),
            false => QueueDecision::Drop,
        };
        self.stats.dropped += u64::from(decision == QueueDecision::Drop);
        decision
    }

    /// Behind all others.
    #[inline(always)] // a frame handed over in memory is stored in pieces and loaded whole, which waits
    pub(crate) fn push(&mut self, kept: Kept, wire_len: usize, tag: Tag) {
        self.bytes += wire_len as u64;
        self.stats.max_queue = self.stats.max_queue.max(self.bytes);
        let waiting = Waiting { kept, wire_len: wire_len as u32, tag };
        match &mut self.by_priority {
            None => self.queue.push_back(waiting),
            Some(queues) => queues.push(waiting),
        }
    }

    /// The next to leave, where these priorities must wait.
    #[inline]
    pub(crate) fn pop(&mut self, paused: u8) -> Option<Waiting> {
        let waiting = match &mut self.by_priority {
            None => self.queue.pop_front(),
            Some(queues) => queues.pop(paused),
        }?;
        self.bytes -= u64::from(waiting.wire_len);
        Some(waiting)
    }
}
