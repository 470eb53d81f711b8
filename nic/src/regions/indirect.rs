//! Indirect keys: zero-based keys of slots of equal length, each of which points into a region, or nowhere (SDR-RDMA §3.2.2, §3.3).
//!
//! Address a is in slot a / M, at offset a mod M. Data for a slot that points nowhere is accepted and discarded, as by a null region: the
//! sender may not know yet that the data is not wanted any more.

use softnic_transports::memory::{Access, AccessError, PdId, Region};

use super::{Backing, Bound, Entry, MrError, Object, Regions, TAG_BITS, check_access, inside};
use crate::table::Generator;

/// The target of a slot of an indirect key: memory in a region of the same protection domain.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SlotTarget {
    /// The region's key.
    pub key: u32,
    /// The first byte, by the region's addresses in work requests.
    pub addr: u64,
    /// Number of bytes, no more than the slot has.
    pub len: u64,
}

/// An indirect key.
pub(super) struct Indirect {
    pub(super) pd: PdId,
    access: Access,
    /// Base-2 logarithm of the length of a slot.
    shift: u32,
    slots: Box<[Slot]>,
}

/// A slot with its memory resolved, without a second table lookup, because every packet uses it.
struct Slot {
    backing: Backing,
    /// The offset of the slot's first byte in the memory.
    start: u64,
    len: u64,
    /// The rights of the region.
    access: Access,
    /// The index of the region in the table; `None` if the slot points nowhere.
    region: Option<u32>,
}

impl Slot {
    const NOWHERE: Slot = Slot { backing: Backing::Null, start: 0, len: 0, access: Access::NONE, region: None };
}

impl Indirect {
    fn new(pd: PdId, slot_len: u64, slots: u32, access: Access) -> Result<Indirect, MrError> {
        check_access(access)?;
        let fits = slot_len.checked_mul(slots.into()).is_some_and(|all| (1..=i64::MAX as u64).contains(&all));
        if !slot_len.is_power_of_two() || !fits {
            return Err(MrError::SlotLength);
        }
        let slots = std::iter::repeat_with(|| Slot::NOWHERE).take(slots as usize).collect();
        Ok(Indirect { pd, access, shift: slot_len.ilog2(), slots })
    }

    /// The memory and the offset in it, if the whole access is allowed and inside one slot.
    #[inline]
    pub(super) fn translate(&self, r: Region, len: u64) -> Result<(&Backing, u64), AccessError> {
        if self.pd != r.pd {
            return Err(AccessError::Domain);
        }
        if !self.access.allows(r.access) {
            return Err(AccessError::Right);
        }
        let slot =
            usize::try_from(r.addr >> self.shift).ok().and_then(|i| self.slots.get(i)).ok_or(AccessError::Bounds)?;
        let size = 1 << self.shift;
        let offset = inside(r.addr & (size - 1), 0, len, size)?;
        if slot.region.is_none() {
            return Ok((&slot.backing, offset));
        }
        if !slot.access.allows(r.access) {
            return Err(AccessError::Right);
        }
        Ok((&slot.backing, slot.start + inside(offset, 0, len, slot.len)?))
    }
}

impl Regions {
    /// Creates a key of `slots` slots of `slot_len` bytes, which point nowhere yet.
    pub(crate) fn alloc_indirect(
        &mut self,
        pd: PdId,
        (slot_len, slots): (u64, u32),
        access: Access,
        random: &mut dyn Generator,
    ) -> Result<u32, MrError> {
        self.insert(Object::Indirect(Indirect::new(pd, slot_len, slots, access)?), random)
    }

    /// As `alloc_indirect`, under a key that another NIC of the same device drew.
    pub(crate) fn alloc_indirect_as(
        &mut self,
        key: u32,
        pd: PdId,
        (slot_len, slots): (u64, u32),
        access: Access,
    ) -> Result<u32, MrError> {
        self.insert_as(key, Object::Indirect(Indirect::new(pd, slot_len, slots, access)?))
    }

    fn indirect_mut(&mut self, key: u32) -> Result<&mut Indirect, MrError> {
        match self.table.get_mut(key >> TAG_BITS) {
            Some(Entry { tag, object: Object::Indirect(indirect) }) if *tag == key as u8 => Ok(indirect),
            _ => Err(MrError::NoSuchIndirect),
        }
    }

    /// Sets the target of a slot, or removes it. After an error nothing has changed.
    pub(crate) fn set_slot(&mut self, key: u32, slot: u32, target: Option<SlotTarget>) -> Result<(), MrError> {
        let indirect = self.indirect_mut(key)?;
        let (pd, size) = (indirect.pd, 1 << indirect.shift);
        let place = indirect.slots.get(slot as usize).ok_or(MrError::NoSuchSlot)?.region;
        let new = match target {
            None => Slot::NOWHERE,
            Some(target) => self.slot_into(pd, size, target)?,
        };
        // The new user is added before the old one is removed, because both may be of one region.
        if let Some(region) = new.region.and_then(|place| self.region_mut(place)) {
            region.users += 1;
        }
        self.release_place(place);
        self.indirect_mut(key)?.slots[slot as usize] = new;
        Ok(())
    }

    /// A slot that points into a region.
    fn slot_into(&self, pd: PdId, size: u64, target: SlotTarget) -> Result<Slot, MrError> {
        let Some(Object::Region(region)) = self.find(target.key) else { return Err(MrError::NoSuchMr) };
        let start = inside(target.addr, region.base, target.len, region.len).map_err(|_| MrError::SlotBounds)?;
        if region.pd != pd || target.len > size {
            return Err(MrError::SlotBounds);
        }
        let backing = match &region.backing {
            Backing::Buffer(buffer) => Backing::Buffer(std::sync::Arc::clone(buffer)),
            Backing::Null => Backing::Null,
        };
        let place = Some(target.key >> TAG_BITS);
        Ok(Slot { backing, start, len: target.len, access: region.access, region: place })
    }

    /// Destroys an indirect key, whatever the targets of its slots are.
    pub(crate) fn dealloc_indirect(&mut self, key: u32) -> Result<(), MrError> {
        let indirect = self.indirect_mut(key)?;
        let places: Vec<u32> = indirect.slots.iter().filter_map(|slot| slot.region).collect();
        places.into_iter().for_each(|place| self.release_place(Some(place)));
        self.table.remove(key >> TAG_BITS);
        Ok(())
    }

    /// Removes one user of a region: a window or a slot.
    fn release_place(&mut self, place: Option<u32>) {
        if let Some(region) = place.and_then(|place| self.region_mut(place)) {
            region.users -= 1;
        }
    }

    /// Removes the binding of a window from its region.
    pub(super) fn release(&mut self, bound: Option<Bound>) {
        self.release_place(bound.map(|bound| bound.region));
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use softnic_wire::Qpn;

    use super::*;
    use crate::memory::Buffer;

    const PD: PdId = PdId(1);
    const M: u64 = 64;

    fn all() -> Access {
        Access::LOCAL_WRITE | Access::REMOTE_WRITE | Access::REMOTE_READ
    }

    fn regions() -> (Regions, impl FnMut() -> u32) {
        let mut n = 0x1234_5600u32;
        let random = move || {
            n = n.wrapping_add(0x9e37_79b9);
            n
        };
        (Regions::new(), random)
    }

    fn at(key: u32, addr: u64) -> Region {
        Region { qpn: Qpn::new(17), pd: PD, key, addr, access: Access::REMOTE_WRITE }
    }

    #[test]
    fn an_address_is_a_slot_and_an_offset_in_it() {
        let (mut regions, mut random) = regions();
        let buffer = Buffer::new(0x1000, 200);
        let region = regions.register(PD, &buffer, all(), false, &mut random).unwrap();
        let key = regions.alloc_indirect(PD, (M, 4), all(), &mut random).unwrap();
        let target = |addr, len| Some(SlotTarget { key: region, addr, len });
        regions.set_slot(key, 2, target(0x1010, 40)).unwrap();
        regions.write(at(key, 2 * M + 5), &[1, 2, 3]).unwrap();
        assert_eq!((buffer.load_byte(0x15), buffer.load_byte(0x17), buffer.load_byte(0x18)), (1, 3, 0));
        // The bounds of the slot's target, and of the slot.
        assert_eq!(regions.write(at(key, 2 * M + 37), &[7; 3]), Ok(()));
        assert_eq!(regions.write(at(key, 2 * M + 38), &[7; 3]), Err(AccessError::Bounds));
        assert_eq!(regions.write(at(key, 3 * M - 1), &[7; 2]), Err(AccessError::Bounds), "of two slots");
        assert_eq!(regions.write(at(key, M - 1), &[7; 2]), Err(AccessError::Bounds), "of two that point nowhere");
        assert_eq!(regions.write(at(key, 4 * M), &[7]), Err(AccessError::Bounds));
        assert_eq!(regions.write(at(key, u64::MAX), &[7]), Err(AccessError::Bounds));
        // A slot that points nowhere accepts all writes and reads as zeros.
        assert_eq!(regions.write(at(key, 0), &[7; M as usize]), Ok(()));
        let mut out = [9; 4];
        regions.read(Region { access: Access::REMOTE_READ, ..at(key, 60) }, &mut out).unwrap();
        assert_eq!(out, [0; 4]);
        regions.set_slot(key, 2, None).unwrap();
        regions.write(at(key, 2 * M + 5), &[9; 3]).unwrap();
        assert_eq!(buffer.load_byte(0x15), 1, "nothing is written through a slot that was emptied");
    }

    #[test]
    fn rights_and_domains_are_those_of_key_and_region() {
        let (mut regions, mut random) = regions();
        let buffer = Buffer::new(0, 64);
        let writable = regions.register(PD, &buffer, all(), false, &mut random).unwrap();
        let readable = regions.register(PD, &buffer, Access::REMOTE_READ, false, &mut random).unwrap();
        let elsewhere = regions.register(PdId(2), &buffer, all(), false, &mut random).unwrap();
        let writes = Access::LOCAL_WRITE | Access::REMOTE_WRITE;
        let key = regions.alloc_indirect(PD, (M, 2), writes, &mut random).unwrap();
        let into = |key| Some(SlotTarget { key, addr: 0, len: 64 });
        regions.set_slot(key, 0, into(writable)).unwrap();
        regions.set_slot(key, 1, into(readable)).unwrap();
        assert_eq!(regions.check(at(key, 0), 64), Ok(()));
        assert_eq!(regions.check(Region { access: Access::REMOTE_READ, ..at(key, 0) }, 1), Err(AccessError::Right));
        assert_eq!(regions.check(at(key, M), 1), Err(AccessError::Right), "the region grants no writes");
        assert_eq!(regions.check(Region { pd: PdId(2), ..at(key, 0) }, 1), Err(AccessError::Domain));
        assert_eq!(regions.set_slot(key, 0, into(elsewhere)), Err(MrError::SlotBounds));
        assert_eq!(regions.set_slot(key, 0, into(writable ^ 1)), Err(MrError::NoSuchMr));
        assert_eq!(regions.set_slot(key, 0, into(key)), Err(MrError::NoSuchMr), "no key of keys");
        assert_eq!(regions.set_slot(key, 2, None), Err(MrError::NoSuchSlot));
        assert_eq!(regions.set_slot(writable, 0, None), Err(MrError::NoSuchIndirect));
        assert_eq!(regions.check(at(key, 0), 64), Ok(()), "all is as it was");
        let longer = Some(SlotTarget { key: writable, addr: 1, len: 64 });
        assert_eq!(regions.set_slot(key, 0, longer), Err(MrError::SlotBounds));
    }

    #[test]
    fn what_a_slot_points_to_cannot_go() {
        let (mut regions, mut random) = regions();
        let buffer = Buffer::new(0, 64);
        let region = regions.register(PD, &buffer, all(), false, &mut random).unwrap();
        let key = regions.alloc_indirect(PD, (M, 3), all(), &mut random).unwrap();
        let target = Some(SlotTarget { key: region, addr: 0, len: 64 });
        for slot in [0, 1, 0] {
            regions.set_slot(key, slot, target).unwrap();
        }
        assert_eq!(regions.deregister(region), Err(MrError::Busy));
        regions.set_slot(key, 1, None).unwrap();
        assert_eq!(regions.reregister(region, None, None, Some(Access::NONE)), Err(MrError::Busy));
        regions.dealloc_indirect(key).unwrap();
        assert_eq!(regions.deregister(region), Ok(()));
        assert_eq!(regions.dealloc_indirect(key), Err(MrError::NoSuchIndirect));
        assert_eq!(regions.check(at(key, 0), 1), Err(AccessError::Key));
    }

    #[test]
    fn slots_that_cannot_be_are_refused() {
        let (mut regions, mut random) = regions();
        for shape in [(0, 4), (3, 4), (64, 0), (1 << 62, 2), (1 << 63, 2)] {
            assert_eq!(regions.alloc_indirect(PD, shape, all(), &mut random), Err(MrError::SlotLength), "{shape:?}");
        }
        let refused = regions.alloc_indirect(PD, (64, 1), Access::REMOTE_WRITE, &mut random);
        assert_eq!(refused, Err(MrError::NeedsLocalWrite));
        assert!(regions.alloc_indirect(PD, (1, 1), all(), &mut random).is_ok());
    }

    proptest! {
        /// Compared with a model that keeps an array for each slot.
        #[test]
        fn writes_land_where_a_model_says(
            ops in prop::collection::vec((0u32..5, 0u64..320, 0u64..100, any::<bool>()), 1..60),
        ) {
            let (mut regions, mut random) = regions();
            let buffer = Buffer::new(0x40, 256);
            let region = regions.register(PD, &buffer, all(), false, &mut random).unwrap();
            let key = regions.alloc_indirect(PD, (M, 4), all(), &mut random).unwrap();
            let mut slots = [None; 4];
            let mut memory = [0u8; 256];
            for (i, (slot, addr, len, sets)) in ops.into_iter().enumerate() {
                if sets {
                    let fits = (slot as usize) < 4 && addr >= 0x40 && addr + len <= 0x40 + 256 && len <= M;
                    let done = regions.set_slot(key, slot, Some(SlotTarget { key: region, addr, len }));
                    prop_assert_eq!(done.is_ok(), fits);
                    if fits {
                        slots[slot as usize] = Some((addr - 0x40, len));
                    }
                } else {
                    let value = i as u8 | 1;
                    let (at_slot, offset) = ((addr / M) as usize, addr % M);
                    let done = regions.write(at(key, addr), &vec![value; len as usize]);
                    let in_slot = len == 0 || at_slot < 4 && offset + len <= M;
                    let fits = match slots.get(at_slot).copied().flatten() {
                        Some((_, room)) if len > 0 => in_slot && offset + len <= room,
                        _ => in_slot,
                    };
                    prop_assert_eq!(done.is_ok(), fits, "{} bytes at {}", len, addr);
                    if let (true, Some(Some((start, _)))) = (fits && len > 0, slots.get(at_slot)) {
                        memory[(start + offset) as usize..][..len as usize].fill(value);
                    }
                }
            }
            let mut found = [0; 256];
            buffer.read_at(0, &mut found);
            prop_assert_eq!(found, memory);
        }
    }
}
