//! Ethernet II framing with up to two VLAN tags.

use core::fmt;
use core::str::FromStr;

use crate::bytes::{array, be16, put16};
use crate::{Error, NotRoce};

/// Bytes of an Ethernet header without tags.
pub const LEN: usize = 14;
/// Bytes of one VLAN tag.
pub const TAG_LEN: usize = 4;
/// Tags that are followed; a frame with more is not RoCE.
pub const MAX_TAGS: usize = 2;

/// Ethertypes that matter here.
pub mod ethertype {
    /// IPv4.
    pub const IPV4: u16 = 0x0800;
    /// IPv6.
    pub const IPV6: u16 = 0x86dd;
    /// RoCE version 1: a GRH follows.
    pub const ROCE_V1: u16 = 0x8915;
    /// 802.1Q tag.
    pub const VLAN: u16 = 0x8100;
    /// 802.1ad (provider) tag.
    pub const QINQ: u16 = 0x88a8;
    /// What some switches write for an outer tag.
    pub const QINQ_OLD: u16 = 0x9100;
}

/// An Ethernet address.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default, PartialOrd, Ord)]
pub struct MacAddr(pub [u8; 6]);

impl fmt::Display for MacAddr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let m = self.0;
        write!(f, "{:02x}:{:02x}:{:02x}:{:02x}:{:02x}:{:02x}", m[0], m[1], m[2], m[3], m[4], m[5])
    }
}

impl fmt::Debug for MacAddr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// What is no Ethernet address.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NoMacAddr;

impl fmt::Display for NoMacAddr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("no MAC address: six bytes in hexadecimal, as in 02:00:00:00:00:01")
    }
}

impl core::error::Error for NoMacAddr {}

impl FromStr for MacAddr {
    type Err = NoMacAddr;

    fn from_str(text: &str) -> Result<MacAddr, NoMacAddr> {
        let mut mac = [0; 6];
        let mut words = text.split(':');
        for byte in &mut mac {
            let word = words.next().ok_or(NoMacAddr)?;
            if !(1..=2).contains(&word.len()) || !word.bytes().all(|b| b.is_ascii_hexdigit()) {
                return Err(NoMacAddr);
            }
            *byte = u8::from_str_radix(word, 16).map_err(|_| NoMacAddr)?;
        }
        if words.next().is_some() { Err(NoMacAddr) } else { Ok(MacAddr(mac)) }
    }
}

/// One VLAN tag.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct VlanTag {
    /// The ethertype that announces the tag: [`ethertype::VLAN`] or [`ethertype::QINQ`].
    pub tpid: u16,
    /// Priority, drop eligibility and VLAN id as they stand on the wire.
    pub tci: u16,
}

impl VlanTag {
    /// An 802.1Q tag with this VLAN id and priority.
    pub const fn new(id: u16, priority: u8) -> VlanTag {
        VlanTag { tpid: ethertype::VLAN, tci: (priority as u16 & 7) << 13 | (id & 0x0fff) }
    }

    /// The VLAN id.
    pub const fn id(self) -> u16 {
        self.tci & 0x0fff
    }

    /// The priority code point.
    pub const fn priority(self) -> u8 {
        (self.tci >> 13) as u8
    }
}

/// Whether an ethertype announces a VLAN tag.
#[inline]
pub const fn is_tag(ethertype: u16) -> bool {
    matches!(ethertype, ethertype::VLAN | ethertype::QINQ | ethertype::QINQ_OLD)
}

/// A view of an Ethernet frame.
#[derive(Debug, Clone, Copy)]
pub struct Packet<T: AsRef<[u8]>> {
    buffer: T,
}

impl<T: AsRef<[u8]>> Packet<T> {
    /// Wraps bytes without looking at them; accessors panic if [`Packet::check_len`] does not hold.
    pub const fn new_unchecked(buffer: T) -> Packet<T> {
        Packet { buffer }
    }

    /// Wraps bytes that hold an Ethernet header and the tags it announces.
    pub fn new_checked(buffer: T) -> Result<Packet<T>, Error> {
        let p = Packet { buffer };
        p.check_len()?;
        Ok(p)
    }

    /// `Ok` when no accessor can panic.
    pub fn check_len(&self) -> Result<(), Error> {
        network_layer(self.buffer.as_ref()).map(|_| ())
    }

    /// Destination.
    pub fn dst(&self) -> MacAddr {
        MacAddr(array(self.buffer.as_ref(), 0))
    }

    /// Source.
    pub fn src(&self) -> MacAddr {
        MacAddr(array(self.buffer.as_ref(), 6))
    }

    /// The `i`th tag from outside.
    pub fn tag(&self, i: usize) -> Option<VlanTag> {
        let b = self.buffer.as_ref();
        let at = 12 + i * TAG_LEN;
        // Each tag before this one must be a tag for this to be one.
        let all = (0..=i).all(|k| k < MAX_TAGS && is_tag(be16(b, 12 + k * TAG_LEN)));
        all.then(|| VlanTag { tpid: be16(b, at), tci: be16(b, at + 2) })
    }
}

impl<T: AsRef<[u8]> + AsMut<[u8]>> Packet<T> {
    /// Sets the destination.
    pub fn set_dst(&mut self, v: MacAddr) {
        self.buffer.as_mut()[0..6].copy_from_slice(&v.0);
    }

    /// Sets the source.
    pub fn set_src(&mut self, v: MacAddr) {
        self.buffer.as_mut()[6..12].copy_from_slice(&v.0);
    }
}

/// The ethertype behind all tags and the offset at which its header begins.
#[inline]
pub fn network_layer(frame: &[u8]) -> Result<(u16, usize), Error> {
    Error::check_len("Ethernet header", LEN, frame.len())?;
    let mut at = 12;
    let mut kind = be16(frame, at);
    let mut tags = 0;
    while is_tag(kind) {
        if tags == MAX_TAGS {
            return Err(Error::NotRoce(NotRoce::EtherType(kind)));
        }
        tags += 1;
        at += TAG_LEN;
        Error::check_len("VLAN tag", at + 2, frame.len())?;
        kind = be16(frame, at);
    }
    Ok((kind, at + 2))
}

/// The fields of an Ethernet header.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Repr {
    /// Destination.
    pub dst: MacAddr,
    /// Source.
    pub src: MacAddr,
    /// Tags from outside in.
    pub tags: [Option<VlanTag>; MAX_TAGS],
    /// What follows.
    pub ethertype: u16,
}

impl Repr {
    /// Reads all fields.
    pub fn parse<T: AsRef<[u8]>>(p: &Packet<T>) -> Result<Repr, Error> {
        let (ethertype, _) = network_layer(p.buffer.as_ref())?;
        Ok(Repr { dst: p.dst(), src: p.src(), tags: [p.tag(0), p.tag(1)], ethertype })
    }

    /// Bytes that [`Repr::emit`] writes.
    pub fn buffer_len(&self) -> usize {
        LEN + self.tags.iter().flatten().count() * TAG_LEN
    }

    /// Writes all fields.
    pub fn emit<T: AsRef<[u8]> + AsMut<[u8]>>(&self, p: &mut Packet<T>) -> Result<(), Error> {
        Error::check_len("Ethernet header", self.buffer_len(), p.buffer.as_ref().len())?;
        p.set_dst(self.dst);
        p.set_src(self.src);
        let b = p.buffer.as_mut();
        let mut at = 12;
        for tag in self.tags.iter().flatten() {
            put16(b, at, tag.tpid);
            put16(b, at + 2, tag.tci);
            at += TAG_LEN;
        }
        put16(b, at, self.ethertype);
        Ok(())
    }
}

impl fmt::Display for Repr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} > {}", self.src, self.dst)?;
        for tag in self.tags.iter().flatten() {
            write!(f, " vlan {} p {}", tag.id(), tag.priority())?;
        }
        write!(f, " ethertype {:#06x}", self.ethertype)
    }
}
