//! Completion queues.

use std::cell::UnsafeCell;
use std::sync::Arc;
use std::sync::atomic::{AtomicI32, AtomicU64, Ordering};

use softnic_runtime::api::{Completion, CompletionQueue, Notify};

use crate::abi::*;
use crate::c_result::{check_memory, status};
use crate::errno::Errno;
use crate::fork::Generation;
use crate::limits::MAX_CQE;
use crate::objects::completion_channel::Channel;
use crate::objects::context::ContextPtr;
use crate::objects::event_queue::{Subject, Unacknowledged};
use crate::objects::handle::{self, Object, ObjectKind, Pointer};
use crate::objects::nic::Nics;
use crate::objects::users::Users;

/// The function pointers of `struct ibv_cq_ex`, in its order.
#[repr(C)]
pub(crate) struct CqReaders {
    pub(crate) start_poll: extern "C" fn(&Cq, *mut c_void) -> c_int,
    pub(crate) next_poll: extern "C" fn(&Cq) -> c_int,
    pub(crate) end_poll: extern "C" fn(&Cq),
    pub(crate) read_opcode: extern "C" fn(&Cq) -> c_int,
    pub(crate) read_vendor_err: extern "C" fn(&Cq) -> u32,
    pub(crate) read_byte_len: extern "C" fn(&Cq) -> u32,
    pub(crate) read_imm_data: extern "C" fn(&Cq) -> u32,
    pub(crate) read_qp_num: extern "C" fn(&Cq) -> u32,
    pub(crate) read_src_qp: extern "C" fn(&Cq) -> u32,
    pub(crate) read_wc_flags: extern "C" fn(&Cq) -> c_uint,
    pub(crate) read_slid: extern "C" fn(&Cq) -> u32,
    pub(crate) read_sl: extern "C" fn(&Cq) -> u8,
    pub(crate) read_dlid_path_bits: extern "C" fn(&Cq) -> u8,
    /// Timestamps, VLAN, flow tag, tag matching: a queue that requests them is refused.
    pub(crate) unsupported: [*mut c_void; 5],
}

/// `struct ibv_cq_ex`.
#[repr(C)]
pub(crate) struct ibv_cq_ex {
    pub(crate) cq: ibv_cq,
    pub(crate) comp_mask: u32,
    pub(crate) status: AtomicI32,
    pub(crate) wr_id: AtomicU64,
    pub(crate) readers: CqReaders,
}
layout!(ibv_cq_ex, 288, comp_mask 128, status 132, wr_id 136, readers 144);

/// The completion that is being read. The thread that started to poll holds the queue's lock until the poll ends.
#[derive(Default)]
pub(crate) struct Current(pub(crate) UnsafeCell<Option<Completion>>);

/// A completion queue, in the form of an extended one, whose start is the plain form.
#[repr(C)]
pub(crate) struct Cq {
    pub(crate) base: ibv_cq_ex,
    pub(crate) ours: CqOurs,
}

pub(crate) struct CqOurs {
    /// The process that created it.
    pub(crate) made_in: Generation,
    pub(crate) queue: CompletionQueue,
    pub(crate) users: Users,
    pub(crate) completion_events: Unacknowledged,
    pub(crate) async_events: Unacknowledged,
    pub(crate) current: Current,
    channel: Option<&'static Channel>,
    /// A queue that was not destroyed keeps its NICs open.
    _nics: Arc<Nics>,
}

impl Cq {
    pub(crate) fn as_c(&self) -> *mut ibv_cq {
        (&raw const *self).cast_mut().cast()
    }

    pub(crate) fn context(&self) -> ContextPtr<'_> {
        // SAFETY: the queue was created from a context, which the program closes after the queue.
        unsafe { ContextPtr::new(self.base.cq.context) }
    }

    pub(crate) fn subject(&self) -> Subject {
        Subject::Cq(self.ours.queue.id().0)
    }
}

impl Object for Cq {
    const KIND: ObjectKind = ObjectKind::CompletionQueue;

    unsafe fn identity(this: *const Cq) -> (u32, *mut ibv_context) {
        // SAFETY: guaranteed by the contract.
        unsafe { ((*this).base.cq.handle, (*this).base.cq.context) }
    }
}

/// Checks that there is memory for this number of completions: each engine has a queue and a ring.
fn check_room(context: ContextPtr<'_>, cqe: u32) -> Result<(), Errno> {
    let completions = (cqe as usize + cqe.next_power_of_two() as usize) * context.nic().runtime.engines();
    check_memory(completions, size_of::<Completion>())
}

/// Creates a queue, plain or extended; `readers` read its completions field by field.
pub(crate) fn make(
    context: ContextPtr<'_>,
    cqe: u32,
    cq_context: *mut c_void,
    channel: *mut ibv_comp_channel,
    vector: u32,
    readers: CqReaders,
) -> Result<Box<Cq>, Errno> {
    context.check_process()?;
    if cqe == 0 || cqe > MAX_CQE || vector != 0 {
        return Err(Errno::EINVAL);
    }
    let channel = Pointer::<Channel>::new(channel).optional()?;
    check_room(context, cqe)?;
    // The channel names queues by their address, so the memory is allocated first.
    let mut room = Box::<Cq>::new_uninit();
    let name = room.as_mut_ptr().expose_provenance() as u64;
    let named = channel.map(|channel| (&channel.ours.channel, name));
    let queue = context.nic().runtime.create_cq_with(cqe as usize, named);
    if let Some(channel) = channel {
        channel.ours.users.add();
    }
    let cq = ibv_cq {
        context: context.as_c(),
        channel: channel.map_or(std::ptr::null_mut(), |c| (&raw const *c).cast_mut().cast()),
        cq_context,
        handle: handle::next(Cq::KIND),
        cqe: AtomicI32::new(cqe as c_int),
        mutex: Mutex::default(),
        cond: Cond::default(),
        comp_events_completed: 0,
        async_events_completed: 0,
    };
    let base = ibv_cq_ex { cq, comp_mask: 0, status: AtomicI32::new(0), wr_id: 0.into(), readers };
    let ours = CqOurs {
        made_in: context.ours.made_in,
        queue,
        users: Users::default(),
        completion_events: Unacknowledged::default(),
        async_events: Unacknowledged::default(),
        current: Current::default(),
        channel,
        _nics: Arc::clone(&context.ours.nics),
    };
    let cq = Box::write(room, Cq { base, ours });
    handle::add(&*cq);
    context.nic().owners.add(cq.subject(), &context.ours.events, (&raw const *cq).expose_provenance());
    Ok(cq)
}

/// `ibv_destroy_cq`. EBUSY while queue pairs use it; waits until all events are acknowledged.
pub(crate) extern "C" fn destroy(cq: Pointer<Cq>) -> c_int {
    status(|| {
        let this = cq.remove(|cq| cq.ours.users.none())?;
        let cq = cq.as_ptr();
        this.context().nic().owners.remove(this.subject());
        if let Some(channel) = this.ours.channel {
            this.ours.queue.disarm();
            channel.ours.channel.forget(cq.addr() as u64);
            channel.ours.users.remove();
        }
        this.ours.completion_events.wait_for_none();
        this.ours.async_events.wait_for_none();
        // SAFETY: `make` allocated this box, and no code uses it any more.
        drop(unsafe { Box::from_raw(cq) });
        Ok(())
    })
}

/// `ibv_resize_cq`.
pub(crate) extern "C" fn resize(cq: Pointer<Cq>, cqe: c_int) -> c_int {
    status(|| {
        let cq = cq.get()?;
        let wanted = u32::try_from(cqe).ok().filter(|&n| n > 0 && n <= MAX_CQE).ok_or(Errno::EINVAL)?;
        check_room(cq.context(), wanted)?;
        cq.ours.queue.resize(wanted as usize)?;
        cq.base.cq.cqe.store(cqe, Ordering::Relaxed);
        Ok(())
    })
}

/// `ibv_req_notify_cq`.
pub(crate) extern "C" fn req_notify(cq: &Cq, solicited_only: c_int) -> c_int {
    status(|| {
        cq.ours.made_in.check()?;
        cq.ours.queue.arm(if solicited_only == 0 { Notify::Next } else { Notify::Solicited });
        Ok(())
    })
}
