//! `softnic trace`, and `--trace` of `sim` and `perf`.

use std::path::PathBuf;
use std::process::{Command, Output};

use serde_json::Value;

fn softnic(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_softnic")).args(arguments).output().unwrap()
}

fn corpus(name: &str) -> String {
    format!("{}/../pcaps/corpus/{name}", env!("CARGO_MANIFEST_DIR"))
}

/// A file of this test alone.
fn file(name: &str) -> PathBuf {
    std::env::temp_dir().join(format!("softnic-trace-{}-{name}", std::process::id()))
}

/// The events of a trace; its header is well formed.
fn events(text: &str) -> Vec<Value> {
    let mut records = text
        .split_terminator('\n')
        .map(|line| serde_json::from_str::<Value>(line.strip_prefix('\u{1e}').expect("a record separator")).unwrap());
    assert_eq!(records.next().unwrap()["file_schema"], "urn:ietf:params:qlog:file:sequential");
    records.collect()
}

#[test]
fn a_capture_becomes_a_trace_that_says_what_was_sent_again_and_why() {
    let Output { status, stdout, .. } = softnic(&["trace", &corpus("loss_send_middle_nak.pcap")]);
    assert!(status.success());
    let events = events(&String::from_utf8(stdout).unwrap());
    let again: Vec<&Value> = events.iter().filter(|e| e["data"]["retransmission"] == true).collect();
    assert!(!again.is_empty() && again.iter().all(|e| e["data"]["reason"] == "sequence_nak"), "{again:?}");
    let nak = events.iter().position(|e| e["name"] == "roce:loss_detected").unwrap();
    let first = events.iter().position(|e| e["data"]["retransmission"] == true).unwrap();
    assert!(nak < first);
}

#[test]
fn perf_writes_what_happens_to_the_clients_queue_pairs() {
    let path = file("perf");
    let name = path.to_str().unwrap();
    let Output { status, stderr, .. } =
        softnic(&["perf", "write_bw", "--size", "4K", "--iters", "50", "--trace", name]);
    assert!(status.success(), "{}", String::from_utf8_lossy(&stderr));
    let events = events(&std::fs::read_to_string(&path).unwrap());
    std::fs::remove_file(&path).unwrap();
    let count = |name: &str| events.iter().filter(|e| e["name"] == name).count();
    assert!(count("roce:packet_sent") >= 50 && count("roce:packet_received") > 0);
    let posted = events.iter().filter(|e| e["name"] == "roce:work_posted");
    assert!(posted.map(|e| e["data"]["count"].as_u64().unwrap()).sum::<u64>() >= 50);
    assert!(count("roce:connected") == 1 && count("roce:work_completed") > 0);
    // A queue pair that is destroyed was in the state that was seen last.
    let states: Vec<&Value> = events.iter().filter(|e| e["name"] == "roce:state_updated").map(|e| &e["data"]).collect();
    assert!(states.windows(2).all(|two| two[1]["old"] == two[0]["new"]), "{states:?}");
}

#[test]
fn what_is_wrong_with_a_trace_is_said() {
    let refused = |arguments: &[&str], why: &str| {
        let Output { status, stderr, .. } = softnic(arguments);
        let said = String::from_utf8_lossy(&stderr).into_owned();
        assert!(!status.success() && said.contains(why), "{arguments:?}: {said}");
    };
    refused(&["trace", "/nowhere.pcap"], "/nowhere.pcap: No such file");
    refused(
        &["trace", &corpus("loss_send_middle_nak.pcap"), "-o", "/dev/full"],
        "the trace cannot be written: No space",
    );
    refused(
        &["sim", "--size", "4K", "--count", "50", "--trace", "/dev/full"],
        "cannot write the trace /dev/full: No space",
    );
    refused(&["sim", "--count", "1", "--trace", "/nowhere/t"], "cannot write the trace /nowhere/t: No such file");
    refused(&["perf", "raw", "--trace", "t"], "leave --pcap and --trace out");
}

#[test]
fn a_log_says_as_much_as_its_level_on_stderr() {
    let log = |level: &str, arguments: &[&str]| {
        let out =
            Command::new(env!("CARGO_BIN_EXE_softnic")).args(arguments).env("SOFTNIC_LOG", level).output().unwrap();
        assert!(out.status.success() && !out.stdout.is_empty());
        String::from_utf8(out.stderr).unwrap()
    };
    let sim = ["sim", "--op", "send", "--size", "16K", "--count", "20", "--fault", "loss=0.02"];
    assert_eq!(log("error", &sim), log("off", &sim));
    let warned = log("warn", &sim);
    let naks = warned.lines().filter(|line| line.ends_with(": loss_detected trigger=sequence_nak"));
    assert!(
        naks.clone().count() > 0
            && naks.clone().all(|l| l.starts_with("1970-01-01T00:00:00.0") && l.contains("  WARN sim a 0x"))
    );
    assert!(!warned.contains("INFO"));
    let informed = log("info", &sim);
    assert!(
        informed.contains("  INFO sim a 0x") && informed.contains(": connected transport=rc peer_address="),
        "{informed}"
    );
    assert!(!informed.contains("DEBUG") && log("debug", &sim).contains(" DEBUG sim a 0x"));
    let packets = log("TRACE", &sim);
    assert!(packets.lines().any(|line| line.contains(": packet_sent opcode=RC_SEND_FIRST psn=")), "{packets}");
    assert_eq!(packets, log("trace", &sim), "the same run logs the same");
    let perf = log("info", &["perf", "write_bw", "--size", "4K", "--iters", "50"]);
    assert!(perf.lines().any(|line| line.contains("  INFO softnic[") && line.ends_with(" new=RTS")), "{perf}");
}

#[test]
fn a_level_of_the_log_that_there_is_not_is_refused() {
    for arguments in [&["sim", "--count", "1"][..], &["perf", "write_bw", "--iters", "1"]] {
        let out =
            Command::new(env!("CARGO_BIN_EXE_softnic")).args(arguments).env("SOFTNIC_LOG", "loud").output().unwrap();
        let said = String::from_utf8_lossy(&out.stderr).into_owned();
        assert!(!out.status.success() && said.starts_with("softnic: SOFTNIC_LOG: `loud` is no level"), "{said}");
    }
}
