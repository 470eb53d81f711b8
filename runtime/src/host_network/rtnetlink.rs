//! The formats of rtnetlink, as <linux/netlink.h> and <linux/rtnetlink.h> have them: what is asked here, and what of the answers is used.
//!
//! All numbers are in the byte order of the machine. A message that cannot be read is told as such, never fatal; attributes that are not
//! known are skipped.

pub(crate) mod address;
pub(crate) mod attributes;
pub(crate) mod filter;
pub(crate) mod link;
pub(crate) mod neighbour;
pub(crate) mod route;

use rustix::io::Errno;

use address::AddressMessage;
use attributes::{Attributes, array, u16_at, u32_at};
use filter::FilterMessage;
use link::LinkMessage;
use neighbour::NeighbourMessage;
use route::RouteMessage;

/// Flags of every message.
const NLM_F_REQUEST: u16 = 0x1;
pub(crate) const NLM_F_ACK: u16 = 0x4;
/// Something changed while a dump was made: it may be of no moment in particular.
pub(crate) const NLM_F_DUMP_INTR: u16 = 0x10;
/// Of questions: all things of a kind.
pub(crate) const NLM_F_DUMP: u16 = 0x300;
/// Of changes: what is there is replaced, is an error, or is made.
pub(crate) const NLM_F_REPLACE: u16 = 0x100;
pub(crate) const NLM_F_EXCL: u16 = 0x200;
pub(crate) const NLM_F_CREATE: u16 = 0x400;

/// Types of messages that are the same for all of netlink.
const NLMSG_ERROR: u16 = 2;
const NLMSG_DONE: u16 = 3;
/// Types below this one are netlink's own.
const NLMSG_MIN_TYPE: u16 = 0x10;

pub(crate) const RTM_NEWLINK: u16 = 16;
pub(crate) const RTM_DELLINK: u16 = 17;
pub(crate) const RTM_GETLINK: u16 = 18;
pub(crate) const RTM_SETLINK: u16 = 19;
pub(crate) const RTM_NEWADDR: u16 = 20;
const RTM_DELADDR: u16 = 21;
pub(crate) const RTM_GETADDR: u16 = 22;
const RTM_NEWROUTE: u16 = 24;
const RTM_DELROUTE: u16 = 25;
pub(crate) const RTM_GETROUTE: u16 = 26;
pub(crate) const RTM_NEWNEIGH: u16 = 28;
const RTM_DELNEIGH: u16 = 29;
pub(crate) const RTM_GETNEIGH: u16 = 30;
const RTM_NEWRULE: u16 = 32;
const RTM_DELRULE: u16 = 33;
pub(crate) const RTM_NEWQDISC: u16 = 36;
pub(crate) const RTM_DELQDISC: u16 = 37;
pub(crate) const RTM_NEWTFILTER: u16 = 44;
pub(crate) const RTM_DELTFILTER: u16 = 45;
pub(crate) const RTM_GETTFILTER: u16 = 46;

pub(crate) const AF_UNSPEC: u8 = 0;
pub(crate) const AF_INET: u8 = 2;
pub(crate) const AF_INET6: u8 = 10;

/// Bytes of `struct nlmsghdr`.
const HEADER_LEN: usize = 16;

/// A question, or something to change.
#[derive(Debug, Clone)]
pub(crate) struct Request {
    kind: u16,
    body: Attributes,
}

impl Request {
    /// Of this type; the body is the structure of its kind with attributes behind it.
    pub(crate) fn new(kind: u16, body: Attributes) -> Request {
        Request { kind, body }
    }

    /// The whole message.
    pub(super) fn bytes(&self, flags: u16, sequence: u32) -> Vec<u8> {
        let body = self.body.as_bytes();
        let mut bytes = Vec::with_capacity(HEADER_LEN + body.len());
        bytes.extend(((HEADER_LEN + body.len()) as u32).to_ne_bytes());
        bytes.extend(self.kind.to_ne_bytes());
        bytes.extend((NLM_F_REQUEST | flags).to_ne_bytes());
        bytes.extend(sequence.to_ne_bytes());
        // The kernel knows the sender.
        bytes.extend([0; 4]);
        bytes.extend(body);
        bytes
    }
}

/// What the kernel tells about one thing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Message {
    NewLink(LinkMessage),
    DelLink(LinkMessage),
    /// An address came, went or changed.
    Address(AddressMessage),
    NewRoute(RouteMessage),
    DelRoute(RouteMessage),
    NewNeighbour(NeighbourMessage),
    DelNeighbour(NeighbourMessage),
    /// A rule by which tables of routes are chosen came or went.
    Rule,
    NewFilter(FilterMessage),
    /// Something that nobody here asks for.
    Other,
}

impl Message {
    /// `None` where it cannot be read.
    fn read(kind: u16, body: &[u8]) -> Option<Message> {
        Some(match kind {
            RTM_NEWLINK => Message::NewLink(LinkMessage::read(body)?),
            RTM_DELLINK => Message::DelLink(LinkMessage::read(body)?),
            RTM_NEWADDR | RTM_DELADDR => Message::Address(AddressMessage::read(body)?),
            RTM_NEWROUTE => Message::NewRoute(RouteMessage::read(body)?),
            RTM_DELROUTE => Message::DelRoute(RouteMessage::read(body)?),
            RTM_NEWNEIGH => Message::NewNeighbour(NeighbourMessage::read(body)?),
            RTM_DELNEIGH => Message::DelNeighbour(NeighbourMessage::read(body)?),
            RTM_NEWRULE | RTM_DELRULE => Message::Rule,
            RTM_NEWTFILTER => Message::NewFilter(FilterMessage::read(body)?),
            _ => Message::Other,
        })
    }
}

/// What a message carries.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Payload {
    Message(Message),
    /// The end of a dump, and the answer to what has none: 0, or an error number with a minus sign.
    End(i32),
    /// Netlink's own, without a meaning here.
    Nothing,
    /// It cannot be read.
    Unreadable,
}

/// One message as it came.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Incoming {
    pub(super) flags: u16,
    pub(super) sequence: u32,
    pub(super) payload: Payload,
}

/// The messages of a datagram.
pub(super) fn split(mut datagram: &[u8]) -> Result<Vec<Incoming>, Errno> {
    let mut messages = Vec::new();
    while !datagram.is_empty() {
        let (len, message) = first(datagram).ok_or(Errno::BADMSG)?;
        messages.push(message);
        datagram = datagram.get(len.next_multiple_of(4)..).unwrap_or_default();
    }
    Ok(messages)
}

/// The first message of some bytes, with its length; `None` where they do not begin with a whole one.
fn first(bytes: &[u8]) -> Option<(usize, Incoming)> {
    let len = u32_at(bytes, 0)? as usize;
    let kind = u16_at(bytes, 4)?;
    let (flags, sequence) = (u16_at(bytes, 6)?, u32_at(bytes, 8)?);
    let body = bytes.get(HEADER_LEN..len)?;
    let payload = match kind {
        NLMSG_ERROR => array(body, 0).map_or(Payload::Unreadable, |code| Payload::End(i32::from_ne_bytes(code))),
        // Old kernels end a dump without a number.
        NLMSG_DONE => Payload::End(array(body, 0).map_or(0, i32::from_ne_bytes)),
        ..NLMSG_MIN_TYPE => Payload::Nothing,
        _ => Message::read(kind, body).map_or(Payload::Unreadable, Payload::Message),
    };
    Some((len, Incoming { flags, sequence, payload }))
}

#[cfg(test)]
mod tests;
