//! Peers without the secret: refused in either direction, and never spoken to by the standard.

use softnic_nic::transports::negotiation::FallbackReason;
use softnic_nic::transports::qp::{PayloadMode, QpState};
use softnic_nic::transports::{AuthError, Event, Secret, SendOp, Status, Transport};
use softnic_nic::{ModifyError, ObjectError, QpKind};
use softnic_wire::PathMtu;

use super::{TRANSPORTS, options, world};
use crate::common::*;

/// Both post a WRITE and a SEND, and time passes until nothing moves.
fn run_out(w: &mut World) {
    for h in [A, B] {
        w.recv(h, 50, 40_000, 1000);
        w.send(h, 1, w.write_to(1 - h, 0), 1000, 300);
        w.send(h, 2, SendOp::Send, 1000, 300);
    }
    for _ in 0..200 {
        w.settle(1000);
        let next = [A, B].into_iter().filter(|&h| softnic_wire::Node::poll_timeout(&w.hosts[h].nic).is_some());
        let next: Vec<usize> = next.collect();
        next.iter().for_each(|&h| _ = w.wait_for_timer(h));
        if next.is_empty() {
            return;
        }
    }
    panic!("it never ends");
}

#[test]
fn a_peer_without_a_secret_or_with_another_one_is_refused_and_not_downgraded() {
    for transport in TRANSPORTS {
        for (secrets, refuses) in
            [([Some(7), None], [true, false]), ([None, Some(7)], [false, true]), ([Some(7), Some(8)], [true; 2])]
        {
            let mut w = World::new(Options { secrets, ..options(transport) });
            run_out(&mut w);
            for h in [A, B] {
                let name = format!("{transport} {secrets:?} host {h}");
                assert_eq!(w.read(h, 0, 300), vec![UNTOUCHED; 300], "{name}: nothing came");
                let sent = w.sent_status(h);
                assert!(sent.len() == 2 && sent.iter().all(|(_, s)| *s != Status::Success), "{name}: {sent:?}");
                assert!(w.received_status(h).iter().all(|(_, s)| *s != Status::Success), "{name}");
                assert_eq!(w.state(h), QpState::Error, "{name}");
                let refusal = Event::Unauthenticated(w.hosts[h].qpn, address(1 - h).0, FallbackReason::Unauthenticated);
                assert_eq!(w.events(h).contains(&refusal), refuses[h], "{name}");
                assert!(!refuses[h] || w.counters(h).rx_auth_failed > 0, "{name}");
            }
        }
    }
}

#[test]
fn a_peer_that_says_nothing_is_refused_after_the_patience() {
    for transport in TRANSPORTS {
        let mut w = World::new(options(transport));
        w.send(A, 1, w.write_to(B, 0), 0, 100);
        let begin = w.now;
        for _ in 0..20 {
            assert!(
                w.transmit(A).iter().all(|f| w.parse(f).bth.dest_qp == softnic_wire::Qpn::GSI),
                "nothing but offers"
            );
            if w.wait_for_timer(A).is_none() {
                break;
            }
        }
        assert_eq!(w.sent_status(A), [(1, Status::WrFlushErr)]);
        assert_eq!(w.state(A), QpState::Error);
        let why = FallbackReason::Silent;
        assert_eq!(w.events(A), [Event::Unauthenticated(w.hosts[A].qpn, address(B).0, why)]);
        let waited = w.now.saturating_since(begin).as_millis();
        assert!((1000..2000).contains(&waited), "{waited}");
    }
}

#[test]
fn a_peer_that_was_silent_before_is_asked_and_waited_for_again() {
    let mut w = World::new(Options { secrets: [Some(7), None], ..options(Transport::SR) });
    for _ in 0..20 {
        w.transmit(A);
        w.wait_for_timer(A);
    }
    assert_eq!(w.state(A), QpState::Error);
    let qpns = [A, B].map(|h| w.another_qp(h, QpKind::Rc));
    for h in [A, B] {
        w.hosts[h].nic.authenticate(qpns[h], &Secret::new(&[7; 32]).unwrap()).unwrap();
        w.connect((h, qpns[h]), QpKind::Rc, (1 - h, qpns[1 - h]));
    }
    w.settle(1000);
    w.send_on(A, qpns[A], 9, w.write_to(B, 0), 0, 100);
    w.settle(1000);
    assert_eq!(w.all_sent(A), [(qpns[A], 9, Status::Success)]);
}

#[test]
fn without_the_extension_of_the_transport_the_standard_is_spoken_with_authentication() {
    for transport in [Transport::SR, Transport::LOWAR] {
        let offers = [Some(transport), Some(Transport::Rc)];
        let mut w = World::new(Options { offers, ..options(transport) });
        w.settle(1000);
        let fell_back = Event::FellBack(w.hosts[A].qpn, address(B).0, FallbackReason::NothingInCommon);
        assert_eq!((w.events(A), w.events(B)), (vec![fell_back], vec![]));
        w.fill(A, 0, &pattern(1, 3000));
        w.send(A, 1, w.write_to(B, 0), 0, 3000);
        w.settle(1000);
        assert_eq!((w.sent_status(A), w.read(B, 0, 3000)), (vec![(1, Status::Success)], pattern(1, 3000)));
        assert_eq!([A, B].map(|h| w.counters(h).rx_auth_failed), [0, 0]);
    }
}

#[test]
fn a_link_that_does_not_carry_sealed_packets_refuses_the_path_mtu() {
    for (ipv6, needed) in [(false, 1024 + 96), (true, 1024 + 116)] {
        for (link, taken) in [(needed - 1, false), (needed, true)] {
            let o = Options { mtu: PathMtu::B1024, ipv6, ..options(Transport::Rc) };
            let mut w = World::unconnected(o);
            w.hosts[A].nic.set_link_mtu(link);
            w.modify(A, &init_attr(&o));
            let (path, qpn) = (w.path(A), w.hosts[A].qpn);
            let result = w.hosts[A].nic.modify_qp(qpn, &rtr_attr(&o, path, w.hosts[B].qpn));
            assert_eq!(result, if taken { Ok(()) } else { Err(ModifyError::LinkMtu { needed, link }) });
            assert_eq!(w.state(A) == QpState::Init, !taken);
        }
    }
}

#[test]
fn repair_packets_need_room_for_the_trailer_too() {
    let o = Options { mtu: PathMtu::B1024, ..options(Transport::LOWAR) };
    for (link, fits) in [(1024 + 143, false), (1024 + 144, true)] {
        let mut w = World::unconnected(o);
        for h in [A, B] {
            w.hosts[h].nic.set_link_mtu(link);
            let rtr = rtr_attr(&o, w.path(h), w.hosts[1 - h].qpn);
            for attr in [init_attr(&o), rtr, rts_attr(&o)] {
                w.modify(h, &attr);
            }
        }
        w.settle(1000);
        let why = FallbackReason::LinkMtu(1024 + 144);
        let told: Vec<_> = (!fits).then(|| Event::FellBack(w.hosts[A].qpn, address(B).0, why)).into_iter().collect();
        assert_eq!(w.events(A), told);
        w.send(A, 1, w.write_to(B, 0), 0, 100_000);
        let longest = w.transmit(A).iter().map(Vec::len).max();
        assert!(longest.is_some_and(|n| n <= 14 + link as usize), "{longest:?}");
    }
}

#[test]
fn datagrams_unreliable_connections_connected_queue_pairs_and_elided_payloads_have_no_authentication() {
    let secret = Secret::new(&[7; 16]).unwrap();
    for kind in [QpKind::Uc, QpKind::Ud] {
        let mut w = World::unconnected(Options { kind, ..Options::default() });
        let qpn = w.hosts[A].qpn;
        assert_eq!(w.hosts[A].nic.authenticate(qpn, &secret), Err(ObjectError::Auth(AuthError::Transport)));
    }
    let mut w = World::unconnected(Options { payload: PayloadMode::Elided, ..Options::default() });
    let qpn = w.hosts[A].qpn;
    assert_eq!(w.hosts[A].nic.authenticate(qpn, &secret), Err(ObjectError::Auth(AuthError::Elided)));
    let mut w = world(options(Transport::Rc));
    let qpn = w.hosts[A].qpn;
    assert_eq!(w.hosts[A].nic.authenticate(qpn, &secret), Err(ObjectError::Auth(AuthError::State)));
}
