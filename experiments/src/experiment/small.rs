//! `lowar-small`: goodput of small messages with loss, beside that without.

use std::time::Duration;

use softnic_fault_injector::{Fault, Spec};
use softnic_sim::Options;
use softnic_transports::Transport;
use softnic_transports::qp::PayloadMode;

use super::outcome::{Figures, Outcome, Table, shown};
use super::plot::{self, measured};
use super::race::{Race, race};
use super::stats::{Spread, ratio};
use super::{Setting, lowar, over};
use crate::chart::{Axis, Chart, Kind, Panel, Point as Dot, Scale, Series, bytes};

const TRANSPORTS: [Transport; 4] = [Transport::Rc, Transport::SR, lowar(32, 1), lowar(8, 1)];
const SIZES: [u32; 10] = [64, 128, 256, 512, 1 << 10, 2 << 10, 4 << 10, 8 << 10, 16 << 10, 32 << 10];
const SIZES_QUICK: [u32; 3] = [64, 1 << 10, 16 << 10];
const LOSS: f64 = 1e-3;
const RTT: Duration = Duration::from_millis(40);
const DEPTH: u32 = 128;
const MTU: u32 = 1024;
/// A run is so many queues full at least, and so many packets.
const QUEUES: u64 = 50;
const PACKETS: u64 = 40_000;

#[derive(Debug, Clone, Copy, PartialEq)]
struct Point {
    transport: Transport,
    size: u32,
    loss: f64,
}

type Measured = Race<Point, 1>;

pub(super) fn run(setting: &Setting) -> Result<Outcome, String> {
    let transports = setting.transports(&TRANSPORTS);
    let (sizes, part) = if setting.quick { (&SIZES_QUICK[..], 4) } else { (&SIZES[..], 1) };
    let mut points = Vec::new();
    for &size in sizes {
        for loss in [0.0, LOSS] {
            points.extend(transports.iter().map(|&transport| Point { transport, size, loss }));
        }
    }
    let seeds = setting.seeds();
    let seeds_of = |point: &Point| if point.loss == 0.0 { seeds[..1].to_vec() } else { seeds.clone() };
    let options = |point: &Point, seed| {
        let options = Options {
            size: point.size,
            count: (PACKETS / u64::from(point.size.div_ceil(MTU))).max(QUEUES * u64::from(DEPTH)) / part,
            depth: DEPTH,
            rtt: RTT,
            faults: Spec { faults: vec![Fault::Loss(point.loss)], ..Spec::default() },
            payload: PayloadMode::Elided,
            seed,
            ..Options::default()
        };
        Ok(over(point.transport, options))
    };
    let m = race(setting, &points, seeds_of, options, |report| [report.goodput_gbps * 1e3])?;
    Ok(Outcome {
        what: format!(
            "Goodput of small WRITEs in Mbit/s without loss and with 0.1 % in both directions: 10 Gbit/s, RTT 40 ms, MTU 1024, {DEPTH} outstanding; {}.",
            setting.means()
        ),
        tables: vec![table_of(&m, &transports, sizes)],
        figures: figures(&m),
        chart: Chart {
            panels: vec![goodput(&m, &transports, sizes), kept_panel(&m, &transports, sizes)],
            caption: plot::caption(setting, "Dashed: rc where nothing is lost."),
        },
        notes: notes(),
        runs: m.runs,
        of: m.of,
        ..Outcome::default()
    })
}

/// Part of the goodput without loss, in percent.
fn kept(m: &Measured, transport: Transport, size: u32) -> Option<f64> {
    let at = |loss| m.mean(Point { transport, size, loss }, 0);
    ratio(at(LOSS), at(0.0)).map(|part| part * 100.0)
}

fn table_of(m: &Measured, transports: &[Transport], sizes: &[u32]) -> Table {
    let mut columns = vec!["message".to_string()];
    for transport in transports {
        columns.extend([format!("{transport}: 0"), "0.1 %".into(), "kept".into()]);
    }
    let row = |&size: &u32| {
        let mut row = vec![bytes(u64::from(size))];
        for &transport in transports {
            row.extend([0.0, LOSS].map(|loss| shown(m.mean(Point { transport, size, loss }, 0), 2)));
            row.push(shown(kept(m, transport, size), 1) + " %");
        }
        row
    };
    Table { title: "Mbit/s, and the part that is kept".into(), columns, rows: sizes.iter().map(row).collect() }
}

fn figures(m: &Measured) -> Figures {
    let row = |(p, [spread]): &(Point, [Option<Spread>; 1])| {
        vec![
            p.transport.to_string().into(),
            f64::from(p.size).into(),
            p.loss.into(),
            spread.map(|s| s.mean).into(),
            spread.map(|s| s.deviation).into(),
            spread.map(|s| s.lowest).into(),
            spread.map(|s| s.highest).into(),
            (spread.map_or(0, |s| s.seeds) as f64).into(),
            (p.loss > 0.0).then(|| kept(m, p.transport, p.size)).flatten().into(),
        ]
    };
    Figures {
        columns: vec![
            "transport",
            "bytes",
            "loss",
            "goodput_mbps",
            "deviation_mbps",
            "min_mbps",
            "max_mbps",
            "seeds",
            "kept_percent",
        ],
        rows: m.points().map(row).collect(),
    }
}

fn size_axis() -> Axis {
    Axis::new("Message size", Scale::Bytes)
}

fn goodput(m: &Measured, transports: &[Transport], sizes: &[u32]) -> Panel {
    let points = |transport, loss| {
        sizes.iter().map(move |&size| (f64::from(size), m.spread(Point { transport, size, loss }, 0)))
    };
    let mut series: Vec<Series> =
        transports.iter().enumerate().map(|(hue, &t)| measured(t, hue, points(t, LOSS))).collect();
    if let Some(&first) = transports.first() {
        let clean = points(first, 0.0).filter_map(|(x, spread)| Some(Dot::exact(x, spread?.mean)));
        series.push(Series::new(format!("{first} without loss"), Kind::Theory, 0, clean.collect()));
    }
    Panel {
        title: "Small messages, loss 0.1 %, RTT 40 ms".into(),
        x: size_axis(),
        y: Axis::new("Goodput (Mbit/s)", Scale::Log),
        series,
    }
}

fn kept_panel(m: &Measured, transports: &[Transport], sizes: &[u32]) -> Panel {
    let series = |(hue, &transport): (usize, &Transport)| {
        let clean = |size| m.mean(Point { transport, size, loss: 0.0 }, 0);
        let part = |size: u32| {
            let (spread, clean) = (m.spread(Point { transport, size, loss: LOSS }, 0)?, clean(size)?);
            Some(spread.times(100.0 / clean))
        };
        measured(transport, hue, sizes.iter().map(|&size| (f64::from(size), part(size))))
    };
    Panel {
        title: "Part that is kept of the goodput without loss".into(),
        x: size_axis(),
        y: Axis::new("Goodput kept (%)", Scale::Linear),
        series: transports.iter().enumerate().map(series).collect(),
    }
}

fn notes() -> Vec<String> {
    vec![
        "Of figure 12 the text states no figure: LoWAR is \"nearly equivalent to lossless conditions\", a CX-5 is reduced. Sizes, and the (r, c) it was made with, are not stated either."
            .into(),
        "The queue of 128 is the bound here, not the line: 128 messages a round trip. So repair packets cost no goodput, and what a loss costs is the wait for it.".into(),
    ]
}
