//! What is wrong with a work request whatever its queue pair is doing: for programs that hand it to another thread and want to know now.

use softnic_transports::qp::Caps;
use softnic_transports::wr::Data;
use softnic_transports::{PostError, QpKind, RecvWr, SendOp, SendWr};
use softnic_wire::PathMtu;
use softnic_wire::segment::MAX_MESSAGE;

/// Whether a queue pair of this kind and these capabilities can take a send work request. `mtu` is the port's.
pub fn check_send(kind: QpKind, caps: &Caps, mtu: PathMtu, wr: &SendWr<'_>) -> Result<(), PostError> {
    if wr.deadline.is_some() {
        return Err(PostError::NoDeadlines);
    }
    let datagram = matches!(kind, QpKind::Ud | QpKind::Gsi);
    if wr.to.is_some() != datagram {
        return Err(PostError::Address);
    }
    let (is_read, is_atomic) = match wr.op {
        SendOp::Read { .. } => (true, false),
        SendOp::CompareSwap { .. } | SendOp::FetchAdd { .. } => (false, true),
        _ => (false, false),
    };
    let local = matches!(wr.op, SendOp::LocalInv { .. } | SendOp::BindWindow(_));
    let exists = match kind {
        QpKind::Rc => true,
        QpKind::Uc => !is_read && !is_atomic && !matches!(wr.op, SendOp::SendInv { .. }),
        QpKind::Ud | QpKind::Gsi => matches!(wr.op, SendOp::Send | SendOp::SendImm { .. }),
    };
    if !exists {
        return Err(PostError::NoSuchOperation);
    }
    match wr.data {
        Data::Inline(_) if is_read || is_atomic || local => return Err(PostError::InlineNotAllowed),
        Data::Inline(bytes) if bytes.len() > caps.max_inline as usize => return Err(PostError::InlineTooLong),
        Data::Gather(sges) if sges.len() > caps.max_send_sge as usize => return Err(PostError::TooManySges),
        _ => {}
    }
    let len = wr.data.len();
    if len > u64::from(MAX_MESSAGE) || datagram && len > u64::from(mtu.bytes()) {
        return Err(PostError::MessageTooLong);
    }
    if is_atomic && len != 8 {
        return Err(PostError::AtomicLength);
    }
    Ok(())
}

/// Whether a queue with room for so many elements can take a receive work request.
pub fn check_recv(max_sge: u32, wr: &RecvWr<'_>) -> Result<(), PostError> {
    if wr.deadline.is_some() {
        return Err(PostError::NoDeadlines);
    }
    if wr.sges.len() > max_sge as usize {
        return Err(PostError::TooManySges);
    }
    Ok(())
}
