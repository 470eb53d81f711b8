//! `rdma_create_ep`: a synchronous id with the results of `rdma_getaddrinfo`.

use super::addresses;
use super::bind;
use super::event::complete;
use super::id::{self, Id};
use super::{qp, resolve, srq};
use crate::abi::*;
use crate::c_result::minus_one;
use crate::errno::Errno;

/// `rdma_create_ep`: bound, to listen; or with its route resolved, to connect.
///
/// # Safety
/// The addresses in the result have the lengths that their families imply; the domain is NULL or one of the program's.
pub(crate) unsafe extern "C" fn create(
    out: &mut *mut rdma_cm_id,
    result: &rdma_addrinfo,
    pd: *mut ibv_pd,
    init: Option<&mut ibv_qp_init_attr>,
) -> c_int {
    minus_one(|| {
        let id = id::make(None, std::ptr::null_mut(), result.ai_port_space)?;
        // SAFETY: the id was just created.
        unsafe { (*id.as_c()).qp_type = result.ai_qp_type };
        let prepared = match result.ai_flags & RAI_PASSIVE != 0 {
            true => listening(id, result, pd, init),
            false => connecting(id, result, pd, init),
        };
        match prepared {
            Ok(()) => {
                *out = id.as_c();
                Ok(())
            }
            Err(e) => {
                destroy(id);
                Err(e)
            }
        }
    })
}

fn listening(
    id: &Id,
    result: &rdma_addrinfo,
    pd: *mut ibv_pd,
    init: Option<&mut ibv_qp_init_attr>,
) -> Result<(), Errno> {
    // SAFETY: guaranteed by the contract of `create`.
    bind::bind_to(id, unsafe { addresses::read(result.ai_src_addr) }?)?;
    id.inner().template = init.map(|init| (ibv_qp_init_attr { qp_type: result.ai_qp_type, ..*init }, pd));
    Ok(())
}

fn connecting(
    id: &Id,
    result: &rdma_addrinfo,
    pd: *mut ibv_pd,
    init: Option<&mut ibv_qp_init_attr>,
) -> Result<(), Errno> {
    // SAFETY: guaranteed by the contract of `create`.
    let (source, destination) = unsafe {
        let source = if result.ai_src_len == 0 { None } else { Some(addresses::read(result.ai_src_addr)?) };
        (source, addresses::read(result.ai_dst_addr)?)
    };
    resolve::find(id, source, destination)?;
    complete(id)?;
    resolve::find_route(id)?;
    complete(id)?;
    match init {
        None => Ok(()),
        Some(init) => {
            init.qp_type = result.ai_qp_type;
            qp::create_for(id, pd, init)
        }
    }
}

/// `rdma_destroy_ep`: destroys the id with all objects created for it.
pub(crate) extern "C" fn destroy(id: &Id) {
    qp::destroy(id);
    srq::destroy(id);
    id::destroy((&raw const *id).cast_mut());
}
