//! Routes: by which next hop the kernel would reach a destination, and whether that is by our interface.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use netlink_packet_route::route::{
    RouteAddress, RouteAttribute, RouteFlags, RouteHeader, RouteMessage, RouteMetric, RouteType, RouteVia,
};
use netlink_packet_route::{AddressFamily, RouteNetlinkMessage};
use rustix::io::Errno;

use super::error::HostNetworkError;
use super::interface::Interface;
use super::netlink::Netlink;

/// Where packets to a destination go.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Route {
    /// To this host itself.
    Local,
    /// Out by our interface.
    Out(Hop),
}

/// The first step of a route.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Hop {
    /// The router to send to, `None` if the destination is on the link. That of an IPv4 route may be an IPv6 address.
    pub gateway: Option<IpAddr>,
    /// The address that the kernel would send from.
    pub source: Option<IpAddr>,
    /// The longest IP packet, where the route says so.
    pub mtu: Option<u32>,
}

/// The kernel's answer to one question: a route, perhaps by another interface.
struct Answer {
    route: Route,
    by: u32,
}

/// The route from `interface` to `dst`, for packets from `from`.
pub(super) fn look_up(
    netlink: &mut Netlink,
    interface: &Interface,
    dst: IpAddr,
    from: Option<IpAddr>,
) -> Result<Route, HostNetworkError> {
    // A link-local address is one on each link, so the question must name ours.
    if matches!(dst, IpAddr::V6(ip) if ip.is_unicast_link_local()) {
        return ask(netlink, dst, from, Some(interface.index), RouteFlags::empty()).map(|answer| answer.route);
    }
    let first = ask(netlink, dst, from, None, RouteFlags::empty());
    match &first {
        Ok(answer) if answer.route == Route::Local || answer.by == interface.index => return Ok(answer.route),
        Err(HostNetworkError::Unreachable { .. }) | Ok(_) => {}
        Err(_) => return first.map(|answer| answer.route),
    }
    // The best route is not by our interface, but there may be one that is.
    if let Some(route) = by_interface(netlink, interface.index, dst, from)? {
        return Ok(route);
    }
    let by = first?.by;
    let other = Interface::ask_index(netlink, by).map_or_else(|_| format!("interface {by}"), |other| other.name);
    Err(HostNetworkError::OtherInterface { name: interface.name.clone(), dst, other })
}

/// The route to `dst` that goes out by this interface, if there is one.
fn by_interface(
    netlink: &mut Netlink,
    index: u32,
    dst: IpAddr,
    from: Option<IpAddr>,
) -> Result<Option<Route>, HostNetworkError> {
    // Asked for IPv4 by an interface that no route uses, the kernel says "on the link". What is in its table is the
    // truth.
    if dst.is_ipv4() {
        match ask(netlink, dst, from, Some(index), RouteFlags::FibMatch) {
            Ok(_) => {}
            Err(HostNetworkError::Unreachable { .. }) => return Ok(None),
            Err(error) => return Err(error),
        }
    }
    match ask(netlink, dst, from, Some(index), RouteFlags::empty()) {
        Ok(answer) => Ok((answer.by == index).then_some(answer.route)),
        Err(HostNetworkError::Unreachable { .. }) => Ok(None),
        Err(error) => Err(error),
    }
}

fn ask(
    netlink: &mut Netlink,
    dst: IpAddr,
    from: Option<IpAddr>,
    by: Option<u32>,
    flags: RouteFlags,
) -> Result<Answer, HostNetworkError> {
    let (address_family, bits) = match dst {
        IpAddr::V4(_) => (AddressFamily::Inet, Ipv4Addr::BITS as u8),
        IpAddr::V6(_) => (AddressFamily::Inet6, Ipv6Addr::BITS as u8),
    };
    let mut question = RouteMessage::default();
    question.header = RouteHeader { address_family, destination_prefix_length: bits, flags, ..RouteHeader::default() };
    question.attributes.push(RouteAttribute::Destination(route_address(dst)));
    if let Some(from) = from {
        question.header.source_prefix_length = bits;
        question.attributes.push(RouteAttribute::Source(route_address(from)));
    }
    question.attributes.extend(by.map(RouteAttribute::Oif));
    let answers = netlink.ask(RouteNetlinkMessage::GetRoute(question), 0).map_err(|error| match error {
        // What kinds of routes that lead nowhere are answered with.
        Errno::HOSTUNREACH | Errno::NETUNREACH | Errno::ACCESS | Errno::INVAL | Errno::NETDOWN => {
            HostNetworkError::Unreachable { dst, error }
        }
        error => HostNetworkError::Netlink { what: "a route", error },
    })?;
    let answer = answers.iter().find_map(|answer| match answer {
        RouteNetlinkMessage::NewRoute(route) => Some(read(route, dst)),
        _ => None,
    });
    answer.unwrap_or(Err(HostNetworkError::Netlink { what: "a route", error: Errno::BADMSG }))
}

fn read(message: &RouteMessage, dst: IpAddr) -> Result<Answer, HostNetworkError> {
    let mut hop = Hop { gateway: None, source: None, mtu: None };
    let mut by = 0;
    for attribute in &message.attributes {
        match attribute {
            RouteAttribute::Oif(index) => by = *index,
            RouteAttribute::Gateway(gateway) => hop.gateway = ip(gateway),
            RouteAttribute::Via(RouteVia::Inet(gateway)) => hop.gateway = Some((*gateway).into()),
            RouteAttribute::Via(RouteVia::Inet6(gateway)) => hop.gateway = Some((*gateway).into()),
            RouteAttribute::PrefSource(source) => hop.source = ip(source),
            RouteAttribute::Metrics(metrics) => {
                hop.mtu = metrics.iter().find_map(|m| if let RouteMetric::Mtu(mtu) = m { Some(*mtu) } else { None });
            }
            _ => {}
        }
    }
    match message.header.kind {
        RouteType::Unicast => Ok(Answer { route: Route::Out(hop), by }),
        RouteType::Local => Ok(Answer { route: Route::Local, by }),
        RouteType::Prohibit => Err(HostNetworkError::Unreachable { dst, error: Errno::ACCESS }),
        RouteType::BlackHole | RouteType::Unreachable | RouteType::Throw => {
            Err(HostNetworkError::Unreachable { dst, error: Errno::HOSTUNREACH })
        }
        _ => Err(HostNetworkError::NotAPeer(dst)),
    }
}

fn route_address(ip: IpAddr) -> RouteAddress {
    match ip {
        IpAddr::V4(ip) => RouteAddress::Inet(ip),
        IpAddr::V6(ip) => RouteAddress::Inet6(ip),
    }
}

fn ip(address: &RouteAddress) -> Option<IpAddr> {
    match address {
        RouteAddress::Inet(ip) => Some((*ip).into()),
        RouteAddress::Inet6(ip) => Some((*ip).into()),
        _ => None,
    }
}
