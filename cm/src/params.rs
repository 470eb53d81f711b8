//! The parameters of the program's calls to connect, accept or resolve; and the route of a MAD.

use std::net::{IpAddr, Ipv6Addr, SocketAddr};

use softnic_wire::failover::Side;
use softnic_wire::mad::cm::{Path, PathMtu, SidrStatus, TimeoutCode, TransportService};
use softnic_wire::mad::ip_cm::{IpCm, ServiceId};
use softnic_wire::{MacAddr, Psn, Qpn};

use crate::Error;

/// The route of a MAD between two QP1s, as seen locally; equal for received and sent MADs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Route {
    /// The local address.
    pub local: IpAddr,
    /// The peer's address.
    pub remote: IpAddr,
    /// The peer's queue pair that sent the MAD, or that it is for: nearly always QP1.
    pub qpn: Qpn,
    /// The partition key.
    pub pkey: u16,
    /// Traffic class.
    pub traffic_class: u8,
    /// Flow label, 20 bits.
    pub flow_label: u32,
    /// Hop limit; 0 selects the usual number.
    pub hop_limit: u8,
    /// The source MAC address of a received MAD: answers are sent there, without a resolution of the peer's address. `None` if no MAD was
    /// received yet.
    pub mac: Option<MacAddr>,
    /// The NIC at which it arrives or leaves.
    pub side: Side,
}

impl Route {
    /// The usual route between two addresses, by the default NIC.
    pub fn new(local: IpAddr, remote: IpAddr) -> Route {
        Route {
            local,
            remote,
            qpn: Qpn::GSI,
            pkey: 0xffff,
            traffic_class: 0,
            flow_label: 0,
            hop_limit: 0,
            mac: None,
            side: Side::Default,
        }
    }
}

/// The RDMA-CM's port spaces.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum PortSpace {
    /// `RDMA_PS_TCP`: connected queue pairs.
    Tcp,
    /// `RDMA_PS_UDP`: datagram queue pairs.
    Udp,
}

impl PortSpace {
    /// The service id of a port.
    pub const fn service_id(self, port: u16) -> ServiceId {
        match self {
            PortSpace::Tcp => ServiceId::ip(ServiceId::TCP, port),
            PortSpace::Udp => ServiceId::ip(ServiceId::UDP, port),
        }
    }
}

/// The time for an answer to a CM message, as in Linux: 4.3 s.
const RESPONSE_TIMEOUT: TimeoutCode = TimeoutCode::new(20);
/// How often a CM message is sent again, as in Linux.
const MAX_RETRIES: u8 = 15;
/// Maximum time of a packet in flight, as assumed by Linux on Ethernet: 0.27 s (newer kernels; older ones assume 1.1 s).
const PACKET_LIFE_TIME: TimeoutCode = TimeoutCode::new(16);

/// The parameters of a connection request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Connect<'a> {
    /// The service.
    pub service_id: ServiceId,
    /// The RDMA-CM's addresses, which precede the private data.
    pub ip: Option<IpCm>,
    /// The route to the peer, for CM messages and for the connection.
    pub route: Route,
    /// The local queue pair.
    pub qpn: Qpn,
    /// The first PSN to receive.
    pub starting_psn: Psn,
    /// RC or UC.
    pub transport: TransportService,
    /// Whether the local queue pair uses a shared receive queue.
    pub srq: bool,
    /// Maximum number of READs and atomics that are answered at a time.
    pub responder_resources: u8,
    /// Maximum number of READs and atomics in flight to the peer.
    pub initiator_depth: u8,
    /// Whether the local receive queue grants end-to-end credits.
    pub flow_control: bool,
    /// The peer's retry count after timeouts (0 to 7).
    pub retry_count: u8,
    /// The peer's retry count after RNR NAKs (0 to 7).
    pub rnr_retry_count: u8,
    /// Payload of a full packet.
    pub path_mtu: PathMtu,
    /// Maximum time of a packet in flight.
    pub packet_life_time: TimeoutCode,
    /// Local ACK timeout for the peer's queue pair.
    pub ack_timeout: TimeoutCode,
    /// The time for answers to CM messages, by the peer and locally.
    pub response_timeout: TimeoutCode,
    /// How often a CM message is sent again (0 to 15).
    pub max_cm_retries: u8,
    /// The program's private data: up to 92 bytes, or 56 after the RDMA-CM's header.
    pub private_data: &'a [u8],
}

impl<'a> Connect<'a> {
    /// An RC connection by IP addresses and ports, with the defaults of Linux.
    pub fn ip(from: SocketAddr, to: SocketAddr, qpn: Qpn, starting_psn: Psn) -> Result<Connect<'a>, Error> {
        Ok(Connect {
            service_id: PortSpace::Tcp.service_id(to.port()),
            ip: Some(IpCm::new(from, to.ip()).map_err(|_| Error::Versions)?),
            route: Route::new(from.ip(), to.ip()),
            qpn,
            starting_psn,
            transport: TransportService::RC,
            srq: false,
            responder_resources: 1,
            initiator_depth: 1,
            flow_control: true,
            retry_count: 7,
            rnr_retry_count: 7,
            path_mtu: PathMtu::MTU_1024,
            packet_life_time: PACKET_LIFE_TIME,
            ack_timeout: TimeoutCode::new(PACKET_LIFE_TIME.code() + 1),
            response_timeout: RESPONSE_TIMEOUT,
            max_cm_retries: MAX_RETRIES,
            private_data: &[],
        })
    }

    /// The path as encoded in a request.
    pub(crate) fn path(&self) -> Path {
        Path {
            local_lid: 0xffff,
            remote_lid: 0xffff,
            local_gid: gid(self.route.local),
            remote_gid: gid(self.route.remote),
            flow_label: self.route.flow_label & 0x000f_ffff,
            packet_rate: 0,
            traffic_class: self.route.traffic_class,
            hop_limit: self.route.hop_limit,
            sl: 0,
            subnet_local: true,
            local_ack_timeout: self.ack_timeout,
        }
    }
}

/// An address as a GID: IPv4 addresses are mapped (IBA annex A17).
pub(crate) fn gid(address: IpAddr) -> Ipv6Addr {
    match address {
        IpAddr::V4(ip) => ip.to_ipv6_mapped(),
        IpAddr::V6(ip) => ip,
    }
}

/// The parameters for accepting a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Accept<'a> {
    /// The local queue pair.
    pub qpn: Qpn,
    /// The first PSN to receive.
    pub starting_psn: Psn,
    /// Maximum number of READs and atomics that are answered at a time.
    pub responder_resources: u8,
    /// Maximum number of READs and atomics in flight to the peer.
    pub initiator_depth: u8,
    /// Whether the local receive queue grants end-to-end credits.
    pub flow_control: bool,
    /// The peer's retry count after RNR NAKs (0 to 7).
    pub rnr_retry_count: u8,
    /// Whether the local queue pair uses a shared receive queue.
    pub srq: bool,
    /// The program's private data: up to 196 bytes.
    pub private_data: &'a [u8],
}

impl<'a> Accept<'a> {
    /// With this queue pair, and the defaults of Linux.
    pub fn new(qpn: Qpn, starting_psn: Psn) -> Accept<'a> {
        Accept {
            qpn,
            starting_psn,
            responder_resources: 1,
            initiator_depth: 1,
            flow_control: true,
            rnr_retry_count: 7,
            srq: false,
            private_data: &[],
        }
    }
}

/// When an MRA is sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MraTime {
    /// Now, and whenever the message arrives again.
    Now,
    /// Only when the message arrives again, as the RDMA-CM of Linux does: a quick answer then needs no MRA.
    OnDuplicate,
}

/// A service id to resolve into the datagram queue pair that provides the service.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Resolve<'a> {
    /// The service.
    pub service_id: ServiceId,
    /// The RDMA-CM's addresses, which precede the private data.
    pub ip: Option<IpCm>,
    /// The route to the peer.
    pub route: Route,
    /// Maximum time of a packet in flight.
    pub packet_life_time: TimeoutCode,
    /// The time for the peer's answer.
    pub response_timeout: TimeoutCode,
    /// How often the request is sent again.
    pub max_cm_retries: u8,
    /// The program's private data: up to 216 bytes, or 180 after the RDMA-CM's header.
    pub private_data: &'a [u8],
}

impl<'a> Resolve<'a> {
    /// By IP addresses and ports, with the defaults of Linux.
    pub fn ip(from: SocketAddr, to: SocketAddr) -> Result<Resolve<'a>, Error> {
        Ok(Resolve {
            service_id: PortSpace::Udp.service_id(to.port()),
            ip: Some(IpCm::new(from, to.ip()).map_err(|_| Error::Versions)?),
            route: Route::new(from.ip(), to.ip()),
            packet_life_time: PACKET_LIFE_TIME,
            response_timeout: RESPONSE_TIMEOUT,
            max_cm_retries: MAX_RETRIES,
            private_data: &[],
        })
    }
}

/// The answer to a service id resolution.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SidrReply<'a> {
    /// Whether the queue pair provides the service, or why not.
    pub status: SidrStatus,
    /// The datagram queue pair.
    pub qpn: Qpn,
    /// The Q_Key to send with.
    pub qkey: u32,
    /// The program's private data: up to 136 bytes.
    pub private_data: &'a [u8],
}

/// Private data of a message that has room for `N` bytes: the program's data, padded with zeros.
pub(crate) fn private<const N: usize>(data: &[u8]) -> Result<[u8; N], Error> {
    let mut out = [0; N];
    out.get_mut(..data.len()).ok_or(Error::TooLong { len: data.len(), room: N })?.copy_from_slice(data);
    Ok(out)
}

/// As `private`, with the RDMA-CM's header in front.
pub(crate) fn private_with_ip<const N: usize>(ip: Option<&IpCm>, data: &[u8]) -> Result<[u8; N], Error> {
    let Some(ip) = ip else { return private(data) };
    let mut out = [0; N];
    ip.emit(&mut out);
    let room = N - IpCm::LEN;
    let behind = out[IpCm::LEN..].get_mut(..data.len()).ok_or(Error::TooLong { len: data.len(), room })?;
    behind.copy_from_slice(data);
    Ok(out)
}
