//! `lowar-goodput --dev`: goodput against loss between two NICs in real time, on a wire that the fault injector makes long.

use std::time::Duration;

use softnic_fault_injector::Spec;
use softnic_runtime::api::{DeviceSpec, LinkDown, OpenOptions};
use softnic_sim::Options;
use softnic_swarm::table;
use softnic_transports::Transport;
use softnic_wire::PathMtu;

use super::outcome::{Figures, Outcome, Table, percent, shown, spread_shown};
use super::plot;
use super::pool::Progress;
use super::stats::{Spread, ratio};
use super::theory::Path;
use super::{Setting, lowar, over};
use crate::chart::{Axis, Chart, Panel, Scale, smooth};
use crate::perf::interval::AskedIntervals;
use crate::perf::plan::{Amount, Op, Plan};
use crate::perf::report::Measured;
use crate::perf::session::{self, Setup};
use crate::perf::stop;

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
/// How long the server may take to be there again for the next run.
const BETWEEN: Duration = Duration::from_secs(10);

/// The two ends, as the command line names them.
#[derive(Debug, Clone)]
pub(super) struct Ends {
    pub(super) device: DeviceSpec,
    /// The server's address and port; none on a wire within this process.
    pub(super) server: Option<(String, u16)>,
    /// Of the emulated link, bits a second.
    pub(super) rate: u64,
}

/// Serves one run after the other until Ctrl-C.
pub(super) fn serve(device: &DeviceSpec, port: u16, seed: u64) -> Result<(), String> {
    let setup = Setup {
        device: device.clone(),
        options: open_options(None, seed),
        cpus: vec![],
        seed,
        secret: None,
        intervals: AskedIntervals::Never,
    };
    while !stop::requested() {
        match session::listen(&setup, false, port, &|_| Ok(())) {
            // What became of a run is the client's to tell.
            Err(e) if e.starts_with("the peer") => say!("softnic: {e}"),
            other => other?,
        }
    }
    Ok(())
}

fn open_options(fault: Option<Spec>, seed: u64) -> OpenOptions {
    OpenOptions {
        progress: None,
        cpus: vec![],
        fault,
        seed,
        pcap: None,
        trace: None,
        log: None,
        queues: None,
        link_down: LinkDown::default(),
        on_event: None,
    }
}

#[derive(Debug, Clone, Copy, PartialEq)]
struct Point {
    transport: Transport,
    loss: f64,
}

pub(super) fn run(setting: &Setting, ends: &Ends) -> Result<Outcome, String> {
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
            let value = if stop::requested() { None } else { goodput(ends, point, seed, seconds)? };
            runs += usize::from(value.is_some());
            progress.tell(runs);
            values.push(value);
        }
        measured.push((point, Spread::of(values)));
    }
    drop(progress);
    Ok(outcome(setting, &measured, &transports, losses, ends, seconds, runs, of))
}

/// Packets that fit the emulated link's round trip.
fn bdp(rate: u64) -> f64 {
    table::bdp(RTT) * rate as f64 / TABLE_RATE
}

fn formula(loss: f64, rate: u64) -> f64 {
    table::go_back_n(0.0, RTT) * rate as f64 / TABLE_RATE / (1.0 + loss * bdp(rate))
}

/// A transport with the settings that a simulated run over the emulated link has.
fn on_link(transport: Transport, rate: u64) -> Transport {
    over(transport, Options { rate, rtt: RTT, mtu: MTU, ..Options::default() }).transport
}

/// One run; `None` where Ctrl-C ended it.
fn goodput(ends: &Ends, point: Point, seed: u64, seconds: f64) -> Result<Option<f64>, String> {
    let (loss, rate, half) = (point.loss, ends.rate, RTT / 2);
    let one_way = format!("loss={loss},rate={}bit,delay={}us", rate, half.as_micros());
    let spec = match ends.server {
        None => one_way,
        Some(_) => format!("{one_way},rx.loss={loss},rx.delay={}us", half.as_micros()),
    };
    let fault: Spec = spec.parse().map_err(|e| format!("{spec}: {e}"))?;
    let setup = Setup {
        device: ends.device.clone(),
        options: open_options(Some(fault), seed),
        cpus: vec![],
        seed,
        secret: None,
        intervals: AskedIntervals::Never,
    };
    let plan = Plan {
        op: Op::WriteBw,
        transport: on_link(point.transport, rate),
        cc: None,
        negotiated: None,
        auth: false,
        needs_link_mtu: None,
        sizes: vec![SIZE],
        amount: Amount::Seconds(seconds),
        qps: 1,
        mtu: Some(MTU.bytes()),
        // What fits the round trip, and little more, for the rest would wait before the bottleneck and make it longer.
        depth: (bdp(rate) * f64::from(MTU.bytes()) / f64::from(SIZE)).ceil() as u32 + 2,
        timeout: TIMEOUT,
        retry: 7,
        tclass: 0,
        verify: false,
        wait_completion: false,
    };
    let mut found = None;
    let mut tell = |plan: &Plan, measured: &Measured, _: &_| {
        if plan.negotiated.as_deref() == Some("rc") {
            return Err(format!("the other end does not speak {}", point.transport));
        }
        if let Measured::Bandwidth(rates) = measured {
            found = Some(rates.average_gbps());
        }
        Ok(())
    };
    let mut begin = |_: &Plan, _: &str| Ok(());
    let result = match &ends.server {
        None => session::in_memory(&setup, &plan, &mut begin, &mut tell),
        Some((host, port)) => session::connect(&setup, &plan, host, *port, BETWEEN, &mut begin, &mut tell),
    };
    match result {
        _ if stop::requested() => Ok(None),
        Ok(()) => Ok(found),
        Err(e) => Err(e),
    }
}

fn outcome(
    setting: &Setting,
    measured: &[(Point, Option<Spread>)],
    transports: &[Transport],
    losses: &[f64],
    ends: &Ends,
    seconds: f64,
    runs: usize,
    of: usize,
) -> Outcome {
    let spread = |transport, loss| measured.iter().find(|(p, _)| *p == Point { transport, loss }).and_then(|(_, s)| *s);
    let mean = |transport, loss| spread(transport, loss).map(|s| s.mean);
    let mut columns = vec!["loss".to_string(), "formula".into()];
    for transport in transports {
        let beside = if *transport == Transport::Rc { "rc/formula".into() } else { format!("{transport}/rc") };
        columns.extend([transport.to_string(), beside]);
    }
    let row = |&loss: &f64| {
        let expected = formula(loss, ends.rate);
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
            (p.transport == Transport::Rc).then(|| formula(p.loss, ends.rate)).into(),
        ]
    };
    let path = Path { rate: ends.rate, rtt: RTT, mtu: MTU.bytes(), connections: 1 };
    let mut series = Vec::new();
    for (hue, &transport) in transports.iter().enumerate() {
        series.push(plot::measured(transport, hue, losses.iter().map(|&loss| (loss, spread(transport, loss)))));
        let expected = smooth(losses).into_iter().map(|loss| (loss, path.goodput_gbps(transport, loss)));
        series.extend(plot::theory(transport, hue, expected));
    }
    let rate = ends.rate as f64 / 1e9;
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
                bdp(ends.rate),
                table::bdp(RTT)
            ),
            "What waits for one lost packet fills the queue, which holds no more than a round trip: sr sends nothing new meanwhile, and has less goodput here than with the long queue of the simulated runs.".into(),
        ],
        runs,
        of,
        ..Outcome::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sr_on_a_wire_has_the_window_of_a_simulated_run_over_the_same_link() {
        let simulated = |rate| Options { rate, rtt: RTT, ..Options::default() }.over_wide_sr().transport;
        for rate in [50_000_000, 200_000_000, MAX_RATE] {
            assert_eq!(on_link(Transport::SR, rate), simulated(rate));
        }
        assert_eq!(on_link(Transport::SR, 200_000_000), Transport::Sr { window: 4096 });
        for asked in [Transport::Rc, Transport::Sr { window: 512 }, lowar(8, 1)] {
            assert_eq!(on_link(asked, MAX_RATE), asked);
        }
    }
}
