//! Nodes of other kinds: a bump in the wire, a host with software on its NIC, a switch that does more than a plain one.

use std::cell::Cell;
use std::collections::VecDeque;
use std::net::IpAddr;
use std::rc::Rc;
use std::time::Duration;

use softnic_fault_injector::{Direction, Spec};
use softnic_nic::transports::memory::Access;
use softnic_nic::transports::qp::{Caps, PayloadMode};
use softnic_nic::transports::{Data, SendFlags, SendOp, SendWr, Sge, Status};
use softnic_nic::{Buffer, Connection, Nic, NicConfig, Port, QpInit, QpKind};
use softnic_sim::node::SimNode;
use softnic_sim::topology::{self, Hooks, Topology};
use softnic_sim::{End, LinkConfig, Simulator};
use softnic_switch::Switch;
use softnic_wire::{Instant, MacAddr, Node, PathMtu, TxFrame};

/// Passes frames on between its two ports, all but each tenth.
#[derive(Default)]
struct Bump {
    waiting: [VecDeque<Vec<u8>>; 2],
    seen: u64,
}

impl Node for Bump {
    fn handle_frame(&mut self, _now: Instant, port: usize, frame: &mut [u8]) {
        self.seen += 1;
        if !self.seen.is_multiple_of(10) {
            self.waiting[1 - port].push_back(frame.to_vec());
        }
    }

    fn poll_transmit(&mut self, _now: Instant, port: usize, tx: &mut TxFrame<'_>) -> bool {
        self.waiting[port].pop_front().is_some_and(|frame| tx.put_frame(&frame).is_ok())
    }

    fn poll_timeout(&self) -> Option<Instant> {
        None
    }

    fn handle_timeout(&mut self, _now: Instant) {}
}

impl SimNode for Bump {}

#[test]
fn a_bump_in_the_wire_stands_between_two_hosts() {
    const SIZE: usize = 64 << 10;
    let (ip, mac) = (|n| IpAddr::from([10, 0, 0, n]), |n| MacAddr([2, 0, 0, 0, 0, n]));
    let mut sim = Simulator::new(1200);
    let caps = Caps { max_send_wr: 4, max_recv_wr: 1, max_send_sge: 1, max_recv_sge: 1, max_inline: 0 };
    let hosts = [1u8, 2].map(|n| {
        let port = Port { mac: mac(n), addresses: vec![ip(n)], mtu: PathMtu::B1024 };
        let mut number = u32::from(n) << 16;
        let random = move || {
            number += 1;
            number
        };
        let mut nic = Nic::new(NicConfig { port, payload: PayloadMode::Real }, Box::new(random));
        let (pd, cq) = (nic.alloc_pd(), nic.create_cq(4));
        let qpn = nic.create_qp(&QpInit::new(QpKind::Rc, pd, cq, cq, caps)).unwrap();
        let buffer = Buffer::new(0x1000, SIZE);
        buffer.write_at(0, &vec![n; SIZE]);
        let key = nic.reg_mr(pd, &buffer, Access::LOCAL_WRITE | Access::REMOTE).unwrap();
        sim.add_node(Box::new(nic));
        (qpn, cq, buffer, key)
    });
    let bump = sim.add_node(Box::new(Bump::default()));
    let config = LinkConfig { rate: 10_000_000_000, delay: Duration::from_micros(1), faults: Spec::default() };
    for host in [0, 1] {
        let ends = [End { node: host, port: Nic::WIRE }, End { node: bump, port: host }];
        sim.add_link(ends[0], ends[1], &config, Direction::Ab, 1);
        sim.add_link(ends[1], ends[0], &config, Direction::Ba, 1);
        let (qpn, dest_qp) = (hosts[host].0, hosts[1 - host].0);
        let nic = sim.nic(host);
        let path = nic.path_to(ip(2 - host as u8), mac(2 - host as u8), 0);
        nic.connect(qpn, &Connection { path, dest_qp, timeout: 6, ..Connection::default() }).unwrap();
    }
    let (qpn, cq, _, lkey) = &hosts[0];
    let sges = [Sge { addr: 0x1000, len: SIZE as u32, lkey: *lkey }];
    let op = SendOp::Write { remote_addr: 0x1000, rkey: hosts[1].3 };
    let flags = SendFlags { signaled: true, solicited: false, fence: false };
    let wr = SendWr { wr_id: 7, op, data: Data::Gather(&sges), flags, best_effort: None, to: None };
    sim.nic(0).post_send(Instant::ZERO, *qpn, &wr).unwrap();
    sim.touch(0);
    while sim.step().is_some() {}
    let done = sim.nic(0).poll_cq(*cq).unwrap().expect("the WRITE completes");
    assert_eq!((done.wr_id, done.status), (7, Status::Success));
    let mut written = vec![0; SIZE];
    hosts[1].2.read_at(0, &mut written);
    assert!(written == vec![1; SIZE]);
    let seen = sim.node::<Bump>(bump).expect("the bump").seen;
    assert!(seen > 64 && sim.nic(0).counters().retransmitted_packets >= seen / 20, "a tenth was lost");
    assert!(sim.node::<Nic>(bump).is_none() && sim.node::<Nic>(0).is_some());
}

/// A NIC with software on it that counts the frames that come in.
struct Counting {
    nic: Nic,
    frames: Rc<Cell<u64>>,
}

impl Node for Counting {
    fn handle_frame(&mut self, now: Instant, port: usize, frame: &mut [u8]) {
        self.frames.set(self.frames.get() + 1);
        self.nic.handle_frame(now, port, frame);
    }

    fn poll_transmit(&mut self, now: Instant, port: usize, tx: &mut TxFrame<'_>) -> bool {
        self.nic.poll_transmit(now, port, tx)
    }

    fn poll_timeout(&self) -> Option<Instant> {
        self.nic.poll_timeout()
    }

    fn handle_timeout(&mut self, now: Instant) {
        self.nic.handle_timeout(now);
    }
}

impl SimNode for Counting {
    fn nic(&mut self) -> Option<&mut Nic> {
        Some(&mut self.nic)
    }
}

#[test]
fn a_host_of_a_topology_may_have_software_on_its_nic() {
    let text = "kind = \"star\"\nhosts = 2\n[[flow]]\nfrom = \"h0\"\nto = \"h1\"\nsize = \"10K\"\ncount = 5\n";
    let topology: Topology = text.parse().unwrap();
    let plain = topology::run(&topology, 1, Hooks::default()).unwrap();
    let frames = Rc::new(Cell::new(0));
    let mut host = |index, nic| -> Box<dyn SimNode> {
        if index == 1 { Box::new(Counting { nic, frames: Rc::clone(&frames) }) } else { Box::new(nic) }
    };
    let counted = topology::run(&topology, 1, Hooks { host: Some(&mut host), ..Hooks::default() }).unwrap();
    assert_eq!((frames.get(), counted.flows[0].completed), (50, 5));
    assert_eq!(counted.digest, plain.digest, "to the network it is the NIC that it was");
}

/// A switch that loses every tenth frame that comes in.
struct Lossy {
    switch: Switch,
    frames: Rc<Cell<u64>>,
}

impl Node for Lossy {
    fn handle_frame(&mut self, now: Instant, port: usize, frame: &mut [u8]) {
        self.frames.set(self.frames.get() + 1);
        if !self.frames.get().is_multiple_of(10) {
            self.switch.handle_frame(now, port, frame);
        }
    }

    fn poll_transmit(&mut self, now: Instant, port: usize, tx: &mut TxFrame<'_>) -> bool {
        self.switch.poll_transmit(now, port, tx)
    }

    fn poll_timeout(&self) -> Option<Instant> {
        self.switch.poll_timeout()
    }

    fn handle_timeout(&mut self, now: Instant) {
        self.switch.handle_timeout(now);
    }
}

impl SimNode for Lossy {
    fn switch(&mut self) -> Option<&mut Switch> {
        Some(&mut self.switch)
    }
}

#[test]
fn a_topology_takes_switches_of_another_kind() {
    let text = "kind = \"dumbbell\"\nhosts = 1\n[[flow]]\nfrom = \"h0\"\nto = \"h1\"\nsize = \"10K\"\ncount = 5\n";
    let topology: Topology = text.parse().unwrap();
    let frames = Rc::new(Cell::new(0));
    let mut switch = |index, switch| -> Box<dyn SimNode> {
        if index == 1 { Box::new(Lossy { switch, frames: Rc::clone(&frames) }) } else { Box::new(switch) }
    };
    let report = topology::run(&topology, 1, Hooks { switch: Some(&mut switch), ..Hooks::default() }).unwrap();
    assert_eq!((report.flows[0].completed, report.flows[0].failed), (5, 0));
    assert!(frames.get() > 55, "{} frames: all that was lost went again", frames.get());
    assert_eq!(report.ports.len(), 4, "its queues are reported as any switch's");
}
