//! The packets of a capture, as a NIC could take them, and what cannot be replayed of them.

use std::collections::BTreeMap;
use std::fmt;
use std::io::Read;
use std::net::IpAddr;
use std::ops::Range;

use softnic_pcaps::decode::{self, Dissection, IcrcVerdict};
use softnic_pcaps::{Frame, Payload, Reader};
use softnic_wire::opcode::Service;
use softnic_wire::{Carrier, Error, ExtHeaders, Layout, Opcode, Psn, Qpn, ethernet, icrc, ipv4};

/// Why a frame takes no part in the replay.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Skip {
    /// Not a RoCE packet.
    OtherProtocol,
    /// The frame's link type or headers are not understood, or they contradict each other.
    NotDecoded,
    /// RoCEv1: our NIC has no such port.
    RoceV1,
    /// The ICRC is wrong: every NIC drops it.
    BadIcrc,
    /// The capture cut it within its headers.
    Truncated,
    /// The checksum of its IPv4 header is wrong: every host drops it.
    BadIpChecksum,
    /// Management datagrams to QP1 that belong to no exchange of connection managers, or to one that began before the capture.
    Management,
    /// Congestion notifications: they change when a NIC sends, not what.
    Cnp,
    /// Of Selective Repeat, on a connection that the capture does not show from its beginning.
    SelectiveRepeat,
    /// Notices and requests of LoWAR: they say R and C, which every repair packet says too.
    Lowar,
    /// Of XP: what such a NIC sends depends on deadlines, which are in no packet.
    BestEffort,
    /// An opcode of a service that our NIC does not have, or of none.
    Opcode,
    /// Answers to requests that are not in the capture.
    NoRequests,
    /// Nobody can tell to which connection it belongs, or with which numbers that would be rebuilt.
    NoConnection,
}

impl Skip {
    /// A short name, as in the JSON output.
    pub const fn name(self) -> &'static str {
        match self {
            Skip::OtherProtocol => "other_protocol",
            Skip::NotDecoded => "not_decoded",
            Skip::RoceV1 => "roce_v1",
            Skip::BadIcrc => "bad_icrc",
            Skip::Truncated => "truncated",
            Skip::BadIpChecksum => "bad_ip_checksum",
            Skip::Management => "qp1",
            Skip::Cnp => "cnp",
            Skip::SelectiveRepeat => "sr",
            Skip::Lowar => "lowar",
            Skip::BestEffort => "xp",
            Skip::Opcode => "opcode",
            Skip::NoRequests => "no_requests",
            Skip::NoConnection => "no_connection",
        }
    }
}

impl fmt::Display for Skip {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Skip::OtherProtocol => "of other protocols",
            Skip::NotDecoded => "not decoded",
            Skip::RoceV1 => "RoCEv1",
            Skip::BadIcrc => "with a wrong ICRC, which a NIC drops",
            Skip::Truncated => "cut off within their headers",
            Skip::BadIpChecksum => "with a wrong IPv4 checksum",
            Skip::Management => "to QP1, of no exchange that begins in the capture",
            Skip::Cnp => "congestion notifications",
            Skip::SelectiveRepeat => {
                "of Selective Repeat (sr), without the negotiation of their connections (see --begins)"
            }
            Skip::Lowar => "notices and requests of LoWAR (lowar), which every repair packet repeats",
            Skip::BestEffort => "of best effort (xp), whose deadlines are in no packet",
            Skip::Opcode => "with an opcode that our NIC does not have",
            Skip::NoRequests => "answers without any request in the capture",
            Skip::NoConnection => "of no connection that can be rebuilt",
        })
    }
}

/// A RoCE packet of the capture, in an Ethernet frame.
#[derive(Debug, Clone)]
pub(crate) struct Packet {
    /// Frame number, from 1.
    pub(crate) number: u64,
    /// Nanoseconds since the first frame; never going back.
    pub(crate) time: u64,
    pub(crate) src: IpAddr,
    pub(crate) dst: IpAddr,
    pub(crate) frame: Vec<u8>,
    pub(crate) layout: Layout,
    pub(crate) opcode: Opcode,
    pub(crate) dest_qp: Qpn,
    pub(crate) psn: Psn,
    pub(crate) solicited: bool,
    pub(crate) ack_req: bool,
    pub(crate) mig_req: bool,
    pub(crate) ext: ExtHeaders,
    pub(crate) payload: Range<usize>,
    /// All bytes of the payload were captured; else those missing are zeros here.
    pub(crate) whole: bool,
    /// IPv4 identification, where there is one.
    pub(crate) ip_id: Option<u16>,
}

impl Packet {
    pub(crate) fn payload(&self) -> &[u8] {
        self.frame.get(self.payload.clone()).unwrap_or_default()
    }
}

/// What was read of a capture.
#[derive(Debug, Default)]
pub(crate) struct Capture {
    pub(crate) frames: u64,
    pub(crate) packets: Vec<Packet>,
    pub(crate) skipped: BTreeMap<Skip, u64>,
    /// Packets to QP1: they tell of connections, and are replayed on their own.
    pub(crate) management: Vec<Packet>,
    /// Why reading ended before the end of the file.
    pub(crate) fault: Option<softnic_pcaps::Error>,
    start: Option<i128>,
    last_time: u64,
}

impl Capture {
    /// Reads a capture to its end or its fault; an error where there is nothing at all.
    pub(crate) fn read(source: impl Read) -> Result<Capture, softnic_pcaps::Error> {
        let mut reader = Reader::new(source)?;
        let mut capture = Capture::default();
        loop {
            match reader.next_frame() {
                Ok(Some(frame)) => capture.add(&frame),
                Ok(None) => break,
                Err(e) => {
                    capture.fault = Some(e);
                    break;
                }
            }
        }
        Ok(capture)
    }

    pub(crate) fn skip(&mut self, why: Skip) {
        *self.skipped.entry(why).or_default() += 1;
    }

    fn add(&mut self, frame: &Frame<'_>) {
        self.frames += 1;
        let start = *self.start.get_or_insert(frame.time.nanos());
        // A capture of several interfaces may be out of order by a little: the order of the file is what counts.
        let time = u64::try_from(frame.time.nanos() - start).unwrap_or(0).min(u64::MAX / 4).max(self.last_time);
        self.last_time = time;
        let ethernet = match softnic_pcaps::payload(frame.link, frame.data) {
            Ok(Payload::Ethernet(data)) => data.to_vec(),
            Ok(Payload::Network { ethertype, offset }) => as_ethernet(ethertype, &frame.data[offset..]),
            Ok(Payload::Unsupported(_)) => return self.skip(Skip::NotDecoded),
            Err(_) => return self.skip(Skip::OtherProtocol),
        };
        let decoded = match decode::decode_ethernet(&ethernet) {
            Ok(decoded) => decoded,
            Err(Error::NotRoce(_)) => return self.skip(Skip::OtherProtocol),
            Err(Error::Truncated { .. }) => return self.skip(Skip::Truncated),
            Err(_) => return self.skip(Skip::NotDecoded),
        };
        match packet(frame.number, time, &ethernet, &decoded) {
            Ok(p) if p.opcode.service() == Service::Ud && p.dest_qp == Qpn::GSI => {
                self.management.push(p);
            }
            Ok(p) => self.packets.push(p),
            Err(why) => self.skip(why),
        }
    }
}

/// A network layer with an Ethernet header before it.
fn as_ethernet(ethertype: u16, network: &[u8]) -> Vec<u8> {
    let mut frame = vec![0; ethernet::LEN - 2];
    frame.extend(ethertype.to_be_bytes());
    frame.extend(network);
    frame
}

/// A packet of a frame, or why it takes no part.
pub(crate) fn packet(number: u64, time: u64, frame: &[u8], d: &Dissection<'_>) -> Result<Packet, Skip> {
    if d.layout.carrier == Carrier::RoceV1 {
        return Err(Skip::RoceV1);
    }
    if d.problem.is_some() {
        return Err(Skip::NotDecoded);
    }
    if d.icrc == IcrcVerdict::Bad {
        return Err(Skip::BadIcrc);
    }
    let (Some(opcode), Some(dest_qp), Some(psn), Some(len)) = (d.opcode, d.dest_qp, d.psn, d.payload_len) else {
        return Err(Skip::Truncated);
    };
    if !d.headers_complete() {
        return Err(Skip::Truncated);
    }
    if opcode == Opcode::CNP {
        return Err(Skip::Cnp);
    }
    if opcode.is_known() && opcode.service() == Service::Xp {
        return Err(Skip::BestEffort);
    }
    if !opcode.is_known() || !matches!(opcode.service(), Service::Rc | Service::Uc | Service::Ud | Service::Sr) {
        return Err(Skip::Opcode);
    }
    let ip = (d.layout.carrier == Carrier::Ipv4).then(|| ipv4::Packet::new_unchecked(&frame[d.layout.network..]));
    if ip.as_ref().is_some_and(|ip| !ip.verify_checksum()) {
        return Err(Skip::BadIpChecksum);
    }
    let whole = d.icrc == IcrcVerdict::Ok;
    let mut bytes = frame[..d.layout.end.min(frame.len())].to_vec();
    let at = d.layout.bth + softnic_wire::bth::LEN + opcode.headers_len();
    if !whole {
        // The headers tell what a NIC answers; for what is missing of the payload stand zeros.
        bytes.resize(d.layout.end, 0);
        sign(&mut bytes, &d.layout);
    }
    Ok(Packet {
        number,
        time,
        src: d.src,
        dst: d.dst,
        layout: d.layout,
        opcode,
        dest_qp,
        psn,
        solicited: d.solicited.unwrap_or(false),
        ack_req: d.ack_req.unwrap_or(false),
        mig_req: d.mig_req.unwrap_or(false),
        ext: d.ext,
        payload: at..at + len,
        whole,
        ip_id: ip.map(|ip| ip.id()),
        frame: bytes,
    })
}

/// Makes the ICRC right.
pub(crate) fn sign(frame: &mut [u8], layout: &Layout) {
    if let Err(Error::Icrc { expected, .. }) = icrc::verify_shared(frame, layout)
        && let Some(end) = layout.end.checked_sub(icrc::LEN)
        && let Some(place) = frame.get_mut(end..layout.end)
    {
        place.copy_from_slice(&expected.to_le_bytes());
    }
}
