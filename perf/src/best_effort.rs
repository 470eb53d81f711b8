//! Runs over a transport of best effort: what came of their messages, and which bytes of them can be compared.

use std::ops::Range;

use serde::{Deserialize, Serialize};
use softnic_nic::transports::Counters;
use softnic_nic::transports::xp::missing_ranges;
use softnic_wire::PathMtu;

use super::side::Side;

/// What came of messages that may come in part, those before that do not count included.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Delivered {
    /// Bytes that were placed.
    pub delivered_bytes: u64,
    /// Bytes that were sent, or asked for, and were not.
    pub missing_bytes: u64,
    /// Messages that came in part.
    pub partial: u64,
    /// Those of them that a later one ended.
    pub preempted: u64,
    /// Those of them that time ended.
    pub expired: u64,
    /// Packets of messages that were over.
    pub late_packets: u64,
    /// Messages that found no receive: their receiver was slower than they came.
    pub no_receive: u64,
}

impl Delivered {
    /// Of so many bytes that were sent, and placed, since the receiving NIC counted `before`.
    pub(crate) fn since(before: &Counters, side: &Side, sent: u64, placed: u64) -> Delivered {
        let now = side.context.counters();
        Delivered {
            delivered_bytes: placed,
            missing_bytes: sent.saturating_sub(placed),
            partial: now.xp_partial_messages - before.xp_partial_messages,
            preempted: now.xp_preempted_messages - before.xp_preempted_messages,
            expired: now.xp_expired_messages - before.xp_expired_messages,
            late_packets: now.xp_late_packets - before.xp_late_packets,
            no_receive: now.out_of_buffer - before.out_of_buffer,
        }
    }

    /// The part of all bytes that was placed.
    pub(crate) fn share(&self) -> f64 {
        match self.delivered_bytes + self.missing_bytes {
            0 => 0.0,
            all => self.delivered_bytes as f64 / all as f64,
        }
    }
}

/// Which bytes of a message did not come, by the bitmap that lies behind its place in memory.
pub(crate) fn missing(side: &Side, at: usize, size: u32) -> Vec<Range<u32>> {
    let mut bitmap = vec![0; side.plan.bitmap_len()];
    side.mr.read_at(at + side.plan.room_len(), &mut bitmap);
    let mtu = side.plan.mtu.and_then(PathMtu::from_bytes).unwrap_or(PathMtu::B4096);
    missing_ranges(&bitmap, size, side.plan.stride, mtu).collect()
}
