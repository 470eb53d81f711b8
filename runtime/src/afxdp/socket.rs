//! The AF_XDP socket: the system calls that create it, bind it, wake the kernel and read statistics.
#![allow(unsafe_code)]

use std::ffi::c_int;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

use super::patience::patiently;
use super::umem::{CHUNK, Umem};

/// A socket of the family AF_XDP.
#[derive(Debug)]
pub(super) struct Socket(OwnedFd);

impl AsFd for Socket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

impl From<OwnedFd> for Socket {
    /// Wraps a socket that another process created.
    fn from(fd: OwnedFd) -> Socket {
        Socket(fd)
    }
}

impl From<Socket> for OwnedFd {
    fn from(socket: Socket) -> OwnedFd {
        socket.0
    }
}

/// The result of a kick.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kick {
    /// The kernel has processed the ring.
    Done,
    /// The kernel sent some frames, and there are more to send, or there is no room at the moment.
    Again,
    /// The kernel lost a frame: the queue of the device is full.
    Lost,
    /// The kernel can send nothing now.
    Later,
}

/// Interprets the error of a kick.
fn refused(error: io::Error, zero_copy: bool) -> io::Result<Kick> {
    match error.raw_os_error() {
        Some(libc::EAGAIN) => Ok(Kick::Again),
        Some(libc::EBUSY) => Ok(Kick::Lost),
        // A device that is down is like an unplugged cable: the link may come back.
        Some(libc::ENOBUFS | libc::ENETDOWN | libc::EINTR) => Ok(Kick::Later),
        // In zero-copy the driver itself answers, and its queues do not exist while it resets the NIC. An interface that is gone for good
        // returns the same errors, but the kernel reports the removal separately.
        Some(libc::ENXIO | libc::EINVAL) if zero_copy => Ok(Kick::Later),
        _ => Err(error),
    }
}

fn check(result: c_int) -> io::Result<c_int> {
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(result) }
}

impl Socket {
    /// Creates a socket, without memory and rings.
    pub(super) fn new() -> io::Result<Socket> {
        // SAFETY: no address is passed.
        let fd = check(unsafe { libc::socket(libc::AF_XDP, libc::SOCK_RAW | libc::SOCK_CLOEXEC, 0) })?;
        // SAFETY: the kernel just created this descriptor, and nothing else owns it.
        Ok(Socket(unsafe { OwnedFd::from_raw_fd(fd) }))
    }

    /// Sets an option. `T` must be the type of the option's value: the callers in this module pass the structures named after the option.
    fn set<T>(&self, option: c_int, value: &T) -> io::Result<()> {
        let (fd, len) = (self.0.as_raw_fd(), size_of::<T>() as libc::socklen_t);
        // SAFETY: `value` is valid for `len` bytes, and the kernel only reads them.
        check(unsafe { libc::setsockopt(fd, libc::SOL_XDP, option, std::ptr::from_ref(value).cast(), len) })?;
        Ok(())
    }

    /// Reads an option; the kernel fills in at most the size of `T`.
    fn get<T: Copy>(&self, option: c_int, mut value: T) -> io::Result<T> {
        let mut len = size_of::<T>() as libc::socklen_t;
        let at = std::ptr::from_mut(&mut value).cast();
        // SAFETY: `value` is valid for `len` bytes, and any bytes are a valid value of the numeric structures that this is used for.
        check(unsafe { libc::getsockopt(self.0.as_raw_fd(), libc::SOL_XDP, option, at, &mut len) })?;
        Ok(value)
    }

    /// Registers the memory for frames with the kernel, which locks the pages.
    pub(super) fn register(&self, umem: &Umem) -> io::Result<()> {
        let registration = libc::xdp_umem_reg {
            addr: umem.memory().start().as_ptr() as u64,
            len: umem.memory().len() as u64,
            chunk_size: CHUNK as u32,
            headroom: 0,
            flags: 0,
            tx_metadata_len: 0,
        };
        self.set(libc::XDP_UMEM_REG, &registration)
    }

    /// Creates the four rings. Sizes are powers of two; `tx` is also the size of the completion ring. The fill ring has twice as many
    /// entries as there are chunks, because the kernel publishes a received frame before it returns the fill ring entries of the frame's
    /// chunks.
    pub(super) fn make_rings(&self, fill: u32, rx: u32, tx: u32) -> io::Result<()> {
        self.set(libc::XDP_UMEM_FILL_RING, &fill)?;
        self.set(libc::XDP_UMEM_COMPLETION_RING, &tx)?;
        self.set(libc::XDP_RX_RING, &rx)?;
        self.set(libc::XDP_TX_RING, &tx)
    }

    /// The offsets of the parts of the rings.
    pub(super) fn ring_offsets(&self) -> io::Result<libc::xdp_mmap_offsets> {
        let none = libc::xdp_ring_offset { producer: 0, consumer: 0, desc: 0, flags: 0 };
        self.get(libc::XDP_MMAP_OFFSETS, libc::xdp_mmap_offsets { rx: none, tx: none, fr: none, cr: none })
    }

    /// Binds the socket to a queue.
    pub(super) fn bind(&self, ifindex: u32, queue: u32, flags: u16) -> io::Result<()> {
        let address = libc::sockaddr_xdp {
            sxdp_family: libc::AF_XDP as u16,
            sxdp_flags: flags,
            sxdp_ifindex: ifindex,
            sxdp_queue_id: queue,
            sxdp_shared_umem_fd: 0,
        };
        let len = size_of_val(&address) as libc::socklen_t;
        // SAFETY: `address` is valid for `len` bytes, and the kernel only reads them.
        let bind = || check(unsafe { libc::bind(self.0.as_raw_fd(), std::ptr::from_ref(&address).cast(), len) });
        patiently(bind).map(|_| ())
    }

    /// Whether the device itself reads and writes the UMEM (zero-copy).
    pub(super) fn zero_copy(&self) -> io::Result<bool> {
        let options = self.get(libc::XDP_OPTIONS, libc::xdp_options { flags: 0 })?;
        Ok(options.flags & libc::XDP_OPTIONS_ZEROCOPY != 0)
    }

    /// The kernel's counters.
    pub(super) fn statistics(&self) -> io::Result<libc::xdp_statistics> {
        let zeros = libc::xdp_statistics {
            rx_dropped: 0,
            rx_invalid_descs: 0,
            tx_invalid_descs: 0,
            rx_ring_full: 0,
            rx_fill_ring_empty_descs: 0,
            tx_ring_empty_descs: 0,
        };
        self.get(libc::XDP_STATISTICS, zeros)
    }

    /// Makes the kernel process the TX ring. In copy mode the kernel sends at most 32 frames during this call.
    pub(super) fn kick(&self, zero_copy: bool) -> io::Result<Kick> {
        // SAFETY: no message and no address are passed.
        let sent =
            unsafe { libc::sendto(self.0.as_raw_fd(), std::ptr::null(), 0, libc::MSG_DONTWAIT, std::ptr::null(), 0) };
        if sent >= 0 {
            return Ok(Kick::Done);
        }
        refused(io::Error::last_os_error(), zero_copy)
    }

    /// Makes the kernel process the fill ring.
    pub(super) fn wake_receiver(&self) {
        // An error here (the device is down) also shows on sending, and costs only frames that do not arrive.
        // SAFETY: no room for a message and none for an address is passed.
        unsafe {
            libc::recvfrom(
                self.0.as_raw_fd(),
                std::ptr::null_mut(),
                0,
                libc::MSG_DONTWAIT,
                std::ptr::null_mut(),
                std::ptr::null_mut(),
            );
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_driver_that_resets_its_nic_is_tried_again_later() {
        let refused = |errno: i32, zero_copy| refused(io::Error::from_raw_os_error(errno), zero_copy).ok();
        for errno in [libc::ENXIO, libc::EINVAL] {
            assert_eq!(refused(errno, true), Some(Kick::Later));
            assert_eq!(refused(errno, false), None, "in copy mode the queue does not come back");
        }
        for zero_copy in [false, true] {
            assert_eq!(refused(libc::ENETDOWN, zero_copy), Some(Kick::Later));
            assert_eq!(refused(libc::EAGAIN, zero_copy), Some(Kick::Again));
            assert_eq!(refused(libc::EBUSY, zero_copy), Some(Kick::Lost));
            assert_eq!(refused(libc::EBADF, zero_copy), None);
        }
    }
}
