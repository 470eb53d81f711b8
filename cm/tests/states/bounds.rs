//! What peers can make grow has an end, and what is no CM message does no harm.

use softnic_cm::{Config, Connect, Error, Event, Listen, PortSpace};
use softnic_wire::mad::cm::{Message, RejReason};
use softnic_wire::{Instant, Qpn};

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
fn answers_to_strangers_have_a_limit() {
    let mut pair = Pair::new();
    pair.b.unlisten(pair.listener).unwrap();
    pair.deliver_to_b(&requests(1000));
    assert_eq!(pair.sent_by_b().len(), 64);
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
    assert!(pair.sent_by_b().is_empty());
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
