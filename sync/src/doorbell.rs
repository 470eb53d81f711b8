//! Doorbells: how the threads that post work tell an engine which queues to look at.
//!
//! A queue that rang is in the engine's list once, however much is posted: its flag says so. Whoever finds the flag set leaves the rest to
//! the one who set it. The engine takes the flag down before it looks into the queue, so what is posted after the look rings again.

use crate::primitives::{ArrayQueue, AtomicBool, Ordering};

/// The flag of one queue: it rang, and the engine has not looked yet.
#[derive(Debug)]
pub struct Rung(AtomicBool);

impl Rung {
    /// The flag of a queue that has not rung.
    #[allow(clippy::new_without_default)] // there is nothing to leave out
    pub fn new() -> Rung {
        Rung(AtomicBool::new(false))
    }

    /// About to look into the queue: posts from now on ring again, and what was posted under the flag is seen.
    pub fn answer(&self) {
        self.0.swap(false, Ordering::AcqRel);
    }
}

/// The queues that rang at an engine.
#[derive(Debug)]
pub struct Doorbells(ArrayQueue<u32>);

impl Doorbells {
    /// For as many queues as there can be.
    pub fn new(queues: usize) -> Doorbells {
        Doorbells(ArrayQueue::new(queues))
    }

    /// Work was put into the queue `index`, published before this: whether the engine must be told to look here.
    #[inline]
    pub fn ring(&self, index: u32, rung: &Rung) -> bool {
        let first = !rung.0.swap(true, Ordering::AcqRel);
        if first {
            // There are no more queues than places.
            let _ = self.0.push(index);
        }
        first
    }

    /// The next queue to look into.
    #[inline]
    pub fn next(&self) -> Option<u32> {
        // A look costs less than a queue that finds itself empty. What is overlooked is there at the next look, and who goes to sleep
        // looks behind a barrier.
        if self.0.is_empty() { None } else { self.0.pop() }
    }

    /// Whether none rang.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

#[cfg(all(test, loom))]
mod loom_tests {
    use super::*;
    use crate::primitives::{Arc, Mutex};
    use crate::ring::{Consumer, Producer, ring};
    use crate::sleeper::Sleeper;

    struct Engine {
        doorbells: Doorbells,
        rung: Rung,
        sleeper: Sleeper,
        /// Its eventfd.
        woken: AtomicBool,
    }

    fn engine() -> Arc<Engine> {
        let (doorbells, rung) = (Doorbells::new(4), Rung::new());
        Arc::new(Engine { doorbells, rung, sleeper: Sleeper::default(), woken: AtomicBool::new(false) })
    }

    /// What a program's thread does.
    fn post(engine: &Engine, work: &Mutex<Producer<u32>>, value: u32) {
        work.lock().unwrap().push(value).unwrap();
        if engine.doorbells.ring(0, &engine.rung) && engine.sleeper.must_wake() {
            engine.woken.store(true, Ordering::Release);
        }
    }

    /// What the engine does; how much it found.
    fn round(engine: &Engine, work: &mut Consumer<u32>) -> usize {
        let mut taken = 0;
        while engine.doorbells.next().is_some() {
            engine.rung.answer();
            taken += std::iter::from_fn(|| work.pop()).count();
        }
        taken
    }

    /// One thread posts as often as told, `threads` of them; the engine works a round, then goes to sleep as it would.
    fn model(threads: u32, posts: u32) {
        let mut orders = loom::model::Builder::new();
        // All orders of three threads are too many; those in which threads are interrupted so often are not.
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
            // Whatever it has not taken is still announced.
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
