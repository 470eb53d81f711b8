//! Memory windows: binding, what they let the peer do, and that keys die when they should.

mod invalidated;

use crate::common::*;
use softnic_nic::transports::memory::{Access, Bind};
use softnic_nic::transports::qp::QpState;
use softnic_nic::transports::{Data, PostError, RecvWr, SendFlags, SendOp, Sge, Status, WcOpcode};
use softnic_nic::{Buffer, MrError, QpKind, WindowType, next_key};

const OK: Status = Status::Success;
const ALL: Access = Access::REMOTE;
const SIGNALED: SendFlags = SendFlags { signaled: true, solicited: false, fence: false };

/// Bytes 1000 to 2000 of B's buffer, for window `window` under its next key.
fn bind_of(w: &World, window: u32) -> Bind {
    let (addr, lkey) = (w.hosts[B].buffer.addr() + 1000, w.hosts[B].key);
    Bind { window, rkey: next_key(window), lkey, addr, len: 1000, access: ALL, zero_based: false }
}

fn window(w: &mut World, kind: WindowType) -> u32 {
    let pd = w.hosts[B].pd;
    w.hosts[B].nic.alloc_mw(pd, kind).unwrap()
}

/// B carries out a local operation; how it ended.
fn local(w: &mut World, op: SendOp) -> Status {
    w.post(B, &wr(77, op, Data::Gather(&[]))).unwrap();
    assert!(w.shown(B).is_empty(), "nothing is sent");
    let done = w.sent(B);
    assert_eq!((done.len(), done[0].wr_id), (1, 77));
    let opcode = if matches!(op, SendOp::LocalInv { .. }) { WcOpcode::LocalInv } else { WcOpcode::BindWindow };
    assert_eq!(done[0].opcode, opcode);
    done[0].status
}

/// A world whose B has a bound window, and the window's key.
fn bound(kind: WindowType, change: impl FnOnce(&mut Bind)) -> (World, u32) {
    let mut w = World::new(Options::default());
    let mw = window(&mut w, kind);
    let mut bind = bind_of(&w, mw);
    change(&mut bind);
    assert_eq!(local(&mut w, SendOp::BindWindow(bind)), OK);
    (w, bind.rkey)
}

/// How A's WRITE to an address under a key ends.
fn write(w: &mut World, remote_addr: u64, rkey: u32, len: usize) -> Status {
    w.send(A, 5, SendOp::Write { remote_addr, rkey }, 0, len);
    w.run();
    w.sent_status(A)[0].1
}

fn at(w: &World, offset: u64) -> u64 {
    w.hosts[B].buffer.addr() + offset
}

#[test]
fn a_window_lets_the_peer_do_exactly_what_it_says_where_it_lies() {
    for kind in [WindowType::Type1, WindowType::Type2B] {
        let rights = [
            (Access::REMOTE_WRITE, [true, false, false]),
            (Access::REMOTE_READ, [false, true, false]),
            (Access::REMOTE_ATOMIC, [false, false, true]),
            (ALL, [true, true, true]),
            (Access::NONE, [false, false, false]),
        ];
        for (access, may) in rights {
            for (i, &may) in may.iter().enumerate() {
                let (mut w, rkey) = bound(kind, |b| b.access = access);
                let remote_addr = at(&w, 1000);
                let op = match i {
                    0 => SendOp::Write { remote_addr, rkey },
                    1 => SendOp::Read { remote_addr, rkey },
                    _ => SendOp::FetchAdd { remote_addr, rkey, add: 1 },
                };
                w.send(A, 5, op, 0, 8);
                w.run();
                let expected = if may { OK } else { Status::RemAccessErr };
                assert_eq!(w.sent_status(A), [(5, expected)], "{kind:?} {access:?} {op:?}");
                if !may {
                    assert_eq!(w.read(B, 1000, 8), [UNTOUCHED; 8]);
                }
            }
        }
    }
}

#[test]
fn the_bounds_are_the_windows_and_not_the_regions() {
    for (offset, len, expected) in [
        (1000, 1000, OK),
        (1999, 1, OK),
        (999, 1, Status::RemAccessErr),
        (1000, 1001, Status::RemAccessErr),
        (2000, 1, Status::RemAccessErr),
        (999, 0, OK),
    ] {
        let (mut w, rkey) = bound(WindowType::Type1, |_| {});
        let to = at(&w, offset);
        assert_eq!(write(&mut w, to, rkey, len), expected, "{len} bytes at {offset}");
    }
}

#[test]
fn a_zero_based_window_counts_from_its_first_byte() {
    let (mut w, rkey) = bound(WindowType::Type1, |b| b.zero_based = true);
    w.fill(A, 0, &[9; 1000]);
    assert_eq!(write(&mut w, 0, rkey, 1000), OK);
    assert_eq!(
        (w.read(B, 999, 1), w.read(B, 1000, 1000), w.read(B, 2000, 1)),
        (vec![UNTOUCHED], vec![9; 1000], vec![UNTOUCHED])
    );
    assert_eq!(write(&mut w, 1, rkey, 1000), Status::RemAccessErr);
    let (mut w, rkey) = bound(WindowType::Type1, |b| b.zero_based = true);
    let to = at(&w, 1000);
    assert_eq!(write(&mut w, to, rkey, 1), Status::RemAccessErr);
}

#[test]
fn an_atomic_through_a_window_that_lies_askew_is_refused() {
    let (mut w, rkey) = bound(WindowType::Type1, |b| (b.addr, b.len, b.zero_based) = (b.addr + 1, 16, true));
    w.send(A, 5, SendOp::FetchAdd { remote_addr: 0, rkey, add: 1 }, 0, 8);
    w.run();
    assert_eq!((w.sent_status(A), w.read(B, 1000, 20)), (vec![(5, Status::RemAccessErr)], vec![UNTOUCHED; 20]));
}

#[test]
fn binding_type_1_anew_kills_the_old_key_at_once() {
    let mut w = World::new(Options::default());
    let mw = window(&mut w, WindowType::Type1);
    let mut bind = bind_of(&w, mw);
    let (now, qpn) = (w.now, w.hosts[B].qpn);
    let first = w.hosts[B].nic.bind_mw(now, qpn, 1, &bind, SIGNALED).unwrap();
    assert_eq!((first >> 8, first as u8), (mw >> 8, (mw as u8).wrapping_add(1)), "the low byte counts");
    (bind.window, bind.addr) = (first, bind.addr + 4000);
    let second = w.hosts[B].nic.bind_mw(now, qpn, 2, &bind, SIGNALED).unwrap();
    w.run();
    assert_eq!(w.sent_status(B), [(1, OK), (2, OK)]);
    let (old, new) = (at(&w, 1000), at(&w, 5000));
    assert_eq!(write(&mut w, new, second, 10), OK);
    assert_eq!(write(&mut w, old, first, 10), Status::RemAccessErr);
    assert_eq!(w.read(B, 1000, 10), [UNTOUCHED; 10]);
}

#[test]
fn the_low_byte_of_a_key_wraps_inside_its_window() {
    let mut w = World::new(Options::default());
    let mw = window(&mut w, WindowType::Type1);
    let mut key = mw;
    for _ in 0..300 {
        let bind = bind_of(&w, key);
        assert_eq!(local(&mut w, SendOp::BindWindow(bind)), OK);
        key = bind.rkey;
        assert_eq!(key >> 8, mw >> 8);
    }
    assert_eq!(key as u8, (mw as u8).wrapping_add((300 % 256) as u8));
    let to = at(&w, 1000);
    assert_eq!(write(&mut w, to, key, 10), OK);
}

#[test]
fn length_zero_takes_a_type_1_window_off_and_the_region_is_free_again() {
    let (mut w, key) = bound(WindowType::Type1, |_| {});
    let (mr, to) = (w.hosts[B].key, at(&w, 1000));
    assert_eq!(w.hosts[B].nic.dereg_mr(mr), Err(MrError::Busy));
    let off = Bind { len: 0, ..bind_of(&w, key) };
    assert_eq!(local(&mut w, SendOp::BindWindow(off)), OK);
    assert_eq!(w.hosts[B].nic.dereg_mr(mr), Ok(()));
    assert_eq!(write(&mut w, to, off.rkey, 1), Status::RemAccessErr);
}

#[test]
fn a_region_is_busy_until_its_last_window_is_gone() {
    let mut w = World::new(Options::default());
    let mr = w.hosts[B].key;
    let keys = [WindowType::Type1, WindowType::Type2B, WindowType::Type1].map(|kind| {
        let mw = window(&mut w, kind);
        let bind = bind_of(&w, mw);
        assert_eq!(local(&mut w, SendOp::BindWindow(bind)), OK);
        bind.rkey
    });
    assert_eq!(local(&mut w, SendOp::LocalInv { rkey: keys[1] }), OK);
    assert_eq!(w.hosts[B].nic.dereg_mr(mr), Err(MrError::Busy));
    w.hosts[B].nic.dealloc_mw(keys[0]).unwrap();
    assert_eq!(w.hosts[B].nic.dealloc_mw(keys[0]), Err(MrError::NoSuchMw));
    assert_eq!(w.hosts[B].nic.dereg_mr(mr), Err(MrError::Busy));
    w.hosts[B].nic.dealloc_mw(keys[2]).unwrap();
    assert_eq!(w.hosts[B].nic.dereg_mr(mr), Ok(()));
    assert_eq!(w.hosts[B].nic.dereg_mr(keys[1]), Err(MrError::NoSuchMr), "a window is no region");
    assert_eq!(w.hosts[B].nic.dealloc_mw(mr), Err(MrError::NoSuchMw));
}

#[test]
fn a_deallocated_window_lets_nobody_in() {
    let (mut w, key) = bound(WindowType::Type1, |_| {});
    w.hosts[B].nic.dealloc_mw(key).unwrap();
    let to = at(&w, 1000);
    assert_eq!(write(&mut w, to, key, 1), Status::RemAccessErr);
}

#[test]
fn type_2b_serves_only_the_queue_pair_that_bound_it_and_type_1_all_of_its_domain() {
    for (kind, expected) in [(WindowType::Type1, OK), (WindowType::Type2B, Status::RemAccessErr)] {
        let (mut w, rkey) = bound(kind, |_| {});
        let [a, _] = w.another_pair(QpKind::Rc, [A, B]);
        let remote_addr = at(&w, 1000);
        w.send_on(A, a, 1, SendOp::Write { remote_addr, rkey }, 0, 10);
        w.run();
        assert_eq!(w.all_sent(A), [(a, 1, expected)], "{kind:?}");
        assert_eq!(write(&mut w, remote_addr, rkey, 10), OK);
    }
}

/// Makes a right bind wrong in one thing.
type Spoil = fn(&mut World, &mut Bind);

#[test]
fn what_cannot_be_bound_fails_with_its_own_status_and_stops_the_connection() {
    let cases: [(&str, Spoil); 7] = [
        ("behind the region", |_, b| b.addr += BUFFER as u64 - 1999),
        ("before the region", |_, b| b.addr -= 1001),
        ("round the end of all addresses", |_, b| (b.addr, b.len) = (u64::MAX - 10, 100)),
        ("no such region", |_, b| b.lkey ^= 0x100),
        ("no such window", |_, b| b.window ^= 0x100),
        ("a region without the right to bind", |w, b| {
            let Host { nic, pd, buffer, .. } = &mut w.hosts[B];
            b.lkey = nic.reg_mr(*pd, buffer, LOCAL | ALL).unwrap();
        }),
        ("a region of another domain", |w, b| {
            let Host { nic, buffer, .. } = &mut w.hosts[B];
            let other = nic.alloc_pd();
            b.lkey = nic.reg_mr(other, buffer, LOCAL | ALL | Access::MW_BIND).unwrap();
        }),
    ];
    for kind in [WindowType::Type1, WindowType::Type2B] {
        for (name, spoil) in cases {
            let mut w = World::new(Options::default());
            let mw = window(&mut w, kind);
            let mut bind = bind_of(&w, mw);
            spoil(&mut w, &mut bind);
            w.recv(B, 50, 0, 10);
            assert_eq!(local(&mut w, SendOp::BindWindow(bind)), Status::MwBindErr, "{kind:?}: {name}");
            assert_eq!((w.state(B), w.received_status(B)), (QpState::Error, vec![(50, Status::WrFlushErr)]), "{name}");
            assert!(w.events(B).is_empty());
            assert_eq!(w.hosts[B].nic.dereg_mr(w.hosts[B].key), Ok(()), "{name}: nothing is bound");
        }
    }
}

#[test]
fn a_window_is_bound_whatever_key_a_bind_that_failed_was_to_give_it() {
    for kind in [WindowType::Type1, WindowType::Type2B] {
        let mut w = World::new(Options::default());
        let mw = window(&mut w, kind);
        let bind = bind_of(&w, mw);
        let [_, b] = w.another_pair(QpKind::Rc, [A, B]);
        let outside = SendOp::BindWindow(Bind { len: BUFFER as u64, ..bind });
        w.post_on(B, b, &wr(1, outside, Data::Gather(&[]))).unwrap();
        w.run();
        assert_eq!(w.all_sent(B), [(b, 1, Status::MwBindErr)]);
        let again = bind_of(&w, bind.rkey);
        assert_eq!(local(&mut w, SendOp::BindWindow(again)), OK);
        let to = at(&w, 1000);
        assert_eq!(write(&mut w, to, again.rkey, 10), OK);
    }
}

#[test]
fn a_bind_looks_at_the_low_byte_of_the_new_key_alone() {
    for kind in [WindowType::Type1, WindowType::Type2B] {
        let mut w = World::new(Options::default());
        let mw = window(&mut w, kind);
        let bind = Bind { rkey: 0xdead_be42, ..bind_of(&w, mw) };
        assert_eq!(local(&mut w, SendOp::BindWindow(bind)), OK, "{kind:?}");
        let to = at(&w, 1000);
        assert_eq!(write(&mut w, to, mw & !0xff | 0x42, 10), OK, "{kind:?}");
    }
}

#[test]
fn a_bind_that_fails_leaves_the_window_its_key() {
    for kind in [WindowType::Type1, WindowType::Type2B] {
        let mut w = World::new(Options::default());
        let mw = window(&mut w, kind);
        let (good, [_, b]) = (bind_of(&w, mw), w.another_pair(QpKind::Rc, [A, B]));
        let bad = Bind { lkey: 0, rkey: mw ^ 0x55, ..good };
        assert_eq!(local(&mut w, SendOp::BindWindow(bad)), Status::MwBindErr, "{kind:?}");
        w.post_on(B, b, &wr(1, SendOp::BindWindow(good), Data::Gather(&[]))).unwrap();
        w.run();
        assert_eq!(w.all_sent(B), [(b, 1, OK)], "{kind:?}: by the key that it had");
    }
}

#[test]
fn writing_through_a_window_needs_a_region_that_may_be_written() {
    for (access, expected) in [
        (Access::REMOTE_WRITE, Status::MwBindErr),
        (Access::REMOTE_ATOMIC, Status::MwBindErr),
        (Access::REMOTE_READ, OK),
    ] {
        let mut w = World::new(Options::default());
        let (mw, buffer, pd) = (window(&mut w, WindowType::Type1), Buffer::new(0x77_0000, 4096), w.hosts[B].pd);
        let lkey = w.hosts[B].nic.reg_mr(pd, &buffer, Access::MW_BIND).unwrap();
        let bind = Bind { lkey, addr: 0x77_0000, access, ..bind_of(&w, mw) };
        assert_eq!(local(&mut w, SendOp::BindWindow(bind)), expected, "{access:?}");
    }
}

#[test]
fn a_type_2b_window_is_neither_bound_twice_nor_bound_to_nothing() {
    let (mut w, key) = bound(WindowType::Type2B, |_| {});
    let again = bind_of(&w, key);
    assert_eq!(local(&mut w, SendOp::BindWindow(again)), Status::MwBindErr);
    let mut w = World::new(Options::default());
    let mw = window(&mut w, WindowType::Type2B);
    let nothing = Bind { len: 0, ..bind_of(&w, mw) };
    assert_eq!(local(&mut w, SendOp::BindWindow(nothing)), Status::MwBindErr);
}

#[test]
fn a_window_of_another_domain_is_not_bound() {
    let mut w = World::new(Options::default());
    let other = w.hosts[B].nic.alloc_pd();
    let mw = w.hosts[B].nic.alloc_mw(other, WindowType::Type1).unwrap();
    let bind = bind_of(&w, mw);
    assert_eq!(local(&mut w, SendOp::BindWindow(bind)), Status::MwBindErr);
}

#[test]
fn a_window_is_no_local_key() {
    for kind in [WindowType::Type1, WindowType::Type2B] {
        let (mut w, lkey) = bound(kind, |_| {});
        let sge = Sge { addr: at(&w, 1000), len: 10, lkey };
        w.post(B, &wr(1, SendOp::Send, Data::Gather(&[sge]))).unwrap();
        w.run();
        assert_eq!(w.sent_status(B), [(1, Status::LocProtErr)], "{kind:?}: to send from");
        let (mut w, lkey) = bound(kind, |_| {});
        let sges = [Sge { lkey, ..sge }];
        let receive = RecvWr { wr_id: 9, sges: &sges, best_effort: None };
        w.post_recv(B, &receive).unwrap();
        w.send(A, 1, SendOp::Send, 0, 10);
        w.run();
        assert_eq!(w.received_status(B), [(9, Status::LocProtErr)], "{kind:?}: to receive into");
        assert_eq!(w.sent_status(A), [(1, Status::RemOpErr)]);
    }
}

#[test]
fn a_window_without_its_queue_pair_serves_nobody_and_holds_no_region() {
    let (mut w, _) = bound(WindowType::Type2B, |_| {});
    let (mr, qpn) = (w.hosts[B].key, w.hosts[B].qpn);
    assert_eq!(w.hosts[B].nic.dereg_mr(mr), Err(MrError::Busy));
    w.hosts[B].nic.destroy_qp(qpn).unwrap();
    assert_eq!(w.hosts[B].nic.dereg_mr(mr), Ok(()), "nobody could invalidate it any more");
}

#[test]
fn datagrams_have_no_local_operations() {
    let mut w = World::new(Options { kind: QpKind::Ud, ..Options::default() });
    let mw = window(&mut w, WindowType::Type1);
    for op in [SendOp::BindWindow(bind_of(&w, mw)), SendOp::LocalInv { rkey: mw }] {
        assert_eq!(w.post(B, &wr(1, op, Data::Gather(&[]))), Err(PostError::NoSuchOperation));
    }
}
