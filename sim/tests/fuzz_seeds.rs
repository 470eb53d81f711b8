//! The fuzz body on stable Rust: the kept corpus, and each of its inputs with something of another one in it.

use softnic_fault_injector::random::Random;
use softnic_sim::topology::fuzz_topology;

fn corpus() -> Vec<Vec<u8>> {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../fuzz/corpus/topology");
    let mut paths: Vec<_> = std::fs::read_dir(folder).unwrap().map(|file| file.unwrap().path()).collect();
    paths.sort();
    paths.iter().map(|path| std::fs::read(path).unwrap()).collect()
}

/// Runs the body; when it panics the input is printed, so that it can be kept.
fn run(input: &[u8]) {
    if std::panic::catch_unwind(|| fuzz_topology(input)).is_err() {
        panic!("the fuzz body failed on {:?}", String::from_utf8_lossy(input));
    }
}

#[test]
fn the_kept_corpus() {
    let all = corpus();
    assert!(all.len() > 3);
    all.iter().for_each(|input| run(input));
}

#[test]
fn inputs_cut_and_put_together_otherwise() {
    let (all, mut random) = (corpus(), Random::new(1));
    let mut below = |n: usize| random.below(n as u64) as usize;
    for _ in 0..1000 {
        let (a, b) = (&all[below(all.len())], &all[below(all.len())]);
        let (at, from) = (below(a.len() + 1), below(b.len() + 1));
        let to = from + below((b.len() - from).min(20) + 1);
        let rest = (at + below(4)).min(a.len());
        run(&[&a[..at], &b[from..to], &a[rest..]].concat());
    }
}
