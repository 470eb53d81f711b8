//! Authenticated connections between namespaces: every operation under faults, frames of two chunks, and a peer without the secret.

use softnic_nic::QpKind;
use softnic_nic::transports::negotiation::{Choice, FallbackReason};
use softnic_nic::transports::qp::QpState;
use softnic_nic::transports::{Event, Secret};
use softnic_runtime::api::{OpenOptions, QpOptions, Transport};

use crate::operations::{every_reliable, expect, reads_writes_and_atomics};
use crate::veth::longest_mtu;
use crate::world::{HALF, World};

fn authenticated(transport: Transport, byte: u8) -> impl Fn(&mut QpOptions) {
    move |options| {
        options.transport = transport;
        options.auth = Some(Secret::new(&[byte; 32]).unwrap());
    }
}

#[test]
fn every_operation_is_right_over_every_transport_through_faults_on_both_sides() {
    let fault: softnic_fault_injector::Spec = "loss=5e-3,reorder=2e-2:3,dup=2e-2".parse().unwrap();
    let options = [0, 1].map(|seed| OpenOptions { fault: Some(fault.clone()), seed, ..OpenOptions::default() });
    let Some(w) = World::with(1, 1500, options) else { return };
    for transport in [Transport::Rc, Transport::SR, Transport::LOWAR] {
        let qps = w.queue_pairs(QpKind::Rc, authenticated(transport, 7));
        w.connect(&qps, [w.address(0), w.address(1)], |c| c.timeout = 14);
        qps.iter().for_each(|qp| expect(qp, Choice::Agreed));
        reads_writes_and_atomics(&w, &qps, transport.name());
        every_reliable(&w, &qps);
    }
    for side in &w.sides {
        let counters = side.context.counters();
        assert!(counters.rx_auth_replayed > 0 && counters.rx_auth_failed == 0, "{counters:?}");
    }
}

#[test]
fn frames_of_two_chunks_are_sealed_as_a_whole() {
    let Some(w) = World::new(1, 4216) else { return };
    let qps = w.queue_pairs(QpKind::Rc, authenticated(Transport::Rc, 7));
    w.connect(&qps, [w.address(0), w.address(1)], |c| assert_eq!(c.mtu, longest_mtu()));
    qps.iter().for_each(|qp| expect(qp, Choice::Agreed));
    w.write_and_compare(&qps, 0, HALF, 1);
    w.write_and_compare(&qps, 1, HALF, 2);
}

#[test]
fn a_peer_with_another_secret_is_refused() {
    let Some(w) = World::new(1, 1500) else { return };
    let addresses = [w.address(0), w.address(1)];
    let [mine, _] = w.queue_pairs(QpKind::Rc, authenticated(Transport::Rc, 7));
    let [_, theirs] = w.queue_pairs(QpKind::Rc, authenticated(Transport::Rc, 8));
    let qps = [mine, theirs];
    w.connect(&qps, addresses, |_| ());
    for side in 0..2 {
        expect(&qps[side], Choice::Standard(FallbackReason::Unauthenticated));
        let why = FallbackReason::Unauthenticated;
        w.event(side, Event::Unauthenticated(qps[side].qpn(), addresses[1 - side], why));
        assert_eq!(qps[side].state(), QpState::Error);
    }
}
