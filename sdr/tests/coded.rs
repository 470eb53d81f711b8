//! Reliable messages with parity, in virtual time: what is lost is computed, and what cannot be is sent again.

use std::time::Duration;

use softnic_sdr::QpAttr;
use softnic_sdr::reliable::{Outcome, Protection, ReliableAttr, ReliableCounters, Scheme};
use softnic_sim::pair::{A, B};
use softnic_wire::Instant;

use crate::reliable::{MTU, RATE, RTT, World, attr, bytes, transfer};

fn scheme(name: &str, interleave: u8) -> Scheme {
    match name.parse().unwrap() {
        Scheme::Ec(p) => Scheme::Ec(Protection { interleave, ..p }),
        other => other,
    }
}

fn coded(name: &str) -> ReliableAttr {
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
