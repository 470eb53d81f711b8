//! What became of the captured requests, as far as it is known.

use std::collections::BTreeSet;

/// What became of a captured request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Fate {
    /// It has not been needed so far.
    Pending,
    /// Delivered, and carried out or answered again.
    Delivered,
    /// Delivered too early, and dropped for that; if need be, it was another that came too early.
    Early,
    /// It did not come before others; it may have come later.
    Lost,
}

impl Fate {
    /// Of requests that can still come, what is known least of goes first.
    pub(super) const OPEN: [Fate; 3] = [Fate::Pending, Fate::Lost, Fate::Early];

    fn rank(self) -> Option<usize> {
        Fate::OPEN.iter().position(|&f| f == self)
    }
}

/// The fates of all requests of a flow, by index; those that are still open can be walked without looking at the others.
#[derive(Debug)]
pub(super) struct Fates {
    all: Vec<Fate>,
    open: [BTreeSet<usize>; 3],
}

impl Fates {
    pub(super) fn new(requests: usize) -> Fates {
        let open = [(0..requests).collect(), BTreeSet::new(), BTreeSet::new()];
        Fates { all: vec![Fate::Pending; requests], open }
    }

    pub(super) fn of(&self, request: usize) -> Fate {
        self.all[request]
    }

    pub(super) fn set(&mut self, request: usize, fate: Fate) {
        if let Some(rank) = self.all[request].rank() {
            self.open[rank].remove(&request);
        }
        if let Some(rank) = fate.rank() {
            self.open[rank].insert(request);
        }
        self.all[request] = fate;
    }

    /// Requests of a fate that is open, in order, before `limit`.
    pub(super) fn with(&self, fate: Fate, limit: usize) -> impl Iterator<Item = usize> + '_ {
        fate.rank().into_iter().flat_map(move |rank| self.open[rank].range(..limit).copied())
    }

    pub(super) fn lost(&self) -> u64 {
        self.with(Fate::Lost, usize::MAX).count() as u64
    }
}
