//! A slower stretch of the way with a queue before it, worked out instead of acted out: a frame's departure is known when it
//! comes, so nothing has to happen in between.

use std::collections::VecDeque;

use crate::random::Random;
use crate::red::{Policy, QueueDecision};
use crate::time::Time;

/// Preamble, start delimiter, frame check sequence and gap: what Ethernet adds to a frame on the wire.
const WIRE_OVERHEAD: u64 = 8 + 4 + 12;
/// The least frame without its check sequence.
const MIN_FRAME: u64 = 60;

/// Bytes that a frame takes on the wire, everything counted.
#[inline]
pub const fn wire_bytes(frame_len: u64) -> u64 {
    (if frame_len < MIN_FRAME { MIN_FRAME } else { frame_len }) + WIRE_OVERHEAD
}

/// Picoseconds that so many bytes on the wire take at a rate in bits a second, rounded down.
#[inline]
pub const fn wire_time(wire_bytes: u64, rate: u64) -> u64 {
    // bytes · 8 · 10^12 fits 64 bits for every frame there is.
    wire_bytes * 8_000_000_000_000 / rate
}

/// A serialiser with a queue. A frame counts as waiting until its last bit has left.
#[derive(Debug, Clone)]
pub struct Bottleneck {
    rate: u64,
    policy: Policy,
    random: Random,
    /// When each waiting frame will have left, and its bytes; the oldest first.
    waiting: VecDeque<(Time, u64)>,
    bytes: u64,
    /// When the last one taken will have left.
    free: Time,
    max_bytes: u64,
}

impl Bottleneck {
    /// Of `rate` bits a second, everything on the wire counted; marks are drawn from `random`.
    pub fn new(rate: u64, policy: Policy, random: Random) -> Bottleneck {
        let (waiting, free) = (VecDeque::new(), Time::default());
        Bottleneck { rate: rate.max(1), policy, random, waiting, bytes: 0, free, max_bytes: 0 }
    }

    /// A frame comes: when it will have left, and whether it is to be marked; `None` when it is dropped. Calls must be in the
    /// order of time.
    pub fn offer(&mut self, now: Time, len: u64) -> Option<(Time, bool)> {
        while let Some(&(left, bytes)) = self.waiting.front()
            && left <= now
        {
            self.bytes -= bytes;
            self.waiting.pop_front();
        }
        let decision = self.policy.decide(self.bytes, len, &mut self.random);
        if decision == QueueDecision::Drop {
            return None;
        }
        self.free = self.free.max(now).after_ps(wire_time(wire_bytes(len), self.rate));
        self.waiting.push_back((self.free, len));
        self.bytes += len;
        self.max_bytes = self.max_bytes.max(self.bytes);
        Some((self.free, decision == QueueDecision::Mark))
    }

    /// The most bytes that ever waited.
    pub fn max_bytes(&self) -> u64 {
        self.max_bytes
    }
}
