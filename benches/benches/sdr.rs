//! What SDR takes in the core: its sink alone; a packet beside a WRITE of one packet over UC without immediate data, at both ends, without
//! any IO; and a receive, completed and posted anew.
//!
//! The two take turns, so that what else the machine does hits both. What counts is the ratio of the times that a twentieth of the turns
//! stay below: those that nothing else disturbed.
#![allow(missing_docs, clippy::print_stdout)]

use std::hint::black_box;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Instant as Clock;

use softnic_benches::rounds::undisturbed;
use softnic_nic::transports::memory::Access;
use softnic_nic::transports::qp::{Caps, PayloadMode};
use softnic_nic::transports::{CqId, Data, SendFlags, SendOp, SendWr, Sge};
use softnic_nic::{Buffer, Connection, Nic, NicConfig, Port, QpInit, QpKind};
use softnic_perf::sink_rate;
use softnic_runtime::api::sdr::{SdrAttr, SdrContext};
use softnic_runtime::api::{Context, OpenOptions, Progress};
use softnic_sdr::{Local, QpAttr, SdrQp};
use softnic_wire::{Instant, MacAddr, Node, PathMtu, Qpn, TxFrame};

const FRAME: usize = 4096 + 256;
const BASE: u64 = 0x1000_0000;
/// Packets of a message: as many frames as a driver takes at once.
const PACKETS: usize = 16;
const NOW: Instant = Instant::from_nanos(1);

struct Side {
    nic: Nic,
    sdr: SdrQp,
    uc: Qpn,
    cq: CqId,
    buffer: Arc<Buffer>,
    key: u32,
}

fn address(host: u8) -> (IpAddr, MacAddr) {
    (IpAddr::from([10, 0, 0, host]), MacAddr([2, 0, 0, 0, 0, host]))
}

fn side(host: u8, attr: &QpAttr) -> Side {
    let (ip, mac) = address(host);
    let mut n = u32::from(host) * 0x1234_5677;
    let random = move || {
        n = n.wrapping_mul(0x9e37_79b1).wrapping_add(0x7f4a_7c15);
        n ^ n >> 13
    };
    let port = Port { mac, addresses: vec![ip], mtu: PathMtu::B4096 };
    let mut nic = Nic::new(NicConfig { port, payload: PayloadMode::Real }, Box::new(random));
    let pd = nic.alloc_pd();
    let buffer = Buffer::new(BASE, 2 << 20);
    (0..2 << 20).step_by(4096).for_each(|at| buffer.write_at(at, &[host]));
    let key = nic.reg_mr(pd, &buffer, Access::LOCAL_WRITE | Access::REMOTE).expect("a region");
    let sdr = SdrQp::create(&mut nic, pd, attr).expect("an SDR queue pair");
    let cq = nic.create_cq(256);
    let caps = Caps { max_send_wr: 64, max_recv_wr: 1, max_send_sge: 1, max_recv_sge: 1, max_inline: 0 };
    let uc = nic.create_qp(&QpInit::new(QpKind::Uc, pd, cq, cq, caps)).expect("a queue pair");
    Side { nic, sdr, uc, cq, buffer, key }
}

struct World {
    sides: [Side; 2],
    frames: Vec<[u8; FRAME]>,
    lens: Vec<usize>,
    size: usize,
}

impl World {
    fn new(mtu: PathMtu, max_message: u64) -> World {
        let (size, chunk) = (mtu.bytes() as usize, mtu.bytes());
        let attr = QpAttr { max_message, chunk, mtu, send_depth: 64, ..QpAttr::default() };
        let mut sides = [side(1, &attr), side(2, &attr)];
        let (infos, ucs) = ([0, 1].map(|i: usize| sides[i].sdr.info().encode()), [0, 1].map(|i: usize| sides[i].uc));
        for (i, side) in sides.iter_mut().enumerate() {
            let (ip, mac) = address(2 - i as u8);
            let path = side.nic.path_to(ip, mac, 9).expect("a path");
            side.sdr.connect(&mut side.nic, 1, &path, &infos[1 - i]).expect("connected");
            let connection = Connection { path: Some(path), dest_qp: ucs[1 - i], mtu, ..Connection::default() };
            side.nic.connect(side.uc, &connection).expect("connected");
        }
        World { sides, frames: vec![[0; FRAME]; 64], lens: Vec::new(), size }
    }

    /// All frames that a side has to send.
    #[inline(never)]
    fn transmit(&mut self, from: usize) {
        self.lens.clear();
        for frame in &mut self.frames {
            let mut tx = TxFrame::new(frame);
            if !self.sides[from].nic.poll_transmit(NOW, Nic::WIRE, &mut tx) {
                return;
            }
            self.lens.push(tx.wire_len());
        }
    }

    #[inline(never)]
    fn deliver(&mut self, to: usize) {
        for (frame, &len) in self.frames.iter_mut().zip(&self.lens) {
            self.sides[to].nic.handle_frame(NOW, Nic::WIRE, &mut frame[..len]);
        }
    }

    /// A WRITE without immediate data for each packet; the time of each end for a packet.
    fn uc(&mut self) -> [f64; 2] {
        let start = Clock::now();
        let (rkey, a) = (self.sides[1].key, &mut self.sides[0]);
        for i in 0..PACKETS {
            let at = (i * self.size) as u64;
            let sge = [Sge { addr: BASE + at, len: self.size as u32, lkey: a.key }];
            let (op, signaled) = (SendOp::Write { remote_addr: BASE + at, rkey }, i + 1 == PACKETS);
            let flags = SendFlags { signaled, ..SendFlags::default() };
            let wr = SendWr { wr_id: 1, op, data: Data::Gather(&sge), flags, best_effort: None, to: None };
            a.nic.write_send(a.uc, &wr).expect("room");
        }
        a.nic.ring_doorbell(NOW, a.uc);
        self.transmit(0);
        while let Ok(Some(c)) = self.sides[0].nic.poll_cq(self.sides[0].cq) {
            black_box(c);
        }
        let between = Clock::now();
        self.deliver(1);
        let end = Clock::now();
        assert_eq!(self.lens.len(), PACKETS);
        [between - start, end - between].map(|t| t.as_nanos() as f64 / PACKETS as f64)
    }

    /// A message of as many packets; the same.
    fn sdr(&mut self) -> [f64; 2] {
        let len = (PACKETS * self.size) as u64;
        let b = &mut self.sides[1];
        let memory = Local { key: b.key, addr: BASE, len };
        let handle = b.sdr.recv_post(NOW, &mut b.nic, memory).expect("posted");
        self.transmit(1);
        self.deliver(0);
        let a = &mut self.sides[0];
        a.sdr.progress(NOW, &mut a.nic);
        let memory = Local { key: a.key, addr: BASE, len };
        let start = Clock::now();
        let send = a.sdr.send_post(NOW, &mut a.nic, memory, None).expect("posted");
        self.transmit(0);
        let a = &mut self.sides[0];
        a.sdr.progress(NOW, &mut a.nic);
        let between = Clock::now();
        self.deliver(1);
        let b = &mut self.sides[1];
        b.sdr.progress(NOW, &mut b.nic);
        let end = Clock::now();
        assert!(b.sdr.recv_bitmap_get(handle).is_ok_and(|bitmap| bitmap.is_full()), "it came");
        assert_eq!(self.sides[0].sdr.send_poll(send), Ok(true), "it left");
        let b = &mut self.sides[1];
        b.sdr.recv_complete(&mut b.nic, handle).expect("it was posted");
        [between - start, end - between].map(|t| t.as_nanos() as f64 / PACKETS as f64)
    }

    /// What completing a receive of so many bytes and posting it anew takes.
    fn repost(&mut self, len: u64) -> f64 {
        let b = &mut self.sides[1];
        let memory = Local { key: b.key, addr: BASE, len };
        let mut handle = b.sdr.recv_post(NOW, &mut b.nic, memory).expect("posted");
        let mut times = Vec::new();
        for _ in 0..4000 {
            let start = Clock::now();
            b.sdr.recv_complete(&mut b.nic, handle).expect("it was posted");
            handle = b.sdr.recv_post(NOW, &mut b.nic, memory).expect("posted");
            times.push(start.elapsed().as_nanos() as f64);
            // The CTS leaves.
            let mut tx = TxFrame::new(&mut self.frames[0]);
            while b.nic.poll_transmit(NOW, Nic::WIRE, &mut tx) {
                tx = TxFrame::new(&mut self.frames[0]);
            }
        }
        black_box(b.buffer.load_byte(0));
        undisturbed(times)
    }
}

/// The same on an opened NIC of so many engines, each of which must hear of it: the median, and the time that a twentieth stay below.
fn repost_at(engines: u32, len: usize) -> (f64, f64) {
    let options = OpenOptions { queues: Some(engines), progress: Some(Progress::Inline), ..OpenOptions::default() };
    let [a, b] = Context::open_pair([&options, &options]).expect("a wire in memory");
    let paths = [a.path_to(b.addresses()[0], 1), b.path_to(a.addresses()[0], 1)].map(|path| path.expect("a path"));
    let sdrs = [&a, &b].map(|context| SdrContext::new(context).expect("nothing else is on it"));
    let attr = SdrAttr { channels: engines as u8, ..SdrAttr::default() };
    let qps = [0, 1].map(|i: usize| sdrs[i].create_qp(&attr).expect("a queue pair"));
    for i in [0, 1] {
        qps[i].connect(&paths[i], &qps[1 - i].info().expect("its information")).expect("connected");
    }
    assert_eq!(qps[1].engines(), engines as usize);
    let memory = sdrs[1].pd().alloc_mr(len, Access::LOCAL_WRITE | Access::REMOTE).expect("memory");
    let mut receive = qps[1].recv_post(&memory, 0, len).expect("posted");
    let mut times = Vec::new();
    for turn in 0..20_000 {
        let start = Clock::now();
        receive.complete().expect("it was posted");
        receive = qps[1].recv_post(&memory, 0, len).expect("posted");
        let time = start.elapsed().as_nanos() as f64;
        // The CTS leaves, and is taken.
        while qps[1].progress() | qps[0].progress() {}
        if turn > 1000 {
            times.push(time);
        }
    }
    times.sort_by(f64::total_cmp);
    (times[times.len() / 2], undisturbed(times))
}

fn main() {
    println!(
        "| chunk, packets | the sink alone, million packets a second | two engines on one message | |\n|---|---|---|---|"
    );
    for chunk_packets in [1, 2, 4, 8, 16, 32, 64] {
        let [one, two] = [1, 2].map(|engines| sink_rate(engines, chunk_packets, 5));
        println!("| {chunk_packets} | {one:.1} | {two:.1} | {:.2} |", two / one);
    }
    println!(
        "\n| bytes of a packet | | sender, ns a packet | receiver, ns a packet | against uc |\n|---|---|---|---|---|"
    );
    for mtu in [PathMtu::B256, PathMtu::B1024, PathMtu::B4096] {
        let mut world = World::new(mtu, (PACKETS as u64) * u64::from(mtu.bytes()));
        let mut times: [[Vec<f64>; 2]; 2] = Default::default();
        for turn in 0..4000 {
            let ([a, b], [c, d]) = (world.uc(), world.sdr());
            if turn > 400 {
                times
                    .iter_mut()
                    .zip([[a, b], [c, d]])
                    .for_each(|(t, v)| t.iter_mut().zip(v).for_each(|(t, v)| t.push(v)));
            }
        }
        let [[a, b], [c, d]] = times.map(|t| t.map(undisturbed));
        println!("| {} | uc | {a:.1} | {b:.1} | 1 |", mtu.bytes());
        println!("| | sdr | {c:.1} | {d:.1} | {:.2}, {:.2} |", c / a, d / b);
    }
    println!("\n| bytes of a receive | completed and posted anew, ns |\n|---|---|");
    for len in [4 << 10, 64 << 10, 1 << 20] {
        println!("| {len} | {:.0} |", World::new(PathMtu::B4096, 1 << 20).repost(len));
    }
    println!(
        "\n| engines | a receive of 1 MiB on an opened NIC, completed and posted anew, ns: median, and undisturbed |\n|---|---|"
    );
    for engines in [1, 2, 4] {
        let (median, least) = repost_at(engines, 1 << 20);
        println!("| {engines} | {median:.0}, {least:.0} |");
    }
}
