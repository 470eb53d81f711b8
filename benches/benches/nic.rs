//! What an RC WRITE of one packet costs the NIC, requester and responder apart, without any IO.
#![allow(missing_docs, clippy::print_stdout)]

use std::collections::BTreeMap;
use std::hint::black_box;
use std::time::{Duration, Instant};

use criterion::Criterion;
use softnic_benches::pair::{BATCH, Memory, Pair};

const SIZES: [usize; 3] = [64, 1024, 4096];
const QPS: [usize; 3] = [1, 100, 10_000];
/// Ethernet to RETH and the ICRC: what an RC WRITE of one packet adds to its payload, and its CRC covers but for Ethernet.
const HEADERS: usize = 20 + 8 + 12 + 16;

/// The times a packet of each row, by name and size.
type Times = BTreeMap<(String, usize), Vec<f64>>;

fn record(
    criterion: &mut Criterion,
    times: &mut Times,
    name: &str,
    size: usize,
    mut round: impl FnMut() -> (Duration, usize),
) {
    let row = times.entry((name.to_string(), size)).or_default();
    criterion.bench_function(&format!("{name}/{size}"), |b| {
        b.iter_custom(|n| {
            let (mut took, mut packets) = (Duration::ZERO, 0);
            while packets < n as usize {
                let (t, p) = round();
                took += t;
                packets += p;
            }
            row.push(took.as_nanos() as f64 / packets as f64);
            took.mul_f64(n as f64 / packets as f64)
        });
    });
}

/// What looking at the clock twice takes: rounds of one queue pair are so short that this would be a tenth of them.
fn clock_cost() -> Duration {
    let looks = (0..10_000).map(|_| Instant::now().elapsed());
    looks.min().unwrap_or_default()
}

/// One round of all queues: what the requester took and what the responder took.
fn round(pair: &mut Pair, clock: Duration) -> [Duration; 2] {
    let mut took = [Duration::ZERO; 2];
    let mut timed = |side: usize, start: Instant| took[side] += start.elapsed().saturating_sub(clock);
    let start = Instant::now();
    pair.post();
    timed(0, start);
    let mut done = 0;
    loop {
        let start = Instant::now();
        let sent = pair.send();
        timed(0, start);
        let start = Instant::now();
        pair.receive(sent);
        let answers = pair.answer();
        timed(1, start);
        let start = Instant::now();
        done += pair.complete(answers);
        timed(0, start);
        if sent == 0 && answers == 0 {
            break;
        }
    }
    assert_eq!(done, pair.messages(), "every WRITE completes");
    took
}

/// One copy and one CRC of the bytes of a packet: what no NIC in software can be without.
fn memcpy_and_crc(size: usize, from: &[u8], to: &mut [u8], at: usize) {
    to[HEADERS..HEADERS + size].copy_from_slice(&from[at..at + size]);
    black_box(crc32fast::hash(black_box(&to[..HEADERS + size])));
}

fn main() {
    let mut criterion = Criterion::default()
        .warm_up_time(Duration::from_millis(100))
        .measurement_time(Duration::from_millis(400))
        .sample_size(20)
        .configure_from_args();
    let mut times = Times::new();
    let clock = clock_cost();
    let cold = vec![1u8; 512 << 20];
    for size in SIZES {
        for (name, span) in [("memcpy + CRC, hot", 0), ("memcpy + CRC, cold", cold.len() - 8192)] {
            let mut to = [0u8; 8192];
            let mut at = 0;
            record(&mut criterion, &mut times, name, size, || {
                let start = Instant::now();
                for _ in 0..BATCH {
                    at = if span == 0 { 0 } else { (at + 37 * 4096) % span };
                    memcpy_and_crc(size, &cold, &mut to, at);
                }
                (start.elapsed(), BATCH)
            });
        }
    }
    drop(cold);
    for size in SIZES {
        let worlds = QPS.iter().map(|&qps| (qps, Memory::Hot)).chain([(1, Memory::Cold)]);
        for (qps, memory) in worlds {
            let mut pair = Pair::new(qps, size, memory);
            for (i, side) in ["requester", "responder"].into_iter().enumerate() {
                let name = match memory {
                    Memory::Hot => format!("{side}, {qps} QPs"),
                    Memory::Cold => format!("{side}, 1 QPs, cold memory"),
                };
                let packets = pair.packets();
                record(&mut criterion, &mut times, &name, size, || (round(&mut pair, clock)[i], packets));
            }
        }
    }
    table(&times);
}

/// Nanoseconds a packet, the tenth percentile of all samples, and the ratio to one hot copy and CRC.
fn table(times: &Times) {
    let at = |name: &str, size: usize| {
        let mut row = times.get(&(name.to_string(), size))?.clone();
        row.sort_by(f64::total_cmp);
        row.get(row.len() / 10).copied()
    };
    println!("\n| ns a packet (ratio to memcpy + CRC, hot) | 64 | 1024 | 4096 |\n|---|---|---|---|");
    let mut names: Vec<&String> = times.keys().map(|(name, _)| name).collect();
    names.dedup();
    names.sort();
    names.dedup();
    for name in names {
        let cells = SIZES.map(|size| match (at(name, size), at("memcpy + CRC, hot", size)) {
            (Some(t), Some(base)) => format!("{t:.1} ({:.2})", t / base),
            _ => "–".to_string(),
        });
        println!("| {name} | {} |", cells.join(" | "));
    }
}
