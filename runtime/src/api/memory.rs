//! Memory regions and memory windows.

use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, MutexGuard};

use softnic_nic::transports::Sge;
use softnic_nic::transports::memory::Access;
use softnic_nic::{Buffer, MrError, Nic, WindowType};

use super::allowance::Permit;
use super::context::ProtectionDomain;
use crate::engine::Core;
use crate::failover::list::Shadow;

/// Registered memory: a buffer that the NIC, and a peer as far as allowed, reads and writes.
///
/// The region is deregistered when the last clone goes; from then on its key is refused, also to packets that are under way. As long as
/// memory windows are bound to it that is not done: see [`MemoryRegion::deregister`].
#[derive(Clone)]
pub struct MemoryRegion(Arc<Region>);

struct Region {
    pd: ProtectionDomain,
    buffer: Arc<Buffer>,
    access: Access,
    /// It has no memory: it reads as zeros.
    null: bool,
    key: u32,
    /// Whether the key stands for this: not after it was deregistered, or registered anew as another.
    registered: Arc<AtomicBool>,
    permit: Arc<Permit>,
}

impl Region {
    /// The backup, where there is one, gets one like it.
    fn shadow(&self) {
        if let Some(control) = self.pd.inner().control() {
            let (live, buffer) = (Arc::clone(&self.registered), (!self.null).then(|| Arc::clone(&self.buffer)));
            control.record(Shadow::Mr { key: self.key, pd: self.pd.id(), buffer, access: self.access, live });
        }
    }

    fn deregister(&self) -> Result<(), MrError> {
        let context = self.pd.inner();
        let order = context.mirrored();
        if !self.registered.load(Ordering::Acquire) {
            return Err(MrError::NoSuchMr);
        }
        // Once they are ours, none can be in the middle of using it.
        let mut engines = context.control_all(&order);
        engines.iter_mut().try_for_each(|core| core.nic().check_unbound_mr(self.key))?;
        engines.iter_mut().try_for_each(|core| core.nic().dereg_mr(self.key))?;
        for core in &mut engines {
            core.dual().forget_mr(self.key);
            core.pass_requests();
        }
        self.registered.store(false, Ordering::Release);
        Ok(())
    }

    /// Makes another region of the key; whether the backup has it, too.
    fn change(
        &self,
        pd: Option<&ProtectionDomain>,
        buffer: Option<&Arc<Buffer>>,
        access: Option<Access>,
    ) -> Result<bool, MrError> {
        let context = self.pd.inner();
        if pd.is_some_and(|pd| !Arc::ptr_eq(pd.inner(), context)) {
            return Err(MrError::NoSuchPd);
        }
        let order = context.mirrored();
        if !self.registered.load(Ordering::Acquire) {
            return Err(MrError::NoSuchMr);
        }
        let mut engines = context.control_all(&order);
        engines.iter_mut().try_for_each(|core| core.nic().check_unbound_mr(self.key))?;
        // What else can be wrong is wrong at the first, before anything changed.
        let new_pd = pd.map(ProtectionDomain::id);
        engines.iter_mut().try_for_each(|core| core.nic().rereg_mr(self.key, new_pd, buffer, access))?;
        // At the backup it keeps its key as well, and is never away: peers may use it by what they know.
        let (pd, access) = (new_pd.unwrap_or(self.pd.id()), access.unwrap_or(self.access));
        let buffer = buffer.or((!self.null).then_some(&self.buffer));
        let renew =
            |key, core: &mut MutexGuard<'_, Core>| core.dual().renew_mr(self.key, pd, buffer, access, key).map(Some);
        let renewed = engines.iter_mut().try_fold(None, renew).is_ok();
        for core in &mut engines {
            if !renewed {
                core.dual().forget_mr(self.key);
            }
            core.pass_requests();
        }
        self.registered.store(false, Ordering::Release);
        Ok(renewed)
    }
}

impl Drop for Region {
    fn drop(&mut self) {
        // It is gone already, or windows are bound to it: then it goes with the NIC, which keeps its buffer.
        let _ = self.deregister();
    }
}

impl ProtectionDomain {
    /// Does the same at all engines: the first one draws a key, the others take it.
    fn under_one_key(
        &self,
        first: impl FnOnce(&mut Nic) -> Result<u32, MrError>,
        other: impl Fn(&mut Nic, u32) -> Result<u32, MrError>,
    ) -> Result<u32, MrError> {
        let context = self.inner();
        let _order = context.mirrored();
        let [engine, others @ ..] = context.engines() else { return Err(MrError::NoKeys) };
        let key = first(engine.control().nic())?;
        for engine in others {
            other(engine.control().nic(), key)?;
        }
        Ok(key)
    }

    /// Registers `len` bytes of new, zeroed memory.
    ///
    /// # Errors
    /// When the rights cannot be granted together.
    pub fn alloc_mr(&self, len: usize, access: Access) -> Result<MemoryRegion, MrError> {
        self.reg_mr(&Buffer::in_place(len), access)
    }

    /// Registers a buffer, which may be registered several times.
    ///
    /// # Errors
    /// When the rights cannot be granted together.
    pub fn reg_mr(&self, buffer: &Arc<Buffer>, access: Access) -> Result<MemoryRegion, MrError> {
        let permit = self.permit()?;
        let key = self.under_one_key(
            |nic| nic.reg_mr(self.id(), buffer, access),
            |nic, key| nic.reg_mr_as(key, self.id(), buffer, access),
        )?;
        Ok(MemoryRegion::new(self, buffer, access, false, key, permit))
    }

    /// Room for one more region.
    fn permit(&self) -> Result<Arc<Permit>, MrError> {
        self.inner().regions.take().map(Arc::new).ok_or(MrError::NoKeys)
    }

    /// A region of all addresses that reads as zeros and forgets what is written. Its [`MemoryRegion::buffer`] is empty.
    ///
    /// # Errors
    /// When the rights cannot be granted together.
    pub fn alloc_null_mr(&self, access: Access) -> Result<MemoryRegion, MrError> {
        let permit = self.permit()?;
        let key = self.under_one_key(
            |nic| nic.alloc_null_mr(self.id(), access),
            |nic, key| nic.alloc_null_mr_as(key, self.id(), access),
        )?;
        Ok(MemoryRegion::new(self, &Buffer::new(0, 0), access, true, key, permit))
    }

    /// Makes a memory window, to be bound by a work request.
    ///
    /// # Errors
    /// When the keys run out.
    pub fn alloc_mw(&self, kind: WindowType) -> Result<MemoryWindow, MrError> {
        let key =
            self.under_one_key(|nic| nic.alloc_mw(self.id(), kind), |nic, key| nic.alloc_mw_as(key, self.id(), kind))?;
        Ok(MemoryWindow { pd: self.clone(), key })
    }
}

impl MemoryRegion {
    /// A region that was just registered.
    fn new(
        pd: &ProtectionDomain,
        buffer: &Arc<Buffer>,
        access: Access,
        null: bool,
        key: u32,
        permit: Arc<Permit>,
    ) -> MemoryRegion {
        let (pd, buffer, registered) = (pd.clone(), Arc::clone(buffer), Arc::new(AtomicBool::new(true)));
        let region = Region { pd, buffer, access, null, key, registered, permit };
        region.shadow();
        MemoryRegion(Arc::new(region))
    }

    /// Deregisters it now, whoever else has a clone: when this returns no engine uses the memory any more.
    ///
    /// # Errors
    /// [`MrError::Busy`] while memory windows are bound to it: then nothing has changed, and the region comes back.
    pub fn deregister(self) -> Result<(), (MemoryRegion, MrError)> {
        match self.0.deregister() {
            Ok(()) => Ok(()),
            Err(why) => Err((self, why)),
        }
    }

    /// Changes the domain, the memory and the rights as far as they are given; the key stays. What the region does not grant any more is
    /// refused from now on. Clones of the region as it was are invalid.
    ///
    /// # Errors
    /// [`MrError::Busy`] while memory windows are bound to it, or when the rights cannot be granted together: then nothing has changed,
    /// and the region comes back.
    pub fn reregister(
        self,
        pd: Option<&ProtectionDomain>,
        buffer: Option<&Arc<Buffer>>,
        access: Option<Access>,
    ) -> Result<MemoryRegion, (MemoryRegion, MrError)> {
        match self.0.change(pd, buffer, access) {
            Ok(renewed) => {
                let null = self.0.null && buffer.is_none();
                let (pd, buffer) = (pd.unwrap_or(&self.0.pd), buffer.unwrap_or(&self.0.buffer));
                let access = access.unwrap_or(self.0.access);
                let (pd, buffer, permit) = (pd.clone(), Arc::clone(buffer), Arc::clone(&self.0.permit));
                let registered = Arc::new(AtomicBool::new(true));
                let region = Region { pd, buffer, access, null, key: self.0.key, registered, permit };
                if !renewed {
                    region.shadow();
                }
                Ok(MemoryRegion(Arc::new(region)))
            }
            Err(why) => Err((self, why)),
        }
    }

    /// The key for work requests of this NIC.
    pub fn lkey(&self) -> u32 {
        self.0.key
    }

    /// The key for the peer.
    pub fn rkey(&self) -> u32 {
        self.0.key
    }

    /// The first address.
    pub fn addr(&self) -> u64 {
        self.0.buffer.addr()
    }

    /// Bytes.
    pub fn len(&self) -> usize {
        self.0.buffer.len()
    }

    /// Whether it has no byte.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The memory itself.
    pub fn buffer(&self) -> &Arc<Buffer> {
        &self.0.buffer
    }

    /// `len` bytes from `offset` on, as a work request names them. Whether they are all there the NIC looks when it uses them.
    pub fn sge(&self, offset: usize, len: usize) -> Sge {
        Sge { addr: self.addr().wrapping_add(offset as u64), len: len as u32, lkey: self.0.key }
    }

    /// Copies bytes in at `offset`.
    ///
    /// # Panics
    /// When they do not fit.
    pub fn write_at(&self, offset: usize, bytes: &[u8]) {
        self.0.buffer.write_at(offset, bytes);
    }

    /// Copies bytes out from `offset`.
    ///
    /// # Panics
    /// When they are not all there.
    pub fn read_at(&self, offset: usize, out: &mut [u8]) {
        self.0.buffer.read_at(offset, out);
    }

    /// The byte at `offset`, and after it everything that the NIC placed before it: for programs that poll the last byte of a message.
    ///
    /// # Panics
    /// When it is not there.
    #[inline]
    pub fn load_byte(&self, offset: usize) -> u8 {
        self.0.buffer.load_byte(offset)
    }
}

impl fmt::Debug for MemoryRegion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "MemoryRegion({:#x}, {} bytes, key {:#010x})", self.addr(), self.len(), self.0.key)
    }
}

/// A memory window; it goes with this value.
pub struct MemoryWindow {
    pd: ProtectionDomain,
    key: u32,
}

impl MemoryWindow {
    /// Its first key: each binding has the next ([`softnic_nic::next_key`]).
    pub fn key(&self) -> u32 {
        self.key
    }
}

impl Drop for MemoryWindow {
    fn drop(&mut self) {
        let context = self.pd.inner();
        let _order = context.mirrored();
        for engine in context.engines() {
            let _ = engine.control().nic().dealloc_mw(self.key);
        }
    }
}

impl fmt::Debug for MemoryWindow {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "MemoryWindow(key {:#010x})", self.key)
    }
}
