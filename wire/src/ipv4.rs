//! IPv4 headers.

use core::fmt;
use core::net::Ipv4Addr;

use crate::bytes::{array, be16, put16};
use crate::{Error, NotRoce};

/// Bytes of a header without options.
pub const LEN: usize = 20;

pub(crate) mod field {
    pub(crate) const TOS: usize = 1;
    pub(crate) const TOTAL_LEN: usize = 2;
    pub(crate) const ID: usize = 4;
    pub(crate) const FRAGMENT: usize = 6;
    pub(crate) const TTL: usize = 8;
    pub(crate) const PROTOCOL: usize = 9;
    pub(crate) const CHECKSUM: usize = 10;
    pub(crate) const SRC: usize = 12;
    pub(crate) const DST: usize = 16;
}

/// A view of an IPv4 header.
#[derive(Debug, Clone, Copy)]
pub struct Packet<T: AsRef<[u8]>> {
    buffer: T,
}

impl<T: AsRef<[u8]>> Packet<T> {
    /// Wraps bytes without looking at them; accessors panic if [`Packet::check_len`] does not hold.
    #[inline]
    pub const fn new_unchecked(buffer: T) -> Packet<T> {
        Packet { buffer }
    }

    /// Wraps bytes that hold a whole IPv4 header with its options.
    #[inline]
    pub fn new_checked(buffer: T) -> Result<Packet<T>, Error> {
        let p = Packet { buffer };
        p.check_len()?;
        Ok(p)
    }

    /// `Ok` when no accessor can panic: version 4, a header length of 20 or more, and that many bytes.
    #[inline]
    pub fn check_len(&self) -> Result<(), Error> {
        let b = self.buffer.as_ref();
        Error::check_len("IPv4 header", LEN, b.len())?;
        if b[0] >> 4 != 4 {
            return Err(Error::NotRoce(NotRoce::IpVersion(b[0] >> 4)));
        }
        if self.header_len() < LEN {
            return Err(Error::Malformed { what: "IPv4 header", why: "the header length is below 20 bytes" });
        }
        Error::check_len("IPv4 options", self.header_len(), b.len())
    }

    /// Bytes of the header with its options.
    #[inline]
    pub fn header_len(&self) -> usize {
        usize::from(self.buffer.as_ref()[0] & 0x0f) * 4
    }

    /// Type of service: DSCP and ECN.
    #[inline]
    pub fn tos(&self) -> u8 {
        self.buffer.as_ref()[field::TOS]
    }

    /// Bytes of header and payload.
    #[inline]
    pub fn total_len(&self) -> usize {
        usize::from(be16(self.buffer.as_ref(), field::TOTAL_LEN))
    }

    /// Identification.
    pub fn id(&self) -> u16 {
        be16(self.buffer.as_ref(), field::ID)
    }

    /// Don't fragment.
    pub fn dont_fragment(&self) -> bool {
        be16(self.buffer.as_ref(), field::FRAGMENT) & 0x4000 != 0
    }

    /// Whether this is a part of a larger packet.
    #[inline]
    pub fn is_fragment(&self) -> bool {
        be16(self.buffer.as_ref(), field::FRAGMENT) & 0x3fff != 0
    }

    /// Time to live.
    pub fn ttl(&self) -> u8 {
        self.buffer.as_ref()[field::TTL]
    }

    /// The protocol inside.
    #[inline]
    pub fn protocol(&self) -> u8 {
        self.buffer.as_ref()[field::PROTOCOL]
    }

    /// Source address.
    #[inline]
    pub fn src(&self) -> Ipv4Addr {
        Ipv4Addr::from(array::<4>(self.buffer.as_ref(), field::SRC))
    }

    /// Destination address.
    #[inline]
    pub fn dst(&self) -> Ipv4Addr {
        Ipv4Addr::from(array::<4>(self.buffer.as_ref(), field::DST))
    }

    /// Whether the header checksum is right.
    #[inline]
    pub fn verify_checksum(&self) -> bool {
        let header = &self.buffer.as_ref()[..self.header_len()];
        match header.first_chunk::<LEN>() {
            Some(plain) if header.len() == LEN => sum_of_plain(plain) == 0xffff,
            _ => sum(header) == 0xffff,
        }
    }
}

/// The ones' complement sum of a header: 0xffff over a header whose checksum is right.
#[inline]
pub(crate) fn sum(header: &[u8]) -> u16 {
    let s = header.chunks_exact(4).fold(0u64, |s, c| s + u64::from(u32::from_be_bytes([c[0], c[1], c[2], c[3]])));
    fold((s >> 32) as u32 as u64 + (s & 0xffff_ffff))
}

/// [`sum`] of a header without options. The order of bytes does not matter for a sum with end-around carry whose result has all bits
/// set or not.
#[inline]
fn sum_of_plain(h: &[u8; LEN]) -> u16 {
    let [a, b, c, d, e] =
        [0, 4, 8, 12, 16].map(|at| u64::from(u32::from_ne_bytes([h[at], h[at + 1], h[at + 2], h[at + 3]])));
    fold(a + b + c + d + e)
}

/// Folds a sum of 16-bit (or 32-bit) words to 16 bits with end-around carry.
#[inline]
pub(crate) const fn fold(mut s: u64) -> u16 {
    s = (s & 0xffff) + (s >> 16);
    s = (s & 0xffff) + (s >> 16);
    s = (s & 0xffff) + (s >> 16);
    s as u16
}

/// The fields of an IPv4 header without options, as RoCE sends it: never a fragment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Repr {
    /// Source address.
    pub src: Ipv4Addr,
    /// Destination address.
    pub dst: Ipv4Addr,
    /// DSCP and ECN.
    pub tos: u8,
    /// Time to live.
    pub ttl: u8,
    /// Identification.
    pub id: u16,
    /// Don't fragment.
    pub dont_fragment: bool,
    /// The protocol inside.
    pub protocol: u8,
    /// Bytes behind the header.
    pub payload_len: u16,
}

impl Repr {
    /// Reads all fields; options are skipped.
    pub fn parse<T: AsRef<[u8]>>(p: &Packet<T>) -> Result<Repr, Error> {
        p.check_len()?;
        if p.is_fragment() {
            return Err(Error::Fragment);
        }
        let Some(payload_len) = p.total_len().checked_sub(p.header_len()) else {
            return Err(Error::Malformed { what: "IPv4 header", why: "the total length is below the header length" });
        };
        Ok(Repr {
            src: p.src(),
            dst: p.dst(),
            tos: p.tos(),
            ttl: p.ttl(),
            id: p.id(),
            dont_fragment: p.dont_fragment(),
            protocol: p.protocol(),
            payload_len: payload_len as u16,
        })
    }

    /// Bytes that [`Repr::emit`] writes.
    pub const fn buffer_len(&self) -> usize {
        LEN
    }

    /// Writes the header with its checksum.
    pub fn emit<T: AsRef<[u8]> + AsMut<[u8]>>(&self, p: &mut Packet<T>) -> Result<(), Error> {
        let b = p.buffer.as_mut();
        Error::check_len("IPv4 header", LEN, b.len())?;
        let Some(total) = self.payload_len.checked_add(LEN as u16) else {
            return Err(Error::Malformed { what: "IPv4 header", why: "the payload is longer than a packet can be" });
        };
        b[0] = 0x45;
        b[field::TOS] = self.tos;
        put16(b, field::TOTAL_LEN, total);
        put16(b, field::ID, self.id);
        put16(b, field::FRAGMENT, u16::from(self.dont_fragment) << 14);
        b[field::TTL] = self.ttl;
        b[field::PROTOCOL] = self.protocol;
        put16(b, field::CHECKSUM, 0);
        b[field::SRC..field::SRC + 4].copy_from_slice(&self.src.octets());
        b[field::DST..field::DST + 4].copy_from_slice(&self.dst.octets());
        let checksum = !sum(&b[..LEN]);
        put16(b, field::CHECKSUM, checksum);
        Ok(())
    }
}

impl fmt::Display for Repr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "IP {} > {} tos {:#04x} ttl {} len {}", self.src, self.dst, self.tos, self.ttl, self.payload_len)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// RFC 1071's worked idea on a header written out by hand: 4500 0073 0000 4000 4011 b861 c0a8 0001 c0a8 00c7.
    const HEADER: [u8; 20] = [
        0x45, 0x00, 0x00, 0x73, 0x00, 0x00, 0x40, 0x00, 0x40, 0x11, 0xb8, 0x61, 0xc0, 0xa8, 0x00, 0x01, 0xc0, 0xa8,
        0x00, 0xc7,
    ];

    #[test]
    fn hand_computed_checksum() {
        let p = Packet::new_checked(HEADER).unwrap();
        assert!(p.verify_checksum());
        let r = Repr::parse(&p).unwrap();
        assert_eq!((r.payload_len, r.ttl, r.dont_fragment), (0x73 - 20, 64, true));
        let mut out = [0; 20];
        r.emit(&mut Packet::new_unchecked(&mut out)).unwrap();
        assert_eq!(out, HEADER);
        let mut bad = HEADER;
        bad[8] -= 1;
        assert!(!Packet::new_unchecked(bad).verify_checksum());
    }

    #[test]
    fn short_header_length_and_fragments_are_refused() {
        let mut b = HEADER;
        b[0] = 0x44;
        assert!(matches!(Packet::new_checked(b), Err(Error::Malformed { .. })));
        let mut b = HEADER;
        b[6] = 0x20; // more fragments
        assert_eq!(Repr::parse(&Packet::new_unchecked(b)), Err(Error::Fragment));
        let mut b = HEADER;
        b[7] = 1; // offset 8
        assert_eq!(Repr::parse(&Packet::new_unchecked(b)), Err(Error::Fragment));
    }
}
