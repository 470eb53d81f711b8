//! The interface between the driver loop and a packet IO backend.

use std::fmt;
use std::io;
use std::os::fd::{AsFd, OwnedFd, RawFd};
use std::time::Duration;

use rustix::event::{self, PollFd, PollFlags, Timespec};
use rustix::io::Errno;
use smallvec::SmallVec;
use softnic_wire::{Error, Layout, MacAddr, TxFrame};

/// The longest frame that backends carry: path MTU 4096 with every header, and room for tags.
pub const MAX_FRAME: usize = 4096 + 256;

/// Called with a received frame and its layout.
pub type TakeLocated<'a> = dyn FnMut(&mut [u8], Result<Layout, Error>) + 'a;

/// A backend that receives and sends frames in batches, in its own memory. Only [`PacketIo::wait`] blocks.
pub trait PacketIo {
    /// Passes the frames that have arrived, at most `limit`, to `take`, one by one; returns their number. `take` may write to a frame
    /// during the call; the frame is freed afterwards.
    fn receive(&mut self, limit: usize, take: &mut dyn FnMut(&mut [u8])) -> io::Result<usize>;

    /// As [`PacketIo::receive`], with the layout of each frame. A backend that parses the layout anyway passes it on, so that it is parsed
    /// once.
    fn receive_located(&mut self, limit: usize, take: &mut TakeLocated<'_>) -> io::Result<usize> {
        self.receive(limit, &mut |frame| {
            let layout = Layout::locate(frame);
            take(frame, layout);
        })
    }

    /// Calls `next` to write frames, at most `limit` and only while there is room, until `next` returns false. The frames written leave as
    /// one batch. Returns the number of frames written, including those lost on the way out.
    ///
    /// Call this regularly even with no frame to send: a backend may have kept frames for which the system had no room.
    fn transmit(&mut self, limit: usize, next: &mut dyn FnMut(&mut TxFrame<'_>) -> bool) -> io::Result<usize>;

    /// Sleeps until a frame arrives, until missing room to send becomes free, or until `timeout` has passed. May return early; the caller
    /// checks again.
    fn wait(&mut self, timeout: Duration) -> io::Result<()>;

    /// Descriptors of which one becomes readable when a frame arrives, for a thread that sleeps without holding the backend. The thread
    /// calls [`PacketIo::prepare_sleep`] before the sleep.
    fn readiness(&self) -> io::Result<Vec<OwnedFd>>;

    /// From now on an incoming frame makes a descriptor readable. Returns `false` if a frame is already there.
    fn prepare_sleep(&mut self) -> bool {
        true
    }

    /// The time until the backend has to send or receive although no frame arrives: it holds frames back.
    fn due_in(&self) -> Option<Duration> {
        None
    }

    /// The time until the next sent frame leaves that is held back here, as a wire with delay would hold it.
    fn leaves_in(&self) -> Option<Duration> {
        None
    }

    /// Number of frames that wait here because the system has not accepted them yet.
    fn unsent(&self) -> usize {
        0
    }

    /// Number of frames of both directions that were lost here, as far as the backend knows.
    fn lost(&self) -> u64;

    /// Number of frames that arrived in several pieces and were copied together here.
    fn joined(&self) -> u64 {
        0
    }

    /// The file descriptors that the backend holds. A process that forks closes them in the child, where they would keep the wire in use.
    fn descriptors(&self) -> Vec<RawFd> {
        Vec::new()
    }

    /// The longest frame that the backend carries.
    fn max_frame(&self) -> usize {
        MAX_FRAME
    }
}

/// A link that sends no notification of its state: the state is polled from time to time.
pub(crate) trait Line: Send {
    /// Tries to restore the link, and returns whether it is up.
    fn look(&mut self) -> bool;
}

/// A device that receives frames to the multicast groups that were given to it.
pub(crate) trait GroupFilter: fmt::Debug + Send + Sync {
    /// Makes the device receive frames to these groups. It may receive frames to other groups, too.
    fn take_groups(&self, groups: &[MacAddr]);
}

impl<T: PacketIo + ?Sized> PacketIo for Box<T> {
    fn receive(&mut self, limit: usize, take: &mut dyn FnMut(&mut [u8])) -> io::Result<usize> {
        (**self).receive(limit, take)
    }

    fn receive_located(&mut self, limit: usize, take: &mut TakeLocated<'_>) -> io::Result<usize> {
        (**self).receive_located(limit, take)
    }

    fn transmit(&mut self, limit: usize, next: &mut dyn FnMut(&mut TxFrame<'_>) -> bool) -> io::Result<usize> {
        (**self).transmit(limit, next)
    }

    fn wait(&mut self, timeout: Duration) -> io::Result<()> {
        (**self).wait(timeout)
    }

    fn readiness(&self) -> io::Result<Vec<OwnedFd>> {
        (**self).readiness()
    }

    fn prepare_sleep(&mut self) -> bool {
        (**self).prepare_sleep()
    }

    fn due_in(&self) -> Option<Duration> {
        (**self).due_in()
    }

    fn leaves_in(&self) -> Option<Duration> {
        (**self).leaves_in()
    }

    fn unsent(&self) -> usize {
        (**self).unsent()
    }

    fn lost(&self) -> u64 {
        (**self).lost()
    }

    fn joined(&self) -> u64 {
        (**self).joined()
    }

    fn descriptors(&self) -> Vec<RawFd> {
        (**self).descriptors()
    }

    fn max_frame(&self) -> usize {
        (**self).max_frame()
    }
}

/// The descriptors that a thread sleeps on. A list longer than a NIC's usual number of queues is allocated on the heap.
pub(crate) type PollFds<'a> = SmallVec<[PollFd<'a>; 16]>;

/// Sleeps until one of the descriptors is ready, or `timeout` has passed.
pub(crate) fn sleep_on<'a>(fds: impl IntoIterator<Item = PollFd<'a>>, timeout: Duration) -> io::Result<PollFds<'a>> {
    // The list for poll(2) avoids the heap, because a thread may sleep between any two packets.
    let mut fds: PollFds<'a> = fds.into_iter().collect();
    // A timeout beyond the range of `Timespec` is treated as infinite.
    match event::poll(&mut fds, Timespec::try_from(timeout).ok().as_ref()) {
        Ok(_) | Err(Errno::INTR) => Ok(fds),
        Err(e) => Err(e.into()),
    }
}

/// Sleeps until the descriptor is readable, or `timeout` has passed.
pub(crate) fn sleep_until_readable(fd: impl AsFd, timeout: Duration) -> io::Result<()> {
    sleep_on([PollFd::from_borrowed_fd(fd.as_fd(), PollFlags::IN)], timeout).map(drop)
}
