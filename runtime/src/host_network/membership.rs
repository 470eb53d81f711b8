//! Membership of multicast groups: by it the kernel lets a group's frames through the device's filter, and switches
//! that listen to IGMP and MLD send them here.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, UdpSocket};

use rustix::io::Errno;
use rustix::net::sockopt;

use super::error::HostNetworkError;

/// A group that the interface is a member of, until this is dropped.
#[derive(Debug)]
pub struct Membership {
    group: IpAddr,
    index: u32,
    /// Receives nothing; it holds the membership.
    socket: UdpSocket,
}

impl Membership {
    /// Joins `group` on the interface with number `index`.
    pub fn join(index: u32, group: IpAddr) -> Result<Membership, HostNetworkError> {
        if !group.is_multicast() {
            return Err(HostNetworkError::NotAGroup(group));
        }
        let failed = |error| HostNetworkError::Join { group, error };
        let any = match group {
            IpAddr::V4(_) => IpAddr::from(Ipv4Addr::UNSPECIFIED),
            IpAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
        };
        // Any free port: a socket at RoCE's would take the port from others.
        let socket = UdpSocket::bind((any, 0)).map_err(|e| failed(Errno::from_io_error(&e).unwrap_or(Errno::IO)))?;
        match &group {
            IpAddr::V4(ip) => sockopt::set_ip_add_membership_with_ifindex(&socket, ip, &Ipv4Addr::UNSPECIFIED, index),
            IpAddr::V6(ip) => sockopt::set_ipv6_add_membership(&socket, ip, index),
        }
        .map_err(failed)?;
        Ok(Membership { group, index, socket })
    }

    /// The group.
    pub fn group(&self) -> IpAddr {
        self.group
    }
}

impl Drop for Membership {
    /// The kernel would leave the group when the socket is closed, but a child process that is just being started has
    /// a copy of it. An interface that is gone has left its groups itself.
    fn drop(&mut self) {
        let _ = match &self.group {
            IpAddr::V4(ip) => {
                sockopt::set_ip_drop_membership_with_ifindex(&self.socket, ip, &Ipv4Addr::UNSPECIFIED, self.index)
            }
            IpAddr::V6(ip) => sockopt::set_ipv6_drop_membership(&self.socket, ip, self.index),
        };
    }
}
