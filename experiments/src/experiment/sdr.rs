//! `sdr-throughput`, `sdr-chunk` and `sdr-scaling`: SDR-RDMA's own measurements (§5.4), in real time between two NICs.

mod scaling;

use softnic_perf::{Amount, Chunks, Measured, Op, Plan, SdrPlan, stop};
use softnic_sim::{Options, SdrOptions};
use softnic_transports::Transport;
use softnic_wire::PathMtu;

use super::device::{Ends, run_plan};
use super::outcome::{Bound, Figure, Figures, Goal, Outcome, Table, shown, spread_shown};
use super::pool::Progress;
use super::stats::{Spread, ratio};
use super::{Setting, plot, simulate};
use crate::chart::{Axis, Chart, Panel, Scale, bytes};

pub(super) use scaling::run as scaling;

/// Messages in flight, as the paper has it.
const DEPTH: u32 = SdrPlan::DEPTH;
/// Repetitions of a point in each run.
const REPETITIONS: u64 = 1000;
const REPETITIONS_QUICK: u64 = 100;
const SIZES: [u32; 8] = [4 << 10, 16 << 10, 64 << 10, 256 << 10, 512 << 10, 1 << 20, 4 << 20, 16 << 20];
const SIZES_QUICK: [u32; 2] = [64 << 10, 512 << 10];
/// Packets of a chunk.
const CHUNKS: [u32; 7] = [1, 2, 4, 8, 16, 32, 64];
const CHUNKS_QUICK: [u32; 2] = [1, 64];
/// The smallest packets that a path MTU allows; the paper's WRITEs have 64 bytes.
const SMALL: PathMtu = PathMtu::B256;
const SMALL_MESSAGE: u32 = 1 << 20;
/// Where the paper reckons with the loss of chunks, and where enough of them are lost to be counted.
const PAPER_LOSS: f64 = 1e-5;
const COUNTED_LOSS: f64 = 1e-3;

/// Who is measured.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum By {
    Transport(Transport),
    Sdr,
}

impl By {
    fn name(self) -> String {
        match self {
            By::Transport(transport) => transport.to_string(),
            By::Sdr => "sdr".into(),
        }
    }
}

/// A point of the grid: who, how long messages are, and packets of a chunk.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Point {
    by: By,
    size: u32,
    chunk: u32,
    mtu: PathMtu,
    /// Channels, and engines that have them.
    engines: u8,
}

/// What a run came to.
#[derive(Debug, Clone, Copy)]
struct Run {
    gbps: f64,
    mpps: f64,
    chunks: Option<Chunks>,
}

/// All runs, by point, as many as there are seeds; those that Ctrl-C came before are missing.
struct Runs {
    of_points: Vec<(Point, Vec<Run>)>,
    done: usize,
    of: usize,
}

impl Runs {
    fn spread(&self, point: Point, value: impl Fn(&Run) -> Option<f64>) -> Option<Spread> {
        let runs = self.of_points.iter().find(|(p, _)| *p == point).map(|(_, runs)| runs)?;
        Spread::of(runs.iter().map(value))
    }

    fn mean(&self, point: Point, value: impl Fn(&Run) -> Option<f64>) -> Option<f64> {
        self.spread(point, value).map(|spread| spread.mean)
    }
}

/// Measures all points, one run of each after the other, so that what else the machine does hits all of them.
fn measure(setting: &Setting, ends: &Ends, points: &[Point]) -> Result<Runs, String> {
    if setting.transports.is_some() {
        return Err(format!("{} has its own contestants: leave --transports out", setting.name));
    }
    let seeds = setting.seeds();
    let repetitions = if setting.quick { REPETITIONS_QUICK } else { REPETITIONS };
    let of = points.len() * seeds.len();
    let (mut progress, mut done) = (Progress::new(setting.name, of), 0);
    let mut of_points: Vec<(Point, Vec<Run>)> = points.iter().map(|&point| (point, Vec::new())).collect();
    for &seed in &seeds {
        for (point, runs) in &mut of_points {
            if stop::requested() {
                continue;
            }
            if let Some(run) = one(ends, *point, repetitions, seed)? {
                runs.push(run);
                done += 1;
                progress.tell(done);
            }
        }
    }
    drop(progress);
    Ok(Runs { of_points, done, of })
}

/// One run; `None` where Ctrl-C ended it.
fn one(ends: &Ends, point: Point, repetitions: u64, seed: u64) -> Result<Option<Run>, String> {
    let (transport, sdr) = match point.by {
        By::Transport(transport) => (transport, None),
        By::Sdr => {
            let sdr = SdrPlan { chunk: point.chunk, channels: point.engines, ..SdrPlan::default() };
            (Transport::Rc, Some(sdr))
        }
    };
    let amount = Amount::Iterations(repetitions);
    let usual = Plan::usual(Op::WriteBw, transport, point.size, point.mtu.bytes(), amount);
    let plan = Plan { depth: DEPTH, sdr, ..usual };
    // Of a device all queues are used, unless the point is about them.
    let queues = (point.engines > 1).then_some(point.engines.into()).or(ends.queues);
    let run = run_plan(&Ends { queues, ..ends.clone() }, None, &plan, seed)?;
    Ok(run.and_then(|run| match run.measured {
        Measured::Bandwidth(rates) => {
            let packets = f64::from(point.size.div_ceil(point.mtu.bytes()));
            Some(Run { gbps: rates.average_gbps(), mpps: rates.mpps() * packets, chunks: rates.chunks })
        }
        Measured::Latency(_) => None,
    }))
}

fn gbps(run: &Run) -> Option<f64> {
    Some(run.gbps)
}

fn missing(run: &Run) -> Option<f64> {
    run.chunks.map(|chunks| chunks.chunks_missing as f64 / chunks.chunks.max(1) as f64)
}

fn repost(run: &Run) -> Option<f64> {
    run.chunks.map(|chunks| chunks.repost_ns as f64)
}

/// `sdr-throughput`, figure 14.
pub(super) fn throughput(setting: &Setting, ends: &Ends) -> Result<Outcome, String> {
    let sizes = if setting.quick { &SIZES_QUICK[..] } else { &SIZES[..] };
    let by = [By::Transport(Transport::Rc), By::Transport(Transport::Uc), By::Sdr];
    let point = |by, size| Point { by, size, chunk: 64 << 10, mtu: PathMtu::B4096, engines: 1 };
    let points: Vec<Point> = sizes.iter().flat_map(|&size| by.map(|by| point(by, size))).collect();
    let runs = measure(setting, ends, &points)?;
    let of_rc = |size| ratio(runs.mean(point(By::Sdr, size), gbps), runs.mean(point(by[0], size), gbps));
    let row = |&size: &u32| {
        let mut row = vec![bytes(size.into())];
        row.extend(by.map(|by| spread_shown(runs.spread(point(by, size), gbps), 2)));
        row.push(shown(of_rc(size), 2));
        row.push(shown(runs.mean(point(By::Sdr, size), missing).map(|part| part * 100.0), 2) + " %");
        row.push(shown(runs.mean(point(By::Sdr, size), repost), 0));
        row
    };
    let series = |(hue, &by): (usize, &By)| {
        plot::measured(by.name(), hue, sizes.iter().map(|&size| (f64::from(size), runs.spread(point(by, size), gbps))))
    };
    let goal = |size: u32, least| Goal {
        what: format!("sdr/rc at {}", bytes(size.into())),
        bound: Bound::AtLeast(least),
        measured: of_rc(size),
    };
    Ok(Outcome {
        what: format!(
            "Gbit/s of WRITEs in real time on {}: {DEPTH} in flight, MTU 4096, chunks of 64 KiB, {} messages a run; {}.",
            ends.device,
            if setting.quick { REPETITIONS_QUICK } else { REPETITIONS },
            setting.means()
        ),
        tables: vec![Table {
            title: "Gbit/s by the size of messages".into(),
            columns: ["message", "rc", "uc", "sdr", "sdr/rc", "chunks missing", "repost [ns]"].map(String::from).into(),
            rows: sizes.iter().map(row).collect(),
        }],
        figures: figures(&runs),
        chart: Chart {
            panels: vec![Panel {
                title: format!("{}, {DEPTH} in flight, MTU 4096", ends.device),
                x: Axis::new("Message size", Scale::Bytes),
                y: Axis::new("Throughput (Gbit/s)", Scale::Linear),
                series: by.iter().enumerate().map(series).collect(),
            }],
            caption: plot::caption(setting, ""),
        },
        goals: vec![goal(64 << 10, 0.5), goal(512 << 10, 0.9), goal(1 << 20, 0.9), goal(4 << 20, 0.9)],
        notes: vec![
            "Figure 14 has the line rate of 400 Gbit/s from 512 KiB on, with 4 + 16 of 256 DPA threads of a BlueField-3, and is behind RC below that for what reposting costs. Here one core does all at each end: what is alike is the ratio to rc, not the rate.".into(),
            "UC and SDR have no flow control: where the receiver is slower than the sender, chunks are missing on a clean wire. The bandwidth is that of the chunks that came.".into(),
        ],
        runs: runs.done,
        of: runs.of,
        ..Outcome::default()
    })
}

/// The chance that a chunk of so many packets is lost (§5.4.2).
fn chunk_loss(loss: f64, packets: u32) -> f64 {
    1.0 - (1.0 - loss).powi(packets as i32)
}

/// The same, counted in virtual time.
fn counted(setting: &Setting, packets: u32) -> Result<f64, String> {
    let mtu = PathMtu::B1024;
    let sdr = Some(SdrOptions { chunk: Some(packets * mtu.bytes()), ..SdrOptions::default() });
    let options = Options {
        transport: Transport::Uc,
        sdr,
        size: 64 * mtu.bytes(),
        // As many chunks of each length.
        count: if setting.quick { 500 } else { 20_000 } * u64::from(packets) / 64 + 1,
        mtu,
        faults: format!("ab.loss={COUNTED_LOSS}").parse().map_err(|e| format!("{e}"))?,
        seed: setting.first_seed,
        ..Options::default()
    };
    let chunks = simulate(&options)?.chunks.unwrap_or_default();
    Ok(chunks.missing as f64 / chunks.chunks.max(1) as f64)
}

/// `sdr-chunk`, figure 15.
pub(super) fn chunk(setting: &Setting, ends: &Ends) -> Result<Outcome, String> {
    let packets = if setting.quick { &CHUNKS_QUICK[..] } else { &CHUNKS[..] };
    let point = |n: u32| Point { by: By::Sdr, size: SMALL_MESSAGE, chunk: n * SMALL.bytes(), mtu: SMALL, engines: 1 };
    let points: Vec<Point> = packets.iter().map(|&n| point(n)).collect();
    let runs = measure(setting, ends, &points)?;
    let mpps = |run: &Run| Some(run.mpps);
    let lost = packets.iter().map(|&n| counted(setting, n)).collect::<Result<Vec<_>, _>>()?;
    let row = |(&n, &lost): (&u32, &f64)| {
        vec![
            n.to_string(),
            spread_shown(runs.spread(point(n), mpps), 2),
            format!("{:.1e}", chunk_loss(PAPER_LOSS, n)),
            format!("{:.4}", chunk_loss(COUNTED_LOSS, n)),
            format!("{lost:.4}"),
        ]
    };
    let series = plot::measured("sdr", 0, packets.iter().map(|&n| (f64::from(n), runs.spread(point(n), mpps))));
    let fall = ratio(runs.mean(point(1), mpps), runs.mean(point(64), mpps));
    Ok(Outcome {
        what: format!(
            "Million packets of {} bytes a second by the length of chunks, in real time on {}: messages of 1 MiB, {DEPTH} in flight; {}. And how often a chunk is lost.",
            SMALL.bytes(),
            ends.device,
            setting.means()
        ),
        tables: vec![Table {
            title: "By packets of a chunk".into(),
            columns: ["chunk", "Mpps", "1 - (1 - p)^N at p = 1e-5", "at p = 1e-3", "counted at p = 1e-3"]
                .map(String::from)
                .into(),
            rows: packets.iter().zip(&lost).map(row).collect(),
        }],
        figures: figures(&runs),
        chart: Chart {
            panels: vec![Panel {
                title: format!("{}, packets of {} bytes", ends.device, SMALL.bytes()),
                x: Axis::new("Packets of a chunk", Scale::Log),
                y: Axis::new("Packets (million/s)", Scale::Linear),
                series: vec![series],
            }],
            caption: plot::caption(setting, ""),
        },
        goals: vec![Goal {
            what: "packets a second with chunks of 1 packet, of those with 64".into(),
            bound: Bound::AtLeast(0.8),
            measured: fall,
        }],
        notes: vec![
            "Figure 15 has 15, 17, 19, 21, 23, 24 and 24.5 million WRITEs of 64 bytes a second with chunks of 1 to 64, by 16 DPA threads. A path MTU is 256 bytes at least, so packets have 256 here; sending, the wire and receiving are all in the figure, on two cores. The sink alone is `cargo bench -p softnic-benches --bench sdr`.".into(),
        ],
        runs: runs.done,
        of: runs.of,
        ..Outcome::default()
    })
}

fn figures(runs: &Runs) -> Figures {
    let row = |(point, of): &(Point, Vec<Run>)| {
        let value = |value: fn(&Run) -> Option<f64>| -> Figure { runs.mean(*point, value).into() };
        vec![
            point.by.name().into(),
            f64::from(point.size).into(),
            f64::from(point.mtu.bytes()).into(),
            f64::from(point.chunk).into(),
            f64::from(point.engines).into(),
            value(gbps),
            runs.spread(*point, gbps).map(|s| s.deviation).into(),
            value(|run| Some(run.mpps)),
            value(missing),
            value(repost),
            (of.len() as f64).into(),
        ]
    };
    Figures {
        columns: vec![
            "transport",
            "bytes",
            "mtu",
            "chunk",
            "engines",
            "gbps",
            "deviation_gbps",
            "mpps",
            "chunks_missing",
            "repost_ns",
            "runs",
        ],
        rows: runs.of_points.iter().map(row).collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn chunks_are_lost_as_the_paper_reckons() {
        // Figure 15: 1e-5 with one packet, 6.4e-4 with 64.
        assert!((chunk_loss(PAPER_LOSS, 1) - 1e-5).abs() < 1e-9);
        assert!((chunk_loss(PAPER_LOSS, 64) - 6.4e-4).abs() < 1e-6);
    }
}
