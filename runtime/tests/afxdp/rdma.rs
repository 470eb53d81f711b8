//! Two NICs, each with a thread and a namespace of its own, exchange data over AF_XDP.

use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::Duration;

use softnic_nic::transports::memory::Access;
use softnic_nic::transports::qp::{Caps, PayloadMode, QpState};
use softnic_nic::transports::{CqId, Data, SendFlags, SendOp, SendWr, Sge, Status};
use softnic_nic::{Buffer, Nic, NicConfig, Port, QpAttr, QpInit, QpKind};
use softnic_runtime::afxdp::Options;
use softnic_runtime::{Driver, Faulty, Neighbours, OsRandom, PacketIo};
use softnic_wire::{PathMtu, Psn, Qpn};

use crate::veth::{Veth, longest_mtu};

const LIMIT: Duration = Duration::from_secs(60);
const SIZE: usize = 1 << 20;

type Io = Box<dyn PacketIo + Send>;

/// What each side must know of the other.
#[derive(Clone, Copy)]
struct End {
    qpn: Qpn,
    addr: u64,
    key: u32,
}

/// The way to tell the other side, and to be told.
type Ends = (Sender<End>, Receiver<End>);

struct Host {
    driver: Driver<Nic, Io>,
    cq: CqId,
    buffer: Arc<Buffer>,
    end: End,
}

fn host(veth: &Veth, side: usize, io: Io) -> Host {
    let port = Port { mac: veth.mac(side), addresses: vec![veth.address(side).into()], mtu: PathMtu::B4096 };
    let neighbours = Neighbours::new(&port);
    let mut nic = Nic::new(NicConfig { port, payload: PayloadMode::Real }, Box::new(OsRandom::new().unwrap()));
    let pd = nic.alloc_pd();
    let cq = nic.create_cq(16);
    let all = Access::LOCAL_WRITE | Access::REMOTE_WRITE;
    let buffer = Buffer::new(0x100_0000 * (1 + side as u64), SIZE);
    let key = nic.reg_mr(pd, &buffer, all).unwrap();
    let caps = Caps { max_send_wr: 8, max_recv_wr: 8, max_send_sge: 1, max_recv_sge: 1, max_inline: 0 };
    let qpn = nic.create_qp(&QpInit { sig_all: true, ..QpInit::new(QpKind::Rc, pd, cq, cq, caps) }).unwrap();
    let end = End { qpn, addr: buffer.addr(), key };
    Host { driver: Driver::new(nic, io, neighbours), cq, buffer, end }
}

/// From RESET to RTS. The kernel answers ARP on these devices, so MAC addresses are told and not asked for.
fn connect(host: &mut Host, veth: &Veth, peer: usize, theirs: End, mtu: PathMtu) {
    let (nic, qpn) = (&mut host.driver.node, host.end.qpn);
    let address: IpAddr = veth.address(peer).into();
    let steps = [
        QpAttr {
            state: Some(QpState::Init),
            pkey_index: Some(0),
            port: Some(1),
            access: Some(Access::LOCAL_WRITE | Access::REMOTE_WRITE),
            ..QpAttr::default()
        },
        QpAttr {
            state: Some(QpState::ReadyToReceive),
            path: nic.path_to(address, veth.mac(peer), qpn.value()),
            mtu: Some(mtu),
            dest_qp: Some(theirs.qpn),
            rq_psn: Some(Psn::new(7)),
            max_dest_rd_atomic: Some(1),
            min_rnr_timer: Some(12),
            ..QpAttr::default()
        },
        QpAttr {
            state: Some(QpState::ReadyToSend),
            sq_psn: Some(Psn::new(7)),
            timeout: Some(12),
            retry_cnt: Some(7),
            rnr_retry: Some(7),
            max_rd_atomic: Some(1),
            ..QpAttr::default()
        },
    ];
    steps.iter().for_each(|step| nic.modify_qp(qpn, step).unwrap());
}

fn data() -> Vec<u8> {
    (0..SIZE as u32).map(|i| ((i * 31) >> 5) as u8).collect()
}

fn writer(veth: &Veth, io: Io, mtu: PathMtu, (tell, ask): Ends) {
    let mut host = host(veth, 0, io);
    tell.send(host.end).unwrap();
    let theirs = ask.recv().unwrap();
    connect(&mut host, veth, 1, theirs, mtu);
    host.buffer.write_at(0, &data());
    let sge = Sge { addr: host.buffer.addr(), len: SIZE as u32, lkey: host.end.key };
    let op = SendOp::Write { remote_addr: theirs.addr, rkey: theirs.key };
    let flags = SendFlags::default();
    let wr = SendWr { wr_id: 5, op, data: Data::Gather(&[sge]), flags, best_effort: None, to: None };
    let (now, cq) = (host.driver.now(), host.cq);
    host.driver.node.post_send(now, host.end.qpn, &wr).unwrap();
    let mut completion = None;
    let done = host.driver.run_until(LIMIT, |nic| {
        completion = nic.poll_cq(cq).unwrap();
        completion.is_some()
    });
    assert!(done.unwrap(), "the WRITE does not complete");
    assert_eq!(completion.unwrap().status, Status::Success);
}

fn target(veth: &Veth, io: Io, mtu: PathMtu, (tell, ask): Ends, done: &AtomicBool) {
    let mut host = host(veth, 1, io);
    tell.send(host.end).unwrap();
    connect(&mut host, veth, 0, ask.recv().unwrap(), mtu);
    host.driver.run_until(LIMIT, |_| done.load(Ordering::Acquire)).unwrap();
    let mut found = vec![0; SIZE];
    host.buffer.read_at(0, &mut found);
    assert!(found == data(), "the data is another");
}

/// A WRITE from the first side to the second.
fn write(veth: &Veth, mtu: PathMtu, faults: &str) {
    let [a, b] = [0, 1].map(|side| {
        let io = veth.open(side, &Options::default()).remove(0);
        let io: Io =
            if faults.is_empty() { Box::new(io) } else { Box::new(Faulty::new(io, &faults.parse().unwrap(), 3)) };
        io
    });
    let ((tell_a, ask_b), (tell_b, ask_a)) = (channel(), channel());
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let first = scope.spawn(move || writer(veth, a, mtu, (tell_a, ask_a)));
        let second = scope.spawn(|| target(veth, b, mtu, (tell_b, ask_b), &done));
        let wrote = first.join();
        done.store(true, Ordering::Release);
        let found = second.join();
        [wrote, found].into_iter().for_each(|end| end.unwrap_or_else(|panic| std::panic::resume_unwind(panic)));
    });
}

#[test]
fn a_write_of_a_mebibyte_at_both_kinds_of_mtu() {
    let Some(veth) = Veth::new(1, 4300) else { return };
    for mtu in [PathMtu::B1024, longest_mtu()] {
        write(&veth, mtu, "");
    }
}

#[test]
fn a_write_of_a_mebibyte_through_losses_and_copies() {
    let Some(veth) = Veth::new(1, 4300) else { return };
    for mtu in [PathMtu::B1024, longest_mtu()] {
        write(&veth, mtu, "loss=1e-3,dup=1e-2,delay=50us");
    }
}
