//! Queue pairs of every kind and in every state, with and without shared receives, alone and in a group, over the wire and
//! by loopback: the program that uses them, and what must hold whatever it does and whatever a peer sends.
//!
//! Tests draw from a seed what happens, a fuzzer's input says it byte by byte ([`fuzz`]).
#![allow(dead_code, unreachable_pub)] // the fuzz target uses its part of this, the tests theirs

mod best_effort;
mod check;
mod frames;
mod numbers;
mod program;

use std::collections::{BTreeSet, VecDeque};
use std::net::IpAddr;
use std::ops::Range;
use std::sync::Arc;

use softnic_nic::transports::lowar::Code;
use softnic_nic::transports::qp::{Caps, QpState};
use softnic_nic::transports::xp::XpSettings;
use softnic_nic::transports::{CqId, Transport};
use softnic_nic::{Buffer, Nic, QpInit, QpKind};
use softnic_wire::aeth::Syndrome;
use softnic_wire::mad::vendor::{Kind, Negotiation};
use softnic_wire::{Node, Opcode, Psn, Qpn};

use crate::common::*;
pub use numbers::Numbers;

/// Bytes of a buffer: few, for a fuzzer makes very many worlds.
pub const MEMORY: usize = 40 << 10;
/// Frames name only the first part of the victim's buffer, and receives lie only in the second.
pub const WRITABLE: Range<usize> = 8 << 10..16 << 10;
pub const RECEIVES: Range<usize> = 24 << 10..32 << 10;
pub const KINDS: [QpKind; 4] = [QpKind::Rc, QpKind::Uc, QpKind::Ud, QpKind::Gsi];
pub const STATES: [QpState; 7] = [
    QpState::Reset,
    QpState::Init,
    QpState::ReadyToReceive,
    QpState::ReadyToSend,
    QpState::SendQueueDrain,
    QpState::SendQueueError,
    QpState::Error,
];
/// The kind of each victim, whether its receives are shared, and whether its frames go back to its own NIC. The last ones offer
/// Selective Repeat, then LoWAR, then XP.
const VICTIMS: [(QpKind, bool, bool); 19] = [
    (QpKind::Rc, false, false),
    (QpKind::Rc, true, false),
    (QpKind::Rc, false, true),
    (QpKind::Uc, false, false),
    (QpKind::Uc, true, false),
    (QpKind::Uc, true, true),
    (QpKind::Ud, false, false),
    (QpKind::Ud, true, false),
    (QpKind::Gsi, false, false),
    (QpKind::Rc, false, false),
    (QpKind::Rc, true, false),
    (QpKind::Rc, false, true),
    (QpKind::Rc, false, false),
    (QpKind::Rc, true, false),
    (QpKind::Rc, false, true),
    (QpKind::Rc, false, false),
    (QpKind::Rc, true, false),
    (QpKind::Rc, false, true),
    (QpKind::Uc, false, false),
];
const FIRST_SELECTIVE: usize = 9;
const FIRST_LOWAR: usize = 12;
const FIRST_BEST_EFFORT: usize = 15;
/// Coding units and places in the ring: few, so that they run out, and for a fuzzer's sake.
const LOWAR_ROOM: (u16, u32) = (8, 8);
const CAPS: Caps = Caps { max_send_wr: 8, max_recv_wr: 4, max_send_sge: 2, max_recv_sge: 2, max_inline: 32 };

pub struct Victim {
    pub qpn: Qpn,
    pub kind: QpKind,
    shared: bool,
    /// Its frames go back to its own NIC.
    looped: bool,
    /// It offers Selective Repeat.
    selective: bool,
    /// It offers LoWAR.
    lowar: bool,
    /// It offers XP.
    best_effort: bool,
    /// The message of XP that its peer is in, counted from the first.
    message: i32,
    /// Receives that it completed since it was connected.
    used: u32,
    /// wr_ids whose completion is due, in order; a send that is not signaled may stay silent.
    sends: VecDeque<(u64, bool)>,
    receives: VecDeque<u64>,
    /// The PSN to send next, counted from the first; RC says it itself.
    psn: i32,
    /// The last PSN that it sent.
    sent: i32,
    /// The message that the forger is in the middle of: whether it is a SEND, and bytes that are left.
    open: Option<(bool, u32)>,
}

pub struct Fuzz {
    pub w: World,
    numbers: Numbers,
    pub victims: Vec<Victim>,
    /// Where memory ends that peers may write, and its key: what reaches beyond is refused, or panics.
    edge: (u64, u32),
    /// Memory of the same NIC that no peer may write: without the right, or in another domain.
    private: Vec<(Arc<Buffer>, u32)>,
    /// Keys of windows, bound or not.
    windows: VecDeque<u32>,
    /// Receives posted to the shared queue whose completion is due: by whom, nobody knows.
    shared: BTreeSet<u64>,
    next_id: u64,
    /// A completion found no room.
    pub overflowed: bool,
    /// Completion queues whose event is due at the next completion.
    armed: BTreeSet<CqId>,
    /// How many frames met each kind in each state.
    pub met: [[u32; 7]; 4],
    pub events: BTreeSet<String>,
}

fn group() -> IpAddr {
    IpAddr::from([239, 1, 2, 3])
}

/// Completions that all victims together can have at a time, and more.
pub const MANY: usize = 512;

/// Does what the bytes say, until there are no more.
pub fn fuzz(data: &[u8]) {
    let mut numbers = Numbers::of_input(data);
    let cq = if numbers.chance(90) { MANY } else { numbers.below(16) as usize };
    let mut f = Fuzz::new(numbers, cq);
    while f.numbers.are_left() {
        f.step();
    }
    f.end();
}

impl Fuzz {
    /// With completion queues of this size; everything else is drawn.
    pub fn new(mut numbers: Numbers, cq: usize) -> Fuzz {
        let psn = [100, 0xff_ff80][numbers.below(2) as usize];
        let options = Options { psn, timeout: 4, retry_cnt: 7, cq, buffer: MEMORY, srq: true, ..Options::default() };
        let mut w = World::new(Options { caps: CAPS, ..options });
        let b = &mut w.hosts[B];
        let mtu = b.nic.port().mtu.bytes() as usize;
        b.nic.shim_pools().lowar.provide_some(mtu, LOWAR_ROOM.0, LOWAR_ROOM.1);
        let other = b.nic.alloc_pd();
        let edge = Buffer::new(0x3000_0000, 4096);
        let edge_key = b.nic.reg_mr(b.pd, &edge, options.mr_access).unwrap();
        let mut private = Vec::new();
        for (i, (pd, access)) in [(b.pd, LOCAL), (other, options.mr_access)].into_iter().enumerate() {
            let buffer = Buffer::new(0x4000_0000 + 0x100_0000 * i as u64, 4096);
            let key = b.nic.reg_mr(pd, &buffer, access).unwrap();
            private.push((buffer, key));
        }
        let mut f = Fuzz {
            w,
            numbers,
            victims: Vec::new(),
            edge: (edge.addr() + edge.len() as u64, edge_key),
            private,
            windows: VecDeque::new(),
            shared: BTreeSet::new(),
            next_id: 0,
            overflowed: false,
            armed: BTreeSet::new(),
            met: [[0; 7]; 4],
            events: BTreeSet::new(),
        };
        for (v, (kind, shared, looped)) in VICTIMS.into_iter().enumerate() {
            let (sends, receives) = (VecDeque::new(), VecDeque::new());
            let qpn = f.make(v);
            f.victims.push(Victim {
                qpn,
                kind,
                shared,
                looped,
                selective: (FIRST_SELECTIVE..FIRST_LOWAR).contains(&v),
                lowar: (FIRST_LOWAR..FIRST_BEST_EFFORT).contains(&v),
                best_effort: v >= FIRST_BEST_EFFORT,
                message: 0,
                used: 0,
                sends,
                receives,
                psn: 0,
                sent: -1,
                open: None,
            });
            f.reconnect(v);
        }
        f
    }

    /// A new queue pair, as this victim is.
    fn make(&mut self, v: usize) -> Qpn {
        let (kind, shared, _) = VICTIMS[v];
        let Host { nic, pd, send_cq, recv_cq, srq, .. } = &mut self.w.hosts[B];
        let usual = QpInit::new(kind, *pd, *send_cq, *recv_cq, CAPS);
        let transport = match v {
            FIRST_BEST_EFFORT.. => {
                let mut settings: XpSettings = "linger=20us,active=2ms,tail=2,spray=3".parse().unwrap();
                settings.uc = kind == QpKind::Uc;
                Transport::Xp(settings)
            }
            FIRST_LOWAR.. => Transport::Lowar(Code::new(4, 2).unwrap()),
            FIRST_SELECTIVE.. => Transport::Sr { window: 128 },
            _ => usual.transport,
        };
        let init = QpInit { srq: srq.filter(|_| shared), transport, ..usual };
        let qpn = nic.create_qp(&init).unwrap();
        if kind == QpKind::Ud {
            nic.attach_multicast(qpn, group()).unwrap();
        }
        qpn
    }

    fn below(&mut self, n: u32) -> u32 {
        self.numbers.below(n)
    }

    fn chance(&mut self, percent: u32) -> bool {
        self.numbers.chance(percent)
    }

    pub fn state(&self, v: usize) -> QpState {
        self.w.hosts[B].nic.qp_state(self.victims[v].qpn).unwrap()
    }

    /// One thing happens, and its consequences are looked at.
    pub fn step(&mut self) {
        let v = self.below(VICTIMS.len() as u32) as usize;
        match self.below(32) {
            0..8 => self.post(v),
            8 => {
                let frame = self.noise(v);
                self.deliver(v, frame);
            }
            9..12 => {
                let frame = self.answer(v);
                self.deliver(v, frame);
            }
            12 => {
                let ns = self.below(200_000);
                self.w.wait(ns.into());
            }
            13 => {
                self.w.wait_for_timer(B);
            }
            14..18 => self.shake(v),
            18 => self.administrate(v),
            _ => {
                let frame = self.frame(v);
                self.deliver(v, frame);
            }
        }
        if self.chance(80) {
            self.listen();
        }
        self.collect();
    }

    fn deliver(&mut self, v: usize, mut frame: Vec<u8>) {
        let (kind, state) = (self.victims[v].kind, self.state(v));
        let [kind, state] =
            [KINDS.iter().position(|&k| k == kind), STATES.iter().position(|&s| s == state)].map(Option::unwrap);
        self.met[kind][state] += 1;
        self.w.hosts[B].nic.handle_frame(self.w.now, Nic::WIRE, &mut frame);
    }

    /// Lets the victims send, over both ports, and says whether they did; hears which PSN the reliable ones expect, and
    /// which they sent.
    fn listen(&mut self) -> bool {
        let frames = self.w.transmit(B);
        let mut any = !frames.is_empty();
        let mut answers = Vec::new();
        for frame in frames {
            let p = self.w.parse(&frame);
            if p.bth.dest_qp == Qpn::GSI {
                answers.extend(Negotiation::parse(&frame[p.payload.clone()]).ok().map(|offer| offer.without_info()));
                continue;
            }
            let v = p.bth.dest_qp.value().wrapping_sub(0x1000) as usize;
            let Some(victim) = self.victims.get_mut(v) else { continue };
            let psn = p.bth.psn.distance(Psn::new(self.w.options.psn));
            match p.ext.aeth.map(|a| a.syndrome) {
                // It names the packet that it waits for.
                Some(_) if p.bth.opcode == Opcode::SR_ACKNOWLEDGE => victim.psn = psn,
                Some(Syndrome::Ack(_)) => victim.psn = psn + 1,
                Some(_) => victim.psn = psn,
                None => victim.sent = psn,
            }
        }
        for offer in answers {
            if offer.kind == Kind::Offer && self.chance(80) {
                let mut frame = self.consent_frame(&offer);
                self.w.hosts[B].nic.handle_frame(self.w.now, Nic::WIRE, &mut frame);
            }
        }
        for _ in 0..20 {
            let Some(mut frame) = self.w.transmit_one(B, Nic::LOOPBACK) else { break };
            any = true;
            if self.chance(90) {
                self.w.hosts[B].nic.handle_frame(self.w.now, Nic::LOOPBACK, &mut frame);
            }
        }
        any
    }
}
