//! Another process with a NIC, and what happens when it is killed.

use std::io::Write;

use softnic_nic::QpKind;
use softnic_nic::transports::{Data, Status};
use softnic_runtime::api::{Connection, Context, DeviceSpec, OpenOptions, QpOptions, QueuePair};
use softnic_wire::{Psn, Qpn};

use crate::process::{Process, say};
use crate::veth::Veth;
use crate::world::{LIMIT, Side, post};

const VARIABLE: &str = "SOFTNIC_TEST_VETH_PEER";
const PSN: Psn = Psn::new(77);

/// Starts a process in this role, by the words of `wrapper`.
pub(crate) fn start(wrapper: &str, role: &str) -> Process {
    Process::start(wrapper, "peer::is_what_it_is_told_to_be", VARIABLE, role)
}

fn tell(peer: &mut Process, line: &str) {
    writeln!(peer.child.stdin.as_mut().unwrap(), "{line}").unwrap();
}

#[test]
#[ignore = "only as a process of its own that other tests start"]
fn is_what_it_is_told_to_be() {
    let Ok(role) = std::env::var(VARIABLE) else { return };
    match role.split_once(' ') {
        None if role == "stop" => say(&crate::stop::open_and_close()),
        Some(("open", interface)) => match open(interface) {
            Ok(context) => say(&format!("opened {}", context.description())),
            Err(why) => say(&why),
        },
        Some(("fork", interface)) => say(&crate::fork::fork(interface)),
        Some(("serve", interface)) => serve(open(interface).unwrap()),
        _ => say("no such role"),
    }
}

fn heard() -> String {
    let mut line = String::new();
    std::io::stdin().read_line(&mut line).unwrap();
    line
}

fn open(interface: &str) -> Result<Context, String> {
    let device = DeviceSpec::afxdp(interface);
    Context::open(&device, &OpenOptions::default()).map_err(|e| e.to_string())
}

/// Lets a peer write to its memory while it sleeps.
fn serve(context: Context) {
    let side = Side::new(context);
    let qp = side.pd.create_qp(&QpOptions::new(QpKind::Rc, &side.cq)).unwrap();
    say(&format!("{} {} {}", qp.qpn().value(), side.mr.addr(), side.mr.rkey()));
    let theirs = Qpn::new(heard().trim().parse().unwrap());
    connect(&side, &qp, [10, 77, 0, 1].into(), theirs);
    heard();
}

fn connect(side: &Side, qp: &QueuePair, address: std::net::IpAddr, theirs: Qpn) {
    let path = side.context.path_to(address, 1).unwrap();
    qp.connect(&Connection { timeout: 13, ..Connection::new(path, theirs, PSN, PSN) }).unwrap();
}

#[test]
fn a_peer_that_is_killed_ends_in_an_error_and_flushes() {
    let Some(veth) = Veth::new(1, 1500) else { return };
    let inside = |side: usize| format!("ip netns exec {}", veth.namespaces[side]);
    let mut peer = start(&inside(1), &format!("serve {}", veth.interface(1)));
    let numbers: Vec<u64> = peer.said.split(' ').map(|n| n.parse().unwrap()).collect();
    let device = DeviceSpec::afxdp(veth.interface(0));
    let side = Side::new(veth.inside(0, || Context::open(&device, &OpenOptions::default()).unwrap()));
    let qp = side.pd.create_qp(&QpOptions::new(QpKind::Rc, &side.cq)).unwrap();
    tell(&mut peer, &qp.qpn().value().to_string());
    connect(&side, &qp, veth.address(1).into(), Qpn::new(numbers[0] as u32));
    assert!(veth.has_program(1));
    let op = softnic_nic::transports::SendOp::Write { remote_addr: numbers[1], rkey: numbers[2] as u32 };
    let write = |i| post(&qp, i, op, Data::Gather(&[side.mr.sge(0, 60_000)]));
    (0..64).for_each(write);
    let (mut went_well, mut statuses) = (0, Vec::new());
    let mut next = 64;
    while statuses.len() < 64 {
        assert!(side.cq.wait(LIMIT).unwrap(), "nothing ends any more after {went_well}, {statuses:?}");
        let Some(done) = side.cq.poll_one().unwrap() else { continue };
        if done.status != Status::Success {
            statuses.push(done.status);
            continue;
        }
        went_well += 1;
        // There are 64 under way when it is killed, and later.
        write(next);
        next += 1;
        if went_well == 200 {
            peer.kill();
        }
    }
    assert!(went_well >= 200);
    assert_eq!(statuses[0], Status::RetryExcErr);
    assert!(statuses[1..].iter().all(|&s| s == Status::WrFlushErr), "{statuses:?}");
    let counters = side.context.counters();
    assert!(counters.local_ack_timeout_err > 0 && counters.retry_exceeded_err == 1, "{counters:?}");
    veth.await_no_program(1);
    assert_eq!(side.context.failure(), None);
}
