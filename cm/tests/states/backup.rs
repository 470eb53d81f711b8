//! Connections whose ends have backups: their messages go by the way that works, and are taken from a backup that is proven.

use std::net::IpAddr;

use softnic_cm::{Cm, CmId, Config, Disconnect, Event, Route, State};
use softnic_wire::Qpn;
use softnic_wire::failover::Side;
use softnic_wire::mad::cm::Message;

use crate::common::{Mad, Pair, cm, kinds};

const BACKUPS: [&str; 2] = ["10.1.0.1", "10.1.0.2"];
const QPNS: [u32; 2] = [17, 18];
const DEFAULT_DEAD: [bool; 2] = [false, true];

/// The way between the backups, from one of the two.
fn way(from: usize) -> Route {
    let ip = |n: usize| BACKUPS[n].parse::<IpAddr>().unwrap();
    Route { side: Side::Backup, ..Route::new(ip(from), ip(1 - from)) }
}

fn protect(cm: &mut Cm, n: usize) {
    cm.set_backup(Qpn::new(QPNS[n]), &way(n));
}

/// A connection of which both ends have proven their backups.
fn protected() -> (Pair, [CmId; 2]) {
    let mut pair = Pair::new();
    let ids = pair.connected(QPNS);
    protect(&mut pair.a, 0);
    protect(&mut pair.b, 1);
    (pair, ids)
}

/// What goes out, and by which side.
fn sides(mads: &[Mad]) -> Vec<(&'static str, Side)> {
    kinds(mads).into_iter().zip(mads.iter().map(|mad| mad.route.side)).collect()
}

fn by_backup(mut mad: Mad) -> Mad {
    mad.route = way(0);
    mad
}

fn ended(id: CmId, how: Disconnect) -> Option<Event> {
    Some(Event::Disconnected { id, how })
}

/// The other end agrees, and all comes to its end.
fn agree(pair: &mut Pair, [a, b]: [CmId; 2]) {
    assert_eq!(pair.event_b(), ended(b, Disconnect::Peer));
    pair.b.disconnect(pair.now, b, &[]).unwrap();
    pair.carry();
    assert_eq!(pair.event_a(), ended(a, Disconnect::Agreed));
    pair.no_more_events();
    pair.until_empty();
    assert!(matches!(pair.event_a(), Some(Event::TimewaitExit { id, .. }) if id == a));
    assert!(matches!(pair.event_b(), Some(Event::TimewaitExit { id, .. }) if id == b));
    pair.no_more_events();
}

#[test]
fn as_long_as_nothing_fails_messages_go_by_the_default() {
    let (mut pair, [a, b]) = protected();
    pair.no_more_events();
    pair.a.disconnect(pair.now, a, &[]).unwrap();
    let dreq = pair.sent_by_a();
    assert_eq!(sides(&dreq), [("DREQ", Side::Default)]);
    pair.deliver_to_b(&dreq);
    pair.b.disconnect(pair.now, b, &[]).unwrap();
    assert_eq!(sides(&pair.sent_by_b()), [("DREP", Side::Default)]);
}

#[test]
fn a_dreq_that_is_lost_on_the_dead_way_is_sent_again_by_the_other() {
    let (mut pair, ids) = protected();
    pair.a.disconnect(pair.now, ids[0], b"bye").unwrap();
    assert_eq!(sides(&pair.sent_by_a()), [("DREQ", Side::Default)], "it is lost");
    pair.wait_for_a();
    let again = pair.sent_by_a();
    assert_eq!(sides(&again), [("DREQ", Side::Backup)]);
    assert_eq!(again[0].route, way(0));
    pair.deliver_to_b(&again);
    assert_eq!(pair.event_b(), ended(ids[1], Disconnect::Peer));
    pair.b.disconnect(pair.now, ids[1], &[]).unwrap();
    let drep = pair.sent_by_b();
    assert_eq!(sides(&drep), [("DREP", Side::Backup)], "by the way that the question came");
    pair.deliver_to_a(&drep);
    assert_eq!(pair.event_a(), ended(ids[0], Disconnect::Agreed));
}

#[test]
fn retries_take_both_ways_in_turn_and_are_as_many_as_ever() {
    let (mut pair, [a, _]) = protected();
    pair.a.disconnect(pair.now, a, &[]).unwrap();
    let mut sent = Vec::new();
    while pair.a.state(a) == Some(State::DreqSent) {
        sent.extend(pair.sent_by_a().iter().map(|mad| mad.route.side));
        pair.wait_for_a();
    }
    assert_eq!((sent.len(), pair.event_a()), (16, ended(a, Disconnect::NoAnswer)));
    assert!(sent.iter().step_by(2).all(|&side| side == Side::Default), "{sent:?}");
    assert!(sent.iter().skip(1).step_by(2).all(|&side| side == Side::Backup), "{sent:?}");
}

#[test]
fn a_program_that_ends_tries_the_other_way_at_once() {
    let (mut pair, ids) = protected();
    pair.a.disconnect(pair.now, ids[0], &[]).unwrap();
    assert_eq!(sides(&pair.sent_by_a()), [("DREQ", Side::Default)], "it is lost");
    pair.a.repeat_dreqs();
    let again = pair.sent_by_a();
    assert_eq!(sides(&again), [("DREQ", Side::Backup)]);
    pair.deliver_to_b(&again);
    agree(&mut pair, ids);
}

#[test]
fn a_dreq_goes_by_the_side_at_which_the_sends_are() {
    let (mut pair, ids) = protected();
    pair.a.set_side(Qpn::new(QPNS[0]), Side::Backup);
    pair.no_more_events();
    pair.a.disconnect(pair.now, ids[0], &[]).unwrap();
    let dreq = pair.sent_by_a();
    assert_eq!(sides(&dreq), [("DREQ", Side::Backup)]);
    pair.deliver_to_b(&dreq);
    agree(&mut pair, ids);
    let (mut pair, ids) = protected();
    for side in [Side::Backup, Side::Default] {
        pair.a.set_side(Qpn::new(QPNS[0]), side);
    }
    pair.a.disconnect(pair.now, ids[0], &[]).unwrap();
    assert_eq!(sides(&pair.sent_by_a()), [("DREQ", Side::Default)], "they are back");
}

#[test]
fn no_message_goes_by_a_port_that_is_down_while_the_other_is_up() {
    for (ports, side) in [(DEFAULT_DEAD, Side::Backup), ([true, false], Side::Default)] {
        let (mut pair, [a, _]) = protected();
        pair.a.set_ports(ports);
        pair.a.disconnect(pair.now, a, &[]).unwrap();
        for _ in 0..3 {
            assert_eq!(sides(&pair.sent_by_a()), [("DREQ", side)]);
            pair.wait_for_a();
        }
    }
    let mut pair = Pair::new();
    let [a, _] = pair.connected(QPNS);
    pair.a.set_ports(DEFAULT_DEAD);
    pair.a.disconnect(pair.now, a, &[]).unwrap();
    assert_eq!(sides(&pair.sent_by_a()), [("DREQ", Side::Default)], "without a backup of the peer's there is one way");
}

#[test]
fn a_message_from_a_backup_that_is_not_proven_is_refused() {
    let mut pair = Pair::new();
    let [a, b] = pair.connected(QPNS);
    protect(&mut pair.a, 0);
    pair.a.disconnect(pair.now, a, &[]).unwrap();
    let dreq = by_backup(pair.sent_by_a().remove(0));
    pair.deliver_to_b(std::slice::from_ref(&dreq));
    assert_eq!((pair.b.state(b), pair.event_b()), (Some(State::Established), None));
    assert_eq!(pair.b.counters().wrong_address, 1);
    assert!(pair.sent_by_b().is_empty());
    protect(&mut pair.b, 1);
    pair.deliver_to_b(&[dreq]);
    assert_eq!(pair.event_b(), ended(b, Disconnect::Peer));
}

#[test]
fn nobody_but_the_proven_address_at_the_right_nic_is_the_peer() {
    let (mut pair, [a, b]) = protected();
    pair.a.disconnect(pair.now, a, &[]).unwrap();
    let dreq = pair.sent_by_a().remove(0);
    let from = |side, address: &str| {
        let mut mad = dreq.clone();
        (mad.route.side, mad.route.local) = (side, address.parse().unwrap());
        mad
    };
    let liars = [
        from(Side::Backup, "10.1.0.9"),
        // The peer's own addresses, at the wrong NIC.
        from(Side::Default, BACKUPS[0]),
        from(Side::Backup, "10.0.0.1"),
    ];
    pair.deliver_to_b(&liars);
    assert_eq!((pair.b.state(b), pair.event_b()), (Some(State::Established), None));
    assert_eq!(pair.b.counters().wrong_address, liars.len() as u64);
    assert!(pair.sent_by_b().is_empty());
}

#[test]
fn the_same_message_by_both_ways_is_one() {
    let (mut pair, ids) = protected();
    pair.a.disconnect(pair.now, ids[0], &[]).unwrap();
    let dreq = pair.sent_by_a().remove(0);
    pair.deliver_to_b(&[by_backup(dreq.clone()), dreq.clone(), by_backup(dreq.clone())]);
    assert_eq!(pair.event_b(), ended(ids[1], Disconnect::Peer));
    pair.b.disconnect(pair.now, ids[1], &[]).unwrap();
    let drep = pair.sent_by_b();
    assert_eq!(sides(&drep), [("DREP", Side::Backup)]);
    pair.deliver_to_b(&[dreq]);
    let again = pair.sent_by_b();
    assert_eq!(sides(&again), [("DREP", Side::Default)]);
    pair.deliver_to_a(&[drep, again].concat());
    assert_eq!(pair.event_a(), ended(ids[0], Disconnect::Agreed));
    pair.no_more_events();
    pair.until_empty();
}

#[test]
fn a_lost_rtu_is_asked_for_and_given_by_the_backup() {
    let mut pair = Pair::new();
    let [a, b] = pair.replied(QPNS);
    pair.a.establish(a, b"ready").unwrap();
    assert_eq!(kinds(&pair.sent_by_a()), ["RTU"], "it is lost");
    protect(&mut pair.a, 0);
    protect(&mut pair.b, 1);
    pair.b.set_side(Qpn::new(QPNS[1]), Side::Backup);
    pair.wait_for_b();
    // The first retry is by the other side.
    assert_eq!(sides(&pair.sent_by_b()), [("REP", Side::Default)]);
    pair.wait_for_b();
    let rep = pair.sent_by_b();
    assert_eq!(sides(&rep), [("REP", Side::Backup)]);
    pair.deliver_to_a(&rep);
    let rtu = pair.sent_by_a();
    assert_eq!(sides(&rtu), [("RTU", Side::Backup)]);
    pair.deliver_to_b(&rtu);
    assert!(matches!(pair.event_b(), Some(Event::Established { id, .. }) if id == b));
    pair.no_more_events();
}

#[test]
fn a_rej_of_an_established_connection_is_taken_from_the_proven_backup_alone() {
    for proven in [true, false] {
        let mut pair = Pair::new();
        let [a, b] = pair.replied(QPNS);
        pair.a.establish(a, &[]).unwrap();
        pair.sent_by_a();
        pair.b.reject(pair.now, b, softnic_wire::mad::cm::RejReason::CONSUMER_DEFINED, &[], &[]).unwrap();
        let mut rej = pair.sent_by_b();
        rej[0].route = way(1);
        if proven {
            protect(&mut pair.a, 0);
        }
        pair.deliver_to_a(&rej);
        let expected = if proven { State::Timewait } else { State::Established };
        assert_eq!(pair.a.state(a), Some(expected));
    }
}

#[test]
fn connections_are_not_asked_for_at_the_backup() {
    let mut pair = Pair::new();
    pair.a.connect(&pair.connect(QPNS[0])).unwrap();
    let req = by_backup(pair.sent_by_a().remove(0));
    pair.deliver_to_b(&[req]);
    assert_eq!((pair.event_b(), pair.b.len(), pair.b.counters().unexpected), (None, 0, 1));
    assert!(pair.sent_by_b().is_empty());
}

#[test]
fn what_is_long_over_is_agreed_to_at_a_backup_of_our_own_alone() {
    for backup_is_shared in [false, true] {
        let (mut pair, [a, _]) = protected();
        pair.a.set_ports(DEFAULT_DEAD);
        pair.a.disconnect(pair.now, a, &[]).unwrap();
        let dreq = pair.sent_by_a();
        pair.b = cm(Config { ca_guid: 0xb, backup_is_shared, ..Config::default() }, 9);
        pair.deliver_to_b(&dreq);
        let drep = pair.sent_by_b();
        assert_eq!(drep.iter().any(|mad| matches!(mad.message(), Message::Drep(_))), !backup_is_shared);
        pair.deliver_to_a(&drep);
        assert_eq!(pair.event_a().is_some(), !backup_is_shared, "another process may know it");
    }
}

#[test]
fn the_backup_of_a_connection_that_is_over_is_forgotten_with_it() {
    let (mut pair, ids) = protected();
    pair.a.disconnect(pair.now, ids[0], &[]).unwrap();
    pair.carry();
    agree(&mut pair, ids);
    let [a, b] = pair.connected(QPNS);
    pair.a.disconnect(pair.now, a, &[]).unwrap();
    let dreq = by_backup(pair.sent_by_a().remove(0));
    pair.deliver_to_b(&[dreq]);
    assert_eq!((pair.b.state(b), pair.b.counters().wrong_address), (Some(State::Established), 1));
    // One that is nobody's changes nothing.
    pair.a.set_backup(Qpn::new(99), &way(0));
    pair.a.set_side(Qpn::new(99), Side::Backup);
    pair.no_more_events();
}
