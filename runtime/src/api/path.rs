//! The path to a peer: asked of the kernel where it knows the network, of the wire where it does not.

use std::net::IpAddr;
use std::os::fd::RawFd;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use softnic_nic::{AddressAttr, Nic, Port};
use softnic_shift::DualNic;
use softnic_wire::ethernet::{MAX_TAGS, VlanTag};
use softnic_wire::{MacAddr, PathMtu};

use super::company::Company;
use super::context::Context;
use super::failover::Failover;
use super::groups::Groups;
use super::link_down::LinkDown;
use crate::background::Background;
use crate::engine::Engine;
use crate::host_network::{HostNetwork, HostNetworkError, HostPath, PathState};
use crate::locked::lock;
use crate::neighbours::NeighbourError;

/// How often to look whether a neighbour has answered.
const LOOK: Duration = Duration::from_millis(1);

/// The source of paths: the kernel, or the wire itself.
pub(crate) enum Network {
    /// The kernel: the NIC is on one of its interfaces.
    Kernel { host: Arc<Mutex<HostNetwork>>, start: Instant, follower: Background },
    /// There is nobody who has not our own addresses, as on a network in memory.
    Here,
    /// Nobody: the NIC asks by itself, and everybody is on the link. Whoever asks the line how it is, where somebody must.
    Own { follower: Option<Background>, vlan: Option<u16>, groups: Option<Arc<Groups>> },
}

/// What a NIC is surrounded by.
pub(crate) struct Surroundings {
    pub(crate) network: Network,
    /// The other processes behind the same port.
    pub(crate) company: Option<Company>,
    /// Whoever sees that the interface is not shared any more.
    pub(crate) attendant: Option<Background>,
    /// The backup's side of all that, where there is one.
    pub(crate) failover: Option<Failover>,
    /// What becomes of packets while the link is down.
    pub(crate) link_down: LinkDown,
}

impl Network {
    /// The descriptors that it holds.
    pub(crate) fn descriptors(&self) -> Vec<RawFd> {
        match self {
            Network::Here => Vec::new(),
            Network::Own { follower, .. } => follower.iter().flat_map(Background::descriptors).copied().collect(),
            Network::Kernel { host, follower, .. } => [&lock(host).descriptors(), follower.descriptors()].concat(),
        }
    }
}

/// Why there is no path to a peer.
#[derive(Debug, thiserror::Error)]
pub enum PathError {
    /// The kernel knows none.
    #[error(transparent)]
    Host(#[from] HostNetworkError),
    /// Nobody answered for the address.
    #[error(transparent)]
    Neighbour(#[from] NeighbourError),
    /// The wire failed: nobody can be asked any more.
    #[error("{0}")]
    Failed(String),
    /// A network in memory does not lead to other hosts.
    #[error("{0} is not on this network: all processes on it have the same addresses, those of the NIC itself")]
    Elsewhere(IpAddr),
    /// The port has no address of that IP version.
    #[error("the NIC has no address of the same IP version as {0}; give it one")]
    NoAddress(IpAddr),
    /// The GID table has no such place.
    #[error("the NIC has no GID with index {index}: it has {count}")]
    NoSuchGid {
        /// The place that was asked for.
        index: usize,
        /// How many there are.
        count: usize,
    },
    /// The GID and the peer are of different IP versions.
    #[error("the GID {from} and the peer {peer} are of different IP versions: take a GID of the same")]
    Versions {
        /// The address to send from.
        from: IpAddr,
        /// The peer.
        peer: IpAddr,
    },
}

/// The path to a peer, for a queue pair or an address handle.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PeerPath {
    /// Addresses and next hop.
    pub attr: AddressAttr,
    /// The longest payload that packets may have there, as far as this side knows; the peer may bear less.
    pub mtu: PathMtu,
}

impl Context {
    /// The path to a peer; waits until its MAC address is known. `entropy` should differ from flow to flow, as queue pair numbers do.
    ///
    /// # Errors
    /// When there is no way, or nobody answers for the address.
    pub fn path_to(&self, peer: IpAddr, entropy: u32) -> Result<PeerPath, PathError> {
        self.path(None, peer, entropy)
    }

    /// The path to a peer from a given address, by its place in the GID table.
    ///
    /// # Errors
    /// As [`Context::path_to`]; and when there is no such GID, or it is of another IP version than the peer.
    pub fn path_from(&self, sgid_index: usize, peer: IpAddr, entropy: u32) -> Result<PeerPath, PathError> {
        self.path(Some(sgid_index), peer, entropy)
    }

    fn path(&self, sgid_index: Option<usize>, peer: IpAddr, entropy: u32) -> Result<PeerPath, PathError> {
        loop {
            if let Some(path) = self.ask_path(sgid_index, peer, entropy)? {
                return Ok(path);
            }
            std::thread::sleep(LOOK);
        }
    }

    /// The path to a peer as far as it is known now; the first call asks for the peer's MAC address. `None` while there is no answer yet.
    pub(in crate::api) fn ask_path(
        &self,
        sgid_index: Option<usize>,
        peer: IpAddr,
        entropy: u32,
    ) -> Result<Option<PeerPath>, PathError> {
        self.wire().ask_path(sgid_index, peer, entropy)
    }

    fn wire(&self) -> Wire<'_> {
        Wire { engines: self.inner().engines(), network: &self.inner().network, number: Nic::WIRE }
    }

    /// The path back to a peer whose frame came from this MAC address; the peer's own MAC address where that is known. Asks for it, and
    /// never waits: a stranger may not answer for its address at all.
    ///
    /// # Errors
    /// When there is no such GID, or it is of another IP version than the peer.
    pub fn path_answering(
        &self,
        sgid_index: usize,
        peer: IpAddr,
        mac: MacAddr,
        entropy: u32,
    ) -> Result<PeerPath, PathError> {
        let unknown = match self.ask_path(Some(sgid_index), peer, entropy) {
            Ok(Some(path)) => return Ok(path),
            Err(error @ (PathError::NoSuchGid { .. } | PathError::Versions { .. })) => return Err(error),
            Ok(None) => PathError::NoAddress(peer),
            Err(error) => error,
        };
        let local = self.port().addresses.get(sgid_index).copied();
        local.and_then(|local| self.path_back(local, peer.to_canonical(), mac, entropy)).ok_or(unknown)
    }

    /// The path back to a peer whose frame came from this MAC address; `None` when `local` is not ours any more.
    pub(in crate::api) fn path_back(
        &self,
        local: IpAddr,
        peer: IpAddr,
        mac: MacAddr,
        entropy: u32,
    ) -> Option<PeerPath> {
        self.wire().path_back(local, peer, mac, entropy)
    }

    /// The port of the backup, if there is one, and the network that it is on.
    pub(in crate::api) fn backup_wire(&self) -> Option<Wire<'_>> {
        let network = self.inner().failover()?.network();
        Some(Wire { engines: self.inner().engines(), network, number: DualNic::BACKUP })
    }
}

/// A port of a NIC, and the network that it is on.
#[derive(Clone, Copy)]
pub(crate) struct Wire<'a> {
    pub(crate) engines: &'a [Arc<Engine>],
    pub(crate) network: &'a Network,
    /// The port's number at the engines.
    pub(crate) number: usize,
}

impl Wire<'_> {
    /// Its place on the network, as of now.
    pub(crate) fn port(&self) -> Option<Port> {
        self.engines[0].control().nic_of(self.number).map(|nic| nic.port().clone())
    }

    /// [`Context::ask_path`] of the port.
    pub(crate) fn ask_path(
        &self,
        sgid_index: Option<usize>,
        peer: IpAddr,
        entropy: u32,
    ) -> Result<Option<PeerPath>, PathError> {
        let port = self.port().ok_or(PathError::NoAddress(peer))?;
        // GIDs have IPv4 addresses as IPv6 ones.
        let peer = peer.to_canonical();
        let from = match sgid_index {
            None => None,
            Some(index) => {
                let count = port.addresses.len();
                let &from = port.addresses.get(index).ok_or(PathError::NoSuchGid { index, count })?;
                if from.is_ipv4() != peer.is_ipv4() {
                    return Err(PathError::Versions { from, peer });
                }
                Some(from)
            }
        };
        let same_version = || port.addresses.iter().position(|a| a.is_ipv4() == peer.is_ipv4());
        let own = port.addresses.iter().position(|&a| a == peer);
        if peer.is_multicast() || own.is_some() {
            let index = sgid_index.or(own).or_else(same_version).ok_or(PathError::NoAddress(peer))?;
            let attr = AddressAttr { tags: self.tags(), ..AddressAttr::new(peer, port.mac, index, entropy) };
            return Ok(Some(PeerPath { attr, mtu: port.mtu }));
        }
        match self.network {
            Network::Kernel { host, start, .. } => {
                match lock(host).path(softnic_wire::Instant::ZERO + start.elapsed(), peer, from)? {
                    PathState::Ready(path) => {
                        Ok(Some(PeerPath { attr: path.attr(entropy), mtu: path.mtu.min(port.mtu) }))
                    }
                    PathState::Pending { .. } => Ok(None),
                }
            }
            Network::Here => Err(PathError::Elsewhere(peer)),
            Network::Own { .. } => {
                let index = sgid_index.or_else(same_version).ok_or(PathError::NoAddress(peer))?;
                let engine = &self.engines[0];
                let mut core = engine.control();
                // Without a wire not even time passes for those who are asked.
                if let Some(why) = engine.failure() {
                    return Err(PathError::Failed(why.into()));
                }
                if let Some(mac) = core.driver.mac_of_at(self.number, peer)? {
                    let attr = AddressAttr { tags: self.tags(), ..AddressAttr::new(peer, mac, index, entropy) };
                    return Ok(Some(PeerPath { attr, mtu: port.mtu }));
                }
                // The question leaves.
                engine.progress(&mut core);
                Ok(None)
            }
        }
    }

    /// [`Context::path_back`] of the port.
    pub(crate) fn path_back(&self, local: IpAddr, peer: IpAddr, mac: MacAddr, entropy: u32) -> Option<PeerPath> {
        let port = self.port()?;
        let index = port.addresses.iter().position(|&a| a == local)?;
        let attr = AddressAttr { tags: self.tags(), ..AddressAttr::new(peer, mac, index, entropy) };
        Some(PeerPath { attr, mtu: port.mtu })
    }

    /// The VLAN tags of its frames, from outside in.
    fn tags(&self) -> [Option<VlanTag>; MAX_TAGS] {
        match self.network {
            Network::Kernel { host, .. } => lock(host).tags(),
            Network::Own { vlan, .. } => [vlan.map(|id| VlanTag::new(id, 0)), None],
            Network::Here => Default::default(),
        }
    }
}

/// Asks until the path to a peer is known, or given up.
pub(super) fn await_path(
    start: Instant,
    mut ask: impl FnMut(softnic_wire::Instant) -> Result<PathState, HostNetworkError>,
) -> Result<HostPath, HostNetworkError> {
    loop {
        match ask(softnic_wire::Instant::ZERO + start.elapsed())? {
            PathState::Ready(path) => return Ok(path),
            PathState::Pending { .. } => std::thread::sleep(LOOK),
        }
    }
}
