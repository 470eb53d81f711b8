//! One of the wire's two interfaces: a socket on each receive queue, and one way out.

use std::io;
use std::os::fd::OwnedFd;
use std::time::Instant;

use super::promiscuous::Promiscuous;
use super::{BumpError, MAX_MTU};
use crate::afxdp::{AfXdp, AfXdpError, Device, Options, Takes};
use crate::io::PacketIo;

/// An MTU does not count the Ethernet header and tags.
const HEADERS: usize = 14 + 8;
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

/// An interface.
#[derive(Debug)]
pub(super) struct Port {
    pub(super) device: Device,
    /// All frames leave by the first, so that they keep their order.
    pub(super) queues: Vec<Queue>,
    _promiscuous: Promiscuous,
}

impl Port {
    /// Takes all frames of an interface, whomever they are for.
    pub(super) fn open(interface: &str) -> Result<Port, BumpError> {
        let device = Device::find(interface)?;
        if device.mtu > MAX_MTU {
            return Err(BumpError::Mtu { interface: interface.into(), mtu: device.mtu });
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
        let promiscuous = Promiscuous::new(device.ifindex)
            .map_err(|error| BumpError::System { doing: "take in frames for other addresses (CAP_NET_RAW)", error })?;
        let queues = queues.into_iter().map(|io| Queue { io, empty_at: None, batch: None }).collect();
        Ok(Port { device, queues, _promiscuous: promiscuous })
    }

    /// Looks at the interface once more: its MTU may have changed, or it may be gone.
    pub(super) fn look(&mut self) -> Result<(), BumpError> {
        match Device::find(&self.device.name) {
            Ok(device) if device.ifindex == self.device.ifindex => self.device = device,
            _ => return Err(BumpError::Gone(self.device.name.clone())),
        }
        Ok(())
    }

    /// Descriptors that can be read from when frames have come in.
    pub(super) fn readiness(&self) -> io::Result<Vec<OwnedFd>> {
        self.queues.iter().map(|queue| queue.io.readiness()).collect()
    }

    /// Frames that came and that the kernel had no place for, those that were longer than any that we carry, and those that it
    /// could not send.
    pub(super) fn dropped(&self) -> [u64; 3] {
        let mut sums = [0; 3];
        for queue in &self.queues {
            // A socket whose interface is gone may not answer.
            let s = queue.io.statistics().unwrap_or_default();
            let here = [s.rx_dropped + s.rx_ring_full, s.rx_too_long, s.tx_lost + s.tx_invalid];
            sums.iter_mut().zip(here).for_each(|(sum, n)| *sum += n);
        }
        sums
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
