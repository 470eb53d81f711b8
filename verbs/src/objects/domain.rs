//! Protection domains; also thread domains and parent domains, which describe a program's use of them and have no effect here.

use std::sync::Arc;

use softnic_runtime::api::ProtectionDomain;

use crate::abi::*;
use crate::c_result::{pointer, status};
use crate::errno::Errno;
use crate::objects::context::ContextPtr;
use crate::objects::handle::{self, Object, ObjectKind, Pointer};
use crate::objects::nic::Nics;
use crate::objects::users::Users;

/// A protection domain, or a parent domain over one.
#[repr(C)]
pub(crate) struct Pd {
    pub(crate) base: ibv_pd,
    pub(crate) ours: PdOurs,
}

pub(crate) struct PdOurs {
    pub(crate) domain: ProtectionDomain,
    pub(crate) users: Users,
    /// A domain that was not deallocated keeps its NICs open.
    _nics: Arc<Nics>,
    parent_of: Option<(&'static Pd, Option<&'static Td>)>,
}

/// A thread domain.
#[repr(C)]
pub(crate) struct Td {
    base: ibv_td,
    users: Users,
}

impl Pd {
    pub(crate) fn context(&self) -> ContextPtr<'_> {
        // SAFETY: the domain was allocated from a context, which the program closes after the domain.
        unsafe { ContextPtr::new(self.base.context) }
    }

    pub(crate) fn as_c(&self) -> *mut ibv_pd {
        (&raw const *self).cast_mut().cast()
    }

    /// The domain that it represents: for a parent domain, the one below.
    pub(crate) fn below(&self) -> &Pd {
        self.ours.parent_of.map_or(self, |(below, _)| below)
    }
}

impl Object for Pd {
    const KIND: ObjectKind = ObjectKind::Domain;

    unsafe fn identity(this: *const Pd) -> (u32, *mut ibv_context) {
        // SAFETY: guaranteed by the contract.
        unsafe { ((*this).base.handle, (*this).base.context) }
    }
}

impl Object for Td {
    const KIND: ObjectKind = ObjectKind::ThreadDomain;

    unsafe fn identity(this: *const Td) -> (u32, *mut ibv_context) {
        // SAFETY: guaranteed by the contract.
        unsafe { (0, (*this).base.context) }
    }
}

fn new(
    context: ContextPtr<'_>,
    domain: ProtectionDomain,
    parent_of: Option<(&'static Pd, Option<&'static Td>)>,
) -> Box<Pd> {
    let ours = PdOurs { domain, users: Users::default(), _nics: Arc::clone(&context.ours.nics), parent_of };
    let pd = Box::new(Pd { base: ibv_pd { context: context.as_c(), handle: handle::next(Pd::KIND) }, ours });
    handle::add(&*pd);
    pd
}

/// `ibv_alloc_pd`.
pub(crate) extern "C" fn alloc(context: ContextPtr<'_>) -> *mut ibv_pd {
    pointer(|| {
        context.check_process()?;
        Ok(new(context, context.nic().runtime.alloc_pd(), None))
    })
}

/// `ibv_dealloc_pd`, also for parent domains.
pub(crate) extern "C" fn dealloc(pd: Pointer<Pd>) -> c_int {
    status(|| {
        let pd = pd.remove(|pd| pd.ours.users.none())?;
        if let Some((below, thread)) = pd.ours.parent_of {
            below.ours.users.remove();
            if let Some(thread) = thread {
                thread.users.remove();
            }
        }
        // SAFETY: `new` allocated this box, and no code uses it any more.
        drop(unsafe { Box::from_raw((&raw const *pd).cast_mut()) });
        Ok(())
    })
}

/// `ibv_alloc_td`. It does not reduce locking: uncontended locks cost little.
pub(crate) extern "C" fn alloc_td(context: ContextPtr<'_>, mask: &u32) -> *mut ibv_td {
    pointer(|| match *mask {
        0 => {
            context.check_process()?;
            let td = Box::new(Td { base: ibv_td { context: context.as_c() }, users: Users::default() });
            handle::add(&*td);
            Ok(td)
        }
        _ => Err(Errno::EINVAL),
    })
}

/// `ibv_dealloc_td`.
pub(crate) extern "C" fn dealloc_td(td: Pointer<Td>) -> c_int {
    status(|| {
        td.remove(|td| td.users.none())?;
        // SAFETY: `alloc_td` allocated this box, and no code uses it any more.
        drop(unsafe { Box::from_raw(td.as_ptr()) });
        Ok(())
    })
}

/// `ibv_alloc_parent_domain`. Allocators are never called: queues use the library's own memory, as the verb permits.
pub(crate) extern "C" fn alloc_parent(context: ContextPtr<'_>, attr: &ibv_parent_domain_init_attr) -> *mut ibv_pd {
    pointer(|| {
        context.check_process()?;
        // The bits for allocators, and for their context.
        if attr.comp_mask & !3 != 0 {
            return Err(Errno::EINVAL);
        }
        let below = Pointer::<Pd>::new(attr.pd).get()?;
        let thread = Pointer::<Td>::new(attr.td).optional()?;
        context.check_same_nic(below.context())?;
        if below.ours.parent_of.is_some() {
            return Err(Errno::EINVAL);
        }
        below.ours.users.add();
        if let Some(thread) = thread {
            thread.users.add();
        }
        Ok(new(context, below.ours.domain.clone(), Some((below, thread))))
    })
}
