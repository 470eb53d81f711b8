//! Building frames on the hot path: a queue pair's headers written once, copied and patched for each packet.

use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use crate::bytes::put16;
use crate::ethernet::{self, MacAddr, VlanTag};
use crate::icrc::{self, Icrc};
use crate::layout::Carrier;
use crate::{Error, ExtHeaders, Opcode, Psn, Qpn, TxFrame, bth, ipv4, ipv6, udp};

/// The two ends of a path, both of one IP version.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Addresses {
    /// RoCEv2 over IPv4.
    V4 {
        /// Source address.
        src: Ipv4Addr,
        /// Destination address.
        dst: Ipv4Addr,
    },
    /// RoCEv2 over IPv6.
    V6 {
        /// Source address.
        src: Ipv6Addr,
        /// Destination address.
        dst: Ipv6Addr,
    },
}

impl Addresses {
    /// From two addresses; `None` when they are of different versions.
    pub fn new(src: IpAddr, dst: IpAddr) -> Option<Addresses> {
        match (src, dst) {
            (IpAddr::V4(src), IpAddr::V4(dst)) => Some(Addresses::V4 { src, dst }),
            (IpAddr::V6(src), IpAddr::V6(dst)) => Some(Addresses::V6 { src, dst }),
            _ => None,
        }
    }

    /// Source address.
    pub const fn src(&self) -> IpAddr {
        match *self {
            Addresses::V4 { src, .. } => IpAddr::V4(src),
            Addresses::V6 { src, .. } => IpAddr::V6(src),
        }
    }

    /// Destination address.
    pub const fn dst(&self) -> IpAddr {
        match *self {
            Addresses::V4 { dst, .. } => IpAddr::V4(dst),
            Addresses::V6 { dst, .. } => IpAddr::V6(dst),
        }
    }
}

/// Everything about a frame that is the same for all packets of a path.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Path {
    /// Our MAC address.
    pub src_mac: MacAddr,
    /// The next hop's MAC address.
    pub dst_mac: MacAddr,
    /// VLAN tags from outside in.
    pub tags: [Option<VlanTag>; ethernet::MAX_TAGS],
    /// The two ends.
    pub addresses: Addresses,
    /// DSCP and ECN.
    pub traffic_class: u8,
    /// IPv6 flow label, 20 bits; unused over IPv4.
    pub flow_label: u32,
    /// TTL or hop limit.
    pub hop_limit: u8,
    /// UDP source port: entropy for ECMP.
    pub src_port: u16,
}

/// What differs from packet to packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PacketFields {
    /// The operation.
    pub opcode: Opcode,
    /// Packet sequence number.
    pub psn: Psn,
    /// Acknowledgement wanted.
    pub ack_req: bool,
    /// Solicited event.
    pub solicited: bool,
    /// Backward congestion notification: on CNPs.
    pub becn: bool,
    /// Bytes of payload, without padding.
    pub payload_len: usize,
}

/// The longest stretch from Ethernet to BTH: two tags, IPv6.
const MAX_HEADERS: usize = ethernet::LEN + ethernet::MAX_TAGS * ethernet::TAG_LEN + ipv6::LEN + udp::LEN + bth::LEN;

/// The headers of a queue pair's packets, Ethernet to BTH, with ones where the ICRC wants ones.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Template {
    bytes: [u8; MAX_HEADERS],
    carrier: Carrier,
    network: u8,
    udp: u8,
    bth: u8,
    /// What the masked fields are in truth: IPv4 TOS, or the first word of IPv6; TTL or hop limit.
    first_word: [u8; 4],
    hop_limit: u8,
    /// Sum of the IPv4 header without its total length.
    checksum_base: u32,
}

/// A frame between [`Template::start`] and [`Template::finish`]: headers written, payload to come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[must_use = "a frame has no ICRC before `finish`"]
pub struct Started {
    /// Offset of the payload.
    pub payload: usize,
    /// Bytes of payload.
    pub payload_len: usize,
    becn: bool,
}

impl Template {
    /// The next hop has another MAC address. Nothing else depends on it: the ICRC begins behind it.
    pub fn set_dst_mac(&mut self, mac: MacAddr) {
        self.bytes[..mac.0.len()].copy_from_slice(&mac.0);
    }

    /// Headers for packets along `path` to `dest_qp`.
    pub fn new(path: &Path, dest_qp: Qpn, pkey: u16) -> Template {
        let mut bytes = [0; MAX_HEADERS];
        let (carrier, ethertype) = match path.addresses {
            Addresses::V4 { .. } => (Carrier::Ipv4, ethernet::ethertype::IPV4),
            Addresses::V6 { .. } => (Carrier::Ipv6, ethernet::ethertype::IPV6),
        };
        let eth = ethernet::Repr { dst: path.dst_mac, src: path.src_mac, tags: path.tags, ethertype };
        let network = eth.buffer_len();
        // The emits below cannot fail: `bytes` has room for the longest combination.
        let _ = eth.emit(&mut ethernet::Packet::new_unchecked(&mut bytes[..]));
        let (udp, checksum_base) = match path.addresses {
            Addresses::V4 { src, dst } => {
                let ip = ipv4::Repr {
                    src,
                    dst,
                    tos: path.traffic_class,
                    ttl: path.hop_limit,
                    // A recovered packet must have the ICRC of the sent one, so nothing in the header may vary.
                    id: 0,
                    dont_fragment: true,
                    protocol: udp::PROTOCOL,
                    payload_len: 0,
                };
                let header = &mut bytes[network..network + ipv4::LEN];
                let _ = ip.emit(&mut ipv4::Packet::new_unchecked(&mut *header));
                put16(header, ipv4::field::TOTAL_LEN, 0);
                put16(header, ipv4::field::CHECKSUM, 0);
                (network + ipv4::LEN, u32::from(ipv4::sum(header)))
            }
            Addresses::V6 { src, dst } => {
                let ip = ipv6::Repr {
                    src,
                    dst,
                    traffic_class: path.traffic_class,
                    flow_label: path.flow_label,
                    hop_limit: path.hop_limit,
                    next_header: udp::PROTOCOL,
                    payload_len: 0,
                };
                let _ = ip.emit(&mut ipv6::Packet::new_unchecked(&mut bytes[network..]));
                (network + ipv6::LEN, 0)
            }
        };
        let repr = udp::Repr { src_port: path.src_port, dst_port: udp::ROCE_PORT, payload_len: 0 };
        let _ = repr.emit(&mut udp::Packet::new_unchecked(&mut bytes[udp..]));
        let bth = udp + udp::LEN;
        let repr = bth::Repr {
            opcode: Opcode(0),
            solicited: false,
            mig_req: true,
            pad: 0,
            tver: 0,
            pkey,
            fecn: false,
            becn: false,
            dest_qp,
            ack_req: false,
            psn: Psn::new(0),
        };
        let _ = repr.emit(&mut bth::Packet::new_unchecked(&mut bytes[bth..]));
        let mut first_word = [0; 4];
        first_word.copy_from_slice(&bytes[network..network + 4]);
        icrc::mask_network(&mut bytes[network..udp], carrier);
        icrc::mask_transport(&mut bytes[udp..], carrier);
        Template {
            bytes,
            carrier,
            network: network as u8,
            udp: udp as u8,
            bth: bth as u8,
            first_word,
            hop_limit: path.hop_limit,
            checksum_base,
        }
    }

    /// The same headers for another destination: datagrams of one path go to many queue pairs.
    pub fn with_dest_qp(&self, dest_qp: Qpn) -> Template {
        let mut t = *self;
        bth::Packet::new_unchecked(&mut t.bytes[usize::from(self.bth)..]).set_dest_qp(dest_qp);
        t
    }

    /// The same headers with a UDP source port so many ahead, among those that RoCE uses: for another way through the network.
    pub fn with_src_port_ahead(&self, by: u16) -> Template {
        const DYNAMIC: u16 = 0xc000;
        let mut t = *self;
        let at = usize::from(self.udp) + udp::field::SRC;
        let port = u16::from_be_bytes([self.bytes[at], self.bytes[at + 1]]);
        put16(&mut t.bytes, at, DYNAMIC | port.wrapping_add(by));
        t
    }

    /// The same headers with other DSCP and ECN bits: congestion notifications have a class of their own.
    pub fn with_traffic_class(&self, class: u8) -> Template {
        let mut t = *self;
        let word = |w: &[u8; 4]| u32::from(u16::from_be_bytes([w[0], w[1]]));
        match self.carrier {
            Carrier::Ipv4 => {
                t.first_word[1] = class;
                // A sum with end-around carry: the old word is taken off by adding its complement.
                t.checksum_base += (0xffff - word(&self.first_word)) + word(&t.first_word);
            }
            Carrier::Ipv6 | Carrier::RoceV1 => {
                t.first_word[0] = self.first_word[0] & 0xf0 | class >> 4;
                t.first_word[1] = class << 4 | self.first_word[1] & 0x0f;
            }
        }
        t
    }

    /// Bytes from the Ethernet header to the end of the BTH.
    #[inline]
    pub fn headers_len(&self) -> usize {
        usize::from(self.bth) + bth::LEN
    }

    /// Bytes of the frame that [`Template::start`] and [`Template::finish`] make of these.
    #[inline]
    pub fn frame_len(&self, ext_len: usize, payload_len: usize) -> usize {
        self.headers_len() + ext_len + payload_len.next_multiple_of(4) + icrc::LEN
    }

    /// Writes all headers; then the caller copies `payload_len` bytes to offset `payload`, then [`Template::finish`].
    #[inline(always)] // a `Started` in memory is stored in pieces and loaded as a vector, which waits: a fifth of a build
    pub fn start(&self, tx: &mut TxFrame<'_>, p: &PacketFields, ext: &ExtHeaders) -> Result<Started, Error> {
        let (started, end) = self.headers(tx, p, ext)?;
        Error::check_len("frame", end, tx.capacity())?;
        tx.set_len(end);
        Ok(started)
    }

    /// Writes all headers; also says where the frame will end.
    #[inline(always)]
    fn headers(&self, tx: &mut TxFrame<'_>, p: &PacketFields, ext: &ExtHeaders) -> Result<(Started, usize), Error> {
        let first = tx.first_mut();
        Error::check_len("first segment of a frame", TxFrame::MIN_FIRST, first.len())?;
        // Checked before anything is added to it, so that no sum below can wrap.
        if p.payload_len > usize::from(u16::MAX) {
            return Err(Error::Malformed { what: "frame", why: "longer than an IP packet can be" });
        }
        // A copy of constant length compiles to a few vector moves; what is too much is overwritten below.
        first[..MAX_HEADERS].copy_from_slice(&self.bytes);
        let pad = p.payload_len.wrapping_neg() & 3;
        let bth_at = usize::from(self.bth);
        let header = &mut first[bth_at..bth_at + bth::LEN];
        let mut view = bth::Packet::new_unchecked(header);
        view.set_opcode(p.opcode);
        // MigReq is set on everything but a CNP, as hardware has it.
        view.set_flags(p.solicited, !p.becn, pad as u8, 0);
        view.set_ack_req(p.ack_req);
        view.set_psn(p.psn);
        let ext_at = bth_at + bth::LEN;
        let payload = ext_at + ext.emit(&mut first[ext_at..])?;
        let end = payload + p.payload_len + pad + icrc::LEN;
        let udp_at = usize::from(self.udp);
        let udp_len = end - udp_at;
        if udp_len > usize::from(u16::MAX) - ipv6::LEN {
            return Err(Error::Malformed { what: "frame", why: "longer than an IP packet can be" });
        }
        put16(first, udp_at + udp::field::LEN, udp_len as u16);
        let network = usize::from(self.network);
        match self.carrier {
            Carrier::Ipv4 => put16(first, network + ipv4::field::TOTAL_LEN, (udp_len + ipv4::LEN) as u16),
            Carrier::Ipv6 | Carrier::RoceV1 => put16(first, network + ipv6::field::PAYLOAD_LEN, udp_len as u16),
        }
        Ok((Started { payload, payload_len: p.payload_len, becn: p.becn }, end))
    }

    /// The headers that the ICRC covers, and the room for the payload as it lies in the frame's segments: for copying and summing at
    /// once, beginning with [`Icrc::new`]; then [`Template::finish_summed`].
    #[inline(always)]
    pub fn parts<'t>(&self, tx: &'t mut TxFrame<'_>, s: &Started) -> (&'t [u8], &'t mut [u8], &'t mut [u8]) {
        let network = usize::from(self.network);
        let head = s.payload - network;
        let (a, b) = tx.slices_mut(network, head + s.payload_len);
        let (head, a) = a.split_at_mut(head);
        (head, a, b)
    }

    /// Pads the payload, appends the ICRC and puts the variant fields in place. The frame is ready to leave.
    #[inline]
    pub fn finish(&self, tx: &mut TxFrame<'_>, s: Started) {
        let mut crc = Icrc::new();
        let (head, a, b) = self.parts(tx, &s);
        crc.update(head);
        crc.update(a);
        crc.update(b);
        self.finish_summed(tx, s, crc);
    }

    /// [`Template::finish`], where the ICRC of headers and payload is known already.
    #[inline(always)]
    pub fn finish_summed(&self, tx: &mut TxFrame<'_>, s: Started, crc: Icrc) {
        let mut crc = crc;
        let end = s.payload + s.payload_len;
        let pad = s.payload_len.wrapping_neg() & 3;
        if pad != 0 {
            crc.update(&[0; 3][..pad]);
            tx.put_word(end, [0; 4]); // what is too much is overwritten by the ICRC
        }
        tx.put_word(end + pad, crc.finish());
        self.unmask(tx, end + pad + icrc::LEN, s.becn);
    }

    /// A frame without its payload and ICRC: only headers are written, with the lengths of the whole packet. For
    /// simulations in which nobody looks at the payload; a real receiver would refuse the frame.
    #[inline]
    pub fn build_elided(&self, tx: &mut TxFrame<'_>, p: &PacketFields, ext: &ExtHeaders) -> Result<(), Error> {
        let (started, end) = self.headers(tx, p, ext)?;
        self.unmask(tx, end, started.becn);
        tx.set_elided(started.payload, end);
        Ok(())
    }

    /// Puts the true values where the ones for the ICRC were.
    #[inline(always)]
    fn unmask(&self, tx: &mut TxFrame<'_>, end: usize, becn: bool) {
        let (network, udp_at) = (usize::from(self.network), usize::from(self.udp));
        let first = tx.first_mut();
        put16(first, udp_at + udp::field::CHECKSUM, 0);
        let mut view = bth::Packet::new_unchecked(&mut first[usize::from(self.bth)..]);
        view.set_congestion(false, becn);
        let ip = &mut first[network..];
        match self.carrier {
            Carrier::Ipv4 => {
                ip[ipv4::field::TOS] = self.first_word[1];
                ip[ipv4::field::TTL] = self.hop_limit;
                let sum = u64::from(self.checksum_base) + (end - network) as u64;
                put16(ip, ipv4::field::CHECKSUM, !ipv4::fold(sum));
            }
            Carrier::Ipv6 | Carrier::RoceV1 => {
                ip[..4].copy_from_slice(&self.first_word);
                ip[ipv6::field::HOP_LIMIT] = self.hop_limit;
            }
        }
    }

    /// A whole frame from a payload in one piece: for tests, MADs and tools.
    pub fn build(&self, tx: &mut TxFrame<'_>, p: &PacketFields, ext: &ExtHeaders, payload: &[u8]) -> Result<(), Error> {
        let s = self.start(tx, &PacketFields { payload_len: payload.len(), ..*p }, ext)?;
        tx.put(s.payload, payload);
        self.finish(tx, s);
        Ok(())
    }
}
