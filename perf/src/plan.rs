//! What a run of `softnic perf` does: operation, transport, sizes and how much of each. Both ends agree on it before they start.

mod fields;
mod reliable;
mod sdr;

use serde::{Deserialize, Serialize};
use softnic_nic::transports::BestEffort;
use softnic_runtime::api::{Transport, parse_cc};
use softnic_wire::PathMtu;

pub use reliable::ReliablePlan;
pub use sdr::SdrPlan;

/// What is measured.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, clap::ValueEnum)]
#[serde(rename_all = "snake_case")]
#[value(rename_all = "snake_case")]
pub enum Op {
    /// Bandwidth of RDMA WRITE
    WriteBw,
    /// Bandwidth of RDMA READ
    ReadBw,
    /// Bandwidth of SEND
    SendBw,
    /// Rate of FETCH_ADD
    AtomicBw,
    /// Latency of RDMA WRITE, half a round trip
    WriteLat,
    /// Latency of RDMA READ
    ReadLat,
    /// Latency of SEND, half a round trip
    SendLat,
    /// Time from the post of an RDMA WRITE to its completion, of one at a time: for `softnic race`
    #[value(skip)]
    WriteFct,
    /// Latency of FETCH_ADD
    AtomicLat,
    /// What the wire carries without any protocol
    Raw,
    /// Latency of the wire without any protocol, half a round trip
    RawLat,
}

/// What a work request does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verb {
    /// RDMA WRITE.
    Write,
    /// RDMA READ.
    Read,
    /// SEND.
    Send,
    /// FETCH_ADD.
    Atomic,
    /// None: frames without any protocol.
    Raw,
}

impl Op {
    /// What its work requests do.
    pub fn verb(self) -> Verb {
        match self {
            Op::WriteBw | Op::WriteLat | Op::WriteFct => Verb::Write,
            Op::ReadBw | Op::ReadLat => Verb::Read,
            Op::SendBw | Op::SendLat => Verb::Send,
            Op::AtomicBw | Op::AtomicLat => Verb::Atomic,
            Op::Raw | Op::RawLat => Verb::Raw,
        }
    }

    /// Whether the time of single messages is measured.
    pub fn is_latency(self) -> bool {
        matches!(self, Op::WriteLat | Op::WriteFct | Op::ReadLat | Op::SendLat | Op::AtomicLat | Op::RawLat)
    }

    /// Whether both ends send, one after the other.
    pub(crate) fn is_ping_pong(self) -> bool {
        matches!(self, Op::WriteLat | Op::SendLat | Op::RawLat)
    }

    /// As the command line and JSON have it.
    pub fn name(self) -> &'static str {
        match self {
            Op::WriteBw => "write_bw",
            Op::ReadBw => "read_bw",
            Op::SendBw => "send_bw",
            Op::AtomicBw => "atomic_bw",
            Op::WriteLat => "write_lat",
            Op::ReadLat => "read_lat",
            Op::SendLat => "send_lat",
            Op::WriteFct => "write_fct",
            Op::AtomicLat => "atomic_lat",
            Op::Raw => "raw",
            Op::RawLat => "raw_lat",
        }
    }
}

/// How much of each size.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Amount {
    /// So many messages.
    Iterations(u64),
    /// So many seconds.
    Seconds(f64),
    /// As many messages as usual.
    Usual,
}

/// What a run does.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Plan {
    /// What is measured.
    pub op: Op,
    /// The transport of both ends.
    #[serde(flatten, with = "fields")]
    pub transport: Transport,
    /// Where messages go by SDR, over a queue pair of UC: what it is made with. The transport is of the answers then.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sdr: Option<SdrPlan>,
    /// Where they are reliable on top of SDR: by which scheme. The transport is what is used with a peer that has it not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reliable: Option<ReliablePlan>,
    /// Congestion control at both ends, as `--cc` has it; `None` for what is usual.
    #[serde(default)]
    pub cc: Option<String>,
    /// Whether every packet is authenticated, by a secret that both ends have.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub auth: bool,
    /// What the queue pairs speak, where that had to be negotiated.
    #[serde(skip)]
    pub negotiated: Option<String>,
    /// The MTU that a link must have for what was wished, where it has less.
    #[serde(skip)]
    pub needs_link_mtu: Option<u32>,
    /// Bytes of a message, one after the other.
    pub sizes: Vec<u32>,
    /// How much of each size.
    pub amount: Amount,
    /// Queue pairs.
    pub qps: u32,
    /// Path MTU; `None` for the longest that both ends bear.
    pub mtu: Option<u32>,
    /// Work requests outstanding on a queue pair.
    pub depth: u32,
    /// Local ACK timeout: 4.096 µs · 2^n, 0 for none.
    pub timeout: u8,
    /// Retries after timeouts and sequence NAKs.
    pub retry: u8,
    /// Traffic class of packets.
    #[serde(default)]
    pub tclass: u8,
    /// Whether the data is compared.
    pub verify: bool,
    /// Whether a ping-pong waits for the completion of its own message first.
    #[serde(default)]
    pub wait_completion: bool,
    /// How long a message may take where the transport keeps deadlines, in nanoseconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub deadline_ns: Option<u64>,
    /// Blocks that each packet has a part of, where the transport has strides.
    #[serde(default = "plain", skip_serializing_if = "is_plain")]
    pub stride: u16,
}

/// The stride of messages without one.
fn plain() -> u16 {
    1
}

fn is_plain(stride: &u16) -> bool {
    *stride == 1
}

/// The most that a size moves when nobody said how much.
const USUAL_BYTES: u64 = 1 << 30;
/// Memory for the messages of one queue pair that are kept apart to be compared.
const VERIFIED_BYTES: usize = 32 << 20;
/// Receives that are kept posted: far more than a batch of frames uses up.
const RECEIVES: u32 = 512;
/// The network header in front of every datagram received.
pub(crate) const GRH: usize = 40;
/// The longest message of `-a`, as perftest has it.
const LONGEST: u32 = 8 << 20;

/// The most queue pairs of a run.
pub const MAX_QPS: u32 = 16384;
/// The most work requests outstanding on each of them.
pub const MAX_DEPTH: u32 = 8192;
/// Work requests of all queue pairs together: 16,384 queue pairs at the default depth have two thirds of them.
const MAX_WORK: u64 = 1 << 24;
/// Bytes of memory for the messages of a run, at each end.
const MAX_MEMORY: u64 = 8 << 30;
/// Sizes of a run: `-a` has 23.
const MAX_SIZES: usize = 64;
/// Bytes that a work request takes in all queues together, at most: its slot and its elements in two of them, its completion in two.
const WORK_LEN: u64 = 1024;

impl Plan {
    /// One size on one queue pair, with everything else as it is where nobody says otherwise.
    pub fn usual(op: Op, transport: Transport, size: u32, mtu: u32, amount: Amount) -> Plan {
        Plan {
            op,
            transport,
            sdr: None,
            reliable: None,
            cc: None,
            auth: false,
            negotiated: None,
            needs_link_mtu: None,
            sizes: vec![size],
            amount,
            qps: 1,
            mtu: Some(mtu),
            depth: 128,
            timeout: 14,
            retry: 7,
            tclass: 0,
            verify: false,
            wait_completion: false,
            deadline_ns: None,
            stride: plain(),
        }
    }

    /// All sizes of `-a`.
    pub fn all_sizes(op: Op, transport: Transport, mtu: u32) -> Vec<u32> {
        let longest = match op.verb() {
            Verb::Atomic => return vec![8],
            Verb::Raw => mtu,
            _ if !transport.kind().is_connected() => mtu,
            _ => LONGEST,
        };
        (1..).map(|bit| 1u32 << bit).take_while(|&size| size <= longest).collect()
    }

    /// Bytes of a message, where nobody says.
    pub fn default_size(op: Op, transport: Transport, mtu: u32) -> u32 {
        match op.verb() {
            Verb::Atomic => 8,
            _ if op.is_latency() => 64,
            Verb::Raw => 1024,
            _ if !transport.kind().is_connected() => mtu,
            _ => 64 << 10,
        }
    }

    /// What is wrong with it, if anything: it may be another machine's.
    pub fn check(&self) -> Result<(), String> {
        self.check_limits()?;
        self.check_sdr()?;
        self.check_reliable()?;
        let verb = self.op.verb();
        let exists = match verb {
            Verb::Write => self.transport.has_write(),
            Verb::Read => self.transport.has_read(),
            Verb::Atomic => self.transport.has_atomics(),
            Verb::Send | Verb::Raw => true,
        };
        if !exists {
            let has = match self.transport.has_write() {
                true if self.transport.has_read() => "write, read and send",
                true => "write and send",
                false => "send",
            };
            return Err(format!("{} has no {}: only {has}", self.transport.name(), self.op.name()));
        }
        if let Some(cc) = &self.cc {
            let parsed = parse_cc(cc).map_err(|e| format!("--cc: {e}"))?;
            if verb == Verb::Raw || !self.transport.has_congestion_control() {
                return Err("ud and raw frames have no congestion control: leave --cc out".into());
            }
            if !parsed.is_for(self.transport) {
                return Err(format!(
                    "{} is not for {}: swift is for rc, sr, lowar and xp, eqds for rc, sr and xp",
                    cc,
                    self.transport.name()
                ));
            }
        }
        if (self.deadline_ns.is_some() || self.stride != 1) && !self.is_best_effort() {
            return Err("only xp has deadlines and strides: leave --deadline and --stride out".into());
        }
        if !self.stride.is_power_of_two() || self.stride > BestEffort::MAX_STRIDE {
            return Err(format!("--stride is a power of two up to {}, not {}", BestEffort::MAX_STRIDE, self.stride));
        }
        if self.auth && (verb == Verb::Raw || !self.transport.is_reliable()) {
            return Err("only rc, sr and lowar have authentication: leave --auth out".into());
        }
        if verb == Verb::Atomic && self.sizes != [8] {
            return Err("an atomic works on 8 bytes: leave --size out".into());
        }
        let longest = self.sizes.iter().max().copied().unwrap_or(0);
        let single = verb == Verb::Raw || !self.transport.kind().is_connected();
        let mtu = self.mtu.unwrap_or(4096);
        if single && longest > mtu {
            let what = if verb == Verb::Raw { "a raw frame" } else { "a datagram" };
            return Err(format!("{what} has at most as many bytes as the MTU, {mtu}, not {longest}"));
        }
        // Its packets are placed as they come: only of one is the last byte the last.
        if !self.transport.places_in_order() && self.op == Op::WriteLat && longest > mtu {
            let name = self.transport.name();
            return Err(format!(
                "write_lat waits for the last byte in memory, which under {name} may come before others: at most {mtu} bytes, the MTU, or send_lat"
            ));
        }
        if verb == Verb::Raw && self.verify {
            return Err("raw frames carry nothing to compare: leave --verify out".into());
        }
        if self.op.is_latency() && self.qps > 1 {
            return Err("latency is measured on one queue pair: leave --qps out".into());
        }
        if self.wait_completion && !(self.op.is_latency() && matches!(verb, Verb::Write | Verb::Send)) {
            return Err("only write_lat and send_lat have a completion to wait for: leave --wait-completion out".into());
        }
        Ok(())
    }

    /// Whether it is of a size that an end can serve.
    fn check_limits(&self) -> Result<(), String> {
        if self.qps == 0 || self.qps > MAX_QPS {
            return Err(format!("--qps must be between 1 and {MAX_QPS}"));
        }
        if self.depth == 0 || self.depth > MAX_DEPTH {
            return Err(format!("--depth must be between 1 and {MAX_DEPTH}"));
        }
        if self.timeout > 31 || self.retry > 7 {
            return Err("--timeout is at most 31, and --retry at most 7".into());
        }
        if self.sizes.is_empty() || self.sizes.len() > MAX_SIZES {
            return Err(format!("a run has between 1 and {MAX_SIZES} sizes"));
        }
        if self.sizes.iter().any(|&size| size == 0 || size > 1 << 30) {
            return Err("--size must be between 1 and 1G".into());
        }
        let amount_is_right = match self.amount {
            Amount::Iterations(n) => (1..=1 << 36).contains(&n),
            Amount::Seconds(time) => time > 0.0 && time < 86400.0,
            Amount::Usual => true,
        };
        if !amount_is_right {
            return Err("a run has between 1 and 2^36 messages, or takes less than a day".into());
        }
        let work = u64::from(self.qps) * (self.outstanding() + u64::from(self.receives()));
        if work > MAX_WORK {
            return Err(format!("{work} work requests are too many: take fewer --qps, or less --depth"));
        }
        match self.memory() {
            Some(bytes) if bytes <= MAX_MEMORY => Ok(()),
            _ => Err("the messages need more than 8 GiB of memory: take fewer --qps, or a shorter --size".into()),
        }
    }

    /// Whether this process has the memory that an end of the run needs. Rust ends a process where an allocation fails, so the whole is
    /// tried before: a client must not end a server.
    pub(crate) fn check_memory(&self) -> Result<(), String> {
        let work = u64::from(self.qps) * (self.outstanding() + u64::from(self.receives()));
        let bytes = work.checked_mul(WORK_LEN).and_then(|work| work.checked_add(self.memory()?));
        let bytes = bytes.and_then(|bytes| usize::try_from(bytes).ok());
        let mut room = Vec::<u8>::new();
        let tried = bytes.is_some_and(|bytes| room.try_reserve_exact(bytes).is_ok());
        // Lest the compiler finds out that nobody uses it.
        std::hint::black_box(&room);
        match (tried, bytes) {
            (true, _) => Ok(()),
            (false, Some(bytes)) => Err(format!("there is no memory for this run: it needs {} MiB", bytes >> 20)),
            (false, None) => Err("there is no memory for this run".into()),
        }
    }

    /// Bytes of memory for its messages, at each end.
    pub(crate) fn memory(&self) -> Option<u64> {
        let bytes = (self.slots() as u64).checked_mul(self.slot_len() as u64)?.checked_mul(2)?;
        bytes.checked_mul(self.qps.into())
    }

    /// How many messages are sent of a size; `None` when time decides.
    pub(crate) fn iterations(&self, size: u32) -> Option<u64> {
        match self.amount {
            Amount::Iterations(n) => Some(n),
            Amount::Seconds(_) => None,
            Amount::Usual if self.op.is_latency() => Some(1000),
            Amount::Usual if self.op == Op::Raw => Some(200_000),
            Amount::Usual => Some((USUAL_BYTES / u64::from(size)).clamp(100, 5000)),
        }
    }

    /// How many messages go before, and do not count.
    pub(crate) fn warm_up(&self, size: u32) -> u64 {
        (self.iterations(size).unwrap_or(1000) / 10).clamp(1, 100)
    }

    fn longest(&self) -> usize {
        self.sizes.iter().max().copied().unwrap_or(0) as usize
    }

    /// Bytes from one message to the next in memory.
    pub(crate) fn slot_len(&self) -> usize {
        self.room_len() + self.bitmap_len()
    }

    /// Bytes of those that a message may fill.
    pub(crate) fn room_len(&self) -> usize {
        (self.longest() + GRH).next_multiple_of(64)
    }

    /// Bytes of those for a bitmap of the packets that came: where messages that came in part are compared.
    pub(crate) fn bitmap_len(&self) -> usize {
        let compares = self.verify && matches!(self.op.verb(), Verb::Send | Verb::Read);
        match compares && self.is_best_effort() {
            true => self.longest().div_ceil(PathMtu::B256.bytes() as usize).div_ceil(8).next_multiple_of(64),
            false => 0,
        }
    }

    /// Whether messages may come in part.
    pub(crate) fn is_best_effort(&self) -> bool {
        matches!(self.transport, Transport::Xp(_)) && self.op.verb() != Verb::Raw
    }

    /// Whether work requests say something that only best effort can keep.
    pub(crate) fn promises(&self) -> bool {
        self.deadline_ns.is_some() || self.stride != 1 || self.bitmap_len() > 0
    }

    /// Messages of a queue pair that have memory of their own, each way. One is enough where nobody compares, or one is under way.
    pub(crate) fn slots(&self) -> usize {
        match self.keeps_apart() {
            true => (VERIFIED_BYTES / self.slot_len()).clamp(2, RECEIVES as usize),
            false => 1,
        }
    }

    fn keeps_apart(&self) -> bool {
        self.verify && !self.op.is_latency()
    }

    /// Work requests outstanding on a queue pair at most.
    pub fn outstanding(&self) -> u64 {
        match self.keeps_apart() {
            true => u64::from(self.depth).min(self.slots() as u64),
            // One at a time, but acknowledgements may come later than answers.
            false if self.op.is_latency() => u64::from(self.depth.max(128)),
            false => u64::from(self.depth),
        }
    }

    /// Receives that a queue pair keeps posted.
    pub(crate) fn receives(&self) -> u32 {
        match self.keeps_apart() {
            true => RECEIVES.min(self.slots() as u32),
            false => RECEIVES,
        }
    }
}

#[cfg(test)]
mod tests;
