//! The extension headers behind the BTH, each fixed in size, and all of a packet's together (IBA 9.3).
//!
//! A fixed header is read and written whole, from and into an array of its size: that cannot fail, so these have no view.

use core::fmt;

use crate::aeth::Aeth;
use crate::bytes::{be24, be32, be64, put24, put32, put64};
use crate::opcode::{HeaderSet, Shape};
use crate::sr::SrEth;
use crate::xp::{XpCredit, XpEth, XpFeedback, XpReport};
use crate::{Error, Opcode, Qpn};

/// RDMA extended transport header: where a WRITE or READ goes (IBA 9.3.3).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Reth {
    /// Virtual address in the responder's memory.
    pub va: u64,
    /// The responder's key for that memory.
    pub rkey: u32,
    /// Length of the whole message.
    pub len: u32,
}

impl Reth {
    /// Bytes of the header.
    pub const LEN: usize = 16;

    /// Reads the header.
    #[inline]
    pub fn parse(b: &[u8; Self::LEN]) -> Reth {
        Reth { va: be64(b, 0), rkey: be32(b, 8), len: be32(b, 12) }
    }

    /// Writes the header.
    #[inline]
    pub fn emit(&self, b: &mut [u8; Self::LEN]) {
        put64(b, 0, self.va);
        put32(b, 8, self.rkey);
        put32(b, 12, self.len);
    }
}

/// Atomic extended transport header (IBA 9.3.4).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct AtomicEth {
    /// Virtual address of the 8 bytes, a multiple of 8.
    pub va: u64,
    /// The responder's key for that memory.
    pub rkey: u32,
    /// What a compare-and-swap stores, or what a fetch-and-add adds.
    pub swap_add: u64,
    /// What a compare-and-swap compares with; 0 in a fetch-and-add.
    pub compare: u64,
}

impl AtomicEth {
    /// Bytes of the header.
    pub const LEN: usize = 28;

    /// Reads the header.
    #[inline]
    pub fn parse(b: &[u8; Self::LEN]) -> AtomicEth {
        AtomicEth { va: be64(b, 0), rkey: be32(b, 8), swap_add: be64(b, 12), compare: be64(b, 20) }
    }

    /// Writes the header.
    #[inline]
    pub fn emit(&self, b: &mut [u8; Self::LEN]) {
        put64(b, 0, self.va);
        put32(b, 8, self.rkey);
        put64(b, 12, self.swap_add);
        put64(b, 20, self.compare);
    }
}

/// Datagram extended transport header (IBA 9.3.2).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Deth {
    /// Queue key: must equal the receiving QP's.
    pub qkey: u32,
    /// The sender's queue pair.
    pub src_qp: Qpn,
}

impl Deth {
    /// Bytes of the header.
    pub const LEN: usize = 8;

    /// Reads the header.
    #[inline]
    pub fn parse(b: &[u8; Self::LEN]) -> Deth {
        Deth { qkey: be32(b, 0), src_qp: Qpn::new(be24(b, 5)) }
    }

    /// Writes the header.
    #[inline]
    pub fn emit(&self, b: &mut [u8; Self::LEN]) {
        put32(b, 0, self.qkey);
        b[4] = 0;
        put24(b, 5, self.src_qp.value());
    }
}

/// XRC extended transport header: the receiving shared receive queue (IBA annex A14.3).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct XrcEth {
    /// The XRC SRQ number, 24 bits.
    pub srq: u32,
}

impl XrcEth {
    /// Bytes of the header.
    pub const LEN: usize = 4;

    /// Reads the header.
    #[inline]
    pub fn parse(b: &[u8; Self::LEN]) -> XrcEth {
        XrcEth { srq: be24(b, 1) }
    }

    /// Writes the header.
    #[inline]
    pub fn emit(&self, b: &mut [u8; Self::LEN]) {
        b[0] = 0;
        put24(b, 1, self.srq);
    }
}

/// FLUSH extended transport header (IBA annex A19).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Feth {
    /// Placement type, 4 bits: 1 global visibility, 2 persistence.
    pub placement: u8,
    /// Selectivity level, 2 bits: 0 the range of the RETH, 1 the whole memory region.
    pub selectivity: u8,
}

impl Feth {
    /// Bytes of the header.
    pub const LEN: usize = 4;

    /// Reads the header.
    #[inline]
    pub fn parse(b: &[u8; Self::LEN]) -> Feth {
        Feth { placement: b[3] & 0x0f, selectivity: (b[3] >> 4) & 3 }
    }

    /// Writes the header.
    #[inline]
    pub fn emit(&self, b: &mut [u8; Self::LEN]) {
        *b = [0, 0, 0, (self.selectivity & 3) << 4 | (self.placement & 0x0f)];
    }
}

/// All extension headers of a packet, in the order in which they stand on the wire.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ExtHeaders {
    /// Selective Repeat header.
    pub sr: Option<SrEth>,
    /// XP header.
    pub xp: Option<XpEth>,
    /// The body of XP feedback, or of XP credit.
    pub xp_report: Option<XpReport>,
    /// Datagram header, of UD.
    pub deth: Option<Deth>,
    /// XRC header, of XRC requests.
    pub xrceth: Option<XrcEth>,
    /// FLUSH header.
    pub feth: Option<Feth>,
    /// RDMA header.
    pub reth: Option<Reth>,
    /// Microseconds that are left to an XP READ.
    pub xp_time: Option<u32>,
    /// Atomic request.
    pub atomic: Option<AtomicEth>,
    /// Acknowledgement.
    pub aeth: Option<Aeth>,
    /// What an atomic found: the value before it.
    pub atomic_ack: Option<u64>,
    /// Immediate data, as a big-endian number.
    pub imm: Option<u32>,
    /// The key that a SEND with invalidate invalidates.
    pub ieth: Option<u32>,
}

/// Takes headers off the front of a slice; behind one that does not fit nothing fits.
struct Cursor<'a>(&'a [u8]);

impl<'a> Cursor<'a> {
    #[inline]
    fn take<const N: usize>(&mut self) -> Option<&'a [u8; N]> {
        match core::mem::take(&mut self.0).split_first_chunk::<N>() {
            Some((head, rest)) => {
                self.0 = rest;
                Some(head)
            }
            None => None,
        }
    }
}

/// Hands out room for headers at the front of a slice.
struct Slots<'a> {
    rest: &'a mut [u8],
    used: usize,
    have: usize,
}

impl<'a> Slots<'a> {
    #[inline]
    fn take<const N: usize>(&mut self) -> Result<&'a mut [u8; N], Error> {
        let need = self.used + N;
        let Some((head, rest)) = core::mem::take(&mut self.rest).split_first_chunk_mut::<N>() else {
            return Err(Error::Truncated { what: "extension headers", need, have: self.have });
        };
        self.rest = rest;
        self.used = need;
        Ok(head)
    }
}

impl ExtHeaders {
    /// Reads the headers that `opcode` has from the bytes behind the BTH.
    #[inline(always)] // the result is 128 bytes: inlined it is written where it ends up
    pub fn parse(opcode: Opcode, bytes: &[u8]) -> Result<ExtHeaders, Error> {
        ExtHeaders::check_len(opcode, bytes)?;
        Ok(ExtHeaders::parse_available(opcode, bytes))
    }

    /// `Ok` when all headers that `opcode` has are there.
    #[inline]
    pub(crate) fn check_len(opcode: Opcode, bytes: &[u8]) -> Result<(), Error> {
        Error::check_len("extension headers", opcode.headers_len(), bytes.len())
    }

    /// Reads those headers that are there whole: what a tool shows of a packet that was cut off.
    #[inline(always)]
    pub fn parse_available(opcode: Opcode, bytes: &[u8]) -> ExtHeaders {
        ExtHeaders::parse_with(opcode, bytes, |ext| ext)
    }

    /// Reads those headers that are there whole and makes of them what the caller wants, in each branch anew: where the
    /// branches met before, the headers were stored in pieces, loaded as vectors and stored again, and a vector load
    /// waits until the pieces left the core.
    #[inline(always)]
    pub(crate) fn parse_with<R>(opcode: Opcode, bytes: &[u8], make: impl FnOnce(ExtHeaders) -> R) -> R {
        let mut c = Cursor(bytes);
        match opcode.shape() {
            Shape::None => make(ExtHeaders::default()),
            Shape::Reth => make(ExtHeaders { reth: c.take().map(Reth::parse), ..ExtHeaders::default() }),
            Shape::RethImm => make(ExtHeaders {
                reth: c.take().map(Reth::parse),
                imm: c.take().map(|b| u32::from_be_bytes(*b)),
                ..ExtHeaders::default()
            }),
            Shape::Aeth => make(ExtHeaders { aeth: c.take().map(Aeth::parse), ..ExtHeaders::default() }),
            Shape::Xp => make(ExtHeaders { xp: c.take().map(XpEth::parse), ..ExtHeaders::default() }),
            Shape::XpReth => make(ExtHeaders {
                xp: c.take().map(XpEth::parse),
                reth: c.take().map(Reth::parse),
                ..ExtHeaders::default()
            }),
            Shape::Other => make(ExtHeaders::parse_any(opcode.headers(), c)),
        }
    }

    /// Reads the headers of any set.
    fn parse_any(h: HeaderSet, mut c: Cursor<'_>) -> ExtHeaders {
        let mut ext = ExtHeaders::default();
        if h.contains(HeaderSet::SR) {
            ext.sr = c.take().map(SrEth::parse);
        }
        if h.contains(HeaderSet::XP) {
            ext.xp = c.take().map(XpEth::parse);
        }
        if h.contains(HeaderSet::XP_FEEDBACK) {
            ext.xp_report = c.take().map(|b| XpReport::Feedback(XpFeedback::parse(b)));
        }
        if h.contains(HeaderSet::XP_CREDIT) {
            ext.xp_report = c.take().map(|b| XpReport::Credit(XpCredit::parse(b)));
        }
        if h.contains(HeaderSet::DETH) {
            ext.deth = c.take().map(Deth::parse);
        }
        if h.contains(HeaderSet::XRCETH) {
            ext.xrceth = c.take().map(XrcEth::parse);
        }
        if h.contains(HeaderSet::FETH) {
            ext.feth = c.take().map(Feth::parse);
        }
        if h.contains(HeaderSet::RETH) {
            ext.reth = c.take().map(Reth::parse);
        }
        if h.contains(HeaderSet::XP_TIME) {
            ext.xp_time = c.take().map(|b| u32::from_be_bytes(*b));
        }
        if h.contains(HeaderSet::ATOMIC) {
            ext.atomic = c.take().map(AtomicEth::parse);
        }
        if h.contains(HeaderSet::AETH) {
            ext.aeth = c.take().map(Aeth::parse);
        }
        if h.contains(HeaderSet::ATOMIC_ACK) {
            ext.atomic_ack = c.take().map(|b| u64::from_be_bytes(*b));
        }
        if h.contains(HeaderSet::IMM) {
            ext.imm = c.take().map(|b| u32::from_be_bytes(*b));
        }
        if h.contains(HeaderSet::IETH) {
            ext.ieth = c.take().map(|b| u32::from_be_bytes(*b));
        }
        ext
    }

    /// The body of XP feedback.
    pub fn xp_feedback(&self) -> Option<&XpFeedback> {
        match &self.xp_report {
            Some(XpReport::Feedback(feedback)) => Some(feedback),
            _ => None,
        }
    }

    /// The body of XP credit.
    pub fn xp_credit(&self) -> Option<&XpCredit> {
        match &self.xp_report {
            Some(XpReport::Credit(credit)) => Some(credit),
            _ => None,
        }
    }

    /// Which headers are there.
    pub fn set(&self) -> HeaderSet {
        [
            (self.sr.is_some(), HeaderSet::SR),
            (self.xp.is_some(), HeaderSet::XP),
            (self.xp_feedback().is_some(), HeaderSet::XP_FEEDBACK),
            (self.xp_credit().is_some(), HeaderSet::XP_CREDIT),
            (self.xp_time.is_some(), HeaderSet::XP_TIME),
            (self.deth.is_some(), HeaderSet::DETH),
            (self.xrceth.is_some(), HeaderSet::XRCETH),
            (self.feth.is_some(), HeaderSet::FETH),
            (self.reth.is_some(), HeaderSet::RETH),
            (self.atomic.is_some(), HeaderSet::ATOMIC),
            (self.aeth.is_some(), HeaderSet::AETH),
            (self.atomic_ack.is_some(), HeaderSet::ATOMIC_ACK),
            (self.imm.is_some(), HeaderSet::IMM),
            (self.ieth.is_some(), HeaderSet::IETH),
        ]
        .iter()
        .fold(HeaderSet::NONE, |set, &(there, h)| if there { set.with(h) } else { set })
    }

    /// Writes the headers to the front of `bytes` and says how many bytes they took.
    #[inline(always)] // a caller that knows which headers it has pays for those alone
    pub fn emit(&self, bytes: &mut [u8]) -> Result<usize, Error> {
        let mut slots = Slots { have: bytes.len(), rest: bytes, used: 0 };
        if let Some(h) = &self.sr {
            h.emit(slots.take()?);
        }
        if let Some(h) = &self.xp {
            h.emit(slots.take()?);
        }
        match &self.xp_report {
            None => {}
            Some(XpReport::Feedback(h)) => h.emit(slots.take()?),
            Some(XpReport::Credit(h)) => h.emit(slots.take()?),
        }
        if let Some(h) = &self.deth {
            h.emit(slots.take()?);
        }
        if let Some(h) = &self.xrceth {
            h.emit(slots.take()?);
        }
        if let Some(h) = &self.feth {
            h.emit(slots.take()?);
        }
        if let Some(h) = &self.reth {
            h.emit(slots.take()?);
        }
        if let Some(v) = self.xp_time {
            *slots.take()? = v.to_be_bytes();
        }
        if let Some(h) = &self.atomic {
            h.emit(slots.take()?);
        }
        if let Some(h) = &self.aeth {
            h.emit(slots.take()?);
        }
        if let Some(v) = self.atomic_ack {
            *slots.take()? = v.to_be_bytes();
        }
        if let Some(v) = self.imm {
            *slots.take()? = v.to_be_bytes();
        }
        if let Some(v) = self.ieth {
            *slots.take()? = v.to_be_bytes();
        }
        Ok(slots.used)
    }
}

/// Each header in a few words, separated by commas.
impl fmt::Display for ExtHeaders {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut sep = "";
        let mut part = |f: &mut fmt::Formatter<'_>, args: fmt::Arguments<'_>| {
            let r = write!(f, "{sep}{args}");
            sep = ", ";
            r
        };
        if let Some(h) = self.sr {
            part(f, format_args!("{h}"))?;
        }
        if let Some(h) = self.xp {
            part(f, format_args!("{h}"))?;
        }
        if let Some(h) = self.xp_report {
            part(f, format_args!("{h}"))?;
        }
        if let Some(h) = self.deth {
            part(f, format_args!("qkey {:#010x} src qp {}", h.qkey, h.src_qp))?;
        }
        if let Some(h) = self.xrceth {
            part(f, format_args!("xrc srq {:#08x}", h.srq))?;
        }
        if let Some(h) = self.feth {
            part(f, format_args!("flush placement {} selectivity {}", h.placement, h.selectivity))?;
        }
        if let Some(h) = self.reth {
            part(f, format_args!("va {:#x} rkey {:#010x} dma len {}", h.va, h.rkey, h.len))?;
        }
        if let Some(v) = self.xp_time {
            part(f, format_args!("{v} us left"))?;
        }
        if let Some(h) = self.atomic {
            part(
                f,
                format_args!(
                    "va {:#x} rkey {:#010x} swap/add {:#x} compare {:#x}",
                    h.va, h.rkey, h.swap_add, h.compare
                ),
            )?;
        }
        if let Some(h) = self.aeth {
            part(f, format_args!("{h}"))?;
        }
        if let Some(v) = self.atomic_ack {
            part(f, format_args!("original {v:#x}"))?;
        }
        if let Some(v) = self.imm {
            part(f, format_args!("imm {v:#010x}"))?;
        }
        if let Some(v) = self.ieth {
            part(f, format_args!("invalidate rkey {v:#010x}"))?;
        }
        Ok(())
    }
}
