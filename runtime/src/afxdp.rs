//! Backend `afxdp:IF`: RoCE packets of an Ethernet device past the kernel, by AF_XDP sockets; all other traffic stays with it.
//!
//! A small XDP program sends what comes for UDP port 4791 to the socket of the queue that it came in by. There is a socket for
//! every receive queue, because a socket gets nothing from any other; which one a packet takes, the device decides. Made for
//! Linux 6.6 and later; on older kernels frames are limited to one chunk ([`PacketIo::max_frame`](crate::PacketIo::max_frame)).
//!
//! Everything is opened in the network namespace of the calling thread, and may be used from another.

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

/// The fewest chunks that a ring makes sense with.
const MIN_CHUNKS: u32 = 64;
/// Chunks for frames that come in of a queue that has them to itself: 2048 frames of path MTU 4096, which is two messages of 4 MiB. They
/// are used in turn, so more of them do not stay in the cache: twice as many cost a quarter of the bandwidth on four queues.
const RX_CHUNKS: u32 = 4096;
/// Chunks for frames that come in of all queues together, as long as each has [`FEW_RX_CHUNKS`].
const ALL_RX_CHUNKS: u32 = 4 * RX_CHUNKS;
/// Up to how many of them together a queue has as many as its NIC's ring needs, where that is more than its share: 1 GiB.
const MOST_RX_CHUNKS: u32 = 16 * ALL_RX_CHUNKS;
/// The chunks that a queue has where memory may not be locked for more: below the usual limit of 8 MiB.
const FEW_RX_CHUNKS: u32 = 1024;

/// Which of the frames that come in go to the sockets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Takes {
    /// RoCE packets; all others stay with the kernel.
    Roce,
    /// All of them: the kernel hears nothing of the device any more.
    Everything,
}

/// How to open a device.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Options {
    /// How many of the receive queues to open, from the first on; all if `None`. What comes in by another stays with the kernel.
    pub queues: Option<u32>,
    /// Chunks of 4096 bytes for frames that come in, for each queue; made a power of two, not below this number. There are fewer, but at least
    /// 1024, where the system does not let so much memory be locked, and where the device has many queues; and more where the rings of the
    /// device have many places.
    pub rx_chunks: u32,
    /// Whether there are never fewer chunks than that: then it is an error where so much memory may not be locked.
    pub all_rx_chunks: bool,
    /// Chunks for frames to send, for each queue; made a power of two.
    pub tx_chunks: u32,
    /// Whether the device reads and writes frames itself.
    pub mode: CopyMode,
    /// Whether to use frames in two chunks, where the kernel can and the MTU of the device needs it.
    pub multi_buffer: bool,
    /// Which of the frames that come in go to the sockets.
    pub takes: Takes,
    /// The longest frame to carry, where the device has them and `multi_buffer` is on.
    pub max_frame: usize,
}

impl Default for Options {
    /// All queues, 34 MiB for each of up to four, or less where the limit of locked memory is lower.
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
    /// As the options of a device ask for it. Who asks for a number of chunks has it.
    pub fn for_device(mode: CopyMode, queues: Option<u32>, rx_chunks: Option<u32>) -> Options {
        let all_rx_chunks = rx_chunks.is_some();
        Options { mode, queues, rx_chunks: rx_chunks.unwrap_or(RX_CHUNKS), all_rx_chunks, ..Options::default() }
    }

    /// Chunks of one of so many queues for frames that come in, where the NIC's ring has so many places.
    fn rx_chunks_of(&self, queues: u32, places: Option<u32>) -> u32 {
        let share = (ALL_RX_CHUNKS / queues).max(FEW_RX_CHUNKS);
        let of_nic = places.filter(|_| self.mode != CopyMode::Copy).map_or(0, enough_for);
        let asked = if self.all_rx_chunks { self.rx_chunks } else { self.rx_chunks.min(share) };
        asked.max(if of_nic <= MOST_RX_CHUNKS / queues { of_nic } else { 0 })
    }
}

/// Chunks that are enough for a NIC whose ring has so many places, so that its driver never finds none in zero-copy. It fills the places, which
/// is a quarter; frames that wait for us take half, as the ring that they wait in is no longer; the rest is for those that we have at hand. A
/// driver that finds none loses frames at best: igb (Linux 7.2) takes a place that it left empty for one with a frame, and a chunk has two
/// owners then.
fn enough_for(places: u32) -> u32 {
    places.saturating_mul(4)
}

/// Counters of one queue.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Statistics {
    /// Frames that came and found no chunk, or no chunk long enough.
    pub rx_dropped: u64,
    /// Frames that came and found no place in the ring.
    pub rx_ring_full: u64,
    /// How often the kernel found no chunk to fill.
    pub rx_fill_ring_empty: u64,
    /// Frames that came and were longer than any that we carry.
    pub rx_too_long: u64,
    /// Frames that came in two neighbouring chunks: only the second part was moved.
    pub rx_moved: u64,
    /// Frames that came in two chunks that were no neighbours, or in more: all of it was copied.
    pub rx_copied: u64,
    /// Frames to send that the device had no room for.
    pub tx_lost: u64,
    /// Frames to send that the kernel found wrong.
    pub tx_invalid: u64,
}

impl AfXdp {
    /// Opens the queues of a device. The program is attached until the last of them is dropped. Where that costs the link a moment, it is
    /// waited for.
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

    /// Whether this process may open a device, as far as can be told without touching it: a program that is attached may cost the
    /// link a moment.
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
