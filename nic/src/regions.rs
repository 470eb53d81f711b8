//! Memory regions, memory windows and indirect keys, by key. Every access, local and remote, is checked against them (IBA 10.6).

mod indirect;
mod windows;

use std::sync::Arc;

use softnic_transports::memory::{Access, AccessError, AtomicOp, PdId, Region, Runs};
use softnic_transports::planted::{Bug, planted};
use softnic_wire::Qpn;
use softnic_wire::icrc::Icrc;

use indirect::Indirect;
pub use indirect::SlotTarget;

use crate::memory::Buffer;
use crate::table::{Generator, RandomTable};

/// The memory behind a region, or behind a slot of an indirect key.
enum Backing {
    Buffer(Arc<Buffer>),
    /// Reads as zeros and ignores writes (ibv_alloc_null_mr).
    Null,
}

/// A memory region.
struct MemoryRegion {
    pd: PdId,
    access: Access,
    /// The address of its first byte in work requests: the buffer's own, or 0 if zero-based.
    base: u64,
    len: u64,
    backing: Backing,
    /// Number of windows bound to it, and of slots of indirect keys that point into it. The region cannot be destroyed while there are any.
    users: u32,
}

impl MemoryRegion {
    /// Covers all addresses, without any memory.
    fn null(pd: PdId, access: Access) -> MemoryRegion {
        MemoryRegion { pd, access, base: 0, len: u64::MAX, backing: Backing::Null, users: 0 }
    }
}

/// The kinds of memory windows (IBA 10.6.7.2.1).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum WindowType {
    /// Type 1: valid for every queue pair of its protection domain; may be bound again at any time.
    Type1,
    /// Type 2B: valid only for the queue pair through which it was bound, until it is invalidated.
    Type2B,
}

/// A memory window.
struct Window {
    pd: PdId,
    kind: WindowType,
    bound: Option<Bound>,
}

/// The key and the binding of a window, for another NIC of the same device.
#[derive(Clone, Copy)]
pub struct WindowBinding {
    tag: u8,
    bound: Option<Bound>,
}

/// The binding of a window.
#[derive(Clone, Copy)]
struct Bound {
    /// The index of the region in the table.
    region: u32,
    /// The offset of its first byte in the region.
    start: u64,
    /// The address that the peer uses for that byte.
    base: u64,
    len: u64,
    access: Access,
    /// The only queue pair for which it is valid, for type 2B.
    qpn: Option<Qpn>,
}

enum Object {
    Region(MemoryRegion),
    Window(Window),
    Indirect(Indirect),
}

/// The object of a key. The low eight bits of a window's key change with each binding, so they are not part of the table index.
struct Entry {
    tag: u8,
    object: Object,
}

/// Why a region or window was not created or destroyed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum MrError {
    /// Remote writes and atomics require local write (IBA 10.6.3.1).
    #[error("remote write and atomic access need local write access")]
    NeedsLocalWrite,
    /// There is no such protection domain.
    #[error("no such protection domain")]
    NoSuchPd,
    /// All keys of regions, windows and indirect keys are in use.
    #[error("no memory key is left")]
    NoKeys,
    /// There is no such region.
    #[error("no such memory region")]
    NoSuchMr,
    /// There is no such window.
    #[error("no such memory window")]
    NoSuchMw,
    /// Memory windows are bound to the region (IBA 10.6.6.2), or slots of an indirect key point into it.
    #[error("memory windows or indirect keys lie in the region")]
    Busy,
    /// There is no such indirect key.
    #[error("no such indirect key")]
    NoSuchIndirect,
    /// The length of a slot is not a power of two, or all slots together have 2^63 bytes or more.
    #[error("an indirect key has at least one slot, each as long as a power of two, and less than 2^63 bytes in all")]
    SlotLength,
    /// The indirect key has no such slot.
    #[error("the indirect key has no such slot")]
    NoSuchSlot,
    /// The target of a slot is not inside the region, is longer than the slot, or is of another protection domain.
    #[error("a slot points to memory inside a region of its protection domain, no longer than the slot")]
    SlotBounds,
}

/// All regions, windows and indirect keys of a NIC.
pub(crate) struct Regions {
    table: RandomTable<Entry>,
}

/// Number of key bits that the consumer of a window may change.
const TAG_BITS: u32 = 8;

impl Regions {
    pub(crate) fn new() -> Regions {
        Regions { table: RandomTable::new(32 - TAG_BITS) }
    }

    /// Registers a buffer; with `zero_based` its addresses in work requests start at 0.
    pub(crate) fn register(
        &mut self,
        pd: PdId,
        buffer: &Arc<Buffer>,
        access: Access,
        zero_based: bool,
        random: &mut dyn Generator,
    ) -> Result<u32, MrError> {
        let base = if zero_based { 0 } else { buffer.addr() };
        let backing = Backing::Buffer(Arc::clone(buffer));
        self.insert_region(MemoryRegion { pd, access, base, len: buffer.len() as u64, backing, users: 0 }, random)
    }

    /// Registers a buffer under a key that another NIC of the same device drew.
    pub(crate) fn register_as(
        &mut self,
        key: u32,
        pd: PdId,
        buffer: &Arc<Buffer>,
        access: Access,
    ) -> Result<u32, MrError> {
        let backing = Backing::Buffer(Arc::clone(buffer));
        let region = MemoryRegion { pd, access, base: buffer.addr(), len: buffer.len() as u64, backing, users: 0 };
        self.insert_as(key, Object::Region(region))
    }

    /// Creates a window under a key that another NIC of the same device drew.
    pub(crate) fn alloc_window_as(&mut self, key: u32, pd: PdId, kind: WindowType) -> Result<u32, MrError> {
        self.insert_as(key, Object::Window(Window { pd, kind, bound: None }))
    }

    fn insert_as(&mut self, key: u32, object: Object) -> Result<u32, MrError> {
        let entry = Entry { tag: key as u8, object };
        self.table.insert_as(key >> TAG_BITS, entry).then_some(key).ok_or(MrError::NoKeys)
    }

    /// Registers a region of all addresses without any memory.
    pub(crate) fn register_null(
        &mut self,
        pd: PdId,
        access: Access,
        random: &mut dyn Generator,
    ) -> Result<u32, MrError> {
        self.insert_region(MemoryRegion::null(pd, access), random)
    }

    /// Registers a region of all addresses without any memory, under a key that another NIC of the same device drew.
    pub(crate) fn register_null_as(&mut self, key: u32, pd: PdId, access: Access) -> Result<u32, MrError> {
        self.insert_as(key, Object::Region(MemoryRegion::null(pd, access)))
    }

    fn insert_region(&mut self, region: MemoryRegion, random: &mut dyn Generator) -> Result<u32, MrError> {
        check_access(region.access)?;
        self.insert(Object::Region(region), random)
    }

    fn insert(&mut self, object: Object, random: &mut dyn Generator) -> Result<u32, MrError> {
        let tag = random.next_u32() as u8;
        // Key 0 is what a program passes that forgot to set a key.
        let place = self.table.insert(random, |place| place == 0, |_| Entry { tag, object }).ok_or(MrError::NoKeys)?;
        Ok(place << TAG_BITS | u32::from(tag))
    }

    /// Whether a region can be destroyed or changed: no window is bound to it.
    pub(crate) fn check_unbound(&self, key: u32) -> Result<(), MrError> {
        match self.find(key) {
            Some(Object::Region(r)) if r.users > 0 => Err(MrError::Busy),
            Some(Object::Region(_)) => Ok(()),
            _ => Err(MrError::NoSuchMr),
        }
    }

    /// Destroys a region.
    pub(crate) fn deregister(&mut self, key: u32) -> Result<(), MrError> {
        self.check_unbound(key)?;
        self.table.remove(key >> TAG_BITS);
        Ok(())
    }

    /// Changes the given properties of a region; its key stays.
    pub(crate) fn reregister(
        &mut self,
        key: u32,
        pd: Option<PdId>,
        buffer: Option<&Arc<Buffer>>,
        access: Option<Access>,
    ) -> Result<(), MrError> {
        self.check_unbound(key)?;
        access.map_or(Ok(()), check_access)?;
        let region = self.region_mut(key >> TAG_BITS).ok_or(MrError::NoSuchMr)?;
        if let Some(buffer) = buffer {
            (region.base, region.len) = (buffer.addr(), buffer.len() as u64);
            region.backing = Backing::Buffer(Arc::clone(buffer));
        }
        region.pd = pd.unwrap_or(region.pd);
        region.access = access.unwrap_or(region.access);
        Ok(())
    }

    pub(crate) fn any_in(&self, pd: PdId) -> bool {
        self.table.values().any(|e| match &e.object {
            Object::Region(r) => r.pd == pd,
            Object::Window(w) => w.pd == pd,
            Object::Indirect(i) => i.pd == pd,
        })
    }

    #[inline]
    fn find(&self, key: u32) -> Option<&Object> {
        let entry = self.table.get(key >> TAG_BITS)?;
        (entry.tag == key as u8 || planted(Bug::StaleKey)).then_some(&entry.object)
    }

    /// Whether the key belongs to a region.
    pub(crate) fn is_region(&self, key: u32) -> bool {
        matches!(self.find(key), Some(Object::Region(_)))
    }

    fn region_mut(&mut self, place: u32) -> Option<&mut MemoryRegion> {
        match &mut self.table.get_mut(place)?.object {
            Object::Region(r) => Some(r),
            Object::Window(_) | Object::Indirect(_) => None,
        }
    }

    /// The memory and the offset in it, if the whole access is allowed.
    #[inline(always)] // most accesses are to regions, and then need no call
    fn translate(&self, r: Region, len: u64) -> Result<(&Backing, u64), AccessError> {
        let object = self.find(r.key).ok_or(AccessError::Key)?;
        let Object::Region(region) = object else { return self.translate_other(object, r, len) };
        if region.pd != r.pd && !planted(Bug::DomainUnchecked) {
            return Err(AccessError::Domain);
        }
        if !region.access.allows(r.access) && !planted(Bug::RightUnchecked) {
            return Err(AccessError::Right);
        }
        Ok((&region.backing, inside(r.addr, region.base, len, region.len)?))
    }

    /// As [`Regions::translate`], for a key that is not a region's.
    #[inline(never)]
    fn translate_other<'a>(
        &'a self,
        object: &'a Object,
        r: Region,
        len: u64,
    ) -> Result<(&'a Backing, u64), AccessError> {
        match object {
            Object::Indirect(indirect) => indirect.translate(r, len),
            Object::Window(window) => self.translate_window(window, r, len),
            Object::Region(_) => Err(AccessError::Key),
        }
    }

    #[inline]
    pub(crate) fn check(&self, region: Region, len: u64) -> Result<(), AccessError> {
        if len == 0 {
            return Ok(());
        }
        self.translate(region, len).map(|_| ())
    }

    #[inline]
    pub(crate) fn read(&self, region: Region, out: &mut [u8]) -> Result<(), AccessError> {
        if out.is_empty() {
            return Ok(());
        }
        let (backing, offset) = self.translate(region, out.len() as u64)?;
        match backing {
            Backing::Buffer(b) => b.read_at(offset as usize, out),
            Backing::Null => out.fill(0),
        }
        Ok(())
    }

    #[inline]
    pub(crate) fn read_summed(
        &self,
        region: Region,
        crc: Icrc,
        head: &[u8],
        out: &mut [u8],
    ) -> Result<Icrc, AccessError> {
        if !out.is_empty() {
            let (backing, offset) = self.translate(region, out.len() as u64)?;
            match backing {
                Backing::Buffer(b) => return Ok(b.read_summed(offset as usize, crc, head, out)),
                Backing::Null => out.fill(0),
            }
        }
        let mut crc = crc;
        crc.update(head);
        crc.update(out);
        Ok(crc)
    }

    #[inline]
    pub(crate) fn write(&self, region: Region, bytes: &[u8]) -> Result<(), AccessError> {
        if bytes.is_empty() {
            return Ok(());
        }
        let (backing, offset) = self.translate(region, bytes.len() as u64)?;
        if let Backing::Buffer(b) = backing {
            b.place(offset as usize, bytes);
        }
        Ok(())
    }

    /// Reads runs of memory into consecutive parts of `out`, which has room for all of them.
    pub(crate) fn read_runs(&self, region: Region, runs: Runs, out: &mut [u8]) -> Result<(), AccessError> {
        let (backing, offset) = self.translate(region, runs.span())?;
        match backing {
            Backing::Buffer(b) => b.read_runs(offset as usize, runs, out),
            Backing::Null => out.fill(0),
        }
        Ok(())
    }

    /// Writes bytes into runs of memory.
    pub(crate) fn write_runs(&self, region: Region, runs: Runs, bytes: &[u8]) -> Result<(), AccessError> {
        let (backing, offset) = self.translate(region, runs.span())?;
        if let Backing::Buffer(b) = backing {
            b.place_runs(offset as usize, runs, bytes);
        }
        Ok(())
    }

    /// Executes an atomic; on a null region it reads zero and changes nothing.
    pub(crate) fn atomic(&self, region: Region, op: AtomicOp) -> Result<u64, AccessError> {
        let (backing, offset) = self.translate(region, 8)?;
        match backing {
            Backing::Buffer(b) => b.atomic(offset as usize, op).ok_or(AccessError::Bounds),
            Backing::Null => Ok(0),
        }
    }
}

/// Whether the rights can be granted together (IBA 10.6.3.1).
fn check_access(access: Access) -> Result<(), MrError> {
    let writes = access.intersects(Access::REMOTE_WRITE | Access::REMOTE_ATOMIC);
    if writes && !access.allows(Access::LOCAL_WRITE) { Err(MrError::NeedsLocalWrite) } else { Ok(()) }
}

/// The offset of `addr` in `size` bytes from `base`, if `len` bytes from there are inside.
#[inline]
fn inside(addr: u64, base: u64, len: u64, size: u64) -> Result<u64, AccessError> {
    let offset = addr.checked_sub(base).ok_or(AccessError::Bounds)?;
    // Both are below 2^64, so the sum may overflow and needs the check.
    match offset.checked_add(len) {
        Some(end) if end <= size || planted(Bug::BoundsOffByOne) && end == size + 1 => Ok(offset),
        _ => Err(AccessError::Bounds),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PD: PdId = PdId(1);
    const QP: Qpn = Qpn::new(17);

    fn counter() -> impl FnMut() -> u32 {
        let mut n = 0x1234_5600u32;
        move || {
            n = n.wrapping_add(0x9e37_79b9);
            n
        }
    }

    fn at(key: u32, addr: u64, access: Access) -> Region {
        Region { qpn: QP, pd: PD, key, addr, access }
    }

    #[test]
    fn every_access_passes_key_domain_rights_and_bounds() {
        let (mut regions, mut random) = (Regions::new(), counter());
        let buffer = Buffer::new(0x1000, 100);
        let key = regions.register(PD, &buffer, Access::LOCAL_WRITE, false, &mut random).unwrap();
        let write = |r: Region, n: usize| regions.write(r, &vec![7; n]);
        assert_eq!(write(at(key, 0x1000, Access::LOCAL_WRITE), 100), Ok(()));
        assert_eq!(write(at(key, 0x1001, Access::LOCAL_WRITE), 100), Err(AccessError::Bounds));
        assert_eq!(write(at(key, 0xfff, Access::LOCAL_WRITE), 1), Err(AccessError::Bounds));
        assert_eq!(write(at(key, u64::MAX, Access::LOCAL_WRITE), 2), Err(AccessError::Bounds));
        assert_eq!(write(at(key, 0x1000, Access::REMOTE_WRITE), 1), Err(AccessError::Right));
        assert_eq!(write(at(key ^ 1, 0x1000, Access::LOCAL_WRITE), 1), Err(AccessError::Key));
        let other = Region { pd: PdId(2), ..at(key, 0x1000, Access::LOCAL_WRITE) };
        assert_eq!(write(other, 1), Err(AccessError::Domain));
        assert_eq!(write(at(99, 5, Access::REMOTE_WRITE), 0), Ok(()), "nothing is touched, so no key is needed");
        let mut back = [0; 100];
        buffer.read_at(0, &mut back);
        assert_eq!(back, [7; 100]);
    }

    #[test]
    fn zero_based_null_and_stale_regions() {
        let (mut regions, mut random) = (Regions::new(), counter());
        let buffer = Buffer::new(0x1000, 8);
        let zero = regions.register(PD, &buffer, Access::LOCAL_WRITE, true, &mut random).unwrap();
        assert_eq!(regions.write(at(zero, 4, Access::LOCAL_WRITE), &[1, 2, 3, 4]), Ok(()));
        assert_eq!(regions.write(at(zero, 0x1000, Access::LOCAL_WRITE), &[1]), Err(AccessError::Bounds));
        let null = regions.register_null(PD, Access::LOCAL_WRITE, &mut random).unwrap();
        let mut out = [9; 3];
        regions.write(at(null, 0xdead_0000, Access::LOCAL_WRITE), &[1; 3]).unwrap();
        regions.read(at(null, 0xdead_0000, Access::NONE), &mut out).unwrap();
        assert_eq!(out, [0; 3]);
        regions.deregister(zero).unwrap();
        assert_eq!(regions.write(at(zero, 4, Access::LOCAL_WRITE), &[1]), Err(AccessError::Key));
        assert_eq!(regions.deregister(zero), Err(MrError::NoSuchMr));
        let refused = regions.register(PD, &buffer, Access::REMOTE_WRITE, false, &mut random);
        assert_eq!(refused, Err(MrError::NeedsLocalWrite));
    }

    #[test]
    fn a_region_registered_anew_has_its_key_and_none_of_its_old_rights() {
        let (mut regions, mut random) = (Regions::new(), counter());
        let (old, new) = (Buffer::new(0x1000, 8), Buffer::new(0x2000, 16));
        let key = regions.register(PD, &old, Access::LOCAL_WRITE, false, &mut random).unwrap();
        let refused = regions.reregister(key, Some(PdId(2)), Some(&new), Some(Access::REMOTE_WRITE));
        assert_eq!(refused, Err(MrError::NeedsLocalWrite));
        assert_eq!(regions.write(at(key, 0x1000, Access::LOCAL_WRITE), &[1]), Ok(()), "it stayed as it was");
        assert_eq!(regions.reregister(key ^ 1, None, None, None), Err(MrError::NoSuchMr));
        regions.reregister(key, None, Some(&new), None).unwrap();
        assert_eq!(regions.write(at(key, 0x1000, Access::LOCAL_WRITE), &[1]), Err(AccessError::Bounds));
        assert_eq!(regions.write(at(key, 0x200f, Access::LOCAL_WRITE), &[7]), Ok(()));
        regions.reregister(key, Some(PdId(2)), None, Some(Access::NONE)).unwrap();
        assert_eq!(regions.check(at(key, 0x2000, Access::NONE), 1), Err(AccessError::Domain));
        let elsewhere = |access| Region { pd: PdId(2), ..at(key, 0x2000, access) };
        assert_eq!(regions.check(elsewhere(Access::LOCAL_WRITE), 1), Err(AccessError::Right));
        assert_eq!(regions.check(elsewhere(Access::NONE), 16), Ok(()));
        assert_eq!((old.load_byte(0), new.load_byte(15)), (1, 7));
    }
}
