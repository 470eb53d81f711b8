//! Decoding captured RoCE packets, also those that are cut off or damaged.
//!
//! A NIC refuses what is not whole; whoever looks at a capture wants to see as much of it as there is. So every field that
//! the capture does not hold is `None`, and what is wrong with a packet stands beside it.

use std::fmt;
use std::net::IpAddr;

use softnic_wire::auth::{TRAILER_LEN, Trailer};
use softnic_wire::lowar::{RepairHeader, Type};
use softnic_wire::{Error, ExtHeaders, Layout, Opcode, Psn, Qpn, bth, icrc};

use crate::authenticated::Authenticated;
use crate::sack::bitmap_len;
use crate::sdr::{Negotiated, SdrChannel, SdrPacket};

/// What can be said of a packet's ICRC.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum IcrcVerdict {
    /// It matches.
    Ok,
    /// It does not match, or the packet's length fields contradict each other.
    Bad,
    /// The frame ends before it.
    Truncated,
}

impl fmt::Display for IcrcVerdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            IcrcVerdict::Ok => "ok",
            IcrcVerdict::Bad => "bad",
            IcrcVerdict::Truncated => "truncated",
        })
    }
}

/// A RoCE packet as far as it was captured. Fields that are cut off are `None`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Dissection<'a> {
    /// Where the parts lie in the frame.
    pub layout: Layout,
    /// Source address.
    pub src: IpAddr,
    /// Destination address.
    pub dst: IpAddr,
    /// UDP source port; `None` in RoCEv1.
    pub src_port: Option<u16>,
    /// DSCP and ECN.
    pub traffic_class: u8,
    /// The operation.
    pub opcode: Option<Opcode>,
    /// Solicited event.
    pub solicited: Option<bool>,
    /// Path migration state.
    pub mig_req: Option<bool>,
    /// Pad bytes.
    pub pad: Option<u8>,
    /// Partition key.
    pub pkey: Option<u16>,
    /// Forward congestion notification.
    pub fecn: Option<bool>,
    /// Backward congestion notification.
    pub becn: Option<bool>,
    /// Destination queue pair.
    pub dest_qp: Option<Qpn>,
    /// Acknowledgement wanted.
    pub ack_req: Option<bool>,
    /// Packet sequence number.
    pub psn: Option<Psn>,
    /// The extension headers that were captured whole.
    pub ext: ExtHeaders,
    /// Bytes of payload by the packet's length fields, also where fewer were captured.
    pub payload_len: Option<usize>,
    /// The payload as far as it was captured.
    pub payload: &'a [u8],
    /// The trailer of an authenticated packet, where a [`Decoder`] knows that there is one.
    pub trailer: Option<Trailer>,
    /// What it is to SDR, where a [`Decoder`] knows that it is anything.
    pub sdr: Option<SdrPacket>,
    /// What the negotiation before it says of the queue pair that it goes to, if it is data of SDR.
    pub sdr_channel: Option<SdrChannel>,
    /// What can be said of the ICRC.
    pub icrc: IcrcVerdict,
    /// What is wrong with the packet itself, apart from its ICRC.
    pub problem: Option<Error>,
}

/// Decodes an Ethernet frame of which `frame` was captured.
pub fn decode_ethernet(frame: &[u8]) -> Result<Dissection<'_>, Error> {
    Decoder::default().decode_ethernet(frame)
}

/// Decodes a frame whose network header of kind `ethertype` begins at `offset`.
pub fn decode_network(frame: &[u8], ethertype: u16, offset: usize) -> Result<Dissection<'_>, Error> {
    Decoder::default().decode_network(frame, ethertype, offset)
}

/// Decodes the frames of a capture one after the other: what one says about those behind it is remembered.
#[derive(Debug, Default)]
pub struct Decoder {
    authenticated: Authenticated,
    sdr: Negotiated,
}

impl Decoder {
    /// Decodes an Ethernet frame of which `frame` was captured.
    pub fn decode_ethernet<'a>(&mut self, frame: &'a [u8]) -> Result<Dissection<'a>, Error> {
        self.decode_at(frame, Layout::locate(frame)?)
    }

    /// Decodes a frame whose network header of kind `ethertype` begins at `offset`.
    pub fn decode_network<'a>(
        &mut self,
        frame: &'a [u8],
        ethertype: u16,
        offset: usize,
    ) -> Result<Dissection<'a>, Error> {
        self.decode_at(frame, Layout::locate_network(frame, ethertype, offset)?)
    }

    fn decode_at<'a>(&mut self, frame: &'a [u8], layout: Layout) -> Result<Dissection<'a>, Error> {
        let mut packet = decode_at(frame, layout, &self.authenticated)?;
        self.authenticated.follow(&packet);
        self.sdr.follow(&packet);
        if let (Some(opcode), Some(qpn)) = (packet.opcode, packet.dest_qp) {
            let end = (packet.src, packet.dst, qpn);
            packet.sdr = self.sdr.packet(end, opcode, &packet.ext, packet.payload);
            packet.sdr_channel = packet.sdr.and_then(|_| self.sdr.channel(end));
        }
        Ok(packet)
    }
}

/// Decodes a frame of which it is known where its parts lie.
pub(crate) fn decode_located(frame: &[u8], layout: Layout) -> Result<Dissection<'_>, Error> {
    decode_at(frame, layout, &Authenticated::default())
}

fn decode_at<'a>(frame: &'a [u8], layout: Layout, authenticated: &Authenticated) -> Result<Dissection<'a>, Error> {
    let Some((src, dst)) = layout.addresses(frame) else {
        return Err(Error::Truncated { what: "IP header", need: layout.udp, have: frame.len() });
    };
    // The packet's own bytes: not what lies behind it in the frame, and neither ICRC nor trailer.
    let icrc_at = layout.end.saturating_sub(icrc::LEN);
    let whole = frame.get(layout.bth..icrc_at.min(frame.len())).unwrap_or_default();
    let fields = PartialBth(whole);
    let dest_qp = fields.number(5, 3).map(Qpn::new);
    let is_authenticated = dest_qp.is_some_and(|qpn| authenticated.contains(src, dst, qpn));
    let trailer_at = icrc_at.checked_sub(TRAILER_LEN).filter(|&at| is_authenticated && at >= layout.bth + bth::LEN);
    let captured = |at: usize| frame.get(at..).and_then(<[u8]>::first_chunk);
    // One that was cut off is there all the same.
    let trailer_at = trailer_at.filter(|&at| captured(at).is_none_or(|bytes| Trailer::parse(bytes).is_some()));
    let trailer = trailer_at.and_then(captured).and_then(Trailer::parse);
    let body_end = trailer_at.unwrap_or(icrc_at);
    let body = &whole[..whole.len().min(body_end.saturating_sub(layout.bth))];
    let opcode = fields.byte(0).map(Opcode);
    let ext_at = bth::LEN.min(body.len());
    let headers_len = opcode.map_or(0, Opcode::headers_len);
    let ext = opcode.map_or_else(ExtHeaders::default, |op| ExtHeaders::parse_available(op, &body[ext_at..]));
    let pad = fields.byte(1).map(|b| (b >> 4) & 3);

    // By the length fields, not by what was captured.
    let declared = body_end.checked_sub(layout.bth + bth::LEN + headers_len);
    let payload_len = match (opcode, pad) {
        (Some(_), Some(pad)) => declared.and_then(|n| n.checked_sub(usize::from(pad))),
        _ => None,
    };
    let captured = body.get(bth::LEN + headers_len..).unwrap_or_default();
    let payload = &captured[..captured.len().min(payload_len.unwrap_or(0))];

    let lengths = layout.check(usize::MAX).err();
    let problem = lengths.or(match (opcode, declared, payload_len) {
        (Some(_), None, _) => {
            Some(Error::Malformed { what: "RoCE packet", why: "too short for the headers of its opcode" })
        }
        (Some(_), Some(_), None) if pad.is_some() => {
            Some(Error::Malformed { what: "BTH", why: "more padding than payload" })
        }
        (Some(Opcode::SR_ACKNOWLEDGE), _, Some(len)) if ext.sr.is_some_and(|sr| bitmap_len(sr.offset) != len) => {
            Some(Error::Malformed {
                what: "SR acknowledgement",
                why: "its bitmap has not the bits that its header says",
            })
        }
        (Some(Opcode::LOWAR), _, Some(len)) => lowar_problem(payload, len),
        _ => None,
    });
    let icrc = match icrc::verify_shared(frame, &layout) {
        Ok(()) => IcrcVerdict::Ok,
        Err(Error::Truncated { .. }) => IcrcVerdict::Truncated,
        Err(_) => IcrcVerdict::Bad,
    };
    Ok(Dissection {
        layout,
        src,
        dst,
        src_port: layout.src_port(frame),
        traffic_class: layout.traffic_class(frame).unwrap_or(0),
        opcode,
        solicited: fields.bit(1, 0x80),
        mig_req: fields.bit(1, 0x40),
        pad,
        pkey: fields.number(2, 2).map(|v| v as u16),
        fecn: fields.bit(4, 0x80),
        becn: fields.bit(4, 0x40),
        dest_qp,
        ack_req: fields.bit(8, 0x80),
        psn: fields.number(9, 3).map(Psn::new),
        ext,
        payload_len,
        payload,
        trailer,
        sdr: None,
        sdr_channel: None,
        icrc,
        problem,
    })
}

/// What is wrong with what follows the BTH of a LoWAR packet, as far as it was captured; it is `len` bytes long.
fn lowar_problem(payload: &[u8], len: usize) -> Option<Error> {
    let malformed = |why| Some(Error::Malformed { what: "LoWAR packet", why });
    if len < RepairHeader::LEN {
        return malformed("too short for its header");
    }
    match RepairHeader::parse(payload.first_chunk()?) {
        None => malformed("it is of no type that there is"),
        Some(h) if h.kind != Type::Repair && len > RepairHeader::LEN => malformed("something follows its header"),
        Some(_) => None,
    }
}

/// A BTH of which the end may be missing.
struct PartialBth<'a>(&'a [u8]);

impl PartialBth<'_> {
    fn byte(&self, at: usize) -> Option<u8> {
        self.0.get(at).copied()
    }

    fn bit(&self, at: usize, mask: u8) -> Option<bool> {
        self.byte(at).map(|b| b & mask != 0)
    }

    fn number(&self, at: usize, len: usize) -> Option<u32> {
        Some(self.0.get(at..at + len)?.iter().fold(0, |v, &b| v << 8 | u32::from(b)))
    }
}

impl Dissection<'_> {
    /// The Repair Header of a LoWAR packet, where it was captured and is of a known type.
    pub fn repair_header(&self) -> Option<RepairHeader> {
        match self.opcode? {
            Opcode::LOWAR => RepairHeader::parse(self.payload.first_chunk()?),
            _ => None,
        }
    }

    /// Whether all headers of the opcode were captured.
    pub fn headers_complete(&self) -> bool {
        self.psn.is_some() && self.opcode.is_some_and(|op| self.ext.set() == op.headers())
    }
}
