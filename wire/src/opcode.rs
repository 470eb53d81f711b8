//! BTH opcodes: what each of the 256 values means and which extension headers follow it (IBA 9.2, tables 38 and 39).

#[cfg(test)]
mod tests;

use core::fmt::{self, Write as _};

/// A BTH opcode. Any byte is an `Opcode`; those without a meaning answer [`Opcode::is_known`] with `false`.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Opcode(pub u8);

/// The service that an opcode belongs to: its upper three bits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Service {
    /// Reliable connection.
    Rc,
    /// Unreliable connection.
    Uc,
    /// Reliable datagram: defined by the IBTA, built by nobody; its opcodes count as unknown.
    Rd,
    /// Unreliable datagram.
    Ud,
    /// Congestion notification (0x80 … 0x9f).
    Cnp,
    /// Extended reliable connection.
    Xrc,
    /// softnic's Selective Repeat: 0xc0 … 0xdf, the packets of RC that can come out of order.
    Sr,
    /// softnic's XP: 0xe0 … 0xff, each packet one that can be placed by itself.
    Xp,
}

/// What a packet does: its lower five bits, the same for every service.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[allow(missing_docs)] // the names are the definition
pub enum Kind {
    Send,
    Write,
    ReadRequest,
    ReadResponse,
    Acknowledge,
    AtomicAcknowledge,
    CompareSwap,
    FetchAdd,
    Flush,
    AtomicWrite,
    CongestionNotification,
    Repair,
    Feedback,
    Credit,
    Unknown,
}

impl Kind {
    /// Whether a request of this kind is answered by data, not by an acknowledgement.
    #[inline]
    pub const fn is_answered_by_data(self) -> bool {
        matches!(self, Kind::ReadRequest | Kind::CompareSwap | Kind::FetchAdd)
    }
}

/// Where a packet stands in its message.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[allow(missing_docs)]
pub enum Position {
    First,
    Middle,
    Last,
    Only,
}

/// The extension headers of a packet, as a set.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HeaderSet(u16);

impl HeaderSet {
    /// No extension header.
    pub const NONE: HeaderSet = HeaderSet(0);
    /// Datagram extended transport header.
    pub const DETH: HeaderSet = HeaderSet(1 << 0);
    /// XRC extended transport header.
    pub const XRCETH: HeaderSet = HeaderSet(1 << 1);
    /// FLUSH extended transport header.
    pub const FETH: HeaderSet = HeaderSet(1 << 2);
    /// RDMA extended transport header.
    pub const RETH: HeaderSet = HeaderSet(1 << 3);
    /// Atomic extended transport header.
    pub const ATOMIC: HeaderSet = HeaderSet(1 << 4);
    /// ACK extended transport header.
    pub const AETH: HeaderSet = HeaderSet(1 << 5);
    /// Atomic ACK extended transport header.
    pub const ATOMIC_ACK: HeaderSet = HeaderSet(1 << 6);
    /// Immediate data.
    pub const IMM: HeaderSet = HeaderSet(1 << 7);
    /// Invalidate extended transport header.
    pub const IETH: HeaderSet = HeaderSet(1 << 8);
    /// Selective Repeat extended transport header.
    pub const SR: HeaderSet = HeaderSet(1 << 9);
    /// XP extended transport header.
    pub const XP: HeaderSet = HeaderSet(1 << 11);
    /// The time that is left to an XP READ.
    pub const XP_TIME: HeaderSet = HeaderSet(1 << 12);
    /// The body of XP feedback.
    pub const XP_FEEDBACK: HeaderSet = HeaderSet(1 << 13);
    /// The body of XP credit.
    pub const XP_CREDIT: HeaderSet = HeaderSet(1 << 14);

    /// Whether all of `other` is in `self`.
    #[inline]
    pub const fn contains(self, other: HeaderSet) -> bool {
        self.0 & other.0 == other.0
    }

    /// Both together.
    #[inline]
    pub const fn with(self, other: HeaderSet) -> HeaderSet {
        HeaderSet(self.0 | other.0)
    }

    /// Bytes that the headers of the set take.
    pub const fn len(self) -> usize {
        let mut n = 0;
        let lens = [8, 4, 4, 16, 28, 4, 8, 4, 4, 8, 8, 16, 4, 20, 12];
        let mut i = 0;
        while i < lens.len() {
            if self.0 & (1 << i) != 0 {
                n += lens[i];
            }
            i += 1;
        }
        n
    }

    /// Whether the set has no header.
    pub const fn is_empty(self) -> bool {
        self.0 == 0
    }
}

/// The sets of headers that most packets have, in a row, so that telling them apart is one jump.
#[derive(Clone, Copy)]
pub(crate) enum Shape {
    None,
    Reth,
    RethImm,
    Aeth,
    Xp,
    XpReth,
    Other,
}

impl Shape {
    const fn of(set: HeaderSet) -> Shape {
        const RETH_IMM: u16 = HeaderSet::RETH.with(HeaderSet::IMM).0;
        const XP_RETH: u16 = HeaderSet::XP.with(HeaderSet::RETH).0;
        match set {
            HeaderSet::NONE => Shape::None,
            HeaderSet::RETH => Shape::Reth,
            HeaderSet(RETH_IMM) => Shape::RethImm,
            HeaderSet::AETH => Shape::Aeth,
            HeaderSet::XP => Shape::Xp,
            HeaderSet(XP_RETH) => Shape::XpReth,
            _ => Shape::Other,
        }
    }
}

/// One row of the opcode table, packed so that all 256 take 1.5 KiB.
#[derive(Clone, Copy)]
struct Row {
    headers: HeaderSet,
    shape: Shape,
    len: u8,
    kind: Kind,
    position: Position,
}

static TABLE: [Row; 256] = {
    let (headers, shape) = (HeaderSet::NONE, Shape::None);
    let mut t = [Row { headers, shape, len: 0, kind: Kind::Unknown, position: Position::Only }; 256];
    let mut op = 0;
    while op < 256 {
        t[op] = row(op as u8);
        op += 1;
    }
    t
};

const fn row(op: u8) -> Row {
    use HeaderSet as H;
    use Kind as K;
    use Position as P;
    let (kind, position, h) = match op & 0x1f {
        0x00 => (K::Send, P::First, H::NONE),
        0x01 => (K::Send, P::Middle, H::NONE),
        0x02 => (K::Send, P::Last, H::NONE),
        0x03 => (K::Send, P::Last, H::IMM),
        0x04 => (K::Send, P::Only, H::NONE),
        0x05 => (K::Send, P::Only, H::IMM),
        0x06 => (K::Write, P::First, H::RETH),
        0x07 => (K::Write, P::Middle, H::NONE),
        0x08 => (K::Write, P::Last, H::NONE),
        0x09 => (K::Write, P::Last, H::IMM),
        0x0a => (K::Write, P::Only, H::RETH),
        0x0b => (K::Write, P::Only, H::RETH.with(H::IMM)),
        0x0c => (K::ReadRequest, P::Only, H::RETH),
        0x0d => (K::ReadResponse, P::First, H::AETH),
        0x0e => (K::ReadResponse, P::Middle, H::NONE),
        0x0f => (K::ReadResponse, P::Last, H::AETH),
        0x10 => (K::ReadResponse, P::Only, H::AETH),
        0x11 => (K::Acknowledge, P::Only, H::AETH),
        0x12 => (K::AtomicAcknowledge, P::Only, H::AETH.with(H::ATOMIC_ACK)),
        0x13 => (K::CompareSwap, P::Only, H::ATOMIC),
        0x14 => (K::FetchAdd, P::Only, H::ATOMIC),
        0x16 => (K::Send, P::Last, H::IETH),
        0x17 => (K::Send, P::Only, H::IETH),
        0x1c => (K::Flush, P::Only, H::FETH.with(H::RETH)),
        0x1d => (K::AtomicWrite, P::Only, H::RETH),
        0x15 if op == 0xf5 => (K::Credit, P::Only, H::NONE),
        0x1f if op == 0x1f => (K::Repair, P::Only, H::NONE),
        _ => (K::Unknown, P::Only, H::NONE),
    };
    let known = match service(op) {
        Service::Rc => true,
        Service::Uc => op & 0x1f <= 0x0b,
        Service::Ud => matches!(op & 0x1f, 0x04 | 0x05),
        Service::Xrc => true,
        Service::Sr => op & 0x1f <= 0x17,
        Service::Xp => matches!(op & 0x1f, 0x04 | 0x05 | 0x0a | 0x0b | 0x0c | 0x10 | 0x11 | 0x15),
        Service::Cnp | Service::Rd => false,
    };
    let (kind, position, h) = match service(op) {
        Service::Cnp if op == 0x81 => (K::CongestionNotification, P::Only, H::NONE),
        _ if !known => (K::Unknown, P::Only, H::NONE),
        Service::Ud => (kind, position, h.with(H::DETH)),
        // Requests name the XRC SRQ; responses do not (IBA annex A14.3).
        Service::Xrc if !matches!(kind, K::Unknown | K::ReadResponse | K::Acknowledge | K::AtomicAcknowledge) => {
            (kind, position, h.with(H::XRCETH))
        }
        Service::Sr => (kind, position, of_selective_repeat(kind, h)),
        Service::Xp => match kind {
            K::Acknowledge => (K::Feedback, position, H::XP_FEEDBACK),
            K::Credit => (K::Credit, position, H::XP_CREDIT),
            K::ReadRequest => (kind, position, h.with(H::XP).with(H::XP_TIME)),
            K::ReadResponse => (kind, position, H::XP),
            _ => (kind, position, h.with(H::XP)),
        },
        _ => (kind, position, h),
    };
    Row { headers: h, shape: Shape::of(h), len: h.len() as u8, kind, position }
}

/// [`Opcode::headers`] for other tables.
pub(crate) const fn headers(op: u8) -> HeaderSet {
    row(op).headers
}

/// The headers of a packet of Selective Repeat, where that of RC has `rc`: each says by itself where it belongs.
const fn of_selective_repeat(kind: Kind, rc: HeaderSet) -> HeaderSet {
    use HeaderSet as H;
    match kind {
        Kind::Send => rc.with(H::SR),
        Kind::Write if rc.contains(H::IMM) => H::SR.with(H::RETH).with(H::IMM),
        Kind::Write => H::RETH,
        // Their acknowledgements are packets of their own.
        Kind::ReadResponse => H::SR,
        Kind::AtomicAcknowledge => H::SR.with(H::ATOMIC_ACK),
        Kind::Acknowledge => H::SR.with(H::AETH),
        _ => rc,
    }
}

const fn service(op: u8) -> Service {
    match op >> 5 {
        0 => Service::Rc,
        1 => Service::Uc,
        2 => Service::Rd,
        3 => Service::Ud,
        4 => Service::Cnp,
        5 => Service::Xrc,
        6 => Service::Sr,
        _ => Service::Xp,
    }
}

impl Opcode {
    /// Congestion notification packet (IBA annex A17.9.3).
    pub const CNP: Opcode = Opcode(0x81);
    /// The acknowledgement of RC.
    pub const RC_ACKNOWLEDGE: Opcode = Opcode(0x11);
    /// The answer to an RC atomic.
    pub const RC_ATOMIC_ACKNOWLEDGE: Opcode = Opcode(0x12);
    /// The request of an RC READ.
    pub const RC_RDMA_READ_REQUEST: Opcode = Opcode(0x0c);
    /// A one-packet RC SEND.
    pub const RC_SEND_ONLY: Opcode = Opcode(0x04);
    /// A one-packet RC WRITE.
    pub const RC_RDMA_WRITE_ONLY: Opcode = Opcode(0x0a);
    /// The middle of an RC WRITE.
    pub const RC_RDMA_WRITE_MIDDLE: Opcode = Opcode(0x07);
    /// RC compare and swap.
    pub const RC_COMPARE_SWAP: Opcode = Opcode(0x13);
    /// RC fetch and add.
    pub const RC_FETCH_ADD: Opcode = Opcode(0x14);
    /// The acknowledgement of Selective Repeat.
    pub const SR_ACKNOWLEDGE: Opcode = Opcode(0xd1);
    /// Feedback of XP.
    pub const XP_FEEDBACK: Opcode = Opcode(0xf1);
    /// Credit of XP.
    pub const XP_CREDIT: Opcode = Opcode(0xf5);
    /// What LoWAR adds to RC: a Repair Header follows the BTH ([`crate::lowar`]), which counts as payload here.
    pub const LOWAR: Opcode = Opcode(0x1f);
    /// A UD SEND.
    pub const UD_SEND_ONLY: Opcode = Opcode(0x64);
    /// A UD SEND with immediate data.
    pub const UD_SEND_ONLY_WITH_IMMEDIATE: Opcode = Opcode(0x65);

    /// The opcode of Selective Repeat that does what this one of RC does.
    #[inline]
    pub const fn selective(self) -> Opcode {
        Opcode(0xc0 | self.0 & 0x1f)
    }

    /// The opcode's service.
    #[inline]
    pub const fn service(self) -> Service {
        service(self.0)
    }

    /// Whether the opcode has a meaning for its service.
    #[inline]
    pub fn is_known(self) -> bool {
        self.kind() != Kind::Unknown
    }

    /// What the packet does.
    #[inline]
    pub fn kind(self) -> Kind {
        TABLE[usize::from(self.0)].kind
    }

    /// Where the packet stands in its message.
    #[inline]
    pub fn position(self) -> Position {
        TABLE[usize::from(self.0)].position
    }

    /// The extension headers behind the BTH.
    #[inline]
    pub fn headers(self) -> HeaderSet {
        TABLE[usize::from(self.0)].headers
    }

    /// Which of the likely sets the extension headers are.
    #[inline]
    pub(crate) fn shape(self) -> Shape {
        TABLE[usize::from(self.0)].shape
    }

    /// Bytes of the extension headers behind the BTH.
    #[inline]
    pub fn headers_len(self) -> usize {
        usize::from(TABLE[usize::from(self.0)].len)
    }

    /// Whether a responder sends it: READ responses and acknowledgements.
    #[inline]
    pub fn is_response(self) -> bool {
        matches!(self.kind(), Kind::ReadResponse | Kind::Acknowledge | Kind::AtomicAcknowledge)
    }

    /// Whether a requester sends it.
    #[inline]
    pub fn is_request(self) -> bool {
        use Kind::{CongestionNotification, Credit, Feedback, Repair, Unknown};
        !self.is_response() && !matches!(self.kind(), Unknown | CongestionNotification | Repair | Feedback | Credit)
    }

    /// Whether the packet is the first of its message (or the only one).
    #[inline]
    pub fn begins_message(self) -> bool {
        matches!(self.position(), Position::First | Position::Only)
    }

    /// Whether the packet is the last of its message (or the only one).
    #[inline]
    pub fn ends_message(self) -> bool {
        matches!(self.position(), Position::Last | Position::Only)
    }

    /// The opcode that is shown as `name`.
    pub fn from_name(name: &str) -> Option<Opcode> {
        (0..=255).map(Opcode).find(|o| {
            let mut rest = Rest(name);
            write!(rest, "{o}").is_ok() && rest.0.is_empty()
        })
    }

    /// The name without the service, `None` where the opcode is unknown.
    fn operation_name(self) -> Option<&'static str> {
        if !self.is_known() {
            return None;
        }
        Some(match self.0 & 0x1f {
            _ if self == Opcode::CNP => "CNP",
            // Every packet of XP stands for itself: it is neither the first nor the only one.
            0x04 if self.service() == Service::Xp => "SEND",
            0x05 if self.service() == Service::Xp => "SEND_WITH_IMMEDIATE",
            0x0a if self.service() == Service::Xp => "RDMA_WRITE",
            0x0b if self.service() == Service::Xp => "RDMA_WRITE_WITH_IMMEDIATE",
            0x10 if self.service() == Service::Xp => "RDMA_READ_RESPONSE",
            0x11 if self.service() == Service::Xp => "FEEDBACK",
            0x15 if self.service() == Service::Xp => "CREDIT",
            0x00 => "SEND_FIRST",
            0x01 => "SEND_MIDDLE",
            0x02 => "SEND_LAST",
            0x03 => "SEND_LAST_WITH_IMMEDIATE",
            0x04 => "SEND_ONLY",
            0x05 => "SEND_ONLY_WITH_IMMEDIATE",
            0x06 => "RDMA_WRITE_FIRST",
            0x07 => "RDMA_WRITE_MIDDLE",
            0x08 => "RDMA_WRITE_LAST",
            0x09 => "RDMA_WRITE_LAST_WITH_IMMEDIATE",
            0x0a => "RDMA_WRITE_ONLY",
            0x0b => "RDMA_WRITE_ONLY_WITH_IMMEDIATE",
            0x0c => "RDMA_READ_REQUEST",
            0x0d => "RDMA_READ_RESPONSE_FIRST",
            0x0e => "RDMA_READ_RESPONSE_MIDDLE",
            0x0f => "RDMA_READ_RESPONSE_LAST",
            0x10 => "RDMA_READ_RESPONSE_ONLY",
            0x11 => "ACKNOWLEDGE",
            0x12 => "ATOMIC_ACKNOWLEDGE",
            0x13 => "COMPARE_SWAP",
            0x14 => "FETCH_ADD",
            0x16 => "SEND_LAST_WITH_INVALIDATE",
            0x17 => "SEND_ONLY_WITH_INVALIDATE",
            0x1c => "FLUSH",
            0x1d => "ATOMIC_WRITE",
            0x1f => "LOWAR",
            _ => return None,
        })
    }
}

/// A text that is compared with another while that is being written.
struct Rest<'a>(&'a str);

impl fmt::Write for Rest<'_> {
    fn write_str(&mut self, s: &str) -> fmt::Result {
        self.0 = self.0.strip_prefix(s).ok_or(fmt::Error)?;
        Ok(())
    }
}

/// `RC_SEND_ONLY`, `CNP`, `UNKNOWN_0x3f`: the names of the Linux headers without their prefix.
impl fmt::Display for Opcode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Some(name) = self.operation_name() else {
            return write!(f, "UNKNOWN_{:#04x}", self.0);
        };
        match self.service() {
            Service::Rc => f.write_str("RC_")?,
            Service::Uc => f.write_str("UC_")?,
            Service::Ud => f.write_str("UD_")?,
            Service::Xrc => f.write_str("XRC_")?,
            Service::Sr => f.write_str("SR_")?,
            Service::Xp => f.write_str("XP_")?,
            Service::Rd | Service::Cnp => {}
        }
        f.write_str(name)
    }
}

impl fmt::Debug for Opcode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Opcode({:#04x} {self})", self.0)
    }
}
