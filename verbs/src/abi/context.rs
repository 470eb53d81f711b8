//! The device and the context. The functions in the tables of a context are typed in `calls/open.rs`, which has the types of their objects.

use std::cell::UnsafeCell;
use std::ffi::{c_int, c_void};

use super::layout::layout;

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

/// A function in a table of a context. NULL means that the function does not exist: inlined verbs then return EOPNOTSUPP.
pub(crate) type Function = *const c_void;

#[repr(C)]
pub(crate) struct ibv_context {
    pub(crate) device: *mut ibv_device,
    pub(crate) ops: [Function; 32],
    pub(crate) cmd_fd: c_int,
    pub(crate) async_fd: c_int,
    pub(crate) num_comp_vectors: c_int,
    pub(crate) mutex: UnsafeCell<[u64; 5]>,
    /// All ones: the context is the last field of a `verbs_context`.
    pub(crate) abi_compat: usize,
}
layout!(ibv_context, 328, ops 8, cmd_fd 264, async_fd 268, num_comp_vectors 272, mutex 280, abi_compat 320);

/// `struct verbs_context`, without the types of its functions.
#[repr(C)]
pub(crate) struct UntypedVerbsContext {
    pub(crate) functions: [Function; 38],
    pub(crate) placeholder3: u64,
    pub(crate) sz: usize,
    pub(crate) context: ibv_context,
}
