//! Control verbs that programs call by their symbols.

use super::after;
use super::before::About;
use super::made::Kind;
use super::observe;
use super::recorded;
use super::switch::is_on;
use super::through::through;
use crate::abi::*;
use crate::calls::vendor::{self, softnicdv_qp_init_attr};
use crate::calls::{create_cq, create_qp, device_list, events, open, qp_attributes, query};
use crate::objects::address::{self, Ah};
use crate::objects::completion_channel::{self, Channel};
use crate::objects::completion_queue::{self, Cq};
use crate::objects::context::{self, ContextPtr};
use crate::objects::device::Device;
use crate::objects::domain::{self, Pd};
use crate::objects::handle::Pointer;
use crate::objects::queue_pair::{self, Qp};
use crate::objects::region::{self, Mr};
use crate::objects::shared_receive::{self, Srq};

through! {
    [is_on]

    GetDeviceList get_device_list(count: *mut c_int) -> *mut *mut ibv_device = device_list::get_list, null;
    OpenDevice open_device(device: &'static Device) -> *mut ibv_context = open::open, null,
        after |context| observe::opened_device(device, context);
    CloseDevice close_device(context: Pointer<ibv_context>) -> c_int = context::close, errno,
        before observe::closing_device(context), after |result| observe::closed_device(context, result);
    QueryDevice query_device(context: ContextPtr<'_>, attr: &mut ibv_device_attr) -> c_int = query::device, errno;
    QueryPort query_port(context: ContextPtr<'_>, number: u8, out: *mut c_void) -> c_int = query::port_compat, errno;
    QueryGid query_gid(context: ContextPtr<'_>, port: u8, index: c_int, gid: &mut ibv_gid) -> c_int = query::gid, minus_one;
    QueryPkey query_pkey(context: ContextPtr<'_>, port: u8, index: c_int, pkey: &mut u16) -> c_int =
        query::pkey, minus_one;

    AllocPd alloc_pd(context: ContextPtr<'_>) -> *mut ibv_pd = domain::alloc, null,
        after |pd| observe::allocated_pd(context, pd);
    DeallocPd dealloc_pd(pd: Pointer<Pd>) -> c_int = domain::dealloc, errno,
        before observe::deallocating_pd(pd), after |result| observe::deallocated_pd(pd, result);

    RegMr reg_mr(pd: Pointer<Pd>, addr: *mut c_void, length: usize, access: c_uint) -> *mut ibv_mr = region::reg, null,
        after |mr| observe::registered(pd, addr.addr() as u64, access, mr);
    RegMr reg_mr_iova(pd: Pointer<Pd>, addr: *mut c_void, length: usize, iova: u64, access: c_uint) -> *mut ibv_mr =
        region::reg_iova, null, after |mr| observe::registered(pd, iova, access, mr);
    RegMr reg_mr_ex(pd: Pointer<Pd>, attr: &ibv_mr_init_attr) -> *mut ibv_mr = region::reg_ex, null,
        after |mr| observe::registered_ex(pd, attr, mr);
    RegMr reg_buf_mr(pd: Pointer<Pd>, buf: *mut c_void, addr: *mut c_void, length: usize, access: c_uint) -> *mut ibv_mr =
        region::reg_buf, null, after |mr| observe::registered(pd, addr.addr() as u64, access, mr);
    ReregMr rereg_mr(
        mr: Pointer<Mr>, flags: c_int, pd: Pointer<Pd>, addr: *mut c_void, length: usize, access: c_uint
    ) -> c_int = region::rereg, rereg, before observe::reregistering(mr, flags, pd, addr, length),
        after |result| observe::reregistered(mr, flags, access, result);
    DeregMr dereg_mr(mr: Pointer<Mr>) -> c_int = region::dereg, errno,
        before observe::deregistering(mr), after |result| observe::deregistered(mr, result);

    CreateCompChannel create_comp_channel(context: ContextPtr<'_>) -> *mut ibv_comp_channel =
        completion_channel::create, null, after |channel| observe::created_channel(context, channel);
    DestroyCompChannel destroy_comp_channel(channel: Pointer<Channel>) -> c_int = completion_channel::destroy, errno,
        before observe::destroying_channel(channel), after |result| observe::destroyed_channel(channel, result);
    CreateCq create_cq(
        context: ContextPtr<'_>, cqe: c_int, cq_context: *mut c_void, channel: *mut ibv_comp_channel, vector: c_int
    ) -> *mut ibv_cq = create_cq::create, null, after |cq| { after::made(Kind::Cq, cq); observe::created_cq(context, cq) };
    ResizeCq resize_cq(cq: Pointer<Cq>, cqe: c_int) -> c_int = completion_queue::resize, errno,
        after |result| observe::resized_cq(cq, cqe, result);
    DestroyCq destroy_cq(cq: Pointer<Cq>) -> c_int = completion_queue::destroy, errno,
        before { after::going(Kind::Cq, cq.as_ptr()); observe::destroying_cq(cq) },
        after |result| { after::gone(Kind::Cq, cq.as_ptr(), result); observe::destroyed_cq(cq, result) };
    GetCqEvent get_cq_event(channel: &Channel, cq: &mut *mut ibv_cq, cq_context: &mut *mut c_void) -> c_int =
        events::get_completion, minus_one, before observe::getting_cq_event(channel),
        after |result| {
            let cq = if result == 0 { *cq } else { std::ptr::null_mut() };
            after::took_completion_event(cq);
            observe::got_cq_event(channel, cq)
        };
    AckCqEvents ack_cq_events(cq: &Cq, events: c_uint) = events::acknowledge_completions, never,
        before observe::acknowledged_cq_events(cq, events);
    GetAsyncEvent get_async_event(context: ContextPtr<'_>, event: &mut ibv_async_event) -> c_int =
        events::get_async, minus_one,
        after |result| { recorded::async_event(event, result); observe::got_async_event(context, event, result) };
    AckAsyncEvent ack_async_event(event: &ibv_async_event) = events::acknowledge_async, never,
        before observe::acknowledging_async_event(event);

    CreateSrq create_srq(pd: Pointer<Pd>, init: &mut ibv_srq_init_attr) -> *mut ibv_srq = shared_receive::create, null,
        after |srq| { after::made(Kind::Srq, srq); observe::created_srq(pd.as_ptr().cast(), &init.attr, srq) };
    ModifySrq modify_srq(srq: Pointer<Srq>, attr: &ibv_srq_attr, mask: c_int) -> c_int = shared_receive::modify, errno,
        after |result| observe::modified_srq(srq, attr, mask, result);
    QuerySrq query_srq(srq: Pointer<Srq>, attr: &mut ibv_srq_attr) -> c_int = shared_receive::query, errno;
    DestroySrq destroy_srq(srq: Pointer<Srq>) -> c_int = shared_receive::destroy, errno,
        before { after::going(Kind::Srq, srq.as_ptr()); observe::destroying_srq(srq) },
        after |result| { after::gone(Kind::Srq, srq.as_ptr(), result); observe::destroyed_srq(srq, result) };

    CreateQp create_qp(pd: Pointer<Pd>, init: &mut ibv_qp_init_attr) -> *mut ibv_qp = create_qp::create, null,
        after |qp| { after::made_qp(qp); observe::created_qp(qp) };
    CreateQp softnicdv_create_qp(
        context: ContextPtr<'_>, init: &mut ibv_qp_init_attr_ex, dv: Option<&softnicdv_qp_init_attr>
    ) -> *mut ibv_qp = vendor::create_qp, null, after |qp| { after::made_qp(qp); observe::created_qp(qp) };
    ModifyQp modify_qp(qp: Pointer<Qp>, attr: &ibv_qp_attr, mask: c_int) -> c_int = qp_attributes::modify, errno,
        about About::queue_pair(qp), before observe::modifying_qp(qp, attr, mask),
        after |result| { after::modified(qp, attr, mask, result); observe::modified_qp(qp, attr, mask, result) };
    QueryQp query_qp(qp: Pointer<Qp>, attr: &mut ibv_qp_attr, mask: c_int, init: &mut ibv_qp_init_attr) -> c_int =
        qp_attributes::query, errno, about About::queue_pair(qp);
    DestroyQp destroy_qp(qp: Pointer<Qp>) -> c_int = queue_pair::destroy, errno, about About::queue_pair(qp),
        before { after::going_qp(qp); observe::destroying_qp(qp) },
        after |result| { after::gone(Kind::Qp, qp.as_ptr(), result); observe::destroyed_qp(qp, result) };
    AttachMcast attach_mcast(qp: Pointer<Qp>, gid: &ibv_gid, lid: u16) -> c_int = address::attach, errno,
        about About::queue_pair(qp), after |result| observe::attached(qp, gid, result);
    DetachMcast detach_mcast(qp: Pointer<Qp>, gid: &ibv_gid, lid: u16) -> c_int = address::detach, errno,
        about About::queue_pair(qp), after |result| observe::detached(qp, gid, result);

    CreateAh create_ah(pd: Pointer<Pd>, attr: &ibv_ah_attr) -> *mut ibv_ah = address::create, null,
        after |ah| observe::created_ah(pd, ah);
    CreateAh create_ah_from_wc(pd: Pointer<Pd>, wc: &ibv_wc, grh: &ibv_grh, port: u8) -> *mut ibv_ah =
        address::create_from_wc, null, after |ah| observe::created_ah(pd, ah);
    DestroyAh destroy_ah(ah: Pointer<Ah>) -> c_int = address::destroy, errno,
        before observe::destroying_ah(ah), after |result| observe::destroyed_ah(ah, result);
}
