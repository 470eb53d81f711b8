//! `softnic wire`: a bump in the wire between two interfaces, with faults.

mod report;

use std::io::{self, IsTerminal, Write};
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use softnic_fault_injector::{Spec, units};
use softnic_runtime::bump::{Bump, Options};

use crate::Common;
use crate::perf::stop;

/// How often to look whether it is time to end.
const NAP: Duration = Duration::from_millis(20);

/// Forward every frame between two interfaces, and do to RoCE packets what a SPEC says: a bump in the wire
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  softnic wire --a eth1 --b eth2                               # a wire, as if the two were one cable
  softnic wire --a eth1 --b eth2 --fault loss=1e-3,ba.delay=5ms
  softnic wire --a eth1 --b eth2 --fault @drop-third.toml --duration 60 --json
  softnic wire --a eth1 --b eth2 --fault down=10s+2s --all-traffic

Both interfaces are taken from the kernel of this machine while it runs: they need no address, and should have none. It ends with
Ctrl-C or after --duration, and prints what it did. Keys of a SPEC and scripts: docs/faults.md; ab. before a key is for what comes in
at a, ba. for what comes in at b. Needs root, or CAP_NET_ADMIN, CAP_NET_RAW and CAP_BPF.")]
pub(crate) struct Args {
    /// One interface
    #[arg(long, value_name = "IF")]
    a: String,
    /// The other
    #[arg(long, value_name = "IF")]
    b: String,
    /// What goes wrong on the wire, in both directions as independent streams (ab. or ba. before a key: in one)
    #[arg(long, value_name = "SPEC")]
    fault: Option<Spec>,
    /// The SPEC is for every frame, and not for RoCE packets alone
    #[arg(long)]
    all_traffic: bool,
    /// End after this time: seconds, or a time as in 500ms
    #[arg(long, short = 'D', value_name = "TIME", value_parser = time_arg)]
    duration: Option<Duration>,
    /// Print the counters so often: seconds, or a time [default: every second on a terminal, else never]
    #[arg(long, value_name = "TIME", value_parser = time_arg)]
    interval: Option<Duration>,
    /// Record what comes in at both ends as a pcap file: frames before anything happens to them
    #[arg(long, value_name = "FILE")]
    pcap: Option<PathBuf>,
    /// The core that the forwarding thread stays on
    #[arg(long, value_name = "N", value_parser = crate::cores::one)]
    cpu: Option<usize>,
}

fn time_arg(s: &str) -> Result<Duration, String> {
    let plain = s.parse().ok().and_then(|seconds| Duration::try_from_secs_f64(seconds).ok());
    let time = plain.map_or_else(|| units::parse_time(s), Ok)?;
    match time >= Duration::from_millis(10) {
        true => Ok(time),
        false => Err("at least 10ms".into()),
    }
}

pub(crate) fn run(args: &Args, common: &Common) -> Result<ExitCode, String> {
    let options = Options {
        a: args.a.clone(),
        b: args.b.clone(),
        faults: args.fault.clone().unwrap_or_default(),
        all_traffic: args.all_traffic,
        seed: common.seed,
        pcap: args.pcap.clone(),
        cpu: args.cpu,
    };
    stop::install();
    let wire = Bump::start(&options).map_err(|e| e.to_string())?;
    // On stderr: it is there when frames pass, and whoever started this may wait for it.
    say!("softnic: {}", wire.description());
    let shown = io::stdout().is_terminal() && !common.json;
    let interval = args.interval.or(shown.then_some(Duration::from_secs(1)));
    watch(&wire, args, interval, common.json);
    let summary = wire.stop().map_err(|e| e.to_string())?;
    let printed = match common.json {
        true => writeln!(io::stdout(), "{}", report::json(&summary)),
        false => write!(io::stdout(), "{}", report::text(&summary)),
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

/// Shows counters until it is time to end.
fn watch(wire: &Bump, args: &Args, interval: Option<Duration>, as_json: bool) {
    let begin = Instant::now();
    let (mut last, mut shown, mut warned) = (begin, wire.counters(), [false; 2]);
    while !stop::requested() && wire.is_running() && args.duration.is_none_or(|d| begin.elapsed() < d) {
        let left = args.duration.map_or(NAP, |d| d.saturating_sub(begin.elapsed()));
        std::thread::sleep(NAP.min(left));
        let counters = wire.counters();
        for ((name, c), warned) in [&args.a, &args.b].into_iter().zip(&counters).zip(&mut warned) {
            if c.unsegmented > 0 && !*warned {
                say!("softnic: {}", report::unsegmented(name));
                *warned = true;
            }
        }
        let Some(interval) = interval.filter(|interval| last.elapsed() >= *interval) else { continue };
        let line = match as_json {
            true => report::json_line(begin.elapsed(), &counters).to_string(),
            false => report::line(begin.elapsed(), last.elapsed(), &shown, &counters),
        };
        // Whoever reads the output may go; frames still pass.
        let _ = writeln!(io::stdout(), "{line}");
        (last, shown) = (last + interval.max(last.elapsed() / 2), counters);
    }
}
