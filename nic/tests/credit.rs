//! EQDS over reliable connections: requests wait for credit of the receiver, where both ends agreed to that, and no clock runs meanwhile.

use softnic_nic::QpKind;
use softnic_nic::transports::congestion::EqdsConfig;
use softnic_nic::transports::qp::QpState;
use softnic_nic::transports::{Counters, Event, SendOp, Status};
use softnic_wire::ext::Reth;
use softnic_wire::xp::{XpCredit, XpEth, XpReport};
use softnic_wire::{ExtHeaders, Node, Opcode};

use crate::common::*;

const MTU: usize = 256;
const SPEC: usize = 10_000;
const TRANSPORTS: [&str; 2] = ["rc", "sr"];
const MS: u64 = 1_000_000;
/// The ACK timeout: code 10.
const TIMEOUT: u64 = 4096 << 10;

const CREDIT: EqdsConfig = EqdsConfig {
    speculative: SPEC as u32,
    quantum: 4000,
    share: 1000,
    retry: std::time::Duration::from_micros(200),
    burst: std::time::Duration::ZERO,
};

fn options(transport: &str) -> Options {
    let offers = [Some(transport.parse().unwrap()); 2];
    Options { offers, credit: [Some(CREDIT); 2], buffer: 400 * MTU, retry_cnt: 0, ..Options::default() }
}

/// Two hosts that had time to agree.
fn world(options: Options) -> World {
    let mut w = World::new(options);
    w.run();
    w
}

fn agreed(transport: &str) -> World {
    let mut w = world(options(transport));
    assert_eq!((w.events(A), w.events(B)), (vec![], vec![]));
    w
}

fn is_credit(w: &World, frame: &[u8]) -> bool {
    w.parse(frame).bth.opcode == Opcode::XP_CREDIT
}

/// What leaves now, without packets of credit, and these.
fn leaving(w: &mut World, h: usize) -> [Vec<Vec<u8>>; 2] {
    let (credit, rest) = w.transmit(h).into_iter().partition(|frame| is_credit(w, frame));
    [rest, credit]
}

/// Bytes on the wire that have left.
fn wire(frames: &[Vec<u8>]) -> usize {
    frames.iter().map(|frame| frame.len() + 24).sum()
}

/// Posts a WRITE of so many packets from A to B.
fn write(w: &mut World, wr_id: u64, packets: usize) {
    w.send(A, wr_id, w.write_to(B, 0), 0, packets * MTU);
}

/// Frames go over in both directions, but those that `lost` takes of host `h`, until A's send has ended; within so many steps.
fn until_sent(w: &mut World, step: u64, mut lost: impl FnMut(&World, usize, &[u8]) -> bool) -> Vec<(u64, Status)> {
    for _ in 0..10_000 {
        for h in [A, B] {
            for frame in w.transmit(h) {
                if !lost(w, h, &frame) {
                    w.deliver(1 - h, &frame);
                }
            }
        }
        let sent = w.sent_status(A);
        if !sent.is_empty() {
            return sent;
        }
        w.wait(step);
    }
    panic!("it never ends");
}

#[test]
fn a_long_message_leaves_as_fast_as_its_receiver_grants_it() {
    for transport in TRANSPORTS {
        let mut w = agreed(transport);
        w.fill(A, 0, &pattern(1, 200 * MTU));
        write(&mut w, 1, 200);
        let [data, credit] = leaving(&mut w, A);
        // What a speculative window holds, and a packet that says how much waits.
        assert!(wire(&data) <= SPEC && wire(&data) > 9000, "{transport}: {} bytes", wire(&data));
        assert!(w.parse(data.last().unwrap()).bth.ack_req, "{transport}: nothing follows before more credit comes");
        assert!(!credit.is_empty() && credit.len() <= 2, "{transport}: {}", credit.len());
        w.deliver_all(B, &data);
        w.deliver_all(B, &credit);
        let mut turns = 0;
        while w.sent_status(A).is_empty() {
            let [answers, grants] = leaving(&mut w, B);
            turns += grants.len();
            w.deliver_all(A, &answers);
            w.deliver_all(A, &grants);
            let frames = w.transmit(A);
            assert!(wire(&frames) <= 2 * 4000 + 400 + 100, "{transport}: {}", wire(&frames));
            w.deliver_all(B, &frames);
            assert!(turns < 100, "it never ends");
            w.wait(1000);
        }
        assert!(turns >= 8, "{transport}: {turns}");
        assert_eq!(w.read(B, 0, 200 * MTU), pattern(1, 200 * MTU));
        assert!(w.counters(B).eqds_granted_bytes > 200 * MTU as u64);
        let a = w.counters(A);
        assert_eq!((a.eqds_credit_received, a.eqds_asked_again, a.retransmitted_packets), (turns as u64, 0, 0));
    }
}

#[test]
fn without_agreement_no_packet_of_credit_leaves_and_nothing_waits_for_any() {
    for transport in TRANSPORTS {
        for credit in [[Some(CREDIT), None], [None, Some(CREDIT)], [None; 2]] {
            let mut w = world(Options { credit, ..options(transport) });
            write(&mut w, 1, 200);
            let frames = w.transmit(A);
            // Selective Repeat has its own limit of what is under way.
            assert!(frames.len() == 200 || transport == "sr" && wire(&frames) > SPEC, "{transport}: {credit:?}");
            w.deliver_all(B, &frames);
            w.run();
            assert_eq!(w.sent_status(A), [(1, Status::Success)]);
            assert_eq!(w.counters(A).eqds_credit_sent + w.counters(B).eqds_credit_sent, 0);
        }
    }
}

#[test]
fn a_peer_with_another_reliable_transport_has_credit_and_one_of_xp_has_none() {
    for (theirs, has) in [("sr", true), ("rc", true), ("xp", false)] {
        for ours in TRANSPORTS {
            let offers = [ours, theirs].map(|name| Some(name.parse().unwrap()));
            for offers in [offers, [offers[1], offers[0]]] {
                let mut w = world(Options { offers, ..options(ours) });
                write(&mut w, 1, 100);
                let [data, credit] = leaving(&mut w, A);
                assert_eq!((wire(&data) <= SPEC, !credit.is_empty()), (has, has), "{ours} and {theirs}");
                w.deliver_all(B, &data);
                w.deliver_all(B, &credit);
                assert_eq!(until_sent(&mut w, 1000, |_, _, _| false), [(1, Status::Success)]);
                assert_eq!(w.counters(A).eqds_credit_rejected + w.counters(B).eqds_credit_rejected, 0);
            }
        }
    }
}

#[test]
fn lowar_has_no_credit_and_no_queue_pair_takes_any_once_it_is_connected() {
    let lowar = Some("lowar".parse().unwrap());
    let mut w = World::unconnected(Options { offers: [lowar; 2], ..Options::default() });
    let qpn = w.hosts[A].qpn;
    assert!(w.hosts[A].nic.use_credit(qpn, Some(CREDIT)).is_err());
    for transport in TRANSPORTS {
        let mut w = agreed(transport);
        let qpn = w.hosts[A].qpn;
        assert!(w.hosts[A].nic.use_credit(qpn, None).is_err());
    }
}

#[test]
fn with_a_silent_peer_requests_leave_without_credit_when_the_offer_was_given_up() {
    for transport in TRANSPORTS {
        let mut w = World::new(options(transport));
        write(&mut w, 1, 3);
        for _ in 0..30 {
            assert!(w.transmit(A).iter().all(|frame| w.parse(frame).bth.dest_qp != w.hosts[B].qpn), "it waits");
            w.wait(100 * MS);
            if matches!(w.events(A)[..], [Event::FellBack(..)]) {
                break;
            }
        }
        let frames = w.transmit(A);
        assert_eq!(frames.len(), 3, "{transport}");
        w.deliver_all(B, &frames);
        // What is agreed on later is too late for these requests, and no harm to them.
        assert_eq!(until_sent(&mut w, 1000, |_, _, _| false), [(1, Status::Success)]);
        assert_eq!(w.counters(A).eqds_credit_rejected + w.counters(B).eqds_credit_rejected, 0);
        // Whoever did agree is granted what it asks for.
        w.send(B, 2, w.write_to(A, 0), 0, 100 * MTU);
        for _ in 0..200 {
            w.run();
            w.wait(10_000);
        }
        assert_eq!(w.sent_status(B), [(2, Status::Success)], "{transport}");
    }
}

#[test]
fn lost_credit_is_asked_for_again_and_costs_nothing_but_time() {
    for transport in TRANSPORTS {
        let mut w = agreed(transport);
        write(&mut w, 1, 100);
        let mut credits = 0;
        let lost = |w: &World, h, frame: &[u8]| {
            credits += u32::from(h == B && is_credit(w, frame));
            h == B && is_credit(w, frame) && credits % 12 != 11
        };
        assert_eq!(until_sent(&mut w, 50_000, lost), [(1, Status::Success)], "{transport}");
        let a = w.counters(A);
        assert!(a.eqds_asked_again > 0);
        assert_eq!(
            (a.eqds_credit_rejected, a.retransmitted_packets, a.local_ack_timeout_err),
            (0, 0, 0),
            "{transport}"
        );
    }
}

#[test]
fn a_wait_for_credit_that_is_longer_than_the_ack_timeout_uses_up_no_retry() {
    for transport in TRANSPORTS {
        let mut w = agreed(transport);
        write(&mut w, 1, 100);
        let begin = w.now;
        // The peer lives and acknowledges, and its credit does not come for ten timeouts. There is no retry to use up.
        let lost = |w: &World, h, frame: &[u8]| {
            let waits = w.now.saturating_since(begin).as_nanos() < 10 * u128::from(TIMEOUT);
            h == B && waits && is_credit(w, frame)
        };
        assert_eq!(until_sent(&mut w, 100_000, lost), [(1, Status::Success)], "{transport}");
        let a = w.counters(A);
        assert!(w.now.saturating_since(begin).as_nanos() > 10 * u128::from(TIMEOUT));
        assert_eq!((a.local_ack_timeout_err, a.retransmitted_packets), (0, 0), "{transport}");
    }
}

#[test]
fn what_was_lost_is_sent_again_by_credit_and_waits_for_it_without_a_clock() {
    for transport in TRANSPORTS {
        let mut w = world(Options { retry_cnt: 1, ..options(transport) });
        write(&mut w, 1, 100);
        let (begin, mut left, mut requests) = (w.now, 0, 0);
        // The third packet is lost, and then all credit for ten timeouts.
        let lost = |w: &World, h, frame: &[u8]| {
            let (credit, waits) =
                (is_credit(w, frame), w.now.saturating_since(begin).as_nanos() < 10 * u128::from(TIMEOUT));
            let is_request = h == A && !credit && w.parse(frame).bth.opcode.is_request();
            requests += u32::from(is_request);
            if is_request {
                left += wire(&[frame.to_vec()]);
            }
            is_request && requests == 3 || h == B && credit && waits
        };
        assert_eq!(until_sent(&mut w, 100_000, lost), [(1, Status::Success)], "{transport}");
        assert!(w.now.saturating_since(begin).as_nanos() > 10 * u128::from(TIMEOUT));
        let (a, b) = (w.counters(A), w.counters(B));
        assert!(a.retransmitted_packets > 0, "{transport}");
        assert_eq!(a.local_ack_timeout_err, 0, "{transport}");
        // Every byte was granted, also of what left twice, but for the speculative window.
        assert!(left as u64 <= b.eqds_granted_bytes + SPEC as u64, "{transport}: {left} of {}", b.eqds_granted_bytes);
    }
}

#[test]
fn a_speculative_window_that_is_lost_as_a_whole_is_one_retry_however_long_credit_takes() {
    for transport in TRANSPORTS {
        let mut w = world(Options { retry_cnt: 1, ..options(transport) });
        write(&mut w, 1, 100);
        let begin = w.now;
        let lost = |w: &World, h, frame: &[u8]| match h {
            A => w.now == begin && !is_credit(w, frame),
            _ => is_credit(w, frame) && w.now.saturating_since(begin).as_nanos() < 10 * u128::from(TIMEOUT),
        };
        assert_eq!(until_sent(&mut w, 100_000, lost), [(1, Status::Success)], "{transport}");
        assert!(w.counters(A).local_ack_timeout_err <= 1, "{transport}");
        assert!(w.now.saturating_since(begin).as_nanos() > 10 * u128::from(TIMEOUT), "{transport}");
    }
}

#[test]
fn a_peer_without_a_receive_is_left_alone_and_the_wait_for_credit_behind_that_is_no_retry() {
    for transport in TRANSPORTS {
        let mut w = agreed(transport);
        w.send(A, 1, SendOp::Send, 0, 100 * MTU);
        let begin = w.now;
        let mut posted = false;
        let mut sent = Vec::new();
        for _ in 0..10_000 {
            let waited = w.now.saturating_since(begin).as_nanos();
            if !posted && waited > u128::from(MS) / 100 && w.counters(A).rnr_naks_received > 0 {
                w.recv(B, 1, 0, 100 * MTU);
                posted = true;
            }
            for h in [A, B] {
                for frame in w.transmit(h) {
                    if !(h == B && is_credit(&w, &frame) && waited < 10 * u128::from(TIMEOUT)) {
                        w.deliver(1 - h, &frame);
                    }
                }
            }
            sent = w.sent_status(A);
            if !sent.is_empty() {
                break;
            }
            w.wait(50_000);
        }
        assert_eq!(sent, [(1, Status::Success)], "{transport}");
        assert_eq!(w.counters(A).local_ack_timeout_err, 0, "{transport}");
    }
}

#[test]
fn a_peer_that_is_gone_while_credit_is_waited_for_is_noticed() {
    for transport in TRANSPORTS {
        let mut w = world(Options { retry_cnt: 2, ..options(transport) });
        write(&mut w, 1, 100);
        let [data, _] = leaving(&mut w, A);
        w.deliver_all(B, &data);
        let [answers, _] = leaving(&mut w, B);
        w.deliver_all(A, &answers);
        // All that left is acknowledged; from now on nothing comes.
        let begin = w.now;
        assert_eq!(until_sent(&mut w, 100_000, |_, _, _| true), [(1, Status::RetryExcErr)], "{transport}");
        assert!(w.now.saturating_since(begin).as_nanos() < 300 * u128::from(MS), "{transport}");
    }
}

#[test]
fn answers_leave_without_credit() {
    for transport in TRANSPORTS {
        let mut w = agreed(transport);
        w.send(A, 1, w.read_from(B, 0), 0, 100 * MTU);
        w.run();
        assert_eq!(w.sent_status(A), [(1, Status::Success)], "{transport}");
        assert_eq!(w.counters(A).eqds_credit_sent + w.counters(B).eqds_credit_sent, 0, "{transport}");
    }
}

/// A has asked for credit, and this comes; what A counted, and how many packets it sends then.
fn lie(transport: &str, body: impl Fn(&World) -> XpCredit, twice: bool) -> (Counters, usize) {
    let mut w = agreed(transport);
    write(&mut w, 1, 200);
    w.transmit(A);
    let ext = ExtHeaders { xp_report: Some(XpReport::Credit(body(&w))), ..ExtHeaders::default() };
    let frame = w.forge(A, 0xf5, 50, false, ext, &[]);
    (0..=u8::from(twice)).for_each(|_| w.deliver(A, &frame));
    (w.counters(A), w.transmit(A).len())
}

#[test]
fn credit_that_was_never_given_twice_given_or_of_another_queue_pair_is_dropped_and_counted() {
    for transport in TRANSPORTS {
        let of = |w: &World, granted| XpCredit { flags: 0, giver: w.hosts[B].qpn.value(), granted, wanted: 0 };
        let (right, sent) = lie(transport, |w| of(w, 4000), false);
        assert_eq!((right.eqds_credit_received, right.eqds_credit_rejected), (1, 0));
        // Selective Repeat has its own limit of what is under way.
        assert!(sent >= if transport == "sr" { 4 } else { 10 }, "{transport}: {sent}");
        let (twice, sent_twice) = lie(transport, |w| of(w, 4000), true);
        assert_eq!((twice.eqds_credit_received, twice.eqds_credit_stale, sent_twice), (1, 1, sent));
        let wrong: [fn(XpCredit) -> XpCredit; 4] = [
            |right| XpCredit { granted: 1 << 20, ..right },
            |right| XpCredit { granted: u32::MAX, ..right },
            |right| XpCredit { giver: right.giver ^ 1, ..right },
            |right| XpCredit { wanted: 1 << 31, ..right },
        ];
        for wrong in wrong {
            let (counters, sent) = lie(transport, |w| wrong(of(w, 4000)), false);
            assert_eq!((counters.eqds_credit_received, counters.eqds_credit_rejected, sent), (0, 1, 0), "{transport}");
        }
    }
}

#[test]
fn credit_where_none_was_agreed_on_is_dropped_and_counted() {
    for transport in TRANSPORTS {
        for credit in [[None; 2], [None, Some(CREDIT)]] {
            let mut w = world(Options { credit, ..options(transport) });
            let body = XpCredit { flags: XpCredit::ASKS, giver: w.hosts[A].qpn.value(), granted: 0, wanted: 4000 };
            let ext = ExtHeaders { xp_report: Some(XpReport::Credit(body)), ..ExtHeaders::default() };
            let frame = w.forge(B, 0xf5, 50, false, ext, &[]);
            w.deliver(B, &frame);
            let b = w.counters(B);
            assert_eq!((b.eqds_credit_rejected, b.rx_malformed, w.transmit(B).len()), (1, 0, 0), "{transport}");
        }
    }
}

#[test]
fn of_the_packets_of_xp_credit_is_the_only_one_that_is_taken() {
    for transport in TRANSPORTS {
        let mut w = agreed(transport);
        let memory = w.read(B, 0, 400 * MTU);
        let reth = Some(Reth { va: w.hosts[B].buffer.addr(), rkey: w.hosts[B].key, len: 4 });
        for opcode in (0xe0..=0xff).filter(|&opcode| opcode != 0xf5) {
            let ext = ExtHeaders { reth, xp: Some(XpEth::default()), ..ExtHeaders::default() };
            let frame = w.forge(B, opcode, 0, true, ext, b"evil");
            let before = w.counters(B).rx_malformed;
            w.deliver(B, &frame);
            assert_eq!(w.counters(B).rx_malformed, before + 1, "{transport}: {opcode:#x}");
        }
        assert!(w.transmit(B).is_empty() && w.read(B, 0, 400 * MTU) == memory, "{transport}");
    }
}

#[test]
fn who_stops_while_credit_is_waited_for_asks_for_nothing_more_and_begins_anew_with_the_next_connection() {
    for transport in TRANSPORTS {
        for how in [QpState::Error, QpState::Reset] {
            let mut w = agreed(transport);
            write(&mut w, 1, 100);
            w.transmit(A);
            w.modify(A, &to_state(how));
            let flushed = if how == QpState::Error { vec![(1, Status::WrFlushErr)] } else { vec![] };
            assert_eq!(w.sent_status(A), flushed, "{transport}");
            w.wait(10 * MS);
            assert!(w.transmit(A).is_empty() && w.hosts[A].nic.poll_timeout().is_none(), "{transport}");
            let qpns = [A, B].map(|h| w.hosts[h].qpn);
            for h in [A, B] {
                w.modify(h, &to_state(QpState::Reset));
            }
            for h in [A, B] {
                w.connect((h, qpns[h]), QpKind::Rc, (1 - h, qpns[1 - h]));
            }
            w.run();
            write(&mut w, 2, 100);
            assert_eq!(until_sent(&mut w, 10_000, |_, _, _| false), [(2, Status::Success)], "{transport}");
            assert_eq!(w.counters(A).eqds_credit_rejected + w.counters(B).eqds_credit_rejected, 0);
        }
    }
}

#[test]
fn a_queue_pair_that_is_destroyed_while_credit_is_waited_for_leaves_nothing_behind() {
    for transport in TRANSPORTS {
        for h in [A, B] {
            let mut w = agreed(transport);
            write(&mut w, 1, 100);
            let frames = w.transmit(A);
            w.deliver_all(B, &frames);
            let qpn = w.hosts[h].qpn;
            w.hosts[h].nic.destroy_qp(qpn).unwrap();
            // Timers of what is gone stand for nothing, and go when their time comes.
            w.wait(100 * MS);
            assert!(w.transmit(h).is_empty(), "{transport}");
            assert_eq!(w.hosts[h].nic.poll_timeout(), None, "{transport}: host {h}");
        }
    }
}
