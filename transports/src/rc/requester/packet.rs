//! Writes one request packet: of a message, or the request of a READ or atomic.

use softnic_wire::ext::{AtomicEth, Reth};
use softnic_wire::opcode::Service;
use softnic_wire::{ExtHeaders, Opcode, PacketFields, Psn, TxFrame};

use super::Requester;
use crate::memory::AccessError;
use crate::message::{self, Link, Which};
use crate::qp::PayloadMode;
use crate::send_queue::Slot;
use crate::{Memory, SendOp};

impl Requester {
    /// Number of responses that a READ request with packet `n` asks for: to the end of the READ, or of the piece that contains `n`.
    #[inline]
    pub(super) fn read_packets(&self, slot: &Slot, n: u64) -> u32 {
        let (index, piece) = ((n - slot.first) as u32, self.flight.read_packets());
        (slot.packets - index).min(piece - index % piece)
    }

    /// Whether the response `n` is the last one of its request.
    #[inline]
    pub(super) fn ends_read(&self, slot: &Slot, n: u64) -> bool {
        self.read_packets(slot, n) == 1
    }

    /// Number of READ requests that are complete when all packets before `una` are acknowledged, but were not when only those before
    /// `before` were. The last request of the READ is not counted.
    pub(super) fn pieces_done(&self, slot: &Slot, before: u64, una: u64) -> u32 {
        let done = |una: u64| {
            let packets = una.saturating_sub(slot.first).min(u64::from(slot.packets) - 1) as u32;
            packets / self.flight.read_packets()
        };
        done(una) - done(before)
    }

    /// Writes the request of a READ or atomic. For a READ that lost responses, it requests the missing part.
    fn emit_data_request(
        &self,
        tx: &mut TxFrame<'_>,
        link: &Link,
        (index, psn): (u32, Psn),
        slot: &Slot,
    ) -> Result<(), AccessError> {
        let offset = index * link.mtu.bytes();
        let asked = u64::from(self.read_packets(slot, slot.first + u64::from(index))) * u64::from(link.mtu.bytes());
        let len = u64::from(slot.len - offset).min(asked) as u32;
        let (opcode, ext) = data_request(slot, offset, len).ok_or(AccessError::Key)?;
        let fields = PacketFields { opcode, psn, ack_req: true, solicited: false, becn: false, payload_len: 0 };
        let built = match link.payload {
            PayloadMode::Real => link.template.build(tx, &fields, &ext, &[]),
            PayloadMode::Elided => link.template.build_elided(tx, &fields, &ext),
        };
        built.map_err(|_| AccessError::Bounds)
    }

    /// Writes packet `n` of the work request at `position`.
    #[inline]
    pub(super) fn emit(
        &self,
        tx: &mut TxFrame<'_>,
        link: &Link,
        (n, psn): (u64, Psn),
        position: u32,
        ack_req: bool,
        host: &impl Memory,
    ) -> Result<(), AccessError> {
        let slot = self.queue.at(position);
        let index = (n - slot.first) as u32;
        if slot.awaits_data() {
            return self.emit_data_request(tx, link, (index, psn), slot);
        }
        self.emit_message(tx, link, (n, psn), position, slot, ack_req, host)
    }

    /// Writes a packet of a SEND or WRITE.
    #[inline(always)]
    #[allow(clippy::too_many_arguments)] // the caller has all of these at hand
    pub(super) fn emit_message(
        &self,
        tx: &mut TxFrame<'_>,
        link: &Link,
        (n, psn): (u64, Psn),
        position: u32,
        slot: &Slot,
        ack_req: bool,
        host: &impl Memory,
    ) -> Result<(), AccessError> {
        let which = Which { service: Service::Rc, index: (n - slot.first) as u32, psn, ack_req };
        message::emit(tx, link, which, slot, &self.queue.source(position, slot), host)
    }
}

/// The request for `len` bytes of a READ, starting at byte `offset`, or for an atomic; `None` for other operations.
pub(crate) fn data_request(slot: &Slot, offset: u32, len: u32) -> Option<(Opcode, ExtHeaders)> {
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
            ext.reth = Some(Reth { va: remote_addr.wrapping_add(u64::from(offset)), rkey, len });
            Opcode::RC_RDMA_READ_REQUEST
        }
        _ => return None,
    };
    Some((opcode, ext))
}
