//! An engine: one queue of packet IO with the NIC that it drives, behind a token. Whoever holds the token makes progress: a program's
//! thread while it polls, or the engine's own.
//!
//! Programs never wait for the token to post work or to take completions. These go by rings: a queue pair has one for work requests, whose
//! doorbell tells the engine to look, and a completion queue has one from each engine.

mod posted;
mod watch;

use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd, RawFd};
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, MutexGuard, OnceLock};

use softnic_nic::transports::completion::CqId;
use softnic_nic::transports::qp::QpState;
use softnic_nic::transports::recv_queue::SrqId;
use softnic_nic::transports::{Completion, Event, PostError};
use softnic_nic::{Nic, Notify, Owner, QpAttr};
use softnic_sync::doorbell::{Doorbells, Rung};
use softnic_sync::ring::{Consumer, Producer};
use softnic_sync::token::Token;
use softnic_wire::{Instant, Qpn};

pub(crate) use posted::{PostedRecv, PostedSend};
pub(crate) use watch::{Mode, Watcher};

use crate::api::completion_queue::CqShared;
use crate::api::events::Events;
use crate::driver::Driver;
use crate::io::PacketIo;
use crate::wake::Wake;

/// Queues of work that may have rung at a time: as many as an engine can have.
const MAX_QUEUES: usize = 1 << 16;

pub(crate) type Io = Box<dyn PacketIo + Send>;

/// Whose work a queue holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Target {
    Qp(Qpn),
    Srq(SrqId),
}

/// The engine's end of a queue of work requests.
pub(crate) struct WorkQueue {
    pub(crate) target: Target,
    pub(crate) sends: Consumer<PostedSend>,
    pub(crate) recvs: Consumer<PostedRecv>,
    pub(crate) rung: Arc<Rung>,
    /// Where sends and receives complete, if that is known.
    pub(crate) cqs: Option<(CqId, CqId)>,
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
    owner: Owner,
}

/// An engine.
pub(crate) struct Engine {
    token: Token<Core>,
    doorbells: Doorbells,
    /// Wakes the engine's own thread.
    wake: Wake,
    /// The backend's sign that a frame has come in.
    readiness: OwnedFd,
    /// How often progress was made: by this the engine's own thread sees that somebody else does.
    rounds: AtomicU64,
    /// A program's thread polled and found the engine taken.
    tried: AtomicBool,
    /// Programs that sleep until a completion comes: then the engine's own thread must run.
    sleeping_programs: Arc<AtomicU32>,
    stop: AtomicBool,
    /// Why it stopped by itself.
    failure: OnceLock<String>,
}

impl Engine {
    pub(crate) fn new(mut driver: Driver<Nic, Io>, owner: Owner, events: Arc<Events>) -> io::Result<Engine> {
        let readiness = driver.io().readiness()?;
        driver.node.set_owner(owner);
        let (work, stalled, cqs, full) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
        let core = Core { driver, work, stalled, cqs, full, events, owner };
        Ok(Engine {
            token: Token::new(core),
            doorbells: Doorbells::new(MAX_QUEUES),
            wake: Wake::new()?,
            readiness,
            rounds: AtomicU64::new(0),
            tried: AtomicBool::new(false),
            sleeping_programs: Arc::default(),
            stop: AtomicBool::new(false),
            failure: OnceLock::new(),
        })
    }

    /// The engine to oneself: for everything but posting and polling.
    pub(crate) fn control(&self) -> MutexGuard<'_, Core> {
        let mut core = self.token.take();
        core.driver.refresh();
        core
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
    pub(crate) fn ring(&self, index: u32, rung: &Rung) {
        if self.doorbells.ring(index, rung) {
            self.wake.wake_sleeper();
        }
    }

    /// One round, for the holder of the token.
    pub(crate) fn progress(&self, core: &mut Core) -> bool {
        // Only the holder of the token writes it.
        self.rounds.store(self.rounds.load(Ordering::Relaxed).wrapping_add(1), Ordering::Relaxed);
        let posted = core.take_work(&self.doorbells);
        let busy = match self.failure.get() {
            None => core.driver.step_after(posted).unwrap_or_else(|error| {
                self.give_up(core, &error.to_string());
                false
            }),
            Some(_) => {
                if posted.is_some() {
                    core.end_queue_pairs();
                }
                false
            }
        };
        core.hand_out();
        posted.is_some() || busy
    }

    /// Sends what is owed to peers: an acknowledgement leaves in the round after the one that handed out what it is for, and a program
    /// that got what it waited for may make no other round, because it destroys its queue pair or ends.
    pub(crate) fn settle(&self, core: &mut Core) {
        if self.failure.get().is_none()
            && let Err(error) = core.driver.send_owed()
        {
            self.give_up(core, &error.to_string());
        }
    }

    /// The wire is gone for good: so is the port, and all work ends in errors.
    #[cold]
    pub(crate) fn give_up(&self, core: &mut Core, why: &str) {
        if self.failure.set(why.into()).is_ok() {
            core.driver.node.set_link(false);
            core.end_queue_pairs();
            core.events.port(false);
            self.wake.wake();
        }
    }

    /// Writes out what was recorded so far: a program may be killed, or never close its NIC.
    pub(crate) fn flush_recording(&self, core: &mut Core) {
        if let Err(error) = core.driver.flush_recording() {
            self.give_up(core, &error.to_string());
        }
    }

    /// The descriptors that it holds.
    pub(crate) fn descriptors(&self) -> Vec<RawFd> {
        let mut all = vec![self.wake.as_fd().as_raw_fd(), self.readiness.as_raw_fd()];
        all.extend(self.control().driver.io().descriptors());
        all
    }

    /// Why it stopped by itself, if it did.
    pub(crate) fn failure(&self) -> Option<&str> {
        self.failure.get().map(String::as_str)
    }

    /// There is something to do that no doorbell told of: the engine's own thread should look.
    pub(crate) fn wake(&self) {
        self.wake.wake();
    }

    /// A program is about to sleep until a completion comes.
    pub(crate) fn program_sleeps(&self) {
        // Where one sleeps already the engine's thread knows.
        if self.sleeping_programs.fetch_add(1, Ordering::AcqRel) == 0 {
            self.wake.wake();
        }
    }

    /// How many programs sleep: for whoever takes one off without having the engine.
    pub(crate) fn sleeping_programs(&self) -> Arc<AtomicU32> {
        Arc::clone(&self.sleeping_programs)
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

    /// Forgets the work of one queue: its queue pair was reset.
    pub(crate) fn forget_work_of(&mut self, index: u32) {
        if let Some(Some(queue)) = self.work.get_mut(index as usize) {
            while queue.sends.pop().is_some() || queue.recvs.pop().is_some() {}
        }
    }

    /// Puts all queue pairs into the error state: what was posted, and what will be, is flushed.
    fn end_queue_pairs(&mut self) {
        let error = QpAttr { state: Some(QpState::Error), ..QpAttr::default() };
        for index in 0..self.work.len() {
            self.take_work_of(index as u32);
            if let Some(WorkQueue { target: Target::Qp(qpn), .. }) = &self.work[index] {
                // One that was never connected stays as it is.
                let _ = self.driver.node.modify_qp(*qpn, &error);
            }
        }
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

    /// Completions go into another ring from now on.
    pub(crate) fn replace_ring(&mut self, id: CqId, ring: Producer<Completion>) {
        if let Some(Some(out)) = self.cqs.get_mut(id.0 as usize) {
            out.ring = ring;
        }
    }

    pub(crate) fn remove_cq(&mut self, id: CqId) {
        if let Some(place) = self.cqs.get_mut(id.0 as usize) {
            *place = None;
        }
        self.full.retain(|&full| full != id);
    }

    /// Takes over the work of the queues that rang, and of those that had to wait; when it did, if there was any.
    #[inline]
    fn take_work(&mut self, doorbells: &Doorbells) -> Option<Instant> {
        let mut taken = None;
        // From the end: what has to wait again is put behind those that are still to come.
        for i in (0..self.stalled.len()).rev() {
            let index = self.stalled.swap_remove(i);
            taken = self.take_work_of(index).or(taken);
        }
        while let Some(index) = doorbells.next() {
            taken = self.take_work_of(index).or(taken);
        }
        taken
    }

    /// Takes over the work of one queue: when it rang, and before its queue pair changes its state. Says when that was,
    /// if there was any.
    pub(crate) fn take_work_of(&mut self, index: u32) -> Option<Instant> {
        let now = self.driver.now();
        let nic = &mut self.driver.node;
        let Some(Some(queue)) = self.work.get_mut(index as usize) else { return None };
        queue.rung.answer();
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
        // A program that posts as long as there is room, and takes completions later, must not lose any: work waits in its ring until
        // they are taken. What was begun before finds room in the NIC's own queue.
        let waits = queue.cqs.map_or([false; 2], |(send, recv)| [send, recv].map(|cq| self.full.contains(&cq)));
        while !waits[1] && queue.recvs.peek(|wr| taken(recv(wr, nic))) == Some(true) {
            queue.recvs.pop();
        }
        if let Target::Qp(qpn) = target {
            let mut rang = false;
            while !waits[0] && queue.sends.peek(|wr| taken(nic.write_send(qpn, &wr.wr()))) == Some(true) {
                queue.sends.pop();
                rang = true;
            }
            if rang {
                nic.ring_doorbell(now, qpn);
            }
        }
        if (full || waits != [false; 2]) && !self.stalled.contains(&index) {
            self.stalled.push(index);
        }
        any.then_some(now)
    }

    /// Hands completions and events to the program: at the end of a round, and after a call that makes some.
    #[inline]
    pub(crate) fn hand_out(&mut self) {
        for i in (0..self.full.len()).rev() {
            let id = self.full.swap_remove(i);
            self.hand_out_cq(id);
        }
        while let Some(id) = self.driver.node.poll_completion_event() {
            self.hand_out_cq(id);
        }
        while let Some(event) = self.driver.node.poll_event() {
            match event {
                // Whoever told the engines tells the program, once for all of them.
                Event::PortActive | Event::PortErr | Event::GidChange => {}
                Event::SrqLimit(srq) => self.events.push(Event::SrqLimit(self.srq_name(srq))),
                event => self.events.push(event),
            }
        }
    }

    /// What events call a shared receive queue of this engine: each engine counts its own.
    pub(crate) fn srq_name(&self, srq: SrqId) -> SrqId {
        SrqId(srq.0 << self.owner.bits | self.owner.index)
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
