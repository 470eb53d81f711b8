//! `cc-fairness`: flows that share a bottleneck, with each congestion control and without: their rates and its queue over time, how fair
//! the shares are, and an incast.

use std::time::Duration;

use softnic_sim::fairness::{Burst, Fairness, Incast, Outcome as Shared};
use softnic_sim::{Cc, Transport, UNITS};

use super::Setting;
use super::outcome::{Bound, Figure, Figures, Goal, Outcome, Table, shown, spread_shown};
use super::stats::Spread;
use crate::chart::{Axis, Chart, Kind, Panel, Point as Dot, Scale, Series};

const FLOWS: [usize; 3] = [2, 4, 16];
const CONTROLS: [&str; 4] = ["none", "dcqcn", "swift", "eqds"];
const TRANSPORTS: [Transport; 2] = [Transport::Rc, Transport::XP];
/// Of the incast.
const SENDERS: usize = 15;

/// A number of flows of a transport under a congestion control.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Point {
    transport: Transport,
    flows: usize,
    cc: &'static str,
}

impl Point {
    fn cc(&self) -> Result<Cc, String> {
        Cc::parse(self.cc, &UNITS).map_err(|e| e.to_string())
    }

    fn all(flows: &[usize]) -> Vec<Point> {
        let of = |transport| move |&flows: &usize| CONTROLS.map(|cc| Point { transport, flows, cc });
        let all = TRANSPORTS.iter().flat_map(|&transport| flows.iter().flat_map(of(transport)));
        all.filter(|point| point.cc().is_ok_and(|cc| cc.is_for(point.transport))).collect()
    }
}

/// Points with the runs that were made of them, by seed.
type Of<R> = Vec<(Point, Vec<(u64, R)>)>;
type Runs = Of<Shared>;
type Bursts = Of<Burst>;

type Measure = fn(&Shared) -> f64;

/// What is measured once a run, with its name in files.
const MEASURES: [(&str, Measure); 9] = [
    ("jain", |o| o.jain),
    ("utilization", |o| o.utilization),
    ("mean_queue_bytes", |o| o.mean_queue),
    ("max_queue_bytes", |o| o.max_queue as f64),
    ("marked", |o| o.marked as f64),
    ("dropped", |o| o.dropped as f64),
    ("retransmitted_packets", |o| o.retransmitted as f64),
    ("np_cnp_sent", |o| o.cnps_sent as f64),
    ("rp_cnp_handled", |o| o.cnps_handled as f64),
];

pub(super) fn run(setting: &Setting) -> Result<Outcome, String> {
    if setting.transports.is_some() {
        return Err("cc-fairness is about congestion control, over rc and xp: leave --transports out".into());
    }
    let together = Duration::from_millis(if setting.quick { 60 } else { 150 });
    let (runs, of_runs) = each(setting, Point::all(&FLOWS), move |point, seed| {
        // Marks are the same for all: 16 flows one after another are as long as four.
        let apart = Duration::from_millis(if point.flows > 4 { 2 } else { 10 });
        let Point { transport, flows, .. } = point;
        let fairness = Fairness { transport, apart, together, seed, ..Fairness::new(flows, point.cc()?) };
        let run = fairness.run().map_err(|e| e.to_string())?;
        if run.failed > 0 { Err(format!("{} work requests failed", run.failed)) } else { Ok(run) }
    })?;
    let (bursts, of_bursts) = each(setting, Point::all(&[SENDERS]), move |point, seed| {
        let incast = Incast { seed, ..Incast::new(point.flows, point.cc()?, point.transport) };
        incast.run().map_err(|e| e.to_string())
    })?;
    Ok(Outcome {
        what: format!(
            "Flows of 64 KiB WRITEs through one port of a switch: 40 Gbit/s, marks from 5 to 200 KB with up to 1 %, a queue of 4 MiB, MTU 1024; each from a host of its own, 10 ms apart (16 flows 2 ms), {} ms all together, then leaving as far apart. Shares are of the second half of the time together. The incast is of {SENDERS} WRITEs of 1 MiB at once; {}.",
            together.as_millis(),
            setting.means()
        ),
        tables: vec![table_of(&runs), incast_table(&bursts)],
        figures: figures(&runs, &bursts),
        chart: Chart {
            panels: panels(&runs),
            caption: format!(
                "Over rc, one run each, seed {}. Rates are of the payload in a millisecond.",
                setting.first_seed
            ),
        },
        goals: goals(&runs),
        notes: notes(),
        runs: count(&runs) + count(&bursts),
        of: of_runs + of_bursts,
        ..Outcome::default()
    })
}

/// Makes a run of each point and seed; how many there were to be.
fn each<R: Send + 'static>(
    setting: &Setting,
    points: Vec<Point>,
    run: impl Fn(Point, u64) -> Result<R, String> + Sync + Send + 'static,
) -> Result<(Of<R>, usize), String> {
    let jobs: Vec<(Point, u64)> =
        points.iter().flat_map(|&p| setting.seeds().into_iter().map(move |s| (p, s))).collect();
    let results = setting.each(jobs.clone(), move |&(point, seed)| run(point, seed))?;
    let (of, mut runs) = (jobs.len(), Of::<R>::new());
    for ((point, seed), result) in jobs.into_iter().zip(results) {
        if runs.last().is_none_or(|(p, _)| *p != point) {
            runs.push((point, Vec::new()));
        }
        if let (Some((_, of_point)), Some(result)) = (runs.last_mut(), result) {
            of_point.push((seed, result));
        }
    }
    Ok((runs, of))
}

fn count<R>(runs: &Of<R>) -> usize {
    runs.iter().map(|(_, of_point)| of_point.len()).sum()
}

fn spread(of_point: &[(u64, Shared)], measure: &str) -> Option<Spread> {
    let (_, of) = MEASURES.iter().find(|(name, _)| *name == measure)?;
    Spread::of(of_point.iter().map(|(_, run)| Some(of(run))))
}

fn mean(runs: &Runs, point: Point, measure: &str) -> Option<f64> {
    let (_, of_point) = runs.iter().find(|(p, _)| *p == point)?;
    Some(spread(of_point, measure)?.mean)
}

fn table_of(runs: &Runs) -> Table {
    let row = |(point, of_point): &(Point, Vec<(u64, Shared)>)| {
        let plain = |measure| shown(spread(of_point, measure).map(|s| s.mean), 0);
        vec![
            point.transport.name().into(),
            point.flows.to_string(),
            point.cc.into(),
            spread_shown(spread(of_point, "jain"), 4),
            spread_shown(spread(of_point, "utilization"), 3),
            shown(spread(of_point, "mean_queue_bytes").map(|s| s.mean / 1e3), 1),
            shown(spread(of_point, "max_queue_bytes").map(|s| s.mean / 1e3), 1),
            plain("marked"),
            plain("np_cnp_sent"),
            plain("dropped"),
            plain("retransmitted_packets"),
        ]
    };
    let columns = [
        "transport",
        "flows",
        "cc",
        "Jain's index",
        "link used",
        "queue KB",
        "longest KB",
        "marked",
        "CNPs",
        "dropped",
        "sent again",
    ];
    Table {
        title: "Shares, queue and losses".into(),
        columns: columns.map(String::from).into(),
        rows: runs.iter().map(row).collect(),
    }
}

/// A figure of an incast: its name in files, and how to read it.
type OfBurst = (&'static str, fn(&Burst) -> f64);

/// What is measured of an incast.
const OF_BURST: [OfBurst; 5] = [
    ("incast_slowdown", |b| b.slowdown()),
    ("incast_missing", |b| SENDERS as f64 - b.times.len() as f64),
    ("incast_max_queue_bytes", |b| b.max_queue as f64),
    ("incast_dropped", |b| b.dropped as f64),
    ("incast_retransmitted_packets", |b| b.retransmitted as f64),
];

fn incast_table(bursts: &Bursts) -> Table {
    let row = |(point, of_point): &(Point, Vec<(u64, Burst)>)| {
        let of = |i: usize| Spread::of(of_point.iter().map(|(_, burst)| Some((OF_BURST[i].1)(burst))));
        let plain = |i| shown(of(i).map(|s| s.mean), 0);
        let queue = shown(of(2).map(|s| s.mean / 1e3), 1);
        vec![
            point.transport.name().into(),
            point.cc.into(),
            spread_shown(of(0), 3),
            queue,
            plain(3),
            plain(4),
            plain(1),
        ]
    };
    let columns = ["transport", "cc", "last / bound", "longest KB", "dropped", "sent again", "missing"];
    Table {
        title: format!("Incast of {SENDERS}: when the last message is done, beside what the link needs for all"),
        columns: columns.map(String::from).into(),
        rows: bursts.iter().map(row).collect(),
    }
}

/// One figure a row: those of a run, and of the first seed's run rates and queue over time.
fn figures(runs: &Runs, bursts: &Bursts) -> Figures {
    let mut rows = Vec::new();
    for (point, of_point) in bursts {
        for ((seed, burst), (name, of)) in of_point.iter().flat_map(|run| OF_BURST.map(|measure| (run, measure))) {
            rows.push(vec![
                point.transport.name().into(),
                point.cc.into(),
                (point.flows as f64).into(),
                (*seed as f64).into(),
                name.into(),
                Figure::Missing,
                Figure::Missing,
                of(burst).into(),
            ]);
        }
    }
    for (point, of_point) in runs {
        for (i, (seed, run)) in of_point.iter().enumerate() {
            let mut add = |what: &str, flow: Option<usize>, time: Option<Duration>, value: f64| {
                rows.push(vec![
                    point.transport.name().into(),
                    point.cc.into(),
                    (point.flows as f64).into(),
                    (*seed as f64).into(),
                    what.into(),
                    flow.map_or(Figure::Missing, |f| Figure::Number((f + 1) as f64)),
                    time.map(|t| t.as_secs_f64() * 1e3).into(),
                    value.into(),
                ]);
            };
            for (name, of) in MEASURES {
                add(name, None, None, of(run));
            }
            for (flow, share) in run.shares.iter().enumerate() {
                add("share_gbps", Some(flow), None, *share);
            }
            if i > 0 {
                continue;
            }
            for (at, &time) in run.times.iter().enumerate() {
                for (flow, rates) in run.rates.iter().enumerate() {
                    add("rate_gbps", Some(flow), Some(time), rates[at]);
                }
                add("queue_bytes", None, Some(time), run.queue[at] as f64);
            }
        }
    }
    Figures { columns: vec!["transport", "cc", "flows", "seed", "figure", "flow", "time_ms", "value"], rows }
}

/// Rates of each point, and all queues, of the first seed.
fn panels(runs: &Runs) -> Vec<Panel> {
    let of_rc = || runs.iter().filter(|(point, _)| point.transport == Transport::Rc);
    let first = || of_rc().filter_map(|(point, of_point)| Some((point, &of_point.first()?.1)));
    let time = || Axis::new("Time (ms)", Scale::Linear);
    let over_time = |run: &Shared, values: &mut dyn Iterator<Item = f64>| {
        run.times.iter().zip(values).map(|(t, v)| Dot::exact(t.as_secs_f64() * 1e3, v)).collect::<Vec<_>>()
    };
    let rates = |(point, run): (&Point, &Shared)| Panel {
        title: format!("Rates of {} flows with {}", point.flows, point.cc),
        x: time(),
        y: Axis::new("Rate (Gbit/s)", Scale::Linear),
        series: (0..point.flows)
            .map(|f| {
                let points = over_time(run, &mut run.rates[f].iter().copied());
                Series::new(format!("flow {}", f + 1), Kind::Measured, f, points)
            })
            .collect(),
    };
    let queue = |(hue, (point, run)): (usize, (&Point, &Shared))| {
        let points = over_time(run, &mut run.queue.iter().map(|&q| q as f64 / 1e3));
        Series::new(format!("{} flows, {}", point.flows, point.cc), Kind::Measured, hue, points)
    };
    let queues = Panel {
        title: "Queue of the bottleneck".into(),
        x: time(),
        y: Axis::new("Queue (kB)", Scale::Log),
        series: first().enumerate().map(queue).collect(),
    };
    let mut all: Vec<Panel> = first().filter(|(point, _)| point.cc != "none" && point.flows <= 4).map(rates).collect();
    all.push(queues);
    all
}

fn goals(runs: &Runs) -> Vec<Goal> {
    let of = |point: Point| {
        let Point { transport, flows, cc } = point;
        let goal = |what: &str, bound, measure| Goal {
            what: format!("{flows} flows over {} with {cc}: {what}", transport.name()),
            bound,
            measured: mean(runs, point, measure),
        };
        [
            goal("Jain's index", Bound::AtLeast(0.95), "jain"),
            goal("part of the link used", Bound::AtLeast(0.95), "utilization"),
            goal("frames dropped", Bound::AtMost(0.0), "dropped"),
        ]
    };
    Point::all(&FLOWS).into_iter().filter(|point| point.cc != "none").flat_map(of).collect()
}

fn notes() -> Vec<String> {
    [
        "Settings are those of DCQCN's paper (Zhu et al., SIGCOMM 2015): g 1/256, timers of 55 µs, 10 MB, F 5, 40 Mbit/s, CNPs 50 µs apart, marks from 5 to 200 KB up to 1 %. Hyper increase is ten times the additive one.",
        "The paper shows flows that come to equal shares. It was not at hand when this was written: no figure of it stands beside ours, and the goals are our own.",
        "The paper's switches pause senders (PFC) before they drop. Ours have none: the queue of 4 MiB is long enough that nothing is dropped with DCQCN.",
        "Swift has the settings of its defaults: base 25 µs, one hop of 1 µs, flow scaling up to 100 µs from windows of 100 packets down to 0.1.",
        "EQDS has the settings of its defaults: a speculative window of 32 KiB, turns of 16 KiB, 0.98 of the link handed out. Over rc what is sent again needs credit again.",
        "With DCQCN, after a flow joins at the line's rate, all are cut to well below their shares, because α is still 1; they then rise by 40 Mbit/s in each 55 µs, 0.7 Gbit/s in a millisecond.",
    ]
    .map(String::from)
    .into()
}
