//! The transfer of a ring to another process: the sender connects to the receiver's socket and sends a message, with the ring's memory
//! attached.

use std::io::{self, ErrorKind, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;

use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage, SendFlags,
    recvmsg, sendmsg,
};

use super::ring::{LINES, Reader};

/// Length of the message: a magic number, its version, and the length of the ring.
const LEN: usize = 16;

fn greeting() -> [u8; LEN] {
    let mut said = *b"softnic\0\0\0\0\x01\0\0\0\0";
    said[12..].copy_from_slice(&LINES.to_be_bytes());
    said
}

/// Sends a ring.
pub(super) fn hand_over(to: &UnixStream, ring: &OwnedFd) -> io::Result<()> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut beside = SendAncillaryBuffer::new(&mut space);
    let rings = [ring.as_fd()];
    beside.push(SendAncillaryMessage::ScmRights(&rings));
    let said = greeting();
    match sendmsg(to, &[IoSlice::new(&said)], &mut beside, SendFlags::NOSIGNAL | SendFlags::DONTWAIT)? {
        LEN => Ok(()),
        _ => Err(ErrorKind::WriteZero.into()),
    }
}

/// Receives a ring; `WouldBlock` as long as no message has arrived.
pub(super) fn take_over(from: &UnixStream) -> io::Result<Reader> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(4))];
    let mut beside = RecvAncillaryBuffer::new(&mut space);
    let mut said = [0; LEN];
    let flags = RecvFlags::DONTWAIT | RecvFlags::CMSG_CLOEXEC;
    let got = recvmsg(from, &mut [IoSliceMut::new(&mut said)], &mut beside, flags)?.bytes;
    let fds = beside.drain().filter_map(|message| match message {
        RecvAncillaryMessage::ScmRights(fds) => Some(fds),
        _ => None,
    });
    // All attached descriptors are collected, so that the unwanted ones are closed.
    let fds: Vec<OwnedFd> = fds.flatten().collect();
    match &fds[..] {
        [] if got == 0 => Err(ErrorKind::UnexpectedEof.into()),
        [ring] if got == LEN && said == greeting() => Reader::open(ring),
        _ => Err(ErrorKind::InvalidData.into()),
    }
}

/// Wakes the process at the other end if it sleeps. If the socket buffer is full, a wake-up is already pending.
///
/// # Errors
/// When the other process is gone.
pub(super) fn wake(peer: &UnixStream) -> io::Result<()> {
    match rustix::net::send(peer, &[1], SendFlags::NOSIGNAL | SendFlags::DONTWAIT) {
        Ok(_) | Err(rustix::io::Errno::AGAIN) => Ok(()),
        Err(error) => Err(error.into()),
    }
}

/// Removes the wake-ups from a connection.
pub(super) fn drain(peer: &UnixStream) {
    let mut bytes = [0u8; 256];
    while let Ok((_, count)) = rustix::net::recv(peer, &mut bytes[..], RecvFlags::DONTWAIT)
        && count == bytes.len()
    {}
}
