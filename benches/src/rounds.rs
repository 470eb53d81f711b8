//! Rounds of a pair, timed: what both sides take for a packet, by those rounds that nothing else disturbed.

use std::time::{Duration, Instant};

use crate::pair::Pair;

/// One round of all queues; what it took a packet of data, in nanoseconds, at each side.
pub fn round(pair: &mut Pair) -> [f64; 2] {
    let mut took = [Duration::ZERO; 2];
    let start = Instant::now();
    pair.post();
    took[0] += start.elapsed();
    let mut done = 0;
    loop {
        let start = Instant::now();
        let sent = pair.send();
        let between = Instant::now();
        pair.receive(sent);
        let answers = pair.answer();
        let end = Instant::now();
        done += pair.complete(answers);
        took[0] += between - start + end.elapsed();
        took[1] += end - between;
        if sent == 0 && answers == 0 {
            break;
        }
    }
    assert_eq!(done, pair.messages(), "every WRITE completes");
    took.map(|t| t.as_nanos() as f64 / pair.packets() as f64)
}

/// What a twentieth of them stay below.
pub fn undisturbed(mut v: Vec<f64>) -> f64 {
    v.sort_by(f64::total_cmp);
    v[v.len() / 20]
}
