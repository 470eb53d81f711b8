//! Registered memory: the one place of this crate that touches bytes a program may write at the same time.
#![allow(unsafe_code)]

use std::cell::UnsafeCell;
use std::rc::Rc;
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering, fence};

use softnic_transports::memory::{Access, AccessError, AtomicOp, PdId, Region};

use crate::table::{Generator, RandomTable};

/// Memory of a program, at an address that the NIC knows it by.
///
/// The address is assigned, not where the bytes really lie, so that a simulation is the same in every run.
pub struct Buffer {
    addr: u64,
    len: usize,
    /// Words, so that atomics find them aligned.
    words: Box<[UnsafeCell<u64>]>,
}

impl Buffer {
    /// `len` zero bytes at `addr`, which should be a multiple of 8 where atomics are meant to work.
    pub fn new(addr: u64, len: usize) -> Rc<Buffer> {
        let words = std::iter::repeat_with(|| UnsafeCell::new(0)).take(len.div_ceil(8)).collect();
        Rc::new(Buffer { addr, len, words })
    }

    /// `len` bytes from `offset` as raw memory.
    ///
    /// # Panics
    /// When they are not all inside the buffer: callers outside this module own it, those inside have checked.
    #[inline]
    fn raw(&self, offset: usize, len: usize) -> *mut u8 {
        assert!(offset <= self.len && len <= self.len - offset, "a range outside the buffer");
        UnsafeCell::raw_get(self.words.as_ptr()).cast::<u8>().wrapping_add(offset)
    }

    /// The first address.
    pub fn addr(&self) -> u64 {
        self.addr
    }

    /// Bytes.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether it has no byte.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Copies bytes in at `offset`.
    ///
    /// # Panics
    /// When they do not fit: a mistake of the program that owns the buffer.
    pub fn write_at(&self, offset: usize, bytes: &[u8]) {
        let to = self.raw(offset, bytes.len());
        // SAFETY: `to` is valid for `bytes.len()` bytes of this buffer. `Buffer` is neither `Send` nor `Sync`, so no other
        // thread reads or writes them now, and no reference to a cell's content is ever handed out.
        unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), to, bytes.len()) }
    }

    /// Copies bytes out from `offset`.
    ///
    /// # Panics
    /// When they are not all there.
    pub fn read_at(&self, offset: usize, out: &mut [u8]) {
        let from = self.raw(offset, out.len());
        // SAFETY: as in `write_at`; `out` cannot overlap cells, which are never borrowed as bytes.
        unsafe { std::ptr::copy_nonoverlapping(from, out.as_mut_ptr(), out.len()) }
    }

    /// [`Buffer::write_at`], with the last byte stored last: programs poll for it.
    #[inline]
    fn place(&self, offset: usize, bytes: &[u8]) {
        let Some((&last, body)) = bytes.split_last() else { return };
        self.write_at(offset, body);
        fence(Ordering::Release);
        // SAFETY: the byte is inside the buffer (`raw` checks it), aligned as any byte is, and valid for the call.
        let cell = unsafe { AtomicU8::from_ptr(self.raw(offset + body.len(), 1)) };
        cell.store(last, Ordering::Release);
    }

    /// Changes the eight bytes at `offset` in one step; `None` where they are not aligned.
    fn atomic(&self, offset: usize, op: AtomicOp) -> Option<u64> {
        let word = self.raw(offset, 8).cast::<u64>();
        if !word.is_aligned() {
            return None;
        }
        // SAFETY: the eight bytes are inside the buffer (`raw` checks it), aligned, and valid for the call; everybody who
        // shares them with the NIC does so by atomics.
        let word = unsafe { AtomicU64::from_ptr(word) };
        Some(match op {
            AtomicOp::FetchAdd { add } => word.fetch_add(add, Ordering::SeqCst),
            AtomicOp::CompareSwap { compare, swap } => {
                word.compare_exchange(compare, swap, Ordering::SeqCst, Ordering::SeqCst).unwrap_or_else(|found| found)
            }
        })
    }
}

/// What a region's bytes are.
enum Backing {
    Buffer(Rc<Buffer>),
    /// Reads as zeros, forgets what is written (ibv_alloc_null_mr).
    Null,
}

/// A memory region.
struct MemoryRegion {
    pd: PdId,
    access: Access,
    /// The address that its first byte has in work requests: the buffer's own, or 0 when zero-based.
    base: u64,
    len: u64,
    backing: Backing,
}

/// Why a region was not made.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum MrError {
    /// Remote writes and atomics need local write (IBA 10.6.3.1).
    #[error("remote write and atomic access need local write access")]
    NeedsLocalWrite,
    /// There is no such protection domain.
    #[error("no such protection domain")]
    NoSuchPd,
    /// As many regions as there are keys for.
    #[error("no memory key is left")]
    NoKeys,
    /// There is no such region.
    #[error("no such memory region")]
    NoSuchMr,
}

/// All regions of a NIC, by key.
pub(crate) struct Regions {
    table: RandomTable<MemoryRegion>,
}

impl Regions {
    pub(crate) fn new() -> Regions {
        Regions { table: RandomTable::new(32) }
    }

    /// Registers a buffer; with `zero_based` its addresses in work requests begin at 0.
    pub(crate) fn register(
        &mut self,
        pd: PdId,
        buffer: &Rc<Buffer>,
        access: Access,
        zero_based: bool,
        random: &mut dyn Generator,
    ) -> Result<u32, MrError> {
        let base = if zero_based { 0 } else { buffer.addr };
        let backing = Backing::Buffer(Rc::clone(buffer));
        self.insert(MemoryRegion { pd, access, base, len: buffer.len() as u64, backing }, random)
    }

    /// A region of all addresses without any memory.
    pub(crate) fn register_null(
        &mut self,
        pd: PdId,
        access: Access,
        random: &mut dyn Generator,
    ) -> Result<u32, MrError> {
        self.insert(MemoryRegion { pd, access, base: 0, len: u64::MAX, backing: Backing::Null }, random)
    }

    fn insert(&mut self, region: MemoryRegion, random: &mut dyn Generator) -> Result<u32, MrError> {
        let remote = [Access::REMOTE_WRITE, Access::REMOTE_ATOMIC].iter().any(|&a| region.access.allows(a));
        if remote && !region.access.allows(Access::LOCAL_WRITE) {
            return Err(MrError::NeedsLocalWrite);
        }
        // Key 0 is what a program that forgot to set a key passes.
        self.table.insert(random, |key| key == 0, |_| region).ok_or(MrError::NoKeys)
    }

    pub(crate) fn deregister(&mut self, key: u32) -> Result<(), MrError> {
        self.table.remove(key).map(|_| ()).ok_or(MrError::NoSuchMr)
    }

    pub(crate) fn any_in(&self, pd: PdId) -> bool {
        self.table.values().any(|r| r.pd == pd)
    }

    /// The region and the offset in it, if all of the access is allowed.
    #[inline]
    fn translate(&self, r: Region, len: u64) -> Result<(&MemoryRegion, u64), AccessError> {
        let region = self.table.get(r.key).ok_or(AccessError::Key)?;
        if region.pd != r.pd {
            return Err(AccessError::Domain);
        }
        if !region.access.allows(r.access) {
            return Err(AccessError::Right);
        }
        let offset = r.addr.checked_sub(region.base).ok_or(AccessError::Bounds)?;
        // Both below 2^64, so the sum needs the check.
        if offset.checked_add(len).is_none_or(|end| end > region.len) {
            return Err(AccessError::Bounds);
        }
        Ok((region, offset))
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
        let (r, offset) = self.translate(region, out.len() as u64)?;
        match &r.backing {
            Backing::Buffer(b) => b.read_at(offset as usize, out),
            Backing::Null => out.fill(0),
        }
        Ok(())
    }

    #[inline]
    pub(crate) fn write(&self, region: Region, bytes: &[u8]) -> Result<(), AccessError> {
        if bytes.is_empty() {
            return Ok(());
        }
        let (r, offset) = self.translate(region, bytes.len() as u64)?;
        if let Backing::Buffer(b) = &r.backing {
            b.place(offset as usize, bytes);
        }
        Ok(())
    }
}

impl Regions {
    /// An atomic; on a null region it finds zero and changes nothing.
    pub(crate) fn atomic(&self, region: Region, op: AtomicOp) -> Result<u64, AccessError> {
        let (r, offset) = self.translate(region, 8)?;
        match &r.backing {
            Backing::Buffer(b) => b.atomic(offset as usize, op).ok_or(AccessError::Bounds),
            Backing::Null => Ok(0),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PD: PdId = PdId(1);

    fn counter() -> impl FnMut() -> u32 {
        let mut n = 0x1234_5600u32;
        move || {
            n = n.wrapping_add(0x9e37_79b9);
            n
        }
    }

    fn at(key: u32, addr: u64, access: Access) -> Region {
        Region { pd: PD, key, addr, access }
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
}
