//! The acknowledgement packet: cumulative, selective as far as the bitmap has room (SDR-RDMA, section 4.1.1), and with the AETH of RC.

use softnic_wire::aeth::{Aeth, Syndrome};
use softnic_wire::opcode::HeaderSet;
use softnic_wire::sr::SrEth;
use softnic_wire::{ExtHeaders, Opcode, PacketFields, TxFrame};

use super::arrivals::{Arrivals, BitmapSpan};
use super::flight::Selective;
use super::numbers::Numbers;
use crate::Inbound;
use crate::message::Link;

/// The fields of an acknowledgement, without its bitmap.
#[derive(Debug, Clone, Copy)]
pub(super) struct AckContents {
    /// Acknowledges answers with data rather than requests.
    pub(super) responses: bool,
    /// The packet that the acknowledgement is about; everything before it has arrived.
    pub(super) expected: u64,
    pub(super) syndrome: Syndrome,
    pub(super) msn: u32,
}

/// Writes the acknowledgement that is due; returns `false` if the frame has no room.
pub(super) fn emit(
    tx: &mut TxFrame<'_>,
    link: &Link,
    arrivals: &mut Arrivals,
    numbers: Numbers,
    contents: &AckContents,
) -> bool {
    let headers = HeaderSet::SR.with(HeaderSet::AETH).len();
    let room = tx.capacity().saturating_sub(link.template.frame_len(headers, 0));
    let room = room.min(link.mtu.bytes() as usize) / 4 * 4;
    let BitmapSpan { first, bits, furthest } = arrivals.acknowledge(room as u32 * 8);
    let flag = |there, flag| if there { flag } else { 0 };
    let flags = flag(contents.responses, SrEth::RESPONSES) | flag(furthest, SrEth::FURTHEST);
    let ext = ExtHeaders {
        sr: Some(SrEth { flags, number: numbers.psn(first).value(), offset: bits }),
        aeth: Some(Aeth { syndrome: contents.syndrome, msn: contents.msn & 0x00ff_ffff }),
        ..ExtHeaders::default()
    };
    let fields = PacketFields {
        opcode: Opcode::SR_ACKNOWLEDGE,
        psn: numbers.psn(contents.expected),
        ack_req: false,
        solicited: false,
        becn: false,
        payload_len: bits.div_ceil(8) as usize,
    };
    // Complete even if payload is elided, because the bitmap is used.
    let Ok(started) = link.template.start(tx, &fields, &ext) else { return false };
    let (a, b) = tx.slices_mut(started.payload, fields.payload_len);
    let in_first = a.len() as u32 * 8;
    arrivals.write_bits(first, bits.min(in_first), a);
    arrivals.write_bits(first + u64::from(in_first), bits.saturating_sub(in_first), b);
    link.template.finish(tx, started);
    true
}

/// Parses an acknowledgement of packets near `near`: the expected packet, and the bits. `None` if it is about packets that never existed.
pub(super) fn parse<'a>(packet: &Inbound<'a>, numbers: Numbers, near: u64) -> Option<(u64, Selective<'a>)> {
    let sr = packet.ext.sr?;
    let expected = numbers.number(packet.bth.psn, near)?;
    let bits = sr.offset.min(packet.payload.len() as u32 * 8);
    let first = numbers.number(softnic_wire::Psn::new(sr.number), expected)?;
    let furthest = sr.flags & SrEth::FURTHEST != 0;
    Some((expected, Selective { first, bits, bytes: packet.payload, furthest }))
}
