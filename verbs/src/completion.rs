//! Completion queues.

use std::sync::Arc;
use std::sync::atomic::{AtomicI32, Ordering};

use softnic_nic::Notify;
use softnic_nic::transports::completion::{PartialReason, WcOpcode};
use softnic_nic::transports::{Completion, Status};
use softnic_runtime::api::CompletionQueue;

use crate::abi::*;
use crate::channel::Channel;
use crate::completion_ex::{self, Current};
use crate::context::ContextPtr;
use crate::domain::Users;
use crate::errno::{Errno, pointer, status};
use crate::events::{Subject, Unacknowledged};
use crate::fork;
use crate::nic::Nics;
use crate::query::MAX_CQE;

/// A completion queue, in the shape of the extended ones, of which the plain shape is the beginning.
#[repr(C)]
pub(crate) struct Cq {
    pub(crate) base: ibv_cq_ex,
    pub(crate) ours: CqOurs,
}

pub(crate) struct CqOurs {
    pub(crate) queue: CompletionQueue,
    pub(crate) users: Users,
    pub(crate) completion_events: Unacknowledged,
    pub(crate) async_events: Unacknowledged,
    pub(crate) current: Current,
    channel: Option<&'static Channel>,
    /// A queue that is left over keeps its NICs open.
    _nics: Arc<Nics>,
}

impl Cq {
    pub(crate) fn as_c(&self) -> *mut ibv_cq {
        (&raw const *self).cast_mut().cast()
    }

    fn context(&self) -> ContextPtr<'_> {
        // SAFETY: it was made from a context, which the program closes after it.
        unsafe { ContextPtr::new(self.base.cq.context) }
    }

    fn subject(&self) -> Subject {
        Subject::Cq(self.ours.queue.id().0)
    }
}

/// What makes a queue, plain or extended.
pub(crate) fn make(
    context: ContextPtr<'_>,
    cqe: u32,
    cq_context: *mut c_void,
    channel: *mut ibv_comp_channel,
    vector: u32,
) -> Result<Box<Cq>, Errno> {
    if cqe == 0 || cqe > MAX_CQE || vector != 0 {
        return Err(Errno::EINVAL);
    }
    // SAFETY: NULL, or a channel of the program, which it destroys after its queues: `destroy` refuses before.
    let channel: Option<&'static Channel> = unsafe { channel.cast::<Channel>().as_ref() };
    // The channel names queues by their address, so that comes first.
    let mut room = Box::<Cq>::new_uninit();
    let name = room.as_mut_ptr().expose_provenance() as u64;
    let named = channel.map(|channel| (&channel.ours.channel, name));
    let queue = context.nic().runtime.create_cq_with(cqe as usize, named)?;
    if let Some(channel) = channel {
        channel.ours.users.add();
    }
    let cq = ibv_cq {
        context: context.as_c(),
        channel: channel.map_or(std::ptr::null_mut(), |c| (&raw const *c).cast_mut().cast()),
        cq_context,
        handle: 0,
        cqe: AtomicI32::new(cqe as c_int),
        mutex: Mutex::default(),
        cond: Cond::default(),
        comp_events_completed: 0,
        async_events_completed: 0,
    };
    let base =
        ibv_cq_ex { cq, comp_mask: 0, status: AtomicI32::new(0), wr_id: 0.into(), readers: completion_ex::readers() };
    let ours = CqOurs {
        queue,
        users: Users::default(),
        completion_events: Unacknowledged::default(),
        async_events: Unacknowledged::default(),
        current: Current::default(),
        channel,
        _nics: Arc::clone(&context.ours.nics),
    };
    let cq = Box::write(room, Cq { base, ours });
    context.nic().owners.add(cq.subject(), &context.ours.events, (&raw const *cq).expose_provenance());
    Ok(cq)
}

/// `ibv_create_cq`.
pub(crate) extern "C" fn create(
    context: ContextPtr<'_>,
    cqe: c_int,
    cq_context: *mut c_void,
    channel: *mut ibv_comp_channel,
    vector: c_int,
) -> *mut ibv_cq {
    pointer(|| {
        let cqe = u32::try_from(cqe).map_err(|_| Errno::EINVAL)?;
        make(context, cqe, cq_context, channel, u32::try_from(vector).map_err(|_| Errno::EINVAL)?)
    })
}

/// `ibv_destroy_cq`. EBUSY while queue pairs use it; waits until all events are acknowledged.
pub(crate) extern "C" fn destroy(cq: *mut Cq) -> c_int {
    status(|| {
        // SAFETY: it is from `make`, and the program does not use it afterwards, but to acknowledge its events.
        let this = unsafe { &*cq };
        this.ours.users.none()?;
        this.context().nic().owners.remove(this.subject());
        if let Some(channel) = this.ours.channel {
            this.ours.queue.disarm();
            channel.ours.channel.forget(cq.addr() as u64);
            channel.ours.users.remove();
        }
        this.ours.completion_events.wait_for_none();
        this.ours.async_events.wait_for_none();
        // SAFETY: `make` made a box of it, and nobody uses it.
        drop(unsafe { Box::from_raw(cq) });
        Ok(())
    })
}

/// `ibv_resize_cq`.
pub(crate) extern "C" fn resize(cq: &Cq, cqe: c_int) -> c_int {
    status(|| {
        let wanted = u32::try_from(cqe).ok().filter(|&n| n > 0 && n <= MAX_CQE).ok_or(Errno::EINVAL)?;
        cq.ours.queue.resize(wanted as usize)?;
        cq.base.cq.cqe.store(cqe, Ordering::Relaxed);
        Ok(())
    })
}

/// `ibv_req_notify_cq`.
pub(crate) extern "C" fn req_notify(cq: &Cq, solicited_only: c_int) -> c_int {
    status(|| {
        cq.ours.queue.arm(if solicited_only == 0 { Notify::Next } else { Notify::Solicited });
        Ok(())
    })
}

/// `ibv_poll_cq`.
pub(crate) extern "C" fn poll(cq: &Cq, max: c_int, mut out: *mut ibv_wc) -> c_int {
    if max <= 0 || fork::check().is_err() {
        return if max == 0 { 0 } else { -1 };
    }
    let taken = cq.ours.queue.poll_each(max as usize, |completion| {
        // SAFETY: the program has room for `max` completions, and no more are taken.
        unsafe {
            out.write(to_c(&completion));
            out = out.add(1);
        }
    });
    taken.map_or(-1, |n| n as c_int)
}

/// A status as verbs number it.
pub(crate) fn status_code(status: Status) -> c_int {
    match status {
        Status::Success => 0,
        Status::LocLenErr => 1,
        Status::LocQpOpErr => 2,
        Status::LocProtErr => 4,
        Status::WrFlushErr => 5,
        Status::MwBindErr => 6,
        Status::BadRespErr => 7,
        Status::RemInvReqErr => 9,
        Status::RemAccessErr => 10,
        Status::RemOpErr => 11,
        Status::RetryExcErr => 12,
        Status::RnrRetryExcErr => 13,
    }
}

/// An operation as verbs number it.
pub(crate) fn opcode_code(opcode: WcOpcode) -> c_int {
    match opcode {
        WcOpcode::Send => 0,
        WcOpcode::Write => 1,
        WcOpcode::Read => 2,
        WcOpcode::CompareSwap => 3,
        WcOpcode::FetchAdd => 4,
        WcOpcode::BindWindow => 5,
        WcOpcode::LocalInv => 6,
        WcOpcode::Recv => 1 << 7,
        WcOpcode::RecvWriteImm => (1 << 7) + 1,
    }
}

/// What came with a completion: flags, and the immediate in network byte order or the key that was invalidated.
pub(crate) fn extras(c: &Completion) -> (c_uint, u32) {
    let grh = if c.src_qp.is_some() { IBV_WC_GRH } else { 0 };
    let flags = if c.partial.is_some() { grh | SOFTNICDV_WC_PARTIAL } else { grh };
    match (c.imm, c.invalidated) {
        (Some(imm), _) => (flags | IBV_WC_WITH_IMM, imm.to_be()),
        (None, Some(key)) => (flags | IBV_WC_WITH_INV, key),
        (None, None) => (flags, 0),
    }
}

/// Why a message is not whole, as softnicdv.h numbers it; 0 where it is. Verbs have no field for that, so it is in `vendor_err`.
pub(crate) fn vendor_err(c: &Completion) -> u32 {
    match c.partial {
        None => 0,
        Some(PartialReason::Deadline) => 1,
        Some(PartialReason::Superseded) => 2,
    }
}

/// The kind of packet that a datagram came in, in the place of InfiniBand's service level, as ConnectX has it: 8 for UDP, with 1
/// for IPv6 or 2 for IPv4. UCX finds the destination in the 40 bytes by it, and without drops every datagram.
#[inline]
pub(crate) fn packet_kind(c: &Completion) -> u8 {
    match (c.src_qp, c.over_ipv6) {
        (None, _) => 0,
        (Some(_), true) => 8 | 1,
        (Some(_), false) => 8 | 2,
    }
}

#[inline]
fn to_c(c: &Completion) -> ibv_wc {
    let (wc_flags, imm_data) = extras(c);
    ibv_wc {
        wr_id: c.wr_id,
        status: status_code(c.status),
        opcode: opcode_code(c.opcode),
        vendor_err: vendor_err(c),
        byte_len: c.byte_len,
        imm_data,
        qp_num: c.qpn.value(),
        src_qp: c.src_qp.map_or(0, |qpn| qpn.value()),
        wc_flags,
        sl: packet_kind(c),
        ..ibv_wc::default()
    }
}

#[cfg(test)]
mod tests {
    use softnic_wire::Qpn;

    use super::*;

    #[test]
    fn a_partial_completion_succeeds_and_says_so_by_a_flag_and_the_reason() {
        let whole = Completion::new(7, Status::Success, WcOpcode::Recv, Qpn::new(17));
        let wc = to_c(&Completion { byte_len: 40, ..whole });
        assert_eq!((wc.status, wc.byte_len, wc.wc_flags, wc.vendor_err), (0, 40, 0, 0));
        for (reason, number) in [(PartialReason::Deadline, 1), (PartialReason::Superseded, 2)] {
            let wc = to_c(&Completion { byte_len: 24, imm: Some(5), partial: Some(reason), ..whole });
            assert_eq!((wc.status, wc.byte_len, wc.vendor_err), (0, 24, number));
            assert_eq!(wc.wc_flags, SOFTNICDV_WC_PARTIAL | IBV_WC_WITH_IMM);
        }
    }
}
