//! Buffers shared by all connections of a NIC: coding units, one for each sum in progress, and the reordering ring.
//!
//! Units are assigned first in, first out (the paper's appendix), from a queue of free unit numbers; a connection takes as many as its
//! blocks need. It keeps the units from block to block, which also keeps them in a near cache. It returns them when it is reset, or after
//! every block while few are free. The ring holds packets that arrived early or were recovered. A place in the ring is never refused: a new
//! packet takes the oldest slot. The owner of the packet that was there finds the packet gone, as if it had been lost. So arrivals are the
//! clock of the ring.

use std::collections::VecDeque;

use softnic_codes::xor;

use crate::planted::{Bug, planted};

/// Number of coding units for encoding, and as many for decoding (section V).
const UNITS: u16 = 1024;
/// Number of packets in the reordering ring (section V).
const RING: u32 = 2048;

/// The number of a coding unit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Unit(u16);

impl Unit {
    /// No unit.
    pub(super) const NONE: Unit = Unit(u16::MAX);
}

/// A packet from BTH to ICRC, as it is in memory.
#[derive(Debug, Clone, Copy)]
pub(super) struct Body<'a> {
    /// The present bytes, in two pieces.
    pub(super) parts: (&'a [u8], &'a [u8]),
    /// The length on the wire; equal to the present bytes unless the payload is elided.
    pub(super) wire_len: usize,
    /// The packet's contribution to the digest.
    pub(super) digest: u32,
}

#[derive(Debug, Clone, Copy, Default)]
struct Sum {
    len: u16,
    wire_len: u16,
    digest: u32,
}

/// Coding units: sums of packets.
#[derive(Debug, Default)]
pub(super) struct Pool {
    bytes: Box<[u8]>,
    /// The offset of the first unit, and the size of a unit in bytes: all units are aligned to cache lines, because otherwise each access
    /// would be to two lines.
    skew: usize,
    size: usize,
    sums: Box<[Sum]>,
    free: VecDeque<u16>,
}

/// Size of a cache line in bytes.
const LINE: usize = 64;

impl Pool {
    fn new(units: u16, size: usize) -> Pool {
        let size = size.next_multiple_of(LINE);
        let bytes: Box<[u8]> = vec![0; usize::from(units) * size + LINE].into();
        Pool {
            skew: bytes.as_ptr().align_offset(LINE).min(LINE),
            bytes,
            size,
            sums: vec![Sum::default(); usize::from(units)].into(),
            free: (0..units).collect(),
        }
    }

    /// Takes an empty unit, if one is free.
    #[inline]
    fn take(&mut self) -> Option<Unit> {
        let n = self.free.pop_front()?;
        self.sums[usize::from(n)] = Sum::default();
        Some(Unit(n))
    }

    /// Makes `unit` an empty unit: itself, or a free one; `NONE` if there is none.
    #[inline]
    pub(super) fn renew(&mut self, unit: &mut Unit) {
        match self.sums.get_mut(usize::from(unit.0)) {
            Some(sum) => *sum = Sum::default(),
            None => *unit = self.take().unwrap_or(Unit::NONE),
        }
    }

    /// The block of these units is complete. If other connections may need the units, they are returned.
    #[inline]
    pub(super) fn end_block(&mut self, units: &mut [Unit]) {
        if self.free.len() < self.sums.len() / 4 {
            self.release(units);
        }
    }

    /// Returns these units.
    pub(super) fn release(&mut self, units: &mut [Unit]) {
        for unit in units {
            if *unit != Unit::NONE {
                self.free.push_back(unit.0);
                *unit = Unit::NONE;
            }
        }
    }

    /// Adds a packet. Returns `false` for a packet longer than a unit, which is not added; no packet of the port is that long.
    #[inline]
    pub(super) fn add(&mut self, unit: Unit, body: &Body<'_>) -> bool {
        let (a, b) = body.parts;
        let at = usize::from(unit.0);
        let begin = self.skew + at * self.size;
        let Some(sum) = self.sums.get_mut(at) else { return false };
        let Some(room) = self.bytes.get_mut(begin..begin + self.size) else { return false };
        let (before, len) = (usize::from(sum.len), a.len() + b.len());
        match room.get_mut(..len) {
            // The most frequent case.
            Some(room) if len <= before && b.is_empty() => xor(room, a),
            Some(room) => add_parts(room, before, a, b),
            None => return false,
        }
        sum.len = sum.len.max(len as u16);
        sum.wire_len = sum.wire_len.max(body.wire_len as u16);
        sum.digest = sum.digest.wrapping_add(body.digest);
        true
    }

    /// The sum, its length on the wire, and the digest; all empty for `NONE`.
    #[inline]
    pub(super) fn sum(&self, unit: Unit) -> (&[u8], usize, u32) {
        let at = usize::from(unit.0);
        match self.sums.get(at) {
            Some(s) => {
                let begin = self.skew + at * self.size;
                (&self.bytes[begin..begin + usize::from(s.len)], usize::from(s.wire_len), s.digest)
            }
            None => (&[], 0, 0),
        }
    }

    /// Number of free units.
    pub(super) fn free(&self) -> usize {
        self.free.len()
    }
}

/// Adds two pieces. The first `before` bytes of the room hold a sum already; the part beyond them is appended.
#[inline(never)]
fn add_parts(room: &mut [u8], before: usize, a: &[u8], b: &[u8]) {
    add_part(room, before, a);
    add_part(&mut room[a.len()..], before.saturating_sub(a.len()), b);
}

/// Adds `part` at the start of `room`, of which `before` bytes hold data.
fn add_part(room: &mut [u8], before: usize, part: &[u8]) {
    let common = before.min(part.len());
    let (old, new) = part.split_at(common);
    xor(&mut room[..common], old);
    room[common..part.len()].copy_from_slice(new);
}

/// A position in the reordering ring. Positions are never reused. 0 means none.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Place(u32);

impl Place {
    pub(super) const NONE: Place = Place(0);
}

/// The reordering ring.
#[derive(Debug, Default)]
pub(super) struct Ring {
    bytes: Box<[u8]>,
    /// For each slot, its position and the number of bytes in it; [`Place::NONE`] if the slot was emptied.
    slots: Box<[(Place, u32)]>,
    size: usize,
    next: u32,
}

impl Ring {
    fn new(packets: u32, size: usize) -> Ring {
        Ring {
            bytes: vec![0; packets as usize * size].into(),
            slots: vec![(Place::NONE, 0); packets as usize].into(),
            size,
            next: 1,
        }
    }

    /// Takes the next slot, for `len` bytes, whatever it held; the last result says whether it held a packet. Returns `None` if the bytes
    /// do not fit a slot.
    pub(super) fn put(&mut self, len: usize) -> Option<(Place, &mut [u8], bool)> {
        if len > self.size || self.slots.is_empty() {
            return None;
        }
        let place = Place(self.next);
        let at = self.next as usize % self.slots.len();
        // 0 means none. After the last position comes the ring's length, which is the slot of 0, because the length is a power of two.
        self.next = self.next.checked_add(1).unwrap_or(self.slots.len() as u32);
        let lost = self.slots[at].0 != Place::NONE;
        self.slots[at] = (place, len as u32);
        Some((place, &mut self.bytes[at * self.size..][..len], lost))
    }

    /// The packet at a position, if it was not overrun.
    pub(super) fn get(&self, place: Place) -> Option<&[u8]> {
        let at = self.index(place)?;
        Some(&self.bytes[at * self.size..][..self.slots[at].1 as usize])
    }

    /// The packet has fewer bytes than were reserved.
    pub(super) fn shorten(&mut self, place: Place, len: usize) {
        if let Some(at) = self.index(place) {
            self.slots[at].1 = self.slots[at].1.min(len as u32);
        }
    }

    /// Empties the slot.
    pub(super) fn clear(&mut self, place: Place) {
        if let Some(at) = self.index(place) {
            self.slots[at] = (Place::NONE, 0);
        }
    }

    fn index(&self, place: Place) -> Option<usize> {
        if place == Place::NONE || self.slots.is_empty() {
            return None;
        }
        let at = place.0 as usize % self.slots.len();
        let there = self.slots[at].0;
        (there == place || planted(Bug::LowarOverrun) && there != Place::NONE).then_some(at)
    }
}

/// The buffers shared by all connections of a NIC.
#[derive(Debug, Default)]
pub struct Buffers {
    pub(super) encoding: Pool,
    pub(super) decoding: Pool,
    pub(super) ring: Ring,
}

impl Buffers {
    /// Allocates the buffers, if they do not exist yet, for packets of up to `mtu` bytes of payload.
    pub fn provide(&mut self, mtu: usize) {
        self.provide_some(mtu, UNITS, RING);
    }

    /// Allocates buffers of another size, for tests in which they run out.
    pub fn provide_some(&mut self, mtu: usize, units: u16, packets: u32) {
        if self.ring.slots.is_empty() {
            // BTH, the longest extension headers, ICRC; and for whole frames the headers before them.
            const BODY: usize = 64;
            const FRAME: usize = 160;
            self.encoding = Pool::new(units, mtu + BODY);
            self.decoding = Pool::new(units, mtu + BODY);
            self.ring = Ring::new(packets.next_power_of_two(), mtu + FRAME);
        }
    }

    /// Number of free units for encoding and for decoding.
    pub fn free_units(&self) -> (usize, usize) {
        (self.encoding.free(), self.decoding.free())
    }

    /// Whether the buffers are unused: all units are free, each exactly once, and the ring is empty.
    pub fn are_unused(&self) -> bool {
        let free = [&self.encoding, &self.decoding].iter().all(|pool| pool.free() == pool.sums.len());
        free && self.ring.slots.iter().all(|&(place, _)| place == Place::NONE)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn body(bytes: &[u8]) -> Body<'_> {
        Body { parts: (bytes, &[]), wire_len: bytes.len(), digest: 1 }
    }

    #[test]
    fn a_sum_is_as_long_as_the_longest_packet_and_adding_twice_takes_away() {
        let mut pool = Pool::new(2, 8);
        let unit = pool.take().unwrap();
        assert!(pool.add(unit, &body(&[1, 2])));
        assert!(pool.add(unit, &Body { parts: (&[4], &[8, 16]), wire_len: 3, digest: 5 }));
        assert_eq!(pool.sum(unit), (&[5u8, 10, 16][..], 3, 6));
        assert!(pool.add(unit, &body(&[1, 2])));
        assert_eq!(pool.sum(unit).0, [4, 8, 16]);
        assert!(!pool.add(unit, &body(&[0; LINE + 1])));
    }

    #[test]
    fn units_go_round_and_are_empty_when_they_come_again() {
        let mut pool = Pool::new(2, 4);
        let (a, b) = (pool.take().unwrap(), pool.take().unwrap());
        assert!(pool.take().is_none());
        pool.add(b, &body(&[7]));
        pool.release(&mut [b, Unit::NONE, a]);
        let mut unit = Unit::NONE;
        pool.renew(&mut unit);
        assert_eq!((unit, pool.sum(b)), (b, (&[][..], 0, 0)));
        pool.add(b, &body(&[7]));
        pool.renew(&mut unit);
        assert_eq!((unit, pool.sum(b)), (b, (&[][..], 0, 0)), "who has one keeps it");
    }

    #[test]
    fn the_ring_overruns_the_oldest_and_says_so() {
        let mut ring = Ring::new(4, 2);
        let mut put = |v: u8| {
            let (place, room, lost) = ring.put(1).unwrap();
            room[0] = v;
            (place, lost)
        };
        let places: Vec<_> = (0..5).map(&mut put).collect();
        assert_eq!(places.iter().map(|p| p.1).collect::<Vec<_>>(), [false, false, false, false, true]);
        assert_eq!(ring.get(places[0].0), None);
        assert_eq!(ring.get(places[4].0), Some(&[4u8][..]));
        ring.clear(places[1].0);
        assert_eq!(ring.get(places[1].0), None);
        assert!(!ring.put(2).unwrap().2);
        assert!(ring.put(3).is_none());
    }

    #[test]
    fn places_of_a_ring_wrap_without_a_seam() {
        let mut ring = Ring::new(4, 1);
        ring.next = u32::MAX - 3;
        let mut last = Vec::new();
        for v in 0..12u8 {
            let (place, room, _) = ring.put(1).unwrap();
            room[0] = v;
            last.push((place, v));
            for &(place, v) in last.iter().rev().take(4) {
                assert_eq!(ring.get(place), Some(&[v][..]), "{place:?}");
            }
        }
    }
}
