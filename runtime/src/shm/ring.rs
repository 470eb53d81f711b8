//! A ring of frames in memory shared by two processes: one writes, the other reads. Neither trusts the other.
//!
//! The ring is divided into lines of 64 bytes. A frame is contiguous, and follows its length. If too little space is left before the end of
//! the ring, the writer skips the rest and marks it as skipped. The reader copies a length once and then checks the copy, and it copies
//! each frame before the frame is parsed. So a writer that changes a written frame harms only its own frames. Each side keeps its position
//! in private memory. The other side's position, which is read from the ring, may be at most one ring length away; otherwise the ring is
//! given up.
#![allow(unsafe_code)]

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::{AtomicU32, Ordering, fence};

use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, fcntl_get_seals, fstat, ftruncate, memfd_create};
use softnic_nic::transports::prefetch_to_write;

use crate::io::MAX_FRAME;
use crate::mapping::Mapping;

/// The unit of positions, and the size of a cache line.
const LINE: usize = 64;
/// Number of lines of a ring: one megabyte, so that the long frames in flight stay in the second-level cache.
pub(super) const LINES: u32 = 1 << 14;
/// Size of the header before the lines: it holds the position of each side, on separate cache lines.
const HEADER: usize = 4096;
/// Offsets of the writer's position, of the reader's position, and of the flag that the reader sleeps.
const TAIL: usize = 0;
const HEAD: usize = 256;
const SLEEPING: usize = 320;
/// Size of a ring in bytes.
const LEN: usize = HEADER + LINES as usize * LINE;
/// Space before a frame, for its length and padding, so that the payload behind the usual headers (54 bytes) starts a cache line.
pub(super) const IN_FRONT: usize = LINE - (14 + 20 + 8 + 12);
/// Number of lines of the longest frame.
const LONGEST: u32 = lines_of(MAX_FRAME);
/// Written in place of a length: the rest of the ring is skipped.
const SKIP: u32 = u32::MAX;
/// Number of bytes of the next frame's slot that are prefetched while the current frame is read. Beyond that, the processor's own
/// prefetcher continues.
const FETCHED: usize = 1024;
/// Seals that fix the size of the file: shrinking it would take pages away from the reader.
const SEALS: SealFlags = SealFlags::SHRINK.union(SealFlags::GROW).union(SealFlags::SEAL);

const fn lines_of(len: usize) -> u32 {
    (IN_FRONT + len).div_ceil(LINE) as u32
}

/// The other side violated the ring protocol; the ring cannot be used any more.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Broken;

/// The mapping of a ring.
#[derive(Debug)]
struct Shared(Mapping);

impl Shared {
    /// Maps a file that was created here, or that another process sent; such a file may be anything.
    fn map(file: &OwnedFd) -> io::Result<Shared> {
        let right = fstat(file)?.st_size == LEN as i64 && fcntl_get_seals(file)?.contains(SEALS);
        match right {
            true => Ok(Shared(Mapping::file(file.as_fd(), LEN)?)),
            false => Err(io::Error::new(io::ErrorKind::InvalidData, "not the memory of a ring")),
        }
    }

    #[inline]
    fn word(&self, at: usize) -> &AtomicU32 {
        // SAFETY: `at` checks that the word is in the mapping, which lives as long as `self`. Other processes access the word too, and any
        // value is valid.
        unsafe { self.0.at::<AtomicU32>(at, 1).as_ref() }
    }

    /// The length of the frame at this position, which is stored before the frame.
    #[inline]
    fn length(&self, position: u32) -> &AtomicU32 {
        self.word(HEADER + (position % LINES) as usize * LINE)
    }

    /// The first byte of the frame at this position; checks that `len` bytes follow in the mapping.
    #[inline]
    fn frame(&self, position: u32, len: usize) -> *mut u8 {
        self.0.at::<u8>(HEADER + (position % LINES) as usize * LINE + IN_FRONT, len).as_ptr()
    }
}

/// The writing end.
#[derive(Debug)]
pub(super) struct Writer {
    shared: Shared,
    /// The position after the last frame.
    tail: u32,
    /// The reader's position when it was last read.
    head: u32,
}

impl Writer {
    /// Creates a ring; the file is handed to the reader.
    pub(super) fn create() -> io::Result<(Writer, OwnedFd)> {
        let file = memfd_create(c"softnic-ring", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING)?;
        ftruncate(&file, LEN as u64)?;
        fcntl_add_seals(&file, SEALS)?;
        Ok((Writer { shared: Shared::map(&file)?, tail: 0, head: 0 }, file))
    }

    /// The slot for the next frame; `None` if there is no room for a frame of maximum length. A frame that is not
    /// [committed](Writer::commit) is never seen by the reader.
    ///
    /// # Errors
    /// When the reader's position is past the written frames.
    #[inline]
    pub(super) fn place(&mut self) -> Result<Option<&mut [u8]>, Broken> {
        let at = self.tail % LINES;
        let rest = LINES - at;
        let skipped = if rest < LONGEST { rest } else { 0 };
        if self.free() < skipped + LONGEST {
            self.head = self.shared.word(HEAD).load(Ordering::Acquire);
            if self.tail.wrapping_sub(self.head) > LINES {
                return Err(Broken);
            }
            if self.free() < skipped + LONGEST {
                return Ok(None);
            }
        }
        if skipped > 0 {
            self.shared.length(self.tail).store(SKIP, Ordering::Relaxed);
            self.tail = self.tail.wrapping_add(skipped);
        }
        // SAFETY: the frame is in the mapping, which lives as long as `self`, and no other part of this process has a reference to it,
        // because the only one is returned here. Another process may write there. That changes the bytes, but every value is a valid byte.
        Ok(Some(unsafe { std::slice::from_raw_parts_mut(self.shared.frame(self.tail, MAX_FRAME), MAX_FRAME) }))
    }

    #[inline]
    fn free(&self) -> u32 {
        LINES - self.tail.wrapping_sub(self.head)
    }

    /// Publishes the frame in the last slot to the reader.
    #[inline]
    pub(super) fn commit(&mut self, len: usize) {
        self.shared.length(self.tail).store(len as u32, Ordering::Relaxed);
        self.tail = self.tail.wrapping_add(lines_of(len));
        self.shared.word(TAIL).store(self.tail, Ordering::Release);
        let next = (self.tail % LINES) as usize * LINE;
        if next + FETCHED <= LINES as usize * LINE {
            let at: *const [u8; FETCHED] = self.shared.0.at::<[u8; FETCHED]>(HEADER + next, 1).as_ptr();
            // SAFETY: the array is in the mapping. Nothing is read from it; only its address is used.
            prefetch_to_write(unsafe { &*at });
        }
    }

    /// Whether the reader sleeps and must be woken. Call after frames were committed.
    #[inline]
    pub(super) fn must_wake(&self) -> bool {
        // Either the reader sees the frame in its last check, or the writer sees here that the reader sleeps.
        fence(Ordering::SeqCst);
        let sleeping = self.shared.word(SLEEPING);
        sleeping.load(Ordering::Relaxed) != 0 && sleeping.swap(0, Ordering::Relaxed) != 0
    }
}

/// The reading end.
#[derive(Debug)]
pub(super) struct Reader {
    shared: Shared,
    /// The position after the last frame that was read.
    head: u32,
}

impl Reader {
    /// Opens the ring in a file that another process sent.
    ///
    /// # Errors
    /// When the file is not a ring: its size is wrong, or it can be shrunk.
    pub(super) fn open(file: &OwnedFd) -> io::Result<Reader> {
        Ok(Reader { shared: Shared::map(file)?, head: 0 })
    }

    /// Whether no frame has arrived.
    #[inline]
    pub(super) fn is_empty(&self) -> bool {
        self.shared.word(TAIL).load(Ordering::Acquire) == self.head
    }

    /// Copies the frames that have arrived, at most `limit`, to `frame`, each after [`IN_FRONT`] bytes, and calls `take` with each. Returns
    /// their number.
    ///
    /// # Errors
    /// When the writer stored an impossible length or position.
    #[inline]
    pub(super) fn read(
        &mut self,
        limit: usize,
        frame: &mut [u8; IN_FRONT + MAX_FRAME],
        mut take: impl FnMut(&mut [u8]),
    ) -> Result<usize, Broken> {
        let tail = self.shared.word(TAIL).load(Ordering::Acquire);
        let mut there = tail.wrapping_sub(self.head);
        if there == 0 {
            return Ok(0);
        }
        if there > LINES {
            return Err(Broken);
        }
        let mut taken = 0;
        while there > 0 && taken < limit {
            let rest = LINES - self.head % LINES;
            let len = self.shared.length(self.head).load(Ordering::Relaxed);
            let lines = match len {
                SKIP => rest,
                len if len as usize <= MAX_FRAME => lines_of(len as usize),
                _ => return Err(Broken),
            };
            if lines > there.min(rest) {
                return Err(Broken);
            }
            if len != SKIP {
                let len = len as usize;
                let copy = &mut frame[IN_FRONT..IN_FRONT + len];
                // SAFETY: the frame is in the mapping (`frame` checks), and the copy has as many bytes. A writer that violates the protocol
                // may write meanwhile; the copy then holds other bytes, which are valid too.
                unsafe { std::ptr::copy_nonoverlapping(self.shared.frame(self.head, len), copy.as_mut_ptr(), len) };
                take(copy);
                taken += 1;
            }
            self.head = self.head.wrapping_add(lines);
            there -= lines;
        }
        self.shared.word(HEAD).store(self.head, Ordering::Release);
        Ok(taken)
    }

    /// Announces that the reader is about to sleep: from now on the writer wakes the reader, once. Afterwards check once more, behind a
    /// fence, whether a frame has arrived.
    pub(super) fn sleep(&self) {
        self.shared.word(SLEEPING).store(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ring() -> (Writer, Reader) {
        let (writer, file) = Writer::create().unwrap();
        (writer, Reader::open(&file).unwrap())
    }

    /// Writes a frame of `len` bytes of one value; returns whether there was room.
    fn write(writer: &mut Writer, value: u8, len: usize) -> bool {
        let Some(place) = writer.place().unwrap() else { return false };
        place[..len].fill(value);
        writer.commit(len);
        true
    }

    fn read(reader: &mut Reader, limit: usize) -> Result<Vec<(u8, usize)>, Broken> {
        let (mut scratch, mut came) = ([0; IN_FRONT + MAX_FRAME], Vec::new());
        reader.read(limit, &mut scratch, |frame| {
            assert!(frame.iter().all(|&b| b == frame[0]));
            came.push((frame[0], frame.len()));
        })?;
        Ok(came)
    }

    #[test]
    fn frames_of_all_lengths_come_in_order_round_after_round() {
        let (mut writer, mut reader) = ring();
        let (mut sent, mut got) = (0u32, 0u32);
        let length = |n: u32| 14 + (n.wrapping_mul(2_654_435_761) >> 7) as usize % (MAX_FRAME - 13);
        while got < 20_000 {
            while write(&mut writer, sent as u8, length(sent)) {
                sent += 1;
            }
            for (value, len) in read(&mut reader, 1 + sent as usize % 97).unwrap() {
                assert_eq!((value, len), (got as u8, length(got)));
                got += 1;
            }
        }
        assert!(writer.tail > 4 * LINES, "it went round");
    }

    #[test]
    fn a_full_ring_has_no_room_until_something_is_read_and_holds_small_frames_by_the_thousand() {
        let (mut writer, mut reader) = ring();
        let many = (0..).take_while(|_| write(&mut writer, 1, 100)).count();
        assert!(many > 8_000, "{many}");
        assert!(reader.read(many, &mut [0; IN_FRONT + MAX_FRAME], |_| ()) == Ok(many) && reader.is_empty());
        assert!(write(&mut writer, 2, MAX_FRAME));
        assert_eq!(read(&mut reader, 8).unwrap(), [(2, MAX_FRAME)]);
    }

    #[test]
    fn a_writer_that_lies_about_lengths_or_positions_is_found_out() {
        for (len, lines) in [(MAX_FRAME as u32 + 1, 100), (u32::MAX - 1, 1), (500, 1), (SKIP, 3)] {
            let (writer, mut reader) = ring();
            writer.shared.length(0).store(len, Ordering::Relaxed);
            writer.shared.word(TAIL).store(lines, Ordering::Release);
            assert_eq!(read(&mut reader, 8), Err(Broken), "{len}");
        }
        let (writer, mut reader) = ring();
        writer.shared.word(TAIL).store(LINES + 1, Ordering::Release);
        assert_eq!(read(&mut reader, 8), Err(Broken));
        // A frame that would extend past the end of the ring.
        let (writer, mut reader) = ring();
        reader.head = LINES - 2;
        writer.shared.length(reader.head).store(MAX_FRAME as u32, Ordering::Relaxed);
        writer.shared.word(TAIL).store(LINES + 200, Ordering::Release);
        assert_eq!(read(&mut reader, 8), Err(Broken));
    }

    #[test]
    fn a_reader_that_lies_about_its_position_is_found_out() {
        let (mut writer, reader) = ring();
        while write(&mut writer, 1, MAX_FRAME) {}
        reader.shared.word(HEAD).store(writer.tail + 1, Ordering::Release);
        assert_eq!(writer.place().map(|_| ()), Err(Broken));
    }

    #[test]
    fn memory_of_another_size_or_that_can_shrink_is_no_ring() {
        for (len, seals) in [(LEN as u64 - 64, SEALS), (LEN as u64 + 4096, SEALS), (LEN as u64, SealFlags::GROW)] {
            let file = memfd_create(c"test", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING).unwrap();
            ftruncate(&file, len).unwrap();
            fcntl_add_seals(&file, seals).unwrap();
            assert_eq!(Reader::open(&file).unwrap_err().kind(), io::ErrorKind::InvalidData);
        }
        let file: OwnedFd = std::fs::File::open("/dev/null").unwrap().into();
        assert!(Reader::open(&file).is_err());
    }

    #[test]
    fn who_sleeps_is_woken_once() {
        let (mut writer, reader) = ring();
        assert!(!writer.must_wake());
        reader.sleep();
        assert!(write(&mut writer, 1, 64) && writer.must_wake() && !writer.must_wake());
    }
}
