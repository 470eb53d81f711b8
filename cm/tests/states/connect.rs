//! REQ, REP and RTU: connections that are made, whatever is lost or doubled on the way.

use crate::common::{Pair, kinds, turned};
use softnic_cm::{Accept, Connect, Event, State};
use softnic_wire::mad::cm::{Failover, Message, PathMtu, TransportService};
use softnic_wire::mad::ip_cm::IpCm;
use softnic_wire::{Psn, Qpn};

#[test]
fn a_connection_is_made_and_both_sides_know_all_of_each_other() {
    for ips in [["10.0.0.1", "10.0.0.2"], ["fd33::1", "fd33::2"]] {
        let mut pair = Pair::with(softnic_cm::Config::default(), ips);
        let connect = Connect {
            responder_resources: 3,
            initiator_depth: 4,
            path_mtu: PathMtu::MTU_4096,
            private_data: b"from the asking side",
            ..pair.connect(17)
        };
        let id = pair.a.connect(&connect).unwrap();
        assert_eq!(pair.a.state(id), Some(State::ReqSent));
        let sent = pair.sent_by_a();
        assert_eq!(kinds(&sent), ["REQ"]);
        assert_eq!(sent[0].route, connect.route);
        pair.deliver_to_b(&sent);

        let Some(Event::ConnectRequest { id: passive, listener, route, request }) = pair.event_b() else { panic!() };
        assert_eq!((listener, route), (pair.listener, turned(&connect.route)));
        assert_eq!((request.local_comm_id, request.local_qpn, request.starting_psn), (id.comm_id(), 17, Psn::new(170)));
        assert_eq!((request.responder_resources, request.initiator_depth), (3, 4));
        assert_eq!((request.path_mtu, request.transport_service), (PathMtu::MTU_4096, TransportService::RC));
        let ip = request.ip_cm().unwrap();
        assert_eq!((ip.source(), ip.destination()), (std::net::SocketAddr::new(pair.ips[0], 40000), pair.ips[1]));
        assert!(IpCm::consumer_data(&request.private_data).starts_with(b"from the asking side\0"));
        assert_eq!(pair.b.state(passive), Some(State::ReqReceived));

        let accept = Accept { responder_resources: 5, private_data: b"yes", ..Pair::accept(18) };
        pair.b.accept(passive, &accept).unwrap();
        let sent = pair.sent_by_b();
        assert_eq!((kinds(&sent), sent[0].route), (vec!["REP"], turned(&connect.route)));
        pair.deliver_to_a(&sent);
        let Some(Event::ConnectResponse { id: asked, reply }) = pair.event_a() else { panic!() };
        assert_eq!(asked, id);
        assert_eq!((reply.local_comm_id, reply.remote_comm_id), (passive.comm_id(), id.comm_id()));
        assert_eq!((reply.local_qpn, reply.starting_psn, reply.responder_resources), (18, Psn::new(180), 5));
        assert_eq!((reply.failover, reply.local_ca_guid), (Failover::UNSUPPORTED, 0xb));
        assert!(reply.private_data.starts_with(b"yes\0"));

        pair.a.establish(id, b"ready").unwrap();
        assert_eq!(pair.a.state(id), Some(State::Established));
        let sent = pair.sent_by_a();
        assert_eq!(kinds(&sent), ["RTU"]);
        pair.deliver_to_b(&sent);
        let Some(Event::Established { id: made, private_data: Some(data) }) = pair.event_b() else { panic!() };
        assert_eq!(made, passive);
        assert!(data.starts_with(b"ready\0"));
        assert_eq!(pair.b.state(passive), Some(State::Established));
        assert_eq!((pair.a.poll_timeout(), pair.b.poll_timeout()), (None, None), "nobody waits for anything");
        pair.no_more_events();
    }
}

#[test]
fn one_transaction_runs_from_the_request_to_its_confirmation() {
    let mut pair = Pair::new();
    let tid = |mads: &[crate::common::Mad]| Message::parse(&mads[0].bytes).unwrap().0.transaction_id;
    let id = pair.a.connect(&pair.connect(17)).unwrap();
    let req = pair.sent_by_a();
    pair.deliver_to_b(&req);
    let passive = pair.request();
    pair.b.accept(passive, &Pair::accept(18)).unwrap();
    let rep = pair.sent_by_b();
    pair.deliver_to_a(&rep);
    pair.a.establish(id, &[]).unwrap();
    let rtu = pair.sent_by_a();
    assert_eq!((tid(&req), tid(&req)), (tid(&rep), tid(&rtu)));
}

#[test]
fn a_lost_req_is_sent_again_after_its_time() {
    let mut pair = Pair::new();
    pair.a.connect(&pair.connect(17)).unwrap();
    let first = pair.sent_by_a();
    // 4.096 µs · 2^20 for the peer's manager, and twice 4.096 µs · 2^16 on the way.
    assert_eq!(pair.a.poll_timeout().unwrap().as_nanos(), 4096 * ((1 << 20) + (1 << 17)));
    pair.wait_for_a();
    let second = pair.sent_by_a();
    assert_eq!((kinds(&second), second[0].bytes), (vec!["REQ"], first[0].bytes));
    assert_eq!(pair.a.counters().retransmitted, 1);
    pair.deliver_to_b(&second);
    pair.request();
}

#[test]
fn a_request_that_comes_twice_is_one_request() {
    let mut pair = Pair::new();
    pair.a.connect(&pair.connect(17)).unwrap();
    let req = pair.sent_by_a();
    pair.deliver_to_b(&req);
    pair.deliver_to_b(&req);
    let passive = pair.request();
    pair.no_more_events();
    assert!(pair.sent_by_b().is_empty(), "the program has not answered yet");
    pair.b.accept(passive, &Pair::accept(18)).unwrap();
    assert_eq!(kinds(&pair.sent_by_b()), ["REP"]);
    pair.deliver_to_b(&req);
    assert_eq!(kinds(&pair.sent_by_b()), ["REP"], "its answer seems to be lost");
    assert_eq!(pair.b.counters().duplicates, 2);
}

#[test]
fn a_lost_rep_is_sent_again_and_one_that_comes_twice_is_one() {
    let mut pair = Pair::new();
    let id = pair.a.connect(&pair.connect(17)).unwrap();
    pair.carry();
    let passive = pair.request();
    pair.b.accept(passive, &Pair::accept(18)).unwrap();
    drop(pair.sent_by_b());
    pair.wait_for_b();
    let rep = pair.sent_by_b();
    assert_eq!(kinds(&rep), ["REP"]);
    pair.deliver_to_a(&rep);
    pair.deliver_to_a(&rep);
    assert!(matches!(pair.event_a(), Some(Event::ConnectResponse { .. })));
    pair.no_more_events();
    assert!(pair.sent_by_a().is_empty(), "the program has not established it yet");
    pair.a.establish(id, &[]).unwrap();
    pair.carry();
    assert!(matches!(pair.event_b(), Some(Event::Established { .. })));
}

#[test]
fn a_lost_rtu_is_sent_again_when_the_rep_comes_again() {
    let mut pair = Pair::new();
    let [a, b] = pair.replied([17, 18]);
    pair.a.establish(a, b"ready").unwrap();
    drop(pair.sent_by_a());
    assert_eq!(pair.b.state(b), Some(State::RepSent));
    pair.wait_for_b();
    let rep = pair.sent_by_b();
    pair.deliver_to_a(&rep);
    let rtu = pair.sent_by_a();
    assert_eq!(kinds(&rtu), ["RTU"]);
    pair.deliver_to_b(&rtu);
    pair.deliver_to_b(&rtu);
    assert!(
        matches!(pair.event_b(), Some(Event::Established { private_data: Some(d), .. }) if d.starts_with(b"ready"))
    );
    pair.no_more_events();
}

#[test]
fn the_first_data_stands_for_a_lost_rtu() {
    let mut pair = Pair::new();
    let [a, b] = pair.replied([17, 18]);
    pair.a.establish(a, &[]).unwrap();
    let late = pair.sent_by_a();
    pair.b.handle_comm_est(Qpn::new(19));
    assert_eq!(pair.event_b(), None, "another queue pair's");
    pair.b.handle_comm_est(Qpn::new(18));
    pair.b.handle_comm_est(Qpn::new(18));
    assert_eq!(pair.event_b(), Some(Event::Established { id: b, private_data: None }));
    assert_eq!((pair.b.state(b), pair.b.poll_timeout()), (Some(State::Established), None));
    pair.deliver_to_b(&late);
    pair.no_more_events();
}

#[test]
fn two_queue_pairs_of_one_nic_are_connected() {
    let mut pair = Pair::with(softnic_cm::Config::default(), ["10.0.0.2", "10.0.0.2"]);
    let own = pair.connect(17);
    let a = pair.b.connect(&own).unwrap();
    let carry = |pair: &mut Pair| {
        let mads = pair.sent_by_b();
        pair.deliver_to_b(&mads);
    };
    carry(&mut pair);
    let b = pair.request();
    pair.b.accept(b, &Pair::accept(18)).unwrap();
    carry(&mut pair);
    assert!(matches!(pair.event_b(), Some(Event::ConnectResponse { id, .. }) if id == a));
    pair.b.establish(a, &[]).unwrap();
    carry(&mut pair);
    assert!(matches!(pair.event_b(), Some(Event::Established { id, .. }) if id == b));
    pair.b.disconnect(pair.now, a, &[]).unwrap();
    carry(&mut pair);
    assert!(matches!(pair.event_b(), Some(Event::Disconnected { id, .. }) if id == b));
    pair.b.disconnect(pair.now, b, &[]).unwrap();
    carry(&mut pair);
    assert!(matches!(pair.event_b(), Some(Event::Disconnected { id, .. }) if id == a));
}

#[test]
fn what_a_program_may_not_do_is_refused_and_changes_nothing() {
    use softnic_cm::Error;
    let mut pair = Pair::new();
    let long = [0; 57];
    let connect = Connect { private_data: &long, ..pair.connect(17) };
    assert_eq!(pair.a.connect(&connect), Err(Error::TooLong { len: 57, room: 56 }));
    for qpn in [0, 1, 0xff_ffff] {
        assert_eq!(pair.a.connect(&Connect { qpn: Qpn::new(qpn), ..pair.connect(17) }), Err(Error::BadQpn));
    }
    let [a, b] = pair.replied([17, 18]);
    assert_eq!(pair.a.connect(&pair.connect(17)), Err(Error::QpnInUse));
    assert_eq!(pair.b.accept(b, &Pair::accept(19)), Err(Error::WrongState(State::RepSent)));
    assert_eq!(pair.a.disconnect(pair.now, a, &[]), Err(Error::WrongState(State::RepReceived)));
    assert_eq!(pair.b.establish(a, &[]), Err(Error::NoSuchId), "that is the other side's");
    assert_eq!(pair.a.establish(a, &[0; 225]), Err(Error::TooLong { len: 225, room: 224 }));
    pair.a.establish(a, &[]).unwrap();
    pair.carry();
    assert_eq!(pair.a.establish(a, &[]), Err(Error::WrongState(State::Established)));
    let mixed = Connect::ip("10.0.0.1:1".parse().unwrap(), "[::1]:2".parse().unwrap(), Qpn::new(5), Psn::new(0));
    assert_eq!(mixed, Err(Error::Versions));
}

#[test]
fn the_round_trip_to_a_peer_is_that_of_a_req_that_was_sent_once() {
    let mut pair = Pair::new();
    pair.a.connect(&pair.connect(17)).unwrap();
    pair.carry();
    let passive = pair.request();
    assert_eq!(pair.a.poll_round_trip(), None);
    pair.b.accept(passive, &Pair::accept(18)).unwrap();
    let rep = pair.sent_by_b();
    pair.now = pair.now + std::time::Duration::from_millis(160);
    pair.deliver_to_a(&rep);
    assert_eq!(pair.a.poll_round_trip(), Some((pair.ips[1], std::time::Duration::from_millis(160))));
    assert_eq!(pair.a.poll_round_trip(), None);

    let mut pair = Pair::new();
    pair.a.connect(&pair.connect(17)).unwrap();
    drop(pair.sent_by_a());
    pair.wait_for_a();
    pair.carry();
    let passive = pair.request();
    pair.b.accept(passive, &Pair::accept(18)).unwrap();
    pair.carry();
    assert_eq!(pair.a.poll_round_trip(), None, "nobody knows which REQ was answered");
}
