//! Selective Repeat where both sides wish for it, and the standard where one does not.

use std::net::IpAddr;
use std::time::{Duration, Instant};

use softnic_nic::transports::negotiation::{Choice, FallbackReason};
use softnic_nic::transports::qp::QpState;
use softnic_nic::transports::{Event, Status};
use softnic_nic::{ObjectError, QpAttr, QpKind};
use softnic_runtime::api::{Connection, Context, OpenOptions, Progress, QpOptions, Transport};
use softnic_wire::Psn;

use crate::world::{LIMIT, SIZE, Side, completion, connect, contents, filled, rounds, side, write};

const SR: Transport = Transport::SR;

fn world(progress: Progress, fault: Option<&str>, transports: [Transport; 2]) -> [Side; 2] {
    let fault = fault.map(|spec| spec.parse().unwrap());
    let options = OpenOptions { progress: Some(progress), fault, seed: 7, ..OpenOptions::default() };
    let sides = Context::open_pair([&options, &OpenOptions { fault: None, ..options.clone() }]).unwrap().map(side);
    let mut transports = transports.into_iter();
    let sides = sides.map(|side| {
        let options = QpOptions { transport: transports.next().unwrap(), ..QpOptions::new(QpKind::Rc, &side.cq) };
        Side { qp: side.pd.create_qp(&options).unwrap(), ..side }
    });
    connect(&sides[0], &sides[1]);
    sides
}

/// Waits until that is what its requests are sent by, though no program does anything for it. A verdict may change from silence to an
/// answer that came late, so another one is not final.
fn expect(side: &Side, choice: Choice) {
    let start = Instant::now();
    while side.qp.choice() != Some(choice) {
        assert!(start.elapsed() < LIMIT, "{:?} instead of {choice:?}", side.qp.choice());
        std::thread::sleep(Duration::from_millis(1));
    }
}

#[test]
fn peers_agree_though_no_work_is_posted_and_nobody_polls() {
    for progress in [Progress::Inline, Progress::Dedicated] {
        let [a, b] = world(progress, None, [SR; 2]);
        [&a, &b].into_iter().for_each(|side| expect(side, Choice::Agreed));
        let bytes = filled(&a, 1);
        write(&a, &b, 7, SIZE).unwrap();
        assert_eq!(completion(&a, || ()).status, Status::Success);
        assert_eq!(contents(&b), bytes);
    }
}

#[test]
fn a_peer_that_does_not_wish_for_it_is_spoken_to_by_the_standard_and_the_program_is_told() {
    for progress in [Progress::Inline, Progress::Dedicated] {
        let [a, b] = world(progress, None, [Transport::Rc, SR]);
        expect(&b, Choice::Standard(FallbackReason::NothingInCommon));
        assert_eq!(a.qp.choice(), None);
        let address: IpAddr = a.context.addresses()[0];
        let event = b.context.poll_event();
        // Where the peer was slow, its silence was told.
        let told = matches!(event, Some(Event::FellBack(qpn, peer, _)) if (qpn, peer) == (b.qp.qpn(), address));
        assert!(told, "{event:?}");
        assert_eq!(b.context.poll_event(), None, "once");
        for [from, to] in [[&a, &b], [&b, &a]] {
            let bytes = filled(from, 3);
            write(from, to, 7, SIZE).unwrap();
            assert_eq!(completion(from, || ()).status, Status::Success);
            assert_eq!(contents(to), bytes);
        }
    }
}

#[test]
fn an_rc_queue_pair_has_no_transport_of_another_kind_and_others_have_no_choice() {
    let [side, _] = unconnected();
    let make = |kind, transport| side.pd.create_qp(&QpOptions { transport, ..QpOptions::new(kind, &side.cq) });
    for transport in Transport::all() {
        let made = make(QpKind::Rc, transport).map(|qp| qp.transport());
        let expected = if transport.kind() == QpKind::Rc { Ok(transport) } else { Err(ObjectError::WrongTransport) };
        assert_eq!(made, expected);
        let uc = if transport.is_bounded() { "xp:uc".parse().unwrap() } else { Transport::Uc };
        assert_eq!(make(QpKind::Uc, transport).unwrap().transport(), uc);
        assert_eq!(make(QpKind::Ud, transport).unwrap().transport(), Transport::Ud);
    }
}

/// Two NICs with a queue pair each, not connected; the second side's wishes for Selective Repeat.
fn unconnected() -> [Side; 2] {
    let options = OpenOptions { progress: Some(Progress::Inline), ..OpenOptions::default() };
    let [a, b] = Context::open_pair([&options, &options]).unwrap().map(side);
    let sr = QpOptions { transport: SR, ..QpOptions::new(QpKind::Rc, &b.cq) };
    let qp = b.pd.create_qp(&sr).unwrap();
    [a, Side { qp, ..b }]
}

fn connection(me: &Side, peer: &Side) -> Connection {
    let address = peer.context.addresses()[0];
    let path = std::thread::scope(|s| {
        let path = s.spawn(|| me.context.path_to(address, 1));
        while !path.is_finished() {
            peer.context.progress();
            std::thread::yield_now();
        }
        path.join().unwrap().unwrap()
    });
    Connection::new(path, peer.qp.qpn(), Psn::new(1), Psn::new(1))
}

fn next_event(side: &Side) -> Event {
    let start = Instant::now();
    loop {
        if let Some(event) = side.context.poll_event() {
            return event;
        }
        assert!(start.elapsed() < LIMIT, "no event");
        std::thread::sleep(Duration::from_millis(1));
    }
}

#[test]
fn a_program_that_only_receives_is_told_too() {
    let [a, b] = unconnected();
    let c = connection(&b, &a);
    b.qp.init(c.access).unwrap();
    // Ready to receive, as servers of perftest, and no more than that.
    b.qp.modify(&QpAttr {
        state: Some(QpState::ReadyToReceive),
        path: Some(c.path.attr.path(&b.context.port()).unwrap()),
        mtu: Some(c.mtu),
        dest_qp: Some(c.dest_qp),
        rq_psn: Some(c.rq_psn),
        max_dest_rd_atomic: Some(1),
        min_rnr_timer: Some(1),
        ..QpAttr::default()
    })
    .unwrap();
    a.qp.connect(&connection(&a, &b)).unwrap();
    let event = next_event(&b);
    assert!(matches!(event, Event::FellBack(qpn, ..) if qpn == b.qp.qpn()), "{event:?}");
    let bytes = filled(&a, 3);
    write(&a, &b, 7, SIZE).unwrap();
    assert_eq!(completion(&a, || ()).status, Status::Success);
    assert_eq!(contents(&b), bytes);
}

#[test]
fn a_peer_that_says_nothing_is_waited_for_and_then_spoken_to_by_the_standard() {
    let [a, b] = unconnected();
    // The queue pair there is never made ready: its NIC keeps the offer.
    b.qp.connect(&connection(&b, &a)).unwrap();
    expect(&b, Choice::Standard(FallbackReason::Silent));
    assert_eq!(next_event(&b), Event::FellBack(b.qp.qpn(), a.context.addresses()[0], FallbackReason::Silent));
}

#[test]
fn data_is_right_through_faults_and_completions_come_in_order() {
    let fault = "loss=2e-2,reorder=5e-2:5,dup=2e-2";
    let [a, b] = world(Progress::Inline, Some(fault), [SR; 2]);
    [&a, &b].into_iter().for_each(|side| expect(side, Choice::Agreed));
    rounds(&a, &b, 4);
    let counters = a.context.counters();
    assert!(counters.retransmitted_packets > 0, "{counters:?}");
    assert_eq!(counters.packet_seq_err, 0, "nobody goes back: {counters:?}");
}
