//! How an SDR queue pair, reliable or not, finds its peer: at all engines that it is at.

use std::sync::Arc;

use softnic_nic::ModifyError;
use softnic_sdr::{Counters, Link, SdrError};
use softnic_wire::{Path, Qpn};

use super::at_engines::AtEngines;
use crate::api::path::PeerPath;

/// What became of a meeting.
enum Met {
    /// It was over before.
    Done,
    /// The peer told this, if anything: our port, the path, and what both ends know of each other.
    Now(Option<(u8, Path, Arc<Link>)>),
}

impl AtEngines {
    pub(super) fn info(&self) -> Result<Vec<u8>, SdrError> {
        self.qp(|_, qp, _| Ok(qp.info().encode()))
    }

    pub(super) fn connect(&self, path: &PeerPath, info: &[u8]) -> Result<(), SdrError> {
        let _order = self.connecting();
        let (path, link) = self.qp(|_, qp, nic| {
            let path = path.attr.path(nic.port()).map_err(|_| SdrError::Modify(ModifyError::NotOurAddress))?;
            Ok((path, qp.link(info)?))
        })?;
        self.others(|_, branch, nic| branch.connect(nic, 1, &path, &link))?;
        self.qp(|_, qp, nic| qp.connect_link(nic, 1, &path, &link))
    }

    pub(super) fn number(&self) -> Result<Qpn, SdrError> {
        self.qp(|_, qp, _| Ok(qp.info().control.qpn))
    }

    pub(super) fn meet(&self, path: &PeerPath, peer: Qpn) -> Result<(), SdrError> {
        self.qp(|_, qp, nic| {
            let path = path.attr.path(nic.port()).map_err(|_| SdrError::Modify(ModifyError::NotOurAddress))?;
            qp.meet(nic, 1, &path, peer)
        })
    }

    pub(super) fn is_met(&self) -> Result<bool, SdrError> {
        self.progress();
        let _order = self.connecting();
        let met = self.qp(|_, qp, nic| if qp.is_connected() { Ok(Met::Done) } else { qp.met(nic).map(Met::Now) });
        let (port, path, link) = match met? {
            Met::Done => return Ok(true),
            Met::Now(None) if self.is_dead() => return Err(SdrError::Device),
            Met::Now(None) => return Ok(false),
            Met::Now(Some(all)) => all,
        };
        self.others(|_, branch, nic| branch.connect(nic, port, &path, &link))?;
        self.qp(|_, qp, nic| if qp.is_connected() { Ok(()) } else { qp.connect_link(nic, port, &path, &link) })?;
        Ok(true)
    }

    /// No packet of it leaves or is taken any more.
    pub(super) fn fail(&self) {
        // Of a NIC with another layer by now there is nothing to end.
        let _ = self.qp(|_, qp, nic| {
            qp.fail(nic);
            Ok(())
        });
        let _ = self.others(|_, branch, nic| {
            branch.fail(nic);
            Ok(())
        });
    }

    pub(super) fn counters(&self) -> Result<Counters, SdrError> {
        let mut all = self.qp(|_, qp, nic| Ok(qp.counters(nic)))?;
        self.others(|_, branch, nic| {
            all.add(&branch.counters(nic));
            Ok(())
        })?;
        Ok(all)
    }
}
