//! The faults of this process: their rules, and their state.

use std::collections::HashMap;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Instant;

use softnic_runtime::api::call_faults::CallDecider;

use super::held::Held;
use super::made::Made;
use super::timer::Timer;
use crate::environment::environment;
use crate::identity;
use crate::message::warn;
use crate::objects::completion_queue::Cq;
use crate::per_process::PerProcess;
use crate::seen;

/// Until when the events of an id are held back, by the address of the id's shared state.
pub(crate) type Until = Mutex<HashMap<usize, Instant>>;

/// The state of the process for faults.
pub(crate) struct State {
    /// Whether any fault applies to this process.
    has_faults: bool,
    decider: Mutex<CallDecider>,
    /// Whether there are rules for completions.
    pub(crate) judges_completions: bool,
    made: Mutex<Made>,
    /// For each completion queue, by its address.
    held: Mutex<HashMap<usize, Arc<Mutex<Held>>>>,
    pub(crate) until: Until,
    /// The device failed permanently.
    pub(crate) is_dead: AtomicBool,
    pub(crate) has_begun: AtomicBool,
    pub(crate) timer: Timer,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(|p| p.into_inner())
}

impl Default for State {
    fn default() -> State {
        let (faults, seed) =
            environment().map_or_else(|_| Default::default(), |e| (e.call_faults.clone(), e.options.seed));
        let faults = if faults.names_processes() { faults.for_process(identity::name()) } else { faults };
        let decider = CallDecider::new(&faults, seed);
        State {
            has_faults: !faults.is_empty(),
            judges_completions: decider.has_completions(),
            decider: Mutex::new(decider),
            made: Mutex::default(),
            held: Mutex::default(),
            until: Mutex::default(),
            is_dead: AtomicBool::new(false),
            has_begun: AtomicBool::new(false),
            timer: Timer::default(),
        }
    }
}

static STATE: PerProcess<State> = PerProcess::new();

/// Whether there are faults of calls, for any process.
pub(crate) fn is_wanted() -> bool {
    environment().is_ok_and(|environment| !environment.call_faults.is_empty())
}

/// The faults of the process, if there are any.
pub(crate) fn faults() -> Option<&'static State> {
    if is_wanted() { Some(STATE.get()).filter(|state| state.has_faults) } else { None }
}

/// The state of the process, if faults or the recorder need it.
pub(crate) fn known() -> Option<&'static State> {
    (is_wanted() || seen::is_wanted()).then(|| STATE.get())
}

impl State {
    /// Evaluates the rules.
    pub(crate) fn decide<T>(&self, decide: impl FnOnce(&mut CallDecider) -> T) -> T {
        let mut decider = lock(&self.decider);
        let decided = decide(&mut decider);
        for applied in decider.take_applied() {
            seen::applied(applied);
        }
        decided
    }

    /// A caller that also needs a queue ([`State::held`]) must lock the queue first.
    pub(crate) fn made(&self) -> MutexGuard<'_, Made> {
        lock(&self.made)
    }

    /// The held completions of a queue.
    pub(crate) fn held(&self, cq: &Cq) -> Arc<Mutex<Held>> {
        self.held_at((&raw const *cq).addr())
    }

    /// The held completions of a queue that may be destroyed.
    pub(crate) fn held_at(&self, address: usize) -> Arc<Mutex<Held>> {
        Arc::clone(lock(&self.held).entry(address).or_default())
    }

    /// A queue was destroyed.
    pub(crate) fn forget_queue(&self, address: usize) {
        lock(&self.held).remove(&address);
    }

    /// Calls `change` for the held completions of all queues.
    pub(crate) fn each_held(&self, mut change: impl FnMut(&mut Held)) {
        let all: Vec<Arc<Mutex<Held>>> = lock(&self.held).values().cloned().collect();
        all.iter().for_each(|held| change(&mut lock(held)));
    }
}

/// The process ends: reports rules that were never applied, because they are mostly mistakes.
pub(crate) fn tell_unused() {
    let Some(state) = faults() else { return };
    state.decide(|decider| {
        for (name, of) in decider.unused() {
            warn(format_args!("{name} was for no {of} of this run"));
        }
    });
}
