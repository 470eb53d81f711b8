//! `softnic sim --backup` as people and scripts use it.

use std::process::{Command, Output};

use serde_json::Value;

const FAILING: [&str; 14] = [
    "--backup",
    "--probe",
    "2ms",
    "--rtt",
    "50us",
    "--size",
    "64K",
    "--count",
    "2000",
    "--depth",
    "8",
    "--fault",
    "down=20ms+30ms",
    "--json",
];

fn sim(args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_softnic")).arg("sim").args(args).output().expect("softnic runs")
}

fn failover(args: &[&str]) -> Value {
    let out = sim(args);
    assert!(out.status.success(), "{args:?}: {}", String::from_utf8_lossy(&out.stderr));
    let value: Value = serde_json::from_slice(&out.stdout).expect("JSON");
    assert_eq!((value["completed"].as_u64(), value["failed"].as_u64()), (Some(2000), Some(0)), "{value}");
    value["failover"].clone()
}

#[test]
fn the_json_tells_what_failover_did_and_how_long_it_took() {
    for transport in ["rc", "sr", "lowar"] {
        for op in ["write", "send", "read"] {
            let told = failover(&[&FAILING[..], &["--transport", transport, "--op", op]].concat());
            let of = |name: &str| told[name].as_u64().unwrap_or_else(|| panic!("{name}: {told}"));
            assert_eq!(
                (told["mode"].as_str(), of("failovers"), of("failbacks"), of("refused")),
                (Some("shift"), 1, 1, 0)
            );
            assert_eq!(of("resubmitted") + of("skipped"), 8, "all that was outstanding: {told}");
            let us = |name: &str| told["fallback_us"][name].as_f64().expect("a time");
            assert!(us("p50") >= 50.0 && us("p50") <= us("p99") && us("p99") <= us("max"), "{told}");
        }
    }
    let calm = ["--backup", "--rtt", "50us", "--size", "64K", "--count", "2000", "--json"];
    let told = failover(&calm);
    assert!(told["failovers"] == 0 && told["fallback_us"]["p50"].is_null(), "{told}");
}

#[test]
fn the_table_has_one_line_of_it() {
    let out = sim(&FAILING[..13]);
    let text = String::from_utf8(out.stdout).expect("UTF-8");
    let lines: Vec<&str> = text.lines().filter(|line| line.starts_with("failover")).collect();
    let [line] = lines[..] else { panic!("one line: {text}") };
    assert!(line.contains("1 to the backup, 1 back, 0 refused; 8 sent again, 0 skipped"), "{line}");
}

#[test]
fn a_capture_has_the_frames_of_both_links() {
    let path = std::env::temp_dir().join(format!("softnic-failover-{}.pcap", std::process::id()));
    failover(&[&FAILING[..], &["--pcap", path.to_str().expect("UTF-8")]].concat());
    let file = std::fs::File::open(&path).expect("the capture");
    let mut reader = softnic_pcaps::Reader::new(std::io::BufReader::new(file)).expect("a capture");
    let mut networks = [0; 2];
    while let Some(frame) = reader.next_frame().expect("a frame") {
        networks[usize::from(frame.data[27])] += 1;
    }
    std::fs::remove_file(path).expect("it is there");
    assert!(networks.iter().all(|&frames| frames > 10_000), "{networks:?}");
}

#[test]
fn what_does_not_go_together_is_refused_in_a_line() {
    for (args, line) in [
        (&["--transport", "uc"][..], "only rc, sr and lowar are protected"),
        (&["--transport", "ud"], "only rc, sr and lowar are protected"),
        (&["--transport", "xp"], "only rc, sr and lowar are protected"),
        (&["--transport", "sdr"], "only rc, sr and lowar are protected"),
        (&["--payload", "none"], "--backup needs --payload real"),
        (&["--auth"], "--backup goes without --auth"),
        (&["--cc", "dcqcn"], "--backup goes without --cc"),
        (&["--probe", "0ms"], "the time between two probes must be more than 0"),
        (&["--backup-fault", "rx.loss=1"], "rx."),
    ] {
        let out = sim(&[&["--backup"], args].concat());
        let said = String::from_utf8_lossy(&out.stderr).into_owned();
        assert!(!out.status.success() && out.stdout.is_empty() && said.contains(line), "{args:?}: {said}");
    }
    let out = sim(&["--probe", "2ms"]);
    assert!(String::from_utf8_lossy(&out.stderr).contains("--backup"));
}
