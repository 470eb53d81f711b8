//! One descriptor for the frames of several ports.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::event::epoll;

/// Is readable when a frame has come in at one of its ports.
pub(super) struct Readiness {
    set: OwnedFd,
    /// By the port's number. The set knows them by these descriptors, and keeps what they stand for open elsewhere until they are removed.
    members: Vec<(usize, OwnedFd)>,
}

impl Readiness {
    pub(super) fn of(members: Vec<(usize, OwnedFd)>) -> io::Result<Readiness> {
        let set = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        for (number, fd) in &members {
            epoll::add(&set, fd, epoll::EventData::new_u64(*number as u64), epoll::EventFlags::IN)?;
        }
        Ok(Readiness { set, members })
    }

    /// Nobody waits for a port any more.
    pub(super) fn remove(&mut self, number: usize) {
        for (_, fd) in self.members.extract_if(.., |(member, _)| *member == number) {
            // It is there.
            let _ = epoll::delete(&self.set, &fd);
        }
    }

    pub(super) fn try_clone(&self) -> io::Result<OwnedFd> {
        self.set.try_clone()
    }
}

impl AsFd for Readiness {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.set.as_fd()
    }
}
