//! `softnic run --summary` over several processes of a real verbs program: all are counted, those that ended by a signal, too.

use std::process::Command;

use serde_json::Value;

use super::Bench;
use crate::guest::Error;

const MESSAGES: u64 = 300;

/// A server and a client that end well, and behind them a server that is killed while it waits. All are children of one shell.
const SCRIPT: &str = "ibv_rc_pingpong -g 0 -p 18551 -n 300 -s 64 & server=$!
while ! ibv_rc_pingpong -g 0 -p 18551 -n 300 -s 64 127.0.0.1; do kill -0 $server || exit 1; sleep 0.05; done
wait $server || exit 1
ibv_rc_pingpong -g 0 -p 18552 & victim=$!
sleep 0.5; kill -KILL $victim; wait $victim; exit 0";

/// Runs it.
pub(super) fn run(bench: &Bench) -> Result<(), Error> {
    let network = format!("shm:/tmp/softnic-summary-{}", std::process::id());
    let mut command = Command::new(&bench.softnic);
    command.args(["run", "--dev", &network, "--fault", "loss=0.02", "--summary", "--json"]);
    command.args(["--fail-on", "retransmitted_packets>0", "--fail-on", "sent_pkts<600"]);
    command.args(["--", "sh", "-c", SCRIPT]).env("TMPDIR", bench.temporary());
    let output = command.output().map_err(|e| Error::Failed(format!("`softnic run` cannot be started: {e}")))?;
    let _ = std::fs::remove_dir_all(network.trim_start_matches("shm:"));
    let (out, err) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    judge(output.status.code(), &out).map_err(|why| Error::Failed(format!("{why}\n{out}{err}")))
}

fn judge(code: Option<i32>, out: &str) -> Result<(), String> {
    let json: Value = out.lines().last().and_then(|line| serde_json::from_str(line).ok()).unwrap_or_default();
    let device = &json["devices"][0];
    let count = |name: &str| device["counters"][name].as_u64().unwrap_or(0);
    let processes = device["processes"].as_array().map_or(0, Vec::len);
    // A client that came too early opened the device as well.
    if device["device"] != "softnic0" || processes < 3 {
        return Err(format!("{processes} processes are counted, of three"));
    }
    // Each end sends every message, and each is received.
    let (sent, received) = (count("sent_requests"), count("rx_send_requests"));
    if sent < 2 * MESSAGES || received != 2 * MESSAGES {
        return Err(format!("{sent} requests sent and {received} received, of {}", 2 * MESSAGES));
    }
    let failed: Vec<&str> =
        json["failed"].as_array().into_iter().flatten().filter_map(|f| f["condition"].as_str()).collect();
    match (code, &failed[..]) {
        (Some(122), ["retransmitted_packets>0"]) => Ok(()),
        _ => Err(format!("exit code {code:?}, failed on {failed:?}")),
    }
}
