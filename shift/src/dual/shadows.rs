//! Shadows: copies of the default's protection domains and regions at the backup (SHIFT §4.2).

use std::sync::Arc;

use softnic_nic::transports::memory::{Access, PdId};
use softnic_nic::{Buffer, MrError, Nic};
use softnic_wire::failover::RegionAnswer;

use super::owed::Owed;
use super::{Backup, DualNic, ShadowRegion};
use crate::connection::parts;

impl DualNic {
    /// Allocates a shadow of a protection domain of the default.
    pub fn shadow_pd(&mut self, pd: PdId) {
        self.catch_up();
        if let Some(backup) = &mut self.backup
            && !backup.pds.contains_key(&pd)
        {
            let shadow = backup.nic.alloc_pd();
            backup.pds.insert(pd, shadow);
        }
    }

    /// Drops the shadow of a protection domain that was freed.
    pub fn forget_pd(&mut self, pd: PdId) {
        if let Some(backup) = &mut self.backup {
            backup.owed.push(Owed::Domain(pd));
        }
    }

    /// Registers a region of the default at the backup. Returns its key there. The NICs of one device use equal keys: all but the first pass the
    /// first one's as `key`.
    ///
    /// # Errors
    /// As [`Nic::reg_mr`].
    pub fn shadow_mr(
        &mut self,
        default: u32,
        pd: PdId,
        buffer: &Arc<Buffer>,
        access: Access,
        key: Option<u32>,
    ) -> Result<u32, MrError> {
        self.shadow(default, pd, (buffer.addr(), buffer.len() as u64), |nic, pd| match key {
            None => nic.reg_mr(pd, buffer, access),
            Some(key) => nic.reg_mr_as(key, pd, buffer, access),
        })
    }

    /// [`DualNic::shadow_mr`] for a region that reads as zeros and discards writes.
    ///
    /// # Errors
    /// As [`Nic::alloc_null_mr`].
    pub fn shadow_null_mr(&mut self, default: u32, pd: PdId, access: Access, key: Option<u32>) -> Result<u32, MrError> {
        self.shadow(default, pd, (0, u64::MAX), |nic, pd| match key {
            None => nic.alloc_null_mr(pd, access),
            Some(key) => nic.alloc_null_mr_as(key, pd, access),
        })
    }

    /// Registers a region of the default at the backup, in the shadow of its domain.
    fn shadow(
        &mut self,
        default: u32,
        pd: PdId,
        (addr, len): (u64, u64),
        register: impl FnOnce(&mut Nic, PdId) -> Result<u32, MrError>,
    ) -> Result<u32, MrError> {
        self.catch_up();
        let backup = self.backup.as_mut().ok_or(MrError::NoSuchPd)?;
        let pd = *backup.pds.get(&pd).ok_or(MrError::NoSuchPd)?;
        let key = register(&mut backup.nic, pd)?;
        let stored = backup.put_region(&self.nic, default, RegionAnswer { addr, len, backup_rkey: key });
        backup.regions.insert(default, ShadowRegion { addr, len, key, stored });
        backup.default_keys.insert(key, default);
        backup.wake_keyless();
        Ok(key)
    }

    /// Renews the shadow of a region that was reregistered under its key; without a buffer, a region that reads as zeros. The shadow keeps its
    /// key as well, because peers may have queried it already. If this NIC has no shadow of the region yet, the shadow gets `key`. Returns the
    /// shadow's key.
    ///
    /// # Errors
    /// [`MrError::NoSuchMr`] if the shadow has no key, else as [`DualNic::shadow_mr`]. After an error the backup does not have the region.
    pub fn renew_mr(
        &mut self,
        default: u32,
        pd: PdId,
        buffer: Option<&Arc<Buffer>>,
        access: Access,
        key: Option<u32>,
    ) -> Result<u32, MrError> {
        self.catch_up();
        let backup = self.backup.as_ref().ok_or(MrError::NoSuchMr)?;
        let key = backup.regions.get(&default).map(|region| region.key).or(key).ok_or(MrError::NoSuchMr)?;
        self.forget_mr(default);
        // The domain may be so new that it has no shadow yet.
        self.shadow_pd(pd);
        match buffer {
            Some(buffer) => self.shadow_mr(default, pd, buffer, access, Some(key)),
            None => self.shadow_null_mr(default, pd, access, Some(key)),
        }
    }

    /// Drops the shadow of a region that was deregistered.
    pub fn forget_mr(&mut self, default: u32) {
        if let Some(backup) = &mut self.backup {
            backup.owed.push(Owed::Region(default));
        }
    }

    /// Records that the backup will never have a region of the default: work that needs it need not wait.
    pub fn refuse_mr(&mut self, default: u32) {
        self.catch_up();
        if let Some(backup) = &mut self.backup {
            backup.without_shadow.insert(default);
            backup.wake_keyless();
        }
    }
}

impl Backup {
    /// Schedules checks of connections whose work may have waited for a region.
    fn wake_keyless(&mut self) {
        for at in std::mem::take(&mut self.keyless) {
            parts(&mut self.connections, at).into_iter().for_each(|(_, guard)| guard.keyless = false);
            self.mark(at);
        }
    }
}
