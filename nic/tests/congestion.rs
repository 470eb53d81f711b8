//! Congestion notifications: who sends them, how they look, how often they go, and what a reaction point does about them.

use std::time::Duration;

use crate::common::*;
use softnic_nic::transports::congestion::{CNP_INTERVAL, Cc, DcqcnConfig, Fixed};
use softnic_nic::transports::qp::{PayloadMode, QpState};
use softnic_nic::transports::{Status, Transport};
use softnic_nic::{ObjectError, QpKind};
use softnic_wire::transit::mark_ce;
use softnic_wire::{ExtHeaders, Node, Opcode, RoceHeaders};

const SR: [Option<Transport>; 2] = [Some(Transport::Sr { window: 1024 }); 2];

/// Every kind of connection that answers a mark.
fn kinds() -> [Options; 4] {
    let rc = Options::default();
    [rc, Options { ipv6: true, ..rc }, Options { offers: SR, ..rc }, Options { kind: QpKind::Uc, ..rc }]
}

/// With the negotiation behind them.
fn world(o: Options) -> World {
    let mut w = World::new(o);
    w.run();
    w
}

/// What A sends now, marked.
fn marked(w: &mut World) -> Vec<Vec<u8>> {
    let mut frames = w.transmit(A);
    frames.iter_mut().for_each(|f| assert!(mark_ce(f), "ECN-capable"));
    frames
}

fn write(w: &mut World, id: u64) {
    let op = w.write_to(B, 0);
    w.send(A, id, op, 0, 100);
}

fn cnps(w: &World, frames: &[Vec<u8>]) -> usize {
    frames.iter().filter(|f| w.parse(f).bth.opcode == Opcode::CNP).count()
}

fn dcqcn(w: &mut World, h: usize, line: u64) {
    let qpn = w.hosts[h].qpn;
    w.hosts[h].nic.set_congestion_control(qpn, Cc::Dcqcn(DcqcnConfig::default()).make(line, Duration::ZERO)).unwrap();
}

#[test]
fn a_marked_packet_is_answered_by_a_cnp_as_hardware_sends_it() {
    for o in kinds() {
        let mut w = world(o);
        write(&mut w, 1);
        let frames = marked(&mut w);
        w.deliver_all(B, &frames);
        let answers = w.transmit(B);
        let cnp = &answers[0];
        assert_eq!(cnps(&w, &answers), 1, "it goes first");
        let p = w.parse(cnp);
        assert_eq!((p.bth.dest_qp, p.bth.pkey), (w.hosts[A].qpn, 0xffff));
        assert_eq!(p.payload.len(), 16);
        // From the BTH on a ConnectX-4 Lx sends: 81 00 ffff 40 QPN 00 000000, 16 bytes of zero, the ICRC; DSCP 48 and ECT(0) before it.
        let bth = &cnp[p.layout.bth..];
        assert_eq!((&bth[..5], &bth[8..28]), (&[0x81, 0, 0xff, 0xff, 0x40][..], &[0; 20][..]));
        assert_eq!(cnp.len(), p.layout.bth + 12 + 16 + 4);
        assert_eq!(p.layout.traffic_class(cnp), Some(0xc2));
        assert_eq!(
            &cnp[p.layout.bth - 8..p.layout.bth - 6],
            &w.path(B).src_port.to_be_bytes(),
            "the source port of the flow"
        );
        assert_eq!((w.counters(B).np_ecn_marked_roce_packets, w.counters(B).np_cnp_sent), (1, 1));
        // It comes through: the checksum and the ICRC are right.
        w.deliver(A, cnp);
        let c = w.counters(A);
        assert_eq!((c.rp_cnp_ignored, c.rp_cnp_handled, c.rx_malformed, c.rx_icrc_encapsulated), (1, 0, 0, 0));
        w.deliver_all(A, &answers[1..]);
        assert_eq!(w.sent_status(A), [(1, Status::Success)]);
    }
}

#[test]
fn marks_within_50_us_of_a_cnp_cause_no_other() {
    for o in kinds() {
        let mut w = world(o);
        let mut sent = 0;
        for n in 0..100 {
            write(&mut w, n);
            let frames = marked(&mut w);
            w.deliver_all(B, &frames);
            let answers = w.transmit(B);
            sent += cnps(&w, &answers);
            w.deliver_all(A, &answers);
            w.wait(10_000);
        }
        // 100 packets, one each 10 µs.
        assert_eq!((CNP_INTERVAL.as_micros(), sent), (50, 20));
        assert_eq!(w.counters(B).np_cnp_sent, 20);
    }
}

#[test]
fn packets_without_a_mark_and_cnps_with_one_are_not_answered_by_cnps() {
    for o in kinds() {
        let mut w = world(o);
        write(&mut w, 1);
        let frames = w.transmit(A);
        w.deliver_all(B, &frames);
        let answers = w.transmit(B);
        assert_eq!(cnps(&w, &answers), 0);
        w.deliver_all(A, &answers);
        let mut cnp = w.forge(B, Opcode::CNP.0, 0, false, ExtHeaders::default(), &[0; 16]);
        assert!(mark_ce(&mut cnp));
        w.deliver(B, &cnp);
        assert!(w.transmit(B).is_empty());
        assert_eq!(w.counters(B).np_cnp_sent, 0);
    }
}

#[test]
fn marked_answers_are_told_of_too() {
    let mut w = World::new(Options::default());
    let op = w.read_from(B, 0);
    w.send(A, 1, op, 0, 1000);
    let request = w.transmit(A);
    w.deliver_all(B, &request);
    let mut responses = w.transmit(B);
    responses.iter_mut().for_each(|f| assert!(mark_ce(f)));
    w.deliver_all(A, &responses);
    let answers = w.transmit(A);
    assert_eq!((cnps(&w, &answers), answers.len()), (1, 1), "one for four of them");
}

#[test]
fn a_queue_pair_that_stopped_owes_no_cnp() {
    for o in kinds() {
        let mut w = world(o);
        write(&mut w, 1);
        let frames = marked(&mut w);
        w.deliver_all(B, &frames);
        w.modify(B, &to_state(QpState::Error));
        assert!(w.transmit(B).is_empty());
        w.modify(B, &to_state(QpState::Reset));
        assert!(w.transmit(B).is_empty());
    }
}

#[test]
fn without_payload_a_cnp_has_the_length_of_a_whole_one() {
    let mut w = World::new(Options { payload: PayloadMode::Elided, ..Options::default() });
    write(&mut w, 1);
    let frames = marked(&mut w);
    w.deliver_all(B, &frames);
    let answers = w.transmit(B);
    let layout = softnic_wire::Layout::locate(&answers[0]).unwrap();
    let len = RoceHeaders::read_elided(&answers[0], &layout, |h| (h.bth.opcode, h.payload.len())).unwrap();
    assert_eq!(len, (Opcode::CNP, 16));
}

#[test]
fn a_notified_requester_slows_down_and_a_notified_responder_its_read_responses() {
    for offers in [[None; 2], SR] {
        for read in [false, true] {
            let mut w = world(Options { offers, timeout: 0, ..Options::default() });
            let (sender, other) = if read { (B, A) } else { (A, B) };
            // 800 Mbit/s: a frame of 256 bytes and what is around it takes some 3.4 µs; after a notification twice that.
            dcqcn(&mut w, sender, 800_000_000);
            let op = if read { w.read_from(B, 0) } else { w.write_to(B, 0) };
            w.send(A, 1, op, 0, 256 * 8);
            if read {
                let request = w.transmit(A);
                w.deliver_all(B, &request);
            }
            let cnp = w.forge(sender, Opcode::CNP.0, 0, false, ExtHeaders::default(), &[0; 16]);
            w.deliver(sender, &cnp);
            let c = w.counters(sender);
            assert_eq!((c.rp_cnp_handled, c.rp_cnp_ignored), (1, 0));
            let mut frames = Vec::new();
            let (start, mut wakes) = (w.now, 0);
            while frames.len() < 8 {
                let sent = w.transmit(sender);
                frames.extend(sent);
                if frames.len() < 8 {
                    w.wait_for_timer(sender).expect("it is paced");
                    wakes += 1;
                    assert!(wakes < 100, "{} of 8", frames.len());
                }
            }
            // One leaves at once, seven wait for some 6.7 µs each.
            let took = w.now.saturating_since(start).as_micros();
            assert!((40..60).contains(&took), "sr {} read {read}: {took} µs", offers[0].is_some());
            w.deliver_all(other, &frames);
            w.run();
            assert_eq!(w.sent_status(A), [(1, Status::Success)]);
        }
    }
}

#[test]
fn notifications_within_50_us_of_one_that_counted_cut_nothing() {
    for o in kinds() {
        let mut w = world(Options { timeout: 0, ..o });
        dcqcn(&mut w, A, 800_000_000);
        let cnp = w.forge(A, Opcode::CNP.0, 0, false, ExtHeaders::default(), &[0; 16]);
        for _ in 0..10 {
            w.deliver(A, &cnp);
            w.wait(1000);
        }
        let c = w.counters(A);
        assert_eq!(
            (c.rp_cnp_handled, c.rp_cnp_ignored),
            (1, 9),
            "an attacker cuts the rate no more often than a peer may"
        );
        w.wait(40_000);
        w.deliver(A, &cnp);
        assert_eq!(w.counters(A).rp_cnp_handled, 2);
    }
}

/// Microseconds until A has sent 8 packets.
fn time_of_eight(w: &mut World) -> u128 {
    let op = w.write_to(B, 0);
    w.send(A, 1, op, 0, 256 * 8);
    let (start, mut frames) = (w.now, w.transmit(A));
    for _ in 0..100 {
        if frames.len() == 8 {
            break;
        }
        w.wait_for_timer(A).expect("it is paced");
        frames.extend(w.transmit(A));
    }
    assert_eq!(frames.len(), 8);
    let took = w.now.saturating_since(start).as_micros();
    w.deliver_all(B, &frames);
    assert_eq!(w.sent_status(A), [(1, Status::Success)]);
    took
}

#[test]
fn an_unreliable_connection_slows_down_when_it_is_notified() {
    let mut w = World::new(Options { kind: QpKind::Uc, ..Options::default() });
    dcqcn(&mut w, A, 800_000_000);
    assert_eq!(time_of_eight(&mut w), 0, "nothing is paced");
    assert_eq!(w.hosts[A].nic.poll_timeout(), None);
    let cnp = w.forge(A, Opcode::CNP.0, 0, false, ExtHeaders::default(), &[0; 16]);
    w.deliver(A, &cnp);
    let c = w.counters(A);
    assert_eq!((c.rp_cnp_handled, c.rp_cnp_ignored), (1, 0));
    // One leaves at once, seven wait for some 6.7 µs each.
    let took = time_of_eight(&mut w);
    assert!((40..60).contains(&took), "{took} µs");
}

#[test]
fn no_window_limits_an_unreliable_connection() {
    let mut w = World::new(Options { kind: QpKind::Uc, ..Options::default() });
    let qpn = w.hosts[A].qpn;
    w.hosts[A].nic.set_congestion_control(qpn, Some(Box::new(Fixed::new(800_000_000, 1)))).unwrap();
    let took = time_of_eight(&mut w);
    assert!((20..30).contains(&took), "seven wait for some 3.4 µs each, {took} µs");
}

#[test]
fn datagrams_have_no_congestion_control() {
    let mut w = World::new(Options { kind: QpKind::Ud, ..Options::default() });
    let qpn = w.hosts[A].qpn;
    let cc = Cc::Dcqcn(DcqcnConfig::default()).make(800_000_000, Duration::ZERO);
    assert_eq!(w.hosts[A].nic.set_congestion_control(qpn, cc), Err(ObjectError::WrongKind));
}

#[test]
fn a_reset_takes_a_queue_pair_back_to_the_line_rate_and_keeps_its_control() {
    let mut w = World::new(Options { timeout: 0, ..Options::default() });
    dcqcn(&mut w, A, 100_000_000);
    let cnp = w.forge(A, Opcode::CNP.0, 0, false, ExtHeaders::default(), &[0; 16]);
    w.deliver(A, &cnp);
    let o = w.options;
    for h in [A, B] {
        w.modify(h, &to_state(QpState::Reset));
        w.modify(h, &init_attr(&o));
        let rtr = rtr_attr(&o, w.path(h), w.hosts[1 - h].qpn);
        w.modify(h, &rtr);
        w.modify(h, &rts_attr(&o));
    }
    let op = w.write_to(B, 0);
    w.send(A, 1, op, 0, 256 * 8);
    assert_eq!(w.transmit(A).len(), 8, "nothing is paced");
    w.deliver(A, &cnp);
    assert_eq!(w.counters(A).rp_cnp_handled, 2);
}

#[test]
fn a_paced_responder_that_may_not_send_requests_still_answers_in_its_time() {
    let mut w = World::unconnected(Options { timeout: 0, ..Options::default() });
    let o = w.options;
    for h in [A, B] {
        w.modify(h, &init_attr(&o));
        let rtr = rtr_attr(&o, w.path(h), w.hosts[1 - h].qpn);
        w.modify(h, &rtr);
    }
    w.modify(A, &rts_attr(&o));
    dcqcn(&mut w, B, 100_000_000);
    let cnp = w.forge(B, Opcode::CNP.0, 0, false, ExtHeaders::default(), &[0; 16]);
    w.deliver(B, &cnp);
    let op = w.read_from(B, 0);
    w.send(A, 1, op, 0, 256 * 8);
    for _ in 0..100 {
        w.run();
        if w.hosts[B].nic.poll_timeout().is_none() {
            break;
        }
        w.wait_for_timer(B);
    }
    assert_eq!(w.sent_status(A), [(1, Status::Success)]);
}
