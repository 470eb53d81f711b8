//! A socket with the memory for its frames. The amount of memory depends on the limit of locked memory.

use super::MIN_CHUNKS;
use super::error::AfXdpError;
use super::socket::Socket;
use super::umem::{Chunk, Umem};

/// The step that an error message names when the rings cannot be created.
pub(super) const RINGS: &str = "make the rings of an AF_XDP socket";

/// The size of a ring for `chunks` chunks.
pub(super) fn ring_size(chunks: u32) -> u32 {
    chunks.clamp(MIN_CHUNKS, 1 << 20).next_power_of_two()
}

/// Creates a socket that is not bound yet.
pub(super) fn open_socket() -> Result<Socket, AfXdpError> {
    Socket::new().map_err(|e| match e.raw_os_error() {
        Some(libc::EAFNOSUPPORT) => AfXdpError::NoAfXdp,
        _ => AfXdpError::new("open an AF_XDP socket", e),
    })
}

/// Creates a socket with its memory. If the limit of locked memory does not permit `rx_size` chunks for incoming frames, there are fewer,
/// but at least `least`.
pub(super) fn register(
    mut rx_size: u32,
    least: u32,
    tx_size: u32,
) -> Result<(Socket, Umem, Vec<Chunk>, u32), AfXdpError> {
    loop {
        let socket = open_socket()?;
        let (umem, free) = Umem::new(rx_size + tx_size).map_err(AfXdpError::when("get memory for frames"))?;
        match socket.register(&umem) {
            Ok(()) => return Ok((socket, umem, free, rx_size)),
            Err(e) if matches!(e.raw_os_error(), Some(libc::ENOBUFS | libc::EPERM)) => {
                if rx_size <= least {
                    return Err(AfXdpError::LockedMemory { kib: umem.memory().len() >> 10 });
                }
                rx_size /= 2;
            }
            Err(e) => return Err(AfXdpError::new("register memory for frames", e)),
        }
    }
}
