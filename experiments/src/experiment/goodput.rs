//! `lowar-goodput`: goodput by loss, round trip and number of connections.

use std::time::Duration;

use softnic_fault_injector::{Fault, Spec};
use softnic_sim::Options;
use softnic_sim::table;
use softnic_transports::Transport;

use super::bulk::{Bulk, DEPTH};
use super::outcome::{Beside, Bound, Figures, Goal, Outcome, Table, percent, shown, spread_shown, stated, time_shown};
use super::paper;
use super::plot::{self, measured, stated_points};
use super::race::{Race, highest, lowest, race};
use super::stats::{Spread, ratio};
use super::theory::Path;
use super::{Setting, lowar};
use crate::chart::{Axis, Panel, Scale, smooth};

const TRANSPORTS: [Transport; 4] = [Transport::Rc, Transport::SR, lowar(32, 1), lowar(8, 1)];
const LOSSES: [f64; 6] = [0.0, 1e-5, 5e-5, 1e-4, 5e-4, 1e-3];
const RTTS: [Duration; 2] = [Duration::from_millis(40), Duration::from_millis(80)];
/// Figure 3a has a local network too, of which the text gives no round trip.
const LAN_LOSSES: [f64; 5] = [0.0, 1e-3, 5e-3, 1e-2, 5e-2];
const LAN_RTT: Duration = Duration::from_micros(10);
const CONNECTIONS: [u32; 2] = [1, 16];
const LINE_RATE: u64 = 10_000_000_000;
const MTU: u32 = 1024;
/// Round trips that a run takes, about: the last one, in which nothing new is sent, weighs a fortieth.
const ROUND_TRIPS: f64 = 40.0;
const ROUND_TRIPS_QUICK: f64 = 8.0;
/// Messages of a run, at least: as many losses at the highest chance of loss.
const FEWEST: u64 = 64;
const FEWEST_LAN: u64 = 256;

/// The transport that the goals and the paper's figures are of.
const MAIN: Transport = lowar(32, 1);

/// A point of the chart.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Point {
    transport: Transport,
    connections: u32,
    rtt: Duration,
    loss: f64,
}

impl Point {
    /// What Go-Back-N should reach: each loss costs a connection what it sends in a round trip, its part of what fits the path.
    fn formula(&self) -> f64 {
        let loss_free = table::go_back_n(0.0, self.rtt);
        loss_free / (1.0 + self.loss * table::bdp(self.rtt) / f64::from(self.connections))
    }

    fn options(&self, round_trips: f64, seed: u64) -> Options {
        let Point { transport, connections, rtt, loss } = *self;
        let fewest = if rtt == LAN_RTT { FEWEST_LAN } else { FEWEST };
        let faults = Spec { faults: vec![Fault::Loss(loss)], ..Spec::default() };
        Bulk { transport, connections, rtt, go_back_n: self.formula(), fewest }.options(round_trips, faults, seed)
    }
}

/// Means over the seeds, by point.
struct Measured(Race<Point, 1>);

impl Measured {
    fn spread(&self, transport: Transport, connections: u32, rtt: Duration, loss: f64) -> Option<Spread> {
        self.0.spread(Point { transport, connections, rtt, loss }, 0)
    }

    fn mean(&self, transport: Transport, connections: u32, rtt: Duration, loss: f64) -> Option<f64> {
        self.spread(transport, connections, rtt, loss).map(|s| s.mean)
    }

    /// Of the main transport over rc.
    fn over_rc(&self, connections: u32, rtt: Duration, loss: f64) -> Option<f64> {
        let of = |transport| self.mean(transport, connections, rtt, loss);
        ratio(of(MAIN), of(Transport::Rc))
    }
}

pub(super) fn run(setting: &Setting) -> Result<Outcome, String> {
    let transports = setting.transports(&TRANSPORTS);
    let (losses, rtts, connections, round_trips) = match setting.quick {
        false => (&LOSSES[..], &RTTS[..], &CONNECTIONS[..], ROUND_TRIPS),
        true => (&[0.0, 5e-5, 1e-4][..], &RTTS[..1], &CONNECTIONS[..1], ROUND_TRIPS_QUICK),
    };
    let mut points = Vec::new();
    for &connections in connections {
        for &rtt in rtts {
            for &loss in losses {
                points.extend(transports.iter().map(|&transport| Point { transport, connections, rtt, loss }));
            }
        }
    }
    if !setting.quick {
        for loss in LAN_LOSSES {
            points.extend(transports.iter().map(|&transport| Point { transport, connections: 1, rtt: LAN_RTT, loss }));
        }
    }
    let seeds = setting.seeds();
    // Nothing is random where nothing is lost.
    let seeds_of = |point: &Point| if point.loss == 0.0 { seeds[..1].to_vec() } else { seeds.clone() };
    let options = |point: &Point, seed| Ok(point.options(round_trips, seed));
    let measured = Measured(race(setting, &points, seeds_of, options, |report| [report.goodput_gbps])?);
    let mut outcome = Outcome {
        what: format!(
            "Goodput in Gbit/s: 10 Gbit/s, MTU 1024, WRITEs of 1 MiB, {DEPTH} outstanding on each connection, loss in both directions; \
             {}; about {round_trips} round trips each.",
            setting.means()
        ),
        figures: figures(&measured),
        goals: goals(&measured, losses, rtts),
        beside: beside(&measured),
        notes: notes(&measured),
        runs: measured.0.runs,
        of: measured.0.of,
        ..Outcome::default()
    };
    for &connections in connections {
        for &rtt in rtts {
            outcome.tables.push(table_of(&measured, &transports, connections, rtt, losses));
            outcome.chart.panels.push(panel(&measured, &transports, connections, rtt, losses));
        }
    }
    if !setting.quick {
        outcome.tables.push(table_of(&measured, &transports, 1, LAN_RTT, &LAN_LOSSES));
        outcome.chart.panels.push(panel(&measured, &transports, 1, LAN_RTT, &LAN_LOSSES));
    }
    outcome.chart.caption = plot::caption(setting, plot::GOODPUT_THEORY);
    Ok(outcome)
}

fn title(connections: u32, rtt: Duration) -> String {
    let plural = if connections == 1 { "" } else { "s" };
    format!("RTT {}, {connections} connection{plural}", time_shown(rtt))
}

fn table_of(m: &Measured, transports: &[Transport], connections: u32, rtt: Duration, losses: &[f64]) -> Table {
    let mut columns = vec!["loss".to_string()];
    for &transport in transports {
        columns.push(transport.to_string());
        match transport {
            Transport::Rc => columns.extend(["formula", "rc/formula", "CX-5 (paper)", "rc/CX-5"].map(String::from)),
            _ => columns.push(format!("{transport}/rc")),
        }
    }
    let row = |&loss: &f64| {
        let rc = m.mean(Transport::Rc, connections, rtt, loss);
        let mut row = vec![percent(loss)];
        for &transport in transports {
            let spread = m.spread(transport, connections, rtt, loss);
            let mean = spread.map(|s| s.mean);
            row.push(spread_shown(spread, 3));
            if transport == Transport::Rc {
                let formula = Point { transport, connections, rtt, loss }.formula();
                let cx5 = paper::cx5_goodput(loss, rtt, connections);
                row.extend([format!("{formula:.3}"), shown(ratio(mean, Some(formula)), 3), stated(cx5)]);
                row.push(shown(ratio(mean, cx5.map(|s| s.value)), 2));
            } else {
                row.push(shown(ratio(mean, rc), 2));
            }
        }
        row
    };
    Table { title: title(connections, rtt), columns, rows: losses.iter().map(row).collect() }
}

fn figures(m: &Measured) -> Figures {
    let row = |(p, [spread]): &(Point, [Option<Spread>; 1])| {
        let mean = spread.map(|s| s.mean);
        let is_rc = p.transport == Transport::Rc;
        let cx5 = paper::cx5_goodput(p.loss, p.rtt, p.connections).filter(|_| is_rc).map(|s| s.value);
        vec![
            p.transport.to_string().into(),
            f64::from(p.connections).into(),
            (p.rtt.as_secs_f64() * 1e3).into(),
            p.loss.into(),
            mean.into(),
            spread.map(|s| s.deviation).into(),
            spread.map(|s| s.lowest).into(),
            spread.map(|s| s.highest).into(),
            (spread.map_or(0, |s| s.seeds) as f64).into(),
            is_rc.then(|| p.formula()).into(),
            cx5.into(),
            ratio(mean, cx5).into(),
        ]
    };
    Figures {
        columns: vec![
            "transport",
            "connections",
            "rtt_ms",
            "loss",
            "goodput_gbps",
            "deviation_gbps",
            "min_gbps",
            "max_gbps",
            "seeds",
            "formula_gbps",
            "paper_cx5_gbps",
            "ratio_to_paper",
        ],
        rows: m.0.points().map(row).collect(),
    }
}

fn panel(m: &Measured, transports: &[Transport], connections: u32, rtt: Duration, losses: &[f64]) -> Panel {
    let mut series = Vec::new();
    for (hue, &transport) in transports.iter().enumerate() {
        let points = losses.iter().map(|&loss| (loss, m.spread(transport, connections, rtt, loss)));
        series.push(measured(transport, hue, points));
        let path = Path { rate: LINE_RATE, rtt, mtu: MTU, connections };
        let expected = smooth(losses).into_iter().map(|loss| (loss, path.goodput_gbps(transport, loss)));
        series.extend(plot::theory(transport, hue, expected));
    }
    let cx5 = losses.iter().map(|&loss| (loss, paper::cx5_goodput(loss, rtt, connections).map(|s| s.value)));
    series.extend(stated_points("CX-5 (LoWAR paper)", plot::STATED_HUE, cx5));
    Panel {
        title: title(connections, rtt),
        x: plot::loss_axis(),
        y: Axis::new("Goodput (Gbit/s)", Scale::Linear),
        series,
    }
}

fn goals(m: &Measured, losses: &[f64], rtts: &[Duration]) -> Vec<Goal> {
    let at = |rtt, loss| format!("{rtt:?}, {}, 1 connection", percent(loss));
    let faster = [(RTTS[0], 5e-5, 2.0), (RTTS[0], 1e-4, 4.0), (RTTS[1], 1e-4, 7.0)].map(|(rtt, loss, least)| Goal {
        what: format!("goodput of {MAIN} / rc, {}", at(rtt, loss)),
        bound: Bound::AtLeast(least),
        measured: m.over_rc(1, rtt, loss),
    });
    let mut goals: Vec<Goal> = faster.into();
    for &rtt in rtts {
        // Of the rate without loss a block's packets are left beside its repair packets.
        let whole = m.mean(Transport::Rc, 1, rtt, 0.0).map(|rate| rate * 32.0 / 33.0);
        let kept = losses.iter().filter(|&&loss| loss <= 5e-5).map(|&l| ratio(m.mean(MAIN, 1, rtt, l), whole));
        goals.push(Goal {
            what: format!("goodput of {MAIN} / (loss-free rc less the repair packets), lowest up to 0.005 %, {rtt:?}, 1 connection"),
            bound: Bound::AtLeast(0.95),
            measured: lowest(kept),
        });
    }
    // With several connections those that lost more end later, and leave the line to fewer at the end, which the formula knows nothing of.
    // And it leaves out losses of NAKs and of what is sent again, which are many at 5 %.
    let of_rc = m.0.points().filter(|(p, _)| (p.transport, p.connections) == (Transport::Rc, 1) && p.rtt != LAN_RTT);
    goals.push(Goal {
        what: "rc / Go-Back-N formula, farthest from 1, 40 and 80 ms, 1 connection".into(),
        bound: Bound::AtMost(0.2),
        measured: highest(of_rc.map(|(p, [spread])| spread.map(|s| (s.mean / p.formula() - 1.0).abs()))),
    });
    goals
}

fn beside(m: &Measured) -> Vec<Beside> {
    let rc = |loss| m.mean(Transport::Rc, 1, RTTS[0], loss);
    let mut beside = vec![
        Beside { stated: paper::CX5_LOSS_FREE, ours: rc(0.0) },
        Beside { stated: paper::CX5_AT_1E5, ours: rc(1e-5) },
    ];
    beside.extend(paper::OVER_CX5.map(|(loss, rtt, connections, stated)| Beside {
        stated,
        ours: m.over_rc(connections, Duration::from_millis(rtt), loss),
    }));
    let kept = ratio(m.mean(MAIN, 16, RTTS[0], 1e-3), m.mean(MAIN, 16, RTTS[0], 0.0)).map(|part| part * 100.0);
    beside.push(Beside { stated: paper::KEPT_BY_16, ours: kept });
    beside
}

fn notes(m: &Measured) -> Vec<String> {
    let mut notes = Vec::new();
    if let (Some(clean), Some(lossy)) =
        (m.mean(Transport::Rc, 1, RTTS[0], 0.0), m.mean(Transport::Rc, 1, RTTS[0], 1e-5))
    {
        // What a loss cost: the time that the goodput lacks, for each lost packet, in round trips.
        let cost = |clean: f64, lossy: f64| (clean / lossy - 1.0) / (1e-5 * table::bdp(RTTS[0]));
        notes.push(format!(
            "Our rc sends a NAK as soon as it sees the gap and goes back to it at once, so a loss costs one round trip ({:.2} at 0.001 %, 40 ms). \
             The paper's CX-5 goes from {} to {} Gbit/s there, which is {:.2} round trips for each loss. That is why rc here beats the CX-5 there, and why \
             what is gained over it is less at low loss.",
            cost(clean, lossy),
            paper::CX5_LOSS_FREE.value,
            paper::CX5_AT_1E5.value,
            cost(paper::CX5_LOSS_FREE.value, paper::CX5_AT_1E5.value)
        ));
    }
    let worst = |connections| {
        let of_rc = m.0.points().filter(|(p, _)| (p.transport, p.connections) == (Transport::Rc, connections));
        lowest(of_rc.map(|(p, [spread])| spread.map(|s| s.mean / p.formula())))
    };
    if let Some(worst) = worst(16) {
        notes.push(format!(
            "With 16 connections rc has down to {worst:.2} of the formula: those that lost more end later, and at the end fewer of them share the line. A real run that goes on would not see this."
        ));
    }
    notes.push(
        "The paper writes that goodput is \"increased by 2.05 to 5.01 times\" at 40 ms; the table takes this for the ratio. Its 2.92 Gbit/s of the CX-5, times 2.05, \
         would be 6.0 Gbit/s where it says that LoWAR keeps its high goodput, so 3.05 to 6.01 as much may be meant."
            .into(),
    );
    let lan = |loss| m.mean(Transport::Rc, 1, LAN_RTT, loss);
    if let Some(kept) = ratio(lan(5e-3), lan(0.0)) {
        notes.push(format!(
            "On a local network the paper sees a significant reduction only beyond 0.5 %; at 10 µs our rc keeps {:.1} % of its goodput at 0.5 %.",
            kept * 100.0
        ));
    }
    if let (Some(sr), Some(lowar)) = (m.mean(Transport::SR, 1, RTTS[0], 1e-3), m.mean(MAIN, 1, RTTS[0], 1e-3)) {
        notes.push(format!(
            "sr has more goodput than {MAIN} wherever loss is high ({sr:.2} and {lowar:.2} Gbit/s at 0.1 %, 40 ms), with a bitmap of four bandwidth-delay products at both ends, which the paper's \
             hardware is to do without; what lowar saves is the round trip of a flow that lost something (lowar-fct)."
        ));
    }
    notes.push(
        "Not stated in the text: message size, how long a run took, what CX-5 and LoWAR reached at the other points (figure 9 is a chart)."
            .into(),
    );
    notes
}
