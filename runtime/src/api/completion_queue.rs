//! Completion queues: a ring from each engine, taken from in turn.

use std::fmt;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use softnic_nic::transports::{Completion, CqId, Status, WcOpcode};
use softnic_nic::{CqError, Notify, Sink};
use softnic_sync::cq_arm::CqArm;
use softnic_sync::ring::{Consumer, ring};
use softnic_wire::Qpn;

use super::completion_channel::{ChannelEnd, CompletionChannel};
use super::context::{Context, Inner};
use super::cq_shared::{CqShared, OwnEvents};
use crate::engine::{Core, CqOut, Engine};
use crate::io::sleep_until_readable;
use crate::wake::Wake;

/// A completion queue. It lives as long as a queue pair completes to it.
///
/// Completions of one queue pair come in order. Clones are the same queue.
#[derive(Clone)]
pub struct CompletionQueue(Arc<Queue>);

struct Queue {
    context: Arc<Inner>,
    id: CqId,
    rings: Mutex<Rings>,
    capacity: AtomicUsize,
    shared: Arc<CqShared>,
}

/// The rings, one for each engine.
struct Rings {
    rings: Vec<Consumer<Completion>>,
    /// Which one is taken from first, so that none waits for ever behind the others.
    next: usize,
}

impl Rings {
    /// Takes at most `max` completions; how many.
    #[inline]
    fn take(&mut self, max: usize, mut take: impl FnMut(Completion)) -> usize {
        let (mut taken, count) = (0, self.rings.len());
        for _ in 0..count {
            let ring = &mut self.rings[self.next];
            while taken < max
                && let Some(completion) = ring.pop()
            {
                take(completion);
                taken += 1;
            }
            self.next = if self.next + 1 == count { 0 } else { self.next + 1 };
            if taken == max {
                break;
            }
        }
        taken
    }

    /// After arming: whether a completion in one of them raises the event at once.
    fn take_missed(&mut self, arm: &CqArm) -> bool {
        self.rings.iter_mut().enumerate().any(|(i, ring)| {
            let (polled, len) = (ring.read(), ring.len());
            arm.take_missed(i, polled, polled.wrapping_add(len))
        })
    }
}

impl Drop for Queue {
    fn drop(&mut self) {
        if let Some(channel) = &self.shared.channel {
            channel.end();
        }
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
    /// Makes a completion queue for at least `capacity` completions, with a descriptor of its own.
    ///
    /// # Errors
    /// When the process has no file descriptor left.
    pub fn create_cq(&self, capacity: usize) -> io::Result<CompletionQueue> {
        let own = OwnEvents { arm: CqArm::new(self.inner().engines().len()), wake: Wake::new()? };
        Ok(self.make_cq(capacity, Some(own), None))
    }

    /// A completion queue without a descriptor of its own. Its events are those of a completion channel, where the queue has a name of the
    /// program's choice; without one it has none, and is polled.
    pub fn create_cq_with(&self, capacity: usize, channel: Option<(&CompletionChannel, u64)>) -> CompletionQueue {
        self.make_cq(capacity, None, channel)
    }

    fn make_cq(
        &self,
        capacity: usize,
        own: Option<OwnEvents>,
        channel: Option<(&CompletionChannel, u64)>,
    ) -> CompletionQueue {
        let context = Arc::clone(self.inner());
        let sleeping = || context.engines().iter().map(|engine| engine.sleeping_programs()).collect();
        let channel = channel.map(|(channel, name)| ChannelEnd::new(channel, name, sleeping()));
        let overflowed = AtomicBool::new(false);
        let shared = Arc::new(CqShared { own, channel, overflowed });
        let order = context.mirrored();
        let mut id = CqId(0);
        let mut rings = Vec::new();
        for (i, engine) in context.engines().iter().enumerate() {
            let mut core = engine.control();
            let (producer, consumer) = ring(capacity);
            id = core.nic().create_cq(capacity);
            core.add_cq(id, CqOut { ring: producer, engine: i, shared: Arc::clone(&shared) });
            rings.push(consumer);
        }
        drop(order);
        let (rings, capacity) = (Mutex::new(Rings { rings, next: 0 }), AtomicUsize::new(capacity));
        CompletionQueue(Arc::new(Queue { context, id, rings, capacity, shared }))
    }
}

impl Context {
    /// Makes a completion queue in the engines: each engine, by its number, has a value of its own that gets each completion when it
    /// happens, in whatever thread runs the engine. It must not wait for anything.
    ///
    /// The queue is never full, and there is nothing to poll, to arm or to wait for. Of queue pairs whose receives complete there, WRITEs
    /// with immediate need no receive.
    pub fn create_cq_sink(&self, mut sink: impl FnMut(usize) -> Box<dyn Sink>) -> CompletionQueue {
        let context = Arc::clone(self.inner());
        let overflowed = AtomicBool::new(false);
        let shared = Arc::new(CqShared { own: None, channel: None, overflowed });
        let order = context.mirrored();
        let mut id = CqId(0);
        for (i, engine) in context.engines().iter().enumerate() {
            id = engine.control().nic().create_cq_sink(sink(i));
        }
        drop(order);
        let (rings, capacity) = (Mutex::new(Rings { rings: Vec::new(), next: 0 }), AtomicUsize::new(0));
        CompletionQueue(Arc::new(Queue { context, id, rings, capacity, shared }))
    }
}

impl CompletionQueue {
    /// Whether it is in the engines ([`Context::create_cq_sink`]): such a queue has no ring.
    pub fn is_sink(&self) -> bool {
        self.rings().rings.is_empty()
    }

    /// The name of the queue in events.
    pub fn id(&self) -> CqId {
        self.0.id
    }

    /// How many completions it was made for.
    pub fn capacity(&self) -> usize {
        self.0.capacity.load(Ordering::Relaxed)
    }

    #[inline]
    fn rings(&self) -> MutexGuard<'_, Rings> {
        self.0.rings.lock().unwrap_or_else(|p| p.into_inner())
    }

    /// Takes at most `max` completions that are there, behind those in `out`; makes progress first where there is none. How many.
    ///
    /// # Errors
    /// [`CqError::Overflow`] when completions were lost because nobody took them in time: the queue is of no more use.
    /// [`CqError::IsSink`] when there is never anything to take.
    #[inline]
    pub fn poll(&self, out: &mut Vec<Completion>, max: usize) -> Result<usize, CqError> {
        self.poll_each(max, |completion| out.push(completion))
    }

    /// As [`CompletionQueue::poll`] without a list: hands each completion to `take`, which must not use this queue.
    ///
    /// # Errors
    /// As [`CompletionQueue::poll`].
    #[inline]
    pub fn poll_each(&self, max: usize, mut take: impl FnMut(Completion)) -> Result<usize, CqError> {
        let mut failed_binds = Vec::new();
        let mut take = |completion: Completion| {
            if completion.status != Status::Success && completion.opcode == WcOpcode::BindWindow {
                failed_binds.push(completion.qpn);
            }
            take(completion);
        };
        let mut taken = self.rings().take(max, &mut take);
        if taken == 0 && max > 0 && !self.is_sink() && self.0.context.progress() {
            taken = self.rings().take(max, &mut take);
        }
        // Not while the rings are held: engines may wait for them.
        failed_binds.into_iter().for_each(|qpn| self.0.context.undo_binds(qpn));
        if taken > 0 || max == 0 {
            return Ok(taken);
        }
        if self.is_sink() {
            return Err(CqError::IsSink);
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
        let mut found = None;
        self.poll_each(1, |completion| found = Some(completion)).map(|_| found)
    }

    /// Changes how many completions there is room for, at least; those in it stay, in their order.
    ///
    /// # Errors
    /// [`CqError::TooSmall`] when more than `capacity` are in it: then nothing has changed.
    pub fn resize(&self, capacity: usize) -> Result<(), CqError> {
        if self.is_sink() {
            return Err(CqError::IsSink);
        }
        let context = &self.0.context;
        let order = context.mirrored();
        let mut engines = context.control_all(&order);
        // What was posted and needs nobody's answer completes now, not when there is no room for it any more.
        for (engine, core) in context.engines().iter().zip(&mut engines) {
            engine.send_posted(core);
            core.hand_out();
        }
        let mut rings = self.rings();
        let mut held: usize = rings.rings.iter_mut().map(Consumer::len).sum();
        for core in &mut engines {
            held += core.nic().cq_len(self.0.id)?;
        }
        if held > capacity {
            return Err(CqError::TooSmall);
        }
        for (at, core) in engines.iter_mut().enumerate() {
            self.replace_ring(core, &mut rings, at, capacity, |_| true);
            core.nic().resize_cq(self.0.id, capacity)?;
        }
        self.0.capacity.store(capacity, Ordering::Relaxed);
        Ok(())
    }

    /// Takes out the completions of one queue pair of an engine, because it was reset: its next user must not see them.
    pub(crate) fn forget(&self, engine: &Arc<Engine>, core: &mut Core, qpn: Qpn) {
        let Some(at) = self.0.context.engines().iter().position(|e| Arc::ptr_eq(e, engine)) else { return };
        // It exists as long as this value does.
        let _ = core.nic().forget_completions(self.0.id, qpn);
        let mut rings = self.rings();
        // Only the end that writes can put back what others completed. A sink keeps nothing.
        if rings.rings.get_mut(at).is_some_and(|ring| !ring.is_empty()) {
            self.replace_ring(core, &mut rings, at, self.capacity(), |completion| completion.qpn != qpn);
        }
    }

    /// Replaces the ring of an engine by one with room for at least `capacity` completions, and for those that are kept.
    fn replace_ring(
        &self,
        core: &mut Core,
        rings: &mut Rings,
        at: usize,
        capacity: usize,
        keep: impl Fn(&Completion) -> bool,
    ) {
        let old = &mut rings.rings[at];
        let (mut producer, consumer) = ring(capacity);
        let first = old.read();
        // How many were kept of those before each count.
        let mut kept = vec![0];
        while let Some(completion) = old.pop() {
            if keep(&completion) {
                // There is room for all of them.
                let _ = producer.push(completion);
            }
            kept.push(producer.written());
        }
        // Counts from before what was left in the ring are 0 now.
        let behind = |count: usize| usize::try_from(count.wrapping_sub(first) as isize).unwrap_or(0);
        self.0.shared.replace_ring(at, |count| kept[behind(count).min(kept.len() - 1)]);
        *old = consumer;
        core.replace_ring(self.0.id, producer);
    }

    /// Asks for one event when a completion comes: at the queue's channel, or by its own descriptor ([`CompletionQueue::descriptor`]). No
    /// event comes from a queue that has neither, or that is in the engines.
    ///
    /// A completion that is in the queue already raises the event at once, unless it raised the one before: as Mellanox hardware has it, so
    /// that a program may arm, and sleep without another poll. One event comes for one arming; to arm again before it came asks for the
    /// same one. A program that polls after arming may find the completion of an event that comes nevertheless.
    ///
    /// As long as a queue with a channel is armed, the NIC's own threads make progress: a program may sleep on the channel. They
    /// also do while somebody waits in [`CompletionQueue::wait`]; whoever waits by other means tells the NIC so by
    /// [`Context::hold_progress`].
    pub fn arm(&self, what: Notify) {
        match &self.0.shared.channel {
            Some(channel) => {
                self.0.context.engines().iter().for_each(|engine| engine.program_sleeps());
                channel.arm(what, |arm| self.rings().take_missed(arm));
            }
            None => {
                if let Some(OwnEvents { arm, wake }) = &self.0.shared.own {
                    wake.drain();
                    arm.arm(what == Notify::Solicited);
                    if self.rings().take_missed(arm) {
                        wake.wake();
                    }
                }
            }
        }
    }

    /// Whether its program hears of completions by a channel.
    pub(crate) fn has_channel(&self) -> bool {
        self.0.shared.channel.is_some()
    }

    /// Raises the event that its channel was asked for, if it was, though no completion came: whoever keeps completions back lets one go.
    pub fn raise(&self) {
        if let Some(channel) = &self.0.shared.channel {
            channel.raise_armed();
        }
    }

    /// Takes back what [`CompletionQueue::arm`] asked its channel for. When this returns no event of the queue is put there any more.
    pub fn disarm(&self) {
        if let Some(channel) = &self.0.shared.channel {
            channel.end();
            for engine in self.0.context.engines() {
                // Whoever is about to take the arm holds the engine.
                drop(engine.control());
            }
        }
    }

    /// Sleeps until there is a completion, or `timeout` has passed; whether there is one. The NIC's own thread makes progress meanwhile.
    ///
    /// # Errors
    /// What poll(2) says; [`io::ErrorKind::Unsupported`] when the queue has no descriptor of its own ([`Context::create_cq`]).
    pub fn wait(&self, timeout: Duration) -> io::Result<bool> {
        let Some(OwnEvents { arm, wake }) = &self.0.shared.own else { return Err(io::ErrorKind::Unsupported.into()) };
        let there = || self.rings().rings.iter_mut().any(|ring| !ring.is_empty());
        wake.drain();
        arm.arm(false);
        let found = match there() || self.0.context.progress() && there() {
            true => Ok(()),
            false => {
                let _running = self.0.context.programs_sleep();
                sleep_until_readable(wake, timeout)
            }
        };
        // A completion that nobody waits for any more must not count as one that raised an event.
        arm.disarm();
        found.map(|()| there())
    }

    /// Readable once what [`CompletionQueue::arm`] asked for has come; `None` where a channel says it, or nobody.
    pub fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        self.0.shared.own.as_ref().map(|own| own.wake.as_fd())
    }
}

impl fmt::Debug for CompletionQueue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("CompletionQueue").field(&self.0.id.0).finish()
    }
}

#[cfg(test)]
mod tests {
    use softnic_nic::transports::{PartialReason, Status, WcOpcode};

    use super::*;

    #[test]
    fn a_partial_completion_comes_out_of_the_rings_with_its_reason() {
        let (mut engine, program) = ring(2);
        let mut rings = Rings { rings: vec![program], next: 0 };
        let whole = Completion::new(1, Status::Success, WcOpcode::Recv, Qpn::new(17));
        let partial = Completion { byte_len: 24, partial: Some(PartialReason::Expired), ..whole };
        engine.push(partial).unwrap();
        let mut taken = Vec::new();
        assert_eq!(rings.take(2, |completion| taken.push(completion)), 1);
        assert_eq!(taken, [partial]);
    }
}
