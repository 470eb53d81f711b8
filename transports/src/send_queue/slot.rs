//! A work request in a send queue, and its completion.

use softnic_wire::Qpn;
use softnic_wire::segment::MessageKind;

use crate::memory::PdId;
use crate::wr::Datagram;
use crate::{Completion, Memory, SendOp, Status, WcOpcode};

/// A work request in the queue.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Slot {
    pub(crate) wr_id: u64,
    pub(crate) op: SendOp,
    pub(crate) signaled: bool,
    pub(crate) solicited: bool,
    pub(crate) fence: bool,
    pub(super) inline: bool,
    /// Properties of the operation, which are needed several times per packet.
    pub(super) awaits_data: bool,
    pub(super) uses_receive: bool,
    pub(super) local: bool,
    /// A local operation that was executed.
    pub(crate) executed: bool,
    pub(super) sges: u8,
    /// The destination of a datagram.
    pub(crate) to: Option<Datagram>,
    pub(crate) len: u32,
    /// The number of its first packet, counted from the first packet that the queue pair ever sent: PSNs wrap around, numbers do not.
    pub(crate) first: u64,
    pub(crate) packets: u32,
    /// Number of bytes that all earlier work requests send.
    pub(super) bytes: u64,
    /// Number of messages that use a receive of the peer, up to and including this one; limited by credits.
    pub(crate) sends: u32,
    /// Selective Repeat: the number of the first packet that answers the request, counted separately from requests. XP: when the request of
    /// a READ was sent, in nanoseconds.
    pub(crate) answers: u64,
}

impl Slot {
    /// An unused slot.
    pub(super) const EMPTY: Slot = Slot {
        wr_id: 0,
        op: SendOp::Send,
        signaled: false,
        solicited: false,
        fence: false,
        inline: false,
        awaits_data: false,
        uses_receive: false,
        local: false,
        executed: false,
        sges: 0,
        to: None,
        len: 0,
        first: 0,
        packets: 0,
        bytes: 0,
        sends: 0,
        answers: 0,
    };

    /// The number after its last packet; an operation without packets ends where it starts.
    #[inline]
    pub(crate) fn end(&self) -> u64 {
        self.first + u64::from(self.packets)
    }

    /// Whether packet `n` belongs to it.
    #[inline]
    pub(super) fn holds(&self, n: u64) -> bool {
        n.wrapping_sub(self.first) < u64::from(self.packets)
    }

    /// Whether packet `n` is its last one.
    #[inline]
    pub(crate) fn ends_with(&self, n: u64) -> bool {
        n + 1 == self.end()
    }

    /// Whether its local effects are complete once everything before packet `n` is done.
    #[inline]
    pub(crate) fn is_done(&self, n: u64) -> bool {
        self.end() <= n && (self.executed || !self.local)
    }

    /// Executes a local operation of the queue pair `qpn`; otherwise returns the status with which it completes.
    pub(crate) fn execute(&self, qpn: Qpn, pd: PdId, memory: &mut impl Memory) -> Result<(), Status> {
        match self.op {
            SendOp::LocalInv { rkey } => memory.invalidate(qpn, pd, rkey).map_err(|_| Status::MwBindErr),
            SendOp::BindWindow(bind) => memory.bind(qpn, pd, &bind).map_err(|_| Status::MwBindErr),
            _ => Ok(()),
        }
    }

    /// Whether the message takes a receive of the peer.
    #[inline]
    pub(crate) fn uses_receive(&self) -> bool {
        self.uses_receive
    }

    /// Whether it is a WRITE, with immediate data or not.
    #[inline]
    pub(crate) fn is_write(&self) -> bool {
        matches!(self.op, SendOp::Write { .. } | SendOp::WriteImm { .. })
    }

    /// Whether it is answered by data rather than by an acknowledgement: READs and atomics. One request packet covers all of its PSNs.
    #[inline]
    pub(crate) fn awaits_data(&self) -> bool {
        self.awaits_data
    }

    /// Whether it is executed locally, without a packet.
    #[inline]
    pub(crate) fn is_local(&self) -> bool {
        self.local
    }

    /// The kind of message that it sends; `None` for READs, atomics and operations that send nothing.
    #[inline]
    pub(crate) fn kind(&self) -> Option<MessageKind> {
        match self.op {
            SendOp::Send => Some(MessageKind::Send),
            SendOp::SendImm { .. } => Some(MessageKind::SendImm),
            SendOp::SendInv { .. } => Some(MessageKind::SendInv),
            SendOp::Write { .. } => Some(MessageKind::Write),
            SendOp::WriteImm { .. } => Some(MessageKind::WriteImm),
            SendOp::Read { .. } | SendOp::CompareSwap { .. } | SendOp::FetchAdd { .. } => None,
            SendOp::LocalInv { .. } | SendOp::BindWindow(_) => None,
        }
    }
}

/// The completion of a work request.
pub(crate) fn completion(slot: &Slot, qpn: Qpn, status: Status) -> Completion {
    let opcode = match slot.op {
        SendOp::Send | SendOp::SendImm { .. } | SendOp::SendInv { .. } => WcOpcode::Send,
        SendOp::Write { .. } | SendOp::WriteImm { .. } => WcOpcode::Write,
        SendOp::Read { .. } => WcOpcode::Read,
        SendOp::CompareSwap { .. } => WcOpcode::CompareSwap,
        SendOp::FetchAdd { .. } => WcOpcode::FetchAdd,
        SendOp::LocalInv { .. } => WcOpcode::LocalInv,
        SendOp::BindWindow(_) => WcOpcode::BindWindow,
    };
    Completion { byte_len: slot.len, ..Completion::new(slot.wr_id, status, opcode, qpn) }
}
