//! Messages of a transport of best effort: receives with deadlines and bitmaps, and what came of each message.

use std::collections::VecDeque;
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use softnic_nic::Buffer;
use softnic_nic::transports::xp::missing_ranges;
use softnic_nic::transports::{BestEffort, Completion, PartialReason, Sge};
use softnic_wire::{Instant, PathMtu};

use crate::delivery::same_bytes;
use crate::report::Delivered;

/// The most receives that a queue pair has posted.
const MAX_RECEIVES: u128 = 1 << 16;

/// What all messages of a connection have in common.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Bounds {
    /// They are READs, whose bytes come to who posts them.
    pub(crate) reads: bool,
    /// Bytes of each.
    pub(crate) size: u32,
    pub(crate) mtu: PathMtu,
    /// The time that each has from when it is posted.
    pub(crate) deadline: Option<Duration>,
    /// Blocks that each packet has a part of.
    pub(crate) stride: u16,
}

impl Bounds {
    /// Receives that a queue pair may have posted, with so many messages outstanding at the sender: for a deadline, as many as messages can
    /// be on their way over a line of this rate until then, after this round trip.
    pub(crate) fn receives(&self, depth: u32, rate: u64, round_trip: Duration) -> u32 {
        let Some(deadline) = self.deadline else { return depth * 2 };
        let time = round_trip.saturating_add(deadline);
        // A packet has a header at least, so no more messages than these leave in the time.
        let message = u128::from(self.size.max(64)) * 8;
        let in_time = u128::from(rate) * time.as_nanos() / 1_000_000_000 / message;
        u128::from(depth * 2).max(in_time + u128::from(depth)).min(MAX_RECEIVES) as u32
    }

    /// Bytes of a bitmap.
    fn bitmap(&self) -> u32 {
        self.mtu.packets(self.size).div_ceil(8)
    }
}

/// The bitmaps of one connection, one for each message that may be outstanding, and when those were posted.
pub(crate) struct Messages {
    bounds: Bounds,
    bitmaps: Arc<Buffer>,
    key: u32,
    slots: u64,
    /// Room for one bitmap, and for the ranges that one message lacks.
    bits: Vec<u8>,
    lacking: Vec<Range<u32>>,
    posted_at: VecDeque<u64>,
    /// Receives, or READs.
    posted: u64,
    ended: u64,
}

impl Messages {
    /// For so many messages at a time, with bitmaps at an address of the side that gets their bytes; `register` makes them memory of its
    /// NIC.
    pub(crate) fn new<E>(
        bounds: Bounds,
        slots: u32,
        address: impl FnOnce(u64) -> u64,
        register: impl FnOnce(&Arc<Buffer>) -> Result<u32, E>,
    ) -> Result<Messages, E> {
        let bytes = u64::from(slots) * u64::from(bounds.bitmap());
        let bitmaps = Buffer::new(address(bytes), bytes as usize);
        let key = register(&bitmaps)?;
        let bits = vec![0; bounds.bitmap() as usize];
        let (lacking, posted_at, slots) = (Vec::new(), VecDeque::new(), slots.into());
        Ok(Messages { bounds, bitmaps, key, slots, bits, lacking, posted_at, posted: 0, ended: 0 })
    }

    /// Whether another message has a bitmap.
    pub(crate) fn has_room(&self) -> bool {
        self.posted - self.ended < self.slots
    }

    /// Whether a message that was posted has not ended.
    pub(crate) fn is_under_way(&self) -> bool {
        !self.posted_at.is_empty()
    }

    /// What the next message says; `receives` where it is its receive, or a READ.
    pub(crate) fn work(&self, now: Instant, receives: bool) -> BestEffort {
        let Bounds { reads, deadline, stride, .. } = self.bounds;
        let len = self.bounds.bitmap();
        let addr = self.bitmaps.addr() + self.posted % self.slots * u64::from(len);
        let bitmap = receives.then_some(Sge { addr, len, lkey: self.key });
        let stride = if receives && !reads { 0 } else { stride };
        BestEffort { deadline: deadline.map(|d| now + d), stride, bitmap }
    }

    /// A receive, or a READ, was posted with a bitmap.
    pub(crate) fn on_receive(&mut self) {
        self.posted += 1;
    }

    /// A message was posted.
    pub(crate) fn on_send(&mut self, now: u64) {
        self.posted_at.push_back(now);
    }

    /// The oldest message ended, for receive n is always message n: its number, and when it was posted.
    pub(crate) fn end(&mut self, c: &Completion, told: &mut Delivered) -> Option<(u64, u64)> {
        let (number, size) = (self.ended, self.bounds.size);
        self.ended += 1;
        self.read_bitmap(number);
        told.bytes += u64::from(c.byte_len);
        told.missing_bytes += u64::from(size - c.byte_len.min(size));
        if c.byte_len < size {
            told.missing_ranges += self.whole_ranges();
        }
        told.partial += u64::from(c.partial.is_some());
        told.preempted += u64::from(c.partial == Some(PartialReason::Preempted));
        told.expired += u64::from(c.partial == Some(PartialReason::Expired));
        self.posted_at.pop_front().map(|at| (number, at))
    }

    fn read_bitmap(&mut self, number: u64) {
        self.bitmaps.read_at((number % self.slots * u64::from(self.bounds.bitmap())) as usize, &mut self.bits);
    }

    /// The ranges of a message for which `bits` has no bit.
    fn ranges(&self) -> impl Iterator<Item = Range<u32>> + '_ {
        missing_ranges(&self.bits, self.bounds.size, self.bounds.stride, self.bounds.mtu)
    }

    /// How many these are when those that touch are one.
    fn whole_ranges(&mut self) -> u64 {
        let mut ranges = std::mem::take(&mut self.lacking);
        ranges.clear();
        ranges.extend(self.ranges());
        ranges.sort_unstable_by_key(|range| range.start);
        let touching = ranges.windows(2).filter(|pair| pair[0].end == pair[1].start).count();
        let whole = (ranges.len() - touching) as u64;
        self.lacking = ranges;
        whole
    }

    /// Whether the bytes of message `number` that came, by its bitmap, are those that were sent, and as many as its completion says. The
    /// buffers are of the sender and the receiver, and the message lies at these places in them.
    pub(crate) fn is_right(
        &mut self,
        number: u64,
        c: &Completion,
        buffers: Option<[&Arc<Buffer>; 2]>,
        at: [usize; 2],
    ) -> bool {
        self.read_bitmap(number);
        // What would be missing if what came had not, and the other way round, came.
        self.bits.iter_mut().for_each(|byte| *byte = !*byte);
        let mut came = 0;
        let right = self.ranges().all(|range| {
            came += range.len();
            let (from, to) = (at[0] + range.start as usize, at[1] + range.start as usize);
            buffers.is_none_or(|b| same_bytes(b, from, to, range.len()))
        });
        right && came == c.byte_len as usize
    }
}
