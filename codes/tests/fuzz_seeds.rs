//! The fuzz body of the decoder on stable Rust: the kept corpus, drawn inputs, and arbitrary bytes.

mod common;

use std::collections::{BTreeMap, BTreeSet};

use common::Random;
use proptest::prelude::*;
use softnic_codes::fuzz::{Outcome, fuzz_decode};

/// Runs the body; when it panics the input is printed, so that it can be kept.
fn run(input: &[u8]) -> Outcome {
    std::panic::catch_unwind(|| fuzz_decode(input)).unwrap_or_else(|_| panic!("the fuzz body failed on {input:?}"))
}

#[test]
fn the_kept_corpus_reaches_every_outcome() {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../fuzz/corpus/codes");
    let paths = std::fs::read_dir(folder).unwrap().map(|file| file.unwrap().path());
    let reached: BTreeSet<Outcome> = paths.map(|path| run(&std::fs::read(path).unwrap())).collect();
    assert_eq!(reached.len(), 5, "{reached:?}");
}

#[test]
fn drawn_decisions_reach_every_outcome() {
    let mut reached = BTreeMap::<Outcome, u32>::new();
    for seed in 0..3000 {
        let mut random = Random(seed);
        let len = random.below(120);
        let (small, mut input) = (random.below(2) == 0, random.bytes(len));
        // Small codes, of which most of the parities are there.
        input.iter_mut().skip(2).take(2).filter(|_| small).for_each(|byte| *byte %= 16);
        *reached.entry(run(&input)).or_default() += 1;
    }
    eprintln!("{reached:?}");
    assert_eq!(reached.len(), 5, "{reached:?}");
    assert!(reached.values().all(|&n| n > 20), "{reached:?}");
}

proptest! {
    #[test]
    fn any_bytes(data in prop::collection::vec(any::<u8>(), 0..200)) {
        fuzz_decode(&data);
    }
}
