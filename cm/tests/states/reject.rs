//! REJ: connections that are not made, and why.

use softnic_cm::{Connect, Disconnect, Error, Event, Listen, MraTime, PortSpace, State};
use softnic_wire::Qpn;
use softnic_wire::mad::cm::{Message, Mra, PathMtu, Rej, RejReason, Responded, TimeoutCode, TransportService};
use softnic_wire::mad::ip_cm::ServiceId;

use crate::common::{Mad, Pair, kinds};

fn rejected(event: Option<Event>) -> Rej {
    match event {
        Some(Event::Rejected { rej, .. }) => *rej,
        other => panic!("a refusal was expected, not {other:?}"),
    }
}

/// What `b` says to a REQ that was changed on the way.
fn answer_to(change: impl FnOnce(&mut softnic_wire::mad::cm::Req)) -> Vec<Message> {
    let mut pair = Pair::new();
    pair.a.connect(&pair.connect(17)).unwrap();
    let req = pair.sent_by_a().remove(0).with(|m| {
        let Message::Req(req) = m else { panic!() };
        change(req);
    });
    pair.deliver_to_b(&[req]);
    assert_eq!(pair.event_b(), None, "no program is asked");
    pair.sent_by_b().iter().map(Mad::message).collect()
}

#[test]
fn the_program_refuses_with_its_reason_and_its_words() {
    let mut pair = Pair::new();
    let id = pair.a.connect(&pair.connect(17)).unwrap();
    let req = pair.sent_by_a();
    pair.deliver_to_b(&req);
    let passive = pair.request();
    pair.b.reject(pair.now, passive, RejReason::CONSUMER_DEFINED, &[7, 8], b"not today").unwrap();
    assert_eq!(pair.b.state(passive), None);
    assert_eq!(pair.b.accept(passive, &Pair::accept(18)), Err(Error::NoSuchId));
    let sent = pair.sent_by_b();
    assert_eq!(kinds(&sent), ["REJ"]);
    pair.deliver_to_b(&req);
    assert_eq!(pair.event_b(), None, "a request that comes again is no new one");
    assert_eq!(pair.sent_by_b()[0].bytes, sent[0].bytes, "and is told the same");
    pair.deliver_to_a(&sent);
    pair.deliver_to_a(&sent);
    let rej = rejected(pair.event_a());
    assert_eq!((rej.reason, rej.message, rej.info()), (RejReason::CONSUMER_DEFINED, Responded::REQ, &[7, 8][..]));
    assert_eq!((rej.local_comm_id, rej.remote_comm_id), (0, id.comm_id()));
    assert!(rej.private_data.starts_with(b"not today\0"));
    assert_eq!((pair.a.state(id), pair.a.holds(Qpn::new(17))), (None, false));
    pair.no_more_events();
    pair.until_empty();
}

#[test]
fn who_asks_can_refuse_the_reply() {
    let mut pair = Pair::new();
    let [a, b] = pair.replied([17, 18]);
    pair.a.reject(pair.now, a, RejReason::CONSUMER_DEFINED, &[], b"no more").unwrap();
    drop(pair.sent_by_a());
    pair.wait_for_b();
    let again = pair.sent_by_b();
    pair.deliver_to_a(&again);
    assert_eq!(kinds(&again), ["REP"]);
    pair.carry();
    let rej = rejected(pair.event_b());
    assert_eq!((rej.message, rej.reason), (Responded::REP, RejReason::CONSUMER_DEFINED));
    assert!(rej.private_data.starts_with(b"no more"), "it is said again, word for word");
    assert_eq!((pair.b.state(b), pair.b.holds(Qpn::new(18))), (None, false));
    pair.no_more_events();
    pair.until_empty();
}

#[test]
fn what_was_accepted_can_be_taken_back_until_it_is_confirmed() {
    let mut pair = Pair::new();
    let [a, b] = pair.replied([17, 18]);
    pair.b.reject(pair.now, b, RejReason::NO_RESOURCES, &[], &[]).unwrap();
    drop(pair.sent_by_b());
    pair.a.establish(a, &[]).unwrap();
    pair.carry();
    let how = Disconnect::Rejected(RejReason::NO_RESOURCES);
    assert_eq!(pair.event_a(), Some(Event::Disconnected { id: a, how }), "the RTU was answered with the lost refusal");
    pair.no_more_events();
    assert!(pair.b.holds(Qpn::new(18)), "data may be on its way");
    pair.until_empty();
    assert_eq!(pair.event_b(), Some(Event::TimewaitExit { id: b, qpn: Qpn::new(18) }));
    assert_eq!(pair.event_a(), Some(Event::TimewaitExit { id: a, qpn: Qpn::new(17) }));
}

#[test]
fn a_service_that_nobody_listens_to_is_refused_at_once() {
    let mut pair = Pair::new();
    let id = pair.a.connect(&Connect { service_id: PortSpace::Tcp.service_id(1), ..pair.connect(17) }).unwrap();
    pair.carry();
    let rej = rejected(pair.event_a());
    assert_eq!((rej.reason, rej.message), (RejReason::INVALID_SERVICE_ID, Responded::REQ));
    assert_eq!((rej.remote_comm_id, pair.b.counters().refused), (id.comm_id(), 1));
    pair.no_more_events();
    assert!(pair.a.is_empty() && pair.b.is_empty());
}

#[test]
fn who_listens_to_an_address_hears_what_is_for_it_alone() {
    let mut pair = Pair::new();
    pair.b.unlisten(pair.listener).unwrap();
    assert_eq!(pair.b.unlisten(pair.listener), Err(Error::NoSuchListener));
    let on = |address: &str| Listen::port(PortSpace::Tcp, address.parse().unwrap());
    let any = pair.b.listen(&on("[::]:7174")).unwrap();
    let any_v4 = pair.b.listen(&on("0.0.0.0:7174")).unwrap();
    let own = pair.b.listen(&on("10.0.0.2:7174")).unwrap();
    assert_eq!(pair.b.listen(&on("10.0.0.2:7174")), Err(Error::ServiceInUse));
    let other = pair.b.listen(&on("10.0.0.3:7174")).unwrap();
    let whoever = |pair: &mut Pair, qpn| {
        pair.a.connect(&pair.connect(qpn)).unwrap();
        pair.carry();
        match pair.event_b() {
            Some(Event::ConnectRequest { listener, .. }) => Some(listener),
            _ => None,
        }
    };
    for (n, expected) in [own, any_v4, any].into_iter().enumerate() {
        assert_eq!(whoever(&mut pair, 17 + n as u32), Some(expected));
        pair.b.unlisten(expected).unwrap();
    }
    assert_eq!(whoever(&mut pair, 30), None);
    pair.b.unlisten(other).unwrap();
    let raw = pair.b.listen(&Listen::service(ServiceId::ip(ServiceId::TCP, 7174))).unwrap();
    assert_eq!(whoever(&mut pair, 31), Some(raw));
}

#[test]
fn a_request_that_cannot_be_served_is_told_why() {
    let reason = |change: fn(&mut softnic_wire::mad::cm::Req)| match &answer_to(change)[..] {
        [Message::Rej(rej)] => rej.reason,
        other => panic!("{other:?}"),
    };
    assert_eq!(reason(|r| r.transport_service = TransportService::RD), RejReason::INVALID_TRANSPORT_TYPE);
    assert_eq!(reason(|r| r.transport_service = TransportService::EXTENDED), RejReason::INVALID_TRANSPORT_TYPE);
    assert_eq!(reason(|r| r.path_mtu = PathMtu::new(0)), RejReason::INVALID_MTU);
    assert_eq!(reason(|r| r.path_mtu = PathMtu::new(6)), RejReason::INVALID_MTU);
    assert_eq!(reason(|r| r.primary.local_gid = "fd33::9".parse().unwrap()), RejReason::INVALID_GID);
    assert_eq!(reason(|r| r.primary.remote_gid = "fd33::9".parse().unwrap()), RejReason::INVALID_GID);
    assert_eq!(reason(|r| r.private_data[1] = 0x50), RejReason::INVALID_SERVICE_ID, "no IP version that there is");
    assert!(answer_to(|r| r.local_qpn = 1).is_empty(), "QP1 cannot be connected");
}

#[test]
fn a_request_without_an_answer_ends_after_its_retries_and_the_other_side_is_told() {
    let mut pair = Pair::new();
    let id = pair.a.connect(&Connect { max_cm_retries: 2, ..pair.connect(17) }).unwrap();
    let req = pair.sent_by_a();
    for _ in 0..2 {
        pair.wait_for_a();
        assert_eq!(kinds(&pair.sent_by_a()), ["REQ"]);
    }
    pair.deliver_to_b(&req);
    let passive = pair.request();
    pair.wait_for_a();
    assert_eq!(pair.event_a(), Some(Event::Unreachable { id }));
    assert_eq!((pair.a.state(id), pair.a.holds(Qpn::new(17))), (None, false));
    let sent = pair.sent_by_a();
    assert_eq!(kinds(&sent), ["REJ"]);
    pair.deliver_to_b(&sent);
    pair.deliver_to_b(&sent);
    assert_eq!(rejected(pair.event_b()).reason, RejReason::TIMEOUT);
    pair.deliver_to_b(&req);
    pair.no_more_events();
    assert_eq!(pair.b.state(passive), None);
    pair.until_empty();
}

#[test]
fn a_reply_without_a_confirmation_ends_after_its_retries_and_its_queue_pair_rests() {
    let mut pair = Pair::new();
    let a = pair.a.connect(&Connect { max_cm_retries: 1, ..pair.connect(17) }).unwrap();
    pair.carry();
    let b = pair.request();
    pair.b.accept(b, &Pair::accept(18)).unwrap();
    pair.carry();
    pair.a.establish(a, &[]).unwrap();
    drop(pair.sent_by_a());
    pair.wait_for_b();
    assert_eq!(kinds(&pair.sent_by_b()), ["REP"]);
    pair.wait_for_b();
    assert_eq!(pair.event_b(), Some(Event::Unreachable { id: b }));
    assert!(matches!(pair.event_a(), Some(Event::ConnectResponse { .. })));
    assert_eq!((pair.b.state(b), pair.b.holds(Qpn::new(18))), (Some(State::Timewait), true));
    pair.carry();
    let how = Disconnect::Rejected(RejReason::TIMEOUT);
    assert_eq!(pair.event_a(), Some(Event::Disconnected { id: a, how }), "who thought it was connected knows better");
    pair.until_empty();
}

#[test]
fn a_reply_to_what_nobody_asks_for_any_more_is_refused() {
    let mut pair = Pair::new();
    let id = pair.a.connect(&pair.connect(17)).unwrap();
    pair.carry();
    let passive = pair.request();
    pair.a.destroy(pair.now, id).unwrap();
    drop(pair.sent_by_a());
    pair.b.accept(passive, &Pair::accept(18)).unwrap();
    pair.carry();
    assert_eq!(rejected(pair.event_b()).reason, RejReason::INVALID_COMM_ID);
    pair.no_more_events();
    pair.until_empty();
}

#[test]
fn a_refusal_that_comes_late_does_not_harm_the_connection() {
    let mut pair = Pair::new();
    pair.b.unlisten(pair.listener).unwrap();
    let a = pair.a.connect(&pair.connect(17)).unwrap();
    let req = pair.sent_by_a();
    pair.deliver_to_b(&req);
    let late = pair.sent_by_b();
    assert_eq!(kinds(&late), ["REJ"]);
    pair.b.listen(&Listen::port(PortSpace::Tcp, "10.0.0.2:7174".parse().unwrap())).unwrap();
    pair.deliver_to_b(&req);
    let b = pair.request();
    pair.b.accept(b, &Pair::accept(18)).unwrap();
    pair.carry();
    assert!(matches!(pair.event_a(), Some(Event::ConnectResponse { .. })));
    pair.deliver_to_a(&late);
    pair.a.establish(a, &[]).unwrap();
    pair.deliver_to_a(&late);
    pair.carry();
    assert_eq!((pair.a.state(a), pair.b.state(b)), (Some(State::Established), Some(State::Established)));
}

#[test]
fn what_is_destroyed_tells_the_peer_and_nobody_else() {
    // Asked.
    let mut pair = Pair::new();
    pair.a.connect(&pair.connect(17)).unwrap();
    pair.carry();
    let b = pair.request();
    pair.b.destroy(pair.now, b).unwrap();
    assert_eq!(pair.b.destroy(pair.now, b), Err(Error::NoSuchId));
    pair.carry();
    assert_eq!(rejected(pair.event_a()).reason, RejReason::CONSUMER_DEFINED);
    // Replied, with an event that nobody has seen.
    let mut pair = Pair::new();
    let a = pair.a.connect(&pair.connect(17)).unwrap();
    pair.carry();
    let b = pair.request();
    pair.b.accept(b, &Pair::accept(18)).unwrap();
    pair.carry();
    pair.a.destroy(pair.now, a).unwrap();
    assert_eq!(pair.event_a(), None);
    pair.carry();
    assert_eq!(rejected(pair.event_b()).message, Responded::REP);
    // Established.
    let mut pair = Pair::new();
    let [a, b] = pair.connected([17, 18]);
    pair.a.destroy(pair.now, a).unwrap();
    assert_eq!(pair.a.state(a), None);
    pair.carry();
    assert_eq!(pair.event_b(), Some(Event::Disconnected { id: b, how: Disconnect::Peer }));
    pair.b.destroy(pair.now, b).unwrap();
    pair.carry();
    assert!(pair.a.holds(Qpn::new(17)) && pair.b.holds(Qpn::new(18)));
    pair.no_more_events();
    pair.until_empty();
    pair.no_more_events();
}

#[test]
fn a_refusal_is_remembered_as_long_as_the_request_can_come_again() {
    for patient in [false, true] {
        let mut pair = Pair::new();
        pair.a.connect(&Connect { max_cm_retries: 3, ..pair.connect(17) }).unwrap();
        let req = pair.sent_by_a();
        pair.deliver_to_b(&req);
        let b = pair.request();
        if patient {
            pair.b.mra(b, TimeoutCode::new(20), MraTime::Now).unwrap();
            let mra = pair.sent_by_b();
            pair.deliver_to_a(&mra);
        }
        pair.b.reject(pair.now, b, RejReason::CONSUMER_DEFINED, &[], &[]).unwrap();
        drop(pair.sent_by_b());
        // Every answer gets lost, but a request to be patient.
        for _ in 0..3 {
            pair.wait_for_a();
            pair.b.handle_timeout(pair.now);
            let again = pair.sent_by_a();
            assert_eq!(kinds(&again), ["REQ"]);
            pair.deliver_to_b(&again);
            assert_eq!((kinds(&pair.sent_by_b()), pair.event_b()), (vec!["REJ"], None));
            if patient {
                let service_timeout = TimeoutCode::new(20);
                let (local_comm_id, remote_comm_id) = (b.comm_id(), 0);
                let mra = Mra {
                    local_comm_id,
                    remote_comm_id,
                    message: Responded::REQ,
                    service_timeout,
                    private_data: [0; 222],
                };
                let mra = again[0].clone().with(|m| {
                    let Message::Req(req) = m else { panic!() };
                    *m = Message::Mra(Mra { remote_comm_id: req.local_comm_id, ..mra });
                });
                let route = crate::common::turned(&mra.route);
                pair.deliver_to_a(&[Mad { route, ..mra }]);
            }
        }
        pair.until_empty();
    }
}

#[test]
fn what_was_taken_back_stays_so_when_the_request_comes_again() {
    let mut pair = Pair::new();
    let a = pair.a.connect(&pair.connect(17)).unwrap();
    pair.carry();
    let b = pair.request();
    pair.b.accept(b, &Pair::accept(18)).unwrap();
    pair.b.reject(pair.now, b, RejReason::CONSUMER_DEFINED, &[], b"no").unwrap();
    assert_eq!(kinds(&pair.sent_by_b()), ["REJ"], "the acceptance had not left yet");
    // In timewait, and after it.
    for over in [false, true] {
        if over {
            pair.wait_for_b();
            assert_eq!(pair.event_b(), Some(Event::TimewaitExit { id: b, qpn: Qpn::new(18) }));
        }
        pair.now = pair.now.max(pair.a.poll_timeout().unwrap());
        pair.a.handle_timeout(pair.now);
        let again = pair.sent_by_a();
        pair.deliver_to_b(&again);
        let answers = pair.sent_by_b();
        assert_eq!((kinds(&answers), pair.event_b()), (vec!["REJ"], None));
        if over {
            pair.deliver_to_a(&answers);
        }
    }
    let rej = rejected(pair.event_a());
    assert!(rej.private_data.starts_with(b"no\0"));
    assert_eq!(pair.a.state(a), None);
}
