//! The deadlines of the work requests in a queue: beside its slots, so that transports that keep none pay nothing for them.

use softnic_wire::Instant;

/// The deadlines of a queue, by place. Behind one thin pointer: the state of a queue pair stays small.
#[derive(Debug)]
pub(crate) struct Deadlines(Option<Box<Kept>>);

#[derive(Debug)]
struct Kept {
    places: Box<[Option<Instant>]>,
}

impl Deadlines {
    /// The deadlines of a queue with so many places.
    pub(crate) fn new(keeps: bool, places: usize) -> Deadlines {
        Deadlines(keeps.then(|| Box::new(Kept { places: vec![None; places].into() })))
    }

    /// The work request at a place is another one now.
    #[inline]
    pub(crate) fn set(&mut self, at: usize, deadline: Option<Instant>) {
        if let Some(kept) = &mut self.0 {
            kept.places[at] = deadline;
        }
    }

    /// The deadline of the work request at a place.
    pub(crate) fn get(&self, at: usize) -> Option<Instant> {
        self.0.as_ref().and_then(|kept| kept.places[at])
    }
}
