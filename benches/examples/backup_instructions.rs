//! A fixed number of RC WRITEs of 64 bytes between two NICs, with or without a backup beside each: to count under callgrind what a backup costs
//! while nothing fails. `docs/performance.md` has the command.
#![allow(clippy::print_stdout)]

use std::net::IpAddr;
use std::sync::Arc;

use softnic_nic::transports::memory::Access;
use softnic_nic::transports::qp::{Caps, PayloadMode};
use softnic_nic::transports::{CqId, Data, SendFlags, SendOp, SendWr, Sge};
use softnic_nic::{Buffer, Connection, Nic, NicConfig, Port, QpInit, QpKind};
use softnic_shift::{Config, DualNic, Request};
use softnic_wire::{Instant, MacAddr, Node, PathMtu, Psn, Qpn, TxFrame};

/// WRITEs outstanding, and their bytes.
const DEPTH: usize = 16;
const LEN: u32 = 64;
const FRAME: usize = 512;
/// The wires: of the defaults, and of the backups.
const PORTS: [usize; 2] = [Nic::WIRE, DualNic::BACKUP];

struct Host {
    node: DualNic,
    cq: CqId,
    qpn: Qpn,
    buffer: Arc<Buffer>,
    key: u32,
}

fn address(host: u8, backup: bool) -> (IpAddr, MacAddr) {
    let net = u8::from(backup);
    (IpAddr::from([10, net, 0, host]), MacAddr([2, 0, net, 0, 0, host]))
}

fn random(seed: u32) -> impl FnMut() -> u32 + Send + 'static {
    let mut state = seed;
    move || {
        state = state.wrapping_mul(0x0019_660d).wrapping_add(0x3c6e_f35f);
        state ^ state >> 15
    }
}

fn nic(host: u8, backup: bool) -> Nic {
    let (ip, mac) = address(host, backup);
    let port = Port { mac, addresses: vec![ip], mtu: PathMtu::B4096 };
    Nic::new(NicConfig { port, payload: PayloadMode::Real }, Box::new(random(u32::from(host) * 2 + u32::from(backup))))
}

fn host(number: u8, has_backup: bool) -> Host {
    let mut node = match has_backup {
        false => DualNic::single(nic(number, false)),
        true => DualNic::new(nic(number, false), nic(number, true), Config::default(), Box::new(random(99))),
    };
    let pd = node.nic.alloc_pd();
    node.shadow_pd(pd);
    let cq = node.nic.create_cq(2 * DEPTH);
    let buffer = Buffer::new(0x1000_0000, 4096);
    let access = Access::LOCAL_WRITE | Access::REMOTE;
    let key = node.nic.reg_mr(pd, &buffer, access).expect("room");
    if has_backup {
        node.shadow_mr(key, pd, &buffer, access, None).expect("room");
    }
    let caps = Caps { max_send_wr: DEPTH as u32, max_recv_wr: 1, max_send_sge: 1, max_recv_sge: 1, max_inline: 0 };
    let qpn = node.create_qp(&QpInit::new(QpKind::Rc, pd, cq, cq, caps)).expect("room");
    Host { node, cq, qpn, buffer, key }
}

fn connect(host: &mut Host, peer: u8, dest_qp: Qpn) {
    let (ip, mac) = address(peer, false);
    let psn = Psn::new(7);
    let path = host.node.nic.path_to(ip, mac, host.qpn.value());
    let mtu = PathMtu::B4096;
    let connection = Connection { path, dest_qp, mtu, sq_psn: psn, rq_psn: psn, ..Connection::default() };
    host.node.nic.connect(host.qpn, &connection).expect("the settings of a connection");
}

/// Carries all frames of one host to the other; whether there were any.
#[inline(never)]
fn carry(now: Instant, from: &mut Host, to: &mut Host, ports: &[usize]) -> bool {
    let (mut any, mut room) = (false, [0; FRAME]);
    for &port in ports {
        loop {
            let mut tx = TxFrame::new(&mut room);
            if !from.node.poll_transmit(now, port, &mut tx) {
                break;
            }
            let len = tx.segments().0.len();
            to.node.handle_frame(now, port, &mut room[..len]);
            any = true;
        }
    }
    any
}

/// Answers what a host asks about its backup.
fn attend(now: Instant, host: &mut Host, peer: u8) {
    while let Some(Request::Path { qpn, peer: ip }) = host.node.poll_request() {
        let mac = address(peer, true).1;
        let path = host.node.backup().and_then(|backup| backup.path_to(ip, mac, qpn.value()));
        host.node.set_backup_path(now, qpn, path);
    }
}

/// Posts a round, and takes its completions.
#[inline(never)]
fn round(
    now: Instant,
    a: &mut Host,
    b: &mut Host,
    wr: &SendWr<'_>,
    ports: &[usize],
    connection: Option<usize>,
) -> usize {
    // As the engine of a NIC does it.
    let direct = connection.is_none_or(|at| a.node.is_direct(at));
    let mut messages = 0;
    for _ in 0..DEPTH {
        match connection {
            Some(at) if !direct => a.node.write_send(at, wr),
            _ => a.node.nic.write_checked_send(a.qpn, wr),
        }
        .expect("room");
        messages += u32::from(wr.op.uses_receive());
    }
    match connection {
        None => a.node.nic.ring_doorbell(now, a.qpn),
        Some(at) if direct => a.node.ring_direct(now, at, messages),
        Some(at) => a.node.ring_doorbell(now, at),
    }
    while carry(now, a, b, ports) | carry(now, b, a, ports) {}
    std::iter::from_fn(|| a.node.poll_cq(a.cq).ok().flatten()).count()
}

fn main() {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let Some(rounds) = args.first().and_then(|word| word.parse::<usize>().ok()) else {
        println!("usage: backup_instructions ROUNDS [backup]\nexample: backup_instructions 1000 backup");
        return;
    };
    let has_backup = args.get(1).is_some_and(|word| word == "backup");
    let ports = &PORTS[..1 + usize::from(has_backup)];
    let (mut a, mut b) = (host(1, has_backup), host(2, has_backup));
    let qpns = [a.qpn, b.qpn];
    connect(&mut a, 2, qpns[1]);
    connect(&mut b, 1, qpns[0]);
    let mut now = Instant::from_nanos(1);
    if has_backup {
        a.node.protect(now, qpns[0]).expect("a backup");
        b.node.protect(now, qpns[1]).expect("a backup");
        while !(a.node.is_protected(qpns[0]) && b.node.is_protected(qpns[1])) {
            while carry(now, &mut a, &mut b, ports) | carry(now, &mut b, &mut a, ports) {}
            attend(now, &mut a, 2);
            attend(now, &mut b, 1);
            now = a.node.poll_timeout().into_iter().chain(b.node.poll_timeout()).min().unwrap_or(now);
            [&mut a, &mut b].into_iter().for_each(|host| host.node.handle_timeout(now));
        }
    }
    let sges = [Sge { addr: a.buffer.addr(), len: LEN, lkey: a.key }];
    let op = SendOp::Write { remote_addr: b.buffer.addr(), rkey: b.key };
    let flags = SendFlags { signaled: true, ..SendFlags::default() };
    let wr = SendWr { wr_id: 1, op, data: Data::Gather(&sges), flags, best_effort: None, to: None };
    let connection = a.node.connection(a.qpn);
    let done: usize = (0..rounds).map(|_| round(now, &mut a, &mut b, &wr, ports, connection)).sum();
    println!("{done} messages");
}
