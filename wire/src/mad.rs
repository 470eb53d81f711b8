//! Management datagrams (MADs): the 24-byte header that begins every one of them (IBA 13.4).
//!
//! A MAD is 256 bytes and travels as the payload of one UD SEND between two QP1s. What follows the header depends on
//! the management class: [`cm`] for connections, [`vendor`] for classes with an OUI, ours among them.

use core::fmt;

use crate::Error;
use crate::bytes::{be16, be32, be64, put16, put32, put64};

pub mod cm;
mod codes;
mod extensions;
pub mod failover;
mod fuzz;
pub mod ip_cm;
pub mod vendor;

#[cfg(test)]
pub(crate) mod tests;

pub use codes::{Attribute, Class, Method, Status};
#[doc(hidden)]
pub use fuzz::fuzz_mad;

/// Bytes in a whole MAD, header included (IBA 13.4).
pub const MAD_LEN: usize = 256;
/// Bytes in the common header.
pub const HEADER_LEN: usize = 24;
/// The only base version there is (IBA 13.4).
pub const BASE_VERSION: u8 = 1;

mod field {
    use core::ops::RangeFrom;

    pub(super) const BASE_VERSION: usize = 0;
    pub(super) const MGMT_CLASS: usize = 1;
    pub(super) const CLASS_VERSION: usize = 2;
    pub(super) const METHOD: usize = 3;
    pub(super) const STATUS: usize = 4;
    pub(super) const CLASS_SPECIFIC: usize = 6;
    pub(super) const TRANSACTION_ID: usize = 8;
    pub(super) const ATTRIBUTE_ID: usize = 16;
    pub(super) const RESERVED: usize = 18;
    pub(super) const ATTRIBUTE_MODIFIER: usize = 20;
    pub(super) const PAYLOAD: RangeFrom<usize> = super::HEADER_LEN..;
}

/// A view of bytes that begin with a MAD header.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Packet<T: AsRef<[u8]>> {
    buffer: T,
}

impl<T: AsRef<[u8]>> Packet<T> {
    /// A view without a look at the length: accessors panic where the bytes end too soon.
    pub const fn new_unchecked(buffer: T) -> Packet<T> {
        Packet { buffer }
    }

    /// A view of bytes that are long enough for every accessor.
    pub fn new_checked(buffer: T) -> Result<Packet<T>, Error> {
        let packet = Packet::new_unchecked(buffer);
        packet.check_len()?;
        Ok(packet)
    }

    /// `Ok` when no accessor can panic. Asks for the header only; a class asks for its whole MAD.
    pub fn check_len(&self) -> Result<(), Error> {
        Error::check_len("MAD header", HEADER_LEN, self.buffer.as_ref().len())
    }

    /// The bytes that were viewed.
    pub fn into_inner(self) -> T {
        self.buffer
    }

    /// Version of the MAD format, [`BASE_VERSION`] in every MAD so far.
    pub fn base_version(&self) -> u8 {
        self.buffer.as_ref()[field::BASE_VERSION]
    }

    /// Whose MAD this is.
    pub fn mgmt_class(&self) -> Class {
        Class(self.buffer.as_ref()[field::MGMT_CLASS])
    }

    /// Version of the class's own format.
    pub fn class_version(&self) -> u8 {
        self.buffer.as_ref()[field::CLASS_VERSION]
    }

    /// What is asked or answered.
    pub fn method(&self) -> Method {
        Method(self.buffer.as_ref()[field::METHOD])
    }

    /// How a request fared; zero in requests.
    pub fn status(&self) -> Status {
        Status(be16(self.buffer.as_ref(), field::STATUS))
    }

    /// Sixteen bits that each class uses as it likes.
    pub fn class_specific(&self) -> u16 {
        be16(self.buffer.as_ref(), field::CLASS_SPECIFIC)
    }

    /// What ties an answer to its request.
    pub fn transaction_id(&self) -> u64 {
        be64(self.buffer.as_ref(), field::TRANSACTION_ID)
    }

    /// The object that the method acts on.
    pub fn attribute_id(&self) -> Attribute {
        Attribute(be16(self.buffer.as_ref(), field::ATTRIBUTE_ID))
    }

    /// Narrows the attribute down.
    pub fn attribute_modifier(&self) -> u32 {
        be32(self.buffer.as_ref(), field::ATTRIBUTE_MODIFIER)
    }

    /// Everything behind the header.
    pub fn payload(&self) -> &[u8] {
        &self.buffer.as_ref()[field::PAYLOAD]
    }
}

impl<T: AsRef<[u8]> + AsMut<[u8]>> Packet<T> {
    /// Writes the version of the MAD format.
    pub fn set_base_version(&mut self, v: u8) {
        self.buffer.as_mut()[field::BASE_VERSION] = v;
    }

    /// Writes the management class.
    pub fn set_mgmt_class(&mut self, v: Class) {
        self.buffer.as_mut()[field::MGMT_CLASS] = v.0;
    }

    /// Writes the version of the class's own format.
    pub fn set_class_version(&mut self, v: u8) {
        self.buffer.as_mut()[field::CLASS_VERSION] = v;
    }

    /// Writes the method.
    pub fn set_method(&mut self, v: Method) {
        self.buffer.as_mut()[field::METHOD] = v.0;
    }

    /// Writes the status.
    pub fn set_status(&mut self, v: Status) {
        put16(self.buffer.as_mut(), field::STATUS, v.0);
    }

    /// Writes the class specific bits.
    pub fn set_class_specific(&mut self, v: u16) {
        put16(self.buffer.as_mut(), field::CLASS_SPECIFIC, v);
    }

    /// Writes the transaction id.
    pub fn set_transaction_id(&mut self, v: u64) {
        put64(self.buffer.as_mut(), field::TRANSACTION_ID, v);
    }

    /// Writes the attribute id, and zeros into the reserved bytes behind it.
    pub fn set_attribute_id(&mut self, v: Attribute) {
        put16(self.buffer.as_mut(), field::ATTRIBUTE_ID, v.0);
        put16(self.buffer.as_mut(), field::RESERVED, 0);
    }

    /// Writes the attribute modifier.
    pub fn set_attribute_modifier(&mut self, v: u32) {
        put32(self.buffer.as_mut(), field::ATTRIBUTE_MODIFIER, v);
    }

    /// Everything behind the header, to write to.
    pub fn payload_mut(&mut self) -> &mut [u8] {
        &mut self.buffer.as_mut()[field::PAYLOAD]
    }
}

/// The MAD header as plain values.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Repr {
    /// Version of the MAD format; parsed whatever it is, for the answer to a wrong one carries it back.
    pub base_version: u8,
    /// Whose MAD this is.
    pub mgmt_class: Class,
    /// Version of the class's own format; parsed whatever it is.
    pub class_version: u8,
    /// What is asked or answered, with the response bit.
    pub method: Method,
    /// How a request fared; zero in requests.
    pub status: Status,
    /// Sixteen bits that each class uses as it likes.
    pub class_specific: u16,
    /// What ties an answer to its request.
    pub transaction_id: u64,
    /// The object that the method acts on.
    pub attribute_id: Attribute,
    /// Narrows the attribute down.
    pub attribute_modifier: u32,
}

impl Repr {
    /// Reads the header at the front of `mad`.
    pub fn parse(mad: &[u8]) -> Result<Repr, Error> {
        let packet = Packet::new_checked(mad)?;
        Ok(Repr {
            base_version: packet.base_version(),
            mgmt_class: packet.mgmt_class(),
            class_version: packet.class_version(),
            method: packet.method(),
            status: packet.status(),
            class_specific: packet.class_specific(),
            transaction_id: packet.transaction_id(),
            attribute_id: packet.attribute_id(),
            attribute_modifier: packet.attribute_modifier(),
        })
    }

    /// Bytes that [`Repr::emit`] writes.
    pub const fn buffer_len(&self) -> usize {
        HEADER_LEN
    }

    /// Writes the header to the front of `mad`.
    ///
    /// # Panics
    /// When `mad` is shorter than [`Repr::buffer_len`].
    pub fn emit(&self, mad: &mut [u8]) {
        let mut packet = Packet::new_unchecked(mad);
        packet.set_base_version(self.base_version);
        packet.set_mgmt_class(self.mgmt_class);
        packet.set_class_version(self.class_version);
        packet.set_method(self.method);
        packet.set_status(self.status);
        packet.set_class_specific(self.class_specific);
        packet.set_transaction_id(self.transaction_id);
        packet.set_attribute_id(self.attribute_id);
        packet.set_attribute_modifier(self.attribute_modifier);
    }

    /// The header of the answer that says no: the request's, as a response with `status` (IBA 13.4).
    ///
    /// The rest of the MAD goes back as it came.
    pub fn refusal(&self, status: Status) -> Repr {
        Repr { method: self.method.response(), status, ..*self }
    }
}

impl fmt::Display for Repr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "MAD {} {} tid {:#018x} attr ", self.mgmt_class, self.method, self.transaction_id)?;
        match self.attribute_id.name(self.mgmt_class) {
            Some(name) => f.write_str(name)?,
            None => write!(f, "{}", self.attribute_id)?,
        }
        if self.attribute_modifier != 0 {
            write!(f, " mod {:#010x}", self.attribute_modifier)?;
        }
        if self.status != Status::SUCCESS {
            write!(f, " status {}", self.status)?;
        }
        Ok(())
    }
}
