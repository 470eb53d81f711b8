//! All operations of a reliable connection mixed at random, with loss, draining and missing receives: once that ends,
//! everything is done, in order, exactly once.

use std::collections::VecDeque;

use crate::common::*;
use softnic_nic::transports::memory::{Access, Bind};
use softnic_nic::transports::qp::{Caps, QpState};
use softnic_nic::transports::{Data, Event, RecvWr, SendFlags, SendOp, SendWr, Status};
use softnic_nic::{Nic, QpAttr, WindowType, next_key};
use softnic_wire::PathMtu;

const STEPS: u32 = 3000;
/// In both buffers: what is sent from, what receives and READs fill.
const INTO: usize = 128 << 10;

struct Mixed {
    w: World,
    random: Box<dyn FnMut() -> u32>,
    /// A's sends, and whether each is signaled.
    posted: VecDeque<(u64, bool)>,
    next_id: u64,
    /// Bytes that B's receives must have got, in order; an immediate stands for each.
    messages: VecDeque<u32>,
    receives: VecDeque<u64>,
    /// The work request that takes away what the last one bound.
    bound: Option<SendOp>,
    /// What the fetch and adds come to.
    added: u64,
    drains: u32,
    drained: u32,
}

impl Mixed {
    fn new(seed: u32) -> Mixed {
        let psn = [100, 0xff_ff00][seed as usize % 2];
        let caps = Caps { max_send_wr: 20, max_recv_wr: 6, ..Options::default().caps };
        let o = Options { psn, caps, mtu: PathMtu::B256, rnr_retry: 7, retry_cnt: 7, timeout: 4, ..Options::default() };
        let w = World::new(Options { srq: seed.is_multiple_of(3), max_rd_atomic: 3, ..o });
        w.fill(B, 0, &[0; 8]);
        Mixed {
            w,
            random: Box::new(generator(seed)),
            posted: VecDeque::new(),
            next_id: 0,
            messages: VecDeque::new(),
            receives: VecDeque::new(),
            bound: None,
            added: 0,
            drains: 0,
            drained: 0,
        }
    }

    fn below(&mut self, n: u32) -> u32 {
        (self.random)() % n
    }

    fn chance(&mut self, percent: u32) -> bool {
        self.below(100) < percent
    }

    /// A window of A, bound by one work request and invalidated by the next.
    fn bind(&mut self) -> (SendOp, SendOp) {
        let Host { nic, pd, buffer, key, .. } = &mut self.w.hosts[A];
        let window = nic.alloc_mw(*pd, WindowType::Type2B).unwrap();
        let (rkey, addr, access) = (next_key(window), buffer.addr(), Access::REMOTE_READ);
        let bind = Bind { window, rkey, lkey: *key, addr, len: 100, access, zero_based: false };
        (SendOp::BindWindow(bind), SendOp::LocalInv { rkey })
    }

    fn post(&mut self) {
        // What was bound is taken away by the next work request that there is room for.
        if let Some(op) = self.bound {
            self.bound = if self.try_post(op, 0, 0) { None } else { Some(op) };
            return;
        }
        let len = self.below(700) as usize;
        let imm = self.next_id as u32;
        let (op, len) = match self.below(9) {
            0 => (self.w.write_to(B, INTO), len),
            1 => (self.w.write_imm_to(B, INTO, imm), len),
            2 => (self.w.read_from(B, 0), len),
            3 => (self.w.add_to(B, 0, 1), 8),
            4 | 5 => {
                let (bind, invalidate) = self.bind();
                self.bound = self.try_post(bind, 0, 0).then_some(invalidate);
                return;
            }
            _ => (SendOp::SendImm { imm }, len),
        };
        if self.try_post(op, INTO, len) {
            match op {
                SendOp::SendImm { imm } | SendOp::WriteImm { imm, .. } => self.messages.push_back(imm),
                SendOp::FetchAdd { .. } => self.added += 1,
                _ => {}
            }
        }
    }

    fn try_post(&mut self, op: SendOp, offset: usize, len: usize) -> bool {
        let signaled = self.chance(60);
        let flags = SendFlags { signaled, fence: self.chance(20), solicited: false };
        let sges = [self.w.sge(A, offset, len)];
        let taken = self.w.post(A, &SendWr { flags, ..wr(self.next_id, op, Data::Gather(&sges)) }).is_ok();
        if taken {
            self.posted.push_back((self.next_id, signaled));
            self.next_id += 1;
        }
        taken
    }

    fn receive(&mut self) {
        let sges = [self.w.sge(B, INTO, 700)];
        let id = self.next_id;
        if self.w.post_recv(B, &RecvWr { wr_id: id, sges: &sges, best_effort: None }).is_ok() {
            self.receives.push_back(id);
            self.next_id += 1;
        }
    }

    /// Some frames of one side, each lost with a chance.
    fn carry(&mut self, loss: u32) -> bool {
        let mut any = false;
        for h in [A, B] {
            for _ in 0..=self.below(6) {
                let Some(frame) = self.w.transmit_one(h, Nic::WIRE) else { break };
                any = true;
                if !self.chance(loss) {
                    self.w.deliver(1 - h, &frame);
                }
            }
        }
        any
    }

    fn collect(&mut self) {
        for c in self.w.sent(A) {
            assert_eq!(c.status, Status::Success, "{c:?}");
            while let Some((id, signaled)) = self.posted.pop_front() {
                if id == c.wr_id {
                    break;
                }
                assert!(!signaled, "{id} before {c:?}");
            }
        }
        for c in self.w.received(B) {
            assert_eq!((c.status, Some(c.wr_id)), (Status::Success, self.receives.pop_front()));
            assert_eq!(c.imm, self.messages.pop_front(), "in order, and once");
        }
        for event in self.w.events(A) {
            assert_eq!(event, Event::SqDrained(self.w.hosts[A].qpn));
            self.drained += 1;
        }
        assert!(self.drained <= self.drains);
    }

    /// Begins to drain, or ends it; mostly when it is done.
    fn toggle_drain(&mut self) {
        if self.w.state(A) == QpState::ReadyToSend {
            self.drains += 1;
            self.w.modify(A, &QpAttr { sqd_notify: Some(true), ..to_state(QpState::SendQueueDrain) });
        } else if self.drained == self.drains || self.chance(5) {
            self.drained = self.drains;
            self.w.modify(A, &to_state(QpState::ReadyToSend));
        }
    }

    /// Carries frames and time on, without loss, until nothing happens any more.
    fn settle(&mut self) {
        for _ in 0..10_000 {
            let moved = self.carry(0);
            self.receive();
            self.collect();
            if !moved && self.w.wait_for_timer(A).is_none() {
                return;
            }
        }
        panic!("the two never become quiet");
    }
}

fn run(seed: u32) -> Mixed {
    let mut m = Mixed::new(seed);
    for _ in 0..STEPS {
        match m.below(10) {
            0..4 => m.post(),
            4 => m.receive(),
            5 if m.chance(20) => m.toggle_drain(),
            _ => {
                if !m.carry(8) && m.chance(50) {
                    m.w.wait_for_timer(A);
                }
            }
        }
        m.collect();
    }
    m
}

#[test]
fn all_is_done_in_order_and_once_when_the_faults_end() {
    for seed in 1..=20 {
        let mut m = run(seed);
        // A drain that is under way ends by itself.
        let draining = m.w.state(A) == QpState::SendQueueDrain;
        m.settle();
        assert!(!draining || m.drained == m.drains, "seed {seed}: the drain never ends");
        m.w.modify(A, &to_state(QpState::ReadyToSend));
        m.settle();
        while m.bound.is_some() {
            m.post();
        }
        m.settle();
        assert!(m.posted.iter().all(|&(_, signaled)| !signaled), "seed {seed}: {:?}", m.posted);
        assert!(m.messages.is_empty(), "seed {seed}: {:?}", m.messages);
        assert_eq!(m.w.read(B, 0, 8), m.added.to_ne_bytes(), "seed {seed}");
        let c = m.w.counters(A);
        assert!(m.drains > 5 && m.added > 10 && c.retransmitted_packets > 20, "seed {seed}: {} {c:#?}", m.drains);
        assert_eq!((m.w.state(A), m.w.state(B)), (QpState::ReadyToSend, QpState::ReadyToSend), "seed {seed}");
        // Every window was bound and taken away again.
        let key = m.w.hosts[A].key;
        assert_eq!(m.w.hosts[A].nic.dereg_mr(key), Ok(()), "seed {seed}");
    }
}
