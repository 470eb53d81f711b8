//! Two NICs with connected queue pairs and no wire: frames go from one to the other by hand.

use std::hint::black_box;
use std::net::IpAddr;
use std::sync::Arc;

use softnic_nic::transports::memory::Access;
use softnic_nic::transports::negotiation::Choice;
use softnic_nic::transports::qp::{Caps, PayloadMode};
use softnic_nic::transports::{BestEffort, CqId, Data, Secret, SendFlags, SendOp, SendWr, Sge, Transport};
use softnic_nic::{Buffer, Connection, Nic, NicConfig, Port, QpInit, QpKind};
use softnic_wire::{Instant, MacAddr, Node, PathMtu, Psn, Qpn, TxFrame};

/// Frames that go over at once, as a driver would do it.
pub const BATCH: usize = 32;
/// Bytes that go over at once: a batch of long frames that fits the first-level cache beside the memory it is copied from.
pub const BATCH_BYTES: usize = 24 << 10;
/// Work requests that each queue pair has outstanding.
pub const DEPTH: usize = 16;
const FRAME: usize = 4096 + 256;
/// More than any last-level cache of the day.
const COLD: usize = 512 << 20;

struct Side {
    nic: Nic,
    cq: CqId,
    qpns: Vec<Qpn>,
    buffer: Arc<Buffer>,
    key: u32,
}

/// Which memory the messages come from and go to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Memory {
    /// The same few KiB again and again.
    Hot,
    /// Ever other memory, out of all caches.
    Cold,
}

/// What a pair is made of.
#[derive(Debug, Clone, Copy)]
pub struct Setup {
    /// Connections that send.
    pub active: usize,
    /// Connections beside them that send nothing.
    pub idle: usize,
    /// Bytes of a message.
    pub size: usize,
    /// Where messages come from and go to.
    pub memory: Memory,
    /// Path MTU.
    pub mtu: PathMtu,
    /// Of the connections.
    pub transport: Transport,
    /// Stride of the messages, where the transport has strides; 1 is plain.
    pub stride: u16,
    /// Whether every packet is authenticated.
    pub auth: bool,
}

/// A requester and a responder.
pub struct Pair {
    a: Side,
    b: Side,
    frames: Vec<[u8; FRAME]>,
    lens: [usize; BATCH],
    setup: Setup,
    /// Where the next message comes from and goes to.
    at: usize,
    now: Instant,
}

fn side(host: u8, setup: &Setup) -> Side {
    let qps = setup.active + setup.idle;
    let port = Port {
        mac: MacAddr([2, 0, 0, 0, 0, host]),
        addresses: vec![IpAddr::from([10, 0, 0, host])],
        mtu: PathMtu::B4096,
    };
    let mut state = 0x9e37_79b9u32 ^ u32::from(host);
    let random = move || {
        state ^= state << 13;
        state ^= state >> 17;
        state ^= state << 5;
        state
    };
    let mut nic = Nic::new(NicConfig { port, payload: PayloadMode::Real }, Box::new(random));
    let pd = nic.alloc_pd();
    let cq = nic.create_cq(2 * qps * DEPTH + 64);
    let len = if setup.memory == Memory::Hot { 2 * FRAME.max(setup.size) } else { COLD };
    let buffer = Buffer::new(0x1000_0000, len);
    // Touched, so that the kernel gave real pages for it.
    for at in (0..len).step_by(4096) {
        buffer.write_at(at, &[host]);
    }
    let key = nic.reg_mr(pd, &buffer, Access::LOCAL_WRITE | Access::REMOTE).unwrap_or(0);
    let caps = Caps { max_send_wr: DEPTH as u32, max_recv_wr: 1, max_send_sge: 1, max_recv_sge: 1, max_inline: 0 };
    let kind = if setup.transport == Transport::Uc { QpKind::Uc } else { QpKind::Rc };
    let init = QpInit { transport: setup.transport, ..QpInit::new(kind, pd, cq, cq, caps) };
    let qpns: Vec<Qpn> = (0..qps).filter_map(|_| nic.create_qp(&init).ok()).collect();
    if setup.auth {
        let secret = Secret::new(&[7; 32]).expect("long enough");
        qpns.iter().for_each(|&qpn| nic.authenticate(qpn, &secret).expect("a reliable connection"));
    }
    Side { nic, cq, qpns, buffer, key }
}

fn connect(side: &mut Side, peer: &[Qpn], host: u8, mtu: PathMtu) {
    for (i, &qpn) in side.qpns.clone().iter().enumerate() {
        let connection = Connection {
            path: side.nic.path_to(IpAddr::from([10, 0, 0, host]), MacAddr([2, 0, 0, 0, 0, host]), qpn.value()),
            dest_qp: peer[i],
            mtu,
            sq_psn: Psn::new(7),
            rq_psn: Psn::new(7),
            min_rnr_timer: 1,
            max_rd_atomic: 1,
            max_dest_rd_atomic: 1,
            ..Connection::default()
        };
        side.nic.connect(qpn, &connection).expect("the settings of a connection");
    }
}

impl Pair {
    /// `qps` connections, for messages of `size` bytes.
    pub fn new(qps: usize, size: usize, memory: Memory) -> Pair {
        Pair::with_idle(qps, 0, size, memory)
    }

    /// The same with `idle` connections beside them that send nothing.
    pub fn with_idle(active: usize, idle: usize, size: usize, memory: Memory) -> Pair {
        let (mtu, transport) = (PathMtu::B4096, Transport::Rc);
        Pair::of(Setup { active, idle, size, memory, mtu, transport, stride: 1, auth: false })
    }

    /// Any pair. Where the two sides have something to agree on, they do.
    pub fn of(setup: Setup) -> Pair {
        let (mut a, mut b) = (side(1, &setup), side(2, &setup));
        connect(&mut a, &b.qpns, 2, setup.mtu);
        connect(&mut b, &a.qpns, 1, setup.mtu);
        let frames = vec![[0; FRAME]; BATCH];
        let mut pair = Pair { a, b, frames, lens: [0; BATCH], setup, at: 0, now: Instant::from_nanos(1) };
        loop {
            let sent = pair.send();
            pair.receive(sent);
            let answers = pair.answer();
            pair.complete(answers);
            if sent + answers == 0 {
                break;
            }
        }
        let agreed = |side: &Side| side.qpns.iter().all(|&q| side.nic.choice(q) == Some(Choice::Agreed));
        let standard = matches!(setup.transport, Transport::Rc | Transport::Uc) && !setup.auth;
        assert!(standard || agreed(&pair.a) && agreed(&pair.b), "the two agree");
        pair
    }

    /// Messages of one round: every queue pair's whole queue.
    pub fn messages(&self) -> usize {
        self.setup.active * DEPTH
    }

    /// Packets of one round.
    pub fn packets(&self) -> usize {
        self.messages() * self.setup.size.div_ceil(self.setup.mtu.bytes() as usize)
    }

    /// Where the next message lies: the same place, or one that was not touched for long.
    fn next_place(&mut self) -> u64 {
        if self.setup.memory == Memory::Cold {
            // An odd number of pages further, so that all of them come before one comes again.
            self.at = (self.at + 37 * 4096) % (COLD - FRAME.max(self.setup.size));
        }
        self.at as u64
    }

    /// The requester posts as much as its queues hold: a WRITE each.
    #[inline(never)]
    pub fn post(&mut self) {
        let strided = BestEffort { stride: self.setup.stride, ..BestEffort::default() };
        let best_effort = (self.setup.stride > 1).then_some(&strided);
        for i in 0..self.setup.active {
            let qpn = self.a.qpns[i];
            for _ in 0..DEPTH {
                let offset = self.next_place();
                let sge = [Sge { addr: self.a.buffer.addr() + offset, len: self.setup.size as u32, lkey: self.a.key }];
                let wr = SendWr {
                    wr_id: 1,
                    op: SendOp::Write { remote_addr: self.b.buffer.addr() + offset, rkey: self.b.key },
                    data: Data::Gather(&sge),
                    flags: SendFlags { signaled: true, ..SendFlags::default() },
                    best_effort,
                    to: None,
                };
                self.a.nic.write_send(qpn, &wr).expect("room in the queue");
            }
            self.a.nic.ring_doorbell(self.now, qpn);
        }
    }

    /// The requester fills a batch of frames; how many.
    #[inline(never)]
    pub fn send(&mut self) -> usize {
        let nic = &mut self.a.nic;
        transmit(nic, self.now, &mut self.frames, &mut self.lens)
    }

    /// The responder takes a batch of frames.
    #[inline(never)]
    pub fn receive(&mut self, n: usize) {
        for i in 0..n {
            let len = self.lens[i];
            self.b.nic.handle_frame(self.now, Nic::WIRE, &mut self.frames[i][..len]);
        }
    }

    /// The responder answers; how many frames.
    #[inline(never)]
    pub fn answer(&mut self) -> usize {
        let nic = &mut self.b.nic;
        transmit(nic, self.now, &mut self.frames, &mut self.lens)
    }

    /// The requester takes the answers and its completions; how many of these.
    #[inline(never)]
    pub fn complete(&mut self, n: usize) -> usize {
        for i in 0..n {
            let len = self.lens[i];
            self.a.nic.handle_frame(self.now, Nic::WIRE, &mut self.frames[i][..len]);
        }
        let mut done = 0;
        while let Ok(Some(c)) = self.a.nic.poll_cq(self.a.cq) {
            black_box(c);
            done += 1;
        }
        done
    }
}

fn transmit(nic: &mut Nic, now: Instant, frames: &mut [[u8; FRAME]], lens: &mut [usize; BATCH]) -> usize {
    let mut bytes = 0;
    for (i, frame) in frames.iter_mut().enumerate() {
        let mut tx = TxFrame::new(frame);
        if bytes >= BATCH_BYTES || !nic.poll_transmit(now, Nic::WIRE, &mut tx) {
            return i;
        }
        lens[i] = tx.segments().0.len();
        bytes += lens[i];
    }
    frames.len()
}
