//! Which thread runs an engine: a program thread while it polls, or the engine's own thread. The engine's own thread watches, takes over
//! when no program makes progress, and sleeps when there is no work.
//!
//! The shared state of the two sides, and every decision taken from it, is in this module, so that loom tests the code that decides. A
//! program may make its last round at any moment. No thread may sleep while work is pending, or past a timer that such a round started.

use crate::primitives::{AtomicBool, AtomicU64, MutexGuard, Ordering};
use crate::sleeper::Sleeper;
use crate::token::Token;

/// Wakes a sleeping thread: the thread's flag, together with the object it sleeps on (an eventfd, for example).
pub trait Bell {
    /// The flag of the sleeper.
    fn sleeper(&self) -> &Sleeper;
    /// Wakes the thread, or keeps it from sleeping.
    fn wake(&self);
    /// Clears the wake-up that the thread has received.
    fn drain(&self);

    /// Call after work is published: wakes the thread if it sleeps.
    #[inline]
    fn wake_sleeper(&self) {
        if self.sleeper().must_wake() {
            self.wake();
        }
    }

    /// Announces that the thread is about to sleep. Afterwards the thread must look for work once more, and may sleep only if there is
    /// none.
    fn prepare_sleep(&self) {
        self.drain();
        self.sleeper().prepare();
    }

    /// Announces that the thread is awake again, for whatever reason.
    fn awake(&self) {
        self.sleeper().awake();
        self.drain();
    }
}

/// The token of an engine, and the state that its threads share.
#[derive(Debug)]
pub struct Takeover<T> {
    token: Token<T>,
    /// Number of rounds that made progress. The engine's own thread reads this count to see that another thread runs the engine.
    rounds: AtomicU64,
    /// A program thread polled while another thread held the engine.
    tried: AtomicBool,
    /// The time at which the sleeping engine thread wakes by itself: 0 while the thread does not sleep for a timer, `u64::MAX` while it
    /// sleeps with no timer set.
    sleeps_until: AtomicU64,
}

impl<T> Takeover<T> {
    /// Creates an engine that no thread runs.
    pub fn new(value: T) -> Takeover<T> {
        Takeover {
            token: Token::new(value),
            rounds: AtomicU64::new(0),
            tried: AtomicBool::new(false),
            sleeps_until: AtomicU64::new(0),
        }
    }

    /// Takes exclusive access to the engine; waits for the current holder.
    pub fn take(&self) -> MutexGuard<'_, T> {
        self.token.take()
    }

    /// Takes exclusive access to the engine if no thread holds it and no thread waits for it.
    pub fn try_take(&self) -> Option<MutexGuard<'_, T>> {
        self.token.try_take()
    }

    /// Whether a thread waits for the engine.
    #[inline]
    pub fn is_wanted(&self) -> bool {
        self.token.is_wanted()
    }

    /// Makes one round on a program thread, if no other thread runs the engine. The round may start a timer that is due (`due`) before the
    /// engine's own thread wakes, and may be the program's last round. In that case the engine's own thread is woken.
    #[inline]
    pub fn try_run<R>(
        &self,
        round: impl FnOnce(&mut T) -> R,
        due: impl FnOnce(&T) -> Option<u64>,
        bell: &impl Bell,
    ) -> Option<R> {
        let Some(mut value) = self.token.try_take() else {
            self.tried.store(true, Ordering::Relaxed);
            return None;
        };
        let result = round(&mut value);
        // Read before the token is released: the engine's own thread writes this field while it holds the token.
        let until = self.sleeps_until.load(Ordering::Relaxed);
        if until != 0 && due(&value).is_some_and(|at| at < until) {
            bell.wake();
        }
        Some(result)
    }

    /// Counts a round. Called by the holder of the engine.
    #[inline]
    pub fn count_round(&self) {
        // Only the holder of the token writes the count, so a plain load and store are enough.
        self.rounds.store(self.rounds.load(Ordering::Relaxed).wrapping_add(1), Ordering::Relaxed);
    }

    /// Number of rounds so far.
    pub fn rounds(&self) -> u64 {
        self.rounds.load(Ordering::Relaxed)
    }

    /// The engine's own thread has taken the engine. From now on `is_tried` reports programs that poll.
    pub fn begin(&self) {
        self.tried.store(false, Ordering::Relaxed);
    }

    /// Whether a program has polled and found the engine taken since `begin`.
    pub fn is_tried(&self) -> bool {
        self.tried.load(Ordering::Relaxed)
    }

    /// The engine's own thread, which holds the engine, is about to sleep until a timer ends or until it is woken. Returns whether the
    /// thread may sleep, because there is no work.
    pub fn may_sleep(&self, value: &mut T, bell: &impl Bell, nothing_to_do: impl FnOnce(&mut T) -> Sleep) -> bool {
        bell.prepare_sleep();
        let sleep = nothing_to_do(value);
        match sleep {
            Sleep::No => bell.awake(),
            Sleep::Until(at) => self.sleeps_until.store(at, Ordering::Relaxed),
            Sleep::UntilWoken => self.sleeps_until.store(u64::MAX, Ordering::Relaxed),
        }
        sleep != Sleep::No
    }

    /// The engine's own thread has slept.
    pub fn slept(&self, bell: &impl Bell) {
        self.sleeps_until.store(0, Ordering::Relaxed);
        bell.awake();
    }

    /// The time at which the engine's own thread wakes by itself; 0 while the thread does not sleep.
    pub fn sleeps_until(&self) -> u64 {
        self.sleeps_until.load(Ordering::Relaxed)
    }
}

/// Whether a thread may sleep.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Sleep {
    /// No: there is work.
    No,
    /// Until this time, when a timer ends.
    Until(u64),
    /// Until another thread wakes it.
    UntilWoken,
}

#[cfg(all(test, loom))]
mod loom_tests {
    use super::*;
    use crate::doorbell::Doorbells;
    use crate::primitives::{Arc, Mutex};
    use crate::ring::{Consumer, Producer, ring};

    /// The bell of the engine's own thread; a flag replaces the eventfd here.
    #[derive(Default)]
    struct Eventfd(Sleeper, AtomicBool);

    impl Bell for Eventfd {
        fn sleeper(&self) -> &Sleeper {
            &self.0
        }

        fn wake(&self) {
            self.1.store(true, Ordering::Release);
        }

        fn drain(&self) {
            self.1.store(false, Ordering::Release);
        }
    }

    /// The state of the engine's holder: the work of one queue, and the timer that carrying it out starts.
    struct Core {
        work: Consumer<u64>,
        done: usize,
        timer: Option<u64>,
    }

    struct Engine {
        takeover: Takeover<Core>,
        doorbells: Doorbells,
        bell: Eventfd,
    }

    impl Engine {
        fn new() -> (Arc<Engine>, Mutex<Producer<u64>>) {
            let (posts, work) = ring(4);
            let takeover = Takeover::new(Core { work, done: 0, timer: None });
            let doorbells = Doorbells::new(4);
            (Arc::new(Engine { takeover, doorbells, bell: Eventfd::default() }), Mutex::new(posts))
        }

        fn round(&self, core: &mut Core) {
            self.takeover.count_round();
            self.doorbells.take(|_| {
                while let Some(timer) = core.work.pop() {
                    core.done += 1;
                    core.timer = Some(core.timer.map_or(timer, |t| t.min(timer)));
                }
            });
        }

        /// The program thread: posts work, polls once, and never polls again.
        fn post_and_poll(&self, posts: &Mutex<Producer<u64>>, timer: u64) {
            posts.lock().unwrap().push(timer).unwrap();
            if self.doorbells.ring(0) {
                self.bell.wake_sleeper();
            }
            self.takeover.try_run(|core| self.round(core), |core| core.timer, &self.bell);
        }

        /// The engine's own thread; returns whether it goes to sleep.
        fn take_over(&self) -> bool {
            let mut core = self.takeover.take();
            self.takeover.begin();
            self.round(&mut core);
            self.takeover.may_sleep(&mut core, &self.bell, |core| match (self.doorbells.is_empty(), core.timer) {
                (false, _) => Sleep::No,
                (true, Some(at)) => Sleep::Until(at),
                (true, None) => Sleep::UntilWoken,
            })
        }

        /// Once the engine's own thread sleeps and all other threads have ended, no work may be pending without a wake-up.
        fn check(&self, sleeps: bool, posted: usize) {
            if !sleeps || self.bell.1.load(Ordering::Acquire) {
                // The engine thread was woken, or did not sleep: it looks for work again.
                self.round(&mut self.takeover.take());
            } else if let Some(timer) = self.takeover.take().timer {
                assert!(self.takeover.sleeps_until() <= timer, "it sleeps beyond a timer that a program began");
            }
            assert_eq!(self.takeover.take().done, posted, "it sleeps on work that was posted");
        }
    }

    #[test]
    fn the_last_round_of_a_program_leaves_nothing_that_the_engines_own_thread_sleeps_on() {
        loom::model(|| {
            let (engine, posts) = Engine::new();
            let other = Arc::clone(&engine);
            let program = loom::thread::spawn(move || other.post_and_poll(&posts, 5));
            let sleeps = engine.take_over();
            program.join().unwrap();
            engine.check(sleeps, 1);
        });
    }

    #[test]
    fn two_programs_leave_nothing_either_whoever_of_the_three_runs_the_engine() {
        let mut orders = loom::model::Builder::new();
        // Three threads have too many interleavings to try them all; a bounded number of preemptions keeps the number small enough.
        orders.preemption_bound = Some(2);
        orders.check(|| {
            let (engine, posts) = Engine::new();
            let posts = Arc::new(posts);
            let programs = [7, 5].map(|timer| {
                let (engine, posts) = (Arc::clone(&engine), Arc::clone(&posts));
                loom::thread::spawn(move || engine.post_and_poll(&posts, timer))
            });
            let sleeps = engine.take_over();
            programs.into_iter().for_each(|program| program.join().unwrap());
            engine.check(sleeps, 2);
        });
    }
}
