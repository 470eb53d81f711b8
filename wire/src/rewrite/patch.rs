//! Rewrites of one frame, worked out: the bytes of its head that differ in a copy, and the copy's ICRC.
//!
//! What all copies of a frame have in common, its [`Stencil`], is read once. Each copy has a [`Patch`], the new words in the order of the
//! stencil; what is left to do where the copy leaves is a store for each word.

use core::net::IpAddr;

use softnic_crc::Distance;

use super::{Passing, Rewrite, RewriteError};
use crate::bytes::array;
use crate::{Aeth, Carrier, Psn, Qpn, aeth, bth, icrc, ipv4, ipv6, udp};

/// Words of two IPv6 addresses, queue pair, PSN, RETH without its length, AETH, IETH.
const MAX_WORDS: usize = 15;

/// A word whose first byte is the lowest. The CRC takes words so, and a ones' complement sum is the same in both byte orders, but for the order
/// of its own bytes (RFC 1071, 2.B): nothing has to be swapped to be added up.
type Word = u32;

/// What of a frame a rewrite may change: where it lies and what it is. [`Passing::stencil`] makes it.
#[derive(Debug, Clone, Copy, Default)]
pub struct Stencil {
    macs: [u8; 12],
    hops: u8,
    ip_checksum: u16,
    udp_checksum: u16,
    icrc: Word,
    has: Has,
    /// Of these words, the first ones that are addresses.
    addresses: usize,
    count: usize,
    old: [Word; MAX_WORDS],
    places: [u16; MAX_WORDS],
    /// From the ICRC.
    distances: [Distance; MAX_WORDS],
}

/// The fields of a stencil, in the order of their words.
#[derive(Debug, Clone, Copy, Default)]
struct Has {
    src_ip: bool,
    dst_ip: bool,
    dest_qp: bool,
    psn: bool,
    reth: bool,
    aeth: bool,
    ieth: bool,
}

/// What becomes of one frame: [`Passing::patch`] makes it and [`Passing::put`] puts it into the frame or a copy of it.
#[derive(Debug, Clone, Copy, Default)]
pub struct Patch {
    macs: [u8; 12],
    hops: u8,
    ip_checksum: u16,
    udp_checksum: u16,
    icrc: Word,
    /// As many as the stencil has.
    new: [Word; MAX_WORDS],
}

/// The words of a patch while it is made.
struct Words<'a> {
    stencil: &'a Stencil,
    new: &'a mut [Word; MAX_WORDS],
    made: usize,
}

impl Words<'_> {
    /// The next word, changed.
    #[inline(always)]
    fn change(&mut self, to: impl FnOnce(Word) -> Word) {
        if self.made < MAX_WORDS {
            self.new[self.made] = to(self.stencil.old[self.made]);
            self.made += 1;
        }
    }

    /// The next address; whether it is of the packet's IP version.
    #[inline(always)]
    fn address(&mut self, address: Option<IpAddr>, v4: bool) -> bool {
        match address {
            Some(IpAddr::V4(a)) if v4 => self.change(|_| Word::from_le_bytes(a.octets())),
            Some(IpAddr::V6(a)) if !v4 => {
                let b = a.octets();
                [0, 4, 8, 12].into_iter().for_each(|at| self.change(|_| Word::from_le_bytes(array(&b, at))));
            }
            None => (0..if v4 { 1 } else { 4 }).for_each(|_| self.change(|old| old)),
            _ => return false,
        }
        true
    }

    /// The lower 24 bits of the next word.
    #[inline(always)]
    fn lower(&mut self, number: Option<u32>) {
        const LOWER: u32 = 0x00ff_ffff;
        self.change(|old| number.map_or(old, |number| old & !LOWER.swap_bytes() | number.swap_bytes()));
    }
}

impl Stencil {
    #[inline]
    fn add(&mut self, head: &[u8], at: usize, words: usize, icrc_at: usize) {
        for at in (at..).step_by(4).take(words) {
            if self.count < MAX_WORDS {
                self.old[self.count] = Word::from_le_bytes(array(head, at));
                self.places[self.count] = at as u16;
                self.distances[self.count] = Distance::new(icrc_at - at);
                self.count += 1;
            }
        }
    }
}

impl Patch {
    /// The new ICRC, for [`Passing::icrc_at`].
    #[inline]
    pub fn icrc(&self) -> [u8; icrc::LEN] {
        self.icrc.to_le_bytes()
    }
}

impl Passing {
    /// Reads of `frame`, which is the one that was parsed, what those fields are that `fields` changes, whatever to. Only the head and the
    /// ICRC are read.
    pub fn stencil(&self, fields: &Rewrite, frame: &[u8], stencil: &mut Stencil) -> Result<(), RewriteError> {
        let need = if self.elided { self.head } else { self.layout.end };
        let (Some(head), true) = (frame.get(..self.head), frame.len() >= need) else {
            return Err(RewriteError::Truncated { need, have: frame.len() });
        };
        let v4 = self.layout.carrier == Carrier::Ipv4;
        let (src, dst, words) = match v4 {
            true => (ipv4::field::SRC, ipv4::field::DST, 1),
            false => (ipv6::field::SRC, ipv6::field::DST, 4),
        };
        let (network, transport) = (self.layout.network, self.layout.bth);
        let icrc_at = self.layout.end - icrc::LEN;
        let [reth, aeth, ieth] =
            [self.places.reth, self.places.aeth, self.places.ieth].map(|place| self.behind_bth(place));
        stencil.macs = array(head, 0);
        stencil.hops = head[self.hops_at()];
        stencil.icrc = if self.elided { 0 } else { Word::from_le_bytes(array(frame, icrc_at)) };
        stencil.ip_checksum = if v4 { half(head, network + ipv4::field::CHECKSUM) } else { 0 };
        stencil.udp_checksum = half(head, self.layout.udp + udp::field::CHECKSUM);
        let has = Has {
            src_ip: fields.src_ip.is_some(),
            dst_ip: fields.dst_ip.is_some(),
            dest_qp: fields.dest_qp.is_some(),
            psn: fields.psn.is_some(),
            reth: fields.reth.is_some() && reth.is_some(),
            aeth: fields.aeth.is_some() && aeth.is_some(),
            ieth: fields.ieth.is_some() && ieth.is_some(),
        };
        (stencil.has, stencil.count) = (has, 0);
        let mut add = |has: bool, at: usize, words: usize| {
            if has {
                stencil.add(head, at, words, icrc_at);
            }
        };
        add(has.src_ip, network + src, words);
        add(has.dst_ip, network + dst, words);
        add(has.dest_qp, transport + bth::DEST_QP_WORD, 1);
        add(has.psn, transport + bth::PSN_WORD, 1);
        add(has.reth, reth.unwrap_or_default(), 3);
        add(has.aeth, aeth.unwrap_or_default(), 1);
        add(has.ieth, ieth.unwrap_or_default(), 1);
        stencil.addresses = (usize::from(has.src_ip) + usize::from(has.dst_ip)) * words;
        Ok(())
    }

    /// Works out what `rewrite` makes of the frame of a stencil. Fields that are not in the stencil stay as they are. After an error
    /// `patch` means nothing.
    #[inline(always)] // so that what a caller never asks for costs nothing
    pub fn patch(&self, stencil: &Stencil, rewrite: &Rewrite, patch: &mut Patch) -> Result<(), RewriteError> {
        let v4 = self.layout.carrier == Carrier::Ipv4;
        let has = stencil.has;
        let mut words = Words { stencil, new: &mut patch.new, made: 0 };
        if has.src_ip && !words.address(rewrite.src_ip, v4) || has.dst_ip && !words.address(rewrite.dst_ip, v4) {
            return Err(RewriteError::IpVersion);
        }
        if has.dest_qp {
            words.lower(rewrite.dest_qp.map(Qpn::value));
        }
        if has.psn {
            words.lower(rewrite.psn.map(Psn::value));
        }
        if has.reth {
            let old = stencil.old.get(words.made..).and_then(|old| old.first_chunk()).unwrap_or(&[0; 2]);
            let va = (u64::from(old[0].swap_bytes()) << 32) + u64::from(old[1].swap_bytes());
            let va = rewrite.reth.map_or(va, |reth| va.wrapping_add(reth.offset));
            words.change(|_| ((va >> 32) as u32).swap_bytes());
            words.change(|_| (va as u32).swap_bytes());
            words.change(|old| rewrite.reth.map_or(old, |reth| reth.rkey.swap_bytes()));
        }
        if has.aeth {
            words.change(|old| rewrite.aeth.map_or(old, aeth_word));
        }
        if has.ieth {
            words.change(|old| rewrite.ieth.map_or(old, u32::swap_bytes));
        }
        patch.macs[..6].copy_from_slice(&rewrite.dst_mac.map_or(array(&stencil.macs, 0), |mac| mac.0));
        patch.macs[6..].copy_from_slice(&rewrite.src_mac.map_or(array(&stencil.macs, 6), |mac| mac.0));
        patch.hops = stencil.hops;
        let mut sum = stencil.sum(&patch.new, stencil.addresses);
        if rewrite.take_hop {
            if stencil.hops <= 1 {
                return Err(RewriteError::HopsSpent);
            }
            patch.hops -= 1;
            sum += u64::from(!0x0001u16); // what one less in the first byte of two adds, whatever it was
        }
        if v4 {
            let found = stencil.ip_checksum;
            patch.ip_checksum = if sum == 0 { found } else { !ipv4::fold(sum + u64::from(!found)) };
        }
        let n = stencil.count.min(MAX_WORDS);
        patch.icrc = stencil.icrc ^ softnic_crc::change_of(&stencil.old[..n], &patch.new[..n], &stencil.distances[..n]);
        patch.udp_checksum = match stencil.udp_checksum {
            0 => 0, // there is none
            found => self.udp_checksum(found, stencil, patch),
        };
        Ok(())
    }

    /// Writes what a patch says to `head`: the frame of the stencil or a copy, or at least [`Passing::head_len`] bytes of it.
    /// The new ICRC is the caller's to write: it may lie elsewhere.
    #[inline]
    pub fn put(&self, stencil: &Stencil, patch: &Patch, head: &mut [u8]) -> Result<(), RewriteError> {
        let have = head.len();
        let Some(head) = head.get_mut(..self.head) else {
            return Err(RewriteError::Truncated { need: self.head, have });
        };
        head[..12].copy_from_slice(&patch.macs);
        head[self.hops_at()] = patch.hops;
        let mut put_half = |at: usize, new: u16| head[at..at + 2].copy_from_slice(&new.to_le_bytes());
        if self.layout.carrier == Carrier::Ipv4 {
            put_half(self.layout.network + ipv4::field::CHECKSUM, patch.ip_checksum);
        }
        put_half(self.layout.udp + udp::field::CHECKSUM, patch.udp_checksum);
        for (new, &at) in patch.new.iter().zip(&stencil.places).take(stencil.count) {
            let at = usize::from(at);
            head[at..at + 4].copy_from_slice(&new.to_le_bytes());
        }
        Ok(())
    }

    /// The new checksum of UDP, which covers the addresses, all behind them, and the ICRC.
    #[cold]
    fn udp_checksum(&self, found: u16, stencil: &Stencil, patch: &Patch) -> u16 {
        let icrc = ipv4::fold(u64::from(!stencil.icrc) + u64::from(patch.icrc));
        // Words are counted from the UDP header: in a packet of an odd length the halves of the ICRC's are swapped.
        let odd = !(self.layout.end - self.layout.udp).is_multiple_of(2);
        let icrc = if odd { icrc.swap_bytes() } else { icrc };
        match !ipv4::fold(stencil.sum(&patch.new, stencil.count) + u64::from(icrc) + u64::from(!found)) {
            0 => 0xffff, // 0 would say that there is none; 0xffff is the same number
            checksum => checksum,
        }
    }
}

impl Stencil {
    /// For a ones' complement sum: of the first `n` words the new ones and the complements of the old ones.
    #[inline(always)]
    fn sum(&self, new: &[Word; MAX_WORDS], n: usize) -> u64 {
        self.old.iter().zip(new).take(n).map(|(old, new)| u64::from(!old) + u64::from(*new)).sum()
    }
}

/// Half a word, its first byte the lower one.
#[inline]
fn half(head: &[u8], at: usize) -> u16 {
    u16::from_le_bytes(array(head, at))
}

fn aeth_word(aeth: Aeth) -> Word {
    let mut b = [0; aeth::LEN];
    aeth.emit(&mut b);
    Word::from_le_bytes(b)
}
