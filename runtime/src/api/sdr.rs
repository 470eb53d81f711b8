//! SDR-RDMA for programs: messages with a bitmap of what has come (Khalilov et al., Table 1), on an opened NIC.
//!
//! An [`SdrContext`] puts the SDK on a NIC, where it runs in the engines beside the queue pairs: what comes sets bits also while the program
//! does something else. The program polls the [`Bitmap`] of a receive without waiting for anybody. The channels of a queue pair are at the
//! NIC's engines in turn, the first one at the first engine, where control messages come, too.
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

mod at_engines;
mod connecting;
mod messages;
mod reliable;

use std::fmt;
use std::sync::Arc;

use softnic_nic::ObjectError;
use softnic_sdr::Sdr;
use softnic_sdr::reliable::ReliableQp;
use softnic_wire::Qpn;

use super::allowance::{Allowance, Permit};
use super::context::{Context, ProtectionDomain};
use super::memory::MemoryRegion;
use super::path::PeerPath;
use at_engines::{AtEngines, FIRST};
use messages::Kept;

pub use messages::{SdrReceive, SdrSend, SdrStream};
pub use reliable::ReliableQueuePair;
pub use softnic_sdr::control::{Control, Kind as ControlKind};
pub use softnic_sdr::reliable::{
    Fallback, FallbackError, Family, Io, Outcome, Protection, Reliability, ReliableAttr, ReliableCounters,
    ReliableError, Scheme, SchemeError, Shortfall,
};
pub use softnic_sdr::{AttrError, Bitmap, Counters as SdrCounters, QpAttr as SdrAttr, SdrError, Split, SplitError};
pub use softnic_sdr::{LONGEST_CONTROL, Local, RecvHandle, SdrQp, SdrSettings, SendHandle};

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
        if context.with_layer(FIRST, |_, _| ()).is_some() {
            return Err(SdrError::Layered);
        }
        context.set_layers(|_| Some(Box::<Sdr>::default()));
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
        let permits = self.permits(attr)?;
        let at = AtEngines::create(&self.0.context, self.0.pd.id(), attr)?;
        Ok(SdrQueuePair(Arc::new(Pair { at, kept: Kept::default(), _context: self.clone(), _permits: permits })))
    }

    /// Makes a queue pair whose messages are reliable, by one of the schemes that there are. All of it is at the NIC's first engine.
    ///
    /// # Errors
    /// As [`SdrContext::create_qp`].
    pub fn create_reliable(&self, attr: &ReliableAttr) -> Result<ReliableQueuePair, SdrError> {
        attr.check()?;
        let pd = self.0.pd.id();
        ReliableQueuePair::create(self, &attr.qp, |nic| ReliableQp::create(nic, pd, attr))
    }

    /// Makes one by a scheme of the program's own. Its number, from 128 on, and its settings must be those of the peer's.
    ///
    /// # Errors
    /// As [`SdrContext::create_qp`].
    pub fn create_reliable_with(
        &self,
        attr: &SdrAttr,
        settings: SdrSettings,
        scheme: Box<dyn Reliability>,
    ) -> Result<ReliableQueuePair, SdrError> {
        attr.check()?;
        let pd = self.0.pd.id();
        ReliableQueuePair::create(self, attr, |nic| ReliableQp::create_with(nic, pd, attr, settings, scheme))
    }

    /// Room for all that a queue pair takes of the NIC.
    fn permits(&self, attr: &SdrAttr) -> Result<Vec<Permit>, SdrError> {
        self.try_permits(attr).ok_or(SdrError::Object(ObjectError::NoNumbers))
    }

    fn try_permits(&self, attr: &SdrAttr) -> Option<Vec<Permit>> {
        let inner = self.0.context.inner();
        let (qps, keys) = (u32::from(attr.generations) * u32::from(attr.channels) + 1, u32::from(attr.generations) + 1);
        let take = |of: &Arc<Allowance>, n: u32| (0..n).map(|_| of.take()).collect::<Option<Vec<_>>>();
        let mut permits = take(&inner.queue_pairs, qps)?;
        permits.append(&mut take(&inner.regions, keys)?);
        Some(permits)
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
    // The first to go: what is under way ends before its memory may.
    at: AtEngines,
    kept: Kept,
    _context: SdrContext,
    _permits: Vec<Permit>,
}

impl SdrQueuePair {
    /// What the peer must be told (`qp_info_get`).
    ///
    /// # Errors
    /// When the NIC has another layer by now.
    pub fn info(&self) -> Result<Vec<u8>, SdrError> {
        self.0.at.info()
    }

    /// Connects it with the queue pair whose information this is, by a path of this NIC (`qp_connect`).
    ///
    /// # Errors
    /// When the two do not fit together.
    pub fn connect(&self, path: &PeerPath, info: &[u8]) -> Result<(), SdrError> {
        self.0.at.connect(path, info)
    }

    /// The number that a peer finds it by ([`SdrQueuePair::meet`]): that of its control queue pair.
    ///
    /// # Errors
    /// When the NIC has another layer by now.
    pub fn number(&self) -> Result<Qpn, SdrError> {
        self.0.at.number()
    }

    /// Begins to connect it with the queue pair of this number, by a path of this NIC: all else the two ends tell each other. Both must
    /// do so; [`SdrQueuePair::is_met`] says when it is done.
    ///
    /// # Errors
    /// When it has more channels than fit into what the ends tell each other.
    pub fn meet(&self, path: &PeerPath, peer: Qpn) -> Result<(), SdrError> {
        self.0.at.meet(path, peer)
    }

    /// Whether it is connected, after [`SdrQueuePair::meet`]. Makes progress, where no thread of the NIC does.
    ///
    /// # Errors
    /// [`SdrError::Declined`] when the peer does not speak SDR, or has not answered for more than a second; who waits for a peer that comes
    /// later may ask again. When the two do not fit together.
    pub fn is_met(&self) -> Result<bool, SdrError> {
        self.0.at.is_met()
    }

    /// No packet of it leaves or is taken any more.
    pub(crate) fn fail(&self) {
        self.0.at.fail();
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
        SdrSend::post(self, memory, offset, len, imm)
    }

    /// Starts a message of `len` bytes, whose parts follow in any order and as often as need be (`send_stream_start`).
    ///
    /// # Errors
    /// As [`SdrQueuePair::send_post`].
    pub fn send_stream_start(&self, len: usize, imm: Option<u32>) -> Result<SdrStream, SdrError> {
        SdrStream::start(self, len, imm)
    }

    /// Posts `len` bytes from `offset` of the region on for the next message (`recv_post`).
    ///
    /// # Errors
    /// When as many are posted as can be, or the memory is none of the context's protection domain.
    pub fn recv_post(&self, memory: &MemoryRegion, offset: usize, len: usize) -> Result<SdrReceive, SdrError> {
        SdrReceive::post(self, memory, offset, len)
    }

    /// What it counted.
    ///
    /// # Errors
    /// When the NIC has another layer by now.
    pub fn counters(&self) -> Result<SdrCounters, SdrError> {
        self.0.at.counters()
    }

    /// How many engines of the NIC its channels are at.
    pub fn engines(&self) -> usize {
        self.0.at.engines()
    }

    /// Makes progress once, where no thread of the NIC does; says whether there was anything to do.
    pub fn progress(&self) -> bool {
        self.0.at.progress()
    }
}

impl fmt::Debug for SdrQueuePair {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SdrQueuePair({})", self.0.at.id().0)
    }
}
