//! One packet of a SEND or WRITE: its position in the message, its headers, and its payload from memory.

use softnic_wire::ext::Reth;
use softnic_wire::icrc::Icrc;
use softnic_wire::opcode::{Position, Service};
use softnic_wire::segment::opcode_of;
use softnic_wire::sr::SrEth;
use softnic_wire::{ExtHeaders, PacketFields, PathMtu, Psn, Qpn, Template, TxFrame};

use crate::memory::{Access, AccessError, PdId, Region};
use crate::qp::PayloadMode;
use crate::send_queue::{Slot, Source};
use crate::{Memory, SendOp, Sge};

/// A connection: the state shared by both halves of a queue pair.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Link {
    pub(crate) qpn: Qpn,
    pub(crate) pd: PdId,
    pub(crate) template: Template,
    pub(crate) mtu: PathMtu,
    pub(crate) access: Access,
    pub(crate) payload: PayloadMode,
}

/// The position of a packet in a message.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Which {
    /// The service of the packet.
    pub(crate) service: Service,
    /// The index of the packet, from 0.
    pub(crate) index: u32,
    pub(crate) psn: Psn,
    pub(crate) ack_req: bool,
}

/// The position of a packet in a message of `packets` packets.
#[inline]
pub(crate) fn position(index: u32, packets: u32) -> Position {
    match (index == 0, index + 1 == packets) {
        (true, true) => Position::Only,
        (true, false) => Position::First,
        (false, false) => Position::Middle,
        (false, true) => Position::Last,
    }
}

/// Writes one packet of a message of a connected queue pair.
#[inline(always)] // so that headers which this message does not have cost nothing
pub(crate) fn emit(
    tx: &mut TxFrame<'_>,
    link: &Link,
    which: Which,
    slot: &Slot,
    source: &Source<'_>,
    host: &impl Memory,
) -> Result<(), AccessError> {
    let Which { service, index, psn, ack_req } = which;
    let (first, last) = (index == 0, index + 1 == slot.packets);
    let offset = index * link.mtu.bytes();
    let len = if last { slot.len - offset } else { link.mtu.bytes() };
    let mut ext = ExtHeaders::default();
    match slot.op {
        SendOp::Write { remote_addr, rkey } | SendOp::WriteImm { remote_addr, rkey, .. } if first => {
            ext.reth = Some(Reth { va: remote_addr, rkey, len: slot.len });
        }
        // A packet that can arrive out of order contains its own position.
        SendOp::Write { remote_addr, rkey } | SendOp::WriteImm { remote_addr, rkey, .. } if service == Service::Sr => {
            let va = remote_addr.wrapping_add(u64::from(offset));
            ext.reth = Some(Reth { va, rkey, len: slot.len - offset });
        }
        _ => {}
    }
    if service == Service::Sr && slot.uses_receive() && (last || !matches!(slot.op, SendOp::WriteImm { .. })) {
        let number = slot.sends.wrapping_sub(1) & 0x00ff_ffff;
        ext.sr = Some(SrEth { flags: 0, number, offset });
    }
    match slot.op {
        SendOp::SendImm { imm } | SendOp::WriteImm { imm, .. } if last => ext.imm = Some(imm),
        SendOp::SendInv { rkey } if last => ext.ieth = Some(rkey),
        _ => {}
    }
    let opcode = slot.kind().and_then(|kind| opcode_of(service, kind, position(index, slot.packets)));
    let fields = PacketFields {
        opcode: opcode.ok_or(AccessError::Key)?,
        psn,
        ack_req,
        // A WRITE without immediate completes nothing at the peer, so it can request no event (IBA 9.2.3).
        solicited: last && slot.solicited && slot.uses_receive(),
        becn: false,
        payload_len: len as usize,
    };
    let Link { qpn, pd, payload, .. } = *link;
    let from = Gather { qpn, pd, payload, source, access: Access::NONE, offset: u64::from(offset) };
    write(tx, &link.template, &fields, &ext, &from, host)
}

/// The source of a packet's payload.
pub(crate) struct Gather<'a> {
    pub(crate) qpn: Qpn,
    pub(crate) pd: PdId,
    pub(crate) payload: PayloadMode,
    pub(crate) source: &'a Source<'a>,
    /// The required right: none for the program's own memory.
    pub(crate) access: Access,
    /// The offset in the message.
    pub(crate) offset: u64,
}

impl Gather<'_> {
    /// The part of an element from byte `skip` on.
    #[inline]
    pub(crate) fn region(&self, sge: &Sge, skip: u64) -> Region {
        let addr = sge.addr.wrapping_add(skip);
        Region { qpn: self.qpn, pd: self.pd, key: sge.lkey, addr, access: self.access }
    }
}

/// Writes headers, payload and ICRC.
#[inline(always)]
pub(crate) fn write(
    tx: &mut TxFrame<'_>,
    template: &Template,
    fields: &PacketFields,
    ext: &ExtHeaders,
    from: &Gather<'_>,
    host: &impl Memory,
) -> Result<(), AccessError> {
    // A frame that does not fit is an error of the driver, which shows at the first packet; nothing can be sent then.
    if from.payload == PayloadMode::Elided {
        return template.build_elided(tx, fields, ext).map_err(|_| AccessError::Bounds);
    }
    let started = template.start(tx, fields, ext).map_err(|_| AccessError::Bounds)?;
    let (head, a, b) = template.parts(tx, &started);
    let in_first = a.len() as u64;
    let mut crc = copy_out(from, from.offset, Icrc::new(), head, a, host)?;
    if !b.is_empty() {
        crc = copy_out(from, from.offset + in_first, crc, &[], b, host)?;
    }
    template.finish_summed(tx, started, crc);
    Ok(())
}

/// Copies a part of a message from the memory of its work request, and continues the packet's ICRC over `head` and the part.
#[inline(always)] // most messages have one element
fn copy_out(
    from: &Gather<'_>,
    offset: u64,
    crc: Icrc,
    head: &[u8],
    out: &mut [u8],
    memory: &impl Memory,
) -> Result<Icrc, AccessError> {
    match from.source {
        Source::Gather([sge]) => memory.read_summed(from.region(sge, offset), crc, head, out),
        _ => copy_out_pieces(from, offset, crc, head, out, memory),
    }
}

/// Copies a payload from any number of elements, or from inline data.
#[inline(never)]
fn copy_out_pieces(
    from: &Gather<'_>,
    offset: u64,
    crc: Icrc,
    head: &[u8],
    out: &mut [u8],
    memory: &impl Memory,
) -> Result<Icrc, AccessError> {
    let mut crc = crc;
    let sges = match from.source {
        Source::Gather(sges) => sges,
        Source::Inline(bytes) => {
            out.copy_from_slice(&bytes[offset as usize..][..out.len()]);
            crc.update(head);
            crc.update(out);
            return Ok(crc);
        }
    };
    crc.update(head);
    let (mut skip, mut out) = (offset, out);
    for sge in *sges {
        if out.is_empty() {
            break;
        }
        if skip >= u64::from(sge.len) {
            skip -= u64::from(sge.len);
            continue;
        }
        let n = out.len().min((u64::from(sge.len) - skip) as usize);
        let (part, rest) = out.split_at_mut(n);
        crc = memory.read_summed(from.region(sge, skip), crc, &[], part)?;
        (skip, out) = (0, rest);
    }
    Ok(crc)
}
