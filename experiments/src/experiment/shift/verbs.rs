//! `shift-verbs`: what a backup adds to the time of each verb, and when a connection has its backup (figure 7).

use std::sync::Arc;

use super::super::outcome::{Beside, Bound, Figures, Goal, NOTHING, Outcome, Table, shown};
use super::super::stats::ratio;
use super::super::{Setting, pool};
use super::over_rc_alone;
use super::paper;
use super::program::{Printed, Program, lower_quartile, median};
use crate::chart::{Axis, Chart, Kind, Panel, Point as Dot, Scale, Series};

/// The verbs, in the order in which programs call them.
const CONTROL: [&str; 13] = [
    "open_device",
    "alloc_pd",
    "reg_mr",
    "create_cq",
    "create_qp",
    "modify_qp INIT",
    "modify_qp RTR",
    "modify_qp RTS",
    "query_qp",
    "destroy_qp",
    "destroy_cq",
    "dereg_mr",
    "dealloc_pd",
];
const DATA: [&str; 3] = ["post_send", "post_recv", "poll_cq"];
const READY: &str = "backup ready";
/// Calls of a batch in `program.c`.
const BATCH: u64 = 64;

/// How much is done.
struct Size {
    /// Processes of each kind, in turns.
    rounds: u64,
    /// Of each control verb, in a process.
    lives: u64,
    posts: u64,
    polls: u64,
}

/// What a verb took in each round, in ns: plain, and with a backup.
struct Pairs(Vec<[f64; 2]>);

impl Pairs {
    fn of(runs: &[[Printed; 2]], verb: &str) -> Pairs {
        let of = |printed: &Printed| lower_quartile(printed.get(verb)?.clone());
        Pairs(runs.iter().filter_map(|[plain, backup]| Some([of(plain)?, of(backup)?])).collect())
    }

    fn plain(&self) -> Option<f64> {
        median(self.0.iter().map(|pair| pair[0]).collect())
    }

    fn backup(&self) -> Option<f64> {
        median(self.0.iter().map(|pair| pair[1]).collect())
    }

    /// With a backup over plain, of each round, lowest first.
    fn ratios(&self) -> Vec<f64> {
        let mut ratios: Vec<f64> =
            self.0.iter().filter_map(|[plain, backup]| ratio(Some(*backup), Some(*plain))).collect();
        ratios.sort_unstable_by(f64::total_cmp);
        ratios
    }

    fn ratio(&self) -> Option<f64> {
        median(self.ratios())
    }
}

pub(in super::super) fn run(setting: &Setting) -> Result<Outcome, String> {
    over_rc_alone(setting)?;
    let size = match setting.quick {
        true => Size { rounds: 3, lives: 5, posts: 19_200, polls: 300_000 },
        false => Size { rounds: 25, lives: 20, posts: 1_000_000, polls: 100_000_000 },
    };
    let program = Arc::new(Program::compile(setting.name)?);
    let counts = [size.lives, size.posts / size.rounds / BATCH, size.polls / size.rounds].map(|n| n.to_string());
    // Each begins every other round.
    let turns: Vec<bool> =
        (0..size.rounds).flat_map(|round| if round % 2 == 0 { [false, true] } else { [true, false] }).collect();
    let one = {
        let program = Arc::clone(&program);
        move |&backup: &bool| program.run(backup, &["verbs", &counts[0], &counts[1], &counts[2]])
    };
    let printed = pool::run(setting.name, turns.clone(), 1, one)?;
    let done = printed.iter().flatten().count();
    let mut runs: Vec<[Printed; 2]> = Vec::new();
    for (turns, printed) in turns.chunks(2).zip(printed.chunks(2)) {
        if let [Some(first), Some(second)] = printed {
            runs.push(if turns[0] { [second.clone(), first.clone()] } else { [first.clone(), second.clone()] });
        }
    }
    let ready: Vec<f64> =
        runs.iter().filter_map(|[_, backup]| backup.get(READY)).flatten().map(|ns| ns / 1e6).collect();
    let longest_ready = ready.iter().copied().reduce(f64::max);
    let of = |verb: &str| Pairs::of(&runs, verb);
    let slowest = CONTROL.iter().filter_map(|verb| Some((*verb, of(verb).ratio()?))).max_by(|a, b| a.1.total_cmp(&b.1));
    Ok(Outcome {
        what: format!(
            "Verbs of a C program through the exported functions of libibverbs, on wires in memory: {} processes without a backup and {} with one, in turns; the NIC's threads and the program share the machine. Each control verb {} times a process, a millisecond after the last, ibv_post_send and ibv_post_recv {} times in all, ibv_poll_cq of an empty queue {} times, in batches of {BATCH}. A round's figure is the lower quartile of its calls, or the lowest decile of its batches: what else the machine does is in the others. Figures and ratios are medians of the rounds.",
            size.rounds, size.rounds, size.lives, size.posts, size.polls
        ),
        tables: vec![table(&runs), ready_table(&ready)],
        figures: figures(&runs, &ready),
        chart: chart(&runs, setting),
        goals: goals(&runs, slowest, longest_ready),
        beside: vec![
            Beside { stated: paper::RTR, ours: of("modify_qp RTR").ratio() },
            Beside { stated: paper::RTS, ours: of("modify_qp RTS").ratio() },
            Beside { stated: paper::SHADOWS, ours: median(ready) },
        ],
        notes: [
            "The paper asks the default NIC for the attributes of its queue pair at RTR and RTS: ibv_query_qp, through the kernel. Here the attributes are kept where they are set.",
            "The paper's time until the shadows are there has the opening of the backup NIC and a key-value store in it; here the backup is open from the beginning, and the peer is asked by a datagram. Ours is from the end of RTR until both ends have met.",
            "poll_cq with nothing in the queue drives the NIC, where nobody else does.",
        ]
        .map(String::from)
        .into(),
        runs: done,
        of: turns.len(),
        ..Outcome::default()
    })
}

fn table(runs: &[[Printed; 2]]) -> Table {
    let row = |verb: &&str| {
        let pairs = Pairs::of(runs, verb);
        let ratios = pairs.ratios();
        let range = match (ratios.first(), ratios.last()) {
            (Some(low), Some(high)) => format!("{low:.2}–{high:.2}"),
            _ => NOTHING.into(),
        };
        vec![format!("ibv_{verb}"), shown(pairs.plain(), 1), shown(pairs.backup(), 1), shown(pairs.ratio(), 3), range]
    };
    Table {
        title: "Time of a verb, ns".into(),
        columns: ["verb", "plain", "with backup", "ratio", "of rounds"].map(String::from).into(),
        rows: CONTROL.iter().chain(&DATA).map(row).collect(),
    }
}

fn ready_table(ready: &[f64]) -> Table {
    let of = |fold: fn(f64, f64) -> f64| shown(ready.iter().copied().reduce(fold), 3);
    Table {
        title: "From the end of RTR until a connection has its backup, ms".into(),
        columns: ["connections", "lowest", "median", "highest"].map(String::from).into(),
        rows: vec![vec![ready.len().to_string(), of(f64::min), shown(median(ready.into()), 3), of(f64::max)]],
    }
}

fn figures(runs: &[[Printed; 2]], ready: &[f64]) -> Figures {
    let mut rows = Vec::new();
    for verb in CONTROL.iter().chain(&DATA) {
        for (round, [plain, backup]) in Pairs::of(runs, verb).0.into_iter().enumerate() {
            rows.push(vec![
                format!("ibv_{verb}").into(),
                (round as f64).into(),
                plain.into(),
                backup.into(),
                ratio(Some(backup), Some(plain)).into(),
            ]);
        }
    }
    let missing = || None::<f64>.into();
    rows.extend(ready.iter().map(|ms| vec![READY.into(), missing(), missing(), (ms * 1e6).into(), missing()]));
    Figures { columns: vec!["verb", "round", "plain_ns", "backup_ns", "ratio"], rows }
}

fn chart(runs: &[[Printed; 2]], setting: &Setting) -> Chart {
    let panel = |title: &str, verbs: &[&str], unit: &str, scale: f64| {
        let series = |(hue, name, place): (usize, &str, usize)| {
            let dot = |(x, verb): (usize, &&str)| {
                let mut times: Vec<f64> = Pairs::of(runs, verb).0.iter().map(|pair| pair[place] / scale).collect();
                times.sort_unstable_by(f64::total_cmp);
                let (low, high) = (*times.first()?, *times.last()?);
                Some(Dot { x: x as f64, y: median(times)?, low, high })
            };
            Series::new(name, Kind::Measured, hue, verbs.iter().enumerate().filter_map(dot).collect())
        };
        Panel {
            title: title.into(),
            x: Axis::new("Verb", Scale::Categories(verbs.iter().map(|verb| verb.to_string()).collect())),
            y: Axis::new(&format!("Time ({unit})"), Scale::Linear),
            series: [(0, "plain", 0), (1, "with backup", 1)].map(series).into(),
        }
    };
    // Opening a device takes a thousand times as long as the others.
    Chart {
        panels: vec![
            panel("Data verbs", &DATA, "ns", 1.0),
            panel("Control verbs of objects", &CONTROL[1..5], "µs", 1e3),
            panel("Control verbs of a queue pair", &CONTROL[5..9], "µs", 1e3),
        ],
        caption: format!(
            "Medians of {} rounds in turns; bars reach from the lowest round to the highest.{}",
            runs.len(),
            if setting.quick { " Quick." } else { "" }
        ),
    }
}

fn goals(runs: &[[Printed; 2]], slowest: Option<(&str, f64)>, ready: Option<f64>) -> Vec<Goal> {
    let data = DATA.iter().map(|verb| Goal {
        what: format!("ibv_{verb}, with backup / plain"),
        bound: Bound::AtMost(1.03),
        measured: Pairs::of(runs, verb).ratio(),
    });
    let name = slowest.map_or("none", |(verb, _)| verb);
    data.chain([
        Goal {
            what: format!("control verb with the highest ratio (ibv_{name}), with backup / plain"),
            bound: Bound::AtMost(1.1),
            measured: slowest.map(|(_, ratio)| ratio),
        },
        Goal {
            what: "longest time until a connection has its backup, ms".into(),
            bound: Bound::AtMost(35.0),
            measured: ready,
        },
    ])
    .collect()
}
