//! The fuzz body on stable Rust: the kept corpus, drawn inputs, and arbitrary bytes.

use std::collections::HashMap;

use proptest::prelude::*;
use softnic_cm::State;
use softnic_cm::fuzz::fuzz_cm;
use softnic_fault_injector::random::Random;

fn corpus() -> Vec<Vec<u8>> {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../fuzz/corpus/cm");
    let mut paths: Vec<_> = std::fs::read_dir(folder).unwrap().map(|file| file.unwrap().path()).collect();
    paths.sort();
    paths.iter().map(|path| std::fs::read(path).unwrap()).collect()
}

/// Runs the body; when it panics the input is printed, so that it can be kept.
fn run(input: &[u8]) -> Vec<State> {
    let reached = std::panic::catch_unwind(|| fuzz_cm(input));
    reached.unwrap_or_else(|_| panic!("the fuzz body failed on {input:?}"))
}

#[test]
fn the_kept_corpus() {
    let all = corpus();
    assert!(all.len() > 3);
    all.iter().for_each(|input| drop(run(input)));
}

#[test]
fn drawn_decisions_reach_every_state() {
    let mut reached = HashMap::<State, u32>::new();
    let many = std::env::var("SOFTNIC_SEEDS").ok().and_then(|s| s.parse().ok()).unwrap_or(5000);
    for seed in 0..many {
        let mut random = Random::new(seed);
        let len = random.below(400) as usize;
        let small = random.chance(0.5);
        let input: Vec<u8> =
            (0..len).map(|_| if small { random.below(16) as u8 } else { random.next_u64() as u8 }).collect();
        run(&input).into_iter().for_each(|state| *reached.entry(state).or_default() += 1);
    }
    eprintln!("{reached:?}");
    assert_eq!(reached.len(), 11, "{reached:?}");
}

proptest! {
    #[test]
    fn any_bytes(data in prop::collection::vec(any::<u8>(), 0..600)) {
        fuzz_cm(&data);
    }
}
