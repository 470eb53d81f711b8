//! The best-effort attributes of work requests, by their position in a queue, and the earliest deadline of a queue.
//!
//! Work requests complete in order, and each must complete by its deadline. So a deadline also applies to all earlier work requests of its
//! queue. The earliest deadline of all comes first, whatever its position is.

use softnic_wire::Instant;

use crate::wr::BestEffort;

/// A time that never arrives.
pub(crate) const NEVER: Instant = Instant::from_nanos(u64::MAX);

/// Stored beside a queue's slots, behind one thin pointer, so that transports without best-effort attributes pay nothing.
#[derive(Debug)]
pub(crate) struct Kept(Option<Box<Places>>);

#[derive(Debug)]
struct Places {
    places: Box<[BestEffort]>,
    /// The positions whose deadline is earlier than all later ones, in order: a ring of the queue's length.
    order: Box<[u32]>,
    first: u32,
    end: u32,
}

impl Kept {
    /// For a queue with `places` slots, a power of two.
    pub(crate) fn new(keeps: bool, places: usize) -> Kept {
        let empty = || Places {
            places: vec![BestEffort::default(); places].into(),
            order: vec![0; places].into(),
            first: 0,
            end: 0,
        };
        Kept(keeps.then(|| Box::new(empty())))
    }

    /// The queue is empty.
    pub(crate) fn clear(&mut self) {
        if let Some(kept) = &mut self.0 {
            (kept.first, kept.end) = (0, 0);
        }
    }

    /// Sets the attributes of the work request at a position. Its deadline does not count yet.
    #[inline]
    pub(crate) fn set(&mut self, position: u32, work: Option<&BestEffort>) {
        if let Some(kept) = &mut self.0 {
            let at = kept.place(position);
            kept.places[at] = work.copied().unwrap_or_default();
        }
    }

    /// From now on the deadline of the work request at this position counts, for it and for all earlier work requests.
    #[inline]
    pub(crate) fn enter(&mut self, position: u32) {
        if let Some(kept) = &mut self.0 {
            kept.enter(position);
        }
    }

    /// The attributes of the work request at a position.
    #[inline]
    pub(crate) fn get(&self, position: u32) -> BestEffort {
        self.0.as_ref().map_or_else(BestEffort::default, |kept| kept.places[kept.place(position)])
    }

    /// The stride of the work request at a position.
    #[inline]
    pub(crate) fn stride(&self, position: u32) -> u16 {
        self.0.as_ref().map_or(1, |kept| kept.places[kept.place(position)].stride)
    }

    /// The earliest deadline in the queue, and the position of its work request.
    #[inline]
    pub(crate) fn first_deadline(&self) -> Option<(u32, Instant)> {
        let kept = self.0.as_ref().filter(|kept| kept.first != kept.end)?;
        let position = kept.order[kept.place(kept.first)];
        kept.places[kept.place(position)].deadline.map(|at| (position, at))
    }

    /// The deadline that binds the work request at a position: the earliest of its own and of those behind it.
    #[inline]
    pub(crate) fn deadline_of(&self, position: u32) -> Option<Instant> {
        let kept = self.0.as_ref()?;
        // Positions and deadlines are in ascending order.
        let (mut low, mut high) = (0, kept.end.wrapping_sub(kept.first));
        while low < high {
            let middle = (low + high) / 2;
            let at = kept.order[kept.place(kept.first.wrapping_add(middle))];
            match at.wrapping_sub(position).cast_signed() < 0 {
                true => low = middle + 1,
                false => high = middle,
            }
        }
        let found = kept.first.wrapping_add(low);
        let binding = (found != kept.end).then(|| kept.order[kept.place(found)])?;
        kept.places[kept.place(binding)].deadline
    }

    /// The earliest deadline; [`NEVER`] if there is none.
    #[inline]
    pub(crate) fn earliest(&self) -> Instant {
        match &self.0 {
            Some(kept) if kept.first != kept.end => self.first_deadline().map_or(NEVER, |(_, at)| at),
            _ => NEVER,
        }
    }

    /// The oldest work request, at this position, has left the queue.
    #[inline]
    pub(crate) fn drop_head(&mut self, position: u32) {
        if let Some(kept) = &mut self.0
            && kept.first != kept.end
            && kept.order[kept.place(kept.first)] == position
        {
            kept.first = kept.first.wrapping_add(1);
        }
    }
}

impl Places {
    #[inline]
    fn place(&self, position: u32) -> usize {
        position as usize & (self.places.len() - 1)
    }

    fn enter(&mut self, position: u32) {
        let Some(deadline) = self.places[self.place(position)].deadline else { return };
        // Earlier positions with later deadlines are irrelevant: their work requests end with this one.
        while self.first != self.end {
            let before = self.order[self.place(self.end.wrapping_sub(1))];
            if self.places[self.place(before)].deadline.is_some_and(|d| d < deadline) {
                break;
            }
            self.end = self.end.wrapping_sub(1);
        }
        let at = self.place(self.end);
        self.order[at] = position;
        self.end = self.end.wrapping_add(1);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn within(nanos: u64) -> BestEffort {
        BestEffort { deadline: Some(Instant::from_nanos(nanos)), ..BestEffort::default() }
    }

    #[test]
    fn the_earliest_deadline_comes_first_wherever_it_stands() {
        let mut kept = Kept::new(true, 8);
        let from = u32::MAX - 2; // positions wrap around
        let work = [Some(50), None, Some(30), Some(30), Some(70), None, Some(60)];
        for (i, nanos) in work.into_iter().enumerate() {
            kept.set(from.wrapping_add(i as u32), nanos.map(within).as_ref());
            kept.enter(from.wrapping_add(i as u32));
        }
        for head in 0..work.len() {
            let rest = work[head..].iter().flatten().min().copied();
            assert_eq!(kept.first_deadline().map(|(_, at)| at.as_nanos()), rest, "from {head} on");
            for i in head..work.len() {
                let binding = work[i..].iter().flatten().min().copied();
                let found = kept.deadline_of(from.wrapping_add(i as u32));
                assert_eq!(found.map(|at| at.as_nanos()), binding, "of {i}, from {head} on");
            }
            kept.drop_head(from.wrapping_add(head as u32));
        }
        assert_eq!(kept.first_deadline(), None);
    }

    #[test]
    fn a_queue_that_keeps_none_has_none() {
        let mut kept = Kept::new(false, 4);
        kept.set(0, Some(&within(5)));
        kept.enter(0);
        assert_eq!((kept.get(0), kept.first_deadline(), kept.deadline_of(0)), (BestEffort::default(), None, None));
    }
}
