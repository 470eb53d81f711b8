//! IPv6 headers, and the way past their extension headers.

use core::fmt;
use core::net::Ipv6Addr;

use crate::bytes::{array, be16, be32, put16, put32};
use crate::{Error, NotRoce};

/// Bytes of the fixed header.
pub const LEN: usize = 40;

pub(crate) mod field {
    pub(crate) const PAYLOAD_LEN: usize = 4;
    pub(crate) const NEXT_HEADER: usize = 6;
    pub(crate) const HOP_LIMIT: usize = 7;
    pub(crate) const SRC: usize = 8;
    pub(crate) const DST: usize = 24;
}

/// A view of an IPv6 header. The GRH of RoCEv1 has the same layout (IBA 8.3).
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

    /// Wraps bytes that hold the fixed header.
    #[inline]
    pub fn new_checked(buffer: T) -> Result<Packet<T>, Error> {
        let p = Packet { buffer };
        p.check_len()?;
        Ok(p)
    }

    /// `Ok` when no accessor can panic: version 6 and 40 bytes.
    #[inline]
    pub fn check_len(&self) -> Result<(), Error> {
        let b = self.buffer.as_ref();
        Error::check_len("IPv6 header", LEN, b.len())?;
        if b[0] >> 4 != 6 {
            return Err(Error::NotRoce(NotRoce::IpVersion(b[0] >> 4)));
        }
        Ok(())
    }

    /// Traffic class: DSCP and ECN.
    #[inline]
    pub fn traffic_class(&self) -> u8 {
        (be16(self.buffer.as_ref(), 0) >> 4) as u8
    }

    /// Flow label, 20 bits.
    #[inline]
    pub fn flow_label(&self) -> u32 {
        be32(self.buffer.as_ref(), 0) & 0x000f_ffff
    }

    /// Bytes behind the fixed header.
    #[inline]
    pub fn payload_len(&self) -> usize {
        usize::from(be16(self.buffer.as_ref(), field::PAYLOAD_LEN))
    }

    /// The header that follows.
    #[inline]
    pub fn next_header(&self) -> u8 {
        self.buffer.as_ref()[field::NEXT_HEADER]
    }

    /// Hop limit.
    pub fn hop_limit(&self) -> u8 {
        self.buffer.as_ref()[field::HOP_LIMIT]
    }

    /// Source address.
    #[inline]
    pub fn src(&self) -> Ipv6Addr {
        Ipv6Addr::from(array::<16>(self.buffer.as_ref(), field::SRC))
    }

    /// Destination address.
    #[inline]
    pub fn dst(&self) -> Ipv6Addr {
        Ipv6Addr::from(array::<16>(self.buffer.as_ref(), field::DST))
    }

    /// The upper-layer protocol and the offset of its header, past hop-by-hop options, routing headers, destination
    /// options and authentication headers. A fragment is refused, also one that is whole: nobody sends RoCE so.
    #[inline]
    pub fn upper_layer(&self) -> Result<(u8, usize), Error> {
        let b = self.buffer.as_ref();
        let mut next = self.next_header();
        let mut at = LEN;
        loop {
            let units = match next {
                0 | 43 | 60 | 51 => {
                    Error::check_len("IPv6 extension header", at + 8, b.len())?;
                    usize::from(b[at + 1])
                }
                44 => return Err(Error::Fragment),
                _ => return Ok((next, at)),
            };
            // The authentication header counts in 4-byte units less two, the others in 8-byte units less one.
            let len = if next == 51 { (units + 2) * 4 } else { (units + 1) * 8 };
            next = b[at];
            at += len;
        }
    }
}

/// The fields of an IPv6 header.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Repr {
    /// Source address.
    pub src: Ipv6Addr,
    /// Destination address.
    pub dst: Ipv6Addr,
    /// DSCP and ECN.
    pub traffic_class: u8,
    /// Flow label, 20 bits.
    pub flow_label: u32,
    /// Hop limit.
    pub hop_limit: u8,
    /// The header that follows.
    pub next_header: u8,
    /// Bytes behind the header.
    pub payload_len: u16,
}

impl Repr {
    /// Reads all fields.
    pub fn parse<T: AsRef<[u8]>>(p: &Packet<T>) -> Result<Repr, Error> {
        p.check_len()?;
        Ok(Repr {
            src: p.src(),
            dst: p.dst(),
            traffic_class: p.traffic_class(),
            flow_label: p.flow_label(),
            hop_limit: p.hop_limit(),
            next_header: p.next_header(),
            payload_len: p.payload_len() as u16,
        })
    }

    /// Bytes that [`Repr::emit`] writes.
    pub const fn buffer_len(&self) -> usize {
        LEN
    }

    /// Writes all fields.
    pub fn emit<T: AsRef<[u8]> + AsMut<[u8]>>(&self, p: &mut Packet<T>) -> Result<(), Error> {
        let b = p.buffer.as_mut();
        Error::check_len("IPv6 header", LEN, b.len())?;
        put32(b, 0, 6 << 28 | u32::from(self.traffic_class) << 20 | (self.flow_label & 0x000f_ffff));
        put16(b, field::PAYLOAD_LEN, self.payload_len);
        b[field::NEXT_HEADER] = self.next_header;
        b[field::HOP_LIMIT] = self.hop_limit;
        b[field::SRC..field::SRC + 16].copy_from_slice(&self.src.octets());
        b[field::DST..field::DST + 16].copy_from_slice(&self.dst.octets());
        Ok(())
    }
}

impl fmt::Display for Repr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "IP6 {} > {} class {:#04x} flow {:#07x} hlim {} len {}",
            self.src, self.dst, self.traffic_class, self.flow_label, self.hop_limit, self.payload_len
        )
    }
}
