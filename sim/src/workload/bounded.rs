//! Runs over a transport of best effort: receives with deadlines and bitmaps, and what came of each message.

use std::collections::VecDeque;
use std::sync::Arc;

use softnic_nic::transports::memory::Access;
use softnic_nic::transports::xp::missing_ranges;
use softnic_nic::transports::{BestEffort, Completion, PartialReason, Sge};
use softnic_nic::{Buffer, MrError};
use softnic_wire::Instant;

use super::hosts::Hosts;
use super::{Op, Options};
use crate::delivery::same_bytes;
use crate::pair::{A, B};
use crate::report::Delivered;

/// Where bitmaps begin, on either side: behind all payload.
const ADDRESS: u64 = 0x30_0000_0000;
/// The most receives that a queue pair has posted.
const MAX_RECEIVES: u128 = 1 << 16;

/// The bitmaps of one connection, one for each message that may be outstanding, and when those were posted.
pub(super) struct Messages {
    bitmaps: Arc<Buffer>,
    key: u32,
    /// Bytes of a bitmap.
    len: u32,
    slots: u64,
    /// Room for one bitmap.
    bits: Vec<u8>,
    posted_at: VecDeque<u64>,
    posted: u64,
    ended: u64,
}

impl Options {
    /// Receives that a queue pair may have posted: for a deadline, as many as messages can be on their way until then.
    pub(super) fn receives(&self) -> u32 {
        let Some(deadline) = self.deadline.filter(|_| self.transport.is_bounded()) else { return self.depth * 2 };
        let time = self.longest_round_trip() + deadline;
        // A packet has a header at least, so no more messages than these leave in the time.
        let message = u128::from(self.size.max(64)) * 8;
        let in_time = u128::from(self.rate) * time.as_nanos() / 1_000_000_000 / message;
        u128::from(self.depth * 2).max(in_time + u128::from(self.depth)).min(MAX_RECEIVES) as u32
    }
}

impl Messages {
    /// Of connection `i`, with its bitmaps on the side that receives.
    pub(super) fn new(o: &Options, i: u64, hosts: &mut Hosts<'_>) -> Result<Option<Messages>, MrError> {
        if !o.transport.is_bounded() {
            return Ok(None);
        }
        let host = if o.op == Op::Read { A } else { B };
        let slots = u64::from(if o.op == Op::Read { o.depth } else { o.receives() });
        let len = o.mtu.packets(o.size).div_ceil(8);
        let bytes = slots * u64::from(len);
        let bitmaps = Buffer::new(ADDRESS + i * bytes, bytes as usize);
        let key = hosts.reg_mr(host, &bitmaps, Access::LOCAL_WRITE)?;
        let bits = vec![0; len as usize];
        Ok(Some(Messages { bitmaps, key, len, slots, bits, posted_at: VecDeque::new(), posted: 0, ended: 0 }))
    }

    /// What the next message says; `receives` where it is its receive, or a READ.
    pub(super) fn work(&self, o: &Options, now: Instant, receives: bool) -> BestEffort {
        let addr = self.bitmaps.addr() + self.posted % self.slots * u64::from(self.len);
        let bitmap = receives.then_some(Sge { addr, len: self.len, lkey: self.key });
        let stride = if receives && o.op != Op::Read { 0 } else { o.stride };
        BestEffort { deadline: o.deadline.map(|d| now + d), stride, bitmap }
    }

    /// A receive, or a READ, was posted with a bitmap.
    pub(super) fn on_receive(&mut self) {
        self.posted += 1;
    }

    /// A message was posted.
    pub(super) fn on_send(&mut self, now: u64) {
        self.posted_at.push_back(now);
    }

    /// The oldest message ended, for receive n is always message n: its number, and when it was posted.
    pub(super) fn end(&mut self, c: &Completion, size: u32, told: &mut Delivered) -> Option<(u64, u64)> {
        let number = self.ended;
        self.ended += 1;
        told.bytes += u64::from(c.byte_len);
        told.missing_bytes += u64::from(size - c.byte_len.min(size));
        told.partial += u64::from(c.partial.is_some());
        told.preempted += u64::from(c.partial == Some(PartialReason::Preempted));
        told.expired += u64::from(c.partial == Some(PartialReason::Expired));
        self.posted_at.pop_front().map(|at| (number, at))
    }

    /// Whether the bytes of message `number` that came, by its bitmap, are those that were sent, and as many as its completion says.
    pub(super) fn is_right(
        &mut self,
        o: &Options,
        number: u64,
        c: &Completion,
        buffers: Option<&[Arc<Buffer>; 2]>,
        at: [usize; 2],
    ) -> bool {
        self.bitmaps.read_at((number % self.slots * u64::from(self.len)) as usize, &mut self.bits);
        // What would be missing if what came had not, and the other way round, came.
        self.bits.iter_mut().for_each(|byte| *byte = !*byte);
        let mut came = 0;
        let right = missing_ranges(&self.bits, o.size, o.stride, o.mtu).all(|range| {
            came += range.len();
            let (from, to) = (at[A] + range.start as usize, at[B] + range.start as usize);
            buffers.is_none_or(|b| same_bytes(b.each_ref(), from, to, range.len()))
        });
        right && came == c.byte_len as usize
    }
}
