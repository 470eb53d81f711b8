//! DREQ, DREP and the time after them.

use softnic_cm::{Disconnect, Error, Event, State};
use softnic_wire::Qpn;
use softnic_wire::mad::cm::Message;

use crate::common::{Pair, kinds};

fn ended(id: softnic_cm::CmId, how: Disconnect) -> Option<Event> {
    Some(Event::Disconnected { id, how })
}

#[test]
fn one_side_ends_it_and_the_other_agrees() {
    for by_asked in [false, true] {
        let mut pair = Pair::new();
        let [a, b] = pair.connected([17, 18]);
        if by_asked {
            std::mem::swap(&mut pair.a, &mut pair.b);
        }
        let ([a, b], [qa, qb]) = if by_asked { ([b, a], [18, 17]) } else { ([a, b], [17, 18]) };
        pair.a.disconnect(pair.now, a, b"bye").unwrap();
        assert_eq!(pair.a.state(a), Some(State::DreqSent));
        let dreq = pair.sent_by_a();
        let Message::Dreq(m) = dreq[0].message() else { panic!() };
        assert_eq!((m.local_comm_id, m.remote_comm_id, m.remote_qpn), (a.comm_id(), b.comm_id(), qb));
        assert!(m.private_data.starts_with(b"bye\0"));
        pair.deliver_to_b(&dreq);
        pair.deliver_to_b(&dreq);
        assert_eq!(pair.event_b(), ended(b, Disconnect::Peer));
        assert!(pair.sent_by_b().is_empty(), "its program has not agreed yet");
        pair.b.disconnect(pair.now, b, &[]).unwrap();
        let drep = pair.sent_by_b();
        assert_eq!(kinds(&drep), ["DREP"]);
        pair.deliver_to_a(&drep);
        pair.deliver_to_a(&drep);
        assert_eq!(pair.event_a(), ended(a, Disconnect::Agreed));
        assert_eq!((pair.a.state(a), pair.b.state(b)), (Some(State::Timewait), Some(State::Timewait)));
        pair.no_more_events();
        pair.until_empty();
        assert_eq!(pair.event_a(), Some(Event::TimewaitExit { id: a, qpn: Qpn::new(qa) }));
        assert_eq!(pair.event_b(), Some(Event::TimewaitExit { id: b, qpn: Qpn::new(qb) }));
        pair.no_more_events();
    }
}

#[test]
fn a_lost_drep_is_sent_again_when_the_dreq_comes_again() {
    let mut pair = Pair::new();
    let [a, b] = pair.connected([17, 18]);
    pair.a.disconnect(pair.now, a, &[]).unwrap();
    pair.carry();
    assert_eq!(pair.event_b(), ended(b, Disconnect::Peer));
    pair.b.disconnect(pair.now, b, b"so be it").unwrap();
    let lost = pair.sent_by_b();
    pair.now = pair.a.poll_timeout().unwrap();
    pair.a.handle_timeout(pair.now); // only the asking side's clock runs: the other one is still in timewait
    let again = pair.sent_by_a();
    assert_eq!(kinds(&again), ["DREQ"]);
    pair.deliver_to_b(&again);
    let drep = pair.sent_by_b();
    assert_eq!(drep[0].bytes, lost[0].bytes);
    pair.deliver_to_a(&drep);
    assert_eq!(pair.event_a(), ended(a, Disconnect::Agreed));
    pair.no_more_events();
}

#[test]
fn a_dreq_for_what_is_long_over_is_agreed_to() {
    let mut pair = Pair::new();
    let [a, b] = pair.connected([17, 18]);
    pair.a.disconnect(pair.now, a, &[]).unwrap();
    let dreq = pair.sent_by_a();
    pair.deliver_to_b(&dreq);
    pair.b.disconnect(pair.now, b, &[]).unwrap();
    drop(pair.sent_by_b());
    while pair.b.poll_timeout().is_some() {
        pair.wait_for_b();
    }
    assert!(pair.b.is_empty());
    pair.deliver_to_b(&dreq);
    let drep = pair.sent_by_b();
    assert_eq!(kinds(&drep), ["DREP"]);
    pair.deliver_to_a(&drep);
    assert_eq!(pair.event_a(), ended(a, Disconnect::Agreed));
}

#[test]
fn both_end_it_at_the_same_time() {
    let mut pair = Pair::new();
    let [a, b] = pair.connected([17, 18]);
    pair.a.disconnect(pair.now, a, &[]).unwrap();
    pair.b.disconnect(pair.now, b, &[]).unwrap();
    let (from_a, from_b) = (pair.sent_by_a(), pair.sent_by_b());
    assert_eq!((kinds(&from_a), kinds(&from_b)), (vec!["DREQ"], vec!["DREQ"]));
    pair.deliver_to_b(&from_a);
    pair.deliver_to_a(&from_b);
    assert_eq!((pair.event_a(), pair.event_b()), (ended(a, Disconnect::Agreed), ended(b, Disconnect::Agreed)));
    let (from_a, from_b) = (pair.sent_by_a(), pair.sent_by_b());
    assert_eq!((kinds(&from_a), kinds(&from_b)), (vec!["DREP"], vec!["DREP"]));
    pair.deliver_to_b(&from_a);
    pair.deliver_to_a(&from_b);
    assert_eq!((pair.a.state(a), pair.b.state(b)), (Some(State::Timewait), Some(State::Timewait)));
    pair.no_more_events();
    pair.until_empty();
}

#[test]
fn a_dreq_without_an_answer_ends_it_all_the_same() {
    let mut pair = Pair::new();
    let [a, b] = pair.connected([17, 18]);
    pair.a.disconnect(pair.now, a, &[]).unwrap();
    let mut sent = 0;
    while pair.a.state(a) == Some(State::DreqSent) {
        sent += pair.sent_by_a().len();
        pair.wait_for_a();
    }
    assert_eq!((sent, pair.event_a()), (16, ended(a, Disconnect::NoAnswer)));
    pair.b.disconnect(pair.now, b, &[]).unwrap();
    pair.carry();
    assert_eq!(pair.event_b(), ended(b, Disconnect::Agreed));
    pair.until_empty();
}

#[test]
fn a_program_that_ends_has_its_lost_dreq_sent_again_at_once() {
    let mut pair = Pair::new();
    let [a, b] = pair.connected([17, 18]);
    assert!(!pair.a.awaits_drep());
    pair.a.disconnect(pair.now, a, &[]).unwrap();
    assert_eq!(kinds(&pair.sent_by_a()), ["DREQ"], "it is lost");
    assert!(pair.a.awaits_drep() && pair.sent_by_a().is_empty());
    pair.a.repeat_dreqs();
    pair.carry();
    assert_eq!(pair.event_b(), ended(b, Disconnect::Peer));
    pair.b.disconnect(pair.now, b, &[]).unwrap();
    pair.carry();
    assert!(!pair.a.awaits_drep(), "it is answered");
    pair.a.repeat_dreqs();
    assert!(pair.sent_by_a().is_empty());
}

#[test]
fn a_dreq_overtakes_the_rtu() {
    let mut pair = Pair::new();
    let [a, b] = pair.replied([17, 18]);
    pair.a.establish(a, &[]).unwrap();
    pair.a.disconnect(pair.now, a, &[]).unwrap();
    let sent = pair.sent_by_a();
    assert_eq!(kinds(&sent), ["RTU", "DREQ"]);
    pair.deliver_to_b(&sent[1..]);
    assert_eq!(pair.event_b(), ended(b, Disconnect::Peer));
    pair.deliver_to_b(&sent[..1]);
    pair.no_more_events();
    pair.b.disconnect(pair.now, b, &[]).unwrap();
    pair.carry();
    assert_eq!(pair.event_a(), ended(a, Disconnect::Agreed));
    pair.until_empty();
}

#[test]
fn a_dreq_must_name_both_ids_and_the_queue_pair() {
    let mut pair = Pair::new();
    let [a, b] = pair.connected([17, 18]);
    pair.a.disconnect(pair.now, a, &[]).unwrap();
    let dreq = pair.sent_by_a().remove(0);
    let change = |f: fn(&mut softnic_wire::mad::cm::Dreq)| {
        dreq.clone().with(|m| {
            let Message::Dreq(m) = m else { panic!() };
            f(m);
        })
    };
    pair.deliver_to_b(&[change(|m| m.remote_qpn += 1), change(|m| m.local_comm_id += 1)]);
    let mut elsewhere = dreq.clone();
    elsewhere.route.local = "10.0.0.9".parse().unwrap();
    pair.deliver_to_b(&[elsewhere]);
    assert_eq!((pair.b.state(b), pair.event_b()), (Some(State::Established), None));
    assert_eq!((pair.b.counters().unexpected, pair.b.counters().wrong_address), (2, 1));
    pair.deliver_to_b(&[dreq]);
    assert_eq!(pair.event_b(), ended(b, Disconnect::Peer));
}

#[test]
fn in_timewait_a_queue_pair_number_cannot_be_used() {
    let mut pair = Pair::new();
    let [a, b] = pair.connected([17, 18]);
    pair.a.disconnect(pair.now, a, &[]).unwrap();
    pair.carry();
    pair.b.disconnect(pair.now, b, &[]).unwrap();
    pair.carry();
    assert!(pair.a.holds(Qpn::new(17)) && pair.b.holds(Qpn::new(18)));
    assert_eq!(pair.a.connect(&pair.connect(17)), Err(Error::QpnInUse));
    assert_eq!(pair.a.disconnect(pair.now, a, &[]), Err(Error::WrongState(State::Timewait)));
    // Another queue pair of the asking side, with the resting one of the asked side.
    while pair.event_b().is_some() {}
    pair.a.connect(&pair.connect(27)).unwrap();
    pair.carry();
    let c = pair.request();
    assert_eq!(pair.b.accept(c, &Pair::accept(18)), Err(Error::QpnInUse));
    pair.b.accept(c, &Pair::accept(28)).unwrap();
    // 2^17 for the way there and back, twice 2^15 for the ACK; all in 4.096 µs.
    let end_a = 4096 * ((1 << 17) + 2 * (1 << 15));
    assert_eq!(pair.a.poll_timeout().unwrap().as_nanos(), end_a);
    pair.wait_for_a();
    assert!(!pair.a.holds(Qpn::new(17)));
    pair.wait_for_b();
    assert!(!pair.b.holds(Qpn::new(18)));
    pair.a.connect(&pair.connect(17)).unwrap();
}
