//! What of a TCP packet is looked at before smoltcp gets it: addresses, ports, flags.

use std::net::{IpAddr, SocketAddr};

use smoltcp::wire::{IpProtocol, IpVersion, Ipv4Packet, Ipv6Packet, TcpPacket};

/// The head of a TCP segment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Segment {
    pub(super) from: SocketAddr,
    pub(super) to: SocketAddr,
    /// It begins a connection.
    pub(super) opens: bool,
    pub(super) resets: bool,
    /// It has the SYN flag.
    pub(super) synchronises: bool,
    /// Its first sequence number, the one behind it, and the bytes that it carries.
    pub(super) begin: u32,
    pub(super) end: u32,
    pub(super) payload: usize,
    /// The sequence number that it acknowledges.
    pub(super) acknowledges: Option<u32>,
    pub(super) window: u16,
}

impl Segment {
    /// The TCP segment in an IP packet that is whole and from somebody who can be answered, with right checksums.
    pub(crate) fn of(packet: &[u8]) -> Option<Segment> {
        let (src, dst, tcp): (IpAddr, IpAddr, &[u8]) = match IpVersion::of_packet(packet).ok()? {
            IpVersion::Ipv4 => {
                let ip = Ipv4Packet::new_checked(packet).ok()?;
                // Segments are made to fit the path; parts of one are nothing that a peer of ours sends.
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
        // From nowhere, from many or from ourselves (RFC 1122, 4.2.3.10).
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

    /// What the peer of a segment that we send answers with: its port and ours, what it acknowledges, and its own number.
    pub(crate) fn for_peer(&self) -> ((u16, u16), u32, Option<u32>) {
        ((self.to.port(), self.from.port()), self.end, self.acknowledges)
    }

    /// The address that it is for.
    pub(crate) fn destination(&self) -> IpAddr {
        self.to.ip()
    }
}

/// Whether an address can be that of one host on a network.
pub(super) fn is_host(address: IpAddr) -> bool {
    let broadcast = matches!(address, IpAddr::V4(address) if address.is_broadcast());
    !(broadcast || address.is_unspecified() || address.is_multicast() || address.is_loopback())
}
