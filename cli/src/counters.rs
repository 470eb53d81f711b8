//! `softnic counters`: what the NICs of other processes counted.

use std::collections::BTreeMap;
use std::io::{self, ErrorKind, IsTerminal, Write};
use std::process::ExitCode;
use std::time::Duration;

use serde_json::Value;
use softnic_runtime::api::RunningNic;

use crate::plain::plain;
use crate::terminal::{InPlace, Size, can_redraw, fitting};
use crate::top::OWN_DROPS;
use crate::wire::running::Listed;
use crate::{Common, colour};

/// How the line of a wire that itself dropped frames begins.
const INVALID: &str = "INVALID";

/// Show the counters of NICs and wires that run in other processes of this network namespace
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  softnic counters
  softnic counters 4711 --watch 1
  softnic counters --json | jq '.counters.retransmitted_packets'

Only NICs of the same user answer; all do to root.")]
pub(crate) struct Args {
    /// Only those of this process
    pid: Option<u32>,
    /// Again and again, every so many seconds, until Ctrl-C, in place on a terminal; what grew is marked by how much
    #[arg(long, value_name = "SECONDS", value_parser = seconds_arg)]
    watch: Option<Duration>,
}

fn seconds_arg(s: &str) -> Result<Duration, String> {
    let seconds = s.parse().ok().filter(|s| (0.01..1e6).contains(s));
    seconds.map(Duration::from_secs_f64).ok_or_else(|| format!("'{s}' is no number of seconds"))
}

pub(crate) fn run(args: &Args, common: &Common) -> Result<ExitCode, String> {
    let mut before: BTreeMap<RunningNic, Value> = BTreeMap::new();
    let terminal = io::stdout().is_terminal();
    let colours = colour::wanted(terminal);
    let red = |line: &str| colour::red(line, colours && line.contains(INVALID));
    let mut place = (args.watch.is_some() && !common.json && can_redraw()).then(InPlace::default);
    loop {
        let answers = ask(args.pid, !before.is_empty())?;
        let of = |(nic, status): &(RunningNic, Value)| match common.json {
            true => vec![plain(&status.to_string())],
            false => lines(status, before.get(nic)),
        };
        let lines: Vec<String> = answers.iter().flat_map(of).collect();
        let text = match &mut place {
            Some(place) => place.draw(&lines, Size::of(io::stdout()), red),
            None => {
                let columns = if terminal && !common.json { Size::of(io::stdout()).columns } else { usize::MAX };
                lines.iter().map(|line| red(&fitting(line, columns)) + "\n").collect()
            }
        };
        let mut out = io::stdout();
        match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
            Err(e) if e.kind() == ErrorKind::BrokenPipe => return Ok(ExitCode::SUCCESS),
            Err(e) => return Err(format!("cannot write the output: {e}")),
            Ok(()) => before = answers.into_iter().collect(),
        }
        match args.watch {
            None => return Ok(ExitCode::SUCCESS),
            Some(pause) => std::thread::sleep(pause),
        }
    }
}

/// Asks all NICs, or those of one process. While one watches, it is no error that there is none any more.
fn ask(pid: Option<u32>, watching: bool) -> Result<Vec<(RunningNic, Value)>, String> {
    let all = RunningNic::all().map_err(|e| format!("cannot read /proc/net/unix: {e}"))?;
    let mut refusal = None;
    let mut answers = Vec::new();
    for nic in all.into_iter().filter(|nic| pid.is_none_or(|pid| pid == nic.pid)) {
        match nic.ask() {
            Ok(line) => {
                let status = serde_json::from_str(&line);
                answers.push((nic, status.map_err(|e| format!("process {} answers something else: {e}", nic.pid))?));
            }
            // It ended in between.
            Err(e) if e.kind() == ErrorKind::ConnectionRefused => {}
            Err(e) => refusal = Some(format!("NIC {} of process {} does not answer: {e}", nic.index, nic.pid)),
        }
    }
    match (answers.is_empty(), refusal, pid) {
        (true, Some(refusal), _) => Err(refusal),
        (true, None, _) if watching => Err("no NIC runs any more".into()),
        (true, None, Some(pid)) => Err(format!("process {pid} has no NIC in this network namespace")),
        (true, None, None) => Err("no NIC runs in this network namespace: start one, as with `softnic perf`".into()),
        (false, ..) => Ok(answers),
    }
}

/// What is shown of a NIC or a wire: counters that are not 0, with how much they grew.
fn lines(status: &Value, before: Option<&Value>) -> Vec<String> {
    let text = |name: &str| plain(status[name].as_str().unwrap_or("?"));
    let number = |name: &str| plain(&status[name].to_string());
    let addresses = status["addresses"].as_array().into_iter().flatten().filter_map(Value::as_str);
    let addresses: Vec<String> = addresses.map(plain).collect();
    let mut out = vec![format!("process {} NIC {}: {}", number("pid"), number("nic"), text("description"))];
    // A wire has none of these.
    if status["mac"].is_string() {
        out.push(format!(
            "  {} {}, mtu {}, {}, {} queue pairs",
            text("mac"),
            addresses.join(" "),
            number("mtu"),
            if status["up"] == true { "up" } else { "down" },
            number("queue_pairs")
        ));
    }
    if let Some(wire) = Listed::of(status) {
        out.push(format!("  faults: {}", if wire.fault.is_empty() { "none" } else { &wire.fault }));
        let dropped = own_drops(status);
        if dropped > 0 {
            out.push(format!("  {INVALID}: the wire itself dropped {dropped} frames"));
        }
    }
    for (name, value) in status["counters"].as_object().into_iter().flatten() {
        let Some(value) = value.as_u64().filter(|&n| n > 0) else { continue };
        let grown =
            before.and_then(|b| b["counters"][name.as_str()].as_u64()).map_or(0, |old| value.saturating_sub(old));
        let name = plain(name);
        out.push(match grown {
            0 => format!("  {name:<32} {value:>16}"),
            n => format!("  {name:<32} {value:>16}  +{n}"),
        });
    }
    out
}

/// Frames that a wire dropped by itself, in both directions.
pub(crate) fn own_drops(status: &Value) -> u64 {
    let counters = status["counters"].as_object().into_iter().flatten();
    let is_drop =
        |name: &str| OWN_DROPS.iter().any(|drop| name.strip_prefix("ab_").or(name.strip_prefix("ba_")) == Some(drop));
    counters.filter(|(name, _)| is_drop(name)).filter_map(|(_, n)| n.as_u64()).sum()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::{lines, own_drops};

    #[test]
    fn injected_loss_of_a_wire_is_no_drop_of_its_own() {
        let counters =
            json!({ "ab_fault_lost": 9, "ab_queue_full": 9, "ab_rx_missed": 2, "ba_tx_refused": 1, "rx_missed": 50 });
        assert_eq!(own_drops(&json!({ "counters": counters })), 3);
    }

    #[test]
    fn a_wire_that_dropped_frames_is_invalid_and_what_grew_is_marked() {
        let status = |missed: u64| {
            let counters = json!({ "ab_fault_lost": 9, "ab_rx_missed": missed });
            json!({ "pid": 7, "nic": 0, "description": "wire", "a": "x", "b": "y", "fault": "loss=0.5", "counters": counters })
        };
        let shown = lines(&status(5), Some(&status(2)));
        let expected = [
            "process 7 NIC 0: wire",
            "  faults: loss=0.5",
            "  INVALID: the wire itself dropped 5 frames",
            "  ab_fault_lost                                   9",
            "  ab_rx_missed                                    5  +3",
        ];
        assert_eq!(shown, expected);
    }
}
