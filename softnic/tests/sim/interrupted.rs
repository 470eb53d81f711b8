//! Ctrl-C: what was done until then is told.

use super::*;

/// Starts a run that would take hours, and ends it by Ctrl-C once its capture grows.
fn interrupted(name: &str, args: &[&str]) -> Output {
    let capture = scratch(name);
    let mut command = Command::new(env!("CARGO_BIN_EXE_softnic"));
    command.arg("sim").args(args).arg("--pcap").arg(&capture).stdout(Stdio::piped()).stderr(Stdio::piped());
    let child = command.spawn().expect("softnic runs");
    let begin = Instant::now();
    while std::fs::metadata(&capture).map_or(0, |file| file.len()) < 100_000 {
        assert!(begin.elapsed() < Duration::from_secs(60), "nothing is captured");
        std::thread::sleep(Duration::from_millis(5));
    }
    kill(Pid::from_raw(child.id() as i32), Signal::SIGINT).expect("it runs");
    let out = child.wait_with_output().expect("a child");
    std::fs::remove_file(&capture).expect("ours");
    assert_eq!(out.status.code(), Some(130), "{}", String::from_utf8_lossy(&out.stderr));
    out
}

const ENDLESS: [&str; 6] = ["--size", "64K", "--count", "1000000000", "--payload", "none"];

#[test]
fn ctrl_c_prints_what_was_done_until_then() {
    let out = interrupted("int.pcap", &[&ENDLESS[..], &["--json"]].concat());
    let v: Value = serde_json::from_slice(&out.stdout).expect("one object");
    assert_eq!(v["interrupted"], true);
    assert!(v["goodput_gbps"].as_f64().is_some_and(|rate| rate > 1.0), "{v}");
    assert!(v["completed"].as_u64().is_some_and(|n| n > 0 && n < 1_000_000_000), "{v}");
    let out = interrupted("int-table.pcap", &[&ENDLESS[..], &["--transport", "uc"]].concat());
    let text = String::from_utf8(out.stdout).expect("UTF-8");
    assert!(text.starts_with("interrupted       after "), "{text}");
    assert!(text.contains(" of 1000000000 work requests") && !text.contains("lost datagrams"), "{text}");
}

#[test]
fn ctrl_c_ends_a_network_with_what_was_done_until_then() {
    let file = scratch("int.toml");
    let text = std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/topologies/dumbbell.toml"));
    let longer = text.expect("a file").replace("count = 500", "count = 1000000000");
    assert!(longer.contains("1000000000"), "{longer}");
    std::fs::write(&file, longer).expect("written");
    let out = interrupted("int.pcapng", &["--topology", file.to_str().expect("UTF-8"), "--json"]);
    std::fs::remove_file(&file).expect("ours");
    let text = String::from_utf8(out.stdout).expect("UTF-8");
    let last: Value = serde_json::from_str(text.lines().last().expect("a summary")).expect("an object");
    assert_eq!(last["summary"]["interrupted"], true);
    assert!(last["summary"]["completed"].as_u64().is_some_and(|n| n > 0), "{last}");
}
