//! Memory windows.

use std::sync::atomic::{AtomicU32, Ordering};

use softnic_runtime::api::{Access, Bind, MemoryWindow, SendFlags, WindowType};

use crate::abi::*;
use crate::c_result::{pointer, status};
use crate::codes::{access_of, flags_of};
use crate::errno::Errno;
use crate::objects::domain::Pd;
use crate::objects::handle::{self, Object, ObjectKind, Pointer};
use crate::objects::queue_pair::Qp;
use crate::objects::region::Mr;

/// A memory window.
#[repr(C)]
pub(crate) struct Mw {
    base: ibv_mw,
    /// The key that the last bind assigned, or was to assign; `base.rkey` may be overwritten by the program.
    key: AtomicU32,
    /// Deallocated together with this value.
    _window: MemoryWindow,
    pd: &'static Pd,
}

impl Object for Mw {
    const KIND: ObjectKind = ObjectKind::Window;

    unsafe fn identity(this: *const Mw) -> (u32, *mut ibv_context) {
        // SAFETY: guaranteed by the contract.
        unsafe { ((*this).base.handle, (*this).base.context) }
    }
}

/// `ibv_alloc_mw`.
pub(crate) extern "C" fn alloc(pd: Pointer<Pd>, kind: c_int) -> *mut ibv_mw {
    pointer(|| {
        let pd = pd.get()?;
        let window = pd.ours.domain.alloc_mw(match kind {
            IBV_MW_TYPE_1 => WindowType::Type1,
            IBV_MW_TYPE_2 => WindowType::Type2B,
            _ => return Err(Errno::EINVAL),
        })?;
        pd.ours.users.add();
        let key = window.key();
        let handle = handle::next(Mw::KIND);
        let base = ibv_mw { context: pd.base.context, pd: pd.as_c(), rkey: key.into(), handle, kind };
        let mw = Box::new(Mw { base, key: key.into(), _window: window, pd });
        handle::add(&*mw);
        Ok(mw)
    })
}

/// `ibv_dealloc_mw`, bound or not.
pub(crate) extern "C" fn dealloc(mw: Pointer<Mw>) -> c_int {
    status(|| {
        mw.remove(|_| Ok(()))?;
        // SAFETY: `alloc` allocated this box, and the program does not use it any more.
        let mw = unsafe { Box::from_raw(mw.as_ptr()) };
        mw.pd.ours.users.remove();
        Ok(())
    })
}

/// The parameters of a bind.
fn request(mw: &Mw, info: &ibv_mw_bind_info, rkey: u32) -> Result<Bind, Errno> {
    mw.pd.context().check_process()?;
    // SAFETY: NULL, or a region of the program.
    let mr = unsafe { info.mr.cast::<Mr>().as_ref() };
    let lkey = match mr {
        Some(mr) => mr.lkey().ok_or(Errno::EINVAL)?,
        None if info.length == 0 => 0,
        None => return Err(Errno::EINVAL),
    };
    // Windows are for peers: local rights are those of the region (IBA 10.6.7.2.3). A program may include local write, as it does for
    // regions; that has no effect on the window.
    let access = access_of(info.mw_access_flags & !IBV_ACCESS_LOCAL_WRITE)?;
    if access.intersects(Access::MW_BIND) {
        return Err(Errno::EINVAL);
    }
    let zero_based = info.mw_access_flags & IBV_ACCESS_ZERO_BASED != 0;
    let window = mw.key.load(Ordering::Relaxed);
    Ok(Bind { window, rkey, lkey, addr: info.addr, len: info.length, access, zero_based })
}

/// `ibv_bind_mw`, for windows of type 1: their key changes with each binding.
pub(crate) extern "C" fn bind(qp: &Qp, mw: &ibv_mw, bind: &ibv_mw_bind) -> c_int {
    status(|| {
        // SAFETY: `alloc` created it, so the full object follows the C struct.
        let mw = unsafe { &*(&raw const *mw).cast::<Mw>() };
        // As mlx5 refuses it.
        if bind.bind_info.mw_access_flags & IBV_ACCESS_ZERO_BASED != 0 {
            return Err(Errno::EINVAL);
        }
        qp.ours.made_in.check()?;
        let flags: SendFlags = flags_of(bind.send_flags);
        let key = qp.ours.qp.bind_mw(bind.wr_id, &request(mw, &bind.bind_info, 0)?, flags)?;
        mw.key.store(key, Ordering::Relaxed);
        mw.base.rkey.store(key, Ordering::Relaxed);
        Ok(())
    })
}

/// The parameters of a work request that binds a window of type 2 under the key `rkey`. The program chooses the low byte of the key; the
/// other bytes are the window's, whatever the program passes.
pub(crate) fn request_of(mw: *mut ibv_mw, info: &ibv_mw_bind_info, rkey: u32) -> Result<Bind, Errno> {
    // SAFETY: NULL, or a window that `alloc` created.
    let mw = unsafe { mw.cast::<Mw>().as_ref() }.ok_or(Errno::EINVAL)?;
    match mw.base.kind {
        IBV_MW_TYPE_2 => request(mw, info, mw.key.load(Ordering::Relaxed) & !0xff | rkey & 0xff),
        _ => Err(Errno::EINVAL),
    }
}

/// The work request was posted: the window has its new key.
pub(crate) fn posted(mw: *mut ibv_mw, bind: &Bind) {
    // SAFETY: `request_of` has just found the window.
    let mw = unsafe { &*mw.cast::<Mw>() };
    mw.key.store(bind.rkey, Ordering::Relaxed);
    mw.base.rkey.store(bind.rkey, Ordering::Relaxed);
}
