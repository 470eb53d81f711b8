//! The functions of librdmacm that programs call.

use super::after;
use super::before::About;
use super::observe;
use super::recorded;
use super::switch::is_on;
use super::through::through;
use crate::abi::*;
use crate::rdmacm::channel::{self, Channel};
use crate::rdmacm::cm_event::{self, CmEvent};
use crate::rdmacm::id::{self, Id};
use crate::rdmacm::{bind, connect, devices, endpoint, event, listen, multicast, options, qp, resolve, srq};

/// The object that was created; NULL if the function failed.
fn made<T>(result: c_int, out: &*mut T) -> *mut T {
    if result == 0 { *out } else { std::ptr::null_mut() }
}

through! {
    [is_on]

    CmCreateEventChannel create_event_channel() -> *mut rdma_event_channel = channel::create, null,
        after |channel| observe::created_event_channel(channel);
    CmDestroyEventChannel destroy_event_channel(channel: *mut Channel) = channel::destroy, never,
        before observe::destroying_event_channel(channel);
    CmCreateId create_id(channel: Option<&Channel>, out: &mut *mut rdma_cm_id, context: *mut c_void, ps: c_int) -> c_int =
        id::create, minus_one, after |result| { after::has_id(made(result, out)); observe::created_id(made(result, out)) };
    CmDestroyId destroy_id(id: *mut Id) -> c_int = id::destroy, minus_one, before observe::destroying_id(id),
        after |result| observe::destroyed_id(id, result);
    CmMigrateId migrate_id(id: &Id, channel: Option<&Channel>) -> c_int = id::migrate, minus_one;
    CmCreateEp create_ep(
        out: &mut *mut rdma_cm_id, found: &rdma_addrinfo, pd: *mut ibv_pd, init: Option<&mut ibv_qp_init_attr>
    ) -> c_int = endpoint::create, minus_one, after |result| { after::has_id(made(result, out)); observe::created_id(made(result, out)) };
    CmDestroyEp destroy_ep(id: &Id) = endpoint::destroy, never,
        before { after::unmaking_for(id); after::unmaking_srq_of(id); observe::destroying_ep(id) },
        after |_result| observe::destroyed_id((&raw const *id).cast_mut(), 0);
    CmGetDevices get_devices(count: *mut c_int) -> *mut *mut ibv_context = devices::get, null;
    CmSetOption set_option(id: &Id, level: c_int, name: c_int, value: *const c_void, len: usize) -> c_int =
        options::set, minus_one;

    CmBindAddr bind_addr(id: &Id, address: *const libc::sockaddr) -> c_int = bind::bind, minus_one;
    CmResolveAddr resolve_addr(
        id: &Id, source: *const libc::sockaddr, destination: *const libc::sockaddr, timeout_ms: c_int
    ) -> c_int = resolve::address, minus_one, about About::id(id);
    CmResolveRoute resolve_route(id: &Id, timeout_ms: c_int) -> c_int = resolve::route, minus_one, about About::id(id);
    CmConnect connect(id: &Id, param: Option<&rdma_conn_param>) -> c_int = connect::connect, minus_one, about About::id(id);
    CmEstablish establish(id: &Id) -> c_int = connect::establish, minus_one;
    CmListen listen(id: &Id, backlog: c_int) -> c_int = listen::listen, minus_one;
    CmGetRequest get_request(listener: &Id, out: &mut *mut rdma_cm_id) -> c_int = listen::get_request, minus_one,
        after |result| { after::has_id(made(result, out)); observe::created_id(made(result, out)) };
    CmAccept accept(id: &Id, param: Option<&rdma_conn_param>) -> c_int = connect::accept, minus_one;
    CmReject reject(id: &Id, private_data: *const c_void, len: u8) -> c_int = connect::reject, minus_one;
    CmReject reject_ece(id: &Id, private_data: *const c_void, len: u8) -> c_int = connect::reject_ece, minus_one;
    CmNotify notify(id: &Id, event: c_int) -> c_int = connect::notify, minus_one;
    CmDisconnect disconnect(id: &Id) -> c_int = connect::disconnect, minus_one;

    CmCreateQp create_qp(id: &Id, pd: *mut ibv_pd, init: &mut ibv_qp_init_attr) -> c_int = qp::create, minus_one,
        after |result| { after::made_for(id); observe::created_qp_of(id, result) };
    CmCreateQp create_qp_ex(id: &Id, init: &mut ibv_qp_init_attr_ex) -> c_int = qp::create_ex, minus_one,
        after |result| { after::made_for(id); observe::created_qp_of(id, result) };
    CmDestroyQp destroy_qp(id: &Id) = qp::destroy, never, before { after::unmaking_for(id); observe::destroying_qp_of(id) };
    CmCreateSrq create_srq(id: &Id, pd: *mut ibv_pd, init: &mut ibv_srq_init_attr) -> c_int = srq::create, minus_one,
        after |result| { after::made_for(id); observe::created_srq_of(id, result) };
    CmCreateSrq create_srq_ex(id: &Id, init: &mut ibv_srq_init_attr_ex) -> c_int = srq::create_ex, minus_one,
        after |result| { after::made_for(id); observe::created_srq_of(id, result) };
    CmDestroySrq destroy_srq(id: &Id) = srq::destroy, never,
        before { after::unmaking_srq_of(id); observe::destroying_srq_of(id) };
    CmInitQpAttr init_qp_attr(id: &Id, attr: &mut ibv_qp_attr, mask: &mut c_int) -> c_int = qp::init_attr, minus_one;

    CmJoinMulticast join_multicast(id: &Id, address: *const libc::sockaddr, context: *mut c_void) -> c_int =
        multicast::join, minus_one;
    CmJoinMulticast join_multicast_ex(id: &Id, attr: &rdma_cm_join_mc_attr_ex, context: *mut c_void) -> c_int =
        multicast::join_ex, minus_one;
    CmLeaveMulticast leave_multicast(id: &Id, address: *const libc::sockaddr) -> c_int = multicast::leave, minus_one;

    CmGetCmEvent get_cm_event(channel: &Channel, out: &mut *mut CmEvent) -> c_int = event::get_event, minus_one,
        after |result| {
            after::took_event(made(result, out));
            recorded::cm_event(made(result, out));
            observe::got_cm_event(made(result, out))
        };
    CmAckCmEvent ack_cm_event(event: *mut CmEvent) -> c_int = cm_event::acknowledge, minus_one,
        before observe::acknowledging_cm_event(event);
}
