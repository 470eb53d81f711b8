//! Protection domains; thread domains and parent domains, which say how a program uses them and change nothing here.

use std::sync::Arc;

use softnic_runtime::api::ProtectionDomain;

use crate::abi::*;
use crate::c_result::{pointer, status};
use crate::errno::Errno;
use crate::objects::context::ContextPtr;
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
    /// A domain that is left over keeps its NICs open.
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
        // SAFETY: it was made from a context, which the program closes after it.
        unsafe { ContextPtr::new(self.base.context) }
    }

    pub(crate) fn as_c(&self) -> *mut ibv_pd {
        (&raw const *self).cast_mut().cast()
    }
}

fn new(
    context: ContextPtr<'_>,
    domain: ProtectionDomain,
    parent_of: Option<(&'static Pd, Option<&'static Td>)>,
) -> Box<Pd> {
    let ours = PdOurs { domain, users: Users::default(), _nics: Arc::clone(&context.ours.nics), parent_of };
    Box::new(Pd { base: ibv_pd { context: context.as_c(), handle: 0 }, ours })
}

/// `ibv_alloc_pd`.
pub(crate) extern "C" fn alloc(context: ContextPtr<'_>) -> *mut ibv_pd {
    pointer(|| Ok(new(context, context.nic().runtime.alloc_pd(), None)))
}

/// `ibv_dealloc_pd`, of parent domains too.
pub(crate) extern "C" fn dealloc(pd: *mut Pd) -> c_int {
    status(|| {
        // SAFETY: it is from `alloc`, and the program does not use it afterwards.
        let pd = unsafe { &*pd };
        pd.ours.users.none()?;
        if let Some((below, thread)) = pd.ours.parent_of {
            below.ours.users.remove();
            if let Some(thread) = thread {
                thread.users.remove();
            }
        }
        // SAFETY: `new` made a box of it, and nobody uses it.
        drop(unsafe { Box::from_raw((&raw const *pd).cast_mut()) });
        Ok(())
    })
}

/// `ibv_alloc_td`. Nothing is locked less for it: locks that nobody waits for cost little.
pub(crate) extern "C" fn alloc_td(context: ContextPtr<'_>, mask: &u32) -> *mut ibv_td {
    pointer(|| match *mask {
        0 => Ok(Box::new(Td { base: ibv_td { context: context.as_c() }, users: Users::default() })),
        _ => Err(Errno::EINVAL),
    })
}

/// `ibv_dealloc_td`.
pub(crate) extern "C" fn dealloc_td(td: *mut Td) -> c_int {
    status(|| {
        // SAFETY: it is from `alloc_td`, and the program does not use it afterwards.
        unsafe { &(*td).users }.none()?;
        // SAFETY: `alloc_td` made a box of it, and nobody uses it.
        drop(unsafe { Box::from_raw(td) });
        Ok(())
    })
}

/// `ibv_alloc_parent_domain`. Allocators are never asked: queues are the library's own memory, as the verb allows.
pub(crate) extern "C" fn alloc_parent(context: ContextPtr<'_>, attr: &ibv_parent_domain_init_attr) -> *mut ibv_pd {
    pointer(|| {
        // Allocators and a context for them.
        if attr.comp_mask & !3 != 0 {
            return Err(Errno::EINVAL);
        }
        // SAFETY: NULL, or objects of the program.
        let (below, thread) = unsafe { (attr.pd.cast::<Pd>().as_ref(), attr.td.cast::<Td>().as_ref()) };
        let below: &'static Pd = below.ok_or(Errno::EINVAL)?;
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
