//! The device and the context with its tables of functions, through which inlined verbs call.

use std::cell::UnsafeCell;

use super::*;
use crate::completion::Cq;
use crate::context::ContextPtr;
use crate::queue_pair::Qp;
use crate::shared_receive::Srq;

#[repr(C)]
pub(crate) struct ibv_device {
    pub(crate) ops: [usize; 2],
    pub(crate) node_type: c_int,
    pub(crate) transport_type: c_int,
    pub(crate) name: [u8; 64],
    pub(crate) dev_name: [u8; 64],
    pub(crate) dev_path: [u8; 256],
    pub(crate) ibdev_path: [u8; 256],
}
layout!(ibv_device, 664, node_type 16, transport_type 20, name 24, dev_name 88, dev_path 152, ibdev_path 408);
pub(crate) const IBV_NODE_CA: c_int = 1;
pub(crate) const IBV_TRANSPORT_IB: c_int = 0;

/// `struct ibv_context_ops`: thirty-two pointers, of which inlined verbs call those named here.
#[repr(C)]
pub(crate) struct ibv_context_ops {
    pub(crate) compat0: [usize; 7],
    pub(crate) alloc_mw: extern "C" fn(&'static crate::domain::Pd, c_int) -> *mut ibv_mw,
    pub(crate) bind_mw: extern "C" fn(&Qp, &ibv_mw, &ibv_mw_bind) -> c_int,
    pub(crate) dealloc_mw: extern "C" fn(*mut ibv_mw) -> c_int,
    pub(crate) compat10: usize,
    pub(crate) poll_cq: extern "C" fn(&Cq, c_int, *mut ibv_wc) -> c_int,
    pub(crate) req_notify_cq: extern "C" fn(&Cq, c_int) -> c_int,
    pub(crate) compat13: [usize; 7],
    pub(crate) post_srq_recv: extern "C" fn(&Srq, *mut ibv_recv_wr, &mut *mut ibv_recv_wr) -> c_int,
    pub(crate) compat21: [usize; 4],
    pub(crate) post_send: extern "C" fn(&Qp, *mut ibv_send_wr, &mut *mut ibv_send_wr) -> c_int,
    pub(crate) post_recv: extern "C" fn(&Qp, *mut ibv_recv_wr, &mut *mut ibv_recv_wr) -> c_int,
    pub(crate) compat27: [usize; 5],
}
layout!(ibv_context_ops, 256, alloc_mw 56, bind_mw 64, dealloc_mw 72, poll_cq 88, req_notify_cq 96, post_srq_recv 160,
    post_send 200, post_recv 208);

#[repr(C)]
pub(crate) struct ibv_context {
    pub(crate) device: *mut ibv_device,
    pub(crate) ops: ibv_context_ops,
    pub(crate) cmd_fd: c_int,
    pub(crate) async_fd: c_int,
    pub(crate) num_comp_vectors: c_int,
    pub(crate) mutex: UnsafeCell<[u64; 5]>,
    /// All ones: it is the last field of a `verbs_context`.
    pub(crate) abi_compat: usize,
}
layout!(ibv_context, 328, ops 8, cmd_fd 264, async_fd 268, num_comp_vectors 272, mutex 280, abi_compat 320);

/// `struct verbs_context` as of v44. Newer headers have more in front, which they find missing by `sz`. A zero is a function that
/// does not exist: inlined verbs answer EOPNOTSUPP then.
#[repr(C)]
pub(crate) struct verbs_context {
    pub(crate) query_port: extern "C" fn(ContextPtr<'_>, u8, *mut c_void, usize) -> c_int,
    pub(crate) advise_mr: usize,
    pub(crate) alloc_null_mr: extern "C" fn(&'static crate::domain::Pd) -> *mut ibv_mr,
    pub(crate) counters_and_dm: [usize; 10],
    pub(crate) modify_qp_rate_limit: usize,
    pub(crate) alloc_parent_domain: extern "C" fn(ContextPtr<'_>, &ibv_parent_domain_init_attr) -> *mut ibv_pd,
    pub(crate) dealloc_td: extern "C" fn(*mut crate::domain::Td) -> c_int,
    pub(crate) alloc_td: extern "C" fn(ContextPtr<'_>, &u32) -> *mut ibv_td,
    pub(crate) modify_cq: usize,
    pub(crate) post_srq_ops: usize,
    pub(crate) wq: [usize; 5],
    pub(crate) query_rt_values: usize,
    pub(crate) create_cq_ex: extern "C" fn(ContextPtr<'_>, &ibv_cq_init_attr_ex) -> *mut ibv_cq,
    pub(crate) private: usize,
    pub(crate) query_device_ex: extern "C" fn(ContextPtr<'_>, *const u32, *mut c_void, usize) -> c_int,
    pub(crate) flow: [usize; 4],
    pub(crate) open_qp: usize,
    pub(crate) create_qp_ex: extern "C" fn(ContextPtr<'_>, &mut ibv_qp_init_attr_ex) -> *mut ibv_qp,
    pub(crate) get_srq_num: usize,
    pub(crate) create_srq_ex: extern "C" fn(ContextPtr<'_>, &mut ibv_srq_init_attr_ex) -> *mut ibv_srq,
    pub(crate) xrcd: [usize; 2],
    pub(crate) placeholder3: u64,
    pub(crate) sz: usize,
    pub(crate) context: ibv_context,
}
/// Distances from the end are what stays the same from release to release.
const END: usize = size_of::<verbs_context>();
layout!(verbs_context, 648, query_port END - 648, alloc_null_mr END - 632, alloc_parent_domain END - 536, alloc_td END - 520,
    query_rt_values END - 456, create_cq_ex END - 448, query_device_ex END - 432, create_qp_ex END - 384, create_srq_ex END - 368,
    sz END - 336, context END - 328);
