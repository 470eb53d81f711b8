//! What is printed and written, what is refused, and Ctrl-C.

use std::fs;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::Value;

use crate::support::*;

#[test]
fn json_has_an_object_for_each_figure_and_a_summary() {
    let folder = Folder::new("json");
    let text = quick(&folder, "lowar-overhead", &["--transports", "rc,sr", "--json"]);
    let lines: Vec<Value> = text.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect();
    let (summary, rows) = lines.split_last().expect("lines");
    assert_eq!(rows.len(), csv(&folder.read("lowar-overhead-quick.csv")).len());
    let of = |transport: &str, lost: &str| {
        rows.iter().find(|row| row["transport"] == transport && row["lost"] == lost).expect("measured")
    };
    assert_eq!(of("rc", "nothing")["lost_packets"], 0.0);
    assert_eq!(of("sr", "16 in a row of the last block")["sent_again"], 16.0, "those alone");
    assert!(of("rc", "one of a middle block")["recovering_us"].as_f64() > Some(9.9), "a round trip");
    let summary = &summary["summary"];
    assert_eq!((&summary["experiment"], &summary["runs"]), (&"lowar-overhead".into(), &summary["of"]));
    assert_eq!(summary["files"].as_array().map(Vec::len), Some(4));
}

#[test]
fn wrong_arguments_get_one_clear_line() {
    let folder = Folder::new("wrong");
    let file = folder.0.join("file");
    fs::write(&file, "").expect("written");
    let out = file.to_str().expect("UTF-8");
    for (args, code, line) in [
        (&["lowar-fct", "--transports", "rc,ud"][..], 2, "ud is not reliable, and only reliable transports are raced"),
        (
            &["lowar-fct", "--transports", "xq"],
            2,
            "there is no transport `xq`: choose from rc, sr[:PACKETS], lowar[:R,C]",
        ),
        (&["lowar-fct", "--transports", "lowar:8"], 2, "`8` are no blocks of lowar"),
        (&["lowar-fct", "--transports", "rc,sr,rc"], 2, "rc is there twice"),
        (&["lowar-fct", "--seeds", "0"], 2, "0 is not in 1..=1000"),
        (&["lowar-fct", "--threads", "0"], 2, "0 is not in 1..=1024"),
        (&["lowar-fct", "--connect", "::1"], 2, "--dev <DEVICE>"),
        (
            &["lowar-fct", "--dev", "mem"],
            1,
            "lowar-fct is for virtual time: on a device there are lowar-goodput, sdr-throughput, sdr-chunk",
        ),
        (&["sdr-ec-vs-xor", "--dev", "mem"], 1, "sdr-ec-vs-xor needs no device"),
        (&["shift-fallback", "--dev", "mem"], 1, "shift-fallback is for virtual time"),
        (&["shift-fallback", "--seeds", "2"], 1, "all seeds are alike: leave --seeds out"),
        (&["shift-fallback", "--transports", "rc,sr"], 1, "one transport at a time"),
        (&["shift-training", "--transports", "sr"], 1, "shift-training is about rc: leave --transports out"),
        (&["shift-verbs", "--transports", "sr"], 1, "shift-verbs is about rc: leave --transports out"),
        (&["shift-memory", "--dev", "mem"], 1, "shift-memory is for wires in memory"),
        (&["shift-latency", "--seeds", "2"], 1, "all seeds are alike: leave --seeds out"),
        (&["sdr-chunk", "--transports", "rc"], 1, "sdr-chunk has its own contestants: leave --transports out"),
        (&["lowar-goodput", "--dev", "mem", "--connect", "::1"], 1, "mem is inside one process"),
        (&["--dev", "mem", "--server"], 1, "mem is inside one process"),
        (&["lowar-goodput", "--dev", "mem", "--rate", "1Gbit"], 1, "--rate is at most 800Mbit"),
        (&["lowar-goodput", "--dev", "afxdp:nothing0"], 1, "say --server there and --connect ADDR here"),
        (&["lowar-fct", "--out", out], 1, "choose another folder with --out"),
        (&["lowar-fct", "--out", "/proc/nothing"], 1, "/proc/nothing: No such file"),
    ] {
        let out = experiment(args);
        let said = String::from_utf8_lossy(&out.stderr).into_owned();
        assert_eq!(out.status.code(), Some(code), "{args:?}: {said}");
        assert!(said.contains(line) && out.stdout.is_empty(), "{args:?}: {said}");
        assert!(code == 2 || said.lines().count() == 1, "{said}");
    }
}

#[test]
fn what_cannot_be_written_is_named() {
    let folder = Folder::new("unwritable");
    let taken = folder.0.join("lowar-small-quick.csv");
    fs::create_dir(&taken).expect("made");
    let out = experiment(&["lowar-small", "--quick", "--transports", "rc", "--out", folder.path()]);
    let said = String::from_utf8_lossy(&out.stderr).into_owned();
    assert_eq!(out.status.code(), Some(1));
    assert!(said.contains(&format!("softnic: {}: ", taken.display())), "{said}");
    // Linux's always full device.
    let full = fs::OpenOptions::new().write(true).open("/dev/full").expect("there");
    let other = Folder::new("full");
    let mut command = softnic(&["lowar-overhead", "--transports", "rc", "--out", other.path()]);
    let out = command.stdout(full).output().expect("softnic runs");
    let said = String::from_utf8_lossy(&out.stderr).into_owned();
    assert!(out.status.code() == Some(1) && said.contains("cannot write the output: No space left"), "{said}");
}

#[test]
fn a_quick_or_interrupted_run_leaves_the_files_of_a_full_one_as_they_are() {
    let folder = Folder::new("kept");
    // Nothing is random in this one, and nothing takes long.
    let out = experiment(&["lowar-overhead", "--transports", "rc", "--out", folder.path()]);
    assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
    let full = all_files(&folder);
    assert_eq!(full.len(), 4, "CSV, the paper's, SVG, JSON");
    quick(&folder, "lowar-overhead", &["--transports", "rc,sr"]);
    let both = all_files(&folder);
    assert_eq!(both.len(), 8);
    assert!(full.iter().all(|file| both.contains(file)), "the full ones are the same");
    let made_by = |name: &str| serde_json::from_str::<Value>(&folder.read(name)).expect("JSON")["made_by"].clone();
    assert_eq!(
        (&made_by("lowar-overhead.json")["quick"], &made_by("lowar-overhead-quick.json")["quick"]),
        (&false.into(), &true.into())
    );
    assert_eq!(made_by("lowar-overhead.json")["runs"], made_by("lowar-overhead.json")["of"]);
}

#[test]
fn stored_results_are_drawn_again_with_the_same_bytes() {
    let folder = Folder::new("again-drawn");
    quick(&folder, "lowar-overhead", &["--transports", "rc,lowar:8,1"]);
    let svg = folder.read("lowar-overhead-quick.svg");
    fs::remove_file(folder.0.join("lowar-overhead-quick.svg")).expect("there");
    let plot = |args: &[&str]| {
        Command::new(env!("CARGO_BIN_EXE_softnic")).arg("plot").args(args).output().expect("softnic runs")
    };
    let results = folder.0.join("lowar-overhead-quick.json");
    let out = plot(&[results.to_str().expect("UTF-8")]);
    assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
    assert_eq!(folder.read("lowar-overhead-quick.svg"), svg);
    assert!(svg.contains("class=\"bar\"") && svg.contains("lowar:8,1"), "bars for categories");
    let out = plot(&[folder.0.join("lowar-overhead-quick.csv").to_str().expect("UTF-8")]);
    let said = String::from_utf8_lossy(&out.stderr).into_owned();
    assert!(out.status.code() == Some(1) && said.contains("is no file of results"), "{said}");
}

#[cfg(not(feature = "png"))]
#[test]
fn png_says_before_any_work_which_softnic_has_it() {
    let folder = Folder::new("png");
    let out = experiment(&["lowar-goodput", "--png", "--out", folder.path()]);
    let said = String::from_utf8_lossy(&out.stderr).into_owned();
    assert!(out.status.code() == Some(1) && said.contains("--features png") && said.lines().count() == 1, "{said}");
    assert_eq!(all_files(&folder), []);
}

#[test]
fn ctrl_c_prints_and_writes_what_is_done_so_far() {
    let folder = Folder::new("interrupted");
    let args = ["lowar-small", "--quick", "--transports", "rc,sr", "--seeds", "1000", "--out", folder.path()];
    let mut child = softnic(&args).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("softnic runs");
    let mut lines = BufReader::new(child.stderr.take().expect("piped")).lines();
    let first = lines.next().expect("a line").expect("UTF-8");
    assert!(first.contains("runs done"), "progress: {first}");
    kill(Pid::from_raw(child.id() as i32), Signal::SIGINT).expect("sent");
    let rest: Vec<String> = lines.map(|line| line.expect("UTF-8")).collect();
    let out = child.wait_with_output().expect("it ends");
    assert_eq!(out.status.code(), Some(130), "{rest:?}");
    assert!(rest.last().is_some_and(|line| line.contains("interrupted: the figures are of")), "{rest:?}");
    assert!(String::from_utf8_lossy(&out.stdout).contains('–'), "not all was measured");
    let rows = csv(&folder.read("lowar-small-quick-interrupted.csv"));
    assert!(rows.iter().any(|row| !row["goodput_mbps"].is_empty()), "some was");
    assert!(rows.iter().any(|row| row["goodput_mbps"].is_empty()));
    assert_well_formed(&folder.read("lowar-small-quick-interrupted.svg"));
    assert!(Path::new(folder.path()).is_dir());
}

#[test]
fn help_shows_an_example() {
    let out = experiment(&["--help"]);
    let text = String::from_utf8_lossy(&out.stdout);
    assert!(out.status.success() && text.contains("softnic experiment lowar-goodput --quick"), "{text}");
}
