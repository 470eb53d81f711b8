//! Arbitrary tables and frames, as the fuzz target `switch` draws them: the corpus, and some that are drawn here.

mod drawn;
mod hostile;

use softnic_fault_injector::random::Random;

#[test]
fn whatever_comes_nothing_panics_and_nothing_is_amplified() {
    let corpus = concat!(env!("CARGO_MANIFEST_DIR"), "/../fuzz/corpus/switch");
    let mut inputs: Vec<Vec<u8>> = std::fs::read_dir(corpus)
        .expect("the corpus is there")
        .map(|file| std::fs::read(file.expect("a file").path()).expect("it can be read"))
        .collect();
    assert!(inputs.len() >= 4, "{} inputs", inputs.len());
    let mut random = Random::stream(27, 1);
    for _ in 0..3000 {
        let len = random.below(600) as usize;
        // Half of the time small numbers: more decisions mean something.
        let mask = if random.chance(0.5) { 0xff } else { 0x5f };
        inputs.push((0..len).map(|_| random.next_u32() as u8 & mask).collect());
    }
    inputs.iter().for_each(|input| drawn::fuzz(input));
}
