//! One direction of a link with the frames under way, for drivers in real time: offer what was sent, poll what is due.

use softnic_wire::Instant;

use crate::injector::Fate;
use crate::line::{Line, LineStats};
use crate::script::Direction;
use crate::slots::{SlotId, Slots};
use crate::spec::Spec;
use crate::time::Time;

/// What became of a frame that was offered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Offered {
    /// It arrives at once, as it is now: the caller passes it on. Poll afterwards, others may follow it.
    Pass,
    /// It was copied, or lost: the caller forgets it.
    Taken,
}

/// A link that holds frames back until they are due. Nothing is allocated per frame once its slots are made.
#[derive(Debug, Clone)]
pub struct EmulatedLink {
    /// A frame is a slot and its length; one that is still in the caller's hands has no slot.
    line: Line<Option<(SlotId, usize)>>,
    slots: Slots,
    /// The slot of the frame that `poll` handed out last.
    lent: Option<SlotId>,
    overflowed: u64,
}

impl EmulatedLink {
    /// What `spec` says of one direction, drawn from `seed`; it keeps at most `max_frames` of at most `max_len` bytes. What
    /// exceeds that is lost and counted.
    pub fn new(spec: &Spec, direction: Direction, seed: u64, max_frames: usize, max_len: usize) -> EmulatedLink {
        let slots = Slots::bounded(max_len, max_frames);
        EmulatedLink { line: Line::new(spec, direction, seed), slots, lent: None, overflowed: 0 }
    }

    /// A frame comes, from Ethernet on.
    pub fn offer(&mut self, now: Instant, frame: &mut [u8]) -> Offered {
        self.end_loan();
        let (fate, time) = (self.line.judge(now, frame), Time::from_instant(now));
        let waits = matches!(fate, Fate::Hold(_) | Fate::Delay(_));
        let at_once = !waits && self.line.is_immediate(time) && self.line.next_due().is_none();
        let mut handle = None;
        if !at_once && fate != Fate::Drop {
            handle = self.keep(frame);
            if handle.is_none() {
                return Offered::Taken;
            }
        }
        let copy = if fate == Fate::Duplicate { self.keep(frame).map(Some) } else { None };
        let slots = &mut self.slots;
        let give_back = |lost: Option<(SlotId, usize)>| lost.map_or((), |(slot, _)| slots.give_back(slot));
        self.line.carry(time, fate, frame.len() as u64, handle, copy, give_back);
        if !at_once || fate == Fate::Drop {
            return Offered::Taken;
        }
        // It is the first in the line, and in our hands still.
        if let Some((_, change)) = self.line.poll(time) {
            self.line.apply(change, frame);
        }
        Offered::Pass
    }

    /// The next frame that has arrived by `now`; it is the caller's until the next call.
    pub fn poll(&mut self, now: Instant) -> Option<&mut [u8]> {
        self.end_loan();
        let (handle, change) = self.line.poll(Time::from_instant(now))?;
        let (slot, len) = handle?;
        self.lent = Some(slot);
        let frame = &mut self.slots.get_mut(slot)[..len];
        self.line.apply(change, frame);
        Some(frame)
    }

    /// When to poll, if nothing more is offered until then.
    pub fn next_due(&self) -> Option<Instant> {
        self.line.next_due().map(Time::instant_after)
    }

    /// What it did.
    pub fn stats(&self) -> LineStats {
        let stats = self.line.stats();
        LineStats { lost: stats.lost + self.overflowed, ..stats }
    }

    /// Frames that were lost for want of a slot, or too long for one.
    pub fn overflowed(&self) -> u64 {
        self.overflowed
    }

    /// Frames that it has: those that are on their way, and those that are held until later ones have passed.
    pub fn under_way(&self) -> usize {
        self.line.len()
    }

    /// Stops the faults, or lets them begin again; rate, queue, marks, delay and jitter stay.
    pub fn set_enabled(&mut self, enabled: bool) {
        self.line.set_enabled(enabled);
    }

    /// See [`Line::set_spec`].
    pub fn set_spec(&mut self, now: Instant, spec: &Spec, direction: Direction, seed: u64) {
        self.line.set_spec(now, spec, direction, seed);
    }

    /// See [`crate::Injector::applied`].
    pub fn applied(&self) -> impl Iterator<Item = (usize, u64)> + '_ {
        self.line.applied()
    }

    fn keep(&mut self, frame: &[u8]) -> Option<(SlotId, usize)> {
        let slot = if frame.len() <= self.slots.slot_len() { self.slots.take() } else { None };
        let Some(slot) = slot else {
            self.overflowed += 1;
            return None;
        };
        self.slots.get_mut(slot)[..frame.len()].copy_from_slice(frame);
        Some((slot, frame.len()))
    }

    fn end_loan(&mut self) {
        if let Some(slot) = self.lent.take() {
            self.slots.give_back(slot);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn us(n: u64) -> Instant {
        Instant::from_nanos(n * 1000)
    }

    fn link(spec: &str) -> EmulatedLink {
        EmulatedLink::new(&spec.parse().unwrap(), Direction::Ab, 1, 4, 100)
    }

    fn due(l: &mut EmulatedLink, now: Instant) -> Vec<u8> {
        std::iter::from_fn(|| l.poll(now).map(|f| f[0])).collect()
    }

    #[test]
    fn what_does_not_wait_is_not_copied_and_what_waits_is_due_on_time() {
        let mut l = link("");
        assert_eq!((l.offer(us(1), &mut [7]), l.next_due()), (Offered::Pass, None));
        let mut l = link("delay=10us");
        assert_eq!((l.offer(us(1), &mut [7]), l.offer(us(2), &mut [8])), (Offered::Taken, Offered::Taken));
        assert_eq!((l.next_due(), l.poll(Instant::from_nanos(10_999)).is_none()), (Some(us(11)), true));
        assert_eq!((due(&mut l, us(11)), l.next_due()), (vec![7], Some(us(12))));
        assert_eq!((due(&mut l, us(50)), l.next_due()), (vec![8], None));
        assert_eq!(l.stats(), LineStats::default());
    }

    #[test]
    fn copies_follow_at_once_and_held_frames_when_their_time_has_come() {
        let mut l = link("dup=1");
        assert_eq!(l.offer(us(1), &mut [7]), Offered::Pass);
        assert_eq!(l.offer(us(1), &mut [8]), Offered::Taken, "not before the copy of the first");
        assert_eq!(due(&mut l, us(1)), [7, 8, 8]);
        let mut l = link("reorder=1:1");
        assert_eq!((l.offer(us(1), &mut [7]), due(&mut l, us(9))), (Offered::Taken, vec![]));
        l.set_enabled(false);
        assert_eq!((l.offer(us(2), &mut [8]), due(&mut l, us(2))), (Offered::Pass, vec![7]));
    }

    #[test]
    fn a_lost_frame_is_taken_and_a_damaged_one_passes_with_one_bit_flipped() {
        let mut l = link("loss=1");
        assert_eq!((l.offer(us(1), &mut [7]), l.next_due(), l.stats().lost), (Offered::Taken, None, 1));
        let mut frame = [0; 64];
        assert_eq!(link("corrupt=1").offer(us(1), &mut frame), Offered::Pass);
        assert_eq!(frame.iter().map(|b| b.count_ones()).sum::<u32>(), 1);
    }

    #[test]
    fn every_kind_of_fault_is_counted() {
        let after = |spec: &str| {
            let mut l = link(spec);
            (0..3).for_each(|n| _ = l.offer(us(n), &mut [7; 60]));
            (l.stats(), l.under_way())
        };
        let none = LineStats::default();
        assert_eq!(after("loss=1"), (LineStats { lost: 3, ..none }, 0));
        assert_eq!(after("corrupt=1"), (LineStats { corrupted: 3, ..none }, 0));
        assert_eq!(after("reorder=1:9"), (LineStats { held: 3, ..none }, 3));
        // Four slots: the first one's copy, the second and its copy, the third.
        assert_eq!(after("dup=1"), (LineStats { duplicated: 2, lost: 1, ..none }, 4));
        assert_eq!(after("delay=1ms"), (none, 3));
        assert_eq!(after("stall=1us+1s"), (LineStats { stalled: 2, ..none }, 2));
    }

    #[test]
    fn slots_are_bounded_and_come_back() {
        let mut l = link("delay=1us");
        for round in 0..100 {
            let now = us(round * 10);
            for n in 0..5 {
                assert_eq!(l.offer(now, &mut [n]), Offered::Taken);
            }
            assert_eq!(due(&mut l, us(round * 10 + 1)), [0, 1, 2, 3], "there are four slots");
        }
        assert_eq!((l.overflowed(), l.stats().lost), (100, 100));
        l.offer(us(2000), &mut [0; 101]);
        assert_eq!((l.overflowed(), l.next_due()), (101, None), "longer than a slot");
    }

    #[test]
    fn a_rate_lower_than_the_nanosecond_clock_can_say_is_never_polled_too_early() {
        // 84 bytes at 10 Gbit/s: 67.2 ns.
        let mut l = link("rate=10Gbit");
        l.offer(us(0), &mut [1]);
        assert_eq!(l.next_due(), Some(Instant::from_nanos(68)));
        assert!(l.poll(Instant::from_nanos(67)).is_none());
        assert_eq!(due(&mut l, Instant::from_nanos(68)), [1]);
    }

    #[test]
    fn a_stalled_link_holds_what_comes_and_lets_it_go_in_order_at_its_end() {
        let mut l = link("stall=10us+5us");
        assert_eq!(l.offer(us(9), &mut [1]), Offered::Pass);
        for (at, n) in [(10, 2), (12, 3), (14, 4)] {
            assert_eq!(l.offer(us(at), &mut [n]), Offered::Taken);
        }
        assert_eq!((l.next_due(), due(&mut l, Instant::from_nanos(14_999))), (Some(us(15)), vec![]));
        assert_eq!(l.offer(us(15), &mut [5]), Offered::Taken, "not before those that were held");
        assert_eq!((due(&mut l, us(15)), l.offer(us(15), &mut [6])), (vec![2, 3, 4, 5], Offered::Pass));
        assert_eq!((l.stats(), l.under_way()), (LineStats { stalled: 3, ..LineStats::default() }, 0));
        // Without faults what was held still goes first.
        let mut l = link("stall=10us+5us");
        l.offer(us(11), &mut [1]);
        l.set_enabled(false);
        assert_eq!(
            (l.offer(us(12), &mut [2]), due(&mut l, us(14)), due(&mut l, us(15))),
            (Offered::Taken, vec![], vec![1, 2])
        );
        // Four slots: more than that is lost, as with any delay.
        let mut l = link("stall=0s+5us");
        (0..6).for_each(|n| _ = l.offer(us(n / 2), &mut [n as u8]));
        assert_eq!((due(&mut l, us(5)), l.stats().lost, l.overflowed()), (vec![0, 1, 2, 3], 2, 2));
    }

    #[test]
    fn a_new_spec_holds_from_now_on_and_frames_under_way_are_neither_lost_nor_overtaken() {
        let mut l = link("delay=10us");
        l.offer(us(1), &mut [1]);
        l.offer(us(2), &mut [2]);
        l.set_spec(us(3), &"".parse().unwrap(), Direction::Ab, 1);
        assert_eq!(l.offer(us(4), &mut [3]), Offered::Taken, "not before the others");
        assert_eq!((due(&mut l, us(10)), due(&mut l, us(11)), due(&mut l, us(12))), (vec![], vec![1], vec![2, 3]));
        assert_eq!(l.offer(us(13), &mut [4]), Offered::Pass);
        l.set_spec(us(20), &"loss=1".parse().unwrap(), Direction::Ab, 1);
        assert_eq!((l.offer(us(21), &mut [5]), l.stats().lost), (Offered::Taken, 1));
        l.set_spec(us(30), &"ba.loss=1".parse().unwrap(), Direction::Ab, 1);
        assert_eq!((l.offer(us(31), &mut [6]), l.stats().lost), (Offered::Pass, 1), "counters go on");
        l.set_spec(us(100), &"down=5us+2us".parse().unwrap(), Direction::Ab, 1);
        let passes = [104, 105, 106, 107].map(|at| l.offer(us(at), &mut [7]) == Offered::Pass);
        assert_eq!(passes, [true, false, false, true], "times count from the change");
        l.set_spec(us(200), &"stall=5us+20us,loss=1".parse().unwrap(), Direction::Ab, 1);
        l.offer(us(206), &mut [8]);
        l.set_spec(us(210), &"".parse().unwrap(), Direction::Ab, 1);
        assert_eq!(l.offer(us(211), &mut [9]), Offered::Pass, "a stall ends with its SPEC");
    }
}
