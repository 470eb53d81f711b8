//! The memory of a group: which of each receiver's bytes are meant by an address and a key of the sender's.

use std::hint::black_box;

use super::{GroupError, MAX_GROUPS, MAX_RANGES, Range, Target};
use crate::few::Few;

/// A range, and where its targets begin.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Entry {
    rkey: u32,
    start: u64,
    /// The last address, inclusive: a range may end where addresses do.
    last: u64,
    targets: u32,
}

/// Ranges, found by key and address.
#[derive(Debug, Clone)]
pub(crate) struct Memory {
    /// By key, then by address.
    entries: Few<Entry, NEAR_ENTRIES>,
    targets: Few<Target, NEAR_TARGETS>,
}

/// Targets that lie with their group: what is there for each when both tables are full.
const NEAR_TARGETS: usize = MAX_RANGES / MAX_GROUPS;
const NEAR_ENTRIES: usize = NEAR_TARGETS / 2;

/// A range that was found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Found {
    start: u64,
    targets: u32,
}

impl Memory {
    pub(crate) fn new(ranges: &[Range], receivers: usize) -> Result<Memory, GroupError> {
        let (mut entries, mut all) = (Vec::with_capacity(ranges.len()), Vec::with_capacity(ranges.len() * receivers));
        for range in ranges {
            let last = range.len.checked_sub(1).and_then(|more| range.start.checked_add(more));
            let last = last.ok_or(GroupError::BadRange(range.start))?;
            // A receiver's addresses end, too.
            if range.targets.iter().any(|target| target.start.checked_add(range.len - 1).is_none()) {
                return Err(GroupError::BadRange(range.start));
            }
            if range.targets.len() != receivers {
                let (start, have) = (range.start, range.targets.len());
                return Err(GroupError::Targets { start, need: receivers, have });
            }
            let targets = all.len() as u32;
            all.extend_from_slice(&range.targets);
            entries.push(Entry { rkey: range.rkey, start: range.start, last, targets });
        }
        entries.sort_by_key(|e| (e.rkey, e.start));
        let overlap = entries.windows(2).find(|w| w[0].rkey == w[1].rkey && w[0].last >= w[1].start);
        match overlap {
            Some(pair) => Err(GroupError::Overlap(pair[0].start, pair[1].start)),
            None => {
                let none = Entry { rkey: 0, start: 0, last: 0, targets: 0 };
                let targets = Few::new(all, Target { start: 0, rkey: 0 });
                Ok(Memory { entries: Few::new(entries, none), targets })
            }
        }
    }

    /// Entries of the table: one for each range and receiver.
    pub(crate) fn len(&self) -> usize {
        self.targets.len()
    }

    /// Looks at every cache line, or at the first ones of many: see `Group::fetch`.
    #[inline]
    pub(crate) fn fetch(&self) {
        const LINE: usize = 64;
        const MOST: usize = 5;
        let entries = self.entries.iter().step_by(LINE / size_of::<Entry>()).take(MOST);
        entries.for_each(|entry| _ = black_box(entry.rkey));
        let targets = self.targets.iter().step_by(LINE / size_of::<Target>()).take(MOST);
        targets.for_each(|target| _ = black_box(target.rkey));
    }

    /// The range that has all of `len` bytes from `va` on.
    #[inline]
    pub(crate) fn find(&self, rkey: u32, va: u64, len: u32) -> Option<Found> {
        let last = va.checked_add(u64::from(len.max(1)) - 1)?;
        let behind = self.entries.partition_point(|e| (e.rkey, e.start) <= (rkey, va));
        let entry = self.entries[..behind].last()?;
        let covers = entry.rkey == rkey && last <= entry.last;
        covers.then_some(Found { start: entry.start, targets: entry.targets })
    }

    /// Any range with this key: for who invalidates it.
    pub(crate) fn with_key(&self, rkey: u32) -> Option<Found> {
        let entry = self.entries.get(self.entries.partition_point(|e| e.rkey < rkey))?;
        (entry.rkey == rkey).then_some(Found { start: entry.start, targets: entry.targets })
    }

    /// What to add to an address for a receiver, and its key.
    #[inline]
    pub(crate) fn target(&self, found: Found, receiver: usize) -> (u64, u32) {
        let target = self.targets[found.targets as usize + receiver];
        (target.start.wrapping_sub(found.start), target.rkey)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn range(start: u64, len: u64, rkey: u32, to: u64) -> Range {
        Range { start, len, rkey, targets: vec![Target { start: to, rkey: rkey + 100 }] }
    }

    #[test]
    fn a_range_covers_its_bytes_and_no_others() {
        let ranges = [range(1000, 100, 1, 5000), range(1100, 10, 1, 0), range(1000, 10, 2, 1)];
        let m = Memory::new(&ranges, 1).unwrap();
        let at = |rkey, va, len| m.find(rkey, va, len).map(|found| m.target(found, 0));
        assert_eq!(at(1, 1000, 100), Some((4000, 101)));
        assert_eq!(at(1, 1099, 1), Some((4000, 101)));
        assert_eq!(at(1, 1099, 2), None, "two ranges are two memories, although they touch");
        assert_eq!(at(1, 1105, 5), Some((0u64.wrapping_sub(1100), 101)));
        assert_eq!((at(1, 999, 1), at(1, 1110, 1), at(3, 1000, 1), at(2, 1000, 11)), (None, None, None, None));
        assert_eq!(at(2, 1000, 10), Some((1u64.wrapping_sub(1000), 102)));
        assert_eq!((at(1, u64::MAX, 2), at(1, u64::MAX, 1)), (None, None));
        assert_eq!(m.with_key(2).map(|found| m.target(found, 0).1), Some(102));
        assert_eq!(m.with_key(9), None);
    }

    #[test]
    fn a_range_may_end_where_addresses_do_but_not_behind() {
        let m = Memory::new(&[range(u64::MAX - 9, 10, 1, 0)], 1).unwrap();
        assert!(m.find(1, u64::MAX, 1).is_some() && m.find(1, u64::MAX, 2).is_none());
        for bad in [range(u64::MAX - 9, 11, 1, 0), range(0, 0, 1, 0), range(0, 11, 1, u64::MAX - 9)] {
            assert_eq!(Memory::new(std::slice::from_ref(&bad), 1).err(), Some(GroupError::BadRange(bad.start)));
        }
    }

    #[test]
    fn ranges_with_one_key_do_not_overlap() {
        let error = Memory::new(&[range(50, 51, 1, 0), range(100, 10, 1, 0)], 1).err();
        assert_eq!(error, Some(GroupError::Overlap(50, 100)));
        assert!(Memory::new(&[range(50, 51, 1, 0), range(100, 10, 2, 0)], 1).is_ok());
        let error = Memory::new(&[range(50, 51, 1, 0)], 2).err();
        assert_eq!(error, Some(GroupError::Targets { start: 50, need: 2, have: 1 }));
    }
}
