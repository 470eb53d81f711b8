//! Any number of SDR queue pairs as the layer of a NIC.

use std::any::Any;

use softnic_nic::{Layer, Nic};
use softnic_wire::Instant;

use crate::error::SdrError;
use crate::qp::SdrQp;

/// Names an SDR queue pair to the layer that has it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct QpId(pub u32);

/// The SDR queue pairs of a NIC.
#[derive(Default)]
pub struct Sdr {
    qps: Vec<Option<SdrQp>>,
}

impl Sdr {
    /// Takes over a queue pair of this NIC.
    pub fn add(&mut self, qp: SdrQp) -> QpId {
        let at = self.qps.iter().position(Option::is_none).unwrap_or(self.qps.len());
        if at == self.qps.len() {
            self.qps.push(None);
        }
        self.qps[at] = Some(qp);
        QpId(at as u32)
    }

    /// A queue pair.
    pub fn qp(&mut self, id: QpId) -> Result<&mut SdrQp, SdrError> {
        self.qps.get_mut(id.0 as usize).and_then(Option::as_mut).ok_or(SdrError::NoSuchQp)
    }

    /// Takes a queue pair out; the caller destroys it.
    pub fn remove(&mut self, id: QpId) -> Result<SdrQp, SdrError> {
        self.qps.get_mut(id.0 as usize).and_then(Option::take).ok_or(SdrError::NoSuchQp)
    }
}

impl Layer for Sdr {
    fn progress(&mut self, now: Instant, nic: &mut Nic) {
        self.qps.iter_mut().flatten().for_each(|qp| qp.progress(now, nic));
    }

    fn poll_timeout(&self) -> Option<Instant> {
        self.qps.iter().flatten().filter_map(SdrQp::poll_timeout).min()
    }

    fn as_any_mut(&mut self) -> &mut dyn Any {
        self
    }
}
