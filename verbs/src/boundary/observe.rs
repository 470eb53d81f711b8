//! The observer's view of a program: the objects that it creates, changes and destroys, the work that it posts, the completions and events
//! that it takes, and its end.
//!
//! The observer is [`crate::checking`], which passes everything to a model of misuse. Each function is called in the thread of the call,
//! with the program's arguments. Functions with names in `ing` are called before the verb, the others after it, with its result. Pointers
//! are the program's; `get` checks whether they point to an object. A result is NULL, or not 0, if the verb failed.

use softnic_check::ObjectKind;

use crate::abi::*;
use crate::checking;
use crate::objects::address::Ah;
use crate::objects::building::Building;
use crate::objects::completion_channel::Channel;
use crate::objects::completion_queue::Cq;
use crate::objects::context::ContextPtr;
use crate::objects::device::Device;
use crate::objects::domain::Pd;
use crate::objects::handle::Pointer;
use crate::objects::queue_pair::Qp;
use crate::objects::region::Mr;
use crate::objects::shared_receive::Srq;
use crate::objects::window::Mw;
use crate::rdmacm::cm_event::CmEvent;
use crate::rdmacm::id::Id;

/// Whether this process is observed.
pub(crate) fn is_wanted() -> bool {
    checking::is_wanted()
}

// Devices.

pub(crate) fn opened_device(_device: &'static Device, context: *mut ibv_context) {
    checking::made(ObjectKind::Context, context);
}

pub(crate) fn closing_device(context: Pointer<ibv_context>) {
    checking::going(ObjectKind::Context, context.as_ptr());
}

pub(crate) fn closed_device(context: Pointer<ibv_context>, result: c_int) {
    checking::went(ObjectKind::Context, context.as_ptr(), result);
}

// Protection domains, including parent domains.

pub(crate) fn allocated_pd(_context: ContextPtr<'_>, pd: *mut ibv_pd) {
    checking::made(ObjectKind::Domain, pd);
}

pub(crate) fn deallocating_pd(pd: Pointer<Pd>) {
    checking::going(ObjectKind::Domain, pd.as_ptr());
}

pub(crate) fn deallocated_pd(pd: Pointer<Pd>, result: c_int) {
    checking::went(ObjectKind::Domain, pd.as_ptr(), result);
}

// Memory regions and windows.

/// Work requests address the region from `iova` on.
pub(crate) fn registered(_pd: Pointer<Pd>, iova: u64, access: c_uint, mr: *mut ibv_mr) {
    checking::registered(iova, access, mr);
}

/// Called for `ibv_reg_mr_ex`.
pub(crate) fn registered_ex(_pd: Pointer<Pd>, attr: &ibv_mr_init_attr, mr: *mut ibv_mr) {
    let iova = if attr.comp_mask & IBV_REG_MR_MASK_IOVA != 0 { attr.iova } else { attr.addr.addr() as u64 };
    checking::registered(iova, attr.access as c_uint, mr);
}

pub(crate) fn reregistered(mr: Pointer<Mr>, flags: c_int, access: c_uint, result: c_int) {
    checking::reregistered(mr, flags, access, result);
}

pub(crate) fn deregistering(mr: Pointer<Mr>) {
    checking::going(ObjectKind::Region, mr.as_ptr());
}

pub(crate) fn deregistered(mr: Pointer<Mr>, result: c_int) {
    checking::went(ObjectKind::Region, mr.as_ptr(), result);
}

pub(crate) fn allocated_mw(_pd: Pointer<Pd>, _kind: c_int, mw: *mut ibv_mw) {
    checking::made(ObjectKind::Window, mw);
}

pub(crate) fn deallocating_mw(mw: Pointer<Mw>) {
    checking::going(ObjectKind::Window, mw.as_ptr());
}

pub(crate) fn deallocated_mw(mw: Pointer<Mw>, result: c_int) {
    checking::went(ObjectKind::Window, mw.as_ptr(), result);
}

/// Called for `ibv_bind_mw`, which posts the work request.
pub(crate) fn binding_mw(qp: &Qp, bind: &ibv_mw_bind) {
    checking::binding_mw(qp, bind);
}

pub(crate) fn bound_mw(qp: &Qp, result: c_int) {
    checking::posted_built(qp, result);
}

// Channels and completion queues.

pub(crate) fn created_channel(_context: ContextPtr<'_>, channel: *mut ibv_comp_channel) {
    checking::made(ObjectKind::Channel, channel);
}

pub(crate) fn destroying_channel(channel: Pointer<Channel>) {
    checking::going(ObjectKind::Channel, channel.as_ptr());
}

pub(crate) fn destroyed_channel(channel: Pointer<Channel>, result: c_int) {
    checking::went(ObjectKind::Channel, channel.as_ptr(), result);
}

pub(crate) fn created_cq(_context: ContextPtr<'_>, cq: *mut ibv_cq) {
    checking::created_cq(cq);
}

pub(crate) fn resized_cq(cq: Pointer<Cq>, cqe: c_int, result: c_int) {
    checking::resized_cq(cq, cqe, result);
}

/// `result` is an errno, or 0.
pub(crate) fn destroying_cq(cq: Pointer<Cq>) {
    checking::going(ObjectKind::CompletionQueue, cq.as_ptr());
}

pub(crate) fn destroyed_cq(cq: Pointer<Cq>, result: c_int) {
    checking::went(ObjectKind::CompletionQueue, cq.as_ptr(), result);
}

/// A poll returned these completions; an empty slice if there were none. Those of extended queues are passed one by one.
pub(crate) fn polled(cq: &Cq, completions: &[ibv_wc]) {
    checking::polled(cq, completions);
}

/// `cq` is NULL if there was no event.
pub(crate) fn got_cq_event(_channel: &Channel, cq: *mut ibv_cq) {
    checking::got_cq_event(cq);
}

pub(crate) fn acknowledged_cq_events(cq: &Cq, events: c_uint) {
    checking::acknowledged_cq_events(cq, events);
}

// Asynchronous events.

pub(crate) fn got_async_event(_context: ContextPtr<'_>, event: &ibv_async_event, result: c_int) {
    checking::got_async_event(event, result);
}

pub(crate) fn acknowledging_async_event(event: &ibv_async_event) {
    checking::acknowledging_async_event(event);
}

// Shared receive queues.

pub(crate) fn created_srq(_pd: *mut ibv_pd, _attr: &ibv_srq_attr, srq: *mut ibv_srq) {
    checking::created_srq(srq);
}

pub(crate) fn destroying_srq(srq: Pointer<Srq>) {
    checking::destroying_srq(srq.as_ptr());
}

pub(crate) fn destroyed_srq(srq: Pointer<Srq>, result: c_int) {
    checking::destroyed_srq(srq.as_ptr(), result);
}

// Queue pairs.

pub(crate) fn created_qp(qp: *mut ibv_qp) {
    checking::created_qp(qp.cast(), true);
}

pub(crate) fn modified_qp(qp: Pointer<Qp>, attr: &ibv_qp_attr, mask: c_int, result: c_int) {
    checking::modified_qp(qp, attr, mask, result);
}

pub(crate) fn destroying_qp(qp: Pointer<Qp>) {
    checking::destroying_qp(qp.as_ptr());
}

pub(crate) fn destroyed_qp(qp: Pointer<Qp>, result: c_int) {
    checking::went(ObjectKind::QueuePair, qp.as_ptr(), result);
}

// Address handles.

pub(crate) fn created_ah(_pd: Pointer<Pd>, ah: *mut ibv_ah) {
    checking::made(ObjectKind::Address, ah);
}

pub(crate) fn destroying_ah(ah: Pointer<Ah>) {
    checking::going(ObjectKind::Address, ah.as_ptr());
}

pub(crate) fn destroyed_ah(ah: Pointer<Ah>, result: c_int) {
    checking::went(ObjectKind::Address, ah.as_ptr(), result);
}

// Work. The lists are the program's; the work requests from `bad` on have failed.

pub(crate) fn posting_send(qp: &Qp, list: *const ibv_send_wr) {
    checking::posting_send(qp, list);
}

pub(crate) fn posted_send(qp: &Qp, list: *const ibv_send_wr, bad: *const ibv_send_wr, result: c_int) {
    checking::posted_send(qp, list, bad, result);
}

/// Called for `ibv_wr_complete`: all work requests are posted, or none.
pub(crate) fn posting_built(qp: &Qp, built: &Building) {
    checking::posting_built(qp, built);
}

pub(crate) fn posted_built(qp: &Qp, _built: &Building, result: c_int) {
    checking::posted_built(qp, result);
}

pub(crate) fn posting_recv(qp: &Qp, list: *const ibv_recv_wr) {
    checking::posting_recv(qp, list);
}

pub(crate) fn posted_recv(qp: &Qp, list: *const ibv_recv_wr, bad: *const ibv_recv_wr, result: c_int) {
    checking::posted_recv(qp, list, bad, result);
}

pub(crate) fn posting_srq_recv(srq: &Srq, list: *const ibv_recv_wr) {
    checking::posting_srq_recv(srq, list);
}

pub(crate) fn posted_srq_recv(srq: &Srq, list: *const ibv_recv_wr, bad: *const ibv_recv_wr, result: c_int) {
    checking::posted_srq_recv(srq, list, bad, result);
}

// The connection manager. The C struct of an id contains the objects that functions created for it: queue pair, completion queues, domain.

pub(crate) fn created_event_channel(channel: *mut rdma_event_channel) {
    checking::made(ObjectKind::EventChannel, channel);
}

pub(crate) fn destroying_event_channel(channel: *mut crate::rdmacm::channel::Channel) {
    checking::goes(ObjectKind::EventChannel, channel);
}

/// Called for `rdma_create_id` and `rdma_create_ep`; NULL if that failed.
pub(crate) fn created_id(id: *mut rdma_cm_id) {
    checking::made(ObjectKind::ConnectionId, id);
    // An endpoint includes a queue pair.
    checking::created_qp_of(id.cast());
}

/// Called for `rdma_destroy_id`, which leaves the other objects of the id.
pub(crate) fn destroying_id(id: *mut Id) {
    checking::going(ObjectKind::ConnectionId, id);
}

pub(crate) fn destroyed_id(id: *mut Id, result: c_int) {
    checking::went(ObjectKind::ConnectionId, id, result);
}

/// Called for `rdma_destroy_ep`, which destroys all objects of the id.
pub(crate) fn destroying_ep(id: &Id) {
    checking::destroying_qp_of(id);
    checking::destroying_srq_of(id);
    checking::going(ObjectKind::ConnectionId, id);
}

/// Called for `rdma_create_qp`, after which the id has a queue pair, and for the id that `rdma_get_request` returns.
pub(crate) fn created_qp_of(id: &Id, result: c_int) {
    if result == 0 {
        checking::created_qp_of(id);
    }
}

pub(crate) fn destroying_qp_of(id: &Id) {
    checking::destroying_qp_of(id);
}

pub(crate) fn created_srq_of(id: &Id, result: c_int) {
    if result == 0 {
        checking::created_srq_of(id);
    }
}

pub(crate) fn destroying_srq_of(id: &Id) {
    checking::destroying_srq_of(id);
}

/// `event` is NULL if there was none.
pub(crate) fn got_cm_event(event: *const CmEvent) {
    checking::got_cm_event(event);
}

pub(crate) fn acknowledging_cm_event(event: *const CmEvent) {
    checking::acknowledging_cm_event(event);
}

/// The process ends, by exit(3) or by returning from main.
pub(crate) fn process_ends() {
    checking::process_ends();
}
