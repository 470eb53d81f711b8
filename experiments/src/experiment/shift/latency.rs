//! `shift-latency`: the latency of short WRITEs, plain, with a backup, and plain beside a thousand idle queue pairs (table 2).

use std::sync::Arc;

use super::super::outcome::{Figures, Outcome, Table, shown, spread_shown};
use super::super::stats::{Spread, ratio};
use super::super::{Setting, pool};
use super::over_rc_alone;
use super::paper;
use super::program::{Program, median};
use crate::chart::{Axis, Chart, Kind, Panel, Point as Dot, Scale, Series};

/// What is raced, as the paper's table has it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Racer {
    Plain,
    Backup,
    BesideIdle,
}

impl Racer {
    const ALL: [Racer; 3] = [Racer::Plain, Racer::Backup, Racer::BesideIdle];

    fn name(self) -> &'static str {
        match self {
            Racer::Plain => "plain",
            Racer::Backup => "with backup",
            Racer::BesideIdle => "beside 1000 idle",
        }
    }
}

const IDLE: u32 = 1000;

#[derive(Debug, Clone, Copy, PartialEq)]
struct Case {
    bytes: u32,
    racer: Racer,
}

/// µs of each message of a process.
type Runs = Vec<(Case, Vec<f64>)>;

pub(in super::super) fn run(setting: &Setting) -> Result<Outcome, String> {
    over_rc_alone(setting)?;
    let (rounds, count) = if setting.quick { (2, 500) } else { (15, 2000) };
    let program = Arc::new(Program::compile(setting.name)?);
    let one = {
        let program = Arc::clone(&program);
        move |&racer: &Racer| {
            let idle = if racer == Racer::BesideIdle { IDLE } else { 0 };
            program.run(racer == Racer::Backup, &["latency", &count.to_string(), &idle.to_string()])
        }
    };
    let mut turns = Vec::new();
    for round in 0..rounds {
        let mut racers = Racer::ALL;
        // Each is the first as often as the others.
        racers.rotate_left(round % Racer::ALL.len());
        turns.extend(racers);
    }
    let printed = pool::run(setting.name, turns.clone(), 1, one)?;
    let (of, done) = (turns.len(), printed.iter().flatten().count());
    let mut runs = Runs::new();
    for (&racer, mut printed) in turns.iter().zip(printed).filter_map(|(racer, printed)| Some((racer, printed?))) {
        for (bytes, _) in paper::LATENCY {
            let times = printed.remove(&bytes.to_string()).ok_or("the program printed no latency")?;
            runs.push((Case { bytes, racer }, times.into_iter().map(|ns| ns / 1e3).collect()));
        }
    }
    Ok(Outcome {
        what: format!(
            "WRITEs of 1 to 16 bytes to and fro between two devices of a C program on a wire in memory, as ib_write_lat does it: inline, and the last byte says that it is there; half a round trip. One thread polls both completion queues while it waits, which drives both NICs: what is measured is what they do, and not how the machine schedules threads. {rounds} processes of each kind, in turns, {count} messages of each size.",
        ),
        tables: vec![medians(&runs), means(&runs)],
        figures: figures(&runs),
        chart: chart(&runs, rounds),
        notes: [
            "The paper measures ib_write_lat between two servers with ConnectX-5; ours is the time that the two NICs in software take on one machine, so that absolute times are no match for each other: the ratio is.",
            "Means and deviations have all that the machine does besides in them; medians of processes do not.",
            "With a backup is without a failure, after both ends have met: a program that looks for a flag in memory, as this one, must not be given a backup otherwise.",
        ]
        .map(String::from)
        .into(),
        runs: done,
        of,
        ..Outcome::default()
    })
}

/// The medians of the processes of a case.
fn typical(runs: &Runs, bytes: u32, racer: Racer) -> Vec<f64> {
    let ours = runs.iter().filter(|(case, _)| *case == Case { bytes, racer });
    ours.filter_map(|(_, times)| median(times.clone())).collect()
}

fn spread(runs: &Runs, bytes: u32, racer: Racer) -> Option<Spread> {
    let ours = runs.iter().filter(|(case, _)| *case == Case { bytes, racer });
    Spread::of(ours.flat_map(|(_, times)| times).map(|&time| Some(time)))
}

fn over_plain(runs: &Runs, bytes: u32, racer: Racer) -> Option<f64> {
    ratio(median(typical(runs, bytes, racer)), median(typical(runs, bytes, Racer::Plain)))
}

fn medians(runs: &Runs) -> Table {
    let row = |&(bytes, _): &(u32, _)| {
        let of = |racer| shown(median(typical(runs, bytes, racer)), 3);
        let [plain, backup, idle] = Racer::ALL.map(of);
        let ratios = [Racer::Backup, Racer::BesideIdle].map(|racer| shown(over_plain(runs, bytes, racer), 3));
        let [backup_ratio, idle_ratio] = ratios;
        vec![bytes.to_string(), plain, backup, backup_ratio, idle, idle_ratio]
    };
    Table {
        title: "Median latency, µs".into(),
        columns: ["bytes", "plain", "with backup", "of plain", "beside 1000 idle", "of plain"].map(String::from).into(),
        rows: paper::LATENCY.iter().map(row).collect(),
    }
}

fn means(runs: &Runs) -> Table {
    let row = |(bytes, stated): &(u32, [(f64, f64); 3])| {
        let mut row = vec![bytes.to_string()];
        for (racer, (mean, deviation)) in Racer::ALL.into_iter().zip(stated) {
            row.push(spread_shown(spread(runs, *bytes, racer), 2));
            row.push(format!("{mean:.2} ±{deviation:.2}"));
        }
        row
    };
    let mut columns = vec!["bytes".to_string()];
    for racer in Racer::ALL {
        columns.extend([racer.name().into(), "paper".into()]);
    }
    Table {
        title: "Mean latency ± deviation of a message, µs".into(),
        columns,
        rows: paper::LATENCY.iter().map(row).collect(),
    }
}

fn figures(runs: &Runs) -> Figures {
    let row = |(case, times): &(Case, Vec<f64>)| {
        let spread = Spread::of(times.iter().map(|&time| Some(time)));
        vec![
            f64::from(case.bytes).into(),
            case.racer.name().into(),
            (times.len() as f64).into(),
            median(times.clone()).into(),
            spread.map(|s| s.mean).into(),
            spread.map(|s| s.deviation).into(),
            spread.map(|s| s.lowest).into(),
            spread.map(|s| s.highest).into(),
        ]
    };
    Figures {
        columns: vec!["bytes", "racer", "messages", "median_us", "mean_us", "deviation_us", "lowest_us", "highest_us"],
        rows: runs.iter().map(row).collect(),
    }
}

fn chart(runs: &Runs, rounds: usize) -> Chart {
    let names = paper::LATENCY.map(|(bytes, _)| bytes.to_string());
    let series = |(hue, racer): (usize, Racer)| {
        let dot = |(x, &(bytes, _)): (usize, &(u32, _))| {
            let all = typical(runs, bytes, racer);
            let (low, high) = (all.iter().copied().reduce(f64::min)?, all.iter().copied().reduce(f64::max)?);
            Some(Dot { x: x as f64, y: median(all)?, low, high })
        };
        let points = paper::LATENCY.iter().enumerate().filter_map(dot).collect();
        Series::new(racer.name(), Kind::Measured, hue, points)
    };
    Chart {
        panels: vec![Panel {
            title: "Latency of WRITE, half a round trip".into(),
            x: Axis::new("Bytes", Scale::Categories(names.into())),
            y: Axis::new("Time (µs)", Scale::Linear),
            series: Racer::ALL.into_iter().enumerate().map(series).collect(),
        }],
        caption: format!(
            "Medians of {rounds} processes in turns; bars reach from the lowest median of a process to the highest."
        ),
    }
}
