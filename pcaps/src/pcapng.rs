//! One section of a pcapng file: its byte order, its interfaces, and the packets in its blocks.
//!
//! Works on whole blocks whose two lengths agree; cutting the file into blocks is the reader's work. (`pcap-parser`
//! says "incomplete" both when a block has not all come in and when a packet in a whole block claims to be longer than
//! the block. Only who cuts first can tell the two apart, and must: one means wait, the other means damage.)

use pcap_parser::{Block, OptionCode, PcapNGOption, parse_block_be, parse_block_le, parse_sectionheaderblock};

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
/// The type of the packet block that the enhanced one replaced.
const OBSOLETE_PACKET: u32 = 2;

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

    fn u16(self, bytes: &[u8], at: usize) -> Option<u16> {
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
        let Ok((_, header)) = parse_sectionheaderblock(block) else {
            return Err(place.damaged("the section header is malformed"));
        };
        if header.major_version != 1 {
            let (major, minor) = (header.major_version, header.minor_version);
            return Err(Error::UnsupportedVersion { format: "pcapng", major, minor });
        }
        Ok(Section { order, interfaces: Vec::new() })
    }

    /// Takes in one block that is not a section header.
    pub(crate) fn read(&mut self, block: &[u8], place: Place) -> Result<Found, Error> {
        let parse = if self.order == ByteOrder::Big { parse_block_be } else { parse_block_le };
        let kind = self.order.u32(block, 0);
        if kind == Some(OBSOLETE_PACKET) {
            return self.obsolete_packet(block, place).map(Found::Packet);
        }
        let parsed = match parse(block) {
            Ok((_, parsed)) => parsed,
            // Damage in a block that is not needed is no reason to stop: the next one is where its length says.
            Err(_)
                if !matches!(kind, Some(pcap_parser::IDB_MAGIC | pcap_parser::EPB_MAGIC | pcap_parser::SPB_MAGIC)) =>
            {
                return Ok(Found::Other);
            }
            Err(_) => return Err(place.damaged("the lengths within a block do not add up")),
        };
        match parsed {
            Block::InterfaceDescription(b) => {
                let link = LinkType::from_value(b.linktype.0 as u16); // it was 16 bits in the file
                let (resolution, offset) = self.time_options(&b.options);
                self.interfaces.push(Interface { link, snap_len: b.snaplen, resolution, offset });
                Ok(Found::Other)
            }
            Block::EnhancedPacket(b) => {
                let interface = self.interface(b.if_id, place)?;
                let time = interface.time(b.ts_high, b.ts_low);
                let packet = PACKET_AT..PACKET_AT + b.caplen as usize;
                Ok(Found::Packet(Record { packet, time, link: interface.link, original_len: b.origlen }))
            }
            Block::SimplePacket(b) => {
                let interface = self.interface(0, place)?;
                // The only length stored is the original one; that and the snap length say how much was kept.
                let kept = if interface.snap_len == 0 { b.origlen } else { b.origlen.min(interface.snap_len) };
                if b.data.len() < kept as usize {
                    return Err(place.damaged("a packet is longer than its block"));
                }
                let packet = SIMPLE_PACKET_AT..SIMPLE_PACKET_AT + kept as usize;
                let (time, link) = (Timestamp::EPOCH, interface.link);
                Ok(Found::Packet(Record { packet, time, link, original_len: b.origlen }))
            }
            Block::SystemdJournalExport(_) | Block::Custom(_) => Ok(Found::Numbered),
            _ => Ok(Found::Other),
        }
    }

    /// The packet block of the first drafts, which `pcap-parser` does not know.
    fn obsolete_packet(&self, block: &[u8], place: Place) -> Result<Record, Error> {
        let short = || place.damaged("a packet block is too short for its header");
        let field = |at| self.order.u32(block, at).ok_or_else(short);
        let interface = self.interface(self.order.u16(block, 8).ok_or_else(short)?.into(), place)?;
        let time = interface.time(field(12)?, field(16)?);
        let (captured, original_len) = (field(20)? as usize, field(24)?);
        if block.len() < PACKET_AT + 4 || captured > block.len() - PACKET_AT - 4 {
            return Err(place.damaged("a packet is longer than its block"));
        }
        Ok(Record { packet: PACKET_AT..PACKET_AT + captured, time, link: interface.link, original_len })
    }

    fn interface(&self, id: u32, place: Place) -> Result<&Interface, Error> {
        self.interfaces.get(id as usize).ok_or_else(|| place.damaged("a packet of an interface that was not described"))
    }

    /// `if_tsresol` and `if_tsoffset`. Read here because `pcap-parser` takes the offset for little-endian in every
    /// section and refuses every resolution that is a power of two.
    fn time_options(&self, options: &[PcapNGOption<'_>]) -> (Resolution, i64) {
        let (mut resolution, mut offset) = (Resolution::MICROS, 0);
        for option in options.iter().take_while(|o| o.code != OptionCode::EndOfOpt) {
            match (option.code, option.as_bytes()) {
                (OptionCode::IfTsresol, Ok(&[v])) => resolution = Resolution::from_option(v),
                (OptionCode::IfTsoffset, Ok(bytes)) if bytes.len() == 8 => {
                    offset = self.order.i64(bytes).unwrap_or_default();
                }
                _ => {}
            }
        }
        (resolution, offset)
    }
}
