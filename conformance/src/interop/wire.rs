//! The wire between our NIC and the guest: AF_XDP on a tap in a network namespace, or a datagram socket.

use std::net::IpAddr;
use std::path::Path;
use std::time::Instant;

use softnic_nic::Port;
use softnic_runtime::afxdp::{AfXdp, Options};
use softnic_runtime::host_network::{HostNetwork, PathState};
use softnic_runtime::{Dgram, DgramSpec, PacketIo, link_local};
use softnic_wire::{MacAddr, PathMtu};

use super::setup::Side;
use crate::guest::{Error, Link, Machine, Space};

/// Which wire.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(super) enum Kind {
    /// AF_XDP on a tap, in a network namespace made for it: needs root
    Afxdp,
    /// A datagram socket
    Dgram,
}

const OUR_MAC: MacAddr = MacAddr([2, 0, 0, 0x33, 0, 1]);
const THEIR_MAC: &str = "02:00:00:33:00:02";
/// Ours and the guest's, of IPv4 and IPv6.
const ADDRESSES: [[&str; 2]; 2] = [["10.33.0.1", "10.33.0.2"], ["fd33::1", "fd33::2"]];
const OURS_WITH_PREFIX: [&str; 2] = ["10.33.0.1/24", "fd33::1/64"];
const THEIRS_WITH_PREFIX: &[&str] = &["10.33.0.2/24", "fd33::2/64"];
/// Path MTU 4096 with every header.
const LINK_MTU: u32 = 4200;
const TAP: &str = "sntap0";

pub(super) type Io = Box<dyn PacketIo + Send>;

/// The address of an end.
pub(super) fn address(side: Side, ipv6: bool) -> IpAddr {
    let name = ADDRESSES[usize::from(ipv6)][usize::from(side == Side::Rxe)];
    name.parse().expect("a constant that is an address")
}

/// A wire with our end of it open, and nobody at the other one yet.
pub(super) struct Wire {
    pub(super) io: Io,
    pub(super) port: Port,
    /// The kernel's view of the interface, where the kernel has one.
    pub(super) network: Option<Network>,
    /// The guest at the other end.
    pub(super) machine: Machine,
    /// What it is called in a table.
    pub(super) name: &'static str,
    pub(super) description: String,
}

fn refused(e: impl std::fmt::Display) -> Error {
    Error::Failed(e.to_string())
}

impl Wire {
    /// By datagrams between sockets in `folder`.
    pub(super) fn dgram(folder: &Path) -> Result<Wire, Error> {
        let wire = DgramSpec { local: folder.join("softnic"), remote: folder.join("qemu") };
        let addresses = vec![address(Side::Softnic, false), address(Side::Softnic, true), link_local(OUR_MAC).into()];
        let io = Box::new(Dgram::bind(&wire).map_err(refused)?);
        let link = Link::Dgram(DgramSpec { local: wire.remote, remote: wire.local });
        Ok(Wire {
            io,
            port: Port { mac: OUR_MAC, addresses, mtu: PathMtu::B4096 },
            network: None,
            machine: Machine::new(link, THEIR_MAC, THEIRS_WITH_PREFIX, LINK_MTU),
            name: "a datagram socket",
            description: "a datagram socket".into(),
        })
    }

    /// By AF_XDP on a tap in `space`; the calling thread is in it, and stays there.
    pub(super) fn afxdp(space: &Space) -> Result<Wire, Error> {
        space.add_tap(TAP, &OUR_MAC.to_string(), LINK_MTU, &OURS_WITH_PREFIX)?;
        let host = HostNetwork::open(TAP).map_err(refused)?;
        let port = host.port().map_err(refused)?;
        let options = Options { queues: Some(1), ..Options::default() };
        let mut queues = AfXdp::open(TAP, &options).map_err(|e| Error::Missing(e.to_string()))?;
        let queue = queues.pop().ok_or_else(|| Error::Failed("the tap has no queue".into()))?;
        if !queue.multi_buffer() {
            let why = "this kernel's AF_XDP carries no frame of path MTU 4096 (Linux 6.6 does)";
            return Err(Error::Missing(why.into()));
        }
        let mode = if queue.native() { "native" } else { "generic" };
        let description = format!("AF_XDP ({mode}) on the tap {TAP} in the namespace {}", space.name());
        let link = Link::Tap { namespace: space.name().into(), tap: TAP.into() };
        Ok(Wire {
            io: Box::new(queue),
            port,
            network: Some(Network { host, start: Instant::now() }),
            machine: Machine::new(link, THEIR_MAC, THEIRS_WITH_PREFIX, LINK_MTU),
            name: "AF_XDP",
            description,
        })
    }
}

/// The kernel as the one who knows the neighbours.
pub(super) struct Network {
    host: HostNetwork,
    start: Instant,
}

impl Network {
    /// The MAC address of a neighbour, once the kernel knows it. To be called again until then.
    pub(super) fn mac_of(&mut self, peer: IpAddr) -> Result<Option<MacAddr>, Error> {
        let now = softnic_wire::Instant::ZERO + self.start.elapsed();
        self.host.handle_timeout(now);
        while self.host.poll_event().map_err(refused)?.is_some() {}
        match self.host.path(now, peer, None).map_err(refused)? {
            PathState::Ready(path) => Ok(Some(path.mac)),
            PathState::Pending { .. } => Ok(None),
        }
    }
}
