//! The steps of one rank, as they are when a plan is made.

use std::ops::Range;

use crate::call::Call;

/// What a step does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Act {
    /// Sends bytes of the buffer.
    Send,
    /// Receives bytes right into the buffer.
    Place,
    /// Receives bytes beside the buffer, and copies them into it when its turn has come.
    Copy,
    /// Receives bytes beside the buffer, and reduces them into it when its turn has come.
    Reduce,
}

/// One message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Step {
    /// What is done.
    pub act: Act,
    /// The rank at the other end.
    pub peer: usize,
    /// Where in the buffer.
    pub at: u64,
    /// Bytes.
    pub len: u32,
    /// Where the bytes are received, beside the buffer; for [`Act::Copy`] and [`Act::Reduce`].
    pub scratch: u64,
    /// The phase that it is a part of.
    pub phase: u32,
}

impl Step {
    /// Whether bytes come in.
    pub fn is_receive(&self) -> bool {
        self.act != Act::Send
    }

    /// Its bytes in the buffer.
    pub fn range(&self) -> Range<u64> {
        self.at..self.at + u64::from(self.len)
    }
}

/// The steps of one rank.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Plan {
    /// The call.
    pub call: Call,
    /// Whose it is.
    pub rank: usize,
    /// Ranks of the group.
    pub ranks: usize,
    /// In an order in which they could be done one after the other.
    pub steps: Vec<Step>,
    /// Bytes beside the buffer.
    pub scratch: u64,
    /// For each step, how many others it waits for.
    pub waits: Vec<u32>,
    /// Steps that wait for others: those that wait for step i are `followers[i]`, as a range of `following`.
    pub(super) followers: Vec<Range<u32>>,
    pub(super) following: Vec<u32>,
    /// Bytes that phases take at the slowest, added up: how the budget is cut.
    pub(super) phases: Vec<u64>,
    /// For each rank the messages to it, and those from it, in their order.
    pub(super) lanes: Vec<[Vec<u32>; 2]>,
    /// Bytes that come in.
    pub(super) received: u64,
}

impl Plan {
    /// The steps that wait for one.
    pub fn followers(&self, step: usize) -> &[u32] {
        let Range { start, end } = self.followers[step];
        &self.following[start as usize..end as usize]
    }

    /// The messages to a rank, in their order.
    pub fn sends_to(&self, peer: usize) -> &[u32] {
        &self.lanes[peer][0]
    }

    /// The messages from a rank, in their order.
    pub fn receives_from(&self, peer: usize) -> &[u32] {
        &self.lanes[peer][1]
    }

    /// The most messages between this rank and another, either way.
    pub fn deepest_lane(&self) -> usize {
        self.lanes.iter().flatten().map(Vec::len).max().unwrap_or(0)
    }

    /// Bytes that come in where nothing is missing.
    pub fn received(&self) -> u64 {
        self.received
    }

    /// The part of the budget that is over when a phase ends, as a numerator and a denominator (§3.1.2: parallel steps share a deadline,
    /// sequential ones have slices in proportion to their bytes).
    pub fn share(&self, phase: u32) -> (u64, u64) {
        let all = self.phases.last().copied().unwrap_or(0).max(1);
        (self.phases.get(phase as usize).copied().unwrap_or(all), all)
    }
}
