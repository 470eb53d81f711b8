//! Where the parts of a RoCE packet lie in a frame: link, network and UDP headers found, lengths compared.

use core::fmt;
use core::net::IpAddr;

use crate::bytes::{be16, be32, put16};
use crate::{Error, NotRoce, bth, ethernet, icrc, ipv4, ipv6, udp};

/// What carries the BTH.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Carrier {
    /// RoCEv1: a GRH right behind the Ethernet header.
    RoceV1,
    /// RoCEv2: UDP over IPv4.
    Ipv4,
    /// RoCEv2: UDP over IPv6.
    Ipv6,
}

impl Carrier {
    /// 1 or 2.
    pub const fn roce_version(self) -> u8 {
        match self {
            Carrier::RoceV1 => 1,
            Carrier::Ipv4 | Carrier::Ipv6 => 2,
        }
    }
}

/// Offsets of a RoCE packet's parts, and where its length fields say it ends.
///
/// [`Layout::locate`] only looks for the BTH, so that a tool can show a damaged or cut-off packet;
/// [`Layout::check`] is what a NIC asks before it believes the packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Layout {
    /// What carries the BTH.
    pub carrier: Carrier,
    /// Offset of the IP header or GRH: the ICRC begins here.
    pub network: usize,
    /// Offset of the UDP header; of the BTH in RoCEv1.
    pub udp: usize,
    /// Offset of the BTH.
    pub bth: usize,
    /// One past the last byte of the ICRC, by the IP header's (or GRH's) length field.
    pub end: usize,
    /// The same by the UDP header's length field; equal to `end` in RoCEv1 and in every packet that is right.
    pub udp_end: usize,
}

impl Layout {
    /// Finds the BTH in an Ethernet frame.
    #[inline(always)]
    pub fn locate(frame: &[u8]) -> Result<Layout, Error> {
        match Layout::locate_plain(frame) {
            Some(layout) => Ok(layout),
            None => Layout::locate_general(frame),
        }
    }

    /// What [`Layout::locate_general`] finds in a frame of the common kind: no tag, IPv4 without options, not a fragment,
    /// UDP to the RoCE port. One length check and three comparisons; `None` means no more than "look properly".
    #[inline(always)]
    pub(crate) fn locate_plain(frame: &[u8]) -> Option<Layout> {
        const IP: usize = ethernet::LEN;
        const UDP: usize = IP + ipv4::LEN;
        const BTH: usize = UDP + udp::LEN;
        const ETHERTYPE_VERSION_LEN: u32 = (ethernet::ethertype::IPV4 as u32) << 16 | 0x4500;
        let h = frame.first_chunk::<BTH>()?;
        // Ethertype, version, header length; fragment offset and flag, protocol; destination port.
        let plain = be32(h, IP - 2) & 0xffff_ff00 == ETHERTYPE_VERSION_LEN
            && be32(h, IP + ipv4::field::FRAGMENT) & 0x3fff_00ff == u32::from(udp::PROTOCOL)
            && be16(h, UDP + udp::field::DST) == udp::ROCE_PORT;
        plain.then(|| Layout {
            carrier: Carrier::Ipv4,
            network: IP,
            udp: UDP,
            bth: BTH,
            end: IP + usize::from(be16(h, IP + ipv4::field::TOTAL_LEN)),
            udp_end: UDP + usize::from(be16(h, UDP + udp::field::LEN)),
        })
    }

    /// Finds the BTH in an Ethernet frame of any kind.
    #[inline(always)]
    pub(crate) fn locate_general(frame: &[u8]) -> Result<Layout, Error> {
        let (kind, at) = ethernet::network_layer(frame)?;
        Layout::locate_network(frame, kind, at)
    }

    /// Finds the BTH when the network header of kind `ethertype` begins at `at`.
    #[inline(always)]
    pub fn locate_network(frame: &[u8], ethertype: u16, at: usize) -> Result<Layout, Error> {
        let packet = frame.get(at..).unwrap_or_default();
        match ethertype {
            ethernet::ethertype::IPV4 => {
                let ip = ipv4::Packet::new_checked(packet)?;
                if ip.protocol() != udp::PROTOCOL {
                    return Err(Error::NotRoce(NotRoce::IpProtocol(ip.protocol())));
                }
                if ip.is_fragment() {
                    return Err(Error::Fragment);
                }
                Layout::behind_ip(frame, Carrier::Ipv4, at, at + ip.header_len(), at + ip.total_len())
            }
            ethernet::ethertype::IPV6 => {
                let ip = ipv6::Packet::new_checked(packet)?;
                let (protocol, udp) = ip.upper_layer()?;
                if protocol != udp::PROTOCOL {
                    return Err(Error::NotRoce(NotRoce::IpProtocol(protocol)));
                }
                Layout::behind_ip(frame, Carrier::Ipv6, at, at + udp, at + ipv6::LEN + ip.payload_len())
            }
            ethernet::ethertype::ROCE_V1 => {
                let grh = ipv6::Packet::new_checked(packet)?;
                let bth = at + ipv6::LEN;
                // A GRH counts from the BTH to the ICRC, inclusive (IBA 8.3).
                let end = bth + grh.payload_len();
                Ok(Layout { carrier: Carrier::RoceV1, network: at, udp: bth, bth, end, udp_end: end })
            }
            other => Err(Error::NotRoce(NotRoce::EtherType(other))),
        }
    }

    #[inline(always)]
    fn behind_ip(frame: &[u8], carrier: Carrier, network: usize, at: usize, end: usize) -> Result<Layout, Error> {
        let header = udp::Packet::new_checked(frame.get(at..).unwrap_or_default())?;
        if header.dst_port() != udp::ROCE_PORT {
            return Err(Error::NotRoce(NotRoce::UdpPort(header.dst_port())));
        }
        Ok(Layout { carrier, network, udp: at, bth: at + udp::LEN, end, udp_end: at + header.len() })
    }

    /// `Ok` when the length fields agree with each other, leave room for a BTH and an ICRC, and the frame reaches
    /// to the end. Bytes behind the end are Ethernet padding.
    #[inline]
    pub fn check(&self, frame_len: usize) -> Result<(), Error> {
        if self.end != self.udp_end {
            return Err(Error::Malformed { what: "UDP header", why: "its length and the IP header's do not agree" });
        }
        if self.end < self.bth + bth::LEN + icrc::LEN {
            return Err(Error::Malformed { what: "RoCE packet", why: "too short for a BTH and an ICRC" });
        }
        Error::check_len("RoCE packet", self.end, frame_len)
    }

    /// [`Layout::check`] for a frame whose payload and ICRC were elided by the simulator.
    #[inline]
    pub fn check_elided(&self) -> Result<(), Error> {
        self.check(usize::MAX)
    }

    /// Writes the length fields of a packet that ends at `end`, and the header checksum of IPv4.
    ///
    /// # Panics
    /// When the headers are not in `frame`, where [`Layout::locate`] found them.
    pub fn set_end(&self, frame: &mut [u8], end: usize) {
        if self.carrier != Carrier::RoceV1 {
            put16(frame, self.udp + udp::field::LEN, (end - self.udp) as u16);
        }
        match self.carrier {
            Carrier::Ipv4 => {
                let header = &mut frame[self.network..self.udp];
                put16(header, ipv4::field::TOTAL_LEN, (end - self.network) as u16);
                put16(header, ipv4::field::CHECKSUM, 0);
                let checksum = !ipv4::sum(header);
                put16(header, ipv4::field::CHECKSUM, checksum);
            }
            Carrier::Ipv6 | Carrier::RoceV1 => {
                let header = &mut frame[self.network..];
                put16(header, ipv6::field::PAYLOAD_LEN, (end - self.network - ipv6::LEN) as u16);
            }
        }
    }

    /// Source and destination address. RoCEv1 has GIDs, which are IPv6 addresses in form.
    #[inline]
    pub fn addresses(&self, frame: &[u8]) -> Option<(IpAddr, IpAddr)> {
        let packet = frame.get(self.network..)?;
        match self.carrier {
            Carrier::Ipv4 => {
                let ip = ipv4::Packet::new_checked(packet).ok()?;
                Some((ip.src().into(), ip.dst().into()))
            }
            Carrier::Ipv6 | Carrier::RoceV1 => {
                let ip = ipv6::Packet::new_checked(packet).ok()?;
                Some((ip.src().into(), ip.dst().into()))
            }
        }
    }

    /// Source UDP port; `None` in RoCEv1.
    pub fn src_port(&self, frame: &[u8]) -> Option<u16> {
        if self.carrier == Carrier::RoceV1 {
            return None;
        }
        udp::Packet::new_checked(frame.get(self.udp..)?).ok().map(|u| u.src_port())
    }

    /// DSCP and ECN.
    #[inline]
    pub fn traffic_class(&self, frame: &[u8]) -> Option<u8> {
        let packet = frame.get(self.network..)?;
        match self.carrier {
            Carrier::Ipv4 => ipv4::Packet::new_checked(packet).ok().map(|ip| ip.tos()),
            Carrier::Ipv6 | Carrier::RoceV1 => ipv6::Packet::new_checked(packet).ok().map(|ip| ip.traffic_class()),
        }
    }
}

impl fmt::Display for Carrier {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Carrier::RoceV1 => "RoCEv1",
            Carrier::Ipv4 => "IP",
            Carrier::Ipv6 => "IP6",
        })
    }
}
