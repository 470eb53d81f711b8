//! A fallback by further rows of parity: any of them stand in for any chunks, each is sent once, and what they do not repair comes by chunks.

use std::time::Duration;

use softnic_sdr::reliable::{Fallback, ReliableAttr, ReliableCounters, ReliableQp};
use softnic_sdr::{AttrError, QpAttr, SdrError};
use softnic_sim::pair::{A, B};
use softnic_wire::sdr::report::{HEAD, Report, ReportKind};

use crate::coded::{LEN, coded, scheme, time_of};
use crate::reliable::{MTU, RATE, RTT, World, attr, transfer};

fn by_rows(name: &str, interleave: u8) -> ReliableAttr {
    ReliableAttr { fallback: Fallback::Rows, ..attr(scheme(name, interleave)) }.sized_for(RATE, RTT)
}

fn lost(packets: &[u32]) -> String {
    format!("@{}", packets.iter().map(u32::to_string).collect::<Vec<_>>().join(","))
}

/// A time of so many round trips, and what it takes to send.
fn takes(took: Duration, trips: u32) -> bool {
    took > RTT * trips && took < RTT.mul_f64(f64::from(trips) + 0.1)
}

/// Packets 9 to 12 are the data of a submessage, 13 to 16 its parity, 33 to 36 the further rows that it may have.
#[test]
fn further_rows_that_are_lost_cost_nothing_as_long_as_enough_of_them_come() {
    let rows = by_rows("sdr-ec:4,4", 1);
    // A chunk of data, and all parity.
    for again in [&[][..], &[33], &[34], &[35], &[36], &[33, 34, 36], &[34, 35, 36]] {
        let (took, [sent, told]) = time_of(&lost(&[&[9, 13, 14, 15, 16], again].concat()), rows, LEN);
        assert!(takes(took, 3), "{again:?}: {took:?}");
        assert_eq!((sent.rows_asked_for, sent.chunks_repeated, sent.timeouts), (4, 0, 0), "{again:?}");
        assert_eq!((told.nacks_sent, told.fallbacks, told.failed_submessages, told.chunks_recovered), (1, 1, 1, 1));
        assert_eq!(sent.parity_packets, 16 + 4);
    }
    // The chunk that is asked for by itself is asked for again, a round trip and what queues may take later.
    let (took, _) = time_of("@9,13,14,15,16,33", coded("sdr-ec:4,4"), LEN);
    assert!(takes(took, 5), "{took:?}");
}

#[test]
fn what_further_rows_do_not_repair_comes_by_chunks() {
    let rows = by_rows("sdr-ec:4,4", 1);
    let all = [33, 34, 35, 36];
    for (data, again, trips) in [(&[9][..], &all[..], 5), (&[9, 10, 11], &all[..2], 5), (&[9, 10, 11], &all[..1], 3)] {
        let (took, [sent, told]) = time_of(&lost(&[data, &[13, 14, 15, 16], again].concat()), rows, LEN);
        assert!(takes(took, trips), "{data:?} {again:?}: {took:?}");
        let chunks = if trips == 5 { data.len() as u64 } else { 0 };
        let nacks = if trips == 5 { 2 } else { 1 };
        assert_eq!((sent.rows_asked_for, sent.chunks_asked_for, told.nacks_sent), (4, chunks, nacks), "{data:?}");
    }
    // Where there are as many chunks that serve, these are asked for at once.
    let (took, [sent, _]) = time_of("@9,10,11,12,13,33,34,35", rows, LEN);
    assert!(takes(took, 3), "{took:?}");
    assert_eq!((sent.rows_asked_for, sent.chunks_asked_for), (0, 4));
    // Of two submessages each as it needs: packets 33 to 36 are rows of the first, the next four chunks of the second.
    for (again, trips, chunks) in [(&[33, 34, 35][..], 3, 4), (&[37, 38, 39], 3, 4), (&[37, 38, 39, 40], 5, 8)] {
        let first = [1, 5, 6, 7, 8, 9, 10, 11, 12, 13];
        let (took, [sent, told]) = time_of(&lost(&[&first, again].concat()), rows, LEN);
        assert!(takes(took, trips), "{again:?}: {took:?}");
        assert_eq!((sent.rows_asked_for, sent.chunks_asked_for), (4, chunks), "{again:?}");
        assert_eq!(told.failed_submessages, 2);
    }
}

/// All losses of a submessage, and some of what comes again: rows are asked for once, and where there are more of them than chunks.
#[test]
fn rows_are_asked_for_once_and_where_there_are_more_of_them_than_chunks() {
    let rows = by_rows("sdr-ec:4,4", 1);
    for pattern in 0u32..256 {
        for lost_again in 0..=4 {
            let packets = (0..8).filter(|bit| pattern >> bit & 1 == 1).map(|bit| bit + 1);
            let packets: Vec<u32> = packets.chain(33..33 + lost_again).collect();
            let (_, [sent, _]) = time_of(&lost(&packets), rows, LEN);
            let (data, parity) = ((pattern & 15).count_ones(), (pattern >> 4).count_ones());
            let needed = (data + parity).saturating_sub(4).min(data);
            let asked = match (needed, data) {
                (0, _) => (0, false),
                (_, 4) => {
                    let rest = needed.saturating_sub(4 - lost_again);
                    (if rest > 0 && lost_again < 4 { 4 } else { 0 }, true)
                }
                _ => (4, 4 - lost_again < needed),
            };
            assert_eq!((sent.rows_asked_for, sent.chunks_repeated > 0), asked, "{packets:?}: {sent:?}");
        }
    }
}

#[test]
fn whatever_control_message_is_lost_all_comes() {
    for data in ["@9,13,14,15,16", "@9,10,13,14,15,16,33", "@1,5,6,7,8,25,26,29,30,31,32"] {
        for control in ["%1", "%2", "%3", "%4", "%1,2", "%2,3", "%3,4", "%1,2,3,4,5,6"] {
            let (took, [sent, _]) = time_of(&format!("{data}{control}"), by_rows("sdr-ec:4,4", 1), LEN);
            assert!(took < RTT * 30, "{data} {control}: {took:?}");
            assert!(sent.chunks_repeated < 60 && sent.rows_asked_for <= 8, "{data} {control}: {sent:?}");
        }
    }
}

/// `SDR_SEEDS` says how many are tried.
#[test]
fn every_message_comes_whole_in_both_directions() {
    let seeds: u64 = std::env::var("SDR_SEEDS").ok().and_then(|n| n.parse().ok()).unwrap_or(1);
    let faults = ["loss=0.1,dup=0.05", "loss=0.2,jitter=2ms", "loss=0.3", "burst=5e-3:0.9:~20"];
    // Of the last one all rows are sent with the data: there are no others.
    for (name, interleave) in [
        ("sdr-ec:4,4", 1),
        ("sdr-ec:32,8", 1),
        ("sdr-ec:4,4", 3),
        ("sdr-ec:1,2", 1),
        ("sdr-ec:2,5", 2),
        ("sdr-ec:240,16", 1),
    ] {
        let m: u64 = name.rsplit(',').next().unwrap().parse().unwrap();
        let (mut asked, mut repeated, mut unprotected) = (0, 0, 0);
        for faults in faults {
            for seed in 0..seeds {
                let plain = by_rows(name, interleave);
                let chunks = ReliableAttr { qp: QpAttr { chunk: 3 * MTU, channels: 3, ..plain.qp }, ..plain };
                // As few numbers as there can be, and memory for the parity of one group; or at the sender alone.
                let slots = 2 * u32::from(interleave);
                let few = QpAttr { split: "4+24+4".parse().unwrap(), slots, generations: 3, ..plain.qp };
                // Two numbers are two messages in a round trip.
                let few = ReliableAttr { qp: few, rate: None, timeout: Duration::from_secs(1000), ..plain };
                let pool = |rows, of| ReliableAttr { parity_pool: rows * u64::from(MTU), ..of };
                for attr in [plain, chunks, pool(2 * m, few), pool(m, plain)] {
                    for counters in transfer(faults, seed, attr, 12) {
                        let ReliableCounters { rows_asked_for, chunks_repeated, .. } = counters;
                        asked += rows_asked_for;
                        repeated += chunks_repeated;
                        unprotected += counters.unprotected;
                    }
                }
            }
        }
        assert_eq!(asked > 20, name != "sdr-ec:240,16", "{name}: {asked} further rows");
        assert!(repeated > 100 && unprotected > 0, "{name}: {repeated} sent again, {unprotected} unprotected");
    }
}

#[test]
fn what_comes_twice_is_answered_once() {
    let (_, [once, _]) = time_of("@9,13,14,15,16", by_rows("sdr-ec:4,4", 1), LEN);
    let (took, [twice, _]) = time_of("dup=1@9,13,14,15,16", by_rows("sdr-ec:4,4", 1), LEN);
    assert!(takes(took, 3), "{took:?}");
    assert_eq!((once.rows_asked_for, twice.rows_asked_for), (4, 4));
}

/// B asks for rows, honestly or not.
fn ask(w: &mut World, first: u32, rows: &[u8], len: usize) {
    w.with(B, |now, qp, nic| {
        let report = Report {
            kind: ReportKind::Rows,
            token: qp.qp().peer_token().unwrap(),
            sequence: 0,
            done: 0,
            done_ahead: 0,
            message: 0,
            len: len as u64,
            below: 0,
            first,
            bitmap: &[],
        };
        let mut head = [0; HEAD];
        report.emit_head(&mut head);
        assert!(qp.qp().send_other(now, nic, &[&head[..], rows].concat()));
    });
}

#[test]
fn rows_without_end_are_each_sent_once_and_those_that_there_are_not_never() {
    let mut w = World::new("ab.loss=1", 1, [by_rows("sdr-ec:4,2", 1); 2]);
    w.receive(B, 0, LEN);
    let until = w.now() + RTT;
    while w.now() < until && w.pair.sim.step().is_some() {}
    w.write(A, 0, LEN);
    for _ in 0..50 {
        ask(&mut w, 0, &[1, 2, 2, 1], LEN);
        // More rows than there are, and groups that there are not.
        ask(&mut w, 0, &[3, 255], LEN);
        ask(&mut w, 4, &[1], LEN);
        ask(&mut w, u32::MAX, &[2; 900], LEN);
        let until = w.now() + RTT / 10;
        while w.now() < until && w.pair.sim.step().is_some() {}
    }
    let counters = w.counters(A);
    assert_eq!(counters.rows_asked_for, 1 + 2 + 2 + 1, "{counters:?}");
    assert!(counters.rejected >= 40 * (2 + 1 + 900), "{counters:?}");
    // Where there is no room for them nobody sends any.
    let mut w = World::new("ab.loss=1", 1, [coded("sdr-ec:4,2"); 2]);
    w.receive(B, 0, LEN);
    w.write(A, 0, LEN);
    ask(&mut w, 0, &[1, 2, 2, 1], LEN);
    let until = w.now() + RTT * 3;
    while w.now() < until && w.pair.sim.step().is_some() {}
    assert_eq!((w.counters(A).rows_asked_for, w.counters(A).rejected), (0, 4));
}

#[test]
fn ends_of_which_one_has_no_room_for_further_rows_are_not_connected() {
    let mut w = World::new("", 1, [coded("sdr-ec:4,2"); 2]);
    let (pd, ip, mac) = (w.pair.sides[A].pd, w.pair.network.address(B).0, w.pair.network.next_hop(A, B));
    let nic = w.pair.sim.nic(A);
    let path = nic.path_to(ip, mac, 3).unwrap();
    let whole = ReliableAttr { fallback: Fallback::Submessages, ..coded("sdr-ec:4,2") };
    let [mut rows, mut missing, mut whole] =
        [by_rows("sdr-ec:4,2", 1), coded("sdr-ec:4,2"), whole].map(|attr| ReliableQp::create(nic, pd, &attr).unwrap());
    let infos = [&mut rows, &mut missing, &mut whole].map(|qp| qp.qp().info().encode());
    let [of_rows, of_missing, _] = infos;
    let refused = rows.qp().connect(nic, 1, &path, &of_missing).unwrap_err();
    assert_eq!(refused.to_string(), "the peer has another scheme: sdr scheme 3:4,2,1 there, sdr scheme 5:4,2,1 here");
    assert!(matches!(missing.qp().connect(nic, 1, &path, &of_rows), Err(SdrError::Scheme(..))));
    // What a receiver asks for by chunks is its own matter.
    whole.qp().connect(nic, 1, &path, &of_missing).unwrap();
    // A code without further rows is that of the others.
    assert_eq!(by_rows("sdr-ec:240,16", 1).settings(), coded("sdr-ec:240,16").settings());
}

#[test]
fn schemes_without_further_rows_refuse_them() {
    for name in ["sdr-sr", "sdr-nack", "sdr-xor:4,2"] {
        let attr = ReliableAttr { fallback: Fallback::Rows, ..coded(name) };
        assert_eq!(attr.check(), Err(AttrError::Rows(attr.scheme)));
        assert_eq!(
            attr.check().unwrap_err().to_string(),
            format!("further rows of parity are for sdr-ec: {name} has none")
        );
    }
}
