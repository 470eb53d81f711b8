//! `softnic sim`: one host keeps a number of work requests outstanding to the other until all are done.

use std::io;
use std::rc::Rc;
use std::time::Duration;

use softnic_fault_injector::random::Random;
use softnic_fault_injector::{Direction, Spec, SpecError};
use softnic_nic::transports::memory::Access;
use softnic_nic::transports::qp::{Caps, PayloadMode};
use softnic_nic::transports::wr::Data;
use softnic_nic::transports::{Completion, RecvWr, SendFlags, SendOp, SendWr, Sge, Status};
use softnic_nic::{Buffer, ModifyError, MrError};
use softnic_pcaps::{LinkType, PcapWriter, Timestamp};
use softnic_wire::{PathMtu, Qpn};

use crate::link::LinkConfig;
use crate::pair::{A, B, Pair, PairConfig, timeout_code};
use crate::report::{CompletionTimes, Report};

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

/// A run.
#[derive(Debug, Clone)]
pub struct Options {
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

/// Where the payload of a run may lie on each side, at most; with larger windows messages share slots.
const MAX_BUFFER: u64 = 8 << 20;
const ADDRESS: [u64; 2] = [0x10_0000_0000, 0x20_0000_0000];

/// One connection of the workload.
struct Flow {
    qpns: [Qpn; 2],
    keys: [u32; 2],
    base: [u64; 2],
    buffers: Option<[Rc<Buffer>; 2]>,
    posted: u64,
    outstanding: u32,
    /// When each outstanding work request was posted, by its number modulo the depth.
    posted_at: Vec<u64>,
    receives: u64,
}

/// The state of a run.
struct Run<'a, 'p> {
    options: &'a Options,
    pair: Pair<'p>,
    flows: Vec<Flow>,
    slots: u64,
    posted: u64,
    done: u64,
    failed: u64,
    first_failure: Option<Status>,
    stalled: bool,
    times: CompletionTimes,
    last_completion: u64,
}

/// Runs to the end. `progress` is told now and then how many work requests are done; `capture` gets every
/// frame as a pcap file; give it a buffer, and flush it afterwards.
pub fn run(
    options: &Options,
    capture: Option<&mut dyn io::Write>,
    progress: &mut dyn FnMut(u64),
) -> Result<Report, SimError> {
    check(options)?;
    let written = std::cell::RefCell::new(Ok(()));
    let mut run = Run::new(options)?;
    if let Some(out) = capture {
        let mut pcap = PcapWriter::new(out, LinkType::Ethernet).map_err(SimError::Capture)?;
        let written = &written;
        run.pair.sim.set_tap(Box::new(move |time, frame, wire_len, _| {
            if written.borrow().is_ok() {
                let at = Timestamp::from_nanos(i128::from(time.0 / 1000));
                *written.borrow_mut() = pcap.write(at, frame, wire_len as u32);
            }
        }));
    }
    let outcome = run.drive(progress, &|| written.borrow().is_err());
    let report = outcome.and_then(|()| run.report());
    drop(run);
    written.into_inner().map_err(SimError::Capture)?;
    report
}

fn check(o: &Options) -> Result<(), SimError> {
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
    wrong(o.op == Op::Atomic && o.size != 8, "an atomic is of 8 bytes")?;
    wrong(o.retry > 7, "the retry count must be from 0 to 7")?;
    wrong(o.timeout.is_some_and(|t| t > 31), "the timeout code must be from 0 to 31")
}

impl<'a, 'p> Run<'a, 'p> {
    fn new(o: &'a Options) -> Result<Run<'a, 'p>, SimError> {
        let mut pair = Pair::new(PairConfig {
            link: LinkConfig { rate: o.rate, delay: o.rtt / 2, faults: o.faults.clone() },
            payload: o.payload,
            mtu: o.mtu,
            timeout: o.timeout.unwrap_or_else(|| timeout_code(longest_round_trip(o) * 4)),
            retry_cnt: o.retry,
            rnr_retry: 7,
            min_rnr_timer: 12,
            max_rd_atomic: 16,
            caps: Caps {
                max_send_wr: o.depth,
                max_recv_wr: o.depth * 2,
                max_send_sge: 1,
                max_recv_sge: 1,
                max_inline: 0,
            },
            cq_capacity: o.depth as usize * 2 * o.qps as usize,
            seed: o.seed,
            first_psn: None,
        });
        let size = u64::from(o.size).max(1);
        let slots = (MAX_BUFFER / size / u64::from(o.qps)).clamp(1, u64::from(o.depth));
        let mut fill = Random::stream(o.seed, 4);
        let mut flows = Vec::with_capacity(o.qps as usize);
        for i in 0..u64::from(o.qps) {
            let base = ADDRESS.map(|a| a + i * slots * size);
            let buffers =
                (o.payload == PayloadMode::Real).then(|| base.map(|b| Buffer::new(b, (slots * size) as usize)));
            match (&buffers, o.op) {
                (Some([from, _]), Op::Write | Op::Send) | (Some([_, from]), Op::Read) => fill_randomly(from, &mut fill),
                _ => {}
            }
            let mut keys = [0; 2];
            for host in [A, B] {
                let pd = pair.sides[host].pd;
                let remote = Access::REMOTE_WRITE | Access::REMOTE_READ | Access::REMOTE_ATOMIC;
                let access = Access::LOCAL_WRITE | remote;
                keys[host] = match &buffers {
                    Some(b) => pair.sim.node(host).reg_mr(pd, &b[host], access)?,
                    None => pair.sim.node(host).alloc_null_mr(pd, access)?,
                };
            }
            let qpns = pair.connect()?;
            let posted_at = vec![0; o.depth as usize];
            flows.push(Flow { qpns, keys, base, buffers, posted: 0, outstanding: 0, posted_at, receives: 0 });
        }
        Ok(Run {
            options: o,
            pair,
            flows,
            slots,
            posted: 0,
            done: 0,
            failed: 0,
            first_failure: None,
            stalled: false,
            times: CompletionTimes::default(),
            last_completion: 0,
        })
    }

    fn drive(&mut self, progress: &mut dyn FnMut(u64), stop: &dyn Fn() -> bool) -> Result<(), SimError> {
        let total = self.options.count;
        for i in 0..self.flows.len() {
            for _ in 0..self.options.depth * 2 {
                self.post_receive(i);
            }
        }
        self.post_sends();
        let mut events = 0u64;
        while self.done + self.failed < total {
            let Some(node) = self.pair.sim.step() else {
                self.stalled = true;
                break;
            };
            if node == A {
                self.collect_sends();
            } else {
                self.collect_receives();
            }
            events += 1;
            if events.is_multiple_of(1 << 16) {
                progress(self.done + self.failed);
                if stop() {
                    break;
                }
            }
        }
        progress(self.done + self.failed);
        Ok(())
    }

    /// Tops up every queue pair, in turn, so that they share the count evenly.
    fn post_sends(&mut self) {
        let mut any = true;
        while any && self.posted < self.options.count {
            any = false;
            for i in 0..self.flows.len() {
                if self.posted < self.options.count && self.flows[i].outstanding < self.options.depth {
                    any |= self.post_send(i);
                }
            }
        }
        self.pair.sim.touch(A);
    }

    fn post_send(&mut self, i: usize) -> bool {
        let (size, now) = (self.options.size, self.pair.sim.now().instant());
        let flow = &mut self.flows[i];
        let offset = flow.posted % self.slots * u64::from(size);
        let sges = [Sge { addr: flow.base[A] + offset, len: size, lkey: flow.keys[A] }];
        let (remote_addr, rkey) = (flow.base[B] + offset, flow.keys[B]);
        let op = match self.options.op {
            Op::Write => SendOp::Write { remote_addr, rkey },
            Op::Send => SendOp::Send,
            Op::Read => SendOp::Read { remote_addr, rkey },
            Op::Atomic => SendOp::FetchAdd { remote_addr, rkey, add: 1 },
        };
        let wr = SendWr {
            wr_id: ((i as u64) << 40) | (flow.posted % u64::from(self.options.depth)),
            op,
            data: Data::Gather(&sges),
            flags: SendFlags { signaled: true, solicited: false, fence: false },
            deadline: None,
            to: None,
        };
        if self.pair.sim.node(A).post_send(now, flow.qpns[A], &wr).is_err() {
            return false;
        }
        let at = (flow.posted % u64::from(self.options.depth)) as usize;
        flow.posted_at[at] = now.as_nanos();
        flow.posted += 1;
        flow.outstanding += 1;
        self.posted += 1;
        true
    }

    fn post_receive(&mut self, i: usize) {
        if self.options.op != Op::Send {
            return;
        }
        let size = self.options.size;
        let flow = &mut self.flows[i];
        let addr = flow.base[B] + flow.receives % self.slots * u64::from(size);
        flow.receives += 1;
        let sges = [Sge { addr, len: size, lkey: flow.keys[B] }];
        let wr = RecvWr { wr_id: i as u64, sges: &sges, deadline: None };
        let qpn = flow.qpns[B];
        // The queue holds as many as are ever posted; on a queue pair in error they are flushed.
        let _ = self.pair.sim.node(B).post_recv(qpn, &wr);
    }

    /// Takes completions and posts as many again, until there are none: on a queue pair in error each post ends at once.
    fn collect_sends(&mut self) {
        let cq = self.pair.sides[A].send_cq;
        let now = self.pair.sim.now().instant().as_nanos();
        while let Ok(Some(first)) = self.pair.sim.node(A).poll_cq(cq) {
            self.count_send(first, now);
            while let Ok(Some(c)) = self.pair.sim.node(A).poll_cq(cq) {
                self.count_send(c, now);
            }
            if self.posted < self.options.count {
                self.post_sends();
            }
        }
    }

    fn count_send(&mut self, c: Completion, now: u64) {
        self.pair.sim.record(c.wr_id ^ (now << 20) ^ ((c.status as u64) << 60));
        let flow = &mut self.flows[(c.wr_id >> 40) as usize];
        flow.outstanding -= 1;
        self.last_completion = now;
        if c.status == Status::Success {
            self.done += 1;
            self.times.record(now - flow.posted_at[(c.wr_id & 0xff_ffff_ffff) as usize]);
        } else {
            self.failed += 1;
            self.first_failure.get_or_insert(c.status);
        }
    }

    fn collect_receives(&mut self) {
        let cq = self.pair.sides[B].recv_cq;
        while let Ok(Some(c)) = self.pair.sim.node(B).poll_cq(cq) {
            if c.status == Status::Success {
                self.post_receive(c.wr_id as usize);
            }
        }
    }

    fn report(&mut self) -> Result<Report, SimError> {
        if self.failed == 0 && !self.stalled {
            self.verify()?;
        }
        let o = self.options;
        let seconds = self.last_completion as f64 / 1e9;
        let per_second = |bits: f64| if seconds > 0.0 { bits / seconds } else { 0.0 };
        // The link that carries the payload.
        let sent = self.pair.sim.link_stats(self.pair.links[usize::from(o.op == Op::Read)]);
        let requester = *self.pair.sim.node(A).counters();
        let responder = *self.pair.sim.node(B).counters();
        let mut applied_events = vec![0; o.faults.script.events.len()];
        self.pair.sim.count_applied(&mut applied_events);
        Ok(Report {
            goodput_gbps: per_second(self.done as f64 * f64::from(o.size) * 8.0) / 1e9,
            link_utilization: per_second(sent.wire_bytes as f64 * 8.0) / o.rate as f64,
            completion_times: self.times.clone(),
            completed: self.done,
            failed: self.failed,
            stalled: self.stalled,
            first_failure: self.first_failure,
            tx_packets: requester.sent_requests + requester.retransmitted_packets,
            retransmitted_packets: requester.retransmitted_packets,
            virtual_ms: self.last_completion as f64 / 1e6,
            digest: self.pair.sim.digest(),
            requester,
            responder,
            applied_events,
            links: self.pair.links.map(|l| self.pair.sim.link_stats(l)),
        })
    }

    /// The receiver's memory must be what was sent, slot by slot.
    fn verify(&self) -> Result<(), SimError> {
        let size = self.options.size as usize;
        let (mut sent, mut received) = ([0; 4096], [0; 4096]);
        for (qp, flow) in self.flows.iter().enumerate() {
            let Some([from, to]) = &flow.buffers else { continue };
            let used = self.slots.min(flow.posted) as usize * size;
            for at in (0..used).step_by(sent.len()) {
                let n = sent.len().min(used - at);
                from.read_at(at, &mut sent[..n]);
                to.read_at(at, &mut received[..n]);
                if self.options.op == Op::Atomic {
                    for (i, word) in sent[..n].as_chunks_mut::<8>().0.iter_mut().enumerate() {
                        // Each slot was added to once for each work request on it.
                        let slot = (at / 8 + i) as u64;
                        *word = ((flow.posted - 1 - slot) / self.slots + 1).to_ne_bytes();
                    }
                }
                if sent[..n] != received[..n] {
                    return Err(SimError::Data { qp, slot: at / size });
                }
            }
        }
        Ok(())
    }
}

/// The round trip with the most that the faults' delay, jitter and queues add.
fn longest_round_trip(o: &Options) -> Duration {
    [Direction::Ab, Direction::Ba].iter().fold(o.rtt, |rtt, d| rtt.saturating_add(o.faults.shape(*d).longest()))
}

fn fill_randomly(buffer: &Buffer, random: &mut Random) {
    let mut block = [0u8; 4096];
    let mut at = 0;
    while at < buffer.len() {
        let n = block.len().min(buffer.len() - at);
        for word in block.as_chunks_mut::<8>().0 {
            // Five random bits a byte, all in 0x40 … 0x5f: tshark takes payload that begins like an Ethernet type for that
            // protocol, and calls the packet malformed.
            *word = random.next_u64().to_le_bytes().map(|b| 0x40 | (b & 0x1f));
        }
        buffer.write_at(at, &block[..n]);
        at += n;
    }
}
