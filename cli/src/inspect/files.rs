//! Several captures as one: frames by their times, and packets that were seen at more than one place.

use std::collections::{HashMap, VecDeque};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io::{self, Read};

use softnic_pcaps::decode::Dissection;
use softnic_pcaps::groups::Place;
use softnic_pcaps::{Error, Frame, LinkType, PacketNumber, Reader, Timestamp};

/// Packets that are remembered to find them in another capture.
const REMEMBERED: usize = 1 << 18;

/// A frame that waits for its turn.
struct Waiting {
    number: u64,
    time: Timestamp,
    interface: Option<u32>,
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
            let Frame { number, time, interface, link, original_len, .. } = frame;
            Waiting { number, time, interface, link, data, original_len }
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
        if let Some(waiting) = &source.next {
            let Waiting { number, time, interface, link, ref data, original_len } = *waiting;
            let number = PacketNumber::in_file(n as u16 + 1, number).0;
            if !show(&Frame { number, time, interface, link, data, original_len })? {
                return Ok(errors);
            }
        }
        if let Err(e) = source.advance() {
            errors.push((n, e));
            open[n] = None;
        }
    }
}

/// Places that are told apart.
const MOST_PLACES: usize = 64;

/// Finds packets that were seen at another place already, in another file or at another interface: what one end sent and the other received.
#[derive(Debug, Default)]
pub(super) struct Copies {
    places: Vec<Place>,
    /// By what is in a packet: each packet that was seen, and the places that it was seen at.
    seen: HashMap<u64, VecDeque<(PacketNumber, u64)>>,
    order: VecDeque<u64>,
    found: u64,
}

impl Copies {
    /// The packet of another place that this one is, if there is one. Of equal packets, each place's first is one packet, each place's second the next.
    pub(super) fn find(
        &mut self,
        number: PacketNumber,
        place: Place,
        packet: &Dissection<'_>,
        data: &[u8],
    ) -> Option<PacketNumber> {
        let place = 1u64 << self.number_of(place)?;
        let content = data.get(packet.layout.bth..packet.layout.end.min(data.len()))?;
        let mut hasher = DefaultHasher::new();
        (packet.src, packet.dst, content.get(..4), content.get(5..)).hash(&mut hasher);
        let key = hasher.finish();
        let equal = self.seen.entry(key).or_default();
        if let Some((first, places)) = equal.iter_mut().find(|(_, places)| places & place == 0) {
            *places |= place;
            self.found += 1;
            return Some(*first);
        }
        equal.push_back((number, place));
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

    /// Which place it is; none where there is one alone, and of those that are too many.
    fn number_of(&mut self, place: Place) -> Option<usize> {
        if !place.is_one_of_several() {
            return None;
        }
        let known = self.places.iter().position(|p| *p == place);
        if known.is_none() && self.places.len() < MOST_PLACES {
            self.places.push(place);
            return Some(self.places.len() - 1);
        }
        known
    }

    /// How many were found; `None` where there is one place alone.
    pub(super) fn found(&self) -> Option<u64> {
        (!self.places.is_empty()).then_some(self.found)
    }
}
