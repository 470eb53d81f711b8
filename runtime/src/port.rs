//! An interface that is ours: everything that it receives is taken in, whomever it is for; all frames leave by one queue.

pub(crate) mod checksum;
mod promiscuous;

use std::io;
use std::os::fd::OwnedFd;
use std::time::Duration;

use softnic_wire::ethernet::{self, ethertype};

use crate::afxdp::{AfXdp, AfXdpError, Device, Options, Takes};
use crate::io::PacketIo;
use promiscuous::Promiscuous;

/// The longest packets that an interface may have; one with a longer MTU is refused.
pub const MAX_MTU: usize = 9216;
/// An MTU does not count the Ethernet header and tags.
pub(crate) const HEADERS: usize = 14 + 8;
/// Chunks for each receive queue: 8 MiB.
const RX_CHUNKS: u32 = 2048;
const TX_CHUNKS: u32 = 1024;

/// How long to look for frames in vain before sleeping, and before letting others have this core.
const PATIENCE: Duration = Duration::from_micros(200);
const BUSY: Duration = Duration::from_micros(20);
/// A sleep ends later than it should: so much before a frame is due we are awake.
pub(crate) const WAKE_EARLY: Duration = Duration::from_micros(150);
/// How often to try again when the system had no room for frames.
pub(crate) const RETRY: Duration = Duration::from_micros(100);

/// Why an interface is not ours, or not any more.
#[derive(Debug, thiserror::Error)]
pub enum PortError {
    /// It cannot be used.
    #[error(transparent)]
    Interface(#[from] AfXdpError),
    /// It is down.
    #[error("{0} is down: `ip link set {0} up`")]
    Down(String),
    /// Frames may be longer than we carry.
    #[error("{interface} has an MTU of {mtu}, and this carries at most {max}: `ip link set {interface} mtu {max}`")]
    Mtu {
        /// Which.
        interface: String,
        /// Its MTU.
        mtu: usize,
        /// The longest that is possible: [`MAX_MTU`], or less where the kernel has no frames in several pieces (before Linux 6.6).
        max: usize,
    },
    /// It went away.
    #[error("the interface {0} is gone")]
    Gone(String),
    /// Frames of others cannot be had.
    #[error("cannot take in frames for other addresses (CAP_NET_RAW): {0}")]
    Promiscuous(io::Error),
}

/// Whether a frame is longer than this MTU allows, which counts neither the Ethernet header nor a tag.
pub(crate) fn exceeds(frame: &[u8], mtu: usize) -> bool {
    let kind = frame.get(12..14).map_or(0, |kind| u16::from_be_bytes([kind[0], kind[1]]));
    exceeds_as(kind, frame.len(), mtu)
}

/// The same of a frame with this ethertype and so many bytes.
pub(crate) fn exceeds_as(kind: u16, len: usize, mtu: usize) -> bool {
    let tagged = kind == ethertype::VLAN || kind == ethertype::QINQ;
    len > mtu + ethernet::LEN + if tagged { ethernet::TAG_LEN } else { 0 }
}

/// What a loop does that found no frame for some time, and has something to do after another.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Rest {
    /// Looks again.
    No,
    /// Lets whoever waits for this core have it: that may be whom we wait for.
    Yield,
    /// Sleeps so long, at most.
    Sleep(Duration),
}

impl Rest {
    pub(crate) fn after(idle: Duration, due: Duration) -> Rest {
        match idle {
            idle if idle >= PATIENCE && due > WAKE_EARLY => Rest::Sleep(due - WAKE_EARLY),
            idle if idle >= BUSY => Rest::Yield,
            _ => Rest::No,
        }
    }
}

/// Frames that the kernel dropped at an interface.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Dropped {
    /// They came in, and there was no place for them.
    pub(crate) missed: u64,
    /// They came in, and were longer than any that we carry.
    pub(crate) too_long: u64,
    /// They were to be sent.
    pub(crate) refused: u64,
}

/// An interface.
#[derive(Debug)]
pub(crate) struct Port {
    /// As it was when it was opened.
    pub(crate) device: Device,
    /// Its MTU now.
    pub(crate) mtu: usize,
    /// All frames leave by the first, so that they keep their order.
    pub(crate) queues: Vec<AfXdp>,
    _promiscuous: Promiscuous,
}

impl Port {
    /// Takes all frames of an interface, whomever they are for.
    pub(crate) fn open(interface: &str) -> Result<Port, PortError> {
        let device = Device::find(interface)?;
        let mtu_error = |max| Err(PortError::Mtu { interface: interface.into(), mtu: device.mtu, max });
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
                PortError::Down(interface.into())
            }
            e => e.into(),
        })?;
        if let Some(io) = queues.first().filter(|io| !io.multi_buffer() && io.max_frame() < device.mtu + 14) {
            return mtu_error(io.max_frame() - HEADERS);
        }
        let promiscuous = Promiscuous::new(device.ifindex).map_err(PortError::Promiscuous)?;
        Ok(Port { mtu: device.mtu, device, queues, _promiscuous: promiscuous })
    }

    /// Looks at the interface once more: it may be gone, or its MTU may have changed. One that grew counts as what it was: memory and
    /// sockets are made for that.
    pub(crate) fn look(&mut self) -> Result<(), PortError> {
        match Device::find(&self.device.name) {
            Ok(device) if device.ifindex == self.device.ifindex => self.mtu = device.mtu.min(self.device.mtu),
            _ => return Err(PortError::Gone(self.device.name.clone())),
        }
        Ok(())
    }

    /// Descriptors that can be read from when frames have come in.
    pub(crate) fn readiness(&self) -> io::Result<Vec<OwnedFd>> {
        let each: Vec<_> = self.queues.iter().map(AfXdp::readiness).collect::<io::Result<_>>()?;
        Ok(each.into_iter().flatten().collect())
    }

    /// Frames that the kernel dropped.
    pub(crate) fn dropped(&self) -> Dropped {
        let mut all = Dropped::default();
        for io in &self.queues {
            // A socket whose interface is gone may not answer.
            let s = io.statistics().unwrap_or_default();
            // What it drops although there is a chunk is longer than the chunk.
            let no_chunk = s.rx_dropped.min(s.rx_fill_ring_empty);
            all.missed += s.rx_ring_full + no_chunk;
            all.too_long += s.rx_too_long + s.rx_dropped - no_chunk;
            all.refused += s.tx_lost + s.tx_invalid;
        }
        all
    }

    /// How it is used.
    pub(crate) fn description(&self) -> String {
        let Some(io) = self.queues.first() else { return self.device.name.clone() };
        let native = if io.native() { "native XDP" } else { "generic XDP" };
        let copies = if io.zero_copy() { "zero-copy" } else { "copy mode" };
        let plural = if self.queues.len() == 1 { "queue" } else { "queues" };
        let Device { name, mtu, .. } = &self.device;
        let advice = io.zero_copy_advice().map(|what| format!("; for zero-copy: {what}")).unwrap_or_default();
        format!("{name} ({native}, {copies}, {} {plural}, mtu {mtu}{advice})", self.queues.len())
    }
}
