//! `optinic-size`: collectives of 20 to 80 MB by eight ranks at 25 Gbit/s, beside background traffic (Figure 5).

use std::time::Duration;

use softnic_collectives::call::{Algorithm, Operation};

use super::super::Setting;
use super::super::outcome::{Beside, Bound, Goal, Outcome};
use super::super::stats::ratio;
use super::grid::{self, ALL, Contender, Grid, LOWAR, RC_10, RC_14, RC_LEAST, Row, SR, Sum, XP, XP_TAIL, lossy, some};
use super::network::{Net, Shape};
use super::{of_all_transports, paper};
use crate::chart::{Axis, Chart, Kind, Panel, Point as Dot, Scale, Series};

/// The paper's three.
pub(super) const OPERATIONS: [(Operation, &str); 3] = [
    (Operation::AllReduce, "AllReduce"),
    (Operation::AllGather, "AllGather"),
    (Operation::ReduceScatter, "ReduceScatter"),
];
const SIZES: [u64; 4] = [20_000_000, 40_000_000, 60_000_000, 80_000_000];
/// The loss and the background of the paper's comparison.
const LOSS: f64 = 1e-3;
const BACKGROUND: f64 = 0.5;
const QUEUE: u64 = 4 << 20;
const SHORT_QUEUE: u64 = 1 << 20;
const SECOND: Duration = Duration::from_secs(1);

const MAIN: &str = "0.1 % loss and 50 % background";
const LOSSES: &str = "AllReduce of 20 MB, loss at random, 50 % background";
const ALONE: &str = "AllReduce of 20 MB, loss at random, nothing else on the network";
const OVERFLOW: &str = "AllReduce of 20 MB, queues of 1 MiB that overflow, no loss at random";
const CONTROLS: &str = "AllReduce of 20 MB, by congestion control, 0.1 % loss and 50 % background";

pub(in super::super) fn run(setting: &Setting) -> Result<Outcome, String> {
    of_all_transports(setting)?;
    let grid = Grid::make(setting, rows(setting.quick))?;
    Ok(Outcome {
        what: format!(
            "Rings of 8 ranks on one switch, 25 Gbit/s, 1 µs a link, MTU 4096, queues of 4 MiB with marks from 100 to 400 KB, other traffic on half of each line (docs/topologies/ranks.toml), --cc window; each packet passes one link that loses some. Virtual time; computing takes none. rc, least: the least ACK timeout of at least 4 round trips with queues of 400 KB where there is other traffic, with empty ones where there is none. A number behind a p99 is that of collectives, where there were less than 20; {}.",
            setting.means()
        ),
        tables: grid.tables(),
        figures: grid.figures(),
        chart: chart(&grid),
        goals: goals(&grid),
        beside: beside(&grid),
        notes: notes(&grid),
        runs: grid.made,
        of: grid.of,
        ..Outcome::default()
    })
}

fn rows(quick: bool) -> Vec<Row> {
    let net = |background, loss, queue| Net { shape: Shape::Star, hosts: 8, background, loss, queue };
    let row = |group, label: String, net, collectives, contenders: &[Contender]| Row {
        group,
        label,
        net,
        operation: Operation::AllReduce,
        algorithm: Algorithm::Ring,
        bytes: SIZES[0],
        cc: "window",
        collectives: if quick { 2 } else { collectives },
        most: if quick { SECOND / 10 } else { SECOND },
        contenders: contenders.into(),
    };
    let mut rows = Vec::new();
    for (operation, name) in OPERATIONS {
        for bytes in &SIZES[..if quick { 1 } else { SIZES.len() }] {
            let label = format!("{name} {} MB", bytes / 1_000_000);
            // More of the one that the goals are about.
            let count = if operation == Operation::AllReduce { (320_000_000 / bytes).max(5) } else { 4 };
            let usual = row(MAIN, label, net(BACKGROUND, LOSS, QUEUE), count, &ALL);
            rows.push(Row { operation, bytes: *bytes, ..usual });
        }
    }
    let quick_losses: &[f64] = &[1e-2];
    for &loss in if quick { quick_losses } else { &[0.0, 1e-4, 1e-2] } {
        rows.push(row(LOSSES, lossy("loss", loss), net(BACKGROUND, loss, QUEUE), 6, &ALL));
    }
    for &loss in if quick { &[1e-3][..] } else { &[0.0, 1e-4, 1e-3, 1e-2] } {
        rows.push(row(ALONE, lossy("loss", loss), net(0.0, loss, QUEUE), 20, &ALL));
    }
    rows.push(row(OVERFLOW, "overflow".into(), net(BACKGROUND, 0.0, SHORT_QUEUE), 6, &ALL));
    for cc in ["none", "dcqcn", "swift", "eqds"] {
        let of: &[&str] = if cc == "eqds" { &[XP, XP_TAIL] } else { &[RC_LEAST, SR, XP, XP_TAIL] };
        rows.push(Row { cc, ..row(CONTROLS, cc.into(), net(BACKGROUND, LOSS, QUEUE), 6, &some(of)) });
    }
    rows
}

fn main_row(grid: &Grid, operation: Operation, bytes: u64) -> Option<usize> {
    grid.row(|row| row.group == MAIN && row.operation == operation && row.bytes == bytes)
}

/// The setting of `rc` that is best, by what is compared.
fn best_rc(grid: &Grid, row: usize, part: fn(&Sum) -> f64) -> Option<f64> {
    let of = [RC_14, RC_10, RC_LEAST].into_iter().filter_map(|label| grid.sum(row, label));
    of.filter(|sum| !sum.failed).map(|sum| part(&sum)).reduce(f64::min)
}

fn goals(grid: &Grid) -> Vec<Goal> {
    let mut goals = Vec::new();
    for bytes in SIZES {
        let Some(row) = main_row(grid, Operation::AllReduce, bytes) else { continue };
        let mb = bytes / 1_000_000;
        // What gave up has no time.
        let of =
            |label: &str, part: fn(&Sum) -> f64| grid.sum(row, label).filter(|sum| !sum.failed).map(|sum| part(&sum));
        let mut goal = |what: &str, bound, measured| {
            goals.push(Goal { what: format!("AllReduce of {mb} MB: {what}"), bound, measured })
        };
        let p99 = of(XP, |s| s.p99);
        goal("p99 of rc (67 ms) / of xp", Bound::AtLeast(2.5), ratio(of(RC_14, |s| s.p99), p99));
        if bytes == SIZES[0] || bytes == SIZES[3] {
            let least = if bytes == SIZES[0] { 1.6 } else { 1.2 };
            let means = ratio(of(RC_14, |s| s.mean), of(XP, |s| s.mean));
            goal("mean of rc (67 ms) / of xp", Bound::AtLeast(least), means);
        }
        goal("p99 of rc at its best setting / of xp", Bound::AtLeast(1.0), ratio(best_rc(grid, row, |s| s.p99), p99));
        goal("p99 of sr / of xp", Bound::AtLeast(0.98), ratio(of(SR, |s| s.p99), p99));
        goal("p99 of xp / its mean", Bound::AtMost(1.15), ratio(p99, of(XP, |s| s.mean)));
        goal("missing over xp, %", Bound::AtMost(1.0), of(XP, |s| s.missing * 100.0));
        if bytes == SIZES[0] {
            let free = grid.row(|row| row.group == LOSSES && row.net.loss == 0.0);
            let free = free.and_then(|free| grid.sum(free, XP)).map(|sum| sum.mean);
            goal("mean of xp / loss-free", Bound::AtMost(1.10), ratio(of(XP, |s| s.mean), free));
        }
    }
    goals
}

/// `rc` with a timeout over `xp`, by means, of all sizes and collectives: the least and the most.
fn range(grid: &Grid, label: &str) -> Option<(f64, f64)> {
    let rows = (0..grid.rows.len()).filter(|&r| grid.rows[r].group == MAIN);
    let ratios = rows.filter_map(|r| ratio(grid.sum(r, label).map(|s| s.mean), grid.sum(r, XP).map(|s| s.mean)));
    ratios.fold(None, |range, x| Some(range.map_or((x, x), |(low, high): (f64, f64)| (low.min(x), high.max(x)))))
}

fn beside(grid: &Grid) -> Vec<Beside> {
    let of_least = range(grid, RC_LEAST);
    let row = main_row(grid, Operation::AllReduce, SIZES[0]);
    let of = |label, part: fn(&Sum) -> f64| row.and_then(|row| grid.sum(row, label)).map(|sum| part(&sum));
    vec![
        Beside { stated: paper::FASTER[0], ours: of_least.map(|(low, _)| low) },
        Beside { stated: paper::FASTER[1], ours: of_least.map(|(_, high)| high) },
        Beside { stated: paper::DEVIATION, ours: ratio(of(RC_LEAST, |s| s.deviation), of(XP, |s| s.deviation)) },
        Beside { stated: paper::MISSING, ours: of(XP, |s| s.missing * 100.0) },
    ]
}

fn notes(grid: &Grid) -> Vec<String> {
    let mut notes = Vec::new();
    let middle = |(low, high): (f64, f64)| (low + high) / 2.0;
    let ranges: Vec<_> =
        [RC_14, RC_10, RC_LEAST, SR, LOWAR].iter().filter_map(|l| Some((*l, range(grid, l)?))).collect();
    let list =
        ranges.iter().map(|(l, (low, high))| format!("{l} {low:.2} to {high:.2}")).collect::<Vec<_>>().join("; ");
    notes.push(format!("Means of other transports over the mean of xp, least and most of the first table: {list}. The paper has 1.6 to 2.5."));
    // The middle of the paper's range.
    let nearest = ranges.iter().filter(|(l, _)| l.starts_with("rc")).min_by(|a, b| {
        let apart = |r: &(&str, (f64, f64))| (middle(r.1) - 2.05).abs();
        apart(a).total_cmp(&apart(b))
    });
    if let Some((label, _)) = nearest {
        notes.push(format!("The setting of rc to which the paper's ratio is nearest (by the middles of both ranges): {label}. Beside the paper stands rc, least. Its text does not say which ACK timeout its RoCE had."));
    }
    for loss in [1e-3, 1e-2] {
        let row = grid.row(|row| row.group == ALONE && row.net.loss == loss);
        let of = |label| row.and_then(|row| grid.sum(row, label)).map(|sum| sum.mean);
        if let (Some(rc), Some(sr), Some(xp)) = (of(RC_LEAST), of(SR), of(XP)) {
            notes.push(format!(
                "Loss at random alone, {}, in a network of some 10 µs: rc with its least timeout takes {:.2} and sr {:.2} of the time of xp.",
                super::super::outcome::percent(loss),
                rc / xp,
                sr / xp
            ));
        }
    }
    let dropped = |group| grid.row(|row| row.group == group).and_then(|row| grid.sum(row, XP)).map(|sum| sum.dropped);
    if let (Some(main), Some(short)) = (dropped(MAIN), dropped(OVERFLOW)) {
        notes.push(format!("Frames that full queues dropped while AllReduces of 20 MB went over xp, those of the background among them: {main} with 4 MiB, {short} with 1 MiB."));
    }
    notes.push("The deviations of the paper (±35, ±12, ±3) have no unit in its text, so their ratio is compared. OptiNIC (HW) is its prototype less what software takes; in virtual time software takes nothing.".into());
    notes.push("p99 of less than 100 collectives is the longest of them.".into());
    notes
}

fn chart(grid: &Grid) -> Chart {
    let panel = |(operation, name): (Operation, &str)| {
        let series = grid::ALL.iter().enumerate().map(|(hue, contender)| {
            let dot = |&bytes: &u64| {
                let sum = grid.sum(main_row(grid, operation, bytes)?, contender.label)?;
                let y = sum.mean;
                Some(Dot { x: bytes as f64 / 1e6, y, low: (y - sum.deviation).max(0.0), high: y + sum.deviation })
            };
            Series::new(contender.label, Kind::Measured, hue, SIZES.iter().filter_map(dot).collect())
        });
        Panel {
            title: name.into(),
            x: Axis::new("Size (MB)", Scale::Linear),
            y: Axis::new("Completion time (ms)", Scale::Log),
            series: series.collect(),
        }
    };
    Chart {
        panels: OPERATIONS.into_iter().map(panel).collect(),
        caption: "8 ranks, 25 Gbit/s, 0.1 % loss, half of each line taken by other traffic. Means and standard deviations of a collective.".into(),
    }
}
