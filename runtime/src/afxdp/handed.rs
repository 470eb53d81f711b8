//! A queue that a process with privileges makes for another: its socket, and the file that its frames lie in.

use std::os::fd::{AsFd, OwnedFd};

use rustix::fs::{FallocateFlags, MemfdFlags, SealFlags, fallocate, fcntl_add_seals, ftruncate, memfd_create};

use super::bind::bind;
use super::device::Device;
use super::error::AfXdpError;
use super::mode::CopyMode;
use super::registered::{RINGS, open_socket, ring_size};
use super::umem::{CHUNK, Umem};
use crate::bpf::XskMap;

/// What a process needs to use a queue.
#[derive(Debug)]
pub(crate) struct Handed {
    pub(crate) socket: OwnedFd,
    pub(crate) memory: OwnedFd,
    pub(crate) shape: Shape,
}

/// The sizes of a queue's rings, and what its frames may be like.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Shape {
    /// Chunks for frames that come in.
    pub(crate) rx_chunks: u32,
    /// Chunks for frames to send.
    pub(crate) tx_chunks: u32,
    /// Whether a frame may take two chunks.
    pub(crate) multi_buffer: bool,
    /// Whether the program that feeds it takes frames in several buffers.
    pub(crate) fragments: bool,
}

impl Handed {
    /// Makes a queue of a device that is in the network namespace of this thread, with as many chunks for frames that come in, and for frames to
    /// send; the program of `sockets`, which takes frames in several buffers, sends frames there.
    pub(crate) fn make(device: &Device, queue: u32, chunks: [u32; 2], sockets: &XskMap) -> Result<Handed, AfXdpError> {
        let ([rx_chunks, tx_chunks], fragments) = (chunks.map(ring_size), true);
        let chunks = rx_chunks + tx_chunks;
        let memory = frames_file(chunks).map_err(AfXdpError::when("get memory for frames"))?;
        // It is mapped here as long as it takes to tell the kernel, which then keeps the pages.
        let (umem, _) = Umem::in_file(memory.as_fd(), chunks).map_err(AfXdpError::when("map the memory for frames"))?;
        let socket = open_socket()?;
        socket.register(&umem).map_err(|e| match e.raw_os_error() {
            Some(libc::ENOBUFS | libc::EPERM) => AfXdpError::LockedMemory { kib: umem.memory().len() >> 10 },
            _ => AfXdpError::new("register memory for frames", e),
        })?;
        socket.make_rings(2 * rx_chunks, rx_chunks, tx_chunks).map_err(AfXdpError::when(RINGS))?;
        let multi_buffer = bind(&socket, device, queue, CopyMode::Copy, fragments)?;
        sockets.insert(queue, socket.as_fd()).map_err(AfXdpError::when("put a socket into the map"))?;
        let shape = Shape { rx_chunks, tx_chunks, multi_buffer, fragments };
        Ok(Handed { socket: socket.into(), memory, shape })
    }
}

/// A file in memory for so many chunks, whose length nobody can change.
fn frames_file(chunks: u32) -> std::io::Result<OwnedFd> {
    let file = memfd_create(c"softnic frames", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING)?;
    let len = u64::from(chunks) * CHUNK as u64;
    ftruncate(&file, len)?;
    // All of it is locked soon. Where there is not as much, that is an error here and no signal, nor an end without a word, later.
    fallocate(&file, FallocateFlags::empty(), 0, len)?;
    fcntl_add_seals(&file, SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL)?;
    Ok(file)
}
