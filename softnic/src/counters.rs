//! `softnic counters`: what the NICs of other processes counted.

use std::collections::BTreeMap;
use std::io::{self, ErrorKind, IsTerminal, Write};
use std::process::ExitCode;
use std::time::Duration;

use serde_json::Value;
use softnic_runtime::api::RunningNic;

use crate::plain::plain;
use crate::wire::running::Listed;
use crate::{Common, colour};

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
    /// Again and again, every so many seconds, until Ctrl-C; what grew is marked by how much
    #[arg(long, value_name = "SECONDS", value_parser = seconds_arg)]
    watch: Option<Duration>,
}

fn seconds_arg(s: &str) -> Result<Duration, String> {
    let seconds = s.parse().ok().filter(|s| (0.01..1e6).contains(s));
    seconds.map(Duration::from_secs_f64).ok_or_else(|| format!("'{s}' is no number of seconds"))
}

pub(crate) fn run(args: &Args, common: &Common) -> Result<ExitCode, String> {
    let mut before: BTreeMap<RunningNic, Value> = BTreeMap::new();
    loop {
        let answers = ask(args.pid, !before.is_empty())?;
        for (nic, status) in answers {
            let printed = match common.json {
                true => writeln!(io::stdout(), "{}", plain(&status.to_string())),
                false => print(&status, before.get(&nic)),
            };
            match printed {
                Err(e) if e.kind() == ErrorKind::BrokenPipe => return Ok(ExitCode::SUCCESS),
                Err(e) => return Err(format!("cannot write the output: {e}")),
                Ok(()) => {}
            }
            before.insert(nic, status);
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

/// A line that a terminal of 80 columns shows in one row; the whole line elsewhere.
fn fitting(line: &str, on_terminal: bool) -> String {
    const COLUMNS: usize = 80;
    match on_terminal && line.chars().count() > COLUMNS {
        true => line.chars().take(COLUMNS - 1).chain(['…']).collect(),
        false => line.into(),
    }
}

fn print(status: &Value, before: Option<&Value>) -> io::Result<()> {
    let mut out = io::stdout().lock();
    let text = |name: &str| plain(status[name].as_str().unwrap_or("?"));
    let number = |name: &str| plain(&status[name].to_string());
    let addresses = status["addresses"].as_array().into_iter().flatten().filter_map(Value::as_str);
    let addresses: Vec<String> = addresses.map(plain).collect();
    let heading = format!("process {} NIC {}: {}", number("pid"), number("nic"), text("description"));
    writeln!(out, "{}", fitting(&heading, out.is_terminal()))?;
    // A wire has none of these.
    if status["mac"].is_string() {
        writeln!(
            out,
            "  {} {}, mtu {}, {}, {} queue pairs",
            text("mac"),
            addresses.join(" "),
            number("mtu"),
            if status["up"] == true { "up" } else { "down" },
            number("queue_pairs")
        )?;
    }
    if let Some(wire) = Listed::of(status) {
        writeln!(out, "  faults: {}", if wire.fault.is_empty() { "none" } else { &wire.fault })?;
        let dropped = own_drops(status);
        if dropped > 0 {
            let text = format!("  INVALID: the wire itself dropped {dropped} frames");
            writeln!(out, "{}", colour::red(&text, colour::wanted(out.is_terminal())))?;
        }
    }
    for (name, value) in status["counters"].as_object().into_iter().flatten() {
        let Some(value) = value.as_u64().filter(|&n| n > 0) else { continue };
        let grown =
            before.and_then(|b| b["counters"][name.as_str()].as_u64()).map_or(0, |old| value.saturating_sub(old));
        let name = plain(name);
        match grown {
            0 => writeln!(out, "  {name:<32} {value:>16}")?,
            n => writeln!(out, "  {name:<32} {value:>16}  +{n}")?,
        }
    }
    out.flush()
}

/// Frames that a wire dropped by itself, in both directions.
pub(crate) fn own_drops(status: &Value) -> u64 {
    const DROPS: [&str; 5] = ["overflowed", "too_long", "unsegmented", "rx_missed", "tx_refused"];
    let counters = status["counters"].as_object().into_iter().flatten();
    let is_drop =
        |name: &str| DROPS.iter().any(|drop| name.strip_prefix("ab_").or(name.strip_prefix("ba_")) == Some(drop));
    counters.filter(|(name, _)| is_drop(name)).filter_map(|(_, n)| n.as_u64()).sum()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::{fitting, own_drops};

    #[test]
    fn injected_loss_of_a_wire_is_no_drop_of_its_own() {
        let counters =
            json!({ "ab_fault_lost": 9, "ab_queue_full": 9, "ab_rx_missed": 2, "ba_tx_refused": 1, "rx_missed": 50 });
        assert_eq!(own_drops(&json!({ "counters": counters })), 3);
    }

    #[test]
    fn a_long_description_does_not_wrap_on_a_terminal() {
        let long = "x".repeat(200);
        assert_eq!((fitting(&long, true).chars().count(), fitting(&long, false)), (80, long));
    }
}
