//! Creation of both kinds of completion queues: `ibv_create_cq` and `ibv_create_cq_ex`.

use crate::abi::*;
use crate::c_result::pointer;
use crate::calls::poll::readers;
use crate::errno::Errno;
use crate::objects::completion_queue::make;
use crate::objects::context::ContextPtr;

/// `ibv_create_cq`.
pub(crate) extern "C" fn create(
    context: ContextPtr<'_>,
    cqe: c_int,
    cq_context: *mut c_void,
    channel: *mut ibv_comp_channel,
    vector: c_int,
) -> *mut ibv_cq {
    pointer(|| {
        let cqe = u32::try_from(cqe).map_err(|_| Errno::EINVAL)?;
        make(context, cqe, cq_context, channel, u32::try_from(vector).map_err(|_| Errno::EINVAL)?, readers())
    })
}

/// `ibv_create_cq_ex`.
pub(crate) extern "C" fn create_ex(context: ContextPtr<'_>, attr: &ibv_cq_init_attr_ex) -> *mut ibv_cq {
    pointer(|| {
        let flags = if attr.comp_mask & IBV_CQ_INIT_ATTR_MASK_FLAGS != 0 { attr.flags } else { 0 };
        let known = IBV_CQ_INIT_ATTR_MASK_FLAGS | IBV_CQ_INIT_ATTR_MASK_PD;
        if attr.comp_mask & !known != 0 {
            return Err(Errno::EINVAL);
        }
        if flags & !SUPPORTED_CQ_FLAGS != 0 || attr.wc_flags & !SUPPORTED_WC_FLAGS != 0 {
            return Err(Errno::EOPNOTSUPP);
        }
        make(context, attr.cqe, attr.cq_context, attr.channel, attr.comp_vector, readers())
    })
}
