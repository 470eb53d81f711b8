//! MRA: a side that needs longer to answer says so.

use softnic_cm::{Config, Event, MraTime, State};
use softnic_wire::mad::cm::{Message, Mra, Responded, TimeoutCode};

use crate::common::{Pair, kinds};

/// 68.7 s.
const LONG: TimeoutCode = TimeoutCode::new(24);

#[test]
fn an_mra_to_the_request_gives_the_program_time() {
    let mut pair = Pair::new();
    let id = pair.a.connect(&pair.connect(17)).unwrap();
    pair.carry();
    let usual = pair.a.poll_timeout().unwrap();
    let b = pair.request();
    pair.b.mra(b, LONG, MraTime::Now).unwrap();
    let sent = pair.sent_by_b();
    let Message::Mra(m) = sent[0].message() else { panic!() };
    assert_eq!((m.message, m.service_timeout, m.remote_comm_id), (Responded::REQ, LONG, id.comm_id()));
    pair.deliver_to_a(&sent);
    assert_eq!(pair.a.poll_timeout(), Some(usual + LONG.duration()));
    pair.wait_for_a();
    let again = pair.sent_by_a();
    assert_eq!(kinds(&again), ["REQ"], "its time is over");
    pair.deliver_to_b(&again);
    assert_eq!(kinds(&pair.sent_by_b()), ["MRA"], "the program still needs time");
    pair.b.accept(b, &Pair::accept(18)).unwrap();
    pair.carry();
    assert!(matches!(pair.event_a(), Some(Event::ConnectResponse { .. })));
    pair.deliver_to_a(&sent);
    assert_eq!((pair.a.poll_timeout(), pair.a.state(id)), (None, Some(State::RepReceived)), "too late to matter");
}

#[test]
fn an_mra_can_wait_until_the_request_comes_again() {
    let mut pair = Pair::new();
    pair.a.connect(&pair.connect(17)).unwrap();
    let req = pair.sent_by_a();
    pair.deliver_to_b(&req);
    let b = pair.request();
    pair.b.mra(b, LONG, MraTime::OnDuplicate).unwrap();
    assert!(pair.sent_by_b().is_empty());
    pair.deliver_to_b(&req);
    assert_eq!(kinds(&pair.sent_by_b()), ["MRA"]);
}

#[test]
fn an_mra_to_the_reply_gives_the_asking_program_time() {
    let mut pair = Pair::new();
    let [a, b] = pair.replied([17, 18]);
    let usual = pair.b.poll_timeout().unwrap();
    pair.a.mra(a, LONG, MraTime::Now).unwrap();
    pair.carry();
    assert_eq!(pair.b.poll_timeout(), Some(usual + LONG.duration()));
    pair.wait_for_b();
    pair.carry();
    assert_eq!(pair.b.counters().retransmitted, 1);
    assert!(pair.b.poll_timeout().unwrap() > pair.now + LONG.duration(), "asked for patience again");
    pair.a.establish(a, &[]).unwrap();
    pair.carry();
    assert!(matches!(pair.event_b(), Some(Event::Established { id, .. }) if id == b));
}

#[test]
fn patience_has_its_limit() {
    let mut pair = Pair::with(
        Config { longest_wait: std::time::Duration::from_secs(30), ..Config::default() },
        ["10.0.0.1", "10.0.0.2"],
    );
    pair.a.connect(&pair.connect(17)).unwrap();
    pair.carry();
    let b = pair.request();
    pair.b.mra(b, TimeoutCode::new(31), MraTime::Now).unwrap();
    pair.carry();
    assert_eq!(pair.a.poll_timeout().unwrap().as_nanos(), 30_000_000_000);
    let mut tries = 0;
    while pair.a.poll_timeout().is_some() {
        pair.wait_for_a();
        pair.carry();
        tries += 1;
    }
    assert_eq!(tries, 16, "whoever always asks for patience is not waited for for ever");
    assert!(matches!(pair.event_a(), Some(Event::Unreachable { .. })));
}

#[test]
fn an_mra_for_something_else_changes_nothing() {
    let mut pair = Pair::new();
    pair.a.connect(&pair.connect(17)).unwrap();
    pair.carry();
    let usual = pair.a.poll_timeout();
    let b = pair.request();
    pair.b.mra(b, LONG, MraTime::Now).unwrap();
    let mra = pair.sent_by_b().remove(0);
    let change = |f: fn(&mut Mra)| {
        mra.clone().with(|m| {
            let Message::Mra(m) = m else { panic!() };
            f(m);
        })
    };
    pair.deliver_to_a(&[change(|m| m.message = Responded::REP), change(|m| m.message = Responded::LAP_OR_NONE)]);
    pair.deliver_to_a(&[change(|m| m.remote_comm_id ^= 1)]);
    assert_eq!((pair.a.poll_timeout(), pair.a.counters().unexpected), (usual, 3));
    pair.deliver_to_a(&[mra]);
    assert_ne!(pair.a.poll_timeout(), usual);
}
