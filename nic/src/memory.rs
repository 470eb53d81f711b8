//! Memory that can be registered: the one place of this crate that touches bytes a program may write at the same time.
//!
//! A NIC reads and writes registered memory while the program does the same, from any thread: that is what RDMA is. So no reference to
//! these bytes ever exists, only raw pointers, and bytes that several write at a time are whoever's they end up to be. The language
//! calls such plain copies a data race; there is no other copy of many bytes at this speed, every user of shared memory or of
//! hardware DMA relies on the same, and what programs agree on (the last byte of a message, eight bytes of an atomic) is atomic.
#![allow(unsafe_code)]

use std::cell::UnsafeCell;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering, fence};

use softnic_transports::memory::AtomicOp;
use softnic_wire::icrc::Icrc;

/// Memory of a program, at an address that the NIC knows it by.
///
/// The address is assigned, not where the bytes really lie, so that a simulation is the same in every run.
pub struct Buffer {
    addr: u64,
    len: usize,
    /// Words, so that atomics find them aligned.
    words: Box<[UnsafeCell<u64>]>,
}

// SAFETY: all access to the cells is by raw copies and atomics, from whatever thread; see the head of this file.
unsafe impl Send for Buffer {}
// SAFETY: the same.
unsafe impl Sync for Buffer {}

impl Buffer {
    /// `len` zero bytes at `addr`, which should be a multiple of 8 where atomics are meant to work.
    pub fn new(addr: u64, len: usize) -> Arc<Buffer> {
        let words = std::iter::repeat_with(|| UnsafeCell::new(0)).take(len.div_ceil(8)).collect();
        Arc::new(Buffer { addr, len, words })
    }

    /// `len` zero bytes at the address where they really lie: for NICs on real wires, whose peers' programs take it for one.
    pub fn in_place(len: usize) -> Arc<Buffer> {
        let words: Box<[UnsafeCell<u64>]> = vec![0u64; len.div_ceil(8)].into_iter().map(UnsafeCell::new).collect();
        let addr = words.as_ptr().addr() as u64;
        Arc::new(Buffer { addr, len, words })
    }

    /// The byte at `offset`, and after it everything that was placed before it: for programs that poll the last byte of a message.
    ///
    /// # Panics
    /// When it is outside the buffer.
    pub fn load_byte(&self, offset: usize) -> u8 {
        // SAFETY: the byte is inside the buffer (`raw` checks it), and valid for the call.
        unsafe { AtomicU8::from_ptr(self.raw(offset, 1)) }.load(Ordering::Acquire)
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
        // SAFETY: `to` is valid for `bytes.len()` bytes of this buffer, which `bytes` cannot overlap: no reference to a cell's
        // content is ever handed out. Others may write to them now; see the head of this file.
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

    /// [`Buffer::read_at`] that continues a CRC by `head` and the bytes that were copied.
    #[inline]
    pub(crate) fn read_summed(&self, offset: usize, crc: Icrc, head: &[u8], out: &mut [u8]) -> Icrc {
        let from = self.raw(offset, out.len());
        // SAFETY: as in `read_at`.
        Icrc::from_value(unsafe { softnic_crc::copy(crc.value(), head, from, out) })
    }

    /// [`Buffer::write_at`], with the last byte stored last: programs poll for it.
    #[inline]
    pub(crate) fn place(&self, offset: usize, bytes: &[u8]) {
        let Some((&last, body)) = bytes.split_last() else { return };
        self.write_at(offset, body);
        fence(Ordering::Release);
        // SAFETY: the byte is inside the buffer (`raw` checks it), aligned as any byte is, and valid for the call.
        let cell = unsafe { AtomicU8::from_ptr(self.raw(offset + body.len(), 1)) };
        cell.store(last, Ordering::Release);
    }

    /// Changes the eight bytes at `offset` in one step; `None` where they are not aligned.
    pub(crate) fn atomic(&self, offset: usize, op: AtomicOp) -> Option<u64> {
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
