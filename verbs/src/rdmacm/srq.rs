//! The shared receive queue of an id.

use super::id::{Id, on};
use super::qp::domain;
use crate::abi::*;
use crate::errno::Errno;
use crate::objects::handle::Pointer;
use crate::objects::shared_receive;

fn put(id: &Id, pd: *mut ibv_pd, srq: *mut ibv_srq) -> Result<(), Errno> {
    if srq.is_null() {
        return Err(Errno::last());
    }
    // SAFETY: the id is alive.
    unsafe { ((*id.as_c()).srq, (*id.as_c()).pd) = (srq, pd) };
    Ok(())
}

/// `rdma_create_srq`. The default domain is the device's.
pub(crate) extern "C" fn create(id: &Id, pd: *mut ibv_pd, init: &mut ibv_srq_init_attr) -> c_int {
    on(id, || {
        let pd = domain(id.device()?, pd)?;
        put(id, pd.as_c(), shared_receive::create(Pointer::of(pd), init))
    })
}

/// `rdma_create_srq_ex`, for basic queues.
pub(crate) extern "C" fn create_ex(id: &Id, init: &mut ibv_srq_init_attr_ex) -> c_int {
    on(id, || {
        let device = id.device()?;
        let given = if init.comp_mask & IBV_SRQ_INIT_ATTR_PD != 0 { init.pd } else { std::ptr::null_mut() };
        let pd = domain(device, given)?;
        (init.pd, init.comp_mask) = (pd.as_c(), init.comp_mask | IBV_SRQ_INIT_ATTR_PD);
        put(id, pd.as_c(), shared_receive::create_ex(device.context(), init))
    })
}

/// `rdma_destroy_srq`.
pub(crate) extern "C" fn destroy(id: &Id) {
    if id.shared.made_in.check().is_err() {
        return;
    }
    // SAFETY: the id is alive, and owns the queue.
    let srq = unsafe { std::mem::replace(&mut (*id.as_c()).srq, std::ptr::null_mut()) };
    if !srq.is_null() {
        shared_receive::destroy(Pointer::new(srq));
    }
}
