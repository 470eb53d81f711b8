//! Who is at the other end of a UNIX socket.
#![allow(unsafe_code)]

use std::io;
use std::os::fd::{AsFd, AsRawFd};

/// A process at the other end of a connection, as it was when it connected.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Peer {
    /// Its number; `None` where it is in a PID namespace that is not seen from ours: in another container.
    pub(crate) pid: Option<u32>,
    pub(crate) uid: u32,
}

impl Peer {
    /// Of a connected socket.
    pub(crate) fn of(socket: impl AsFd) -> io::Result<Peer> {
        let mut peer = libc::ucred { pid: 0, uid: 0, gid: 0 };
        let mut len = size_of::<libc::ucred>() as libc::socklen_t;
        let fd = socket.as_fd().as_raw_fd();
        // SAFETY: the kernel writes at most `len` bytes to `peer`, which has as many, all of them numbers.
        match unsafe { libc::getsockopt(fd, libc::SOL_SOCKET, libc::SO_PEERCRED, (&raw mut peer).cast(), &mut len) } {
            0 => Ok(Peer { pid: u32::try_from(peer.pid).ok().filter(|&pid| pid != 0), uid: peer.uid }),
            _ => Err(io::Error::last_os_error()),
        }
    }
}
