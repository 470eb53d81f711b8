//! Attributes of rtnetlink: a length, a type and a value each, on boundaries of four bytes.

use std::net::IpAddr;

use super::{AF_INET, AF_INET6};

/// Bytes of `struct rtattr`.
const HEADER_LEN: usize = 4;
/// The bits of a type that are its number: the others say of what kind the value is.
const NLA_TYPE_MASK: u16 = 0x3fff;

/// Attributes being written, behind the structure that they belong to.
#[derive(Debug, Clone, Default)]
pub(crate) struct Attributes {
    bytes: Vec<u8>,
}

impl Attributes {
    /// Behind a structure, whose length is a multiple of four.
    pub(crate) fn after(structure: &[u8]) -> Attributes {
        Attributes { bytes: structure.into() }
    }

    /// An attribute with this value.
    pub(crate) fn with(mut self, kind: u16, value: &[u8]) -> Attributes {
        // A value that is longer can only be a name that nothing has, and is that when it is cut, too.
        let value = &value[..value.len().min(usize::from(u16::MAX) - HEADER_LEN)];
        self.bytes.extend(((HEADER_LEN + value.len()) as u16).to_ne_bytes());
        self.bytes.extend(kind.to_ne_bytes());
        self.bytes.extend(value);
        self.bytes.resize(self.bytes.len().next_multiple_of(4), 0);
        self
    }

    /// A number.
    pub(crate) fn with_u32(self, kind: u16, value: u32) -> Attributes {
        self.with(kind, &value.to_ne_bytes())
    }

    /// Text, with the zero behind it that C has.
    pub(crate) fn with_text(self, kind: u16, text: &str) -> Attributes {
        self.with(kind, &[text.as_bytes(), &[0]].concat())
    }

    /// An address.
    pub(crate) fn with_ip(self, kind: u16, ip: IpAddr) -> Attributes {
        match ip {
            IpAddr::V4(ip) => self.with(kind, &ip.octets()),
            IpAddr::V6(ip) => self.with(kind, &ip.octets()),
        }
    }

    /// Attributes inside of one. Without the mark that newer ones have: it is not asked for in those that are sent here.
    pub(crate) fn with_nested(self, kind: u16, inner: &Attributes) -> Attributes {
        self.with(kind, &inner.bytes)
    }

    pub(super) fn as_bytes(&self) -> &[u8] {
        &self.bytes
    }
}

/// Calls `take` with the type and the value of each attribute; `None` where the bytes are no attributes, or `take` says so.
pub(super) fn read<'a>(mut bytes: &'a [u8], mut take: impl FnMut(u16, &'a [u8]) -> Option<()>) -> Option<()> {
    while !bytes.is_empty() {
        let len = usize::from(u16_at(bytes, 0)?);
        let kind = u16_at(bytes, 2)? & NLA_TYPE_MASK;
        take(kind, bytes.get(HEADER_LEN..len)?)?;
        // The last one may come without its padding.
        bytes = bytes.get(len.next_multiple_of(4)..).unwrap_or_default();
    }
    Some(())
}

/// So many bytes from a place on.
pub(super) fn array<const N: usize>(bytes: &[u8], at: usize) -> Option<[u8; N]> {
    bytes.get(at..)?.first_chunk().copied()
}

pub(super) fn u16_at(bytes: &[u8], at: usize) -> Option<u16> {
    array(bytes, at).map(u16::from_ne_bytes)
}

pub(super) fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    array(bytes, at).map(u32::from_ne_bytes)
}

/// The value of an attribute that is a number.
pub(super) fn u32_of(value: &[u8]) -> Option<u32> {
    value.try_into().ok().map(u32::from_ne_bytes)
}

/// The value of an attribute that is text. A name that is no text in UTF-8 has other signs in place of what is not.
pub(super) fn text_of(value: &[u8]) -> String {
    let text = value.split(|&byte| byte == 0).next().unwrap_or_default();
    String::from_utf8_lossy(text).into_owned()
}

/// The value of an attribute that is an address of this family: `Some(None)` where the family is none of IP, `None` where it does not fit.
pub(super) fn ip_of(family: u8, value: &[u8]) -> Option<Option<IpAddr>> {
    match family {
        AF_INET => <[u8; 4]>::try_from(value).ok().map(|octets| Some(octets.into())),
        AF_INET6 => <[u8; 16]>::try_from(value).ok().map(|octets| Some(octets.into())),
        _ => Some(None),
    }
}
