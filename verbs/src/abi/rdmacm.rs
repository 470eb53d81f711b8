//! The C types of `rdma/rdma_cma.h`, identical in rdma-core 44 to 65.

use std::ffi::{c_char, c_int, c_void};

use super::attributes::{ibv_ah_attr, ibv_gid};
use super::context::ibv_context;
use super::layout::layout;
use super::objects::{ibv_comp_channel, ibv_cq, ibv_pd, ibv_qp, ibv_srq};

/// `struct sockaddr_storage`, as bytes: `rdmacm/addresses.rs` reads and writes it.
#[repr(C, align(8))]
#[derive(Clone, Copy)]
pub(crate) struct Storage(pub(crate) [u8; 128]);

#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct rdma_ib_addr {
    pub(crate) sgid: ibv_gid,
    pub(crate) dgid: ibv_gid,
    pub(crate) pkey: u16,
}
layout!(rdma_ib_addr, 40, sgid 0, dgid 16, pkey 32);

#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct rdma_addr {
    pub(crate) src_storage: Storage,
    pub(crate) dst_storage: Storage,
    pub(crate) addr: rdma_ib_addr,
}
layout!(rdma_addr, 296, src_storage 0, dst_storage 128);

/// `struct ibv_sa_path_rec`.
#[repr(C)]
#[derive(Clone, Copy, Default)]
pub(crate) struct ibv_sa_path_rec {
    pub(crate) dgid: ibv_gid,
    pub(crate) sgid: ibv_gid,
    pub(crate) dlid: u16,
    pub(crate) slid: u16,
    pub(crate) raw_traffic: c_int,
    pub(crate) flow_label: u32,
    pub(crate) hop_limit: u8,
    pub(crate) traffic_class: u8,
    pub(crate) reversible: c_int,
    pub(crate) numb_path: u8,
    pub(crate) pkey: u16,
    pub(crate) sl: u8,
    pub(crate) mtu_selector: u8,
    pub(crate) mtu: u8,
    pub(crate) rate_selector: u8,
    pub(crate) rate: u8,
    pub(crate) packet_life_time_selector: u8,
    pub(crate) packet_life_time: u8,
    pub(crate) preference: u8,
}

#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct rdma_route {
    pub(crate) addr: rdma_addr,
    pub(crate) path_rec: *mut ibv_sa_path_rec,
    pub(crate) num_paths: c_int,
}
layout!(rdma_route, 312, addr 0, path_rec 296, num_paths 304);

#[repr(C)]
pub(crate) struct rdma_event_channel {
    pub(crate) fd: c_int,
}
layout!(rdma_event_channel, 4, fd 0);

#[repr(C)]
pub(crate) struct rdma_cm_id {
    pub(crate) verbs: *mut ibv_context,
    pub(crate) channel: *mut rdma_event_channel,
    pub(crate) context: *mut c_void,
    pub(crate) qp: *mut ibv_qp,
    pub(crate) route: rdma_route,
    pub(crate) ps: c_int,
    pub(crate) port_num: u8,
    pub(crate) event: *mut rdma_cm_event,
    pub(crate) send_cq_channel: *mut ibv_comp_channel,
    pub(crate) send_cq: *mut ibv_cq,
    pub(crate) recv_cq_channel: *mut ibv_comp_channel,
    pub(crate) recv_cq: *mut ibv_cq,
    pub(crate) srq: *mut ibv_srq,
    pub(crate) pd: *mut ibv_pd,
    pub(crate) qp_type: c_int,
}
layout!(rdma_cm_id, 416, verbs 0, channel 8, context 16, qp 24, route 32, ps 344, port_num 348, event 352, send_cq_channel 360,
    send_cq 368, recv_cq_channel 376, recv_cq 384, srq 392, pd 400, qp_type 408);

pub(crate) const RDMA_PS_IPOIB: c_int = 0x0002;
pub(crate) const RDMA_PS_TCP: c_int = 0x0106;
pub(crate) const RDMA_PS_UDP: c_int = 0x0111;
/// The Q_Key of datagrams of `RDMA_PS_UDP`.
pub(crate) const RDMA_UDP_QKEY: u32 = 0x0123_4567;
/// The maximum number of READs and atomics of the device.
pub(crate) const RDMA_MAX_DEPTH: u8 = 0xff;

#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct rdma_conn_param {
    pub(crate) private_data: *const c_void,
    pub(crate) private_data_len: u8,
    pub(crate) responder_resources: u8,
    pub(crate) initiator_depth: u8,
    pub(crate) flow_control: u8,
    pub(crate) retry_count: u8,
    pub(crate) rnr_retry_count: u8,
    pub(crate) srq: u8,
    pub(crate) qp_num: u32,
}
layout!(rdma_conn_param, 24, private_data 0, private_data_len 8, responder_resources 9, initiator_depth 10, flow_control 11,
    retry_count 12, rnr_retry_count 13, srq 14, qp_num 16);

#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct rdma_ud_param {
    pub(crate) private_data: *const c_void,
    pub(crate) private_data_len: u8,
    pub(crate) ah_attr: ibv_ah_attr,
    pub(crate) qp_num: u32,
    pub(crate) qkey: u32,
}
layout!(rdma_ud_param, 56, private_data 0, private_data_len 8, ah_attr 16, qp_num 48, qkey 52);

/// The union of both kinds.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) union Param {
    pub(crate) conn: rdma_conn_param,
    pub(crate) ud: rdma_ud_param,
}

#[repr(C)]
pub(crate) struct rdma_cm_event {
    pub(crate) id: *mut rdma_cm_id,
    pub(crate) listen_id: *mut rdma_cm_id,
    pub(crate) event: c_int,
    pub(crate) status: c_int,
    pub(crate) param: Param,
}
layout!(rdma_cm_event, 80, id 0, listen_id 8, event 16, status 20);

pub(crate) const ADDR_RESOLVED: c_int = 0;
pub(crate) const ADDR_ERROR: c_int = 1;
pub(crate) const ROUTE_RESOLVED: c_int = 2;
pub(crate) const ROUTE_ERROR: c_int = 3;
pub(crate) const CONNECT_REQUEST: c_int = 4;
pub(crate) const CONNECT_RESPONSE: c_int = 5;
pub(crate) const CONNECT_ERROR: c_int = 6;
pub(crate) const UNREACHABLE: c_int = 7;
pub(crate) const REJECTED: c_int = 8;
pub(crate) const ESTABLISHED: c_int = 9;
pub(crate) const DISCONNECTED: c_int = 10;
pub(crate) const MULTICAST_JOIN: c_int = 12;
pub(crate) const MULTICAST_ERROR: c_int = 13;
pub(crate) const TIMEWAIT_EXIT: c_int = 15;

#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct rdma_addrinfo {
    pub(crate) ai_flags: c_int,
    pub(crate) ai_family: c_int,
    pub(crate) ai_qp_type: c_int,
    pub(crate) ai_port_space: c_int,
    pub(crate) ai_src_len: u32,
    pub(crate) ai_dst_len: u32,
    pub(crate) ai_src_addr: *mut libc::sockaddr,
    pub(crate) ai_dst_addr: *mut libc::sockaddr,
    pub(crate) ai_src_canonname: *mut c_char,
    pub(crate) ai_dst_canonname: *mut c_char,
    pub(crate) ai_route_len: usize,
    pub(crate) ai_route: *mut c_void,
    pub(crate) ai_connect_len: usize,
    pub(crate) ai_connect: *mut c_void,
    pub(crate) ai_next: *mut rdma_addrinfo,
}
layout!(rdma_addrinfo, 96, ai_flags 0, ai_family 4, ai_qp_type 8, ai_port_space 12, ai_src_len 16, ai_dst_len 20, ai_src_addr 24,
    ai_dst_addr 32, ai_src_canonname 40, ai_dst_canonname 48, ai_route_len 56, ai_route 64, ai_connect_len 72, ai_connect 80,
    ai_next 88);
pub(crate) const RAI_PASSIVE: c_int = 1;
pub(crate) const RAI_NUMERICHOST: c_int = 2;
pub(crate) const RAI_FAMILY: c_int = 8;

#[repr(C)]
pub(crate) struct rdma_cm_join_mc_attr_ex {
    pub(crate) comp_mask: u32,
    pub(crate) join_flags: u32,
    pub(crate) addr: *const libc::sockaddr,
}
layout!(rdma_cm_join_mc_attr_ex, 16, comp_mask 0, join_flags 4, addr 8);
