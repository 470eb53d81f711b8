//! One WRITE, many memories: a sender, a switch that has its group, and receivers that know of nothing.

mod corpus;

use std::sync::Arc;
use std::time::Duration;

use softnic_fault_injector::{Direction, Policy};
use softnic_nic::transports::memory::Access;
use softnic_nic::transports::qp::{Caps, PayloadMode};
use softnic_nic::transports::{CqId, Data, SendFlags, SendOp, SendWr, Sge, Status, Transport};
use softnic_nic::{Buffer, Connection, Nic, NicConfig, Port, QpInit};
use softnic_sim::{End, LinkConfig, Simulator};
use softnic_switch::group::{GroupSpec, MergeSpec, Range, Receiver, Target};
use softnic_switch::{Switch, SwitchConfig};
use softnic_wire::{Instant, MacAddr, PathMtu, Psn, Qpn};

const MC_ID: Qpn = Qpn::new(0x77_7777);
const LEN: usize = 40_000;
const KEY: u32 = 0x1234;
/// Where the sender believes that the memory is.
const VIRTUAL: u64 = 0xdead_0000;
const OWN: MacAddr = MacAddr([2, 1, 0, 0, 0, 0]);

struct Host {
    qpn: Qpn,
    cq: CqId,
    buffer: Arc<Buffer>,
    key: u32,
}

struct World<'a> {
    sim: Simulator<'a>,
    /// The sender first.
    hosts: Vec<Host>,
    switch: usize,
}

fn ip(host: usize) -> std::net::IpAddr {
    [10, 0, 0, host as u8 + 1].into()
}

fn mac(host: usize) -> MacAddr {
    MacAddr([2, 0, 0, 0, 0, host as u8 + 1])
}

/// The link of a host.
fn link(host: usize, faults: &str) -> LinkConfig {
    let faults = faults.parse().unwrap();
    LinkConfig { rate: 10_000_000_000, delay: Duration::from_micros(2 + host as u64), faults }
}

impl World<'_> {
    /// A star; faults are those of the links of hosts, the sender's first.
    fn new(receivers: usize, faults: &[&str], first: Psn, seed: u64) -> World<'static> {
        let max_frame = 2048;
        let mut sim = Simulator::new(max_frame);
        let mut hosts = Vec::new();
        for host in 0..=receivers {
            let port = Port { mac: mac(host), addresses: vec![ip(host)], mtu: PathMtu::B1024 };
            let mut number = host as u32 * 1000 + 17;
            let random = move || {
                number += 7;
                number << 4
            };
            let mut nic = Nic::new(NicConfig { port, payload: PayloadMode::Real }, Box::new(random));
            let (pd, cq) = (nic.alloc_pd(), nic.create_cq(64));
            let buffer = Buffer::new(0x10_0000 * (host as u64 + 1), LEN);
            let key = nic.reg_mr(pd, &buffer, Access::LOCAL_WRITE | Access::REMOTE_WRITE).unwrap();
            let caps = Caps { max_send_wr: 16, max_recv_wr: 16, max_send_sge: 1, max_recv_sge: 1, max_inline: 0 };
            let init = QpInit::new(Transport::Rc.kind(), pd, cq, cq, caps);
            let qpn = nic.create_qp(&init).unwrap();
            sim.add_node(Box::new(nic));
            hosts.push(Host { qpn, cq, buffer, key });
        }
        let config = SwitchConfig { mac: OWN, max_frame, max_frames: 1024, elided: false, seed };
        let mut switch = Switch::new(config);
        let target = |host: &Host| Target { start: host.buffer.addr(), rkey: host.key };
        switch
            .add_group(GroupSpec {
                sender: ip(0),
                mc_id: MC_ID,
                merge: Some(MergeSpec { qpn: hosts[0].qpn, psn: first }),
                receivers: (1..=receivers)
                    .map(|h| Receiver { address: ip(h), qpn: hosts[h].qpn, mac: Some(mac(h)), branch: None })
                    .collect(),
                ranges: vec![Range {
                    start: VIRTUAL,
                    len: LEN as u64,
                    rkey: KEY,
                    targets: hosts[1..].iter().map(target).collect(),
                }],
            })
            .unwrap();
        for host in 0..=receivers {
            let port = switch.add_port(Policy { limit: 1 << 20, red: None });
            switch.add_mac(mac(host), port);
        }
        let switch = sim.add_node(Box::new(switch));
        for host in 0..=receivers {
            let config = link(host, faults.get(host).unwrap_or(&""));
            let ends = [End { node: host, port: Nic::WIRE }, End { node: switch, port: host }];
            sim.add_link(ends[0], ends[1], &config, Direction::Ab, seed + host as u64);
            sim.add_link(ends[1], ends[0], &config, Direction::Ba, seed + 100 + host as u64);
        }
        let mut world = World { sim, hosts, switch };
        for host in 0..=receivers {
            let (peer, dest_qp) = if host == 0 { (1, MC_ID) } else { (0, world.hosts[0].qpn) };
            let qpn = world.hosts[host].qpn;
            let nic = world.sim.nic(host);
            let connection = Connection {
                path: nic.path_to(ip(peer), mac(peer), qpn.value()),
                dest_qp,
                mtu: PathMtu::B1024,
                sq_psn: first,
                rq_psn: first,
                timeout: 8,
                ..Connection::default()
            };
            nic.connect(qpn, &connection).unwrap();
        }
        world
    }

    fn write(&mut self, op: SendOp, bytes: &[u8]) {
        let Host { qpn, buffer, key, .. } = &self.hosts[0];
        buffer.write_at(0, bytes);
        let sge = [Sge { addr: buffer.addr(), len: bytes.len() as u32, lkey: *key }];
        let flags = SendFlags { signaled: true, ..SendFlags::default() };
        let wr = SendWr { wr_id: 1, op, data: Data::Gather(&sge), flags, best_effort: None, to: None };
        let now = self.sim.now().instant();
        self.sim.nic(0).post_send(now, *qpn, &wr).unwrap();
        self.sim.touch(0);
    }

    /// Until the sender's work is done.
    fn completion(&mut self) -> Status {
        loop {
            let cq = self.hosts[0].cq;
            if let Some(completion) = self.sim.nic(0).poll_cq(cq).unwrap() {
                return completion.status;
            }
            self.sim.step().expect("timers are there until it is done");
        }
    }

    fn memory(&self, host: usize, len: usize) -> Vec<u8> {
        let mut bytes = vec![0; len];
        self.hosts[host].buffer.read_at(0, &mut bytes);
        bytes
    }

    fn report(&mut self) -> softnic_switch::GroupReport {
        let switch = self.sim.node::<Switch>(self.switch).unwrap();
        switch.group(Instant::ZERO, ip(0), MC_ID).unwrap()
    }
}

fn pattern(seed: u64) -> Vec<u8> {
    (0..LEN as u64).map(|i| ((i + seed).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 40) as u8).collect()
}

const WRITE: SendOp = SendOp::Write { remote_addr: VIRTUAL, rkey: KEY };

#[test]
fn one_write_is_in_all_memories_when_it_completes() {
    let mut world = World::new(3, &[], Psn::new(100), 1);
    world.write(WRITE, &pattern(1));
    assert_eq!(world.completion(), Status::Success);
    for host in 1..=3 {
        assert!(world.memory(host, LEN) == pattern(1), "receiver {host}");
    }
    let report = world.report();
    assert_eq!((report.counters.packets_in, report.counters.copies), (40, 120));
    assert_eq!(report.merged_psn, Some(Psn::new(139)));
    assert_eq!(report.counters.bad, 0);
}

#[test]
fn losses_anywhere_and_psns_that_wrap_change_nothing_but_the_time() {
    let faults = ["", "loss=0.03", "loss=0.03,dup=0.05", "loss=0.02,reorder=0.05:3,corrupt=0.02"];
    for seed in 0..40 {
        let mut world = World::new(3, &faults, Psn::MAX.sub(20), 1000 * seed);
        for message in 0..3 {
            world.write(WRITE, &pattern(seed + message));
            assert_eq!(world.completion(), Status::Success, "seed {seed}");
            for host in 1..=3 {
                assert!(world.memory(host, LEN) == pattern(seed + message), "seed {seed}, receiver {host}");
            }
        }
    }
}

#[test]
fn a_write_outside_all_ranges_is_refused_and_touches_nobody() {
    let mut world = World::new(2, &[], Psn::new(0), 1);
    world.write(WRITE, &pattern(1));
    world.write(SendOp::Write { remote_addr: VIRTUAL + LEN as u64, rkey: KEY }, &pattern(2)[..1]);
    assert_eq!(world.completion(), Status::Success);
    assert_eq!(world.completion(), Status::RemAccessErr);
    assert!((1..=2).all(|host| world.memory(host, LEN) == pattern(1)));
    assert_eq!(world.report().counters.refused, 1);
}

#[test]
fn a_read_from_many_memories_is_refused_in_its_turn() {
    let mut world = World::new(2, &["", "ba.loss=0.2", ""], Psn::new(0), 3);
    world.write(WRITE, &pattern(1));
    world.write(SendOp::Read { remote_addr: VIRTUAL, rkey: KEY }, &pattern(1)[..100]);
    assert_eq!(world.completion(), Status::Success);
    assert_eq!(world.completion(), Status::RemInvReqErr);
}
