//! The fuzz body of the negotiation on stable Rust: the kept corpus, drawn inputs, and arbitrary bytes.

use std::collections::BTreeMap;

use proptest::prelude::*;
use softnic_fault_injector::random::Random;
use softnic_transports::negotiation::{NegotiationOutcome, fuzz_negotiation};

/// Runs the body; when it panics the input is printed, so that it can be kept.
fn run(input: &[u8]) -> NegotiationOutcome {
    let verdict = std::panic::catch_unwind(|| fuzz_negotiation(input));
    verdict.unwrap_or_else(|_| panic!("the fuzz body failed on {input:?}"))
}

#[test]
fn the_kept_corpus() {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../fuzz/corpus/negotiation");
    let paths: Vec<_> = std::fs::read_dir(folder).unwrap().map(|file| file.unwrap().path()).collect();
    assert!(paths.len() > 3);
    for path in paths {
        run(&std::fs::read(path).unwrap());
    }
}

#[test]
fn drawn_decisions_reach_every_verdict() {
    let mut reached = BTreeMap::<String, u32>::new();
    let many = std::env::var("SOFTNIC_SEEDS").ok().and_then(|s| s.parse().ok()).unwrap_or(20_000);
    for seed in 0..many {
        let mut random = Random::new(seed);
        let len = random.below(120) as usize;
        let small = random.chance(0.5);
        let input: Vec<u8> =
            (0..len).map(|_| if small { random.below(16) as u8 } else { random.next_u64() as u8 }).collect();
        let name = match run(&input) {
            NegotiationOutcome::Agreed(_) => "agreed".into(),
            NegotiationOutcome::Standard(why) => format!("{why:?}"),
        };
        *reached.entry(name).or_default() += 1;
    }
    eprintln!("{reached:?}");
    assert_eq!(reached.len(), 5, "{reached:?}");
}

proptest! {
    #[test]
    fn any_bytes(data in prop::collection::vec(any::<u8>(), 0..200)) {
        fuzz_negotiation(&data);
    }
}
