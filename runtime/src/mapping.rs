//! Memory from mmap(2), given back when it is dropped.
#![allow(unsafe_code)]

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::ptr::{self, NonNull};

/// A mapping that can be read and written.
#[derive(Debug)]
pub(crate) struct Mapping {
    start: NonNull<u8>,
    len: usize,
}

// SAFETY: a mapping belongs to the process and not to a thread.
unsafe impl Send for Mapping {}

impl Mapping {
    /// Fresh pages of zeros.
    pub(crate) fn pages(len: usize) -> io::Result<Mapping> {
        Mapping::map(len, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS, -1, 0)
    }

    /// What the kernel shares at `offset` of a socket.
    pub(crate) fn shared(socket: BorrowedFd<'_>, len: usize, offset: libc::off_t) -> io::Result<Mapping> {
        Mapping::map(len, libc::MAP_SHARED | libc::MAP_POPULATE, socket.as_raw_fd(), offset)
    }

    /// The beginning of a file that other processes map, too; a page is there when it is first touched.
    pub(crate) fn file(file: BorrowedFd<'_>, len: usize) -> io::Result<Mapping> {
        Mapping::map(len, libc::MAP_SHARED, file.as_raw_fd(), 0)
    }

    fn map(len: usize, flags: i32, fd: i32, offset: libc::off_t) -> io::Result<Mapping> {
        // SAFETY: the kernel chooses an address where nothing is.
        let at = unsafe { libc::mmap(ptr::null_mut(), len, libc::PROT_READ | libc::PROT_WRITE, flags, fd, offset) };
        if at == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        // A forked child must not have it: it would keep the socket, and share pages that the kernel writes to. The parent does without
        // this where the kernel refuses.
        // SAFETY: it is the mapping that was just made, which this changes for children only.
        unsafe { libc::madvise(at, len, libc::MADV_DONTFORK) };
        let start = NonNull::new(at.cast()).ok_or_else(|| io::Error::other("mmap(2) gave no address"))?;
        Ok(Mapping { start, len })
    }

    /// The first byte.
    pub(crate) fn start(&self) -> NonNull<u8> {
        self.start
    }

    /// Bytes.
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// Where a `T` lies at `offset` from the start.
    ///
    /// # Panics
    /// When it does not lie there whole, and aligned: the kernel's own offsets do.
    pub(crate) fn at<T>(&self, offset: usize, count: usize) -> NonNull<T> {
        let end = offset.checked_add(count * size_of::<T>());
        assert!(
            end.is_some_and(|end| end <= self.len) && offset.is_multiple_of(align_of::<T>()),
            "outside the mapping"
        );
        // SAFETY: the offset is inside the mapping, as was just checked.
        unsafe { self.start.add(offset) }.cast()
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: it was mapped by `map` with this length; whoever holds a pointer into it holds the mapping too.
        unsafe { libc::munmap(self.start.as_ptr().cast(), self.len) };
    }
}
