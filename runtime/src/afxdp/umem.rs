//! The UMEM: the memory that frames lie in, in chunks that belong now to us and now to the kernel.
#![allow(unsafe_code)]

use std::io;
use std::os::fd::BorrowedFd;

use crate::mapping::Mapping;

/// Bytes of a chunk: the most that the kernel has.
pub(super) const CHUNK: usize = 4096;

/// A chunk that is ours. There is one of it only: giving it to the kernel takes it, and the kernel's rings give it back.
#[derive(Debug)]
pub(super) struct Chunk(u32);

impl Chunk {
    /// The chunk around an address of the UMEM.
    ///
    /// # Safety
    /// The kernel gave the chunk back, just now and only once.
    pub(super) unsafe fn returned(address: u64) -> Chunk {
        Chunk((address / CHUNK as u64) as u32)
    }

    /// Where it begins, as the kernel counts.
    pub(super) fn address(&self) -> u64 {
        u64::from(self.0) * CHUNK as u64
    }

    /// Whether `other` begins where this one ends.
    pub(super) fn is_before(&self, other: &Chunk) -> bool {
        self.0 + 1 == other.0
    }
}

/// Memory for frames, shared with the kernel.
#[derive(Debug)]
pub(super) struct Umem(Mapping);

impl Umem {
    /// So many chunks, all ours.
    pub(super) fn new(count: u32) -> io::Result<(Umem, Vec<Chunk>)> {
        let umem = Umem(Mapping::pages(count as usize * CHUNK)?);
        Ok((umem, (0..count).map(Chunk).collect()))
    }

    /// So many chunks in a file of that length, all ours: whoever else maps it leaves them to us.
    pub(super) fn in_file(file: BorrowedFd<'_>, count: u32) -> io::Result<(Umem, Vec<Chunk>)> {
        let umem = Umem(Mapping::file(file, count as usize * CHUNK)?);
        Ok((umem, (0..count).map(Chunk).collect()))
    }

    /// Its memory, to be told to the kernel.
    pub(super) fn memory(&self) -> &Mapping {
        &self.0
    }

    /// The bytes of a chunk.
    #[inline]
    pub(super) fn bytes<'a>(&'a self, chunk: &'a mut Chunk) -> &'a mut [u8] {
        // SAFETY: see `range`; the chunk cannot be used in another way as long as it is borrowed.
        unsafe { self.range(chunk, 1) }
    }

    /// The bytes of two chunks of which the second follows the first.
    ///
    /// # Panics
    /// When it does not.
    #[inline]
    pub(super) fn bytes_of_both<'a>(&'a self, first: &'a mut Chunk, second: &'a mut Chunk) -> &'a mut [u8] {
        assert!(first.is_before(second), "two chunks that are not neighbours");
        // SAFETY: see `range`; both chunks are borrowed.
        unsafe { self.range(first, 2) }
    }

    /// `count` chunks from `first` on.
    ///
    /// # Safety
    /// They are ours, and nothing else refers to their bytes as long as the result lives.
    #[inline]
    #[allow(clippy::mut_from_ref, reason = "the chunk is what is borrowed to be changed")]
    unsafe fn range(&self, first: &Chunk, count: usize) -> &mut [u8] {
        let start = self.0.at::<u8>(first.0 as usize * CHUNK, count * CHUNK);
        // SAFETY: `at` checked that the bytes are inside the mapping, which lives as long as `self`; they are initialised, as
        // fresh pages are zeros. The kernel neither reads nor writes chunks that are ours.
        unsafe { std::slice::from_raw_parts_mut(start.as_ptr(), count * CHUNK) }
    }
}
