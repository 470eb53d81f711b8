//! The 40 bytes in front of a received UD message: a GRH, or what RoCEv2 puts in its place (IBA 11.4.2.1, annex A17.4.5).
//!
//! Over IPv6 they are the IPv6 header. Over IPv4 the last 20 bytes are the IPv4 header and the first 20 are undefined; a
//! reader tells the two apart by looking for a valid IPv4 header there.

use core::fmt;
use core::net::IpAddr;

use crate::{Error, Layout, ipv4, ipv6, layout::Carrier};

/// Bytes in front of every received UD message.
pub const LEN: usize = 40;
/// Where the IPv4 header stands in them.
pub const IPV4_AT: usize = LEN - ipv4::LEN;

/// Whether the 40 bytes of a received frame are an IPv6 header: before an IPv4 header there are zeros.
#[inline]
pub fn is_ipv6(b: &[u8; LEN]) -> bool {
    b[0] >> 4 == 6
}

/// What a receiver reads out of the 40 bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Grh {
    /// The packet came over IPv4.
    Ipv4(ipv4::Repr),
    /// The packet came over IPv6, or with the GRH of RoCEv1.
    Ipv6(ipv6::Repr),
}

impl Grh {
    /// Reads the 40 bytes.
    pub fn parse(b: &[u8; LEN]) -> Result<Grh, Error> {
        let v4 = ipv4::Packet::new_unchecked(&b[IPV4_AT..]);
        // An IPv6 address can look like the start of an IPv4 header, hardly like one with a right checksum.
        if b[IPV4_AT] == 0x45 && v4.verify_checksum() {
            return ipv4::Repr::parse(&v4).map(Grh::Ipv4);
        }
        ipv6::Repr::parse(&ipv6::Packet::new_checked(&b[..])?).map(Grh::Ipv6)
    }

    /// Who sent the packet, and to whom.
    pub fn addresses(&self) -> (IpAddr, IpAddr) {
        match self {
            Grh::Ipv4(r) => (r.src.into(), r.dst.into()),
            Grh::Ipv6(r) => (r.src.into(), r.dst.into()),
        }
    }

    /// Its traffic class: DSCP and ECN.
    pub fn traffic_class(&self) -> u8 {
        match self {
            Grh::Ipv4(r) => r.tos,
            Grh::Ipv6(r) => r.traffic_class,
        }
    }

    /// Writes the 40 bytes.
    pub fn emit(&self, b: &mut [u8; LEN]) -> Result<(), Error> {
        match self {
            Grh::Ipv4(r) => {
                b[..IPV4_AT].fill(0);
                r.emit(&mut ipv4::Packet::new_unchecked(&mut b[IPV4_AT..]))
            }
            Grh::Ipv6(r) => r.emit(&mut ipv6::Packet::new_unchecked(&mut b[..])),
        }
    }

    /// The 40 bytes for a frame that was received: its network header, options left out.
    pub fn of_frame(frame: &[u8], layout: &Layout) -> Result<[u8; LEN], Error> {
        let mut out = [0; LEN];
        let network = frame.get(layout.network..).unwrap_or_default();
        let len = if layout.carrier == Carrier::Ipv4 { ipv4::LEN } else { ipv6::LEN };
        Error::check_len("network header", len, network.len())?;
        let (at, header) = (LEN - len, &network[..len]);
        if layout.carrier == Carrier::Ipv4 && network[0] != 0x45 {
            // The copy has no options, so length and checksum are those of a header without them.
            let whole = ipv4::Repr::parse(&ipv4::Packet::new_checked(network)?)?;
            Grh::Ipv4(whole).emit(&mut out)?;
        } else {
            out[at..].copy_from_slice(header);
        }
        Ok(out)
    }

    /// The sender.
    pub const fn src(&self) -> IpAddr {
        match self {
            Grh::Ipv4(r) => IpAddr::V4(r.src),
            Grh::Ipv6(r) => IpAddr::V6(r.src),
        }
    }

    /// The receiver.
    pub const fn dst(&self) -> IpAddr {
        match self {
            Grh::Ipv4(r) => IpAddr::V4(r.dst),
            Grh::Ipv6(r) => IpAddr::V6(r.dst),
        }
    }
}

impl fmt::Display for Grh {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Grh::Ipv4(r) => r.fmt(f),
            Grh::Ipv6(r) => r.fmt(f),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use core::net::Ipv6Addr;

    #[test]
    fn the_ipv4_form_stands_in_the_last_twenty_bytes() {
        let frame = crate::tests::ACK_FRAME;
        let b = Grh::of_frame(&frame, &Layout::locate(&frame).unwrap()).unwrap();
        assert_eq!(b[20..], frame[14..34]);
        assert!(!is_ipv6(&b));
        let grh = Grh::parse(&b).unwrap();
        assert_eq!((grh.src().to_string(), grh.dst().to_string()), ("10.33.0.2".into(), "10.33.0.1".into()));
        let mut again = [0xaa; LEN];
        grh.emit(&mut again).unwrap();
        assert_eq!(again, b);
    }

    #[test]
    fn the_ipv6_form_is_the_header() {
        let r = ipv6::Repr {
            src: Ipv6Addr::LOCALHOST,
            dst: "fd33::2".parse().unwrap(),
            traffic_class: 0x62,
            flow_label: 0x12345,
            hop_limit: 64,
            next_header: 17,
            payload_len: 300,
        };
        let mut b = [0; LEN];
        Grh::Ipv6(r).emit(&mut b).unwrap();
        assert_eq!(Grh::parse(&b), Ok(Grh::Ipv6(r)));
        assert!(is_ipv6(&b));
        assert!(Grh::parse(&[0; LEN]).is_err());
    }
}
