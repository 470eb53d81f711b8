//! What peers can make grow has an end, and what is no CM message does no harm.

use std::time::Duration;

use softnic_cm::{Config, Connect, Error, Event, Listen, PortSpace, State};
use softnic_wire::mad::cm::{Message, RejReason, TimeoutCode};
use softnic_wire::{Instant, Psn, Qpn};

use crate::common::{Mad, Pair, cm, drain, turned};

/// Requests of one peer, each with another id and queue pair.
fn requests(n: u32) -> Vec<Mad> {
    let pair = Pair::new();
    let mut asking = cm(Config { ca_guid: 0xa, ..Config::default() }, 5);
    for qpn in 0..n {
        asking.connect(&pair.connect(100 + qpn)).unwrap();
    }
    drain(&mut asking, Instant::ZERO)
}

#[test]
fn a_full_backlog_drops_requests_and_takes_them_later() {
    let mut pair = Pair::new();
    pair.b.unlisten(pair.listener).unwrap();
    let listen = Listen::port(PortSpace::Tcp, "10.0.0.2:7174".parse().unwrap());
    pair.b.listen(&Listen { backlog: 2, ..listen }).unwrap();
    let reqs = requests(3);
    pair.deliver_to_b(&reqs);
    let first = pair.request();
    pair.request();
    assert_eq!((pair.event_b(), pair.b.counters().dropped), (None, 1));
    assert!(pair.sent_by_b().is_empty(), "no answer: it will come again");
    pair.b.accept(first, &Pair::accept(18)).unwrap();
    pair.deliver_to_b(&reqs);
    pair.request();
    pair.no_more_events();
}

#[test]
fn a_program_that_does_not_listen_to_events_gets_no_more_requests() {
    let mut pair = Pair::with(Config { max_events: 3, ..Config::default() }, ["10.0.0.1", "10.0.0.2"]);
    pair.deliver_to_b(&requests(10));
    assert_eq!((pair.b.len(), pair.b.counters().dropped), (3, 7));
}

#[test]
fn a_full_table_refuses_and_what_lingers_makes_room() {
    let mut pair = Pair::with(Config { max_connections: 2, ..Config::default() }, ["10.0.0.1", "10.0.0.2"]);
    let reqs = requests(5);
    pair.deliver_to_b(&reqs[..3]);
    let ids = [pair.request(), pair.request()];
    assert_eq!(pair.event_b(), None);
    let Message::Rej(rej) = pair.sent_by_b()[0].message() else { panic!() };
    assert_eq!(rej.reason, RejReason::NO_RESOURCES);
    assert_eq!(pair.b.connect(&Connect { ..pair.connect(17) }), Err(Error::TooMany));
    pair.b.reject(pair.now, ids[0], RejReason::CONSUMER_DEFINED, &[], &[]).unwrap();
    assert_eq!(pair.b.len(), 2);
    pair.deliver_to_b(&reqs[3..4]);
    pair.request();
    assert_eq!(pair.b.len(), 2);
}

#[test]
fn one_address_does_not_fill_the_backlog_of_a_listener() {
    let mut pair = Pair::new();
    pair.b.unlisten(pair.listener).unwrap();
    let listen = Listen::port(PortSpace::Tcp, "10.0.0.2:7174".parse().unwrap());
    pair.b.listen(&Listen { backlog: 8, ..listen }).unwrap();
    let reqs = requests(9);
    pair.deliver_to_b(&reqs);
    assert_eq!(pair.b.counters().dropped, 3, "six of eight places are one address's");
    let mut other = cm(Config { ca_guid: 0xc, ..Config::default() }, 6);
    let [from, to] = ["10.0.0.3:40000", "10.0.0.2:7174"].map(|address| address.parse().unwrap());
    other.connect(&Connect::ip(from, to, Qpn::new(17), Psn::new(1)).unwrap()).unwrap();
    pair.deliver_to_b(&drain(&mut other, Instant::ZERO));
    assert_eq!(pair.b.counters().dropped, 3, "another one finds a place");
    let first = pair.request();
    pair.b.reject(pair.now, first, RejReason::CONSUMER_DEFINED, &[], &[]).unwrap();
    pair.deliver_to_b(&reqs[8..]);
    assert_eq!(pair.b.counters().dropped, 3, "what was answered makes room");
}

#[test]
fn requests_of_strangers_that_a_program_accepts_keep_no_good_client_out() {
    const PLACES: u32 = 1000;
    let limits = Config { max_connections: PLACES as usize, ..Config::default() };
    let mut pair = Pair::with(limits, ["10.0.0.1", "10.0.0.2"]);
    let [_, established] = pair.connected([17, 18]);
    let mut strangers = cm(Config { ca_guid: 0xc, ..Config::default() }, 6);
    let mut given_up = 0;
    // 10,000 requests a second for a second, each from an address of its own that never says another word.
    for n in 0..10 * PLACES {
        pair.pass(Duration::from_micros(100));
        let from = std::net::Ipv4Addr::from(0x0a01_0000 + n);
        let [from, to] = [(from, 40000).into(), "10.0.0.2:7174".parse().unwrap()];
        strangers.connect(&Connect::ip(from, to, Qpn::new(1000 + n), Psn::new(1)).unwrap()).unwrap();
        pair.deliver_to_b(&drain(&mut strangers, Instant::ZERO));
        while let Some(event) = pair.event_b() {
            match event {
                Event::ConnectRequest { id, .. } => pair.b.accept(id, &Pair::accept(1000 + n)).unwrap(),
                Event::Unreachable { id } => {
                    assert_eq!(pair.b.state(id), None);
                    given_up += 1;
                }
                Event::TimewaitExit { qpn, .. } => assert!(!pair.b.holds(qpn), "its number may be used again"),
                other => panic!("{other:?}"),
            }
        }
        pair.sent_by_b();
    }
    assert!(given_up >= 9 * PLACES, "only {given_up} made room");
    assert_eq!(pair.b.counters().refused, 0);
    // The good client is answered at once: no time passes.
    let good = pair.a.connect(&pair.connect(27)).unwrap();
    pair.carry();
    assert!(matches!(pair.event_b(), Some(Event::Unreachable { .. })));
    assert!(matches!(pair.event_b(), Some(Event::TimewaitExit { .. })));
    let request = pair.request();
    pair.b.accept(request, &Pair::accept(28)).unwrap();
    pair.carry();
    assert!(matches!(pair.event_a(), Some(Event::ConnectResponse { id, .. }) if id == good));
    pair.a.establish(good, &[]).unwrap();
    pair.carry();
    assert_eq!(pair.b.state(request), Some(State::Established));
    assert_eq!(pair.b.state(established), Some(State::Established), "what is confirmed makes no room");
    assert_eq!(pair.b.len(), PLACES as usize);
}

#[test]
fn answers_to_strangers_have_a_limit() {
    let mut pair = Pair::new();
    pair.b.unlisten(pair.listener).unwrap();
    pair.deliver_to_b(&requests(5000));
    assert_eq!(pair.sent_by_b().len(), 4096);
    assert!(pair.b.is_empty());
}

#[test]
fn what_is_no_cm_message_is_counted_and_dropped() {
    let mut pair = Pair::new();
    let req = requests(1).remove(0);
    let change = |at: usize, to: u8| {
        let mut mad = req.clone();
        mad.bytes[at] = to;
        mad
    };
    // Base version, class, method, status.
    pair.deliver_to_b(&[change(0, 2), change(1, 4), change(3, 0x83), change(5, 1)]);
    pair.b.handle_mad(pair.now, &turned(&req.route), &req.bytes[..255]);
    pair.b.handle_mad(pair.now, &turned(&req.route), &[]);
    assert_eq!((pair.b.counters().malformed, pair.event_b()), (6, None));
    pair.deliver_to_b(&[change(17, 0x19), change(17, 0x1a)]);
    assert_eq!(pair.b.counters().unsupported, 2, "LAP and APR");
    assert_eq!(pair.sent_by_b().len(), 1, "the LAP is answered");
    pair.deliver_to_b(&[change(2, 1)]);
    let Message::Rej(rej) = pair.sent_by_b()[0].message() else { panic!() };
    assert_eq!((rej.reason, rej.info()), (RejReason::INVALID_CLASS_VERSION, &[2][..]));
}

#[test]
fn ids_are_never_zero_and_never_taken_twice() {
    let mut numbers = [7, 0, 5, 5, 0, 6].into_iter();
    let mut asking = softnic_cm::Cm::new(Config::default(), move || numbers.next().unwrap());
    let pair = Pair::new();
    let ids = [17, 18].map(|qpn| asking.connect(&pair.connect(qpn)).unwrap().comm_id());
    assert_eq!(ids, [5, 6]);
    assert!(asking.holds(Qpn::new(17)));
    assert!(!matches!(asking.poll_event(), Some(Event::Rejected { .. })));
}

#[test]
fn a_lap_is_answered_that_there_are_no_alternate_paths() {
    let mut pair = Pair::new();
    pair.a.connect(&pair.connect(17)).unwrap();
    pair.carry();
    let id = pair.request();
    pair.b.accept(id, &Pair::accept(18)).unwrap();
    let rep = pair.sent_by_b();
    pair.deliver_to_a(&rep);
    let Some(Event::ConnectResponse { id, reply }) = pair.event_a() else { panic!("an answer") };
    pair.a.establish(id, &[]).unwrap();
    pair.carry();
    let mut lap = rep[0].clone();
    lap.route = turned(&lap.route);
    lap.bytes[17] = 0x19;
    lap.bytes[24..28].copy_from_slice(&reply.remote_comm_id.to_be_bytes());
    lap.bytes[28..32].copy_from_slice(&reply.local_comm_id.to_be_bytes());
    pair.deliver_to_b(&[lap.clone()]);
    let apr = pair.sent_by_b().remove(0);
    assert_eq!((apr.bytes[17], apr.bytes[24 + 9]), (0x1a, 2), "not supported");
    assert_eq!(apr.bytes[24..32], rep[0].bytes[24..32], "our id, and the peer's");
    assert_eq!(apr.bytes[8..16], lap.bytes[8..16], "of the same transaction");
    lap.bytes[31] ^= 1;
    pair.deliver_to_b(&[lap]);
    assert_eq!(pair.sent_by_b()[0].bytes[24 + 9], 1, "no such connection");
}

#[test]
fn one_request_with_the_longest_times_holds_a_place_for_two_minutes_at_most() {
    let mut pair = Pair::new();
    pair.a.connect(&pair.connect(17)).unwrap();
    let req = pair.sent_by_a().remove(0).with(|m| {
        let Message::Req(req) = m else { panic!("a REQ") };
        req.local_cm_response_timeout = TimeoutCode::new(31);
        req.max_cm_retries = 15;
    });
    pair.deliver_to_b(&[req]);
    let id = pair.request();
    pair.b.accept(id, &Pair::accept(18)).unwrap();
    let start = pair.now;
    while pair.b.state(id) == Some(State::RepSent) {
        pair.sent_by_b();
        pair.wait_for_b();
    }
    assert_eq!(pair.now - start, Config::default().longest_wait);
    assert!(matches!(pair.event_b(), Some(Event::Unreachable { .. })));
}

#[test]
fn connections_send_though_strangers_are_many() {
    let mut pair = Pair::new();
    pair.a.connect(&pair.connect(17)).unwrap();
    pair.carry();
    let id = pair.request();
    let nobody = requests(1000).into_iter().map(|mad| {
        mad.with(|m| {
            let Message::Req(req) = m else { panic!("a REQ") };
            req.primary.local_gid = "::9".parse().unwrap();
        })
    });
    pair.deliver_to_b(&nobody.collect::<Vec<_>>());
    pair.b.accept(id, &Pair::accept(18)).unwrap();
    let first_two = &pair.sent_by_b()[..2];
    assert!(
        first_two.iter().any(|mad| matches!(mad.message(), Message::Rep(_))),
        "it waits behind a thousand refusals"
    );
}
