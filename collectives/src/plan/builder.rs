//! Puts a plan together: messages cut to what a message may be, and what each step waits for by the bytes that it touches.

use std::ops::Range;

use super::steps::{Act, Plan, Step};
use crate::call::Call;

/// The most bytes of a message: a whole number of packets, well below what a transport carries.
const MAX_MESSAGE: u64 = 1 << 30;

/// A plan under construction.
pub(super) struct Builder {
    pub(super) call: Call,
    pub(super) ranks: usize,
    pub(super) rank: usize,
    bounded: bool,
    steps: Vec<Step>,
    scratch: u64,
    /// Of each step, those before it that it waits for.
    after: Vec<Vec<u32>>,
    weights: Vec<u64>,
}

impl Builder {
    pub(super) fn new(call: Call, ranks: usize, rank: usize, bounded: bool) -> Builder {
        Builder { call, ranks, rank, bounded, steps: Vec::new(), scratch: 0, after: Vec::new(), weights: Vec::new() }
    }

    /// Begins a phase that takes so many bytes at its slowest rank; its number.
    pub(super) fn phase(&mut self, bytes: u64) -> u32 {
        self.weights.push(bytes);
        self.weights.len() as u32 - 1
    }

    /// Sends bytes to a rank. Returns the last step of it, if there is any.
    pub(super) fn send(&mut self, phase: u32, peer: usize, range: Range<u64>) -> Option<u32> {
        self.add(Act::Send, phase, peer, range)
    }

    /// Receives bytes from a rank and reduces them into the buffer.
    pub(super) fn reduce(&mut self, phase: u32, peer: usize, range: Range<u64>) {
        self.add(Act::Reduce, phase, peer, range);
    }

    /// Receives bytes from a rank that no step before has touched, or whose sender has them from steps before: they land in the buffer.
    pub(super) fn place(&mut self, phase: u32, peer: usize, range: Range<u64>) {
        // Where messages may be given up, a rank may be ahead of what this one still works at.
        let touched = self.bounded && self.steps.iter().any(|step| overlap(&step.range(), &range));
        self.add(if touched { Act::Copy } else { Act::Place }, phase, peer, range);
    }

    /// Receives bytes from a rank in exchange for those that are there.
    pub(super) fn swap(&mut self, phase: u32, peer: usize, range: Range<u64>) {
        self.add(Act::Copy, phase, peer, range);
    }

    /// Has a step wait for another.
    pub(super) fn wait(&mut self, step: Option<u32>, before: Option<u32>) {
        if let (Some(step), Some(before)) = (step, before) {
            let after = &mut self.after[step as usize];
            if !after.contains(&before) {
                after.push(before);
            }
        }
    }

    fn add(&mut self, act: Act, phase: u32, peer: usize, mut range: Range<u64>) -> Option<u32> {
        let mut last = None;
        while !range.is_empty() {
            let len = (range.end - range.start).min(MAX_MESSAGE);
            let part = range.start..range.start + len;
            range.start = part.end;
            let waits_for = |before: &Step| {
                overlap(&before.range(), &part)
                    && match (act, before.act) {
                        // What is sent has to be there, what is reduced goes in its order.
                        (Act::Send, before) => before != Act::Send,
                        (Act::Reduce, before) => before != Act::Send || self.bounded,
                        // It takes the place of what others were sent.
                        (Act::Copy, _) => true,
                        (Act::Place, _) => false,
                    }
            };
            let after = (0u32..).zip(&self.steps).filter(|(_, before)| waits_for(before)).map(|(i, _)| i).collect();
            let scratch = self.scratch;
            if matches!(act, Act::Copy | Act::Reduce) {
                self.scratch += len;
            }
            last = Some(self.steps.len() as u32);
            self.steps.push(Step { act, peer, at: part.start, len: len as u32, scratch, phase });
            self.after.push(after);
        }
        last
    }

    pub(super) fn finish(self) -> Plan {
        let mut lanes = vec![[Vec::new(), Vec::new()]; self.ranks];
        for (i, step) in (0u32..).zip(&self.steps) {
            lanes[step.peer][usize::from(step.is_receive())].push(i);
        }
        let mut lists = vec![Vec::new(); self.steps.len()];
        for (i, after) in (0u32..).zip(&self.after) {
            after.iter().for_each(|before| lists[*before as usize].push(i));
        }
        let (mut followers, mut following) = (Vec::new(), Vec::new());
        for list in lists {
            let start = following.len() as u32;
            following.extend(list);
            followers.push(start..following.len() as u32);
        }
        let phases = self.weights.iter().scan(0u64, |sum, weight| {
            *sum += weight;
            Some(*sum)
        });
        Plan {
            call: self.call,
            rank: self.rank,
            ranks: self.ranks,
            scratch: self.scratch,
            waits: self.after.iter().map(|after| after.len() as u32).collect(),
            followers,
            following,
            phases: phases.collect(),
            lanes,
            received: self.steps.iter().filter(|step| step.is_receive()).map(|step| u64::from(step.len)).sum(),
            steps: self.steps,
        }
    }
}

fn overlap(a: &Range<u64>, b: &Range<u64>) -> bool {
    a.start < b.end && b.start < a.end
}
