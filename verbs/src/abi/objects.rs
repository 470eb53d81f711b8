//! The objects that programs have pointers to. The library's own fields follow the C fields.

use std::cell::UnsafeCell;
use std::ffi::{c_int, c_uint, c_void};
use std::sync::atomic::{AtomicI32, AtomicU32};

use super::context::ibv_context;
use super::layout::layout;

/// `pthread_mutex_t` and `pthread_cond_t`, which only libibverbs itself uses.
pub(crate) type Mutex = UnsafeCell<[u64; 5]>;
pub(crate) type Cond = UnsafeCell<[u64; 6]>;

#[repr(C)]
pub(crate) struct ibv_pd {
    pub(crate) context: *mut ibv_context,
    pub(crate) handle: u32,
}
layout!(ibv_pd, 16, handle 8);

#[repr(C)]
pub(crate) struct ibv_td {
    pub(crate) context: *mut ibv_context,
}

#[repr(C)]
pub(crate) struct ibv_mr {
    pub(crate) context: *mut ibv_context,
    pub(crate) pd: *mut ibv_pd,
    pub(crate) addr: *mut c_void,
    pub(crate) length: usize,
    pub(crate) handle: u32,
    pub(crate) lkey: u32,
    pub(crate) rkey: u32,
}
layout!(ibv_mr, 48, addr 16, handle 32, lkey 36, rkey 40);

pub(crate) const IBV_ACCESS_LOCAL_WRITE: c_uint = 1;
pub(crate) const IBV_ACCESS_REMOTE_WRITE: c_uint = 1 << 1;
pub(crate) const IBV_ACCESS_REMOTE_READ: c_uint = 1 << 2;
pub(crate) const IBV_ACCESS_REMOTE_ATOMIC: c_uint = 1 << 3;
pub(crate) const IBV_ACCESS_MW_BIND: c_uint = 1 << 4;
pub(crate) const IBV_ACCESS_ZERO_BASED: c_uint = 1 << 5;
pub(crate) const IBV_ACCESS_ON_DEMAND: c_uint = 1 << 6;
pub(crate) const IBV_ACCESS_HUGETLB: c_uint = 1 << 7;
/// Bits that a device may ignore, including relaxed ordering.
pub(crate) const IBV_ACCESS_OPTIONAL_RANGE: c_uint = 0x3ff << 20;

pub(crate) const IBV_REREG_MR_CHANGE_TRANSLATION: c_int = 1;
pub(crate) const IBV_REREG_MR_CHANGE_PD: c_int = 2;
pub(crate) const IBV_REREG_MR_CHANGE_ACCESS: c_int = 4;
/// The arguments are not valid, and the old region is unchanged.
pub(crate) const IBV_REREG_MR_ERR_INPUT: c_int = -1;
/// The device refused. In this library the old region is unchanged in this case, too.
pub(crate) const IBV_REREG_MR_ERR_CMD: c_int = -4;

#[repr(C)]
pub(crate) struct ibv_mw {
    pub(crate) context: *mut ibv_context,
    pub(crate) pd: *mut ibv_pd,
    pub(crate) rkey: AtomicU32,
    pub(crate) handle: u32,
    pub(crate) kind: c_int,
}
layout!(ibv_mw, 32, rkey 16, handle 20, kind 24);
pub(crate) const IBV_MW_TYPE_1: c_int = 1;
pub(crate) const IBV_MW_TYPE_2: c_int = 2;

#[repr(C)]
pub(crate) struct ibv_comp_channel {
    pub(crate) context: *mut ibv_context,
    pub(crate) fd: c_int,
    pub(crate) refcnt: c_int,
}
layout!(ibv_comp_channel, 16, fd 8);

#[repr(C)]
pub(crate) struct ibv_cq {
    pub(crate) context: *mut ibv_context,
    pub(crate) channel: *mut ibv_comp_channel,
    pub(crate) cq_context: *mut c_void,
    pub(crate) handle: u32,
    pub(crate) cqe: AtomicI32,
    pub(crate) mutex: Mutex,
    pub(crate) cond: Cond,
    pub(crate) comp_events_completed: u32,
    pub(crate) async_events_completed: u32,
}
layout!(ibv_cq, 128, handle 24, cqe 28, mutex 32, cond 72, comp_events_completed 120);

#[repr(C)]
pub(crate) struct ibv_srq {
    pub(crate) context: *mut ibv_context,
    pub(crate) srq_context: *mut c_void,
    pub(crate) pd: *mut ibv_pd,
    pub(crate) handle: u32,
    pub(crate) mutex: Mutex,
    pub(crate) cond: Cond,
    pub(crate) events_completed: u32,
}
layout!(ibv_srq, 128, handle 24, mutex 32, events_completed 120);

#[repr(C)]
pub(crate) struct ibv_ah {
    pub(crate) context: *mut ibv_context,
    pub(crate) pd: *mut ibv_pd,
    pub(crate) handle: u32,
}
layout!(ibv_ah, 24, handle 16);

#[repr(C)]
pub(crate) struct ibv_qp {
    pub(crate) context: *mut ibv_context,
    pub(crate) qp_context: *mut c_void,
    pub(crate) pd: *mut ibv_pd,
    pub(crate) send_cq: *mut ibv_cq,
    pub(crate) recv_cq: *mut ibv_cq,
    pub(crate) srq: *mut ibv_srq,
    pub(crate) handle: u32,
    pub(crate) qp_num: u32,
    pub(crate) state: AtomicI32,
    pub(crate) qp_type: c_int,
    pub(crate) mutex: Mutex,
    pub(crate) cond: Cond,
    pub(crate) events_completed: u32,
}
layout!(ibv_qp, 160, srq 40, handle 48, qp_num 52, state 56, qp_type 60, mutex 64, cond 104, events_completed 152);
