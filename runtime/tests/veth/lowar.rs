//! LoWAR between namespaces: every operation under faults, frames of two chunks at several queues, links that are too short for repair
//! packets, and a peer that has it not.

use std::net::IpAddr;

use softnic_nic::QpKind;
use softnic_nic::transports::Event;
use softnic_nic::transports::lowar::Code;
use softnic_nic::transports::negotiation::{Choice, FallbackReason};
use softnic_runtime::api::{OpenOptions, QpOptions, QueuePair, Transport};
use softnic_wire::PathMtu;

use crate::operations::{every_reliable, expect, reads_writes_and_atomics};
use crate::veth::{Veth, left_out};
use crate::world::{HALF, World};

fn lowar(r: u8, c: u8) -> impl Fn(&mut QpOptions) {
    move |options| options.transport = Transport::Lowar(Code::new(r, c).unwrap())
}

/// All operations with these faults at both ends; says how many packets were recovered at each.
fn through(w: &World, addresses: [IpAddr; 2], what: &str) -> [u64; 2] {
    let [_a, _b] = &w.sides;
    let qps = w.queue_pairs(QpKind::Rc, lowar(16, 2));
    w.connect(&qps, addresses, |c| c.timeout = 14);
    qps.iter().for_each(|qp| expect(qp, Choice::Agreed));
    reads_writes_and_atomics(w, &qps, what);
    every_reliable(w, &qps);
    w.sides.each_ref().map(|side| side.context.counters().lowar_recovered_packets)
}

#[test]
fn every_operation_is_right_through_faults_on_both_sides() {
    for (i, fault) in ["loss=1e-2", "loss=5e-3,reorder=2e-2:3,dup=2e-2", "loss=5e-3,corrupt=5e-3,rx.loss=5e-3"]
        .into_iter()
        .enumerate()
    {
        let options = [0, 1].map(|s| OpenOptions {
            fault: Some(fault.parse().unwrap()),
            seed: 10 * i as u64 + s,
            ..OpenOptions::default()
        });
        let Some(veth) = Veth::new(1, 1500) else { return };
        let v6 = veth.add_ipv6();
        let w = World::on(veth, options);
        let recovered = through(&w, [w.address(0), w.address(1)], fault);
        assert!(recovered.iter().all(|&n| n > 0), "{fault}: {recovered:?}");
        if let Err(why) = v6 {
            left_out(&format!("IPv6: {why}"));
            continue;
        }
        let more = through(&w, [0, 1].map(|side| w.veth.address_v6(side).into()), fault);
        assert!(more.iter().zip(recovered).all(|(&n, before)| n > before), "{fault} over IPv6: {recovered:?} {more:?}");
    }
}

#[test]
fn repair_packets_of_the_longest_path_mtu_pass_at_whichever_queue_they_come_in() {
    let fault: Option<softnic_fault_injector::Spec> = Some("loss=1e-2".parse().unwrap());
    let options = [0, 1].map(|seed| OpenOptions { fault: fault.clone(), seed, ..OpenOptions::default() });
    // Just enough for what goes behind a path MTU of 4096.
    let Some(w) = World::with(2, 4096 + 120, options) else { return };
    let engine = |qp: &QueuePair| qp.qpn().value() >> 23;
    // They stay: what comes late still finds them.
    let mut all = Vec::new();
    let mut across = 0;
    for round in 0..8u8 {
        let mut qps = w.queue_pairs(QpKind::Rc, lowar(32, 1));
        if round % 2 == 1 {
            // Engines take turns: the next one there is at the other engine.
            let [_, other] = w.queue_pairs(QpKind::Rc, lowar(8, 4));
            qps[1] = other;
        }
        across += u32::from(engine(&qps[0]) != engine(&qps[1]));
        w.connect(&qps, [w.address(0), w.address(1)], |c| c.timeout = 14);
        qps.iter().for_each(|qp| expect(qp, Choice::Agreed));
        w.write_and_compare(&qps, 0, HALF, round);
        w.write_and_compare(&qps, 1, HALF, round);
        every_reliable(&w, &qps);
        all.push(qps);
    }
    assert!(across > 0, "some MADs and repair packets come in at the other engine");
    for side in &w.sides {
        let counters = side.context.counters();
        assert_eq!(counters.rx_bad_qp, 0, "no engine saw a frame of another's");
        assert!(counters.lowar_recovered_packets > 0 && counters.lowar_unprotected_blocks == 0, "{counters:?}");
    }
}

#[test]
fn a_peer_that_has_it_not_is_spoken_to_by_the_standard() {
    let Some(w) = World::new(2, 1500) else { return };
    for round in 0..4 {
        let [mine, _] = w.queue_pairs(QpKind::Rc, lowar(32, 1));
        let [_, theirs] = w.queue_pairs(QpKind::Rc, |_| ());
        let qps = [mine, theirs];
        w.connect(&qps, [w.address(0), w.address(1)], |_| ());
        expect(&qps[0], Choice::Standard(FallbackReason::NothingInCommon));
        w.write_and_compare(&qps, 0, HALF, round);
        w.write_and_compare(&qps, 1, HALF, round);
    }
    for side in &w.sides {
        assert_eq!(side.context.counters().lowar_repairs_sent, 0, "repair packets go to who agreed");
    }
}

#[test]
fn where_repair_packets_do_not_fit_the_link_the_standard_is_spoken_and_the_program_is_told_which_mtu_to_set() {
    let Some(w) = World::new(1, 1024 + 119) else { return };
    let addresses = [w.address(0), w.address(1)];
    let qps = w.queue_pairs(QpKind::Rc, lowar(32, 1));
    w.connect(&qps, addresses, |c| assert_eq!(c.mtu, PathMtu::B1024));
    for side in 0..2 {
        expect(&qps[side], Choice::Standard(FallbackReason::LinkMtu(1144)));
        w.event(side, Event::FellBack(qps[side].qpn(), addresses[1 - side], FallbackReason::LinkMtu(1144)));
        w.write_and_compare(&qps, side, HALF, 1);
    }
    // A shorter path MTU leaves room for them.
    let shorter = w.queue_pairs(QpKind::Rc, lowar(32, 1));
    w.connect(&shorter, addresses, |c| c.mtu = PathMtu::B512);
    shorter.iter().for_each(|qp| expect(qp, Choice::Agreed));
    w.write_and_compare(&shorter, 0, HALF, 2);
}

#[test]
fn one_link_that_is_too_short_is_enough_and_the_mtu_that_is_named_suffices() {
    let Some(veth) = Veth::new(1, 1500) else { return };
    veth.ip(1, &format!("link set dev {} mtu 1143", veth.interface(1))).unwrap();
    let w = World::on(veth, [OpenOptions::default(), OpenOptions::default()]);
    let qps = w.queue_pairs(QpKind::Rc, lowar(32, 1));
    w.connect(&qps, [w.address(0), w.address(1)], |_| ());
    expect(&qps[1], Choice::Standard(FallbackReason::LinkMtu(1144)));
    expect(&qps[0], Choice::Standard(FallbackReason::NothingInCommon));
    w.write_and_compare(&qps, 0, HALF, 1);
    w.write_and_compare(&qps, 1, HALF, 1);
    drop(qps);
    let World { sides, veth } = w;
    drop(sides);
    veth.ip(1, &format!("link set dev {} mtu 1144", veth.interface(1))).unwrap();
    let w = World::on(veth, [OpenOptions::default(), OpenOptions::default()]);
    let qps = w.queue_pairs(QpKind::Rc, lowar(32, 1));
    w.connect(&qps, [w.address(0), w.address(1)], |_| ());
    qps.iter().for_each(|qp| expect(qp, Choice::Agreed));
    w.write_and_compare(&qps, 0, HALF, 2);
    w.write_and_compare(&qps, 1, HALF, 2);
}
