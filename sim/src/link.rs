//! One direction of a link: a serialiser, a delay, faults, and the frames under way.

use std::collections::VecDeque;
use std::time::Duration;

use softnic_fault_injector::{Direction, Injector, Spec};

use crate::frames::FrameId;
use crate::time::Time;

/// Preamble, start delimiter, frame check sequence and gap: what Ethernet adds to a frame on the wire.
const WIRE_OVERHEAD: u64 = 8 + 4 + 12;
/// The least frame without its check sequence.
const MIN_FRAME: u64 = 60;

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

/// A frame on its way.
#[derive(Debug, Clone, Copy)]
pub(crate) struct InFlight {
    pub(crate) arrives: Time,
    pub(crate) frame: FrameId,
    pub(crate) len: u32,
}

/// What a link carried.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct LinkStats {
    /// Frames that were sent.
    pub frames: u64,
    /// Frames among them that were lost.
    pub lost: u64,
    /// Bytes that have left, everything on the wire counted.
    pub wire_bytes: u64,
}

#[derive(Debug)]
pub(crate) struct Link {
    pub(crate) from: End,
    pub(crate) to: End,
    rate: u64,
    delay: Duration,
    pub(crate) faults: Injector,
    /// The serialiser is at work.
    pub(crate) busy: bool,
    /// On so many bytes.
    leaving: u64,
    pub(crate) in_flight: VecDeque<InFlight>,
    /// Frames that wait for later ones to pass them, and for how many.
    pub(crate) held: Vec<(u32, InFlight)>,
    pub(crate) stats: LinkStats,
}

impl Link {
    pub(crate) fn new(from: End, to: End, config: &LinkConfig, direction: Direction, seed: u64) -> Link {
        Link {
            from,
            to,
            rate: config.rate,
            delay: config.delay,
            faults: Injector::new(&config.faults, direction, seed),
            busy: false,
            leaving: 0,
            in_flight: VecDeque::new(),
            held: Vec::new(),
            stats: LinkStats::default(),
        }
    }

    /// Counts a frame and says how long it takes to leave, in picoseconds.
    #[inline]
    pub(crate) fn serialise(&mut self, frame_len: u64) -> u64 {
        let bytes = frame_len.max(MIN_FRAME) + WIRE_OVERHEAD;
        self.stats.frames += 1;
        self.busy = true;
        self.leaving = bytes;
        // bytes · 8 · 10^12 fits 64 bits for every frame there is.
        bytes * 8_000_000_000_000 / self.rate
    }

    /// The frame has left.
    #[inline]
    pub(crate) fn finish(&mut self) {
        self.busy = false;
        self.stats.wire_bytes += self.leaving;
    }

    /// Puts a frame on its way. Those that were held for it follow.
    #[inline]
    pub(crate) fn carry(&mut self, frame: InFlight) {
        self.in_flight.push_back(frame);
        let mut i = 0;
        while i < self.held.len() {
            self.held[i].0 -= 1;
            if self.held[i].0 == 0 {
                let (_, late) = self.held.remove(i);
                self.in_flight.push_back(InFlight { arrives: frame.arrives, ..late });
            } else {
                i += 1;
            }
        }
    }

    #[inline]
    pub(crate) fn arrival(&self, left: Time) -> Time {
        left.after(self.delay)
    }
}
