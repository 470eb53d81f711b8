//! Events in the form that programs get: `struct rdma_cm_event`, and `rdma_ack_cm_event`.

use std::sync::Arc;

use super::pending::Shared;
use crate::abi::*;
use crate::c_result::minus_one;
use crate::errno::Errno;

/// An event, followed by its private data.
#[repr(C)]
pub(crate) struct CmEvent {
    pub(crate) base: rdma_cm_event,
    private_data: [u8; 256],
    /// The id that waits for the acknowledgement.
    waiting: Arc<Shared>,
}

impl CmEvent {
    pub(crate) fn acknowledged(self) {
        self.waiting.unacknowledged.acknowledge(1);
    }

    /// Makes another id wait for the acknowledgement.
    pub(crate) fn hand_to(&mut self, to: &Arc<Shared>) {
        to.unacknowledged.took_one();
        std::mem::replace(&mut self.waiting, Arc::clone(to)).unacknowledged.acknowledge(1);
    }

    pub(crate) fn new(id: *mut rdma_cm_id, waiting: &Arc<Shared>, kind: c_int, status: c_int) -> Box<CmEvent> {
        // SAFETY: zeros are valid parameters of both kinds.
        let param = unsafe { std::mem::zeroed() };
        let base = rdma_cm_event { id, listen_id: std::ptr::null_mut(), event: kind, status, param };
        Box::new(CmEvent { base, private_data: [0; 256], waiting: Arc::clone(waiting) })
    }

    /// Adds private data, and parameters that point to it.
    pub(crate) fn with_conn(mut self: Box<CmEvent>, data: &[u8], param: rdma_conn_param) -> Box<CmEvent> {
        let (private_data, private_data_len) = self.put(data);
        self.base.param.conn = rdma_conn_param { private_data, private_data_len, ..param };
        self
    }

    pub(crate) fn with_ud(mut self: Box<CmEvent>, data: &[u8], param: rdma_ud_param) -> Box<CmEvent> {
        let (private_data, private_data_len) = self.put(data);
        self.base.param.ud = rdma_ud_param { private_data, private_data_len, ..param };
        self
    }

    /// Parameters of a group: in place of private data, the program gets the pointer that it passed itself.
    pub(crate) fn with_context(mut self: Box<CmEvent>, param: rdma_ud_param) -> Box<CmEvent> {
        self.base.param.ud = param;
        self
    }

    fn put(&mut self, data: &[u8]) -> (*const c_void, u8) {
        self.private_data[..data.len()].copy_from_slice(data);
        match data.len() {
            0 => (std::ptr::null(), 0),
            len => (self.private_data.as_ptr().cast(), len as u8),
        }
    }
}

/// Empty parameters of a connection.
pub(crate) const NO_CONN: rdma_conn_param = rdma_conn_param {
    private_data: std::ptr::null(),
    private_data_len: 0,
    responder_resources: 0,
    initiator_depth: 0,
    flow_control: 0,
    retry_count: 0,
    rnr_retry_count: 0,
    srq: 0,
    qp_num: 0,
};

/// Empty parameters of datagrams.
pub(crate) fn no_ud() -> rdma_ud_param {
    let ah_attr = ibv_ah_attr::default();
    rdma_ud_param { private_data: std::ptr::null(), private_data_len: 0, ah_attr, qp_num: 0, qkey: 0 }
}

/// `rdma_ack_cm_event`: frees the event.
pub(crate) extern "C" fn acknowledge(event: *mut CmEvent) -> c_int {
    minus_one(|| {
        if event.is_null() {
            return Err(Errno::EINVAL);
        }
        // SAFETY: the event is from `get_event`.
        unsafe { &*event }.waiting.made_in.check()?;
        // SAFETY: as above, and it is acknowledged once.
        unsafe { Box::from_raw(event) }.acknowledged();
        Ok(())
    })
}
