//! Arbitrary frames by the tens of thousands, most with a right ICRC, for queue pairs in every state: nothing panics,
//! nothing hangs, and memory that the peer may not write stays as it is.

use std::sync::Arc;

use crate::common::*;
use softnic_nic::Buffer;
use softnic_nic::transports::qp::{Caps, QpState};
use softnic_nic::transports::{Data, RecvWr, SendOp, Status};
use softnic_wire::aeth::Syndrome;
use softnic_wire::ext::{AtomicEth, Reth};
use softnic_wire::sr::SrEth;
use softnic_wire::{Aeth, ExtHeaders, Node, Qpn, Template, bth};

const FRAMES: u32 = 50_000;
/// Of the victim's buffer the frames name only this part, and receives lie only in the next.
const WRITABLE: std::ops::Range<usize> = 64 << 10..128 << 10;
const RECEIVES: std::ops::Range<usize> = 128 << 10..192 << 10;

struct Fuzz {
    w: World,
    random: Box<dyn FnMut() -> u32>,
    /// Memory of the same NIC that no peer may write: no remote right, another domain, not registered at all.
    private: Vec<(Arc<Buffer>, u32)>,
    next_id: u64,
    /// wr_ids whose completion is due, in order: sends and receives.
    posted: [Vec<u64>; 2],
    /// The PSN that the victim expects, and the last that it sent, counted from the first.
    expected: i32,
    sent: i32,
    /// The message that the forger is in the middle of: whether it is a SEND, and bytes that are left.
    open: Option<(bool, u32)>,
    /// How many frames met the victim in each state.
    states: [u32; 7],
}

impl Fuzz {
    fn new(seed: u32) -> Fuzz {
        let caps = Caps { max_send_wr: 8, max_recv_wr: 4, ..Options::default().caps };
        let psn = [100, 0xff_fff0][seed as usize % 2];
        let mut w = World::new(Options { caps, psn, timeout: 4, retry_cnt: 7, cq: 64, ..Options::default() });
        let b = &mut w.hosts[B];
        let other = b.nic.alloc_pd();
        let mut private = Vec::new();
        let all = w.options.mr_access;
        for (i, (pd, access)) in [(b.pd, LOCAL), (other, all)].into_iter().enumerate() {
            let buffer = Buffer::new(0x4000_0000 + 0x100_0000 * i as u64, 4096);
            let key = b.nic.reg_mr(pd, &buffer, access).unwrap();
            private.push((buffer, key));
        }
        private.push((Buffer::new(0x4300_0000, 4096), 0x1234));
        Fuzz {
            w,
            random: Box::new(generator(seed)),
            private,
            next_id: 0,
            posted: [Vec::new(), Vec::new()],
            expected: 0,
            sent: -1,
            open: None,
            states: [0; 7],
        }
    }

    fn below(&mut self, n: u32) -> u32 {
        (self.random)() % n
    }

    fn chance(&mut self, percent: u32) -> bool {
        self.below(100) < percent
    }

    /// A key and an address: mostly right ones, in the part that may be written; else wrong in one way.
    fn target(&mut self) -> (u64, u32, u32) {
        let room = (WRITABLE.end - WRITABLE.start) as u32;
        let at = self.below(room);
        let base = self.w.hosts[B].buffer.addr() + WRITABLE.start as u64;
        let key = self.w.hosts[B].key;
        let len = self.below((room - at).min(900) + 1);
        match self.below(12) {
            0 => (base + u64::from(at), (self.random)(), len),
            1 => {
                let i = self.below(3) as usize;
                let (buffer, key) = &self.private[i];
                (buffer.addr(), *key, len)
            }
            // Beyond either end: such a range is refused as a whole, however much of it would be inside.
            2 => (self.w.hosts[B].buffer.addr() - 1, key, len.max(1)),
            3 => (base + u64::from(at), key, (BUFFER as u32) + len),
            4 => (u64::MAX - u64::from(at), key, len),
            _ => (base + u64::from(at), key, len),
        }
    }

    /// The same for a range of `len` bytes that must stay inside the part that may be written where the key is right.
    fn target_in_bounds(&mut self, len: u32) -> (u64, u32) {
        let (va, key, _) = self.target();
        let end = self.w.hosts[B].buffer.addr() + WRITABLE.end as u64;
        (if va < end && va + u64::from(len) > end { end - u64::from(len) } else { va }, key)
    }

    fn frame(&mut self) -> Vec<u8> {
        let (va, rkey, len) = self.target();
        // The lower five bits decide; other services are rare.
        let opcode = match self.below(20) {
            0 => self.below(256) as u8,
            1 => 0xc0 | self.below(32) as u8,
            _ => self.below(32) as u8,
        };
        let opcode = if self.chance(40) {
            [0x00, 0x02, 0x04, 0x06, 0x07, 0x08, 0x0a, 0x0b, 0x11][self.below(9) as usize]
        } else {
            opcode
        };
        let payload_len = match self.below(5) {
            0 => 0,
            1 => self.below(300),
            2 => len.min(256),
            _ => 256,
        };
        let payload: Vec<u8> = (0..payload_len).map(|i| (i ^ rkey) as u8).collect();
        let reth = Reth { va, rkey, len: if self.chance(50) { payload_len } else { len } };
        let aeth = Aeth { syndrome: Syndrome::from_byte(self.below(256) as u8), msn: (self.random)() & 0xff_ffff };
        let aeth = if self.chance(50) { Aeth { syndrome: Syndrome::from_byte(0x1f), ..aeth } } else { aeth };
        let sr = SrEth { flags: self.below(256) as u8, number: self.below(8), offset: self.below(4) * 256 };
        let any = self.chance(10);
        let h = softnic_wire::Opcode(opcode).headers();
        use softnic_wire::opcode::HeaderSet as H;
        let ext = ExtHeaders {
            sr: h.contains(H::SR).then_some(sr),
            reth: (any || h.contains(H::RETH)).then_some(reth),
            aeth: (any || h.contains(H::AETH)).then_some(aeth),
            imm: h.contains(H::IMM).then_some(rkey),
            ieth: h.contains(H::IETH).then_some(rkey),
            atomic: h.contains(H::ATOMIC).then_some(AtomicEth { va, rkey, swap_add: 1, compare: 0 }),
            ..ExtHeaders::default()
        };
        let psn = self.psn(opcode);
        let qpn = if self.chance(2) { Qpn::new((self.random)()) } else { self.w.hosts[B].qpn };
        let pkey = if self.chance(2) { (self.random)() as u16 } else { bth::DEFAULT_PKEY };
        let template = Template::new(&self.w.path(A), qpn, pkey);
        let ack_req = self.chance(50);
        let mut frame = self.w.forge_with(&template, opcode, psn, ack_req, ext, &payload);
        if self.chance(5) {
            // Any byte of the BTH's flags, signed again.
            frame[43] = (self.random)() as u8;
            resign(&mut frame);
        }
        if self.chance(3) {
            let at = self.below(frame.len() as u32) as usize;
            frame[at] ^= 1 << self.below(8);
        }
        if self.chance(1) {
            let len = self.below(frame.len() as u32 + 1) as usize;
            frame.truncate(len);
        }
        frame
    }

    /// A packet that may follow the last one of its kind, so that queue pairs live long enough to be in the middle of
    /// things when something else comes.
    fn next_of_message(&mut self) -> Vec<u8> {
        let key = self.w.hosts[B].key;
        let va = self.w.hosts[B].buffer.addr() + WRITABLE.start as u64 + u64::from(self.below(60_000));
        let (first, (send, left)) = match self.open {
            Some(open) => (false, open),
            None => (true, (self.chance(50), self.below(900))),
        };
        let len = left.min(256);
        let last = left <= 256;
        let opcode = match (send, first, last) {
            (true, true, false) => 0x00,
            (true, false, false) => 0x01,
            (true, false, true) => 0x02,
            (true, true, true) => 0x04,
            (false, true, false) => 0x06,
            (false, false, false) => 0x07,
            (false, false, true) => 0x08,
            (false, true, true) => 0x0a,
        };
        let (va, rkey) = if self.chance(5) { self.target_in_bounds(left) } else { (va, key) };
        let reth = Reth { va, rkey, len: left };
        let ext = ExtHeaders { reth: (first && !send).then_some(reth), ..ExtHeaders::default() };
        let ack_req = self.chance(30);
        let frame = self.w.forge(B, opcode, self.expected, ack_req, ext, &vec![3; len as usize]);
        self.open = (!last).then_some((send, left - len));
        self.expected += i32::from(!ack_req);
        frame
    }

    /// An answer of some kind, mostly to something that is outstanding.
    fn answer(&mut self) -> Vec<u8> {
        let syndrome = [0x1f, 0x1f, 0x03, 0x60, 0x21, 0x40, 0x7f][self.below(7) as usize];
        let psn = self.psn(0x11);
        self.w.forge_aeth(B, psn, syndrome, 0)
    }

    /// Mostly the PSN that is due, as far as the answers so far tell; else one near it, or any.
    fn psn(&mut self, opcode: u8) -> i32 {
        let due = if opcode == 0x11 { self.sent - self.below(8) as i32 } else { self.expected };
        match self.below(20) {
            0 => (self.random)() as i32,
            1..=4 => due + self.below(6) as i32 - 3,
            5 => due + (1 << 23) - self.below(3) as i32,
            _ => due,
        }
    }

    /// Hears what the victim says: which PSN it expects, and which it has sent itself.
    fn listen(&mut self) {
        let first = softnic_wire::Psn::new(self.w.options.psn);
        for frame in self.w.transmit(B) {
            let p = self.w.parse(&frame);
            let psn = p.bth.psn.distance(first);
            match p.ext.aeth.map(|a| a.syndrome) {
                Some(Syndrome::Ack(_)) => self.expected = psn + 1,
                Some(_) => self.expected = psn,
                None => self.sent = psn,
            }
        }
    }

    /// Keeps the victim's queues filled, in every state in which that may be.
    fn post(&mut self) {
        let (id, at) = (self.next_id, RECEIVES.start + self.below(60_000) as usize);
        let sges = [self.w.sge(B, at, self.next_id as usize % 700)];
        if self.w.post_recv(B, &RecvWr { wr_id: id, sges: &sges, best_effort: None }).is_ok() {
            self.posted[1].push(id);
        }
        let op = if self.chance(50) { SendOp::Send } else { self.w.write_to(A, 0) };
        let sges = [self.w.sge(B, 0, id as usize % 900)];
        if self.w.post(B, &wr(id, op, Data::Gather(&sges))).is_ok() {
            self.posted[0].push(id);
        }
        self.next_id += 1;
    }

    /// Completions come once, in the order of the posts; in the error state nothing is left behind.
    fn collect(&mut self) {
        for (queue, done) in [self.w.sent(B), self.w.received(B)].into_iter().enumerate() {
            for c in done {
                assert!(!self.posted[queue].is_empty(), "completed more than was posted: {c:?}");
                assert_eq!(c.wr_id, self.posted[queue].remove(0), "in order: {c:?}");
                assert!(c.status != Status::LocProtErr, "all local keys are right: {c:?}");
            }
            if self.w.state(B) == QpState::Error {
                assert!(self.posted[queue].is_empty(), "all work is flushed");
            }
        }
    }

    /// Takes the victim from RESET to a state by chance, most often to the last.
    fn reconnect(&mut self) {
        let o = self.w.options;
        self.w.modify(B, &to_state(QpState::Reset));
        self.posted = [Vec::new(), Vec::new()];
        (self.expected, self.sent, self.open) = (0, -1, None);
        let rtr = rtr_attr(&o, self.w.path(B), self.w.hosts[A].qpn);
        let steps = [init_attr(&o), rtr, rts_attr(&o)];
        let n = if self.chance(70) { 3 } else { self.below(3) as usize };
        for attr in &steps[..n] {
            self.w.modify(B, attr);
        }
    }

    fn check_memory(&self) {
        let memory = self.w.read(B, 0, BUFFER);
        let touched = |i: &usize| memory[*i] != UNTOUCHED && !WRITABLE.contains(i) && !RECEIVES.contains(i);
        assert_eq!((0..BUFFER).find(touched), None, "a byte that no frame may name was written");
        for (buffer, _) in &self.private {
            let mut bytes = vec![1; buffer.len()];
            buffer.read_at(0, &mut bytes);
            assert!(bytes.iter().all(|&b| b == 0), "private memory was written");
        }
    }
}

fn run(seed: u32) -> Fuzz {
    let mut f = Fuzz::new(seed);
    let mut dead = 0;
    for n in 0..FRAMES {
        if f.chance(30) {
            f.post();
        }
        let frame = match f.below(10) {
            0..6 => f.next_of_message(),
            6..8 => f.answer(),
            _ => f.frame(),
        };
        f.w.deliver(B, &frame);
        if f.chance(80) {
            f.listen();
        }
        if f.chance(5) {
            let ns = f.below(200_000);
            f.w.wait(u64::from(ns));
        }
        f.collect();
        f.states[f.w.state(B) as usize] += 1;
        // Frames come to a queue pair in whatever state it is for a while.
        dead = if f.w.state(B) == QpState::ReadyToSend { 0 } else { dead + 1 };
        if dead > 3 {
            f.reconnect();
            dead = 0;
        }
        if n % 1000 == 0 {
            f.check_memory();
        }
    }
    f.check_memory();
    f
}

#[test]
fn no_frame_panics_hangs_or_writes_where_it_may_not() {
    for seed in 1..=4 {
        let f = run(seed);
        // The frames are not all dropped at the door: what they can do, they did.
        let c = f.w.counters(B);
        for (name, count) in [
            ("writes", c.rx_write_requests),
            ("sends", c.rx_send_requests),
            ("duplicates", c.duplicate_request),
            ("gaps", c.out_of_sequence),
            ("refused ranges", c.resp_remote_access_errors),
            ("refused requests", c.resp_remote_invalid_request),
            ("receives that were missing", c.out_of_buffer),
            ("receives that were too short", c.resp_local_length_error),
            ("stale answers", c.stale_acks),
            ("RNR NAKs", c.rnr_naks_received),
            ("sequence NAKs", c.packet_seq_err),
            ("bad ICRCs", c.rx_icrc_encapsulated),
            ("bad partitions", c.rx_bad_pkey),
            ("bad queue pairs", c.rx_bad_qp),
        ] {
            assert!(count > 10, "seed {seed}: {count} {name}\n{c:#?}");
        }
        use QpState::*;
        let often = |s: QpState| f.states[s as usize] > 100;
        assert!([Reset, Init, ReadyToReceive, ReadyToSend, Error].into_iter().all(often), "states: {:?}", f.states);
    }
}

#[test]
fn the_same_seed_gives_the_same_run() {
    let (a, b) = (run(9), run(9));
    assert_eq!(a.w.counters(B), b.w.counters(B));
    assert_eq!(a.w.read(B, 0, BUFFER), b.w.read(B, 0, BUFFER));
}

#[test]
fn noise_is_not_taken_for_a_frame() {
    let mut w = World::new(Options::default());
    let mut random = generator(77);
    for n in 0..20_000u32 {
        let len = random() as usize % 200;
        let mut frame: Vec<u8> = (0..len).map(|_| random() as u8).collect();
        // Half of it with the headers of a real one up to some byte.
        if n % 2 == 0 {
            let real = w.forge_aeth(B, 0, 0x1f, 0);
            let upto = (random() as usize % real.len()).min(len);
            frame[..upto].copy_from_slice(&real[..upto]);
        }
        w.deliver(B, &frame);
    }
    assert!(w.shown(B).is_empty() && w.hosts[B].nic.poll_timeout().is_none());
    assert_eq!(w.read(B, 0, BUFFER), vec![UNTOUCHED; BUFFER]);
    assert_eq!(w.state(B), QpState::ReadyToSend);
}
