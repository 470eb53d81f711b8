//! One direction of a link, without the frames: what becomes of each, in which order they arrive and when.
//!
//! A frame waits for the end of a stall, passes the faults, then the bottleneck and its queue, then delay and jitter.
//! Frames are known by a handle of the driver's, who keeps the bytes.

use std::collections::VecDeque;
use std::num::NonZeroU32;
use std::time::Duration;

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
    /// A bit of it is flipped: the one before this.
    pub flip: Option<NonZeroU32>,
}

/// What a line did.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct LineStats {
    /// Frames that were lost, for whatever reason.
    pub lost: u64,
    /// Those among them that found the queue full.
    pub tail_dropped: u64,
    /// Frames that went on with a copy behind them.
    pub duplicated: u64,
    /// Frames that went on with a bit flipped.
    pub corrupted: u64,
    /// Frames that were held until later ones had passed.
    pub held: u64,
    /// Frames that came while the link was stalled.
    pub stalled: u64,
    /// Frames that an event of a script made later.
    pub delayed: u64,
    /// Frames that arrived with a mark that was set here.
    pub marked: u64,
    /// The most bytes that ever waited for the bottleneck.
    pub max_queue: u64,
}

/// A frame: the driver's handle, its bytes from Ethernet on, and what is done to it. Long links have very many under way, and
/// keep no more of each than they must.
#[derive(Debug, Clone, Copy)]
struct Item<H> {
    handle: H,
    len: u32,
    change: Change,
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
    under_way: VecDeque<(Time, H, Change)>,
    /// Frames that wait for later ones to pass them, and for how many.
    held: Vec<(u32, Item<H>)>,
    /// The end of the last stall that held a frame: nothing that comes leaves before.
    let_go: Time,
    /// Nothing arrives before: frames that were under way when the SPEC changed are not overtaken.
    not_before: Time,
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
            let_go: Time::default(),
            not_before: Time::default(),
            stats: LineStats::default(),
        }
    }

    /// From now on another SPEC holds. Frames that are under way arrive when they would have, those that are held are still held, and no later
    /// frame overtakes them for the change. Counters go on.
    pub fn set_spec(&mut self, now: Instant, spec: &Spec, direction: Direction, seed: u64) {
        let mut fresh: Line<H> = Line::new(spec, direction, seed);
        fresh.injector.begin_at(now);
        // Frames before the bottleneck are under way already, with the time at which they leave it.
        let last = self.under_way.back().map_or(Time::default(), |last| last.0);
        self.not_before = self.not_before.max(last);
        (self.injector, self.bottleneck, self.random) = (fresh.injector, fresh.bottleneck, fresh.random);
        (self.delay, self.jitter, self.let_go) = (fresh.delay, fresh.jitter, fresh.let_go);
    }

    /// Makes every frame take so much longer.
    pub fn add_delay(&mut self, delay: Duration) {
        self.delay = Time(self.delay).after(delay).0;
    }

    /// What the faults do to a frame, given from Ethernet on; the headers are enough.
    #[inline]
    pub fn judge(&mut self, now: Instant, frame: &[u8]) -> Fate {
        let let_go = self.injector.let_go(now);
        if let_go > now {
            self.stats.stalled += 1;
            self.let_go = Time::from_instant(let_go);
        }
        self.injector.offer(let_go, frame)
    }

    /// Takes in a frame of `len` bytes whose last bit comes at `now`, with the fate that it was judged to before the
    /// next frame was judged; `copy` is needed for [`Fate::Duplicate`] alone. Handles of frames that will not arrive
    /// are given to `lost`. Calls must be in the order of time.
    #[inline]
    pub fn carry(&mut self, now: Time, fate: Fate, len: u64, handle: H, copy: Option<H>, mut lost: impl FnMut(H)) {
        let (now, len) = (now.max(self.let_go), len as u32);
        let (mut item, mut extra) = (Item { handle, len, change: Change::default() }, Duration::ZERO);
        match fate {
            Fate::Pass => {}
            Fate::Duplicate => self.stats.duplicated += u64::from(copy.is_some()),
            Fate::Drop => {
                self.stats.lost += 1;
                return lost(item.handle);
            }
            Fate::Corrupt(bit) => {
                self.stats.corrupted += 1;
                item.change.flip = NonZeroU32::new((bit % (u64::from(len) * 8).max(1)) as u32 + 1);
            }
            Fate::Mark => item.change.mark = true,
            Fate::Delay(by) => {
                self.stats.delayed += 1;
                extra = by;
            }
            Fate::Hold(behind) => {
                self.stats.held += 1;
                return self.held.push((behind, item));
            }
        }
        self.pass(now, item, extra, &mut lost);
        if let Some(handle) = copy {
            self.pass(now, Item { handle, len, change: Change::default() }, Duration::ZERO, &mut lost);
        }
    }

    /// Puts a frame on its way. Those that were held for it follow.
    fn pass(&mut self, now: Time, item: Item<H>, extra: Duration, lost: &mut impl FnMut(H)) {
        if !self.admit(now, item, extra, lost) {
            return; // a frame that is lost has passed nobody
        }
        let mut i = 0;
        while i < self.held.len() {
            self.held[i].0 -= 1;
            if self.held[i].0 == 0 {
                let (_, late) = self.held.remove(i);
                self.admit(now, late, Duration::ZERO, lost);
            } else {
                i += 1;
            }
        }
    }

    #[inline]
    fn admit(&mut self, now: Time, mut item: Item<H>, extra: Duration, lost: &mut impl FnMut(H)) -> bool {
        let mut leaves = now;
        if let Some(bottleneck) = &mut self.bottleneck {
            let Some((departs, mark)) = bottleneck.offer(now, item.len.into()) else {
                self.stats.lost += 1;
                self.stats.tail_dropped += 1;
                lost(item.handle);
                return false;
            };
            leaves = departs;
            item.change.mark |= mark;
        }
        let jitter = if self.jitter > 0 { self.random.below(self.jitter + 1) } else { 0 };
        let arrives = leaves.after_ps(self.delay.saturating_add(jitter)).after(extra).max(self.not_before);
        let entry = (arrives, item.handle, item.change);
        // Nearly always the last one: only jitter and events of a script let frames overtake each other.
        if self.under_way.back().is_none_or(|last| last.0 <= arrives) {
            self.under_way.push_back(entry);
        } else {
            let at = self.under_way.partition_point(|e| e.0 <= arrives);
            self.under_way.insert(at, entry);
        }
        true
    }

    /// Whether a frame that comes now, and that nothing happens to, arrives as it leaves.
    #[inline]
    pub(crate) fn is_immediate(&self, now: Time) -> bool {
        self.let_go <= now && self.bottleneck.is_none() && self.delay == 0 && self.jitter == 0
    }

    /// Frames that are on their way, and those that are held.
    pub fn len(&self) -> usize {
        self.under_way.len() + self.held.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// When the next frame arrives.
    #[inline]
    pub fn next_due(&self) -> Option<Time> {
        self.under_way.front().map(|next| next.0)
    }

    /// A frame that has arrived by `now`, and what [`Line::apply`] is to do to it.
    #[inline]
    pub fn poll(&mut self, now: Time) -> Option<(H, Change)> {
        if self.next_due()? > now {
            return None;
        }
        self.under_way.pop_front().map(|(_, handle, change)| (handle, change))
    }

    /// Changes a frame that has arrived.
    #[inline]
    pub fn apply(&mut self, change: Change, frame: &mut [u8]) {
        if change.mark {
            self.stats.marked += u64::from(mark_ce(frame));
        }
        if let Some(after) = change.flip {
            let bit = after.get() as usize - 1;
            if let Some(byte) = frame.get_mut(bit / 8) {
                *byte ^= 1 << (bit % 8);
            }
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
