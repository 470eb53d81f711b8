//! `cargo xtask switch --bench`: rates of a switch on veth pairs, as ratios of one run: forwarding against `softnic wire`, and a group
//! of two against the same data sent twice.

use std::net::IpAddr;
use std::time::{Duration, Instant};

use softnic_nic::QpKind;
use softnic_nic::transports::memory::Access;
use softnic_nic::transports::{Data, SendFlags, SendOp, SendWr, Status};
use softnic_runtime::api::{
    CompletionQueue, Connection, Context, DeviceSpec, MemoryRegion, OpenOptions, ProtectionDomain, QpOptions, QueuePair,
};
use softnic_runtime::bump::{Bump, Options as WireOptions};
use softnic_runtime::switch::{Options as SwitchOptions, PortOptions, WireSwitch};
use softnic_switch::group::{GroupSpec, MergeSpec, Range, Receiver, Target};
use softnic_wire::{MacAddr, Psn, Qpn};

use crate::guest::{Error, Space, catch_interrupts, interrupted};

/// A sender and two receivers.
const HOSTS: usize = 3;
/// A path MTU of 4096 bytes, with every header.
const LINK_MTU: u32 = 4200;
const LEN: usize = 64 << 10;
/// WRITEs that are under way.
const DEPTH: usize = 64;
const TIME: Duration = Duration::from_millis(700);
/// Each is measured so often, in turns.
const TURNS: usize = 7;
const MC_ID: u32 = 0x77_7777;
const PSN: Psn = Psn::new(1000);
/// What must be reached.
const FORWARDING: f64 = 0.7;
const GROUP: f64 = 1.15;
/// Frames from the sender, a group's of fan-out's: half, but for what is sent again and answered.
const FRAMES: f64 = 0.55;

fn refused(e: impl std::fmt::Display) -> Error {
    Error::Failed(e.to_string())
}

fn mac(host: usize) -> MacAddr {
    MacAddr([2, 0, 0, 0x36, 0, host as u8 + 1])
}

fn address(host: usize) -> IpAddr {
    [10, 36, 0, host as u8 + 1].into()
}

/// The interface of the switch, or of the wire, towards a host.
fn port(host: usize) -> String {
    format!("snport{host}")
}

/// A NIC in a namespace of its own.
struct Host {
    context: Context,
    pd: ProtectionDomain,
    cq: CompletionQueue,
    memory: MemoryRegion,
    _space: Space,
}

impl Host {
    fn new(host: usize, hub: &Space) -> Result<Host, Error> {
        let space = Space::new(&format!("host{host}"))?;
        let port = port(host);
        space.ip(&format!("link add snhost type veth peer name {port} netns {}", hub.name()))?;
        space.ip(&format!("link set snhost address {} mtu {LINK_MTU}", mac(host)))?;
        space.ip(&format!("address add {}/24 dev snhost", address(host)))?;
        space.ip("link set snhost up")?;
        hub.ip(&format!("link set {port} mtu {LINK_MTU} addrgenmode none"))?;
        hub.ip(&format!("link set {port} up"))?;
        let device = DeviceSpec::afxdp("snhost");
        let context = space
            .inside(|| Context::open(&device, &OpenOptions::default()).map_err(|e| Error::Missing(e.to_string())))?;
        let (pd, cq) = (context.alloc_pd(), context.create_cq(4 * DEPTH).map_err(refused)?);
        let memory = pd.alloc_mr(LEN, Access::LOCAL_WRITE | Access::REMOTE).map_err(refused)?;
        Ok(Host { context, pd, cq, memory, _space: space })
    }

    fn queue_pair(&self) -> Result<QueuePair, Error> {
        self.pd.create_qp(&QpOptions::new(QpKind::Rc, &self.cq)).map_err(refused)
    }

    fn connect(&self, qp: &QueuePair, peer: usize, qpn: Qpn) -> Result<(), Error> {
        let path = self.context.path_to(address(peer), qp.qpn().value()).map_err(refused)?;
        let usual = Connection::new(path, qpn, PSN, PSN);
        qp.connect(&Connection { timeout: 17, ..usual }).map_err(refused)
    }
}

/// Where WRITEs of a queue pair go.
struct Way {
    qp: QueuePair,
    remote_addr: u64,
    rkey: u32,
    /// The receivers' queue pairs, which are there as long as this.
    _peers: Vec<QueuePair>,
}

/// A queue pair of the first host for each of these receivers.
fn fan_out(hosts: &[Host], receivers: &[usize]) -> Result<Vec<Way>, Error> {
    let way = |&host: &usize| {
        let (qp, peer) = (hosts[0].queue_pair()?, hosts[host].queue_pair()?);
        hosts[0].connect(&qp, host, peer.qpn())?;
        hosts[host].connect(&peer, 0, qp.qpn())?;
        let memory = &hosts[host].memory;
        Ok(Way { qp, remote_addr: memory.addr(), rkey: memory.rkey(), _peers: vec![peer] })
    };
    receivers.iter().map(way).collect()
}

/// A queue pair of the first host for both receivers.
fn group(hosts: &[Host], switch: &WireSwitch) -> Result<Vec<Way>, Error> {
    let qp = hosts[0].queue_pair()?;
    let peers = [hosts[1].queue_pair()?, hosts[2].queue_pair()?];
    let receiver = |(peer, host): (&QueuePair, usize)| Receiver {
        address: address(host),
        qpn: peer.qpn(),
        mac: Some(mac(host)),
        branch: None,
    };
    let target = |host: &Host| Target { start: host.memory.addr(), rkey: host.memory.rkey() };
    let (start, rkey) = (0x5000_0000, 0x1234);
    let spec = GroupSpec {
        sender: address(0),
        mc_id: Qpn::new(MC_ID),
        merge: Some(MergeSpec { qpn: qp.qpn(), psn: PSN }),
        receivers: peers.iter().zip(1..).map(receiver).collect(),
        ranges: vec![Range { start, len: LEN as u64, rkey, targets: hosts[1..].iter().map(target).collect() }],
    };
    switch.handle().add_group(spec).map_err(refused)?;
    hosts[0].connect(&qp, 1, Qpn::new(MC_ID))?;
    for (peer, host) in peers.iter().zip(1..) {
        hosts[host].connect(peer, 0, qp.qpn())?;
    }
    Ok(vec![Way { qp, remote_addr: start, rkey, _peers: peers.into() }])
}

/// WRITEs a second that are done on each way.
fn rate(sender: &Host, ways: &[Way]) -> Result<f64, Error> {
    let sge = [sender.memory.sge(0, LEN)];
    let post = |way: usize| {
        let Way { qp, remote_addr, rkey, .. } = &ways[way];
        let op = SendOp::Write { remote_addr: *remote_addr, rkey: *rkey };
        let flags = SendFlags { signaled: true, ..SendFlags::default() };
        let wr = SendWr { wr_id: way as u64, op, data: Data::Gather(&sge), flags, best_effort: None, to: None };
        qp.post_send(&wr).map_err(refused)
    };
    let begin = Instant::now();
    let (mut done, mut under_way) = (vec![0u64; ways.len()], 0);
    for way in 0..ways.len() {
        for _ in 0..DEPTH {
            post(way)?;
            under_way += 1;
        }
    }
    while under_way > 0 {
        let Some(c) = sender.cq.poll_one().map_err(refused)? else {
            sender.context.progress();
            continue;
        };
        if c.status != Status::Success {
            return Err(Error::Failed(format!("a WRITE ended in {}", c.status)));
        }
        under_way -= 1;
        let way = c.wr_id as usize;
        if begin.elapsed() < TIME {
            done[way] += 1;
            post(way)?;
            under_way += 1;
        }
    }
    let slowest = done.iter().min().copied().unwrap_or(0);
    Ok(slowest as f64 / TIME.as_secs_f64())
}

/// The one in the middle.
fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

fn gbps(rate: f64) -> f64 {
    rate * LEN as f64 * 8.0 / 1e9
}

pub(super) fn run() -> Result<(), Error> {
    catch_interrupts();
    let hub = Space::new("hub")?;
    let hosts = (0..HOSTS).map(|host| Host::new(host, &hub)).collect::<Result<Vec<_>, _>>()?;
    let forwarding = forwarding(&hub, &hosts)?;
    let (group, frames) = against_fan_out(&hub, &hosts)?;
    let verdict = |is: bool| if is { "reached" } else { "MISSED" };
    println!(
        "forwarding of the wire's rate: {forwarding:.2} (goal {FORWARDING}: {})",
        verdict(forwarding >= FORWARDING)
    );
    println!("a group of two of fan-out's goodput: {group:.2} (goal {GROUP}: {})", verdict(group >= GROUP));
    println!("frames from the sender, of fan-out's: {frames:.2} (goal below {FRAMES}: {})", verdict(frames <= FRAMES));
    match forwarding >= FORWARDING && group >= GROUP && frames <= FRAMES {
        true => Ok(()),
        false => Err(Error::Failed("not all goals are reached".into())),
    }
}

fn start_switch(hub: &Space) -> Result<WireSwitch, Error> {
    let options = SwitchOptions {
        ports: (0..HOSTS).map(|host| PortOptions::new(port(host))).collect(),
        macs: (0..HOSTS).map(|host| (mac(host), host)).collect(),
        ..SwitchOptions::default()
    };
    hub.inside(|| WireSwitch::start(&options).map_err(|e| Error::Missing(e.to_string())))
}

/// Between two hosts: the switch's rate of the wire's, the median of turns.
fn forwarding(hub: &Space, hosts: &[Host]) -> Result<f64, Error> {
    let mut ratios = Vec::new();
    for turn in 0..TURNS {
        let wire = WireOptions { a: port(0), b: port(1), ..WireOptions::default() };
        let wire = hub.inside(|| Bump::start(&wire).map_err(|e| Error::Missing(e.to_string())))?;
        let by_wire = rate(&hosts[0], &fan_out(hosts, &[1])?)?;
        wire.stop().map_err(refused)?;
        let switch = start_switch(hub)?;
        let by_switch = rate(&hosts[0], &fan_out(hosts, &[1])?)?;
        switch.stop().map_err(refused)?;
        println!("turn {turn}: wire {:6.2} Gbit/s, switch {:6.2} Gbit/s", gbps(by_wire), gbps(by_switch));
        ratios.push(by_switch / by_wire);
        stop_early()?;
    }
    Ok(median(ratios))
}

/// To two receivers: goodput of a group of that of two connections, and frames of the sender for each WRITE, likewise.
fn against_fan_out(hub: &Space, hosts: &[Host]) -> Result<(f64, f64), Error> {
    let (mut ratios, mut frames) = (Vec::new(), Vec::new());
    for turn in 0..TURNS {
        let mut measured = Vec::new();
        for as_group in [false, true] {
            let switch = start_switch(hub)?;
            let ways = if as_group { group(hosts, &switch)? } else { fan_out(hosts, &[1, 2])? };
            let rate = rate(&hosts[0], &ways)?;
            let sent = switch.stop().map_err(refused)?.ports[0].rx as f64;
            measured.push((rate, sent / rate));
        }
        let [(twice, twice_sent), (once, once_sent)] = measured[..] else { unreachable!("both were measured") };
        println!("turn {turn}: to each, fan-out {:6.2} Gbit/s, group {:6.2} Gbit/s", gbps(twice), gbps(once));
        ratios.push(once / twice);
        frames.push(once_sent / twice_sent);
        stop_early()?;
    }
    Ok((median(ratios), median(frames)))
}

fn stop_early() -> Result<(), Error> {
    match interrupted() {
        true => Err(Error::Failed("interrupted".into())),
        false => Ok(()),
    }
}
