//! Where a switch sends frames: learned and fixed MAC addresses, and routes with several next hops.

use std::net::IpAddr;

use softnic_wire::ethernet::{self, ethertype};
use softnic_wire::{MacAddr, ipv4, ipv6, udp};

use crate::hashed::{Seeded, Table};

/// Addresses that a switch remembers; more are flooded.
pub(crate) const MAX_MACS: usize = 16_384;

/// Which port leads to a MAC address.
#[derive(Debug, Clone, Default)]
pub(crate) struct MacTable(Table<u64, (usize, bool)>);

impl MacTable {
    pub(crate) fn new(seed: u64) -> MacTable {
        MacTable(Table::with_hasher(Seeded(seed)))
    }

    /// Remembers it for ever.
    pub(crate) fn fix(&mut self, mac: MacAddr, port: usize) {
        self.0.insert(number(mac), (port, true));
    }

    /// A frame from `mac` came in at `port`. Whether that is new.
    #[inline]
    pub(crate) fn learn(&mut self, mac: MacAddr, port: usize) -> bool {
        if is_group(mac) {
            return false; // nobody's address
        }
        let Some((known, fixed)) = self.0.get_mut(&number(mac)) else { return self.learn_new(mac, port) };
        let moved = *known != port && !*fixed;
        if moved {
            *known = port;
        }
        moved
    }

    #[cold]
    fn learn_new(&mut self, mac: MacAddr, port: usize) -> bool {
        let room = self.0.len() < MAX_MACS;
        if room {
            self.0.insert(number(mac), (port, false));
        }
        room
    }

    #[inline]
    pub(crate) fn port(&self, mac: MacAddr) -> Option<usize> {
        if is_group(mac) { None } else { self.0.get(&number(mac)).map(|(port, _)| *port) }
    }
}

#[inline]
fn number(mac: MacAddr) -> u64 {
    let [a, b, c, d, e, f] = mac.0;
    u64::from_be_bytes([0, 0, a, b, c, d, e, f])
}

#[inline]
fn is_group(mac: MacAddr) -> bool {
    mac.0[0] & 1 == 1
}

/// A part of the address space: all addresses of one IP version whose first `len` bits are those of `addr`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Prefix {
    /// Any address in it.
    pub addr: IpAddr,
    /// Bits that count.
    pub len: u8,
}

impl Prefix {
    /// Whether both are the same addresses.
    fn is_same(&self, other: &Prefix) -> bool {
        self.len == other.len && self.contains(other.addr)
    }

    fn contains(&self, addr: IpAddr) -> bool {
        let differ = bits(self.addr) ^ bits(addr);
        self.addr.is_ipv4() == addr.is_ipv4() && differ & self.mask() == 0
    }

    /// The bits that count, in what [`bits`] makes of an address.
    fn mask(&self) -> u128 {
        let width = if self.addr.is_ipv4() { 32 } else { 128 };
        u128::MAX.checked_shl(128 - u32::from(self.len.min(width))).unwrap_or(0)
    }
}

/// An address as a number whose upper bits are those of the network.
#[inline]
fn bits(address: IpAddr) -> u128 {
    match address {
        IpAddr::V4(a) => u128::from(a.to_bits()) << 96,
        IpAddr::V6(a) => a.to_bits(),
    }
}

/// A way on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NextHop {
    /// A neighbour whose place is known.
    Fixed {
        /// Out of this port.
        port: usize,
        /// To this neighbour.
        mac: MacAddr,
    },
    /// The neighbour with this address; its MAC address is to be asked for.
    Via(IpAddr),
    /// The destination is a neighbour itself.
    Direct,
}

/// Routes, the longest prefixes first.
#[derive(Debug, Clone, Default)]
pub(crate) struct Routes(Vec<Route>);

#[derive(Debug, Clone)]
struct Route {
    prefix: Prefix,
    /// The prefix as addresses are compared.
    bits: u128,
    mask: u128,
    next_hops: Vec<NextHop>,
}

impl Routes {
    pub(crate) fn add(&mut self, prefix: Prefix, next_hops: Vec<NextHop>) {
        let at = self.0.partition_point(|route| route.prefix.len >= prefix.len);
        let mask = prefix.mask();
        self.0.insert(at, Route { prefix, bits: bits(prefix.addr) & mask, mask, next_hops });
    }

    /// Replaces what leads to exactly these addresses, or adds it.
    pub(crate) fn set(&mut self, prefix: Prefix, next_hops: Vec<NextHop>) {
        self.0.retain(|route| !route.prefix.is_same(&prefix));
        self.add(prefix, next_hops);
    }

    /// The next hop to an address: of several that of a flow, whose packets always take the same.
    #[inline]
    pub(crate) fn next_hop(&self, dst: IpAddr, salt: u64, flow: impl FnOnce() -> Option<FlowKey>) -> Option<NextHop> {
        let (dst, v4) = (bits(dst), dst.is_ipv4());
        let found = self.0.iter().find(|r| dst & r.mask == r.bits && v4 == r.prefix.addr.is_ipv4())?;
        match *found.next_hops {
            [] => None,
            [hop] => Some(hop),
            ref hops => hops.get((flow()?.hash(salt) % hops.len() as u64) as usize).copied(),
        }
    }
}

/// What tells flows apart: addresses, protocol, and UDP ports where there are any.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct FlowKey {
    src: IpAddr,
    dst: IpAddr,
    protocol: u8,
    ports: [u16; 2],
}

impl FlowKey {
    /// Of an IP packet in a frame.
    pub(crate) fn of(frame: &[u8]) -> Option<FlowKey> {
        let (kind, at) = ethernet::network_layer(frame).ok()?;
        let packet = frame.get(at..)?;
        let (src, dst, protocol, upper) = match kind {
            ethertype::IPV4 => {
                let ip = ipv4::Packet::new_checked(packet).ok()?;
                (ip.src().into(), ip.dst().into(), ip.protocol(), ip.header_len())
            }
            ethertype::IPV6 => {
                let ip = ipv6::Packet::new_checked(packet).ok()?;
                let (protocol, upper) = ip.upper_layer().unwrap_or((ip.next_header(), packet.len()));
                (ip.src().into(), ip.dst().into(), protocol, upper)
            }
            _ => return None,
        };
        let udp = packet.get(upper..).filter(|_| protocol == udp::PROTOCOL);
        let ports = udp.and_then(|u| udp::Packet::new_checked(u).ok()).map_or([0; 2], |u| [u.src_port(), u.dst_port()]);
        Some(FlowKey { src, dst, protocol, ports })
    }

    /// Of a RoCE packet.
    pub(crate) fn roce(src: IpAddr, dst: IpAddr, src_port: u16) -> FlowKey {
        FlowKey { src, dst, protocol: udp::PROTOCOL, ports: [src_port, udp::ROCE_PORT] }
    }

    /// Well mixed, and different for each salt: switches in a row must not all choose alike.
    fn hash(&self, salt: u64) -> u64 {
        let fold = |a: IpAddr| match a {
            IpAddr::V4(a) => u64::from(u32::from(a)),
            IpAddr::V6(a) => (u128::from(a) >> 64) as u64 ^ u128::from(a) as u64,
        };
        let ports = u64::from(self.ports[0]) << 32 | u64::from(self.ports[1]) << 16 | u64::from(self.protocol);
        [fold(self.src), fold(self.dst), ports].iter().fold(mix(salt), |h, word| mix(h ^ word))
    }
}

/// Where the IP packet in a frame goes to.
#[inline]
pub(crate) fn destination(frame: &[u8]) -> Option<IpAddr> {
    let (kind, at) = ethernet::network_layer(frame).ok()?;
    let packet = frame.get(at..)?;
    match kind {
        ethertype::IPV4 => ipv4::Packet::new_checked(packet).ok().map(|ip| ip.dst().into()),
        ethertype::IPV6 => ipv6::Packet::new_checked(packet).ok().map(|ip| ip.dst().into()),
        _ => None,
    }
}

/// SplitMix64's finisher, after a step.
fn mix(x: u64) -> u64 {
    let x = x.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let x = (x ^ x >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let x = (x ^ x >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ x >> 31
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_longest_prefix_decides_and_versions_do_not_mix() {
        let hop = |port| NextHop::Fixed { port, mac: MacAddr([0; 6]) };
        let mut routes = Routes::default();
        for (addr, len, port) in
            [("10.0.0.0", 8, 1), ("10.1.0.0", 16, 2), ("0.0.0.0", 0, 3), ("10.1.2.3", 32, 4), ("fd00::", 8, 5)]
        {
            routes.add(Prefix { addr: addr.parse().unwrap(), len }, vec![hop(port)]);
        }
        let to = |dst: &str| {
            let dst = dst.parse().unwrap();
            routes.next_hop(dst, 0, || None).map(|hop| match hop {
                NextHop::Fixed { port, .. } => port,
                other => panic!("{other:?}"),
            })
        };
        assert_eq!(
            (to("10.9.0.1"), to("10.1.9.9"), to("10.1.2.3"), to("11.0.0.1")),
            (Some(1), Some(2), Some(4), Some(3))
        );
        assert_eq!((to("fd12::1"), to("fe80::1")), (Some(5), None));
    }

    #[test]
    fn a_route_replaces_the_one_to_the_same_addresses_however_they_are_written() {
        let mut routes = Routes::default();
        let to = |addr: &str| Prefix { addr: addr.parse().unwrap(), len: 24 };
        routes.set(to("10.0.1.254"), vec![NextHop::Direct]);
        routes.set(to("10.0.2.254"), vec![NextHop::Direct]);
        routes.set(to("10.0.1.0"), vec![NextHop::Via([10, 0, 2, 7].into())]);
        assert_eq!(routes.0.len(), 2);
        assert_eq!(routes.next_hop([10, 0, 1, 9].into(), 0, || None), Some(NextHop::Via([10, 0, 2, 7].into())));
    }

    #[test]
    fn a_learned_address_moves_a_fixed_one_stays_and_groups_are_nobodys() {
        let mut table = MacTable::default();
        let (a, b, group) = (MacAddr([2, 0, 0, 0, 0, 1]), MacAddr([2, 0, 0, 0, 0, 2]), MacAddr([3, 0, 0, 0, 0, 1]));
        table.fix(b, 7);
        for (mac, port) in [(a, 1), (a, 2), (b, 1), (group, 1)] {
            table.learn(mac, port);
        }
        assert_eq!((table.port(a), table.port(b), table.port(group)), (Some(2), Some(7), None));
    }
}
