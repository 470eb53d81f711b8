//! Races, and runs in real time.

use std::io::{BufRead, BufReader};
use std::net::TcpListener;
use std::process::{Command, Stdio};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::Value;

use crate::support::*;

#[test]
fn any_grid_is_raced_and_written_as_table_csv_and_chart() {
    let folder = std::path::Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("race-{}", std::process::id()));
    let race = |more: &[&str]| {
        let mut command = std::process::Command::new(env!("CARGO_BIN_EXE_softnic"));
        command.args([
            "race",
            "--transports",
            "gbn,sr",
            "--loss",
            "0,1e-3..3e-3",
            "--rtt",
            "1ms",
            "--size",
            "64K",
            "--seeds",
            "2",
        ]);
        command.args(["--out", folder.to_str().unwrap()]).args(more).output().unwrap()
    };
    let out = race(&["--json"]);
    assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
    let rows: Vec<serde_json::Value> =
        String::from_utf8_lossy(&out.stdout).lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    // Two transports at three losses, and the summary.
    assert_eq!(rows.len(), 7);
    let goodput = |i: usize| rows[i]["goodput_gbps"].as_f64().unwrap();
    assert!((goodput(0) / goodput(1) - 1.0).abs() < 0.1, "without loss they are alike");
    assert!(goodput(5) > 2.0 * goodput(4), "with 0.3 % sr has far more: {} and {}", goodput(5), goodput(4));
    assert_eq!(rows[5]["seeds"], 2.0);
    let csv = std::fs::read_to_string(folder.join("race.csv")).unwrap();
    assert!(csv.lines().count() == 7 && csv.starts_with("transport,connections,rtt_ms"), "{csv}");
    let svg = std::fs::read_to_string(folder.join("race.svg")).unwrap();
    assert_well_formed(&svg);
    assert!(svg.contains("rc, theory") && svg.contains(">−3</tspan>"), "a line of theory, and powers of ten");
    assert!(svg.contains("class=\"error\"") && svg.contains("from the lowest to the highest"), "error bars, said");
    let text = String::from_utf8_lossy(&race(&["--metric", "fct-mean"]).stdout).into_owned();
    assert!(text.contains("Mean completion time in ms") && text.contains("sr/rc"), "{text}");
    for (wrong, word) in
        [(&["--loss", "2"][..], "chance"), (&["--rtt", "5"], "time"), (&["--transports", "uc"], "reliable")]
    {
        let out = std::process::Command::new(env!("CARGO_BIN_EXE_softnic")).arg("race").args(wrong).output().unwrap();
        let said = String::from_utf8_lossy(&out.stderr).into_owned();
        assert!(!out.status.success() && said.contains(word), "{wrong:?}: {said}");
    }
    std::fs::remove_dir_all(folder).unwrap();
}

#[test]
fn on_a_wire_in_memory_goodput_is_measured_in_real_time() {
    let folder = Folder::new("mem");
    let text = quick(&folder, "lowar-goodput", &["--dev", "mem", "--rate", "50Mbit", "--transports", "rc,lowar:32,1"]);
    let rows = csv(&folder.read("lowar-goodput-wire-quick.csv"));
    assert_eq!(rows.len(), 4, "two transports, two chances of loss");
    for row in rows {
        let goodput = number(&row, "goodput_gbps");
        assert!(goodput > 0.0 && goodput < 0.05, "less than the emulated link's rate: {row:?}");
    }
    assert!(text.contains("0.05 Gbit/s") && text.contains("mem"), "{text}");
    assert_well_formed(&folder.read("lowar-goodput-wire-quick.svg"));
}

fn race(args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_softnic"));
    command.arg("race").args(args);
    command
}

#[test]
fn the_same_grid_is_raced_in_real_time_between_two_nics_of_this_process() {
    // A network that nobody else is on.
    let shm = format!("shm:race{}", std::process::id());
    for (device, metric) in [("mem", "goodput"), (&*shm, "fct-mean")] {
        let folder = Folder::new(&format!("race-{metric}"));
        let grid = ["--transports", "rc,lowar:32,1", "--loss", "0,1e-2", "--size", "16K", "--seeds", "2"];
        let how = ["--dev", device, "--metric", metric, "--duration", "0.1", "--json", "--out", folder.path()];
        let out = race(&[&grid[..], &how].concat()).output().expect("softnic runs");
        assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
        let text = String::from_utf8(out.stdout).expect("UTF-8");
        let lines: Vec<Value> = text.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect();
        let (summary, rows) = lines.split_last().expect("lines");
        assert_eq!((rows.len(), &summary["summary"]["runs"], &summary["summary"]["of"]), (4, &8.into(), &8.into()));
        for row in rows {
            let figure = |name: &str| row[name].as_f64();
            assert!(figure("messages") > Some(0.0) && figure("goodput_gbps") > Some(0.0), "{row}");
            assert!(figure("goodput_gbps") < Some(0.2), "less than the emulated link's rate: {row}");
            // A message takes a round trip at least.
            assert_eq!(figure("fct_mean_ms") >= Some(1.0), metric == "fct-mean", "{row}");
        }
        let results: Value = serde_json::from_str(&folder.read("race-wire.json")).expect("JSON");
        let what = results["made_by"]["what"].as_str().expect("text");
        assert!(what.contains(&format!("In real time on {device}")) && what.contains("of this machine"), "{what}");
        assert_eq!(csv(&folder.read("race-wire.csv")).len(), 4);
        assert_well_formed(&folder.read("race-wire.svg"));
    }
}

#[test]
fn ctrl_c_leaves_what_was_raced_in_real_time_under_a_name_of_its_own() {
    let folder = Folder::new("race-interrupted");
    let grid = ["--transports", "rc", "--loss", "0,1e-2", "--size", "16K", "--seeds", "50"];
    let how = ["--dev", "mem", "--duration", "0.1", "--out", folder.path()];
    let mut command = race(&[&grid[..], &how].concat());
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("softnic runs");
    let mut lines = BufReader::new(child.stderr.take().expect("piped")).lines();
    let first = lines.next().expect("a line").expect("UTF-8");
    assert!(first.contains("runs done, about") && first.ends_with("left"), "an estimate: {first}");
    kill(Pid::from_raw(child.id() as i32), Signal::SIGINT).expect("sent");
    let rest: Vec<String> = lines.map(|line| line.expect("UTF-8")).collect();
    assert_eq!(child.wait().expect("it ends").code(), Some(130), "{rest:?}");
    assert!(rest.last().is_some_and(|line| line.contains("interrupted: the figures are of")), "{rest:?}");
    let rows = csv(&folder.read("race-wire-interrupted.csv"));
    assert!(number(&rows[0], "seeds") >= 1.0 && rows[1]["goodput_gbps"].is_empty(), "{rows:?}");
    assert!(!folder.0.join("race-wire.csv").exists());
}

#[test]
fn what_a_device_cannot_emulate_is_refused_with_what_it_can() {
    for (args, line) in [
        (&["--dev", "mem", "--rate", "10Gbit", "--rtt", "40ms"][..], "--rate is at most 818Mbit there"),
        (&["--dev", "mem", "--size", "8M"], "choose a smaller --size"),
        (&["--dev", "mem", "--connect", "::1"], "mem is inside one process"),
        (&["--dev", "mem", "--server"], "mem is inside one process"),
        (&["--dev", "afxdp:nothing0"], "say --server there and --connect ADDR here"),
        (&["--dev", "mem", "--qps", "2", "--metric", "fct-p99"], "leave --qps out"),
        (&["--dev", "shm", "--fault", "ab.loss=1e-2"], "--fault: "),
    ] {
        let out = race(args).output().expect("softnic runs");
        let said = String::from_utf8_lossy(&out.stderr).into_owned();
        assert!(out.status.code() == Some(1) && said.contains(line) && said.lines().count() == 1, "{args:?}: {said}");
    }
}

#[test]
fn a_server_serves_all_runs_of_a_client_and_ends_with_ctrl_c() {
    let folder = Folder::new("dgram");
    let sockets = ["a", "b"].map(|name| folder.0.join(name).to_str().expect("UTF-8").to_string());
    let device = |i: usize| format!("dgram:{},{},ip=10.9.1.{}/24", sockets[i], sockets[1 - i], i + 1);
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let port = listener.local_addr().expect("bound").port().to_string();
    drop(listener);
    let mut server = softnic(&["--server", "--dev", &device(0), "--port", &port])
        .stderr(Stdio::piped())
        .spawn()
        .expect("softnic runs");
    let mut said = BufReader::new(server.stderr.take().expect("piped"));
    let mut line = String::new();
    said.read_line(&mut line).expect("a line");
    assert!(line.contains("waiting for clients"), "{line}");
    let client = ["--dev", &device(1), "--connect", "127.0.0.1", "--port", &port, "--rate", "20Mbit"];
    let _ = quick(&folder, "lowar-goodput", &[&client[..], &["--transports", "rc,sr"]].concat());
    assert_eq!(csv(&folder.read("lowar-goodput-wire-quick.csv")).len(), 4, "one run after the other");
    kill(Pid::from_raw(server.id() as i32), Signal::SIGINT).expect("sent");
    assert!(server.wait().expect("it ends").success());
}
