//! Completion queues: a ring from each engine, taken from in turn.

use std::fmt;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use rustix::event::PollFlags;
use softnic_nic::transports::Completion;
use softnic_nic::transports::completion::CqId;
use softnic_nic::{CqError, Notify};
use softnic_sync::ring::{Consumer, ring};
use softnic_sync::wish::Wish;

use super::context::{Context, Inner};
use crate::engine::CqOut;
use crate::io::sleep_on;
use crate::wake::Wake;

/// What engines and the program share of a completion queue, beside the rings.
pub(crate) struct CqShared {
    wish: Wish,
    wake: Wake,
    overflowed: AtomicBool,
}

impl CqShared {
    /// Completions were put into a ring before this.
    #[inline]
    pub(crate) fn on_completions(&self, solicited: bool) {
        if self.wish.is_granted(solicited) {
            self.wake.wake();
        }
    }

    pub(crate) fn set_overflowed(&self) {
        self.overflowed.store(true, Ordering::Release);
    }
}

/// A completion queue. It lives as long as a queue pair completes to it.
///
/// Completions of one queue pair come in order. Clones are the same queue.
#[derive(Clone)]
pub struct CompletionQueue(Arc<Queue>);

struct Queue {
    context: Arc<Inner>,
    id: CqId,
    /// One for each engine.
    rings: Mutex<Vec<Consumer<Completion>>>,
    shared: Arc<CqShared>,
}

impl Drop for Queue {
    fn drop(&mut self) {
        let _order = self.context.mirrored();
        for engine in self.context.engines() {
            let mut core = engine.control();
            core.remove_cq(self.id);
            // Queue pairs that complete to it keep it alive, so nothing uses it.
            let _ = core.nic().destroy_cq(self.id);
        }
    }
}

impl Context {
    /// Makes a completion queue for at least `capacity` completions.
    ///
    /// # Errors
    /// When the process has no file descriptor left.
    pub fn create_cq(&self, capacity: usize) -> io::Result<CompletionQueue> {
        let context = Arc::clone(self.inner());
        let shared = Arc::new(CqShared { wish: Wish::new(), wake: Wake::new()?, overflowed: AtomicBool::new(false) });
        let order = context.mirrored();
        let mut id = CqId(0);
        let mut rings = Vec::new();
        for engine in context.engines() {
            let mut core = engine.control();
            let (producer, consumer) = ring(capacity);
            id = core.nic().create_cq(capacity);
            core.add_cq(id, CqOut { ring: producer, shared: Arc::clone(&shared) });
            rings.push(consumer);
        }
        drop(order);
        Ok(CompletionQueue(Arc::new(Queue { context, id, rings: Mutex::new(rings), shared })))
    }
}

impl CompletionQueue {
    pub(crate) fn id(&self) -> CqId {
        self.0.id
    }

    fn rings(&self) -> MutexGuard<'_, Vec<Consumer<Completion>>> {
        self.0.rings.lock().unwrap_or_else(|p| p.into_inner())
    }

    /// Takes at most `max` completions that are there, behind those in `out`; makes progress first where there is none. How many.
    ///
    /// # Errors
    /// [`CqError::Overflow`] when completions were lost because nobody took them in time: the queue is of no more use.
    #[inline]
    pub fn poll(&self, out: &mut Vec<Completion>, max: usize) -> Result<usize, CqError> {
        let taken = self.take(out, max);
        if taken > 0 || max == 0 {
            return Ok(taken);
        }
        if self.0.context.progress() {
            let taken = self.take(out, max);
            if taken > 0 {
                return Ok(taken);
            }
        }
        match self.0.shared.overflowed.load(Ordering::Acquire) {
            true => Err(CqError::Overflow),
            false => Ok(0),
        }
    }

    /// Takes the oldest completion, if there is one; makes progress first where there is none.
    ///
    /// # Errors
    /// As [`CompletionQueue::poll`].
    #[inline]
    pub fn poll_one(&self) -> Result<Option<Completion>, CqError> {
        if let Some(completion) = self.take_one() {
            return Ok(Some(completion));
        }
        self.0.context.progress();
        match self.take_one() {
            None if self.0.shared.overflowed.load(Ordering::Acquire) => Err(CqError::Overflow),
            found => Ok(found),
        }
    }

    #[inline]
    fn take_one(&self) -> Option<Completion> {
        self.rings().iter_mut().find_map(Consumer::pop)
    }

    fn take(&self, out: &mut Vec<Completion>, max: usize) -> usize {
        let before = out.len();
        for ring in self.rings().iter_mut() {
            while out.len() - before < max
                && let Some(completion) = ring.pop()
            {
                out.push(completion);
            }
        }
        out.len() - before
    }

    /// Asks for one wake-up of whoever waits on the descriptor ([`AsFd`]) when a completion comes. Poll once more after this.
    ///
    /// The NIC's own thread makes progress while somebody waits in [`CompletionQueue::wait`]; whoever waits by other means tells the
    /// NIC so by [`Context::hold_progress`].
    pub fn arm(&self, what: Notify) {
        self.0.shared.wake.drain();
        match what {
            Notify::Next => self.0.shared.wish.for_next(),
            Notify::Solicited => self.0.shared.wish.for_solicited(),
        }
    }

    /// Sleeps until there is a completion, or `timeout` has passed; whether there is one. The NIC's own thread makes progress meanwhile.
    ///
    /// # Errors
    /// What poll(2) says.
    pub fn wait(&self, timeout: Duration) -> io::Result<bool> {
        let there = || self.rings().iter_mut().any(|ring| !ring.is_empty());
        self.arm(Notify::Next);
        if there() || self.0.context.progress() && there() {
            return Ok(true);
        }
        let running = self.0.context.programs_sleep();
        sleep_on(self.0.shared.wake.as_fd(), PollFlags::IN, timeout, None)?;
        drop(running);
        Ok(there())
    }
}

/// Readable once what [`CompletionQueue::arm`] asked for has come.
impl AsFd for CompletionQueue {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.shared.wake.as_fd()
    }
}

impl fmt::Debug for CompletionQueue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("CompletionQueue").field(&self.0.id.0).finish()
    }
}
