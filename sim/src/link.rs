//! One direction of a link: the sender's serialiser, and the line behind it with its delay, faults and frames under way.

use std::time::Duration;

use softnic_fault_injector::bottleneck::{wire_bytes, wire_time};
use softnic_fault_injector::{Direction, Line, Spec};

use crate::Time;
use softnic_fault_injector::frames::Frame;

/// What a link is made with.
#[derive(Debug, Clone)]
pub struct LinkConfig {
    /// Bits a second, everything on the wire counted.
    pub rate: u64,
    /// One way.
    pub delay: Duration,
    /// What goes wrong.
    pub faults: Spec,
}

/// Where a link begins or ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct End {
    /// Index of the Node.
    pub node: usize,
    /// Its port.
    pub port: usize,
}

/// What a link carried.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct LinkStats {
    /// Frames that were sent.
    pub frames: u64,
    /// Frames among them that were lost, for whatever reason.
    pub lost: u64,
    /// Those among them that found the queue of the SPEC's bottleneck full.
    pub tail_dropped: u64,
    /// Frames that arrived with a mark that the link set.
    pub marked: u64,
    /// The most bytes that ever waited for the SPEC's bottleneck.
    pub max_queue: u64,
    /// Bytes that have left, everything on the wire counted.
    pub wire_bytes: u64,
}

#[derive(Debug)]
pub(crate) struct Link {
    pub(crate) from: End,
    pub(crate) to: End,
    rate: u64,
    /// Faults, delay, and what is under way.
    pub(crate) line: Line<Frame>,
    /// When the next arrival is in the event queue for.
    pub(crate) next_arrival: Option<Time>,
    /// The serialiser is at work.
    pub(crate) busy: bool,
    /// On so many bytes.
    leaving: u64,
    frames: u64,
    sent_bytes: u64,
}

impl Link {
    pub(crate) fn new(from: End, to: End, config: &LinkConfig, direction: Direction, seed: u64) -> Link {
        let mut line = Line::new(&config.faults, direction, seed);
        line.add_delay(config.delay);
        let next_arrival = None;
        Link { from, to, rate: config.rate, line, next_arrival, busy: false, leaving: 0, frames: 0, sent_bytes: 0 }
    }

    /// Counts a frame and says how long it takes to leave, in picoseconds.
    #[inline]
    pub(crate) fn serialise(&mut self, frame_len: u64) -> u64 {
        self.frames += 1;
        self.busy = true;
        self.leaving = wire_bytes(frame_len);
        wire_time(self.leaving, self.rate)
    }

    /// The frame has left.
    #[inline]
    pub(crate) fn finish(&mut self) {
        self.busy = false;
        self.sent_bytes += self.leaving;
    }

    pub(crate) fn stats(&self) -> LinkStats {
        let line = self.line.stats();
        LinkStats {
            frames: self.frames,
            lost: line.lost,
            tail_dropped: line.tail_dropped,
            marked: line.marked,
            max_queue: line.max_queue,
            wire_bytes: self.sent_bytes,
        }
    }
}
