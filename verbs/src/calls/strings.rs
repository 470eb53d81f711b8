//! Names of states, events and errors, for programs to print.

use std::ffi::CStr;

use crate::abi::{c_char, c_int};

fn pick(names: &[&'static CStr], i: c_int, other: &'static CStr) -> *const c_char {
    usize::try_from(i).ok().and_then(|i| names.get(i)).unwrap_or(&other).as_ptr()
}

/// `ibv_wc_status_str`.
pub(crate) extern "C" fn wc_status(status: c_int) -> *const c_char {
    const NAMES: [&CStr; 24] = [
        c"success",
        c"local length error",
        c"local QP operation error",
        c"local EE context operation error",
        c"local protection error",
        c"work request flushed",
        c"memory window bind error",
        c"bad response",
        c"local access error",
        c"remote invalid request",
        c"remote access error",
        c"remote operation error",
        c"transport retry counter exceeded",
        c"RNR retry counter exceeded",
        c"local RDD violation",
        c"remote invalid RD request",
        c"aborted by the remote side",
        c"invalid EE context number",
        c"invalid EE context state",
        c"fatal error",
        c"response timeout",
        c"general error",
        c"tag matching error",
        c"tag matching rendezvous incomplete",
    ];
    pick(&NAMES, status, c"unknown")
}

/// `ibv_node_type_str`.
pub(crate) extern "C" fn node_type(node: c_int) -> *const c_char {
    const NAMES: [&CStr; 8] = [
        c"unknown",
        c"InfiniBand channel adapter",
        c"InfiniBand switch",
        c"InfiniBand router",
        c"iWARP NIC",
        c"usNIC",
        c"usNIC UDP",
        c"unspecified",
    ];
    pick(&NAMES, node, c"unknown")
}

/// `ibv_port_state_str`: the names that tools print and scripts search for.
pub(crate) extern "C" fn port_state(state: c_int) -> *const c_char {
    const NAMES: [&CStr; 6] =
        [c"PORT_NOP", c"PORT_DOWN", c"PORT_INIT", c"PORT_ARMED", c"PORT_ACTIVE", c"PORT_ACTIVE_DEFER"];
    pick(&NAMES, state, c"unknown")
}

/// `ibv_event_type_str`.
pub(crate) extern "C" fn event_type(event: c_int) -> *const c_char {
    const NAMES: [&CStr; 20] = [
        c"CQ error",
        c"local work queue catastrophic error",
        c"invalid request local work queue error",
        c"local access violation work queue error",
        c"communication established",
        c"send queue drained",
        c"path migrated",
        c"path migration request error",
        c"local catastrophic error",
        c"port active",
        c"port error",
        c"LID change",
        c"P_Key change",
        c"SM change",
        c"SRQ catastrophic error",
        c"SRQ limit reached",
        c"last WQE reached",
        c"client reregistration",
        c"GID table change",
        c"WQ fatal",
    ];
    pick(&NAMES, event, c"unknown")
}

/// `ibv_wr_opcode_str`.
pub(crate) extern "C" fn wr_opcode(opcode: c_int) -> *const c_char {
    const NAMES: [&CStr; 11] = [
        c"RDMA write",
        c"RDMA write with immediate",
        c"send",
        c"send with immediate",
        c"RDMA read",
        c"compare and swap",
        c"fetch and add",
        c"local invalidate",
        c"bind memory window",
        c"send with invalidate",
        c"TSO",
    ];
    pick(&NAMES, opcode, c"unknown")
}

/// `rdma_event_str`: the names of `rdma_cma.h`.
pub(crate) extern "C" fn cm_event(event: c_int) -> *const c_char {
    const NAMES: [&CStr; 16] = [
        c"RDMA_CM_EVENT_ADDR_RESOLVED",
        c"RDMA_CM_EVENT_ADDR_ERROR",
        c"RDMA_CM_EVENT_ROUTE_RESOLVED",
        c"RDMA_CM_EVENT_ROUTE_ERROR",
        c"RDMA_CM_EVENT_CONNECT_REQUEST",
        c"RDMA_CM_EVENT_CONNECT_RESPONSE",
        c"RDMA_CM_EVENT_CONNECT_ERROR",
        c"RDMA_CM_EVENT_UNREACHABLE",
        c"RDMA_CM_EVENT_REJECTED",
        c"RDMA_CM_EVENT_ESTABLISHED",
        c"RDMA_CM_EVENT_DISCONNECTED",
        c"RDMA_CM_EVENT_DEVICE_REMOVAL",
        c"RDMA_CM_EVENT_MULTICAST_JOIN",
        c"RDMA_CM_EVENT_MULTICAST_ERROR",
        c"RDMA_CM_EVENT_ADDR_CHANGE",
        c"RDMA_CM_EVENT_TIMEWAIT_EXIT",
    ];
    pick(&NAMES, event, c"UNKNOWN EVENT")
}
