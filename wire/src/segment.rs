//! Segmentation of messages into packets and the rules by which a receiver puts them together (IBA 9.7.2, 9.7.4.1).

use crate::opcode::{HeaderSet, Kind, Position, Service};
use crate::{Opcode, Psn};

/// The largest message (IBA 9.7.1: 2^31 bytes).
pub const MAX_MESSAGE: u32 = 1 << 31;

/// Path MTU: bytes of payload a packet may carry.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(u8)]
#[allow(missing_docs)]
pub enum PathMtu {
    B256 = 1,
    B512 = 2,
    B1024 = 3,
    B2048 = 4,
    B4096 = 5,
}

impl PathMtu {
    /// All of them, smallest first.
    pub const ALL: [PathMtu; 5] = [PathMtu::B256, PathMtu::B512, PathMtu::B1024, PathMtu::B2048, PathMtu::B4096];

    /// In bytes.
    #[inline]
    pub const fn bytes(self) -> u32 {
        128 << self as u32
    }

    /// The code of verbs and of CM messages: 1 … 5.
    #[inline]
    pub const fn code(self) -> u8 {
        self as u8
    }

    /// From the code of verbs and of CM messages.
    pub const fn from_code(code: u8) -> Option<PathMtu> {
        match code {
            1..=5 => Some(Self::ALL[code as usize - 1]),
            _ => None,
        }
    }

    /// From a number of bytes that is one of the five.
    pub const fn from_bytes(bytes: u32) -> Option<PathMtu> {
        match bytes {
            256 => Some(PathMtu::B256),
            512 => Some(PathMtu::B512),
            1024 => Some(PathMtu::B1024),
            2048 => Some(PathMtu::B2048),
            4096 => Some(PathMtu::B4096),
            _ => None,
        }
    }

    /// Packets that a message of `len` bytes takes; an empty one takes one.
    #[inline]
    pub const fn packets(self, len: u32) -> u32 {
        let n = len.div_ceil(self.bytes());
        if n == 0 { 1 } else { n }
    }
}

/// What a message does: the operations that carry a payload of more than one packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[allow(missing_docs)]
pub enum MessageKind {
    Send,
    SendImm,
    SendInv,
    Write,
    WriteImm,
    ReadResponse,
}

/// One packet of a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Segment {
    /// Its opcode.
    pub opcode: Opcode,
    /// Its PSN.
    pub psn: Psn,
    /// Where its payload begins in the message.
    pub offset: u32,
    /// Bytes of payload.
    pub len: u32,
    /// Pad bytes behind the payload.
    pub pad: u8,
    /// Whether the message begins here.
    pub first: bool,
    /// Whether the message ends here.
    pub last: bool,
}

impl Segment {
    /// The extension headers it carries.
    pub fn headers(&self) -> HeaderSet {
        self.opcode.headers()
    }
}

/// A message and how it is cut: a pure function from packet index to packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Segmentation {
    service: Service,
    kind: MessageKind,
    len: u32,
    mtu: PathMtu,
    psn: Psn,
    packets: u32,
}

impl Segmentation {
    /// A message of `len` bytes whose first packet has `psn`. `None` when the service has no such message: UD and
    /// anything longer than one packet, UC with READ or invalidate, more than 2 GiB.
    pub fn new(service: Service, kind: MessageKind, len: u32, mtu: PathMtu, psn: Psn) -> Option<Segmentation> {
        let packets = mtu.packets(len);
        let s = Segmentation { service, kind, len, mtu, psn, packets };
        let exists = opcode_of(service, kind, Position::Only)?.is_known();
        (exists && len <= MAX_MESSAGE && (packets == 1 || service != Service::Ud)).then_some(s)
    }

    /// How many packets, and so how many PSNs, the message takes.
    #[inline]
    pub const fn packets(&self) -> u32 {
        self.packets
    }

    /// The `i`th packet.
    #[inline]
    pub fn get(&self, i: u32) -> Option<Segment> {
        if i >= self.packets {
            return None;
        }
        let (first, last) = (i == 0, i + 1 == self.packets);
        let position = match (first, last) {
            (true, true) => Position::Only,
            (true, false) => Position::First,
            (false, false) => Position::Middle,
            (false, true) => Position::Last,
        };
        let offset = i * self.mtu.bytes();
        let len = if last { self.len - offset } else { self.mtu.bytes() };
        Some(Segment {
            opcode: opcode_of(self.service, self.kind, position)?,
            psn: self.psn.add(i),
            offset,
            len,
            pad: (len.wrapping_neg() & 3) as u8,
            first,
            last,
        })
    }

    /// All packets in order.
    pub fn iter(&self) -> impl Iterator<Item = Segment> + use<> {
        let s = *self;
        (0..s.packets).filter_map(move |i| s.get(i))
    }
}

/// The opcode of a packet at `position` of such a message.
#[inline]
pub const fn opcode_of(service: Service, kind: MessageKind, position: Position) -> Option<Opcode> {
    use MessageKind as M;
    use Position as P;
    let base = match service {
        Service::Rc => 0x00,
        Service::Uc => 0x20,
        Service::Ud => 0x60,
        Service::Xrc => 0xa0,
        Service::Sr => 0xc0,
        // Packets of XP have no position.
        Service::Rd | Service::Cnp | Service::Xp => return None,
    };
    let low = match (kind, position) {
        (M::Send | M::SendImm | M::SendInv, P::First) => 0x00,
        (M::Send | M::SendImm | M::SendInv, P::Middle) => 0x01,
        (M::Send, P::Last) => 0x02,
        (M::SendImm, P::Last) => 0x03,
        (M::Send, P::Only) => 0x04,
        (M::SendImm, P::Only) => 0x05,
        (M::SendInv, P::Last) => 0x16,
        (M::SendInv, P::Only) => 0x17,
        (M::Write | M::WriteImm, P::First) => 0x06,
        (M::Write | M::WriteImm, P::Middle) => 0x07,
        (M::Write, P::Last) => 0x08,
        (M::WriteImm, P::Last) => 0x09,
        (M::Write, P::Only) => 0x0a,
        (M::WriteImm, P::Only) => 0x0b,
        (M::ReadResponse, P::First) => 0x0d,
        (M::ReadResponse, P::Middle) => 0x0e,
        (M::ReadResponse, P::Last) => 0x0f,
        (M::ReadResponse, P::Only) => 0x10,
    };
    Some(Opcode(base | low))
}

/// Why a packet cannot come next in a message: each is a NAK invalid request for a responder.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum SequenceError {
    /// A MIDDLE or LAST where no message is open, or a FIRST, ONLY or another operation inside one (IBA 9.7.4.1.1, .2).
    #[error("the opcode cannot follow the one before it")]
    Order,
    /// A FIRST or MIDDLE that is not full, a LAST that is empty, anything longer than the path MTU (IBA 9.7.4.1.6).
    #[error("the payload length is not one that this packet of a message can have")]
    Length,
    /// The packets of a WRITE carry more or less than its RETH announced (IBA 9.7.4.1.6).
    #[error("the message's packets do not add up to the length in its RETH")]
    Total,
    /// The packet is no part of a SEND, WRITE or READ response.
    #[error("the opcode does not carry a message")]
    NotAMessage,
}

/// What a packet adds to its message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Placement {
    /// Where its payload belongs in the message.
    pub offset: u32,
    /// Whether the message is complete with it.
    pub complete: bool,
}

/// The inverse of [`Segmentation`]: follows packets that come in order and says what each adds, or why it cannot be right.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Reassembly {
    mtu: PathMtu,
    open: Option<Open>,
}

/// A message of which the first packets have come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Open {
    service: Service,
    kind: Kind,
    received: u32,
    announced: Option<u32>,
}

impl Reassembly {
    /// With no message open.
    pub const fn new(mtu: PathMtu) -> Reassembly {
        Reassembly { mtu, open: None }
    }

    /// Bytes received of the message that is open.
    pub const fn received(&self) -> Option<u32> {
        match self.open {
            Some(o) => Some(o.received),
            None => None,
        }
    }

    /// Whether the message that is open is a SEND.
    pub fn is_send_open(&self) -> bool {
        self.open.is_some_and(|o| o.kind == Kind::Send)
    }

    /// Takes the next packet: its opcode, bytes of payload, and the length in its RETH where it has one.
    /// After an error the state is as before.
    #[inline]
    pub fn accept(&mut self, opcode: Opcode, len: u32, reth_len: Option<u32>) -> Result<Placement, SequenceError> {
        let kind = opcode.kind();
        if !matches!(kind, Kind::Send | Kind::Write | Kind::ReadResponse) {
            return Err(SequenceError::NotAMessage);
        }
        let mtu = self.mtu.bytes();
        let position = opcode.position();
        let fits = match position {
            Position::First | Position::Middle => len == mtu,
            Position::Last => 1 <= len && len <= mtu,
            Position::Only => len <= mtu,
        };
        let message = match (self.open, position) {
            (None, Position::First | Position::Only) => {
                Open { service: opcode.service(), kind, received: 0, announced: reth_len }
            }
            (Some(o), Position::Middle | Position::Last) if o.kind == kind && o.service == opcode.service() => o,
            _ => return Err(SequenceError::Order),
        };
        if !fits {
            return Err(SequenceError::Length);
        }
        let offset = message.received;
        let received = offset.checked_add(len).filter(|&n| n <= MAX_MESSAGE).ok_or(SequenceError::Total)?;
        let complete = opcode.ends_message();
        let adds_up = match message.announced {
            None => true,
            Some(total) if complete => received == total,
            Some(total) => received < total,
        };
        if !adds_up {
            return Err(SequenceError::Total);
        }
        self.open = (!complete).then_some(Open { received, ..message });
        Ok(Placement { offset, complete })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn any_kind() -> impl Strategy<Value = MessageKind> {
        use MessageKind::*;
        prop::sample::select(vec![Send, SendImm, SendInv, Write, WriteImm, ReadResponse])
    }

    proptest! {
        #[test]
        fn segments_tile_the_message_and_reassemble(
            kind in any_kind(), len in 0u32..40_000, code in 1u8..=5, psn: u32,
        ) {
            let mtu = PathMtu::from_code(code).unwrap();
            let s = Segmentation::new(Service::Rc, kind, len, mtu, Psn::new(psn)).unwrap();
            let reth = matches!(kind, MessageKind::Write | MessageKind::WriteImm).then_some(len);
            let mut r = Reassembly::new(mtu);
            let mut next = 0;
            for (i, seg) in s.iter().enumerate() {
                prop_assert_eq!(seg.offset, next);
                prop_assert_eq!(seg.psn, Psn::new(psn).add(i as u32));
                prop_assert_eq!((seg.len + u32::from(seg.pad)) % 4, 0);
                let placed = r.accept(seg.opcode, seg.len, if seg.first { reth } else { None }).unwrap();
                prop_assert_eq!(placed, Placement { offset: next, complete: seg.last });
                next += seg.len;
            }
            prop_assert_eq!(next, len);
            prop_assert_eq!(s.iter().count() as u32, s.packets());
            prop_assert_eq!(r.received(), None);
        }
    }

    #[test]
    fn opcodes_of_a_write_with_immediate() {
        let s = Segmentation::new(Service::Rc, MessageKind::WriteImm, 2049, PathMtu::B1024, Psn::MAX).unwrap();
        let all: Vec<_> = s.iter().map(|s| (s.opcode.0, s.psn.value(), s.len, s.pad)).collect();
        assert_eq!(all, [(0x06, 0xffffff, 1024, 0), (0x07, 0, 1024, 0), (0x09, 1, 1, 3)]);
    }

    #[test]
    fn two_gib_is_the_largest_message() {
        let cut = |len| Segmentation::new(Service::Rc, MessageKind::Write, len, PathMtu::B256, Psn::new(0));
        let s = cut(MAX_MESSAGE).unwrap();
        assert_eq!(s.packets(), 1 << 23);
        let last = s.get(s.packets() - 1).unwrap();
        assert_eq!((last.offset, last.len, last.last), (MAX_MESSAGE - 256, 256, true));
        assert_eq!(cut(MAX_MESSAGE + 1), None);
    }

    #[test]
    fn messages_that_a_service_does_not_have() {
        let exists = |service, kind, len| Segmentation::new(service, kind, len, PathMtu::B1024, Psn::new(0)).is_some();
        assert!(exists(Service::Ud, MessageKind::Send, 1024) && !exists(Service::Ud, MessageKind::Send, 1025));
        assert!(!exists(Service::Ud, MessageKind::Write, 8) && !exists(Service::Uc, MessageKind::SendInv, 8));
        assert!(!exists(Service::Uc, MessageKind::ReadResponse, 8) && !exists(Service::Cnp, MessageKind::Send, 8));
    }

    #[test]
    fn what_a_receiver_must_refuse() {
        let mut r = Reassembly::new(PathMtu::B256);
        assert_eq!(r.accept(Opcode(0x01), 256, None), Err(SequenceError::Order)); // MIDDLE first
        assert_eq!(r.accept(Opcode(0x00), 255, None), Err(SequenceError::Length)); // FIRST not full
        assert_eq!(r.accept(Opcode(0x11), 0, None), Err(SequenceError::NotAMessage));
        assert!(r.accept(Opcode(0x06), 256, Some(600)).is_ok());
        assert_eq!(r.accept(Opcode(0x06), 256, Some(600)), Err(SequenceError::Order)); // FIRST inside
        assert_eq!(r.accept(Opcode(0x02), 10, None), Err(SequenceError::Order)); // a SEND inside a WRITE
        assert_eq!(r.accept(Opcode(0x27), 256, None), Err(SequenceError::Order)); // of another service
        assert_eq!(r.accept(Opcode(0x08), 0, None), Err(SequenceError::Length)); // LAST empty
        assert_eq!(r.accept(Opcode(0x08), 87, None), Err(SequenceError::Total)); // short of the RETH
        assert!(r.accept(Opcode(0x07), 256, None).is_ok());
        assert_eq!(r.accept(Opcode(0x07), 256, None), Err(SequenceError::Total)); // beyond the RETH
        assert_eq!(r.accept(Opcode(0x08), 88, None), Ok(Placement { offset: 512, complete: true }));
    }
}
