//! Several captures as one: frames by their times, and packets that more than one capture has.

use std::collections::{HashMap, VecDeque};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io::{self, Read};

use softnic_pcaps::decode::Dissection;
use softnic_pcaps::{Error, Frame, LinkType, PacketNumber, Reader, Timestamp};

/// Packets that are remembered to find them in another capture.
const REMEMBERED: usize = 1 << 18;

/// A frame that waits for its turn.
struct Waiting {
    number: u64,
    time: Timestamp,
    link: LinkType,
    data: Vec<u8>,
    original_len: u32,
}

/// One of several captures.
struct Source {
    reader: Reader<Box<dyn Read>>,
    next: Option<Waiting>,
}

impl Source {
    fn advance(&mut self) -> Result<(), Error> {
        let mut data = self.next.take().map(|frame| frame.data).unwrap_or_default();
        self.next = self.reader.next_frame()?.map(|frame| {
            data.clear();
            data.extend_from_slice(frame.data);
            let Frame { number, time, link, original_len, .. } = frame;
            Waiting { number, time, link, data, original_len }
        });
        Ok(())
    }
}

/// Reads captures together, the earliest frame first, until `show` says that it is enough. A capture that cannot be read to its end ends by itself; the
/// others go on. The outer error is the output's; the others are those of captures.
pub(super) fn read_merged(
    sources: Vec<Box<dyn Read>>,
    mut show: impl FnMut(&Frame<'_>) -> io::Result<bool>,
) -> io::Result<Vec<(usize, Error)>> {
    let mut errors = Vec::new();
    let mut open: Vec<Option<Source>> = Vec::new();
    for (n, source) in sources.into_iter().enumerate() {
        let begun = Reader::new(source).map(|reader| Source { reader, next: None });
        open.push(begun.and_then(|mut source| source.advance().map(|()| source)).map_err(|e| errors.push((n, e))).ok());
    }
    loop {
        let times =
            open.iter().enumerate().filter_map(|(n, source)| Some((source.as_ref()?.next.as_ref()?.time.nanos(), n)));
        let Some((_, n)) = times.min() else { return Ok(errors) };
        let Some(source) = &mut open[n] else { return Ok(errors) };
        if let Some(Waiting { number, time, link, data, original_len }) = &source.next {
            let number = PacketNumber::in_file(n as u16 + 1, *number).0;
            let frame = Frame { number, time: *time, link: *link, data, original_len: *original_len };
            if !show(&frame)? {
                return Ok(errors);
            }
        }
        if let Err(e) = source.advance() {
            errors.push((n, e));
            open[n] = None;
        }
    }
}

/// Finds packets that another capture had already: what one end sent and the other received.
#[derive(Debug, Default)]
pub(super) struct Copies {
    /// By what is in a packet: each packet that was seen, and the files that it was seen in.
    seen: HashMap<u64, VecDeque<(PacketNumber, u64)>>,
    order: VecDeque<u64>,
    found: u64,
}

impl Copies {
    /// The packet of another file that this one is, if there is one. Of equal packets, each file's first is one packet, each file's second the next.
    pub(super) fn find(&mut self, number: PacketNumber, packet: &Dissection<'_>, data: &[u8]) -> Option<PacketNumber> {
        let file = 1u64 << number.file()?.saturating_sub(1).min(63);
        let content = data.get(packet.layout.bth..packet.layout.end.min(data.len()))?;
        let mut hasher = DefaultHasher::new();
        (packet.src, packet.dst, content.get(..4), content.get(5..)).hash(&mut hasher);
        let key = hasher.finish();
        let equal = self.seen.entry(key).or_default();
        if let Some((first, files)) = equal.iter_mut().find(|(_, files)| files & file == 0) {
            *files |= file;
            self.found += 1;
            return Some(*first);
        }
        equal.push_back((number, file));
        self.order.push_back(key);
        if self.order.len() > REMEMBERED
            && let Some(oldest) = self.order.pop_front()
            && let Some(equal) = self.seen.get_mut(&oldest)
        {
            equal.pop_front();
            if equal.is_empty() {
                self.seen.remove(&oldest);
            }
        }
        None
    }

    /// How many were found.
    pub(super) fn found(&self) -> u64 {
        self.found
    }
}
