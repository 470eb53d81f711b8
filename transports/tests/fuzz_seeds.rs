//! The fuzz bodies of the negotiation and of unsealing on stable Rust: the kept corpus, drawn inputs, and arbitrary bytes.

use std::collections::BTreeMap;

use proptest::prelude::*;
use softnic_fault_injector::random::Random;
use softnic_transports::negotiation::{NegotiationOutcome, fuzz_negotiation};
use softnic_transports::{Unsealed, fuzz_unseal};

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

#[test]
fn the_kept_corpus_of_sealed_frames_and_drawn_changes_reach_every_end() {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../fuzz/corpus/unseal");
    let kept: Vec<_> =
        std::fs::read_dir(folder).unwrap().map(|file| std::fs::read(file.unwrap().path()).unwrap()).collect();
    assert!(kept.len() > 3);
    let mut reached = BTreeMap::<Unsealed, u32>::new();
    let drawn = (0..5000).map(|seed| {
        let mut random = Random::new(seed);
        let len = random.below(40) as usize;
        // Changes of the first 128 bytes, where most frames end.
        let byte = |i: usize, random: &mut Random| if i % 3 == 1 { 0 } else { random.below(128) as u8 };
        (0..len).map(|i| byte(i, &mut random)).collect()
    });
    for input in kept.into_iter().chain(drawn) {
        *reached.entry(fuzz_unseal(&input)).or_default() += 1;
    }
    assert_eq!(reached.len(), 3, "{reached:?}");
}

proptest! {
    #[test]
    fn any_sealed_frame(data in prop::collection::vec(any::<u8>(), 0..300)) {
        fuzz_unseal(&data);
    }

    #[test]
    fn any_bytes(data in prop::collection::vec(any::<u8>(), 0..200)) {
        fuzz_negotiation(&data);
    }
}
