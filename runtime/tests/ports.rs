//! Nodes with several ports on several wires, each driven by one loop: a NIC, and one that is none.

use std::collections::VecDeque;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::{Duration, Instant as Clock};

use softnic_nic::transports::memory::Access;
use softnic_nic::transports::qp::{Caps, PayloadMode};
use softnic_nic::transports::{CqId, Data, SendFlags, SendOp, SendWr, Sge, Status};
use softnic_nic::{Buffer, Connection, Nic, NicConfig, Port, QpInit, QpKind};
use softnic_runtime::{Driver, DriverPort, MemoryWire, Neighbours, OsRandom};
use softnic_wire::{Instant, MacAddr, Node, PathMtu, Qpn, TxFrame};

/// Long enough for the slowest machine; no test that passes waits for it.
const LIMIT: Duration = Duration::from_secs(60);
const SIZE: usize = 64 << 10;

fn port(host: u8, number: u8) -> Port {
    let addresses: Vec<IpAddr> = vec![[10, 33, number, host].into()];
    Port { mac: MacAddr([2, 0, 0, 0, number, host]), addresses, mtu: PathMtu::B4096 }
}

struct Host {
    driver: Driver<Nic, MemoryWire>,
    cq: CqId,
    /// One for each port.
    qpns: Vec<Qpn>,
    buffer: Arc<Buffer>,
    key: u32,
}

/// A host with a port on each of these wires, and a queue pair for each.
fn host(n: u8, wires: Vec<MemoryWire>) -> Host {
    let config = NicConfig { port: port(n, 1), payload: PayloadMode::Real };
    let mut nic = Nic::new(config, Box::new(OsRandom::new().unwrap()));
    let mut ports = Vec::new();
    for (i, io) in wires.into_iter().enumerate() {
        let number = if i == 0 { Nic::WIRE } else { nic.add_port(port(n, i as u8 + 1)) };
        ports.push(DriverPort { number, io, stack: Neighbours::new(&port(n, i as u8 + 1)).into() });
    }
    let (pd, cq) = (nic.alloc_pd(), nic.create_cq(16));
    let buffer = Buffer::new(0x10_0000 * u64::from(n), SIZE);
    let key = nic.reg_mr(pd, &buffer, Access::LOCAL_WRITE | Access::REMOTE_WRITE).unwrap();
    let caps = Caps { max_send_wr: 8, max_recv_wr: 8, max_send_sge: 1, max_recv_sge: 1, max_inline: 0 };
    let init = QpInit { sig_all: true, ..QpInit::new(QpKind::Rc, pd, cq, cq, caps) };
    let qpns = ports.iter().map(|_| nic.create_qp(&init).unwrap()).collect();
    let first = ports.remove(0);
    let driver = Driver::with_ports(nic, first, ports, Some(Nic::LOOPBACK)).unwrap();
    Host { driver, cq, qpns, buffer, key }
}

/// Connects the queue pairs of a port of each host.
fn connect(hosts: &mut [Host; 2], number: u8) {
    let at = usize::from(number) - 1;
    for (h, peer) in [(0, 1), (1, 0)] {
        let dest_qp = hosts[peer].qpns[at];
        let Port { mac, addresses, .. } = port(peer as u8 + 1, number);
        let nic = &mut hosts[h].driver.node;
        let path = nic.path_from(number.into(), addresses[0], mac, 1);
        let connection = Connection { port: number, path, dest_qp, mtu: PathMtu::B4096, ..Connection::default() };
        nic.connect(hosts[h].qpns[at], &connection).unwrap();
    }
}

fn write(hosts: &mut [Host; 2], qp: usize, wr_id: u64) {
    let op = SendOp::Write { remote_addr: hosts[1].buffer.addr(), rkey: hosts[1].key };
    let sges = [Sge { addr: hosts[0].buffer.addr(), len: SIZE as u32, lkey: hosts[0].key }];
    let flags = SendFlags::default();
    let wr = SendWr { wr_id, op, data: Data::Gather(&sges), flags, best_effort: None, to: None };
    let (now, qpn) = (hosts[0].driver.now(), hosts[0].qpns[qp]);
    hosts[0].driver.node.post_send(now, qpn, &wr).unwrap();
}

/// Runs all loops until the first host has a completion; which work request it is.
fn run(hosts: &mut [Host; 2], mut others: impl FnMut()) -> u64 {
    let end = Clock::now() + LIMIT;
    while Clock::now() < end {
        for host in hosts.iter_mut() {
            host.driver.step().unwrap();
        }
        others();
        let cq = hosts[0].cq;
        if let Some(completion) = hosts[0].driver.node.poll_cq(cq).unwrap() {
            assert_eq!(completion.status, Status::Success);
            return completion.wr_id;
        }
    }
    panic!("nothing completed");
}

#[test]
fn a_nic_sends_and_receives_by_all_its_ports() {
    let ((a1, b1), (a2, b2)) = (MemoryWire::pair().unwrap(), MemoryWire::pair().unwrap());
    let mut hosts = [host(1, vec![a1, a2]), host(2, vec![b1, b2])];
    for (number, byte) in [(2, 0x5a), (1, 0xa5)] {
        connect(&mut hosts, number);
        hosts[0].buffer.write_at(0, &vec![byte; SIZE]);
        write(&mut hosts, usize::from(number) - 1, number.into());
        assert_eq!(run(&mut hosts, || ()), u64::from(number));
        let mut got = vec![0; SIZE];
        hosts[1].buffer.read_at(0, &mut got);
        assert!(got.iter().all(|&b| b == byte), "port {number}");
    }
}

/// Sends what comes in at one port out at the other.
#[derive(Default)]
struct Repeater {
    frames: [VecDeque<Vec<u8>>; 2],
    carried: usize,
}

impl Node for Repeater {
    fn handle_frame(&mut self, _: Instant, port: usize, frame: &mut [u8]) {
        self.frames[1 - port].push_back(frame.to_vec());
        self.carried += 1;
    }

    fn poll_transmit(&mut self, _: Instant, port: usize, tx: &mut TxFrame<'_>) -> bool {
        self.frames[port].pop_front().is_some_and(|frame| tx.put_frame(&frame).is_ok())
    }

    fn poll_timeout(&self) -> Option<Instant> {
        None
    }

    fn handle_timeout(&mut self, _: Instant) {}
}

#[test]
fn a_node_that_is_no_nic_runs_on_two_wires() {
    let ((a, left), (b, right)) = (MemoryWire::pair().unwrap(), MemoryWire::pair().unwrap());
    let mut hosts = [host(1, vec![a]), host(2, vec![b])];
    // Nobody asks a repeater for its address.
    let silent = || Neighbours::new(&Port { addresses: Vec::new(), ..port(9, 9) }).into();
    let first = DriverPort { number: 0, io: left, stack: silent() };
    let second = DriverPort { number: 1, io: right, stack: silent() };
    let mut repeater = Driver::with_ports(Repeater::default(), first, vec![second], None).unwrap();
    connect(&mut hosts, 1);
    write(&mut hosts, 0, 7);
    assert_eq!(
        run(&mut hosts, || {
            repeater.step().unwrap();
        }),
        7
    );
    assert!(repeater.node.carried > SIZE / 4096, "{} frames", repeater.node.carried);
}
