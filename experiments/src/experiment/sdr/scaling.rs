//! `sdr-scaling`, figure 16: packets a second by the number of engines, of the sink alone and of a whole path.

use std::num::NonZero;
use std::thread::available_parallelism;

use softnic_perf::{sink_rate, stop};
use softnic_runtime::api::Progress;

use super::{By, Point, SMALL, SMALL_MESSAGE, measure};
use crate::chart::{Axis, Chart, Panel, Scale};
use crate::experiment::device::Ends;
use crate::experiment::outcome::{Bound, Figure, Figures, Goal, Outcome, Table, shown, spread_shown};
use crate::experiment::stats::{Spread, ratio};
use crate::experiment::{Setting, plot};

/// Chunks of 64 KiB at an MTU of 4 KiB, as the paper has them.
const CHUNK_PACKETS: u32 = 16;
/// Tries of a sink in each run, of which the best counts.
const ROUNDS: u32 = 3;
/// Of the paper's figure, by the threads that its text and its figure 15 fit.
const PAPER: [(u8, f64); 5] = [(8, 11.6), (16, 22.9), (32, 42.9), (64, 70.5), (128, 92.1)];

/// Engines that are tried where nobody says which: powers of two, as many as there are cores, and two at least.
fn usual(cores: usize) -> Vec<u8> {
    (0..=4).map(|n| 1u8 << n).filter(|&n| usize::from(n) <= cores.max(2)).collect()
}

pub(crate) fn run(setting: &Setting, ends: &Ends) -> Result<Outcome, String> {
    let cores = available_parallelism().map_or(1, NonZero::get);
    let engines = setting.engines.clone().unwrap_or_else(|| usual(cores));
    let point =
        |engines| Point { by: By::Sdr, size: SMALL_MESSAGE, chunk: CHUNK_PACKETS * SMALL.bytes(), mtu: SMALL, engines };
    let points: Vec<Point> = engines.iter().map(|&n| point(n)).collect();
    // Engines that one thread of the program runs in turn would show nothing.
    let ends = &Ends { progress: Some(Progress::Dedicated), ..ends.clone() };
    let runs = measure(setting, ends, &points)?;
    let seeds = setting.seeds();
    // In turn, so that what else the machine does hits all of them.
    let mut sinks: Vec<Vec<f64>> = vec![Vec::new(); engines.len()];
    for _ in &seeds {
        for (&n, rates) in engines.iter().zip(&mut sinks) {
            if !stop::requested() {
                rates.push(sink_rate(n, CHUNK_PACKETS, ROUNDS));
            }
        }
    }
    let sinks: Vec<Option<Spread>> =
        sinks.iter().map(|rates| Spread::of(rates.iter().map(|&rate| Some(rate)))).collect();
    let mean = |at: usize| sinks[at].map(|spread| spread.mean);
    let of_one = |at: usize| engines.iter().position(|&n| n == 1).and_then(|one| ratio(mean(at), mean(one)));
    let mpps = |n: u8| runs.spread(point(n), |run| Some(run.mpps));
    let path_of_one = |n: u8| ratio(mpps(n).map(|s| s.mean), mpps(1).map(|s| s.mean));
    let row = |(at, &n): (usize, &u8)| {
        let beyond = if usize::from(n) > cores { " (more than cores)" } else { "" };
        vec![
            format!("{n}{beyond}"),
            spread_shown(sinks[at], 1),
            shown(of_one(at), 2),
            spread_shown(mpps(n), 2),
            shown(path_of_one(n), 2),
        ]
    };
    let figures = |(at, &n): (usize, &u8)| -> Vec<Figure> {
        let both = |spread: Option<Spread>| [spread.map(|s| s.mean).into(), spread.map(|s| s.deviation).into()];
        let ([sink, sink_deviation], [path, path_deviation]) = (both(sinks[at]), both(mpps(n)));
        vec![f64::from(n).into(), sink, sink_deviation, path, path_deviation, (cores as f64).into()]
    };
    let alone = engines.iter().zip(&sinks).map(|(&n, &spread)| (f64::from(n), spread));
    let path = engines.iter().map(|&n| (f64::from(n), mpps(n)));
    let two = engines.iter().position(|&n| n == 2);
    Ok(Outcome {
        what: format!(
            "Million packets a second by the number of engines that have the channels of one SDR queue pair: the sink alone, on messages of 16 MiB that all engines share; and packets of {} bytes from one NIC to another on {}, with as many channels as engines, each engine with a thread of its own; {}. {cores} cores.",
            SMALL.bytes(),
            ends.device,
            setting.means()
        ),
        tables: vec![Table {
            title: "By engines".into(),
            columns: ["engines", "the sink alone, Mpps", "of one", "whole path, Mpps", "of one"].map(String::from).into(),
            rows: engines.iter().enumerate().map(row).collect(),
        }],
        figures: Figures {
            columns: vec!["engines", "sink_mpps", "sink_deviation", "path_mpps", "path_deviation", "cores"],
            rows: engines.iter().enumerate().map(figures).collect(),
        },
        chart: Chart {
            panels: vec![Panel {
                title: format!("{}, {cores} cores", ends.device),
                x: Axis::new("Engines", Scale::Log),
                y: Axis::new("Packets (million/s)", Scale::Linear),
                series: vec![plot::measured("the sink alone", 0, alone), plot::measured("whole path", 1, path)],
            }],
            caption: plot::caption(setting, ""),
        },
        goals: two.map_or_else(Vec::new, |two| {
            vec![Goal {
                what: "the sink alone with two engines, of one".into(),
                bound: Bound::AtLeast(1.6),
                measured: of_one(two),
            }]
        }),
        notes: vec![
            format!(
                "Figure 16 prints {} million packets a second for 4 to 64 DPA threads; its text (1.6 Tbit/s, 49 million, at 32 threads; 3.2 at 128) and figure 15 (23.0 at 16) fit 8 to 128 threads: 1.4 million a thread.",
                PAPER.map(|(_, rate)| rate.to_string()).join(", ")
            ),
            "A whole path has twice as many threads as engines, and the two programs: with fewer cores than that it shows how cores are shared, and not how engines scale.".into(),
        ],
        runs: runs.done,
        of: runs.of,
        ..Outcome::default()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn as_many_engines_as_cores_and_two_at_least() {
        assert_eq!(
            (usual(1), usual(2), usual(6), usual(64)),
            (vec![1, 2], vec![1, 2], vec![1, 2, 4], vec![1, 2, 4, 8, 16])
        );
    }

    #[test]
    fn the_papers_rates_are_1_4_million_a_thread() {
        assert!(PAPER.iter().take(3).all(|&(threads, rate)| (rate / f64::from(threads) - 1.4).abs() < 0.1));
    }
}
