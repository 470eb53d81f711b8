//! `lowar-burst`: goodput where losses come in bursts, by how long these are.

use std::time::Duration;

use softnic_fault_injector::Spec;
use softnic_sim::Options;
use softnic_sim::table;
use softnic_transports::Transport;

use super::bulk::{Bulk, DEPTH};
use super::outcome::{Beside, Bound, Figures, Goal, Outcome, Table, shown, spread_shown};
use super::paper;
use super::plot::{self, measured};
use super::race::{Race, lowest, race};
use super::stats::{Spread, ratio};
use super::{Setting, lowar};
use crate::chart::{Axis, Chart, Panel, Scale};

const TRANSPORTS: [Transport; 3] = [Transport::Rc, Transport::SR, lowar(64, 8)];
/// Packets of a burst; 0 for none at all.
const LENGTHS: [u32; 8] = [0, 2, 4, 6, 8, 9, 10, 12];
const LENGTHS_QUICK: [u32; 3] = [0, 2, 8];
/// Chances that a packet of a burst is lost.
const HIGH: [f64; 2] = [0.3, 0.7];
/// Chance that a burst begins with a packet.
const ENTER: f64 = 1e-4;
/// The text does not say which round trip; 40 ms is that of its other figures.
const RTT: Duration = Duration::from_millis(40);
const ROUND_TRIPS: f64 = 40.0;
const ROUND_TRIPS_QUICK: f64 = 5.0;
const FEWEST: u64 = 64;
const MAIN: Transport = lowar(64, 8);

#[derive(Debug, Clone, Copy, PartialEq)]
struct Point {
    transport: Transport,
    high: f64,
    length: u32,
}

impl Point {
    /// What Go-Back-N should reach: a burst of which something is lost costs a round trip.
    fn formula(&self) -> f64 {
        let hit = 1.0 - (1.0 - self.high).powi(self.length as i32);
        table::go_back_n(ENTER * hit, RTT)
    }

    fn options(&self, round_trips: f64, seed: u64) -> Result<Options, String> {
        let faults: Spec = match self.length {
            0 => Spec::default(),
            length => format!("burst={ENTER}:{}:{length}", self.high).parse().map_err(|e| format!("{e}"))?,
        };
        let (transport, go_back_n) = (self.transport, self.formula());
        let bulk = Bulk { transport, connections: 1, rtt: RTT, go_back_n, fewest: FEWEST };
        Ok(bulk.options(round_trips, faults, seed))
    }
}

type Measured = Race<Point, 1>;

pub(super) fn run(setting: &Setting) -> Result<Outcome, String> {
    let transports = setting.transports(&TRANSPORTS);
    let (lengths, round_trips) = match setting.quick {
        false => (&LENGTHS[..], ROUND_TRIPS),
        true => (&LENGTHS_QUICK[..], ROUND_TRIPS_QUICK),
    };
    let mut points = Vec::new();
    for high in HIGH {
        for &length in lengths {
            points.extend(transports.iter().map(|&transport| Point { transport, high, length }));
        }
    }
    let seeds = setting.seeds();
    let seeds_of = |point: &Point| if point.length == 0 { seeds[..1].to_vec() } else { seeds.clone() };
    let options = |point: &Point, seed| point.options(round_trips, seed);
    let m = race(setting, &points, seeds_of, options, |report| [report.goodput_gbps])?;
    Ok(Outcome {
        what: format!(
            "Goodput in Gbit/s: 10 Gbit/s, RTT 40 ms, MTU 1024, WRITEs of 1 MiB, {DEPTH} outstanding; a burst begins with a chance of 0.01 % a packet, in both directions, \
             and each of its packets is lost with the chance p_high; {}; about {round_trips} round trips each.",
            setting.means()
        ),
        tables: HIGH.map(|high| table_of(&m, &transports, lengths, high)).into(),
        figures: figures(&m),
        chart: Chart {
            panels: HIGH.map(|high| panel(&m, &transports, lengths, high)).into(),
            caption: plot::caption(
                setting,
                "Dashed: what is left of the line rate where each burst with a loss costs rc a round trip.",
            ),
        },
        goals: HIGH.map(|high| goal(&m, lengths, high)).into(),
        beside: vec![Beside { stated: paper::BURST_GOODPUT, ours: flat(&m, lengths) }],
        notes: notes(),
        runs: m.runs,
        of: m.of,
        unjudged: None,
    })
}

/// Lengths that (64, 8) repairs whatever is lost of them.
fn short(lengths: &[u32]) -> impl Iterator<Item = u32> {
    lengths.iter().copied().filter(|length| (1..=8).contains(length))
}

/// The lowest goodput of the main transport with bursts of up to 8.
fn flat(m: &Measured, lengths: &[u32]) -> Option<f64> {
    let all = HIGH.iter().flat_map(|&high| short(lengths).map(move |length| Point { transport: MAIN, high, length }));
    lowest(all.map(|point| m.mean(point, 0)))
}

fn goal(m: &Measured, lengths: &[u32], high: f64) -> Goal {
    let at = |length| m.mean(Point { transport: MAIN, high, length }, 0);
    Goal {
        what: format!("goodput of {MAIN} over that without bursts, lowest for bursts of up to 8, p_high {high}"),
        bound: Bound::AtLeast(0.98),
        measured: ratio(lowest(short(lengths).map(at)), at(0)),
    }
}

fn table_of(m: &Measured, transports: &[Transport], lengths: &[u32], high: f64) -> Table {
    let mut columns = vec!["burst".to_string()];
    for &transport in transports {
        columns.push(transport.to_string());
        match transport {
            Transport::Rc => columns.extend(["formula", "rc/formula"].map(String::from)),
            _ => columns.push(format!("{transport}/rc")),
        }
        if transport == MAIN {
            columns.extend(["LoWAR (paper)", "ours/paper"].map(String::from));
        }
    }
    let row = |&length: &u32| {
        let at = |transport| Point { transport, high, length };
        let mut row = vec![if length == 0 { "none".into() } else { format!("{length} packets") }];
        for &transport in transports {
            let mean = m.mean(at(transport), 0);
            row.push(spread_shown(m.spread(at(transport), 0), 3));
            match transport {
                Transport::Rc => {
                    let formula = at(transport).formula();
                    row.extend([format!("{formula:.3}"), shown(ratio(mean, Some(formula)), 3)]);
                }
                _ => row.push(shown(ratio(mean, m.mean(at(Transport::Rc), 0)), 2)),
            }
            if transport == MAIN {
                let theirs = (1..=8).contains(&length).then_some(paper::BURST_GOODPUT.value);
                row.push(theirs.map_or("not stated".into(), |v| format!("about {v}")));
                row.push(shown(ratio(mean, theirs), 2));
            }
        }
        row
    };
    Table { title: format!("p_high {high}"), columns, rows: lengths.iter().map(row).collect() }
}

fn figures(m: &Measured) -> Figures {
    let row = |(p, [spread]): &(Point, [Option<Spread>; 1])| {
        vec![
            p.transport.to_string().into(),
            p.high.into(),
            f64::from(p.length).into(),
            spread.map(|s| s.mean).into(),
            spread.map(|s| s.deviation).into(),
            spread.map(|s| s.lowest).into(),
            spread.map(|s| s.highest).into(),
            (spread.map_or(0, |s| s.seeds) as f64).into(),
            (p.transport == Transport::Rc).then(|| p.formula()).into(),
        ]
    };
    Figures {
        columns: vec![
            "transport",
            "p_high",
            "burst",
            "goodput_gbps",
            "deviation_gbps",
            "min_gbps",
            "max_gbps",
            "seeds",
            "formula_gbps",
        ],
        rows: m.points().map(row).collect(),
    }
}

fn panel(m: &Measured, transports: &[Transport], lengths: &[u32], high: f64) -> Panel {
    let mut series = Vec::new();
    for (hue, &transport) in transports.iter().enumerate() {
        let at = |length: u32| Point { transport, high, length };
        series.push(measured(transport, hue, lengths.iter().map(|&l| (f64::from(l), m.spread(at(l), 0)))));
        let last = lengths.iter().copied().max().unwrap_or(0);
        let expected = (0..=last).map(|l| (f64::from(l), (transport == Transport::Rc).then(|| at(l).formula())));
        series.extend(plot::theory(transport, hue, expected));
    }
    Panel {
        title: format!("Loss within a burst {high}, RTT 40 ms"),
        x: Axis::new("Length of a burst (packets; 0: no bursts)", Scale::Linear),
        y: Axis::new("Goodput (Gbit/s)", Scale::Linear),
        series,
    }
}

fn notes() -> Vec<String> {
    let of_line = table::go_back_n(0.0, RTT);
    vec![
        format!(
            "(64, 8) sends 8 repair packets for 64: of {of_line:.2} Gbit/s of payload that the line takes {:.2} are left, which is the paper's \"approximately 8\".",
            of_line * 64.0 / 72.0
        ),
        "Beyond 8 packets two of a burst can be of the same lane of eight, which one repair packet cannot restore; then it goes back, as rc does. The paper says that LoWAR keeps \
         its resistance there, because a burst may fall into two blocks, and gives no figure; of bursts of 9 to 12 packets among 72 most fall into one, and goodput falls with the chance \
         that two of a lane are lost."
            .into(),
        "Not stated in the text: the round trip, and what the CX-5 reached. rc falls with the length only as far as more bursts lose anything: a burst costs it one round trip \
         however long it is."
            .into(),
    ]
}
