//! An engine: one queue of packet IO and the NIC that it drives, behind a token. The thread that holds the token makes progress: a program
//! thread while it polls, or the engine's own thread.
//!
//! Programs never wait for the token to post work or to poll completions; both go through rings. Each queue pair has a ring for work
//! requests, and a doorbell that tells the engine to look into it. Each completion queue has one ring from each engine.

mod completions;
mod posted;
mod priority;
mod watch;
mod work;

use std::io;
use std::os::fd::{AsFd, AsRawFd, RawFd};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, MutexGuard, OnceLock};
use std::time::Duration;

use softnic_nic::transports::qp::QpState;
use softnic_nic::transports::{BestEffort, Completion, CqId, Event, SrqId};
use softnic_nic::{Nic, Notify, Owner, QpAttr};
use softnic_shift::DualNic;
use softnic_sync::doorbell::Doorbells;
use softnic_sync::ring::Producer;
use softnic_sync::takeover::Takeover;
use softnic_wire::{Instant, Qpn};

pub(crate) use completions::CqOut;
pub(crate) use posted::{PostedRecv, PostedSend};
pub(crate) use watch::{Mode, Watcher};
pub(crate) use work::{Target, WorkQueue};

use completions::Completions;
use work::Work;

use crate::api::events::Events;
use crate::driver::{Driver, DriverError, Readiness};
use crate::failover::list::Control;
use crate::io::PacketIo;
use crate::wake::Wake;

/// Maximum number of work queues that an engine can have, and so the number of its doorbells.
const MAX_QUEUES: usize = 1 << 16;

pub(crate) type Io = Box<dyn PacketIo + Send>;

/// The state that the holder of the token may access.
pub(crate) struct Core {
    pub(crate) driver: Driver<DualNic, Io>,
    work: Work,
    completions: Completions,
    events: Arc<Events>,
    owner: Owner,
    /// The control of the backup NIC, if there is one.
    control: Option<Arc<Control>>,
}

/// An engine.
pub(crate) struct Engine {
    /// The token that protects the state, and the state that its threads share.
    takeover: Takeover<Core>,
    /// The start of the engine's clock.
    start: std::time::Instant,
    doorbells: Doorbells,
    /// Wakes the engine's own thread.
    wake: Wake,
    /// The descriptors of the backends that show an incoming frame.
    readiness: Arc<Readiness>,
    /// Number of programs that sleep until a completion arrives. While it is not 0 the engine's own thread must run.
    sleeping_programs: Arc<AtomicU32>,
    stop: AtomicBool,
    /// Why the engine failed, if it did.
    failure: OnceLock<String>,
}

impl Engine {
    pub(crate) fn new(
        mut driver: Driver<DualNic, Io>,
        owner: Owner,
        events: Arc<Events>,
        control: Option<Arc<Control>>,
    ) -> io::Result<Engine> {
        let readiness = driver.readiness()?;
        driver.node.nic.set_owner(owner);
        let start = driver.start();
        let (work, completions) = (Work::default(), Completions::default());
        let core = Core { driver, work, completions, events, owner, control };
        Ok(Engine {
            takeover: Takeover::new(core),
            start,
            doorbells: Doorbells::new(MAX_QUEUES),
            wake: Wake::new()?,
            readiness,
            sleeping_programs: Arc::default(),
            stop: AtomicBool::new(false),
            failure: OnceLock::new(),
        })
    }

    /// Takes exclusive access to the engine, for everything except posting and polling.
    pub(crate) fn control(&self) -> MutexGuard<'_, Core> {
        let mut core = self.takeover.take();
        core.driver.refresh();
        core
    }

    /// The engine's current time, for programs; needs no token.
    pub(crate) fn now(&self) -> Instant {
        Instant::ZERO + self.start.elapsed()
    }

    /// The best-effort attributes of a work request, with a deadline `limit` from now.
    pub(crate) fn within(&self, work: Option<&BestEffort>, limit: Duration) -> BestEffort {
        BestEffort { deadline: Some(self.now() + limit), ..work.copied().unwrap_or_default() }
    }

    /// Makes progress if no other thread runs the engine right now. Returns whether there was work.
    #[inline]
    pub(crate) fn try_progress(&self) -> bool {
        // Work that waits for room needs another round, and this round may be the program's last one.
        let due = |core: &Core| match core.waits_for_room() {
            true => Some(0),
            // Most rounds of a polling program only look for a frame. Reading all timers would take a good part of such a round.
            false if core.driver.was_in_vain() => None,
            false => core.driver.next_timeout().map(|at| at.as_nanos()),
        };
        self.takeover.try_run(|core| self.progress(core), due, &self.wake).unwrap_or(false)
    }

    /// Rings for the queue `index`, whose new work was published before this call.
    #[inline]
    pub(crate) fn ring(&self, index: u32) {
        if self.doorbells.ring(index) {
            self.wake.wake_sleeper();
        }
    }

    /// Makes one round. Called by the holder of the token.
    pub(crate) fn progress(&self, core: &mut Core) -> bool {
        self.takeover.count_round();
        let busy = match self.failure.get() {
            None => core.step(&self.doorbells).unwrap_or_else(|error| {
                self.handle_error(core, &error);
                false
            }),
            Some(_) => {
                let rang = core.work.is_waiting(&self.doorbells);
                if rang {
                    core.take_work(&self.doorbells);
                    core.end_queue_pairs();
                }
                rang
            }
        };
        core.hand_out();
        busy
    }

    /// Sends the acknowledgements that are owed to peers. An acknowledgement normally leaves in the round after the one that delivered the
    /// completion. A program that has its last completion may make no further round, because it destroys its queue pair or exits. `None`
    /// means all queue pairs of the engine.
    pub(crate) fn settle(&self, core: &mut Core, qpn: Option<Qpn>) {
        match qpn {
            Some(qpn) => core.driver.node.release_acks(qpn),
            None => {
                core.take_work(&self.doorbells);
                for qpn in core.work.queue_pairs() {
                    core.driver.node.release_acks(qpn);
                }
            }
        }
        if self.failure.get().is_none()
            && let Err(error) = core.driver.send_owed()
        {
            self.handle_error(core, &error);
        }
    }

    /// The time until the next frame leaves that a fault holds back; none leaves if the wire is gone.
    pub(crate) fn leaves_in(&self) -> Option<Duration> {
        self.failure.get().is_none().then(|| self.control().driver.leaves_in()).flatten()
    }

    /// Sends the posted work, as far as there is room, before an object that the work needs is destroyed.
    pub(crate) fn send_posted(&self, core: &mut Core) {
        core.take_work(&self.doorbells);
        if self.failure.get().is_none()
            && let Err(error) = core.driver.send_owed()
        {
            self.handle_error(core, &error);
        }
    }

    /// Handles an error of the driver loop: a port is lost, or the engine gives up.
    #[cold]
    fn handle_error(&self, core: &mut Core, error: &DriverError) {
        match error {
            DriverError::Io { port, .. } => self.lose_port(core, *port, &error.to_string()),
            _ => self.give_up(core, &error.to_string()),
        }
    }

    /// The wire of a port is gone for good. If another port remains, protected connections continue there; other work waits or ends when
    /// its retries are exhausted.
    #[cold]
    pub(crate) fn lose_port(&self, core: &mut Core, number: usize, why: &str) {
        if core.driver.io_of(number).is_none() {
            return;
        }
        if !core.driver.retire(number) {
            return self.give_up(core, why);
        }
        core.nic_of(number).into_iter().for_each(|nic| nic.set_link(false));
        if number == Nic::WIRE {
            core.end_unprotected();
        }
        if let Some(control) = &core.control {
            control.say(format!("{} is gone: {why}", if number == Nic::WIRE { "the NIC" } else { "its backup" }));
        }
        self.wake.wake();
    }

    /// No wire is left: the port goes down and all work ends in errors.
    #[cold]
    pub(crate) fn give_up(&self, core: &mut Core, why: &str) {
        if self.failure.set(why.into()).is_ok() {
            core.driver.node.nic.set_link(false);
            core.driver.node.backup().into_iter().for_each(|nic| nic.set_link(false));
            core.end_queue_pairs();
            core.events.port(false);
            self.wake.wake();
        }
    }

    /// Writes out the recorded frames. A program may be killed, or may never close its NIC.
    pub(crate) fn flush_recording(&self, core: &mut Core) {
        if let Err(error) = core.driver.flush_recording() {
            self.give_up(core, &error.to_string());
        }
    }

    /// The file descriptors that the engine holds.
    pub(crate) fn descriptors(&self) -> Vec<RawFd> {
        let mut all = vec![self.wake.as_fd().as_raw_fd()];
        all.extend(self.readiness.descriptors());
        all.extend(self.control().driver.ios().flat_map(|io| io.descriptors()));
        all
    }

    /// Why the engine failed, if it did.
    pub(crate) fn failure(&self) -> Option<&str> {
        self.failure.get().map(String::as_str)
    }

    /// Wakes the engine's own thread, to look for work that no doorbell announced.
    pub(crate) fn wake(&self) {
        self.wake.wake();
    }

    /// Wakes the engine's own thread only if it sleeps.
    #[inline]
    pub(crate) fn wake_sleeper(&self) {
        self.wake.wake_sleeper();
    }

    /// A program is about to sleep until a completion arrives.
    pub(crate) fn program_sleeps(&self) {
        // If another program already sleeps, the engine thread knows.
        if self.sleeping_programs.fetch_add(1, Ordering::AcqRel) == 0 {
            self.wake.wake();
        }
    }

    /// The counter of sleeping programs, for code that decrements it without holding the engine.
    pub(crate) fn sleeping_programs(&self) -> Arc<AtomicU32> {
        Arc::clone(&self.sleeping_programs)
    }

    /// A program that slept is awake again.
    pub(crate) fn program_awake(&self) {
        self.sleeping_programs.fetch_sub(1, Ordering::AcqRel);
    }
}

impl Core {
    /// Adds a queue of work requests; returns its number.
    pub(crate) fn add_work(&mut self, queue: WorkQueue) -> Option<u32> {
        self.work.add(queue)
    }

    pub(crate) fn remove_work(&mut self, index: u32) {
        self.work.remove(index);
    }

    /// Drops the work of one queue, because its queue pair was reset.
    pub(crate) fn forget_work_of(&mut self, index: u32) {
        self.work.forget(index);
    }

    /// Number of queue pairs.
    pub(crate) fn queue_pairs(&self) -> usize {
        self.work.queue_pairs().count()
    }

    /// Takes the work of one queue, before its queue pair changes its state.
    pub(crate) fn take_work_of(&mut self, index: u32) {
        let now = self.driver.now();
        let full = self.completions.still_full(&mut self.driver.node);
        self.work.take_of(index, &mut self.driver.node, now, full);
    }

    /// Makes one round of the driver, with the work of the queues that rang.
    #[inline]
    fn step(&mut self, doorbells: &Doorbells) -> Result<bool, DriverError> {
        let Core { driver, work, completions, .. } = self;
        let posted = match work.is_waiting(doorbells) {
            false => None,
            true => {
                let now = driver.now();
                let full = completions.still_full(&mut driver.node);
                work.take(&mut driver.node, now, full, doorbells).then_some(now)
            }
        };
        // A receive that was posted before the peer sent a message must be present when the message arrives. The work taken before the
        // round may be older than the frames that are received at its end, so the doorbells are checked again before each frame.
        let busy = driver.step_after(posted, &mut |node, now| {
            if work.is_waiting(doorbells) {
                let full = completions.still_full(node);
                work.take(node, now, full, doorbells);
            }
        })?;
        Ok(posted.is_some() || busy)
    }

    /// Takes the work of all queues that rang.
    fn take_work(&mut self, doorbells: &Doorbells) {
        let now = self.driver.now();
        let full = self.completions.still_full(&mut self.driver.node);
        self.work.take(&mut self.driver.node, now, full, doorbells);
    }

    /// Puts all queue pairs into the error state: posted work, and work posted later, is flushed.
    fn end_queue_pairs(&mut self) {
        let error = QpAttr { state: Some(QpState::Error), ..QpAttr::default() };
        let now = self.driver.now();
        let full = self.completions.still_full(&mut self.driver.node);
        self.work.take_all(&mut self.driver.node, now, full);
        for qpn in self.work.queue_pairs() {
            // A queue pair that was never connected stays in its state.
            let _ = self.driver.node.modify_qp(now, qpn, &error);
        }
    }

    /// Puts the queue pairs without a backup into the error state, because their wire is gone.
    fn end_unprotected(&mut self) {
        let error = QpAttr { state: Some(QpState::Error), ..QpAttr::default() };
        let now = self.driver.now();
        let full = self.completions.still_full(&mut self.driver.node);
        self.work.take_all(&mut self.driver.node, now, full);
        for qpn in self.work.queue_pairs() {
            if !self.driver.node.is_protected(qpn) {
                let _ = self.driver.node.modify_qp(now, qpn, &error);
            }
        }
    }

    pub(crate) fn add_cq(&mut self, id: CqId, out: CqOut) {
        self.completions.add(id, out);
        // The NIC notifies once for each queue with completions; the engine arms again after every notification.
        let _ = self.driver.node.nic.req_notify_cq(id, Notify::Next);
    }

    /// Switches a completion queue to another ring.
    pub(crate) fn replace_ring(&mut self, id: CqId, ring: Producer<Completion>) {
        self.completions.replace_ring(id, ring);
    }

    pub(crate) fn remove_cq(&mut self, id: CqId) {
        self.completions.remove(id);
    }

    /// Passes completions and events to the program. Called at the end of a round, and after a call that produces some.
    #[inline]
    pub(crate) fn hand_out(&mut self) {
        self.completions.hand_out(&mut self.driver.node);
        while let Some(event) = self.driver.node.poll_event() {
            match event {
                // With a backup, only the two ports together determine the state that the program sees.
                Event::PortActive | Event::PortErr if self.control.is_some() => {
                    self.events.port(event == Event::PortActive);
                }
                // The caller that reported this to the engines also reports it to the program, once for all engines.
                Event::PortActive | Event::PortErr | Event::GidChange => {}
                Event::SrqLimit(srq) => self.events.push(Event::SrqLimit(self.srq_name(srq))),
                event => self.events.push(event),
            }
        }
        self.pass_requests();
    }

    /// Wakes the thread that serves the requests of the Node, if there are any. Also reports whether a verb left work to be done at the
    /// backup.
    #[inline]
    pub(crate) fn pass_requests(&self) {
        let Some(control) = &self.control else { return };
        if self.driver.node.has_requests() {
            control.wake();
        }
        if self.driver.node.owes() {
            control.leave_rest();
        }
    }

    /// The number by which events name a shared receive queue of this engine. Each engine numbers its own queues.
    pub(crate) fn srq_name(&self, srq: SrqId) -> SrqId {
        SrqId(srq.0 << self.owner.bits | self.owner.index)
    }

    /// The time until there is work even if no frame arrives.
    fn due_in(&self) -> Option<Duration> {
        let due = self.driver.due_in();
        match self.waits_for_room() {
            true => Some(due.map_or(watch::LOOK_AGAIN, |due| due.min(watch::LOOK_AGAIN))),
            false => due,
        }
    }

    /// Whether work, completions or frames wait for room. No notification arrives when room becomes free.
    fn waits_for_room(&self) -> bool {
        self.work.has_stalled() || self.completions.any_full() || self.driver.is_held_up()
    }

    /// The NIC.
    pub(crate) fn nic(&mut self) -> &mut Nic {
        &mut self.driver.node.nic
    }

    /// The NIC and its backup, if there is one.
    pub(crate) fn dual(&mut self) -> &mut DualNic {
        &mut self.driver.node
    }

    /// The NIC of a port: for [`Nic::WIRE`] the NIC that programs see, for [`DualNic::BACKUP`] its backup.
    pub(crate) fn nic_of(&mut self, number: usize) -> Option<&mut Nic> {
        match number {
            DualNic::BACKUP => self.driver.node.backup(),
            _ => Some(&mut self.driver.node.nic),
        }
    }

    /// Whether there is a backup.
    pub(crate) fn has_backup(&self) -> bool {
        self.control.is_some()
    }

    /// Whether at least one wire is up, including the backup's.
    pub(crate) fn is_up(&mut self) -> bool {
        let mut is_up = |number| self.nic_of(number).is_some_and(|nic| nic.is_up()) && !self.driver.is_cut(number);
        is_up(Nic::WIRE) || is_up(DualNic::BACKUP)
    }
}
