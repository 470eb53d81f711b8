//! Two NICs on a link with a script of faults: what they put on the wire is written down packet by packet, and everything
//! else that must hold is checked at the end of every case.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use softnic_fault_injector::{Fate, Script, Spec};
use softnic_nic::Buffer;
use softnic_nic::transports::memory::Access;
use softnic_nic::transports::qp::Caps;
use softnic_nic::transports::qp::{PayloadMode, QpState};
use softnic_nic::transports::{Data, RecvWr, SendFlags, SendOp, SendWr, Sge, Status, Transport};
use softnic_sim::pair::{A, B, Pair, PairConfig, timeout_code};
use softnic_sim::{LinkConfig, Time};
use softnic_wire::aeth::Syndrome;
use softnic_wire::{Opcode, PathMtu, Psn, Qpn, RocePacket};

const RTT: Duration = Duration::from_micros(10);
/// Room for each message on each side, by its number.
const SLOT: usize = 2048;
const SLOTS: usize = 16;
const UNTOUCHED: u8 = 0xa5;
/// What a program writes over memory that is its own again: what comes late would be seen.
const TAKEN: u8 = 0xee;
/// What atomics work on: the last slot of B.
const COUNTER: usize = (SLOTS - 1) * SLOT;
/// Its value before.
pub(crate) const COUNTER_START: u64 = 1000;
/// More events than any case takes.
const MAX_EVENTS: usize = 10_000;

/// Bytes of a message of four packets.
pub(crate) const FOUR: usize = 3 * 256 + 5;
/// Bytes of a message of two packets.
pub(crate) const TWO: usize = 256 + 5;
/// Bytes of a message of one packet.
pub(crate) const ONE: usize = 100;

/// Runs a case at a first PSN far from the wrap, and at those where the wrap falls on each of its first eight packets.
pub(crate) fn at_each_psn(case: impl Fn(Psn)) {
    for psn in [100].into_iter().chain(0xff_fff8..=0xff_ffff) {
        case(Psn::new(psn));
    }
}

#[derive(Default)]
struct Trace {
    lines: Vec<String>,
    last: Time,
}

#[derive(Clone, Copy)]
enum Kind {
    Write,
    Send,
    Read,
    Atomic { found: u64 },
}

pub(crate) struct World {
    pair: Pair<'static>,
    qpns: [Qpn; 2],
    keys: [u32; 2],
    buffers: [Arc<Buffer>; 2],
    /// What the buffers must hold when all is over.
    expected: [Vec<u8>; 2],
    posted: Vec<(u64, Kind, usize)>,
    receives: Vec<(u64, usize)>,
    sent: Vec<u64>,
    received: Vec<u64>,
    counter: u64,
    trace: Rc<RefCell<Trace>>,
}

impl World {
    /// `script` is TOML; empty for none.
    pub(crate) fn new(first_psn: Psn, script: &str) -> World {
        World::with_retries(first_psn, script, 7)
    }

    /// With so many retries at most, without progress between them.
    pub(crate) fn with_retries(first_psn: Psn, script: &str, retry_cnt: u8) -> World {
        let script = if script.is_empty() { Script::default() } else { Script::parse(script).expect("a script") };
        let faults = Spec { script, ..Spec::default() };
        let mut pair = Pair::new(PairConfig {
            transport: Transport::Rc,
            link: LinkConfig { rate: 10_000_000_000, delay: RTT / 2, faults },
            payload: PayloadMode::Real,
            mtu: PathMtu::B256,
            timeout: timeout_code(RTT * 4),
            retry_cnt,
            rnr_retry: 7,
            min_rnr_timer: 6, // 80 µs: a silence that shows
            max_rd_atomic: 16,
            caps: Caps { max_send_wr: 32, max_recv_wr: 32, max_send_sge: 1, max_recv_sge: 1, max_inline: 0 },
            limit_flight: false,
            cq_capacity: 64,
            seed: 1,
            first_psn: Some(first_psn),
        });
        let qpns = pair.connect().expect("connected");
        let buffers = [A, B].map(|h| Buffer::new(0x10_0000 * (h as u64 + 1), SLOT * SLOTS));
        let mut expected = [A, B].map(|_| vec![UNTOUCHED; SLOT * SLOTS]);
        expected[B][COUNTER..COUNTER + 8].copy_from_slice(&COUNTER_START.to_ne_bytes());
        let keys = [A, B].map(|h| {
            buffers[h].write_at(0, &expected[h]);
            let remote = Access::REMOTE_WRITE | Access::REMOTE_READ | Access::REMOTE_ATOMIC;
            let pd = pair.sides[h].pd;
            pair.sim.nic(h).reg_mr(pd, &buffers[h], Access::LOCAL_WRITE | remote).expect("registered")
        });
        let trace = Rc::new(RefCell::new(Trace::default()));
        let seen = Rc::clone(&trace);
        pair.sim.set_tap(Box::new(move |sent| {
            let trace = &mut *seen.borrow_mut();
            // Who waits that long waits for a timer.
            if sent.at > trace.last.after(RTT * 2) && !trace.lines.is_empty() {
                trace.lines.push("...".into());
            }
            trace.last = sent.at;
            trace.lines.push(show(sent.frame, first_psn, sent.fate));
        }));
        World {
            pair,
            qpns,
            keys,
            buffers,
            expected,
            posted: Vec::new(),
            receives: Vec::new(),
            sent: Vec::new(),
            received: Vec::new(),
            counter: COUNTER_START,
            trace,
        }
    }

    // ---- work ----

    /// A writes `len` bytes to B.
    pub(crate) fn write(&mut self, id: u64, len: usize) -> &mut World {
        self.fill(A, id, len);
        let op = SendOp::Write { remote_addr: self.addr(B, id), rkey: self.keys[B] };
        self.post(id, Kind::Write, op, len)
    }

    /// A sends `len` bytes to B, which must have posted, or post later, [`World::receive`].
    pub(crate) fn send(&mut self, id: u64, len: usize) -> &mut World {
        self.fill(A, id, len);
        self.post(id, Kind::Send, SendOp::Send, len)
    }

    /// A reads `len` bytes from B.
    pub(crate) fn read(&mut self, id: u64, len: usize) -> &mut World {
        self.fill(B, id, len);
        let op = SendOp::Read { remote_addr: self.addr(B, id), rkey: self.keys[B] };
        self.post(id, Kind::Read, op, len)
    }

    /// A adds to B's counter.
    pub(crate) fn add(&mut self, id: u64, add: u64) -> &mut World {
        let remote_addr = self.buffers[B].addr() + COUNTER as u64;
        let found = self.counter;
        self.counter += add;
        self.expected[B][COUNTER..COUNTER + 8].copy_from_slice(&self.counter.to_ne_bytes());
        self.post(id, Kind::Atomic { found }, SendOp::FetchAdd { remote_addr, rkey: self.keys[B], add }, 8)
    }

    /// B posts a receive for the SEND of the same number; receives must be posted in the order of the SENDs.
    pub(crate) fn receive(&mut self, id: u64, len: usize) -> &mut World {
        let sges = [Sge { addr: self.addr(B, id), len: len as u32, lkey: self.keys[B] }];
        let wr = RecvWr { wr_id: id, sges: &sges, best_effort: None };
        self.pair.sim.nic(B).post_recv(self.qpns[B], &wr).expect("posted");
        self.receives.push((id, len));
        self
    }

    fn post(&mut self, id: u64, kind: Kind, op: SendOp, len: usize) -> &mut World {
        let sges = [Sge { addr: self.addr(A, id), len: len as u32, lkey: self.keys[A] }];
        let flags = SendFlags { signaled: true, solicited: false, fence: false };
        let wr = SendWr { wr_id: id, op, data: Data::Gather(&sges), flags, best_effort: None, to: None };
        // Written only: all that a case posts leaves under one doorbell.
        self.pair.sim.nic(A).write_send(self.qpns[A], &wr).expect("posted");
        self.posted.push((id, kind, len));
        self
    }

    fn addr(&self, host: usize, id: u64) -> u64 {
        self.buffers[host].addr() + id * SLOT as u64
    }

    fn fill(&mut self, host: usize, id: u64, len: usize) {
        self.buffers[host].write_at(id as usize * SLOT, &pattern(id, len));
    }

    // ---- running ----

    /// Rings the doorbell and runs until a packet that shows as `line` has been put on the wire.
    pub(crate) fn run_until(&mut self, line: &str) -> &mut World {
        self.ring();
        for _ in 0..MAX_EVENTS {
            if self.trace.borrow().lines.iter().any(|l| l == line) {
                return self;
            }
            self.step();
        }
        panic!("'{line}' never came: {:#?}", self.trace.borrow().lines);
    }

    /// Rings the doorbell and runs until nothing more happens. The trace must be this one, and [`World::finish`] holds.
    #[track_caller]
    pub(crate) fn expect(&mut self, trace: &[&str]) -> &mut World {
        self.run();
        let lines = self.lines();
        assert!(lines == trace, "the trace is\n{lines:#?}\nnot\n{trace:#?}");
        self.finish()
    }

    /// Rings the doorbell and runs until nothing more happens. Then all work must have completed once and in order, and memory
    /// must hold what was sent and nothing else.
    #[track_caller]
    pub(crate) fn finish(&mut self) -> &mut World {
        self.run();
        let posted: Vec<_> = self.posted.iter().map(|m| m.0).collect();
        let receives: Vec<_> = self.receives.iter().map(|r| r.0).collect();
        let done = self.sent == posted && self.received == receives;
        assert!(done, "completed {:?} and {:?} with the trace {:#?}", self.sent, self.received, self.lines());
        for host in [A, B] {
            assert_eq!(self.pair.sim.nic(host).qp_state(self.qpns[host]), Some(QpState::ReadyToSend));
            let found = self.bytes(host, 0, SLOT * SLOTS);
            let wrong = found.iter().zip(&self.expected[host]).position(|(x, y)| x != y);
            assert_eq!(wrong, None, "the first wrong byte of host {host}, with the trace {:#?}", self.lines());
        }
        self
    }

    /// The trace so far.
    pub(crate) fn lines(&self) -> Vec<String> {
        self.trace.borrow().lines.clone()
    }

    /// Virtual time.
    pub(crate) fn now(&self) -> Duration {
        Duration::from_nanos(self.pair.sim.now().instant().as_nanos())
    }

    /// Rings the doorbell and runs until nothing more happens.
    pub(crate) fn run(&mut self) {
        self.ring();
        let mut events = 0;
        while self.step() {
            events += 1;
            assert!(events < MAX_EVENTS, "it never ends: {:#?}", self.lines());
        }
    }

    /// All counters of a host but those of packets and bytes that are not zero, in the order of their names.
    #[track_caller]
    pub(crate) fn counted(&mut self, host: usize, expected: &str) -> &mut World {
        let all = format!("{:?}", self.pair.sim.nic(host).counters());
        let fields = all.trim_start_matches("Counters { ").trim_end_matches(" }").split(", ");
        let named: BTreeMap<_, _> = fields.filter_map(|f| f.split_once(": ")).collect();
        let traffic = ["sent_pkts", "sent_bytes", "rcvd_pkts", "rcvd_bytes"];
        let shown = named.iter().filter(|(name, n)| **n != "0" && !traffic.contains(name));
        let shown = shown.map(|(name, n)| format!("{name} {n}")).collect::<Vec<_>>().join(", ");
        assert_eq!(shown, expected, "counters of host {host}");
        self
    }

    fn ring(&mut self) {
        let now = self.pair.sim.now().instant();
        self.pair.sim.nic(A).ring_doorbell(now, self.qpns[A]);
        self.pair.sim.touch(A);
    }

    fn step(&mut self) -> bool {
        let stepped = self.pair.sim.step().is_some();
        let sides = self.pair.sides.clone();
        while let Some(c) = self.pair.sim.nic(B).poll_cq(sides[B].recv_cq).expect("no overflow") {
            assert_eq!(c.status, Status::Success);
            let len = self.receives.iter().find(|r| r.0 == c.wr_id).expect("a posted receive").1;
            assert_eq!(c.byte_len as usize, len);
            self.take(B, c.wr_id, pattern(c.wr_id, len));
            self.received.push(c.wr_id);
        }
        while let Some(c) = self.pair.sim.nic(A).poll_cq(sides[A].send_cq).expect("no overflow") {
            assert_eq!(c.status, Status::Success);
            let &(id, kind, len) = self.posted.iter().find(|m| m.0 == c.wr_id).expect("a posted send");
            match kind {
                Kind::Write | Kind::Read => {
                    self.take(A, id, pattern(id, len));
                    self.take(B, id, pattern(id, len));
                }
                Kind::Send => self.take(A, id, pattern(id, len)),
                Kind::Atomic { found } => self.take(A, id, found.to_ne_bytes().to_vec()),
            }
            self.sent.push(id);
        }
        stepped
    }

    /// A completion says that these bytes are there. From now on they are the program's, which writes something else.
    fn take(&mut self, host: usize, id: u64, bytes: Vec<u8>) {
        let at = id as usize * SLOT;
        assert_eq!(self.bytes(host, at, bytes.len()), bytes, "message {id} at host {host}");
        let taken = vec![TAKEN; bytes.len()];
        self.buffers[host].write_at(at, &taken);
        self.expected[host][at..at + bytes.len()].copy_from_slice(&taken);
    }

    fn bytes(&self, host: usize, at: usize, len: usize) -> Vec<u8> {
        let mut out = vec![0; len];
        self.buffers[host].read_at(at, &mut out);
        out
    }
}

/// `len` bytes that differ from message to message and from each other.
fn pattern(id: u64, len: usize) -> Vec<u8> {
    (0..len as u32).map(|i| (i.wrapping_mul(31) ^ (i >> 8) ^ (id as u32).wrapping_mul(97)) as u8).collect()
}

/// A frame in a line: who sends it, what it is, its PSN counted from the first one, and what happens to it on the way: `x` when
/// it is lost.
fn show(frame: &[u8], first: Psn, fate: Fate) -> String {
    let p = RocePacket::parse(frame).expect("a RoCE packet");
    let from = if p.layout.addresses(frame).is_some_and(|(src, _)| src.to_string() == "10.0.0.1") { 'a' } else { 'b' };
    let psn = p.bth.psn.distance(first);
    let name = p.bth.opcode.to_string();
    let name = name.trim_start_matches("RC_");
    let what = match p.ext.aeth {
        Some(aeth) if p.bth.opcode == Opcode::RC_ACKNOWLEDGE => match aeth.syndrome {
            Syndrome::Ack(_) => format!("ACK {psn:+} msn {}", aeth.msn),
            Syndrome::Nak(n) => format!("NAK{} {psn:+} msn {}", n.0, aeth.msn),
            Syndrome::RnrNak(t) => format!("RNR{} {psn:+} msn {}", t.0, aeth.msn),
            Syndrome::Reserved(b) => format!("RESERVED{b} {psn:+}"),
        },
        Some(aeth) => format!("{name} {psn:+} msn {}", aeth.msn),
        None => {
            let asks = if p.bth.ack_req { " A" } else { "" };
            let len = match p.ext.reth {
                Some(reth) if p.bth.opcode == Opcode::RC_RDMA_READ_REQUEST => format!(" of {}", reth.len),
                _ => String::new(),
            };
            format!("{name} {psn:+}{asks}{len}")
        }
    };
    let mark = match fate {
        Fate::Pass => "",
        Fate::Drop => " x",
        Fate::Duplicate => " twice",
        Fate::Corrupt(_) => " damaged",
        Fate::Hold(_) => " held",
        Fate::Mark => " marked",
        Fate::Delay(_) => " delayed",
    };
    format!("{from}> {what}{mark}")
}
