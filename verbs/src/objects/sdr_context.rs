//! `softnic_sdr.h`, contexts: SDR-RDMA on an opened device.

use std::sync::Mutex;

use softnic_runtime::api::sdr;

use crate::abi::*;
use crate::c_result::{pointer, status};
use crate::errno::Errno;
use crate::objects::context::{ContextPtr, Kind, Retire};
use crate::objects::handle::{self, Object, ObjectKind, Pointer};
use crate::objects::users::Users;

/// SDR-RDMA on a NIC.
pub(crate) struct SdrContext {
    context: *mut ibv_context,
    /// `None` once its device was closed.
    sdr: Mutex<Option<sdr::SdrContext>>,
    /// Number of its queue pairs and regions.
    pub(crate) users: Users,
}

impl SdrContext {
    pub(crate) fn context(&self) -> ContextPtr<'_> {
        // SAFETY: this was created from a context. When that is closed, this object is not found any more.
        unsafe { ContextPtr::new(self.context) }
    }

    pub(crate) fn as_c(&self) -> *mut ibv_context {
        self.context
    }

    pub(crate) fn sdr(&self) -> Result<sdr::SdrContext, Errno> {
        self.sdr.lock().unwrap_or_else(|p| p.into_inner()).clone().ok_or(Errno::EINVAL)
    }
}

impl Object for SdrContext {
    const KIND: ObjectKind = ObjectKind::SdrContext;

    unsafe fn identity(this: *const SdrContext) -> (u32, *mut ibv_context) {
        // SAFETY: guaranteed by the contract.
        unsafe { (0, (*this).context) }
    }
}

impl Retire for SdrContext {
    /// Allows another SDR context on the NIC.
    fn retire(&self) {
        let sdr = self.sdr.lock().unwrap_or_else(|p| p.into_inner()).take();
        drop(sdr);
    }
}

/// `softnic_sdr_context_create`.
pub(crate) extern "C" fn create(
    context: Pointer<ibv_context>,
    attr: Option<&softnic_sdr_context_attr>,
) -> *mut SdrContext {
    pointer(|| {
        context.get()?;
        if attr.is_some_and(|attr| attr.comp_mask != 0) {
            return Err(Errno::EINVAL);
        }
        // SAFETY: the context exists.
        let context = unsafe { ContextPtr::new(context.as_ptr()) };
        let sdr = sdr::SdrContext::new(&context.nic().runtime)?;
        let this =
            Box::new(SdrContext { context: context.as_c(), sdr: Mutex::new(Some(sdr)), users: Users::default() });
        context.add(Kind::SdrContext, &*this);
        handle::add(&*this);
        Ok(this)
    })
}

/// `softnic_sdr_context_destroy`. EBUSY while it has queue pairs or regions.
pub(crate) extern "C" fn destroy(sdr: Pointer<SdrContext>) -> c_int {
    status(|| {
        if sdr.is_null() {
            return Ok(());
        }
        let this = sdr.remove(|this| this.users.none())?;
        this.context().remove(Kind::SdrContext, this);
        // SAFETY: `create` allocated this box, and no code uses it any more.
        drop(unsafe { Box::from_raw(sdr.as_ptr()) });
        Ok(())
    })
}
