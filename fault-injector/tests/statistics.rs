//! Each model against its statistics: fixed seeds, bounds from the distribution (five standard deviations), exact where
//! there is no chance.

use std::time::Duration;

use softnic_fault_injector::bottleneck::{Bottleneck, wire_bytes};
use softnic_fault_injector::random::Random;
use softnic_fault_injector::{Direction, Fate, Injector, Line, Policy, QueueDecision, Red, Spec, Time};
use softnic_wire::Instant;

const N: usize = 1_000_000;

/// Which of `N` frames are lost.
fn losses(spec: &str, direction: Direction, seed: u64) -> Vec<bool> {
    let mut i = Injector::new(&spec.parse().unwrap(), direction, seed);
    (0..N).map(|_| i.offer(Instant::ZERO, &[]) == Fate::Drop).collect()
}

fn count(lost: &[bool]) -> f64 {
    lost.iter().filter(|l| **l).count() as f64
}

fn within(what: &str, found: f64, expected: f64, sigma: f64) {
    assert!((found - expected).abs() < 5.0 * sigma, "{what}: {found}, expected {expected} ± {}", 5.0 * sigma);
}

/// Lengths of the runs of lost frames.
fn runs(lost: &[bool]) -> Vec<usize> {
    lost.chunk_by(|a, b| a == b).filter(|r| r[0]).map(<[bool]>::len).collect()
}

#[test]
fn bernoulli_loss_is_as_frequent_as_asked_for_and_without_memory() {
    for (p, seed) in [(1e-4, 1), (1e-3, 2), (0.1, 3), (0.5, 4)] {
        let lost = losses(&format!("loss={p}"), Direction::Ab, seed);
        let n = N as f64;
        within("losses", count(&lost), n * p, (n * p * (1.0 - p)).sqrt());
        // Pairs of neighbours are lost with p²; the variance is a little larger than Bernoulli's, for pairs overlap.
        let pairs = lost.windows(2).filter(|w| w[0] && w[1]).count() as f64;
        let variance = n * (p * p * (1.0 - p * p) + 2.0 * p.powi(3) * (1.0 - p));
        within("lost neighbours", pairs, n * p * p, variance.sqrt().max(1.0));
    }
}

#[test]
fn bursts_of_a_fixed_length_have_it_exactly() {
    let lost = losses("burst=1e-3:1:7", Direction::Ab, 5);
    let runs = runs(&lost);
    // A burst that begins right behind another looks like one of twice the length, one time in a thousand.
    assert!(runs.iter().all(|r| r % 7 == 0 || lost.ends_with(&vec![true; *r])), "{runs:?}");
    // Between bursts the gaps are geometric: a cycle is 7 + 999 frames on average, with a deviation of about 1000.
    let bursts = count(&lost) / 7.0;
    let cycle = 7.0 + 999.0;
    within("bursts", bursts, N as f64 / cycle, (N as f64 / cycle).sqrt() * 1000.0 / cycle);
}

#[test]
fn bursts_of_a_mean_length_have_it_on_average_and_are_geometric() {
    let lost = losses("burst=1e-3:1:~8", Direction::Ab, 6);
    let runs = runs(&lost);
    let n = runs.len() as f64;
    let mean = runs.iter().sum::<usize>() as f64 / n;
    // Two that touch count as one: longer by a factor of 1 + 1e-3 · 1 at most. Deviation of a geometric of mean m: √(m(m−1)).
    within("mean length", mean, 8.0 / (1.0 - 1e-3), (8.0f64 * 7.0).sqrt() / n.sqrt());
    let single = runs.iter().filter(|r| **r == 1).count() as f64 / n;
    within("bursts of one", single, 1.0 / 8.0, (1.0 / 8.0 * 7.0 / 8.0 / n).sqrt());
}

#[test]
fn within_a_burst_the_part_asked_for_is_lost() {
    // Bursts so long that all frames but the first few are in one.
    let lost = losses("burst=1:0.3:4000000000", Direction::Ab, 7);
    let n = N as f64;
    within("losses", count(&lost), 0.3 * n, (n * 0.3 * 0.7).sqrt());
    let rare = losses("burst=1e-2:0.5:10", Direction::Ab, 8);
    // One cycle: 99 frames outside on average, 10 within, half of these lost.
    let cycles = n / 109.0;
    within("losses", count(&rare), cycles * 5.0, cycles.sqrt() * 5.0);
    let after_loss = rare.windows(2).filter(|w| w[0] && w[1]).count() as f64 / count(&rare);
    assert!((0.4..0.5).contains(&after_loss), "a loss makes the next likely, nine times in ten by half: {after_loss}");
}

#[test]
fn the_streams_of_the_two_directions_are_independent() {
    let [ab, ba] = [(Direction::Ab, 1), (Direction::Ba, 2)]
        .map(|(d, stream)| losses("loss=0.5", d, Random::stream(9, stream).next_u64()));
    let same = ab.iter().zip(&ba).filter(|(a, b)| a == b).count() as f64;
    within("frames with the same fate", same, N as f64 / 2.0, (N as f64 / 4.0).sqrt());
}

#[test]
fn a_fault_of_one_direction_is_not_drawn_in_the_other() {
    let of = |spec| losses(spec, Direction::Ba, 3);
    assert_eq!(of("loss=0.01,ab.dup=0.5,ab.burst=0.1:1:3"), of("loss=0.01"));
    assert_ne!(of("loss=0.01,ba.burst=0.1:1:3"), of("loss=0.01"));
}

/// When each frame of `sent` (time, bytes) arrives, by its number, in the order of arrival.
fn arrivals(spec: &str, sent: impl Iterator<Item = (Time, u64)>) -> Vec<(Time, usize)> {
    let mut line = Line::new(&spec.parse::<Spec>().unwrap(), Direction::Ab, 1);
    let mut arrived = Vec::new();
    for (i, (now, len)) in sent.enumerate() {
        while let Some(due) = line.next_due().filter(|d| *d <= now) {
            arrived.extend(line.poll(due).map(|(i, _)| (due, i)));
        }
        let fate = line.judge(now.instant(), &[]);
        line.carry(now, fate, len, i, None, |_| {});
    }
    while let Some(due) = line.next_due() {
        arrived.extend(line.poll(due).map(|(i, _)| (due, i)));
    }
    arrived
}

const US: u64 = 1_000_000;

fn every_microsecond(n: u64) -> impl Iterator<Item = (Time, u64)> {
    (0..n).map(|i| (Time(i * US), 1000))
}

#[test]
fn a_fault_that_never_happens_changes_nothing() {
    let run = |spec: &str| arrivals(spec, every_microsecond(20_000));
    let named = "burst=0:1:5,loss=0.01,burst=1:0:5,dup=0,reorder=0.01:3,jitter=3us,delay=0s,down=100s+5s,down=0s+0s,\
        stall=100s+5s,stall=0s+0s";
    assert!(run(named) == run("loss=0.01,reorder=0.01:3,jitter=3us"));
    // A bottleneck so fast that it takes 8 ps a frame, and whose queue never fills: nothing else may move.
    let wide = run("loss=0.01,jitter=3us,rate=1000Tbit,queue=1G,ecn=500M:1G:1");
    let shifted: Vec<_> = wide.iter().map(|&(t, i)| (Time(t.0 - 8), i)).collect();
    assert!(shifted == run("loss=0.01,jitter=3us"));
}

#[test]
fn delay_is_exact_and_jitter_is_uniform_and_reorders() {
    let n = 200_000;
    let late = |a: &[(Time, usize)]| a.iter().map(|&(t, i)| t.0 - i as u64 * US).collect::<Vec<_>>();
    let delayed = arrivals("delay=20us", every_microsecond(n));
    assert!(late(&delayed).iter().all(|l| *l == 20 * US) && delayed.is_sorted_by_key(|a| a.1));
    let jittered = arrivals("delay=20us,jitter=10us", every_microsecond(n));
    assert_eq!(jittered.len(), n as usize);
    assert!(jittered.is_sorted_by_key(|a| a.0) && !jittered.is_sorted_by_key(|a| a.1), "jitter reorders");
    let late = late(&jittered);
    assert!(late.iter().all(|l| (20 * US..=30 * US).contains(l)));
    let mean = late.iter().sum::<u64>() as f64 / n as f64;
    // A uniform's deviation is its width over √12.
    within("mean", mean, 25.0 * US as f64, 10.0 * US as f64 / 12f64.sqrt() / (n as f64).sqrt());
    let upper = late.iter().filter(|l| **l > 28 * US).count() as f64;
    within("the uppermost fifth", upper, n as f64 / 5.0, (n as f64 * 0.2 * 0.8).sqrt());
    let spread = arrivals("jitter=500ns", every_microsecond(1000));
    assert!(spread.is_sorted_by_key(|a| a.1), "less than what is between the frames reorders nothing");
}

#[test]
fn a_rate_spaces_frames_exactly_and_leaves_slower_ones_alone() {
    // A thousand bytes and what Ethernet adds, at 1 Gbit/s: 8.192 µs.
    let step = wire_bytes(1000) * 8000;
    let fast = arrivals("rate=1Gbit", every_microsecond(1000));
    for (i, (at, frame)) in fast.iter().enumerate() {
        assert_eq!((at.0, *frame), ((i as u64 + 1) * step, i));
    }
    let slow = arrivals("rate=1Gbit", (0..1000).map(|i| (Time(i * 10 * US), 1000)));
    assert!(slow.iter().all(|(at, i)| at.0 == *i as u64 * 10 * US + step));
    let tiny = arrivals("rate=1Gbit", (0..2).map(|_| (Time(0), 1)));
    assert_eq!(tiny[1].0, Time(2 * 84 * 8000), "Ethernet's least frame, with all around it");
}

#[test]
fn a_stall_lets_frames_go_in_order_at_once_or_behind_each_other_at_the_rate() {
    let end = 500 * US;
    let arrive = |spec| arrivals(spec, every_microsecond(1000));
    let expected: Vec<_> = (0..1000).map(|i| (Time((i * US).max(if i < 100 { 0 } else { end })), i as usize)).collect();
    assert_eq!(arrive("stall=100us+400us"), expected, "none is lost");
    assert_eq!(arrive("ab.stall=100us+400us"), expected);
    assert_eq!(arrive("ba.stall=100us+400us"), arrive(""));
    let delayed: Vec<_> = expected.iter().map(|&(t, i)| (Time(t.0 + 20 * US), i)).collect();
    assert_eq!(arrive("stall=100us+400us,delay=20us"), delayed);
    // 10 Gbit/s take 819.2 ns for a frame: what is held leaves one by one, and those that come meanwhile follow.
    let step = wire_bytes(1000) * 800;
    let spaced = arrive("stall=100us+400us,rate=10Gbit");
    assert!(spaced.len() == 1000 && spaced.is_sorted_by_key(|a| a.1));
    for (n, (at, _)) in spaced[100..].iter().enumerate() {
        let alone = (100 + n as u64) * US + step;
        assert_eq!(at.0, (end + (n as u64 + 1) * step).max(alone), "frame {n} of those held");
    }
}

#[test]
fn what_a_stall_held_meets_the_link_when_it_is_let_go() {
    // Two frames wait for the queue of two, the others are lost at once.
    let queued = arrivals("stall=0s+10us,rate=1Gbit,queue=2000", every_microsecond(10));
    let step = wire_bytes(1000) * 8000;
    assert_eq!(queued, [(Time(10 * US + step), 0), (Time(10 * US + 2 * step), 1)]);
    // Down at its end loses all that was held, down within it nothing.
    assert_eq!(arrivals("stall=0s+10us,down=10us+1ns", every_microsecond(10)), []);
    assert_eq!(arrivals("stall=0s+10us,down=2us+5us", every_microsecond(10)).len(), 10);
}

#[test]
fn a_queue_drops_exactly_what_does_not_fit() {
    let mut b = Bottleneck::new(1_000_000_000, Policy { limit: 5000, red: None }, Random::new(1));
    let step = wire_bytes(1000) * 8000;
    let taken = (0..8).filter(|_| b.offer(Time(0), 1000).is_some()).count();
    assert_eq!((taken, b.max_bytes()), (5, 5000));
    assert_eq!(b.offer(Time(step - 1), 1), None, "the first has not left yet");
    assert_eq!(b.offer(Time(step), 1001), None, "one byte too many");
    assert_eq!(b.offer(Time(step), 1000), Some((Time(6 * step), false)));
    assert_eq!(b.offer(Time(step), 1), None);
    assert_eq!(b.offer(Time(10 * step), 5000).map(|(t, _)| t), Some(Time(10 * step + wire_bytes(5000) * 8000)));
}

#[test]
fn marks_come_by_the_length_of_the_queue() {
    let red = Red { min: 1000, max: 3000, chance: 0.4 };
    let policy = Policy { limit: 10_000, red: Some(red) };
    let mut random = Random::new(4);
    let n = 100_000;
    for (waiting, p) in [(0, 0.0), (1000, 0.0), (1500, 0.1), (2000, 0.2), (3000, 0.4), (3001, 1.0), (9000, 1.0)] {
        let marked = (0..n).filter(|_| policy.decide(waiting, 1000, &mut random) == QueueDecision::Mark);
        let sigma = (f64::from(n) * p * (1.0 - p)).sqrt();
        let (found, expected) = (marked.count() as f64, f64::from(n) * p);
        assert!((found - expected).abs() <= 5.0 * sigma, "{waiting}: {found}, expected {expected}");
    }
    assert_eq!(policy.decide(9001, 1000, &mut random), QueueDecision::Drop);
}

#[test]
fn a_queue_in_a_line_marks_by_what_each_frame_finds() {
    // Thresholds in one place: marked if and only if more than 2000 bytes wait.
    let spec: Spec = "rate=1Gbit,queue=5000,ecn=2000:2000:0".parse().unwrap();
    let mut line = Line::new(&spec, Direction::Ab, 1);
    let mut lost = 0;
    for i in 0..8 {
        line.carry(Time(0), Fate::Pass, 1000, i, None, |_| lost += 1);
    }
    let end = Time(0).after(Duration::from_secs(1));
    let marked: Vec<_> = std::iter::from_fn(|| line.poll(end)).map(|(i, change)| (i, change.mark)).collect();
    assert_eq!(marked, [(0, false), (1, false), (2, false), (3, true), (4, true)]);
    assert_eq!((lost, line.stats().tail_dropped, line.stats().lost, line.stats().max_queue), (3, 3, 3, 5000));
}

#[test]
fn a_delayed_frame_of_a_script_lets_others_pass_and_held_ones_enter_the_queue_late() {
    let spec: Spec = "rate=1Gbit".parse().unwrap();
    let mut line = Line::new(&spec, Direction::Ab, 1);
    let fates = [Fate::Delay(Duration::from_micros(20)), Fate::Hold(2), Fate::Pass, Fate::Pass, Fate::Pass];
    for (i, fate) in fates.into_iter().enumerate() {
        line.carry(Time(0), fate, 1000, i, None, |_| {});
    }
    let step = wire_bytes(1000) * 8000;
    let mut order = Vec::new();
    while let Some(due) = line.next_due() {
        order.extend(line.poll(due).map(|(i, _)| (i, due.0)));
    }
    assert_eq!(order, [(2, 2 * step), (3, 3 * step), (0, step + 20 * US), (1, 4 * step), (4, 5 * step)]);
}

#[test]
fn marks_and_jitter_know_nothing_of_each_other() {
    // Two frames come for each that leaves, and two wait at most: those that are taken find one, and are marked half of the time.
    let spec: Spec = "rate=1Gbit,queue=2000,ecn=0:2000:1,jitter=1us".parse().unwrap();
    let mut line = Line::new(&spec, Direction::Ab, 1);
    let step = wire_bytes(1000) * 8000;
    let (mut frames, mut marked, mut alike, mut before) = (0.0, 0.0, [0.0; 2], false);
    for i in 0..200_000u64 {
        line.carry(Time(i * step / 2), Fate::Pass, 1000, (), None, |()| {});
        while let Some(due) = line.next_due().filter(|d| d.0 <= i * step / 2) {
            let mark = line.poll(due).is_some_and(|(_, change)| change.mark);
            // Departures are whole steps: what is beyond is jitter.
            let late = due.0 % step > US / 2;
            frames += 1.0;
            marked += f64::from(u8::from(mark));
            // The first frame finds nobody, and no number is drawn for its mark: the one before is looked at too.
            alike[0] += f64::from(u8::from(mark == late));
            alike[1] += f64::from(u8::from(mark == before));
            before = late;
        }
    }
    assert!(frames > 90_000.0);
    let sigma = (frames / 4.0f64).sqrt();
    within("marks", marked, frames / 2.0, sigma);
    alike.iter().for_each(|n| within("marked and late, or neither", *n, frames / 2.0, sigma));
}
