//! `softnic collective` as people and scripts use it.

use std::path::PathBuf;
use std::process::{Command, Output};

use serde_json::Value;

fn collective(args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_softnic")).arg("collective").args(args).output().expect("softnic runs")
}

fn scratch(name: &str) -> PathBuf {
    std::env::temp_dir().join(format!("softnic-collective-{}-{name}", std::process::id()))
}

/// The lines of a run: an object for each rank, and the summary.
fn lines(args: &[&str]) -> (Vec<Value>, Value) {
    let out = collective(&[args, &["--json"]].concat());
    assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
    let text = String::from_utf8(out.stdout).expect("UTF-8");
    let mut lines: Vec<Value> = text.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect();
    let mut last = lines.pop().expect("lines");
    (lines, last["summary"].take())
}

#[test]
fn there_is_an_object_for_each_rank_and_a_summary_with_the_fields_of_the_contract() {
    let args =
        ["allreduce", "--ranks", "5", "--size", "1M", "--transport", "xp", "--fault", "loss=0.002", "--iters", "6"];
    let (ranks, all) = lines(&args);
    assert_eq!(ranks.len(), 5);
    for (i, object) in ranks.iter().chain([&all]).enumerate() {
        for part in ["mean", "p50", "p99", "p999", "max"] {
            assert!(object["cct_ms"][part].as_f64() > Some(0.0), "{object}");
        }
        assert!(object["missing_fraction"].as_f64().is_some_and(|x| x > 0.0 && x < 0.2), "{object}");
        assert!(object["timeouts_ms"]["first"].as_f64() > Some(0.0), "{object}");
        assert!(object["bus_gbps"].as_f64() > Some(0.0) && object["counters"]["messages"].as_u64() > Some(0));
        assert!(i == 5 || object["rank"].as_u64() == Some(i as u64));
    }
    assert_eq!((all["operation"].as_str(), all["transport"].as_str()), (Some("allreduce"), Some("xp")));
    assert_eq!(all["iterations"].as_u64(), Some(6));
    // The same again from the same seed.
    assert_eq!(lines(&args).1["digest"], all["digest"]);
    let reliable = lines(&["allreduce", "--ranks", "5", "--iters", "2"]).1;
    assert!(reliable["timeouts_ms"].is_null() && reliable["missing_fraction"].as_f64() == Some(0.0), "{reliable}");
}

#[test]
fn what_xp_lost_is_lost_again_by_the_file_over_rc() {
    let file = scratch("log");
    let path = file.to_str().expect("UTF-8");
    let same = ["allgather", "--ranks", "4", "--size", "200KB", "--iters", "4"];
    let xp = lines(&[&same[..], &["--transport", "xp", "--fault", "loss=0.01", "--losses", path]].concat()).1;
    let rc = lines(&[&same[..], &["--transport", "rc", "--replay", path]].concat()).1;
    std::fs::remove_file(&file).expect("it was written");
    assert!(xp["counters"]["missing_bytes"].as_u64() > Some(0), "{xp}");
    assert_eq!(rc["counters"]["missing_bytes"], xp["counters"]["missing_bytes"]);
    assert_eq!(rc["counters"]["partial_messages"], xp["counters"]["partial_messages"]);
}

#[test]
fn the_table_says_how_long_it_took_and_what_is_missing() {
    let out = collective(&[
        "broadcast",
        "--ranks",
        "6",
        "--root",
        "4",
        "--algo",
        "tree",
        "--iters",
        "3",
        "--transport",
        "xp",
    ]);
    let text = String::from_utf8(out.stdout).expect("UTF-8");
    assert!(out.status.success());
    for part in ["from rank 4, 6 ranks over xp", "completion times", "bus bandwidth", "budget", "missing", "digest"] {
        assert!(text.contains(part), "{part}: {text}");
    }
}

#[test]
fn a_network_from_a_file_has_no_flows_beside_the_collective() {
    let file = scratch("net.toml");
    let path = file.to_str().expect("UTF-8");
    let net = "kind = \"leaf-spine\"\nleaves = 2\nspines = 2\nhosts = 3\n";
    std::fs::write(&file, net).expect("written");
    let (ranks, _) = lines(&["alltoall", "--topology", path, "--iters", "2"]);
    assert_eq!(ranks.len(), 6);
    let refused = collective(&["alltoall", "--topology", path, "--ranks", "7"]);
    std::fs::write(&file, format!("{net}[[flow]]\nfrom = \"h0\"\nto = \"h1\"\n")).expect("written");
    let flows = collective(&["alltoall", "--topology", path]);
    std::fs::remove_file(&file).expect("it was written");
    for (out, words) in [(refused, "has 6 hosts"), (flows, "take the flows and groups out")] {
        let text = String::from_utf8(out.stderr).expect("UTF-8");
        assert!(!out.status.success() && text.contains(words) && text.lines().count() == 1, "{text}");
    }
}

#[test]
fn ranks_of_one_process_run_in_real_time() {
    for transport in ["rc", "xp"] {
        let args =
            ["allreduce", "--dev", "mem", "--ranks", "3", "--size", "64K", "--iters", "3", "--transport", transport];
        let (ranks, all) = lines(&args);
        assert_eq!((ranks.len(), all["iterations"].as_u64()), (3, Some(3)));
        assert!(all["digest"].is_null() && all["cct_ms"]["mean"].as_f64() > Some(0.0), "{all}");
    }
    let out = collective(&["allreduce", "--dev", "afxdp:nowhere"]);
    assert!(String::from_utf8_lossy(&out.stderr).contains("say which one with --rank"));
}

#[test]
fn what_cannot_be_run_is_told_in_a_line() {
    let wrong: [(&[&str], &str); 6] = [
        (&["alltoall", "--algo", "tree"], "softnic: tree has no alltoall: ring and bcube have every operation"),
        (&["allreduce", "--size", "1001"], "softnic: 1001 bytes are no whole number of elements of f32"),
        (&["broadcast", "--ranks", "3", "--root", "3"], "softnic: there is no rank 3 to broadcast: the group has 3"),
        (&["allreduce", "--ranks", "0"], "softnic: --ranks 0"),
        (&["allreduce", "--replay", "/nowhere/at/all"], "softnic: /nowhere/at/all: "),
        (
            &["allreduce", "--ranks", "3", "--fault", "down=0s+100s", "--patience", "2s"],
            "softnic: rank 0: messages with rank 1 ended: transport retry counter exceeded",
        ),
    ];
    for (args, words) in wrong {
        let out = collective(args);
        let text = String::from_utf8(out.stderr).expect("UTF-8");
        assert!(!out.status.success() && text.contains(words) && text.lines().count() == 1, "{args:?}: {text}");
        assert!(out.stdout.is_empty());
    }
    let out = collective(&["allreduce", "--transport", "ud"]);
    assert!(String::from_utf8_lossy(&out.stderr).contains("a collective goes by rc, sr"));
    let out = collective(&["scatter"]);
    assert!(String::from_utf8_lossy(&out.stderr).contains("there is no collective 'scatter': allreduce, "));
}
