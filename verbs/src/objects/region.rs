//! Memory regions: memory of the program that the NIC reads and writes.

use std::cell::UnsafeCell;
use std::sync::{Arc, Mutex, MutexGuard};

use softnic_runtime::api::{Access, Buffer, MemoryRegion};

use crate::abi::*;
use crate::c_result::{pointer, status};
use crate::codes::access_of;
use crate::errno::Errno;
use crate::objects::context::{Kind, Retire};
use crate::objects::domain::Pd;
use crate::objects::handle::{self, Object, ObjectKind, Pointer};
use crate::objects::mapping;

/// A memory region. The C struct changes when the region is reregistered.
#[repr(C)]
pub(crate) struct Mr {
    base: UnsafeCell<ibv_mr>,
    ours: MrOurs,
}

struct MrOurs {
    state: Mutex<State>,
}

struct State {
    /// `None` once its context was closed.
    region: Option<MemoryRegion>,
    pd: &'static Pd,
    access: Access,
}

impl Mr {
    fn new(pd: &'static Pd, region: MemoryRegion, access: Access, addr: *mut c_void, length: usize) -> Box<Mr> {
        let base = ibv_mr {
            context: pd.base.context,
            pd: pd.as_c(),
            addr,
            length,
            handle: handle::next(Mr::KIND),
            lkey: region.lkey(),
            rkey: region.rkey(),
        };
        pd.ours.users.add();
        let ours = MrOurs { state: Mutex::new(State { region: Some(region), pd, access }) };
        let mr = Box::new(Mr { base: UnsafeCell::new(base), ours });
        pd.context().add(Kind::Region, &*mr);
        handle::add(&*mr);
        mr
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.ours.state.lock().unwrap_or_else(|p| p.into_inner())
    }

    /// Its key, which never changes.
    pub(crate) fn lkey(&self) -> Option<u32> {
        self.state().region.as_ref().map(MemoryRegion::lkey)
    }
}

impl Object for Mr {
    const KIND: ObjectKind = ObjectKind::Region;

    unsafe fn identity(this: *const Mr) -> (u32, *mut ibv_context) {
        // SAFETY: guaranteed by the contract.
        unsafe { ((*(*this).base.get()).handle, (*(*this).base.get()).context) }
    }
}

impl Retire for Mr {
    /// The memory becomes inaccessible, and the region unusable.
    fn retire(&self) {
        if let Some(region) = self.state().region.take() {
            // If windows are bound to the region, the NIC does not deregister it; then its keys stay valid until the NIC is closed.
            let _ = region.deregister();
        }
    }
}

fn register(pd: Pointer<Pd>, addr: *mut c_void, length: usize, iova: u64, flags: c_uint) -> Result<Box<Mr>, Errno> {
    let (pd, access) = (pd.get()?, access_of(flags)?);
    let iova = if flags & IBV_ACCESS_ZERO_BASED != 0 { 0 } else { iova };
    let region = pd.ours.domain.reg_mr(&buffer_of(addr, length, iova, access)?, access)?;
    Ok(Mr::new(pd, region, access, addr, length))
}

/// The program's memory, which work requests address from `iova` on.
pub(crate) fn buffer_of(addr: *mut c_void, length: usize, iova: u64, access: Access) -> Result<Arc<Buffer>, Errno> {
    if addr.is_null() && length > 0 || addr.addr().checked_add(length).is_none() {
        return Err(Errno::EINVAL);
    }
    populate(addr, length, access)?;
    // SAFETY: the program leaves the memory in place until it deregisters the region, as the verb requires. The library accesses it only by
    // raw copies and atomics.
    Ok(unsafe { Buffer::foreign(addr.cast(), length, iova) })
}

/// Ensures that the memory exists and permits the requested access, as hardware does when it pins the pages. From then on no page is
/// missing when a packet arrives.
fn populate(addr: *mut c_void, length: usize, access: Access) -> Result<(), Errno> {
    const PAGE: usize = 4096;
    let first = addr.addr() & !(PAGE - 1);
    let Some(len) =
        addr.addr().checked_add(length).and_then(|end| end.checked_next_multiple_of(PAGE)).map(|end| end - first)
    else {
        return Err(Errno(libc::EFAULT));
    };
    let first = addr.map_addr(|_| first);
    // A region that may have windows is pinned for writing by the kernel, too.
    let writes =
        access.intersects(Access::LOCAL_WRITE | Access::REMOTE_WRITE | Access::REMOTE_ATOMIC | Access::MW_BIND);
    let advice = if writes { libc::MADV_POPULATE_WRITE } else { libc::MADV_POPULATE_READ };
    // SAFETY: changes nothing that a program can observe, whatever the memory is.
    if len == 0 || unsafe { libc::madvise(first, len, advice) } == 0 {
        return Ok(());
    }
    match std::io::Error::last_os_error().raw_os_error() {
        // The memory does not permit this access; but device memory, and Linux before 5.14, return the same error.
        Some(libc::EINVAL) => {
            let maps = std::fs::read_to_string("/proc/self/maps").unwrap_or_default();
            match mapping::allows(&maps, first.addr()..first.addr() + len, writes) {
                true => Ok(()),
                false => Err(Errno(libc::EFAULT)),
            }
        }
        Some(libc::EAGAIN | libc::EINTR) => Ok(()),
        _ => Err(Errno(libc::EFAULT)),
    }
}

/// `ibv_reg_mr`.
pub(crate) extern "C" fn reg(pd: Pointer<Pd>, addr: *mut c_void, length: usize, access: c_uint) -> *mut ibv_mr {
    pointer(|| register(pd, addr, length, addr.addr() as u64, access))
}

/// `ibv_reg_mr_iova` and `ibv_reg_mr_iova2`.
pub(crate) extern "C" fn reg_iova(
    pd: Pointer<Pd>,
    addr: *mut c_void,
    length: usize,
    iova: u64,
    access: c_uint,
) -> *mut ibv_mr {
    pointer(|| register(pd, addr, length, iova, access))
}

/// `ibv_reg_mr_ex` of v60 and later, for plain memory.
pub(crate) extern "C" fn reg_ex(pd: Pointer<Pd>, attr: &ibv_mr_init_attr) -> *mut ibv_mr {
    let known = IBV_REG_MR_MASK_IOVA | IBV_REG_MR_MASK_ADDR | IBV_REG_MR_MASK_BUF;
    pointer(|| match attr.comp_mask {
        mask if mask & !known != 0 => Err(Errno::EOPNOTSUPP),
        mask if mask & IBV_REG_MR_MASK_ADDR == 0 => Err(Errno::EINVAL),
        mask => {
            let iova = if mask & IBV_REG_MR_MASK_IOVA != 0 { attr.iova } else { attr.addr.addr() as u64 };
            register(pd, attr.addr, attr.length, iova, attr.access as c_uint)
        }
    })
}

/// `ibv_reg_buf_mr` of v65.
pub(crate) extern "C" fn reg_buf(
    pd: Pointer<Pd>,
    _buf: *mut c_void,
    addr: *mut c_void,
    length: usize,
    access: c_uint,
) -> *mut ibv_mr {
    reg(pd, addr, length, access)
}

/// `ibv_alloc_null_mr`.
pub(crate) extern "C" fn alloc_null(pd: Pointer<Pd>) -> *mut ibv_mr {
    pointer(|| {
        let pd = pd.get()?;
        let region = pd.ours.domain.alloc_null_mr(Access::LOCAL_WRITE)?;
        Ok(Mr::new(pd, region, Access::LOCAL_WRITE, std::ptr::null_mut(), 0))
    })
}

/// `ibv_dereg_mr`. EBUSY while memory windows are bound to it.
pub(crate) extern "C" fn dereg(mr: Pointer<Mr>) -> c_int {
    status(|| {
        let this = mr.get()?;
        let mut state = this.state();
        if let Some(region) = state.region.take() {
            if let Err((region, why)) = region.deregister() {
                state.region = Some(region);
                return Err(why.into());
            }
            state.pd.context().remove(Kind::Region, this);
            state.pd.ours.users.remove();
        }
        drop(state);
        mr.remove(|_| Ok(()))?;
        // SAFETY: `Mr::new` allocated this box, and no code uses it any more.
        drop(unsafe { Box::from_raw(mr.as_ptr()) });
        Ok(())
    })
}

/// `ibv_rereg_mr`: 0, or a failure code; then the old region is unchanged.
pub(crate) extern "C" fn rereg(
    mr: Pointer<Mr>,
    flags: c_int,
    pd: Pointer<Pd>,
    addr: *mut c_void,
    length: usize,
    access: c_uint,
) -> c_int {
    // There are separate codes for errors found by rdma-core and errors found by the kernel.
    let known = IBV_REREG_MR_CHANGE_TRANSLATION | IBV_REREG_MR_CHANGE_PD | IBV_REREG_MR_CHANGE_ACCESS;
    let moves = flags & IBV_REREG_MR_CHANGE_TRANSLATION != 0;
    if flags & !known != 0
        || moves && (addr.is_null() || length == 0)
        || access != 0 && flags & IBV_REREG_MR_CHANGE_ACCESS == 0
    {
        Errno::EINVAL.set();
        return IBV_REREG_MR_ERR_INPUT;
    }
    let result = status(|| {
        if flags == 0 {
            return Err(Errno::EINVAL);
        }
        let new_pd = match flags & IBV_REREG_MR_CHANGE_PD != 0 {
            true => Some(pd.get()?),
            false => None,
        };
        let new_access = match flags & IBV_REREG_MR_CHANGE_ACCESS != 0 {
            true => Some(access_of(access)?),
            false => None,
        };
        let mr = mr.get()?;
        let mut state = mr.state();
        // SAFETY: the program does not access the struct while the verb changes it, and other verbs wait for the lock.
        let old_memory = unsafe { ((*mr.base.get()).addr, (*mr.base.get()).length) };
        let (at, len) = if moves { (addr, length) } else { old_memory };
        populate(at, len, new_access.unwrap_or(state.access))?;
        // SAFETY: as in `buffer_of`.
        let buffer = moves.then(|| unsafe { Buffer::foreign(addr.cast(), length, addr.addr() as u64) });
        let old = state.region.take().ok_or(Errno::EINVAL)?;
        let new = match old.reregister(new_pd.map(|pd| &pd.ours.domain), buffer.as_ref(), new_access) {
            Ok(new) => new,
            Err((old, why)) => {
                state.region = Some(old);
                return Err(why.into());
            }
        };
        // SAFETY: the program does not access the struct while the verb changes it.
        let base = unsafe { &mut *mr.base.get() };
        (base.lkey, base.rkey) = (new.lkey(), new.rkey());
        if moves {
            (base.addr, base.length) = (addr, length);
        }
        if let Some(new_pd) = new_pd {
            base.pd = new_pd.as_c();
            new_pd.ours.users.add();
            std::mem::replace(&mut state.pd, new_pd).ours.users.remove();
        }
        state.access = new_access.unwrap_or(state.access);
        state.region = Some(new);
        Ok(())
    });
    if result == 0 { 0 } else { IBV_REREG_MR_ERR_CMD }
}

/// `ibv_alloc_buf` of v65: memory that can be registered, which any memory can.
pub(crate) extern "C" fn alloc_buf(_pd: &Pd, size: usize, buf: &mut *mut c_void) -> *mut c_void {
    let mut memory = std::ptr::null_mut();
    // SAFETY: `memory` is a valid location for a pointer; the page size is a power of two.
    let error = unsafe { libc::posix_memalign(&raw mut memory, 4096, size.max(1)) };
    if error != 0 {
        Errno(error).set();
        return std::ptr::null_mut();
    }
    *buf = memory;
    memory
}

/// `ibv_free_buf` of v65.
pub(crate) extern "C" fn free_buf(buf: *mut c_void) {
    // SAFETY: the buffer is from `alloc_buf`.
    unsafe { libc::free(buf) }
}
