//! `softnic run --pcap` under a verbs program: what was recorded can be read, and is right.

use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use serde_json::Value;

use super::Bench;
use super::ends;
use super::pair::Pair;
use super::tools::{Case, Prints, case};
use crate::guest::Error;

const MESSAGES: u64 = 100;
const CASE: Case = case("ibv_rc_pingpong", "-n 100 -c", Prints::PingPong, true);
const LIMIT: Duration = Duration::from_secs(30);

/// Runs it with the server's frames recorded, and looks at them.
pub(super) fn run(bench: &Bench, pair: &mut Pair) -> Result<(), Error> {
    refused(&bench.softnic).map_err(Error::Failed)?;
    let file = bench.scratch.0.join("recorded.pcap");
    pair.server.pcap = Some(file.clone());
    let ran = ends::run(&CASE, &mut pair.server, &mut pair.client, LIMIT);
    pair.server.pcap = None;
    ran?;
    let judged = inspect(&bench.softnic, &file);
    // Whatever the file is worth, the next run begins with none.
    let _ = fs::remove_file(&file);
    judged.map_err(Error::Failed)
}

/// A capture on a full disk ends the program with the capture's own message.
fn refused(softnic: &Path) -> Result<(), String> {
    let mut command = Command::new(softnic);
    let output = command.args(["run", "--dev", "mem", "--pcap", "/dev/full", "--", "ibv_devinfo"]).output();
    let output = output.map_err(|e| format!("`softnic run` cannot be started: {e}"))?;
    let said = String::from_utf8_lossy(&output.stderr);
    match !output.status.success() && said.contains("softnic: cannot write the capture /dev/full: No space left") {
        true => Ok(()),
        false => Err(format!("a full disk: exit code {:?}, {said}", output.status.code())),
    }
}

/// What `softnic inspect --json` says of a capture: a value for each packet, and the summary behind them.
pub(super) fn inspected(softnic: &Path, file: &Path) -> Result<Vec<Value>, String> {
    let output = Command::new(softnic).args(["inspect", "--json"]).arg(file).output();
    let output = output.map_err(|e| format!("`softnic inspect` cannot be started: {e}"))?;
    if !output.status.success() {
        return Err(format!("`softnic inspect`: {}", String::from_utf8_lossy(&output.stderr).trim()));
    }
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let value = |line| serde_json::from_str(line).map_err(|e| format!("`softnic inspect` prints no JSON: {e}"));
    text.lines().map(value).collect()
}

/// Every packet whole, and all messages of both ends there.
fn inspect(softnic: &Path, file: &Path) -> Result<(), String> {
    let summary = inspected(softnic, file)?.pop().unwrap_or_default();
    let count = |path: &str| summary.pointer(path).and_then(Value::as_u64).unwrap_or(0);
    let sends: u64 = summary
        .pointer("/summary/opcodes")
        .and_then(Value::as_object)
        .into_iter()
        .flatten()
        .filter(|(name, _)| name.starts_with("RC_SEND") && (name.ends_with("ONLY") || name.ends_with("LAST")))
        .filter_map(|(_, n)| n.as_u64())
        .sum();
    let (ok, bad) = (count("/summary/icrc/ok"), count("/summary/icrc/bad") + count("/summary/icrc/truncated"));
    match ok > 0 && bad == 0 && sends >= 2 * MESSAGES {
        true => Ok(()),
        false => Err(format!("of {} messages {sends} are recorded; ICRCs: {ok} right, {bad} wrong", 2 * MESSAGES)),
    }
}
