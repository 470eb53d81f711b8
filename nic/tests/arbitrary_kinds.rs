//! Frames at random, with right and wrong ICRCs, for queue pairs of every kind and in every state, with and without shared
//! receives, alone and in a group, over the wire and by loopback: nothing panics or hangs, and no byte is written elsewhere.

mod common;

use std::collections::{BTreeSet, VecDeque};
use std::net::IpAddr;

use common::*;
use softnic_nic::transports::memory::{Access, Bind};
use softnic_nic::transports::qp::{Caps, QpState};
use softnic_nic::transports::ud::QKEY_GSI;
use softnic_nic::transports::wr::{Data, Datagram};
use softnic_nic::transports::{Completion, RecvWr, SendFlags, SendOp, SendWr, Sge, Status};
use softnic_nic::{AddressAttr, Nic, Node, QpAttr, QpInit, QpKind, WindowType};
use softnic_wire::aeth::Syndrome;
use softnic_wire::ext::{AtomicEth, Deth, Reth};
use softnic_wire::opcode::HeaderSet as H;
use softnic_wire::{Aeth, ExtHeaders, MacAddr, Opcode, Qpn, Template, bth};

const FRAMES: u32 = 60_000;
/// Frames name only the first part of the victim's buffer, and receives lie only in the second.
const WRITABLE: std::ops::Range<usize> = 64 << 10..96 << 10;
const RECEIVES: std::ops::Range<usize> = 128 << 10..160 << 10;
const KINDS: [QpKind; 4] = [QpKind::Rc, QpKind::Uc, QpKind::Ud, QpKind::Gsi];
const STATES: [QpState; 7] = [
    QpState::Reset,
    QpState::Init,
    QpState::ReadyToReceive,
    QpState::ReadyToSend,
    QpState::SendQueueDrain,
    QpState::SendQueueError,
    QpState::Error,
];

struct Victim {
    qpn: Qpn,
    kind: QpKind,
    shared: bool,
    /// Its frames go back to its own NIC.
    looped: bool,
    /// wr_ids whose completion is due, in order; a send that is not signaled may stay silent.
    sends: VecDeque<(u64, bool)>,
    receives: VecDeque<u64>,
    /// The PSN to send next, counted from the first; RC says it itself.
    psn: i32,
    /// The message that the forger is in the middle of: whether it is a SEND, and bytes that are left.
    open: Option<(bool, u32)>,
}

struct Fuzz {
    w: World,
    random: Box<dyn FnMut() -> u32>,
    victims: Vec<Victim>,
    /// Receives posted to the shared queue whose completion is due: by whom, nobody knows.
    shared: BTreeSet<u64>,
    next_id: u64,
    /// How many frames met each kind in each state.
    met: [[u32; 7]; 4],
    events: BTreeSet<String>,
}

fn group() -> IpAddr {
    IpAddr::from([239, 1, 2, 3])
}

impl Fuzz {
    fn new(seed: u32) -> Fuzz {
        let caps = Caps { max_send_wr: 8, max_recv_wr: 4, max_send_sge: 2, max_recv_sge: 2, max_inline: 32 };
        let psn = [100, 0xff_ff80][seed as usize % 2];
        let w = World::new(Options { caps, psn, timeout: 4, retry_cnt: 7, cq: 4096, srq: true, ..Options::default() });
        let mut f = Fuzz {
            w,
            random: Box::new(generator(seed)),
            victims: Vec::new(),
            shared: BTreeSet::new(),
            next_id: 0,
            met: [[0; 7]; 4],
            events: BTreeSet::new(),
        };
        for (kind, shared, looped) in [
            (QpKind::Rc, false, false),
            (QpKind::Rc, true, false),
            (QpKind::Rc, false, true),
            (QpKind::Uc, false, false),
            (QpKind::Uc, true, false),
            (QpKind::Uc, true, true),
            (QpKind::Ud, false, false),
            (QpKind::Ud, true, false),
            (QpKind::Gsi, false, false),
        ] {
            let Host { pd, send_cq, recv_cq, srq, .. } = f.w.hosts[B];
            let init = QpInit { srq: srq.filter(|_| shared), ..QpInit::new(kind, pd, send_cq, recv_cq, caps) };
            let qpn = f.w.hosts[B].nic.create_qp(&init).unwrap();
            if kind == QpKind::Ud {
                f.w.hosts[B].nic.attach_multicast(qpn, group()).unwrap();
            }
            let (sends, receives) = (VecDeque::new(), VecDeque::new());
            f.victims.push(Victim { qpn, kind, shared, looped, sends, receives, psn: 0, open: None });
            f.reconnect(f.victims.len() - 1);
        }
        f
    }

    fn below(&mut self, n: u32) -> u32 {
        (self.random)() % n
    }

    fn chance(&mut self, percent: u32) -> bool {
        self.below(100) < percent
    }

    fn state(&self, v: usize) -> QpState {
        self.w.hosts[B].nic.qp_state(self.victims[v].qpn).unwrap()
    }

    fn modify(&mut self, v: usize, attr: &QpAttr) -> bool {
        self.w.hosts[B].nic.modify_qp(self.victims[v].qpn, attr).is_ok()
    }

    /// From RESET to a state by chance, mostly to RTS. The peer is one that only frames at random speak for, by the number
    /// of the victim; or the victim itself.
    fn reconnect(&mut self, v: usize) {
        let Victim { kind, looped, qpn, .. } = self.victims[v];
        assert!(self.modify(v, &to_state(QpState::Reset)));
        let victim = &mut self.victims[v];
        victim.sends.clear();
        victim.receives.clear();
        (victim.psn, victim.open) = (0, None);
        let o = Options { kind, ..self.w.options };
        let (ip, mac) = address(if looped { B } else { A });
        let path = self.w.hosts[B].nic.path_to(ip, mac, 5).unwrap();
        let dest = if looped { qpn } else { Qpn::new(0x1000 + v as u32) };
        let steps = [init_attr(&o), rtr_attr(&o, path, dest), rts_attr(&o)];
        let n = if self.chance(60) { 3 } else { self.below(4) as usize };
        for attr in &steps[..n] {
            assert!(self.modify(v, attr));
        }
    }

    /// A place that may be written, or one that may not be.
    fn target(&mut self, len: u32) -> (u64, u32) {
        let at = self.below((WRITABLE.end - WRITABLE.start) as u32 - len.min(2000));
        let (base, key) = (self.w.hosts[B].buffer.addr(), self.w.hosts[B].key);
        match self.below(20) {
            0 => (base + u64::from(at), (self.random)()),
            1 => (base - 1, key),
            2 => (u64::MAX - u64::from(at), key),
            _ => (base + WRITABLE.start as u64 + u64::from(at), key),
        }
    }

    /// A frame for a victim: of its kind, mostly, and mostly the next of a message.
    fn frame(&mut self, v: usize) -> Vec<u8> {
        let Victim { kind, qpn, psn, open, .. } = self.victims[v];
        let connected = matches!(kind, QpKind::Rc | QpKind::Uc);
        let service = match kind {
            QpKind::Rc => 0x00,
            QpKind::Uc => 0x20,
            QpKind::Ud | QpKind::Gsi => 0x60,
        };
        let mut len = [0, 1, 20, 256, 256][self.below(5) as usize];
        let mut reth_len = len;
        let mut low = self.below(32) as u8;
        if connected && self.chance(80) {
            let (first, (send, left)) = match open {
                Some(open) => (false, open),
                None => (true, (self.chance(50), self.below(900))),
            };
            (len, reth_len) = (left.min(256), left);
            let last = left <= 256;
            let write = if send { 0 } else { 6 };
            low = match (first, last) {
                (true, false) => write,
                (false, false) => write + 1,
                (false, true) => write + 2 + self.below(2) as u8,
                (true, true) => write + 4 + self.below(2) as u8,
            };
            self.victims[v].open = (!last).then_some((send, left - len));
        } else if !connected && self.chance(80) {
            low = 4 + self.below(2) as u8;
        }
        let opcode = if self.chance(2) { self.below(256) as u8 } else { service | low };
        let (va, rkey) = self.target(reth_len);
        let h = Opcode(opcode).headers();
        let qkey = match (self.below(10), kind) {
            (0, _) => (self.random)(),
            (_, QpKind::Gsi) => QKEY_GSI,
            _ => QKEY,
        };
        let syndrome = [0x1f, 0x1f, 0x03, 0x60, 0x21, 0x62, 0x7f][self.below(7) as usize];
        let aeth = Aeth { syndrome: Syndrome::from_byte(syndrome), msn: (self.random)() & 0xff_ffff };
        let ext = ExtHeaders {
            reth: h.contains(H::RETH).then_some(Reth { va, rkey, len: reth_len }),
            aeth: h.contains(H::AETH).then_some(aeth),
            imm: h.contains(H::IMM).then_some(rkey),
            ieth: h.contains(H::IETH).then_some(rkey),
            atomic: h.contains(H::ATOMIC).then_some(AtomicEth { va: va & !7, rkey, swap_add: 1, compare: 0 }),
            deth: h.contains(H::DETH).then_some(Deth { qkey, src_qp: Qpn::new(9) }),
            ..ExtHeaders::default()
        };
        let at = if self.chance(5) { psn + self.below(7) as i32 - 3 } else { psn };
        self.victims[v].psn += 1;
        let from = if self.victims[v].looped { B } else { A };
        let (ip, mac) = address(B);
        let mut path = self.w.hosts[from].nic.path_to(ip, mac, 5).unwrap();
        let mut dest = if self.chance(1) { Qpn::new((self.random)()) } else { qpn };
        if kind == QpKind::Ud && self.chance(20) {
            let attr = AddressAttr::new(group(), MacAddr([0; 6]), 0, 1);
            path = attr.path(self.w.hosts[A].nic.port()).unwrap();
            dest = if self.chance(95) { Qpn::MULTICAST } else { qpn };
        }
        let pkey = if self.chance(1) { (self.random)() as u16 } else { bth::DEFAULT_PKEY };
        let (template, ack_req) = (Template::new(&path, dest, pkey), self.chance(50));
        let mut frame = self.w.forge_with(&template, opcode, at, ack_req, ext, &vec![3; len as usize]);
        if self.chance(3) {
            let at = self.below(frame.len() as u32) as usize;
            frame[at] ^= 1 << self.below(8);
        }
        frame
    }

    /// Work for a victim, in whatever state it is; some of it cannot be carried out.
    fn post(&mut self, v: usize) {
        let Victim { qpn, kind, shared, .. } = self.victims[v];
        let id = self.next_id;
        self.next_id += 1;
        let at = RECEIVES.start + self.below(30_000) as usize;
        let len = self.below(900) as usize;
        let sges = [self.w.sge(B, at, len)];
        let receive = RecvWr { wr_id: id, sges: &sges, deadline: None };
        if shared {
            let srq = self.w.hosts[B].srq.unwrap();
            if self.w.hosts[B].nic.post_srq_recv(srq, &receive).is_ok() {
                self.shared.insert(id);
            }
        } else if self.w.hosts[B].nic.post_recv(qpn, &receive).is_ok() {
            self.victims[v].receives.push_back(id);
        }
        let to = matches!(kind, QpKind::Ud | QpKind::Gsi).then(|| self.destination());
        let (remote_addr, rkey) = self.target(900);
        let op = match self.below(10) {
            0 => SendOp::Read { remote_addr, rkey },
            1 => SendOp::FetchAdd { remote_addr: remote_addr & !7, rkey, add: 1 },
            2 => SendOp::Write { remote_addr, rkey },
            3 => SendOp::WriteImm { remote_addr, rkey, imm: 1 },
            4 => self.bind(),
            5 => SendOp::SendInv { rkey },
            6 if self.chance(10) => SendOp::LocalInv { rkey },
            _ => SendOp::Send,
        };
        let len = match op {
            SendOp::FetchAdd { .. } => 8,
            _ => self.below(700),
        };
        // Out of, and for READs into, the part that may be written.
        let mut sges = [Sge { len, ..self.w.sge(B, WRITABLE.start, 0) }];
        if self.chance(2) {
            sges[0].lkey ^= 0x100;
        }
        let signaled = self.chance(50);
        let flags = SendFlags { signaled, solicited: self.chance(20), fence: self.chance(20) };
        let wr = SendWr { wr_id: id, op, data: Data::Gather(&sges), flags, deadline: None, to };
        if self.w.hosts[B].nic.post_send(self.w.now, qpn, &wr).is_ok() {
            self.victims[v].sends.push_back((id, signaled));
        }
    }

    /// A peer, the NIC itself, a group; sometimes gone again before the datagram leaves.
    fn destination(&mut self) -> Datagram {
        let (peer, pd) = (self.below(3), self.w.hosts[B].pd);
        let dgid = if peer == 2 { group() } else { address(peer as usize).0 };
        let attr = AddressAttr::new(dgid, MacAddr([2; 6]), 0, 3);
        let ah = self.w.hosts[B].nic.create_ah(pd, &attr).unwrap();
        if self.chance(5) {
            self.w.hosts[B].nic.destroy_ah(ah).unwrap();
        }
        let v = self.below(9) as usize;
        Datagram { ah, dest_qp: if peer == 2 { Qpn::MULTICAST } else { self.victims[v].qpn }, qkey: QKEY }
    }

    /// A window over the part that may be written; one in ten cannot be bound.
    fn bind(&mut self) -> SendOp {
        let kind = if self.chance(50) { WindowType::Type1 } else { WindowType::Type2B };
        let Host { nic, pd, buffer, key, .. } = &mut self.w.hosts[B];
        let window = nic.alloc_mw(*pd, kind).unwrap();
        let (addr, rkey) = (buffer.addr() + WRITABLE.start as u64, softnic_nic::nic::next_key(window));
        let (lkey, access) = (*key, Access::REMOTE);
        let lkey = if self.chance(10) { 0 } else { lkey };
        SendOp::BindWindow(Bind { window, rkey, lkey, addr, len: 1000, access, zero_based: false })
    }

    /// Lets the victims send, over both ports; hears which PSN the reliable ones expect.
    fn listen(&mut self) {
        for frame in self.w.transmit(B) {
            let p = self.w.parse(&frame);
            let v = p.bth.dest_qp.value().wrapping_sub(0x1000) as usize;
            let (Some(aeth), Some(victim)) = (p.ext.aeth, self.victims.get_mut(v)) else { continue };
            let psn = p.bth.psn.distance(softnic_wire::Psn::new(self.w.options.psn));
            victim.psn = psn + i32::from(matches!(aeth.syndrome, Syndrome::Ack(_)));
        }
        for _ in 0..20 {
            if let Some(mut frame) = self.w.transmit_one(B, Nic::LOOPBACK)
                && self.chance(90)
            {
                self.w.hosts[B].nic.handle_frame(self.w.now, Nic::LOOPBACK, &mut frame);
            }
        }
    }

    fn take_completion(&mut self, receive: bool, c: &Completion) {
        let victim = self.victims.iter_mut().find(|v| v.qpn == c.qpn).expect("a victim's");
        if !receive {
            while let Some((id, signaled)) = victim.sends.pop_front() {
                if id == c.wr_id {
                    return;
                }
                assert!(!signaled, "{id} was to complete before {c:?}");
            }
            panic!("not posted, or completed before: {c:?}");
        }
        if victim.shared {
            assert!(self.shared.remove(&c.wr_id), "not posted, or completed before: {c:?}");
        } else {
            assert_eq!(victim.receives.pop_front(), Some(c.wr_id), "{c:?}");
        }
        assert_ne!(c.status, Status::LocProtErr, "all receives are right: {c:?}");
    }

    fn collect(&mut self) {
        let Host { send_cq, recv_cq, .. } = self.w.hosts[B];
        for (cq, receive) in [(send_cq, false), (recv_cq, true)] {
            for c in self.w.all(B, cq) {
                self.take_completion(receive, &c);
            }
        }
        for v in 0..self.victims.len() {
            let (state, victim) = (self.state(v), &self.victims[v]);
            let sends_flushed = matches!(state, QpState::Error | QpState::SendQueueError);
            assert!(!sends_flushed || victim.sends.iter().all(|s| !s.1), "all sends are flushed");
            assert!(state != QpState::Error || victim.receives.is_empty(), "all receives are flushed");
            assert!(state != QpState::SendQueueError || victim.kind != QpKind::Rc);
        }
        for event in self.w.events(B) {
            self.events.insert(event.to_string());
        }
    }

    fn check_memory(&self) {
        let memory = self.w.read(B, 0, BUFFER);
        let touched = |i: &usize| memory[*i] != UNTOUCHED && !WRITABLE.contains(i) && !RECEIVES.contains(i);
        assert_eq!((0..BUFFER).find(touched), None, "a byte that nobody may name was written");
    }

    /// Moves a victim between the states that it has.
    fn shake(&mut self, v: usize) {
        use QpState::*;
        match (self.state(v), self.below(10)) {
            (ReadyToSend, 0..2) => {
                self.modify(v, &QpAttr { sqd_notify: Some(true), ..to_state(SendQueueDrain) });
            }
            (SendQueueDrain | SendQueueError, 0..2) => {
                self.modify(v, &to_state(ReadyToSend));
            }
            (SendQueueDrain, 2) => {
                self.modify(v, &to_state(SendQueueDrain));
            }
            (ReadyToReceive | Init | Reset | Error, 0..2) => self.reconnect(v),
            (_, 8) if self.chance(40) => self.reconnect(v),
            (_, 9) if self.chance(20) => {
                self.modify(v, &to_state(Error));
            }
            _ => {}
        }
    }
}

fn run(seed: u32) -> Fuzz {
    let mut f = Fuzz::new(seed);
    for n in 0..FRAMES {
        let v = f.below(9) as usize;
        if f.chance(40) {
            f.post(v);
        }
        let mut frame = f.frame(v);
        let (kind, state) = (f.victims[v].kind, f.state(v));
        f.met[KINDS.iter().position(|&k| k == kind).unwrap()][STATES.iter().position(|&s| s == state).unwrap()] += 1;
        f.w.hosts[B].nic.handle_frame(f.w.now, Nic::WIRE, &mut frame);
        if f.chance(80) {
            f.listen();
        }
        if f.chance(5) {
            let ns = f.below(200_000);
            f.w.wait(u64::from(ns));
        }
        f.collect();
        if f.chance(20) {
            f.shake(v);
        }
        if n % 1000 == 0 {
            f.check_memory();
        }
    }
    f.check_memory();
    f
}

#[test]
fn no_frame_panics_hangs_or_writes_where_it_may_not_whatever_queue_pair_it_meets() {
    for seed in 1..=4 {
        let f = run(seed);
        let c = f.w.counters(B);
        for (name, count) in [
            ("writes", c.rx_write_requests),
            ("sends", c.rx_send_requests),
            ("READs", c.rx_read_requests),
            ("gaps", c.out_of_sequence),
            ("refused ranges", c.resp_remote_access_errors),
            ("refused requests", c.resp_remote_invalid_request),
            ("receives that were missing", c.out_of_buffer),
            ("receives that were too short", c.resp_local_length_error),
            ("bad ICRCs", c.rx_icrc_encapsulated),
            ("bad partitions", c.rx_bad_pkey),
            ("bad Q_Keys", c.rx_bad_qkey),
            ("bad queue pairs", c.rx_bad_qp),
            ("malformed packets", c.rx_malformed),
            ("failed sends", c.req_cqe_error),
        ] {
            assert!(count > 10, "seed {seed}: {count} {name}\n{c:#?}");
        }
        // Every kind was met in every state that it has.
        for (kind, met) in KINDS.iter().zip(f.met) {
            for (state, count) in STATES.iter().zip(met) {
                let has = *state != QpState::SendQueueError || *kind != QpKind::Rc;
                assert!(count > 10 || !has, "seed {seed}: {kind:?} in {state:?}: {count}");
            }
        }
        for name in ["COMM_EST", "LAST_WQE_REACHED", "SQ_DRAINED", "QP_REQ_ERR", "QP_ACCESS_ERR"] {
            assert!(f.events.contains(name), "seed {seed}: no {name} among {:?}", f.events);
        }
    }
}

#[test]
fn the_same_seed_gives_the_same_run() {
    let (a, b) = (run(9), run(9));
    assert_eq!(a.w.counters(B), b.w.counters(B));
    assert_eq!(a.w.read(B, 0, BUFFER), b.w.read(B, 0, BUFFER));
}
