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
        match Layout::locate_plain(frame) {
            // Not joined with the other branch: here all offsets are constants, which saves a quarter of the instructions.
            Some(layout) => RocePacket::parse_at(frame, layout),
            None => RocePacket::parse_general(frame),
        }
    }

    /// Reads all headers of an Ethernet frame of any kind.
    #[inline(never)]
    fn parse_general(frame: &[u8]) -> Result<RocePacket, Error> {
        RocePacket::parse_at(frame, Layout::locate_general(frame)?)
    }

    /// Reads all headers of a frame whose BTH was found before.
    #[inline(always)]
    pub fn parse_at(frame: &[u8], layout: Layout) -> Result<RocePacket, Error> {
        RoceHeaders::read(frame, &layout, |h| RocePacket {
            layout,
            bth: h.bth,
            ext: *h.ext,
            payload: h.payload.clone(),
        })
    }
}

/// The headers of a packet on their way through: [`RocePacket`] for those who read a packet and are done with it.
#[derive(Debug)]
pub struct RoceHeaders<'a> {
    /// Base transport header.
    pub bth: bth::Repr,
    /// Extension headers.
    pub ext: &'a ExtHeaders,
    /// Where the payload lies in the frame, without padding.
    pub payload: Range<usize>,
}

impl RoceHeaders<'_> {
    /// Reads all headers of a frame whose BTH was found before, for `use_them`. They are used where they were read: a result of that
    /// size would be moved about.
    #[inline(always)]
    pub fn read<R>(frame: &[u8], layout: &Layout, use_them: impl FnOnce(&RoceHeaders<'_>) -> R) -> Result<R, Error> {
        layout.check(frame.len())?;
        let body = &frame[layout.bth..layout.end - icrc::LEN];
        RoceHeaders::read_body(layout, body, body.len(), use_them)
    }

    /// The same of a frame whose payload and ICRC were elided; `payload` says where they would be.
    #[inline]
    pub fn read_elided<R>(
        frame: &[u8],
        layout: &Layout,
        use_them: impl FnOnce(&RoceHeaders<'_>) -> R,
    ) -> Result<R, Error> {
        layout.check_elided()?;
        let body = frame.get(layout.bth..).unwrap_or_default();
        RoceHeaders::read_body(layout, body, layout.end - icrc::LEN - layout.bth, use_them)
    }

    /// `body` is what is there of the `body_len` bytes from the BTH to the ICRC.
    #[inline(always)] // a layout handed over in memory is stored in pieces and loaded as vectors, which waits
    fn read_body<R>(
        layout: &Layout,
        body: &[u8],
        body_len: usize,
        use_them: impl FnOnce(&RoceHeaders<'_>) -> R,
    ) -> Result<R, Error> {
        let bth = bth::Repr::parse(&bth::Packet::new_checked(body)?)?;
        let behind = body.get(bth::LEN..).unwrap_or_default();
        ExtHeaders::check_len(bth.opcode, behind)?;
        let start = bth::LEN + bth.opcode.headers_len();
        let Some(len) = body_len.checked_sub(start + usize::from(bth.pad)) else {
            return Err(Error::Malformed { what: "BTH", why: "more padding than payload" });
        };
        let at = layout.bth + start;
        let payload = at..at + len;
        // With nothing left to fail, the 128 bytes of `ext` are written where they are used and not moved.
        ExtHeaders::parse_with(bth.opcode, behind, move |ext| Ok(use_them(&RoceHeaders { bth, ext: &ext, payload })))
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::ACK_FRAME;
    use proptest::prelude::*;

    /// The shortcut for plain frames finds what the general way finds, or nothing.
    fn both_ways_agree(frame: &[u8]) {
        let general = Layout::locate_general(frame);
        if let Some(plain) = Layout::locate_plain(frame) {
            assert_eq!(Ok(plain), general);
        }
        assert_eq!(Layout::locate(frame), general);
        assert_eq!(RocePacket::parse(frame), RocePacket::parse_general(frame));
    }

    #[test]
    fn a_plain_frame_takes_the_shortcut() {
        assert!(Layout::locate_plain(&ACK_FRAME).is_some());
        for len in 0..=ACK_FRAME.len() {
            both_ways_agree(&ACK_FRAME[..len]);
        }
        for bit in 0..ACK_FRAME.len() * 8 {
            let mut frame = ACK_FRAME;
            frame[bit / 8] ^= 1 << (bit % 8);
            both_ways_agree(&frame);
        }
    }

    proptest! {
        #[test]
        fn both_ways_agree_on_any_bytes(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            both_ways_agree(&bytes);
        }

        /// Near a plain frame: some bytes changed, both lengths set to the same, then cut off or extended.
        #[test]
        fn both_ways_agree_near_a_plain_frame(
            changes in prop::collection::vec((0..ACK_FRAME.len(), any::<u8>()), 0..4), opcode: u8, flags: u8,
            len in 0u16..120, frame_len in 0usize..120,
        ) {
            let mut frame = [0x5a; 120];
            frame[..ACK_FRAME.len()].copy_from_slice(&ACK_FRAME);
            frame[16..18].copy_from_slice(&(len + 20).to_be_bytes());
            frame[38..40].copy_from_slice(&len.to_be_bytes());
            frame[42..44].copy_from_slice(&[opcode, flags]);
            for (at, v) in changes {
                frame[at] = v;
            }
            both_ways_agree(&frame[..frame_len]);
        }
    }
}
