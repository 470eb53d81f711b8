//! Selective Repeat where both sides wish for it, and the standard where one does not.

use std::net::IpAddr;
use std::time::{Duration, Instant};

use softnic_nic::QpKind;
use softnic_nic::transports::negotiation::Why;
use softnic_nic::transports::sr::Choice;
use softnic_nic::transports::{Event, RecvWr, SendOp, Status};
use softnic_runtime::api::{Context, OpenOptions, Progress, QpOptions, Transport};

use crate::world::{LIMIT, SIZE, Side, completion, connect, contents, filled, post, side, write};

const SR: Transport = Transport::Sr { window: None };

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
    while side.qp.sr_choice() != Some(choice) {
        assert!(start.elapsed() < LIMIT, "{:?} instead of {choice:?}", side.qp.sr_choice());
        std::thread::sleep(Duration::from_millis(1));
    }
}

#[test]
fn peers_agree_though_no_work_is_posted_and_nobody_polls() {
    for progress in [Progress::Inline, Progress::Dedicated] {
        let [a, b] = world(progress, None, [SR; 2]);
        [&a, &b].into_iter().for_each(|side| expect(side, Choice::Selective));
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
        expect(&b, Choice::Standard(Why::NothingInCommon));
        assert_eq!(a.qp.sr_choice(), None);
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
fn a_peer_that_says_nothing_is_waited_for_and_then_spoken_to_by_the_standard() {
    let options = OpenOptions { progress: Some(Progress::Inline), ..OpenOptions::default() };
    let [a, b] = Context::open_pair([&options, &options]).unwrap().map(side);
    let sr = QpOptions { transport: SR, ..QpOptions::new(QpKind::Rc, &a.cq) };
    let a = Side { qp: a.pd.create_qp(&sr).unwrap(), ..a };
    let b_address = b.context.addresses()[0];
    // The queue pair there is another one, which is never made ready: its NIC keeps the offer.
    let path = std::thread::scope(|s| {
        let path = s.spawn(|| a.context.path_to(b_address, 1));
        while !path.is_finished() {
            b.context.progress();
            std::thread::yield_now();
        }
        path.join().unwrap().unwrap()
    });
    let psn = softnic_wire::Psn::new(1);
    a.qp.connect(&softnic_runtime::api::Connection::new(path, b.qp.qpn(), psn, psn)).unwrap();
    expect(&a, Choice::Standard(Why::Silent));
    assert_eq!(a.context.poll_event(), Some(Event::FellBack(a.qp.qpn(), b_address, Why::Silent)));
}

#[test]
fn data_is_right_through_faults_and_completions_come_in_order() {
    let fault = "loss=2e-2,reorder=5e-2:5,dup=2e-2";
    let [a, b] = world(Progress::Inline, Some(fault), [SR; 2]);
    [&a, &b].into_iter().for_each(|side| expect(side, Choice::Selective));
    for round in 0..4 {
        let bytes = filled(&a, round);
        write(&a, &b, 7, SIZE).unwrap();
        assert_eq!(completion(&a, || ()).status, Status::Success);
        assert!(contents(&b) == bytes, "WRITE in round {round}");
        let bytes = filled(&b, 100 + round);
        let op = SendOp::Read { remote_addr: b.mr.addr(), rkey: b.mr.rkey() };
        post(&a.qp, op, &[a.mr.sge(0, SIZE)]).unwrap();
        assert_eq!(completion(&a, || ()).status, Status::Success);
        assert!(contents(&a) == bytes, "READ in round {round}");
        for i in 0..100 {
            b.qp.post_recv(&RecvWr { wr_id: i, sges: &[b.mr.sge(0, 5000)], deadline: None }).unwrap();
        }
        for i in 0..100 {
            post(&a.qp, SendOp::SendImm { imm: i }, &[a.mr.sge(0, 40 * i as usize)]).unwrap();
        }
        for i in 0..100 {
            let got = completion(&b, || {
                a.context.progress();
            });
            let expected = (u64::from(i), Status::Success, 40 * i, Some(i));
            assert_eq!((got.wr_id, got.status, got.byte_len, got.imm), expected);
            assert_eq!(completion(&a, || ()).status, Status::Success);
        }
    }
    let counters = a.context.counters();
    assert!(counters.retransmitted_packets > 0, "{counters:?}");
    assert_eq!(counters.packet_seq_err, 0, "nobody goes back: {counters:?}");
}
