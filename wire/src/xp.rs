//! The headers of XP: each packet says by itself to which message it belongs, where its bytes go, and whether it is the last; and the
//! feedback and the credit of congestion control.

use core::fmt;

use crate::bytes::{be16, be24, be32, be64, put16, put24, put32, put64};

/// XP extended transport header, right behind the BTH of every packet of service 0xE0 but feedback.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct XpEth {
    /// [`XpEth::LAST`], [`XpEth::RECEIVE`], and reserved bits.
    pub flags: u8,
    /// Number of the message among all of its sender, 24 bits; of a READ response, that of the request.
    pub wqe_seq: u32,
    /// Of the payload's first byte in its message.
    pub offset: u32,
    /// Bytes of the whole message.
    pub len: u32,
    /// Blocks that the payload has a part of: the payload is this many runs of equal length, one block apart. 1 is plain.
    pub stride: u16,
    /// Number of the message among those that use up a receive; the last one's where it uses none.
    pub receive: u16,
}

impl XpEth {
    /// Bytes of the header.
    pub const LEN: usize = 16;

    /// It is the last fragment of its message.
    pub const LAST: u8 = 0x80;

    /// The message uses up a receive.
    pub const RECEIVE: u8 = 0x40;

    /// Reads the header.
    #[inline]
    pub fn parse(b: &[u8; Self::LEN]) -> XpEth {
        XpEth {
            flags: b[0],
            wqe_seq: be24(b, 1),
            offset: be32(b, 4),
            len: be32(b, 8),
            stride: be16(b, 12),
            receive: be16(b, 14),
        }
    }

    /// Writes the header.
    #[inline]
    pub fn emit(&self, b: &mut [u8; Self::LEN]) {
        b[0] = self.flags;
        put24(b, 1, self.wqe_seq);
        put32(b, 4, self.offset);
        put32(b, 8, self.len);
        put16(b, 12, self.stride);
        put16(b, 14, self.receive);
    }

    /// Whether it is the last fragment of its message.
    #[inline]
    pub const fn is_last(&self) -> bool {
        self.flags & Self::LAST != 0
    }

    /// Whether the message uses up a receive.
    #[inline]
    pub const fn uses_receive(&self) -> bool {
        self.flags & Self::RECEIVE != 0
    }
}

impl fmt::Display for XpEth {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "xp {} at {} of {}", self.wqe_seq, self.offset, self.len)?;
        if self.stride != 1 {
            write!(f, " stride {}", self.stride)?;
        }
        if self.uses_receive() {
            write!(f, " receive {}", self.receive)?;
        }
        if self.is_last() { f.write_str(" last") } else { Ok(()) }
    }
}

/// The body of an XP feedback packet; the BTH has the PSN of the packet that asked for it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct XpFeedback {
    /// Nanoseconds from the arrival of that packet to this answer.
    pub held: u32,
    /// Packets with the mark of congestion that came so far, modulo 2^32.
    pub marks: u32,
    /// Bytes of payload that came so far.
    pub bytes: u64,
    /// Reserved; 0.
    pub credit: u32,
}

impl XpFeedback {
    /// Bytes of the header.
    pub const LEN: usize = 20;

    /// Reads the header.
    #[inline]
    pub fn parse(b: &[u8; Self::LEN]) -> XpFeedback {
        XpFeedback { held: be32(b, 0), marks: be32(b, 4), bytes: be64(b, 8), credit: be32(b, 16) }
    }

    /// Writes the header.
    #[inline]
    pub fn emit(&self, b: &mut [u8; Self::LEN]) {
        put32(b, 0, self.held);
        put32(b, 4, self.marks);
        put64(b, 8, self.bytes);
        put32(b, 16, self.credit);
    }
}

impl fmt::Display for XpFeedback {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "held {} ns, {} bytes and {} marks so far", self.held, self.bytes, self.marks)
    }
}

/// The body of an XP credit packet, which both sides of a connection send, also of a reliable one: what the sender of the packet has granted, and what the sender
/// of the packet has to send itself. Both count bytes on the wire since the connection began, modulo 2^32; the PSN in the BTH counts the
/// credit packets of its direction.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct XpCredit {
    /// [`XpCredit::ASKS`], and reserved bits.
    pub flags: u8,
    /// The queue pair that sent this, 24 bits: credit of another one does not count.
    pub giver: u32,
    /// Bytes that its peer may have sent since the beginning.
    pub granted: u32,
    /// Bytes that it has sent itself since the beginning, and those that wait.
    pub wanted: u32,
}

impl XpCredit {
    /// Bytes of the header.
    pub const LEN: usize = 12;

    /// The sender heard no answer and wants one: what its peer told it may be lost.
    pub const ASKS: u8 = 0x80;

    /// Reads the header.
    #[inline]
    pub fn parse(b: &[u8; Self::LEN]) -> XpCredit {
        XpCredit { flags: b[0], giver: be24(b, 1), granted: be32(b, 4), wanted: be32(b, 8) }
    }

    /// Writes the header.
    #[inline]
    pub fn emit(&self, b: &mut [u8; Self::LEN]) {
        b[0] = self.flags;
        put24(b, 1, self.giver);
        put32(b, 4, self.granted);
        put32(b, 8, self.wanted);
    }
}

impl fmt::Display for XpCredit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "credit of {:#08x}: {} granted, {} wanted", self.giver, self.granted, self.wanted)?;
        if self.flags & XpCredit::ASKS != 0 { f.write_str(", asks") } else { Ok(()) }
    }
}

/// What is in the place of [`XpEth`] where a packet carries no part of a message. One of the two: they share their room in
/// [`ExtHeaders`](crate::ExtHeaders), which every packet of every transport fills in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum XpReport {
    /// Of a feedback packet.
    Feedback(XpFeedback),
    /// Of a credit packet.
    Credit(XpCredit),
}

impl fmt::Display for XpReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            XpReport::Feedback(h) => h.fmt(f),
            XpReport::Credit(h) => h.fmt(f),
        }
    }
}
