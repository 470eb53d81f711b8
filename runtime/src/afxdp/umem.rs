//! The UMEM: the memory for frames, divided into chunks. At any time a chunk belongs either to this process or to the kernel.
#![allow(unsafe_code)]

use std::io;
use std::os::fd::BorrowedFd;

use crate::mapping::Mapping;

/// Size of a chunk in bytes: the maximum that the kernel permits.
pub(super) const CHUNK: usize = 4096;

/// A chunk that belongs to this process. The value is unique: giving the chunk to the kernel consumes it, and the kernel's rings return it.
#[derive(Debug)]
pub(super) struct Chunk(u32);

impl Chunk {
    /// The chunk that contains an address of the UMEM.
    ///
    /// # Safety
    /// The kernel has just returned the chunk, and only once.
    pub(super) unsafe fn returned(address: u64) -> Chunk {
        Chunk((address / CHUNK as u64) as u32)
    }

    /// The address of the chunk's first byte, in the kernel's numbering.
    pub(super) fn address(&self) -> u64 {
        u64::from(self.0) * CHUNK as u64
    }

    /// Whether `other` starts where this chunk ends.
    pub(super) fn is_before(&self, other: &Chunk) -> bool {
        self.0 + 1 == other.0
    }
}

/// The memory for frames, shared with the kernel.
#[derive(Debug)]
pub(super) struct Umem(Mapping);

impl Umem {
    /// Creates a UMEM of `count` chunks, all owned by this process.
    pub(super) fn new(count: u32) -> io::Result<(Umem, Vec<Chunk>)> {
        let umem = Umem(Mapping::pages(count as usize * CHUNK)?);
        Ok((umem, (0..count).map(Chunk).collect()))
    }

    /// Maps a file of that length as `count` chunks, all owned by this process: other processes that map the file leave them alone.
    pub(super) fn in_file(file: BorrowedFd<'_>, count: u32) -> io::Result<(Umem, Vec<Chunk>)> {
        let umem = Umem(Mapping::file(file, count as usize * CHUNK)?);
        Ok((umem, (0..count).map(Chunk).collect()))
    }

    /// The mapping, to be registered with the kernel.
    pub(super) fn memory(&self) -> &Mapping {
        &self.0
    }

    /// The bytes of a chunk.
    #[inline]
    pub(super) fn bytes<'a>(&'a self, chunk: &'a mut Chunk) -> &'a mut [u8] {
        // SAFETY: see `range`; the chunk is borrowed, so it cannot be used elsewhere.
        unsafe { self.range(chunk, 1) }
    }

    /// The bytes of two adjacent chunks.
    ///
    /// # Panics
    /// When `second` does not follow `first`.
    #[inline]
    pub(super) fn bytes_of_both<'a>(&'a self, first: &'a mut Chunk, second: &'a mut Chunk) -> &'a mut [u8] {
        assert!(first.is_before(second), "two chunks that are not neighbours");
        // SAFETY: see `range`; both chunks are borrowed.
        unsafe { self.range(first, 2) }
    }

    /// The bytes of `count` chunks, starting at `first`.
    ///
    /// # Safety
    /// The chunks belong to this process, and nothing else refers to their bytes while the result lives.
    #[inline]
    #[allow(clippy::mut_from_ref, reason = "the chunk is what is borrowed to be changed")]
    unsafe fn range(&self, first: &Chunk, count: usize) -> &mut [u8] {
        let start = self.0.at::<u8>(first.0 as usize * CHUNK, count * CHUNK);
        // SAFETY: `at` checked that the bytes are inside the mapping, which lives as long as `self`. They are initialised, because fresh
        // pages are zero. The kernel neither reads nor writes chunks that belong to this process.
        unsafe { std::slice::from_raw_parts_mut(start.as_ptr(), count * CHUNK) }
    }
}
