//! Reliable messages with parity, in virtual time: what is lost is computed, and what cannot be is sent again.

use std::time::Duration;

use softnic_sdr::QpAttr;
use softnic_sdr::reliable::{Fallback, Outcome, Protection, ReliableAttr, ReliableCounters, ReliableError, Scheme};
use softnic_sim::pair::{A, B};
use softnic_wire::Instant;

use crate::reliable::{MTU, RATE, RTT, World, attr, bytes, transfer};

pub(crate) fn scheme(name: &str, interleave: u8) -> Scheme {
    match name.parse().unwrap() {
        Scheme::Ec(p) => Scheme::Ec(Protection { interleave, ..p }),
        other => other,
    }
}

pub(crate) fn coded(name: &str) -> ReliableAttr {
    attr(scheme(name, 1)).sized_for(RATE, RTT)
}

const SCHEMES: [(&str, u8); 10] = [
    ("sdr-ec:4,2", 1),
    ("sdr-ec:32,8", 1),
    ("sdr-ec:4,2", 3),
    ("sdr-ec:1,1", 1),
    ("sdr-ec:3,0", 1),
    ("sdr-ec:2,5", 2),
    ("sdr-xor:4,2", 1),
    ("sdr-xor:32,8", 4),
    ("sdr-xor:5,9", 1),
    ("sdr-ec:200,20", 1),
];

#[test]
fn without_faults_nothing_is_sent_again_nor_computed() {
    for (name, interleave) in SCHEMES {
        let attr = attr(scheme(name, interleave)).sized_for(RATE, RTT);
        for counters in transfer("", 1, attr, 20) {
            let ReliableCounters { chunks_repeated, nacks_sent, rejected, chunks_recovered, unprotected, .. } =
                counters;
            assert_eq!([chunks_repeated, nacks_sent, rejected, chunks_recovered, unprotected], [0; 5], "{name}");
            assert_eq!(counters.parity_packets > 0, !name.ends_with(",0"), "{name}");
        }
    }
}

/// `SDR_SEEDS` says how many are tried.
#[test]
fn every_message_comes_whole_by_parity_or_again() {
    let seeds: u64 = std::env::var("SDR_SEEDS").ok().and_then(|n| n.parse().ok()).unwrap_or(2);
    let faults = ["loss=0.02", "loss=0.1,dup=0.05", "loss=0.05,jitter=2ms", "loss=0.3", "burst=5e-3:0.9:~20"];
    for (name, interleave) in SCHEMES {
        let rows: u64 = name.rsplit(',').next().unwrap().parse().unwrap();
        let (mut repeated, mut recovered, mut unprotected) = (0, 0, 0);
        for faults in faults {
            for seed in 0..seeds {
                let plain = attr(scheme(name, interleave)).sized_for(RATE, RTT);
                let chunks = ReliableAttr { qp: QpAttr { chunk: 3 * MTU, channels: 3, ..plain.qp }, ..plain };
                // As few numbers as there can be, and memory for the parity of one group.
                let slots = 2 * u32::from(interleave);
                let few = QpAttr { split: "4+24+4".parse().unwrap(), slots, generations: 3, ..plain.qp };
                let few = ReliableAttr { qp: few, parity_pool: rows * u64::from(MTU), rate: None, ..plain };
                // Two numbers are two messages in a round trip.
                let few = ReliableAttr { timeout: Duration::from_secs(1000), ..few };
                for attr in [plain, chunks, few] {
                    for counters in transfer(faults, seed, attr, 12) {
                        repeated += counters.chunks_repeated;
                        recovered += counters.chunks_recovered;
                        unprotected += counters.unprotected;
                    }
                }
            }
        }
        assert!(repeated > 100, "{name}: {repeated} sent again");
        assert_eq!(recovered > 100, !name.ends_with(",0"), "{name}: {recovered} computed");
        assert!(unprotected > 0 || interleave == 1, "{name}: {unprotected} unprotected");
    }
}

/// How long a WRITE takes at its sender after its CTS came, and what both ends counted.
pub(crate) fn time_of(faults: &str, attr: ReliableAttr, len: usize) -> (Duration, [ReliableCounters; 2]) {
    let mut w = World::new(faults, 1, [attr; 2]);
    w.memory[A].write_at(0, &bytes(3, len));
    w.receive(B, 0, len);
    // Where each of them is lost a sender asks for it.
    while w.with(A, |_, qp, _| qp.qp().vitals().cleared) == 0 && w.pair.sim.step().is_some() {}
    let begin = w.now();
    w.write(A, 0, len);
    let (end, outcome) = w.until(A);
    assert_eq!(outcome, Outcome::Written { id: 0, outcome: Ok(()) });
    let mut found = vec![0; len];
    w.memory[B].read_at(0, &mut found);
    assert!(found == bytes(3, len), "with {faults}");
    (end.saturating_since(begin), [A, B].map(|host| w.counters(host)))
}

/// 16 chunks, each four with two of parity: packets 1 to 4 are data of the first submessage, 5 and 6 its parity, and so on.
pub(crate) const LEN: usize = 16 * MTU as usize;

#[test]
fn any_lost_packet_costs_nothing() {
    let attr = coded("sdr-ec:4,2");
    let (clean, _) = time_of("", attr, LEN);
    assert!(clean > RTT && clean < RTT.mul_f64(1.05), "{clean:?}");
    for lost in 1..=24 {
        let (took, [sent, told]) = time_of(&format!("@{lost}"), attr, LEN);
        assert!(took < RTT.mul_f64(1.05), "packet {lost}: {took:?}");
        let is_data = (lost - 1) % 6 < 4;
        assert_eq!(
            (sent.chunks_repeated, told.chunks_recovered, told.nacks_sent),
            (0, u64::from(is_data), 0),
            "{lost}"
        );
    }
}

#[test]
fn as_many_losses_as_parity_are_repaired_and_one_more_is_asked_for() {
    let attr = coded("sdr-ec:4,2");
    let (took, [_, told]) = time_of("@7,10", attr, LEN);
    assert!(took < RTT.mul_f64(1.05) && told.chunks_recovered == 2, "{took:?}");
    // Data and parity of one submessage: FTO, which is a round trip and what it takes to send, and another for what is asked for.
    let (took, [sent, told]) = time_of("@7,10,12", attr, LEN);
    assert!(took > RTT * 3 && took < RTT.mul_f64(3.1), "{took:?}");
    assert_eq!((told.nacks_sent, told.fallbacks, told.failed_submessages), (1, 1, 1));
    // What is missing is asked for, and parity that came repairs the rest when the first of it comes.
    assert_eq!((sent.chunks_asked_for, sent.timeouts), (2, 0));
    // As the paper has it: all of the submessage.
    let (_, [sent, _]) = time_of("@7,10,12", ReliableAttr { fallback: Fallback::Submessages, ..attr }, LEN);
    assert_eq!(sent.chunks_asked_for, 4);
    // What is sent again is lost again, once and twice: after a timeout of three round trips each.
    for (lost, trips) in [("@7,10,12,25,26", 5), ("@7,10,12,25,26,27,28", 7)] {
        let (took, [sent, _]) = time_of(lost, attr, LEN);
        assert!(took > RTT * trips && took < RTT.mul_f64(trips as f64 + 1.5), "{lost}: {took:?}");
        assert!(sent.chunks_repeated <= 8);
    }
}

#[test]
fn whatever_control_message_is_lost_all_comes() {
    for scheme in ["sdr-sr", "sdr-nack", "sdr-ec:4,2", "sdr-xor:4,2"] {
        for data in ["", "@1", "@7,10,12", "@1,2,3,4,5,6", "@24", "@19,20,21,22,23,24"] {
            for control in ["%1", "%2", "%3", "%4", "%1,2", "%2,3", "%3,4", "%1,2,3,4,5,6"] {
                let (took, [sent, _]) = time_of(&format!("{data}{control}"), coded(scheme), LEN);
                assert!(took < RTT * 30, "{scheme} {data} {control}: {took:?}");
                assert!(sent.chunks_repeated < 60, "{scheme} {data} {control}: {sent:?}");
            }
        }
    }
}

#[test]
fn a_message_that_is_lost_as_a_whole_comes_again() {
    for scheme in ["sdr-ec:4,2", "sdr-ec:1,0", "sdr-xor:2,1"] {
        for len in [0, 1, MTU as usize, LEN] {
            let packets = match (len, scheme.ends_with(",0")) {
                (LEN, false) => 24,
                (LEN, true) => 16,
                (_, without) => 2 - usize::from(without),
            };
            let all: Vec<String> = (1..=packets).map(|n| n.to_string()).collect();
            let (took, _) = time_of(&format!("@{}", all.join(",")), coded(scheme), len);
            assert!(took < RTT * 12, "{scheme} {len}: {took:?}");
        }
    }
}

#[test]
fn a_burst_falls_on_many_groups_where_these_are_interleaved() {
    // Eight packets in a row.
    let burst = "@3,4,5,6,7,8,9,10";
    let interleaved = attr(scheme("sdr-ec:4,2", 4)).sized_for(RATE, RTT);
    let (took, [sent, told]) = time_of(burst, interleaved, LEN);
    assert!(took < RTT.mul_f64(1.05), "{took:?}");
    assert_eq!((sent.chunks_repeated, told.chunks_recovered), (0, 8));
    let (took, [_, told]) = time_of(burst, coded("sdr-ec:4,2"), LEN);
    assert!(took > RTT * 3 && told.fallbacks == 1, "{took:?}");
}

#[test]
fn a_peer_that_stops_ends_in_the_timeout() {
    let short = ReliableAttr { timeout: Duration::from_millis(300), ..coded("sdr-ec:4,2") };
    for faults in ["ab.loss=1", "ab.loss=0.98"] {
        let mut w = World::new(faults, 1, [short; 2]);
        (0..2).for_each(|n| _ = w.receive(B, n * 200_000, 200_000));
        (0..2).for_each(|n| _ = w.write(A, n * 200_000, 200_000));
        for id in 0..2 {
            let (at, outcome) = w.until(A);
            assert_eq!(outcome, Outcome::Written { id, outcome: Err(ReliableError::Timeout) });
            assert!(at >= Instant::ZERO + short.timeout);
        }
    }
}

#[test]
fn messages_and_receives_of_other_lengths_end_in_an_error() {
    for (write, receive) in [(40_960, 50_000), (50_000, 40_960), (100, 200), (5000, 4096)] {
        let mut w = World::new("", 1, [ReliableAttr { timeout: Duration::from_secs(1), ..coded("sdr-ec:4,2") }; 2]);
        w.receive(B, 0, receive);
        w.write(A, 0, write);
        let (_, outcome) = w.until(A);
        let Outcome::Written { outcome: Err(why), .. } = outcome else { panic!("{write} into {receive}: {outcome:?}") };
        let length = ReliableError::Length(write as u64, receive as u64);
        assert!([length, ReliableError::Timeout].contains(&why), "{write} into {receive}: {why:?}");
    }
}
