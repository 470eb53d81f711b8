//! `softnic_sdr.h`, memory regions: memory of the program from which messages are sent, and in which they are received.

use std::sync::{Mutex, MutexGuard};

use softnic_runtime::api::{Access, MemoryRegion};

use crate::abi::*;
use crate::c_result::{pointer, status};
use crate::codes::access_of;
use crate::errno::Errno;
use crate::objects::context::{Kind, Retire};
use crate::objects::handle::{self, Object, ObjectKind, Pointer};
use crate::objects::region::buffer_of;
use crate::objects::sdr_context::SdrContext;

/// A memory region of a context's own protection domain.
pub(crate) struct SdrRegion {
    pub(crate) sdr: &'static SdrContext,
    /// `None` once its device was closed.
    region: Mutex<Option<MemoryRegion>>,
    addr: usize,
    length: usize,
    access: Access,
}

impl SdrRegion {
    fn region(&self) -> MutexGuard<'_, Option<MemoryRegion>> {
        self.region.lock().unwrap_or_else(|p| p.into_inner())
    }

    /// Whether a peer may be permitted to write to it.
    pub(crate) fn may_receive(&self) -> bool {
        self.access.allows(Access::LOCAL_WRITE | Access::REMOTE_WRITE)
    }

    /// The region, and the offset of `length` bytes from `addr` on. An empty range is valid anywhere.
    ///
    /// # Errors
    /// EINVAL if the bytes are not all inside the region: the NIC would detect that only when it reads them, and then the queue pair could
    /// not be used any more.
    pub(crate) fn part(&self, addr: *const c_void, length: usize) -> Result<(MemoryRegion, usize), Errno> {
        let region = self.region().clone().ok_or(Errno::EINVAL)?;
        if length == 0 {
            return Ok((region, 0));
        }
        let offset = addr.addr().checked_sub(self.addr).ok_or(Errno::EINVAL)?;
        match offset.checked_add(length).is_some_and(|end| end <= self.length) {
            true => Ok((region, offset)),
            false => Err(Errno::EINVAL),
        }
    }
}

impl Object for SdrRegion {
    const KIND: ObjectKind = ObjectKind::SdrRegion;

    unsafe fn identity(this: *const SdrRegion) -> (u32, *mut ibv_context) {
        // SAFETY: guaranteed by the contract.
        unsafe { (0, (*this).sdr.as_c()) }
    }
}

impl Retire for SdrRegion {
    /// Makes the memory inaccessible. The queue pairs were destroyed before, so nothing uses the region.
    fn retire(&self) {
        if let Some(region) = self.region().take() {
            let _ = region.deregister();
        }
    }
}

/// `softnic_sdr_mr_reg`.
pub(crate) extern "C" fn reg(
    sdr: Pointer<SdrContext>,
    addr: *mut c_void,
    length: usize,
    access: c_int,
) -> *mut SdrRegion {
    pointer(|| {
        let (sdr, access) = (sdr.get()?, access_of(access.cast_unsigned())?);
        let buffer = buffer_of(addr, length, addr.addr() as u64, access)?;
        let region = Mutex::new(Some(sdr.sdr()?.pd().reg_mr(&buffer, access)?));
        sdr.users.add();
        let this = Box::new(SdrRegion { sdr, region, addr: addr.addr(), length, access });
        sdr.context().add(Kind::Region, &*this);
        handle::add(&*this);
        Ok(this)
    })
}

/// `softnic_sdr_mr_dereg`. EBUSY while receives are posted in it.
pub(crate) extern "C" fn dereg(mr: Pointer<SdrRegion>) -> c_int {
    status(|| {
        if mr.is_null() {
            return Ok(());
        }
        let this = mr.get()?;
        let mut held = this.region();
        if let Some(region) = held.take()
            && let Err((region, why)) = region.deregister()
        {
            *held = Some(region);
            return Err(why.into());
        }
        drop(held);
        mr.remove(|_| Ok(()))?;
        this.sdr.context().remove(Kind::Region, this);
        this.sdr.users.remove();
        // SAFETY: `reg` allocated this box, and no code uses it any more.
        drop(unsafe { Box::from_raw(mr.as_ptr()) });
        Ok(())
    })
}
