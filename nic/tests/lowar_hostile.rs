//! LoWAR over a wire that loses, doubles and keeps, beside a peer that lies in the Repair Header, and with too few coding units and places
//! in the ring: all work ends well, each byte is what was sent, and all that was lent comes back.

use softnic_nic::transports::lowar::Code;
use softnic_nic::transports::negotiation::Choice;
use softnic_nic::transports::qp::QpState;
use softnic_nic::transports::{Counters, Data, SendOp, Status, Transport};
use softnic_wire::lowar::RepairHeader;
use softnic_wire::{ExtHeaders, Layout, Node, Opcode};

use crate::common::*;

/// Operations of each host, and bytes that each has in its four ranges: what it sends, what is written, what it reads, what it receives.
const OPERATIONS: usize = 28;
const SLOT: usize = 6 << 10;
const LONGEST: u32 = 5000;

/// What is wrong with the wire and the peer, in percent of the frames.
#[derive(Debug, Clone, Copy, Default)]
struct Faults {
    lost: u32,
    doubled: u32,
    late: u32,
    lies: u32,
}

struct Wire {
    w: World,
    random: Box<dyn FnMut() -> u32>,
    faults: Faults,
    flying: [Vec<Vec<u8>>; 2],
    /// Frames with a Repair Header that were seen, of which lies are made.
    seen: Vec<Vec<u8>>,
    ops: [Vec<(u32, usize)>; 2],
    done: [usize; 2],
}

/// Where the `i`th piece of a range is.
fn slot(range: usize, i: usize) -> usize {
    (range * OPERATIONS + i) * SLOT
}

impl Wire {
    fn new(seed: u32, faults: Faults, room: Option<(u16, u32)>) -> Wire {
        let mut random = Box::new(generator(seed));
        let mut code = || {
            let r = [1, 2, 4, 8, 32][random() as usize % 5];
            Code::new(r, 1 + (random() % u32::from(r.min(6))) as u8).map(Transport::Lowar)
        };
        let options = Options {
            offers: [code(), code()],
            psn: FIRST_PSNS[seed as usize % 4],
            buffer: 4 * OPERATIONS * SLOT,
            timeout: 8,
            retry_cnt: 7,
            rnr_retry: 7,
            ipv6: seed.is_multiple_of(3),
            ..Options::default()
        };
        let mut w = World::unconnected(Options { offers: [None; 2], ..options });
        if let Some((units, places)) = room {
            w.hosts.iter_mut().for_each(|h| h.nic.shim_pools().lowar.provide_some(4096, units, places));
        }
        // Made anew, now that the room is there.
        for h in [A, B] {
            let Host { nic, pd, send_cq, recv_cq, qpn, .. } = &mut w.hosts[h];
            nic.destroy_qp(*qpn).unwrap();
            let init = softnic_nic::QpInit {
                transport: options.offers[h].unwrap_or_default(),
                ..softnic_nic::QpInit::new(options.kind, *pd, *send_cq, *recv_cq, options.caps)
            };
            *qpn = nic.create_qp(&init).unwrap();
        }
        w.options = options;
        for h in [A, B] {
            let rtr = rtr_attr(&options, w.path(h), w.hosts[1 - h].qpn);
            for attr in [init_attr(&options), rtr, rts_attr(&options)] {
                w.modify(h, &attr);
            }
        }
        for _ in 0..2 {
            let frames = [w.transmit(A), w.transmit(B)];
            w.deliver_all(B, &frames[A]);
            w.deliver_all(A, &frames[B]);
        }
        for h in [A, B] {
            assert_eq!(w.hosts[h].nic.choice(w.hosts[h].qpn), Some(Choice::Agreed));
        }
        let (flying, seen, ops, done) = Default::default();
        Wire { w, random, faults, flying, seen, ops, done }
    }

    fn below(&mut self, n: u32) -> u32 {
        (self.random)() % n
    }

    fn chance(&mut self, percent: u32) -> bool {
        self.below(100) < percent
    }

    /// Every operation, many times, by both hosts.
    fn post_all(&mut self) {
        for h in [A, B] {
            self.w.fill(h, slot(0, 0), &pattern(h as u32, OPERATIONS * SLOT));
            for i in 0..OPERATIONS {
                self.w.recv(h, 1000 + i as u64, slot(3, i), SLOT);
            }
        }
        for i in 0..OPERATIONS {
            for h in [A, B] {
                let (kind, len) = (self.below(6), self.below(LONGEST) as usize);
                let (op, at, len) = match kind {
                    0 => (self.w.write_to(1 - h, slot(1, i)), slot(0, i), len),
                    1 => (self.w.write_imm_to(1 - h, slot(1, i), 7), slot(0, i), len),
                    2 => (SendOp::Send, slot(0, i), len),
                    3 => (SendOp::SendImm { imm: 3 }, slot(0, i), len),
                    4 => (self.w.read_from(1 - h, slot(0, i)), slot(2, i), len),
                    _ => {
                        self.w.fill(1 - h, slot(1, i), &[0; 8]);
                        (self.w.add_to(1 - h, slot(1, i), 5), slot(2, i), 8)
                    }
                };
                let sges = [self.w.sge(h, at, len)];
                self.w.post(h, &wr(i as u64, op, Data::Gather(&sges))).unwrap();
                self.ops[h].push((kind, len));
            }
        }
    }

    /// One frame arrives, or not, or twice, or late; or a lie does.
    fn step(&mut self, h: usize) {
        let frames = self.w.transmit(1 - h);
        let repairs = frames.iter().filter(|f| Opcode(f[Layout::locate(f).unwrap().bth]) == Opcode::LOWAR);
        self.seen.extend(repairs.cloned());
        let excess = self.seen.len().saturating_sub(30);
        self.seen.drain(..excess);
        self.flying[h].extend(frames);
        if self.chance(self.faults.lies) {
            let lie = self.lie(h);
            self.w.deliver(h, &lie);
        }
        if self.flying[h].is_empty() {
            return;
        }
        let i = if self.chance(self.faults.late) { self.below(self.flying[h].len() as u32) as usize } else { 0 };
        let frame = match self.chance(self.faults.doubled) {
            true => self.flying[h][i].clone(),
            false => self.flying[h].remove(i),
        };
        if !self.chance(self.faults.lost) {
            self.w.deliver(h, &frame);
        }
    }

    /// A packet with a Repair Header that is not true: one that was sent, to whomever, with some of it changed; or any bytes.
    fn lie(&mut self, h: usize) -> Vec<u8> {
        let known = if self.seen.is_empty() { 0 } else { self.below(self.seen.len() as u32 * 5 / 4) as usize };
        let mut payload: Vec<u8> = match self.seen.get(known) {
            Some(frame) => frame[Layout::locate(frame).unwrap().bth + 12..frame.len() - 4].to_vec(),
            None => (0..12 + self.below(300)).map(|_| self.below(256) as u8).collect(),
        };
        for _ in 0..1 + self.below(3) {
            let at =
                if self.chance(80) { self.below(RepairHeader::LEN as u32) } else { self.below(payload.len() as u32) };
            payload[at as usize] = match self.below(4) {
                0 => self.below(256) as u8,
                1 => payload[at as usize] ^ 1 << self.below(8),
                2 => self.below(9) as u8,
                _ => payload[at as usize].wrapping_add(1),
            };
        }
        if self.chance(20) {
            let len = self.below(payload.len() as u32 + 1) as usize;
            payload.truncate(len);
        }
        let near = self.chance(80);
        let psn = match self.seen.get(known) {
            Some(frame) if near => {
                let bth = Layout::locate(frame).unwrap().bth;
                u32::from_be_bytes([0, frame[bth + 9], frame[bth + 10], frame[bth + 11]])
            }
            _ => (self.random)() & 0xff_ffff,
        };
        let psn = psn.wrapping_sub(self.w.options.psn) as i32;
        self.w.forge(h, Opcode::LOWAR.0, psn, false, ExtHeaders::default(), &payload)
    }

    /// Until all work has ended, well.
    fn run(&mut self) {
        self.post_all();
        for turn in 0.. {
            assert!(turn < 400_000, "it never ends: {:?} of {OPERATIONS}", self.done);
            let h = self.below(2) as usize;
            self.step(h);
            for h in [A, B] {
                for (id, status) in self.w.sent_status(h) {
                    assert_eq!((id, status), (self.done[h] as u64, Status::Success), "once and in order");
                    self.done[h] += 1;
                }
            }
            if self.done == [OPERATIONS; 2] {
                return;
            }
            self.w.wait(300);
            if self.flying.iter().all(Vec::is_empty) {
                let frames = [self.w.transmit(B), self.w.transmit(A)];
                if frames.iter().all(Vec::is_empty) {
                    let due = |h: usize| self.w.hosts[h].nic.poll_timeout();
                    let first = [A, B].into_iter().filter(|&h| due(h).is_some()).min_by_key(|&h| due(h));
                    self.w.wait_for_timer(first.expect("nothing more happens"));
                }
                (0..2).zip(frames).for_each(|(h, frames)| self.flying[h].extend(frames));
            }
        }
    }

    /// Each byte is what was sent, and nothing is held any more.
    fn check(&mut self) -> Counters {
        for h in [A, B] {
            let (mine, theirs) = (pattern(h as u32, OPERATIONS * SLOT), pattern(1 - h as u32, OPERATIONS * SLOT));
            let (mut received, mut places) = (self.w.received(1 - h).into_iter(), 0);
            for (i, &(kind, len)) in self.ops[h].iter().enumerate() {
                let sent = &mine[i * SLOT..][..len];
                match kind {
                    0 | 1 => assert_eq!(self.w.read(1 - h, slot(1, i), len), sent, "WRITE {i}"),
                    2 | 3 => assert_eq!(self.w.read(1 - h, slot(3, places), len), sent, "SEND {i}"),
                    4 => assert_eq!(self.w.read(h, slot(2, i), len), theirs[i * SLOT..][..len], "READ {i}"),
                    _ => {
                        assert_eq!(self.w.read(1 - h, slot(1, i), 8), 5u64.to_ne_bytes(), "atomic {i}");
                        assert_eq!(self.w.read(h, slot(2, i), 8), [0; 8], "what atomic {i} found");
                    }
                }
                if (1..=3).contains(&kind) {
                    let c = received.next().expect("a receive");
                    assert_eq!((c.wr_id, c.status, c.byte_len), (1000 + places as u64, Status::Success, len as u32));
                    places += 1;
                }
            }
            assert!(received.next().is_none());
        }
        let [a, b] = [A, B].map(|h| self.w.counters(h));
        for h in [A, B] {
            self.w.modify(h, &to_state(QpState::Reset));
            assert!(self.w.hosts[h].nic.shim_pools().lowar.are_unused());
        }
        Counters {
            lowar_recovered_packets: a.lowar_recovered_packets + b.lowar_recovered_packets,
            lowar_failed_blocks: a.lowar_failed_blocks + b.lowar_failed_blocks,
            lowar_unprotected_blocks: a.lowar_unprotected_blocks + b.lowar_unprotected_blocks,
            lowar_ring_overruns: a.lowar_ring_overruns + b.lowar_ring_overruns,
            lowar_rejected: a.lowar_rejected + b.lowar_rejected,
            ..Counters::default()
        }
    }
}

fn run(seed: u32, faults: Faults, room: Option<(u16, u32)>) -> Counters {
    let mut wire = Wire::new(seed, faults, room);
    wire.run();
    wire.check()
}

#[test]
fn a_peer_that_lies_in_the_repair_header_changes_no_byte_and_stops_nothing() {
    let (mut rejected, mut recovered) = (0, 0);
    for seed in 0..60 {
        let lost = [0, 2, 5][seed as usize % 3];
        let lies = [5, 30, 70][seed as usize / 3 % 3];
        let c = run(seed, Faults { lost, doubled: 2, late: 5, lies }, None);
        assert!(c.lowar_rejected > 0, "seed {seed}: {c:?}");
        (rejected, recovered) = (rejected + c.lowar_rejected, recovered + c.lowar_recovered_packets);
    }
    assert!(rejected > 10_000 && recovered > 300, "{rejected} rejected, {recovered} recovered");
}

#[test]
fn without_units_or_places_it_is_go_back_n_and_nothing_is_wrong() {
    for units in [0, 1, 2, 6, 1024] {
        for places in [1, 2, 4, 2048] {
            let (mut unprotected, mut overruns, mut failed, mut recovered) = (0, 0, 0, 0);
            for seed in 0..8 {
                let c = run(100 + seed, Faults { lost: 6, late: 2, ..Faults::default() }, Some((units, places)));
                unprotected += c.lowar_unprotected_blocks;
                overruns += c.lowar_ring_overruns;
                failed += c.lowar_failed_blocks;
                recovered += c.lowar_recovered_packets;
            }
            let what = format!("{units} units, {places} places: {unprotected} {overruns} {failed} {recovered}");
            assert_eq!(unprotected > 0, units < 24, "{what}");
            assert_eq!(recovered > 0, units > 0, "{what}");
            assert!(overruns > 0 || units == 0 || places > 4, "{what}");
            assert!(overruns == 0 || places <= 4, "{what}");
            assert!(failed > 0, "{what}");
        }
    }
}
