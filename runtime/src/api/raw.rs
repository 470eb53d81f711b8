//! A port without a NIC: frames as they are, to measure what the wire itself carries.

use std::fmt;
use std::io;
use std::net::IpAddr;
use std::time::Instant;

use softnic_nic::{AddressAttr, Port};
use softnic_wire::{ExtHeaders, Layout, MacAddr, Opcode, PacketFields, Psn, Qpn, Template, TxFrame, bth};

use super::open::{DeviceSpec, Neighbourhood, OpenError, OpenOptions, Parts, keep};
use super::path::{PathError, await_path};
use crate::background::Background;
use crate::engine::Io;
use crate::host_network::HostNetwork;
use crate::io::MAX_FRAME;

/// A device whose frames go to and come from the program itself. Of [`OpenOptions`] it takes the faults and the queues.
pub struct RawPort {
    ios: Vec<Io>,
    port: Port,
    network: Option<HostNetwork>,
    description: String,
    /// Whoever asks the line how it is, where somebody must.
    _follower: Option<Background>,
}

/// A frame to be sent again and again: an RC WRITE MIDDLE packet, so that devices steer it like one, with a number where its PSN is.
///
/// Its ICRC is that of number 0: nobody looks at it.
#[derive(Debug, Clone)]
pub struct RawFrame {
    bytes: Vec<u8>,
    number_at: usize,
}

impl RawFrame {
    /// Bytes, from the Ethernet header to the ICRC.
    pub fn len(&self) -> usize {
        self.bytes.len()
    }

    /// Never: it has headers.
    pub fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }
}

impl RawPort {
    /// Opens a device.
    ///
    /// # Errors
    /// As [`Context::open`](super::Context::open).
    pub fn open(device: &DeviceSpec, options: &OpenOptions) -> Result<RawPort, OpenError> {
        match device {
            // A frame without a queue pair is for nobody there.
            DeviceSpec::Shm(_) | DeviceSpec::Shared { .. } => Err(OpenError::NoRawFrames(device.to_string())),
            // Nobody carries the kernel's frames while none are sent or asked for.
            DeviceSpec::Dpdk(spec) => RawPort::from(Parts::of(&DeviceSpec::Dpdk(spec.without_tap()), options)?),
            _ => RawPort::from(Parts::of(device, options)?),
        }
    }

    /// The two ends of a wire in memory; the faults hold for both directions.
    ///
    /// # Errors
    /// When the system refuses a descriptor.
    pub fn open_pair(options: &OpenOptions) -> Result<[RawPort; 2], OpenError> {
        let [a, b] = Parts::pair(options)?;
        Ok([RawPort::from(a)?, RawPort::from(b)?])
    }

    fn from(parts: Parts) -> Result<RawPort, OpenError> {
        let Parts { ios, port, neighbourhood, description, .. } = parts;
        let (network, line) = match neighbourhood {
            Neighbourhood::Kernel(host) => (Some(*host), None),
            Neighbourhood::Here => (None, None),
            Neighbourhood::Own(line) => (None, line),
        };
        let _follower = line.map(keep).transpose()?;
        Ok(RawPort { ios, port, network, description, _follower })
    }

    /// The backend in one line of text.
    pub fn description(&self) -> &str {
        &self.description
    }

    /// Its place on the network.
    pub fn port(&self) -> &Port {
        &self.port
    }

    /// Frames that were lost on the way, as far as the device knows.
    pub fn lost_frames(&self) -> u64 {
        self.ios.iter().map(|io| io.lost()).sum()
    }

    /// A frame with `payload` bytes to `peer`. `mac` is what the peer calls itself: used where nobody else knows the path.
    ///
    /// # Errors
    /// When there is no way to the peer.
    ///
    /// # Panics
    /// When the payload is longer than the longest path MTU.
    pub fn frame_to(&mut self, peer: IpAddr, mac: MacAddr, payload: usize) -> Result<RawFrame, PathError> {
        let index = self.port.addresses.iter().position(|a| a.is_ipv4() == peer.is_ipv4());
        let index = index.ok_or(PathError::NoAddress(peer))?;
        let attr = match &mut self.network {
            None => AddressAttr::new(peer, mac, index, 0),
            Some(host) => {
                let path = await_path(Instant::now(), |now| {
                    host.handle_timeout(now);
                    host.path(now, peer, None)
                });
                path?.attr(0)
            }
        };
        let path = attr.path(&self.port).map_err(|_| PathError::NoAddress(peer))?;
        let template = Template::new(&path, Qpn::new(2), 0xffff);
        let fields = PacketFields {
            opcode: Opcode::RC_RDMA_WRITE_MIDDLE,
            psn: Psn::new(0),
            ack_req: false,
            solicited: false,
            becn: false,
            payload_len: payload,
        };
        let mut room = vec![0; MAX_FRAME];
        let mut tx = TxFrame::new(&mut room);
        let built = template.build(&mut tx, &fields, &ExtHeaders::default(), &vec![0x5a; payload]);
        assert!(built.is_ok(), "no path MTU is so long");
        let len = tx.len();
        room.truncate(len);
        Ok(RawFrame { bytes: room, number_at: template.headers_len() - 3 })
    }

    /// Sends the frame with the numbers from `first` on, at most `count` times, as one batch; how many there was room for.
    ///
    /// # Errors
    /// When the device fails.
    pub fn send(&mut self, frame: &mut RawFrame, first: u32, count: usize) -> io::Result<usize> {
        let (mut number, mut left) = (first, count);
        let Some(io) = self.ios.first_mut() else { return Ok(0) };
        io.transmit(count, &mut |tx| {
            if left == 0 {
                return false;
            }
            let at = frame.number_at;
            frame.bytes[at..at + 3].copy_from_slice(&number.to_be_bytes()[1..]);
            (number, left) = (number.wrapping_add(1), left - 1);
            tx.put_frame(&frame.bytes).is_ok()
        })
    }

    /// Sends what the system had no room for before; to be called while there is nothing else to send.
    ///
    /// # Errors
    /// When the device fails.
    pub fn flush(&mut self) -> io::Result<()> {
        self.ios.iter_mut().try_for_each(|io| io.transmit(0, &mut |_| false).map(|_| ()))
    }

    /// Frames that wait to be sent. Closing the port loses them.
    pub fn unsent(&self) -> usize {
        self.ios.iter().map(|io| io.unsent()).sum()
    }

    /// Takes in at most `limit` frames from each queue; `take` gets the number and the length of those that are a peer's [`RawFrame`].
    ///
    /// # Errors
    /// When the device fails.
    pub fn receive(&mut self, limit: usize, take: &mut dyn FnMut(u32, usize)) -> io::Result<usize> {
        let mut taken = 0;
        for io in &mut self.ios {
            taken += io.receive(limit, &mut |frame| {
                if let Ok(layout) = Layout::locate(frame)
                    && let Some(&[a, b, c]) = frame.get(layout.bth + bth::LEN - 3..layout.bth + bth::LEN)
                {
                    take(u32::from_be_bytes([0, a, b, c]), frame.len());
                }
            })?;
        }
        Ok(taken)
    }
}

impl fmt::Debug for RawPort {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("RawPort").field(&self.description).finish()
    }
}
