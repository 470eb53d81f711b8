//! One section of a pcapng file: its byte order, its interfaces, and the packets in its blocks.
//!
//! Works on whole blocks whose two lengths agree; cutting the file into blocks is the reader's work. (Only who cuts first
//! can tell a block that has not all come in from a packet that claims to be longer than its block, and must: one means
//! wait, the other means damage.)

use crate::error::{Error, Place};
use crate::link::LinkType;
use crate::reader::Record;
use crate::time::{Resolution, Timestamp};

/// The type of a section header block: the same bytes in either byte order, and the magic number of the format.
pub(crate) const SECTION_HEADER: [u8; 4] = [0x0a, 0x0d, 0x0d, 0x0a];
/// Block type and length, then the length once more at the end.
pub(crate) const MIN_BLOCK: usize = 12;
/// Up to and with the byte-order mark of a section header.
pub(crate) const BYTE_ORDER_MARK_END: usize = 12;

/// Where the packet begins in an enhanced packet block, and in the obsolete packet block.
const PACKET_AT: usize = 28;
/// Where the packet begins in a simple packet block.
const SIMPLE_PACKET_AT: usize = 12;
/// Where the options begin in the description of an interface.
const INTERFACE_OPTIONS_AT: usize = 16;
/// The shortest section header: versions and the length of the section, no options.
const MIN_SECTION_HEADER: usize = 28;
/// The length at the end of each block.
const END: usize = 4;

/// Types of blocks. The obsolete packet block is of the first drafts, and was replaced by the enhanced one.
const INTERFACE: u32 = 1;
const OBSOLETE_PACKET: u32 = 2;
const SIMPLE_PACKET: u32 = 3;
const ENHANCED_PACKET: u32 = 6;
const JOURNAL: u32 = 9;
const CUSTOM: u32 = 0x0bad;
/// Custom, too, and not to be copied by who does not know it.
const CUSTOM_DO_NOT_COPY: u32 = 0x4000_0bad;
/// The shortest of either: the number of who made it.
const MIN_CUSTOM: usize = 16;

/// Options of an interface.
const END_OF_OPTIONS: u16 = 0;
const IF_TSRESOL: u16 = 9;
const IF_TSOFFSET: u16 = 14;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ByteOrder {
    Little,
    Big,
}

impl ByteOrder {
    /// From the first bytes of a section header; `None` where the mark is no mark.
    pub(crate) fn of_section(block: &[u8]) -> Option<ByteOrder> {
        match block.get(8..BYTE_ORDER_MARK_END)? {
            [0x4d, 0x3c, 0x2b, 0x1a] => Some(ByteOrder::Little),
            [0x1a, 0x2b, 0x3c, 0x4d] => Some(ByteOrder::Big),
            _ => None,
        }
    }

    pub(crate) fn u32(self, bytes: &[u8], at: usize) -> Option<u32> {
        let b = *bytes.get(at..)?.first_chunk()?;
        Some(if self == ByteOrder::Big { u32::from_be_bytes(b) } else { u32::from_le_bytes(b) })
    }

    pub(crate) fn u16(self, bytes: &[u8], at: usize) -> Option<u16> {
        let b = *bytes.get(at..)?.first_chunk()?;
        Some(if self == ByteOrder::Big { u16::from_be_bytes(b) } else { u16::from_le_bytes(b) })
    }

    fn i64(self, bytes: &[u8]) -> Option<i64> {
        let b = *bytes.first_chunk()?;
        Some(if self == ByteOrder::Big { i64::from_be_bytes(b) } else { i64::from_le_bytes(b) })
    }
}

/// What a block meant.
pub(crate) enum Found {
    /// A packet.
    Packet(Record),
    /// No packet, but tshark gives it a frame number.
    Numbered,
    /// Something about the section, or nothing that matters here.
    Other,
}

#[derive(Debug)]
struct Interface {
    link: LinkType,
    /// Most bytes stored of a packet; 0 is no limit.
    snap_len: u32,
    resolution: Resolution,
    /// Seconds to add to every time.
    offset: i64,
}

impl Interface {
    fn time(&self, high: u32, low: u32) -> Timestamp {
        let ticks = u64::from(high) << 32 | u64::from(low);
        Timestamp::from_nanos(self.resolution.nanos(ticks) + Timestamp::new(self.offset, 0).nanos())
    }
}

/// What was said in the current section.
#[derive(Debug)]
pub(crate) struct Section {
    pub(crate) order: ByteOrder,
    interfaces: Vec<Interface>,
}

impl Section {
    /// The section that the header `block` opens.
    pub(crate) fn begin(order: ByteOrder, block: &[u8], place: Place) -> Result<Section, Error> {
        let malformed = || place.damaged("the section header is malformed");
        if block.len() < MIN_SECTION_HEADER {
            return Err(malformed());
        }
        let version = |at| order.u16(block, at).ok_or_else(malformed);
        let (major, minor) = (version(12)?, version(14)?);
        if major != 1 {
            return Err(Error::UnsupportedVersion { format: "pcapng", major, minor });
        }
        Ok(Section { order, interfaces: Vec::new() })
    }

    /// Takes in one block that is not a section header.
    pub(crate) fn read(&mut self, block: &[u8], place: Place) -> Result<Found, Error> {
        match self.order.u32(block, 0) {
            Some(INTERFACE) => self.describe_interface(block, place).map(|()| Found::Other),
            Some(ENHANCED_PACKET) => {
                let id = self.field(block, 8, place)?;
                self.packet(id, block, place).map(Found::Packet)
            }
            Some(OBSOLETE_PACKET) => {
                let id = self.order.u16(block, 8).ok_or_else(|| place.damaged(TOO_SHORT))?;
                self.packet(id.into(), block, place).map(Found::Packet)
            }
            Some(SIMPLE_PACKET) => self.simple_packet(block, place).map(Found::Packet),
            Some(JOURNAL) => Ok(Found::Numbered),
            Some(CUSTOM | CUSTOM_DO_NOT_COPY) if block.len() >= MIN_CUSTOM => Ok(Found::Numbered),
            // Damage in a block that is not needed is no reason to stop: the next one is where its length says.
            _ => Ok(Found::Other),
        }
    }

    /// A field of a block, before the length at its end.
    fn field(&self, block: &[u8], at: usize, place: Place) -> Result<u32, Error> {
        self.order.u32(contents(block), at).ok_or_else(|| place.damaged(TOO_SHORT))
    }

    fn describe_interface(&mut self, block: &[u8], place: Place) -> Result<(), Error> {
        let snap_len = self.field(block, 12, place)?;
        let link = LinkType::from_value(self.order.u16(block, 8).unwrap_or_default());
        let (resolution, offset) = self.time_options(contents(block).get(INTERFACE_OPTIONS_AT..).unwrap_or_default());
        self.interfaces.push(Interface { link, snap_len, resolution, offset });
        Ok(())
    }

    /// The packet in an enhanced packet block, or in the obsolete one, whose fields stand in the same places.
    fn packet(&self, interface: u32, block: &[u8], place: Place) -> Result<Record, Error> {
        let field = |at| self.field(block, at, place);
        let (high, low, captured, original_len) = (field(12)?, field(16)?, field(20)? as usize, field(24)?);
        if captured > contents(block).len() - PACKET_AT {
            return Err(place.damaged("a packet is longer than its block"));
        }
        let packet = PACKET_AT..PACKET_AT + captured;
        let number = self.among_several(interface);
        let interface = self.interface(interface, place)?;
        let time = interface.time(high, low);
        Ok(Record { packet, time, interface: number, link: interface.link, original_len })
    }

    fn simple_packet(&self, block: &[u8], place: Place) -> Result<Record, Error> {
        let original_len = self.field(block, 8, place)?;
        let interface = self.interface(0, place)?;
        // The only length stored is the original one; that and the snap length say how much was kept.
        let kept = if interface.snap_len == 0 { original_len } else { original_len.min(interface.snap_len) } as usize;
        if kept > contents(block).len() - SIMPLE_PACKET_AT {
            return Err(place.damaged("a packet is longer than its block"));
        }
        let packet = SIMPLE_PACKET_AT..SIMPLE_PACKET_AT + kept;
        let number = self.among_several(0);
        Ok(Record { packet, time: Timestamp::EPOCH, interface: number, link: interface.link, original_len })
    }

    fn interface(&self, id: u32, place: Place) -> Result<&Interface, Error> {
        self.interfaces.get(id as usize).ok_or_else(|| place.damaged("a packet of an interface that was not described"))
    }

    /// Which interface, if there are several.
    fn among_several(&self, id: u32) -> Option<u32> {
        (self.interfaces.len() > 1).then_some(id)
    }

    /// `if_tsresol` and `if_tsoffset`. Options that are cut end the list, as its end does.
    fn time_options(&self, mut options: &[u8]) -> (Resolution, i64) {
        let (mut resolution, mut offset) = (Resolution::MICROS, 0);
        while let (Some(code), Some(len)) = (self.order.u16(options, 0), self.order.u16(options, 2)) {
            let len = usize::from(len);
            let end = 4 + len.next_multiple_of(4);
            let (Some(value), Some(rest)) = (options.get(4..4 + len), options.get(end..)) else { break };
            match (code, value) {
                (END_OF_OPTIONS, _) => break,
                (IF_TSRESOL, &[v]) => resolution = Resolution::from_option(v),
                (IF_TSOFFSET, bytes) if bytes.len() == 8 => offset = self.order.i64(bytes).unwrap_or_default(),
                _ => {}
            }
            options = rest;
        }
        (resolution, offset)
    }
}

const TOO_SHORT: &str = "a block is too short for its header";

/// A block without the length at its end.
fn contents(block: &[u8]) -> &[u8] {
    &block[..block.len().saturating_sub(END)]
}
