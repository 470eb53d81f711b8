//! `softnic switch`: a switch on real interfaces, with groups.

mod config;
mod control;
mod group;
mod report;

use std::io::{self, IsTerminal, Write};
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use softnic_perf::{say, stop};
use softnic_runtime::switch::{Options, WireSwitch};

use crate::metrics::{Endpoint, EndpointAddress, page_of_switch};
use crate::terminal::{InPlace, Size, can_redraw};
use crate::wire::{report::unsegmented, time_arg};
use crate::{Common, colour};
use control::{Control, ControlAddress};

/// How often to look whether it is time to end.
const NAP: Duration = Duration::from_millis(20);
/// How often a terminal shows the counters.
const INTERVAL: Duration = Duration::from_secs(1);

/// Forward frames between interfaces as a switch, and copy packets of groups to all of their receivers: one WRITE, many memories
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  softnic switch --config sw.toml
  softnic switch --config sw.toml --control 9500                # groups while it runs, at 127.0.0.1:9500
  softnic switch --config sw.toml --control unix:/run/sw.sock --duration 60 --json
  echo '{\"command\":\"list\"}' | nc -N 127.0.0.1 9500

Ports, addresses, routes and groups are in FILE, which docs/switch.md describes. All interfaces of it are taken from the kernel of this
machine while it runs: they need no address, and should have none. It ends with Ctrl-C or after --duration, and prints what it did.
Needs root, or CAP_NET_ADMIN, CAP_NET_RAW and CAP_BPF.")]
pub(crate) struct Args {
    /// What the switch is made of, in TOML
    #[arg(long, value_name = "FILE")]
    config: String,
    /// Take lines of JSON that add, remove and list groups: a port of this machine alone, as in 9500, or unix:PATH
    #[arg(long, value_name = "ADDR")]
    control: Option<ControlAddress>,
    /// Serve counters for Prometheus at http://ADDR/metrics while it runs: a port of this machine alone, as in 9400, or ADDRESS:PORT
    #[arg(long, value_name = "ADDR")]
    metrics: Option<EndpointAddress>,
    /// Record what comes in and what leaves, port by port, as a pcapng file
    #[arg(long, value_name = "FILE")]
    pcap: Option<PathBuf>,
    /// End after this time: seconds, or a time as in 500ms
    #[arg(long, short = 'D', value_name = "TIME", value_parser = time_arg)]
    duration: Option<Duration>,
    /// The core that the forwarding thread stays on
    #[arg(long, value_name = "N", value_parser = crate::cores::one)]
    cpu: Option<usize>,
}

pub(crate) fn run(args: &Args, common: &Common) -> Result<ExitCode, String> {
    let options = config::read(&args.config)?;
    let options = Options { seed: common.seed, pcap: args.pcap.clone(), cpu: args.cpu, ..options };
    let control = args.control.as_ref().map(Control::bind).transpose()?;
    let endpoint = args.metrics.as_ref().map(Endpoint::bind).transpose()?;
    stop::install();
    let switch = WireSwitch::start(&options).map_err(|e| e.to_string())?;
    if let Some(control) = &control {
        control.serve(&switch.handle())?;
    }
    if let Some(endpoint) = endpoint {
        let handle = switch.handle();
        endpoint.serve(move || page_of_switch(&handle.report()))?;
    }
    // On stderr: it is there when frames pass, and whoever started this may wait for it.
    say!("softnic: {}", switch.description());
    watch(&switch, args.duration, common.json);
    let report = switch.stop().map_err(|e| e.to_string())?;
    let printed = match common.json {
        true => writeln!(io::stdout(), "{}", report::summary(&report)),
        false => write!(io::stdout(), "{}", report::text(&report, colour::wanted(io::stdout().is_terminal()))),
    };
    match printed {
        Err(e) if e.kind() != io::ErrorKind::BrokenPipe => Err(format!("cannot write the output: {e}")),
        _ => Ok(ExitCode::SUCCESS),
    }
}

/// Waits until it is time to end; on a terminal the counters are shown in place.
fn watch(switch: &WireSwitch, duration: Option<Duration>, as_json: bool) {
    let mut place = (!as_json && can_redraw()).then(InPlace::default);
    let handle = switch.handle();
    let begin = Instant::now();
    let (mut last, mut shown) = (begin, handle.report());
    let mut warned = vec![false; shown.ports.len()];
    while !stop::requested() && switch.is_running() && duration.is_none_or(|d| begin.elapsed() < d) {
        std::thread::sleep(duration.map_or(NAP, |d| NAP.min(d.saturating_sub(begin.elapsed()))));
        let report = handle.report();
        let mut notices = handle.take_notices();
        for (port, warned) in
            report.ports.iter().zip(&mut warned).filter(|(port, warned)| port.unsegmented > 0 && !**warned)
        {
            notices.push(unsegmented(&port.interface));
            *warned = true;
        }
        for notice in notices {
            say!("softnic: {notice}");
            place.iter_mut().for_each(InPlace::leave);
        }
        let Some(place) = place.as_mut().filter(|_| last.elapsed() >= INTERVAL) else { continue };
        let lines = report::live(&report, &shown, last.elapsed());
        let text = place.draw(&lines, Size::of(io::stdout()), str::to_owned);
        // Whoever reads the output may go; frames still pass.
        let mut out = io::stdout();
        let _ = out.write_all(text.as_bytes()).and_then(|()| out.flush());
        (last, shown) = (Instant::now(), report);
    }
    handle.take_notices().iter().for_each(|notice| say!("softnic: {notice}"));
}
