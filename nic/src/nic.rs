//! The state of a NIC. The calls that create and change its objects are in `objects` and `queue_pairs`, the data path in `receive` and
//! `transmit`.

mod mads;
mod moving;
mod negotiation;
mod objects;
mod ports;
mod queue_pairs;
mod receive;
mod shims;
mod transmit;

use std::collections::{BTreeSet, VecDeque};
use std::net::IpAddr;

pub(crate) use negotiation::mad_in;
pub use negotiation::negotiated_qp;
pub use objects::ObjectError;
pub use queue_pairs::{MAX_INLINE, MAX_SGE, MAX_WR, next_key};
use softnic_transports::congestion::CreditPacer;
use softnic_transports::memory::{AccessError, AtomicOp, Bind, Memory, PdId, Region, Runs};
use softnic_transports::negotiation::{RoundTrips, SilentPeers};
use softnic_transports::qp::PayloadMode;
use softnic_transports::shim::ShimPools;
use softnic_transports::{
    AhId, Arrival, Completion, CompletionSink, Counters, CqId, CqOverflow, Event, Host, Misfits, RecvQueue, SrqId,
    Status,
};
use softnic_wire::icrc::Icrc;
use softnic_wire::{Qpn, Template};

use crate::address_handles::AddressHandles;
use crate::cq::Cq;
use crate::layer::Installed;
use crate::port::{DEFAULT_LINK_RATE, Port, WirePort};
use crate::qp::Slot;
use crate::regions::Regions;
use crate::source_rates::SourceRates;
use crate::srq::Srq;
use crate::table::{Generator, RandomTable};
use crate::timers::Timers;
use crate::waiting_mads::{PostedMad, ReceivedMad};

/// The configuration of a new NIC.
#[derive(Debug, Clone)]
pub struct NicConfig {
    /// The first port; further ports are added by [`Nic::add_port`].
    pub port: Port,
    /// Whether frames carry their payload. Only a simulation leaves the payload out.
    pub payload: PayloadMode,
}

/// The queue pair numbers that a NIC assigns, if several NICs form one device: those with its own upper bits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Owner {
    /// The index of this NIC among them.
    pub index: u32,
    /// Number of upper bits of a queue pair number that identify the NIC.
    pub bits: u32,
}

impl Owner {
    /// The NIC that assigned a number, by these upper bits. The management numbers belong to the first NIC.
    #[inline]
    pub fn of(qpn: Qpn, bits: u32) -> u32 {
        (u64::from(qpn.value()) >> (24 - bits)) as u32
    }

    /// One of the NIC's own numbers, with random lower bits.
    fn number(self, drawn: u32) -> u32 {
        (self.index << (24 - self.bits)) | drawn & (0x00ff_ffff >> self.bits)
    }

    /// Number of queue pair numbers that the NIC owns.
    fn count(self) -> usize {
        1 << (24 - self.bits)
    }
}

/// The state shared by all queue pairs: memory, completion queues, shared receives, addresses, counters.
struct Shared {
    regions: Regions,
    cqs: Vec<Option<Cq>>,
    srqs: Vec<Option<Srq>>,
    ahs: AddressHandles,
    counters: Counters,
    misfits: Misfits,
    /// Events that the program has not polled yet.
    events: VecDeque<Event>,
    /// Completion queues whose event has been raised.
    completion_events: VecDeque<CqId>,
    /// The `wr_id` of work whose flush errors are not reported.
    own_work: Option<u64>,
    /// The pacer of credit, for each port of the Node.
    credit_pacers: Vec<CreditPacer>,
}

impl Memory for Shared {
    #[inline]
    fn check(&self, region: Region, len: u64) -> Result<(), AccessError> {
        self.regions.check(region, len)
    }

    #[inline]
    fn read(&self, region: Region, out: &mut [u8]) -> Result<(), AccessError> {
        self.regions.read(region, out)
    }

    #[inline]
    fn read_summed(&self, region: Region, crc: Icrc, head: &[u8], out: &mut [u8]) -> Result<Icrc, AccessError> {
        self.regions.read_summed(region, crc, head, out)
    }

    #[inline]
    fn write(&self, region: Region, bytes: &[u8]) -> Result<(), AccessError> {
        self.regions.write(region, bytes)
    }

    #[inline]
    fn read_runs(&self, region: Region, runs: Runs, out: &mut [u8]) -> Result<(), AccessError> {
        self.regions.read_runs(region, runs, out)
    }

    #[inline]
    fn write_runs(&self, region: Region, runs: Runs, bytes: &[u8]) -> Result<(), AccessError> {
        self.regions.write_runs(region, runs, bytes)
    }

    fn atomic(&self, region: Region, op: AtomicOp) -> Result<u64, AccessError> {
        self.regions.atomic(region, op)
    }

    fn bind(&mut self, qpn: Qpn, pd: PdId, bind: &Bind) -> Result<(), AccessError> {
        self.regions.bind(qpn, pd, bind)
    }

    fn invalidate(&mut self, qpn: Qpn, pd: PdId, key: u32) -> Result<(), AccessError> {
        self.regions.invalidate(qpn, pd, key)
    }
}

impl CompletionSink for Shared {
    fn complete(&mut self, id: CqId, completion: Completion) -> Result<(), CqOverflow> {
        if completion.status != Status::Success && self.own_work == Some(completion.wr_id) {
            return Ok(());
        }
        let Some(Some(cq)) = self.cqs.get_mut(id.0 as usize) else { return Err(CqOverflow) };
        let known = cq.overflowed();
        let pushed = cq.push(completion);
        match &pushed {
            Ok(true) => self.completion_events.push_back(id),
            Err(_) if !known => self.events.push_back(Event::CqErr(id)),
            _ => {}
        }
        pushed.map(|_| ())
    }

    fn admits(&mut self, id: CqId, arrival: &Arrival) -> bool {
        match self.cqs.get_mut(id.0 as usize) {
            Some(Some(cq)) => cq.sink_mut().is_none_or(|sink| sink.admits(arrival)),
            _ => true,
        }
    }

    fn arrived(&mut self, id: CqId, arrival: &Arrival) {
        if let Some(Some(cq)) = self.cqs.get_mut(id.0 as usize)
            && let Some(sink) = cq.sink_mut()
        {
            sink.on_arrival(arrival);
        }
    }
}

impl Host for Shared {
    #[inline]
    fn counters(&mut self) -> &mut Counters {
        &mut self.counters
    }

    #[inline]
    fn misfits(&mut self) -> &mut Misfits {
        &mut self.misfits
    }

    fn notify(&mut self, event: Event) {
        self.events.push_back(event);
    }

    fn take_shared(&mut self, id: SrqId, into: &mut RecvQueue) -> bool {
        let Some(Some(srq)) = self.srqs.get_mut(id.0 as usize) else { return false };
        let taken = srq.take(into);
        if srq.fell_below_limit() {
            self.events.push_back(Event::SrqLimit(id));
        }
        taken
    }

    fn return_shared(&mut self, id: SrqId, from: &mut RecvQueue) -> bool {
        let Some(Some(srq)) = self.srqs.get_mut(id.0 as usize) else { return false };
        from.return_oldest(&mut srq.queue)
    }

    #[inline]
    fn address(&self, ah: AhId, pd: PdId) -> Option<&Template> {
        let handle = self.ahs.get(ah)?;
        (handle.pd == pd).then_some(&handle.template)
    }

    fn credit_pacer(&mut self, port: usize) -> Option<&mut CreditPacer> {
        self.credit_pacers.get_mut(port)
    }
}

/// The queue pairs that receive packets to a multicast address.
struct Group {
    address: IpAddr,
    /// The slots of the members.
    members: Vec<u32>,
}

/// The queue pairs that take turns to send by a port.
#[derive(Debug, Clone)]
struct Turns {
    /// Whether frames pass by the port, that is, whether its link is up. Loopback is always up.
    up: bool,
    /// Queue pairs that may have frames to send, in the order of their turns.
    ready: VecDeque<u32>,
    /// Number of bytes that the first of them may still send in its turn; 0 if the turn has not started.
    left: u32,
    /// MADs of software, which are sent before the queue pairs' frames.
    mads: VecDeque<PostedMad>,
}

impl Turns {
    const fn new() -> Turns {
        Turns { up: true, ready: VecDeque::new(), left: 0, mads: VecDeque::new() }
    }
}

/// A software RDMA NIC.
///
/// As a [`Node`](softnic_wire::Node) the NIC has any number of wire ports, of which [`Nic::WIRE`] is the first, and [`Nic::LOOPBACK`] for
/// frames between its own queue pairs. The driver returns loopback frames at the same port, optionally through a fault injector, or by
/// [`Nic::loop_back`].
pub struct Nic {
    /// The wire ports; at least one.
    ports: Vec<WirePort>,
    payload: PayloadMode,
    random: Box<dyn Generator>,
    shared: Shared,
    /// Protection domains. Their numbers are not reused.
    pds: BTreeSet<u32>,
    next_pd: u32,
    /// Free indexes of destroyed completion queues and shared receive queues.
    free_cqs: Vec<u32>,
    free_srqs: Vec<u32>,
    owner: Owner,
    /// Other NICs have the same addresses.
    shares_addresses: bool,
    /// Maps queue pair numbers to slots.
    qpns: RandomTable<u32>,
    /// Freed queue pair numbers, the last one first. They are not reused for a while, because peers may still know them.
    resting_qpns: VecDeque<u32>,
    /// The slot of QP1.
    gsi: Option<u32>,
    /// The limit on datagrams to QP1 for each source, while QP1 exists.
    source_rates: Option<SourceRates>,
    slots: Vec<Option<Slot>>,
    groups: Vec<Group>,
    /// Received MADs for software, and whether software takes them.
    mads: VecDeque<ReceivedMad>,
    takes_mads: bool,
    /// Whether MADs of the connection manager are kept there, too.
    takes_cm_mads: bool,
    /// The turns, for each port of the Node.
    turns: Vec<Turns>,
    timers: Timers,
    /// Peers that did not answer an offer of extensions.
    silent_peers: SilentPeers,
    /// The round-trip times to peers.
    round_trips: RoundTrips,
    /// The memory shared by all shims.
    pools: ShimPools,
    /// Buffer for a frame that a shim releases, or that is looped back.
    held: Box<[u8]>,
    /// The software on the NIC.
    pub(crate) layer: Option<Box<Installed>>,
}

/// The longest frame: path MTU 4096 with every header.
const MAX_FRAME: usize = 4096 + 256;

impl Nic {
    /// Creates a NIC without any objects. Keys and queue pair numbers come from `random`.
    pub fn new(config: NicConfig, random: Box<dyn Generator>) -> Nic {
        Nic {
            ports: vec![WirePort::new(config.port)],
            payload: config.payload,
            random,
            shared: Shared {
                regions: Regions::new(),
                cqs: Vec::new(),
                srqs: Vec::new(),
                ahs: AddressHandles::default(),
                counters: Counters::default(),
                misfits: Misfits::default(),
                events: VecDeque::new(),
                completion_events: VecDeque::new(),
                own_work: None,
                credit_pacers: vec![CreditPacer::new(DEFAULT_LINK_RATE); 2],
            },
            pds: BTreeSet::new(),
            next_pd: 0,
            free_cqs: Vec::new(),
            free_srqs: Vec::new(),
            owner: Owner::default(),
            shares_addresses: false,
            qpns: RandomTable::new(24),
            resting_qpns: VecDeque::new(),
            gsi: None,
            source_rates: None,
            slots: Vec::new(),
            groups: Vec::new(),
            mads: VecDeque::new(),
            takes_mads: false,
            takes_cm_mads: false,
            turns: vec![Turns::new(); 2],
            timers: Timers::default(),
            silent_peers: SilentPeers::default(),
            round_trips: RoundTrips::default(),
            pools: ShimPools::default(),
            held: vec![0; MAX_FRAME].into(),
            layer: None,
        }
    }

    /// Sets the owner: from now on queue pairs get numbers with the owner's upper bits.
    pub fn set_owner(&mut self, owner: Owner) {
        self.owner = owner;
    }

    /// Whether frames carry their payload. Without payload, software need not compute the data that it sends.
    pub fn payload_mode(&self) -> PayloadMode {
        self.payload
    }

    /// The NIC's counters.
    pub fn counters(&self) -> &Counters {
        &self.shared.counters
    }

    /// The NIC's counters, as a mutable reference, for a layer that counts its own events among them.
    pub fn counters_mut(&mut self) -> &mut Counters {
        &mut self.shared.counters
    }

    /// The next event that belongs to no work request.
    pub fn poll_event(&mut self) -> Option<Event> {
        self.shared.events.pop_front()
    }

    /// Whether any queue pair or MAD may have a frame for a port. If not, [`softnic_wire::Node::poll_transmit`] returns none.
    #[inline]
    pub fn may_send(&self, port: usize) -> bool {
        let Turns { ready, mads, .. } = &self.turns[port];
        !(ready.is_empty() && mads.is_empty()) || self.layer.is_some()
    }

    /// Whether an event or a MAD for software is pending.
    #[inline]
    pub fn has_news(&self) -> bool {
        !(self.shared.events.is_empty() && self.mads.is_empty())
    }

    /// Drops the events of an object that was destroyed, because a later object may get its name.
    fn forget_events(&mut self, of_it: impl Fn(Event) -> bool) {
        self.shared.events.retain(|&event| !of_it(event));
    }

    /// The next completion queue whose armed event has been raised.
    pub fn poll_completion_event(&mut self) -> Option<CqId> {
        self.shared.completion_events.pop_front()
    }
}
