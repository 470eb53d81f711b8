//! Changing a RoCEv2 frame that passes through: addresses, queue pair, PSN, RETH, IETH, AETH and hops, in place.
//!
//! A switch that copies one frame to several receivers reads it once ([`Passing::parse`]) and changes each copy as it leaves
//! ([`Passing::apply`]). The ICRC is **updated, not computed anew**: a CRC is linear, so the bytes that changed and their distance from the
//! end give its change, in a time that does not grow with the packet ([`softnic_crc::change_of`]). The checksums of IPv4 and, where it is not 0,
//! of UDP are updated too (RFC 1624). So a packet that was damaged stays damaged by exactly as much: its ICRC is as wrong as it was.
//!
//! What the ICRC does not cover ([`crate::icrc`]) stays as it is, but for the hop that is taken and the checksums.

mod fuzz;

use core::net::IpAddr;

use crate::bytes::{array, be16, be32, be64, put16};
use crate::ext::Reth;
use crate::opcode::HeaderSet;
use crate::{
    Aeth, Carrier, Error, Layout, MacAddr, NotRoce, Opcode, Psn, Qpn, RoceHeaders, aeth, bth, ethernet, icrc, ipv4,
    ipv6, opcode, udp,
};

#[doc(hidden)]
pub use fuzz::fuzz_rewrite;

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
        let Some(at) = self.icrc_at() else {
            return self.apply_head(rewrite, frame, [0; icrc::LEN]).map(|_| ());
        };
        let Some(found) = frame.get(at..).and_then(|b| b.first_chunk()) else {
            return Err(RewriteError::Truncated { need: self.layout.end, have: frame.len() });
        };
        let icrc = self.apply_head(rewrite, frame, *found)?;
        frame[at..at + icrc::LEN].copy_from_slice(&icrc);
        Ok(())
    }

    /// [`Passing::apply`] for a frame in pieces: changes `head`, which has at least its first [`Passing::head_len`] bytes, and says
    /// what becomes of its `icrc`, which lies at [`Passing::icrc_at`].
    #[inline]
    pub fn apply_head(
        &self,
        rewrite: &Rewrite,
        head: &mut [u8],
        icrc: [u8; icrc::LEN],
    ) -> Result<[u8; icrc::LEN], RewriteError> {
        let have = head.len();
        let Some(head) = head.get_mut(..self.head) else {
            return Err(RewriteError::Truncated { need: self.head, have });
        };
        self.check(rewrite, head)?;
        if let Some(mac) = rewrite.dst_mac {
            head[..6].copy_from_slice(&mac.0);
        }
        if let Some(mac) = rewrite.src_mac {
            head[6..12].copy_from_slice(&mac.0);
        }
        let icrc_at = self.layout.end - icrc::LEN;
        let mut edit = Edit { head, icrc_at, words: [(0, 0); MAX_WORDS], changed: 0, sum: 0 };
        self.network(rewrite, &mut edit);
        self.transport(rewrite, &mut edit);
        let change = softnic_crc::change_of(edit.words.get(..edit.changed).unwrap_or_default());
        let new = (u32::from_le_bytes(icrc) ^ change).to_le_bytes();
        let Edit { head, sum, .. } = edit;
        self.udp_checksum(head, sum, icrc, new);
        Ok(new)
    }

    /// Everything that may speak against a rewrite, before the first byte is written.
    #[inline]
    fn check(&self, rewrite: &Rewrite, head: &[u8]) -> Result<(), RewriteError> {
        let v4 = self.layout.carrier == Carrier::Ipv4;
        let other = |address: Option<IpAddr>| address.is_some_and(|a| a.is_ipv4() != v4);
        if other(rewrite.src_ip) || other(rewrite.dst_ip) {
            return Err(RewriteError::IpVersion);
        }
        if rewrite.take_hop && head[self.hops_at()] <= 1 {
            return Err(RewriteError::HopsSpent);
        }
        Ok(())
    }

    #[inline]
    fn hops_at(&self) -> usize {
        let v4 = self.layout.carrier == Carrier::Ipv4;
        self.layout.network + if v4 { ipv4::field::TTL } else { ipv6::field::HOP_LIMIT }
    }

    /// Addresses and hops, and the checksum of IPv4.
    #[inline]
    fn network(&self, rewrite: &Rewrite, edit: &mut Edit<'_>) {
        let network = self.layout.network;
        let v4 = self.layout.carrier == Carrier::Ipv4;
        let (src, dst) = if v4 { (ipv4::field::SRC, ipv4::field::DST) } else { (ipv6::field::SRC, ipv6::field::DST) };
        if let Some(address) = rewrite.src_ip {
            edit.address(network + src, address);
        }
        if let Some(address) = rewrite.dst_ip {
            edit.address(network + dst, address);
        }
        // UDP's checksum covers the addresses, but not the hops.
        let mut sum = edit.sum;
        if rewrite.take_hop {
            edit.head[self.hops_at()] -= 1;
            sum += u64::from(!0x0100u16); // what one less in the upper half of a word adds, whatever it was
        }
        if v4 && sum != 0 {
            let at = network + ipv4::field::CHECKSUM;
            let sum = sum + u64::from(!be16(edit.head, at));
            put16(edit.head, at, !ipv4::fold(sum));
        }
    }

    /// BTH and extension headers.
    #[inline]
    fn transport(&self, rewrite: &Rewrite, edit: &mut Edit<'_>) {
        // Queue pair and PSN are the lower 24 bits of their words.
        const UPPER: u32 = 0xff00_0000;
        if let Some(qpn) = rewrite.dest_qp {
            let at = self.layout.bth + bth::DEST_QP_WORD;
            edit.word(at, be32(edit.head, at) & UPPER | qpn.value());
        }
        if let Some(psn) = rewrite.psn {
            let at = self.layout.bth + bth::PSN_WORD;
            edit.word(at, be32(edit.head, at) & UPPER | psn.value());
        }
        if let (Some(reth), Some(at)) = (rewrite.reth, self.behind_bth(self.places.reth)) {
            let va = be64(edit.head, at).wrapping_add(reth.offset);
            edit.word(at, (va >> 32) as u32);
            edit.word(at + 4, va as u32);
            edit.word(at + 8, reth.rkey);
        }
        if let (Some(aeth), Some(at)) = (rewrite.aeth, self.behind_bth(self.places.aeth)) {
            let mut b = [0; aeth::LEN];
            aeth.emit(&mut b);
            edit.word(at, u32::from_be_bytes(b));
        }
        if let (Some(rkey), Some(at)) = (rewrite.ieth, self.behind_bth(self.places.ieth)) {
            edit.word(at, rkey);
        }
    }

    /// Updates the checksum of UDP, which covers the addresses, all behind them that changed by `sum`, and the ICRC.
    #[inline]
    fn udp_checksum(&self, head: &mut [u8], mut sum: u64, old: [u8; icrc::LEN], new: [u8; icrc::LEN]) {
        let at = self.layout.udp + udp::field::CHECKSUM;
        let found = be16(head, at);
        if found == 0 {
            return; // there is none
        }
        let icrc = ipv4::fold(u64::from(!u32::from_be_bytes(old)) + u64::from(u32::from_be_bytes(new)));
        // Words are counted from the UDP header: in a packet of an odd length the halves of the ICRC's are swapped.
        let odd = !(self.layout.end - self.layout.udp).is_multiple_of(2);
        sum += u64::from(if odd { icrc.swap_bytes() } else { icrc }) + u64::from(!found);
        let checksum = !ipv4::fold(sum);
        // 0 would say that there is none; 0xffff is the same number.
        put16(head, at, if checksum == 0 { 0xffff } else { checksum });
    }
}

/// Words of two IPv6 addresses, queue pair, PSN, RETH without its length, AETH, IETH.
const MAX_WORDS: usize = 15;

/// A head while it is changed. All fields are whole words of four bytes at multiples of four from the IP header.
struct Edit<'a> {
    head: &'a mut [u8],
    icrc_at: usize,
    /// What the words that changed differ by, as the CRC takes them, and their distance from the ICRC.
    words: [(u32, u32); MAX_WORDS],
    changed: usize,
    /// For a ones' complement sum: the new words and the complements of the old ones.
    sum: u64,
}

impl Edit<'_> {
    #[inline]
    fn word(&mut self, at: usize, new: u32) {
        // One load and one store: a field at a time, each byte would be checked by itself.
        let Some(word) = self.head.get_mut(at..).and_then(|head| head.first_chunk_mut()) else { return };
        let old = u32::from_be_bytes(*word);
        *word = new.to_be_bytes();
        self.sum += u64::from(!old) + u64::from(new);
        if let Some(place) = self.words.get_mut(self.changed) {
            *place = ((old ^ new).swap_bytes(), (self.icrc_at - at) as u32);
            self.changed += 1;
        }
    }

    #[inline]
    fn address(&mut self, at: usize, address: IpAddr) {
        match address {
            IpAddr::V4(a) => self.word(at, a.to_bits()),
            IpAddr::V6(a) => {
                let b = a.octets();
                for i in [0, 4, 8, 12] {
                    self.word(at + i, u32::from_be_bytes(array(&b, i)));
                }
            }
        }
    }
}
