//! What an observer hears of a program: which objects it makes, changes and destroys, which work it posts, what it polls and takes, and its
//! end.
//!
//! Nobody observes yet. Each function is called in the thread of the call, with what the program gave. Those whose names end in `ing` are called
//! before the verb, the others after it, with its result. Pointers are the program's: whether they point to an object, `get` says.
//! A result is NULL, or not 0, where the verb failed.

use crate::abi::*;
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

/// Whether anybody observes this process.
pub(crate) fn is_wanted() -> bool {
    false
}

// Devices.

pub(crate) fn opened_device(_device: &'static Device, _context: *mut ibv_context) {}

pub(crate) fn closing_device(_context: Pointer<ibv_context>) {}

pub(crate) fn closed_device(_context: Pointer<ibv_context>, _result: c_int) {}

// Protection domains: also parent domains.

pub(crate) fn allocated_pd(_context: ContextPtr<'_>, _pd: *mut ibv_pd) {}

pub(crate) fn deallocating_pd(_pd: Pointer<Pd>) {}

pub(crate) fn deallocated_pd(_pd: Pointer<Pd>, _result: c_int) {}

// Memory regions and windows.

/// Work requests know the region by addresses from `iova` on.
pub(crate) fn registered(_pd: Pointer<Pd>, _iova: u64, _access: c_uint, _mr: *mut ibv_mr) {}

/// By `ibv_reg_mr_ex`.
pub(crate) fn registered_ex(_pd: Pointer<Pd>, _attr: &ibv_mr_init_attr, _mr: *mut ibv_mr) {}

pub(crate) fn reregistering(_mr: Pointer<Mr>, _flags: c_int, _pd: Pointer<Pd>, _addr: *mut c_void, _length: usize) {}

pub(crate) fn reregistered(_mr: Pointer<Mr>, _flags: c_int, _access: c_uint, _result: c_int) {}

pub(crate) fn deregistering(_mr: Pointer<Mr>) {}

pub(crate) fn deregistered(_mr: Pointer<Mr>, _result: c_int) {}

pub(crate) fn allocated_mw(_pd: Pointer<Pd>, _kind: c_int, _mw: *mut ibv_mw) {}

pub(crate) fn deallocating_mw(_mw: Pointer<Mw>) {}

pub(crate) fn deallocated_mw(_mw: Pointer<Mw>, _result: c_int) {}

/// By `ibv_bind_mw`, which posts the work request.
pub(crate) fn bound_mw(_qp: &Qp, _mw: &ibv_mw, _bind: &ibv_mw_bind, _result: c_int) {}

// Channels and completion queues.

pub(crate) fn created_channel(_context: ContextPtr<'_>, _channel: *mut ibv_comp_channel) {}

pub(crate) fn destroying_channel(_channel: Pointer<Channel>) {}

pub(crate) fn destroyed_channel(_channel: Pointer<Channel>, _result: c_int) {}

pub(crate) fn created_cq(_context: ContextPtr<'_>, _cq: *mut ibv_cq) {}

pub(crate) fn resized_cq(_cq: Pointer<Cq>, _cqe: c_int, _result: c_int) {}

/// `result` is an errno, or 0.
pub(crate) fn destroying_cq(_cq: Pointer<Cq>) {}

pub(crate) fn destroyed_cq(_cq: Pointer<Cq>, _result: c_int) {}

/// A poll returned these completions: none where there was none. Those of extended queues come one by one.
pub(crate) fn polled(_cq: &Cq, _completions: &[ibv_wc]) {}

pub(crate) fn armed(_cq: &Cq, _solicited_only: bool, _result: c_int) {}

/// A thread is about to wait for an event of the channel.
pub(crate) fn getting_cq_event(_channel: &Channel) {}

/// `cq` is NULL where there was none.
pub(crate) fn got_cq_event(_channel: &Channel, _cq: *mut ibv_cq) {}

pub(crate) fn acknowledged_cq_events(_cq: &Cq, _events: c_uint) {}

// Asynchronous events.

pub(crate) fn got_async_event(_context: ContextPtr<'_>, _event: &ibv_async_event, _result: c_int) {}

pub(crate) fn acknowledging_async_event(_event: &ibv_async_event) {}

// Shared receive queues.

pub(crate) fn created_srq(_pd: *mut ibv_pd, _attr: &ibv_srq_attr, _srq: *mut ibv_srq) {}

pub(crate) fn modified_srq(_srq: Pointer<Srq>, _attr: &ibv_srq_attr, _mask: c_int, _result: c_int) {}

pub(crate) fn destroying_srq(_srq: Pointer<Srq>) {}

pub(crate) fn destroyed_srq(_srq: Pointer<Srq>, _result: c_int) {}

// Queue pairs.

pub(crate) fn created_qp(_qp: *mut ibv_qp) {}

pub(crate) fn modifying_qp(_qp: Pointer<Qp>, _attr: &ibv_qp_attr, _mask: c_int) {}

pub(crate) fn modified_qp(_qp: Pointer<Qp>, _attr: &ibv_qp_attr, _mask: c_int, _result: c_int) {}

pub(crate) fn destroying_qp(_qp: Pointer<Qp>) {}

pub(crate) fn destroyed_qp(_qp: Pointer<Qp>, _result: c_int) {}

pub(crate) fn attached(_qp: Pointer<Qp>, _gid: &ibv_gid, _result: c_int) {}

pub(crate) fn detached(_qp: Pointer<Qp>, _gid: &ibv_gid, _result: c_int) {}

// Address handles.

pub(crate) fn created_ah(_pd: Pointer<Pd>, _ah: *mut ibv_ah) {}

pub(crate) fn destroying_ah(_ah: Pointer<Ah>) {}

pub(crate) fn destroyed_ah(_ah: Pointer<Ah>, _result: c_int) {}

// Work. The lists are those of the program; what fails is from `bad` on.

pub(crate) fn posting_send(_qp: &Qp, _list: *const ibv_send_wr) {}

pub(crate) fn posted_send(_qp: &Qp, _list: *const ibv_send_wr, _bad: *const ibv_send_wr, _result: c_int) {}

/// By `ibv_wr_complete`: all of it is posted, or nothing.
pub(crate) fn posting_built(_qp: &Qp, _built: &Building) {}

pub(crate) fn posted_built(_qp: &Qp, _built: &Building, _result: c_int) {}

pub(crate) fn posting_recv(_qp: &Qp, _list: *const ibv_recv_wr) {}

pub(crate) fn posted_recv(_qp: &Qp, _list: *const ibv_recv_wr, _bad: *const ibv_recv_wr, _result: c_int) {}

pub(crate) fn posting_srq_recv(_srq: &Srq, _list: *const ibv_recv_wr) {}

pub(crate) fn posted_srq_recv(_srq: &Srq, _list: *const ibv_recv_wr, _bad: *const ibv_recv_wr, _result: c_int) {}

// The connection manager. Of an id that functions made things for, the C struct has them: queue pair, completion queues, domain.

pub(crate) fn created_event_channel(_channel: *mut rdma_event_channel) {}

pub(crate) fn destroying_event_channel(_channel: *mut crate::rdmacm::channel::Channel) {}

/// By `rdma_create_id` and `rdma_create_ep`; NULL where that failed.
pub(crate) fn created_id(_id: *mut rdma_cm_id) {}

pub(crate) fn destroying_id(_id: *mut Id) {}

/// By `rdma_create_qp`: the id has it now, and a request that `rdma_get_request` returns.
pub(crate) fn created_qp_of(_id: &Id, _result: c_int) {}

pub(crate) fn destroying_qp_of(_id: &Id) {}

pub(crate) fn created_srq_of(_id: &Id, _result: c_int) {}

pub(crate) fn destroying_srq_of(_id: &Id) {}

/// A step of a connection, by the name of the function without `rdma_`.
pub(crate) fn stepped(_id: &Id, _function: &'static str, _result: c_int) {}

/// `event` is NULL where there was none.
pub(crate) fn got_cm_event(_event: *const CmEvent) {}

pub(crate) fn acknowledging_cm_event(_event: *const CmEvent) {}

/// The process ends, by exit(3) or the end of main.
pub(crate) fn process_ends() {}
