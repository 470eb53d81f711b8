//! One WRITE, many memories: NICs of ours in four namespaces around a switch that is told of their group while it runs.

use std::net::IpAddr;
use std::time::Instant;

use serde_json::{Value, json};
use softnic_runtime::api::{
    Access, CompletionQueue, Connection, Context, Data, DeviceSpec, MemoryRegion, OpenOptions, ProtectionDomain, Psn,
    QpKind, QpOptions, Qpn, QueuePair, RecvWr, SendFlags, SendOp, SendWr, Status,
};

use crate::star::{Control, HOSTS, LIMIT, Star, scratch};

const MC_ID: Qpn = Qpn::new(0x77_7777);
const FIRST: Psn = Psn::new(0xff_fff0);
/// Where the sender believes that the memory is, and with which key.
const START: u64 = 0xffff_dead_0000_0000;
const KEY: u32 = 0x1234;
const SIZE: usize = 1 << 20;

/// A NIC with memory and a queue pair.
struct Host {
    // Queue pairs and memory go before their NIC.
    qp: QueuePair,
    mr: MemoryRegion,
    cq: CompletionQueue,
    _pd: ProtectionDomain,
    context: Context,
}

impl Host {
    fn new(star: &Star, name: &str, fault: &str) -> Host {
        let fault = (!fault.is_empty()).then(|| fault.parse().expect("a SPEC"));
        let options = OpenOptions { fault, ..OpenOptions::default() };
        let device = DeviceSpec::afxdp("e");
        let context = star.inside(name, || Context::open(&device, &options).expect("a NIC"));
        let pd = context.alloc_pd();
        let cq = context.create_cq(1024).expect("a queue");
        let mr = pd.alloc_mr(SIZE, Access::LOCAL_WRITE | Access::REMOTE).expect("memory");
        let qp = pd.create_qp(&QpOptions::new(QpKind::Rc, &cq)).expect("a queue pair");
        Host { qp, mr, cq, _pd: pd, context }
    }

    fn connect(&self, to: IpAddr, qpn: Qpn) {
        let path = self.context.path_to(to, self.qp.qpn().value()).expect("a path");
        self.qp.connect(&Connection { timeout: 14, ..Connection::new(path, qpn, FIRST, FIRST) }).expect("connected");
    }

    fn memory(&self, len: usize) -> Vec<u8> {
        let mut bytes = vec![0; len];
        self.mr.read_at(0, &mut bytes);
        bytes
    }
}

fn pattern(len: usize, seed: u64) -> Vec<u8> {
    (0..len as u64).map(|i| ((i + seed).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 40) as u8).collect()
}

struct World {
    /// The sender first.
    hosts: Vec<Host>,
    addresses: Vec<IpAddr>,
}

impl World {
    fn new(star: &Star, addresses: [&str; 4], faults: [&str; 4]) -> World {
        let hosts = HOSTS.iter().zip(faults).map(|(name, fault)| Host::new(star, name, fault)).collect();
        World { hosts, addresses: addresses.map(|a| a.parse().expect("one")).to_vec() }
    }

    /// The first receiver by its MAC address, all others by route and ARP.
    fn group(&self) -> Value {
        let receivers = self.hosts.iter().zip(&self.addresses).skip(1).enumerate().map(|(i, (host, address))| {
            let mut receiver = json!({ "address": address, "qpn": host.qp.qpn().value() });
            if i == 0 {
                receiver["mac"] = "02:00:00:00:78:02".into();
            }
            receiver
        });
        let targets = self.hosts[1..].iter().map(|host| json!({ "start": host.mr.addr(), "rkey": host.mr.rkey() }));
        json!({
            "sender": self.addresses[0], "mc_id": MC_ID.value(),
            "qpn": self.hosts[0].qp.qpn().value(), "psn": FIRST.value(),
            "receivers": receivers.collect::<Vec<_>>(),
            "ranges": [{ "start": format!("{START:#x}"), "length": SIZE, "rkey": KEY, "targets": targets.collect::<Vec<_>>() }],
        })
    }

    fn connect(&self) {
        let sender = self.hosts[0].qp.qpn();
        for host in &self.hosts[1..] {
            host.connect(self.addresses[0], sender);
        }
        self.hosts[0].connect(self.addresses[1], MC_ID);
    }

    fn post(&self, op: SendOp, bytes: &[u8]) {
        let sender = &self.hosts[0];
        sender.mr.write_at(0, bytes);
        let sges = [sender.mr.sge(0, bytes.len())];
        let flags = SendFlags { signaled: true, ..SendFlags::default() };
        let wr = SendWr { wr_id: 7, op, data: Data::Gather(&sges), flags, best_effort: None, to: None };
        sender.qp.post_send(&wr).expect("posted");
    }

    /// The next completion of a host.
    fn completion(&self, host: usize) -> Status {
        let begin = Instant::now();
        loop {
            for host in &self.hosts {
                host.context.progress();
            }
            if let Some(done) = self.hosts[host].cq.poll_one().expect("a queue") {
                return done.status;
            }
            assert!(begin.elapsed() < LIMIT, "host {host}: no completion");
            std::thread::yield_now();
        }
    }

    fn holds(&self, bytes: &[u8]) -> bool {
        self.hosts[1..].iter().all(|host| host.memory(bytes.len()) == bytes)
    }
}

const WRITE: SendOp = SendOp::Write { remote_addr: START, rkey: KEY };

/// WRITEs and SENDs until loss had its chance; the group as the switch tells of it at the end.
fn run(mtu: u32, addresses: [&str; 4], own: &str, faults: [&str; 4]) -> Option<Value> {
    let star = Star::flat(mtu)?;
    let path = scratch("control");
    let switch = star.switch(own, "", &["--json", "--control", &format!("unix:{}", path.display())]);
    assert!(switch.said.contains(&format!("control at unix:{}", path.display())), "{}", switch.said);
    let world = World::new(&star, addresses, faults);
    let mut control = Control::connect(&path);
    let answer = control.ask(&json!({ "command": "add", "group": world.group() }));
    assert_eq!(answer, json!({ "ok": true }));
    world.connect();
    for (round, len) in [0, 1, 100_000, SIZE, 5000, SIZE, SIZE / 2].into_iter().enumerate() {
        let bytes = pattern(len, round as u64);
        world.post(WRITE, &bytes);
        assert_eq!(world.completion(0), Status::Success, "WRITE of {len} bytes");
        assert!(world.holds(&bytes), "WRITE of {len} bytes");
        let bytes = pattern(len, 100 + round as u64);
        for host in &world.hosts[1..] {
            host.qp.post_recv(&RecvWr { wr_id: 9, sges: &[host.mr.sge(0, SIZE)], best_effort: None }).expect("posted");
        }
        world.post(SendOp::Send, &bytes);
        for host in 0..4 {
            assert_eq!(world.completion(host), Status::Success, "SEND of {len} bytes, host {host}");
        }
        assert!(world.holds(&bytes), "SEND of {len} bytes");
    }
    let listed = control.ask(&json!({ "command": "list" }));
    assert_eq!((listed["groups"].as_array().map(Vec::len), &listed["ok"]), (Some(1), &true.into()), "{listed}");
    let group = listed["groups"][0].clone();
    // Only what a range covers is anybody's.
    world.post(SendOp::Write { remote_addr: START + SIZE as u64, rkey: KEY }, &[1]);
    assert_eq!(world.completion(0), Status::RemAccessErr);
    let name = json!({ "command": "remove", "sender": addresses[0], "mc_id": format!("{:#x}", MC_ID.value()) });
    assert_eq!(control.ask(&name), json!({ "ok": true }));
    assert!(control.ask(&name)["error"].as_str().is_some_and(|e| e.contains("there is no group")));
    let status = control.ask(&json!({ "command": "status" }));
    assert!(status["ok"] == true && status["ports"].as_array().map(Vec::len) == Some(4), "{status}");
    drop(world);
    let summary = switch.summary();
    assert_eq!(summary["tables"]["groups"]["used"], 0, "{summary}");
    assert!(!path.exists(), "the socket goes with the switch");
    Some(group)
}

fn count(v: &Value, name: &str) -> u64 {
    v[name].as_u64().unwrap_or_else(|| panic!("no {name} in {v}"))
}

#[test]
fn a_write_and_a_send_are_in_three_memories_when_they_complete_although_a_branch_loses_packets() {
    let lossy = "loss=0.03,rx.loss=0.03";
    let v4 = ["10.78.0.1", "10.78.0.2", "10.78.0.3", "10.78.0.4"];
    let own = "mac = \"02:00:00:00:78:fe\"\naddresses = [\"10.78.0.254/24\"]\n";
    let Some(group) = run(4200, v4, own, ["", "", lossy, ""]) else { return };
    assert!(count(&group, "copies") >= 3 * count(&group, "packets_in") - 100, "{group}");
    assert!(count(&group, "naks") > 0 && count(&group, "acks_in") > count(&group, "acks_out"), "{group}");
    let members = group["members"].as_array().expect("a list");
    for member in members {
        assert_eq!((&member["behind"], &member["acked_psn"]), (&0.into(), &group["merged_psn"]), "{group}");
        assert!(member["last_heard_ms"].is_u64(), "{group}");
    }
    let v6 = ["fd78::1", "fd78::2", "fd78::3", "fd78::4"];
    let own = "mac = \"02:00:00:00:78:fe\"\naddresses = [\"fd78::fe/64\"]\n";
    let Some(group) = run(1500, v6, own, ["", "", "", lossy]) else { return };
    assert!(count(&group, "naks") > 0 && count(&group, "refused") == 0, "{group}");
}

#[test]
fn a_client_is_told_what_is_wrong_and_can_go_on() {
    let Some(star) = Star::flat(1500) else { return };
    let path = scratch("control");
    let switch = star.switch("", "", &["--json", "--control", &format!("unix:{}", path.display())]);
    let mut control = Control::connect(&path);
    let receiver = json!({ "address": "10.78.0.2", "qpn": 5 });
    let add = |group: Value| json!({ "command": "add", "group": group });
    for (group, words) in [
        (json!({ "sender": "10.78.0.1", "mc_id": 7, "receivers": [] }), "at least one receiver"),
        (json!({ "sender": "10.78.0.1", "mc_id": 7, "receivers": [receiver, receiver] }), "two receivers"),
        (json!({ "sender": "10.78.0.2", "mc_id": 7, "receivers": [receiver] }), "is among the receivers"),
        (json!({ "sender": "fd78::1", "mc_id": 7, "receivers": [receiver] }), "IP version"),
        (json!({ "sender": "10.78.0.1", "mc_id": 0xffffff, "receivers": [receiver] }), "reserved"),
        (json!({ "sender": "10.78.0.1", "mc_id": 7, "receivers": [receiver], "x": 1 }), "unknown field `x`"),
    ] {
        let answer = control.ask(&add(group));
        assert!(answer["error"].as_str().is_some_and(|e| e.contains(words)), "{answer}");
    }
    for line in ["nonsense", "{}", "[]", "{\"command\":\"dance\"}", "\u{0}"] {
        assert!(control.ask_line(line)["error"].is_string(), "{line}");
    }
    let group = json!({ "sender": "10.78.0.1", "mc_id": 7, "receivers": [receiver] });
    assert_eq!(control.ask(&add(group.clone()))["ok"], true);
    assert!(control.ask(&add(group))["error"].as_str().is_some_and(|e| e.contains("already")));
    // A line without end, and more clients than there may be: who asks is answered, who is silent is put out.
    let mut endless = Control::connect(&path);
    let said = endless.ask_line(&"x".repeat((4 << 20) + 1));
    assert!(said["error"].as_str().is_some_and(|e| e.contains("bytes")), "{said}");
    let status = json!({ "command": "status" });
    assert_eq!(control.ask(&status)["ok"], true);
    let mut silent: Vec<Control> = (0..15).map(|_| Control::connect(&path)).collect();
    silent.iter_mut().for_each(|client| assert_eq!(client.ask(&status)["ok"], true));
    for _ in 0..16 {
        assert_eq!(control.ask(&status)["ok"], true);
        silent.push(Control::connect(&path));
        assert_eq!(silent.last_mut().expect("one").ask(&status)["ok"], true);
    }
    assert_eq!(control.ask(&json!({ "command": "list" }))["groups"].as_array().map(Vec::len), Some(1));
    assert_eq!(switch.summary()["groups"][0]["mc_id"], 7);
}
