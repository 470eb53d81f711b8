//! Any number of SDR queue pairs, or of their branches, as the layer of a NIC.

use std::any::Any;

use softnic_nic::{Layer, Nic};
use softnic_wire::Instant;

use crate::branch::Branch;
use crate::error::SdrError;
use crate::qp::SdrQp;
use crate::reliable::ReliableQp;

/// Names an SDR queue pair to the layer that has it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct QpId(pub u32);

/// What the layer of one engine has of a queue pair.
enum Part {
    Whole(Box<SdrQp>),
    /// The same, with what makes its messages reliable.
    Reliable(Box<ReliableQp>),
    /// Its channels here; the queue pair is at another engine.
    Branch(Box<Branch>),
}

/// The SDR queue pairs of a NIC, or of one of its engines.
#[derive(Default)]
pub struct Sdr {
    parts: Vec<Option<Part>>,
}

impl Sdr {
    /// Takes over a queue pair of this NIC.
    pub fn add(&mut self, qp: SdrQp) -> QpId {
        self.put_anywhere(Part::Whole(Box::new(qp)))
    }

    /// Takes over a reliable one of this NIC.
    pub fn add_reliable(&mut self, qp: ReliableQp) -> QpId {
        self.put_anywhere(Part::Reliable(Box::new(qp)))
    }

    fn put_anywhere(&mut self, part: Part) -> QpId {
        let at = self.parts.iter().position(Option::is_none).unwrap_or(self.parts.len());
        let id = QpId(at as u32);
        self.put(id, part);
        id
    }

    /// Takes over a branch of a queue pair that another engine has under this name.
    pub fn add_branch(&mut self, id: QpId, branch: Branch) {
        self.put(id, Part::Branch(Box::new(branch)));
    }

    fn put(&mut self, QpId(at): QpId, part: Part) {
        let at = at as usize;
        if at >= self.parts.len() {
            self.parts.resize_with(at + 1, || None);
        }
        self.parts[at] = Some(part);
    }

    /// A queue pair.
    pub fn qp(&mut self, id: QpId) -> Result<&mut SdrQp, SdrError> {
        match self.parts.get_mut(id.0 as usize) {
            Some(Some(Part::Whole(qp))) => Ok(qp),
            Some(Some(Part::Reliable(qp))) => Ok(qp.qp()),
            _ => Err(SdrError::NoSuchQp),
        }
    }

    /// A reliable queue pair.
    pub fn reliable(&mut self, id: QpId) -> Result<&mut ReliableQp, SdrError> {
        match self.parts.get_mut(id.0 as usize) {
            Some(Some(Part::Reliable(qp))) => Ok(qp),
            _ => Err(SdrError::NoSuchQp),
        }
    }

    /// The channels of a queue pair that are here.
    pub fn branch(&mut self, id: QpId) -> Result<&mut Branch, SdrError> {
        match self.parts.get_mut(id.0 as usize) {
            Some(Some(Part::Whole(qp))) => Ok(qp.branch_mut()),
            Some(Some(Part::Reliable(qp))) => Ok(qp.qp().branch_mut()),
            Some(Some(Part::Branch(branch))) => Ok(branch),
            _ => Err(SdrError::NoSuchQp),
        }
    }

    /// Takes out what is here of a queue pair, and gives back all that it has of the NIC.
    pub fn destroy(&mut self, nic: &mut Nic, id: QpId) -> Result<(), SdrError> {
        match self.parts.get_mut(id.0 as usize).and_then(Option::take) {
            Some(Part::Whole(qp)) => qp.destroy(nic),
            Some(Part::Reliable(qp)) => qp.destroy(nic),
            Some(Part::Branch(branch)) => branch.destroy(nic),
            None => return Err(SdrError::NoSuchQp),
        }
        Ok(())
    }
}

impl Layer for Sdr {
    fn progress(&mut self, now: Instant, nic: &mut Nic) {
        self.parts.iter_mut().flatten().for_each(|part| match part {
            Part::Whole(qp) => qp.progress(now, nic),
            Part::Reliable(qp) => qp.progress(now, nic),
            Part::Branch(branch) => branch.progress(now, nic),
        });
    }

    fn poll_timeout(&self) -> Option<Instant> {
        let timeout = |part: &Part| match part {
            Part::Whole(qp) => qp.poll_timeout(),
            Part::Reliable(qp) => qp.poll_timeout(),
            Part::Branch(branch) => branch.poll_timeout(),
        };
        self.parts.iter().flatten().filter_map(timeout).min()
    }

    fn as_any_mut(&mut self) -> &mut dyn Any {
        self
    }
}
