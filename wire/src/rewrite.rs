//! Changing a RoCEv2 frame that passes through: addresses, queue pair, PSN, RETH, IETH, AETH and hops, in place.
//!
//! A switch that copies one frame to several receivers reads it once ([`Passing::parse`], [`Passing::stencil`]), works out what differs in
//! each copy ([`Passing::patch`]) and puts that into the copy as it leaves ([`Passing::put`]). The ICRC is **updated, not computed anew**: a CRC is linear, so the bytes that changed and their distance from the
//! end give its change, in a time that does not grow with the packet ([`softnic_crc::change_of`]). The checksums of IPv4 and, where it is not 0,
//! of UDP are updated too (RFC 1624). So a packet that was damaged stays damaged by exactly as much: its ICRC is as wrong as it was.
//!
//! What the ICRC does not cover ([`crate::icrc`]) stays as it is, but for the hop that is taken and the checksums.

mod fuzz;
mod patch;

use core::net::IpAddr;

use crate::ext::Reth;
use crate::opcode::HeaderSet;
use crate::{
    Aeth, Carrier, Error, Layout, MacAddr, NotRoce, Opcode, Psn, Qpn, RoceHeaders, bth, ethernet, icrc, ipv4, ipv6,
    opcode,
};

#[doc(hidden)]
pub use fuzz::fuzz_rewrite;
pub use patch::{Patch, Stencil};

/// What is to be changed in a frame; `None` leaves a field as it is. What concerns a header that the packet does not have is passed over,
/// so one `Rewrite` serves all packets of a message: only the first of a WRITE has a RETH.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Rewrite {
    /// Destination MAC address.
    pub dst_mac: Option<MacAddr>,
    /// Source MAC address.
    pub src_mac: Option<MacAddr>,
    /// Source address, of the packet's IP version.
    pub src_ip: Option<IpAddr>,
    /// Destination address, of the packet's IP version.
    pub dst_ip: Option<IpAddr>,
    /// Takes one from the hops that are left, as a router does.
    pub take_hop: bool,
    /// Destination queue pair.
    pub dest_qp: Option<Qpn>,
    /// Packet sequence number.
    pub psn: Option<Psn>,
    /// The memory that a WRITE or READ names.
    pub reth: Option<RethRewrite>,
    /// The key that a SEND with invalidate invalidates.
    pub ieth: Option<u32>,
    /// What an acknowledgement says, syndrome and MSN.
    pub aeth: Option<Aeth>,
}

/// Other memory for a RETH; the length stays.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RethRewrite {
    /// Added to the virtual address, modulo 2^64. To set an address: it, less the one that [`Passing::reth`] says.
    pub offset: u64,
    /// The key in place of the packet's.
    pub rkey: u32,
}

/// Why a frame was not changed. It is as it was.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum RewriteError {
    /// The frame is shorter than the one that was parsed.
    #[error("the frame takes {need} bytes and {have} are there")]
    Truncated {
        /// Bytes of the frame that was parsed.
        need: usize,
        /// Bytes that were there.
        have: usize,
    },
    /// A new address is not of the packet's IP version.
    #[error("an address of another IP version than the packet's")]
    IpVersion,
    /// The packet has no hop left for this one: it must not go on.
    #[error("no hops left")]
    HopsSpent,
}

/// Where the fields of a RoCEv2 frame lie that passes through: read once, for all copies of the frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Passing {
    layout: Layout,
    opcode: Opcode,
    places: Places,
    /// One past the last extension header: nothing behind it is touched but the ICRC.
    head: usize,
    /// Whether the frame ends before its ICRC.
    elided: bool,
}

/// Offsets behind the BTH of those headers that may be changed, where an opcode has them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Places {
    reth: Option<u8>,
    aeth: Option<u8>,
    ieth: Option<u8>,
}

impl Places {
    /// In the order of [`crate::ExtHeaders`].
    const fn of(set: HeaderSet) -> Places {
        use HeaderSet as H;
        let order = [
            H::SR,
            H::XP,
            H::XP_FEEDBACK,
            H::XP_CREDIT,
            H::DETH,
            H::XRCETH,
            H::FETH,
            H::RETH,
            H::XP_TIME,
            H::ATOMIC,
            H::AETH,
            H::ATOMIC_ACK,
            H::IMM,
            H::IETH,
        ];
        let mut places = Places { reth: None, aeth: None, ieth: None };
        let (mut at, mut i) = (0, 0);
        while i < order.len() {
            if set.contains(order[i]) {
                match order[i] {
                    H::RETH => places.reth = Some(at),
                    H::AETH => places.aeth = Some(at),
                    H::IETH => places.ieth = Some(at),
                    _ => {}
                }
                at += order[i].len() as u8;
            }
            i += 1;
        }
        places
    }
}

static PLACES: [Places; 256] = {
    let mut t = [Places::of(HeaderSet::NONE); 256];
    let mut op = 0;
    while op < t.len() {
        t[op] = Places::of(opcode::headers(op as u8));
        op += 1;
    }
    t
};

impl Passing {
    /// Reads an Ethernet frame with up to two VLAN tags. An error where it is not a whole RoCEv2 packet whose lengths agree:
    /// cut off, a fragment, another protocol, RoCEv1, too short for its headers. The ICRC and the checksums are not looked at.
    #[inline]
    pub fn parse(frame: &[u8]) -> Result<Passing, Error> {
        Passing::parse_at(frame, &Layout::locate(frame)?)
    }

    /// [`Passing::parse`] of a frame whose BTH was found before.
    #[inline]
    pub fn parse_at(frame: &[u8], layout: &Layout) -> Result<Passing, Error> {
        let found = RoceHeaders::read(frame, layout, |h| (h.bth.opcode, h.payload.start))?;
        Passing::new(layout, found, false)
    }

    /// [`Passing::parse`] of a frame whose payload and ICRC were elided by the simulator: only its headers are there and changed.
    pub fn parse_elided(frame: &[u8]) -> Result<Passing, Error> {
        let layout = Layout::locate(frame)?;
        let found = RoceHeaders::read_elided(frame, &layout, |h| (h.bth.opcode, h.payload.start))?;
        Passing::new(&layout, found, true)
    }

    #[inline]
    fn new(layout: &Layout, (opcode, head): (Opcode, usize), elided: bool) -> Result<Passing, Error> {
        if layout.carrier == Carrier::RoceV1 {
            return Err(Error::NotRoce(NotRoce::EtherType(ethernet::ethertype::ROCE_V1)));
        }
        Ok(Passing { layout: *layout, opcode, places: PLACES[usize::from(opcode.0)], head, elided })
    }

    /// Where the packet's parts lie.
    #[inline]
    pub fn layout(&self) -> &Layout {
        &self.layout
    }

    /// The operation.
    #[inline]
    pub fn opcode(&self) -> Opcode {
        self.opcode
    }

    /// Bytes from the Ethernet header to the last extension header: where the payload begins.
    #[inline]
    pub fn head_len(&self) -> usize {
        self.head
    }

    /// Offset of the ICRC; `None` where it was elided.
    #[inline]
    pub fn icrc_at(&self) -> Option<usize> {
        (!self.elided).then_some(self.layout.end - icrc::LEN)
    }

    /// The BTH of `frame`; `None` where that is not there.
    #[inline]
    pub fn bth<'a>(&self, frame: &'a [u8]) -> Option<bth::Packet<&'a [u8]>> {
        bth::Packet::new_checked(frame.get(self.layout.bth..)?).ok()
    }

    /// The RETH of `frame`, if its opcode has one.
    #[inline]
    pub fn reth(&self, frame: &[u8]) -> Option<Reth> {
        frame.get(self.behind_bth(self.places.reth)?..)?.first_chunk().map(Reth::parse)
    }

    /// The key of the IETH of `frame`, if its opcode has one.
    #[inline]
    pub fn ieth(&self, frame: &[u8]) -> Option<u32> {
        frame.get(self.behind_bth(self.places.ieth)?..)?.first_chunk().map(|b| u32::from_be_bytes(*b))
    }

    /// The AETH of `frame`, if its opcode has one.
    #[inline]
    pub fn aeth(&self, frame: &[u8]) -> Option<Aeth> {
        frame.get(self.behind_bth(self.places.aeth)?..)?.first_chunk().map(Aeth::parse)
    }

    #[inline]
    fn behind_bth(&self, place: Option<u8>) -> Option<usize> {
        place.map(|at| self.layout.bth + bth::LEN + usize::from(at))
    }

    /// Changes `frame`, which is the one that was parsed or a copy of it: its headers and the four bytes of the ICRC, nothing else.
    /// Nothing at all when there is an error.
    #[inline]
    pub fn apply(&self, rewrite: &Rewrite, frame: &mut [u8]) -> Result<(), RewriteError> {
        let (mut stencil, mut patch) = (Stencil::default(), Patch::default());
        self.stencil(rewrite, frame, &mut stencil)?;
        self.patch(&stencil, rewrite, &mut patch)?;
        self.put(&stencil, &patch, frame)?;
        if let Some(at) = self.icrc_at() {
            frame[at..at + icrc::LEN].copy_from_slice(&patch.icrc());
        }
        Ok(())
    }

    #[inline]
    fn hops_at(&self) -> usize {
        let v4 = self.layout.carrier == Carrier::Ipv4;
        self.layout.network + if v4 { ipv4::field::TTL } else { ipv6::field::HOP_LIMIT }
    }
}
