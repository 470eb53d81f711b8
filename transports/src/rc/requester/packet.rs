//! One request packet: which it is in its message, its headers, and its payload out of memory.

use softnic_wire::ext::{AtomicEth, Reth};
use softnic_wire::opcode::{Position, Service};
use softnic_wire::segment::opcode_of;
use softnic_wire::{ExtHeaders, Opcode, PacketFields, Psn, TxFrame};

use super::super::Link;
use super::super::send_queue::{Slot, Source};
use super::Requester;
use crate::memory::{Access, AccessError, PdId, Region};
use crate::qp::PayloadMode;
use crate::{Memory, SendOp};

impl Requester {
    /// Writes the request of a READ or atomic: for a READ that lost responses, of the part that is still missing.
    fn emit_data_request(
        &self,
        tx: &mut TxFrame<'_>,
        link: &Link,
        (index, psn): (u32, Psn),
        slot: &Slot,
    ) -> Result<(), AccessError> {
        let mut ext = ExtHeaders::default();
        let opcode = match slot.op {
            SendOp::CompareSwap { remote_addr, rkey, compare, swap } => {
                ext.atomic = Some(AtomicEth { va: remote_addr, rkey, swap_add: swap, compare });
                Opcode::RC_COMPARE_SWAP
            }
            SendOp::FetchAdd { remote_addr, rkey, add } => {
                ext.atomic = Some(AtomicEth { va: remote_addr, rkey, swap_add: add, compare: 0 });
                Opcode::RC_FETCH_ADD
            }
            SendOp::Read { remote_addr, rkey } => {
                let offset = index * link.mtu.bytes();
                ext.reth = Some(Reth { va: remote_addr.wrapping_add(u64::from(offset)), rkey, len: slot.len - offset });
                Opcode::RC_RDMA_READ_REQUEST
            }
            SendOp::Send | SendOp::SendImm { .. } | SendOp::Write { .. } | SendOp::WriteImm { .. } => {
                return Err(AccessError::Key);
            }
        };
        let fields = PacketFields { opcode, psn, ack_req: true, solicited: false, becn: false, payload_len: 0 };
        let built = match link.payload {
            PayloadMode::Real => link.template.build(tx, &fields, &ext, &[]),
            PayloadMode::Elided => link.template.build_elided(tx, &fields, &ext),
        };
        built.map_err(|_| AccessError::Bounds)
    }

    #[inline]
    #[allow(clippy::too_many_arguments)] // one packet's worth of facts, used once
    pub(super) fn emit(
        &self,
        tx: &mut TxFrame<'_>,
        link: &Link,
        (n, psn): (u64, Psn),
        position: u32,
        slot: &Slot,
        ack_req: bool,
        host: &impl Memory,
    ) -> Result<(), AccessError> {
        let index = (n - slot.first) as u32;
        let Some(kind) = slot.kind() else { return self.emit_data_request(tx, link, (index, psn), slot) };
        let (first, last) = (index == 0, index + 1 == slot.packets);
        let at = match (first, last) {
            (true, true) => Position::Only,
            (true, false) => Position::First,
            (false, false) => Position::Middle,
            (false, true) => Position::Last,
        };
        let offset = index * link.mtu.bytes();
        let len = if last { slot.len - offset } else { link.mtu.bytes() };
        let mut ext = ExtHeaders::default();
        match slot.op {
            SendOp::Write { remote_addr, rkey } | SendOp::WriteImm { remote_addr, rkey, .. } if first => {
                ext.reth = Some(Reth { va: remote_addr, rkey, len: slot.len });
            }
            _ => {}
        }
        match slot.op {
            SendOp::SendImm { imm } | SendOp::WriteImm { imm, .. } if last => ext.imm = Some(imm),
            _ => {}
        }
        let Some(opcode) = opcode_of(Service::Rc, kind, at) else { return Err(AccessError::Key) };
        let fields = PacketFields {
            opcode,
            psn,
            ack_req,
            // A WRITE without immediate completes nothing at the peer: there is no event to ask for (IBA 9.2.3).
            solicited: last && slot.solicited && slot.uses_receive(),
            becn: false,
            payload_len: len as usize,
        };
        // A frame that does not fit is the driver's mistake, seen at its first packet; there is nothing to send then.
        if link.payload == PayloadMode::Elided {
            return link.template.build_elided(tx, &fields, &ext).map_err(|_| AccessError::Bounds);
        }
        let started = link.template.start(tx, &fields, &ext).map_err(|_| AccessError::Bounds)?;
        let source = self.queue.source(position, slot);
        let (a, b) = tx.slices_mut(started.payload, len as usize);
        let in_first = a.len() as u64;
        copy_out(&source, link.pd, u64::from(offset), a, host)?;
        if !b.is_empty() {
            copy_out(&source, link.pd, u64::from(offset) + in_first, b, host)?;
        }
        link.template.finish(tx, started);
        Ok(())
    }
}

/// Copies part of a message out of the memory that its work request names.
#[inline]
fn copy_out(
    source: &Source<'_>,
    pd: PdId,
    offset: u64,
    out: &mut [u8],
    memory: &impl Memory,
) -> Result<(), AccessError> {
    let sges = match source {
        Source::Inline(bytes) => {
            out.copy_from_slice(&bytes[offset as usize..][..out.len()]);
            return Ok(());
        }
        Source::Gather(sges) => sges,
    };
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
        let region = Region { pd, key: sge.lkey, addr: sge.addr.wrapping_add(skip), access: Access::NONE };
        memory.read(region, part)?;
        (skip, out) = (0, rest);
    }
    Ok(())
}
