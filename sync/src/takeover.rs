//! Who runs an engine: threads of programs while they poll, or the engine's own thread, which watches, takes over when no program makes
//! progress, and sleeps when there is nothing to do.
//!
//! What the two sides tell each other, and what each concludes, is here, so that loom tries the code that decides: a program may make its
//! last round at any moment, and nobody may sleep on work, or beyond a timer, that this round has begun.

use crate::primitives::{AtomicBool, AtomicU64, MutexGuard, Ordering};
use crate::sleeper::Sleeper;
use crate::token::Token;

/// The bell of a thread that sleeps: its flag, and whatever it sleeps on.
pub trait Bell {
    /// The flag of the sleeper.
    fn sleeper(&self) -> &Sleeper;
    /// Wakes the thread, or keeps it from sleeping.
    fn wake(&self);
    /// What it was woken for is seen.
    fn drain(&self);

    /// There is work, published before this: wakes the thread if it sleeps.
    #[inline]
    fn wake_sleeper(&self) {
        if self.sleeper().must_wake() {
            self.wake();
        }
    }

    /// About to sleep: look for work once more, and sleep only if there is none.
    fn prepare_sleep(&self) {
        self.drain();
        self.sleeper().prepare();
    }

    /// Awake again, for whatever reason.
    fn awake(&self) {
        self.sleeper().awake();
        self.drain();
    }
}

/// The token of an engine, and what its threads tell each other of it.
#[derive(Debug)]
pub struct Takeover<T> {
    token: Token<T>,
    /// How often progress was made: by this the engine's own thread sees that somebody else does.
    rounds: AtomicU64,
    /// A program's thread polled and found the engine taken.
    tried: AtomicBool,
    /// When the engine's own thread, which sleeps, wakes by itself; 0 while it does not sleep for a timer, the longest time while it
    /// sleeps for none.
    sleeps_until: AtomicU64,
}

impl<T> Takeover<T> {
    /// An engine that nobody runs.
    pub fn new(value: T) -> Takeover<T> {
        Takeover {
            token: Token::new(value),
            rounds: AtomicU64::new(0),
            tried: AtomicBool::new(false),
            sleeps_until: AtomicU64::new(0),
        }
    }

    /// The engine to oneself; waits for whoever has it.
    pub fn take(&self) -> MutexGuard<'_, T> {
        self.token.take()
    }

    /// The engine to oneself, if nobody has it and nobody waits for it.
    pub fn try_take(&self) -> Option<MutexGuard<'_, T>> {
        self.token.try_take()
    }

    /// Whether a thread waits for the engine.
    #[inline]
    pub fn is_wanted(&self) -> bool {
        self.token.is_wanted()
    }

    /// A round of a program's thread, if nobody else runs the engine right now. The round may have begun a timer that ends (`due`) before the
    /// engine's own thread wakes, and may be the last one of the program: then that thread is woken.
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
        // With the engine at hand: its own thread says so while it has the engine.
        let until = self.sleeps_until.load(Ordering::Relaxed);
        if until != 0 && due(&value).is_some_and(|at| at < until) {
            bell.wake();
        }
        Some(result)
    }

    /// A round is made, by whoever has the engine.
    #[inline]
    pub fn count_round(&self) {
        // Only the holder of the token writes it.
        self.rounds.store(self.rounds.load(Ordering::Relaxed).wrapping_add(1), Ordering::Relaxed);
    }

    /// Rounds that were made so far.
    pub fn rounds(&self) -> u64 {
        self.rounds.load(Ordering::Relaxed)
    }

    /// The engine's own thread has it: from now on programs that poll say so.
    pub fn begin(&self) {
        self.tried.store(false, Ordering::Relaxed);
    }

    /// Whether a program polled since, and found the engine taken.
    pub fn is_tried(&self) -> bool {
        self.tried.load(Ordering::Relaxed)
    }

    /// The engine's own thread, which has the engine, is about to sleep until a timer ends, if there is one, or it is woken: whether it may,
    /// because there is nothing to do.
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

    /// It slept.
    pub fn slept(&self, bell: &impl Bell) {
        self.sleeps_until.store(0, Ordering::Relaxed);
        bell.awake();
    }

    /// When the engine's own thread wakes by itself; 0 while it does not sleep.
    pub fn sleeps_until(&self) -> u64 {
        self.sleeps_until.load(Ordering::Relaxed)
    }
}

/// Whether a thread may sleep.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Sleep {
    /// There is something to do.
    No,
    /// Until a timer ends.
    Until(u64),
    /// Until somebody wakes it.
    UntilWoken,
}

#[cfg(all(test, loom))]
mod loom_tests {
    use super::*;
    use crate::doorbell::Doorbells;
    use crate::primitives::{Arc, Mutex};
    use crate::ring::{Consumer, Producer, ring};

    /// The bell of the engine's own thread; its eventfd is a flag here.
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

    /// What whoever has the engine has: work of one queue, and the timer that carrying it out begins.
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

        /// What a program's thread does: it posts work, polls once, and never again.
        fn post_and_poll(&self, posts: &Mutex<Producer<u64>>, timer: u64) {
            posts.lock().unwrap().push(timer).unwrap();
            if self.doorbells.ring(0) {
                self.bell.wake_sleeper();
            }
            self.takeover.try_run(|core| self.round(core), |core| core.timer, &self.bell);
        }

        /// What the engine's own thread does; whether it sleeps then.
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

        /// The engine's own thread sleeps, and all others are done: nothing waits for it that does not wake it.
        fn check(&self, sleeps: bool, posted: usize) {
            if !sleeps || self.bell.1.load(Ordering::Acquire) {
                // It looks again.
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
        // All orders of three threads are too many; those in which threads are interrupted so often are not.
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
