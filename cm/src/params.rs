//! What the program says when it connects, accepts or resolves; and where a MAD comes from or goes to.

use std::net::{IpAddr, Ipv6Addr, SocketAddr};

use softnic_wire::failover::Side;
use softnic_wire::mad::cm::{Path, PathMtu, SidrStatus, TimeoutCode, TransportService};
use softnic_wire::mad::ip_cm::{IpCm, ServiceId};
use softnic_wire::{MacAddr, Psn, Qpn};

use crate::Error;

/// The way of a MAD between two QP1s, seen from here: the same for those that come and those that go.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Route {
    /// Our address.
    pub local: IpAddr,
    /// The peer's.
    pub remote: IpAddr,
    /// The peer's queue pair that sent it, or that it is for: nearly always QP1.
    pub qpn: Qpn,
    /// Partition.
    pub pkey: u16,
    /// Traffic class.
    pub traffic_class: u8,
    /// Flow label, 20 bits.
    pub flow_label: u32,
    /// Hops; 0 takes the usual number.
    pub hop_limit: u8,
    /// The MAC address that a MAD came from: answers go there, and nobody is asked for the peer's. `None` when nothing came yet.
    pub mac: Option<MacAddr>,
    /// Which NIC it comes in or leaves by.
    pub side: Side,
}

impl Route {
    /// The usual way between two addresses, by the default NIC.
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

/// In what time a CM message shall be answered, as Linux says it: 4.3 s.
const RESPONSE_TIMEOUT: TimeoutCode = TimeoutCode::new(20);
/// How often a CM message is sent again, as Linux says it.
const MAX_RETRIES: u8 = 15;
/// How long a packet may be under way, as Linux assumes on Ethernet: 0.27 s (newer kernels; older ones say 1.1 s).
const PACKET_LIFE_TIME: TimeoutCode = TimeoutCode::new(16);

/// A connection to ask for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Connect<'a> {
    /// The service.
    pub service_id: ServiceId,
    /// The RDMA-CM's addresses, put in front of the private data.
    pub ip: Option<IpCm>,
    /// The way to the peer, for CM messages and for the connection.
    pub route: Route,
    /// Our queue pair.
    pub qpn: Qpn,
    /// The first PSN that we want to receive.
    pub starting_psn: Psn,
    /// RC or UC.
    pub transport: TransportService,
    /// Whether our queue pair uses a shared receive queue.
    pub srq: bool,
    /// READs and atomics that we can answer at a time.
    pub responder_resources: u8,
    /// READs and atomics that we want in flight at a time.
    pub initiator_depth: u8,
    /// Whether our receive queue grants end-to-end credits.
    pub flow_control: bool,
    /// How often the peer shall retry after timeouts (0 to 7).
    pub retry_count: u8,
    /// How often the peer shall retry after RNR NAKs (0 to 7).
    pub rnr_retry_count: u8,
    /// Payload of a full packet.
    pub path_mtu: PathMtu,
    /// How long a packet may be under way.
    pub packet_life_time: TimeoutCode,
    /// Local ACK timeout that the peer's queue pair shall use.
    pub ack_timeout: TimeoutCode,
    /// In what time CM messages are answered, by the peer and by us.
    pub response_timeout: TimeoutCode,
    /// How often a CM message is sent again (0 to 15).
    pub max_cm_retries: u8,
    /// What the program has to say: 92 bytes, behind the RDMA-CM's header 56.
    pub private_data: &'a [u8],
}

impl<'a> Connect<'a> {
    /// An RC connection by IP addresses and ports, with the values that Linux uses where a program says nothing.
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

    /// The path as a request carries it.
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

/// An address as a GID: IPv4 is mapped (IBA annex A17).
pub(crate) fn gid(address: IpAddr) -> Ipv6Addr {
    match address {
        IpAddr::V4(ip) => ip.to_ipv6_mapped(),
        IpAddr::V6(ip) => ip,
    }
}

/// How a request is accepted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Accept<'a> {
    /// Our queue pair.
    pub qpn: Qpn,
    /// The first PSN that we want to receive.
    pub starting_psn: Psn,
    /// READs and atomics that we can answer at a time.
    pub responder_resources: u8,
    /// READs and atomics that we want in flight at a time.
    pub initiator_depth: u8,
    /// Whether our receive queue grants end-to-end credits.
    pub flow_control: bool,
    /// How often the peer shall retry after RNR NAKs (0 to 7).
    pub rnr_retry_count: u8,
    /// Whether our queue pair uses a shared receive queue.
    pub srq: bool,
    /// What the program has to say: 196 bytes.
    pub private_data: &'a [u8],
}

impl<'a> Accept<'a> {
    /// With a queue pair, and the values that Linux uses where a program says nothing.
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
    /// Now, and whenever the message comes again.
    Now,
    /// Only when the message comes again, as the RDMA-CM of Linux does: a quick answer costs no MRA.
    OnDuplicate,
}

/// A service id to resolve: which datagram queue pair serves it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Resolve<'a> {
    /// The service.
    pub service_id: ServiceId,
    /// The RDMA-CM's addresses, put in front of the private data.
    pub ip: Option<IpCm>,
    /// The way to the peer.
    pub route: Route,
    /// How long a packet may be under way.
    pub packet_life_time: TimeoutCode,
    /// In what time the peer shall answer.
    pub response_timeout: TimeoutCode,
    /// How often the request is sent again.
    pub max_cm_retries: u8,
    /// What the program has to say: 216 bytes, behind the RDMA-CM's header 180.
    pub private_data: &'a [u8],
}

impl<'a> Resolve<'a> {
    /// By IP addresses and ports, with the values that Linux uses.
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
    /// Whether the queue pair serves, or why not.
    pub status: SidrStatus,
    /// The datagram queue pair.
    pub qpn: Qpn,
    /// The Q_Key to send with.
    pub qkey: u32,
    /// What the program has to say: 136 bytes.
    pub private_data: &'a [u8],
}

/// Private data of a message that has room for `N` bytes: zeros behind what the program says.
pub(crate) fn private<const N: usize>(data: &[u8]) -> Result<[u8; N], Error> {
    let mut out = [0; N];
    out.get_mut(..data.len()).ok_or(Error::TooLong { len: data.len(), room: N })?.copy_from_slice(data);
    Ok(out)
}

/// The same, with the RDMA-CM's header in front.
pub(crate) fn private_with_ip<const N: usize>(ip: Option<&IpCm>, data: &[u8]) -> Result<[u8; N], Error> {
    let Some(ip) = ip else { return private(data) };
    let mut out = [0; N];
    ip.emit(&mut out);
    let room = N - IpCm::LEN;
    let behind = out[IpCm::LEN..].get_mut(..data.len()).ok_or(Error::TooLong { len: data.len(), room })?;
    behind.copy_from_slice(data);
    Ok(out)
}
