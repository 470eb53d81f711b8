//! `softnic race`: transports against each other over any grid of loss, round trip, rate, size and connections, in virtual time or on devices.

mod real_time;

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use softnic_fault_injector::{Fault, Spec, units};
use softnic_perf::options::{duration_arg, mtu_arg};
use softnic_perf::stop;
use softnic_runtime::api::DeviceSpec;
use softnic_sim::{Options, Report};
use softnic_transports::Transport;
use softnic_transports::qp::PayloadMode;
use softnic_wire::PathMtu;

use super::device::{self, EndArgs, Ends};
use super::outcome::{Figures, Outcome, Table, percent, shown, spread_shown, time_shown};
use super::output::Destination;
use super::plot::{self, measured};
use super::race::{Race, race};
use super::stats::{Spread, ratio};
use super::theory::Path;
use super::{Setting, Transports, lowar, over, transports_arg};
use crate::chart::{Axis, Panel, Scale, bytes, smooth};

/// Race transports over a grid, in virtual time or between two NICs on devices: a table, CSV and a chart
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  softnic race --loss 0,1e-4 --seeds 1                          # rc, sr and lowar at 10 Gbit/s and 1 ms: seconds
  softnic race --transports rc,sr --loss 1e-5..1e-2 --rtt 1ms,40ms --out race-results
  softnic race --loss 1e-3 --size 4K,64K --metric fct-p99 --seeds 1
  softnic race --loss 0 --fault reorder=1e-3:3,jitter=10us --json --seeds 1
  softnic race --dev mem --loss 0,1e-2 --seeds 1                # in real time, at 200 Mbit/s: six seconds
  softnic race --dev shm --loss 1e-3 --metric fct-p99 --seeds 1
  softnic race --server --dev afxdp:eth0                        # the other end of a real wire
  softnic race --dev afxdp:eth0 --connect 192.0.2.7 --rtt 1ms,10ms

Values of the grid have commas between them; A..B of losses stands for 1, 3, 10, 30 and so on times A, up to B. Every combination is
run with every seed, on all cores. The table goes to stdout, race.csv, race.svg and race.json (for softnic plot) to the folder of
--out. The same options and seed give the same files. `softnic experiment` has the grids of papers, and their figures beside ours.

With --dev the runs are in real time, one after the other: rate, round trip and loss are those of the fault injector of the devices,
and the figures are those of this machine. The files are race-wire.csv and so on.")]
pub struct Args {
    /// What to race, with commas between [default: rc,sr,lowar:32,1]
    #[arg(long, value_name = "TRANSPORT,…", value_parser = transports_arg)]
    transports: Option<Transports>,
    /// Chances of losing a packet, in both directions: 1e-4, 0.1%, 1e-5..1e-2
    #[arg(long, value_name = "P,…", value_parser = losses_arg, default_value = "0,1e-5..1e-2")]
    loss: Values<f64>,
    /// Round-trip times
    #[arg(long, value_name = "TIME,…", value_parser = |s: &str| list(s, units::parse_time), default_value = "1ms")]
    rtt: Values<Duration>,
    /// Line rates [default: 10Gbit; with --dev 200Mbit]
    #[arg(long, value_name = "RATE,…", value_parser = |s: &str| list(s, units::parse_rate))]
    rate: Option<Values<u64>>,
    /// Bytes of a message [default: 1M; with --dev 64K]
    #[arg(long, value_name = "SIZE,…", value_parser = |s: &str| list(s, size))]
    size: Option<Values<u32>>,
    /// Connections that share the link
    #[arg(long, value_name = "N,…", value_parser = |s: &str| list(s, connections), default_value = "1")]
    qps: Values<u32>,
    /// Path MTU: 256, 512, 1024, 2048 or 4096
    #[arg(long, default_value = "1024", value_parser = mtu_arg)]
    mtu: PathMtu,
    /// What else goes wrong on the link: keys as `softnic sim` has them
    #[arg(long, default_value = "", value_name = "SPEC", hide_default_value = true)]
    fault: Spec,
    /// Runs of each point, with seeds from --seed on [default: 5; with --dev 3]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=1000))]
    seeds: Option<u64>,
    /// What to compare: payload a second, or the completion times of messages that are sent one after the other
    #[arg(long, value_enum, default_value = "goodput")]
    metric: Metric,
    /// Folder for CSV, SVG and JSON, made where it is not there
    #[arg(long, default_value = "race-results", value_name = "DIR")]
    out: PathBuf,
    /// PNG as well as SVG
    #[arg(long)]
    png: bool,
    /// Simulations at a time [default: as many as there are cores]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=1024))]
    threads: Option<u16>,
    /// Race in real time, between two NICs: mem or shm (both ends in this process), afxdp:INTERFACE, or
    /// dgram:OURS,PEERS,ip=ADDR/LEN[,mac=M]
    #[arg(long, short = 'd', value_name = "DEVICE", conflicts_with = "threads", help_heading = "In real time")]
    dev: Option<DeviceSpec>,
    #[command(flatten)]
    ends: EndArgs,
    /// How long each run takes: seconds, or a time as in 500ms
    #[arg(long, short = 'D', requires = "dev", value_name = "TIME", default_value = "1", value_parser = duration_arg, help_heading = "In real time")]
    duration: Duration,
}

impl Args {
    /// All that the grid has besides transports and losses.
    fn places(&self, rate: u64, size: u32) -> Vec<Place> {
        let rates = self.rate.clone().unwrap_or_else(|| vec![rate]);
        let sizes = self.size.clone().unwrap_or_else(|| vec![size]);
        let mut places = Vec::new();
        for &rtt in &self.rtt {
            for &rate in &rates {
                for &size in &sizes {
                    places.extend(self.qps.iter().map(|&qps| Place { rtt, rate, size, qps }));
                }
            }
        }
        places
    }
}

/// An alias because clap takes a `Vec` for an option that is given several times.
type Values<T> = Vec<T>;

/// What is compared.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum Metric {
    /// Payload in Gbit/s
    Goodput,
    /// Mean completion time of a message
    FctMean,
    /// 99th percentile of the completion times of messages
    FctP99,
}

impl Metric {
    fn words(self) -> &'static str {
        match self {
            Metric::Goodput => "Goodput in Gbit/s",
            Metric::FctMean => "Mean completion time in ms of messages one after the other",
            Metric::FctP99 => "99th percentile of completion times in ms of messages one after the other",
        }
    }

    /// Its place among [`figures`].
    fn place(self) -> usize {
        match self {
            Metric::Goodput => 0,
            Metric::FctMean => 1,
            Metric::FctP99 => 2,
        }
    }
}

fn list<T>(s: &str, one: impl Fn(&str) -> Result<T, String>) -> Result<Values<T>, String> {
    s.split(',').map(|part| one(part.trim())).collect()
}

fn size(s: &str) -> Result<u32, String> {
    match units::parse_size(s)? {
        n @ 1..=0x8000_0000 => Ok(n as u32),
        _ => Err("a message has 1 byte to 2G".into()),
    }
}

fn connections(s: &str) -> Result<u32, String> {
    match units::parse_count(s)? {
        n @ 1..=1024 => Ok(n as u32),
        _ => Err("1 to 1024 connections".into()),
    }
}

fn losses_arg(s: &str) -> Result<Values<f64>, String> {
    let mut losses = Vec::new();
    for part in s.split(',').map(str::trim) {
        match part.split_once("..") {
            None => losses.push(units::parse_chance(part)?),
            Some((from, to)) => {
                let (from, to) = (units::parse_chance(from)?, units::parse_chance(to)?);
                if from <= 0.0 || from > to {
                    return Err(format!("`{part}`: a span goes from a loss above 0 to one that is no less"));
                }
                // 1 and 3 of each power of ten, from the first value on; a little beyond the last counts as the last.
                let steps = (0..).map(|i| from * 10f64.powi(i / 2) * if i % 2 == 0 { 1.0 } else { 3.0 });
                losses.extend(steps.take_while(|&loss| loss <= to * 1.001));
            }
        }
    }
    Ok(losses)
}

/// A point of the grid.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Point {
    transport: Transport,
    place: Place,
    loss: f64,
}

/// Where transports are raced.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Place {
    rtt: Duration,
    rate: u64,
    size: u32,
    qps: u32,
}

/// Round trips that a run takes at the line rate, about.
const ROUND_TRIPS: f64 = 40.0;
/// Messages of a run, at least, and at most.
const FEWEST: f64 = 16.0;
const MOST: f64 = 4096.0;
/// Losses that a run has, at least, where they are not so rare that it would take too long.
const LOSSES: f64 = 200.0;
/// Messages whose completion times are measured.
const FLOWS: u64 = 1000;
/// Work requests outstanding, at most.
const MAX_DEPTH: f64 = 1024.0;

impl Place {
    /// Bytes that fit a round trip.
    fn bandwidth_delay(&self) -> f64 {
        self.rate as f64 / 8.0 * self.rtt.as_secs_f64()
    }

    fn path(&self, mtu: PathMtu) -> Path {
        Path { rate: self.rate, rtt: self.rtt, mtu: mtu.bytes(), connections: self.qps }
    }

    fn title(&self) -> String {
        let plural = if self.qps == 1 { "" } else { "s" };
        let rate = self.rate as f64 / 1e9;
        format!(
            "RTT {}, {rate} Gbit/s, {}, {} connection{plural}",
            time_shown(self.rtt),
            bytes(u64::from(self.size)),
            self.qps
        )
    }
}

impl Point {
    /// The part of the goodput without loss that theory leaves to the transport: a run that is slow has fewer messages.
    fn expected(&self, path: &Path) -> f64 {
        path.goodput_gbps(self.transport, self.loss).map_or(1.0, |goodput| goodput / path.loss_free_gbps())
    }

    /// Messages of a run that measures goodput, as many as take about [`ROUND_TRIPS`].
    fn messages(&self, mtu: PathMtu) -> u64 {
        let Place { size, qps, .. } = self.place;
        let path = self.place.path(mtu);
        let bytes = self.place.bandwidth_delay() * ROUND_TRIPS * self.expected(&path);
        ((bytes / f64::from(size)).clamp(self.fewest(&path), MOST) * f64::from(qps).sqrt()) as u64
    }

    /// As many messages as have some losses.
    fn fewest(&self, path: &Path) -> f64 {
        let packets = f64::from(self.place.size.div_ceil(path.mtu));
        let lossy = if self.loss > 0.0 { LOSSES / self.loss / packets } else { FEWEST };
        lossy.clamp(FEWEST, 256.0)
    }

    fn options(&self, args: &Args, seed: u64) -> Options {
        let Place { rtt, rate, size, qps } = self.place;
        let (count, depth) = match args.metric {
            Metric::Goodput => {
                let depth = (4.0 * self.place.bandwidth_delay() / f64::from(size) / f64::from(qps)).ceil();
                (self.messages(args.mtu), depth.clamp(16.0, MAX_DEPTH) as u32)
            }
            Metric::FctMean | Metric::FctP99 => (FLOWS * u64::from(qps), 1),
        };
        let mut faults = args.fault.clone();
        faults.faults.push(Fault::Loss(self.loss));
        let payload = PayloadMode::Elided;
        let options =
            Options { size, count, depth, qps, rtt, rate, mtu: args.mtu, faults, payload, seed, ..Options::default() };
        over(self.transport, options)
    }
}

/// Goodput, mean and 99th percentile of completion times, the part of the packets that was sent again, messages.
const FIGURES: usize = 5;

fn figures(report: &Report) -> [f64; FIGURES] {
    let times = &report.completion_times;
    let again = report.retransmitted_packets as f64 / (report.tx_packets as f64).max(1.0);
    [report.goodput_gbps, times.mean_ms(), times.quantile_ms(0.99), again, report.completed as f64]
}

/// Runs the grid.
pub fn run(args: &Args, seed: u64, json: bool) -> Result<ExitCode, String> {
    if let (true, Some(device)) = (args.ends.server, &args.dev) {
        return device::serve(device, args.ends.port, seed).map(|()| ExitCode::SUCCESS);
    }
    let ends = args.dev.as_ref().map(|device| Ends::new(device, &args.ends)).transpose()?;
    args.fault.check_link().map_err(|e| format!("--fault: {e}"))?;
    let (rate, size, seeds) = match ends {
        None => (10_000_000_000, 1 << 20, 5),
        Some(_) => (real_time::RATE, real_time::SIZE, real_time::SEEDS),
    };
    let places = args.places(rate, size);
    if let Some(ends) = &ends {
        real_time::check(args, &ends.device, &places)?;
    }
    let destination = Destination { folder: &args.out, png: args.png, json };
    destination.prepare()?;
    stop::install();
    let transports = args.transports.clone().unwrap_or_else(|| vec![Transport::Rc, Transport::SR, lowar(32, 1)]);
    let of_place = |&place: &Place| {
        let at = move |loss: f64, transports: &[Transport]| {
            transports.iter().map(|&transport| Point { transport, place, loss }).collect::<Vec<_>>()
        };
        args.loss.iter().flat_map(|&loss| at(loss, &transports)).collect::<Vec<_>>()
    };
    let points: Vec<Point> = places.iter().flat_map(of_place).collect();
    let cores = || std::thread::available_parallelism().map_or(1, Into::into);
    let setting = Setting {
        name: "race",
        first_seed: seed,
        seeds: Some(args.seeds.unwrap_or(seeds)),
        quick: false,
        transports: None,
        threads: args.threads.map_or_else(cores, usize::from),
        engines: None,
        round_trips: None,
    };
    let began = Instant::now();
    let measured = match &ends {
        None => race(&setting, &points, |_| setting.seeds(), |point, seed| Ok(point.options(args, seed)), figures)?,
        Some(ends) => real_time::race(args, ends, &setting, &points)?,
    };
    let how = ends.as_ref().map_or(String::new(), |ends| {
        format!(
            " In real time on {}, {} s each, one at a time, on the {} cores of this machine: the figures are of this machine.",
            ends.device,
            args.duration.as_secs_f64(),
            cores()
        )
    });
    let mut outcome = Outcome {
        what: format!("{}, path MTU {}; {}.{how}", args.metric.words(), args.mtu.bytes(), setting.means()),
        figures: all_figures(&measured),
        runs: measured.runs,
        of: measured.of,
        ..Outcome::default()
    };
    for place in &places {
        outcome.tables.push(table(&measured, &transports, place, args));
        outcome.chart.panels.push(panel(&measured, &transports, place, args));
    }
    let theory = match args.metric {
        _ if args.fault != Spec::default() => "",
        Metric::Goodput => plot::GOODPUT_THEORY,
        Metric::FctMean => plot::TIMES_THEORY,
        Metric::FctP99 => "",
    };
    outcome.chart.caption = format!("{}{how}", plot::caption(&setting, theory).trim_end());
    let (name, at_a_time) = if ends.is_some() { ("race-wire", 1) } else { ("race", setting.threads) };
    destination.take(name, &setting, outcome, (began, at_a_time))
}

fn table(m: &Race<Point, FIGURES>, transports: &[Transport], &place: &Place, args: &Args) -> Table {
    let first = transports[0];
    let mut columns = vec!["loss".to_string()];
    for &transport in transports {
        columns.push(transport.to_string());
        columns.extend((transport != first).then(|| format!("{transport}/{first}")));
    }
    let row = |&loss: &f64| {
        let of = |transport| m.spread(Point { transport, place, loss }, args.metric.place());
        let mut row = vec![percent(loss)];
        for &transport in transports {
            row.push(spread_shown(of(transport), 3));
            let mean = |spread: Option<Spread>| spread.map(|s| s.mean);
            row.extend((transport != first).then(|| shown(ratio(mean(of(transport)), mean(of(first))), 2)));
        }
        row
    };
    Table { title: place.title(), columns, rows: args.loss.iter().map(row).collect() }
}

fn panel(m: &Race<Point, FIGURES>, transports: &[Transport], &place: &Place, args: &Args) -> Panel {
    let path = place.path(args.mtu);
    let theory = |transport, loss| match args.metric {
        // What else goes wrong is in no formula.
        _ if args.fault != Spec::default() => None,
        Metric::Goodput => path.goodput_gbps(transport, loss),
        Metric::FctMean if place.qps == 1 => path.mean_completion_ms(transport, loss, place.size),
        Metric::FctMean | Metric::FctP99 => None,
    };
    let mut series = Vec::new();
    for (hue, &transport) in transports.iter().enumerate() {
        let points =
            args.loss.iter().map(|&loss| (loss, m.spread(Point { transport, place, loss }, args.metric.place())));
        series.push(measured(transport, hue, points));
        let expected = smooth(&args.loss).into_iter().map(|loss| (loss, theory(transport, loss)));
        series.extend(plot::theory(transport, hue, expected));
    }
    let (name, scale) = match args.metric {
        Metric::Goodput => ("Goodput (Gbit/s)", Scale::Linear),
        Metric::FctMean => ("Mean completion time (ms)", Scale::Log),
        Metric::FctP99 => ("99th percentile of completion times (ms)", Scale::Log),
    };
    Panel { title: place.title(), x: plot::loss_axis(), y: Axis::new(name, scale), series }
}

fn all_figures(m: &Race<Point, FIGURES>) -> Figures {
    let row = |(p, spreads): &(Point, [Option<Spread>; FIGURES])| {
        let mut row = vec![
            p.transport.to_string().into(),
            f64::from(p.place.qps).into(),
            (p.place.rtt.as_secs_f64() * 1e3).into(),
            (p.place.rate as f64 / 1e9).into(),
            f64::from(p.place.size).into(),
            p.loss.into(),
            (spreads[0].map_or(0, |s| s.seeds) as f64).into(),
            spreads[FIGURES - 1].map(|s| s.mean).into(),
        ];
        // Bandwidth that is measured on a device has no completion times.
        for spread in spreads[..FIGURES - 1].iter().map(|spread| spread.filter(|s| s.mean.is_finite())) {
            row.extend([spread.map(|s| s.mean).into(), spread.map(|s| s.deviation).into()]);
            row.extend([spread.map(|s| s.lowest).into(), spread.map(|s| s.highest).into()]);
        }
        row
    };
    Figures {
        columns: vec![
            "transport",
            "connections",
            "rtt_ms",
            "rate_gbps",
            "size_bytes",
            "loss",
            "seeds",
            "messages",
            "goodput_gbps",
            "goodput_deviation_gbps",
            "goodput_min_gbps",
            "goodput_max_gbps",
            "fct_mean_ms",
            "fct_mean_deviation_ms",
            "fct_mean_min_ms",
            "fct_mean_max_ms",
            "fct_p99_ms",
            "fct_p99_deviation_ms",
            "fct_p99_min_ms",
            "fct_p99_max_ms",
            "retransmitted_part",
            "retransmitted_deviation",
            "retransmitted_min",
            "retransmitted_max",
        ],
        rows: m.points().map(row).collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_span_of_losses_has_two_in_each_power_of_ten_and_both_its_ends() {
        let shown = |s: &str| losses_arg(s).unwrap().iter().map(|l| format!("{l:.0e}")).collect::<Vec<_>>().join(" ");
        assert_eq!(shown("1e-5..1e-3"), "1e-5 3e-5 1e-4 3e-4 1e-3");
        assert_eq!(shown("0,0.1%,2e-3..5e-3"), "0e0 1e-3 2e-3");
        for wrong in ["", "0..1e-3", "1e-2..1e-3", "2", "x"] {
            assert!(losses_arg(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn runs_of_every_transport_take_forty_round_trips_by_its_own_theory() {
        let place = Place { rtt: Duration::from_millis(40), rate: 10_000_000_000, size: 1 << 20, qps: 1 };
        for (transport, loss, mtu) in [
            (Transport::Rc, 1e-4, PathMtu::B1024),
            (lowar(32, 1), 1e-4, PathMtu::B1024),
            (lowar(32, 1), 1e-3, PathMtu::B1024),
            (lowar(8, 1), 1e-3, PathMtu::B4096),
        ] {
            let point = Point { transport, place, loss };
            let path = place.path(mtu);
            let bits = point.messages(mtu) as f64 * f64::from(place.size) * 8.0;
            let seconds = bits / (path.goodput_gbps(transport, loss).unwrap() * 1e9);
            // Of the line rate, of which headers take a part.
            let round_trips = seconds / place.rtt.as_secs_f64() * path.loss_free_gbps() / 10.0;
            assert!((39.5..40.5).contains(&round_trips), "{transport} {loss}: {round_trips}");
        }
    }
}
