//! A fixed number of RC WRITEs of 64 bytes between two NICs, each driven by the loop of the runtime, over a wire in memory and in one thread: to
//! count under callgrind what the loop adds to a packet. `docs/performance.md` has the command.
#![allow(clippy::print_stdout)]

use std::net::IpAddr;
use std::sync::Arc;

use softnic_nic::transports::memory::Access;
use softnic_nic::transports::qp::{Caps, PayloadMode};
use softnic_nic::transports::{CqId, Data, SendFlags, SendOp, SendWr, Sge};
use softnic_nic::{Buffer, Connection, Nic, NicConfig, Port, QpInit, QpKind};
use softnic_runtime::{Driver, MemoryWire, Neighbours};
use softnic_wire::{MacAddr, PathMtu, Psn, Qpn};

/// WRITEs outstanding, and their bytes.
const DEPTH: usize = 16;
const LEN: u32 = 64;

struct Host {
    driver: Driver<Nic, MemoryWire>,
    cq: CqId,
    qpn: Qpn,
    buffer: Arc<Buffer>,
    key: u32,
}

fn address(host: u8) -> (IpAddr, MacAddr) {
    (IpAddr::from([10, 0, 0, host]), MacAddr([2, 0, 0, 0, 0, host]))
}

fn host(number: u8, wire: MemoryWire) -> Host {
    let (ip, mac) = address(number);
    let port = Port { mac, addresses: vec![ip], mtu: PathMtu::B4096 };
    let neighbours = Neighbours::new(&port);
    let mut state = u32::from(number);
    let random = move || {
        state = state.wrapping_mul(0x0019_660d).wrapping_add(0x3c6e_f35f);
        state
    };
    let mut nic = Nic::new(NicConfig { port, payload: PayloadMode::Real }, Box::new(random));
    let pd = nic.alloc_pd();
    let cq = nic.create_cq(2 * DEPTH);
    let buffer = Buffer::new(0x1000_0000, 4096);
    let key = nic.reg_mr(pd, &buffer, Access::LOCAL_WRITE | Access::REMOTE).expect("room");
    let caps = Caps { max_send_wr: DEPTH as u32, max_recv_wr: 1, max_send_sge: 1, max_recv_sge: 1, max_inline: 0 };
    let qpn = nic.create_qp(&QpInit::new(QpKind::Rc, pd, cq, cq, caps)).expect("room");
    Host { driver: Driver::new(nic, wire, neighbours), cq, qpn, buffer, key }
}

fn connect(host: &mut Host, peer: u8, dest_qp: Qpn) {
    let (ip, mac) = address(peer);
    let psn = Psn::new(7);
    let path = host.driver.node.path_to(ip, mac, host.qpn.value());
    let mtu = PathMtu::B4096;
    let connection = Connection { path, dest_qp, mtu, sq_psn: psn, rq_psn: psn, ..Connection::default() };
    host.driver.node.connect(host.qpn, &connection).expect("the settings of a connection");
}

fn main() {
    let Some(rounds) = std::env::args().nth(1).and_then(|word| word.parse::<usize>().ok()) else {
        println!("usage: driver_instructions ROUNDS\nexample: driver_instructions 1000");
        return;
    };
    let (wire_a, wire_b) = MemoryWire::pair().expect("descriptors");
    let (mut a, mut b) = (host(1, wire_a), host(2, wire_b));
    connect(&mut a, 2, b.qpn);
    connect(&mut b, 1, a.qpn);
    let sges = [Sge { addr: a.buffer.addr(), len: LEN, lkey: a.key }];
    let op = SendOp::Write { remote_addr: b.buffer.addr(), rkey: b.key };
    let flags = SendFlags { signaled: true, ..SendFlags::default() };
    let wr = SendWr { wr_id: 1, op, data: Data::Gather(&sges), flags, best_effort: None, to: None };
    let mut done = 0;
    for round in 1..=rounds {
        for _ in 0..DEPTH {
            let now = a.driver.now();
            a.driver.node.post_send(now, a.qpn, &wr).expect("room");
        }
        while done < round * DEPTH {
            a.driver.step().expect("a wire in memory");
            b.driver.step().expect("a wire in memory");
            while let Ok(Some(_)) = a.driver.node.poll_cq(a.cq) {
                done += 1;
            }
        }
    }
    println!("{done} messages");
}
