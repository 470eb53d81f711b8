//! Receive queues, a queue pair's own and shared ones: receives in a ring.

use crate::best_effort::Kept;
use crate::invariants::invariant;
use crate::planted::{Bug, planted};
use crate::posting::RecvRules;
use crate::{BestEffort, PostError, RecvWr, Sge};

/// A posted receive.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Receive {
    pub(crate) wr_id: u64,
    /// Total length of its elements in bytes.
    pub(crate) capacity: u64,
    sges: u8,
    /// Its position in the queue.
    at: u32,
}

/// Receives in posting order.
#[derive(Debug)]
pub struct RecvQueue {
    pub(crate) slots: Box<[Receive]>,
    pub(crate) sges: Box<[Sge]>,
    pub(crate) best_effort: Kept,
    pub(crate) max_wr: u32,
    pub(crate) rules: RecvRules,
    pub(crate) head: u32,
    pub(crate) tail: u32,
}

impl RecvQueue {
    /// Creates a queue for `max_wr` receives that follow the rules.
    pub fn new(max_wr: u32, rules: RecvRules) -> RecvQueue {
        let size = max_wr.max(1).next_power_of_two() as usize;
        RecvQueue {
            slots: vec![Receive { wr_id: 0, capacity: 0, sges: 0, at: 0 }; size].into(),
            sges: vec![Sge::default(); size * usize::from(rules.max_sge)].into(),
            best_effort: Kept::new(rules.deadlines, size),
            max_wr,
            rules,
            head: 0,
            tail: 0,
        }
    }

    #[inline]
    pub(crate) fn place(&self, position: u32) -> usize {
        position as usize & (self.slots.len() - 1)
    }

    pub(crate) fn clear(&mut self) {
        (self.head, self.tail) = (0, 0);
        self.best_effort.clear();
    }

    /// The rules for receives.
    #[inline]
    pub fn rules(&self) -> &RecvRules {
        &self.rules
    }

    /// Posts a receive that follows the rules.
    pub fn post(&mut self, wr: &RecvWr<'_>) -> Result<(), PostError> {
        if self.len() >= self.max_wr {
            return Err(PostError::QueueFull);
        }
        invariant!(self.rules.check(wr).is_ok(), "nobody checked {wr:?}");
        let at = self.place(self.tail);
        self.sges[at * usize::from(self.rules.max_sge)..][..wr.sges.len()].copy_from_slice(wr.sges);
        self.best_effort.set(self.tail, wr.best_effort);
        self.best_effort.enter(self.tail);
        let capacity = wr.sges.iter().map(|s| u64::from(s.len)).sum();
        self.slots[at] = Receive { wr_id: wr.wr_id, capacity, sges: wr.sges.len() as u8, at: at as u32 };
        self.tail = self.tail.wrapping_add(1);
        Ok(())
    }

    /// Number of receives posted and not used up.
    #[inline]
    pub fn len(&self) -> u32 {
        self.tail.wrapping_sub(self.head)
    }

    /// Whether there is none.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Moves the oldest receive to the end of another queue; returns `false` if there is none, or no room for it.
    pub fn move_oldest(&mut self, into: &mut RecvQueue) -> bool {
        let Some(receive) = self.head() else { return false };
        let best_effort = self.best_effort(self.head);
        let best_effort = self.rules.deadlines.then_some(&best_effort);
        let wr = RecvWr { wr_id: receive.wr_id, sges: self.sges_of(&receive), best_effort };
        let moved = into.post(&wr).is_ok();
        if moved {
            self.pop();
        }
        if planted(Bug::SharedReceiveLost) && self.len() % 16 == 5 {
            self.pop();
        }
        moved
    }

    /// Moves the oldest receive back to the start of the queue that it was taken from; returns `false` if there is none, or no room for it.
    pub fn return_oldest(&mut self, into: &mut RecvQueue) -> bool {
        let Some(receive) = self.head().filter(|_| into.len() < into.max_wr) else { return false };
        into.head = into.head.wrapping_sub(1);
        let at = into.place(into.head);
        let sges = self.sges_of(&receive);
        into.sges[at * usize::from(into.rules.max_sge)..][..sges.len()].copy_from_slice(sges);
        into.slots[at] = Receive { at: at as u32, ..receive };
        self.pop();
        true
    }

    /// The receive for the next message.
    #[inline]
    pub(crate) fn head(&self) -> Option<Receive> {
        (!self.is_empty()).then(|| self.slots[self.place(self.head)])
    }

    /// The receive for the message after `ahead` others.
    #[inline]
    pub(crate) fn nth(&self, ahead: u32) -> Option<Receive> {
        (ahead < self.len()).then(|| self.slots[self.place(self.head.wrapping_add(ahead))])
    }

    /// The elements of a receive.
    #[inline]
    pub(crate) fn sges_of(&self, receive: &Receive) -> &[Sge] {
        &self.sges[receive.at as usize * usize::from(self.rules.max_sge)..][..usize::from(receive.sges)]
    }

    /// The receive for the message after `ahead` others, as it was posted, except for its best-effort attributes.
    pub(crate) fn nth_wr(&self, ahead: u32) -> Option<RecvWr<'_>> {
        let receive = self.nth(ahead)?;
        Some(RecvWr { wr_id: receive.wr_id, sges: self.sges_of(&receive), best_effort: None })
    }

    /// The best-effort attributes of the receive at a position.
    pub(crate) fn best_effort(&self, position: u32) -> BestEffort {
        self.best_effort.get(position)
    }

    pub(crate) fn pop(&mut self) -> Option<Receive> {
        let receive = self.head()?;
        self.best_effort.drop_head(self.head);
        self.head = self.head.wrapping_add(1);
        Some(receive)
    }
}

#[cfg(test)]
mod tests {
    use softnic_wire::Instant;

    use super::*;

    #[test]
    fn a_shared_receive_is_moved_with_its_deadline() {
        let rules = RecvRules::new(1).with_deadlines();
        let (mut shared, mut own) = (RecvQueue::new(2, rules), RecvQueue::new(1, rules));
        for deadline in [Some(Instant::from_nanos(7)), None] {
            let work = BestEffort { deadline, ..BestEffort::default() };
            shared.post(&RecvWr { wr_id: 1, sges: &[], best_effort: Some(&work) }).unwrap();
            assert!(shared.move_oldest(&mut own));
            assert_eq!(own.best_effort.first_deadline().map(|(_, at)| at), deadline);
            own.pop().unwrap();
        }
    }
}
