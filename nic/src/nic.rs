//! A NIC: what it is made of. The calls that make and change its objects are in `objects` and `queue_pairs`, the data
//! path in `receive` and `transmit`.

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

/// What a NIC is made with.
#[derive(Debug, Clone)]
pub struct NicConfig {
    /// Its first port; further ones are added ([`Nic::add_port`]).
    pub port: Port,
    /// Whether frames carry their payload; only a simulation leaves it out.
    pub payload: PayloadMode,
}

/// Which queue pair numbers a NIC gives out, where several NICs are one device: those whose upper bits are its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Owner {
    /// Which of them it is.
    pub index: u32,
    /// How many upper bits of a number say whose it is.
    pub bits: u32,
}

impl Owner {
    /// Who gave out a number, by these upper bits. Those of management are the first's.
    #[inline]
    pub fn of(qpn: Qpn, bits: u32) -> u32 {
        (u64::from(qpn.value()) >> (24 - bits)) as u32
    }

    /// One of its own numbers, of which the lower bits are drawn.
    fn number(self, drawn: u32) -> u32 {
        (self.index << (24 - self.bits)) | drawn & (0x00ff_ffff >> self.bits)
    }

    /// How many numbers are its own.
    fn count(self) -> usize {
        1 << (24 - self.bits)
    }
}

/// What all queue pairs share: memory, completion queues, shared receives, addresses, counters.
struct Shared {
    regions: Regions,
    cqs: Vec<Option<Cq>>,
    srqs: Vec<Option<Srq>>,
    ahs: AddressHandles,
    counters: Counters,
    misfits: Misfits,
    /// What the program has not been told yet.
    events: VecDeque<Event>,
    /// Completion queues whose event is due.
    completion_events: VecDeque<CqId>,
    /// The name of work whose errors are not told.
    own_work: Option<u64>,
    /// Who hands out turns to give credit, for each port of the Node.
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

/// Queue pairs that hear what is sent to a multicast address.
struct Group {
    address: IpAddr,
    /// Slots.
    members: Vec<u32>,
}

/// Whose turn it is to send by a port.
#[derive(Debug, Clone)]
struct Turns {
    /// Frames pass by the port: its link is up. Loopback always is.
    up: bool,
    /// Queue pairs that may have something to send, in turn.
    ready: VecDeque<u32>,
    /// Bytes that the first of them may still send in its turn; 0 when that has not begun.
    left: u32,
    /// MADs of software, which go before them.
    mads: VecDeque<PostedMad>,
}

impl Turns {
    const fn new() -> Turns {
        Turns { up: true, ready: VecDeque::new(), left: 0, mads: VecDeque::new() }
    }
}

/// A software RDMA NIC.
///
/// As a [`Node`](softnic_wire::Node) it has any number of wire ports, [`Nic::WIRE`] the first of them, and [`Nic::LOOPBACK`] for frames among
/// its own queue pairs, which the driver hands back at the same port, through a fault injector if it likes, or by [`Nic::loop_back`].
pub struct Nic {
    /// At least one.
    ports: Vec<WirePort>,
    payload: PayloadMode,
    random: Box<dyn Generator>,
    shared: Shared,
    /// Protection domains. Their numbers are not used again.
    pds: BTreeSet<u32>,
    next_pd: u32,
    /// Places of completion queues and of shared receive queues that were destroyed.
    free_cqs: Vec<u32>,
    free_srqs: Vec<u32>,
    owner: Owner,
    /// Other NICs have its addresses too.
    shares_addresses: bool,
    /// Queue pair number to slot.
    qpns: RandomTable<u32>,
    /// Numbers that were given back, the last one first: they rest, because their peers may still know them.
    resting_qpns: VecDeque<u32>,
    /// The slot of QP1.
    gsi: Option<u32>,
    /// What each source may send to QP1, while there is one.
    source_rates: Option<SourceRates>,
    slots: Vec<Option<Slot>>,
    groups: Vec<Group>,
    /// MADs that came for software, and whether anybody takes them.
    mads: VecDeque<ReceivedMad>,
    takes_mads: bool,
    /// Those of the connection manager wait there, too.
    takes_cm_mads: bool,
    /// Whose turn it is, for each port of the Node.
    turns: Vec<Turns>,
    timers: Timers,
    /// Peers that answered no offer of extensions.
    silent_peers: SilentPeers,
    /// How far away peers are.
    round_trips: RoundTrips,
    /// The memory that all shims share.
    pools: ShimPools,
    /// Room for a frame that a shim hands over, or that comes back.
    held: Box<[u8]>,
    /// The software on it.
    pub(crate) layer: Option<Box<Installed>>,
}

/// The longest frame there is: path MTU 4096 with every header.
const MAX_FRAME: usize = 4096 + 256;

impl Nic {
    /// A NIC without any object. Keys and queue pair numbers come from `random`.
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

    /// From now on its queue pairs get numbers that say whose they are.
    pub fn set_owner(&mut self, owner: Owner) {
        self.owner = owner;
    }

    /// Whether its frames carry their payload: software that computes on what it sends need not where they do not.
    pub fn payload_mode(&self) -> PayloadMode {
        self.payload
    }

    /// The NIC's counters.
    pub fn counters(&self) -> &Counters {
        &self.shared.counters
    }

    /// The same, for a layer that counts among them what it did.
    pub fn counters_mut(&mut self) -> &mut Counters {
        &mut self.shared.counters
    }

    /// The next thing that happened beside all work requests.
    pub fn poll_event(&mut self) -> Option<Event> {
        self.shared.events.pop_front()
    }

    /// Whether anybody has asked to send by a port: where nobody has, [`softnic_wire::Node::poll_transmit`] has nothing.
    #[inline]
    pub fn may_send(&self, port: usize) -> bool {
        let Turns { ready, mads, .. } = &self.turns[port];
        !(ready.is_empty() && mads.is_empty()) || self.layer.is_some()
    }

    /// Whether an event or a MAD for software waits.
    #[inline]
    pub fn has_news(&self) -> bool {
        !(self.shared.events.is_empty() && self.mads.is_empty())
    }

    /// Events of something that is gone are not told: what comes after it may have its name.
    fn forget_events(&mut self, of_it: impl Fn(Event) -> bool) {
        self.shared.events.retain(|&event| !of_it(event));
    }

    /// A completion queue that an event was asked for, and that has the completion now.
    pub fn poll_completion_event(&mut self) -> Option<CqId> {
        self.shared.completion_events.pop_front()
    }
}
