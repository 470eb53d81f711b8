//! Stale connections: a peer that forgot them, or uses a queue pair again too early.

use softnic_cm::{Cm, Config, Disconnect, Event, State};
use softnic_wire::Qpn;
use softnic_wire::mad::cm::{Message, RejReason};

use crate::common::{Pair, cm, kinds};

/// The asking side begins anew, and knows nothing of what was.
fn forget(pair: &mut Pair, seed: u64) -> Cm {
    std::mem::replace(&mut pair.a, cm(Config { ca_guid: 0xa, ..Config::default() }, seed))
}

fn reason(event: Option<Event>) -> RejReason {
    match event {
        Some(Event::Rejected { rej, .. }) => rej.reason,
        other => panic!("a refusal was expected, not {other:?}"),
    }
}

#[test]
fn a_queue_pair_that_is_asked_for_again_is_stale_and_its_old_connection_ends() {
    let mut pair = Pair::new();
    let [_, b] = pair.connected([17, 18]);
    forget(&mut pair, 99);
    let again = pair.a.connect(&pair.connect(17)).unwrap();
    let req = pair.sent_by_a();
    pair.deliver_to_b(&req);
    assert_eq!(pair.event_b(), None, "no program is asked");
    assert_eq!(pair.b.state(b), Some(State::DreqSent));
    let sent = pair.sent_by_b();
    assert_eq!(kinds(&sent), ["REJ", "DREQ"]);
    pair.deliver_to_a(&sent);
    assert_eq!(reason(pair.event_a()), RejReason::STALE_CONNECTION);
    assert_eq!(pair.a.state(again), Some(State::Timewait), "the number rests at who asked, too");
    pair.carry();
    assert_eq!(pair.event_b(), Some(Event::Disconnected { id: b, how: Disconnect::Agreed }));
    pair.until_empty();
    assert_eq!(pair.event_a(), Some(Event::TimewaitExit { id: again, qpn: Qpn::new(17) }));
    while pair.event_b().is_some() {}
    pair.connected([17, 18]);
}

#[test]
fn in_timewait_the_peers_queue_pair_is_stale_as_well() {
    let mut pair = Pair::new();
    let [a, b] = pair.connected([17, 18]);
    pair.a.disconnect(pair.now, a, &[]).unwrap();
    pair.carry();
    pair.b.disconnect(pair.now, b, &[]).unwrap();
    pair.carry();
    while pair.event_b().is_some() {}
    forget(&mut pair, 98);
    pair.a.connect(&pair.connect(17)).unwrap();
    pair.carry();
    assert_eq!(reason(pair.event_a()), RejReason::STALE_CONNECTION);
    assert_eq!((pair.event_b(), pair.b.state(b)), (None, Some(State::Timewait)));
    pair.a.connect(&pair.connect(27)).unwrap();
    pair.carry();
    pair.request(); // another number is none of its business
}

#[test]
fn a_request_that_comes_again_in_timewait_is_stale() {
    let mut pair = Pair::new();
    let a = pair.a.connect(&pair.connect(17)).unwrap();
    let req = pair.sent_by_a();
    pair.deliver_to_b(&req);
    let b = pair.request();
    pair.b.accept(b, &Pair::accept(18)).unwrap();
    pair.carry();
    pair.a.establish(a, &[]).unwrap();
    pair.a.disconnect(pair.now, a, &[]).unwrap();
    pair.carry();
    pair.b.disconnect(pair.now, b, &[]).unwrap();
    pair.carry();
    pair.deliver_to_b(&req);
    let sent = pair.sent_by_b();
    let Message::Rej(rej) = sent[0].message() else { panic!() };
    assert_eq!((rej.reason, sent.len()), (RejReason::STALE_CONNECTION, 1));
    pair.deliver_to_a(&sent);
    while pair.event_b().is_some() {}
    let [x, y] = [pair.event_a(), pair.event_a()];
    assert!(matches!(x, Some(Event::ConnectResponse { .. })) && matches!(y, Some(Event::Disconnected { .. })));
    pair.no_more_events();
}

#[test]
fn a_reply_with_a_queue_pair_that_is_connected_already_is_stale() {
    let mut pair = Pair::new();
    let [a, _] = pair.connected([17, 18]);
    // The asked side begins anew.
    let listen = softnic_cm::Listen::port(softnic_cm::PortSpace::Tcp, "10.0.0.2:7174".parse().unwrap());
    pair.b = cm(Config { ca_guid: 0xb, ..Config::default() }, 97);
    pair.listener = pair.b.listen(&listen).unwrap();
    let again = pair.a.connect(&pair.connect(27)).unwrap();
    pair.carry();
    let c = pair.request();
    pair.b.accept(c, &Pair::accept(18)).unwrap();
    pair.carry();
    assert_eq!(reason(pair.event_a()), RejReason::STALE_CONNECTION);
    assert_eq!(pair.a.state(again), Some(State::Timewait));
    assert_eq!(pair.event_a(), Some(Event::Disconnected { id: a, how: Disconnect::Agreed }));
    assert_eq!(reason(pair.event_b()), RejReason::STALE_CONNECTION);
    pair.until_empty();
}

#[test]
fn two_adapters_behind_two_addresses_may_use_the_same_number() {
    let mut pair = Pair::new();
    pair.connected([17, 18]);
    forget(&mut pair, 96);
    pair.ips[0] = "10.0.0.3".parse().unwrap();
    pair.connected([17, 19]);
}
