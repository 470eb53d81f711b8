//! `softnic wire`: a bump in the wire between two interfaces, with faults.

pub(crate) mod report;
pub(crate) mod running;

use std::io::{self, IsTerminal, Write};
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use softnic_fault_injector::units;
use softnic_perf::{say, stop};
use softnic_runtime::bump::{Bump, Faults, Options};

use crate::metrics::{Endpoint, EndpointAddress, page_of_wire};
use crate::terminal::{InPlace, Size, can_redraw};
use crate::{Common, colour};

/// How often to look whether it is time to end.
const NAP: Duration = Duration::from_millis(20);

/// Intervals between headings.
const HEADING_EVERY: u64 = 20;

/// Forward every frame between two interfaces, and do to RoCE packets what a SPEC says: a bump in the wire
#[derive(Debug, clap::Args)]
#[command(args_conflicts_with_subcommands = true, subcommand_negates_reqs = true)]
#[command(after_help = "Examples:
  softnic wire --a eth1 --b eth2                               # a wire, as if the two were one cable
  softnic wire --a eth1 --b eth2 --fault loss=1e-3,ba.delay=5ms
  softnic wire --a eth1 --b eth2 --fault @drop-third.toml --duration 60 --json
  softnic wire --a eth1 --b eth2 --fault down=10s+2s --all-traffic
  softnic wire list                                            # wires that run, and their faults
  softnic wire set loss=1e-2,ba.delay=5ms                      # other faults for the wire that runs; '' for none

Both interfaces are taken from the kernel of this machine while it runs: they need no address, and should have none. It ends with
Ctrl-C or after --duration, and prints what it did. Keys of a SPEC and scripts: docs/faults.md; ab. before a key is for what comes in
at a, ba. for what comes in at b. Needs root, or CAP_NET_ADMIN, CAP_NET_RAW and CAP_BPF.")]
pub(crate) struct Args {
    #[command(subcommand)]
    command: Option<Running>,
    /// One interface
    #[arg(long, value_name = "IF", required = true)]
    a: Option<String>,
    /// The other
    #[arg(long, value_name = "IF", required = true)]
    b: Option<String>,
    /// What goes wrong on the wire, in both directions as independent streams (ab. or ba. before a key: in one)
    #[arg(long, value_name = "SPEC")]
    fault: Option<Faults>,
    /// Serve counters for Prometheus at http://ADDR/metrics while it runs: a port of this machine alone, as in 9400, or ADDRESS:PORT
    #[arg(long, value_name = "ADDR")]
    metrics: Option<EndpointAddress>,
    /// The SPEC is for every frame, and not for RoCE packets alone
    #[arg(long)]
    all_traffic: bool,
    /// End after this time: seconds, or a time as in 500ms
    #[arg(long, short = 'D', value_name = "TIME", value_parser = time_arg)]
    duration: Option<Duration>,
    /// Print the counters so often, line by line: seconds, or a time [default: every second in place on a terminal, else never]
    #[arg(long, value_name = "TIME", value_parser = time_arg)]
    interval: Option<Duration>,
    /// Record what comes in at both ends as a pcap file: frames before anything happens to them
    #[arg(long, value_name = "FILE")]
    pcap: Option<PathBuf>,
    /// The core that the forwarding thread stays on
    #[arg(long, value_name = "N", value_parser = crate::cores::one)]
    cpu: Option<usize>,
}

/// What is for wires that run already.
#[derive(Debug, clap::Subcommand)]
enum Running {
    /// Show the wires of this network namespace, and their faults
    #[command(visible_alias = "get")]
    List,
    /// Give a wire other faults: they replace those that it has. Frames under way are neither lost nor overtaken; times of `down` count from now
    #[command(after_help = "Examples:
  softnic wire set loss=1e-3
  softnic wire set ab.loss=1e-3,ba.delay=5ms        # each direction by itself
  softnic wire set --pid 4711 @drop-third.toml
  softnic wire set ''                               # none any more

Only wires of the same user can be told; all can by root.")]
    Set {
        /// The wire of this process, where there are several
        #[arg(long, value_name = "PID")]
        pid: Option<u32>,
        /// As --fault has it
        #[arg(value_name = "SPEC")]
        spec: String,
    },
}

pub(crate) fn time_arg(s: &str) -> Result<Duration, String> {
    let plain = s.parse().ok().and_then(|seconds| Duration::try_from_secs_f64(seconds).ok());
    let time = plain.map_or_else(|| units::parse_time(s), Ok)?;
    match time >= Duration::from_millis(10) {
        true => Ok(time),
        false => Err("at least 10ms".into()),
    }
}

pub(crate) fn run(args: &Args, common: &Common) -> Result<ExitCode, String> {
    match &args.command {
        Some(Running::List) => return running::list(common.json).map(|()| ExitCode::SUCCESS),
        Some(Running::Set { pid, spec }) => return running::set(*pid, spec).map(|()| ExitCode::SUCCESS),
        None => {}
    }
    // Clap has seen to it that they are there.
    let [a, b] = [&args.a, &args.b].map(|name| name.clone().unwrap_or_default());
    let endpoint = args.metrics.as_ref().map(Endpoint::bind).transpose()?;
    let options = Options {
        a: a.clone(),
        b: b.clone(),
        faults: args.fault.clone().unwrap_or_default(),
        all_traffic: args.all_traffic,
        seed: common.seed,
        pcap: args.pcap.clone(),
        cpu: args.cpu,
    };
    stop::install();
    let wire = Bump::start(&options).map_err(|e| e.to_string())?;
    if let Some(endpoint) = endpoint {
        let (ends, counters) = ([a.clone(), b.clone()], wire.watch());
        endpoint.serve(move || page_of_wire(&ends[0], &ends[1], &counters()))?;
    }
    // On stderr: it is there when frames pass, and whoever started this may wait for it.
    say!("softnic: {}", wire.description());
    watch(&wire, args, [&a, &b], common.json);
    let summary = wire.stop().map_err(|e| e.to_string())?;
    let printed = match common.json {
        true => writeln!(io::stdout(), "{}", report::json(&summary)),
        false => write!(io::stdout(), "{}", report::text(&summary, colour::wanted(io::stdout().is_terminal()))),
    };
    // A script that did nothing is more often a mistake than not.
    for (i, _) in summary.applied.iter().enumerate().filter(|(_, n)| **n == 0) {
        say!("softnic: event {} of the script was for no packet", i + 1);
    }
    match printed {
        Err(e) if e.kind() != io::ErrorKind::BrokenPipe => Err(format!("cannot write the output: {e}")),
        _ => Ok(ExitCode::SUCCESS),
    }
}

/// Shows counters until it is time to end: in place on a terminal, else lines of each interval that was asked for.
fn watch(wire: &Bump, args: &Args, ends: [&String; 2], as_json: bool) {
    let mut place = (args.interval.is_none() && !as_json && can_redraw()).then(InPlace::default);
    let interval = args.interval.or(place.as_ref().map(|_| Duration::from_secs(1)));
    let begin = Instant::now();
    let (mut last, mut shown, mut warned) = (begin, wire.counters(), [false; 2]);
    let (mut faults, mut lines, colours) = (wire.faults(), 0u64, colour::wanted(io::stdout().is_terminal()));
    let tell = |place: &mut Option<InPlace>, text: &str| {
        say!("softnic: {text}");
        place.iter_mut().for_each(InPlace::leave);
    };
    while !stop::requested() && wire.is_running() && args.duration.is_none_or(|d| begin.elapsed() < d) {
        let left = args.duration.map_or(NAP, |d| d.saturating_sub(begin.elapsed()));
        std::thread::sleep(NAP.min(left));
        let counters = wire.counters();
        let faults_now = wire.faults();
        if faults_now != faults {
            faults = faults_now;
            tell(&mut place, &format!("faults now: {}", if faults.is_empty() { "none" } else { &faults }));
        }
        for ((name, c), warned) in ends.into_iter().zip(&counters).zip(&mut warned) {
            if c.unsegmented > 0 && !*warned {
                tell(&mut place, &report::unsegmented(name));
                *warned = true;
            }
        }
        let Some(interval) = interval.filter(|interval| last.elapsed() >= *interval) else { continue };
        let rows = |colours| report::lines(begin.elapsed(), last.elapsed(), &shown, &counters, colours);
        let text = match (&mut place, as_json) {
            (_, true) => format!("{}\n", report::json_line(begin.elapsed(), &counters)),
            (None, false) => {
                let heading = if lines.is_multiple_of(HEADING_EVERY) { report::HEADING } else { "" };
                format!("{heading}{}\n", rows(colours))
            }
            (Some(place), false) => {
                let shown = report::live(&rows(false), &counters, &faults);
                let red = |line: &str| colour::red(line, colours && line.starts_with(report::INVALID));
                place.draw(&shown, Size::of(io::stdout()), red)
            }
        };
        lines += 1;
        // Whoever reads the output may go; frames still pass.
        let mut out = io::stdout();
        let _ = out.write_all(text.as_bytes()).and_then(|()| out.flush());
        (last, shown) = (last + interval.max(last.elapsed() / 2), counters);
    }
}
