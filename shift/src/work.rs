//! Work requests that move from one NIC to the other: kept by value, checked, and with their keys translated to those of the other NIC.

use softnic_nic::transports::{Completion, Data, RecvWr, SendFlags, SendOp, SendWr, Sge, Status, WcOpcode};
use softnic_wire::Qpn;

/// A send that waits to be posted.
#[derive(Debug, Clone)]
pub(crate) struct Send {
    pub(crate) wr_id: u64,
    pub(crate) op: SendOp,
    pub(crate) flags: SendFlags,
    data: Bytes,
    /// The send was posted to a NIC before, and is included in the count of messages.
    pub(crate) counted: bool,
    /// The peer has received the message: only the completion is missing.
    pub(crate) covered: bool,
    /// The send had begun when the program moved the queue pair to SQD.
    pub(crate) begun: bool,
}

#[derive(Debug, Clone)]
enum Bytes {
    Gather(Vec<Sge>),
    Inline(Vec<u8>),
}

impl Send {
    pub(crate) fn new(wr: &SendWr<'_>, counted: bool) -> Send {
        let data = match wr.data {
            Data::Gather(sges) => Bytes::Gather(sges.to_vec()),
            Data::Inline(bytes) => Bytes::Inline(bytes.to_vec()),
        };
        Send { wr_id: wr.wr_id, op: wr.op, flags: wr.flags, data, counted, covered: false, begun: false }
    }

    /// Sets whether the send had begun.
    pub(crate) fn begun(self, begun: bool) -> Send {
        Send { begun, ..self }
    }

    /// The work request, as it was posted.
    pub(crate) fn wr(&self) -> SendWr<'_> {
        let data = match &self.data {
            Bytes::Gather(sges) => Data::Gather(sges),
            Bytes::Inline(bytes) => Data::Inline(bytes),
        };
        SendWr { wr_id: self.wr_id, op: self.op, data, flags: self.flags, best_effort: None, to: None }
    }

    /// A copy with the keys of the other NIC: `local` translates keys of local regions, `remote` those of the peer's.
    ///
    /// # Errors
    /// The first key without a translation.
    pub(crate) fn translated(
        &self,
        local: impl Fn(u32) -> Option<u32>,
        remote: impl Fn(u32) -> Option<u32>,
    ) -> Result<Send, MissingKey> {
        let mut send = self.clone();
        if let Some(rkey) = remote_key(&mut send.op) {
            *rkey = remote(*rkey).ok_or(MissingKey::Remote(*rkey))?;
        }
        if let Bytes::Gather(sges) = &mut send.data {
            translate_all(sges, local)?;
        }
        Ok(send)
    }

    /// The completion of this send.
    pub(crate) fn completion(&self, status: Status, qpn: Qpn) -> Completion {
        Completion::new(self.wr_id, status, opcode(&self.op), qpn)
    }
}

/// A receive that was withdrawn.
#[derive(Debug, Clone)]
pub(crate) struct Recv {
    pub(crate) wr_id: u64,
    pub(crate) sges: Vec<Sge>,
    /// The receive was posted to a NIC before, and is included in the count of receives.
    pub(crate) counted: bool,
}

impl Recv {
    pub(crate) fn new(wr: &RecvWr<'_>, counted: bool) -> Recv {
        Recv { wr_id: wr.wr_id, sges: wr.sges.to_vec(), counted }
    }

    pub(crate) fn wr(&self) -> RecvWr<'_> {
        RecvWr { wr_id: self.wr_id, sges: &self.sges, best_effort: None }
    }
}

/// A key without a counterpart at the other NIC, for now or for good.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum MissingKey {
    Local(u32),
    Remote(u32),
}

/// Translates the keys of local memory. Elements of length zero need no key.
pub(crate) fn translate_all(sges: &mut [Sge], local: impl Fn(u32) -> Option<u32>) -> Result<(), MissingKey> {
    for sge in sges.iter_mut().filter(|sge| sge.len > 0) {
        sge.lkey = local(sge.lkey).ok_or(MissingKey::Local(sge.lkey))?;
    }
    Ok(())
}

/// The remote key of an operation.
fn remote_key(op: &mut SendOp) -> Option<&mut u32> {
    match op {
        SendOp::Write { rkey, .. } | SendOp::WriteImm { rkey, .. } | SendOp::Read { rkey, .. } => Some(rkey),
        SendOp::CompareSwap { rkey, .. } | SendOp::FetchAdd { rkey, .. } => Some(rkey),
        SendOp::Send | SendOp::SendImm { .. } => None,
        // Their keys belong to windows, which the backup does not have.
        SendOp::SendInv { .. } | SendOp::LocalInv { .. } | SendOp::BindWindow(_) => None,
    }
}

/// Whether the operation may be executed twice. Atomics (§3.1) and operations that change keys may not.
pub(crate) fn may_repeat(op: &SendOp) -> bool {
    match op {
        SendOp::Send | SendOp::SendImm { .. } | SendOp::Write { .. } | SendOp::WriteImm { .. } => true,
        SendOp::Read { .. } => true,
        SendOp::CompareSwap { .. } | SendOp::FetchAdd { .. } => false,
        SendOp::SendInv { .. } | SendOp::LocalInv { .. } | SendOp::BindWindow(_) => false,
    }
}

/// Whether the operation changes keys, which the other NIC would not learn of.
pub(crate) fn changes_keys(op: &SendOp) -> bool {
    matches!(op, SendOp::SendInv { .. } | SendOp::LocalInv { .. } | SendOp::BindWindow(_))
}

fn opcode(op: &SendOp) -> WcOpcode {
    match op {
        SendOp::Send | SendOp::SendImm { .. } | SendOp::SendInv { .. } => WcOpcode::Send,
        SendOp::Write { .. } | SendOp::WriteImm { .. } => WcOpcode::Write,
        SendOp::Read { .. } => WcOpcode::Read,
        SendOp::CompareSwap { .. } => WcOpcode::CompareSwap,
        SendOp::FetchAdd { .. } => WcOpcode::FetchAdd,
        SendOp::LocalInv { .. } => WcOpcode::LocalInv,
        SendOp::BindWindow(_) => WcOpcode::BindWindow,
    }
}
