//! The snapshot table: goodput by loss and round-trip time, beside what theory says; a change of it is a reviewed diff.

use std::fmt::Write;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use softnic_fault_injector::{Fault, Spec};
use softnic_transports::qp::PayloadMode;

use crate::workload::{Options, SimError, run};

/// Chances of loss, one a row.
pub const LOSSES: [f64; 6] = [0.0, 1e-6, 1e-5, 1e-4, 1e-3, 1e-2];
/// Round-trip times, one a column.
pub const RTTS: [Duration; 4] =
    [Duration::from_micros(10), Duration::from_millis(1), Duration::from_millis(40), Duration::from_millis(80)];
/// Each cell is the mean of these.
pub const SEEDS: [u64; 3] = [1, 2, 3];

const RATE: u64 = 10_000_000_000;
const MTU: u64 = 1024;
const SIZE: u64 = 1 << 20;
/// Packets in cells where fewer would lose too little.
const MAX_PACKETS: u64 = 10_000_000;
/// Losses that a cell should see, for its mean to say something.
const LOSSES_WANTED: f64 = 300.0;
/// A full packet on the wire: Ethernet, IPv4, UDP, BTH, payload, ICRC, and what Ethernet adds around it.
const PACKET_BITS: f64 = ((14 + 20 + 8 + 12 + MTU + 4 + 24) * 8) as f64;

/// One cell.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Cell {
    /// Mean goodput of the seeds, Gbit/s.
    pub goodput_gbps: f64,
    /// What Go-Back-N should reach: the loss-free rate over 1 + p · BDP.
    pub formula_gbps: f64,
}

impl Cell {
    /// Measured over expected.
    pub fn ratio(&self) -> f64 {
        self.goodput_gbps / self.formula_gbps
    }
}

/// Packets of payload that a cell transfers.
pub fn packets(loss: f64) -> u64 {
    if loss == 0.0 { MAX_PACKETS } else { MAX_PACKETS.min((LOSSES_WANTED / loss) as u64) }
}

/// Goodput of Go-Back-N: each loss costs what fits a round trip.
pub fn go_back_n(loss: f64, rtt: Duration) -> f64 {
    let loss_free = RATE as f64 * (MTU * 8) as f64 / PACKET_BITS;
    let bdp = rtt.as_secs_f64() * RATE as f64 / PACKET_BITS;
    loss_free / (1.0 + loss * bdp) / 1e9
}

fn options(loss: f64, rtt: Duration, seed: u64) -> Options {
    Options {
        size: SIZE as u32,
        count: (packets(loss) * MTU).div_ceil(SIZE),
        depth: 256,
        rate: RATE,
        rtt,
        faults: Spec { faults: vec![Fault::Loss(loss)], ..Spec::default() },
        payload: PayloadMode::Elided,
        seed,
        ..Options::default()
    }
}

/// Measures all cells on `threads` threads, row by row; `progress` is told how many runs are done.
pub fn measure(threads: usize, progress: &(dyn Fn(usize) + Sync)) -> Result<Vec<Vec<Cell>>, SimError> {
    let runs: Vec<(usize, usize, u64)> =
        (0..LOSSES.len()).flat_map(|l| (0..RTTS.len()).flat_map(move |r| SEEDS.map(|seed| (l, r, seed)))).collect();
    let next = AtomicUsize::new(0);
    let done = AtomicUsize::new(0);
    let work = || -> Result<Vec<(usize, f64)>, SimError> {
        let mut results = Vec::new();
        loop {
            let i = next.fetch_add(1, Ordering::Relaxed);
            let Some(&(l, r, seed)) = runs.get(i) else { return Ok(results) };
            let report = run(&options(LOSSES[l], RTTS[r], seed), None, &mut |_| {})?;
            results.push((i, report.goodput_gbps));
            progress(done.fetch_add(1, Ordering::Relaxed) + 1);
        }
    };
    let all = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..threads.max(1)).map(|_| scope.spawn(work)).collect();
        threads.into_iter().map(|t| t.join().unwrap_or(Ok(Vec::new()))).collect::<Result<Vec<_>, _>>()
    })?;
    let mut goodput = vec![0.0; runs.len()];
    for (i, value) in all.into_iter().flatten() {
        goodput[i] = value;
    }
    let cell = |l: usize, r: usize| {
        let first = (l * RTTS.len() + r) * SEEDS.len();
        let sum: f64 = goodput[first..first + SEEDS.len()].iter().sum();
        Cell { goodput_gbps: sum / SEEDS.len() as f64, formula_gbps: go_back_n(LOSSES[l], RTTS[r]) }
    };
    Ok((0..LOSSES.len()).map(|l| (0..RTTS.len()).map(|r| cell(l, r)).collect()).collect())
}

/// The table as text.
pub fn render(cells: &[Vec<Cell>]) -> String {
    let mut s = String::from(
        "Goodput of rc (Go-Back-N) in Gbit/s: 10 Gbit/s, MTU 1024, WRITEs of 1 MiB, 256 outstanding, payload elided;\n\
         the mean of seeds 1, 2, 3, with 10 M packets or 300 expected losses each. In brackets: the ratio to\n\
         loss-free rate / (1 + p BDP). A lost NAK or retransmission costs a timeout of 4 to 8 round trips, which the\n\
         formula leaves out.\n\n",
    );
    let _ = write!(s, "{:>8}", "loss");
    for rtt in RTTS {
        let _ = write!(s, "  {:>16}", format!("RTT {rtt:?}"));
    }
    s.push('\n');
    for (loss, row) in LOSSES.iter().zip(cells) {
        let _ = write!(s, "{:>8}", if *loss == 0.0 { "0".into() } else { format!("{loss:.0e}") });
        for c in row {
            let _ = write!(s, "  {:>8.4} ({:.3})", c.goodput_gbps, c.ratio());
        }
        s.push('\n');
    }
    s
}
