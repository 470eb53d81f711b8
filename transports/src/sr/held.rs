//! The last packets of WRITEs that arrived early.
//!
//! A program may poll for the end of a WRITE and then read the data of an earlier WRITE, which on a reliable connection must be there. So
//! the last packet of a WRITE is held while an earlier packet is missing, and is placed when its turn comes.

use std::collections::VecDeque;

use crate::memory::Region;

/// Maximum number of payload bytes that are held. Memory that is never needed is never touched.
const MAX_BYTES: usize = 4 << 20;

/// A held packet.
#[derive(Debug, Clone, Copy)]
struct Held {
    n: u64,
    region: Region,
    len: usize,
    slot: u32,
}

#[derive(Debug)]
pub(super) struct HeldWrites {
    /// In the order of the packet numbers.
    waiting: VecDeque<Held>,
    /// Slots that were freed; those from `fresh` on were never used.
    free: Vec<u32>,
    fresh: u32,
    slots: u32,
    slot_len: usize,
    bytes: Box<[u8]>,
}

impl HeldWrites {
    /// Creates room for at most `limit` packets with payloads of at most `mtu` bytes, limited to `MAX_BYTES`; none if payloads are elided.
    pub(super) fn new(limit: u32, mtu: usize) -> HeldWrites {
        let slots = match mtu {
            0 => limit,
            mtu => limit.min((MAX_BYTES / mtu) as u32),
        };
        HeldWrites {
            waiting: VecDeque::with_capacity(slots as usize),
            free: Vec::with_capacity(slots as usize),
            fresh: 0,
            slots,
            slot_len: mtu,
            bytes: vec![0; slots as usize * mtu].into(),
        }
    }

    /// Holds the payload of packet `n` for `region`; returns `false` if there is no room.
    pub(super) fn hold(&mut self, n: u64, region: Region, payload: &[u8]) -> bool {
        let slot = match self.free.pop() {
            Some(slot) => slot,
            None if self.fresh < self.slots => {
                self.fresh += 1;
                self.fresh - 1
            }
            None => return false,
        };
        let room = &mut self.bytes[slot as usize * self.slot_len..][..self.slot_len];
        let len = payload.len().min(room.len());
        room[..len].copy_from_slice(&payload[..len]);
        // Most packets arrive in the order of their numbers.
        let at = self.waiting.iter().rposition(|held| held.n < n).map_or(0, |before| before + 1);
        self.waiting.insert(at, Held { n, region, len, slot });
        true
    }

    /// Takes the payload of packet `n`, if it was held: everything before it has been executed.
    #[inline]
    pub(super) fn take(&mut self, n: u64) -> Option<(Region, &[u8])> {
        let held = *self.waiting.front().filter(|held| held.n == n)?;
        self.waiting.pop_front();
        self.free.push(held.slot);
        Some((held.region, &self.bytes[held.slot as usize * self.slot_len..][..held.len]))
    }
}

#[cfg(test)]
mod tests {
    use softnic_wire::Qpn;

    use super::*;
    use crate::memory::{Access, PdId};

    fn region(addr: u64) -> Region {
        Region { addr, key: 1, pd: PdId(0), qpn: Qpn::new(2), access: Access::REMOTE_WRITE }
    }

    fn taken(held: &mut HeldWrites, n: u64) -> Option<(u64, Vec<u8>)> {
        held.take(n).map(|(region, bytes)| (region.addr, bytes.to_vec()))
    }

    #[test]
    fn packets_come_out_in_order_whatever_order_they_came_in() {
        let mut held = HeldWrites::new(8, 4);
        for n in [5u8, 2, 9, 3] {
            assert!(held.hold(n.into(), region(u64::from(n) * 100), &[n; 3]));
        }
        assert_eq!(taken(&mut held, 3), None, "an earlier one is first");
        for n in [2u8, 3, 5, 9] {
            assert_eq!(taken(&mut held, n.into()), Some((u64::from(n) * 100, vec![n; 3])));
        }
        assert_eq!(taken(&mut held, 9), None);
    }

    #[test]
    fn room_is_limited_and_used_again() {
        let mut held = HeldWrites::new(2, 4);
        assert!(held.hold(1, region(1), &[1]) && held.hold(2, region(2), &[2]));
        assert!(!held.hold(3, region(3), &[3]));
        assert!(held.take(1).is_some());
        assert!(held.hold(3, region(3), &[3, 3, 3, 3]));
        assert_eq!((taken(&mut held, 2), taken(&mut held, 3)), (Some((2, vec![2])), Some((3, vec![3; 4]))));
        assert_eq!(HeldWrites::new(1 << 20, 4096).slots, 1024, "as much memory as is reasonable");
        assert_eq!(HeldWrites::new(5, 0).slots, 5, "what is elided needs none");
    }
}
