//! Attributes: those that programs request, and those that they query.

use std::ffi::{c_int, c_uint, c_void};

use super::layout::layout;
use super::objects::{ibv_comp_channel, ibv_cq, ibv_pd, ibv_srq, ibv_td};

/// `union ibv_gid`.
#[repr(C, align(8))]
#[derive(Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct ibv_gid {
    pub(crate) raw: [u8; 16],
}

#[repr(C)]
#[derive(Clone, Copy, Default)]
pub(crate) struct ibv_gid_entry {
    pub(crate) gid: ibv_gid,
    pub(crate) gid_index: u32,
    pub(crate) port_num: u32,
    pub(crate) gid_type: u32,
    pub(crate) ndev_ifindex: u32,
}
layout!(ibv_gid_entry, 32, gid_index 16, port_num 20, gid_type 24, ndev_ifindex 28);
pub(crate) const IBV_GID_TYPE_ROCE_V2: u32 = 2;
/// The numbering of `ibv_query_gid_type` for drivers.
pub(crate) const IBV_GID_TYPE_SYSFS_IB_ROCE_V1: u32 = 0;
pub(crate) const IBV_GID_TYPE_SYSFS_ROCE_V2: u32 = 1;

#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct ibv_device_attr {
    pub(crate) fw_ver: [u8; 64],
    pub(crate) node_guid: u64,
    pub(crate) sys_image_guid: u64,
    pub(crate) max_mr_size: u64,
    pub(crate) page_size_cap: u64,
    pub(crate) vendor_id: u32,
    pub(crate) vendor_part_id: u32,
    pub(crate) hw_ver: u32,
    pub(crate) max_qp: c_int,
    pub(crate) max_qp_wr: c_int,
    pub(crate) device_cap_flags: c_uint,
    pub(crate) max_sge: c_int,
    pub(crate) max_sge_rd: c_int,
    pub(crate) max_cq: c_int,
    pub(crate) max_cqe: c_int,
    pub(crate) max_mr: c_int,
    pub(crate) max_pd: c_int,
    pub(crate) max_qp_rd_atom: c_int,
    pub(crate) max_ee_rd_atom: c_int,
    pub(crate) max_res_rd_atom: c_int,
    pub(crate) max_qp_init_rd_atom: c_int,
    pub(crate) max_ee_init_rd_atom: c_int,
    pub(crate) atomic_cap: c_int,
    pub(crate) max_ee: c_int,
    pub(crate) max_rdd: c_int,
    pub(crate) max_mw: c_int,
    pub(crate) max_raw_ipv6_qp: c_int,
    pub(crate) max_raw_ethy_qp: c_int,
    pub(crate) max_mcast_grp: c_int,
    pub(crate) max_mcast_qp_attach: c_int,
    pub(crate) max_total_mcast_qp_attach: c_int,
    pub(crate) max_ah: c_int,
    pub(crate) max_fmr: c_int,
    pub(crate) max_map_per_fmr: c_int,
    pub(crate) max_srq: c_int,
    pub(crate) max_srq_wr: c_int,
    pub(crate) max_srq_sge: c_int,
    pub(crate) max_pkeys: u16,
    pub(crate) local_ca_ack_delay: u8,
    pub(crate) phys_port_cnt: u8,
}
layout!(ibv_device_attr, 232, node_guid 64, vendor_id 96, max_qp 108, device_cap_flags 116, atomic_cap 164, max_srq 212,
    max_pkeys 224, local_ca_ack_delay 226, phys_port_cnt 227);

pub(crate) const IBV_DEVICE_CURR_QP_STATE_MOD: u32 = 1 << 7;
pub(crate) const IBV_DEVICE_PORT_ACTIVE_EVENT: u32 = 1 << 10;
pub(crate) const IBV_DEVICE_SYS_IMAGE_GUID: u32 = 1 << 11;
pub(crate) const IBV_DEVICE_RC_RNR_NAK_GEN: u32 = 1 << 12;
pub(crate) const IBV_DEVICE_MEM_WINDOW: u32 = 1 << 17;
pub(crate) const IBV_DEVICE_MEM_MGT_EXTENSIONS: u32 = 1 << 21;
pub(crate) const IBV_DEVICE_MEM_WINDOW_TYPE_2B: u32 = 1 << 24;
/// Atomic with respect to all accesses, including those of the program's own threads.
pub(crate) const IBV_ATOMIC_HCA: c_int = 1;

/// The fields after `orig_attr` are capabilities that this device does not have, so they stay zero.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct ibv_device_attr_ex {
    pub(crate) orig_attr: ibv_device_attr,
    pub(crate) comp_mask: u32,
    pub(crate) odp_caps: [u64; 3],
    pub(crate) completion_timestamp_mask: u64,
    pub(crate) hca_core_clock: u64,
    pub(crate) device_cap_flags_ex: u64,
    pub(crate) rest: [u32; 27],
    pub(crate) phys_port_cnt_ex: u32,
}
layout!(ibv_device_attr_ex, 400, comp_mask 232, completion_timestamp_mask 264, hca_core_clock 272, device_cap_flags_ex 280,
    phys_port_cnt_ex 396);

#[repr(C)]
#[derive(Clone, Copy, Default)]
pub(crate) struct ibv_port_attr {
    pub(crate) state: c_int,
    pub(crate) max_mtu: c_int,
    pub(crate) active_mtu: c_int,
    pub(crate) gid_tbl_len: c_int,
    pub(crate) port_cap_flags: u32,
    pub(crate) max_msg_sz: u32,
    pub(crate) bad_pkey_cntr: u32,
    pub(crate) qkey_viol_cntr: u32,
    pub(crate) pkey_tbl_len: u16,
    pub(crate) lid: u16,
    pub(crate) sm_lid: u16,
    pub(crate) lmc: u8,
    pub(crate) max_vl_num: u8,
    pub(crate) sm_sl: u8,
    pub(crate) subnet_timeout: u8,
    pub(crate) init_type_reply: u8,
    pub(crate) active_width: u8,
    pub(crate) active_speed: u8,
    pub(crate) phys_state: u8,
    pub(crate) link_layer: u8,
    pub(crate) flags: u8,
    pub(crate) port_cap_flags2: u16,
    /// Since v50.
    pub(crate) active_speed_ex: u32,
}
layout!(ibv_port_attr, 56, pkey_tbl_len 32, lmc 38, active_width 43, link_layer 46, port_cap_flags2 48, active_speed_ex 52);
/// The size that the exported `ibv_query_port` writes: programs may have an old, shorter struct.
pub(crate) const COMPAT_PORT_ATTR_SIZE: usize = 48;
pub(crate) const IBV_PORT_DOWN: c_int = 1;
pub(crate) const IBV_PORT_ACTIVE: c_int = 4;
pub(crate) const IBV_LINK_LAYER_ETHERNET: u8 = 2;
pub(crate) const IBV_PORT_CM_SUP: u32 = 1 << 16;
pub(crate) const IBV_PORT_IP_BASED_GIDS: u32 = 1 << 26;
/// The address of a datagram's sender is in the 40 bytes before the datagram.
pub(crate) const IBV_QPF_GRH_REQUIRED: u8 = 1;

#[repr(C)]
#[derive(Clone, Copy, Default)]
pub(crate) struct ibv_global_route {
    pub(crate) dgid: ibv_gid,
    pub(crate) flow_label: u32,
    pub(crate) sgid_index: u8,
    pub(crate) hop_limit: u8,
    pub(crate) traffic_class: u8,
}

#[repr(C)]
#[derive(Clone, Copy, Default)]
pub(crate) struct ibv_ah_attr {
    pub(crate) grh: ibv_global_route,
    pub(crate) dlid: u16,
    pub(crate) sl: u8,
    pub(crate) src_path_bits: u8,
    pub(crate) static_rate: u8,
    pub(crate) is_global: u8,
    pub(crate) port_num: u8,
}
layout!(ibv_ah_attr, 32, dlid 24, is_global 29, port_num 30);

#[repr(C)]
#[derive(Clone, Copy, Default)]
pub(crate) struct ibv_qp_cap {
    pub(crate) max_send_wr: u32,
    pub(crate) max_recv_wr: u32,
    pub(crate) max_send_sge: u32,
    pub(crate) max_recv_sge: u32,
    pub(crate) max_inline_data: u32,
}

#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct ibv_qp_init_attr {
    pub(crate) qp_context: *mut c_void,
    pub(crate) send_cq: *mut ibv_cq,
    pub(crate) recv_cq: *mut ibv_cq,
    pub(crate) srq: *mut ibv_srq,
    pub(crate) cap: ibv_qp_cap,
    pub(crate) qp_type: c_int,
    pub(crate) sq_sig_all: c_int,
}
layout!(ibv_qp_init_attr, 64, cap 32, qp_type 52, sq_sig_all 56);

#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct ibv_qp_init_attr_ex {
    pub(crate) qp_context: *mut c_void,
    pub(crate) send_cq: *mut ibv_cq,
    pub(crate) recv_cq: *mut ibv_cq,
    pub(crate) srq: *mut ibv_srq,
    pub(crate) cap: ibv_qp_cap,
    pub(crate) qp_type: c_int,
    pub(crate) sq_sig_all: c_int,
    pub(crate) comp_mask: u32,
    pub(crate) pd: *mut ibv_pd,
    pub(crate) xrcd: *mut c_void,
    pub(crate) create_flags: u32,
    pub(crate) max_tso_header: u16,
    pub(crate) rwq_ind_tbl: *mut c_void,
    pub(crate) rx_hash_conf: [u64; 3],
    pub(crate) source_qpn: u32,
    pub(crate) send_ops_flags: u64,
}
layout!(ibv_qp_init_attr_ex, 136, comp_mask 60, pd 64, create_flags 80, source_qpn 120, send_ops_flags 128);
pub(crate) const IBV_QP_INIT_ATTR_PD: u32 = 1;
pub(crate) const IBV_QP_INIT_ATTR_CREATE_FLAGS: u32 = 1 << 2;
pub(crate) const IBV_QP_INIT_ATTR_SEND_OPS_FLAGS: u32 = 1 << 6;
/// All operations of the builder interface except TSO, flush and atomic write.
pub(crate) const SUPPORTED_SEND_OPS: u64 = (1 << 10) - 1;
/// WRITE, WRITE with immediate, SEND, SEND with immediate, local invalidate, bind.
pub(crate) const UC_SEND_OPS: u64 = 0b1_1000_1111;
/// SEND, SEND with immediate.
pub(crate) const UD_SEND_OPS: u64 = 0b1100;
pub(crate) const IBV_QPT_RC: c_int = 2;
pub(crate) const IBV_QPT_UC: c_int = 3;
pub(crate) const IBV_QPT_UD: c_int = 4;

#[repr(C)]
#[derive(Clone, Copy, Default)]
pub(crate) struct ibv_qp_attr {
    pub(crate) qp_state: c_int,
    pub(crate) cur_qp_state: c_int,
    pub(crate) path_mtu: c_int,
    pub(crate) path_mig_state: c_int,
    pub(crate) qkey: u32,
    pub(crate) rq_psn: u32,
    pub(crate) sq_psn: u32,
    pub(crate) dest_qp_num: u32,
    pub(crate) qp_access_flags: c_uint,
    pub(crate) cap: ibv_qp_cap,
    pub(crate) ah_attr: ibv_ah_attr,
    pub(crate) alt_ah_attr: ibv_ah_attr,
    pub(crate) pkey_index: u16,
    pub(crate) alt_pkey_index: u16,
    pub(crate) en_sqd_async_notify: u8,
    pub(crate) sq_draining: u8,
    pub(crate) max_rd_atomic: u8,
    pub(crate) max_dest_rd_atomic: u8,
    pub(crate) min_rnr_timer: u8,
    pub(crate) port_num: u8,
    pub(crate) timeout: u8,
    pub(crate) retry_cnt: u8,
    pub(crate) rnr_retry: u8,
    pub(crate) alt_port_num: u8,
    pub(crate) alt_timeout: u8,
    pub(crate) rate_limit: u32,
}
layout!(ibv_qp_attr, 144, qkey 16, dest_qp_num 28, cap 36, ah_attr 56, alt_ah_attr 88, pkey_index 120, en_sqd_async_notify 124,
    min_rnr_timer 128, rnr_retry 132, rate_limit 136);

pub(crate) const IBV_QP_STATE: c_int = 1 << 0;
pub(crate) const IBV_QP_CUR_STATE: c_int = 1 << 1;
pub(crate) const IBV_QP_EN_SQD_ASYNC_NOTIFY: c_int = 1 << 2;
pub(crate) const IBV_QP_ACCESS_FLAGS: c_int = 1 << 3;
pub(crate) const IBV_QP_PKEY_INDEX: c_int = 1 << 4;
pub(crate) const IBV_QP_PORT: c_int = 1 << 5;
pub(crate) const IBV_QP_QKEY: c_int = 1 << 6;
pub(crate) const IBV_QP_AV: c_int = 1 << 7;
pub(crate) const IBV_QP_PATH_MTU: c_int = 1 << 8;
pub(crate) const IBV_QP_TIMEOUT: c_int = 1 << 9;
pub(crate) const IBV_QP_RETRY_CNT: c_int = 1 << 10;
pub(crate) const IBV_QP_RNR_RETRY: c_int = 1 << 11;
pub(crate) const IBV_QP_RQ_PSN: c_int = 1 << 12;
pub(crate) const IBV_QP_MAX_QP_RD_ATOMIC: c_int = 1 << 13;
pub(crate) const IBV_QP_MIN_RNR_TIMER: c_int = 1 << 15;
pub(crate) const IBV_QP_SQ_PSN: c_int = 1 << 16;
pub(crate) const IBV_QP_MAX_DEST_RD_ATOMIC: c_int = 1 << 17;
pub(crate) const IBV_QP_PATH_MIG_STATE: c_int = 1 << 18;
pub(crate) const IBV_QP_DEST_QPN: c_int = 1 << 20;
pub(crate) const IBV_MIG_MIGRATED: c_int = 0;

#[repr(C)]
#[derive(Clone, Copy, Default)]
pub(crate) struct ibv_srq_attr {
    pub(crate) max_wr: u32,
    pub(crate) max_sge: u32,
    pub(crate) srq_limit: u32,
}
pub(crate) const IBV_SRQ_MAX_WR: c_int = 1;
pub(crate) const IBV_SRQ_LIMIT: c_int = 2;

#[repr(C)]
pub(crate) struct ibv_srq_init_attr {
    pub(crate) srq_context: *mut c_void,
    pub(crate) attr: ibv_srq_attr,
}
layout!(ibv_srq_init_attr, 24, attr 8);

#[repr(C)]
pub(crate) struct ibv_srq_init_attr_ex {
    pub(crate) srq_context: *mut c_void,
    pub(crate) attr: ibv_srq_attr,
    pub(crate) comp_mask: u32,
    pub(crate) srq_type: c_int,
    pub(crate) pd: *mut ibv_pd,
    pub(crate) xrcd: *mut c_void,
    pub(crate) cq: *mut ibv_cq,
    pub(crate) tm_cap: [u32; 2],
}
layout!(ibv_srq_init_attr_ex, 64, comp_mask 20, srq_type 24, pd 32, tm_cap 56);
pub(crate) const IBV_SRQ_INIT_ATTR_TYPE: u32 = 1;
pub(crate) const IBV_SRQ_INIT_ATTR_PD: u32 = 2;

#[repr(C)]
pub(crate) struct ibv_cq_init_attr_ex {
    pub(crate) cqe: u32,
    pub(crate) cq_context: *mut c_void,
    pub(crate) channel: *mut ibv_comp_channel,
    pub(crate) comp_vector: u32,
    pub(crate) wc_flags: u64,
    pub(crate) comp_mask: u32,
    pub(crate) flags: u32,
    pub(crate) parent_domain: *mut ibv_pd,
}
layout!(ibv_cq_init_attr_ex, 56, cq_context 8, comp_vector 24, wc_flags 32, comp_mask 40, parent_domain 48);
pub(crate) const IBV_CQ_INIT_ATTR_MASK_FLAGS: u32 = 1;
pub(crate) const IBV_CQ_INIT_ATTR_MASK_PD: u32 = 2;
/// Single threaded; ignore overruns.
pub(crate) const SUPPORTED_CQ_FLAGS: u32 = 1;
/// Byte length to path bits, and the two timestamps.
pub(crate) const SUPPORTED_WC_FLAGS: u64 = (1 << 7) - 1;

#[repr(C)]
pub(crate) struct ibv_modify_cq_attr {
    pub(crate) attr_mask: u32,
    pub(crate) cq_count: u16,
    pub(crate) cq_period: u16,
}
layout!(ibv_modify_cq_attr, 8);

#[repr(C)]
pub(crate) struct ibv_parent_domain_init_attr {
    pub(crate) pd: *mut ibv_pd,
    pub(crate) td: *mut ibv_td,
    pub(crate) comp_mask: u32,
    pub(crate) alloc: *mut c_void,
    pub(crate) free: *mut c_void,
    pub(crate) pd_context: *mut c_void,
}
layout!(ibv_parent_domain_init_attr, 48, comp_mask 16, pd_context 40);

#[repr(C)]
pub(crate) struct ibv_async_event {
    /// A pointer to the object, or the port number.
    pub(crate) element: usize,
    pub(crate) event_type: c_int,
}
layout!(ibv_async_event, 16, event_type 8);

/// `struct ibv_grh`: the 40 bytes before a datagram. For RoCEv2 over IPv4 the IPv4 header is in the last twenty.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct ibv_grh {
    pub(crate) bytes: [u8; 40],
}

#[repr(C)]
#[derive(Clone, Copy, Default)]
pub(crate) struct ibv_ece {
    pub(crate) vendor_id: u32,
    pub(crate) options: u32,
    pub(crate) comp_mask: u32,
}

/// `struct ibv_mr_init_attr`, since v60.
#[repr(C)]
pub(crate) struct ibv_mr_init_attr {
    pub(crate) length: usize,
    pub(crate) access: c_int,
    pub(crate) comp_mask: u64,
    pub(crate) iova: u64,
    pub(crate) addr: *mut c_void,
    pub(crate) fd: c_int,
    pub(crate) fd_offset: u64,
    pub(crate) dmah: *mut c_void,
    pub(crate) buf: *mut c_void,
}
layout!(ibv_mr_init_attr, 72, comp_mask 16, iova 24, addr 32, fd 40, buf 64);
pub(crate) const IBV_REG_MR_MASK_IOVA: u64 = 1;
pub(crate) const IBV_REG_MR_MASK_ADDR: u64 = 2;
pub(crate) const IBV_REG_MR_MASK_BUF: u64 = 1 << 5;
