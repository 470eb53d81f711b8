//! Memory that can be registered. This is the only place in this crate that accesses bytes which a program may write at the same time.
//!
//! A NIC reads and writes registered memory while the program does the same, from any thread: that is the nature of RDMA. So no reference
//! to these bytes ever exists, only raw pointers, and the result of concurrent writes to a byte is unspecified. The language calls such
//! plain copies a data race. No other copy of many bytes is as fast, and every user of shared memory or of hardware DMA relies on such
//! copies. The guarantees that programs rely on (the order of bytes, the last word of a message, the eight bytes of an atomic) are kept:
//! see `placing`.
#![allow(unsafe_code)]

mod placing;

use std::cell::UnsafeCell;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};

use softnic_transports::memory::{AtomicOp, Runs};
use softnic_wire::icrc::Icrc;

/// Memory of a program, with the address by which the NIC knows it.
///
/// The address is assigned rather than the real location of the bytes, so that a simulation is the same in every run.
pub struct Buffer {
    addr: u64,
    len: usize,
    start: *mut u8,
    /// Number of words that this value owns; 0 for memory of the program. Words rather than bytes, so that they are aligned for atomics.
    words: usize,
}

// SAFETY: all access to the bytes is by raw copies and atomics, from any thread; see the head of this file.
unsafe impl Send for Buffer {}
// SAFETY: as for `Send` above.
unsafe impl Sync for Buffer {}

impl Drop for Buffer {
    fn drop(&mut self) {
        if self.words > 0 {
            let words = std::ptr::slice_from_raw_parts_mut(self.start.cast::<UnsafeCell<u64>>(), self.words);
            // SAFETY: `owned` took the pointer out of such a box, and no other code frees it.
            drop(unsafe { Box::from_raw(words) });
        }
    }
}

impl Buffer {
    /// Creates `len` zero bytes at `addr`, which should be a multiple of 8 if atomics are to work.
    pub fn new(addr: u64, len: usize) -> Arc<Buffer> {
        let mut buffer = Buffer::owned(len);
        buffer.addr = addr;
        Arc::new(buffer)
    }

    /// Creates `len` zero bytes whose address is their real location: for NICs on real wires, where peers expect such addresses.
    pub fn in_place(len: usize) -> Arc<Buffer> {
        Arc::new(Buffer::owned(len))
    }

    /// Wraps `len` bytes of the program's own memory, which work requests address from `addr` on: the real location, or any other address
    /// (0 for a zero-based region). Any alignment is permitted; atomics check the alignment of the memory itself.
    ///
    /// # Safety
    /// The `len` bytes at `ptr` can be read, and if the buffer is registered with a right to write also written, as long as the buffer or a
    /// region of it exists. Meanwhile no Rust reference to any of them is used in a way that such writes, at any time, would make unsound.
    pub unsafe fn foreign(ptr: *mut u8, len: usize, addr: u64) -> Arc<Buffer> {
        Arc::new(Buffer { addr, len, start: ptr, words: 0 })
    }

    /// Allocates zero bytes, addressed by their real location.
    fn owned(len: usize) -> Buffer {
        let words: Box<[UnsafeCell<u64>]> = vec![0u64; len.div_ceil(8)].into_iter().map(UnsafeCell::new).collect();
        let count = words.len();
        let start = Box::into_raw(words).cast::<u8>();
        Buffer { addr: start.addr() as u64, len, start, words: count }
    }

    /// The byte at `offset`. After this load, everything that was placed before the byte is visible: for programs that poll the last byte
    /// of a message.
    ///
    /// # Panics
    /// When the offset is outside the buffer.
    pub fn load_byte(&self, offset: usize) -> u8 {
        // SAFETY: the byte is inside the buffer (`raw` checks it), and valid for the call.
        unsafe { AtomicU8::from_ptr(self.raw(offset, 1)) }.load(Ordering::Acquire)
    }

    /// A raw pointer to `len` bytes from `offset`.
    ///
    /// # Panics
    /// When they are not all inside the buffer. Callers outside this module own the buffer; callers inside have checked the range.
    #[inline]
    fn raw(&self, offset: usize, len: usize) -> *mut u8 {
        assert!(offset <= self.len && len <= self.len - offset, "a range outside the buffer");
        self.start.wrapping_add(offset)
    }

    /// The first address.
    pub fn addr(&self) -> u64 {
        self.addr
    }

    /// Length in bytes.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether the length is 0.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Copies bytes in at `offset`.
    ///
    /// # Panics
    /// When they do not fit, which is an error of the program that owns the buffer.
    pub fn write_at(&self, offset: usize, bytes: &[u8]) {
        let to = self.raw(offset, bytes.len());
        // SAFETY: `to` is valid for `bytes.len()` bytes of this buffer. `bytes` cannot overlap them: no reference to the buffer's own bytes
        // is ever handed out, and none to the program's is used (`foreign`). Other threads may write to them now; see the head of this
        // file.
        unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), to, bytes.len()) }
    }

    /// Copies bytes out from `offset`.
    ///
    /// # Panics
    /// When they are not all inside the buffer.
    pub fn read_at(&self, offset: usize, out: &mut [u8]) {
        let from = self.raw(offset, out.len());
        // SAFETY: as in `write_at`.
        unsafe { std::ptr::copy_nonoverlapping(from, out.as_mut_ptr(), out.len()) }
    }

    /// As [`Buffer::read_at`], and continues a CRC over `head` and the bytes that were copied.
    #[inline]
    pub(crate) fn read_summed(&self, offset: usize, crc: Icrc, head: &[u8], out: &mut [u8]) -> Icrc {
        let from = self.raw(offset, out.len());
        // SAFETY: as in `read_at`.
        Icrc::from_value(unsafe { softnic_crc::copy(crc.value(), head, from, out) })
    }

    /// As [`Buffer::write_at`], for bytes from the wire: stores in ascending order, aligned words whole, and the last word last, because
    /// programs poll for it.
    #[inline]
    pub(crate) fn place(&self, offset: usize, bytes: &[u8]) {
        let to = self.raw(offset, bytes.len());
        // SAFETY: as in `write_at`.
        unsafe { placing::place(to, bytes) }
    }

    /// Copies out runs of bytes, the first from `offset`, into consecutive parts of `out`.
    pub(crate) fn read_runs(&self, offset: usize, runs: Runs, out: &mut [u8]) {
        let from = self.raw(offset, runs.span() as usize);
        let (run, step) = (runs.run as usize, runs.step as usize);
        for (k, part) in out.chunks_exact_mut(run.max(1)).take(runs.count as usize).enumerate() {
            // SAFETY: as in `read_at`; the run is inside the span that was checked.
            unsafe { copy_run(from.wrapping_add(k * step), part.as_mut_ptr(), run) }
        }
    }

    /// Places bytes in runs, the first at `offset`. Runs are short, and no program polls for one, so the order does not matter.
    pub(crate) fn place_runs(&self, offset: usize, runs: Runs, bytes: &[u8]) {
        let to = self.raw(offset, runs.span() as usize);
        let (run, step) = (runs.run as usize, runs.step as usize);
        for (k, part) in bytes.chunks_exact(run.max(1)).take(runs.count as usize).enumerate() {
            // SAFETY: as in `write_at`; the run is inside the span that was checked.
            unsafe { copy_run(part.as_ptr(), to.wrapping_add(k * step), run) }
        }
    }

    /// Changes the eight bytes at `offset` atomically; returns `None` if they are not aligned.
    pub(crate) fn atomic(&self, offset: usize, op: AtomicOp) -> Option<u64> {
        let word = self.raw(offset, 8).cast::<u64>();
        if !word.is_aligned() {
            return None;
        }
        // SAFETY: the eight bytes are inside the buffer (`raw` checks it), aligned, and valid for the call; all code that shares them with
        // the NIC uses atomics.
        let word = unsafe { AtomicU64::from_ptr(word) };
        Some(match op {
            AtomicOp::FetchAdd { add } => word.fetch_add(add, Ordering::SeqCst),
            AtomicOp::CompareSwap { compare, swap } => {
                word.compare_exchange(compare, swap, Ordering::SeqCst, Ordering::SeqCst).unwrap_or_else(|found| found)
            }
        })
    }
}

/// Copies a run; runs of the likely lengths without a function call.
///
/// # Safety
/// Both pointers are valid for `len` bytes, and the ranges do not overlap.
#[inline(always)]
unsafe fn copy_run(from: *const u8, to: *mut u8, len: usize) {
    // SAFETY: guaranteed by the caller; a copy of constant length is one load and one store.
    unsafe {
        match len {
            2 => std::ptr::copy_nonoverlapping(from, to, 2),
            4 => std::ptr::copy_nonoverlapping(from, to, 4),
            8 => std::ptr::copy_nonoverlapping(from, to, 8),
            16 => std::ptr::copy_nonoverlapping(from, to, 16),
            32 => std::ptr::copy_nonoverlapping(from, to, 32),
            _ => std::ptr::copy_nonoverlapping(from, to, len),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_of_the_program_is_used_where_it_lies_under_another_address() {
        let mut words = [0u64; 4];
        let start = words.as_mut_ptr().cast::<u8>();
        {
            // SAFETY: the bytes are inside `words`, which is not used before the buffer is dropped.
            let buffer = unsafe { Buffer::foreign(start.wrapping_add(1), 31, 0) };
            assert_eq!((buffer.addr(), buffer.len()), (0, 31));
            buffer.place(7, &[1, 2, 3]);
            assert_eq!(buffer.load_byte(9), 3);
            let add = AtomicOp::FetchAdd { add: 5 };
            assert_eq!(buffer.atomic(0, add), None, "the address is aligned, the memory is not");
            assert_eq!(buffer.atomic(15, add), Some(0), "the other way round");
            let mut out = [0; 3];
            buffer.read_at(7, &mut out);
            assert_eq!(out, [1, 2, 3]);
        }
        assert_eq!(words, [0, u64::from_le_bytes([1, 2, 3, 0, 0, 0, 0, 0]), 5, 0]);
    }

    #[test]
    fn a_buffer_without_a_byte() {
        let buffers = [Buffer::new(64, 0), Buffer::in_place(0)];
        assert!(buffers.iter().all(|buffer| buffer.is_empty()));
        buffers[0].write_at(0, &[]);
    }
}
