//! Communication management: the messages that set up and take down connections (IBA chapter 12.6).
//!
//! Every message fills the 232 bytes behind the MAD header. Each is a plain struct that holds all of its fields;
//! [`Message`] is any of them. Reserved bits are ignored on receipt and zero on send. Fields narrower than their Rust
//! type are cut to their width on send, so that none spills into its neighbour.

use core::fmt;

use super::{Attribute, BASE_VERSION, Class, HEADER_LEN, MAD_LEN, Method, Repr, Status};
use crate::Error;
use crate::bytes::array;

mod codes;
mod disconnect;
mod refuse;
mod rep;
mod req;
mod sidr;

#[cfg(test)]
mod tests;

pub use codes::{Failover, PathMtu, RejReason, Responded, SidrStatus, TimeoutCode, TransportService};
pub use disconnect::{Drep, Dreq};
pub use refuse::{Mra, Rej};
pub use rep::{Rep, Rtu};
pub use req::{Path, Req};
pub use sidr::{SidrRep, SidrReq};

/// Bytes that a CM message fills.
pub const DATA_LEN: usize = MAD_LEN - HEADER_LEN;
/// The class version that these layouts belong to (IBA 12.6).
pub const CLASS_VERSION: u8 = 2;

/// Any communication management message.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Message {
    /// Request for communication.
    Req(Req),
    /// Message receipt acknowledgment.
    Mra(Mra),
    /// Reject.
    Rej(Rej),
    /// Reply to request for communication.
    Rep(Rep),
    /// Ready to use.
    Rtu(Rtu),
    /// Request for communication release.
    Dreq(Dreq),
    /// Reply to request for communication release.
    Drep(Drep),
    /// Service id resolution request.
    SidrReq(SidrReq),
    /// Service id resolution response.
    SidrRep(SidrRep),
    /// A CM MAD of another attribute (LAP, APR, …), kept as it came.
    Other {
        /// Which one; never one of those above when it comes from [`Message::parse`].
        attribute: Attribute,
        /// Its bytes.
        data: [u8; DATA_LEN],
    },
}

impl Message {
    /// Reads a whole MAD of the CM class: its header and what it says.
    ///
    /// Versions, method and status are left to the caller: a wrong class version is answered with a REJ that quotes
    /// the message (IBA 12.6.7, reason 31).
    pub fn parse(mad: &[u8]) -> Result<(Repr, Message), Error> {
        const WHAT: &str = "CM MAD";
        Error::check_len(WHAT, MAD_LEN, mad.len())?;
        let header = Repr::parse(mad)?;
        if header.mgmt_class != Class::CM {
            return Err(Error::Malformed { what: WHAT, why: "the management class is not communication management" });
        }
        let data = &mad[HEADER_LEN..MAD_LEN];
        let message = match header.attribute_id {
            Attribute::CM_REQ => Message::Req(Req::parse(data)?),
            Attribute::CM_MRA => Message::Mra(Mra::parse(data)?),
            Attribute::CM_REJ => Message::Rej(Rej::parse(data)?),
            Attribute::CM_REP => Message::Rep(Rep::parse(data)?),
            Attribute::CM_RTU => Message::Rtu(Rtu::parse(data)?),
            Attribute::CM_DREQ => Message::Dreq(Dreq::parse(data)?),
            Attribute::CM_DREP => Message::Drep(Drep::parse(data)?),
            Attribute::CM_SIDR_REQ => Message::SidrReq(SidrReq::parse(data)?),
            Attribute::CM_SIDR_REP => Message::SidrRep(SidrRep::parse(data)?),
            attribute => Message::Other { attribute, data: array(data, 0) },
        };
        Ok((header, message))
    }

    /// The header that a CM message is sent with: method Send, no status (IBA 12.6).
    pub const fn header(&self, transaction_id: u64) -> Repr {
        Repr {
            base_version: BASE_VERSION,
            mgmt_class: Class::CM,
            class_version: CLASS_VERSION,
            method: Method::SEND,
            status: Status::SUCCESS,
            class_specific: 0,
            transaction_id,
            attribute_id: self.attribute(),
            attribute_modifier: 0,
        }
    }

    /// Bytes that [`Message::emit`] writes.
    pub const fn buffer_len(&self) -> usize {
        MAD_LEN
    }

    /// Writes a whole MAD. Class and attribute are this message's, whatever `header` says.
    ///
    /// # Panics
    /// When `mad` is shorter than [`MAD_LEN`].
    pub fn emit(&self, header: &Repr, mad: &mut [u8]) {
        Repr { mgmt_class: Class::CM, attribute_id: self.attribute(), ..*header }.emit(mad);
        let out = &mut mad[HEADER_LEN..MAD_LEN];
        match self {
            Message::Req(m) => m.emit(out),
            Message::Mra(m) => m.emit(out),
            Message::Rej(m) => m.emit(out),
            Message::Rep(m) => m.emit(out),
            Message::Rtu(m) => m.emit(out),
            Message::Dreq(m) => m.emit(out),
            Message::Drep(m) => m.emit(out),
            Message::SidrReq(m) => m.emit(out),
            Message::SidrRep(m) => m.emit(out),
            Message::Other { data, .. } => out.copy_from_slice(data),
        }
    }

    /// The attribute id that names this message in the header.
    pub const fn attribute(&self) -> Attribute {
        match self {
            Message::Req(_) => Attribute::CM_REQ,
            Message::Mra(_) => Attribute::CM_MRA,
            Message::Rej(_) => Attribute::CM_REJ,
            Message::Rep(_) => Attribute::CM_REP,
            Message::Rtu(_) => Attribute::CM_RTU,
            Message::Dreq(_) => Attribute::CM_DREQ,
            Message::Drep(_) => Attribute::CM_DREP,
            Message::SidrReq(_) => Attribute::CM_SIDR_REQ,
            Message::SidrRep(_) => Attribute::CM_SIDR_REP,
            Message::Other { attribute, .. } => *attribute,
        }
    }

    /// The message in one line together with its header's transaction id.
    pub const fn line<'a>(&'a self, header: &'a Repr) -> Line<'a> {
        Line { message: self, transaction_id: Some(header.transaction_id) }
    }
}

impl fmt::Display for Message {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        Line { message: self, transaction_id: None }.fmt(f)
    }
}

/// A message as one line of text; made by [`Message::line`].
#[derive(Debug, Clone, Copy)]
pub struct Line<'a> {
    message: &'a Message,
    transaction_id: Option<u64>,
}

impl fmt::Display for Line<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let attribute = self.message.attribute();
        match attribute.name(Class::CM) {
            Some(name) => write!(f, "CM {name}")?,
            None => write!(f, "CM attr {attribute}")?,
        }
        if let Some(tid) = self.transaction_id {
            write!(f, " tid {tid:#018x}")?;
        }
        match self.message {
            Message::Req(m) => m.fields(f),
            Message::Mra(m) => m.fields(f),
            Message::Rej(m) => m.fields(f),
            Message::Rep(m) => m.fields(f),
            Message::Rtu(m) => m.fields(f),
            Message::Dreq(m) => m.fields(f),
            Message::Drep(m) => m.fields(f),
            Message::SidrReq(m) => m.fields(f),
            Message::SidrRep(m) => m.fields(f),
            Message::Other { .. } => Ok(()),
        }
    }
}
