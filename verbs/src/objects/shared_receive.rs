//! Shared receive queues.

use softnic_runtime::api::{MAX_SGE, SharedReceiveQueue};

use crate::abi::*;
use crate::c_result::{check_memory, pointer, status};
use crate::errno::Errno;
use crate::fork::Generation;
use crate::limits::{MAX_QP_WR, WORK_REQUEST, queue_size};
use crate::objects::context::ContextPtr;
use crate::objects::domain::Pd;
use crate::objects::event_queue::{Subject, Unacknowledged};
use crate::objects::handle::{self, Object, ObjectKind, Pointer};
use crate::objects::users::Users;

/// A shared receive queue.
#[repr(C)]
pub(crate) struct Srq {
    base: ibv_srq,
    pub(crate) ours: SrqOurs,
}

pub(crate) struct SrqOurs {
    /// The process that created it.
    pub(crate) made_in: Generation,
    pub(crate) queue: SharedReceiveQueue,
    pub(crate) users: Users,
    pub(crate) async_events: Unacknowledged,
    max_wr: u32,
    max_sge: u32,
    pd: &'static Pd,
}

impl Srq {
    pub(crate) fn context(&self) -> ContextPtr<'_> {
        self.ours.pd.context()
    }

    pub(crate) fn pd(&self) -> &Pd {
        self.ours.pd
    }

    pub(crate) fn subject(&self) -> Subject {
        Subject::Srq(self.ours.queue.id().0)
    }
}

impl Object for Srq {
    const KIND: ObjectKind = ObjectKind::SharedReceive;

    unsafe fn identity(this: *const Srq) -> (u32, *mut ibv_context) {
        // SAFETY: guaranteed by the contract.
        unsafe { ((*this).base.handle, (*this).base.context) }
    }
}

fn make(pd: Pointer<Pd>, srq_context: *mut c_void, attr: &mut ibv_srq_attr) -> Result<Box<Srq>, Errno> {
    let pd = pd.get()?;
    if attr.max_wr == 0 || attr.max_wr > MAX_QP_WR || attr.max_sge > MAX_SGE {
        return Err(Errno::EINVAL);
    }
    attr.max_sge = attr.max_sge.max(1);
    check_memory(queue_size(attr.max_wr) as usize, WORK_REQUEST + attr.max_sge as usize * size_of::<ibv_sge>())?;
    let queue = pd.ours.domain.create_srq(queue_size(attr.max_wr), attr.max_sge)?;
    attr.max_wr = queue.depth().min(MAX_QP_WR);
    pd.ours.users.add();
    let base = ibv_srq {
        context: pd.base.context,
        srq_context,
        pd: pd.as_c(),
        handle: handle::next(Srq::KIND),
        mutex: Mutex::default(),
        cond: Cond::default(),
        events_completed: 0,
    };
    let (users, async_events) = (Users::default(), Unacknowledged::default());
    let made_in = Generation::current();
    let ours = SrqOurs { made_in, queue, users, async_events, max_wr: attr.max_wr, max_sge: attr.max_sge, pd };
    let srq = Box::new(Srq { base, ours });
    handle::add(&*srq);
    let context = pd.context();
    context.nic().owners.add(srq.subject(), &context.ours.events, (&raw const *srq).expose_provenance());
    Ok(srq)
}

/// `ibv_create_srq`. The limit is set by `ibv_modify_srq`.
pub(crate) extern "C" fn create(pd: Pointer<Pd>, init: &mut ibv_srq_init_attr) -> *mut ibv_srq {
    pointer(|| make(pd, init.srq_context, &mut init.attr))
}

/// `ibv_create_srq_ex`, for basic queues.
pub(crate) extern "C" fn create_ex(_context: ContextPtr<'_>, init: &mut ibv_srq_init_attr_ex) -> *mut ibv_srq {
    pointer(|| {
        if init.comp_mask & !(IBV_SRQ_INIT_ATTR_TYPE | IBV_SRQ_INIT_ATTR_PD) != 0 {
            return Err(Errno::EOPNOTSUPP);
        }
        if init.comp_mask & IBV_SRQ_INIT_ATTR_TYPE != 0 && init.srq_type != 0 {
            return Err(Errno::EOPNOTSUPP);
        }
        if init.comp_mask & IBV_SRQ_INIT_ATTR_PD == 0 {
            return Err(Errno::EINVAL);
        }
        make(Pointer::new(init.pd), init.srq_context, &mut init.attr)
    })
}

/// `ibv_modify_srq`: sets its limit. Its size cannot be changed.
pub(crate) extern "C" fn modify(srq: Pointer<Srq>, attr: &ibv_srq_attr, mask: c_int) -> c_int {
    status(|| {
        let srq = srq.get()?;
        if mask & !(IBV_SRQ_MAX_WR | IBV_SRQ_LIMIT) != 0 {
            return Err(Errno::EINVAL);
        }
        if mask & IBV_SRQ_MAX_WR != 0 {
            return Err(Errno::EOPNOTSUPP);
        }
        if mask & IBV_SRQ_LIMIT != 0 {
            if attr.srq_limit > srq.ours.max_wr {
                return Err(Errno::EINVAL);
            }
            srq.ours.queue.set_limit(attr.srq_limit);
        }
        Ok(())
    })
}

/// `ibv_query_srq`.
pub(crate) extern "C" fn query(srq: Pointer<Srq>, attr: &mut ibv_srq_attr) -> c_int {
    status(|| {
        let srq = srq.get()?;
        let SrqOurs { max_wr, max_sge, .. } = srq.ours;
        *attr = ibv_srq_attr { max_wr, max_sge, srq_limit: srq.ours.queue.limit() };
        Ok(())
    })
}

/// `ibv_destroy_srq`. EBUSY while queue pairs use it; waits until all events are acknowledged.
pub(crate) extern "C" fn destroy(srq: Pointer<Srq>) -> c_int {
    status(|| {
        let this = srq.remove(|srq| srq.ours.users.none())?;
        let srq = srq.as_ptr();
        this.context().nic().owners.remove(this.subject());
        this.ours.async_events.wait_for_none();
        this.ours.pd.ours.users.remove();
        // SAFETY: `make` allocated this box, and no code uses it any more.
        drop(unsafe { Box::from_raw(srq) });
        Ok(())
    })
}
