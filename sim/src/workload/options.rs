//! What a run of the workload is told, and why it may be refused.

use std::io;
use std::time::Duration;

use softnic_fault_injector::units::{parse_rate, parse_size, parse_time};
use softnic_fault_injector::{Direction, Spec, SpecError};
pub use softnic_nic::transports::congestion::Cc;
use softnic_nic::transports::congestion::Units;
use softnic_nic::transports::qp::PayloadMode;
use softnic_nic::transports::sr::MAX_WINDOW;
use softnic_nic::transports::{BestEffort, SendOp, Transport};
use softnic_nic::{AddressError, ModifyError, MrError};
use softnic_sdr::SdrError;
use softnic_shift::Times;
use softnic_switch::group::GroupError;
use softnic_wire::PathMtu;

use super::sdr::{self, SdrOptions};
use crate::Time;
use crate::bounded::Bounds;
use crate::pair::{A, B};

/// What the work requests do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Op {
    /// RDMA WRITE.
    Write,
    /// SEND.
    Send,
    /// RDMA READ.
    Read,
    /// Fetch and add, of eight bytes each.
    Atomic,
}

impl Op {
    /// Message number `n` as a work request. Messages that nobody acknowledges carry their number as immediate data, by which
    /// the receiver knows them.
    pub(crate) fn request(self, reliable: bool, remote_addr: u64, rkey: u32, n: u64) -> SendOp {
        let imm = n as u32;
        match self {
            Op::Write if reliable => SendOp::Write { remote_addr, rkey },
            Op::Write => SendOp::WriteImm { remote_addr, rkey, imm },
            Op::Send if reliable => SendOp::Send,
            Op::Send => SendOp::SendImm { imm },
            Op::Read => SendOp::Read { remote_addr, rkey },
            Op::Atomic => SendOp::FetchAdd { remote_addr, rkey, add: 1 },
        }
    }

    /// Whether messages use up receives. Those that nobody acknowledges do, so that the receiver hears of them.
    pub(crate) fn uses_receives(self, reliable: bool) -> bool {
        self == Op::Send || self == Op::Write && !reliable
    }
}

/// How rates, sizes and times are written: as in a SPEC.
pub const UNITS: Units = Units { rate: parse_rate, size: parse_size, time: parse_time };

/// A run.
#[derive(Debug, Clone)]
pub struct Options {
    /// The transport of both sides.
    pub transport: Transport,
    /// Congestion control at both ends, for connections.
    pub cc: Cc,
    /// What the work requests do.
    pub op: Op,
    /// Bytes of each.
    pub size: u32,
    /// How many in all.
    pub count: u64,
    /// How many are outstanding on each queue pair.
    pub depth: u32,
    /// Queue pairs.
    pub qps: u32,
    /// Path MTU.
    pub mtu: PathMtu,
    /// Line rate, bits a second.
    pub rate: u64,
    /// Round-trip time without serialisation.
    pub rtt: Duration,
    /// Local ACK timeout code; by default the smallest that is at least four round trips, with the most that the faults'
    /// delay, jitter and queue add.
    pub timeout: Option<u8>,
    /// Retries.
    pub retry: u8,
    /// What goes wrong, in both directions.
    pub faults: Spec,
    /// Whether frames carry their payload.
    pub payload: PayloadMode,
    /// The time that each message has from when it is posted, over a transport of best effort.
    pub deadline: Option<Duration>,
    /// Blocks that each packet has a part of, over such a transport; 1 is plain.
    pub stride: u16,
    /// Messages go by SDR, over UC, made with this.
    pub sdr: Option<SdrOptions>,
    /// Whether both ends authenticate every packet of the other.
    pub auth: bool,
    /// Each host has a second NIC, with a link between them, by which connections go on when the first one fails.
    pub backup: Option<Backup>,
    /// Ports of the first NICs that go down.
    pub outages: Vec<Outage>,
    /// Seed of everything random.
    pub seed: u64,
}

/// The second NICs of a run.
#[derive(Debug, Clone, PartialEq)]
pub struct Backup {
    /// What goes wrong on the link between them, in both directions.
    pub faults: Spec,
    /// Between two probes of the first link, while it is not used.
    pub probe: Duration,
}

impl Default for Backup {
    fn default() -> Backup {
        Backup { faults: Spec::default(), probe: Times::default().probe }
    }
}

/// The port of a NIC is down for a time: the NIC knows, and no frame leaves or comes in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Outage {
    /// Whose: 0 is the requester, 1 the responder.
    pub host: usize,
    /// From when on, in virtual time.
    pub from: Duration,
    /// For how long.
    pub lasts: Duration,
}

impl Default for Options {
    fn default() -> Options {
        Options {
            transport: Transport::Rc,
            cc: Cc::None,
            op: Op::Write,
            size: 1 << 20,
            count: 100,
            depth: 16,
            qps: 1,
            mtu: PathMtu::B1024,
            rate: 10_000_000_000,
            rtt: Duration::from_millis(1),
            timeout: None,
            retry: 7,
            faults: Spec::default(),
            payload: PayloadMode::Real,
            deadline: None,
            stride: 1,
            sdr: None,
            auth: false,
            backup: None,
            outages: Vec::new(),
            seed: 1,
        }
    }
}

impl Options {
    /// The same run over Selective Repeat with a window that never limits it: four bandwidth-delay products.
    pub fn over_wide_sr(self) -> Options {
        let window = u32::try_from(self.bandwidth_delay() * 4 + 256).unwrap_or(MAX_WINDOW);
        let window = window.clamp(1024, MAX_WINDOW).next_power_of_two().min(MAX_WINDOW);
        Options { transport: Transport::Sr { window }, ..self }
    }

    /// The bandwidth-delay product of the link in packets.
    pub fn bandwidth_delay(&self) -> u128 {
        // Ethernet, IPv4, UDP, BTH, RETH, ICRC, and what Ethernet adds around a frame.
        let bits = u128::from(self.mtu.bytes() + 14 + 20 + 8 + 12 + 16 + 4 + 24) * 8;
        u128::from(self.rate) * self.longest_round_trip().as_nanos() / 1_000_000_000 / bits
    }

    /// Whether the queue pairs post enough work to fill the link with more packets in flight than `most` on each.
    pub fn is_limited_by(&self, most: u32) -> bool {
        let posted = u64::from(self.depth).min(self.count.div_ceil(u64::from(self.qps.max(1))));
        let packets = u128::from(posted) * u128::from(self.size.div_ceil(self.mtu.bytes()).max(1));
        packets > u128::from(most) && self.bandwidth_delay() > u128::from(most) * u128::from(self.qps)
    }

    /// The round trip with the most that the faults' delay, jitter and queues add.
    pub(super) fn longest_round_trip(&self) -> Duration {
        let of = |faults: &Spec| {
            let add = |rtt: Duration, d: &Direction| rtt.saturating_add(faults.shape(*d).longest());
            [Direction::Ab, Direction::Ba].iter().fold(self.rtt, add)
        };
        // A connection keeps its timeout when it goes by the backup.
        self.backup.as_ref().map_or(Duration::ZERO, |backup| of(&backup.faults)).max(of(&self.faults))
    }

    /// What messages of best effort have in common.
    pub(super) fn bounds(&self) -> Bounds {
        let deadline = self.deadline.filter(|_| self.transport.is_bounded());
        Bounds { reads: self.op == Op::Read, size: self.size, mtu: self.mtu, deadline, stride: self.stride }
    }

    /// Receives that a queue pair may have posted.
    pub(super) fn receives(&self) -> u32 {
        self.bounds().receives(self.depth, self.rate, self.longest_round_trip())
    }

    /// When ports go down and up, the last one first.
    pub(super) fn port_changes(&self) -> Vec<(Time, usize, bool)> {
        let both = |outage: &Outage| {
            let (down, up) = (outage.from, outage.from.saturating_add(outage.lasts));
            [(down, false), (up, true)].map(|(at, up)| (Time::default().after(at), outage.host, up))
        };
        let mut changes: Vec<_> = self.outages.iter().flat_map(both).collect();
        changes.sort_by_key(|&(at, ..)| std::cmp::Reverse(at));
        changes
    }
}

/// Why a run did not come to an end.
#[derive(Debug, thiserror::Error)]
pub enum SimError {
    /// The options cannot be.
    #[error("{0}")]
    Options(&'static str),
    /// The transport has neither WRITEs nor READs.
    #[error("{0} has SENDs only: choose --op send")]
    SendOnly(&'static str),
    /// The transport has no operations with a response.
    #[error("{0} has no READs and no atomics: choose --op write or --op send")]
    NoRead(&'static str),
    /// The faults cannot be on a link.
    #[error("{0}")]
    Faults(#[from] SpecError),
    /// Memory could not be registered.
    #[error("cannot register memory: {0}")]
    Memory(#[from] MrError),
    /// The queue pairs could not be connected.
    #[error("cannot connect the queue pairs: {0}")]
    Connect(#[from] ModifyError),
    /// An SDR queue pair could not be made or used.
    #[error("sdr: {0}")]
    Sdr(#[from] SdrError),
    /// There is no way from the one to the other.
    #[error("cannot make an address handle: {0}")]
    Address(#[from] AddressError),
    /// A switch did not take a group.
    #[error("cannot make a group: {0}")]
    Group(#[from] GroupError),
    /// What arrived is not what was sent.
    #[error("queue pair {qp}, slot {slot}: the receiver's memory is not what was sent")]
    Data {
        /// Which connection.
        qp: usize,
        /// Which message slot of it.
        slot: usize,
    },
    /// The capture could not be written.
    #[error("cannot write the capture: {0}")]
    Capture(io::Error),
}

pub(super) fn check(o: &Options) -> Result<(), SimError> {
    o.faults.check_link()?;
    let wrong = |bad: bool, why| if bad { Err(SimError::Options(why)) } else { Ok(()) };
    wrong(o.count == 0, "the count must be at least 1")?;
    wrong(o.depth == 0 || o.depth > 1 << 20, "the depth must be from 1 to 1048576")?;
    wrong(o.qps == 0 || o.qps > 1 << 16, "the number of queue pairs must be from 1 to 65536")?;
    wrong(u64::from(o.qps) * u64::from(o.depth) > 1 << 22, "queue pairs times depth must be at most 4194304")?;
    let real = o.payload == PayloadMode::Real;
    let bytes = u64::from(o.qps) * u64::from(o.size);
    wrong(
        real && bytes > 4 << 30,
        "queue pairs times size must be at most 4G: with --payload none there is no such bound",
    )?;
    wrong(o.size > softnic_wire::segment::MAX_MESSAGE, "a message is at most 2G")?;
    wrong(o.sdr.is_some() && o.transport != Transport::Uc, "sdr goes over uc")?;
    sdr::check_options(o).map_or(Ok(()), |why| Err(SimError::Options(why)))?;
    check_transport(o)?;
    check_backup(o)?;
    wrong(o.auth && !o.transport.is_reliable(), "only rc, sr and lowar have authentication: leave --auth out")?;
    wrong(o.auth && !real, "a tag is made of whole packets: --auth needs --payload real")?;
    let bounded = o.transport.is_bounded();
    wrong(!bounded && o.deadline.is_some(), "only xp keeps deadlines: leave --deadline out")?;
    wrong(!bounded && o.stride != 1, "only xp has strided packets: leave --stride out")?;
    wrong(!o.stride.is_power_of_two() || o.stride > BestEffort::MAX_STRIDE, "a stride is a power of two up to 2048")?;
    wrong(o.op == Op::Atomic && o.size != 8, "an atomic is of 8 bytes")?;
    wrong(o.retry > 7, "the retry count must be from 0 to 7")?;
    wrong(o.timeout.is_some_and(|t| t > 31), "the timeout code must be from 0 to 31")
}

/// What cannot be protected by a backup.
fn check_backup(o: &Options) -> Result<(), SimError> {
    let wrong = |bad: bool, why| if bad { Err(SimError::Options(why)) } else { Ok(()) };
    wrong(o.outages.iter().any(|outage| ![A, B].contains(&outage.host)), "there are two hosts, 0 and 1")?;
    let Some(backup) = &o.backup else { return Ok(()) };
    backup.faults.check_link()?;
    wrong(!o.transport.is_reliable(), "only rc, sr and lowar are protected: leave --backup out")?;
    wrong(o.payload == PayloadMode::Elided, "both ends read what the other wrote: --backup needs --payload real")?;
    wrong(o.auth, "a backup does not authenticate: --backup goes without --auth")?;
    wrong(o.cc != Cc::None, "a backup has no congestion control: --backup goes without --cc")?;
    wrong(backup.probe.is_zero(), "the time between two probes must be more than 0")
}

/// What a transport cannot do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Unsupported {
    /// Congestion control.
    Cc,
    /// READs and atomics, where nobody answers.
    Responses,
    /// Atomics, where a lost one would be a promise broken.
    Atomics,
    /// Anything but SENDs, as a datagram.
    NotSend,
    /// Messages of more than one packet, as a datagram.
    Length,
}

/// What keeps work requests of this kind from a transport.
pub(crate) fn unsupported(transport: Transport, op: Op, size: u64, mtu: PathMtu, cc: Cc) -> Option<Unsupported> {
    match op {
        _ if !cc.is_for(transport) => Some(Unsupported::Cc),
        Op::Write | Op::Read | Op::Atomic if !transport.has_write() => Some(Unsupported::NotSend),
        Op::Read | Op::Atomic if !transport.has_read() => Some(Unsupported::Responses),
        Op::Atomic if !transport.has_atomics() => Some(Unsupported::Atomics),
        _ if !transport.kind().is_connected() && size > u64::from(mtu.bytes()) => Some(Unsupported::Length),
        _ => None,
    }
}

fn check_transport(o: &Options) -> Result<(), SimError> {
    let Some(what) = unsupported(o.transport, o.op, o.size.into(), o.mtu, o.cc) else { return Ok(()) };
    let name = o.transport.name();
    Err(match what {
        Unsupported::Cc if o.transport.has_congestion_control() => SimError::Options(
            "this transport has nothing that this --cc goes by: swift is for rc, sr, lowar and xp, eqds for rc, sr and xp",
        ),
        Unsupported::Cc => SimError::Options("ud has no congestion control: --cc is for rc, sr, lowar, xp and uc"),
        Unsupported::Responses => SimError::NoRead(name),
        Unsupported::Atomics => SimError::Options("xp has no atomics: choose --op write, --op send or --op read"),
        Unsupported::NotSend => SimError::SendOnly(name),
        Unsupported::Length => {
            SimError::Options("a datagram is no longer than the path MTU: choose a smaller --size or a larger --mtu")
        }
    })
}
