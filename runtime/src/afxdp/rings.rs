//! The four rings that a socket shares with the kernel: the fill ring (chunks for incoming frames), the RX ring (received frames), the TX
//! ring (frames to send), and the completion ring (sent chunks).
//!
//! Each ring has one writer and one reader. The writer publishes its index with release ordering after the entries; the reader loads that
//! index with acquire ordering before the entries. Indices run freely through all 32 bits.
#![allow(unsafe_code)]

use std::io;
use std::os::fd::BorrowedFd;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU32, Ordering, fence};

use super::umem::Chunk;
use crate::mapping::Mapping;

/// A frame, or one piece of a frame.
#[derive(Debug)]
pub(super) struct Piece {
    /// The chunk that holds the piece.
    pub(super) chunk: Chunk,
    /// The offset of the piece in the chunk.
    pub(super) offset: usize,
    /// Length in bytes.
    pub(super) len: usize,
}

/// The fields that both kinds of ring have.
#[derive(Debug)]
struct Ring<T> {
    producer: NonNull<AtomicU32>,
    consumer: NonNull<AtomicU32>,
    flags: NonNull<AtomicU32>,
    entries: NonNull<T>,
    size: u32,
    /// The mapping that all these pointers refer to.
    _memory: Mapping,
}

// SAFETY: the pointers refer to the mapping that the ring owns, and `T` is plain data.
unsafe impl<T: Send> Send for Ring<T> {}

impl<T: Copy> Ring<T> {
    fn new(socket: BorrowedFd<'_>, at: libc::off_t, offsets: &libc::xdp_ring_offset, size: u32) -> io::Result<Ring<T>> {
        let memory = Mapping::shared(socket, offsets.desc as usize + size as usize * size_of::<T>(), at)?;
        Ok(Ring {
            producer: memory.at(offsets.producer as usize, 1),
            consumer: memory.at(offsets.consumer as usize, 1),
            flags: memory.at(offsets.flags as usize, 1),
            entries: memory.at(offsets.desc as usize, size as usize),
            size,
            _memory: memory,
        })
    }

    fn producer(&self) -> &AtomicU32 {
        // SAFETY: the pointer refers to the mapping, which lives as long as `self`, and the kernel uses the index as an atomic too.
        unsafe { self.producer.as_ref() }
    }

    fn consumer(&self) -> &AtomicU32 {
        // SAFETY: as for the producer.
        unsafe { self.consumer.as_ref() }
    }

    fn entry(&self, index: u32) -> NonNull<T> {
        // SAFETY: the size is a power of two, so that the masked index is inside the entries.
        unsafe { self.entries.add((index & (self.size - 1)) as usize) }
    }

    /// Whether the kernel needs a wake-up to look at the ring.
    fn needs_wakeup(&self) -> bool {
        // The index must be published before the flag is read: the kernel sets the flag, and then reads the index.
        fence(Ordering::SeqCst);
        self.asks_for_wakeup()
    }

    /// As `needs_wakeup`, for a caller that published long ago, or that checks repeatedly.
    #[inline]
    fn asks_for_wakeup(&self) -> bool {
        // SAFETY: as for the producer.
        unsafe { self.flags.as_ref() }.load(Ordering::Relaxed) & libc::XDP_RING_NEED_WAKEUP != 0
    }
}

/// A ring that this process writes.
#[derive(Debug)]
struct Producer<T> {
    ring: Ring<T>,
    /// Number of entries written, including unpublished ones.
    written: u32,
    /// The kernel's index when it was last read.
    consumed: u32,
}

impl<T: Copy> Producer<T> {
    fn new(ring: Ring<T>) -> Producer<T> {
        let (written, consumed) = (ring.producer().load(Ordering::Relaxed), ring.consumer().load(Ordering::Relaxed));
        Producer { ring, written, consumed }
    }

    fn room(&mut self, wanted: u32) -> bool {
        let room = |this: &Self| this.ring.size - this.written.wrapping_sub(this.consumed);
        if room(self) < wanted {
            self.consumed = self.ring.consumer().load(Ordering::Acquire);
        }
        room(self) >= wanted
    }

    /// Writes an entry.
    ///
    /// # Panics
    /// When there is no room.
    fn push(&mut self, entry: T) {
        assert!(self.room(1), "an entry for a full ring");
        // SAFETY: the slot is inside the ring. There is room, so the kernel does not read the slot before it is published.
        unsafe { self.ring.entry(self.written).write(entry) }
        self.written = self.written.wrapping_add(1);
    }

    fn publish(&mut self) {
        self.ring.producer().store(self.written, Ordering::Release);
    }
}

/// A ring that the kernel writes.
#[derive(Debug)]
struct Consumer<T> {
    ring: Ring<T>,
    /// Number of entries read, including those not yet returned.
    read: u32,
    /// The kernel's index when it was last read.
    produced: u32,
}

impl<T: Copy> Consumer<T> {
    fn new(ring: Ring<T>) -> Consumer<T> {
        let (read, produced) = (ring.consumer().load(Ordering::Relaxed), ring.producer().load(Ordering::Relaxed));
        Consumer { ring, read, produced }
    }

    /// Reads the entry `ahead` positions after the next one, and leaves it in the ring.
    fn peek(&mut self, ahead: u32) -> Option<T> {
        if self.produced.wrapping_sub(self.read) <= ahead {
            self.produced = self.ring.producer().load(Ordering::Acquire);
        }
        // SAFETY: the slot is inside the ring; the kernel has published it and does not reuse it until it is returned.
        (self.produced.wrapping_sub(self.read) > ahead)
            .then(|| unsafe { self.ring.entry(self.read.wrapping_add(ahead)).read() })
    }

    fn pop(&mut self) -> Option<T> {
        let entry = self.peek(0)?;
        self.read = self.read.wrapping_add(1);
        Some(entry)
    }

    fn give_back(&mut self) {
        self.ring.consumer().store(self.read, Ordering::Release);
    }
}

/// Number of short naps after chunks were published. The driver may go to sleep a moment later although chunks are there, and no event
/// reports that. The count goes down when a nap begins, before the length of the nap is computed.
const SHORT_NAPS: u32 = 2;

/// The ring of chunks that the kernel may write frames into.
#[derive(Debug)]
pub(super) struct FillRing {
    producer: Producer<u64>,
    /// Whether the kernel was woken since the last publication of chunks. The kernel's flag stays set while a wake-up has no effect, for
    /// example while all entries of the NIC's ring are in use. Without this field an idle loop would make nothing but system calls.
    woken: bool,
    /// Number of short naps left.
    naps: u32,
}

impl FillRing {
    /// Maps the fill ring of a socket.
    pub(super) fn new(socket: BorrowedFd<'_>, offsets: &libc::xdp_mmap_offsets, size: u32) -> io::Result<FillRing> {
        let at = libc::XDP_UMEM_PGOFF_FILL_RING as libc::off_t;
        Ring::new(socket, at, &offsets.fr, size).map(FillRing::over)
    }

    fn over(ring: Ring<u64>) -> FillRing {
        FillRing { producer: Producer::new(ring), woken: false, naps: 0 }
    }

    /// Gives a chunk to the kernel. The kernel sees it after the next `publish`.
    pub(super) fn push(&mut self, chunk: Chunk) {
        self.producer.push(chunk.address());
    }

    /// Publishes all pushed chunks. Returns whether the kernel needs a wake-up for them; the caller wakes the kernel.
    pub(super) fn publish(&mut self) -> bool {
        self.producer.publish();
        self.woken = self.producer.ring.needs_wakeup();
        self.naps = SHORT_NAPS + 1;
        self.woken
    }

    /// Whether the ring holds chunks that the kernel does not take without a wake-up; the caller wakes the kernel. Returns true once per
    /// publication. A kernel that has taken all chunks also asks for a wake-up, but there are no chunks to take.
    pub(super) fn is_waited_for(&mut self) -> bool {
        let waited_for = !self.woken && self.producer.ring.asks_for_wakeup() && !self.is_empty();
        self.woken |= waited_for;
        waited_for
    }

    /// The reader of this ring is about to sleep.
    pub(super) fn nap_begins(&mut self) {
        self.naps = self.naps.saturating_sub(1);
    }

    /// Whether the kernel may still go to sleep while the ring holds chunks; then the ring must be checked again soon.
    pub(super) fn may_be_waited_for(&self) -> bool {
        self.naps > 0 && !self.woken && !self.is_empty()
    }

    /// Whether the kernel has taken all chunks.
    #[inline]
    fn is_empty(&self) -> bool {
        self.producer.ring.consumer().load(Ordering::Relaxed) == self.producer.written
    }
}

/// The ring of received frames.
#[derive(Debug)]
pub(super) struct RxRing(Consumer<libc::xdp_desc>);

impl RxRing {
    /// Maps the RX ring of a socket.
    pub(super) fn new(socket: BorrowedFd<'_>, offsets: &libc::xdp_mmap_offsets, size: u32) -> io::Result<RxRing> {
        Ring::new(socket, libc::XDP_PGOFF_RX_RING, &offsets.rx, size).map(|ring| RxRing(Consumer::new(ring)))
    }

    /// The number of pieces of the next frame; `None` if there is no frame, or if some of its pieces are missing.
    #[inline]
    pub(super) fn next_frame(&mut self) -> Option<u32> {
        let mut pieces = 1;
        while self.0.peek(pieces - 1)?.options & libc::XDP_PKT_CONTD != 0 {
            pieces += 1;
        }
        Some(pieces)
    }

    /// Takes the next piece; its chunk then belongs to this process.
    #[inline]
    pub(super) fn pop(&mut self) -> Option<Piece> {
        let entry = self.0.pop()?;
        // SAFETY: an entry in this ring that was not read before means that the kernel has returned the chunk.
        let chunk = unsafe { Chunk::returned(entry.addr) };
        Some(Piece { offset: (entry.addr - chunk.address()) as usize, chunk, len: entry.len as usize })
    }

    /// Returns the slots of all popped entries to the kernel.
    pub(super) fn give_back(&mut self) {
        self.0.give_back();
    }
}

/// The ring of frames to send.
#[derive(Debug)]
pub(super) struct TxRing(Producer<libc::xdp_desc>);

impl TxRing {
    /// Maps the TX ring of a socket.
    pub(super) fn new(socket: BorrowedFd<'_>, offsets: &libc::xdp_mmap_offsets, size: u32) -> io::Result<TxRing> {
        Ring::new(socket, libc::XDP_PGOFF_TX_RING, &offsets.tx, size).map(|ring| TxRing(Producer::new(ring)))
    }

    /// Whether there is room for `pieces` pieces.
    pub(super) fn room(&mut self, pieces: u32) -> bool {
        self.0.room(pieces)
    }

    /// Writes a piece of a frame, which starts at the start of a chunk. `more` means that the frame continues in the next piece.
    pub(super) fn push(&mut self, chunk: Chunk, len: usize, more: bool) {
        let options = if more { libc::XDP_PKT_CONTD } else { 0 };
        self.0.push(libc::xdp_desc { addr: chunk.address(), len: len as u32, options });
    }

    /// Publishes all pushed pieces to the kernel.
    pub(super) fn publish(&mut self) {
        self.0.publish();
    }

    /// Whether the kernel needs a wake-up to send.
    pub(super) fn needs_wakeup(&self) -> bool {
        self.0.ring.needs_wakeup()
    }

    /// Number of pieces that the kernel has not started to send.
    pub(super) fn pending(&mut self) -> u32 {
        self.0.consumed = self.0.ring.consumer().load(Ordering::Acquire);
        self.0.written.wrapping_sub(self.0.consumed)
    }

    /// Number of frames that the kernel has not started to send, or whose pieces it has not all taken. A frame in several pieces is counted
    /// by its last piece.
    pub(super) fn frames_pending(&self) -> usize {
        let begun = self.0.ring.consumer().load(Ordering::Acquire);
        let pending = self.0.written.wrapping_sub(begun);
        // SAFETY: the slots are inside the ring; this process wrote them, and no one else does.
        let piece = |n: u32| unsafe { self.0.ring.entry(begun.wrapping_add(n)).read() };
        (0..pending).filter(|&n| piece(n).options & libc::XDP_PKT_CONTD == 0).count()
    }
}

/// The ring of sent chunks.
#[derive(Debug)]
pub(super) struct CompletionRing(Consumer<u64>);

impl CompletionRing {
    /// Maps the completion ring of a socket.
    pub(super) fn new(
        socket: BorrowedFd<'_>,
        offsets: &libc::xdp_mmap_offsets,
        size: u32,
    ) -> io::Result<CompletionRing> {
        let at = libc::XDP_UMEM_PGOFF_COMPLETION_RING as libc::off_t;
        Ring::new(socket, at, &offsets.cr, size).map(|ring| CompletionRing(Consumer::new(ring)))
    }

    /// Takes back all sent chunks.
    pub(super) fn drain(&mut self, free: &mut Vec<Chunk>) {
        let before = free.len();
        while let Some(address) = self.0.pop() {
            // SAFETY: an entry in this ring that was not read before means that the kernel has returned the chunk.
            free.push(unsafe { Chunk::returned(address) });
        }
        // The kernel shares this cache line, so the index is written only if it changes.
        if free.len() > before {
            self.0.give_back();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A ring whose other side is the test; both indices start at `start`.
    fn ring<T: Copy>(size: u32, start: u32) -> Ring<T> {
        let memory = Mapping::pages(4096).unwrap();
        let [producer, consumer, flags] = [0, 64, 128].map(|offset| memory.at::<AtomicU32>(offset, 1));
        let ring = Ring { producer, consumer, flags, entries: memory.at(192, size as usize), size, _memory: memory };
        ring.producer().store(start, Ordering::Relaxed);
        ring.consumer().store(start, Ordering::Relaxed);
        ring
    }

    #[test]
    fn a_producer_fills_the_ring_and_goes_on_where_the_indices_wrap() {
        let start = u32::MAX - 2;
        let mut p = Producer::new(ring(4, start));
        let mut consumed = start;
        for round in 0..5 {
            assert!(p.room(4) && !p.room(5));
            (0..4).for_each(|n| p.push(10 * round + n));
            assert!(!p.room(1));
            assert_eq!(p.ring.producer().load(Ordering::Relaxed), consumed, "not published yet");
            p.publish();
            assert_eq!(p.ring.producer().load(Ordering::Relaxed), consumed.wrapping_add(4));
            for n in 0..4 {
                // SAFETY: the entry was written above.
                assert_eq!(unsafe { p.ring.entry(consumed).read() }, 10 * round + n);
                consumed = consumed.wrapping_add(1);
                p.ring.consumer().store(consumed, Ordering::Relaxed);
                assert!(p.room(n as u32 + 1) && !p.room(n as u32 + 2));
            }
        }
    }

    #[test]
    fn a_frame_in_two_pieces_that_waits_is_one_frame() {
        let mut tx = TxRing(Producer::new(ring(8, u32::MAX - 1)));
        let (umem, chunks) = super::super::umem::Umem::new(5).unwrap();
        for (chunk, more) in chunks.into_iter().zip([true, false, false, true, false]) {
            tx.push(chunk, 100, more);
        }
        tx.publish();
        assert_eq!((tx.pending(), tx.frames_pending()), (5, 3));
        tx.0.ring.consumer().store(1, Ordering::Relaxed);
        assert_eq!((tx.pending(), tx.frames_pending()), (2, 1));
        drop(umem);
    }

    /// Sets or clears the kernel's request for a wake-up.
    fn ask(fill: &FillRing, flag: u32) {
        // SAFETY: the flags are in the mapping of the ring.
        unsafe { fill.producer.ring.flags.as_ref() }.store(flag, Ordering::Relaxed);
    }

    #[test]
    fn a_driver_that_went_to_sleep_over_a_full_fill_ring_is_seen() {
        let mut fill = FillRing::over(ring(4, 0));
        fill.producer.push(0);
        assert!(!fill.publish() && !fill.is_waited_for(), "the driver is awake");
        // The driver looked earlier, found no chunk, and goes to sleep only now.
        ask(&fill, libc::XDP_RING_NEED_WAKEUP);
        assert!(fill.is_waited_for());
        fill.producer.push(1);
        fill.producer.ring.consumer().store(2, Ordering::Relaxed);
        ask(&fill, 0);
        fill.publish();
        ask(&fill, libc::XDP_RING_NEED_WAKEUP);
        assert!(!fill.is_waited_for(), "the driver has them all; waking it would not give it more");
    }

    #[test]
    fn a_driver_whose_flag_stays_is_woken_once_for_all_that_was_published() {
        let mut fill = FillRing::over(ring(4, 0));
        let times = |fill: &mut FillRing| (0..100).filter(|_| fill.is_waited_for()).count();
        fill.producer.push(0);
        fill.publish();
        ask(&fill, libc::XDP_RING_NEED_WAKEUP);
        assert_eq!(times(&mut fill), 1);
        fill.producer.push(1);
        assert!(fill.publish(), "there is something new to wake it for");
        assert_eq!(times(&mut fill), 0, "it was woken when that was published");
    }

    #[test]
    fn naps_after_chunks_were_published_are_short_until_the_driver_was_woken_or_has_them() {
        let mut fill = FillRing::over(ring(4, 0));
        let short = |fill: &mut FillRing| {
            let nap = |_: &u32| {
                fill.nap_begins();
                fill.may_be_waited_for()
            };
            (0..100).filter(nap).count() as u32
        };
        assert_eq!(short(&mut fill), 0, "nothing was published");
        fill.producer.push(0);
        fill.publish();
        assert_eq!(short(&mut fill), SHORT_NAPS);
        ask(&fill, libc::XDP_RING_NEED_WAKEUP);
        fill.publish();
        assert_eq!(short(&mut fill), 0, "it was woken");
        ask(&fill, 0);
        fill.publish();
        fill.producer.ring.consumer().store(1, Ordering::Relaxed);
        assert_eq!(short(&mut fill), 0, "it has them");
    }

    #[test]
    fn a_consumer_looks_ahead_and_goes_on_where_the_indices_wrap() {
        let start = u32::MAX - 2;
        let mut c = Consumer::new(ring(4, start));
        let mut produced = start;
        for round in 0..5 {
            assert_eq!((c.peek(0), c.pop()), (None, None));
            for n in 0..4 {
                // SAFETY: the slot is inside the ring and is not read meanwhile.
                unsafe { c.ring.entry(produced).write(10 * round + n) }
                produced = produced.wrapping_add(1);
            }
            c.ring.producer().store(produced.wrapping_sub(1), Ordering::Relaxed);
            assert_eq!((c.peek(2), c.peek(3)), (Some(10 * round + 2), None));
            c.ring.producer().store(produced, Ordering::Relaxed);
            assert_eq!(c.peek(3), Some(10 * round + 3));
            (0..4).for_each(|n| assert_eq!(c.pop(), Some(10 * round + n)));
            assert_eq!(c.ring.consumer().load(Ordering::Relaxed), produced.wrapping_sub(4), "not given back yet");
            c.give_back();
            assert_eq!(c.ring.consumer().load(Ordering::Relaxed), produced);
        }
    }
}
