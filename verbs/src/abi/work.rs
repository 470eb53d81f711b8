//! Work requests and completions.

use std::ffi::{c_int, c_uint, c_void};

use super::layout::layout;
use super::objects::{ibv_ah, ibv_mr, ibv_mw};

#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct ibv_mw_bind_info {
    pub(crate) mr: *mut ibv_mr,
    pub(crate) addr: u64,
    pub(crate) length: u64,
    pub(crate) mw_access_flags: c_uint,
}
layout!(ibv_mw_bind_info, 32, mw_access_flags 24);

#[repr(C)]
pub(crate) struct ibv_mw_bind {
    pub(crate) wr_id: u64,
    pub(crate) send_flags: c_uint,
    pub(crate) bind_info: ibv_mw_bind_info,
}
layout!(ibv_mw_bind, 48, bind_info 16);

/// Has the same layout as [`softnic_runtime::api::Sge`]; an assertion checks this where the code relies on it.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct ibv_sge {
    pub(crate) addr: u64,
    pub(crate) length: u32,
    pub(crate) lkey: u32,
}

#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct WrRdma {
    pub(crate) remote_addr: u64,
    pub(crate) rkey: u32,
}

#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct WrAtomic {
    pub(crate) remote_addr: u64,
    pub(crate) compare_add: u64,
    pub(crate) swap: u64,
    pub(crate) rkey: u32,
}

#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct WrUd {
    pub(crate) ah: *mut ibv_ah,
    pub(crate) remote_qpn: u32,
    pub(crate) remote_qkey: u32,
}

/// The union `wr` of a send work request.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) union WrTarget {
    pub(crate) rdma: WrRdma,
    pub(crate) atomic: WrAtomic,
    pub(crate) ud: WrUd,
}

#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct WrBind {
    pub(crate) mw: *mut ibv_mw,
    pub(crate) rkey: u32,
    pub(crate) bind_info: ibv_mw_bind_info,
}

#[repr(C)]
pub(crate) struct ibv_send_wr {
    pub(crate) wr_id: u64,
    pub(crate) next: *mut ibv_send_wr,
    pub(crate) sg_list: *mut ibv_sge,
    pub(crate) num_sge: c_int,
    pub(crate) opcode: c_int,
    pub(crate) send_flags: c_uint,
    /// Immediate data in network byte order, or the key to invalidate.
    pub(crate) imm_data: u32,
    pub(crate) wr: WrTarget,
    pub(crate) xrc_remote_srqn: u32,
    pub(crate) bind_mw: WrBind,
}
layout!(ibv_send_wr, 128, sg_list 16, num_sge 24, opcode 28, send_flags 32, imm_data 36, wr 40, xrc_remote_srqn 72, bind_mw 80);

pub(crate) const IBV_WR_RDMA_WRITE: c_int = 0;
pub(crate) const IBV_WR_RDMA_WRITE_WITH_IMM: c_int = 1;
pub(crate) const IBV_WR_SEND: c_int = 2;
pub(crate) const IBV_WR_SEND_WITH_IMM: c_int = 3;
pub(crate) const IBV_WR_RDMA_READ: c_int = 4;
pub(crate) const IBV_WR_ATOMIC_CMP_AND_SWP: c_int = 5;
pub(crate) const IBV_WR_ATOMIC_FETCH_AND_ADD: c_int = 6;
pub(crate) const IBV_WR_LOCAL_INV: c_int = 7;
pub(crate) const IBV_WR_BIND_MW: c_int = 8;
pub(crate) const IBV_WR_SEND_WITH_INV: c_int = 9;

pub(crate) const IBV_SEND_FENCE: c_uint = 1;
pub(crate) const IBV_SEND_SIGNALED: c_uint = 1 << 1;
pub(crate) const IBV_SEND_SOLICITED: c_uint = 1 << 2;
pub(crate) const IBV_SEND_INLINE: c_uint = 1 << 3;
pub(crate) const IBV_SEND_IP_CSUM: c_uint = 1 << 4;

#[repr(C)]
pub(crate) struct ibv_recv_wr {
    pub(crate) wr_id: u64,
    pub(crate) next: *mut ibv_recv_wr,
    pub(crate) sg_list: *mut ibv_sge,
    pub(crate) num_sge: c_int,
}
layout!(ibv_recv_wr, 32, sg_list 16, num_sge 24);

#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct ibv_data_buf {
    pub(crate) addr: *mut c_void,
    pub(crate) length: usize,
}

#[repr(C)]
#[derive(Clone, Copy, Default)]
pub(crate) struct ibv_wc {
    pub(crate) wr_id: u64,
    pub(crate) status: c_int,
    pub(crate) opcode: c_int,
    pub(crate) vendor_err: u32,
    pub(crate) byte_len: u32,
    /// Immediate data in network byte order, or the key that was invalidated.
    pub(crate) imm_data: u32,
    pub(crate) qp_num: u32,
    pub(crate) src_qp: u32,
    pub(crate) wc_flags: c_uint,
    pub(crate) pkey_index: u16,
    pub(crate) slid: u16,
    pub(crate) sl: u8,
    pub(crate) dlid_path_bits: u8,
}
layout!(ibv_wc, 48, status 8, vendor_err 16, imm_data 24, qp_num 28, wc_flags 36, pkey_index 40, dlid_path_bits 45);
pub(crate) const IBV_WC_GRH: c_uint = 1;
pub(crate) const IBV_WC_WITH_IMM: c_uint = 1 << 1;
pub(crate) const IBV_WC_WITH_INV: c_uint = 1 << 3;
/// From softnicdv.h.
pub(crate) const SOFTNICDV_WC_PARTIAL: c_uint = 1 << 30;
