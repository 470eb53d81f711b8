//! Connections with Selective Repeat on which both ends ask, with every operation, receives that come late, and refusals.

mod common;

use std::cell::RefCell;
use std::sync::Arc;
use std::time::Duration;

use common::{Frame, explain, play};
use softnic_nic::Buffer;
use softnic_nic::transports::memory::Access;
use softnic_nic::transports::qp::{Caps, PayloadMode};
use softnic_nic::transports::{Data, RecvWr, SendFlags, SendOp, SendWr, Sge, Transport};
use softnic_pcaps::Timestamp;
use softnic_sim::LinkConfig;
use softnic_sim::pair::{A, B, Pair, PairConfig};
use softnic_wire::aeth::Syndrome;
use softnic_wire::{Opcode, PathMtu, Qpn};

const LEN: usize = 1 << 16;

struct World<'a> {
    pair: Pair<'a>,
    qpns: [Qpn; 2],
    keys: [u32; 2],
    _memory: [Arc<Buffer>; 2],
}

impl<'a> World<'a> {
    fn new(seed: u64, loss: &str, frames: &'a RefCell<Vec<Frame>>) -> World<'a> {
        let caps = Caps { max_send_wr: 64, max_recv_wr: 64, max_send_sge: 1, max_recv_sge: 1, max_inline: 0 };
        let faults = loss.parse().unwrap();
        let mut pair = Pair::new(PairConfig {
            transport: Transport::Sr { window: 1024 },
            link: LinkConfig { rate: 10_000_000_000, delay: Duration::from_micros(20), faults },
            payload: PayloadMode::Real,
            mtu: PathMtu::B1024,
            timeout: 10,
            retry_cnt: 7,
            rnr_retry: 7,
            min_rnr_timer: 12,
            max_rd_atomic: 4,
            caps,
            cq_capacity: 1024,
            limit_flight: false,
            seed,
            first_psn: None,
        });
        pair.sim.set_tap(Box::new(|sent| {
            let time = Timestamp::from_nanos(i128::from(sent.at.0 / 1000));
            frames.borrow_mut().push(Frame { time, data: sent.frame.to_vec(), original_len: sent.wire_len as u32 });
        }));
        let qpns = pair.connect().unwrap();
        let memory = [A, B].map(|_| Buffer::new(0x10_0000, LEN));
        let keys = [A, B].map(|host| {
            let pd = pair.sides[host].pd;
            pair.sim.nic(host).reg_mr(pd, &memory[host], Access::REMOTE | Access::LOCAL_WRITE).unwrap()
        });
        let mut world = World { pair, qpns, keys, _memory: memory };
        [A, B].into_iter().for_each(|host| world.pair.sim.touch(host));
        world.run(u64::MAX);
        world
    }

    /// Lets so many events happen, or all.
    fn run(&mut self, events: u64) {
        for _ in 0..events {
            let Some(node) = self.pair.sim.step() else { return };
            for host in [A, B] {
                let side = self.pair.sides[host];
                for cq in [side.send_cq, side.recv_cq] {
                    while let Ok(Some(_)) = self.pair.sim.nic(host).poll_cq(cq) {}
                }
            }
            self.pair.sim.touch(node);
        }
    }

    fn receive(&mut self, host: usize, n: usize) {
        let sges = [Sge { addr: 0x10_8000, len: 4096, lkey: self.keys[host] }];
        for _ in 0..n {
            let wr = RecvWr { wr_id: 0, sges: &sges, best_effort: None };
            self.pair.sim.nic(host).post_recv(self.qpns[host], &wr).unwrap();
        }
    }

    fn send(&mut self, host: usize, op: SendOp, len: u32) {
        let sges = [Sge { addr: 0x10_0000, len, lkey: self.keys[host] }];
        let flags = SendFlags { signaled: true, ..SendFlags::default() };
        let wr = SendWr { wr_id: 0, op, data: Data::Gather(&sges), flags, best_effort: None, to: None };
        let (now, qpn) = (self.pair.sim.now().instant(), self.qpns[host]);
        self.pair.sim.nic(host).post_send(now, qpn, &wr).unwrap();
        self.pair.sim.touch(host);
    }
}

/// A capture in which both ends do everything, and one is refused in the end where `refused` says so.
fn capture(seed: u64, loss: &str, refused: bool) -> Vec<Frame> {
    let frames = RefCell::new(Vec::new());
    let mut w = World::new(seed, loss, &frames);
    for host in [A, B] {
        let rkey = w.keys[1 - host];
        let at = |offset: u64| 0x10_0000 + offset;
        w.send(host, SendOp::Send, 3000);
        w.send(host, SendOp::Write { remote_addr: at(0x4000), rkey }, 5000);
        w.send(host, SendOp::Read { remote_addr: at(0xc000), rkey }, 9000);
        w.send(host, SendOp::FetchAdd { remote_addr: at(0xf000), rkey, add: 7 }, 8);
        w.send(host, SendOp::WriteImm { remote_addr: at(0x6000), rkey, imm: 5 }, 2000);
        w.send(host, SendOp::SendImm { imm: 9 }, 1);
        w.send(host, SendOp::FetchAdd { remote_addr: at(0xf000), rkey, add: 7 }, 8);
    }
    // Receives come late: there are RNR NAKs.
    w.run(60);
    [A, B].into_iter().for_each(|host| w.receive(host, 3));
    w.run(u64::MAX);
    if refused {
        let op = SendOp::Write { remote_addr: 0x10_0000, rkey: w.keys[B] ^ 0x5500 };
        w.send(A, op, 100);
        w.run(u64::MAX);
    }
    drop(w);
    frames.into_inner()
}

fn naks(frames: &[Frame], wanted: fn(Syndrome) -> bool) -> Vec<usize> {
    let is = |f: &Frame| {
        let p = f.packet().filter(|p| p.bth.opcode == Opcode::SR_ACKNOWLEDGE);
        p.and_then(|p| p.ext.aeth).is_some_and(|a| wanted(a.syndrome))
    };
    (0..frames.len()).filter(|&i| is(&frames[i])).collect()
}

#[test]
fn both_directions_with_every_operation_and_late_receives_have_no_difference() {
    let mut rnr = 0;
    for seed in 0..24 {
        let frames = capture(seed, ["", "loss=0.05", "reorder=0.05:3"][seed as usize % 3], false);
        rnr += naks(&frames, |s| matches!(s, Syndrome::RnrNak(_))).len();
        let report = play(&frames);
        assert_eq!(report.exit_code(), 0, "seed {seed}: {}", explain(&report));
        assert!(report.undetermined.is_empty(), "seed {seed}: {}", explain(&report));
        assert_eq!(report.flows.len(), 2, "seed {seed}");
        assert!(report.flows.iter().all(|f| f.counts.answers_equal > 10), "seed {seed}: {}", explain(&report));
    }
    assert!(rnr > 10, "{rnr} RNR NAKs");
}

#[test]
fn a_refusal_is_recognised_and_its_altered_code_found() {
    for seed in 0..12 {
        let frames = capture(seed, ["", "loss=0.05"][seed as usize % 2], true);
        let report = play(&frames);
        assert_eq!(report.exit_code(), 0, "seed {seed}: {}", explain(&report));
        let refusals = naks(&frames, |s| matches!(s, Syndrome::Nak(_)));
        assert!(!refusals.is_empty(), "seed {seed}: nothing was refused");
        let mut altered = frames.clone();
        altered[refusals[0]].change(|bth| bth[20] = 0x64);
        assert_eq!(play(&altered).exit_code(), 1, "seed {seed}");
        let Some(&rnr) = naks(&frames, |s| matches!(s, Syndrome::RnrNak(_))).first() else { continue };
        let mut altered = frames.clone();
        altered[rnr].add_to_psn(1);
        assert_eq!(play(&altered).exit_code(), 1, "seed {seed}: PSN of an RNR NAK");
    }
}
