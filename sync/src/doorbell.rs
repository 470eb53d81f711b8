//! Doorbells: a thread that posts work marks the queue, so that the engine knows which queues to look into.
//!
//! A ringing queue sets its own bit, and then the bit of its group. The engine clears both before it looks into the queue, so work posted
//! after the look rings again. A thread that finds the queue's bit already set leaves the rest to the thread that set it.
//!
//! No step waits for another thread. A list in which the reader waits for a writer that has started would be harmful: an engine with
//! real-time priority never yields its core to the writer, and both stand still until the system stops the engine, most of a second later.

use crate::primitives::{AtomicU64, Ordering};

/// Bits per word, and also the maximum number of groups.
const BITS: usize = u64::BITS as usize;

/// The queues that rang at an engine.
#[derive(Debug)]
pub struct Doorbells {
    /// One bit per queue.
    queues: Box<[AtomicU64]>,
    /// Number of words of `queues` per group.
    words: usize,
    /// One bit per group in which a queue may have rung.
    groups: AtomicU64,
}

impl Doorbells {
    /// Creates doorbells for `queues` queues.
    pub fn new(queues: usize) -> Doorbells {
        let all = queues.div_ceil(BITS).max(1);
        let words = all.div_ceil(BITS);
        Doorbells { queues: (0..all).map(|_| AtomicU64::new(0)).collect(), words, groups: AtomicU64::new(0) }
    }

    /// Rings for the queue `index`, whose new work was published before this call. Returns whether the engine must be notified to look at
    /// the doorbells.
    #[inline]
    pub fn ring(&self, index: u32) -> bool {
        let first = self.ring_queue(index);
        if first {
            self.ring_group(index);
        }
        first
    }

    /// The first half of a ring; returns whether the second half is to follow.
    #[inline]
    fn ring_queue(&self, index: u32) -> bool {
        let bit = 1 << (index as usize % BITS);
        // There are never more queues than bits.
        self.queues.get(index as usize / BITS).is_some_and(|word| word.fetch_or(bit, Ordering::AcqRel) & bit == 0)
    }

    #[inline]
    fn ring_group(&self, index: u32) {
        let group = index as usize / BITS / self.words;
        self.groups.fetch_or(1 << group, Ordering::AcqRel);
    }

    /// Calls `look` for each queue that rang before this call, in the order of the queue numbers.
    #[inline]
    pub fn take(&self, mut look: impl FnMut(u32)) {
        // A load is cheaper than swaps that find no bits. A ring that is missed here is found at the next call, and a thread that goes to
        // sleep looks again after a barrier.
        if self.is_empty() {
            return;
        }
        for group in bits(self.groups.swap(0, Ordering::AcqRel)) {
            let first = group * self.words;
            for (word, queues) in self.queues.iter().enumerate().skip(first).take(self.words) {
                // The bit of the queue was set before the bit of its group.
                if queues.load(Ordering::Relaxed) != 0 {
                    bits(queues.swap(0, Ordering::AcqRel)).for_each(|bit| look((word * BITS + bit) as u32));
                }
            }
        }
    }

    /// Whether no queue rang.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.groups.load(Ordering::Acquire) == 0
    }
}

/// The indexes of the set bits.
#[inline]
fn bits(mut word: u64) -> impl Iterator<Item = usize> {
    std::iter::from_fn(move || {
        let bit = (word != 0).then(|| word.trailing_zeros() as usize)?;
        word &= word - 1;
        Some(bit)
    })
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    fn taken(doorbells: &Doorbells) -> Vec<u32> {
        let mut all = Vec::new();
        doorbells.take(|index| all.push(index));
        all
    }

    #[test]
    fn each_queue_that_rang_is_looked_into_once() {
        for queues in [1, 64, 65, 4096, 4097, 1 << 16] {
            let doorbells = Doorbells::new(queues as usize);
            assert_eq!(taken(&doorbells), []);
            let mut some = [0, 1, 63, 64, queues / 2, queues - 1].map(|index| index.min(queues - 1)).to_vec();
            some.sort_unstable();
            some.dedup();
            assert!(some.iter().rev().all(|&index| doorbells.ring(index)), "the engine must be told");
            assert!(!some.iter().any(|&index| doorbells.ring(index)), "it was told");
            assert!(!doorbells.is_empty());
            assert_eq!(taken(&doorbells), some);
            assert!(doorbells.is_empty());
            assert!(doorbells.ring(queues - 1), "it rings again");
        }
    }

    #[test]
    fn a_ringer_that_is_kept_from_its_core_in_the_middle_holds_up_neither_the_engine_nor_others() {
        let doorbells = Doorbells::new(1 << 16);
        assert!(doorbells.ring_queue(7));
        assert_eq!(taken(&doorbells), []);
        // A queue of another group, and a queue whose bit is next to bit 7.
        assert!(doorbells.ring(5000));
        assert_eq!(taken(&doorbells), [5000]);
        assert!(doorbells.ring(8));
        assert_eq!(taken(&doorbells), [7, 8]);
        // The interrupted ring of queue 7 continues.
        doorbells.ring_group(7);
        assert_eq!(taken(&doorbells), []);
        assert!(doorbells.ring(7));
        assert_eq!(taken(&doorbells), [7]);
    }
}

#[cfg(all(test, loom))]
mod loom_tests {
    use super::*;
    use crate::primitives::{Arc, AtomicBool, Mutex};
    use crate::ring::{Consumer, Producer, ring};
    use crate::sleeper::Sleeper;

    struct Engine {
        doorbells: Doorbells,
        sleeper: Sleeper,
        /// The engine's eventfd.
        woken: AtomicBool,
    }

    fn engine() -> Arc<Engine> {
        Arc::new(Engine { doorbells: Doorbells::new(4), sleeper: Sleeper::default(), woken: AtomicBool::new(false) })
    }

    /// The program thread.
    fn post(engine: &Engine, work: &Mutex<Producer<u32>>, value: u32) {
        work.lock().unwrap().push(value).unwrap();
        if engine.doorbells.ring(0) && engine.sleeper.must_wake() {
            engine.woken.store(true, Ordering::Release);
        }
    }

    /// One round of the engine; returns the number of values it found.
    fn round(engine: &Engine, work: &mut Consumer<u32>) -> usize {
        let mut taken = 0;
        engine.doorbells.take(|_| taken += std::iter::from_fn(|| work.pop()).count());
        taken
    }

    /// `threads` threads post `posts` times each; the engine makes a round, then prepares to sleep as the real one does.
    fn model(threads: u32, posts: u32) {
        let mut orders = loom::model::Builder::new();
        // Three threads have too many interleavings to try them all; a bounded number of preemptions keeps the number small enough.
        orders.preemption_bound = (threads > 1).then_some(3);
        orders.check(move || {
            let engine = engine();
            let (producer, mut work) = ring(4);
            let producer = Arc::new(Mutex::new(producer));
            let posters: Vec<_> = (0..threads)
                .map(|_| {
                    let (engine, producer) = (Arc::clone(&engine), Arc::clone(&producer));
                    loom::thread::spawn(move || (0..posts).for_each(|value| post(&engine, &producer, value)))
                })
                .collect();
            let mut taken = round(&engine, &mut work);
            engine.sleeper.prepare();
            let sleeps = engine.doorbells.is_empty();
            if !sleeps {
                engine.sleeper.awake();
                taken += round(&engine, &mut work);
            }
            posters.into_iter().for_each(|poster| poster.join().unwrap());
            let all = (threads * posts) as usize;
            if sleeps && !engine.woken.load(Ordering::Acquire) {
                assert_eq!(taken, all, "it sleeps on work that nobody will wake it for");
            }
            // Work that the engine has not taken is still announced by the doorbells.
            assert_eq!(taken + round(&engine, &mut work), all, "work that was posted is overlooked");
        });
    }

    #[test]
    fn one_thread_posts_and_nothing_is_overlooked() {
        model(1, 2);
    }

    #[test]
    fn two_threads_post_to_one_queue_and_nothing_is_overlooked() {
        model(2, 1);
    }
}
