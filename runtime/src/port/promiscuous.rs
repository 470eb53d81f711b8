//! An interface that takes in frames for everybody: the kernel ends that with the socket, however the process ends.
#![allow(unsafe_code)]

use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

/// An interface is promiscuous as long as this lives.
#[derive(Debug)]
pub(crate) struct Promiscuous {
    /// It receives nothing.
    socket: OwnedFd,
    membership: libc::packet_mreq,
}

impl Promiscuous {
    /// The interface with this number, in the caller's network namespace.
    pub(crate) fn new(ifindex: u32) -> io::Result<Promiscuous> {
        // SAFETY: no address is passed.
        let fd = unsafe { libc::socket(libc::AF_PACKET, libc::SOCK_RAW | libc::SOCK_CLOEXEC, 0) };
        if fd < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: the kernel just made it for us.
        let socket = unsafe { OwnedFd::from_raw_fd(fd) };
        let membership = libc::packet_mreq {
            mr_ifindex: ifindex as libc::c_int,
            mr_type: libc::PACKET_MR_PROMISC as libc::c_ushort,
            mr_alen: 0,
            mr_address: [0; 8],
        };
        let it = Promiscuous { socket, membership };
        it.set(libc::PACKET_ADD_MEMBERSHIP)?;
        Ok(it)
    }

    fn set(&self, option: libc::c_int) -> io::Result<()> {
        let (value, len) = (std::ptr::from_ref(&self.membership).cast(), size_of::<libc::packet_mreq>());
        // SAFETY: both options take this structure, and the kernel only reads it.
        let result = unsafe { libc::setsockopt(self.socket.as_raw_fd(), libc::SOL_PACKET, option, value, len as _) };
        if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
    }
}

impl Drop for Promiscuous {
    /// Closing the socket would do, but a child process that is just being started has a copy of it. An interface that is gone
    /// needs nothing.
    fn drop(&mut self) {
        let _ = self.set(libc::PACKET_DROP_MEMBERSHIP);
    }
}
