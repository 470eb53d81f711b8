//! Reliable messages over SDR for programs: WRITEs that come whole, or say why not.

use std::collections::VecDeque;
use std::fmt;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use softnic_nic::Nic;
use softnic_sdr::reliable::{Outcome, ReliableCounters, ReliableError, ReliableQp};
use softnic_sdr::{Counters, Local, QpAttr, SdrError};
use softnic_wire::{Instant, Qpn};

use super::at_engines::AtEngines;
use super::messages::local;
use super::{Permit, SdrContext};
use crate::api::memory::MemoryRegion;
use crate::api::path::PeerPath;
use crate::locked::lock;

/// A reliable SDR queue pair: the n-th WRITE that one end posts goes into the n-th receive of the other, of the same length, and is over when
/// the peer has said that all of it is there. Both ends may do both at once.
///
/// All of it is at the first engine of its NIC, however many channels it has. A message that does not come in time ends the connection, with all
/// that is posted.
///
/// Two NICs in this process, over a wire that loses every tenth frame:
///
/// ```
/// use softnic_runtime::api::sdr::{Outcome, ReliableAttr, Scheme, SdrAttr, SdrContext};
/// use softnic_runtime::api::{Access, Context, OpenOptions};
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let lossy = OpenOptions { fault: Some("loss=0.1".parse()?), seed: 1, ..OpenOptions::default() };
/// let [a, b] = Context::open_pair([&lossy, &lossy])?;
/// let (path_ab, path_ba) = (a.path_to(b.addresses()[0], 1)?, b.path_to(a.addresses()[0], 1)?);
/// let (a, b) = (SdrContext::new(&a)?, SdrContext::new(&b)?);
/// let qp = SdrAttr { chunk: 8192, mtu: path_ab.mtu, ..SdrAttr::default() };
/// let attr = ReliableAttr { qp, scheme: Scheme::Nack, ..ReliableAttr::default() };
/// let (sender, receiver) = (a.create_reliable(&attr)?, b.create_reliable(&attr)?);
/// sender.connect(&path_ab, &receiver.info()?)?;
/// receiver.connect(&path_ba, &sender.info()?)?;
///
/// let (from, to) = (a.pd().alloc_mr(1 << 20, Access::NONE)?, b.pd().alloc_mr(1 << 20, Access::LOCAL_WRITE | Access::REMOTE)?);
/// from.write_at(1000, b"hello");
/// let received = receiver.receive(&to, 0, 1 << 20)?;
/// let written = sender.write(&from, 0, 1 << 20)?;
/// let outcome = loop {
///     if let Some(outcome) = sender.poll() {
///         break outcome;
///     }
///     receiver.progress();
/// };
/// assert_eq!(outcome, Outcome::Written { id: written, outcome: Ok(()) });
/// assert_eq!(receiver.poll(), Some(Outcome::Received { id: received, outcome: Ok(()) }));
/// let mut greeting = [0; 5];
/// to.read_at(1000, &mut greeting);
/// assert_eq!(&greeting, b"hello");
/// assert!(sender.reliable_counters()?.chunks_repeated > 0);
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct ReliableQueuePair(Arc<Pair>);

struct Pair {
    // The first to go: what is under way ends before its memory may.
    at: AtEngines,
    /// Outcomes that the engine has for us.
    waiting: Arc<AtomicUsize>,
    posted: Mutex<Posted>,
    _context: SdrContext,
    _permits: Vec<Permit>,
}

/// The messages that are not over, with their memory.
#[derive(Default)]
struct Posted {
    writes: VecDeque<(u64, MemoryRegion)>,
    receives: VecDeque<(u64, MemoryRegion)>,
}

impl Posted {
    /// The memory of a message that is over; `None` when that was told before.
    fn take(&mut self, outcome: &Outcome) -> Option<MemoryRegion> {
        let (list, id) = match *outcome {
            Outcome::Written { id, .. } => (&mut self.writes, id),
            Outcome::Received { id, .. } => (&mut self.receives, id),
        };
        // Most end in their order.
        let at = list.iter().position(|&(known, _)| known == id)?;
        list.remove(at).map(|(_, memory)| memory)
    }

    /// The next message that ends by the failure of its device.
    fn next_dead(&self) -> Option<Outcome> {
        let outcome = Err(ReliableError::Sdr(SdrError::Device));
        let written = self.writes.front().map(|&(id, _)| Outcome::Written { id, outcome });
        written.or(self.receives.front().map(|&(id, _)| Outcome::Received { id, outcome }))
    }
}

impl ReliableQueuePair {
    pub(super) fn create(
        context: &SdrContext,
        attr: &QpAttr,
        make: impl FnOnce(&mut Nic) -> Result<ReliableQp, SdrError>,
    ) -> Result<ReliableQueuePair, SdrError> {
        let permits = context.permits(attr)?;
        let at = AtEngines::create_reliable(context.context(), make)?;
        let waiting = at.reliable(|_, qp, _| Ok(qp.waiting()))?;
        let (posted, _context) = (Mutex::default(), context.clone());
        Ok(ReliableQueuePair(Arc::new(Pair { at, waiting, posted, _context, _permits: permits })))
    }

    /// What the peer must be told, as [`SdrQueuePair::info`](super::SdrQueuePair::info).
    ///
    /// # Errors
    /// When the NIC has another layer by now.
    pub fn info(&self) -> Result<Vec<u8>, SdrError> {
        self.0.at.info()
    }

    /// Connects it with the queue pair whose information this is, as [`SdrQueuePair::connect`](super::SdrQueuePair::connect).
    ///
    /// # Errors
    /// When the two do not fit together: also when they have different schemes, or chunks.
    pub fn connect(&self, path: &PeerPath, info: &[u8]) -> Result<(), SdrError> {
        self.0.at.connect(path, info)
    }

    /// The number that a peer finds it by, as [`SdrQueuePair::number`](super::SdrQueuePair::number).
    ///
    /// # Errors
    /// When the NIC has another layer by now.
    pub fn number(&self) -> Result<Qpn, SdrError> {
        self.0.at.number()
    }

    /// Begins to connect it with the queue pair of this number, as [`SdrQueuePair::meet`](super::SdrQueuePair::meet).
    ///
    /// # Errors
    /// When it has more channels than fit into what the ends tell each other.
    pub fn meet(&self, path: &PeerPath, peer: Qpn) -> Result<(), SdrError> {
        self.0.at.meet(path, peer)
    }

    /// Whether it is connected, as [`SdrQueuePair::is_met`](super::SdrQueuePair::is_met).
    ///
    /// # Errors
    /// [`SdrError::Declined`] also when the peer has another scheme; when the schemes have different settings, or chunks.
    pub fn is_met(&self) -> Result<bool, SdrError> {
        self.0.at.is_met()
    }

    /// Posts a WRITE of `len` bytes from `offset` of the region on into the peer's next receive; its number, from 0. The memory stays registered
    /// until [`ReliableQueuePair::poll`] has told its outcome, and must not be changed before.
    ///
    /// # Errors
    /// When the message is too long for the peer, there is no peer yet, or the connection is over.
    pub fn write(&self, memory: &MemoryRegion, offset: usize, len: usize) -> Result<u64, SdrError> {
        self.post(memory, offset, len, ReliableQp::write, |posted| &mut posted.writes)
    }

    /// Posts `len` bytes from `offset` of the region on for the peer's next WRITE, which must be as long; its number, from 0. The memory stays
    /// registered until [`ReliableQueuePair::poll`] has told its outcome.
    ///
    /// # Errors
    /// When as many are posted as can be, the memory is none of the context's protection domain, or the connection is over.
    pub fn receive(&self, memory: &MemoryRegion, offset: usize, len: usize) -> Result<u64, SdrError> {
        self.post(memory, offset, len, ReliableQp::receive, |posted| &mut posted.receives)
    }

    fn post(
        &self,
        memory: &MemoryRegion,
        offset: usize,
        len: usize,
        post: impl FnOnce(&mut ReliableQp, Instant, &mut Nic, Local) -> Result<u64, SdrError>,
        list: impl FnOnce(&mut Posted) -> &mut VecDeque<(u64, MemoryRegion)>,
    ) -> Result<u64, SdrError> {
        if self.0.at.is_dead() {
            return Err(SdrError::Device);
        }
        // Held until the memory is known: its outcome may be there at once.
        let mut posted = lock(&self.0.posted);
        let id = self.0.at.reliable(|now, qp, nic| post(qp, now, nic, local(memory, offset, len)))?;
        list(&mut posted).push_back((id, memory.clone()));
        Ok(id)
    }

    /// The next message that is over. Makes progress, where no thread of the NIC does. Of a device that failed all that is posted is over by
    /// [`SdrError::Device`].
    pub fn poll(&self) -> Option<Outcome> {
        self.0.at.progress();
        loop {
            let outcome = self.next()?;
            let memory = lock(&self.0.posted).take(&outcome);
            // What is dropped here may be deregistered, for which it takes the engines.
            if memory.is_some() {
                return Some(outcome);
            }
        }
    }

    /// The next outcome of the engine's, or of a device that failed.
    fn next(&self) -> Option<Outcome> {
        // Who takes an engine to look keeps it from its work.
        if self.0.waiting.load(Ordering::Relaxed) > 0
            && let Ok(Some(outcome)) = self.0.at.reliable(|_, qp, _| Ok(qp.poll()))
        {
            return Some(outcome);
        }
        if self.0.at.is_dead() { lock(&self.0.posted).next_dead() } else { None }
    }

    /// Messages that are posted and whose outcome was not told: WRITEs, and receives.
    pub fn outstanding(&self) -> (usize, usize) {
        let posted = lock(&self.0.posted);
        (posted.writes.len(), posted.receives.len())
    }

    /// No packet of it leaves or is taken any more: all that is posted is over.
    pub(crate) fn fail(&self) {
        // Of a NIC with another layer by now there is nothing to end.
        let _ = self.0.at.reliable(|now, qp, nic| {
            qp.fail(now, nic, ReliableError::Sdr(SdrError::NotConnected));
            Ok(())
        });
    }

    /// What its SDR queue pair counted.
    ///
    /// # Errors
    /// When the NIC has another layer by now.
    pub fn counters(&self) -> Result<Counters, SdrError> {
        self.0.at.counters()
    }

    /// What its scheme counted.
    ///
    /// # Errors
    /// When the NIC has another layer by now.
    pub fn reliable_counters(&self) -> Result<ReliableCounters, SdrError> {
        self.0.at.reliable(|_, qp, _| Ok(qp.counters()))
    }

    /// The round trip, as far as its scheme knows it.
    ///
    /// # Errors
    /// When the NIC has another layer by now.
    pub fn rtt(&self) -> Result<Duration, SdrError> {
        self.0.at.reliable(|_, qp, _| Ok(qp.rtt()))
    }

    /// Makes progress once, where no thread of the NIC does; says whether there was anything to do.
    pub fn progress(&self) -> bool {
        self.0.at.progress()
    }
}

impl fmt::Debug for ReliableQueuePair {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ReliableQueuePair({})", self.0.at.id().0)
    }
}
