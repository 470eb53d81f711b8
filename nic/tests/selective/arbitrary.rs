//! Two queue pairs that speak Selective Repeat over a wire that loses, doubles, keeps and forges: nothing panics or hangs, completions
//! come once and in order, and no byte is written that nobody may name.

use std::collections::VecDeque;
use std::ops::Range;

use softnic_nic::QpAttr;
use softnic_nic::transports::qp::QpState;
use softnic_nic::transports::{Data, SendOp, Status, Transport};
use softnic_wire::Node;
use softnic_wire::opcode::HeaderSet;

use super::*;

const MEMORY: usize = 40 << 10;
/// What sends are read from, what peers write, where READs and receives go; behind them nothing may be written.
const SOURCE: Range<usize> = 0..8 << 10;
const TARGETS: Range<usize> = 8 << 10..16 << 10;
const READS: Range<usize> = 16 << 10..24 << 10;
const RECEIVES: Range<usize> = 24 << 10..32 << 10;
/// The longest message.
const LONGEST: u32 = 1500;
/// Bytes up to the first extension header, over IPv4.
const HEADERS: usize = 54;

struct Wire {
    w: World,
    random: Box<dyn FnMut() -> u32>,
    /// Frames on the way to each host.
    flying: [Vec<Vec<u8>>; 2],
    /// Work whose completion is due, in order.
    sends: [VecDeque<u64>; 2],
    receives: [VecDeque<u64>; 2],
    next_id: u64,
    /// Frames that are changed on the way, in percent.
    forged: u32,
    completed: u32,
    lives: u32,
}

impl Wire {
    fn new(seed: u32, forged: u32) -> Wire {
        let sr = Transport::Sr { window: [64, 256][seed as usize % 2] };
        let options = Options {
            offers: [Some(sr); 2],
            psn: FIRST_PSNS[seed as usize % 4],
            buffer: MEMORY,
            max_rd_atomic: 4,
            retry_cnt: 7,
            rnr_retry: 6,
            ..both_offer()
        };
        let w = agreed(options);
        for h in [A, B] {
            w.fill(h, SOURCE.start, &pattern(h as u32, SOURCE.len()));
        }
        let (flying, sends, receives) = Default::default();
        let random = Box::new(generator(seed));
        Wire { w, random, flying, sends, receives, next_id: 0, forged, completed: 0, lives: 1 }
    }

    fn below(&mut self, n: u32) -> u32 {
        (self.random)() % n
    }

    fn chance(&mut self, percent: u32) -> bool {
        self.below(100) < percent
    }

    fn post(&mut self, h: usize) {
        let len = [8, 100, 256, 700, LONGEST][self.below(5) as usize];
        let at = self.below(SOURCE.len() as u32 - LONGEST) as usize & !7;
        let (remote, kind, id) = (TARGETS.start + at, self.below(8), self.next_id);
        let op = match kind {
            0 | 1 => SendOp::Send,
            2 => SendOp::SendImm { imm: 5 },
            3 | 4 => self.w.write_to(1 - h, remote),
            5 => self.w.write_imm_to(1 - h, remote, 6),
            6 => self.w.read_from(1 - h, remote),
            _ => self.w.add_to(1 - h, remote, 1),
        };
        let len = if kind == 7 { 8 } else { len as usize };
        let local = if kind >= 6 { READS.start } else { SOURCE.start } + at;
        let sges = [self.w.sge(h, local, len)];
        if self.w.post(h, &wr(id, op, Data::Gather(&sges))).is_ok() {
            self.sends[h].push_back(id);
            self.next_id += 1;
        }
    }

    fn post_receive(&mut self, h: usize) {
        let at = RECEIVES.start + self.below(RECEIVES.len() as u32 - LONGEST) as usize;
        let len = if self.chance(98) { LONGEST as usize } else { 50 };
        let sges = [self.w.sge(h, at, len)];
        let wr = softnic_nic::transports::RecvWr { wr_id: self.next_id, sges: &sges, best_effort: None };
        if self.w.post_recv(h, &wr).is_ok() {
            self.receives[h].push_back(self.next_id);
            self.next_id += 1;
        }
    }

    /// One frame arrives, whichever, perhaps changed, perhaps not for the last time; or it does not.
    fn deliver(&mut self, h: usize) {
        let frames = self.w.transmit(1 - h);
        self.flying[h].extend(frames);
        if self.flying[h].is_empty() {
            return;
        }
        let i = if self.chance(70) { 0 } else { self.below(self.flying[h].len() as u32) as usize };
        let mut frame = if self.chance(5) { self.flying[h][i].clone() } else { self.flying[h].remove(i) };
        if self.chance(3) {
            return;
        }
        if self.chance(self.forged) {
            self.forge(&mut frame);
        }
        self.w.deliver(h, &frame);
    }

    /// Changes what does not name memory: the PSN, whether an answer is asked for, the header of Selective Repeat, a syndrome, a bitmap.
    fn forge(&mut self, frame: &mut [u8]) {
        let packet = self.w.parse(frame);
        if packet.bth.dest_qp == softnic_wire::Qpn::GSI {
            return;
        }
        let headers = packet.bth.opcode.headers();
        let sr = headers.contains(HeaderSet::SR);
        let at = match self.below(4) {
            0 => HEADERS - 1,
            1 => HEADERS - 4,
            2 if sr => HEADERS + self.below(8) as usize,
            3 if headers.contains(HeaderSet::AETH) => HEADERS + if sr { 8 } else { 0 } + self.below(4) as usize,
            _ if !packet.payload.is_empty() => packet.payload.start + self.below(packet.payload.len() as u32) as usize,
            _ => HEADERS - 1,
        };
        frame[at] = if self.chance(50) { frame[at] ^ 1 << self.below(8) } else { self.below(256) as u8 };
        resign(frame);
    }

    fn collect(&mut self) {
        for h in [A, B] {
            for (id, status) in self.w.sent_status(h) {
                assert_eq!(self.sends[h].pop_front(), Some(id), "sends end once and in order");
                self.completed += u32::from(status == Status::Success);
            }
            for (id, _) in self.w.received_status(h) {
                assert_eq!(self.receives[h].pop_front(), Some(id), "receives end once and in order");
            }
            self.w.events(h);
        }
    }

    /// From anywhere to a new life; what is on the way may be of the old one.
    fn reconnect(&mut self) {
        for h in [A, B] {
            self.w.modify(h, &to_state(QpState::Error));
        }
        self.collect();
        assert!(
            [A, B].iter().all(|&h| self.sends[h].is_empty() && self.receives[h].is_empty()),
            "all work was flushed"
        );
        let options = self.w.options;
        for h in [A, B] {
            let rtr = rtr_attr(&options, self.w.path(h), self.w.hosts[1 - h].qpn);
            for attr in [&to_state(QpState::Reset), &init_attr(&options), &rtr, &rts_attr(&options)] {
                self.w.modify(h, attr);
            }
        }
        self.lives += 1;
    }

    fn step(&mut self) {
        let h = self.below(2) as usize;
        match self.below(32) {
            0..4 => self.post(h),
            4..7 => self.post_receive(h),
            7 => {
                let ns = self.below(400_000);
                self.w.wait(ns.into());
            }
            8 => {
                self.w.wait_for_timer(h);
            }
            9 if self.w.state(h) == QpState::ReadyToSend && self.chance(10) => {
                self.w.modify(h, &QpAttr { sqd_notify: Some(true), ..to_state(QpState::SendQueueDrain) });
            }
            9 | 10 if self.w.state(h) == QpState::SendQueueDrain => self.w.modify(h, &to_state(QpState::ReadyToSend)),
            10 if self.w.state(h) == QpState::Error || self.chance(1) => self.reconnect(),
            _ => self.deliver(h),
        }
        self.collect();
    }

    /// The wire is good from now on: all work ends, well or not.
    fn end(&mut self) {
        for h in [A, B] {
            if self.w.state(h) == QpState::SendQueueDrain {
                self.w.modify(h, &to_state(QpState::ReadyToSend));
            }
        }
        for turn in 0.. {
            assert!(turn < 5000, "it never becomes quiet");
            for h in [A, B] {
                let frames = self.w.transmit(1 - h);
                self.flying[h].extend(frames);
                let frames = std::mem::take(&mut self.flying[h]);
                self.w.deliver_all(h, &frames);
                if self.w.state(h) == QpState::ReadyToSend && self.receives[h].len() < 20 {
                    self.post_receive(h);
                }
            }
            self.collect();
            let idle = self.flying.iter().all(Vec::is_empty) && self.sends.iter().all(VecDeque::is_empty);
            let due = [A, B].into_iter().find(|&h| self.w.hosts[h].nic.poll_timeout().is_some());
            match due {
                Some(_) => {
                    for h in [A, B] {
                        self.w.wait_for_timer(h);
                    }
                }
                None if idle => break,
                None => {}
            }
        }
        for h in [A, B] {
            assert_eq!(self.w.read(h, SOURCE.start, SOURCE.len()), pattern(h as u32, SOURCE.len()));
            assert!(self.w.read(h, RECEIVES.end, MEMORY - RECEIVES.end).iter().all(|&b| b == UNTOUCHED));
        }
    }
}

#[test]
fn whatever_is_lost_doubled_kept_or_forged_nothing_panics_hangs_or_is_written_elsewhere() {
    for seed in 0..48 {
        let mut wire = Wire::new(seed, [0, 1, 10][seed as usize % 3]);
        for _ in 0..4000 {
            wire.step();
        }
        wire.end();
        assert!(
            wire.completed > 20 && (wire.forged < 10 || wire.lives > 2),
            "seed {seed}: {} {}",
            wire.completed,
            wire.lives
        );
    }
}
