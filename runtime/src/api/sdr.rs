//! SDR-RDMA for programs: messages with a bitmap of what has come (Khalilov et al., Table 1), on an opened NIC.
//!
//! An [`SdrContext`] puts the SDK on a NIC, where it runs in the engine beside the queue pairs: what comes sets bits also while the program
//! does something else. The program polls the [`Bitmap`] of a receive without waiting for anybody.
//!
//! Two NICs in this process, over a wire that loses every tenth frame; what is missing is sent again:
//!
//! ```
//! use softnic_runtime::api::sdr::{SdrAttr, SdrContext};
//! use softnic_runtime::api::{Access, Context, OpenOptions};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let lossy = OpenOptions { fault: Some("loss=0.1".parse()?), seed: 1, ..OpenOptions::default() };
//! let [a, b] = Context::open_pair([&lossy, &lossy])?;
//! let (path_ab, path_ba) = (a.path_to(b.addresses()[0], 1)?, b.path_to(a.addresses()[0], 1)?);
//! let (a, b) = (SdrContext::new(&a)?, SdrContext::new(&b)?);
//! let attr = SdrAttr { chunk: 8192, mtu: path_ab.mtu, ..SdrAttr::default() };
//! let (sender, receiver) = (a.create_qp(&attr)?, b.create_qp(&attr)?);
//! sender.connect(&path_ab, &receiver.info()?)?;
//! receiver.connect(&path_ba, &sender.info()?)?;
//!
//! let (from, to) = (a.pd().alloc_mr(1 << 20, Access::NONE)?, b.pd().alloc_mr(1 << 20, Access::LOCAL_WRITE | Access::REMOTE)?);
//! from.write_at(1000, b"hello");
//! let receive = receiver.recv_post(&to, 0, 1 << 20)?;
//! let mut stream = sender.send_stream_start(1 << 20, None)?;
//! while !receive.bitmap().is_full() {
//!     // A real program learns from its peer what is missing.
//!     for chunk in receive.bitmap().missing() {
//!         let at = chunk as usize * 8192;
//!         stream.send(at as u64, &from, at, 8192)?;
//!     }
//!     while !stream.is_idle()? {
//!         sender.progress();
//!         receiver.progress();
//!     }
//! }
//! let mut greeting = [0; 5];
//! to.read_at(1000, &mut greeting);
//! assert_eq!(&greeting, b"hello");
//! receive.complete()?;
//! # Ok(())
//! # }
//! ```

use std::fmt;
use std::sync::{Arc, Mutex};

use softnic_nic::transports::CqId;
use softnic_nic::{Nic, ObjectError};
use softnic_sdr::{Local, QpId, RecvHandle, Sdr, SdrQp, SendHandle};
use softnic_wire::Instant;

use super::allowance::{Allowance, Permit};
use super::context::{Context, ProtectionDomain};
use super::memory::MemoryRegion;
use super::path::PeerPath;

pub use softnic_sdr::control::{Control, Kind as ControlKind};
pub use softnic_sdr::{Bitmap, Counters as SdrCounters, QpAttr as SdrAttr, SdrError, Split, SplitError};

/// The engine that has the SDR queue pairs of a NIC.
const ENGINE: usize = 0;
/// Completion queues of an SDR queue pair: those of a NIC have the same numbers at all engines.
const CQS: usize = 3;

/// The SDK on a NIC (`context_create`), with a protection domain of its own. The NIC has no other layer.
#[derive(Clone)]
pub struct SdrContext(Arc<Inner>);

struct Inner {
    context: Context,
    pd: ProtectionDomain,
}

impl Drop for Inner {
    fn drop(&mut self) {
        self.context.set_layers(|_| None);
    }
}

impl SdrContext {
    /// Puts the SDK on a NIC.
    ///
    /// # Errors
    /// When there is software on it already, also when that is another of these.
    pub fn new(context: &Context) -> Result<SdrContext, SdrError> {
        let order = context.inner().mirrored();
        if context.with_layer(ENGINE, |_, _| ()).is_some() {
            return Err(SdrError::Layered);
        }
        context.set_layers(|engine| match engine {
            ENGINE => Some(Box::<Sdr>::default()),
            _ => None,
        });
        drop(order);
        Ok(SdrContext(Arc::new(Inner { context: context.clone(), pd: context.alloc_pd() })))
    }

    /// The protection domain of its queue pairs: memory is registered there (`mr_reg`).
    pub fn pd(&self) -> &ProtectionDomain {
        &self.0.pd
    }

    /// The NIC.
    pub fn context(&self) -> &Context {
        &self.0.context
    }

    /// Makes a queue pair (`qp_create`). It is destroyed when all handles of it are gone.
    ///
    /// # Errors
    /// When attributes do not fit together, or the NIC has no more of what it takes.
    pub fn create_qp(&self, attr: &SdrAttr) -> Result<SdrQueuePair, SdrError> {
        attr.check()?;
        let inner = self.0.context.inner();
        let permits = self.permits(attr).ok_or(SdrError::Object(ObjectError::NoNumbers))?;
        let order = inner.mirrored();
        let mut engines = inner.control_all(&order);
        // What is made next at all engines shall have the same number at all of them.
        let placeholders: Vec<Vec<CqId>> = (engines.iter_mut().skip(ENGINE + 1))
            .map(|core| (0..CQS).map(|_| core.nic().create_cq(0)).collect())
            .collect();
        let made = SdrQp::create(engines[ENGINE].nic(), self.0.pd.id(), attr);
        if made.is_err() {
            for (core, cqs) in engines.iter_mut().skip(ENGINE + 1).zip(placeholders) {
                cqs.into_iter().for_each(|cq| _ = core.nic().destroy_cq(cq));
            }
        }
        let mut qp = Some(made?);
        let id = engines[ENGINE].nic().with_layer(|layer, _| {
            let sdr = layer.as_any_mut().downcast_mut::<Sdr>()?;
            qp.take().map(|qp| sdr.add(qp))
        });
        drop(engines);
        drop(order);
        let id = id.flatten().ok_or(SdrError::NoSuchQp)?;
        Ok(SdrQueuePair(Arc::new(Pair { context: self.clone(), id, kept: Mutex::default(), _permits: permits })))
    }

    /// Room for all that a queue pair takes of the NIC.
    fn permits(&self, attr: &SdrAttr) -> Option<Vec<Permit>> {
        let inner = self.0.context.inner();
        let (qps, keys) = (u32::from(attr.generations) * u32::from(attr.channels) + 1, u32::from(attr.generations) + 1);
        let take = |of: &Arc<Allowance>, n: u32| (0..n).map(|_| of.take()).collect::<Option<Vec<_>>>();
        let mut permits = take(&inner.queue_pairs, qps)?;
        permits.append(&mut take(&inner.regions, keys)?);
        Some(permits)
    }

    /// Lets a call work on a queue pair, with its engine to itself.
    fn with<R>(
        &self,
        id: QpId,
        work: impl FnOnce(Instant, &mut SdrQp, &mut Nic) -> Result<R, SdrError>,
    ) -> Result<R, SdrError> {
        let now = self.0.context.inner().engines()[ENGINE].now();
        let done = self.0.context.with_layer(ENGINE, |layer, nic| {
            let sdr = layer.as_any_mut().downcast_mut::<Sdr>().ok_or(SdrError::NoSuchQp)?;
            work(now, sdr.qp(id)?, nic)
        });
        done.unwrap_or(Err(SdrError::NoSuchQp))
    }
}

impl fmt::Debug for SdrContext {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SdrContext")
    }
}

/// An SDR queue pair.
#[derive(Clone)]
pub struct SdrQueuePair(Arc<Pair>);

struct Pair {
    context: SdrContext,
    id: QpId,
    /// The memory of messages that may be on their way, and that nobody has a handle of.
    kept: Mutex<Vec<(SendHandle, Vec<MemoryRegion>)>>,
    _permits: Vec<Permit>,
}

impl Drop for Pair {
    fn drop(&mut self) {
        let inner = self.context.0.context.inner();
        let order = inner.mirrored();
        let mut engines = inner.control_all(&order);
        let removed = engines[ENGINE].nic().with_layer(|layer, nic| {
            let sdr = layer.as_any_mut().downcast_mut::<Sdr>()?;
            let qp = sdr.remove(self.id).ok()?;
            let cqs = qp.completion_queues().to_vec();
            qp.destroy(nic);
            Some(cqs)
        });
        let others = engines.iter_mut().enumerate().filter(|(i, _)| *i != ENGINE);
        for (_, core) in others {
            for &cq in removed.iter().flatten().flatten() {
                let _ = core.nic().destroy_cq(cq);
            }
        }
    }
}

impl SdrQueuePair {
    fn with<R>(&self, work: impl FnOnce(Instant, &mut SdrQp, &mut Nic) -> Result<R, SdrError>) -> Result<R, SdrError> {
        self.0.context.with(self.0.id, work)
    }

    /// Keeps the memory of a message until all of it has left.
    fn keep(&self, handle: SendHandle, memory: Vec<MemoryRegion>) {
        let mut kept = self.0.kept.lock().unwrap_or_else(|p| p.into_inner());
        kept.push((handle, memory));
        let is_done = |qp: &mut SdrQp, handle: SendHandle| qp.send_poll(handle) != Ok(false);
        let done =
            self.with(|_, qp, _| Ok(kept.extract_if(.., |(handle, _)| is_done(qp, *handle)).collect::<Vec<_>>()));
        // Regions are deregistered when nobody has the lock, nor the engine.
        drop(kept);
        drop(done);
    }

    /// Whether what was to be sent has left. Of a device that failed nothing does any more.
    fn left(&self, poll: impl FnOnce(&mut SdrQp) -> Result<bool, SdrError>) -> Result<bool, SdrError> {
        match self.with(|_, qp, _| poll(qp)) {
            Ok(false) if self.0.context.0.context.failure().is_some() => Err(SdrError::Device),
            polled => polled,
        }
    }

    /// What the peer must be told (`qp_info_get`).
    ///
    /// # Errors
    /// When the NIC has another layer by now.
    pub fn info(&self) -> Result<Vec<u8>, SdrError> {
        self.with(|_, qp, _| Ok(qp.info().encode()))
    }

    /// Connects it with the queue pair whose information this is, by a path of this NIC (`qp_connect`).
    ///
    /// # Errors
    /// When the two do not fit together.
    pub fn connect(&self, path: &PeerPath, info: &[u8]) -> Result<(), SdrError> {
        self.with(|_, qp, nic| {
            let path = path.attr.path(nic.port()).map_err(|_| SdrError::Modify(super::ModifyError::NotOurAddress))?;
            qp.connect(nic, 1, &path, info)
        })
    }

    /// Sends `len` bytes from `offset` of the region on, once (`send_post`).
    ///
    /// # Errors
    /// When the message is too long for the peer, or the peer takes no immediates.
    pub fn send_post(
        &self,
        memory: &MemoryRegion,
        offset: usize,
        len: usize,
        imm: Option<u32>,
    ) -> Result<SdrSend, SdrError> {
        let handle = self.with(|now, qp, nic| qp.send_post(now, nic, local(memory, offset, len), imm))?;
        Ok(SdrSend { qp: self.clone(), handle, memory: vec![memory.clone()] })
    }

    /// Starts a message of `len` bytes, whose parts follow in any order and as often as need be (`send_stream_start`).
    ///
    /// # Errors
    /// As [`SdrQueuePair::send_post`].
    pub fn send_stream_start(&self, len: usize, imm: Option<u32>) -> Result<SdrStream, SdrError> {
        let handle = self.with(|now, qp, nic| qp.send_stream_start(now, nic, len as u64, imm))?;
        Ok(SdrStream(Some(SdrSend { qp: self.clone(), handle, memory: Vec::new() })))
    }

    /// Posts `len` bytes from `offset` of the region on for the next message (`recv_post`).
    ///
    /// # Errors
    /// When as many are posted as can be, or the memory is none of the context's protection domain.
    pub fn recv_post(&self, memory: &MemoryRegion, offset: usize, len: usize) -> Result<SdrReceive, SdrError> {
        let (handle, bitmap) = self.with(|now, qp, nic| {
            let handle = qp.recv_post(now, nic, local(memory, offset, len))?;
            Ok((handle, qp.recv_bitmap_get(handle)?.clone()))
        })?;
        Ok(SdrReceive { qp: self.clone(), handle, bitmap: Some(bitmap), memory: memory.clone() })
    }

    /// What it counted.
    ///
    /// # Errors
    /// When the NIC has another layer by now.
    pub fn counters(&self) -> Result<SdrCounters, SdrError> {
        self.with(|_, qp, nic| Ok(qp.counters(nic)))
    }

    /// Makes progress once, where no thread of the NIC does; says whether there was anything to do.
    pub fn progress(&self) -> bool {
        self.0.context.0.context.progress()
    }
}

impl fmt::Debug for SdrQueuePair {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SdrQueuePair({})", self.0.id.0)
    }
}

/// The memory of a work request. What lies outside of the region is refused where it is used.
fn local(memory: &MemoryRegion, offset: usize, len: usize) -> Local {
    Local { key: memory.lkey(), addr: memory.addr().wrapping_add(offset as u64), len: len as u64 }
}

/// A message that is being sent. It keeps its memory.
#[derive(Debug)]
pub struct SdrSend {
    qp: SdrQueuePair,
    handle: SendHandle,
    memory: Vec<MemoryRegion>,
}

impl SdrSend {
    /// The number of the message: it lands in the receive of the same number.
    pub fn number(&self) -> u64 {
        self.handle.number()
    }

    /// Whether all of it has left (`send_poll`).
    ///
    /// # Errors
    /// When it could not be sent.
    pub fn poll(&self) -> Result<bool, SdrError> {
        self.qp.left(|qp| qp.send_poll(self.handle))
    }
}

impl Drop for SdrSend {
    fn drop(&mut self) {
        self.qp.keep(self.handle, std::mem::take(&mut self.memory));
    }
}

/// A message whose parts are sent one by one. It ends by itself when it is dropped.
#[derive(Debug)]
pub struct SdrStream(Option<SdrSend>);

impl SdrStream {
    /// Sends `len` bytes from `at` of the region on, which are the message's from `offset` on: whole packets of it
    /// (`send_stream_continue`).
    ///
    /// # Errors
    /// When the part does not begin and end at a packet, or is outside of the message.
    pub fn send(&mut self, offset: u64, memory: &MemoryRegion, at: usize, len: usize) -> Result<(), SdrError> {
        let Some(send) = &mut self.0 else { return Err(SdrError::Ended) };
        let (handle, part) = (send.handle, local(memory, at, len));
        send.qp.with(|now, qp, nic| qp.send_stream_continue(now, nic, handle, offset, part))?;
        if send.memory.iter().all(|known| known.lkey() != memory.lkey()) {
            send.memory.push(memory.clone());
        }
        Ok(())
    }

    /// Whether all parts that were given so far have left.
    ///
    /// # Errors
    /// When one could not be sent.
    pub fn is_idle(&self) -> Result<bool, SdrError> {
        let Some(send) = &self.0 else { return Ok(true) };
        send.qp.left(|qp| qp.send_stream_poll(send.handle))
    }

    /// No more parts follow (`send_stream_end`); what is left of the message can be waited for.
    ///
    /// # Errors
    /// When the NIC has another layer by now.
    pub fn end(mut self) -> Result<SdrSend, SdrError> {
        let send = self.0.take().ok_or(SdrError::Ended)?;
        send.qp.with(|_, qp, _| qp.send_stream_end(send.handle))?;
        Ok(send)
    }
}

impl Drop for SdrStream {
    fn drop(&mut self) {
        if let Some(send) = self.0.take() {
            let _ = send.qp.with(|_, qp, _| qp.send_stream_end(send.handle));
        }
    }
}

/// A receive that is posted. It is completed when it is dropped.
#[derive(Debug)]
pub struct SdrReceive {
    qp: SdrQueuePair,
    handle: RecvHandle,
    /// Until it is completed.
    bitmap: Option<Bitmap>,
    memory: MemoryRegion,
}

impl SdrReceive {
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
        self.qp.with(|_, qp, nic| qp.recv_complete(nic, self.handle))
    }
}

impl Drop for SdrReceive {
    fn drop(&mut self) {
        let _ = self.end();
    }
}
