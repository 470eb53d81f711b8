//! An engine: one queue of packet IO with the NIC that it drives, behind a token. Whoever holds the token makes progress: a program's
//! thread while it polls, or the engine's own.
//!
//! Programs never wait for the token to post work or to take completions. These go by rings: a queue pair has one for work requests, whose
//! doorbell tells the engine to look, and a completion queue has one from each engine.

mod posted;
mod watch;

use std::io;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, MutexGuard, OnceLock};

use crossbeam_queue::ArrayQueue;
use softnic_nic::transports::completion::CqId;
use softnic_nic::transports::{Completion, PostError};
use softnic_nic::{Nic, Notify};
use softnic_wire::Qpn;

pub(crate) use posted::{PostedRecv, PostedSend};
pub(crate) use watch::{Mode, Watcher};

use crate::api::completion_queue::CqShared;
use crate::api::events::Events;
use crate::driver::{Driver, DriverError};
use crate::io::PacketIo;
use crate::sync::ring::{Consumer, Producer};
use crate::sync::token::Token;
use crate::wake::Wake;

/// Queues of work that may have rung at a time: as many as an engine can have.
const MAX_QUEUES: usize = 1 << 16;

pub(crate) type Io = Box<dyn PacketIo + Send>;

/// Whose work a queue holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Target {
    Qp(Qpn),
    Srq(softnic_nic::transports::recv_queue::SrqId),
}

/// The engine's end of a queue of work requests.
pub(crate) struct WorkQueue {
    pub(crate) target: Target,
    pub(crate) sends: Consumer<PostedSend>,
    pub(crate) recvs: Consumer<PostedRecv>,
    pub(crate) rung: Arc<AtomicBool>,
}

/// The engine's end of a completion queue.
pub(crate) struct CqOut {
    pub(crate) ring: Producer<Completion>,
    pub(crate) shared: Arc<CqShared>,
}

/// What the holder of the token has.
pub(crate) struct Core {
    pub(crate) driver: Driver<Nic, Io>,
    work: Vec<Option<WorkQueue>>,
    /// Queues whose work found no room in the NIC.
    stalled: Vec<u32>,
    cqs: Vec<Option<CqOut>>,
    /// Completion queues whose ring had no room.
    full: Vec<CqId>,
    events: Arc<Events>,
}

/// An engine.
pub(crate) struct Engine {
    token: Token<Core>,
    doorbells: ArrayQueue<u32>,
    /// Wakes the engine's own thread.
    wake: Wake,
    /// The backend's sign that a frame has come in.
    readiness: OwnedFd,
    /// How often progress was made: by this the engine's own thread sees that somebody else does.
    rounds: AtomicU64,
    /// A program's thread polled and found the engine taken.
    tried: AtomicBool,
    /// Programs that sleep until a completion comes: then the engine's own thread must run.
    sleeping_programs: AtomicU32,
    stop: AtomicBool,
    /// Why it stopped by itself.
    failure: OnceLock<String>,
}

impl Engine {
    pub(crate) fn new(driver: Driver<Nic, Io>, events: Arc<Events>) -> io::Result<Engine> {
        let readiness = driver.io().readiness()?;
        let core = Core { driver, work: Vec::new(), stalled: Vec::new(), cqs: Vec::new(), full: Vec::new(), events };
        Ok(Engine {
            token: Token::new(core),
            doorbells: ArrayQueue::new(MAX_QUEUES),
            wake: Wake::new()?,
            readiness,
            rounds: AtomicU64::new(0),
            tried: AtomicBool::new(false),
            sleeping_programs: AtomicU32::new(0),
            stop: AtomicBool::new(false),
            failure: OnceLock::new(),
        })
    }

    /// The engine to oneself: for everything but posting and polling.
    pub(crate) fn control(&self) -> MutexGuard<'_, Core> {
        self.token.take()
    }

    /// Makes progress if nobody else does right now; says whether there was anything to do.
    #[inline]
    pub(crate) fn try_progress(&self) -> bool {
        match self.token.try_take() {
            Some(mut core) => self.progress(&mut core),
            None => {
                self.tried.store(true, Ordering::Relaxed);
                false
            }
        }
    }

    /// Work was put into the queue `index`, published before this.
    #[inline]
    pub(crate) fn ring(&self, index: u32, rung: &AtomicBool) {
        // Who finds it rung already knows that the engine has not looked yet.
        if !rung.swap(true, Ordering::AcqRel) {
            // There are no more queues than places.
            let _ = self.doorbells.push(index);
            self.wake.wake_sleeper();
        }
    }

    /// One round, for the holder of the token.
    pub(crate) fn progress(&self, core: &mut Core) -> bool {
        self.rounds.fetch_add(1, Ordering::Relaxed);
        let posted = core.take_work(&self.doorbells);
        let busy = match core.driver.step() {
            Ok(busy) => busy,
            Err(error) => {
                self.fail(core, &error);
                false
            }
        };
        core.hand_out();
        posted || busy
    }

    /// The backend failed: the port is down for good, and every retry that is under way will end in an error.
    #[cold]
    fn fail(&self, core: &mut Core, error: &DriverError) {
        if self.failure.set(error.to_string()).is_ok() {
            core.driver.node.set_link(false);
        }
    }

    /// Why it stopped by itself, if it did.
    pub(crate) fn failure(&self) -> Option<&str> {
        self.failure.get().map(String::as_str)
    }

    /// A program is about to sleep until a completion comes.
    pub(crate) fn program_sleeps(&self) {
        self.sleeping_programs.fetch_add(1, Ordering::AcqRel);
        self.wake.wake();
    }

    /// It is awake again.
    pub(crate) fn program_awake(&self) {
        self.sleeping_programs.fetch_sub(1, Ordering::AcqRel);
    }
}

impl Core {
    /// A queue of work requests; its number.
    pub(crate) fn add_work(&mut self, queue: WorkQueue) -> Option<u32> {
        let index = self.work.iter().position(Option::is_none).unwrap_or(self.work.len());
        if index >= MAX_QUEUES {
            return None;
        }
        if index == self.work.len() {
            self.work.push(None);
        }
        self.work[index] = Some(queue);
        Some(index as u32)
    }

    /// How many queue pairs there are.
    pub(crate) fn queue_pairs(&self) -> usize {
        let is_qp = |queue: &&WorkQueue| matches!(queue.target, Target::Qp(_));
        self.work.iter().flatten().filter(is_qp).count()
    }

    pub(crate) fn remove_work(&mut self, index: u32) {
        if let Some(place) = self.work.get_mut(index as usize) {
            *place = None;
        }
    }

    /// Takes over the work of one queue at once: before its queue pair changes its state.
    pub(crate) fn take_work_of(&mut self, index: u32) {
        self.take_from(index);
    }

    pub(crate) fn add_cq(&mut self, id: CqId, out: CqOut) {
        let at = id.0 as usize;
        if at >= self.cqs.len() {
            self.cqs.resize_with(at + 1, || None);
        }
        self.cqs[at] = Some(out);
        // The NIC tells of every queue that has something; asked for again whenever it was told.
        let _ = self.driver.node.req_notify_cq(id, Notify::Next);
    }

    pub(crate) fn remove_cq(&mut self, id: CqId) {
        if let Some(place) = self.cqs.get_mut(id.0 as usize) {
            *place = None;
        }
        self.full.retain(|&full| full != id);
    }

    /// Takes over the work of the queues that rang, and of those that had to wait.
    #[inline]
    fn take_work(&mut self, doorbells: &ArrayQueue<u32>) -> bool {
        let mut any = false;
        for index in std::mem::take(&mut self.stalled) {
            any |= self.take_from(index);
        }
        while let Some(index) = doorbells.pop() {
            any |= self.take_from(index);
        }
        any
    }

    /// Takes over the work of one queue; says whether there was any.
    fn take_from(&mut self, index: u32) -> bool {
        let now = self.driver.now();
        let nic = &mut self.driver.node;
        let Some(Some(queue)) = self.work.get_mut(index as usize) else { return false };
        // First, so that who posts from now on rings again.
        queue.rung.swap(false, Ordering::AcqRel);
        let (mut any, mut full) = (false, false);
        let mut taken = |done: Result<(), PostError>| match done {
            Err(PostError::QueueFull) => {
                full = true;
                false
            }
            // What else is wrong with it was told when it was posted; the queue pair was reset since.
            _ => {
                any = true;
                true
            }
        };
        let target = queue.target;
        let recv = |wr: &PostedRecv, nic: &mut Nic| match target {
            Target::Qp(qpn) => nic.post_recv(qpn, &wr.wr()),
            Target::Srq(srq) => nic.post_srq_recv(srq, &wr.wr()),
        };
        while queue.recvs.peek(|wr| taken(recv(wr, nic))) == Some(true) {
            queue.recvs.pop();
        }
        if let Target::Qp(qpn) = target {
            let mut rang = false;
            while queue.sends.peek(|wr| taken(nic.write_send(qpn, &wr.wr()))) == Some(true) {
                queue.sends.pop();
                rang = true;
            }
            if rang {
                nic.ring_doorbell(now, qpn);
            }
        }
        if full {
            self.stalled.push(index);
        }
        any
    }

    /// Hands completions and events to the program.
    #[inline]
    fn hand_out(&mut self) {
        for id in std::mem::take(&mut self.full) {
            self.hand_out_cq(id);
        }
        while let Some(id) = self.driver.node.poll_completion_event() {
            self.hand_out_cq(id);
        }
        while let Some(event) = self.driver.node.poll_event() {
            self.events.push(event);
        }
    }

    fn hand_out_cq(&mut self, id: CqId) {
        let nic = &mut self.driver.node;
        let Some(Some(out)) = self.cqs.get_mut(id.0 as usize) else { return };
        let mut solicited = false;
        let mut any = false;
        loop {
            if out.ring.room() == 0 {
                self.full.push(id);
                break;
            }
            match nic.poll_cq(id) {
                Ok(Some(completion)) => {
                    solicited |= completion.solicited || completion.status != softnic_nic::transports::Status::Success;
                    // There is room: just looked.
                    let _ = out.ring.push(completion);
                    any = true;
                }
                Ok(None) => {
                    let _ = nic.req_notify_cq(id, Notify::Next);
                    break;
                }
                Err(_) => {
                    out.shared.set_overflowed();
                    break;
                }
            }
        }
        if any {
            out.shared.on_completions(solicited);
        }
    }

    /// After what time there is something to do although nothing comes in.
    fn due_in(&self) -> Option<std::time::Duration> {
        match self.stalled.is_empty() && self.full.is_empty() {
            true => self.driver.due_in(),
            false => Some(watch::LOOK_AGAIN),
        }
    }

    /// The NIC.
    pub(crate) fn nic(&mut self) -> &mut Nic {
        &mut self.driver.node
    }
}
