//! The objects that a program created, in order of creation: faults name them by their place.

use std::collections::HashMap;
use std::sync::{Arc, Weak};

use softnic_runtime::api::QpState;
use softnic_runtime::api::call_faults::Side;
use softnic_runtime::api::{QpAttr, QpKind};

use crate::objects::completion_queue::Cq;
use crate::objects::handle::Pointer;
use crate::objects::queue_pair::Qp;
use crate::objects::shared_receive::Srq;
use crate::rdmacm::pending::Shared;

/// An object, or the place of a destroyed one.
struct Place {
    address: usize,
    is_there: bool,
}

/// Objects of one kind.
#[derive(Default)]
struct Places(Vec<Place>);

impl Places {
    fn add(&mut self, address: usize) {
        // A function may report an object that is already known.
        if address != 0 && !self.0.iter().any(|place| place.is_there && place.address == address) {
            self.0.push(Place { address, is_there: true });
        }
    }

    /// Notes that an object is destroyed, or stays after a failed call.
    fn note(&mut self, address: usize, is_there: bool) {
        if let Some(place) = self.0.iter_mut().rev().find(|place| place.address == address) {
            place.is_there = is_there;
        }
    }

    /// The object with this number, from 1, if it still exists.
    fn get(&self, number: u32) -> Option<usize> {
        self.0.get(number.checked_sub(1)? as usize).filter(|place| place.is_there).map(|place| place.address)
    }

    fn there(&self) -> impl Iterator<Item = usize> + '_ {
        self.0.iter().filter(|place| place.is_there).map(|place| place.address)
    }
}

/// The kinds of objects that are counted.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Kind {
    Qp,
    Cq,
    Srq,
}

/// The objects of the process. Code that uses one holds the lock around this value: an object is destroyed only after that is noted here.
#[derive(Default)]
pub(crate) struct Made {
    qps: Places,
    /// The places of queue pairs by their numbers, from 1; of several with one number, the last one created.
    numbers: HashMap<u32, u32>,
    cqs: Places,
    srqs: Places,
    ids: Vec<Weak<Shared>>,
}

impl Made {
    pub(crate) fn add_qp(&mut self, qp: &Qp) {
        let known = self.qps.0.len();
        self.qps.add((&raw const *qp).expose_provenance());
        if known < self.qps.0.len() {
            self.numbers.insert(qp.qpn(), self.qps.0.len() as u32);
        }
    }

    /// A queue that a program created; NULL if that failed.
    pub(crate) fn add(&mut self, kind: Kind, address: usize) {
        match kind {
            // Queue pairs are counted by their numbers.
            Kind::Qp => {}
            Kind::Cq => self.cqs.add(address),
            Kind::Srq => self.srqs.add(address),
        }
    }

    /// Notes that an object is destroyed, or stays after a failed call.
    pub(crate) fn note(&mut self, kind: Kind, address: usize, is_there: bool) {
        match kind {
            Kind::Qp => self.qps.note(address, is_there),
            Kind::Cq => self.cqs.note(address, is_there),
            Kind::Srq => self.srqs.note(address, is_there),
        }
    }

    pub(crate) fn add_id(&mut self, id: &Arc<Shared>) {
        self.ids.retain(|known| known.strong_count() > 0);
        if !self.ids.iter().any(|known| std::ptr::eq(known.as_ptr(), Arc::as_ptr(id))) {
            self.ids.push(Arc::downgrade(id));
        }
    }

    pub(crate) fn ids(&self) -> Vec<Arc<Shared>> {
        self.ids.iter().filter_map(Weak::upgrade).collect()
    }

    /// The place of a queue pair in the order of creation, from 1; 0 for a queue pair of librdmacm itself.
    pub(crate) fn place_of(&self, qpn: u32) -> u32 {
        self.numbers.get(&qpn).copied().unwrap_or(0)
    }

    pub(crate) fn qp(&self, number: u32) -> Option<&'static Qp> {
        self.qps.get(number).and_then(qp_at)
    }

    pub(crate) fn cq(&self, number: u32) -> Option<&'static Cq> {
        Pointer::<Cq>::new(std::ptr::with_exposed_provenance_mut::<Cq>(self.cqs.get(number)?)).get().ok()
    }

    pub(crate) fn srq(&self, number: u32) -> Option<&'static Srq> {
        Pointer::<Srq>::new(std::ptr::with_exposed_provenance_mut::<Srq>(self.srqs.get(number)?)).get().ok()
    }

    pub(crate) fn qps(&self) -> impl Iterator<Item = &'static Qp> + '_ {
        self.qps.there().filter_map(qp_at)
    }

    /// Work of a queue pair failed: it enters the resulting state.
    pub(crate) fn fail(&self, qpn: u32, side: Side) {
        let Some(qp) = self.qp(self.place_of(qpn)) else { return };
        // A queue pair that is already in error stays there.
        let _ = match side {
            Side::Send if qp.ours.kind != QpKind::Rc => qp.ours.qp.fail_sends(),
            _ => qp.ours.qp.modify(&QpAttr { state: Some(QpState::Error), ..QpAttr::default() }),
        };
    }
}

fn qp_at(address: usize) -> Option<&'static Qp> {
    Pointer::<Qp>::new(std::ptr::with_exposed_provenance_mut::<Qp>(address)).get().ok()
}
