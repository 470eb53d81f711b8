//! The timers of all queue pairs: a hierarchical wheel with one entry per queue pair. An entry moves only when it fires, or must fire
//! earlier.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use softnic_wire::Instant;

/// A tick is 4.096 µs, the unit of local ACK timeouts (IBA 9.7.6.1.3): 2^12 ns.
const TICK_BITS: u32 = 12;
/// Each level has 64 slots; a slot of one level is as long as all slots of the level below.
const SLOT_BITS: u32 = 6;
const SLOTS: usize = 1 << SLOT_BITS;
/// Enough levels for 64 bits of nanoseconds.
const LEVELS: usize = 9;
/// Marks the absence of an entry or a list.
const NONE: u32 = u32::MAX;
const NEVER: Instant = Instant::from_nanos(u64::MAX);

/// A queue pair's entry in the list of its slot.
#[derive(Debug, Clone, Copy)]
struct Entry {
    /// When the entry fires; [`NEVER`] if it is not in the wheel.
    at: Instant,
    next: u32,
    prev: u32,
    /// The list of the entry, from level and slot; [`NONE`] if the entry is due in the current tick or is not in the wheel.
    list: u32,
}

/// The timing wheel. A queue pair's deadline moves with every acknowledgement; moving its entry as often would cost more than the rest of
/// the packet. So an entry stays in place as long as it is not too late, and is set again if it fires too early. The cost of setting an
/// entry does not depend on the number of entries, and nothing is allocated once every queue pair has had a timer.
#[derive(Debug)]
pub(crate) struct Timers {
    entries: Vec<Entry>,
    /// The first entry of each list.
    heads: Box<[u32]>,
    /// The earliest time in each list, or that of an earlier entry that has left the list since.
    earliest: Box<[Instant]>,
    /// Bit masks of the slots with entries, for each level.
    occupied: [u64; LEVELS],
    /// The current tick of the wheel: lists hold only later ticks.
    current: u64,
    /// Entries that are due in this tick or were due before, in order. An entry that was set again meanwhile is stale.
    due: BinaryHeap<Reverse<(Instant, u32)>>,
}

impl Default for Timers {
    fn default() -> Timers {
        Timers {
            entries: Vec::new(),
            heads: vec![NONE; LEVELS * SLOTS].into(),
            earliest: vec![Instant::ZERO; LEVELS * SLOTS].into(),
            occupied: [0; LEVELS],
            current: 0,
            due: BinaryHeap::new(),
        }
    }
}

#[inline]
fn tick(at: Instant) -> u64 {
    at.as_nanos() >> TICK_BITS
}

impl Timers {
    /// Ensures that slot `i` fires no later than `at`.
    #[inline]
    pub(crate) fn arm(&mut self, i: u32, at: Option<Instant>) {
        let Some(at) = at else { return };
        match self.entries.get(i as usize) {
            Some(e) if e.at <= at => {}
            _ => self.set(i, at),
        }
    }

    fn set(&mut self, i: u32, at: Instant) {
        let index = i as usize;
        if index >= self.entries.len() {
            let empty = Entry { at: NEVER, next: NONE, prev: NONE, list: NONE };
            self.entries.resize(index + 1, empty);
            self.due.reserve(self.entries.len());
        }
        self.unlink(i);
        self.entries[index].at = at;
        self.insert(i, at);
    }

    /// Inserts an entry that is in no list, by its time.
    fn insert(&mut self, i: u32, at: Instant) {
        let t = tick(at);
        if t <= self.current {
            self.due.push(Reverse((at, i)));
            return;
        }
        // The highest bit that differs from the current tick: all entries below that level are earlier.
        let level = (63 - (t ^ self.current).leading_zeros()) / SLOT_BITS;
        let slot = (t >> (level * SLOT_BITS)) as usize % SLOTS;
        let list = level as usize * SLOTS + slot;
        let head = self.heads[list];
        if head == NONE {
            self.earliest[list] = at;
        } else {
            self.entries[head as usize].prev = i;
            self.earliest[list] = at.min(self.earliest[list]);
        }
        let entry = &mut self.entries[i as usize];
        (entry.next, entry.prev, entry.list) = (head, NONE, list as u32);
        self.heads[list] = i;
        self.occupied[level as usize] |= 1 << slot;
    }

    /// Removes an entry from its list, if it is in one.
    fn unlink(&mut self, i: u32) {
        let Entry { next, prev, list, .. } = self.entries[i as usize];
        if list == NONE {
            return;
        }
        match prev {
            NONE => self.heads[list as usize] = next,
            p => self.entries[p as usize].next = next,
        }
        if next != NONE {
            self.entries[next as usize].prev = prev;
        }
        if self.heads[list as usize] == NONE {
            self.occupied[list as usize / SLOTS] &= !(1 << (list as usize % SLOTS));
        }
        self.entries[i as usize].list = NONE;
    }

    /// The earliest list, and its first tick. A lower level always comes before a higher one.
    #[inline]
    fn first(&self) -> Option<(usize, u64)> {
        let level = self.occupied.iter().position(|&o| o != 0)?;
        let slot = self.occupied[level].trailing_zeros();
        let shift = level as u32 * SLOT_BITS;
        let above = (self.current >> shift) & !(SLOTS as u64 - 1);
        Some((level * SLOTS + slot as usize, (above | u64::from(slot)) << shift))
    }

    /// The time at which the next slot fires; may be too early, never too late.
    #[inline]
    pub(crate) fn next(&self) -> Option<Instant> {
        match self.due.peek() {
            Some(Reverse((at, _))) => Some(*at),
            None => self.first().map(|(list, _)| self.earliest[list]),
        }
    }

    /// Advances the wheel to `now`: the entries of a list on a higher level are spread over lower levels when its time begins.
    fn advance(&mut self, now: Instant) {
        let now = tick(now);
        while let Some((list, start)) = self.first().filter(|&(_, start)| start <= now) {
            self.current = start;
            let mut i = std::mem::replace(&mut self.heads[list], NONE);
            self.occupied[list / SLOTS] &= !(1 << (list % SLOTS));
            while i != NONE {
                let entry = &mut self.entries[i as usize];
                let (at, next) = (entry.at, entry.next);
                entry.list = NONE;
                self.insert(i, at);
                i = next;
            }
        }
        self.current = self.current.max(now);
    }

    /// Removes a slot that is due at `now`.
    pub(crate) fn pop(&mut self, now: Instant) -> Option<u32> {
        if self.next()? > now {
            return None;
        }
        self.advance(now);
        while let Some(&Reverse((at, i))) = self.due.peek() {
            if now < at {
                return None;
            }
            self.due.pop();
            // An entry that was superseded by an earlier one was handled with that one.
            let entry = &mut self.entries[i as usize];
            if entry.at == at && entry.list == NONE {
                entry.at = NEVER;
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

    /// A model of the wheel's guarantees.
    #[derive(Default)]
    struct Model(std::collections::BTreeMap<u32, Instant>);

    impl Model {
        fn arm(&mut self, i: u32, at: Instant) {
            let entry = self.0.entry(i).or_insert(at);
            *entry = at.min(*entry);
        }

        fn due(&mut self, now: Instant) -> Vec<u32> {
            let mut due: Vec<(Instant, u32)> =
                self.0.iter().filter(|(_, at)| **at <= now).map(|(&i, &at)| (at, i)).collect();
            due.sort();
            self.0.retain(|_, at| *at > now);
            due.into_iter().map(|(_, i)| i).collect()
        }
    }

    #[test]
    fn the_wheel_fires_what_a_sorted_list_would_in_the_same_order_at_every_scale() {
        let mut state = 0x1234_5678_9abc_def1u64;
        let mut random = move || {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            state
        };
        for round in 0..200u64 {
            let (mut wheel, mut model, mut now) = (Timers::default(), Model::default(), random() >> 20);
            // A wheel is created at time 0, and first used at any later time.
            for _ in 0..300 {
                for _ in 0..random() % 4 {
                    let (i, reach) = ((random() % 40) as u32, random() % 44);
                    let at = Instant::from_nanos(now + random() % (1 << reach));
                    wheel.arm(i, Some(at));
                    model.arm(i, at);
                }
                let earliest = model.0.values().min().copied();
                let next = wheel.next();
                assert_eq!(next.is_some(), earliest.is_some());
                assert!(next <= earliest, "round {round}: never too late");
                // Advance to the next deadline of the wheel, or to another time.
                now = match (next, random() % 3) {
                    (Some(next), 0..=1) => now.max(next.as_nanos()),
                    _ => now + random() % (1 << (random() % 40)),
                };
                let at = Instant::from_nanos(now);
                let fired: Vec<u32> = std::iter::from_fn(|| wheel.pop(at)).collect();
                assert_eq!(fired, model.due(at), "round {round} at {now}");
            }
        }
    }

    #[test]
    fn the_time_of_the_next_deadline_is_exact_however_far_it_is() {
        for shift in 0..60 {
            let mut wheel = Timers::default();
            let deadline = Instant::from_nanos((1 << shift) + 77_777);
            wheel.arm(1, Some(Instant::from_nanos(deadline.as_nanos() + 5)));
            wheel.arm(0, Some(deadline));
            assert_eq!((wheel.next(), wheel.pop(deadline), wheel.pop(deadline)), (Some(deadline), Some(0), None));
        }
    }
}
