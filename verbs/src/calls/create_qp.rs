//! Creation of both kinds of queue pairs: `ibv_create_qp` and `ibv_create_qp_ex`.

use crate::abi::*;
use crate::c_result::pointer;
use crate::calls::builder::table;
use crate::environment::usual_transport;
use crate::errno::Errno;
use crate::objects::context::ContextPtr;
use crate::objects::domain::Pd;
use crate::objects::handle::Pointer;
use crate::objects::queue_pair::{Request, make};

/// `ibv_create_qp`.
pub(crate) extern "C" fn create(pd: Pointer<Pd>, init: &mut ibv_qp_init_attr) -> *mut ibv_qp {
    let request = Request {
        pd,
        qp_context: init.qp_context,
        cqs: [init.send_cq, init.recv_cq],
        srq: init.srq,
        cap: &mut init.cap,
        qp_type: init.qp_type,
        sig_all: init.sq_sig_all != 0,
        extended: false,
        transport: usual_transport(),
    };
    pointer(|| make(request, table()))
}

/// `ibv_create_qp_ex`.
pub(crate) extern "C" fn create_ex(_context: ContextPtr<'_>, init: &mut ibv_qp_init_attr_ex) -> *mut ibv_qp {
    pointer(|| request(init).and_then(|request| make(request, table())))
}

pub(crate) fn request(init: &mut ibv_qp_init_attr_ex) -> Result<Request<'_>, Errno> {
    let known = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_CREATE_FLAGS | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS;
    let mask = init.comp_mask;
    if mask & !known != 0 || mask & IBV_QP_INIT_ATTR_CREATE_FLAGS != 0 && init.create_flags != 0 {
        return Err(Errno::EOPNOTSUPP);
    }
    let extended = mask & IBV_QP_INIT_ATTR_SEND_OPS_FLAGS != 0;
    let has = match init.qp_type {
        IBV_QPT_RC => SUPPORTED_SEND_OPS,
        IBV_QPT_UC => UC_SEND_OPS,
        _ => UD_SEND_OPS,
    };
    if extended && init.send_ops_flags & !has != 0 {
        return Err(Errno::EOPNOTSUPP);
    }
    if mask & IBV_QP_INIT_ATTR_PD == 0 {
        return Err(Errno::EINVAL);
    }
    Ok(Request {
        pd: Pointer::new(init.pd),
        qp_context: init.qp_context,
        cqs: [init.send_cq, init.recv_cq],
        srq: init.srq,
        cap: &mut init.cap,
        qp_type: init.qp_type,
        sig_all: init.sq_sig_all != 0,
        extended,
        transport: usual_transport(),
    })
}
