//! Control verbs that programs call by the table of a context. They are in the table only if the boundary is in use.

use super::after;
use super::before::About;
use super::made::Kind;
use super::observe;
use super::through::through;
use crate::abi::*;
use crate::calls::{create_cq, create_qp, query};
use crate::objects::context::ContextPtr;
use crate::objects::domain::{self, Pd, Td};
use crate::objects::handle::Pointer;
use crate::objects::queue_pair::Qp;
use crate::objects::window::{self, Mw};
use crate::objects::{region, shared_receive};

through! {
    []
    QueryPort query_port(context: ContextPtr<'_>, port: u8, out: *mut c_void, size: usize) -> c_int = query::port, errno;
    QueryDevice query_device_ex(context: ContextPtr<'_>, input: *const u32, out: *mut c_void, size: usize) -> c_int =
        query::device_ex, errno;
    RegMr alloc_null_mr(pd: Pointer<Pd>) -> *mut ibv_mr = region::alloc_null, null,
        after |mr| observe::registered(pd, 0, 1, mr);
    AllocPd alloc_parent_domain(context: ContextPtr<'_>, attr: &ibv_parent_domain_init_attr) -> *mut ibv_pd =
        domain::alloc_parent, null, after |pd| observe::allocated_pd(context, pd);
    AllocTd alloc_td(context: ContextPtr<'_>, mask: &u32) -> *mut ibv_td = domain::alloc_td, null;
    DeallocTd dealloc_td(td: Pointer<Td>) -> c_int = domain::dealloc_td, errno;
    AllocMw alloc_mw(pd: Pointer<Pd>, kind: c_int) -> *mut ibv_mw = window::alloc, null,
        after |mw| observe::allocated_mw(pd, kind, mw);
    DeallocMw dealloc_mw(mw: Pointer<Mw>) -> c_int = window::dealloc, errno,
        before observe::deallocating_mw(mw), after |result| observe::deallocated_mw(mw, result);
    BindMw bind_mw(qp: &Qp, mw: &ibv_mw, bind: &ibv_mw_bind) -> c_int = window::bind, errno,
        about About { qp: Some(qp.qpn()), wr_ids: &[bind.wr_id], id: None },
        before observe::binding_mw(qp, bind), after |result| observe::bound_mw(qp, result);
    CreateCq create_cq_ex(context: ContextPtr<'_>, attr: &ibv_cq_init_attr_ex) -> *mut ibv_cq = create_cq::create_ex, null,
        after |cq| { after::made(Kind::Cq, cq); observe::created_cq(context, cq) };
    CreateQp create_qp_ex(context: ContextPtr<'_>, init: &mut ibv_qp_init_attr_ex) -> *mut ibv_qp =
        create_qp::create_ex, null, after |qp| { after::made_qp(qp); observe::created_qp(qp) };
    CreateSrq create_srq_ex(context: ContextPtr<'_>, init: &mut ibv_srq_init_attr_ex) -> *mut ibv_srq =
        shared_receive::create_ex, null, after |srq| { after::made(Kind::Srq, srq); observe::created_srq(init.pd, &init.attr, srq) };
}
