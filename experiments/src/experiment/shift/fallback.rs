//! `shift-fallback`: the time from the first failed completion to the first good one by the backup, over many failures (figure 6b).

use std::time::Duration;

use softnic_sim::{Backup, Op, Options, run_timed};

use super::super::Setting;
use super::super::outcome::{Bound, Figures, Goal, Outcome, Table, shown};
use super::{Failure, OPS, transport};
use crate::chart::{Axis, Chart, Kind, Panel, Point as Dot, Scale, Series};

const RATE: u64 = 10_000_000_000;
const RTT: Duration = Duration::from_micros(50);
const SIZE: u32 = 64 << 10;
/// The first failure, when the line is full, and the time from it to the next: no part of the time of a message or of a packet.
const FIRST: Duration = Duration::from_millis(2);
const STEP: Duration = Duration::from_nanos(17_929);

#[derive(Debug, Clone, Copy, PartialEq)]
struct Case {
    op: (Op, &'static str),
    failure: Failure,
    at: Duration,
}

/// The times of one failure, in µs.
#[derive(Debug, Clone, Copy)]
struct Times {
    /// From the failed completion to the first good one.
    fallback: f64,
    /// The longest time between two good ones: with the retries, which the transport needs to see the failure.
    gap: f64,
}

type Runs = Vec<(Case, Times)>;

pub(in super::super) fn run(setting: &Setting) -> Result<Outcome, String> {
    let (transport, seed) = (transport(setting)?, setting.first_seed);
    let failures: u32 = if setting.quick { 10 } else { 100 };
    let one = move |case: &Case| {
        let options = Options {
            transport,
            op: case.op.0,
            size: SIZE,
            count: 400,
            rate: RATE,
            rtt: RTT,
            backup: Some(Backup::default()),
            seed,
            ..Options::default()
        };
        measure(&case.failure.added_to(options, case.at, Duration::from_secs(10))?)
    };
    let kinds = || OPS.into_iter().flat_map(|op| Failure::ALL.map(|failure| (op, failure)));
    let cases: Vec<Case> = kinds()
        .flat_map(|(op, failure)| (0..failures).map(move |i| Case { op, failure, at: FIRST + STEP * i }))
        .collect();
    let (of, results) = (cases.len(), setting.each(cases.clone(), one)?);
    let runs: Runs = cases.into_iter().zip(results).filter_map(|(case, times)| Some((case, times?))).collect();
    Ok(Outcome {
        what: format!(
            "{failures} failures of each kind, {} ns apart, of connections over {transport} with 16 messages of 64 KiB outstanding: 10 Gbit/s, round trip 50 µs on both links, MTU 1024. The ACK timeout is four round trips at least, with 7 retries.",
            STEP.as_nanos()
        ),
        tables: vec![table_of(&runs)],
        figures: figures(&runs),
        chart: Chart {
            panels: vec![
                panel(&runs, "From the failed completion to the first good one", |times| times.fallback),
                panel(&runs, "Longest time without a completion", |times| times.gap),
            ],
            caption: format!(
                "Medians of {failures} failures; bars reach from the shortest to the longest. Seed {seed} alone."
            ),
        },
        goals: goals(&runs),
        notes: notes(),
        runs: runs.len(),
        of,
        ..Outcome::default()
    })
}

fn measure(options: &Options) -> Result<Times, String> {
    let (mut completed, mut last, mut gap) = (0, Duration::ZERO, Duration::ZERO);
    let report = run_timed(options, &mut |at| {
        if at.completed > completed {
            if completed > 0 {
                gap = gap.max(at.now - last);
            }
            (completed, last) = (at.completed, at.now);
        }
        true
    });
    let report = report.map_err(|e| e.to_string())?;
    if let Some(status) = report.first_failure {
        return Err(format!("a connection with a backup failed: {status}"));
    }
    let fallback = report.failover.and_then(|failover| failover.counters.fallback_us(1.0));
    let fallback = fallback.ok_or("a failure came when all was done: there was no fallback")?;
    Ok(Times { fallback, gap: gap.as_nanos() as f64 / 1e3 })
}

/// The times of a kind of failure, in order.
fn sorted(runs: &Runs, op: &str, failure: Failure, of: fn(&Times) -> f64) -> Vec<f64> {
    let ours = runs.iter().filter(|(case, _)| case.op.1 == op && case.failure == failure);
    let mut times: Vec<f64> = ours.map(|(_, times)| of(times)).collect();
    times.sort_unstable_by(f64::total_cmp);
    times
}

fn quantile(sorted: &[f64], q: f64) -> Option<f64> {
    sorted.get(((q * sorted.len() as f64).ceil() as usize).saturating_sub(1)).copied()
}

fn table_of(runs: &Runs) -> Table {
    let row = |op: &str, failure: Failure| {
        let (fallback, gap) = (sorted(runs, op, failure, |t| t.fallback), sorted(runs, op, failure, |t| t.gap));
        let of = |q| shown(quantile(&fallback, q), 1);
        let trips = quantile(&fallback, 0.5).map(|us| us / (RTT.as_nanos() as f64 / 1e3));
        let gap = shown(quantile(&gap, 0.5), 1);
        vec![
            op.into(),
            failure.name().into(),
            fallback.len().to_string(),
            of(0.5),
            of(0.99),
            of(1.0),
            shown(trips, 2),
            gap,
        ]
    };
    let columns = ["operation", "failure", "failures", "p50 µs", "p99 µs", "max µs", "round trips", "gap p50 µs"];
    Table {
        title: "Fallback latency".into(),
        columns: columns.map(String::from).into(),
        rows: OPS.iter().flat_map(|(_, op)| Failure::ALL.map(|failure| row(op, failure))).collect(),
    }
}

fn figures(runs: &Runs) -> Figures {
    let row = |(case, times): &(Case, Times)| {
        vec![
            case.op.1.into(),
            case.failure.name().into(),
            (case.at.as_nanos() as f64 / 1e3).into(),
            times.fallback.into(),
            times.gap.into(),
        ]
    };
    Figures {
        columns: vec!["operation", "failure", "failed_at_us", "fallback_us", "gap_us"],
        rows: runs.iter().map(row).collect(),
    }
}

fn panel(runs: &Runs, title: &str, of: fn(&Times) -> f64) -> Panel {
    let series = |(hue, (_, op)): (usize, &(Op, &'static str))| {
        let dot = |(x, failure): (usize, &Failure)| {
            let times = sorted(runs, op, *failure, of);
            let (low, high) = (*times.first()?, *times.last()?);
            Some(Dot { x: x as f64, y: quantile(&times, 0.5)?, low, high })
        };
        Series::new(*op, Kind::Measured, hue, Failure::ALL.iter().enumerate().filter_map(dot).collect())
    };
    Panel {
        title: title.into(),
        x: Axis::new("Failure", Scale::Categories(Failure::ALL.map(|failure| failure.name().into()).into())),
        y: Axis::new("Time (µs)", Scale::Linear),
        series: OPS.iter().enumerate().map(series).collect(),
    }
}

/// Two round trips, three where keys are asked for, a tenth more, and the first message on the wire.
fn goals(runs: &Runs) -> Vec<Goal> {
    // A packet has 1024 bytes, and about a hundred around them.
    let message = f64::from(SIZE) * (1124.0 / 1024.0) * 8.0 / RATE as f64 * 1e6;
    let goal = |(op, name): &(Op, &'static str)| {
        let trips = if *op == Op::Send { 2.0 } else { 3.0 };
        let all = runs.iter().filter(|(case, _)| case.op.1 == *name).map(|(_, times)| times.fallback);
        let bound = trips * RTT.as_nanos() as f64 / 1e3 * 1.1 + message;
        Goal {
            what: format!("{name}: longest fallback, µs"),
            bound: Bound::AtMost((bound * 10.0).round() / 10.0),
            measured: all.reduce(f64::max),
        }
    };
    OPS.iter().map(goal).collect()
}

fn notes() -> Vec<String> {
    [
        "The paper's figure 6b has curves only; its text states no figure to stand beside ours. Nothing that is computed takes virtual time, and no NIC is driven over PCIe: ours are what the protocol needs.",
        "A handshake is a round trip, the first message and its acknowledgement another. WRITE and READ name a region of the peer, whose key at the backup is asked for once: a round trip more. A SEND that the peer had already, and whose acknowledgement was lost, completes behind the handshake.",
        "Where the responder's NIC fails, the responder begins: the initiator's time begins when it is told. RC asks for an acknowledgement every 64 packets; after a switch-over the first messages ask where they end.",
        "The gap has all that comes before: the time until the retries are used up, where only they tell.",
    ]
    .map(String::from)
    .into()
}
