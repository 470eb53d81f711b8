//! Two NICs and a wire that the test holds in its hands: every frame is seen, kept, dropped or delivered by the test.
#![allow(dead_code, unreachable_pub)] // each test file uses its part of this

mod frames;
mod more;

#[allow(unused_imports)] // as above
pub use frames::resign;

use std::net::IpAddr;
use std::sync::Arc;

use softnic_nic::transports::congestion::EqdsConfig;
use softnic_nic::transports::memory::{Access, PdId};
use softnic_nic::transports::qp::{Caps, PayloadMode, QpState};
use softnic_nic::transports::{
    Completion, Counters, CqId, Data, Datagram, PostError, RecvWr, Secret, SendFlags, SendOp, SendWr, Sge, SrqId,
    Status, Transport,
};
use softnic_nic::{AddressAttr, Buffer, CqError, Nic, NicConfig, Port, QpAttr, QpInit, QpKind};
use softnic_wire::{Instant, MacAddr, Node, Path, PathMtu, Psn, Qpn, TxFrame};

/// The host whose sends most tests look at.
pub const A: usize = 0;
/// Its peer.
pub const B: usize = 1;
/// What memory holds before a test writes to it.
pub const UNTOUCHED: u8 = 0xa5;
/// Bytes of each host's buffer, if a test says nothing else.
pub const BUFFER: usize = 256 << 10;
/// PSNs to begin with: one far from the wrap, others that wrap in the middle of what the tests send.
pub const FIRST_PSNS: [u32; 4] = [100, 0xff_ffff, 0xff_fffe, 0xff_fffd];

pub const LOCAL: Access = Access::LOCAL_WRITE;

/// What a world is made with.
#[derive(Clone, Copy)]
pub struct Options {
    pub kind: QpKind,
    /// Receives come from a shared queue.
    pub srq: bool,
    pub mtu: PathMtu,
    pub psn: u32,
    pub timeout: u8,
    pub retry_cnt: u8,
    pub rnr_retry: u8,
    pub min_rnr_timer: u8,
    pub max_rd_atomic: u8,
    pub caps: Caps,
    pub cq: usize,
    /// Bytes of each host's buffer.
    pub buffer: usize,
    pub payload: PayloadMode,
    /// The connection runs over IPv6.
    pub ipv6: bool,
    /// What the peer may do, as the queue pair says.
    pub access: Access,
    /// What the peer may do, as the memory region says.
    pub mr_access: Access,
    /// Its program sleeps until an event comes.
    pub prompt_acks: bool,
    /// The extension of RC that each host offers the other.
    pub offers: [Option<Transport>; 2],
    /// The secret of each host, a byte again and again, where its queue pair authenticates the peer.
    pub secrets: [Option<u8>; 2],
    /// Out of retries, a queue pair halts.
    pub halts: bool,
    /// Packets outstanding are limited.
    pub limit_flight: bool,
    /// The credit that each host offers the other (EQDS).
    pub credit: [Option<EqdsConfig>; 2],
}

impl Default for Options {
    fn default() -> Options {
        let all = Access::LOCAL_WRITE | Access::REMOTE | Access::MW_BIND;
        Options {
            kind: QpKind::Rc,
            srq: false,
            mtu: PathMtu::B256,
            psn: 100,
            timeout: 10,
            retry_cnt: 3,
            rnr_retry: 3,
            min_rnr_timer: 5,
            max_rd_atomic: 16,
            caps: Caps { max_send_wr: 256, max_recv_wr: 256, max_send_sge: 32, max_recv_sge: 32, max_inline: 256 },
            cq: 1024,
            buffer: BUFFER,
            payload: PayloadMode::Real,
            ipv6: false,
            access: all,
            mr_access: all,
            prompt_acks: false,
            offers: [None; 2],
            secrets: [None; 2],
            halts: false,
            limit_flight: false,
            credit: [None; 2],
        }
    }
}

/// One NIC with one connected queue pair and one registered buffer.
pub struct Host {
    pub nic: Nic,
    pub pd: PdId,
    pub send_cq: CqId,
    pub recv_cq: CqId,
    pub qpn: Qpn,
    pub srq: Option<SrqId>,
    pub buffer: Arc<Buffer>,
    pub key: u32,
}

pub struct World {
    pub hosts: [Host; 2],
    pub now: Instant,
    pub options: Options,
}

pub fn address(host: usize) -> (IpAddr, MacAddr) {
    let n = host as u8 + 1;
    (IpAddr::from([10, 0, 0, n]), MacAddr([2, 0, 0, 0, 0, n]))
}

/// Every host has an IPv6 address too.
pub fn address_v6(host: usize) -> IpAddr {
    IpAddr::from([0xfd33, 0, 0, 0, 0, 0, 0, host as u16 + 1])
}

/// Keys and numbers that are the same in every run.
pub fn generator(seed: u32) -> impl FnMut() -> u32 {
    let mut state = seed.wrapping_mul(0x9e37_79b9) | 1;
    move || {
        state ^= state << 13;
        state ^= state >> 17;
        state ^= state << 5;
        state.wrapping_mul(0x2c1b_3c6d)
    }
}

/// `len` bytes that differ with `seed` and from each other.
pub fn pattern(seed: u32, len: usize) -> Vec<u8> {
    (0..len as u32).map(|i| (i.wrapping_mul(31) ^ (i >> 8) ^ seed.wrapping_mul(97)) as u8).collect()
}

pub fn nic(host: usize, payload: PayloadMode) -> Nic {
    let (ip, mac) = address(host);
    Nic::new(
        NicConfig { port: Port { mac, addresses: vec![ip, address_v6(host)], mtu: PathMtu::B4096 }, payload },
        Box::new(generator(7 + host as u32)),
    )
}

/// The Q_Key of datagram queue pairs.
pub const QKEY: u32 = 0x1111_1111;

pub fn init_attr(o: &Options) -> QpAttr {
    let connected = matches!(o.kind, QpKind::Rc | QpKind::Uc);
    QpAttr {
        state: Some(QpState::Init),
        pkey_index: Some(0),
        port: Some(1),
        access: connected.then_some(o.access),
        qkey: (o.kind == QpKind::Ud).then_some(QKEY),
        ..QpAttr::default()
    }
}

pub fn rtr_attr(o: &Options, path: Path, dest_qp: Qpn) -> QpAttr {
    let state = Some(QpState::ReadyToReceive);
    if matches!(o.kind, QpKind::Ud | QpKind::Gsi) {
        return QpAttr { state, ..QpAttr::default() };
    }
    let rc = o.kind == QpKind::Rc;
    QpAttr {
        state,
        path: Some(path),
        mtu: Some(o.mtu),
        dest_qp: Some(dest_qp),
        rq_psn: Some(Psn::new(o.psn)),
        max_dest_rd_atomic: rc.then_some(o.max_rd_atomic),
        min_rnr_timer: rc.then_some(o.min_rnr_timer),
        ..QpAttr::default()
    }
}

pub fn rts_attr(o: &Options) -> QpAttr {
    let (state, sq_psn) = (Some(QpState::ReadyToSend), Some(Psn::new(o.psn)));
    if o.kind != QpKind::Rc {
        return QpAttr { state, sq_psn, ..QpAttr::default() };
    }
    QpAttr {
        state,
        sq_psn,
        timeout: Some(o.timeout),
        retry_cnt: Some(o.retry_cnt),
        rnr_retry: Some(o.rnr_retry),
        max_rd_atomic: Some(o.max_rd_atomic),
        ..QpAttr::default()
    }
}

pub fn to_state(state: QpState) -> QpAttr {
    QpAttr { state: Some(state), ..QpAttr::default() }
}

/// A send without any flag but `signaled`.
pub fn wr<'a>(wr_id: u64, op: SendOp, data: Data<'a>) -> SendWr<'a> {
    SendWr {
        wr_id,
        op,
        data,
        flags: SendFlags { signaled: true, solicited: false, fence: false },
        best_effort: None,
        to: None,
    }
}

impl World {
    /// Two hosts whose queue pairs are not connected yet: in RESET.
    pub fn unconnected(options: Options) -> World {
        let hosts = [A, B].map(|h| {
            let mut nic = nic(h, options.payload);
            let pd = nic.alloc_pd();
            let (send_cq, recv_cq) = (nic.create_cq(options.cq), nic.create_cq(options.cq));
            let buffer = Buffer::new(0x10_0000 * (h as u64 + 1), options.buffer);
            buffer.write_at(0, &vec![UNTOUCHED; options.buffer]);
            let key = nic.reg_mr(pd, &buffer, options.mr_access).unwrap();
            let Caps { max_recv_wr, max_recv_sge, .. } = options.caps;
            let srq = options.srq.then(|| nic.create_srq(pd, max_recv_wr, max_recv_sge).unwrap());
            let usual = QpInit::new(options.kind, pd, send_cq, recv_cq, options.caps);
            let init = QpInit {
                srq,
                prompt_acks: options.prompt_acks,
                transport: options.offers[h].unwrap_or(usual.transport),
                halt_on_retry_exceeded: options.halts,
                limit_flight: options.limit_flight,
                ..usual
            };
            let qpn = nic.create_qp(&init).unwrap();
            if options.credit[h].is_some() {
                nic.use_credit(qpn, options.credit[h]).unwrap();
            }
            if let Some(byte) = options.secrets[h] {
                nic.authenticate(qpn, &Secret::new(&[byte; 32]).unwrap()).unwrap();
            }
            Host { nic, pd, send_cq, recv_cq, qpn, srq, buffer, key }
        });
        World { hosts, now: Instant::from_nanos(1_000_000), options }
    }

    /// Two hosts with connected queue pairs.
    pub fn new(options: Options) -> World {
        let mut w = World::unconnected(options);
        for h in [A, B] {
            w.modify(h, &init_attr(&options));
            let rtr = rtr_attr(&options, w.path(h), w.hosts[1 - h].qpn);
            w.modify(h, &rtr);
            w.modify(h, &rts_attr(&options));
        }
        w
    }

    pub fn path(&self, h: usize) -> Path {
        let (v4, mac) = address(1 - h);
        let ip = if self.options.ipv6 { address_v6(1 - h) } else { v4 };
        self.hosts[h].nic.path_to(ip, mac, self.hosts[h].qpn.value()).unwrap()
    }

    pub fn modify(&mut self, h: usize, attr: &QpAttr) {
        let host = &mut self.hosts[h];
        host.nic.modify_qp(host.qpn, attr).unwrap();
    }

    pub fn state(&self, h: usize) -> QpState {
        self.hosts[h].nic.qp_state(self.hosts[h].qpn).unwrap()
    }

    pub fn counters(&self, h: usize) -> Counters {
        *self.hosts[h].nic.counters()
    }

    // ---- memory and work ----

    pub fn fill(&self, h: usize, offset: usize, bytes: &[u8]) {
        self.hosts[h].buffer.write_at(offset, bytes);
    }

    pub fn read(&self, h: usize, offset: usize, len: usize) -> Vec<u8> {
        let mut out = vec![0; len];
        self.hosts[h].buffer.read_at(offset, &mut out);
        out
    }

    pub fn sge(&self, h: usize, offset: usize, len: usize) -> Sge {
        Sge { addr: self.hosts[h].buffer.addr() + offset as u64, len: len as u32, lkey: self.hosts[h].key }
    }

    /// A WRITE into `h`'s buffer.
    pub fn write_to(&self, h: usize, offset: usize) -> SendOp {
        SendOp::Write { remote_addr: self.hosts[h].buffer.addr() + offset as u64, rkey: self.hosts[h].key }
    }

    pub fn write_imm_to(&self, h: usize, offset: usize, imm: u32) -> SendOp {
        SendOp::WriteImm { remote_addr: self.hosts[h].buffer.addr() + offset as u64, rkey: self.hosts[h].key, imm }
    }

    /// A READ out of `h`'s buffer.
    pub fn read_from(&self, h: usize, offset: usize) -> SendOp {
        SendOp::Read { remote_addr: self.hosts[h].buffer.addr() + offset as u64, rkey: self.hosts[h].key }
    }

    /// A fetch and add on `h`'s buffer.
    pub fn add_to(&self, h: usize, offset: usize, add: u64) -> SendOp {
        let remote_addr = self.hosts[h].buffer.addr() + offset as u64;
        SendOp::FetchAdd { remote_addr, rkey: self.hosts[h].key, add }
    }

    /// An address handle of `h` for the peer, and the peer's queue pair.
    pub fn datagram(&mut self, h: usize, peer: usize) -> Datagram {
        let (v4, mac) = address(peer);
        let (dgid, sgid_index) = if self.options.ipv6 { (address_v6(peer), 1) } else { (v4, 0) };
        let attr = AddressAttr::new(dgid, mac, sgid_index, self.hosts[h].qpn.value());
        let pd = self.hosts[h].pd;
        let ah = self.hosts[h].nic.create_ah(pd, &attr).unwrap();
        Datagram { ah, dest_qp: self.hosts[peer].qpn, qkey: QKEY }
    }

    pub fn post(&mut self, h: usize, wr: &SendWr<'_>) -> Result<(), PostError> {
        let host = &mut self.hosts[h];
        host.nic.post_send(self.now, host.qpn, wr)
    }

    /// Posts a signaled send of `len` bytes from `offset` of `h`'s buffer.
    pub fn send(&mut self, h: usize, wr_id: u64, op: SendOp, offset: usize, len: usize) {
        let sges = [self.sge(h, offset, len)];
        self.post(h, &wr(wr_id, op, Data::Gather(&sges))).unwrap();
    }

    /// Posts a receive of `len` bytes at `offset` of `h`'s buffer.
    pub fn recv(&mut self, h: usize, wr_id: u64, offset: usize, len: usize) {
        let sges = [self.sge(h, offset, len)];
        self.post_recv(h, &RecvWr { wr_id, sges: &sges, best_effort: None }).unwrap();
    }

    pub fn post_recv(&mut self, h: usize, wr: &RecvWr<'_>) -> Result<(), PostError> {
        let host = &mut self.hosts[h];
        match host.srq {
            Some(srq) => host.nic.post_srq_recv(srq, wr),
            None => host.nic.post_recv(host.qpn, wr),
        }
    }

    pub fn sent(&mut self, h: usize) -> Vec<Completion> {
        let cq = self.hosts[h].send_cq;
        self.completions(h, cq).unwrap()
    }

    pub fn received(&mut self, h: usize) -> Vec<Completion> {
        let cq = self.hosts[h].recv_cq;
        self.completions(h, cq).unwrap()
    }

    pub fn completions(&mut self, h: usize, cq: CqId) -> Result<Vec<Completion>, CqError> {
        let mut all = Vec::new();
        while let Some(c) = self.hosts[h].nic.poll_cq(cq)? {
            assert_eq!((c.qpn, c.partial), (self.hosts[h].qpn, None));
            all.push(c);
        }
        Ok(all)
    }

    /// (wr_id, status) of the sends that completed.
    pub fn sent_status(&mut self, h: usize) -> Vec<(u64, Status)> {
        self.sent(h).iter().map(|c| (c.wr_id, c.status)).collect()
    }

    /// (wr_id, status) of the receives that completed.
    pub fn received_status(&mut self, h: usize) -> Vec<(u64, Status)> {
        self.received(h).iter().map(|c| (c.wr_id, c.status)).collect()
    }

    // ---- the wire ----

    /// All frames that `h` sends now.
    pub fn transmit(&mut self, h: usize) -> Vec<Vec<u8>> {
        let mut buffer = vec![0; 4096 + 256];
        let mut frames = Vec::new();
        loop {
            let mut tx = TxFrame::new(&mut buffer);
            if !self.hosts[h].nic.poll_transmit(self.now, Nic::WIRE, &mut tx) {
                return frames;
            }
            frames.push(tx.segments().0.to_vec());
        }
    }

    /// The same into two segments of 2048 bytes each, as AF_XDP has them.
    pub fn transmit_split(&mut self, h: usize) -> Vec<Vec<u8>> {
        let (mut first, mut second) = ([0; 2048], [0; 2304]);
        let mut frames = Vec::new();
        loop {
            let mut tx = TxFrame::new_split(&mut first, &mut second);
            if !self.hosts[h].nic.poll_transmit(self.now, Nic::WIRE, &mut tx) {
                return frames;
            }
            let (a, b) = tx.segments();
            frames.push([a, b].concat());
        }
    }

    pub fn deliver(&mut self, h: usize, frame: &[u8]) {
        let mut copy = frame.to_vec();
        self.hosts[h].nic.handle_frame(self.now, Nic::WIRE, &mut copy);
    }

    pub fn deliver_all(&mut self, h: usize, frames: &[Vec<u8>]) {
        for f in frames {
            self.deliver(h, f);
        }
    }

    /// Carries all frames over in both directions until nobody has any; time stands still.
    pub fn run(&mut self) {
        for _ in 0..100_000 {
            let frames = [self.transmit(A), self.transmit(B)];
            if frames.iter().all(Vec::is_empty) {
                return;
            }
            self.deliver_all(B, &frames[A]);
            self.deliver_all(A, &frames[B]);
        }
        panic!("the two never become quiet");
    }

    /// Lets time pass to `h`'s next deadline and says how many nanoseconds that took; `None` when it has none.
    /// A timer may fire too early: then time goes on to the next one, as a driver would.
    pub fn wait_for_timer(&mut self, h: usize) -> Option<u64> {
        let at = self.hosts[h].nic.poll_timeout()?;
        let waited = at.saturating_since(self.now).as_nanos() as u64;
        self.now = self.now.max(at);
        self.hosts[h].nic.handle_timeout(self.now);
        Some(waited)
    }

    pub fn wait(&mut self, nanos: u64) {
        self.now = Instant::from_nanos(self.now.as_nanos() + nanos);
        for h in [A, B] {
            self.hosts[h].nic.handle_timeout(self.now);
        }
    }
}

/// Runs a test once for each first PSN.
pub fn each_psn(options: Options, test: impl Fn(World)) {
    for psn in FIRST_PSNS {
        test(World::new(Options { psn, ..options }));
    }
}
