//! A peer that lies in its reports: it gets no more than what it lies about, and an honest rest goes on.

use softnic_sdr::SdrError;
use softnic_sdr::reliable::{Outcome, ReliableAttr, ReliableQp};
use softnic_sim::pair::{A, B};
use softnic_wire::sdr::report::{HEAD, Report, ReportKind};

use crate::reliable::{MTU, RATE, RTT, World, attr, bytes};

const CHUNKS: usize = 40;
const LEN: usize = CHUNKS * MTU as usize;

fn of(scheme: &str) -> ReliableAttr {
    attr(scheme.parse().unwrap()).sized_for(RATE, RTT)
}

/// B says this, with the token that A expects or another one.
fn say(w: &mut World, report: Report<'_>, bitmap: &[u8], token: Option<u32>) {
    w.with(B, |now, qp, nic| {
        let token = token.or(qp.qp().peer_token()).unwrap();
        let mut head = [0; HEAD];
        Report { token, ..report }.emit_head(&mut head);
        let message = [&head[..], bitmap].concat();
        assert!(qp.qp().send_other(now, nic, &message));
    });
}

fn report(kind: ReportKind) -> Report<'static> {
    Report {
        kind,
        token: 0,
        sequence: 0,
        done: 0,
        done_ahead: 0,
        message: 0,
        len: LEN as u64,
        below: 0,
        first: 0,
        bitmap: &[],
    }
}

fn pass(w: &mut World, times: u32) {
    let until = w.now() + RTT * times;
    while w.now() < until && w.pair.sim.step().is_some() {}
}

const SCHEMES: [&str; 4] = ["sdr-sr", "sdr-nack", "sdr-ec:4,2", "sdr-xor:4,2"];

/// Sends the message that was posted, and says that it came as it was sent.
fn all_comes(w: &mut World, scheme: &str) {
    w.memory[A].write_at(0, &bytes(7, LEN));
    w.receive(B, 0, LEN);
    assert_eq!(w.until(A).1, Outcome::Written { id: 0, outcome: Ok(()) }, "{scheme}");
    let mut found = vec![0; LEN];
    w.memory[B].read_at(0, &mut found);
    assert!(found == bytes(7, LEN), "{scheme}");
}

#[test]
fn what_was_never_sent_is_not_acknowledged() {
    for scheme in SCHEMES {
        let mut w = World::new("", 1, [of(scheme); 2]);
        w.write(A, 0, LEN);
        // There is no receive, so nothing was sent.
        say(&mut w, Report { done: u64::MAX, done_ahead: u64::MAX, ..report(ReportKind::Ack) }, &[0xff; 5], None);
        say(&mut w, Report { below: u32::MAX, first: u32::MAX, ..report(ReportKind::Ack) }, &[0xff; 5], None);
        say(&mut w, Report { done: 0, message: 0, ..report(ReportKind::Done) }, &[0xff; 900], None);
        say(&mut w, report(ReportKind::Nack), &[0xff; 5], None);
        pass(&mut w, 3);
        assert_eq!(w.poll(A), None, "{scheme}");
        let counters = w.counters(A);
        assert!(counters.rejected >= 40 && counters.chunks_repeated == 0, "{scheme}: {counters:?}");
        all_comes(&mut w, scheme);
    }
}

#[test]
fn bitmaps_that_are_longer_than_the_message_say_no_more_than_it_has() {
    for scheme in SCHEMES {
        let mut w = World::new("ab.loss=1", 1, [of(scheme); 2]);
        w.receive(B, 0, LEN);
        pass(&mut w, 1);
        w.write(A, 0, LEN);
        pass(&mut w, 1);
        say(&mut w, Report { first: 20, ..report(ReportKind::Ack) }, &[0xff; 900], None);
        say(&mut w, Report { first: u32::MAX - 8, ..report(ReportKind::Nack) }, &[0xff; 900], None);
        pass(&mut w, 1);
        // Twenty of its chunks, which never came; the others wait.
        assert_eq!(w.poll(A), None, "{scheme}");
        assert!(w.counters(A).rejected > 7000, "{scheme}: {:?}", w.counters(A));
    }
}

#[test]
fn nacks_without_end_do_not_make_a_sender_send_without_end() {
    for scheme in SCHEMES {
        let mut w = World::new("ab.loss=1", 1, [of(scheme); 2]);
        w.receive(B, 0, LEN);
        pass(&mut w, 1);
        w.write(A, 0, LEN);
        let begin = w.now();
        for _ in 0..400 {
            for _ in 0..8 {
                say(&mut w, report(ReportKind::Nack), &[0xff; 5], None);
            }
            let until = w.now() + RTT / 20;
            while w.now() < until && w.pair.sim.step().is_some() {}
        }
        // Each chunk once in three quarters of a round trip.
        let times = w.now().saturating_since(begin).as_nanos() as u64 / (RTT.as_nanos() as u64 * 3 / 4) + 1;
        let repeated = w.counters(A).chunks_repeated;
        assert!(repeated > 100 && repeated <= times * CHUNKS as u64, "{scheme}: {repeated}, {times} times");
    }
}

#[test]
fn control_messages_of_another_connection_are_rejected() {
    for scheme in SCHEMES {
        let mut w = World::new("", 1, [of(scheme); 2]);
        w.write(A, 0, LEN);
        for kind in [ReportKind::Ack, ReportKind::Nack, ReportKind::Done, ReportKind::RoundTrip] {
            say(&mut w, Report { done: 9, ..report(kind) }, &[0xff; 5], Some(0x1234_5678));
        }
        pass(&mut w, 2);
        let rejected = w.with(A, |_, qp, nic| qp.qp().counters(nic).rejected);
        assert_eq!((rejected, w.poll(A)), (4, None), "{scheme}");
        all_comes(&mut w, scheme);
    }
}

#[test]
fn a_round_trip_that_cannot_be_is_not_waited_for() {
    for scheme in SCHEMES {
        for lie in [0, 1, u64::MAX] {
            let mut w = World::new("loss=0.05", 1, [of(scheme); 2]);
            w.write(A, 0, LEN);
            say(&mut w, Report { len: lie, ..report(ReportKind::RoundTrip) }, &[], None);
            // B tells A, which has nothing to receive; and A tells B.
            w.with(A, |now, qp, nic| {
                let token = qp.qp().peer_token().unwrap();
                let mut head = [0; HEAD];
                Report { token, len: lie, ..report(ReportKind::RoundTrip) }.emit_head(&mut head);
                assert!(qp.qp().send_other(now, nic, &head));
            });
            pass(&mut w, 1);
            all_comes(&mut w, scheme);
        }
    }
}

#[test]
fn ends_of_other_codes_or_chunks_are_not_connected() {
    let mut w = World::new("", 1, [of("sdr-sr"); 2]);
    let pd = w.pair.sides[A].pd;
    let path = {
        let (ip, mac) = (w.pair.network.address(B).0, w.pair.network.next_hop(A, B));
        w.pair.sim.nic(A).path_to(ip, mac, 3).unwrap()
    };
    let nic = w.pair.sim.nic(A);
    let mut info = |attr: &ReliableAttr| ReliableQp::create(nic, pd, attr).unwrap().qp().info().encode();
    let others: Vec<_> =
        ["sdr-ec:4,1", "sdr-ec:5,2", "sdr-ec:4,2,2", "sdr-xor:4,2", "sdr-sr"].map(|s| info(&of(s))).into();
    let longer = of("sdr-ec:4,2");
    let longer = info(&ReliableAttr { qp: softnic_sdr::QpAttr { chunk: 2 * MTU, ..longer.qp }, ..longer });
    let mut ours = ReliableQp::create(w.pair.sim.nic(A), pd, &of("sdr-ec:4,2")).unwrap();
    for other in others {
        let refused = ours.qp().connect(w.pair.sim.nic(A), 1, &path, &other);
        assert!(matches!(refused, Err(SdrError::Scheme(..))), "{refused:?}");
    }
    let refused = ours.qp().connect(w.pair.sim.nic(A), 1, &path, &longer);
    assert_eq!(refused, Err(SdrError::Differs("packets of a chunk", 2, 1)));
}
