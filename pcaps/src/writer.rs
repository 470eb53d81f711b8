//! Writing captures: pcap and pcapng, to any `Write`.

use std::io::{self, Write};

use crate::MAX_CAPTURED;
use crate::link::LinkType;
use crate::time::Timestamp;

/// The unit of time in a pcap file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Precision {
    /// What every tool of this century reads.
    #[default]
    Nanos,
    /// The original format; times are rounded down.
    Micros,
}

/// Writes a pcap file: little-endian, one link type.
///
/// A packet takes two or three small writes: give it a `BufWriter` unless every packet must be out at once.
#[derive(Debug)]
pub struct PcapWriter<W> {
    inner: W,
    precision: Precision,
}

impl<W: Write> PcapWriter<W> {
    /// Writes the file header; times will be in nanoseconds.
    pub fn new(inner: W, link: LinkType) -> io::Result<PcapWriter<W>> {
        PcapWriter::with_precision(inner, link, Precision::Nanos)
    }

    /// Writes the file header.
    pub fn with_precision(mut inner: W, link: LinkType, precision: Precision) -> io::Result<PcapWriter<W>> {
        let magic: u32 = match precision {
            Precision::Nanos => 0xa1b2_3c4d,
            Precision::Micros => 0xa1b2_c3d4,
        };
        let snap_len = MAX_CAPTURED as u32;
        let mut header = [0; 24];
        // Version 2.4; the time zone and the accuracy are 0 in every file there is.
        put(&mut header, [magic, 2 | 4 << 16, 0, 0, snap_len, link.value().into()]);
        inner.write_all(&header)?;
        Ok(PcapWriter { inner, precision })
    }

    /// Writes a packet that was `original_len` bytes long on the wire and of which `frame` was captured.
    ///
    /// A time before 1970 or after 2106 or a frame longer than [`MAX_CAPTURED`] is an error of kind `InvalidInput`, and
    /// nothing is written.
    pub fn write(&mut self, time: Timestamp, frame: &[u8], original_len: u32) -> io::Result<()> {
        self.write_segments(time, &[frame], original_len)
    }

    /// Like [`write`](Self::write), for a frame that lies in pieces.
    pub fn write_segments(&mut self, time: Timestamp, segments: &[&[u8]], original_len: u32) -> io::Result<()> {
        let captured = captured_len(segments)?;
        let secs = u32::try_from(time.secs()).map_err(|_| invalid("a pcap file cannot hold the packet's time"))?;
        let fraction = match self.precision {
            Precision::Nanos => time.subsec_nanos(),
            Precision::Micros => time.subsec_nanos() / 1000,
        };
        let mut header = [0; 16];
        put(&mut header, [secs, fraction, captured, original_len]);
        self.inner.write_all(&header)?;
        segments.iter().try_for_each(|s| self.inner.write_all(s))
    }

    /// Passes on what the underlying writer has buffered.
    pub fn flush(&mut self) -> io::Result<()> {
        self.inner.flush()
    }

    /// The underlying writer.
    pub fn into_inner(self) -> W {
        self.inner
    }
}

/// An interface of the [`PcapngWriter`] that gave it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct InterfaceId(u32);

/// Which way a frame went at its interface, as the flags of a pcapng file have it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Direction {
    /// It came in.
    Inbound = 1,
    /// It left.
    Outbound = 2,
}

/// Writes a pcapng file: one little-endian section, times in nanoseconds.
///
/// A packet takes four or five small writes: give it a `BufWriter` unless every packet must be out at once.
#[derive(Debug)]
pub struct PcapngWriter<W> {
    inner: W,
    interfaces: u32,
}

const SECTION_HEADER: u32 = 0x0a0d_0d0a;
const BYTE_ORDER_MARK: u32 = 0x1a2b_3c4d;
const INTERFACE_DESCRIPTION: u32 = 1;
const ENHANCED_PACKET: u32 = 6;
const IF_NAME: u32 = 2;
const IF_TSRESOL: u32 = 9;
const EPB_FLAGS: u32 = 2;
const PADDING: [u8; 3] = [0; 3];

impl<W: Write> PcapngWriter<W> {
    /// Writes the section header.
    pub fn new(mut inner: W) -> io::Result<PcapngWriter<W>> {
        let mut block = [0; 28];
        // Version 1.0; a length of -1 says that the section ends where the file does.
        put(&mut block, [SECTION_HEADER, 28, BYTE_ORDER_MARK, 1, u32::MAX, u32::MAX, 28]);
        inner.write_all(&block)?;
        Ok(PcapngWriter { inner, interfaces: 0 })
    }

    /// Describes an interface, which is needed before its first packet; an empty `name` is left out.
    pub fn add_interface(&mut self, link: LinkType, name: &str) -> io::Result<InterfaceId> {
        let name_len = u32::from(u16::try_from(name.len()).map_err(|_| invalid("the interface's name is too long"))?);
        let name_option = if name.is_empty() { 0 } else { 4 + padded(name_len) };
        let len = 16 + name_option + 8 + 4 + 4;
        let mut head = [0; 16];
        put(&mut head, [INTERFACE_DESCRIPTION, len, link.value().into(), MAX_CAPTURED as u32]);
        self.inner.write_all(&head)?;
        if !name.is_empty() {
            self.inner.write_all(&(IF_NAME | name_len << 16).to_le_bytes())?;
            self.inner.write_all(name.as_bytes())?;
            self.inner.write_all(padding(name_len))?;
        }
        let mut tail = [0; 16];
        // The unit of time, 10^-9 s, in a byte of its own; then the end of options.
        put(&mut tail, [IF_TSRESOL | 1 << 16, 9, 0, len]);
        self.inner.write_all(&tail)?;
        self.interfaces += 1;
        Ok(InterfaceId(self.interfaces - 1))
    }

    /// Writes a packet of `interface` that was `original_len` bytes long and of which `frame` was captured.
    ///
    /// A time before 1970 or after 2554, a frame longer than [`MAX_CAPTURED`] or the interface of another writer is an
    /// error of kind `InvalidInput`, and nothing is written.
    pub fn write(
        &mut self,
        interface: InterfaceId,
        time: Timestamp,
        frame: &[u8],
        original_len: u32,
    ) -> io::Result<()> {
        self.write_segments(interface, time, &[frame], original_len)
    }

    /// Like [`write`](Self::write), for a frame that lies in pieces.
    pub fn write_segments(
        &mut self,
        interface: InterfaceId,
        time: Timestamp,
        segments: &[&[u8]],
        original_len: u32,
    ) -> io::Result<()> {
        self.write_block(interface, time, segments, original_len, &[])
    }

    /// The same of a frame that came in at the interface, or left by it.
    pub fn write_directed(
        &mut self,
        interface: InterfaceId,
        time: Timestamp,
        segments: &[&[u8]],
        original_len: u32,
        direction: Direction,
    ) -> io::Result<()> {
        let mut options = [0; 12];
        put(&mut options, [EPB_FLAGS | 4 << 16, direction as u32, 0]);
        self.write_block(interface, time, segments, original_len, &options)
    }

    fn write_block(
        &mut self,
        interface: InterfaceId,
        time: Timestamp,
        segments: &[&[u8]],
        original_len: u32,
        options: &[u8],
    ) -> io::Result<()> {
        if interface.0 >= self.interfaces {
            return Err(invalid("the interface was not added to this capture"));
        }
        let captured = captured_len(segments)?;
        let ticks = u64::try_from(time.nanos()).map_err(|_| invalid("a pcapng file cannot hold the packet's time"))?;
        let len = 28 + padded(captured) + options.len() as u32 + 4;
        let mut head = [0; 28];
        let (high, low) = ((ticks >> 32) as u32, ticks as u32);
        put(&mut head, [ENHANCED_PACKET, len, interface.0, high, low, captured, original_len]);
        self.inner.write_all(&head)?;
        segments.iter().try_for_each(|s| self.inner.write_all(s))?;
        self.inner.write_all(padding(captured))?;
        self.inner.write_all(options)?;
        self.inner.write_all(&len.to_le_bytes())
    }

    /// Passes on what the underlying writer has buffered.
    pub fn flush(&mut self) -> io::Result<()> {
        self.inner.flush()
    }

    /// The underlying writer.
    pub fn into_inner(self) -> W {
        self.inner
    }
}

/// Fills `out` with little-endian words.
fn put<const WORDS: usize>(out: &mut [u8], words: [u32; WORDS]) {
    for (chunk, word) in out.chunks_exact_mut(4).zip(words) {
        chunk.copy_from_slice(&word.to_le_bytes());
    }
}

/// The next multiple of four; lengths here are far from overflowing.
const fn padded(len: u32) -> u32 {
    (len + 3) & !3
}

fn padding(len: u32) -> &'static [u8] {
    &PADDING[..(padded(len) - len) as usize]
}

fn captured_len(segments: &[&[u8]]) -> io::Result<u32> {
    let len = segments.iter().try_fold(0usize, |sum, s| sum.checked_add(s.len()));
    match len {
        Some(len) if len <= MAX_CAPTURED => Ok(len as u32),
        _ => Err(invalid("the frame is too long for a capture")),
    }
}

fn invalid(why: &'static str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidInput, why)
}
