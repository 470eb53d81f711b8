//! Many seeds, each a world of its own: see `softnic_sim::swarm` for what must hold.
//!
//! A failing seed is printed with its world. `SOFTNIC_SEED=N cargo test -p softnic-sim --test swarm` runs that one alone;
//! `SOFTNIC_SEEDS=N` runs that many instead of the usual few hundred (add `--release`).

use softnic_sim::swarm::{Passed, run_seed};

/// Seeds that once failed; they stay. 45: credit that shrank left the last packet without anybody to ask for its answer.
/// 738: answers given again took the room of new READs. (A seed makes another world when worlds get new properties; tests
/// in `nic/tests` hold the behaviours themselves.)
const KEPT: [u64; 2] = [45, 738];

fn run(seeds: impl IntoIterator<Item = u64>) -> Vec<Passed> {
    seeds.into_iter().map(|seed| run_seed(seed).unwrap_or_else(|broken| panic!("{broken}"))).collect()
}

#[test]
fn every_seed_is_safe_and_live() {
    let number = |name| std::env::var(name).ok().and_then(|s| s.parse::<u64>().ok());
    if let Some(seed) = number("SOFTNIC_SEED") {
        eprintln!("{:?}", run([seed]));
        return;
    }
    let passed = run(KEPT.into_iter().chain(0..number("SOFTNIC_SEEDS").unwrap_or(300)));
    // The worlds must have been worth running: loss, RNR and clean ones among them.
    let with = |f: fn(&Passed) -> bool| passed.iter().filter(|p| f(p)).count();
    assert!(with(|p| p.retransmitted > 0) > 50, "too few worlds with loss");
    assert!(with(|p| p.rnr_naks > 0) > 20, "too few worlds with RNR NAKs");
    assert!(with(|p| p.retransmitted == 0) > 20, "too few worlds without loss");
}

#[test]
fn the_same_seed_gives_the_same_run() {
    for seed in 0..20 {
        assert_eq!(run([seed]), run([seed]));
    }
    assert_ne!(run([1])[0].digest, run([2])[0].digest);
}
