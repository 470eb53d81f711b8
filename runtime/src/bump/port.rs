//! One of the wire's two interfaces: a socket on each receive queue, and one way out.

use std::io;
use std::os::fd::OwnedFd;
use std::time::Instant;

use super::promiscuous::Promiscuous;
use super::{BumpError, MAX_MTU};
use crate::afxdp::{AfXdp, AfXdpError, Device, Options, Takes};
use crate::io::PacketIo;

/// An MTU does not count the Ethernet header and tags.
pub(super) const HEADERS: usize = 14 + 8;
/// Chunks for each receive queue: 8 MiB.
const RX_CHUNKS: u32 = 2048;
const TX_CHUNKS: u32 = 1024;

/// A receive queue.
#[derive(Debug)]
pub(super) struct Queue {
    pub(super) io: AfXdp,
    /// When it was seen empty, if nothing but work came after that: whatever is in it now came later.
    pub(super) empty_at: Option<Instant>,
    /// Frames of the current batch that go on at once, and since when the oldest of them may have been there.
    pub(super) batch: Option<(Instant, u64)>,
}

/// Frames that the kernel dropped at an interface.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Dropped {
    /// They came in, and there was no place for them.
    pub(super) missed: u64,
    /// They came in, and were longer than any that we carry.
    pub(super) too_long: u64,
    /// They were to be sent.
    pub(super) refused: u64,
}

/// An interface.
#[derive(Debug)]
pub(super) struct Port {
    /// As it was when it was opened.
    pub(super) device: Device,
    /// Its MTU now.
    pub(super) mtu: usize,
    /// All frames leave by the first, so that they keep their order.
    pub(super) queues: Vec<Queue>,
    _promiscuous: Promiscuous,
}

impl Port {
    /// Takes all frames of an interface, whomever they are for.
    pub(super) fn open(interface: &str) -> Result<Port, BumpError> {
        let device = Device::find(interface)?;
        let mtu_error = |max| Err(BumpError::Mtu { interface: interface.into(), mtu: device.mtu, max });
        if device.mtu > MAX_MTU {
            return mtu_error(MAX_MTU);
        }
        let options = Options {
            rx_chunks: RX_CHUNKS,
            tx_chunks: TX_CHUNKS,
            takes: Takes::Everything,
            max_frame: MAX_MTU + HEADERS,
            ..Options::default()
        };
        let queues = AfXdp::open(interface, &options).map_err(|e| match e {
            AfXdpError::System { error, .. } if error.raw_os_error() == Some(libc::ENETDOWN) => {
                BumpError::Down(interface.into())
            }
            e => e.into(),
        })?;
        if let Some(io) = queues.first().filter(|io| !io.multi_buffer() && io.max_frame() < device.mtu + 14) {
            return mtu_error(io.max_frame() - HEADERS);
        }
        let promiscuous = Promiscuous::new(device.ifindex)
            .map_err(|error| BumpError::System { doing: "take in frames for other addresses (CAP_NET_RAW)", error })?;
        let queues = queues.into_iter().map(|io| Queue { io, empty_at: None, batch: None }).collect();
        Ok(Port { mtu: device.mtu, device, queues, _promiscuous: promiscuous })
    }

    /// Looks at the interface once more: it may be gone, or its MTU may have changed. One that grew counts as what it was: memory and
    /// sockets are made for that.
    pub(super) fn look(&mut self) -> Result<(), BumpError> {
        match Device::find(&self.device.name) {
            Ok(device) if device.ifindex == self.device.ifindex => self.mtu = device.mtu.min(self.device.mtu),
            _ => return Err(BumpError::Gone(self.device.name.clone())),
        }
        Ok(())
    }

    /// Descriptors that can be read from when frames have come in.
    pub(super) fn readiness(&self) -> io::Result<Vec<OwnedFd>> {
        self.queues.iter().map(|queue| queue.io.readiness()).collect()
    }

    /// Frames that the kernel dropped.
    pub(super) fn dropped(&self) -> Dropped {
        let mut all = Dropped::default();
        for queue in &self.queues {
            // A socket whose interface is gone may not answer.
            let s = queue.io.statistics().unwrap_or_default();
            // What it drops although there is a chunk is longer than the chunk.
            let no_chunk = s.rx_dropped.min(s.rx_fill_ring_empty);
            all.missed += s.rx_ring_full + no_chunk;
            all.too_long += s.rx_too_long + s.rx_dropped - no_chunk;
            all.refused += s.tx_lost + s.tx_invalid;
        }
        all
    }

    /// How it is used.
    pub(super) fn description(&self) -> String {
        let Some(Queue { io, .. }) = self.queues.first() else { return self.device.name.clone() };
        let native = if io.native() { "native XDP" } else { "generic XDP" };
        let copies = if io.zero_copy() { "zero-copy" } else { "copy mode" };
        let plural = if self.queues.len() == 1 { "queue" } else { "queues" };
        let Device { name, mtu, .. } = &self.device;
        format!("{name} ({native}, {copies}, {} {plural}, mtu {mtu})", self.queues.len())
    }
}
