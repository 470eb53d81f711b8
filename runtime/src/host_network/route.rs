//! Routes: by which next hop the kernel would reach a destination, and whether that is by our interface.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use rustix::io::Errno;

use super::error::HostNetworkError;
use super::interface::Interface;
use super::netlink::Netlink;
use super::rtnetlink::route::{
    RTA_DST, RTA_OIF, RTA_SRC, RTM_F_FIB_MATCH, RTN_BLACKHOLE, RTN_LOCAL, RTN_PROHIBIT, RTN_THROW, RTN_UNICAST,
    RTN_UNREACHABLE, RouteMessage, question,
};
use super::rtnetlink::{AF_INET, AF_INET6, Message, RTM_GETROUTE, Request};

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
        return ask(netlink, dst, from, Some(interface.index), 0).map(|answer| answer.route);
    }
    let first = ask(netlink, dst, from, None, 0);
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
        match ask(netlink, dst, from, Some(index), RTM_F_FIB_MATCH) {
            Ok(_) => {}
            Err(HostNetworkError::Unreachable { .. }) => return Ok(None),
            Err(error) => return Err(error),
        }
    }
    match ask(netlink, dst, from, Some(index), 0) {
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
    flags: u32,
) -> Result<Answer, HostNetworkError> {
    let (family, bits) = match dst {
        IpAddr::V4(_) => (AF_INET, Ipv4Addr::BITS as u8),
        IpAddr::V6(_) => (AF_INET6, Ipv6Addr::BITS as u8),
    };
    let mut attributes = question(family, bits, if from.is_some() { bits } else { 0 }, flags).with_ip(RTA_DST, dst);
    if let Some(from) = from {
        attributes = attributes.with_ip(RTA_SRC, from);
    }
    if let Some(by) = by {
        attributes = attributes.with_u32(RTA_OIF, by);
    }
    let answers = netlink.ask(&Request::new(RTM_GETROUTE, attributes), 0).map_err(|error| match error {
        // What kinds of routes that lead nowhere are answered with.
        Errno::HOSTUNREACH | Errno::NETUNREACH | Errno::ACCESS | Errno::INVAL | Errno::NETDOWN => {
            HostNetworkError::Unreachable { dst, error }
        }
        error => HostNetworkError::Netlink { what: "a route", error },
    })?;
    let answer = answers.iter().find_map(|answer| match answer {
        Message::NewRoute(route) => Some(read(route, dst)),
        _ => None,
    });
    answer.unwrap_or(Err(HostNetworkError::Netlink { what: "a route", error: Errno::BADMSG }))
}

fn read(message: &RouteMessage, dst: IpAddr) -> Result<Answer, HostNetworkError> {
    let hop = Hop { gateway: message.gateway, source: message.source, mtu: message.mtu };
    let by = message.by.unwrap_or(0);
    match message.kind {
        RTN_UNICAST => Ok(Answer { route: Route::Out(hop), by }),
        RTN_LOCAL => Ok(Answer { route: Route::Local, by }),
        RTN_PROHIBIT => Err(HostNetworkError::Unreachable { dst, error: Errno::ACCESS }),
        RTN_BLACKHOLE | RTN_UNREACHABLE | RTN_THROW => {
            Err(HostNetworkError::Unreachable { dst, error: Errno::HOSTUNREACH })
        }
        _ => Err(HostNetworkError::NotAPeer(dst)),
    }
}
