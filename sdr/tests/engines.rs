//! Channels at several engines of a NIC: each engine has a NIC of its own, and frames go to the one whose queue pair they are for.

use std::cell::Cell;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use softnic_nic::transports::memory::{Access, PdId};
use softnic_nic::{Buffer, Nic, Owner};
use softnic_sdr::{Branch, Counters, Local, QpAttr, RecvHandle, SdrQp, SendHandle, Split};
use softnic_wire::{Instant, Layout, Node, PathMtu, TxFrame, bth};

use crate::world::{BASE, MTU, ROOM, nic, path};

/// Messages of a run.
const MESSAGES: usize = if cfg!(miri) { 3 } else { 20 };

/// Upper bits of a number that say whose it is.
const BITS: u32 = 2;

/// One end: engines, the queue pair at the first one and its branches at the others.
struct End {
    nics: Vec<Nic>,
    qp: SdrQp,
    branches: Vec<Branch>,
    memory: Arc<Buffer>,
    key: u32,
    pd: PdId,
    /// How often the other engines were woken.
    woken: Arc<AtomicU32>,
}

impl End {
    fn new(side: usize, attr: &QpAttr, engines: u8) -> End {
        let mut nics: Vec<Nic> = (0..engines).map(|_| nic(side)).collect();
        for (index, nic) in nics.iter_mut().enumerate() {
            nic.set_owner(Owner { index: index as u32, bits: BITS });
        }
        let pds: Vec<PdId> = nics.iter_mut().map(Nic::alloc_pd).collect();
        let memory = Buffer::new(BASE, ROOM);
        let access = Access::LOCAL_WRITE | Access::REMOTE_WRITE;
        let key = nics[0].reg_mr(pds[0], &memory, access).unwrap();
        for (nic, &pd) in nics.iter_mut().zip(&pds).skip(1) {
            nic.reg_mr_as(key, pd, &memory, access).unwrap();
        }
        let mut qp = SdrQp::create_among(&mut nics[0], pds[0], attr, engines).unwrap();
        let with_channels = engines.min(attr.channels);
        let branches = (1..with_channels)
            .map(|e| qp.branch_out(&mut nics[usize::from(e)], pds[usize::from(e)], e).unwrap())
            .collect();
        let woken = Arc::new(AtomicU32::new(0));
        let counted = Arc::clone(&woken);
        qp.set_wake(move || _ = counted.fetch_add(1, Ordering::Relaxed));
        End { nics, qp, branches, memory, key, pd: pds[0], woken }
    }

    fn connect(&mut self, to: usize, info: &[u8]) {
        let link = self.qp.link(info).unwrap();
        let path = path(&self.nics[0], to);
        for (branch, nic) in self.branches.iter_mut().zip(&mut self.nics[1..]) {
            branch.connect(nic, 1, &path, &link).unwrap();
        }
        self.qp.connect_link(&mut self.nics[0], 1, &path, &link).unwrap();
    }

    fn local(&self, at: usize, len: usize) -> Local {
        Local { key: self.key, addr: BASE + at as u64, len: len as u64 }
    }

    fn progress(&mut self, now: Instant) {
        // Only those that something happened to, as a driver would.
        for (branch, nic) in self.branches.iter_mut().zip(&mut self.nics[1..]) {
            if branch.poll_timeout().is_some_and(|at| at <= now) {
                branch.progress(now, nic);
            }
        }
    }

    fn recv(&mut self, now: Instant, at: usize, len: usize) -> RecvHandle {
        let memory = self.local(at, len);
        let posting = self.qp.recv_prepare(&mut self.nics[0], memory).unwrap();
        for (branch, nic) in self.branches.iter_mut().zip(&mut self.nics[1..]) {
            branch.recv_post(nic, &posting).unwrap();
        }
        self.qp.recv_announce(now, &mut self.nics[0]);
        posting.handle()
    }

    fn complete(&mut self, handle: RecvHandle) {
        for (branch, nic) in self.branches.iter_mut().zip(&mut self.nics[1..]) {
            branch.recv_complete(nic, handle).unwrap();
        }
        self.qp.recv_complete(&mut self.nics[0], handle).unwrap();
    }

    fn stream(&mut self, now: Instant, len: usize, imm: Option<u32>) -> SendHandle {
        let handle = self.qp.send_stream_start(now, &mut self.nics[0], len as u64, imm).unwrap();
        for (branch, nic) in self.branches.iter_mut().zip(&mut self.nics[1..]) {
            assert_eq!(branch.send_stream_start(now, nic, len as u64, imm).unwrap(), handle);
        }
        handle
    }

    fn send_part(&mut self, now: Instant, handle: SendHandle, offset: usize, at: usize, len: usize) {
        let memory = self.local(at, len);
        self.qp.send_stream_continue(now, &mut self.nics[0], handle, offset as u64, memory).unwrap();
        for (branch, nic) in self.branches.iter_mut().zip(&mut self.nics[1..]) {
            branch.send_stream_continue(now, nic, handle, offset as u64, memory).unwrap();
        }
    }

    fn end_stream(&mut self, handle: SendHandle) {
        self.qp.send_stream_end(handle).unwrap();
        self.branches.iter_mut().for_each(|branch| branch.send_stream_end(handle).unwrap());
    }

    fn is_done(&mut self, handle: SendHandle) -> bool {
        self.qp.send_poll(handle).unwrap() && self.branches.iter_mut().all(|branch| branch.send_poll(handle).unwrap())
    }

    fn counters(&mut self) -> Counters {
        let mut all = self.qp.counters(&mut self.nics[0]);
        for (branch, nic) in self.branches.iter().zip(&mut self.nics[1..]) {
            all.add(&branch.counters(nic));
        }
        all
    }

    /// All frames that it sends now.
    fn frames(&mut self, now: Instant) -> Vec<Vec<u8>> {
        let mut frames = Vec::new();
        for i in 0..self.nics.len() {
            let mut room = [0; 1024];
            loop {
                self.step(now, i);
                let mut tx = TxFrame::new(&mut room);
                if !self.nics[i].poll_transmit(now, Nic::WIRE, &mut tx) {
                    break;
                }
                let (a, b) = tx.segments();
                frames.push([a, b].concat());
            }
            self.step(now, i);
        }
        frames
    }

    fn step(&mut self, now: Instant, engine: usize) {
        match engine.checked_sub(1) {
            None => self.qp.progress(now, &mut self.nics[0]),
            Some(at) if at < self.branches.len() => self.branches[at].progress(now, &mut self.nics[engine]),
            Some(_) => {}
        }
    }

    /// A frame comes to the engine that has its queue pair.
    fn deliver(&mut self, now: Instant, frame: &[u8]) -> usize {
        let layout = Layout::locate(frame).unwrap();
        let qpn = bth::Packet::new_checked(&frame[layout.bth..]).unwrap().dest_qp();
        let engine = Owner::of(qpn, BITS) as usize;
        self.nics[engine].handle_frame(now, Nic::WIRE, &mut frame.to_vec());
        self.step(now, engine);
        self.progress(now);
        engine
    }

    fn destroy(mut self) {
        for (branch, nic) in self.branches.drain(..).zip(&mut self.nics[1..]) {
            branch.destroy(nic);
        }
        self.qp.destroy(&mut self.nics[0]);
        // Nothing holds the memory any more, nor the domain.
        for nic in &mut self.nics {
            nic.dereg_mr(self.key).unwrap();
            nic.dealloc_pd(self.pd).unwrap();
        }
    }
}

fn pair(attr: &QpAttr, engines: [u8; 2]) -> [End; 2] {
    let mut ends = [End::new(0, attr, engines[0]), End::new(1, attr, engines[1])];
    let infos = [ends[0].qp.info().encode(), ends[1].qp.info().encode()];
    ends[0].connect(1, &infos[1]);
    ends[1].connect(0, &infos[0]);
    let bytes: Vec<u8> = (0..ROOM).map(|i| (i * 7 + i / 251) as u8).collect();
    ends[0].memory.write_at(0, &bytes);
    ends
}

fn attr(channels: u8, chunk_packets: u32) -> QpAttr {
    QpAttr {
        max_message: 32 * MTU as u64,
        chunk: chunk_packets * MTU as u32,
        split: Split::PAPER,
        slots: 4,
        generations: 3,
        channels,
        mtu: PathMtu::B256,
        send_depth: 8,
        ..QpAttr::default()
    }
}

/// Numbers by a seed.
#[derive(Clone)]
struct Random(Rc<Cell<u64>>);

impl Random {
    fn below(&self, n: u64) -> u64 {
        let next = self.0.get().wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(0x1405_7b7e_f767_814f);
        self.0.set(next);
        (next >> 33) % n
    }
}

fn transfer(channels: u8, engines: [u8; 2], chunk_packets: u32, seed: u64) {
    let attr = attr(channels, chunk_packets);
    let [mut a, mut b] = pair(&attr, engines);
    let random = Random(Rc::new(Cell::new(seed)));
    let mut now = Instant::from_nanos(1);
    let mut by_engine = [0; 4];
    for n in 0..MESSAGES {
        let len = random.below(32 * MTU as u64 + 1) as usize;
        let (from, to) = ((n * 97) % 1000, (n % 4) * 32 * MTU);
        let imm = (random.below(2) == 0).then(|| random.below(1 << 32) as u32);
        let before: Vec<u8> = vec![0xee; 32 * MTU];
        b.memory.write_at(to, &before);
        let receive = b.recv(now, to, len);
        let send = a.stream(now, len, imm);
        let bitmap = b.qp.recv_bitmap_get(receive).unwrap().clone();
        let mut rounds = 0;
        // Enough, or all and the immediate: what is in flight at the end is late.
        let early = random.below(4) == 0;
        loop {
            rounds += 1;
            assert!(rounds < 400, "message {n} does not fill: {bitmap:?}");
            if rounds % 4 == 1 {
                let missing: Vec<u32> = bitmap.missing().collect();
                for chunk in missing {
                    let at = chunk as usize * attr.chunk as usize;
                    a.send_part(now, send, at, from + at, (attr.chunk as usize).min(len - at));
                }
            }
            now = now + std::time::Duration::from_micros(300);
            let (mut to_b, to_a) = (a.frames(now), b.frames(now));
            if random.below(2) == 0 {
                to_b.reverse();
            }
            for frame in to_b {
                for _ in 0..[1, 1, 1, 1, 1, 1, 1, 0, 0, 2][random.below(10) as usize] {
                    by_engine[b.deliver(now, &frame)] += 1;
                }
            }
            for frame in to_a.iter().filter(|_| random.below(5) > 0) {
                a.deliver(now, frame);
            }
            let mut got = vec![0; len];
            b.memory.read_at(to, &mut got);
            for chunk in (0..bitmap.chunks()).filter(|&chunk| bitmap.is_set(chunk)) {
                let at = chunk as usize * attr.chunk as usize;
                let end = len.min(at + attr.chunk as usize);
                let mut sent = vec![0; end - at];
                a.memory.read_at(from + at, &mut sent);
                assert_eq!(got[at..end], sent, "message {n}, chunk {chunk}");
            }
            if bitmap.is_full() || early && bitmap.count() * 2 > bitmap.chunks() {
                if let Some(imm) = imm {
                    assert!(bitmap.imm().is_none_or(|got| got == imm), "message {n}");
                }
                break;
            }
        }
        a.end_stream(send);
        let held_back = a.frames(now);
        b.complete(receive);
        let mut after = vec![0; 32 * MTU];
        b.memory.read_at(to, &mut after);
        let late = b.counters().late();
        held_back.iter().for_each(|frame| _ = b.deliver(now, frame));
        let mut later = vec![0; 32 * MTU];
        b.memory.read_at(to, &mut later);
        assert_eq!(after, later, "message {n} was completed");
        assert!(b.counters().late() >= late && after[len..].iter().all(|&byte| byte == 0xee));
        for _ in 0..50 {
            a.frames(now).iter().for_each(|frame| _ = b.deliver(now, frame));
        }
        assert!(a.is_done(send), "message {n} has left");
    }
    let used = by_engine.iter().filter(|&&frames| frames > 0).count();
    assert_eq!(used, usize::from(engines[1].min(channels)), "every engine with channels gets frames: {by_engine:?}");
    if engines[0].min(channels) > 1 {
        assert!(a.woken.load(Ordering::Relaxed) > 0);
    }
    assert_eq!(b.counters().rejected, 0);
    a.destroy();
    b.destroy();
}

#[test]
fn channels_at_several_engines_fill_the_same_messages() {
    // Under miri, which is a thousand times slower, one of them must do: chunks of several engines.
    let shapes = [(3, [2, 2]), (2, [2, 2]), (4, [2, 3]), (4, [1, 4]), (1, [2, 2]), (5, [4, 1])];
    let (shapes, chunks, seeds) =
        if cfg!(miri) { (&shapes[..1], &[2][..], 1) } else { (&shapes[..], &[1, 2, 3, 8][..], 8) };
    for &(channels, engines) in shapes {
        for &chunk_packets in chunks {
            for seed in 0..seeds {
                transfer(channels, engines, chunk_packets, 1000 * u64::from(chunk_packets) + seed);
            }
        }
    }
}

#[test]
fn a_packet_by_another_channel_than_its_own_does_not_count() {
    let attr = attr(2, 2);
    let [mut a, mut b] = pair(&attr, [2, 2]);
    let now = Instant::from_nanos(1);
    let receive = b.recv(now, 0, 4 * MTU);
    // The first packet, by the channel of the second one.
    let (qpn, key) = (a.qp.info().generations[0].channels[1].qpn, b.qp.info().generations[0].key);
    use softnic_nic::transports::{Data, SendFlags, SendOp, SendWr, Sge};
    let sge = [Sge { addr: BASE, len: MTU as u32, lkey: a.key }];
    let op = SendOp::WriteImm { remote_addr: 0, rkey: key, imm: attr.split.pack(0, 0, 0) };
    let flags = SendFlags::default();
    let wr = SendWr { wr_id: u64::MAX, op, data: Data::Gather(&sge), flags, best_effort: None, to: None };
    a.nics[1].post_send(now, qpn, &wr).unwrap();
    for frame in a.frames(now) {
        b.deliver(now, &frame);
    }
    assert_eq!((b.counters().rejected, b.counters().packets), (1, 0));
    assert_eq!(b.qp.recv_bitmap_get(receive).unwrap().count(), 0);
    let mut bytes = [0xff; MTU];
    b.memory.read_at(0, &mut bytes);
    assert_eq!(bytes, [0; MTU]);
}
