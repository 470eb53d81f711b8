//! Service id resolution: which datagram queue pair serves.

use std::net::SocketAddr;

use softnic_cm::{CmId, Error, Event, Listen, PortSpace, Resolve, SidrReply, State};
use softnic_wire::Qpn;
use softnic_wire::mad::cm::{Message, SidrStatus};
use softnic_wire::mad::ip_cm::IpCm;

use crate::common::{Pair, kinds};

fn pair(ips: [&str; 2]) -> Pair {
    let mut pair = Pair::with(softnic_cm::Config::default(), ips);
    let address = SocketAddr::new(pair.ips[1], 7174);
    pair.listener = pair.b.listen(&Listen::port(PortSpace::Udp, address)).unwrap();
    pair
}

fn resolve(pair: &mut Pair, port: u16) -> CmId {
    let [from, to] = [SocketAddr::new(pair.ips[0], 40000), SocketAddr::new(pair.ips[1], port)];
    pair.a.resolve(&Resolve { private_data: b"who serves?", ..Resolve::ip(from, to).unwrap() }).unwrap()
}

fn asked(pair: &mut Pair) -> CmId {
    let listener = pair.listener;
    match pair.event_b() {
        Some(Event::SidrRequest { id, request, listener: heard, .. }) if heard == listener => {
            assert!(IpCm::consumer_data(&request.private_data).starts_with(b"who serves?\0"));
            id
        }
        other => panic!("{other:?}"),
    }
}

const REPLY: SidrReply<'static> =
    SidrReply { status: SidrStatus::VALID, qpn: Qpn::new(33), qkey: 0x0123_4567, private_data: b"I do" };

#[test]
fn a_service_is_resolved_to_its_queue_pair() {
    for ips in [["10.0.0.1", "10.0.0.2"], ["fd33::1", "fd33::2"]] {
        let mut pair = pair(ips);
        let id = resolve(&mut pair, 7174);
        let req = pair.sent_by_a();
        assert_eq!((kinds(&req), pair.a.state(id)), (vec!["SIDR_REQ"], Some(State::SidrSent)));
        pair.deliver_to_b(&req);
        pair.deliver_to_b(&req);
        let b = asked(&mut pair);
        assert!(pair.sent_by_b().is_empty());
        pair.b.sidr_reply(pair.now, b, &REPLY).unwrap();
        assert_eq!(pair.b.sidr_reply(pair.now, b, &REPLY), Err(Error::NoSuchId));
        let rep = pair.sent_by_b();
        pair.deliver_to_b(&req);
        assert_eq!(
            pair.sent_by_b()[0].bytes,
            rep[0].bytes,
            "a lost answer is said again, and no program is asked again"
        );
        pair.deliver_to_a(&rep);
        pair.deliver_to_a(&rep);
        let Some(Event::SidrResponse { id: same, reply }) = pair.event_a() else { panic!() };
        assert_eq!((same, reply.status, reply.qpn, reply.qkey), (id, SidrStatus::VALID, 33, 0x0123_4567));
        assert_eq!(reply.service_id, PortSpace::Udp.service_id(7174));
        assert!(reply.private_data.starts_with(b"I do\0"));
        assert_eq!(pair.a.state(id), None);
        pair.no_more_events();
        pair.until_empty();
    }
}

#[test]
fn a_service_that_there_is_not_is_not_supported() {
    let mut pair = pair(["10.0.0.1", "10.0.0.2"]);
    let id = resolve(&mut pair, 1);
    pair.carry();
    let Some(Event::SidrResponse { id: same, reply }) = pair.event_a() else { panic!() };
    assert_eq!((same, reply.status), (id, SidrStatus::UNSUPPORTED));
    pair.no_more_events();
    assert!(pair.a.is_empty() && pair.b.is_empty());
}

#[test]
fn a_resolution_is_asked_for_again_and_ends_after_its_retries() {
    let mut pair = pair(["10.0.0.1", "10.0.0.2"]);
    let id = resolve(&mut pair, 7174);
    let mut sent = 0;
    while pair.a.state(id).is_some() {
        sent += pair.sent_by_a().len();
        pair.wait_for_a();
    }
    assert_eq!((sent, pair.event_a()), (16, Some(Event::Unreachable { id })));
    assert!(pair.a.is_empty());
}

#[test]
fn who_listens_and_goes_away_says_no() {
    let mut pair = pair(["10.0.0.1", "10.0.0.2"]);
    resolve(&mut pair, 7174);
    pair.carry();
    let b = asked(&mut pair);
    pair.b.destroy(pair.now, b).unwrap();
    pair.carry();
    assert!(matches!(pair.event_a(), Some(Event::SidrResponse { reply, .. }) if reply.status == SidrStatus::REJECT));
    pair.until_empty();
}

#[test]
fn who_asked_and_goes_away_hears_nothing() {
    let mut pair = pair(["10.0.0.1", "10.0.0.2"]);
    let id = resolve(&mut pair, 7174);
    pair.carry();
    let b = asked(&mut pair);
    pair.a.destroy(pair.now, id).unwrap();
    pair.b.sidr_reply(pair.now, b, &REPLY).unwrap();
    pair.carry();
    pair.no_more_events();
    assert_eq!(pair.a.counters().unexpected, 1);
}

#[test]
fn an_answer_from_elsewhere_is_none() {
    let mut pair = pair(["10.0.0.1", "10.0.0.2"]);
    let id = resolve(&mut pair, 7174);
    pair.carry();
    let b = asked(&mut pair);
    pair.b.sidr_reply(pair.now, b, &REPLY).unwrap();
    let mut rep = pair.sent_by_b();
    let real = rep[0].clone();
    rep[0].route.local = "10.0.0.9".parse().unwrap();
    rep.push(real.clone().with(|m| {
        let Message::SidrRep(m) = m else { panic!() };
        m.request_id ^= 1;
    }));
    pair.deliver_to_a(&rep);
    assert_eq!((pair.event_a(), pair.a.state(id)), (None, Some(State::SidrSent)));
    pair.deliver_to_a(&[real]);
    assert!(matches!(pair.event_a(), Some(Event::SidrResponse { .. })));
}
