//! One direction of a link, without the frames: what becomes of each, in which order they arrive and when.
//!
//! A frame passes the faults first, then the bottleneck and its queue, then delay and jitter. Frames are known by a handle of
//! the driver's, who keeps the bytes.

use std::collections::VecDeque;

use softnic_wire::Instant;
use softnic_wire::transit::mark_ce;

use crate::bottleneck::Bottleneck;
use crate::injector::{Fate, Injector};
use crate::random::Random;
use crate::script::Direction;
use crate::spec::Spec;
use crate::time::Time;

/// What is done to a frame when it arrives.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Change {
    /// It is marked: congestion experienced.
    pub mark: bool,
    /// This bit of it is flipped, taken modulo its bits.
    pub flip: Option<u64>,
}

/// What a line did.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct LineStats {
    /// Frames that were lost, for whatever reason.
    pub lost: u64,
    /// Those among them that found the queue full.
    pub tail_dropped: u64,
    /// Frames that arrived with a mark that was set here.
    pub marked: u64,
    /// The most bytes that ever waited for the bottleneck.
    pub max_queue: u64,
}

/// A frame on its way: the driver's handle, and its bytes on the link from Ethernet on.
#[derive(Debug, Clone, Copy)]
struct Item<H> {
    handle: H,
    len: u64,
    change: Change,
    /// Beyond what all others take, in picoseconds.
    extra: u64,
}

/// One direction of a link. `H` names a frame.
#[derive(Debug, Clone)]
pub struct Line<H> {
    injector: Injector,
    bottleneck: Option<Bottleneck>,
    /// In picoseconds, as are the next ones.
    delay: u64,
    jitter: u64,
    random: Random,
    /// In the order of arrival; those at the same time in the order in which they came.
    under_way: VecDeque<(Time, Item<H>)>,
    /// Frames that wait for later ones to pass them, and for how many.
    held: Vec<(u32, Item<H>)>,
    stats: LineStats,
}

impl<H> Line<H> {
    /// What `spec` says of one direction, drawn from `seed`; two directions take two seeds.
    pub fn new(spec: &Spec, direction: Direction, seed: u64) -> Line<H> {
        let shape = spec.shape(direction);
        // Numbers of their own, so that neither changes what the other, or the faults, come to.
        let [marks, jitter] = [1, 2].map(|stream| Random::stream(seed, stream));
        let ps = |d| Time::default().after(d).0;
        Line {
            injector: Injector::new(spec, direction, seed),
            bottleneck: shape.bottleneck.map(|(rate, policy)| Bottleneck::new(rate, policy, marks)),
            delay: ps(shape.delay),
            jitter: ps(shape.jitter),
            random: jitter,
            under_way: VecDeque::new(),
            held: Vec::new(),
            stats: LineStats::default(),
        }
    }

    /// Makes every frame take so much longer.
    pub fn add_delay(&mut self, delay: std::time::Duration) {
        self.delay = Time(self.delay).after(delay).0;
    }

    /// What the faults do to a frame, given from Ethernet on; the headers are enough.
    #[inline]
    pub fn judge(&mut self, now: Instant, frame: &[u8]) -> Fate {
        self.injector.offer(now, frame)
    }

    /// Takes in a frame of `len` bytes whose last bit comes at `now`, with the fate that it was judged to; `copy` is needed
    /// for [`Fate::Duplicate`] alone. Handles of frames that will not arrive are given to `lost`. Calls must be in the order
    /// of time.
    #[inline]
    pub fn carry(&mut self, now: Time, fate: Fate, len: u64, handle: H, copy: Option<H>, mut lost: impl FnMut(H)) {
        let mut item = Item { handle, len, change: Change::default(), extra: 0 };
        match fate {
            Fate::Pass | Fate::Duplicate => {}
            Fate::Drop => {
                self.stats.lost += 1;
                return lost(item.handle);
            }
            Fate::Corrupt(bit) => item.change.flip = Some(bit),
            Fate::Mark => item.change.mark = true,
            Fate::Delay(by) => item.extra = Time::default().after(by).0,
            Fate::Hold(behind) => return self.held.push((behind, item)),
        }
        self.pass(now, item, &mut lost);
        if let Some(handle) = copy {
            self.pass(now, Item { handle, len, change: Change::default(), extra: 0 }, &mut lost);
        }
    }

    /// Puts a frame on its way. Those that were held for it follow.
    fn pass(&mut self, now: Time, item: Item<H>, lost: &mut impl FnMut(H)) {
        if !self.admit(now, item, lost) {
            return; // a frame that is lost has passed nobody
        }
        let mut i = 0;
        while i < self.held.len() {
            self.held[i].0 -= 1;
            if self.held[i].0 == 0 {
                let (_, late) = self.held.remove(i);
                self.admit(now, late, lost);
            } else {
                i += 1;
            }
        }
    }

    #[inline]
    fn admit(&mut self, now: Time, mut item: Item<H>, lost: &mut impl FnMut(H)) -> bool {
        let mut leaves = now;
        if let Some(bottleneck) = &mut self.bottleneck {
            let Some((departs, mark)) = bottleneck.offer(now, item.len) else {
                self.stats.lost += 1;
                self.stats.tail_dropped += 1;
                lost(item.handle);
                return false;
            };
            leaves = departs;
            item.change.mark |= mark;
        }
        let jitter = if self.jitter > 0 { self.random.below(self.jitter + 1) } else { 0 };
        let arrives = leaves.after_ps(self.delay.saturating_add(item.extra).saturating_add(jitter));
        // Nearly always the last one: only jitter and events of a script let frames overtake each other.
        if self.under_way.back().is_none_or(|(last, _)| *last <= arrives) {
            self.under_way.push_back((arrives, item));
        } else {
            let at = self.under_way.partition_point(|(t, _)| *t <= arrives);
            self.under_way.insert(at, (arrives, item));
        }
        true
    }

    /// Whether a frame that nothing happens to arrives as it leaves.
    #[inline]
    pub fn is_immediate(&self) -> bool {
        self.bottleneck.is_none() && self.delay == 0 && self.jitter == 0
    }

    /// When the next frame arrives.
    #[inline]
    pub fn next_due(&self) -> Option<Time> {
        self.under_way.front().map(|(at, _)| *at)
    }

    /// A frame that has arrived by `now`, and what [`Line::apply`] is to do to it.
    #[inline]
    pub fn poll(&mut self, now: Time) -> Option<(H, Change)> {
        if self.next_due()? > now {
            return None;
        }
        self.under_way.pop_front().map(|(_, item)| (item.handle, item.change))
    }

    /// Changes a frame that has arrived.
    #[inline]
    pub fn apply(&mut self, change: Change, frame: &mut [u8]) {
        if change.mark {
            self.stats.marked += u64::from(mark_ce(frame));
        }
        if let Some(bit) = change.flip
            && !frame.is_empty()
        {
            let bit = (bit % (frame.len() as u64 * 8)) as usize;
            frame[bit / 8] ^= 1 << (bit % 8);
        }
    }

    /// What it did.
    pub fn stats(&self) -> LineStats {
        LineStats { max_queue: self.bottleneck.as_ref().map_or(0, Bottleneck::max_bytes), ..self.stats }
    }

    /// See [`Injector::applied`].
    pub fn applied(&self) -> impl Iterator<Item = (usize, u64)> + '_ {
        self.injector.applied()
    }

    /// Stops the faults, or lets them begin again; rate, queue, marks, delay and jitter stay.
    pub fn set_enabled(&mut self, enabled: bool) {
        self.injector.set_enabled(enabled);
    }
}
