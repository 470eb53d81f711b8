//! `softnic top`: all NICs and wires of this machine, in place.

mod model;
mod namespaces;
mod screen;
mod status;

use std::io::{self, ErrorKind, IsTerminal, Write};
use std::process::ExitCode;
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use softnic_fault_injector::units;
use softnic_perf::stop;

use crate::terminal::{Screen, Size, can_redraw};
use crate::wire::running;
use crate::{Common, colour};
use model::{Action, Model, Nic, Qp, Wire};
use status::Id;
pub(crate) use status::OWN_DROPS;

/// The longest wait for keys: a resized terminal and a signal are seen after it.
const NAP: Duration = Duration::from_millis(100);

/// Watch all NICs and wires of this machine, in place: rates, queue pairs, faults
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  softnic top
  softnic top 4711 --interval 500ms      # what one process has
  softnic top --once                     # one table, without keys
  softnic top --json | jq '.nics[].out_bps'

Keys: arrows select, Enter shows the queue pairs of a NIC and then one of them, Esc goes back, s sorts otherwise (rate, number, again),
f changes the faults of the wire that is selected, as `softnic wire set` does, q quits.

Only NICs and wires of the same user answer; all do to root, who also sees those of other network namespaces. Where stdout is no
terminal, one table is printed.")]
pub(crate) struct Args {
    /// Only those of this process
    pid: Option<u32>,
    /// The time that rates are of: seconds, or a time as in 500ms
    #[arg(long, value_name = "TIME", default_value = "1", value_parser = interval_arg)]
    interval: Duration,
    /// Print one table, after one interval, and end [default where stdin or stdout is no terminal]
    #[arg(long)]
    once: bool,
}

fn interval_arg(s: &str) -> Result<Duration, String> {
    let plain = s.parse().ok().and_then(|seconds| Duration::try_from_secs_f64(seconds).ok());
    let time = plain.map_or_else(|| units::parse_time(s), Ok)?;
    match (Duration::from_millis(50)..=Duration::from_secs(3600)).contains(&time) {
        true => Ok(time),
        false => Err("from 50ms to one hour".into()),
    }
}

pub(crate) fn run(args: &Args, common: &Common) -> Result<ExitCode, String> {
    stop::install();
    let interactive = !args.once && !common.json && can_redraw() && io::stdin().is_terminal();
    match interactive {
        true => watch(args),
        false => once(args, common.json),
    }
}

/// Two looks, and what was between them.
fn once(args: &Args, as_json: bool) -> Result<ExitCode, String> {
    let mut model = Model::default();
    model.update(namespaces::ask(args.pid)?, 0.0);
    let begin = Instant::now();
    while begin.elapsed() < args.interval {
        if stop::requested() {
            return Ok(ExitCode::from(stop::EXIT_CODE));
        }
        std::thread::sleep(NAP.min(args.interval.saturating_sub(begin.elapsed())));
    }
    model.update(namespaces::ask(args.pid)?, begin.elapsed().as_secs_f64());
    let text = match as_json {
        true => format!("{}\n", json_of(&model)),
        false => screen::table(&model, colour::wanted(io::stdout().is_terminal())),
    };
    match io::stdout().write_all(text.as_bytes()) {
        Err(e) if e.kind() != ErrorKind::BrokenPipe => Err(format!("cannot write the output: {e}")),
        _ => Ok(ExitCode::SUCCESS),
    }
}

/// Draws until somebody quits. The terminal is given back on every way out.
fn watch(args: &Args) -> Result<ExitCode, String> {
    let mut model = Model::default();
    model.update(namespaces::ask(args.pid)?, 0.0);
    let colours = colour::wanted(true);
    let terminal = |e: io::Error| format!("cannot use the terminal: {e}");
    let screen = Screen::take().map_err(terminal)?;
    let mut last = Instant::now();
    let mut drawn: Option<(Size, Vec<String>)> = None;
    loop {
        let size = screen.size();
        let lines = screen::lines(&model, size, colours);
        let now = Some((size, lines));
        if now != drawn {
            drawn = now;
            screen.draw(drawn.as_ref().map_or(&[], |(_, lines)| lines)).map_err(terminal)?;
        }
        let left = args.interval.saturating_sub(last.elapsed());
        let Some(keys) = screen.keys(NAP.min(left)).map_err(terminal)? else { return Ok(ExitCode::SUCCESS) };
        for key in keys {
            match model.press(key) {
                Action::Nothing => {}
                Action::Quit => return Ok(ExitCode::SUCCESS),
                Action::Interrupt => return Ok(ExitCode::from(stop::EXIT_CODE)),
                Action::SetFaults(id, spec) => {
                    let result = set_faults(id, &spec);
                    model.faults_set(id, spec, result);
                }
            }
        }
        if stop::requested() {
            return Ok(ExitCode::from(stop::EXIT_CODE));
        }
        if last.elapsed() >= args.interval {
            let seconds = last.elapsed().as_secs_f64();
            last = Instant::now();
            model.update(namespaces::ask(args.pid)?, seconds);
        }
    }
}

fn set_faults(id: Id, spec: &str) -> Result<(), String> {
    let set = namespaces::enter(id.namespace, || running::set(Some(id.pid), spec));
    set.unwrap_or_else(|| Err("the wire's network namespace is gone, or closed to this user".into()))
}

fn json_of(model: &Model) -> Value {
    json!({
        "seconds": model.seconds,
        "nics": model.nics.iter().map(json_of_nic).collect::<Vec<_>>(),
        "wires": model.wires.iter().map(json_of_wire).collect::<Vec<_>>(),
    })
}

fn json_of_nic(nic: &Nic) -> Value {
    let status = &nic.status;
    json!({
        "pid": status.id.pid,
        "nic": status.id.index,
        "description": status.device,
        "up": status.up,
        "queue_pairs": status.queue_pairs,
        "out_bps": nic.bits[0].now(),
        "in_bps": nic.bits[1].now(),
        "out_pps": nic.packets[0],
        "in_pps": nic.packets[1],
        "retransmitted_pps": nic.again,
        "qps": nic.qps.iter().map(json_of_qp).collect::<Vec<_>>(),
    })
}

fn json_of_qp(qp: &Qp) -> Value {
    let status = &qp.status;
    json!({
        "qpn": status.qpn,
        "transport": status.transport,
        "state": status.state,
        "peer": status.peer,
        "peer_qpn": status.peer_qpn,
        "mtu": status.mtu,
        "out_pps": qp.packets[0].now(),
        "in_pps": qp.packets[1].now(),
        "completed_per_s": qp.messages,
        "outstanding": status.posted.wrapping_sub(status.completed),
        "in_flight": status.in_flight,
        "window": status.window,
        "rate_bps": status.rate,
        "retries": status.retries,
        "rnr_retries": status.rnr_retries,
    })
}

fn json_of_wire(wire: &Wire) -> Value {
    let [a, b] = &wire.status.ends;
    let direction = |n: usize| {
        let total = wire.status.directions[n];
        json!({
            "bps": wire.bits[n].now(),
            "fps": wire.frames[n],
            "injected_per_s": wire.injected[n],
            "injected": total.injected,
            "dropped": total.dropped,
            "waiting": total.waiting,
        })
    };
    json!({
        "pid": wire.status.id.pid,
        "a": a,
        "b": b,
        "fault": wire.status.fault,
        "valid": wire.dropped() == 0,
        "ab": direction(0),
        "ba": direction(1),
    })
}

#[cfg(test)]
mod tests;
