//! Messages of an SDR queue pair as values that end themselves: sends, streams and receives.

use std::collections::VecDeque;
use std::fmt;
use std::sync::Mutex;

use softnic_sdr::{Bitmap, Local, RecvHandle, SdrError, SendHandle};

use super::{AtEngines, SdrQueuePair};
use crate::api::memory::MemoryRegion;
use crate::locked::lock;

/// The memory of a work request. What lies outside of the region is refused where it is used.
pub(super) fn local(memory: &MemoryRegion, offset: usize, len: usize) -> Local {
    Local { key: memory.lkey(), addr: memory.addr().wrapping_add(offset as u64), len: len as u64 }
}

/// Regions of a message: one, but for streams of several.
#[derive(Debug, Default)]
struct Regions {
    first: Option<MemoryRegion>,
    more: Vec<MemoryRegion>,
}

impl Regions {
    fn add(&mut self, memory: &MemoryRegion) {
        let mut known = self.first.iter().chain(&self.more);
        match known.any(|known| known.lkey() == memory.lkey()) {
            true => {}
            false if self.first.is_none() => self.first = Some(memory.clone()),
            false => self.more.push(memory.clone()),
        }
    }
}

/// The memory of messages that may be on their way, and that nobody has a handle of.
#[derive(Default)]
pub(super) struct Kept {
    messages: Mutex<VecDeque<(SendHandle, Regions)>>,
}

impl Kept {
    /// Keeps the memory of a message until all of it has left. Messages leave in their order, so those that have are the first ones.
    fn keep(&self, at: &AtEngines, handle: SendHandle, memory: Regions) {
        lock(&self.messages).push_back((handle, memory));
        let next = || {
            let mut messages = lock(&self.messages);
            let has_left = messages.front().is_some_and(|&(handle, _)| has_left(at, handle) != Ok(false));
            has_left.then(|| messages.pop_front()).flatten()
        };
        // Regions are deregistered when nobody has the lock, nor an engine.
        while let Some(done) = next() {
            drop(done);
        }
    }
}

/// Whether all of a message has left, by every engine.
fn has_left(at: &AtEngines, handle: SendHandle) -> Result<bool, SdrError> {
    // Who takes an engine to look keeps it from its work.
    if let Some(left) = at.watch().has_left(handle) {
        return Ok(left);
    }
    let mut all = at.qp(|_, qp, _| qp.send_poll(handle))?;
    if all {
        at.others(|_, branch, _| branch.send_poll(handle).map(|left| all &= left))?;
    }
    Ok(all)
}

/// Of a device that failed nothing leaves any more.
fn unless_dead(at: &AtEngines, polled: Result<bool, SdrError>) -> Result<bool, SdrError> {
    match polled {
        Ok(false) if at.is_dead() => Err(SdrError::Device),
        polled => polled,
    }
}

/// A message that is being sent. It keeps its memory.
#[derive(Debug)]
pub struct SdrSend {
    qp: SdrQueuePair,
    handle: SendHandle,
    memory: Regions,
}

impl SdrSend {
    pub(super) fn post(
        qp: &SdrQueuePair,
        memory: &MemoryRegion,
        offset: usize,
        len: usize,
        imm: Option<u32>,
    ) -> Result<SdrSend, SdrError> {
        let (at, all) = (&qp.0.at, local(memory, offset, len));
        let order = at.in_order();
        let handle = at.qp(|now, qp, nic| qp.send_post(now, nic, all, imm))?;
        at.others(|now, branch, nic| branch.send_post(now, nic, all, imm).map(|_| ()))?;
        drop(order);
        Ok(SdrSend { qp: qp.clone(), handle, memory: Regions { first: Some(memory.clone()), more: Vec::new() } })
    }

    /// The number of the message: it lands in the receive of the same number.
    pub fn number(&self) -> u64 {
        self.handle.number()
    }

    /// Whether all of it has left (`send_poll`).
    ///
    /// # Errors
    /// When it could not be sent.
    pub fn poll(&self) -> Result<bool, SdrError> {
        unless_dead(&self.qp.0.at, has_left(&self.qp.0.at, self.handle))
    }
}

impl Drop for SdrSend {
    fn drop(&mut self) {
        self.qp.0.kept.keep(&self.qp.0.at, self.handle, std::mem::take(&mut self.memory));
    }
}

/// A message whose parts are sent one by one. It ends by itself when it is dropped.
#[derive(Debug)]
pub struct SdrStream(Option<SdrSend>);

impl SdrStream {
    pub(super) fn start(qp: &SdrQueuePair, len: usize, imm: Option<u32>) -> Result<SdrStream, SdrError> {
        let (at, len) = (&qp.0.at, len as u64);
        let order = at.in_order();
        let handle = at.qp(|now, qp, nic| qp.send_stream_start(now, nic, len, imm))?;
        at.others(|now, branch, nic| branch.send_stream_start(now, nic, len, imm).map(|_| ()))?;
        drop(order);
        Ok(SdrStream(Some(SdrSend { qp: qp.clone(), handle, memory: Regions::default() })))
    }

    /// Sends `len` bytes from `at` of the region on, which are the message's from `offset` on: whole packets of it
    /// (`send_stream_continue`).
    ///
    /// # Errors
    /// When the part does not begin and end at a packet, or is outside of the message.
    pub fn send(&mut self, offset: u64, memory: &MemoryRegion, at: usize, len: usize) -> Result<(), SdrError> {
        let Some(send) = &mut self.0 else { return Err(SdrError::Ended) };
        let (handle, part, engines) = (send.handle, local(memory, at, len), &send.qp.0.at);
        engines.qp(|now, qp, nic| qp.send_stream_continue(now, nic, handle, offset, part))?;
        send.memory.add(memory);
        engines.others(|now, branch, nic| branch.send_stream_continue(now, nic, handle, offset, part))
    }

    /// Whether all parts that were given so far have left.
    ///
    /// # Errors
    /// When one could not be sent.
    pub fn is_idle(&self) -> Result<bool, SdrError> {
        let Some(SdrSend { qp, handle, .. }) = &self.0 else { return Ok(true) };
        let at = &qp.0.at;
        let mut all = at.qp(|_, qp, _| qp.send_stream_poll(*handle))?;
        if all {
            at.others(|_, branch, _| branch.send_stream_poll(*handle).map(|idle| all &= idle))?;
        }
        unless_dead(at, Ok(all))
    }

    /// No more parts follow (`send_stream_end`); what is left of the message can be waited for.
    ///
    /// # Errors
    /// When the NIC has another layer by now.
    pub fn end(mut self) -> Result<SdrSend, SdrError> {
        let send = self.0.take().ok_or(SdrError::Ended)?;
        end(&send)?;
        Ok(send)
    }
}

fn end(send: &SdrSend) -> Result<(), SdrError> {
    send.qp.0.at.qp(|_, qp, _| qp.send_stream_end(send.handle))?;
    send.qp.0.at.others(|_, branch, _| branch.send_stream_end(send.handle))
}

impl Drop for SdrStream {
    fn drop(&mut self) {
        if let Some(send) = self.0.take() {
            let _ = end(&send);
        }
    }
}

/// A receive that is posted. It is completed when it is dropped.
pub struct SdrReceive {
    qp: SdrQueuePair,
    handle: RecvHandle,
    /// Until it is completed.
    bitmap: Option<Bitmap>,
    memory: MemoryRegion,
}

impl SdrReceive {
    pub(super) fn post(
        qp: &SdrQueuePair,
        memory: &MemoryRegion,
        offset: usize,
        len: usize,
    ) -> Result<SdrReceive, SdrError> {
        let (at, room) = (&qp.0.at, local(memory, offset, len));
        let order = at.in_order();
        let posting = match order {
            None => at.qp(|now, qp, nic| {
                let posting = qp.recv_prepare(nic, room)?;
                qp.recv_announce(now, nic);
                Ok(posting)
            })?,
            Some(_) => {
                let posting = at.qp(|_, qp, nic| qp.recv_prepare(nic, room))?;
                if let Err(error) = at.others(|_, branch, nic| branch.recv_post(nic, &posting)) {
                    let handle = posting.handle();
                    // Those that did not take it have nothing to complete.
                    let _ = at.others(|_, branch, nic| branch.recv_complete(nic, handle));
                    let _ = at.qp(|_, qp, nic| {
                        qp.recv_take_back(nic, posting);
                        Ok(())
                    });
                    return Err(error);
                }
                at.qp(|now, qp, nic| {
                    qp.recv_announce(now, nic);
                    Ok(())
                })?;
                posting
            }
        };
        drop(order);
        let bitmap = Some(posting.bitmap().clone());
        Ok(SdrReceive { qp: qp.clone(), handle: posting.handle(), bitmap, memory: memory.clone() })
    }

    /// Its number: the send of the same number lands here.
    pub fn number(&self) -> u64 {
        self.handle.number()
    }

    /// Its memory.
    pub fn memory(&self) -> &MemoryRegion {
        &self.memory
    }

    /// The chunks that have come (`recv_bitmap_get`), and more of them from one look to the next. Makes progress, where no thread of the
    /// NIC does.
    pub fn bitmap(&self) -> &Bitmap {
        self.qp.progress();
        match &self.bitmap {
            Some(bitmap) => bitmap,
            None => unreachable!("only the end takes it"),
        }
    }

    /// The sender's immediate, when all of it is there (`recv_imm_get`).
    pub fn imm(&self) -> Option<u32> {
        self.bitmap().imm()
    }

    /// Completes it, whatever is missing (`recv_complete`): when this returns nothing is written to its memory any more.
    ///
    /// # Errors
    /// When the NIC has another layer by now.
    pub fn complete(mut self) -> Result<(), SdrError> {
        self.end()
    }

    fn end(&mut self) -> Result<(), SdrError> {
        match self.bitmap.take() {
            // Gone before, so that it can be used again.
            Some(bitmap) => drop(bitmap),
            None => return Ok(()),
        }
        let at = &self.qp.0.at;
        at.others(|_, branch, nic| branch.recv_complete(nic, self.handle))?;
        at.qp(|_, qp, nic| qp.recv_complete(nic, self.handle))
    }
}

impl fmt::Debug for SdrReceive {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SdrReceive({})", self.handle.number())
    }
}

impl Drop for SdrReceive {
    fn drop(&mut self) {
        let _ = self.end();
    }
}
