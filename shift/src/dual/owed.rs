//! Work at the backup that verbs defer: a program that changes or destroys an object waits for the default NIC alone.
//!
//! Every use of the backup first does all deferred work, in order, so the delay is not observable. A verb or a frame has exclusive use of the
//! Node: a region that is deregistered, or a queue pair that is destroyed, is not used after the verb returns.

use softnic_nic::transports::memory::{Access, PdId};
use softnic_nic::{Nic, QpAttr};
use softnic_wire::failover::Object;

use super::{Backup, DualNic, Request};
use crate::connection::{Guard, parts};

/// Deferred work.
pub(super) enum Owed {
    /// The program has changed a calm queue pair ([`Guard::is_calm`]).
    Attributes {
        at: usize,
        /// The program has made the queue pair ready to send.
        sends: bool,
    },
    /// A connection with this guard was destroyed or reset.
    Guard { at: usize, guard: Box<Guard> },
    /// A region of the default was deregistered.
    Region(u32),
    /// A protection domain of the default was freed.
    Domain(PdId),
}

impl DualNic {
    /// Whether verbs have deferred work at the backup. The next use of the backup does it; call [`DualNic::catch_up`] to have it done
    /// earlier.
    #[inline]
    pub fn owes(&self) -> bool {
        self.backup.as_ref().is_some_and(|backup| !backup.owed.is_empty())
    }

    /// Does the work that verbs have deferred.
    pub fn catch_up(&mut self) {
        if let Some(backup) = &mut self.backup {
            backup.catch_up(&mut self.nic);
        }
    }
}

impl Backup {
    /// Does the work that verbs have deferred. Call before the backup is used.
    #[inline]
    pub(super) fn catch_up(&mut self, nic: &mut Nic) {
        if !self.owed.is_empty() {
            self.do_owed(nic);
        }
    }

    #[cold]
    fn do_owed(&mut self, nic: &mut Nic) {
        let mut all = std::mem::take(&mut self.owed);
        for owed in all.drain(..) {
            match owed {
                Owed::Attributes { at, sends } => self.follow(nic, at, sends),
                Owed::Guard { at, guard } => self.bury(at, &guard),
                Owed::Region(key) => self.forget_region(key),
                Owed::Domain(pd) => {
                    if let Some(shadow) = self.pds.remove(&pd) {
                        // A domain that is not empty stays until the NIC goes.
                        let _ = self.nic.dealloc_pd(shadow);
                    }
                }
            }
        }
        // Keep the allocation for the next verb.
        self.owed = all;
    }

    /// Copies the attributes of the default's queue pair to its counterpart at the backup.
    fn follow(&mut self, nic: &Nic, at: usize, sends: bool) {
        let Some((plain, guard)) = parts(&mut self.connections, at) else { return };
        let Some((_, attr)) = nic.query_qp(plain.qpn) else { return };
        guard.attr = QpAttr { state: None, ..attr };
        guard.receives_only &= !sends;
        let QpAttr { timeout, retry_cnt, rnr_retry, min_rnr_timer, max_rd_atomic, max_dest_rd_atomic, .. } = attr;
        // Peers write statuses, whatever access the program grants.
        let access = attr.access.map(|access| access | Access::REMOTE_WRITE);
        let changes = QpAttr {
            access,
            timeout,
            retry_cnt,
            rnr_retry,
            min_rnr_timer,
            max_rd_atomic,
            max_dest_rd_atomic,
            ..QpAttr::default()
        };
        self.nic.update_qp(guard.backup, &changes);
    }

    fn forget_region(&mut self, default: u32) {
        self.without_shadow.remove(&default);
        if let Some(region) = self.regions.remove(&default) {
            self.default_keys.remove(&region.key);
            let _ = self.nic.dereg_mr(region.key);
            let objects = region.stored.into_iter().map(|gid| Object::Region { gid, rkey: default });
            self.requests.extend(objects.map(|object| Request::Delete { object }));
        }
    }
}
