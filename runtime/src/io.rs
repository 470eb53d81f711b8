//! The interface between the loop and a packet IO backend.

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

/// Takes a frame that came in, and its layout.
pub type TakeLocated<'a> = dyn FnMut(&mut [u8], Result<Layout, Error>) + 'a;

/// Where frames come from and go to, in batches and in the backend's own memory. Nothing here waits but [`PacketIo::wait`].
pub trait PacketIo {
    /// Hands the frames that have come in, at most `limit`, to `take`, one by one; says how many. A frame may be written to
    /// during the call and is free afterwards.
    fn receive(&mut self, limit: usize, take: &mut dyn FnMut(&mut [u8])) -> io::Result<usize>;

    /// [`PacketIo::receive`], with the layout of each frame: a backend that looks for it anyway hands it on, so that it is found once.
    fn receive_located(&mut self, limit: usize, take: &mut TakeLocated<'_>) -> io::Result<usize> {
        self.receive(limit, &mut |frame| {
            let layout = Layout::locate(frame);
            take(frame, layout);
        })
    }

    /// Asks `next` to write frames, at most `limit` and only while there is room, until it says that it has none. What it wrote
    /// leaves as one batch. Says how many it wrote; those that were lost on the way out are among them.
    ///
    /// To be called regularly even when there is nothing to send: a backend may have kept what the system had no room for.
    fn transmit(&mut self, limit: usize, next: &mut dyn FnMut(&mut TxFrame<'_>) -> bool) -> io::Result<usize>;

    /// Sleeps until a frame has come in, or there is room to send that was missing, or `timeout` has passed. It may return early:
    /// whoever calls it looks again.
    fn wait(&mut self, timeout: Duration) -> io::Result<()>;

    /// Descriptors of which one can be read from when a frame has come in, for a thread that sleeps without holding the backend. It
    /// calls [`PacketIo::prepare_sleep`] before.
    fn readiness(&self) -> io::Result<Vec<OwnedFd>>;

    /// From now on a frame that comes in is shown by a descriptor; `false` when one is there already.
    fn prepare_sleep(&mut self) -> bool {
        true
    }

    /// After what time something here wants to be sent or received although nothing comes in: frames that are held back.
    fn due_in(&self) -> Option<Duration> {
        None
    }

    /// After what time the next of the frames leaves that were sent and are held back here, as a wire that delays them would.
    fn leaves_in(&self) -> Option<Duration> {
        None
    }

    /// Frames that wait here because the system has not taken them yet.
    fn unsent(&self) -> usize {
        0
    }

    /// Frames of both directions that were lost here, as far as the backend knows.
    fn lost(&self) -> u64;

    /// Frames that came in several pieces and were copied together here.
    fn joined(&self) -> u64 {
        0
    }

    /// The descriptors that it holds: a process that forks closes them in the child, where they would keep the wire busy.
    fn descriptors(&self) -> Vec<RawFd> {
        Vec::new()
    }

    /// The longest frame that it carries.
    fn max_frame(&self) -> usize {
        MAX_FRAME
    }
}

/// A line that says nothing of itself: it is asked now and then.
pub(crate) trait Line: Send {
    /// Whether it is up, after what can be done for it.
    fn look(&mut self) -> bool;
}

/// A device that lets in frames to multicast groups, those that it is told.
pub(crate) trait GroupFilter: fmt::Debug + Send + Sync {
    /// Frames to these groups come in. Others may, too.
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

/// What a thread sleeps on. More than a NIC usually has queues cost an allocation.
pub(crate) type PollFds<'a> = SmallVec<[PollFd<'a>; 16]>;

/// Sleeps until one of them has what it asks for, or `timeout` has passed.
pub(crate) fn sleep_on<'a>(fds: impl IntoIterator<Item = PollFd<'a>>, timeout: Duration) -> io::Result<PollFds<'a>> {
    // No list for poll(2) is made in memory of its own: a thread may sleep between any two packets.
    let mut fds: PollFds<'a> = fds.into_iter().collect();
    // Longer than the system can say is as good as for ever.
    match event::poll(&mut fds, Timespec::try_from(timeout).ok().as_ref()) {
        Ok(_) | Err(Errno::INTR) => Ok(fds),
        Err(e) => Err(e.into()),
    }
}

/// Sleeps until there is something to read, or `timeout` has passed.
pub(crate) fn sleep_until_readable(fd: impl AsFd, timeout: Duration) -> io::Result<()> {
    sleep_on([PollFd::from_borrowed_fd(fd.as_fd(), PollFlags::IN)], timeout).map(drop)
}
