//! What reliable messages over SDR cost in the core, without loss and without a wire: both ends together, for each packet of data, beside `rc`.
//!
//! `cargo bench -p softnic-benches --bench reliable`: ratios of one run; the machine decides the rest.
#![allow(clippy::print_stdout)]

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Instant as Clock;

use softnic_nic::transports::memory::Access;
use softnic_nic::transports::qp::{Caps, PayloadMode};
use softnic_nic::transports::{CqId, Data, SendFlags, SendOp, SendWr, Sge};
use softnic_nic::{Buffer, Connection, Nic, NicConfig, Port, QpInit, QpKind};
use softnic_sdr::reliable::{Outcome, ReliableAttr, ReliableQp, Scheme};
use softnic_sdr::{Local, QpAttr};
use softnic_wire::{Instant, MacAddr, Node, PathMtu, Psn, Qpn, TxFrame};

const FRAME: usize = 4096 + 256;
const BATCH: usize = 32;
const BASE: u64 = 0x1000_0000;
/// Bytes of a message, messages in flight, and messages of a run.
const SIZE: u64 = 1 << 20;
const DEPTH: u64 = 4;
const COUNT: u64 = 400;
const ROUNDS: usize = 7;

struct Side {
    nic: Nic,
    cq: CqId,
    rc: Qpn,
    key: u32,
    _buffer: Arc<Buffer>,
}

struct World {
    sides: [Side; 2],
    frames: Vec<[u8; FRAME]>,
    start: Clock,
}

fn address(host: u8) -> (IpAddr, MacAddr) {
    (IpAddr::from([10, 0, 0, host]), MacAddr([2, 0, 0, 0, 0, host]))
}

fn side(host: u8, scheme: Option<Scheme>) -> (Side, Option<ReliableQp>) {
    let (ip, mac) = address(host);
    let mut state = 0x9e37_79b9u32 ^ u32::from(host);
    let random = move || {
        state ^= state << 13;
        state ^= state >> 17;
        state ^= state << 5;
        state
    };
    let port = Port { mac, addresses: vec![ip], mtu: PathMtu::B4096 };
    let mut nic = Nic::new(NicConfig { port, payload: PayloadMode::Real }, Box::new(random));
    let pd = nic.alloc_pd();
    let cq = nic.create_cq(64);
    let buffer = Buffer::new(BASE, (SIZE * DEPTH) as usize);
    (0..buffer.len()).step_by(64).for_each(|at| buffer.write_at(at, &[at as u8 ^ (at >> 8) as u8]));
    let key = nic.reg_mr(pd, &buffer, Access::LOCAL_WRITE | Access::REMOTE).expect("a key");
    let caps = Caps { max_send_wr: 16, max_recv_wr: 1, max_send_sge: 1, max_recv_sge: 1, max_inline: 0 };
    let rc = nic.create_qp(&QpInit::new(QpKind::Rc, pd, cq, cq, caps)).expect("a queue pair");
    let reliable = scheme.map(|scheme| {
        let qp = QpAttr { max_message: SIZE, chunk: 4096, slots: 16, ..QpAttr::default() };
        let attr = ReliableAttr { qp, scheme, ..ReliableAttr::default() };
        let attr = attr.sized_for(10_000_000_000, attr.rtt);
        ReliableQp::create(&mut nic, pd, &attr).expect("a queue pair")
    });
    (Side { nic, cq, rc, key, _buffer: buffer }, reliable)
}

impl World {
    fn new(scheme: Option<Scheme>) -> World {
        let made = [side(1, scheme), side(2, scheme)];
        let rcs = [made[0].0.rc, made[1].0.rc];
        let [(a, qp_a), (b, qp_b)] = made;
        let (mut sides, mut qps) = ([a, b], [qp_a, qp_b]);
        let infos = [0, 1].map(|i: usize| qps[i].as_mut().map(|qp| qp.qp().info().encode()));
        for (i, side) in sides.iter_mut().enumerate() {
            let (ip, mac) = address(2 - i as u8);
            let path = side.nic.path_to(ip, mac, 9).expect("a path");
            let connection = Connection {
                path: Some(path),
                dest_qp: rcs[1 - i],
                mtu: PathMtu::B4096,
                sq_psn: Psn::new(7),
                rq_psn: Psn::new(7),
                ..Connection::default()
            };
            side.nic.connect(side.rc, &connection).expect("connected");
            if let (Some(mut qp), Some(info)) = (qps[i].take(), &infos[1 - i]) {
                qp.qp().connect(&mut side.nic, 1, &path, info).expect("connected");
                side.nic.set_layer(Some(Box::new(qp)));
            }
        }
        World { sides, frames: vec![[0; FRAME]; BATCH], start: Clock::now() }
    }

    fn now(&self) -> Instant {
        Instant::from_nanos(self.start.elapsed().as_nanos() as u64 + 1)
    }

    /// A batch of frames goes over; whether there was any.
    fn hand_over(&mut self, from: usize) -> bool {
        let now = self.now();
        let (mut lens, mut count) = ([0; BATCH], 0);
        while count < BATCH {
            let mut tx = TxFrame::new(&mut self.frames[count]);
            if !self.sides[from].nic.poll_transmit(now, Nic::WIRE, &mut tx) {
                break;
            }
            lens[count] = tx.wire_len();
            count += 1;
        }
        let now = self.now();
        for (frame, &len) in self.frames.iter_mut().zip(&lens[..count]) {
            self.sides[1 - from].nic.handle_frame(now, Nic::WIRE, &mut frame[..len]);
        }
        count > 0
    }

    fn post(&mut self, n: u64, is_reliable: bool) {
        let (now, at) = (self.now(), n % DEPTH * SIZE);
        if !is_reliable {
            let (rkey, a) = (self.sides[1].key, &mut self.sides[0]);
            let sge = [Sge { addr: BASE + at, len: SIZE as u32, lkey: a.key }];
            let op = SendOp::Write { remote_addr: BASE + at, rkey };
            let flags = SendFlags { signaled: true, ..SendFlags::default() };
            let wr = SendWr { wr_id: n, op, data: Data::Gather(&sge), flags, best_effort: None, to: None };
            a.nic.write_send(a.rc, &wr).expect("room");
            return a.nic.ring_doorbell(now, a.rc);
        }
        for host in [1, 0] {
            let memory = Local { key: self.sides[host].key, addr: BASE + at, len: SIZE };
            self.with(host, |qp, nic| match host {
                1 => qp.receive(now, nic, memory),
                _ => qp.write(now, nic, memory),
            })
            .expect("posted");
        }
    }

    fn with<R>(&mut self, host: usize, talk: impl FnOnce(&mut ReliableQp, &mut Nic) -> R) -> R {
        let talk = |layer: &mut dyn softnic_nic::Layer, nic: &mut Nic| {
            talk(layer.as_any_mut().downcast_mut::<ReliableQp>().expect("it is that"), nic)
        };
        self.sides[host].nic.with_layer(talk).expect("there is a layer")
    }

    /// How many messages are over.
    fn done(&mut self, is_reliable: bool) -> u64 {
        if !is_reliable {
            let mut done = 0;
            while let Ok(Some(_)) = self.sides[0].nic.poll_cq(self.sides[0].cq) {
                done += 1;
            }
            return done;
        }
        while self.with(1, |qp, _| qp.poll()).is_some() {}
        let mut done = 0;
        while let Some(outcome) = self.with(0, |qp, _| qp.poll()) {
            assert!(matches!(outcome, Outcome::Written { outcome: Ok(()), .. }), "{outcome:?}");
            done += 1;
        }
        done
    }

    /// Nanoseconds for each packet of data.
    fn run(&mut self, is_reliable: bool) -> f64 {
        let start = Clock::now();
        let (mut posted, mut done) = (0, 0);
        while done < COUNT {
            while posted < COUNT.min(done + DEPTH) {
                self.post(posted, is_reliable);
                posted += 1;
            }
            let any = self.hand_over(0) | self.hand_over(1);
            done += self.done(is_reliable);
            if !any {
                let now = self.now();
                self.sides.iter_mut().for_each(|side| side.nic.handle_timeout(now));
            }
        }
        start.elapsed().as_nanos() as f64 / (COUNT * SIZE / 4096) as f64
    }
}

fn main() {
    let schemes = ["rc", "sdr-sr", "sdr-nack", "sdr-xor:32,8", "sdr-ec:32,8"];
    let mut worlds = schemes.map(|name| World::new(name.parse().ok()));
    let mut best = [f64::INFINITY; 5];
    for _ in 0..ROUNDS {
        for (i, world) in worlds.iter_mut().enumerate() {
            best[i] = best[i].min(world.run(i > 0));
        }
    }
    println!("| both ends, a packet of 4 KiB | ns | of rc |\n|---|---|---|");
    for (name, ns) in schemes.iter().zip(best) {
        println!("| {name} | {ns:.0} | {:.2} |", ns / best[0]);
    }
    for world in &mut worlds[1..] {
        let counters = world.with(0, |qp, _| qp.counters());
        assert_eq!(counters.chunks_repeated, 0, "nothing is lost: {counters:?}");
    }
}
