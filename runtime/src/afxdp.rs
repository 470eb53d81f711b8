//! Backend `afxdp:IF`: RoCE packets of an Ethernet device bypass the kernel by AF_XDP sockets. All other traffic stays with the kernel.
//!
//! A small XDP program redirects packets for UDP port 4791 to the socket of the queue at which they arrived. Every receive queue needs its
//! own socket, because a socket receives nothing from other queues, and the device decides which queue gets a packet. Written for Linux 6.6
//! and later; on older kernels a frame is limited to one chunk ([`PacketIo::max_frame`](crate::PacketIo::max_frame)).
//!
//! Everything is opened in the network namespace of the calling thread, and may be used by a thread of another namespace.

mod attachment;
mod bind;
mod carrier;
mod device;
mod drivers;
mod error;
mod handed;
mod holder;
mod mode;
mod patience;
mod program;
mod queue;
mod registered;
mod rings;
mod socket;
mod umem;

use std::sync::Arc;

use attachment::Attachment;
pub(crate) use attachment::redirect_to_sockets;
use carrier::Carrier;
pub use device::Device;
pub use error::AfXdpError;
pub(crate) use handed::{Handed, Shape};
pub use holder::Holder;
pub use mode::CopyMode;
pub use queue::AfXdp;

use crate::io::MAX_FRAME;

/// The minimum number of chunks of a ring.
const MIN_CHUNKS: u32 = 64;
/// Number of chunks for incoming frames of a queue that shares with no other queue: 2048 frames of path MTU 4096, which is two messages of
/// 4 MiB. Chunks are used in turn, so a larger number does not stay in the cache: twice as many cost a quarter of the bandwidth on four
/// queues.
const RX_CHUNKS: u32 = 4096;
/// Number of chunks for incoming frames of all queues together, as long as each queue has at least [`FEW_RX_CHUNKS`].
const ALL_RX_CHUNKS: u32 = 4 * RX_CHUNKS;
/// Limit on the chunks of all queues together: up to this limit a queue gets as many chunks as its NIC's ring needs, even if that exceeds
/// its share. 1 GiB.
const MOST_RX_CHUNKS: u32 = 16 * ALL_RX_CHUNKS;
/// Number of chunks of a queue if the limit of locked memory permits no more: below the usual limit of 8 MiB.
const FEW_RX_CHUNKS: u32 = 1024;

/// Selects the incoming frames that are redirected to the sockets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Takes {
    /// RoCE packets; all others stay with the kernel.
    Roce,
    /// All frames: the kernel receives nothing from the device any more.
    Everything,
}

/// The options for opening a device.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Options {
    /// Number of receive queues to open, from the first one; all if `None`. Packets that arrive at other queues stay with the kernel.
    pub queues: Option<u32>,
    /// Number of chunks of 4096 bytes for incoming frames, for each queue. It is rounded up to a power of two. There are fewer chunks, but
    /// at least 1024, if the limit of locked memory is too low, or if the device has many queues. There are more if the rings of the device
    /// have many entries.
    pub rx_chunks: u32,
    /// Whether `rx_chunks` is a minimum. Then opening fails if the limit of locked memory is too low for it.
    pub all_rx_chunks: bool,
    /// Number of chunks for frames to send, for each queue; rounded up to a power of two.
    pub tx_chunks: u32,
    /// Zero-copy or copies.
    pub mode: CopyMode,
    /// Whether frames may span two chunks, if the kernel supports that and the MTU of the device requires it.
    pub multi_buffer: bool,
    /// The incoming frames that are redirected to the sockets.
    pub takes: Takes,
    /// The longest frame to carry, if the device carries such frames and `multi_buffer` is set.
    pub max_frame: usize,
}

impl Default for Options {
    /// All queues; 34 MiB for each of up to four queues, or less if the limit of locked memory is lower.
    fn default() -> Options {
        Options {
            queues: None,
            rx_chunks: RX_CHUNKS,
            all_rx_chunks: false,
            tx_chunks: 512,
            mode: CopyMode::Auto,
            multi_buffer: true,
            takes: Takes::Roce,
            max_frame: MAX_FRAME,
        }
    }
}

impl Options {
    /// The options for a device, from the user's settings. An explicit number of chunks is a minimum.
    pub fn for_device(mode: CopyMode, queues: Option<u32>, rx_chunks: Option<u32>) -> Options {
        let all_rx_chunks = rx_chunks.is_some();
        Options { mode, queues, rx_chunks: rx_chunks.unwrap_or(RX_CHUNKS), all_rx_chunks, ..Options::default() }
    }

    /// The number of chunks for incoming frames of one queue, out of `queues` queues, if the NIC's ring has `places` entries.
    fn rx_chunks_of(&self, queues: u32, places: Option<u32>) -> u32 {
        let share = (ALL_RX_CHUNKS / queues).max(FEW_RX_CHUNKS);
        let of_nic = places.filter(|_| self.mode != CopyMode::Copy).map_or(0, enough_for);
        let asked = if self.all_rx_chunks { self.rx_chunks } else { self.rx_chunks.min(share) };
        asked.max(if of_nic <= MOST_RX_CHUNKS / queues { of_nic } else { 0 })
    }
}

/// The number of chunks that is enough for a NIC whose ring has `places` entries, so that its driver always finds a chunk in zero-copy. The
/// NIC's ring takes a quarter. The frames that wait for this process take half, because the ring that they wait in is no longer than that.
/// The rest is for the frames in use by this process. If the driver finds no chunk, frames are lost at best. At worst, igb (Linux 7.2)
/// takes an entry that it left empty for one with a frame, and then a chunk has two owners.
fn enough_for(places: u32) -> u32 {
    places.saturating_mul(4)
}

/// Counters of one queue.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Statistics {
    /// Incoming frames for which there was no chunk, or no chunk long enough.
    pub rx_dropped: u64,
    /// Incoming frames for which the RX ring had no free entry.
    pub rx_ring_full: u64,
    /// How often the kernel found the fill ring empty.
    pub rx_fill_ring_empty: u64,
    /// Incoming frames longer than the maximum.
    pub rx_too_long: u64,
    /// Incoming frames in two adjacent chunks: only the second part was moved.
    pub rx_moved: u64,
    /// Incoming frames in two chunks that are not adjacent, or in more chunks: the whole frame was copied.
    pub rx_copied: u64,
    /// Frames to send for which the device had no room.
    pub tx_lost: u64,
    /// Frames to send that the kernel rejected as invalid.
    pub tx_invalid: u64,
}

impl AfXdp {
    /// Opens the queues of a device. The program is attached until the last queue is dropped. If attaching interrupts the link, this call
    /// waits for the link to return.
    pub fn open(interface: &str, options: &Options) -> Result<Vec<AfXdp>, AfXdpError> {
        let device = Arc::new(Device::find(interface)?);
        let queues = options.queues.unwrap_or(device.rx_queues);
        if queues == 0 || queues > device.rx_queues {
            return Err(AfXdpError::NoSuchQueue { interface: interface.into(), has: device.rx_queues, asked: queues });
        }
        let fragments = options.multi_buffer && queue::needs_two_chunks(&device);
        let carrier = Carrier::before(&device);
        let attachment = Arc::new(Attachment::new(&device, options.takes, fragments)?);
        if options.mode == CopyMode::ZeroCopy && !attachment.native() {
            return Err(bind::no_zero_copy(&device));
        }
        let options = Options { rx_chunks: options.rx_chunks_of(queues, device.rx_places), ..options.clone() };
        let queues: Vec<AfXdp> =
            (0..queues).map(|n| AfXdp::open_queue(&device, n, &options, &attachment)).collect::<Result<_, _>>()?;
        carrier.wait(&device)?;
        Ok(queues)
    }

    /// Whether this process may open a device, as far as that can be tested without attaching a program, which may interrupt the link.
    pub fn check(interface: &str) -> Result<(), AfXdpError> {
        Device::find(interface)?;
        Attachment::check()?;
        registered::open_socket().map(|_| ())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn queues_share_the_usual_number_of_chunks_and_whoever_asks_for_one_has_it() {
        let usual = Options::for_device(CopyMode::Auto, None, None);
        assert_eq!([1, 4, 8, 64].map(|queues| usual.rx_chunks_of(queues, None)), [4096, 4096, 2048, 1024]);
        for asked in [64, 4096, 65536] {
            let options = Options::for_device(CopyMode::Auto, None, Some(asked));
            assert_eq!([1, 4, 8, 64].map(|queues| options.rx_chunks_of(queues, None)), [asked; 4]);
        }
    }

    #[test]
    fn a_nic_has_chunks_for_its_rings_whatever_is_asked_for_but_not_all_memory() {
        let usual = Options::for_device(CopyMode::Auto, None, None);
        assert_eq!(
            [256, 1024, 4096, 8192].map(|places| usual.rx_chunks_of(2, Some(places))),
            [4096, 4096, 16384, 32768]
        );
        assert_eq!([16, 17, 64].map(|queues| usual.rx_chunks_of(queues, Some(4096))), [16384, 1024, 1024]);
        let few = Options::for_device(CopyMode::ZeroCopy, None, Some(64));
        assert_eq!(few.rx_chunks_of(2, Some(256)), 1024);
        let copies = Options::for_device(CopyMode::Copy, None, Some(64));
        assert_eq!(copies.rx_chunks_of(2, Some(4096)), 64, "the ring is full of the kernel's own memory");
    }
}
