//! `lowar-overhead`: what repair packets and recovering add to the latency of 1 MB on a local network.

use std::time::Duration;

use softnic_fault_injector::{Script, Spec};
use softnic_sim::Options;
use softnic_sim::table;
use softnic_transports::Transport;
use softnic_transports::qp::PayloadMode;

use super::outcome::{Beside, Figures, Outcome, Table, shown};
use super::paper;
use super::race::{Race, race};
use super::stats::{Spread, ratio};
use super::{Setting, lowar, over};
use crate::chart::{Axis, Chart, Kind, Panel, Point as Dot, Scale, Series};

const TRANSPORTS: [Transport; 9] = [
    Transport::Rc,
    Transport::SR,
    lowar(8, 1),
    lowar(16, 1),
    lowar(32, 1),
    lowar(64, 1),
    lowar(128, 1),
    lowar(64, 8),
    lowar(128, 16),
];
/// The text says "a 10Gbps LAN" and no more.
const RTT: Duration = Duration::from_micros(10);
/// Local ACK timeout, 4.2 ms: nothing is acknowledged while a block of 128 waits for its repair, and the usual one of four round trips is
/// shorter than that.
const TIMEOUT: u8 = 10;
const SIZE: u32 = 1 << 20;
const PACKETS: u64 = 1024;
/// Places within a block that a loss is tried at.
const PLACES: u64 = 8;
/// The lost packets of figure 13c.
const BURST: u64 = 16;
const DEEP: Transport = lowar(128, 16);

/// Which packets of the message are lost.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Lost {
    Nothing,
    /// One of a block in the middle.
    Middle,
    /// One of the last block.
    Last,
    /// One of each of the last two blocks.
    LastTwo,
    /// Sixteen in a row of the last block.
    Burst,
}

impl Lost {
    const ALL: [Lost; 5] = [Lost::Nothing, Lost::Middle, Lost::Last, Lost::LastTwo, Lost::Burst];

    fn name(self) -> &'static str {
        match self {
            Lost::Nothing => "nothing",
            Lost::Middle => "one of a middle block",
            Lost::Last => "one of the last block",
            Lost::LastTwo => "one of each of the last two blocks",
            Lost::Burst => "16 in a row of the last block",
        }
    }

    /// The packets, counted from 0, with blocks of `r`, when `place` of [`PLACES`] is tried.
    fn packets(self, r: u64, place: u64) -> Vec<u64> {
        let at = r * (2 * place + 1) / (2 * PLACES);
        match self {
            Lost::Nothing => vec![],
            Lost::Middle => vec![PACKETS / 2 + at],
            Lost::Last => vec![PACKETS - r + at],
            Lost::LastTwo => vec![PACKETS - 2 * r + at, PACKETS - r + at],
            Lost::Burst => {
                let first = PACKETS - r + r.saturating_sub(BURST) * place / (PLACES - 1);
                (first..(first + BURST).min(PACKETS)).collect()
            }
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq)]
struct Point {
    transport: Transport,
    lost: Lost,
}

impl Point {
    /// Packets of a block; without blocks there is no last one, and what is lost there tells the same.
    fn block(&self) -> u64 {
        match self.transport {
            Transport::Lowar(code) => code.r().into(),
            _ => 32,
        }
    }

    fn options(&self, place: u64, seed: u64) -> Result<Options, String> {
        let event = |packet: u64| {
            // A repair packet has the PSN of its block's first packet, and must not go with it.
            let opcode = match self.transport {
                Transport::Sr { .. } => "",
                _ if packet + 1 == PACKETS => ", opcode = \"RC_RDMA_WRITE_LAST\"",
                _ => ", opcode = \"RC_RDMA_WRITE_MIDDLE\"",
            };
            format!(
                r##"{{ action = "drop", direction = "ab", qpn = "#1", psn = "+{packet}", iteration = 1{opcode} }}"##
            )
        };
        let events: Vec<String> = self.lost.packets(self.block(), place).into_iter().map(event).collect();
        let script = match &events[..] {
            [] => Script::default(),
            events => Script::parse(&format!("event = [{}]", events.join(", "))).map_err(|e| e.to_string())?,
        };
        let options = Options {
            size: SIZE,
            count: 1,
            depth: 1,
            rtt: RTT,
            timeout: Some(TIMEOUT),
            faults: Spec { script, ..Spec::default() },
            payload: PayloadMode::Elided,
            seed,
            ..Options::default()
        };
        Ok(over(self.transport, options))
    }
}

type Measured = Race<Point, 3>;
/// Microseconds from the post to the completion.
const LATENCY: usize = 0;
/// Packets that were sent again.
const AGAIN: usize = 1;
/// Packets that the script dropped.
const DROPPED: usize = 2;

pub(super) fn run(setting: &Setting) -> Result<Outcome, String> {
    let mut transports = setting.transports(&TRANSPORTS);
    // What the others are held against.
    if !transports.contains(&Transport::Rc) {
        transports.insert(0, Transport::Rc);
    }
    let mut points = Vec::new();
    for &transport in &transports {
        // With fewer repair packets than losses nothing is recovered.
        let fits = |point: &Point| match point.transport {
            Transport::Lowar(code) => point.lost != Lost::Burst || u64::from(code.c()) >= BURST,
            _ => true,
        };
        points.extend(Lost::ALL.map(|lost| Point { transport, lost }).into_iter().filter(fits));
    }
    // Nothing is random here: instead of seeds the places of the loss are tried.
    let places = |point: &Point| if point.lost == Lost::Nothing { vec![0] } else { (0..PLACES).collect() };
    let options = |point: &Point, place| point.options(place, setting.first_seed);
    let m = race(setting, &points, places, options, |report| {
        let dropped = report.applied_events.iter().sum::<u64>() as f64;
        [report.completion_times.mean_ms() * 1e3, report.retransmitted_packets as f64, dropped]
    })?;
    for (point, figures) in m.points() {
        let wanted = point.lost.packets(point.block(), 0).len() as f64;
        if let Some(dropped) = figures[DROPPED].filter(|dropped| dropped.mean != wanted) {
            return Err(format!("{}: {} packets were lost instead of {wanted}", point.transport, dropped.mean));
        }
    }
    Ok(Outcome {
        what: "Latency of a WRITE of 1 MiB in µs, from post to completion: 10 Gbit/s, RTT 10 µs, MTU 1024, virtual time: what is computed takes none. \
               Recovering: means of eight places of the loss within its block."
            .into(),
        tables: vec![lossless(&m, &transports), recovering(&m, &transports)],
        figures: figures(&m),
        chart: Chart {
            panels: vec![lossless_panel(&m, &transports), recovering_panel(&m, &transports)],
            caption: "(b): means of eight places of the loss within its block; error bars, where the places differ, reach from the lowest to the highest.".into(),
        },
        beside: vec![
            Beside { stated: paper::TWO_BLOCKS, ours: over_one(&m, lowar(32, 1), Lost::LastTwo) },
            Beside { stated: paper::SIXTEEN_LOSSES, ours: over_one(&m, DEEP, Lost::Burst) },
        ],
        notes: notes(&m),
        runs: m.runs,
        of: m.of,
        ..Outcome::default()
    })
}

fn at(m: &Measured, transport: Transport, lost: Lost, figure: usize) -> Option<f64> {
    m.mean(Point { transport, lost }, figure)
}

/// How much later than without any loss over the same transport.
fn recovery(m: &Measured, transport: Transport, lost: Lost) -> Option<f64> {
    difference(at(m, transport, lost, LATENCY), at(m, transport, Lost::Nothing, LATENCY))
}

/// In whole picoseconds: what is less came from adding up.
fn difference(a: Option<f64>, b: Option<f64>) -> Option<f64> {
    Some(((a? - b?) * 1e6).round() / 1e6 + 0.0)
}

/// The same over that of one loss in the last block.
fn over_one(m: &Measured, transport: Transport, lost: Lost) -> Option<f64> {
    ratio(recovery(m, transport, lost), recovery(m, transport, Lost::Last))
}

/// How much later than rc where nothing is lost.
fn added(m: &Measured, transport: Transport) -> Option<f64> {
    difference(at(m, transport, Lost::Nothing, LATENCY), at(m, Transport::Rc, Lost::Nothing, LATENCY))
}

/// What the repair packets of a message take on the line, in µs: as long as data packets, and 24 bytes more at most.
fn repair_time(transport: Transport) -> Option<f64> {
    let Transport::Lowar(code) = transport else { return None };
    let packets = PACKETS.div_ceil(code.r().into()) * u64::from(code.c());
    Some(packets as f64 * RTT.as_secs_f64() / table::bdp(RTT) * 1e6)
}

fn lossless(m: &Measured, transports: &[Transport]) -> Table {
    let row = |&transport: &Transport| {
        let (added, repairs) = (added(m, transport), repair_time(transport));
        vec![
            transport.to_string(),
            shown(at(m, transport, Lost::Nothing, LATENCY), 2),
            shown(added, 2),
            shown(repairs, 2),
            shown(ratio(added, repairs), 2),
            "not stated".into(),
        ]
    };
    Table {
        title: "Lossless latency, µs (figure 13a)".into(),
        columns: ["transport", "1 MiB", "more than rc", "repairs on the line", "ratio", "paper"]
            .map(String::from)
            .into(),
        rows: transports.iter().map(row).collect(),
    }
}

fn recovering(m: &Measured, transports: &[Transport]) -> Table {
    let mut columns = vec!["transport".to_string()];
    let lost = [Lost::Middle, Lost::Last, Lost::LastTwo, Lost::Burst];
    columns.extend(lost.map(|l| l.name().to_string()));
    columns.push("sent again".into());
    let row = |&transport: &Transport| {
        let mut row = vec![transport.to_string()];
        row.extend(lost.map(|l| shown(recovery(m, transport, l), 2)));
        let again = lost.map(|l| at(m, transport, l, AGAIN).map_or("–".into(), |n| format!("{n:.0}")));
        row.push(again.join(" / "));
        row
    };
    Table {
        title:
            "Recovering latency, µs more than where nothing is lost (figures 13b, 13c); packets sent again in each case"
                .into(),
        columns,
        rows: transports.iter().map(row).collect(),
    }
}

fn figures(m: &Measured) -> Figures {
    let row = |(p, figures): &(Point, [Option<Spread>; 3])| {
        let of = |i: usize| figures[i].map(|s| s.mean);
        vec![
            p.transport.to_string().into(),
            p.lost.name().into(),
            of(DROPPED).into(),
            of(LATENCY).into(),
            figures[LATENCY].map(|s| s.deviation).into(),
            added(m, p.transport).filter(|_| p.lost == Lost::Nothing).into(),
            recovery(m, p.transport, p.lost).filter(|_| p.lost != Lost::Nothing).into(),
            of(AGAIN).into(),
        ]
    };
    Figures {
        columns: vec![
            "transport",
            "lost",
            "lost_packets",
            "latency_us",
            "deviation_us",
            "more_than_rc_us",
            "recovering_us",
            "sent_again",
        ],
        rows: m.points().map(row).collect(),
    }
}

/// A group of bars for each transport.
fn bars(transports: &[Transport]) -> Axis {
    Axis::new("Transport", Scale::Categories(transports.iter().map(Transport::to_string).collect()))
}

fn lossless_panel(m: &Measured, transports: &[Transport]) -> Panel {
    let points = |of: &dyn Fn(Transport) -> Option<f64>| {
        let all = transports.iter().enumerate();
        all.filter_map(|(i, &transport)| Some(Dot::exact(i as f64, of(transport)?))).collect::<Vec<_>>()
    };
    Panel {
        title: "Latency that 1 MiB takes longer than over rc, nothing lost".into(),
        x: bars(transports),
        y: Axis::new("Added latency (µs)", Scale::Linear),
        series: vec![
            Series::new("measured", Kind::Measured, 0, points(&|t| added(m, t))),
            Series::new("theory: time of the repair packets on the line", Kind::Theory, 0, points(&repair_time)),
        ],
    }
}

fn recovering_panel(m: &Measured, transports: &[Transport]) -> Panel {
    let coded: Vec<Transport> = transports.iter().copied().filter(|t| matches!(t, Transport::Lowar(_))).collect();
    let series = |(hue, lost): (usize, Lost)| {
        let point = |(i, &transport): (usize, &Transport)| {
            let (spread, clean) =
                (m.spread(Point { transport, lost }, LATENCY)?, at(m, transport, Lost::Nothing, LATENCY));
            let later = |latency: f64| difference(Some(latency), clean);
            let (low, high) = (later(spread.lowest)?, later(spread.highest)?);
            Some(Dot { x: i as f64, y: recovery(m, transport, lost)?, low, high })
        };
        let points = coded.iter().enumerate().filter_map(point).collect();
        Series::new(format!("lost: {}", lost.name()), Kind::Measured, hue, points)
    };
    Panel {
        title: "Latency that recovering adds to 1 MiB".into(),
        x: bars(&coded),
        y: Axis::new("Added latency (µs)", Scale::Linear),
        series: [Lost::Middle, Lost::Last, Lost::LastTwo].into_iter().enumerate().map(series).collect(),
    }
}

fn notes(m: &Measured) -> Vec<String> {
    let mut notes = vec![
        "The paper tells of latency with encoding alone and with decoding as well, which hardly differ. In virtual time nothing that is computed takes any: both are the same here. What a packet \
         costs the CPU is measured by the benchmarks (docs/performance.md), not by this."
            .to_string(),
    ];
    if let (Some(one), Some(middle)) = (recovery(m, lowar(32, 1), Lost::Last), recovery(m, lowar(32, 1), Lost::Middle))
    {
        notes.push(format!(
            "In the paper recovering takes longer with larger blocks, and twice as long for two of them, because its hardware drains its reordering buffer packet by packet. Here the buffer is drained in no \
             time, so a loss in the middle of a message delays its end by {middle:.2} µs, and one in the last block by the wait for the repair packets behind it: {one:.2} µs with (32, 1)."
        ));
    }
    if let (Some(one), Some(all)) = (recovery(m, DEEP, Lost::Last), recovery(m, DEEP, Lost::Burst)) {
        notes.push(format!(
            "With (128, 16) one loss waits for the repair packet of its own lane, in the mean the middle one of sixteen ({one:.2} µs), and sixteen losses for the last of them ({all:.2} µs)."
        ));
    }
    notes.push(
        "Where the last packet of the message is among those lost, which is so at one of the eight places of sixteen in a row, rc waits for its timeout, 4.2 ms here.".into(),
    );
    notes.push("Not stated in the text: any of figure 13's latencies in µs, the round trip of the LAN. CPU utilization (13d) is that of other hardware.".into());
    notes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_lost_packets_are_of_the_blocks_that_they_should_be() {
        for place in 0..PLACES {
            for r in [8, 16, 32, 64, 128] {
                let block = |packet: u64| (packet < PACKETS).then_some(packet / r);
                let last = PACKETS / r - 1;
                let blocks = |lost: Lost| lost.packets(r, place).into_iter().map(block).collect::<Vec<_>>();
                assert_eq!(blocks(Lost::Middle), [Some(PACKETS / 2 / r)]);
                assert_eq!(blocks(Lost::Last), [Some(last)]);
                assert_eq!(blocks(Lost::LastTwo), [Some(last - 1), Some(last)]);
                assert!(r < BURST || blocks(Lost::Burst) == [Some(last); BURST as usize]);
            }
        }
    }
}
