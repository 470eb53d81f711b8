//! The fields of a TCP packet that are examined before smoltcp gets the packet: addresses, ports, flags.

use std::net::{IpAddr, SocketAddr};

use smoltcp::wire::{IpProtocol, IpVersion, Ipv4Packet, Ipv6Packet, TcpPacket};

/// The header of a TCP segment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Segment {
    pub(super) from: SocketAddr,
    pub(super) to: SocketAddr,
    /// The segment opens a connection.
    pub(super) opens: bool,
    pub(super) resets: bool,
    /// The SYN flag is set.
    pub(super) synchronises: bool,
    /// The first sequence number, the one behind the segment, and the number of payload bytes.
    pub(super) begin: u32,
    pub(super) end: u32,
    pub(super) payload: usize,
    /// The acknowledgement number, if the ACK flag is set.
    pub(super) acknowledges: Option<u32>,
    pub(super) window: u16,
}

impl Segment {
    /// The TCP segment in an IP packet. The packet must be a whole one with right checksums, from an address that can be answered.
    pub(crate) fn of(packet: &[u8]) -> Option<Segment> {
        let (src, dst, tcp): (IpAddr, IpAddr, &[u8]) = match IpVersion::of_packet(packet).ok()? {
            IpVersion::Ipv4 => {
                let ip = Ipv4Packet::new_checked(packet).ok()?;
                // TCP segments are sized to fit the path, so valid peers send no fragments.
                let whole = !ip.more_frags() && ip.frag_offset() == 0 && ip.verify_checksum();
                let tcp = (whole && ip.next_header() == IpProtocol::Tcp).then(|| ip.payload())?;
                (ip.src_addr().into(), ip.dst_addr().into(), tcp)
            }
            IpVersion::Ipv6 => {
                let ip = Ipv6Packet::new_checked(packet).ok()?;
                let tcp = (ip.next_header() == IpProtocol::Tcp).then(|| ip.payload())?;
                (ip.src_addr().into(), ip.dst_addr().into(), tcp)
            }
        };
        let tcp = TcpPacket::new_checked(tcp).ok()?;
        let (from, to) = (SocketAddr::new(src, tcp.src_port()), SocketAddr::new(dst, tcp.dst_port()));
        // Not from an unspecified address, a group, or this host (RFC 1122, 4.2.3.10).
        let right = tcp.verify_checksum(&src.into(), &dst.into());
        let answerable = right && is_host(src) && is_host(dst) && src != dst && from.port() != 0 && to.port() != 0;
        let opens = tcp.syn() && !tcp.ack() && !tcp.rst() && !tcp.fin();
        let acknowledges = tcp.ack().then(|| tcp.ack_number().0 as u32);
        let begin = tcp.seq_number().0 as u32;
        answerable.then(|| Segment {
            from,
            to,
            opens,
            resets: tcp.rst(),
            synchronises: tcp.syn(),
            begin,
            end: begin.wrapping_add(tcp.segment_len() as u32),
            payload: tcp.payload().len(),
            acknowledges,
            window: tcp.window_len(),
        })
    }

    /// For a segment sent by this port, the fields of the peer's reply: the ports of the peer and of this port, the acknowledgement number, and
    /// the sequence number.
    pub(crate) fn for_peer(&self) -> ((u16, u16), u32, Option<u32>) {
        ((self.to.port(), self.from.port()), self.end, self.acknowledges)
    }

    /// The destination address.
    pub(crate) fn destination(&self) -> IpAddr {
        self.to.ip()
    }
}

/// Whether an address can be that of one host on a network.
pub(super) fn is_host(address: IpAddr) -> bool {
    let broadcast = matches!(address, IpAddr::V4(address) if address.is_broadcast());
    !(broadcast || address.is_unspecified() || address.is_multicast() || address.is_loopback())
}
