//! The snapshot tables: goodput by loss and round-trip time, of `rc` beside what theory says and of `sr` beside `rc`, and how long
//! flows take; a change of them is a reviewed diff.

pub mod flows;
pub mod selective;

use std::fmt::Write;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use softnic_fault_injector::{Fault, Spec};
use softnic_transports::qp::PayloadMode;

use crate::{Options, Report, SimError, run};

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
/// The line that the figures of each run follow.
const APART: &str = "Seeds 1, 2, 3 apart:";
/// A full packet on the wire: Ethernet, IPv4, UDP, BTH, payload, ICRC, and what Ethernet adds around it.
const PACKET_BITS: f64 = ((14 + 20 + 8 + 12 + MTU + 4 + 24) * 8) as f64;

/// A simulated transfer that a table is made of.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Run {
    /// With Selective Repeat; else by Go-Back-N.
    pub selective: bool,
    /// Chance of loss, in both directions.
    pub loss: f64,
    /// Round-trip time.
    pub rtt: Duration,
    /// Seed of all that is random.
    pub seed: u64,
    /// Packets of payload.
    pub packets: u64,
}

impl Run {
    fn options(&self) -> Options {
        let options = Options {
            size: SIZE as u32,
            count: (self.packets * MTU).div_ceil(SIZE),
            depth: 256,
            rate: RATE,
            rtt: self.rtt,
            faults: Spec { faults: vec![Fault::Loss(self.loss)], ..Spec::default() },
            payload: PayloadMode::Elided,
            seed: self.seed,
            ..Options::default()
        };
        if self.selective { options.over_wide_sr() } else { options }
    }
}

/// All runs of a table: row by row, in each cell by cell, in each seed by seed.
pub fn runs(selective: bool) -> Vec<Run> {
    let mut runs = Vec::new();
    for loss in LOSSES {
        for rtt in RTTS {
            runs.extend(SEEDS.map(|seed| Run { selective, loss, rtt, seed, packets: packets(loss) }));
        }
    }
    runs
}

/// Goodput of each run in Gbit/s, made on `threads` threads; `progress` is told how many are done.
pub fn measure(runs: &[Run], threads: usize, progress: &(dyn Fn(usize) + Sync)) -> Result<Vec<f64>, SimError> {
    let options: Vec<_> = runs.iter().map(Run::options).collect();
    each(&options, threads, progress, |report| report.goodput_gbps)
}

/// What each run came to, as far as `of` wants to know.
fn each<T: Send>(
    options: &[Options],
    threads: usize,
    progress: &(dyn Fn(usize) + Sync),
    of: impl Fn(Report) -> T + Sync,
) -> Result<Vec<T>, SimError> {
    let next = AtomicUsize::new(0);
    let done = AtomicUsize::new(0);
    let work = || -> Result<Vec<(usize, T)>, SimError> {
        let mut results = Vec::new();
        loop {
            let i = next.fetch_add(1, Ordering::Relaxed);
            let Some(options) = options.get(i) else { return Ok(results) };
            results.push((i, of(run(options, None, &mut |_| {})?)));
            progress(done.fetch_add(1, Ordering::Relaxed) + 1);
        }
    };
    let all = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..threads.max(1)).map(|_| scope.spawn(work)).collect();
        threads.into_iter().map(|t| t.join().unwrap_or(Ok(Vec::new()))).collect::<Result<Vec<_>, _>>()
    })?;
    let mut results: Vec<_> = all.into_iter().flatten().collect();
    results.sort_by_key(|&(i, _)| i);
    Ok(results.into_iter().map(|(_, result)| result).collect())
}

/// The means over the seeds, row by row, of what [`runs`] came to.
pub fn means(goodput: &[f64]) -> Vec<Vec<f64>> {
    goodput.chunks(RTTS.len() * SEEDS.len()).map(|row| row.chunks(SEEDS.len()).map(mean).collect()).collect()
}

fn mean(seeds: &[f64]) -> f64 {
    seeds.iter().sum::<f64>() / seeds.len() as f64
}

/// One cell of the table of `rc`.
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

/// The bandwidth-delay product in packets.
pub fn bdp(rtt: Duration) -> f64 {
    rtt.as_secs_f64() * RATE as f64 / PACKET_BITS
}

/// Goodput of Go-Back-N: each loss costs what fits a round trip.
pub fn go_back_n(loss: f64, rtt: Duration) -> f64 {
    let loss_free = RATE as f64 * (MTU * 8) as f64 / PACKET_BITS;
    loss_free / (1.0 + loss * bdp(rtt)) / 1e9
}

/// The cells of the table of `rc`, from the means.
pub fn cells(means: &[Vec<f64>]) -> Vec<Vec<Cell>> {
    let cell = |loss, rtt, goodput_gbps| Cell { goodput_gbps, formula_gbps: go_back_n(loss, rtt) };
    let row = |(loss, row): (f64, &Vec<f64>)| RTTS.into_iter().zip(row).map(|(rtt, &g)| cell(loss, rtt, g)).collect();
    LOSSES.into_iter().zip(means).map(row).collect()
}

/// The table of `rc` as text, from the goodput of each of its [`runs`], rounded.
pub fn render(goodput: &[f64]) -> String {
    let mut s = String::from(
        "Goodput of rc (Go-Back-N) in Gbit/s: 10 Gbit/s, MTU 1024, WRITEs of 1 MiB, 256 outstanding, payload elided;\n\
         the mean of seeds 1, 2, 3, with 10 M packets or 300 expected losses each. In brackets: the ratio to\n\
         loss-free rate / (1 + p BDP). A lost NAK or retransmission costs a timeout of 4 to 8 round trips, which the\n\
         formula leaves out.\n\n",
    );
    let pairs = |row: &Vec<Cell>| row.iter().map(|c| (c.goodput_gbps, c.ratio())).collect();
    render_pairs(&mut s, &cells(&means(goodput)).iter().map(pairs).collect::<Vec<_>>());
    render_apart(&mut s, &runs(false), goodput);
    s
}

/// The goodput of each of `runs` that a text says; `None` when it is no table of them.
pub fn parse(text: &str, runs: &[Run]) -> Option<Vec<f64>> {
    let (_, lines) = text.split_once(APART)?;
    let figures = lines.lines().flat_map(|line| line.split_whitespace().skip(3));
    let goodput = figures.map(|f| f.parse().ok()).collect::<Option<Vec<_>>>()?;
    (goodput.len() == runs.len()).then_some(goodput)
}

/// As many digits as the text has: what is read from it is what was written.
pub fn rounded(goodput: f64) -> f64 {
    (goodput * 1e4).round() / 1e4
}

/// Whether every test makes a run: all short runs, one seed of each cell of medium ones, and one of the longest.
pub fn is_quick(run: &Run) -> bool {
    let first = run.seed == SEEDS[0];
    match run.packets {
        selective::LONG_PACKETS => first && run.loss == 1e-4,
        MAX_PACKETS => first && run.rtt == RTTS[1] && run.loss == 1e-5,
        _ => first || run.loss >= 1e-3,
    }
}

/// What each run came to, a line a cell.
fn render_apart(s: &mut String, runs: &[Run], goodput: &[f64]) {
    let _ = writeln!(s, "\n{APART}");
    for (cell, seeds) in runs.chunks(SEEDS.len()).zip(goodput.chunks(SEEDS.len())) {
        let Run { loss, rtt, packets, .. } = cell[0];
        let _ = write!(s, "{:>8}  {:>6}  {packets:>10}", show_loss(loss), format!("{rtt:?}"));
        for figure in seeds {
            let _ = write!(s, "  {figure:.4}");
        }
        s.push('\n');
    }
}

/// A table of figures, each with another one in brackets.
fn render_pairs(s: &mut String, rows: &[Vec<(f64, f64)>]) {
    let _ = write!(s, "{:>8}", "loss");
    for rtt in RTTS {
        let _ = write!(s, "  {:>16}", format!("RTT {rtt:?}"));
    }
    s.push('\n');
    for (loss, row) in LOSSES.iter().zip(rows) {
        let _ = write!(s, "{:>8}", show_loss(*loss));
        for (figure, ratio) in row {
            let _ = write!(s, "  {:>16}", format!("{figure:.4} ({ratio:.3})"));
        }
        s.push('\n');
    }
}

fn show_loss(loss: f64) -> String {
    if loss == 0.0 { "0".into() } else { format!("{loss:.0e}") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read_again() {
        let runs = runs(false);
        let goodput: Vec<f64> =
            runs.iter().map(|run| rounded(go_back_n(run.loss, run.rtt) - run.seed as f64 / 7e3)).collect();
        let text = render(&goodput);
        assert_eq!(parse(&text, &runs), Some(goodput.clone()));
        assert_eq!(render(&parse(&text, &runs).unwrap()), text);
        assert_eq!(parse(text.trim_end().rsplit_once(' ').unwrap().0, &runs), None, "a figure is missing");
        assert_eq!(parse("nothing", &runs), None);
    }

    #[test]
    fn every_test_has_each_loss_from_1e_5_on_and_each_cell_with_loss_enough() {
        for selective in [false, true] {
            let runs = if selective { selective::runs() } else { runs(false) };
            for loss in LOSSES.into_iter().filter(|&loss| loss >= 1e-5) {
                assert!(runs.iter().any(|run| run.loss == loss && is_quick(run)), "loss {loss}");
            }
            let lossy = |cell: &&[Run]| cell[0].loss >= 1e-4 && cell[0].packets < selective::LONG_PACKETS;
            assert!(runs.chunks(SEEDS.len()).filter(lossy).all(|cell| cell.iter().any(is_quick)));
            let packets = |of: fn(&Run) -> bool| runs.iter().filter(|run| of(run)).map(|run| run.packets).sum::<u64>();
            assert!(packets(is_quick) * 12 < packets(|_| true), "a quick one is quicker");
        }
    }
}
