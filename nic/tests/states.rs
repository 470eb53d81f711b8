//! The states of a queue pair: which transitions exist, which attributes each demands and allows, what works in each.

use crate::common::*;
use softnic_nic::transports::memory::Access;
use softnic_nic::transports::qp::PayloadMode;
use softnic_nic::transports::qp::QpState::{
    self, Error, Init, ReadyToReceive, ReadyToSend, Reset, SendQueueDrain, SendQueueError,
};
use softnic_nic::transports::{Data, PostError, RecvWr, SendOp, SendWr, Sge, Status};
use softnic_nic::{ModifyError, Nic, NicConfig, Port, QpAttr, QpInit, QpKind};
use softnic_wire::{Addresses, PathMtu, Psn, Qpn};

const STATES: [QpState; 7] = [Reset, Init, ReadyToReceive, ReadyToSend, SendQueueDrain, SendQueueError, Error];
const KINDS: [QpKind; 4] = [QpKind::Rc, QpKind::Uc, QpKind::Ud, QpKind::Gsi];

const NAMES: [&str; 16] = [
    "pkey_index",
    "port",
    "access",
    "path",
    "path_mtu",
    "dest_qp",
    "rq_psn",
    "max_dest_rd_atomic",
    "min_rnr_timer",
    "sq_psn",
    "timeout",
    "retry_cnt",
    "rnr_retry",
    "max_rd_atomic",
    "qkey",
    "sqd_notify",
];

/// Sets an attribute by its name.
fn set(w: &World, a: &mut QpAttr, name: &str) {
    match name {
        "pkey_index" => a.pkey_index = Some(0),
        "port" => a.port = Some(1),
        "access" => a.access = Some(LOCAL | Access::REMOTE_WRITE),
        "path" => a.path = Some(w.path(A)),
        "path_mtu" => a.mtu = Some(PathMtu::B256),
        "dest_qp" => a.dest_qp = Some(w.hosts[B].qpn),
        "rq_psn" => a.rq_psn = Some(Psn::new(w.options.psn)),
        "max_dest_rd_atomic" => a.max_dest_rd_atomic = Some(1),
        "min_rnr_timer" => a.min_rnr_timer = Some(3),
        "sq_psn" => a.sq_psn = Some(Psn::new(w.options.psn)),
        "timeout" => a.timeout = Some(10),
        "retry_cnt" => a.retry_cnt = Some(3),
        "rnr_retry" => a.rnr_retry = Some(3),
        "max_rd_atomic" => a.max_rd_atomic = Some(1),
        "qkey" => a.qkey = Some(7),
        "sqd_notify" => a.sqd_notify = Some(true),
        other => panic!("{other} is no attribute"),
    }
}

fn with(w: &World, state: Option<QpState>, names: &[&str]) -> QpAttr {
    let mut a = QpAttr { state, ..QpAttr::default() };
    for name in names {
        set(w, &mut a, name);
    }
    a
}

type Rules = Option<(&'static [&'static str], &'static [&'static str])>;

/// The attributes that a transition needs, and those that it allows besides, as the standard has them.
fn table_of(kind: QpKind, from: QpState, to: QpState) -> Rules {
    let sends = matches!(from, ReadyToSend | SendQueueDrain);
    match (kind, from, to) {
        (_, _, Reset | Error) => Some((&[], &[])),
        (_, ReadyToSend, SendQueueDrain) => Some((&[], &["sqd_notify"])),
        (QpKind::Rc, SendQueueDrain, SendQueueDrain) => Some((
            &[],
            &["path", "timeout", "retry_cnt", "rnr_retry", "max_rd_atomic", "access", "min_rnr_timer", "pkey_index"],
        )),
        (QpKind::Rc, SendQueueDrain, ReadyToSend) => Some((&[], &["access", "min_rnr_timer"])),
        (QpKind::Rc, ..) => table(from, to),
        (QpKind::Uc, Reset, Init) => Some((&["pkey_index", "port", "access"], &[])),
        (QpKind::Uc, Init, Init) => Some((&[], &["pkey_index", "port", "access"])),
        (QpKind::Uc, Init, ReadyToReceive) => {
            Some((&["path", "path_mtu", "dest_qp", "rq_psn"], &["access", "pkey_index"]))
        }
        (QpKind::Uc, ReadyToReceive, ReadyToSend) => Some((&["sq_psn"], &["access"])),
        (QpKind::Uc, SendQueueDrain, SendQueueDrain) => Some((&[], &["path", "access", "pkey_index"])),
        (QpKind::Uc, _, ReadyToSend) if sends || from == SendQueueError => Some((&[], &["access"])),
        (QpKind::Ud, Reset, Init) => Some((&["pkey_index", "port", "qkey"], &[])),
        (QpKind::Ud, Init, Init) => Some((&[], &["pkey_index", "port", "qkey"])),
        (QpKind::Ud, Init, ReadyToReceive) => Some((&[], &["pkey_index", "qkey"])),
        (QpKind::Ud, ReadyToReceive, ReadyToSend) => Some((&["sq_psn"], &["qkey"])),
        (QpKind::Ud, SendQueueDrain, SendQueueDrain) => Some((&[], &["pkey_index", "qkey"])),
        (QpKind::Ud, _, ReadyToSend) if sends || from == SendQueueError => Some((&[], &["qkey"])),
        (QpKind::Gsi, Reset, Init) => Some((&["pkey_index", "port"], &[])),
        (QpKind::Gsi, Init, Init) => Some((&[], &["pkey_index", "port"])),
        (QpKind::Gsi, Init, ReadyToReceive) => Some((&[], &["pkey_index"])),
        (QpKind::Gsi, ReadyToReceive, ReadyToSend) => Some((&["sq_psn"], &[])),
        (QpKind::Gsi, SendQueueDrain, SendQueueDrain) => Some((&[], &["pkey_index"])),
        (QpKind::Gsi, _, ReadyToSend) if sends || from == SendQueueError => Some((&[], &[])),
        _ => None,
    }
}

/// The same for RC, whose states are those of one table.
fn table(from: QpState, to: QpState) -> Rules {
    match (from, to) {
        (_, Reset) | (_, Error) => Some((&[], &[])),
        (Reset, Init) => Some((&["pkey_index", "port", "access"], &[])),
        (Init, Init) => Some((&[], &["pkey_index", "port", "access"])),
        (Init, ReadyToReceive) => Some((
            &["path", "path_mtu", "dest_qp", "rq_psn", "max_dest_rd_atomic", "min_rnr_timer"],
            &["access", "pkey_index"],
        )),
        (ReadyToReceive, ReadyToSend) => {
            Some((&["sq_psn", "timeout", "retry_cnt", "rnr_retry", "max_rd_atomic"], &["access", "min_rnr_timer"]))
        }
        (ReadyToSend, ReadyToSend) => Some((&[], &["access", "min_rnr_timer"])),
        _ => None,
    }
}

/// A world whose host A has a queue pair of RC in `state`.
fn world_in(state: QpState) -> World {
    world_of(QpKind::Rc, state)
}

/// A world whose host A has such a queue pair in `state`. A send that names no memory brings it to SQE.
fn world_of(kind: QpKind, state: QpState) -> World {
    let mut w = World::unconnected(Options { kind, ..Options::default() });
    let way: &[QpState] = match state {
        Reset => &[],
        Init => &[Init],
        ReadyToReceive => &[Init, ReadyToReceive],
        ReadyToSend => &[Init, ReadyToReceive, ReadyToSend],
        SendQueueDrain => &[Init, ReadyToReceive, ReadyToSend, SendQueueDrain],
        SendQueueError => &[Init, ReadyToReceive, ReadyToSend],
        Error => &[Init, Error],
    };
    let mut from = Reset;
    for &to in way {
        let attr = with(&w, Some(to), table_of(kind, from, to).unwrap().0);
        w.modify(A, &attr);
        from = to;
    }
    if state == SendQueueError {
        fail_a_send(&mut w);
    }
    assert_eq!(w.state(A), state);
    w
}

/// A posts a send whose memory is not registered.
fn fail_a_send(w: &mut World) {
    let nowhere = [Sge { addr: 0, len: 8, lkey: 99 }];
    let to = matches!(w.options.kind, QpKind::Ud | QpKind::Gsi).then(|| w.datagram(A, B));
    let wr = SendWr { to, ..wr(1, SendOp::Send, Data::Gather(&nowhere)) };
    w.post(A, &wr).unwrap();
    assert!(w.transmit(A).is_empty());
    assert_eq!(w.sent_status(A), [(1, Status::LocProtErr)]);
}

fn modify(w: &mut World, attr: &QpAttr) -> Result<(), ModifyError> {
    let qpn = w.hosts[A].qpn;
    w.hosts[A].nic.modify_qp(qpn, attr)
}

#[test]
fn every_transition_with_its_needed_and_its_allowed_attributes() {
    for (kind, from) in KINDS.into_iter().flat_map(|kind| STATES.map(|from| (kind, from))) {
        if (kind, from) == (QpKind::Rc, SendQueueError) {
            continue; // a failed send of RC stops all of it
        }
        let world_in = |state| world_of(kind, state);
        for to in STATES {
            let Some((needed, allowed)) = table_of(kind, from, to) else {
                let mut w = world_in(from);
                // Neither bare nor with everything that the state asked for could want.
                for names in [&[][..], &NAMES[..]] {
                    let attr = with(&w, Some(to), names);
                    assert_eq!(modify(&mut w, &attr), Err(ModifyError::Transition { from, to }));
                    assert_eq!(w.state(A), from);
                }
                continue;
            };
            let all: Vec<&str> = needed.iter().chain(allowed).copied().collect();
            for names in [needed, &all[..]] {
                let mut w = world_in(from);
                let attr = with(&w, Some(to), names);
                assert_eq!(modify(&mut w, &attr), Ok(()), "{from:?} to {to:?} with {names:?}");
                assert_eq!(w.state(A), to);
            }
            for missing in needed {
                let mut w = world_in(from);
                let rest: Vec<&str> = all.iter().copied().filter(|n| n != missing).collect();
                let attr = with(&w, Some(to), &rest);
                assert_eq!(modify(&mut w, &attr), Err(ModifyError::Missing(missing)), "{from:?} to {to:?}");
                assert_eq!(w.state(A), from);
            }
            for extra in NAMES.iter().filter(|n| !all.contains(n)) {
                let mut w = world_in(from);
                let attr = with(&w, Some(to), &[needed, &[extra]].concat());
                assert_eq!(modify(&mut w, &attr), Err(ModifyError::NotAllowed(extra)), "{from:?} to {to:?}");
                assert_eq!(w.state(A), from);
            }
        }
    }
}

#[test]
fn without_a_state_the_rules_of_staying_hold() {
    for state in STATES.into_iter().filter(|&s| s != SendQueueError) {
        let mut w = world_in(state);
        let bare = modify(&mut w, &QpAttr::default());
        assert_eq!(bare.is_ok(), table_of(QpKind::Rc, state, state).is_some(), "{state:?}");
        assert_eq!(w.state(A), state);
    }
}

#[test]
fn values_that_cannot_be_are_refused() {
    type Case = (QpState, QpState, fn(&mut QpAttr), &'static str);
    let cases: [Case; 6] = [
        (Reset, Init, |a| a.port = Some(2), "port"),
        (Reset, Init, |a| a.pkey_index = Some(1), "pkey_index"),
        (Init, ReadyToReceive, |a| a.min_rnr_timer = Some(32), "min_rnr_timer"),
        (ReadyToReceive, ReadyToSend, |a| a.timeout = Some(32), "timeout"),
        (ReadyToReceive, ReadyToSend, |a| a.retry_cnt = Some(8), "retry_cnt"),
        (ReadyToReceive, ReadyToSend, |a| a.rnr_retry = Some(8), "rnr_retry"),
    ];
    for (from, to, change, name) in cases {
        let mut w = world_in(from);
        let mut attr = with(&w, Some(to), table(from, to).unwrap().0);
        change(&mut attr);
        assert_eq!(modify(&mut w, &attr), Err(ModifyError::Range(name)));
        assert_eq!(w.state(A), from);
    }
}

#[test]
fn a_path_must_begin_at_an_address_of_the_port() {
    let mut w = world_in(Init);
    let mut attr = with(&w, Some(ReadyToReceive), table(Init, ReadyToReceive).unwrap().0);
    let mut path = w.path(A);
    path.addresses = Addresses::new([10, 0, 0, 99].into(), path.addresses.dst()).unwrap();
    attr.path = Some(path);
    assert_eq!(modify(&mut w, &attr), Err(ModifyError::NotOurAddress));
    assert_eq!(w.state(A), Init);
}

#[test]
fn a_path_mtu_above_the_ports_is_refused() {
    let port = Port { mtu: PathMtu::B1024, ..nic(A, PayloadMode::Real).port().clone() };
    let mut nic = Nic::new(NicConfig { port, payload: PayloadMode::Real }, Box::new(generator(1)));
    let (pd, cq) = (nic.alloc_pd(), nic.create_cq(1));
    let qpn = nic.create_qp(&QpInit::new(QpKind::Rc, pd, cq, cq, Options::default().caps)).unwrap();
    let w = World::unconnected(Options::default());
    let mut step = |from, to, mtu| {
        let attr = with(&w, Some(to), table(from, to).unwrap().0);
        nic.modify_qp(qpn, &QpAttr { mtu: attr.mtu.and(Some(mtu)), ..attr })
    };
    step(Reset, Init, PathMtu::B2048).unwrap();
    let refused = Err(ModifyError::PathMtu { asked: 2048, port: 1024 });
    assert_eq!(step(Init, ReadyToReceive, PathMtu::B2048), refused);
    assert_eq!(step(Init, ReadyToReceive, PathMtu::B1024), Ok(()));
}

#[test]
fn a_queue_pair_that_does_not_exist_cannot_be_changed() {
    let mut w = World::new(Options::default());
    let nobody = Qpn::new(w.hosts[A].qpn.value() ^ 1);
    let nic = &mut w.hosts[A].nic;
    assert_eq!(nic.modify_qp(nobody, &to_state(Error)), Err(ModifyError::NoSuchQp));
    assert_eq!(nic.qp_state(nobody), None);
    assert_eq!(nic.write_send(nobody, &wr(1, SendOp::Send, Data::Inline(b""))), Err(PostError::State));
}

#[test]
fn a_refused_change_changes_nothing() {
    let mut w = World::new(Options::default());
    // The right would go, were it not for the attribute that is too many.
    let attr = QpAttr { access: Some(LOCAL), sq_psn: Some(Psn::new(0)), ..QpAttr::default() };
    let qpn = w.hosts[B].qpn;
    assert_eq!(w.hosts[B].nic.modify_qp(qpn, &attr), Err(ModifyError::NotAllowed("sq_psn")));
    let op = w.write_to(B, 0);
    w.send(A, 1, op, 0, 10);
    w.run();
    assert_eq!(w.sent_status(A), [(1, Status::Success)]);
}

#[test]
fn rights_can_be_taken_back_while_connected() {
    let mut w = World::new(Options::default());
    w.modify(B, &QpAttr { access: Some(LOCAL), ..QpAttr::default() });
    let op = w.write_to(B, 0);
    w.send(A, 1, op, 0, 10);
    w.run();
    assert_eq!(w.sent_status(A), [(1, Status::RemInvReqErr)]);
    assert_eq!(w.read(B, 0, 10), [UNTOUCHED; 10]);
}

#[test]
fn what_may_be_posted_in_each_state() {
    for state in STATES.into_iter().filter(|&s| s != SendQueueError) {
        let mut w = world_in(state);
        let send = w.post(A, &wr(1, SendOp::Send, Data::Inline(b"x")));
        let recv = w.post_recv(A, &RecvWr { wr_id: 2, sges: &[], best_effort: None });
        let send_ok = matches!(state, ReadyToSend | SendQueueDrain | Error);
        assert_eq!(send, if send_ok { Ok(()) } else { Err(PostError::State) }, "{state:?}");
        assert_eq!(recv, if state == Reset { Err(PostError::State) } else { Ok(()) }, "{state:?}");
        let flushed = if state == Error { vec![(1, Status::WrFlushErr)] } else { vec![] };
        assert_eq!(w.sent_status(A), flushed);
        assert_eq!(w.transmit(A).len(), usize::from(state == ReadyToSend));
    }
}

#[test]
fn requests_are_taken_only_when_ready_to_receive_and_counted_otherwise() {
    for state in STATES.into_iter().filter(|&s| s != SendQueueError) {
        let mut w = world_in(state);
        let reth = softnic_wire::ext::Reth { va: w.hosts[A].buffer.addr(), rkey: w.hosts[A].key, len: 4 };
        let ext = softnic_wire::ExtHeaders { reth: Some(reth), ..Default::default() };
        let frame = w.forge(A, 0x0a, 0, true, ext, b"data");
        w.deliver(A, &frame);
        let takes = matches!(state, ReadyToReceive | ReadyToSend | SendQueueDrain);
        assert_eq!(w.read(A, 0, 4) == b"data", takes, "{state:?}");
        let answers = if takes { vec!["ACK +0 credits 0 msn 1"] } else { vec![] };
        assert_eq!(w.shown(A), answers, "{state:?}");
        assert_eq!(w.counters(A).rx_bad_qp, u64::from(!takes), "{state:?}");
        assert_eq!(w.counters(A).rx_wrong_source, 0, "{state:?}: the source is not what is wrong");
    }
}

#[test]
fn answers_mean_nothing_before_sending() {
    let mut w = world_in(ReadyToReceive);
    for syndrome in [0x1f, 0x60, 0x61, 0x25] {
        let frame = w.forge_aeth(A, 0, syndrome, 0);
        w.deliver(A, &frame);
    }
    assert_eq!(w.state(A), ReadyToReceive);
    assert!(w.shown(A).is_empty());
}

#[test]
fn receives_posted_before_the_connection_are_used() {
    let mut w = World::unconnected(Options::default());
    let o = w.options;
    for h in [A, B] {
        w.modify(h, &init_attr(&o));
        w.recv(h, 5, 0, 10);
        let rtr = rtr_attr(&o, w.path(h), w.hosts[1 - h].qpn);
        w.modify(h, &rtr);
        w.modify(h, &rts_attr(&o));
    }
    w.send(A, 1, SendOp::Send, 100, 10);
    w.run();
    assert_eq!(w.received_status(B), [(5, Status::Success)]);
}

#[test]
fn a_queue_pair_that_was_reset_can_be_connected_again_and_remembers_nothing() {
    for ended in [ReadyToSend, Error] {
        let mut w = World::new(Options::default());
        let op = w.write_to(B, 0);
        w.recv(A, 5, 0, 10);
        // Work under way, an answer that is due, a gap at the receiver.
        w.send(A, 1, op, 0, 600);
        let frames = w.transmit(A);
        w.deliver(B, &frames[0]);
        w.deliver(B, &frames[2]);
        w.send(A, 2, op, 0, 10);
        if ended == Error {
            w.modify(A, &to_state(Error));
            assert_eq!((w.sent(A).len(), w.received(A).len()), (2, 1));
        }
        let o = Options { psn: 0xff_ffff, ..w.options };
        w.options = o;
        for h in [A, B] {
            w.modify(h, &to_state(Reset));
            assert_eq!((w.sent(h).len(), w.received(h).len()), (0, 0), "reset forgets, it does not flush");
            assert!(w.shown(h).is_empty());
            w.modify(h, &init_attr(&o));
            let rtr = rtr_attr(&o, w.path(h), w.hosts[1 - h].qpn);
            w.modify(h, &rtr);
            w.modify(h, &rts_attr(&o));
        }
        w.recv(B, 6, 0, 600);
        w.fill(A, 0, &pattern(8, 600));
        w.send(A, 3, SendOp::Send, 0, 600);
        let frames = w.transmit(A);
        assert_eq!(w.show(&frames), ["SEND_FIRST +0", "SEND_MIDDLE +1", "SEND_LAST +2 A"]);
        w.deliver_all(B, &frames);
        let answer = w.transmit(B);
        assert_eq!(w.show(&answer), ["ACK +2 credits 0 msn 1"]);
        w.deliver_all(A, &answer);
        assert_eq!(w.sent_status(A), [(3, Status::Success)]);
        assert_eq!(w.received_status(B), [(6, Status::Success)]);
        assert_eq!(w.read(B, 0, 600), pattern(8, 600));
    }
}
