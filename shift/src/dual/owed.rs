//! What verbs leave to be done at the backup: a program that changes or destroys something waits for its own NIC alone.
//!
//! Whatever uses the backup does this first, all of it and in order, so that nobody sees that it was done later. Verbs and frames have the Node
//! to themselves: a region that is deregistered, or a queue pair that is destroyed, is not used from the moment on when the verb returns.

use softnic_nic::transports::memory::{Access, PdId};
use softnic_nic::{Nic, QpAttr};
use softnic_wire::failover::Object;

use super::{Backup, DualNic, Request};
use crate::connection::{Guard, parts};

/// What is to be done.
pub(super) enum Owed {
    /// The program has changed a queue pair to which nothing has happened ([`Guard::is_calm`]).
    Attributes {
        at: usize,
        /// It has made it ready to send.
        sends: bool,
    },
    /// A connection is gone, or is none any more, that had this.
    Guard { at: usize, guard: Box<Guard> },
    /// A region of the default is gone.
    Region(u32),
    /// A domain of the default is gone.
    Domain(PdId),
}

impl DualNic {
    /// Whether verbs have left something to be done at the backup. It is done when the backup is used next; who wants it done before then
    /// calls [`DualNic::catch_up`].
    #[inline]
    pub fn owes(&self) -> bool {
        self.backup.as_ref().is_some_and(|backup| !backup.owed.is_empty())
    }

    /// Does what verbs have left to be done at the backup.
    pub fn catch_up(&mut self) {
        if let Some(backup) = &mut self.backup {
            backup.catch_up(&mut self.nic);
        }
    }
}

impl Backup {
    /// Does what verbs have left to be done: before the backup is used.
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
                        // Where something is still in it, it goes with the NIC.
                        let _ = self.nic.dealloc_pd(shadow);
                    }
                }
            }
        }
        // The next verb finds room in it.
        self.owed = all;
    }

    /// The queue pair at the backup has the attributes of the default's.
    fn follow(&mut self, nic: &Nic, at: usize, sends: bool) {
        let Some((plain, guard)) = parts(&mut self.connections, at) else { return };
        let Some((_, attr)) = nic.query_qp(plain.qpn) else { return };
        guard.attr = QpAttr { state: None, ..attr };
        guard.receives_only &= !sends;
        let QpAttr { timeout, retry_cnt, rnr_retry, min_rnr_timer, max_rd_atomic, max_dest_rd_atomic, .. } = attr;
        // Statuses are written, whatever the program lets its peer do.
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
