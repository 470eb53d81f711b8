//! `lowar-goodput --dev`: goodput against loss between two NICs in real time, on a wire that the fault injector makes long.

use std::time::Duration;

use softnic_fault_injector::Spec;
use softnic_perf::{Measured, Op, stop};
use softnic_sim::table;
use softnic_transports::Transport;
use softnic_wire::PathMtu;

use super::device::{Ends, Link, Load, measure};
use super::outcome::{Figures, Outcome, Table, percent, shown, spread_shown};
use super::plot;
use super::pool::Progress;
use super::stats::{Spread, ratio};
use super::theory::Path;
use super::{Setting, lowar};
use crate::chart::{Axis, Chart, Panel, Scale, smooth};

const TRANSPORTS: [Transport; 3] = [Transport::Rc, Transport::SR, lowar(32, 1)];
/// More than the paper's, because fewer packets fit a round trip.
const LOSSES: [f64; 5] = [0.0, 1e-4, 5e-4, 1e-3, 5e-3];
const LOSSES_QUICK: [f64; 2] = [0.0, 1e-3];
const RTT: Duration = Duration::from_millis(40);
const SECONDS: f64 = 4.0;
const SECONDS_QUICK: f64 = 1.0;
const SIZE: u32 = 64 << 10;
const MTU: PathMtu = PathMtu::B1024;
/// Local ACK timeout: 268 ms.
const TIMEOUT: u8 = 16;
/// What [`table`] reckons with.
const TABLE_RATE: f64 = 10e9;
/// The fault injector of a device keeps 4096 frames, and loses what comes beyond them: what fits the round trip must be fewer.
pub(super) const MAX_RATE: u64 = 800_000_000;

#[derive(Debug, Clone, Copy, PartialEq)]
struct Point {
    transport: Transport,
    loss: f64,
}

pub(super) fn run(setting: &Setting, ends: &Ends, rate: u64) -> Result<Outcome, String> {
    let transports = setting.transports(&TRANSPORTS);
    let (losses, seconds) = if setting.quick { (&LOSSES_QUICK[..], SECONDS_QUICK) } else { (&LOSSES[..], SECONDS) };
    let each = |&loss: &f64| transports.iter().map(move |&transport| Point { transport, loss }).collect::<Vec<_>>();
    let points: Vec<Point> = losses.iter().flat_map(each).collect();
    let seeds = match setting.seeds {
        None => vec![setting.first_seed],
        Some(_) => setting.seeds(),
    };
    let of = points.len() * seeds.len();
    let mut progress = Progress::new(setting.name, of);
    let mut runs = 0;
    let mut measured = Vec::new();
    for point in points {
        let mut values = Vec::new();
        for &seed in &seeds {
            let value = if stop::requested() { None } else { goodput(ends, rate, point, seed, seconds)? };
            runs += usize::from(value.is_some());
            progress.tell(runs);
            values.push(value);
        }
        measured.push((point, Spread::of(values)));
    }
    drop(progress);
    Ok(outcome(setting, &measured, &transports, losses, (ends, rate), seconds, (runs, of)))
}

/// Packets that fit the emulated link's round trip.
fn bdp(rate: u64) -> f64 {
    table::bdp(RTT) * rate as f64 / TABLE_RATE
}

fn formula(loss: f64, rate: u64) -> f64 {
    table::go_back_n(0.0, RTT) * rate as f64 / TABLE_RATE / (1.0 + loss * bdp(rate))
}

/// One run; `None` where Ctrl-C ended it.
fn goodput(ends: &Ends, rate: u64, point: Point, seed: u64, seconds: f64) -> Result<Option<f64>, String> {
    let link = Link { rate, rtt: RTT, loss: point.loss, faults: Spec::default() };
    let load = Load {
        op: Op::WriteBw,
        transport: point.transport,
        size: SIZE,
        mtu: MTU,
        qps: 1,
        // What fits the round trip, and little more, for the rest would wait before the bottleneck and make it longer.
        depth: (bdp(rate) * f64::from(MTU.bytes()) / f64::from(SIZE)).ceil() as u32 + 2,
        cc: None,
        timeout: TIMEOUT,
        seconds,
    };
    let run = measure(ends, &link, &load, seed)?;
    Ok(run.and_then(|run| match run.measured {
        Measured::Bandwidth(rates) => Some(rates.average_gbps()),
        Measured::Latency(_) => None,
    }))
}

fn outcome(
    setting: &Setting,
    measured: &[(Point, Option<Spread>)],
    transports: &[Transport],
    losses: &[f64],
    (ends, line): (&Ends, u64),
    seconds: f64,
    (runs, of): (usize, usize),
) -> Outcome {
    let spread = |transport, loss| measured.iter().find(|(p, _)| *p == Point { transport, loss }).and_then(|(_, s)| *s);
    let mean = |transport, loss| spread(transport, loss).map(|s| s.mean);
    let mut columns = vec!["loss".to_string(), "formula".into()];
    for transport in transports {
        let beside = if *transport == Transport::Rc { "rc/formula".into() } else { format!("{transport}/rc") };
        columns.extend([transport.to_string(), beside]);
    }
    let row = |&loss: &f64| {
        let expected = formula(loss, line);
        let mut row = vec![percent(loss), format!("{expected:.3}")];
        for &transport in transports {
            let beside = if transport == Transport::Rc { Some(expected) } else { mean(Transport::Rc, loss) };
            row.extend([spread_shown(spread(transport, loss), 3), shown(ratio(mean(transport, loss), beside), 2)]);
        }
        row
    };
    let figure = |(p, spread): &(Point, Option<Spread>)| {
        vec![
            p.transport.to_string().into(),
            p.loss.into(),
            spread.map(|s| s.mean).into(),
            spread.map(|s| s.deviation).into(),
            (spread.map_or(0, |s| s.seeds) as f64).into(),
            (p.transport == Transport::Rc).then(|| formula(p.loss, line)).into(),
        ]
    };
    let path = Path { rate: line, rtt: RTT, mtu: MTU.bytes(), connections: 1 };
    let mut series = Vec::new();
    for (hue, &transport) in transports.iter().enumerate() {
        series.push(plot::measured(transport, hue, losses.iter().map(|&loss| (loss, spread(transport, loss)))));
        let expected = smooth(losses).into_iter().map(|loss| (loss, path.goodput_gbps(transport, loss)));
        series.extend(plot::theory(transport, hue, expected));
    }
    let rate = line as f64 / 1e9;
    Outcome {
        what: format!(
            "Goodput in Gbit/s in real time on {}: a link of {rate} Gbit/s and a round trip of 40 ms, both emulated; MTU 1024, WRITEs of 64 KiB, as many outstanding as fit \
             the round trip, loss in both directions; {seconds} s each.",
            ends.device
        ),
        tables: vec![Table {
            title: format!("RTT 40 ms, {rate} Gbit/s, 1 connection"),
            columns,
            rows: losses.iter().map(row).collect(),
        }],
        figures: Figures {
            columns: vec!["transport", "loss", "goodput_gbps", "deviation_gbps", "seeds", "formula_gbps"],
            rows: measured.iter().map(figure).collect(),
        },
        chart: Chart {
            panels: vec![Panel {
                title: format!("{}, RTT 40 ms, {rate} Gbit/s", ends.device),
                x: plot::loss_axis(),
                y: Axis::new("Goodput (Gbit/s)", Scale::Linear),
                series,
            }],
            caption: plot::caption(setting, plot::GOODPUT_THEORY),
        },
        notes: vec![
            format!(
                "A round trip holds {:.0} packets here, in the paper {:.0}: the same loss costs so much less. Real time: the figures differ from run to run.",
                bdp(line),
                table::bdp(RTT)
            ),
            "What waits for one lost packet fills the queue, which holds no more than a round trip: sr sends nothing new meanwhile, and has less goodput here than with the long queue of the simulated runs.".into(),
        ],
        runs,
        of,
        ..Outcome::default()
    }
}
