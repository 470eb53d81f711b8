//! Memory windows: creation, binding, invalidation, and access through them (IBA 10.6.7).

use softnic_transports::memory::{Access, AccessError, Bind, PdId, Region};
use softnic_transports::planted::{Bug, planted};
use softnic_wire::Qpn;

use super::{Backing, Bound, Entry, MrError, Object, Regions, TAG_BITS, Window, WindowBinding, WindowType, inside};
use crate::table::Generator;

impl Regions {
    /// Creates an unbound window.
    pub(crate) fn alloc_window(
        &mut self,
        pd: PdId,
        kind: WindowType,
        random: &mut dyn Generator,
    ) -> Result<u32, MrError> {
        self.insert(Object::Window(Window { pd, kind, bound: None }), random)
    }

    /// Destroys a window, bound or not, by any key that it ever had.
    pub(crate) fn dealloc_window(&mut self, key: u32) -> Result<(), MrError> {
        let place = key >> TAG_BITS;
        let Some(Entry { object: Object::Window(window), .. }) = self.table.get(place) else {
            return Err(MrError::NoSuchMw);
        };
        let bound = window.bound;
        self.release(bound);
        self.table.remove(place);
        Ok(())
    }

    /// Binds a window by a work request of `qpn` (IBA 10.6.7.2.3).
    pub(crate) fn bind(&mut self, qpn: Qpn, pd: PdId, b: &Bind) -> Result<(), AccessError> {
        // The tag is ignored: the program may pass the key that an earlier bind was to assign, even if that bind failed.
        let place = self.table.get(b.window >> TAG_BITS);
        let Some(Entry { object: Object::Window(window), .. }) = place else { return Err(AccessError::Key) };
        if window.pd != pd {
            return Err(AccessError::Domain);
        }
        let (kind, old) = (window.kind, window.bound);
        // A window of type 2 must be unbound before it is bound, and cannot be bound to nothing.
        if kind == WindowType::Type2B && (old.is_some() || b.len == 0) {
            return Err(AccessError::Window);
        }
        let new = if b.len == 0 { None } else { Some(self.place_window(qpn, pd, kind, b)?) };
        self.release(old);
        if let Some(region) = new.and_then(|n| self.region_mut(n.region)) {
            region.users += 1;
        }
        if let Some(entry) = self.table.get_mut(b.window >> TAG_BITS) {
            // The low eight bits are set by the program; the other bits that it passed are ignored.
            entry.tag = b.rkey as u8;
            entry.object = Object::Window(Window { pd, kind, bound: new });
        }
        Ok(())
    }

    /// The binding of a window, by any key that it ever had.
    pub(crate) fn binding(&self, key: u32) -> Option<WindowBinding> {
        match self.table.get(key >> TAG_BITS)? {
            Entry { tag, object: Object::Window(window) } => Some(WindowBinding { tag: *tag, bound: window.bound }),
            Entry { .. } => None,
        }
    }

    /// Binds a window as it is bound at another NIC of the same device, whose regions have the same keys.
    pub(crate) fn set_binding(&mut self, key: u32, binding: WindowBinding) {
        let Some(Entry { tag, object: Object::Window(window) }) = self.table.get_mut(key >> TAG_BITS) else { return };
        *tag = binding.tag;
        let old = std::mem::replace(&mut window.bound, binding.bound);
        self.release(old);
        if let Some(region) = binding.bound.and_then(|bound| self.region_mut(bound.region)) {
            region.users += 1;
        }
    }

    /// The binding that the window would get, if its region allows it.
    fn place_window(&self, qpn: Qpn, pd: PdId, kind: WindowType, b: &Bind) -> Result<Bound, AccessError> {
        let Some(Object::Region(region)) = self.find(b.lkey) else { return Err(AccessError::Key) };
        if region.pd != pd {
            return Err(AccessError::Domain);
        }
        let writes = b.access.intersects(Access::REMOTE_WRITE | Access::REMOTE_ATOMIC);
        if !region.access.allows(Access::MW_BIND) || writes && !region.access.allows(Access::LOCAL_WRITE) {
            return Err(AccessError::Right);
        }
        Ok(Bound {
            region: b.lkey >> TAG_BITS,
            start: inside(b.addr, region.base, b.len, region.len)?,
            base: if b.zero_based { 0 } else { b.addr },
            len: b.len,
            access: b.access,
            qpn: (kind == WindowType::Type2B).then_some(qpn),
        })
    }

    /// Invalidates a window's key. Only bound windows of type 2 can be invalidated, and only through their queue pair; a region stays valid
    /// until it is deregistered (IBA 10.6.7.2.5).
    pub(crate) fn invalidate(&mut self, qpn: Qpn, pd: PdId, key: u32) -> Result<(), AccessError> {
        let Some(Object::Window(window)) = self.find(key) else { return Err(AccessError::Key) };
        if window.pd != pd || window.bound.is_some_and(|b| b.qpn != Some(qpn)) {
            return Err(AccessError::Domain);
        }
        let bound = window.bound;
        if window.kind != WindowType::Type2B || bound.is_none() {
            return Err(AccessError::Window);
        }
        if planted(Bug::InvalidateForgotten) {
            return Ok(());
        }
        self.release(bound);
        if let Some(Entry { object: Object::Window(window), .. }) = self.table.get_mut(key >> TAG_BITS) {
            window.bound = None;
        }
        Ok(())
    }

    /// A queue pair was destroyed: unbinds the windows that only it could use and invalidate, so that a later queue pair with its number
    /// does not give the peer access.
    pub(crate) fn forget_queue_pair(&mut self, qpn: Qpn) {
        let of_it = |entry: &mut Entry| match &mut entry.object {
            Object::Window(w) if w.bound.is_some_and(|b| b.qpn == Some(qpn)) => w.bound.take(),
            _ => None,
        };
        let freed: Vec<Bound> = self.table.values_mut().filter_map(of_it).collect();
        for bound in freed {
            self.release(Some(bound));
        }
    }

    /// A window is for the peer only: it has no lkey.
    pub(super) fn translate_window(&self, w: &Window, r: Region, len: u64) -> Result<(&Backing, u64), AccessError> {
        let bound = w.bound.filter(|_| r.access.intersects(Access::REMOTE)).ok_or(AccessError::Key)?;
        if w.pd != r.pd || bound.qpn.is_some_and(|qpn| qpn != r.qpn && !planted(Bug::WindowOfAnother)) {
            return Err(AccessError::Domain);
        }
        if !bound.access.allows(r.access) {
            return Err(AccessError::Right);
        }
        let offset = inside(r.addr, bound.base, len, bound.len)?;
        match self.table.get(bound.region) {
            Some(Entry { object: Object::Region(region), .. }) => Ok((&region.backing, bound.start + offset)),
            _ => Err(AccessError::Key),
        }
    }
}
