//! A queue that a privileged process creates for another process: a socket, and the file with the memory for its frames.

use std::os::fd::{AsFd, OwnedFd};

use rustix::fs::{FallocateFlags, MemfdFlags, SealFlags, fallocate, fcntl_add_seals, ftruncate, memfd_create};

use super::bind::bind;
use super::device::Device;
use super::error::AfXdpError;
use super::mode::CopyMode;
use super::registered::{RINGS, open_socket, ring_size};
use super::umem::{CHUNK, Umem};
use crate::bpf::XskMap;

/// Everything that a process needs to use a queue.
#[derive(Debug)]
pub(crate) struct Handed {
    pub(crate) socket: OwnedFd,
    pub(crate) memory: OwnedFd,
    pub(crate) shape: Shape,
}

/// The sizes of a queue's rings, and the properties of its frames.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Shape {
    /// Number of chunks for incoming frames.
    pub(crate) rx_chunks: u32,
    /// Number of chunks for frames to send.
    pub(crate) tx_chunks: u32,
    /// Whether a frame may span two chunks.
    pub(crate) multi_buffer: bool,
    /// Whether the program that feeds the queue accepts frames in several buffers.
    pub(crate) fragments: bool,
}

impl Handed {
    /// Creates a queue of a device in the network namespace of this thread, with `chunks` for incoming frames and for frames to send. The
    /// program of `sockets`, which accepts frames in several buffers, redirects frames to the queue.
    pub(crate) fn make(device: &Device, queue: u32, chunks: [u32; 2], sockets: &XskMap) -> Result<Handed, AfXdpError> {
        let ([rx_chunks, tx_chunks], fragments) = (chunks.map(ring_size), true);
        let chunks = rx_chunks + tx_chunks;
        let memory = frames_file(chunks).map_err(AfXdpError::when("get memory for frames"))?;
        // The file is mapped here only until it is registered with the kernel, which then keeps the pages.
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

/// Creates a file in memory for `chunks` chunks, whose length cannot be changed.
fn frames_file(chunks: u32) -> std::io::Result<OwnedFd> {
    let file = memfd_create(c"softnic frames", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING)?;
    let len = u64::from(chunks) * CHUNK as u64;
    ftruncate(&file, len)?;
    // All of the memory is locked soon. If there is too little, that is an error here, rather than a signal or a silent end later.
    fallocate(&file, FallocateFlags::empty(), 0, len)?;
    fcntl_add_seals(&file, SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL)?;
    Ok(file)
}
