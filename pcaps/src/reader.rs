//! Reading a capture packet by packet, as its bytes come in.

use std::io::Read;
use std::ops::Range;

use crate::MAX_CAPTURED;
use crate::error::{Error, Place};
use crate::link::LinkType;
use crate::pcapng::{BYTE_ORDER_MARK_END, ByteOrder, Found, MIN_BLOCK, SECTION_HEADER, Section};
use crate::source::Source;
use crate::time::Timestamp;

const PCAP_HEADER: usize = 24;
/// A packet of the largest size, with room for the headers and options around it.
const MAX_BLOCK: usize = MAX_CAPTURED + (1 << 20);

/// One captured packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Frame<'a> {
    /// From 1, as tshark counts: journal entries and custom blocks in a pcapng file take a number too.
    pub number: u64,
    /// When it was captured; [`Timestamp::EPOCH`] for pcapng's simple packets, which carry no time.
    pub time: Timestamp,
    /// Which interface it was captured at, where the capture is of several.
    pub interface: Option<u32>,
    /// What `data` begins with.
    pub link: LinkType,
    /// What was captured of it.
    pub data: &'a [u8],
    /// How long it was on the wire; more than `data` where the capture cut it.
    pub original_len: u32,
}

/// Reads a pcap or pcapng capture from any `Read`.
///
/// A packet is handed out once its own bytes have been read, without asking for one more, so that a live pipe from
/// `tcpdump -U -w -` is followed without delay. There is no need for a `BufReader` around the source.
///
/// ```
/// use softnic_pcaps::{LinkType, PcapWriter, Reader, Timestamp};
///
/// let mut file = Vec::new();
/// PcapWriter::new(&mut file, LinkType::Ethernet)?.write(Timestamp::new(1, 0), &[0; 60], 60)?;
/// let mut reader = Reader::new(&file[..])?;
/// while let Some(frame) = reader.next_frame()? {
///     assert_eq!((frame.number, frame.data.len()), (1, 60));
/// }
/// # Ok::<(), softnic_pcaps::Error>(())
/// ```
#[derive(Debug)]
pub struct Reader<R> {
    source: Source<R>,
    format: Format,
    /// Frame numbers given.
    numbers: u64,
    /// Packets handed out.
    packets: u64,
    /// Bytes of the last record, dropped only with the next call: the frame borrows them.
    used: usize,
    /// The end or damage was met.
    done: bool,
}

#[derive(Debug)]
enum Format {
    Pcap {
        order: ByteOrder,
        /// Bytes before the packet of each record: seconds, ticks, captured and original length, and in one variant more.
        header_len: usize,
        nanos_per_tick: u32,
        link: LinkType,
    },
    /// `None` before the first section header.
    Pcapng(Option<Section>),
}

/// A packet within the unread bytes.
#[derive(Debug)]
pub(crate) struct Record {
    pub(crate) packet: Range<usize>,
    pub(crate) time: Timestamp,
    pub(crate) interface: Option<u32>,
    pub(crate) link: LinkType,
    pub(crate) original_len: u32,
}

impl<R: Read> Reader<R> {
    /// Reads the file header.
    pub fn new(source: R) -> Result<Reader<R>, Error> {
        let mut source = Source::new(source);
        let start = Place { packets: 0, offset: 0 };
        source.fill(4)?;
        let Some(&magic) = source.data().first_chunk() else {
            return Err(if source.data().is_empty() { Error::EmptyFile } else { start.truncated() });
        };
        let format = match magic {
            SECTION_HEADER => Format::Pcapng(None),
            [0x1f, 0x8b, ..] => return Err(Error::Compressed { with: "gzip" }),
            [0x28, 0xb5, 0x2f, 0xfd] => return Err(Error::Compressed { with: "zstd" }),
            [0xfd, b'7', b'z', b'X'] => return Err(Error::Compressed { with: "xz" }),
            [0x04, 0x22, 0x4d, 0x18] => return Err(Error::Compressed { with: "lz4" }),
            [0xd4, 0xc3, 0xb2, 0xa1]
            | [0x4d, 0x3c, 0xb2, 0xa1]
            | [0x34, 0xcd, 0xb2, 0xa1]
            | [0xa1, 0xb2, 0xc3, 0xd4]
            | [0xa1, 0xb2, 0x3c, 0x4d] => {
                if !source.fill(PCAP_HEADER)? {
                    return Err(start.truncated());
                }
                let format = pcap_format(source.data(), start)?;
                source.consume(PCAP_HEADER);
                format
            }
            _ => return Err(Error::NotACapture { magic }),
        };
        Ok(Reader { source, format, numbers: 0, packets: 0, used: 0, done: false })
    }

    /// The next packet, or `None` at the end of the capture.
    ///
    /// After an error other than [`Error::Io`] there is nothing more to read: further calls give `None`. An I/O error
    /// loses nothing, and the call may be repeated.
    pub fn next_frame(&mut self) -> Result<Option<Frame<'_>>, Error> {
        self.source.consume(std::mem::take(&mut self.used));
        if self.done {
            return Ok(None);
        }
        let found = match self.format {
            Format::Pcap { .. } => self.next_record(),
            Format::Pcapng(_) => self.next_packet(),
        };
        self.done = !matches!(found, Ok(Some(_)) | Err(Error::Io(_)));
        let Some(Record { packet, time, interface, link, original_len }) = found? else { return Ok(None) };
        self.numbers += 1;
        self.packets += 1;
        // Both formats have checked that the packet lies within its record, so the default is never taken.
        let data = self.source.data().get(packet).unwrap_or_default();
        Ok(Some(Frame { number: self.numbers, time, interface, link, data, original_len }))
    }

    fn place(&self) -> Place {
        Place { packets: self.packets, offset: self.source.offset() }
    }

    /// The next record of a pcap file.
    fn next_record(&mut self) -> Result<Option<Record>, Error> {
        let Format::Pcap { order, header_len, nanos_per_tick, link } = self.format else { return Ok(None) };
        loop {
            let data = self.source.data();
            let field = |at| order.u32(data.get(..header_len)?, at);
            let captured = field(8).map_or(0, |len| len as usize);
            if captured > MAX_CAPTURED {
                return Err(self.place().unreasonable(captured));
            }
            let need = header_len + captured;
            if let (Some(seconds), Some(ticks), Some(original_len)) = (field(0), field(4), field(12))
                && data.len() >= need
            {
                // Some writers let the fraction exceed a second, hence no check of it.
                let nanos = i128::from(ticks) * i128::from(nanos_per_tick);
                let time = Timestamp::from_nanos(Timestamp::new(seconds.into(), 0).nanos() + nanos);
                self.used = need;
                return Ok(Some(Record { packet: header_len..need, time, interface: None, link, original_len }));
            }
            if !self.source.fill(need)? {
                return if self.source.data().is_empty() { Ok(None) } else { Err(self.place().truncated()) };
            }
        }
    }

    /// The packet in the next block of a pcapng file that has one.
    fn next_packet(&mut self) -> Result<Option<Record>, Error> {
        loop {
            let Some(len) = self.next_block()? else { return Ok(None) };
            let place = self.place();
            let block = self.source.data().get(..len).unwrap_or_default();
            let Format::Pcapng(section) = &mut self.format else { return Ok(None) };
            let found = if block.starts_with(&SECTION_HEADER) {
                let order = ByteOrder::of_section(block).ok_or_else(|| place.damaged(NO_BYTE_ORDER))?;
                *section = Some(Section::begin(order, block, place)?);
                Found::Other
            } else {
                let section = section.as_mut().ok_or_else(|| place.damaged(NO_SECTION))?;
                section.read(block, place)?
            };
            match found {
                Found::Packet(record) => {
                    self.used = len;
                    return Ok(Some(record));
                }
                Found::Numbered => self.numbers += 1,
                Found::Other => {}
            }
            self.source.consume(len);
        }
    }

    /// Reads a whole block, whose two lengths agree; its length, or `None` at the end of the file.
    fn next_block(&mut self) -> Result<Option<usize>, Error> {
        let place = self.place();
        if !self.source.fill(MIN_BLOCK.max(BYTE_ORDER_MARK_END))? {
            return if self.source.data().is_empty() { Ok(None) } else { Err(place.truncated()) };
        }
        let head = self.source.data();
        let order = if head.starts_with(&SECTION_HEADER) {
            // The byte order of the length stands behind the length.
            ByteOrder::of_section(head).ok_or_else(|| place.damaged(NO_BYTE_ORDER))?
        } else if let Format::Pcapng(Some(section)) = &self.format {
            section.order
        } else {
            return Err(place.damaged(NO_SECTION));
        };
        let first = order.u32(head, 4);
        let len = first.unwrap_or_default() as usize;
        if len > MAX_BLOCK {
            return Err(place.unreasonable(len));
        }
        if len < MIN_BLOCK || !len.is_multiple_of(4) {
            return Err(place.damaged("a block has an impossible length"));
        }
        if !self.source.fill(len)? {
            return Err(place.truncated());
        }
        if order.u32(self.source.data(), len - 4) != first {
            return Err(place.damaged("the lengths at the two ends of a block differ"));
        }
        Ok(Some(len))
    }
}

const NO_BYTE_ORDER: &str = "a section header has no byte-order mark";
const NO_SECTION: &str = "a block stands outside any section";

/// The format that a pcap file header announces.
fn pcap_format(data: &[u8], start: Place) -> Result<Format, Error> {
    let malformed = || start.damaged("the file header is malformed");
    let magic: [u8; 4] = *data.first_chunk().ok_or_else(malformed)?;
    let order = if magic[0] == 0xa1 { ByteOrder::Big } else { ByteOrder::Little };
    let version = |at| order.u16(data, at).ok_or_else(malformed);
    let (major, minor) = (version(4)?, version(6)?);
    // Before 2.3 the two lengths of a record stood in the other order.
    if major != 2 || minor < 3 {
        return Err(Error::UnsupportedVersion { format: "pcap", major, minor });
    }
    // Kuznetzov's: interface, protocol and direction of each packet follow its lengths.
    let header_len = if magic == [0x34, 0xcd, 0xb2, 0xa1] { 24 } else { 16 };
    let is_nanos = matches!(magic, [0x4d, 0x3c, 0xb2, 0xa1] | [0xa1, 0xb2, 0x3c, 0x4d]);
    let nanos_per_tick = if is_nanos { 1 } else { 1000 };
    // The upper half of the field says whether frames end with a checksum; the link type is the lower.
    let link = LinkType::from_value(order.u32(data, 20).ok_or_else(malformed)? as u16);
    Ok(Format::Pcap { order, header_len, nanos_per_tick, link })
}
