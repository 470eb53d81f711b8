//! Every packet of a mixed exchange is lost, doubled, damaged or late in turn, and every two of them together: no trace here,
//! but all must come to its right end, soon, and with a retry for each fault at most.

use std::time::Duration;

use crate::targeted::world::{FOUR, ONE, TWO, World};
use softnic_wire::Psn;

/// Messages of every kind, some behind each other under one doorbell, one after a pause.
fn exchange(psn: Psn, script: &str, retries: u8) -> World {
    let mut w = World::with_retries(psn, script, retries);
    w.receive(1, TWO).receive(5, ONE);
    w.write(0, TWO).send(1, TWO).read(2, FOUR).add(3, 5).run();
    w.write(4, ONE).send(5, ONE).read(6, ONE).add(7, 9).write(8, TWO);
    w.finish();
    w
}

/// How many packets go in each direction when nothing happens to them.
fn packets(psn: Psn) -> [usize; 2] {
    let lines = exchange(psn, "", 0).lines();
    ["a>", "b>"].map(|from| lines.iter().filter(|l| l.starts_with(from)).count())
}

/// Of the fifteen PSNs of the exchange.
const WRAPS: std::ops::RangeInclusive<u32> = 0xff_fff1..=0xff_ffff;
const ACTIONS: [&str; 5] =
    ["\"drop\"", "\"duplicate\"", "\"corrupt\", bit = 450", "\"reorder\", behind = 1", "\"reorder\", behind = 3"];

const PAIRS: [[&str; 2]; 6] = {
    let [drop, twice, _, late, _] = ACTIONS;
    [[drop, drop], [twice, twice], [late, late], [drop, twice], [twice, drop], [drop, late]]
};

#[test]
fn any_one_packet() {
    for psn in [100].into_iter().chain(WRAPS).map(Psn::new) {
        for (direction, count) in ["ab", "ba"].into_iter().zip(packets(psn)) {
            for nth in 1..=count {
                for action in ACTIONS {
                    let event = format!(r#"event = [{{ action = {action}, direction = "{direction}", nth = {nth} }}]"#);
                    let w = exchange(psn, &event, 1);
                    let hit = |l: &&String| [" x", " twice", " damaged", " held"].iter().any(|mark| l.ends_with(mark));
                    assert_eq!(w.lines().iter().filter(hit).count(), 1, "{event}");
                    let timeouts = w.lines().iter().filter(|l| *l == "...").count();
                    // The pause in the middle, and at most one timer.
                    assert!(timeouts <= 2, "{event} cost {timeouts} silences: {:#?}", w.lines());
                }
            }
        }
    }
}

#[test]
fn any_two_packets() {
    for psn in [100].into_iter().chain(WRAPS.step_by(6)).map(Psn::new) {
        let [ab, ba] = packets(psn);
        let all: Vec<_> = (1..=ab).map(|n| ("ab", n)).chain((1..=ba).map(|n| ("ba", n))).collect();
        for (i, x) in all.iter().enumerate() {
            for y in &all[i + 1..] {
                for actions in PAIRS {
                    let event = |action, (d, n): &(&str, usize)| {
                        format!(r#"{{ action = {action}, direction = "{d}", nth = {n} }}"#)
                    };
                    let [first, second] = [event(actions[0], x), event(actions[1], y)];
                    let event = format!("event = [{first}, {second}]");
                    let w = exchange(psn, &event, 2);
                    assert!(w.now() < Duration::from_millis(1), "{event} took {:?}: {:#?}", w.now(), w.lines());
                }
            }
        }
    }
}
