//! The messages of a world with a group: what they are, and where they lie at the sender and at every receiver.

use softnic_fault_injector::random::Random;
use softnic_switch::group::{Range, Target};

use super::watched::NO_KEY;
use super::world::{Ending, Kind, World};

/// Memory that nothing was written to.
pub(super) const COLOUR: u8 = 0xa5;
/// Bytes between messages.
pub(super) const GAP: usize = 32;

/// A message, and where it lies at every host.
#[derive(Debug, Clone, Copy)]
pub(super) struct Message {
    pub(super) kind: Kind,
    pub(super) at: usize,
    pub(super) len: usize,
    /// Where the sender writes it to, and with which key; of a SEND with invalidate the key that goes.
    pub(super) va: u64,
    pub(super) rkey: u32,
}

impl Message {
    /// The byte at a place, which is not the colour.
    pub(super) fn byte(&self, i: usize) -> u8 {
        let byte = (self.at * 31 + i * 7 + i / 256 + 1) as u8;
        if byte == COLOUR { 1 } else { byte }
    }

    pub(super) fn bytes(&self) -> Vec<u8> {
        (0..self.len).map(|i| self.byte(i)).collect()
    }

    pub(super) fn imm(&self) -> u32 {
        (self.at as u32).wrapping_mul(0x9e37_79b1)
    }
}

/// Places for all messages, and how the sender names them.
pub(super) fn lay_out(world: &World, r: &mut Random) -> (Vec<Message>, usize, Vec<Range>) {
    let (mut messages, mut room) = (Vec::new(), GAP);
    for &(kind, len) in &world.messages {
        messages.push(Message { kind, at: room, len, va: 0, rkey: 0 });
        room += len + GAP;
    }
    if let Some(ending) = world.ending {
        let len = 1 + r.below(3000) as usize;
        let (va, rkey) = if ending == Ending::Beyond { (0x77, NO_KEY) } else { (0, 0) };
        messages.push(Message { kind: Kind::Write, at: room, len, va, rkey });
        room += len + GAP;
    }
    // Ranges begin and end between messages; where the sender believes that they are is anywhere.
    let mut ranges: Vec<Range> = Vec::new();
    let mut cuts: Vec<usize> = (1..world.ranges).map(|_| r.below(messages.len() as u64) as usize).collect();
    cuts.extend([0, messages.len()]);
    // The last message alone may have a key that somebody does not have.
    cuts.extend(world.ending.map(|_| messages.len() - 1));
    cuts.sort_unstable();
    cuts.dedup();
    for pair in cuts.windows(2) {
        let (first, last) = (messages[pair[0]], messages[pair[1] - 1]);
        let len = last.at + last.len + GAP / 2 - first.at;
        let (start, rkey) = ((ranges.len() as u64 + 1) << 40 | r.below(1 << 32), r.next_u32());
        for message in &mut messages[pair[0]..pair[1]] {
            if message.rkey != NO_KEY {
                (message.va, message.rkey) = (start + (message.at - first.at) as u64, rkey);
            }
        }
        ranges.push(Range { start, len: len as u64, rkey, targets: Vec::new() });
        // Where it begins at every receiver, for the targets.
        ranges.last_mut().unwrap_or_else(|| unreachable!()).targets.push(Target { start: first.at as u64, rkey: 0 });
    }
    (messages, room, ranges)
}
