//! What one end of SDR tells the other: the numbers and keys of its queue pairs. A view that checked all that a sender relies on.
//!
//! | offset | bytes | field |
//! |---|---|---|
//! | 0 | 1 | version: 1 |
//! | 1 | 1 | path MTU, 1 … 5 for 256 … 4096 |
//! | 2 | 2 | bytes of all of this |
//! | 4 | 3 | bits of the immediate: slot, packet, user |
//! | 7 | 1 | the length of a slot is two to this power |
//! | 8 | 1 | generations G |
//! | 9 | 1 | channels C of each |
//! | 10 | 2 | packets of a chunk, where there is a scheme; else 0 |
//! | 12 | 4 | slots |
//! | 16 | 8 | the longest message |
//! | 24 | 4 | token: what control messages to here carry |
//! | 28 | 8 | control queue pair: number, first PSN, 4 bytes each |
//! | 36 | 4 | the scheme that makes messages reliable, 0 for none, and three bytes of its own |
//! | 40 | G · (4 + 8 · C) | each generation: root key, then number and first PSN of each channel |

use core::fmt;

use super::{MAX_CHANNELS, MAX_GENERATIONS, MAX_SLOTS, SdrSettings, Split, packets};
use crate::bytes::{be16, be32, be64};
use crate::settings::ExtensionSettings;
use crate::{PathMtu, Psn, Qpn};

/// A queue pair, and the first PSN that it sends.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Contact {
    /// Its number.
    pub qpn: Qpn,
    /// The first PSN that it sends.
    pub psn: Psn,
}

/// Why bytes are no such information.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum InfoError {
    /// There are fewer bytes than they say, or more.
    #[error("the information about the peer's queue pair has {0} bytes, not {1}")]
    Length(usize, usize),
    /// A peer of another version.
    #[error("the information about the peer's queue pair is of version {0}, and this is version {version}", version = Info::VERSION)]
    Version(u8),
    /// A field cannot be what it is.
    #[error("the information about the peer's queue pair has an impossible {0}")]
    Field(&'static str),
}

/// A view of the information about an SDR queue pair.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Info<'a> {
    bytes: &'a [u8],
    /// Path MTU, the same at both ends.
    pub mtu: PathMtu,
    /// The division of immediates.
    pub split: Split,
    /// Receives that can be posted at a time: message n has slot n modulo this.
    pub slots: u32,
    /// Bytes of a slot of a root key, a power of two.
    pub slot_len: u64,
    /// Bytes of the longest message.
    pub max_message: u64,
    /// What control messages to here carry.
    pub token: u32,
    /// The queue pair of control messages.
    pub control: Contact,
    /// What makes messages reliable: the same at both ends.
    pub scheme: SdrSettings,
    /// Packets of a chunk, the same at both ends where there is a scheme; 0 where there is none.
    pub chunk_packets: u16,
}

/// A view of one generation of messages.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct GenerationInfo<'a> {
    /// The root key of its receives.
    pub key: u32,
    channels: &'a [u8],
}

impl<'a> GenerationInfo<'a> {
    /// Its queue pairs.
    pub fn channels(&self) -> impl ExactSizeIterator<Item = Contact> + use<'a> {
        self.channels.chunks_exact(Contact::LEN).map(Contact::read)
    }
}

impl Contact {
    /// Bytes of one.
    pub const LEN: usize = 8;

    /// The bytes.
    pub fn bytes(&self) -> [u8; Contact::LEN] {
        (u64::from(self.qpn.value()) << 32 | u64::from(self.psn.value())).to_be_bytes()
    }

    fn read(bytes: &[u8]) -> Contact {
        Contact { qpn: Qpn::new(be32(bytes, 0)), psn: Psn::new(be32(bytes, 4)) }
    }

    /// Whether bytes are the number of a queue pair that a program can have, and a PSN.
    fn is_possible(bytes: &[u8]) -> bool {
        (2..1 << 24).contains(&be32(bytes, 0)) && be32(bytes, 4) < 1 << 24
    }
}

impl<'a> Info<'a> {
    /// The version of these bytes.
    pub const VERSION: u8 = 1;
    /// Bytes before the generations.
    pub const HEAD: usize = 40;

    /// Bytes of the information of so many generations, each of so many channels.
    pub const fn len_of(generations: u8, channels: u8) -> usize {
        Info::HEAD + generations as usize * (4 + Contact::LEN * channels as usize)
    }

    /// Reads the bytes, and checks all that a sender relies on. They are no more than the information.
    pub fn parse(bytes: &'a [u8]) -> Result<Info<'a>, InfoError> {
        let Some(head) = bytes.first_chunk::<{ Info::HEAD }>() else {
            return Err(InfoError::Length(bytes.len(), Info::HEAD));
        };
        if head[0] != Info::VERSION {
            return Err(InfoError::Version(head[0]));
        }
        let (generations, channels) = (head[8], head[9]);
        let expected = Info::len_of(generations, channels);
        if usize::from(be16(head, 2)) != expected || bytes.len() != expected {
            return Err(InfoError::Length(bytes.len(), expected));
        }
        let possible = |what, is: bool| if is { Ok(()) } else { Err(InfoError::Field(what)) };
        possible("number of generations", (1..=MAX_GENERATIONS).contains(&generations))?;
        possible("number of channels", (1..=MAX_CHANNELS).contains(&channels))?;
        let mtu = PathMtu::from_code(head[1]).ok_or(InfoError::Field("path MTU"))?;
        let split = Split::new(head[4], head[5], head[6]).map_err(|_| InfoError::Field("division of immediates"))?;
        let (slots, max_message) = (be32(head, 12), be64(head, 16));
        possible("number of receives", (1..=MAX_SLOTS).contains(&slots) && u64::from(slots) <= split.messages())?;
        possible("longest message", (1..=1 << 40).contains(&max_message))?;
        let packets = packets(max_message, mtu).max(split.pieces().into());
        possible("longest message", packets <= split.packets())?;
        let slot_len = 1u64.checked_shl(head[7].into()).unwrap_or(0);
        let all = slot_len.checked_mul(slots.into()).is_some_and(|all| all <= i64::MAX as u64);
        possible("length of slots", slot_len >= packets * u64::from(mtu.bytes()) && all)?;
        let control = &head[28..36];
        let mut contacts = bytes[Info::HEAD..]
            .chunks_exact(4 + Contact::LEN * usize::from(channels))
            .flat_map(|generation| generation[4..].chunks_exact(Contact::LEN));
        let contacts = Contact::is_possible(control) && contacts.all(Contact::is_possible);
        possible("number of a queue pair", contacts)?;
        let (token, control) = (be32(head, 24), Contact::read(control));
        let (scheme, chunk_packets) = (SdrSettings::parse(&head[36..]), be16(head, 10));
        possible("length of chunks", scheme == SdrSettings::SDK || chunk_packets > 0)?;
        Ok(Info { bytes, mtu, split, slots, slot_len, max_message, token, control, scheme, chunk_packets })
    }

    /// Reads the information at the front of longer bytes, where it says itself how long it is.
    pub fn parse_front(bytes: &'a [u8]) -> Result<Info<'a>, InfoError> {
        let Some(head) = bytes.first_chunk::<{ Info::HEAD }>() else {
            return Err(InfoError::Length(bytes.len(), Info::HEAD));
        };
        let len = usize::from(be16(head, 2));
        Info::parse(bytes.get(..len).ok_or(InfoError::Length(bytes.len(), len))?)
    }

    /// The bytes.
    pub const fn as_bytes(&self) -> &'a [u8] {
        self.bytes
    }

    /// How many generations there are.
    pub const fn generation_count(&self) -> u8 {
        self.bytes[8]
    }

    /// How many channels each generation has.
    pub const fn channel_count(&self) -> u8 {
        self.bytes[9]
    }

    /// The generations.
    pub fn generations(&self) -> impl ExactSizeIterator<Item = GenerationInfo<'a>> + use<'a> {
        let each = 4 + Contact::LEN * usize::from(self.channel_count());
        self.bytes[Info::HEAD..].chunks_exact(each).map(|g| GenerationInfo { key: be32(g, 0), channels: &g[4..] })
    }
}

/// `split 10+18+4 mtu 4096 slots 64 generations 4 channels 1 control 0x000163`.
impl fmt::Display for Info<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (generations, channels) = (self.generation_count(), self.channel_count());
        let Info { split, slots, control, .. } = self;
        write!(f, "split {split} mtu {} slots {slots} generations {generations}", self.mtu.bytes())?;
        write!(f, " channels {channels} control {:#08x}", control.qpn.value())
    }
}
