//! `optinic-cct`: collectives of 8 to 64 ranks on leaves and spines, and of 4 ranks far apart (Figure 6).

use std::time::Duration;

use softnic_collectives::call::{Algorithm, Operation};

use super::super::Setting;
use super::super::outcome::{Bound, Goal, Outcome, percent, time_shown};
use super::super::stats::ratio;
use super::grid::{ALL, Contender, Grid, RC_10, RC_14, RC_LEAST, Row, SETTINGS, SR, Sum, XP, XP_TAIL, lossy, some};
use super::network::{Net, Shape};
use super::of_all_transports;
use super::size::OPERATIONS;
use crate::chart::{Axis, Chart, Kind, Panel, Point as Dot, Scale, Series};

const RANKS: [usize; 4] = [8, 16, 32, 64];
const BYTES: u64 = 1 << 20;
/// Of ranks that are far apart.
const FAR_BYTES: u64 = 20_000_000;
const LOSS: f64 = 1e-3;
const BACKGROUND: f64 = 0.2;

const MAIN: &str = "Rings by ranks, 0.1 % loss";
const LOSSES: &str = "AllReduce of 16 ranks, loss at random";
const OVERFLOW: &str = "AllReduce of 16 ranks, queues of 128 KiB that overflow, no loss at random";
const OTHERS: &str = "16 ranks, other algorithms and operations, 0.1 % loss";
const CONTROLS: &str = "AllReduce of 16 ranks by congestion control, 0.1 % loss";
const XPS: &str = "AllReduce of 16 ranks by the settings of xp, 0.1 % loss";
const FAR: &str = "AllReduce of 20 MB by 4 ranks, each in a place of its own";

pub(in super::super) fn run(setting: &Setting) -> Result<Outcome, String> {
    of_all_transports(setting)?;
    let far = setting.round_trips.clone();
    let grid = Grid::make(
        setting,
        match &far {
            Some(round_trips) => far_rows(round_trips, setting.quick),
            None => rows(setting),
        },
    )?;
    let what = match far {
        Some(_) => format!(
            "A star of 4 hosts at 25 Gbit/s with a quarter of the round trip on each link, MTU 4096, queues of 64 MiB, nothing else on the network, --cc none: a ring. rc, least: the least ACK timeout of at least 4 round trips; timeouts below the round trip are left out. {}.",
            setting.means()
        ),
        None => format!(
            "1 MiB by 8 to 64 ranks on leaves of 4 hosts and 2 spines, 25 and 50 Gbit/s, 1 µs a link, MTU 4096, queues of 4 MiB with marks from 100 to 400 KB, other traffic on a fifth of each line (the shapes of docs/topologies/ranks.toml), --cc window. Virtual time; computing takes none. A run ends after its number of collectives or its share of virtual time, whichever comes first: a number behind a p99 is that of collectives, where there were less than 20, and the CSV has all. {}.",
            setting.means()
        ),
    };
    Ok(Outcome {
        what,
        tables: grid.tables(),
        figures: grid.figures(),
        chart: if far_only(&grid) { far_chart(&grid) } else { chart(&grid) },
        goals: goals(&grid),
        notes: notes(&grid),
        runs: grid.made,
        of: grid.of,
        ..Outcome::default()
    })
}

fn far_only(grid: &Grid) -> bool {
    grid.rows.iter().all(|row| row.group == FAR)
}

fn rows(setting: &Setting) -> Vec<Row> {
    let quick = setting.quick;
    let net = |hosts, loss, queue| Net { shape: Shape::LeafSpine, hosts, background: BACKGROUND, loss, queue };
    let row = |group, label: String, net: Net, all: u64, contenders: &[Contender]| Row {
        group,
        label,
        net,
        operation: Operation::AllReduce,
        algorithm: Algorithm::Ring,
        bytes: BYTES,
        cc: "window",
        // `all` are those of the usual five seeds together.
        collectives: if quick { 3 } else { all / 5 },
        most: Duration::from_millis(if quick { 20 } else { 200 }),
        contenders: contenders.into(),
    };
    let (queue, short) = (4 << 20, 128 << 10);
    let mut rows = Vec::new();
    for (operation, name) in OPERATIONS {
        for &ranks in if quick { &RANKS[..1] } else { &RANKS } {
            let all = match ranks {
                8 => 1000,
                16 => 400,
                _ => 200,
            };
            let usual = row(MAIN, format!("{name}, {ranks}"), net(ranks, LOSS, queue), all, &ALL);
            // So many take longer than others may, and an AllReduce twice as long as others.
            let most = if ranks == 8 { usual.most * 2 } else { usual.most };
            let most = if operation == Operation::AllReduce { most } else { most / 2 };
            rows.push(Row { operation, most, ..usual });
        }
    }
    for &loss in if quick { &[1e-2][..] } else { &[0.0, 1e-4, 1e-2] } {
        rows.push(row(LOSSES, lossy("loss", loss), net(16, loss, queue), 100, &ALL));
    }
    rows.push(row(OVERFLOW, "overflow".into(), net(16, 0.0, short), 100, &ALL));
    let others = [
        (Operation::AllReduce, Algorithm::Tree, "AllReduce, two trees"),
        (Operation::AllReduce, Algorithm::Bcube, "AllReduce, BCube"),
        (Operation::AllGather, Algorithm::Bcube, "AllGather, BCube"),
        (Operation::ReduceScatter, Algorithm::Bcube, "ReduceScatter, BCube"),
        (Operation::AllToAll, Algorithm::Ring, "AllToAll"),
        (Operation::AllToAll, Algorithm::Bcube, "AllToAll, BCube"),
        (Operation::Broadcast { root: 0 }, Algorithm::Tree, "Broadcast, two trees"),
    ];
    for (operation, algorithm, name) in others {
        let usual = row(OTHERS, name.into(), net(16, LOSS, queue), 100, &ALL);
        rows.push(Row { operation, algorithm, ..usual });
    }
    for cc in ["none", "dcqcn", "swift", "eqds"] {
        let of: &[&str] = if cc == "eqds" { &[XP, XP_TAIL] } else { &[RC_LEAST, SR, XP, XP_TAIL] };
        rows.push(Row { cc, ..row(CONTROLS, cc.into(), net(16, LOSS, queue), 100, &some(of)) });
    }
    rows.push(row(XPS, "AllReduce".into(), net(16, LOSS, queue), 100, &SETTINGS));
    rows
}

fn far_rows(round_trips: &[Duration], quick: bool) -> Vec<Row> {
    let mut rows = Vec::new();
    for &rtt in round_trips {
        for &loss in if quick { &[1e-3][..] } else { &[0.0, 1e-4, 1e-3, 1e-2] } {
            let fits = |code: u32| Duration::from_nanos(4096 << code) >= rtt;
            let left = |c: &Contender| match c.label {
                RC_14 => fits(14),
                RC_10 => fits(10),
                _ => true,
            };
            rows.push(Row {
                group: FAR,
                label: lossy(&time_shown(rtt), loss),
                net: Net { shape: Shape::Apart(rtt), hosts: 4, background: 0.0, loss, queue: 64 << 20 },
                operation: Operation::AllReduce,
                algorithm: Algorithm::Ring,
                bytes: FAR_BYTES,
                cc: "none",
                collectives: if quick { 3 } else { 50 },
                most: Duration::from_secs(if quick { 2 } else { 30 }),
                contenders: ALL.into_iter().filter(left).collect(),
            });
        }
    }
    rows
}

/// The rows of the paper's comparison are judged as those of `optinic-size` are.
fn goals(grid: &Grid) -> Vec<Goal> {
    let mut goals = Vec::new();
    for (r, row) in grid.rows.iter().enumerate().filter(|(_, row)| row.group == MAIN) {
        // What gave up has no time.
        let of =
            |label: &str, part: fn(&Sum) -> f64| grid.sum(r, label).filter(|sum| !sum.failed).map(|sum| part(&sum));
        let p99 = of(XP_TAIL, |s| s.p99);
        let mut goal = |what: &str, bound, measured| {
            goals.push(Goal { what: format!("{}: {what}", row.label), bound, measured });
        };
        goal("p99 of rc (67 ms) / of xp:tail=2", Bound::AtLeast(2.5), ratio(of(RC_14, |s| s.p99), p99));
        goal("p99 of sr / of xp:tail=2", Bound::AtLeast(0.98), ratio(of(SR, |s| s.p99), p99));
        goal("missing over xp:tail=2, %", Bound::AtMost(1.0), of(XP_TAIL, |s| s.missing * 100.0));
    }
    goals
}

fn notes(grid: &Grid) -> Vec<String> {
    let mut notes = Vec::new();
    // Where XP is not worth it.
    let mut slower = Vec::new();
    for (r, row) in grid.rows.iter().enumerate() {
        let of = |label| grid.sum(r, label).map(|sum| sum.mean);
        if let (Some(sr), Some(xp)) = (of(SR), [of(XP), of(XP_TAIL)].into_iter().flatten().reduce(f64::min))
            && sr <= xp * 1.02
        {
            slower.push(format!("{} ({}: {:.2})", row.label, row.group, sr / xp));
        }
    }
    if !slower.is_empty() {
        notes.push(format!(
            "XP is not worth it where sr, which loses nothing, takes at most 2 % longer than the better of xp and xp:tail=2 (mean of sr / of that): {}.",
            slower.join("; ")
        ));
    }
    notes.push("The paper states of Figure 6 that RoCE, Falcon and UCCL are alike in the mean, IRN and SRNIC a little better, and p99 above 100 to 150 ms for AllReduce; no other figure, and not the size.".into());
    if grid.rows.iter().any(|row| row.group == MAIN) {
        notes.push("1000 collectives at 8 ranks, 400 at 16, 200 at 32 and 64, of five seeds together, or less where those of a seed take longer than 0.4 s (8 ranks) or 0.2 s of virtual time together, AllGather and ReduceScatter half of that: that is so of rc with 67 ms, whose timeouts follow each other along the ring.".into());
    }
    notes
}

fn chart(grid: &Grid) -> Chart {
    let panel = |(operation, name): (Operation, &str), part: fn(&Sum) -> f64, of: &str| {
        let series = ALL.iter().enumerate().map(|(hue, contender)| {
            let dot = |&ranks: &usize| {
                let row = grid.row(|r| r.group == MAIN && r.operation == operation && r.net.hosts == ranks)?;
                Some(Dot::exact(ranks as f64, part(&grid.sum(row, contender.label)?)))
            };
            Series::new(contender.label, Kind::Measured, hue, RANKS.iter().filter_map(dot).collect())
        });
        Panel {
            title: format!("{name}, {of}"),
            x: Axis::new("Ranks", Scale::Linear),
            y: Axis::new("Completion time (ms)", Scale::Log),
            series: series.collect(),
        }
    };
    let means = OPERATIONS.into_iter().map(|of| panel(of, |s| s.mean, "mean"));
    let tails = OPERATIONS.into_iter().map(|of| panel(of, |s| s.p99, "99th percentile"));
    Chart { panels: means.chain(tails).collect(), caption: format!("1 MiB, {} loss.", percent(LOSS)) }
}

fn far_chart(grid: &Grid) -> Chart {
    let mut round_trips: Vec<Duration> = Vec::new();
    for row in &grid.rows {
        if let Shape::Apart(rtt) = row.net.shape
            && !round_trips.contains(&rtt)
        {
            round_trips.push(rtt);
        }
    }
    let panel = |rtt: Duration| {
        let series = ALL.iter().enumerate().map(|(hue, contender)| {
            let dots = grid.rows.iter().enumerate().filter(|(_, row)| row.net.shape == Shape::Apart(rtt));
            let dot = |(r, row): (usize, &Row)| Some(Dot::exact(row.net.loss, grid.sum(r, contender.label)?.mean));
            Series::new(contender.label, Kind::Measured, hue, dots.filter_map(dot).collect())
        });
        Panel {
            title: format!("Round trip {}", time_shown(rtt)),
            x: Axis::new("Loss", Scale::Log),
            y: Axis::new("Mean completion time (ms)", Scale::Log),
            series: series.collect(),
        }
    };
    Chart { panels: round_trips.into_iter().map(panel).collect(), caption: "AllReduce of 20 MB by 4 ranks.".into() }
}
