//! Posting work requests.

use std::sync::Mutex;
use std::sync::atomic::Ordering;
use std::time::Duration;

use softnic_nic::next_key;
use softnic_nic::transports::memory::Bind;
use softnic_nic::transports::negotiation::Choice;
use softnic_nic::transports::qp::Caps;
use softnic_nic::transports::{Data, PostError, RecvWr, SendFlags, SendOp, SendWr};
use softnic_sync::ring::Producer;

use super::{AGREED, QueuePair, RECEIVES, SENDS};
use crate::engine::{PostedRecv, PostedSend};
use crate::locked::lock;

impl QueuePair {
    /// Posts a send work request: writes it and rings the doorbell. Frames leave with the next progress.
    ///
    /// # Errors
    /// When it cannot be right, or the queue is full.
    #[inline]
    pub fn post_send(&self, wr: &SendWr<'_>) -> Result<(), PostError> {
        self.write_send(wr)?;
        self.ring_doorbell();
        Ok(())
    }

    /// Writes a send work request that nobody looks at before [`QueuePair::ring_doorbell`].
    ///
    /// # Errors
    /// As [`QueuePair::post_send`].
    #[inline]
    pub fn write_send(&self, wr: &SendWr<'_>) -> Result<(), PostError> {
        self.check_send(wr)?;
        self.push(&self.0.sends, PostedSend::new(wr))
    }

    /// [`QueuePair::post_send`], to be done within a time from now: for transports that keep deadlines. A deadline of the work request itself is not looked at.
    ///
    /// # Errors
    /// As [`QueuePair::post_send`]; [`PostError::NoDeadlines`] where the transport keeps none.
    pub fn post_send_within(&self, wr: &SendWr<'_>, limit: Duration) -> Result<(), PostError> {
        self.post_send(&SendWr { best_effort: Some(&self.0.engine.within(wr.best_effort, limit)), ..*wr })
    }

    /// [`QueuePair::write_send`], to be done within a time from now.
    ///
    /// # Errors
    /// As [`QueuePair::post_send_within`].
    pub fn write_send_within(&self, wr: &SendWr<'_>, limit: Duration) -> Result<(), PostError> {
        self.write_send(&SendWr { best_effort: Some(&self.0.engine.within(wr.best_effort, limit)), ..*wr })
    }

    /// Puts a work request into its ring. Before a full ring is a full queue, the NIC takes over what it has room for.
    #[inline]
    fn push<T>(&self, ring: &Mutex<Producer<T>>, work: T) -> Result<(), PostError> {
        // A statement of its own: the lock is not held any more behind it.
        let pushed = lock(ring).push(work);
        match pushed {
            Ok(()) => Ok(()),
            Err(work) => self.push_after_making_room(ring, work),
        }
    }

    #[cold]
    fn push_after_making_room<T>(&self, ring: &Mutex<Producer<T>>, work: T) -> Result<(), PostError> {
        self.0.engine.control().take_work_of(self.0.index);
        lock(ring).push(work).map_err(|_| PostError::QueueFull)
    }

    /// Binds a memory window of type 1 by a work request; its key from then on. `bind.rkey` is not looked at: a window of type 1 gets its
    /// key from the NIC (IBA 10.6.7.2.3), the one that follows `bind.window`.
    ///
    /// # Errors
    /// As [`QueuePair::post_send`].
    pub fn bind_mw(&self, wr_id: u64, bind: &Bind, flags: SendFlags) -> Result<u32, PostError> {
        let rkey = next_key(bind.window);
        let bind = Bind { rkey, ..*bind };
        let op = SendOp::BindWindow(bind);
        self.post_send(&SendWr { wr_id, op, data: Data::Gather(&[]), flags, best_effort: None, to: None })?;
        // Nobody has the key before this returns; the old one is refused by other engines from now on, where this engine takes it until the
        // work request has its turn.
        self.0.pd.inner().bind_elsewhere(&self.0.engine, self.0.qpn, self.0.pd.id(), &bind);
        Ok(rkey)
    }

    /// Whether a send work request could be right; that there is room for it is not looked at.
    ///
    /// # Errors
    /// As [`QueuePair::post_send`].
    #[inline]
    pub fn check_send(&self, wr: &SendWr<'_>) -> Result<(), PostError> {
        if self.0.posts.load(Ordering::Acquire) & SENDS == 0 {
            return Err(PostError::State);
        }
        self.0.send_rules.check(wr)?;
        match wr.best_effort.is_some() && self.has_fallen_back() {
            true => Err(PostError::NoDeadlines),
            false => Ok(()),
        }
    }

    /// Whether the peer did not agree to the transport: nobody keeps deadlines then.
    #[inline]
    fn has_fallen_back(&self) -> bool {
        self.0.posts.load(Ordering::Relaxed) & AGREED == 0 && self.ask_whether_fallen_back()
    }

    /// The same, asked of the NIC; that the peer agreed is asked for once.
    #[cold]
    fn ask_whether_fallen_back(&self) -> bool {
        let choice = self.choice();
        if choice == Some(Choice::Agreed) {
            self.0.posts.fetch_or(AGREED, Ordering::Relaxed);
        }
        matches!(choice, Some(Choice::Standard(_)))
    }

    /// Whether there is room for so many send work requests right now; the NIC takes over what it has room for before there is not.
    pub fn has_send_room(&self, wanted: usize) -> bool {
        if lock(&self.0.sends).has_room(wanted) {
            return true;
        }
        self.0.engine.control().take_work_of(self.0.index);
        lock(&self.0.sends).has_room(wanted)
    }

    /// How many send and how many receive work requests it holds before it is full: those that the NIC has, as many as were asked for,
    /// and those on their way to it.
    pub fn depths(&self) -> (u32, u32) {
        let Caps { max_send_wr, max_recv_wr, .. } = self.0.options.caps;
        let (sends, recvs) = (lock(&self.0.sends).capacity(), lock(&self.0.recvs).capacity());
        (max_send_wr + sends as u32, max_recv_wr + recvs as u32)
    }

    /// Tells the NIC of all work requests that were written.
    #[inline]
    pub fn ring_doorbell(&self) {
        self.0.engine.ring(self.0.index);
    }

    /// Posts a receive work request.
    ///
    /// # Errors
    /// When it cannot be right, or the queue is full.
    #[inline]
    pub fn post_recv(&self, wr: &RecvWr<'_>) -> Result<(), PostError> {
        self.write_recv(wr)?;
        self.ring_doorbell();
        Ok(())
    }

    /// Writes a receive work request that nobody looks at before [`QueuePair::ring_doorbell`].
    ///
    /// # Errors
    /// As [`QueuePair::post_recv`].
    #[inline]
    pub fn write_recv(&self, wr: &RecvWr<'_>) -> Result<(), PostError> {
        if self.0.posts.load(Ordering::Acquire) & RECEIVES == 0 || self.0.options.srq.is_some() {
            return Err(PostError::State);
        }
        self.0.recv_rules.check(wr)?;
        if wr.best_effort.is_some() && self.has_fallen_back() {
            return Err(PostError::NoDeadlines);
        }
        self.push(&self.0.recvs, PostedRecv::new(wr))
    }

    /// [`QueuePair::post_recv`], to be done within a time from now: for transports that keep deadlines. A deadline of the work request itself is not looked at.
    ///
    /// # Errors
    /// As [`QueuePair::post_recv`]; [`PostError::NoDeadlines`] where the transport keeps none.
    pub fn post_recv_within(&self, wr: &RecvWr<'_>, limit: Duration) -> Result<(), PostError> {
        self.post_recv(&RecvWr { best_effort: Some(&self.0.engine.within(wr.best_effort, limit)), ..*wr })
    }
}
