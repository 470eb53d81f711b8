//! A port: the queue before it, which drops and marks, and what it did.

use std::collections::VecDeque;

use softnic_fault_injector::random::Random;
use softnic_fault_injector::{Policy, QueueDecision};

use crate::held::Kept;

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
}

/// A port.
#[derive(Debug)]
pub(crate) struct Port {
    policy: Policy,
    queue: VecDeque<Waiting>,
    /// In the queue. What is being sent has left it.
    bytes: u64,
    pub(crate) stats: PortStats,
}

impl Port {
    pub(crate) fn new(policy: Policy) -> Port {
        Port { policy, queue: VecDeque::new(), bytes: 0, stats: PortStats::default() }
    }

    /// Bytes that wait.
    pub(crate) fn queued(&self) -> u64 {
        self.bytes
    }

    /// What is to become of a frame that comes now; one that is dropped is counted.
    #[inline]
    pub(crate) fn decide(&mut self, wire_len: usize, random: &mut Random) -> QueueDecision {
        let decision = self.policy.decide(self.bytes, wire_len as u64, random);
        self.stats.dropped += u64::from(decision == QueueDecision::Drop);
        decision
    }

    /// Behind all others.
    #[inline]
    pub(crate) fn push(&mut self, kept: Kept, wire_len: usize) {
        self.bytes += wire_len as u64;
        self.stats.max_queue = self.stats.max_queue.max(self.bytes);
        self.queue.push_back(Waiting { kept, wire_len: wire_len as u32 });
    }

    /// The next to leave.
    #[inline]
    pub(crate) fn pop(&mut self) -> Option<Waiting> {
        let waiting = self.queue.pop_front()?;
        self.bytes -= u64::from(waiting.wire_len);
        Some(waiting)
    }
}
