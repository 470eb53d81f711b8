//! A RoCE packet with all its headers read.

use core::fmt;
use core::ops::Range;

use crate::{Error, ExtHeaders, bth, icrc, layout::Layout};

/// A RoCE packet: where its parts lie, the BTH, the extension headers, the payload.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RocePacket {
    /// Where the headers lie.
    pub layout: Layout,
    /// Base transport header.
    pub bth: bth::Repr,
    /// Extension headers.
    pub ext: ExtHeaders,
    /// Where the payload lies in the frame, without padding.
    pub payload: Range<usize>,
}

impl RocePacket {
    /// Reads all headers of an Ethernet frame. The ICRC is not looked at: ask [`icrc::verify`] with the layout.
    #[inline]
    pub fn parse(frame: &[u8]) -> Result<RocePacket, Error> {
        RocePacket::parse_at(frame, Layout::locate(frame)?)
    }

    /// Reads the headers of a frame whose payload and ICRC were elided; `payload` says where they would be.
    #[inline]
    pub fn parse_elided(frame: &[u8], layout: Layout) -> Result<RocePacket, Error> {
        layout.check_elided()?;
        let body = frame.get(layout.bth..).unwrap_or_default();
        RocePacket::from_body(layout, body, layout.end - icrc::LEN - layout.bth)
    }

    /// Reads all headers of a frame whose BTH was found before.
    #[inline(always)]
    pub fn parse_at(frame: &[u8], layout: Layout) -> Result<RocePacket, Error> {
        layout.check(frame.len())?;
        let body = &frame[layout.bth..layout.end - icrc::LEN];
        RocePacket::from_body(layout, body, body.len())
    }

    /// `body` is what is there of the `body_len` bytes from the BTH to the ICRC.
    #[inline(always)] // a layout handed over in memory is stored in pieces and loaded as vectors, which waits
    fn from_body(layout: Layout, body: &[u8], body_len: usize) -> Result<RocePacket, Error> {
        let bth = bth::Repr::parse(&bth::Packet::new_checked(body)?)?;
        let behind = body.get(bth::LEN..).unwrap_or_default();
        ExtHeaders::check_len(bth.opcode, behind)?;
        let start = bth::LEN + bth.opcode.headers_len();
        let Some(len) = body_len.checked_sub(start + usize::from(bth.pad)) else {
            return Err(Error::Malformed { what: "BTH", why: "more padding than payload" });
        };
        let at = layout.bth + start;
        let payload = at..at + len;
        // With nothing left to fail, the 128 bytes of `ext` are written where they end up and not moved.
        ExtHeaders::parse_with(bth.opcode, behind, move |ext| Ok(RocePacket { layout, bth, ext, payload }))
    }
}

/// `RC_RDMA_WRITE_ONLY qp 0x000011 psn 7 [A] len 64 va 0x7f00 rkey 0x00000123 dma len 64`.
impl fmt::Display for RocePacket {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} len {}", self.bth, self.payload.len())?;
        if !self.ext.set().is_empty() {
            write!(f, " {}", self.ext)?;
        }
        Ok(())
    }
}
