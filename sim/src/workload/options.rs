//! What a run of the workload is told, and why it may be refused.

use std::io;
use std::time::Duration;

use softnic_fault_injector::units::{parse_rate, parse_size, parse_time};
use softnic_fault_injector::{Spec, SpecError};
pub use softnic_nic::transports::congestion::Cc;
use softnic_nic::transports::congestion::Units;
use softnic_nic::transports::lowar::Code;
use softnic_nic::transports::qp::PayloadMode;
use softnic_nic::transports::sr::MAX_WINDOW;
use softnic_nic::{AddressError, ModifyError, MrError, QpKind};
use softnic_wire::PathMtu;

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

/// How rates, sizes and times are written: as in a SPEC.
pub const UNITS: Units = Units { rate: parse_rate, size: parse_size, time: parse_time };

/// How Selective Repeat is set.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Sr {
    /// Packets from the oldest missing one to the newest; by default four bandwidth-delay products.
    pub window: Option<u32>,
}

/// A run.
#[derive(Debug, Clone)]
pub struct Options {
    /// The kind of queue pairs: RC, UC or UD.
    pub transport: QpKind,
    /// Selective Repeat, for RC: offered by both sides.
    pub sr: Option<Sr>,
    /// LoWAR, for RC without Selective Repeat: offered by both sides.
    pub lowar: Option<Code>,
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
    /// Seed of everything random.
    pub seed: u64,
}

impl Default for Options {
    fn default() -> Options {
        Options {
            transport: QpKind::Rc,
            sr: None,
            lowar: None,
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
            seed: 1,
        }
    }
}

/// Why a run did not come to an end.
#[derive(Debug, thiserror::Error)]
pub enum SimError {
    /// The options cannot be.
    #[error("{0}")]
    Options(&'static str),
    /// The faults cannot be on a link.
    #[error("{0}")]
    Faults(#[from] SpecError),
    /// Memory could not be registered.
    #[error("cannot register memory: {0}")]
    Memory(#[from] MrError),
    /// The queue pairs could not be connected.
    #[error("cannot connect the queue pairs: {0}")]
    Connect(#[from] ModifyError),
    /// There is no way from the one to the other.
    #[error("cannot make an address handle: {0}")]
    Address(#[from] AddressError),
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
    check_transport(o)?;
    wrong(o.op == Op::Atomic && o.size != 8, "an atomic is of 8 bytes")?;
    wrong(o.retry > 7, "the retry count must be from 0 to 7")?;
    wrong(o.timeout.is_some_and(|t| t > 31), "the timeout code must be from 0 to 31")
}

/// What the transport has no words for.
fn check_transport(o: &Options) -> Result<(), SimError> {
    if let Some(Sr { window: Some(w) }) = o.sr
        && !(64..=MAX_WINDOW).contains(&w)
    {
        return Err(SimError::Options("the window of sr must be from 64 to 2097152 packets"));
    }
    if o.cc != Cc::None && !matches!(o.transport, QpKind::Rc | QpKind::Uc) {
        return Err(SimError::Options("ud has no congestion control: --cc is for rc, sr, lowar and uc"));
    }
    let answered = matches!(o.op, Op::Read | Op::Atomic);
    let why = match o.transport {
        QpKind::Rc => return Ok(()),
        QpKind::Uc if answered => "uc has no READs and no atomics: choose --op write or --op send",
        QpKind::Ud if o.op != Op::Send => "ud has SENDs only: choose --op send",
        QpKind::Ud if o.size > o.mtu.bytes() => {
            "a datagram is no longer than the path MTU: choose a smaller --size or a larger --mtu"
        }
        QpKind::Gsi => "QP1 is for management",
        _ => return Ok(()),
    };
    Err(SimError::Options(why))
}
