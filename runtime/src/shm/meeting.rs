//! How a process hands another one a ring: it connects to its socket and says what follows, with the ring's memory beside it.

use std::io::{self, ErrorKind, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;

use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage, SendFlags,
    recvmsg, sendmsg,
};

use super::ring::{LINES, Reader};

/// What is said: what this is, its version, and how long the ring is.
const LEN: usize = 16;

fn greeting() -> [u8; LEN] {
    let mut said = *b"softnic\0\0\0\0\x01\0\0\0\0";
    said[12..].copy_from_slice(&LINES.to_be_bytes());
    said
}

/// Hands over a ring.
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

/// Takes a ring over; `WouldBlock` as long as nothing was said.
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
    // All of them: those that are not wanted are closed.
    let fds: Vec<OwnedFd> = fds.flatten().collect();
    match &fds[..] {
        [] if got == 0 => Err(ErrorKind::UnexpectedEof.into()),
        [ring] if got == LEN && said == greeting() => Reader::open(ring),
        _ => Err(ErrorKind::InvalidData.into()),
    }
}

/// Wakes who sleeps at the other end. Where the system has no room for more of these, it has one to find already.
///
/// # Errors
/// When nobody is there any more.
pub(super) fn wake(peer: &UnixStream) -> io::Result<()> {
    match rustix::net::send(peer, &[1], SendFlags::NOSIGNAL | SendFlags::DONTWAIT) {
        Ok(_) | Err(rustix::io::Errno::AGAIN) => Ok(()),
        Err(error) => Err(error.into()),
    }
}

/// Takes what woke us off a connection.
pub(super) fn drain(peer: &UnixStream) {
    let mut bytes = [0u8; 256];
    while let Ok((_, count)) = rustix::net::recv(peer, &mut bytes[..], RecvFlags::DONTWAIT)
        && count == bytes.len()
    {}
}
