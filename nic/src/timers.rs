//! The timers of all queue pairs: one entry each, moved only when it fires.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use softnic_wire::Instant;

/// A queue pair's deadline moves with every acknowledgement; moving a heap entry as often would cost more than the rest of
/// the packet. So an entry stays where it is as long as it is not too late, and is set anew when it fires too early.
#[derive(Debug, Default)]
pub(crate) struct Timers {
    heap: BinaryHeap<Reverse<(Instant, u32)>>,
    /// The earliest entry of each slot.
    armed: Vec<Option<Instant>>,
}

impl Timers {
    /// Makes sure that slot `i` is called no later than `at`.
    #[inline]
    pub(crate) fn arm(&mut self, i: u32, at: Option<Instant>) {
        let Some(at) = at else { return };
        let index = i as usize;
        if index >= self.armed.len() {
            self.armed.resize(index + 1, None);
        }
        if self.armed[index].is_none_or(|t| at < t) {
            self.armed[index] = Some(at);
            self.heap.push(Reverse((at, i)));
        }
    }

    /// When the next slot is due.
    #[inline]
    pub(crate) fn next(&self) -> Option<Instant> {
        self.heap.peek().map(|Reverse((at, _))| *at)
    }

    /// Takes out a slot that is due at `now`.
    pub(crate) fn pop(&mut self, now: Instant) -> Option<u32> {
        while let Some(&Reverse((at, i))) = self.heap.peek() {
            if now < at {
                return None;
            }
            self.heap.pop();
            // An entry that an earlier one overtook was handled with that one.
            if self.armed[i as usize] == Some(at) {
                self.armed[i as usize] = None;
                return Some(i);
            }
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_earlier_deadline_overtakes_and_a_later_one_waits() {
        let at = Instant::from_nanos;
        let mut t = Timers::default();
        t.arm(3, Some(at(100)));
        t.arm(3, Some(at(200)));
        t.arm(1, Some(at(50)));
        t.arm(3, Some(at(40)));
        assert_eq!(t.next(), Some(at(40)));
        assert_eq!((t.pop(at(45)), t.pop(at(45))), (Some(3), None));
        assert_eq!((t.pop(at(1000)), t.pop(at(1000))), (Some(1), None), "the overtaken entry is dropped");
        assert_eq!(t.next(), None);
    }
}
