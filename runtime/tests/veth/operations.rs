//! Every operation at every path MTU, over IPv4 and IPv6, with the data compared.

use std::net::IpAddr;
use std::time::{Duration, Instant};

use softnic_nic::transports::memory::{Access, Bind};
use softnic_nic::transports::negotiation::Choice;
use softnic_nic::transports::{Data, RecvWr, SendOp, SendWr, Status};
use softnic_nic::{QpKind, WindowType, next_key};
use softnic_runtime::api::QueuePair;
use softnic_wire::PathMtu;

use crate::veth::{left_out, longest_mtu, path_mtus};
use crate::world::{HALF, LIMIT, World, post, send_wr};

/// A message of several packets at every path MTU, with an odd end.
const LEN: usize = 3 * 4096 + 77;

/// SEND, SEND with immediate, WRITE with immediate: messages into a receive.
fn messages(w: &World, qps: &[QueuePair; 2]) {
    let [a, b] = &w.sides;
    let (remote_addr, rkey) = (b.mr.addr() + HALF as u64, b.mr.rkey());
    let ops = [SendOp::Send, SendOp::SendImm { imm: 0x1234_5678 }, SendOp::WriteImm { remote_addr, rkey, imm: 9 }];
    for (i, op) in ops.into_iter().enumerate() {
        let data = a.fill(LEN, i as u8);
        b.clear();
        b.post_recv(&qps[1], 50, LEN);
        post(&qps[0], 5, op, Data::Gather(&[a.mr.sge(0, LEN)]));
        let imm = match op {
            SendOp::SendImm { imm } | SendOp::WriteImm { imm, .. } => Some(imm),
            _ => None,
        };
        let got = w.success(1, 50);
        assert_eq!((got.byte_len as usize, got.imm, got.qpn), (LEN, imm, qps[1].qpn()), "{op:?}");
        assert!(b.received(LEN) == data, "{op:?}");
        w.success(0, 5);
    }
}

/// WRITE, READ and both atomics.
fn one_sided(w: &World, qps: &[QueuePair; 2]) {
    let [a, b] = &w.sides;
    w.write_and_compare(qps, 0, LEN, 7);
    let data = b.fill(LEN, 8);
    a.clear();
    let (remote_addr, rkey) = (b.mr.addr(), b.mr.rkey());
    post(&qps[0], 1, SendOp::Read { remote_addr, rkey }, Data::Gather(&[a.mr.sge(HALF, LEN)]));
    w.success(0, 1);
    assert!(a.received(LEN) == data, "READ");
    b.mr.write_at(0, &40u64.to_ne_bytes());
    let swap = SendOp::CompareSwap { remote_addr, rkey, compare: 40, swap: 50 };
    for (op, before) in [(SendOp::FetchAdd { remote_addr, rkey, add: 0 }, 40u64), (swap, 40), (swap, 50)]
        .into_iter()
        .chain([(SendOp::FetchAdd { remote_addr, rkey, add: 5 }, 50)])
    {
        post(&qps[0], 2, op, Data::Gather(&[a.mr.sge(HALF, 8)]));
        w.success(0, 2);
        assert_eq!(a.received(8), before.to_ne_bytes(), "{op:?}");
    }
    let mut word = [0; 8];
    b.mr.read_at(0, &mut word);
    assert_eq!(u64::from_ne_bytes(word), 55);
}

/// A window of type 2B is bound, written through, and gone after a SEND that invalidates it.
pub(crate) fn window(w: &World, qps: &[QueuePair; 2]) {
    let [a, b] = &w.sides;
    let mw = b.pd.alloc_mw(WindowType::Type2B).unwrap();
    let (addr, rkey) = (b.mr.addr() + HALF as u64, next_key(mw.key()));
    let access = Access::REMOTE_WRITE;
    let bind = Bind { window: mw.key(), rkey, lkey: b.mr.lkey(), addr, len: 4096, access, zero_based: false };
    post(&qps[1], 1, SendOp::BindWindow(bind), Data::Gather(&[]));
    w.success(1, 1);
    let data = a.fill(4096, 11);
    post(&qps[0], 2, SendOp::Write { remote_addr: addr, rkey }, Data::Gather(&[a.mr.sge(0, 4096)]));
    w.success(0, 2);
    assert!(b.received(4096) == data);
    b.post_recv(&qps[1], 3, 64);
    post(&qps[0], 4, SendOp::SendInv { rkey }, Data::Gather(&[a.mr.sge(0, 8)]));
    assert_eq!(w.success(1, 3).invalidated, Some(rkey));
    w.success(0, 4);
    post(&qps[0], 5, SendOp::Write { remote_addr: addr, rkey }, Data::Gather(&[a.mr.sge(0, 8)]));
    assert_eq!(w.completion(0).status, Status::RemAccessErr, "the window is gone");
}

/// Inline data leaves the buffer free at once.
fn inline(w: &World, qps: &[QueuePair; 2]) {
    let [_, b] = &w.sides;
    for len in [0, 1, 64, 65, 128] {
        let mut data: Vec<u8> = (0..len).map(|i| i as u8 ^ 0x5a).collect();
        let sent = data.clone();
        b.clear();
        post(&qps[0], 6, b.write_op(), Data::Inline(&data));
        data.fill(0);
        w.success(0, 6);
        assert_eq!(b.received(len), sent);
    }
}

fn reliable(w: &World, addresses: [IpAddr; 2], mtu: PathMtu) {
    let qps = w.queue_pairs(QpKind::Rc, |_| ());
    w.connect(&qps, addresses, |c| c.mtu = mtu);
    every_reliable(w, &qps);
    // The last, because it ends in an error.
    window(w, &qps);
}

/// Waits until that is what the requests of a queue pair are sent by; the NICs see to it themselves. A verdict may change from silence to an
/// answer that came late, so another one is not final.
pub(crate) fn expect(qp: &QueuePair, choice: Choice) {
    let start = Instant::now();
    while qp.choice() != Some(choice) {
        assert!(start.elapsed() < LIMIT, "{:?} instead of {choice:?}", qp.choice());
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// WRITEs, READs and atomics from the first side, whatever goes wrong on the wire: `what`.
pub(crate) fn reads_writes_and_atomics(w: &World, qps: &[QueuePair; 2], what: &str) {
    let [a, b] = &w.sides;
    for round in 0..4 {
        w.write_and_compare(qps, 0, HALF, round);
        let data = b.fill(HALF, 90 + round);
        a.clear();
        let op = SendOp::Read { remote_addr: b.mr.addr(), rkey: b.mr.rkey() };
        post(&qps[0], 1, op, Data::Gather(&[a.mr.sge(HALF, HALF)]));
        w.success(0, 1);
        assert!(a.received(HALF) == data, "READ with {what}");
    }
    // Numbers add up whatever is lost: each is carried out once.
    b.mr.write_at(0, &[0; 8]);
    let op = SendOp::FetchAdd { remote_addr: b.mr.addr(), rkey: b.mr.rkey(), add: 1 };
    for i in 0..100 {
        post(&qps[0], i, op, Data::Gather(&[a.mr.sge(HALF, 8)]));
    }
    for i in 0..100 {
        let done = w.completion(0);
        assert_eq!((done.status, done.wr_id), (Status::Success, i));
    }
    let mut sum = [0; 8];
    b.mr.read_at(0, &mut sum);
    assert_eq!(u64::from_ne_bytes(sum), 100, "with {what}");
}

/// All that a reliable connection can do, but for windows.
pub(crate) fn every_reliable(w: &World, qps: &[QueuePair; 2]) {
    messages(w, qps);
    one_sided(w, qps);
    inline(w, qps);
}

/// UC: SEND and WRITE. Nothing is lost on an idle cable, so a WRITE is seen at its end by a SEND behind it.
fn unreliable(w: &World, addresses: [IpAddr; 2], mtu: PathMtu) {
    let [a, b] = &w.sides;
    let qps = w.queue_pairs(QpKind::Uc, |_| ());
    w.connect(&qps, addresses, |c| c.mtu = mtu);
    let data = a.fill(LEN, 21);
    b.clear();
    b.post_recv(&qps[1], 1, LEN);
    post(&qps[0], 2, SendOp::Send, Data::Gather(&[a.mr.sge(0, LEN)]));
    w.success(0, 2);
    assert_eq!(w.success(1, 1).byte_len as usize, LEN);
    assert!(b.received(LEN) == data, "UC SEND");
    b.clear();
    b.post_recv(&qps[1], 3, 0);
    post(&qps[0], 4, b.write_op(), Data::Gather(&[a.mr.sge(0, LEN)]));
    post(&qps[0], 5, SendOp::Send, Data::Gather(&[]));
    w.success(0, 4);
    w.success(0, 5);
    w.success(1, 3);
    assert!(b.received(LEN) == data, "UC WRITE");
}

/// UD: a datagram as long as the port carries, and one with immediate data, to an address handle.
fn datagrams(w: &World, addresses: [IpAddr; 2]) {
    let [a, b] = &w.sides;
    let qps = w.queue_pairs(QpKind::Ud, |_| ());
    qps.iter().for_each(|qp| qp.open_datagrams(0x1111).unwrap());
    let path = a.context.path_to(addresses[1], qps[0].qpn().value()).unwrap();
    let to = Some(a.pd.create_ah(&path).unwrap()).map(|ah| (ah.to(qps[1].qpn(), 0x1111), ah));
    let longest = a.context.port().mtu.bytes() as usize;
    for (len, op) in [(longest, SendOp::Send), (5, SendOp::SendImm { imm: 3 })] {
        let data = a.fill(len, 31);
        b.clear();
        b.post_recv(&qps[1], 7, 40 + len);
        let sge = [a.mr.sge(0, len)];
        let wr = SendWr { to: to.as_ref().map(|(to, _)| *to), ..send_wr(8, op, Data::Gather(&sge)) };
        qps[0].post_send(&wr).unwrap();
        w.success(0, 8);
        let got = w.success(1, 7);
        assert_eq!((got.byte_len as usize, got.src_qp), (40 + len, Some(qps[0].qpn())));
        assert_eq!(got.imm, matches!(op, SendOp::SendImm { .. }).then_some(3));
        assert!(b.received(40 + len)[40..] == data, "UD");
    }
}

/// Two queue pairs take their receives from one shared queue.
fn shared_receives(w: &World, addresses: [IpAddr; 2], mtu: PathMtu) {
    let [a, b] = &w.sides;
    let srq = b.pd.create_srq(16, 1).unwrap();
    let pairs = [(); 2].map(|()| {
        let [mine, _] = w.queue_pairs(QpKind::Rc, |_| ());
        let [_, theirs] = w.queue_pairs(QpKind::Rc, |o| o.srq = Some(srq.clone()));
        let qps = [mine, theirs];
        w.connect(&qps, addresses, |c| c.mtu = mtu);
        qps
    });
    for i in 0..4 {
        srq.post_recv(&RecvWr { wr_id: i, sges: &[b.mr.sge(HALF + i as usize * LEN, LEN)], best_effort: None })
            .unwrap();
    }
    let data = a.fill(LEN, 41);
    for i in 0..4 {
        let qps = &pairs[i % 2];
        post(&qps[0], i as u64, SendOp::Send, Data::Gather(&[a.mr.sge(0, LEN)]));
        w.success(0, i as u64);
        let got = w.success(1, i as u64);
        assert_eq!(got.qpn, qps[1].qpn());
        assert!(b.received((i + 1) * LEN)[i * LEN..] == data);
    }
}

fn all(w: &World, addresses: [IpAddr; 2], mtu: PathMtu) {
    reliable(w, addresses, mtu);
    unreliable(w, addresses, mtu);
    shared_receives(w, addresses, mtu);
}

#[test]
fn all_operations_at_every_path_mtu_over_ipv4() {
    let Some(w) = World::new(1, 4200) else { return };
    assert_eq!(w.sides[0].context.port().mtu, longest_mtu());
    for mtu in path_mtus() {
        all(&w, [w.address(0), w.address(1)], mtu);
    }
    datagrams(&w, [w.address(0), w.address(1)]);
    for side in &w.sides {
        assert_eq!((side.context.lost_frames(), side.context.failure()), (0, None));
        let counters = side.context.counters();
        assert_eq!((counters.rx_icrc_encapsulated, counters.rx_malformed, counters.rx_bad_qp), (0, 0, 0));
    }
}

#[test]
fn all_operations_at_every_path_mtu_over_ipv6() {
    let Some(veth) = crate::veth::Veth::new(1, 4200) else { return };
    if let Err(why) = veth.add_ipv6() {
        return left_out(&why);
    }
    let w = World::on(veth, Default::default());
    let addresses = [0, 1].map(|side| IpAddr::from(w.veth.address_v6(side)));
    for mtu in path_mtus() {
        all(&w, addresses, mtu);
    }
    datagrams(&w, addresses);
}

#[test]
fn the_path_mtu_follows_from_the_interface() {
    for (interface, expected) in [(1500, PathMtu::B1024), (9000, longest_mtu())] {
        let Some(w) = World::new(1, interface) else { return };
        let addresses = [w.address(0), w.address(1)];
        let path = w.sides[0].context.path_to(addresses[1], 1).unwrap();
        assert_eq!((w.sides[0].context.port().mtu, path.mtu), (expected, expected), "MTU {interface}");
        all(&w, addresses, path.mtu);
        datagrams(&w, addresses);
    }
}
