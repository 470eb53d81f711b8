//! UDP headers, as RoCEv2 uses them: destination port 4791, checksum 0 (IBA annex A17.3).

use core::fmt;

use crate::Error;
use crate::bytes::{be16, put16};

/// Bytes of a UDP header.
pub const LEN: usize = 8;
/// The destination port of RoCEv2.
pub const ROCE_PORT: u16 = 4791;
/// The IP protocol number of UDP.
pub const PROTOCOL: u8 = 17;

pub(crate) mod field {
    pub(crate) const SRC: usize = 0;
    pub(crate) const DST: usize = 2;
    pub(crate) const LEN: usize = 4;
    pub(crate) const CHECKSUM: usize = 6;
}

/// A view of a UDP header.
#[derive(Debug, Clone, Copy)]
pub struct Packet<T: AsRef<[u8]>> {
    buffer: T,
}

impl<T: AsRef<[u8]>> Packet<T> {
    /// Wraps bytes without looking at them; accessors panic if they are fewer than [`LEN`].
    #[inline]
    pub const fn new_unchecked(buffer: T) -> Packet<T> {
        Packet { buffer }
    }

    /// Wraps bytes that hold a whole UDP header.
    #[inline]
    pub fn new_checked(buffer: T) -> Result<Packet<T>, Error> {
        let p = Packet { buffer };
        p.check_len()?;
        Ok(p)
    }

    /// `Ok` when no accessor can panic.
    #[inline]
    pub fn check_len(&self) -> Result<(), Error> {
        Error::check_len("UDP header", LEN, self.buffer.as_ref().len())
    }

    /// Source port: entropy for ECMP, nothing else; every value occurs.
    #[inline]
    pub fn src_port(&self) -> u16 {
        be16(self.buffer.as_ref(), field::SRC)
    }

    /// Destination port.
    #[inline]
    pub fn dst_port(&self) -> u16 {
        be16(self.buffer.as_ref(), field::DST)
    }

    /// Bytes of header and payload.
    #[inline]
    pub fn len(&self) -> usize {
        usize::from(be16(self.buffer.as_ref(), field::LEN))
    }

    /// Whether there is nothing behind the header.
    pub fn is_empty(&self) -> bool {
        self.len() <= LEN
    }

    /// Checksum; not checked on RoCE packets, whose ICRC is stronger.
    pub fn checksum(&self) -> u16 {
        be16(self.buffer.as_ref(), field::CHECKSUM)
    }
}

/// The fields of a UDP header.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Repr {
    /// Source port.
    pub src_port: u16,
    /// Destination port.
    pub dst_port: u16,
    /// Bytes behind the header.
    pub payload_len: u16,
}

impl Repr {
    /// Reads all fields but the checksum.
    pub fn parse<T: AsRef<[u8]>>(p: &Packet<T>) -> Result<Repr, Error> {
        p.check_len()?;
        let Some(payload_len) = p.len().checked_sub(LEN) else {
            return Err(Error::Malformed { what: "UDP header", why: "the length is below 8 bytes" });
        };
        Ok(Repr { src_port: p.src_port(), dst_port: p.dst_port(), payload_len: payload_len as u16 })
    }

    /// Bytes that [`Repr::emit`] writes.
    pub const fn buffer_len(&self) -> usize {
        LEN
    }

    /// Writes the header with checksum 0.
    pub fn emit<T: AsRef<[u8]> + AsMut<[u8]>>(&self, p: &mut Packet<T>) -> Result<(), Error> {
        let b = p.buffer.as_mut();
        Error::check_len("UDP header", LEN, b.len())?;
        let Some(len) = self.payload_len.checked_add(LEN as u16) else {
            return Err(Error::Malformed { what: "UDP header", why: "the payload is longer than a datagram can be" });
        };
        put16(b, field::SRC, self.src_port);
        put16(b, field::DST, self.dst_port);
        put16(b, field::LEN, len);
        put16(b, field::CHECKSUM, 0);
        Ok(())
    }
}

impl fmt::Display for Repr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "UDP {} > {} len {}", self.src_port, self.dst_port, self.payload_len)
    }
}
