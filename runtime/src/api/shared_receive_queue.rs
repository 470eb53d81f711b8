//! Shared receive queues.

use std::fmt;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use softnic_nic::ObjectError;
use softnic_nic::transports::{PostError, RecvRules, RecvWr, SrqId};
use softnic_sync::ring::{Producer, ring};

use super::context::ProtectionDomain;
use crate::engine::{Engine, PostedRecv, Target, WorkQueue};
use crate::locked::lock;

/// A shared receive queue. It lives as long as a queue pair takes receives from it; clones are the same queue.
///
/// Its queue pairs are all at one engine, the one where it is.
#[derive(Clone)]
pub struct SharedReceiveQueue(Arc<Srq>);

struct Srq {
    /// Keeps the domain, and the NIC, alive.
    _pd: ProtectionDomain,
    engine: Arc<Engine>,
    index: u32,
    /// Its name at its engine, and its name in events.
    at_engine: SrqId,
    id: SrqId,
    max_wr: u32,
    rules: RecvRules,
    recvs: Mutex<Producer<PostedRecv>>,
}

impl Drop for Srq {
    fn drop(&mut self) {
        let mut core = self.engine.control();
        core.remove_work(self.index);
        // Queue pairs that use it keep it alive, so none does.
        let _ = core.nic().destroy_srq(self.at_engine);
    }
}

impl ProtectionDomain {
    /// Makes a shared receive queue.
    ///
    /// # Errors
    /// When it asks for more than there can be.
    pub fn create_srq(&self, max_wr: u32, max_sge: u32) -> Result<SharedReceiveQueue, ObjectError> {
        self.create_srq_of(max_wr, RecvRules::new(max_sge))
    }

    /// Makes a shared receive queue whose receives keep to the rules. Where they may have deadlines, only queue pairs that keep
    /// deadlines take receives from it.
    ///
    /// # Errors
    /// As [`ProtectionDomain::create_srq`].
    pub fn create_srq_of(&self, max_wr: u32, rules: RecvRules) -> Result<SharedReceiveQueue, ObjectError> {
        let engine = self.inner().pick_engine();
        let mut core = engine.control();
        let at_engine = core.nic().create_srq_of(self.id(), max_wr, rules)?;
        let (recvs, recvs_out) = ring(max_wr as usize);
        let (_, sends) = ring(1);
        let queue = WorkQueue { target: Target::Srq(at_engine), connection: None, sends, recvs: recvs_out, cqs: None };
        let Some(index) = core.add_work(queue) else {
            let _ = core.nic().destroy_srq(at_engine);
            return Err(ObjectError::NoNumbers);
        };
        let id = core.srq_name(at_engine);
        drop(core);
        let (engine, recvs) = (Arc::clone(engine), Mutex::new(recvs));
        Ok(SharedReceiveQueue(Arc::new(Srq { _pd: self.clone(), engine, index, at_engine, id, max_wr, rules, recvs })))
    }
}

impl SharedReceiveQueue {
    pub(crate) fn engine(&self) -> &Arc<Engine> {
        &self.0.engine
    }

    /// The name of the queue in events.
    pub fn id(&self) -> SrqId {
        self.0.id
    }

    /// The name of the queue at its engine.
    pub(crate) fn engine_id(&self) -> SrqId {
        self.0.at_engine
    }

    /// Posts a receive work request.
    ///
    /// # Errors
    /// When it cannot be right, or the queue is full.
    pub fn post_recv(&self, wr: &RecvWr<'_>) -> Result<(), PostError> {
        self.0.rules.check(wr)?;
        let pushed = lock(&self.0.recvs).push(PostedRecv::new(wr));
        if let Err(work) = pushed {
            // Before a full ring is a full queue, the NIC takes over what it has room for.
            self.0.engine.control().take_work_of(self.0.index);
            lock(&self.0.recvs).push(work).map_err(|_| PostError::QueueFull)?;
        }
        self.0.engine.ring(self.0.index);
        Ok(())
    }

    /// [`SharedReceiveQueue::post_recv`], to be done within a time from now. A deadline of the work request itself is not looked at.
    ///
    /// # Errors
    /// As [`SharedReceiveQueue::post_recv`]; [`PostError::NoDeadlines`] where the queue was made without deadlines.
    pub fn post_recv_within(&self, wr: &RecvWr<'_>, limit: Duration) -> Result<(), PostError> {
        self.post_recv(&RecvWr { best_effort: Some(&self.0.engine.within(wr.best_effort, limit)), ..*wr })
    }

    /// How many receives it holds before it is full: those that the NIC has, as many as were asked for, and those on their way to it.
    pub fn depth(&self) -> u32 {
        self.0.max_wr + lock(&self.0.recvs).capacity() as u32
    }

    /// An event is raised, once, when fewer receives than this are left; 0 asks for none.
    pub fn set_limit(&self, limit: u32) {
        let mut core = self.0.engine.control();
        core.take_work_of(self.0.index);
        // It exists as long as this value does.
        let _ = core.nic().set_srq_limit(self.0.at_engine, limit);
        core.hand_out();
    }

    /// The limit: 0 when its event was raised, or none was asked for.
    pub fn limit(&self) -> u32 {
        self.0.engine.control().nic().srq_limit(self.0.at_engine).unwrap_or(0)
    }
}

impl fmt::Debug for SharedReceiveQueue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("SharedReceiveQueue").field(&self.0.id.0).finish()
    }
}
