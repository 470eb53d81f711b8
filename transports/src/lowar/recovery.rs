//! Recovers a missing packet from a repair packet and the sum of those that arrived, and verifies that it is the packet that was sent.

use softnic_codes::xor;
use softnic_wire::lowar::RepairHeader;
use softnic_wire::{Layout, Opcode, Psn, bth, icrc};

use super::buffers::{Buffers, Place, Unit};
use super::{Code, Stream, digest_of, psn_of};
use crate::planted::{Bug, planted};
use crate::qp::PayloadMode;
use crate::shim::ReceivedFrame;

/// A repair packet.
pub(super) struct Repair<'a> {
    pub(super) header: RepairHeader,
    pub(super) code: Code,
    /// bPSN.
    pub(super) base: Psn,
    pub(super) received: &'a ReceivedFrame<'a>,
}

/// The connection that the packets belong to.
pub(super) struct Context {
    pub(super) mtu: usize,
    pub(super) payload: PayloadMode,
}

/// The recovered packet is not the one that was sent: the repair packet is of other packets, or is wrong.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct NotRecovered;

/// The offset of the sum from the BTH of the repair packet.
const SUM: usize = bth::LEN + RepairHeader::LEN;

/// Recovers the packet at `offset` of the block into the ring; also returns whether another packet's slot was taken.
pub(super) fn recover(
    repair: &Repair<'_>,
    unit: Unit,
    offset: u32,
    context: &Context,
    buffers: &mut Buffers,
) -> Result<(Place, bool), NotRecovered> {
    let ReceivedFrame { frame, bth: at, end } = *repair.received;
    let end_here = match context.payload {
        PayloadMode::Real => end.saturating_sub(icrc::LEN),
        PayloadMode::Elided => frame.len(),
    };
    let sum = frame.get(at + SUM..end_here).ok_or(NotRecovered)?;
    let wire_len = end.checked_sub(icrc::LEN + at + SUM).ok_or(NotRecovered)?;
    let (rest, rest_len, rest_digest) = buffers.decoding.sum(unit);
    // The sum of all packets is as long as the longest one, so none that arrived is longer.
    if rest.len() > sum.len() || rest_len > wire_len {
        return Err(NotRecovered);
    }
    let (place, room, overran) = buffers.ring.put(at + sum.len()).ok_or(NotRecovered)?;
    let (network, body) = room.split_at_mut(at);
    network.copy_from_slice(&frame[..at]);
    body.copy_from_slice(sum);
    xor(body, rest);
    let len = prove(repair, offset, body, wire_len, rest_digest, context);
    let done = len.and_then(|len| {
        // The headers before it are those of the repair packet, which took the same path.
        let layout = Layout::locate(room).map_err(|_| NotRecovered)?;
        layout.set_end(room, at + len);
        let there = at + len.min(room.len() - at);
        let room = &mut room[..there];
        if context.payload == PayloadMode::Real {
            let layout = Layout::locate(room).map_err(|_| NotRecovered)?;
            layout.check(room.len()).map_err(|_| NotRecovered)?;
            icrc::verify(room, &layout).map_err(|_| NotRecovered)?;
        }
        Ok(there)
    });
    match done {
        Ok(there) => {
            buffers.ring.shorten(place, there);
            Ok((place, overran))
        }
        Err(e) => {
            buffers.ring.clear(place);
            Err(e)
        }
    }
}

/// Checks a recovered packet against all known facts; returns its length on the wire.
fn prove(
    repair: &Repair<'_>,
    offset: u32,
    body: &mut [u8],
    wire_len: usize,
    rest_digest: u32,
    context: &Context,
) -> Result<usize, NotRecovered> {
    let h = &repair.header;
    let own = repair.received.frame.get(repair.received.bth..).and_then(|b| b.first_chunk::<{ bth::LEN }>());
    let (Some(head), Some(own)) = (body.first_chunk_mut::<{ bth::LEN }>(), own) else { return Err(NotRecovered) };
    // The bits that a router may change are in no ICRC.
    bth::Packet::new_unchecked(&mut head[..]).set_congestion(false, false);
    let opcode = Opcode(head[0]);
    let last = offset + 1 == u32::from(h.n);
    let right = Stream::of(opcode) == Some(Stream::of_responses(h.responses))
        && psn_of(head) == repair.base.add(offset)
        && opcode.begins_message() == (offset == 0 && h.has_first)
        && opcode.ends_message() == (last && h.has_last)
        && head[2..4] == own[2..4]
        && head[5..8] == own[5..8];
    if !right {
        return Err(NotRecovered);
    }
    let headers = bth::LEN + opcode.headers_len();
    let len = if last { usize::from(h.last_len) } else { headers + context.mtu + icrc::LEN };
    if len < headers + icrc::LEN || len > wire_len {
        return Err(NotRecovered);
    }
    let (packet, digest) = match context.payload {
        PayloadMode::Real => {
            let (packet, behind) = body.split_at_checked(len).ok_or(NotRecovered)?;
            if behind.iter().any(|&b| b != 0) {
                return Err(NotRecovered);
            }
            let tail = *packet.last_chunk().unwrap_or(&[0; icrc::LEN]);
            (packet, digest_of(packet, tail, context.payload))
        }
        PayloadMode::Elided => (&*body, digest_of(body, [0; icrc::LEN], context.payload)),
    };
    let same = rest_digest.wrapping_add(digest) == h.digest || planted(Bug::LowarDigest);
    if packet.len() < headers || !same {
        return Err(NotRecovered);
    }
    Ok(len)
}
