//! The descriptors that show incoming frames at a driver's ports.

use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::sync::atomic::{AtomicBool, Ordering};

use rustix::event::{PollFd, PollFlags};

/// File descriptors, each of which becomes readable when a frame arrives at its port.
///
/// They form a list for poll(2) instead of an epoll set: with a set, the kernel makes a callback for every incoming frame, whether a thread
/// sleeps or not.
#[derive(Debug)]
pub(crate) struct Readiness(Vec<Member>);

#[derive(Debug)]
struct Member {
    /// The port's number.
    port: usize,
    fd: OwnedFd,
    /// The port is gone: its descriptor may stay readable forever.
    gone: AtomicBool,
}

impl Readiness {
    /// Creates the list from the numbers and the descriptors of the ports.
    pub(super) fn of(ports: impl IntoIterator<Item = (usize, Vec<OwnedFd>)>) -> Readiness {
        let members = |(port, fds): (usize, Vec<OwnedFd>)| {
            fds.into_iter().map(move |fd| Member { port, fd, gone: AtomicBool::new(false) })
        };
        Readiness(ports.into_iter().flat_map(members).collect())
    }

    /// Removes a port from the next sleep on.
    pub(super) fn remove(&self, port: usize) {
        self.0
            .iter()
            .filter(|member| member.port == port)
            .for_each(|member| member.gone.store(true, Ordering::Release));
    }

    /// The descriptors to sleep on, without those of removed ports.
    pub(crate) fn poll_fds(&self) -> impl Iterator<Item = PollFd<'_>> {
        let there = self.0.iter().filter(|member| !member.gone.load(Ordering::Acquire));
        there.map(|member| PollFd::new(&member.fd, PollFlags::IN))
    }

    /// All descriptors.
    pub(crate) fn descriptors(&self) -> impl Iterator<Item = RawFd> {
        self.0.iter().map(|member| member.fd.as_raw_fd())
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Write, pipe};

    use std::time::Duration;

    use super::*;
    use crate::io::sleep_on;

    #[test]
    fn a_port_that_is_gone_wakes_nobody() {
        let ((a, _a), (b, mut to_b)) = (pipe().unwrap(), pipe().unwrap());
        let readiness = Readiness::of([(1, vec![a.into()]), (2, vec![b.into()])]);
        let shown = || {
            let fds = sleep_on(readiness.poll_fds(), Duration::ZERO).unwrap();
            fds.iter().filter(|fd| !fd.revents().is_empty()).count()
        };
        assert_eq!(shown(), 0);
        to_b.write_all(&[1]).unwrap();
        assert_eq!(shown(), 1);
        readiness.remove(2);
        assert_eq!((shown(), readiness.descriptors().count()), (0, 2));
    }
}
