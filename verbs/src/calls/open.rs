//! `ibv_open_device`, with the tables of functions that inlined verbs call.

use crate::abi::*;
use crate::calls::wrapped::Wrapped;
use crate::calls::{create_cq, create_qp, poll, post, query};
use crate::objects::completion_queue::{self, Cq};
use crate::objects::context::{Context, ContextPtr};
use crate::objects::device::Device;
use crate::objects::domain::{self, Pd, Td};
use crate::objects::handle::Pointer;
use crate::objects::queue_pair::Qp;
use crate::objects::region;
use crate::objects::shared_receive::{self, Srq};
use crate::objects::window::{self, Mw};

/// `struct ibv_context_ops`: thirty-two pointers; inlined verbs call those named here.
#[repr(C)]
pub(crate) struct ibv_context_ops {
    compat0: [usize; 7],
    pub(crate) alloc_mw: extern "C" fn(Pointer<Pd>, c_int) -> *mut ibv_mw,
    pub(crate) bind_mw: extern "C" fn(&Qp, &ibv_mw, &ibv_mw_bind) -> c_int,
    pub(crate) dealloc_mw: extern "C" fn(Pointer<Mw>) -> c_int,
    compat10: usize,
    pub(crate) poll_cq: extern "C" fn(&Cq, c_int, *mut ibv_wc) -> c_int,
    pub(crate) req_notify_cq: extern "C" fn(&Cq, c_int) -> c_int,
    compat13: [usize; 7],
    pub(crate) post_srq_recv: extern "C" fn(&Srq, *mut ibv_recv_wr, &mut *mut ibv_recv_wr) -> c_int,
    compat21: [usize; 4],
    pub(crate) post_send: extern "C" fn(&Qp, *mut ibv_send_wr, &mut *mut ibv_send_wr) -> c_int,
    pub(crate) post_recv: extern "C" fn(&Qp, *mut ibv_recv_wr, &mut *mut ibv_recv_wr) -> c_int,
    compat27: [usize; 5],
}
layout!(ibv_context_ops, 256, alloc_mw 56, bind_mw 64, dealloc_mw 72, poll_cq 88, req_notify_cq 96, post_srq_recv 160,
    post_send 200, post_recv 208);

/// `struct verbs_context` as of v44. Newer headers have more fields in front, whose absence they detect by `sz`. Zero means that a function
/// does not exist.
#[repr(C)]
pub(crate) struct verbs_context {
    pub(crate) query_port: extern "C" fn(ContextPtr<'_>, u8, *mut c_void, usize) -> c_int,
    advise_mr: usize,
    pub(crate) alloc_null_mr: extern "C" fn(Pointer<Pd>) -> *mut ibv_mr,
    counters_and_dm: [usize; 10],
    modify_qp_rate_limit: usize,
    pub(crate) alloc_parent_domain: extern "C" fn(ContextPtr<'_>, &ibv_parent_domain_init_attr) -> *mut ibv_pd,
    pub(crate) dealloc_td: extern "C" fn(Pointer<Td>) -> c_int,
    pub(crate) alloc_td: extern "C" fn(ContextPtr<'_>, &u32) -> *mut ibv_td,
    modify_cq: usize,
    post_srq_ops: usize,
    wq: [usize; 5],
    query_rt_values: usize,
    pub(crate) create_cq_ex: extern "C" fn(ContextPtr<'_>, &ibv_cq_init_attr_ex) -> *mut ibv_cq,
    private: usize,
    pub(crate) query_device_ex: extern "C" fn(ContextPtr<'_>, *const u32, *mut c_void, usize) -> c_int,
    flow: [usize; 4],
    open_qp: usize,
    pub(crate) create_qp_ex: extern "C" fn(ContextPtr<'_>, &mut ibv_qp_init_attr_ex) -> *mut ibv_qp,
    get_srq_num: usize,
    pub(crate) create_srq_ex: extern "C" fn(ContextPtr<'_>, &mut ibv_srq_init_attr_ex) -> *mut ibv_srq,
    xrcd: [usize; 2],
    placeholder3: u64,
    sz: usize,
    context: ibv_context,
}
/// The offsets from the end do not change between releases.
const END: usize = size_of::<verbs_context>();
layout!(verbs_context, 648, query_port END - 648, alloc_null_mr END - 632, alloc_parent_domain END - 536, alloc_td END - 520,
    query_rt_values END - 456, create_cq_ex END - 448, query_device_ex END - 432, create_qp_ex END - 384, create_srq_ex END - 368,
    sz END - 336, context END - 328);
const _: () = assert!(std::mem::offset_of!(UntypedVerbsContext, context) == END - size_of::<ibv_context>());

/// The wrappers of the functions of contexts, if there are any.
pub(crate) static OPS: Wrapped<ibv_context_ops> = Wrapped::new();
pub(crate) static TABLE: Wrapped<verbs_context> = Wrapped::new();

/// The functions that inlined verbs call. The `compat` slots were used by programs of long ago.
fn ops() -> [Function; 32] {
    let ops = ibv_context_ops {
        compat0: [0; 7],
        alloc_mw: window::alloc,
        bind_mw: window::bind,
        dealloc_mw: window::dealloc,
        compat10: 0,
        poll_cq: poll::poll,
        req_notify_cq: completion_queue::req_notify,
        compat13: [0; 7],
        post_srq_recv: post::srq_recv,
        compat21: [0; 4],
        post_send: post::send,
        post_recv: post::recv,
        compat27: [0; 5],
    };
    // SAFETY: the struct consists of thirty-two pointers, each to a function or NULL.
    unsafe { std::mem::transmute::<ibv_context_ops, [Function; 32]>(OPS.make(ops)) }
}

/// Puts the functions of newer verbs in front of a context.
fn extend(context: ibv_context) -> UntypedVerbsContext {
    let typed = verbs_context {
        query_port: query::port,
        advise_mr: 0,
        alloc_null_mr: region::alloc_null,
        counters_and_dm: [0; 10],
        modify_qp_rate_limit: 0,
        alloc_parent_domain: domain::alloc_parent,
        dealloc_td: domain::dealloc_td,
        alloc_td: domain::alloc_td,
        modify_cq: 0,
        post_srq_ops: 0,
        wq: [0; 5],
        query_rt_values: 0,
        create_cq_ex: create_cq::create_ex,
        private: 0,
        query_device_ex: query::device_ex,
        flow: [0; 4],
        open_qp: 0,
        create_qp_ex: create_qp::create_ex,
        get_srq_num: 0,
        create_srq_ex: shared_receive::create_ex,
        xrcd: [0; 2],
        placeholder3: 0,
        sz: size_of::<verbs_context>(),
        context,
    };
    // SAFETY: both have the same pointers, numbers and context at the same offsets; only the types of the functions are omitted.
    unsafe { std::mem::transmute::<verbs_context, UntypedVerbsContext>(TABLE.make(typed)) }
}

/// `ibv_open_device`.
pub(crate) extern "C" fn open(device: &'static Device) -> *mut ibv_context {
    Context::open(device, ops(), extend).unwrap_or_else(|e| {
        e.set();
        std::ptr::null_mut()
    })
}
