//! A peer that says what cannot be: counted and dropped, nothing outside posted memory is touched, no bit is set for bytes that are not there.

use softnic_nic::transports::{Data, SendFlags, SendOp, SendWr, Sge};
use softnic_sdr::QpAttr;
use softnic_sdr::control::{Control, Kind};

use crate::world::{A, B, BASE, MTU, World, attr};

/// A WRITE with immediate that the sender's NIC sends as it is told.
fn forge(w: &mut World, generation: usize, at: u64, key: u32, len: u32, imm: u32) {
    let qpn = w.qps[A].info().generations[generation].channels[0].qpn;
    let lkey = w.local(A, 0, 0).key;
    let sge = [Sge { addr: BASE, len, lkey }];
    let op = SendOp::WriteImm { remote_addr: at, rkey: key, imm };
    let wr = SendWr {
        wr_id: u64::MAX,
        op,
        data: Data::Gather(if len > 0 { &sge } else { &[] }),
        flags: SendFlags::default(),
        best_effort: None,
        to: None,
    };
    w.nics[A].post_send(w.now, qpn, &wr).expect("posted");
    for frame in w.frames(A) {
        w.deliver(B, &frame);
    }
}

#[test]
fn packets_that_cannot_be_of_what_is_posted_set_no_bit() {
    let mut w = World::new(&attr());
    let receive = w.recv(0, 3 * MTU + 10);
    w.clear();
    let (split, slot_len) = (attr().split, attr().slot_len());
    let keys: Vec<u32> = w.qps[B].info().generations.iter().map(|g| g.key).collect();
    let (key, mtu) = (keys[0], MTU as u32);
    let region = w.local(B, 0, 0).key;
    let imm = |id, packet| split.pack(id, packet, 0);
    let lies = [
        ("a message without a receive", 0, slot_len, key, mtu, imm(1, 0)),
        ("a slot that there is not", 0, 0, key, mtu, imm(1023, 0)),
        ("a packet behind the end", 0, 4 * MTU as u64, key, mtu, imm(0, 4)),
        ("a packet far behind the end", 0, 0, key, mtu, imm(0, 0x3ffff)),
        ("a short packet in the middle", 0, MTU as u64, key, 100, imm(0, 1)),
        ("an empty packet in the middle, of no piece", 0, 9 * MTU as u64, key, 0, imm(0, 9)),
        ("a last packet that is too long", 0, 3 * MTU as u64, key, mtu, imm(0, 3)),
        ("a last packet that is too short", 0, 3 * MTU as u64, key, 9, imm(0, 3)),
        ("an address that does not fit", 0, MTU as u64, key, mtu, imm(0, 0)),
        ("an address of another slot", 0, slot_len, key, mtu, imm(0, 0)),
        ("another generation's key", 0, 0, keys[1], mtu, imm(0, 0)),
        ("a key of other memory", 0, BASE, region, mtu, imm(0, 0)),
        ("another generation's queue pair", 1, 0, keys[1], mtu, imm(0, 0)),
    ];
    for (what, generation, at, key, len, imm) in lies {
        let before = w.counters(B);
        forge(&mut w, generation, at, key, len, imm);
        let now = w.counters(B);
        assert_eq!((now.packets, w.bits(receive)), (0, vec![false; 2]), "{what}");
        assert_eq!(now.rejected + now.old_generation, before.rejected + before.old_generation + 1, "{what}");
        assert_eq!(w.bytes(B, 0, 6 * MTU), vec![0; 6 * MTU], "{what}");
    }
    // The connection lives.
    w.send(0, 3 * MTU + 10, None);
    w.settle();
    assert_eq!(w.bits(receive), [true, true]);
}

#[test]
fn without_a_look_before_bytes_are_placed_the_bitmap_is_safe_all_the_same() {
    let mut w = World::new(&QpAttr { screened: false, ..attr() });
    let receive = w.recv(0, 4 * MTU);
    w.clear();
    let (split, key) = (attr().split, w.qps[B].info().generations[0].key);
    for (at, len, imm) in [(0, 100, split.pack(0, 0, 0)), (0, 256, split.pack(0, 9, 0)), (0, 256, split.pack(5, 0, 0))]
    {
        forge(&mut w, 0, at, key, len, imm);
    }
    assert_eq!((w.counters(B).packets, w.counters(B).rejected, w.bits(receive)), (0, 3, vec![false; 2]));
    assert_eq!(w.bytes(B, 4 * MTU, MTU), [0; MTU], "outside of what is posted nothing was written");
}

#[test]
fn control_messages_that_cannot_be_are_counted_and_ignored() {
    let mut w = World::new(&attr());
    let control = w.qps[B].info().control.qpn;
    let token = w.qps[A].info().token;
    w.send(0, MTU, None);
    let cts = |token, count| Control { kind: Kind::Cts, token, sequence: 0, count }.encode().to_vec();
    let mut other_version = cts(token, 1);
    other_version[0] = 9;
    let lies = [cts(token ^ 1, 1), other_version, cts(token, 1)[..20].to_vec(), vec![]];
    for (i, bytes) in lies.into_iter().enumerate() {
        let data = Data::Inline(&bytes);
        let (op, flags) = (SendOp::Send, SendFlags::default());
        let wr = SendWr { wr_id: 0, op, data, flags, best_effort: None, to: None };
        w.nics[B].post_send(w.now, control, &wr).expect("posted");
        w.clear();
        assert_eq!(w.counters(A).rejected, i as u64 + 1);
        assert!(w.frames(A).is_empty(), "nothing was cleared");
    }
    let receive = w.recv(0, MTU);
    w.settle();
    assert_eq!(w.bits(receive), [true]);
}

#[test]
fn a_cts_for_more_than_can_be_told_apart_clears_no_more_than_that() {
    let mut w = World::new(&attr());
    let (control, token) = (w.qps[B].info().control.qpn, w.qps[A].info().token);
    let bytes = Control { kind: Kind::Cts, token, sequence: 0, count: 1 << 40 }.encode();
    let (op, flags) = (SendOp::Send, SendFlags::default());
    let wr = SendWr { wr_id: 0, op, data: Data::Inline(&bytes), flags, best_effort: None, to: None };
    w.nics[B].post_send(w.now, control, &wr).expect("posted");
    w.clear();
    assert_eq!((w.counters(A).rejected, w.qps[A].vitals().cleared), (1, 4 * 8));
    // What is sent for it finds no receive.
    w.send(0, MTU, None);
    w.settle();
    assert_eq!((w.counters(B).packets, w.counters(B).rejected), (0, 1));
}
