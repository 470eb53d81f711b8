//! Errors of an interface of the host, and of the path from it to a peer.

use std::net::IpAddr;

use rustix::io::Errno;

use crate::remedy::remedy;

/// Why the host's network does not do what was asked.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum HostNetworkError {
    /// There is no such interface.
    #[error("there is no interface {wanted} here; there are: {}", existing.join(", "))]
    NoSuchInterface {
        /// The interface: a name or an index.
        wanted: String,
        /// The names of those that exist in this network namespace.
        existing: Vec<String>,
    },
    /// It has no MAC addresses, as loopback and tunnels have none.
    #[error("{0} is not an Ethernet interface: take one that is")]
    NotEthernet(String),
    /// The device below a VLAN interface is in another network namespace, so its queues cannot be used from here.
    #[error(
        "the device below the VLAN interface {0} is in another network namespace: run there, or make the VLAN here"
    )]
    ParentElsewhere(String),
    /// VLANs upon VLANs, more than a frame has room for.
    #[error("{0} stands on more than two VLANs: frames carry two tags at most")]
    TooManyTags(String),
    /// Not even the smallest RoCE packets fit.
    #[error("an MTU of {mtu} is too small for RoCE: give {name} one of 1500 or more (ip link set {name} mtu 1500)")]
    MtuTooSmall {
        /// The interface.
        name: String,
        /// Its MTU, or the route's.
        mtu: u32,
    },
    /// The interface has no address from which to reach the destination.
    #[error("{name} has no address to reach {dst} from: add one (ip address add ADDR/LEN dev {name})")]
    NoSource {
        /// The interface.
        name: String,
        /// The destination.
        dst: IpAddr,
    },
    /// The address to send from is not one of the interface's.
    #[error("{from} is not an address of {name}, or not a usable one yet")]
    NotOurs {
        /// The interface.
        name: String,
        /// The address.
        from: IpAddr,
    },
    /// No route leads there, or one that forbids it.
    #[error("the kernel has no route to {dst}: {error}")]
    Unreachable {
        /// The destination.
        dst: IpAddr,
        /// The kernel's error.
        error: Errno,
    },
    /// Routes lead there, but by another interface.
    #[error("{dst} is reached by {other}, not by {name}: use {other}, or add a route (ip route add {dst} dev {name})")]
    OtherInterface {
        /// Our interface.
        name: String,
        /// The destination.
        dst: IpAddr,
        /// The interface that leads there.
        other: String,
    },
    /// An address of this host that is not in the table: another interface's, or one that is not usable (yet). Nothing
    /// sent on the wire would come back to it.
    #[error(
        "{dst} is this host's own, but no usable address of {name}: take another of its addresses, or put the peer into \
         a network namespace of its own"
    )]
    LocalElsewhere {
        /// Our interface.
        name: String,
        /// The destination.
        dst: IpAddr,
    },
    /// IPv4 here, IPv6 there.
    #[error("{from} and {dst} are of different IP versions")]
    Versions {
        /// Our address.
        from: IpAddr,
        /// The destination.
        dst: IpAddr,
    },
    /// A broadcast address, or none at all.
    #[error("{0} is neither one host nor a multicast group")]
    NotAPeer(IpAddr),
    /// The next hop did not tell its MAC address.
    #[error("{0} does not answer when asked for its MAC address: is it up, and on this link?")]
    NoAnswer(IpAddr),
    /// An address that is no multicast group was to be joined.
    #[error("{0} is not a multicast group")]
    NotAGroup(IpAddr),
    /// The kernel did not join the group.
    #[error("cannot join the group {group}: {error}")]
    Join {
        /// The group.
        group: IpAddr,
        /// The kernel's error.
        error: Errno,
    },
    /// The kernel did not answer a question as it should.
    #[error("the kernel did not tell {what}: {error}{}", remedy(&(*.error).into()))]
    Netlink {
        /// The request.
        what: &'static str,
        /// The kernel's reply.
        error: Errno,
    },
}

impl HostNetworkError {
    /// For `map_err` of a question about `what`.
    pub(super) fn netlink(what: &'static str) -> impl Fn(Errno) -> HostNetworkError {
        move |error| HostNetworkError::Netlink { what, error }
    }
}
