//! EQDS: what is sent waits for credit of the receiver, where both ends agreed to that, and for nothing else.

use softnic_nic::transports::Counters;
use softnic_nic::transports::congestion::EqdsConfig;
use softnic_wire::xp::{XpCredit, XpReport};
use softnic_wire::{ExtHeaders, Opcode};

use super::*;

const CREDIT: EqdsConfig = EqdsConfig {
    speculative: 10_000,
    quantum: 4000,
    share: 1000,
    retry: std::time::Duration::from_micros(200),
    burst: std::time::Duration::ZERO,
};

fn with_credit(credit: [bool; 2]) -> World {
    agreed(Options { credit: credit.map(|wants| wants.then_some(CREDIT)), buffer: 400 * MTU, ..options("") })
}

fn is_credit(w: &World, frame: &[u8]) -> bool {
    w.parse(frame).bth.opcode == Opcode::XP_CREDIT
}

/// Bytes on the wire that have left.
fn wire(frames: &[Vec<u8>]) -> usize {
    frames.iter().map(|frame| frame.len() + 24).sum()
}

#[test]
fn a_long_message_leaves_as_fast_as_its_receiver_grants_it() {
    let mut w = with_credit([true; 2]);
    w.recv(B, 1, 0, 200 * MTU);
    w.send(A, 1, SendOp::Send, 0, 200 * MTU);
    let frames = w.transmit(A);
    let (credit, data): (Vec<_>, Vec<_>) = frames.into_iter().partition(|frame| is_credit(&w, frame));
    // What a speculative window holds, and one packet that says how much waits.
    assert!(wire(&data) <= 10_000 && wire(&data) > 9000, "{} bytes", wire(&data));
    assert!(!credit.is_empty() && credit.len() <= 2, "{}", credit.len());
    w.deliver_all(B, &data);
    w.deliver_all(B, &credit);
    let mut turns = 0;
    while received(&mut w).is_empty() {
        let grants = w.transmit(B);
        assert!(grants.iter().all(|frame| is_credit(&w, frame)));
        turns += grants.len();
        w.deliver_all(A, &grants);
        let frames = w.transmit(A);
        // Three quanta at most, by what waits.
        assert!(wire(&frames) <= 2 * 4000 + 400 + 100, "{}", wire(&frames));
        w.deliver_all(B, &frames);
        assert!(turns < 100, "it never ends");
        w.wait(1000);
    }
    assert!(turns >= 8, "{turns}");
    assert_eq!((w.counters(B).xp_partial_messages, w.counters(A).eqds_asked_again), (0, 0));
    assert!(w.counters(B).eqds_granted_bytes > 200 * MTU as u64);
    assert_eq!(w.counters(A).eqds_credit_received, turns as u64);
}

#[test]
fn without_agreement_no_packet_of_credit_leaves_and_nothing_waits() {
    for credit in [[true, false], [false, true], [false, false]] {
        let mut w = with_credit(credit);
        w.recv(B, 1, 0, 200 * MTU);
        w.send(A, 1, SendOp::Send, 0, 200 * MTU);
        let frames = w.transmit(A);
        assert_eq!(frames.len(), 200, "{credit:?}");
        assert!(!frames.iter().any(|frame| is_credit(&w, frame)));
        w.deliver_all(B, &frames);
        w.run();
        assert_eq!(received(&mut w), [(1, 200 * MTU as u32, None)]);
        assert_eq!(w.counters(A).eqds_credit_sent + w.counters(B).eqds_credit_sent, 0);
    }
}

#[test]
fn where_the_peer_has_no_xp_the_queue_pair_is_rc_without_credit() {
    let all = options("");
    let mut w = World::new(Options { credit: [Some(CREDIT), None], offers: [all.offers[A], None], ..all });
    w.run();
    w.recv(B, 1, 0, 1000);
    w.send(A, 1, SendOp::Send, 0, 1000);
    w.run();
    assert_eq!((w.sent_status(A), w.counters(A).eqds_credit_sent), (vec![(1, Status::Success)], 0));
}

#[test]
fn a_transport_without_credit_refuses_it_and_so_does_a_connected_queue_pair() {
    let mut w = World::new(Options::default());
    let qpn = w.hosts[A].qpn;
    assert!(w.hosts[A].nic.use_credit(qpn, Some(CREDIT)).is_err());
    let mut w = with_credit([true; 2]);
    let qpn = w.hosts[A].qpn;
    assert!(w.hosts[A].nic.use_credit(qpn, None).is_err());
}

#[test]
fn lost_credit_is_asked_for_again_and_costs_nothing_but_time() {
    let mut w = with_credit([true; 2]);
    w.recv(B, 1, 0, 100 * MTU);
    w.send(A, 1, SendOp::Send, 0, 100 * MTU);
    let mut rounds = 0;
    while received(&mut w).is_empty() {
        let frames = w.transmit(A);
        w.deliver_all(B, &frames);
        let grants = w.transmit(B);
        // Of four packets of credit one comes.
        if rounds % 4 == 3 {
            w.deliver_all(A, &grants);
        }
        rounds += 1;
        assert!(rounds < 1000, "it never ends");
        w.wait(50_000);
    }
    assert!(w.counters(A).eqds_asked_again > 0);
    assert_eq!((w.counters(B).xp_partial_messages, w.counters(A).eqds_credit_rejected), (0, 0));
}

#[test]
fn reads_wait_for_credit_of_who_asked_for_them() {
    let mut w = with_credit([true; 2]);
    w.send(A, 1, w.read_from(B, 0), 0, 100 * MTU);
    let request = w.transmit(A);
    w.deliver_all(B, &request);
    let answers = w.transmit(B);
    assert!(answers.len() < 40 && answers.iter().any(|frame| is_credit(&w, frame)), "{}", answers.len());
    w.deliver_all(A, &answers);
    for _ in 0..100 {
        w.run();
        w.wait(10_000);
    }
    assert_eq!(sent(&mut w), [(1, 100 * MTU as u32, None)]);
    assert!(w.counters(A).eqds_granted_bytes >= 100 * MTU as u64);
}

/// A has asked for credit, and this comes; what A counted, and how many packets it sends then.
fn lie(body: impl Fn(&World) -> XpCredit, twice: bool) -> (Counters, usize) {
    let mut w = with_credit([true; 2]);
    w.recv(B, 1, 0, 200 * MTU);
    w.send(A, 1, SendOp::Send, 0, 200 * MTU);
    w.transmit(A);
    let ext = ExtHeaders { xp_report: Some(XpReport::Credit(body(&w))), ..ExtHeaders::default() };
    let frame = w.forge(A, 0xf5, 50, false, ext, &[]);
    (0..=u8::from(twice)).for_each(|_| w.deliver(A, &frame));
    (w.counters(A), w.transmit(A).len())
}

#[test]
fn credit_that_was_never_given_twice_given_or_of_another_queue_pair_is_dropped_and_counted() {
    let of = |w: &World, granted| XpCredit { flags: 0, giver: w.hosts[B].qpn.value(), granted, wanted: 0 };
    let (right, sent) = lie(|w| of(w, 4000), false);
    assert_eq!((right.eqds_credit_received, right.eqds_credit_rejected), (1, 0));
    assert!(sent >= 10, "{sent}");
    let (twice, sent_twice) = lie(|w| of(w, 4000), true);
    assert_eq!((twice.eqds_credit_received, twice.eqds_credit_stale, sent_twice), (1, 1, sent));
    let wrong: [fn(XpCredit) -> XpCredit; 4] = [
        |right| XpCredit { granted: 1 << 20, ..right },
        |right| XpCredit { granted: u32::MAX, ..right },
        |right| XpCredit { giver: right.giver ^ 1, ..right },
        |right| XpCredit { wanted: 1 << 31, ..right },
    ];
    for wrong in wrong {
        let (counters, sent) = lie(|w| wrong(of(w, 4000)), false);
        assert_eq!((counters.eqds_credit_received, counters.eqds_credit_rejected, sent), (0, 1, 0));
    }
}

#[test]
fn part_of_the_credit_that_comes_when_the_sender_is_about_to_ask_again_starts_the_wait_for_the_rest() {
    let mut w = with_credit([true; 2]);
    w.recv(B, 1, 0, 200 * MTU);
    w.send(A, 1, SendOp::Send, 0, 200 * MTU);
    w.transmit(A);
    w.wait(300_000);
    let body = XpCredit { flags: 0, giver: w.hosts[B].qpn.value(), granted: 4000, wanted: 0 };
    let ext = ExtHeaders { xp_report: Some(XpReport::Credit(body)), ..ExtHeaders::default() };
    let frame = w.forge(A, 0xf5, 50, false, ext, &[]);
    // That what is due is known is an invariant, which is checked at each packet.
    w.deliver(A, &frame);
    assert_eq!((w.counters(A).eqds_asked_again, w.counters(A).eqds_credit_received), (1, 1));
}

#[test]
fn credit_to_a_queue_pair_that_offers_none_is_dropped_and_counted() {
    let mut w = world();
    let body = XpCredit { flags: XpCredit::ASKS, giver: w.hosts[A].qpn.value(), granted: 0, wanted: 4000 };
    let ext = ExtHeaders { xp_report: Some(XpReport::Credit(body)), ..ExtHeaders::default() };
    let frame = w.forge(B, 0xf5, 50, false, ext, &[]);
    w.deliver(B, &frame);
    assert_eq!((w.counters(B).eqds_credit_rejected, w.transmit(B).len()), (1, 0));
}
