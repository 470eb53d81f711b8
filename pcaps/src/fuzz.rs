//! The body of a fuzz test of the reader and of what looks at the packets: plain functions, for tests and fuzzers alike.

use std::io::{self, Read};

use softnic_wire::auth::TRAILER_LEN;
use softnic_wire::{bth, icrc};

use crate::analysis::Analysis;
use crate::decode::{Decoder, Dissection, IcrcVerdict};
use crate::faults::{Header, MOST_EVENTS, Observer, Options};
use crate::link::Payload;
use crate::sack::{self, Sack};
use crate::summary::Summary;
use crate::{Frame, Reader, Timestamp, link};

/// Reads `data` as a capture to its end or its fault, whole and then byte by byte; panics where the two differ.
pub fn fuzz_reader(data: &[u8]) {
    assert_eq!(read_all(data), read_all(OneByte(data)), "the reader depends on how the bytes come in");
}

/// Number, time, captured and original length of every packet, then how it ended.
fn read_all(source: impl Read) -> (Vec<(u64, Timestamp, usize, u32)>, String) {
    let (mut frames, mut decoder, mut summary) = (Vec::new(), Decoder::default(), Summary::default());
    let mut analysis = Analysis::default();
    let mut faults = Observer::new(Options { most: MOST_EVENTS, ..Options::default() });
    let mut reader = match Reader::new(source) {
        Ok(reader) => reader,
        Err(e) => return (frames, e.to_string()),
    };
    loop {
        match reader.next_frame() {
            Ok(Some(f)) => {
                look(&f, &mut decoder, &mut summary, &mut analysis, &mut faults);
                frames.push((f.number, f.time, f.data.len(), f.original_len));
            }
            Ok(None) => {
                assert_eq!(summary.frames, frames.len() as u64);
                judge(&mut analysis, summary.frames);
                write_faults(faults, &analysis);
                assert!(summary.seconds() >= 0.0 && summary.bits_per_second() >= 0.0);
                return (frames, String::new());
            }
            Err(e) => {
                assert!(matches!(reader.next_frame(), Ok(None)), "something was read beyond the fault");
                return (frames, e.to_string());
            }
        }
    }
}

/// Decodes a frame as `softnic inspect` and `softnic faults` do.
fn look(
    frame: &Frame<'_>,
    decoder: &mut Decoder,
    summary: &mut Summary,
    analysis: &mut Analysis,
    faults: &mut Observer,
) {
    let decoded = match link::payload(frame.link, frame.data) {
        Ok(Payload::Ethernet(data)) => decoder.decode_ethernet(data),
        Ok(Payload::Network { ethertype, offset }) => decoder.decode_network(frame.data, ethertype, offset),
        Ok(Payload::Unsupported(_)) => return summary.skip(),
        Err(e) => return summary.add_other(&e),
    };
    match decoded {
        Ok(d) => {
            check_packet(frame.data, &d);
            let order = summary.add(&d, frame.time.nanos(), frame.original_len);
            let event = analysis.add(frame.number, frame.time, &d, order);
            faults.add(frame.number, frame.time, frame.data, &d, event);
        }
        Err(e) => summary.add_other(&e),
    }
}

/// Asks for everything that was found; a verdict names packets of the capture.
fn judge(analysis: &mut Analysis, frames: u64) {
    analysis.finish();
    for c in analysis.connections() {
        let _ = format!("{c} {:?}", c.directions.map(|d| d.and_then(|d| d.round_trips.quantile(0.99))));
    }
    for v in analysis.verdicts() {
        let _ = format!("{} {} {}", v.finding, v.packets, v.finding.advice());
        assert!(v.packets.count() > 0 && v.packets.count() <= 2 * frames + 2, "{v:?}");
    }
}

/// Writes the faults of a capture as a script.
fn write_faults(faults: Observer, analysis: &Analysis) {
    let report = faults.finish(analysis);
    assert!(report.events.len() <= MOST_EVENTS);
    let mut script = String::new();
    report.write_script(&Header::default(), &mut script).expect("a string takes everything");
}

/// Does everything that is done with a decoded packet; panics where it contradicts the bytes.
pub fn check_packet(frame: &[u8], d: &Dissection<'_>) {
    Summary::default().add(d, 0, frame.len() as u32);
    let _ = format!("{} {d:?}", d.ext);
    if let Some(sack) = Sack::of(d) {
        let _ = sack.to_string();
        assert!(
            sack.bitmap.is_none_or(|m| m.received + m.missing <= sack.bits && m.first_missing.len() <= sack::SHOWN)
        );
    }
    let _ = d.repair_header().map(|h| h.to_string());
    if d.icrc == IcrcVerdict::Ok {
        assert_eq!(icrc::verify_shared(frame, &d.layout), Ok(()), "what we call right is what a NIC would accept");
    }
    assert!(d.payload.len() <= d.payload_len.unwrap_or(0));
    if let (Some(len), Some(pad), Some(op)) = (d.payload_len, d.pad, d.opcode) {
        let sum = d.layout.bth + bth::LEN + op.headers_len() + len + usize::from(pad) + icrc::LEN;
        // A trailer that was cut off is there all the same.
        let trailers: &[usize] = if d.trailer.is_some() { &[TRAILER_LEN] } else { &[0, TRAILER_LEN] };
        assert!(trailers.iter().any(|trailer| sum + trailer == d.layout.end), "{sum} of {}", d.layout.end);
    }
}

/// The slowest pipe there is.
struct OneByte<'a>(&'a [u8]);

impl Read for OneByte<'_> {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        let n = out.len().min(1);
        self.0.read(&mut out[..n])
    }
}
