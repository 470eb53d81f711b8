//! `softnic sim` as people and scripts use it.

mod faults;
mod interrupted;

use std::collections::HashSet;
use std::path::PathBuf;
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::Value;
use softnic_pcaps::Reader;
use softnic_pcaps::decode::{IcrcVerdict, decode_ethernet};

fn sim(args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_softnic")).arg("sim").args(args).output().expect("softnic runs")
}

fn json(args: &[&str]) -> Value {
    let out = sim(&[args, &["--json"]].concat());
    assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
    let text = String::from_utf8(out.stdout).expect("UTF-8");
    assert_eq!(text.lines().count(), 1, "one object on one line");
    serde_json::from_str(&text).expect("JSON")
}

fn refusal(args: &[&str]) -> (Option<i32>, String) {
    let out = sim(args);
    assert!(!out.status.success() && out.stdout.is_empty());
    (out.status.code(), String::from_utf8_lossy(&out.stderr).into_owned())
}

fn scratch(name: &str) -> PathBuf {
    std::env::temp_dir().join(format!("softnic-sim-{}-{name}", std::process::id()))
}

const LOSSY: [&str; 10] =
    ["--size", "256K", "--count", "40", "--depth", "16", "--rtt", "200us", "--fault", "loss=1e-3"];

#[test]
fn the_json_has_every_field_of_the_contract() {
    let v = json(&LOSSY);
    assert_eq!(v["transport"], "rc");
    assert_eq!((v["completed"].as_u64(), v["failed"].as_u64()), (Some(40), Some(0)));
    for field in ["goodput_gbps", "link_utilization", "virtual_ms"] {
        assert!(v[field].as_f64().is_some_and(|x| x > 0.0), "{field}");
    }
    for field in ["tx_packets", "retransmitted_packets", "repair_packets", "recovered_packets"] {
        assert!(v[field].is_u64(), "{field}");
    }
    for field in ["mean", "p50", "p99", "p999", "max"] {
        assert!(v["fct_ms"][field].as_f64().is_some_and(|x| x > 0.0), "fct_ms.{field}");
    }
    // The setting, so that a file of results says what it is of.
    assert_eq!(
        (v["rate_bps"].as_u64(), v["rtt_ms"].as_f64(), v["mtu"].as_u64()),
        (Some(10_000_000_000), Some(0.2), Some(1024))
    );
    assert_eq!((v["faults"].as_str(), v["seed"].as_u64()), (Some("loss=1e-3"), Some(1)));
    assert_eq!(v["version"], env!("CARGO_PKG_VERSION"));
    assert_eq!(v["digest"].as_str().map(str::len), Some(16));
    assert_eq!(v.as_object().map(serde_json::Map::len), Some(18), "nothing else");
}

#[test]
fn authenticated_packets_are_longer_and_nothing_else_is_taken() {
    for transport in ["rc", "sr", "lowar:8,2"] {
        let args = ["--size", "5000", "--count", "40", "--rtt", "50us", "--transport", transport];
        let plain = json(&args);
        assert_eq!(plain.get("auth"), None);
        let v = json(&[&args[..], &["--auth"]].concat());
        let number = |field: &str| v[field].as_u64();
        assert_eq!(
            (v["auth"].as_bool(), number("completed"), number("failed")),
            (Some(true), Some(40), Some(0)),
            "{v}"
        );
        assert_eq!((number("rx_auth_failed"), number("rx_auth_replayed")), (Some(0), Some(0)), "{v}");
        assert_eq!(v["tx_packets"], plain["tx_packets"], "{transport}: the trailer takes no payload's place");
        let [with, without] = [&v, &plain].map(|v| v["goodput_gbps"].as_f64().unwrap());
        assert!(with < without, "{transport}: {with} with trailers, {without} without");
        // Copies that the network makes are dropped.
        let faults = ["--auth", "--fault", "dup=0.1,loss=0.01"];
        let v = json(&[&args[..], &faults].concat());
        assert!(v["rx_auth_replayed"].as_u64() > Some(0) && v["completed"] == 40, "{v}");
    }
    for (args, word) in [
        (["--auth", "--transport", "uc"], "only rc, sr and lowar have authentication"),
        (["--auth", "--payload", "none"], "--auth needs --payload real"),
    ] {
        let (code, said) = refusal(&args);
        assert_eq!((code, said.lines().count()), (Some(1), 1), "{said}");
        assert!(said.contains(word), "{said}");
    }
}

#[test]
fn lowar_repairs_what_rc_sends_again_and_says_how_much() {
    // A seed that loses no two packets of a block.
    let lossy = ["--size", "256K", "--count", "40", "--depth", "16", "--rtt", "10ms", "--fault", "ab.loss=1e-3"];
    let args = [&lossy[..], &["--seed", "2"]].concat();
    let (rc, lowar) = (json(&args), json(&[&args[..], &["--transport", "lowar:32,1"]].concat()));
    let number = |v: &Value, field: &str| v[field].as_u64().unwrap_or_else(|| panic!("{field} of {v}"));
    assert_eq!((number(&rc, "repair_packets"), number(&rc, "recovered_packets")), (0, 0));
    assert!(number(&rc, "retransmitted_packets") > 1000, "{rc}");
    // 256 packets a message are eight blocks.
    assert_eq!((number(&lowar, "repair_packets"), number(&lowar, "retransmitted_packets")), (40 * 8, 0));
    assert_eq!(number(&lowar, "tx_packets"), 40 * (256 + 8));
    let recovered = number(&lowar, "recovered_packets");
    assert!((3..30).contains(&recovered), "ten are lost, more or less: {recovered}");
    let out = sim(&[&args[..], &["--transport", "lowar:32,1"]].concat());
    let text = String::from_utf8_lossy(&out.stdout).into_owned();
    assert!(text.contains(&format!("320, {recovered} packets recovered, 0 blocks left to Go-Back-N")), "{text}");
}

#[test]
fn a_seed_is_a_run() {
    let with_seed = |seed| json(&[&LOSSY[..], &["--seed", seed]].concat());
    let (a, b, c) = (with_seed("7"), with_seed("7"), with_seed("8"));
    assert_eq!(a, b);
    assert_ne!(a["digest"], c["digest"]);
}

#[test]
fn the_capture_holds_every_frame_and_every_icrc_is_right() {
    let path = scratch("run.pcap");
    let v = json(&[&LOSSY[..], &["--pcap", path.to_str().expect("UTF-8")]].concat());
    let bytes = std::fs::read(&path).expect("the capture");
    std::fs::remove_file(&path).expect("removed");
    let mut reader = Reader::new(&bytes[..]).expect("a capture");
    let (mut requests, mut psns) = (0, HashSet::new());
    while let Some(frame) = reader.next_frame().expect("whole") {
        let packet = decode_ethernet(frame.data).expect("RoCE");
        assert_eq!((packet.icrc, packet.problem), (IcrcVerdict::Ok, None));
        if packet.opcode.is_some_and(|o| o.is_request()) {
            requests += 1;
            psns.insert(packet.psn.map(u32::from));
        }
    }
    let field = |name: &str| v[name].as_u64().expect(name) as usize;
    assert_eq!(psns.len(), 256 * 1024 * 40 / 1024, "one PSN for each packet of payload");
    assert_eq!(requests, field("tx_packets"));
    assert_eq!(requests - psns.len(), field("retransmitted_packets"));
    assert!(field("retransmitted_packets") > 0, "the run had losses to recover from");
}

#[test]
fn without_payload_the_run_is_the_same_but_for_the_bytes() {
    let real = json(&LOSSY);
    let elided = json(&[&LOSSY[..], &["--payload", "none"]].concat());
    for field in ["goodput_gbps", "tx_packets", "retransmitted_packets", "virtual_ms", "fct_ms"] {
        assert_eq!(real[field], elided[field], "{field}");
    }
}

#[test]
fn sends_complete_as_writes_do() {
    let v = json(&[
        "--op",
        "send",
        "--size",
        "3000",
        "--count",
        "500",
        "--rtt",
        "10us",
        "--qps",
        "3",
        "--fault",
        "loss=0.01",
    ]);
    assert_eq!((v["completed"].as_u64(), v["failed"].as_u64()), (Some(500), Some(0)));
}

#[test]
fn reads_and_atomics_complete_and_what_they_bring_is_checked() {
    let lossy = ["--count", "300", "--rtt", "50us", "--fault", "loss=0.01", "--qps", "2"];
    for op in [&["--op", "read", "--size", "9001"][..], &["--op", "atomic"]] {
        let v = json(&[op, &lossy].concat());
        assert_eq!((v["completed"].as_u64(), v["failed"].as_u64()), (Some(300), Some(0)), "{op:?}");
    }
}

/// The transports without acknowledgements, with each operation that they have.
const UNRELIABLE: [&[&str]; 3] =
    [&["--transport", "uc"], &["--transport", "uc", "--op", "send"], &["--transport", "ud", "--op", "send"]];

#[test]
fn uc_and_ud_deliver_all_when_nothing_is_lost() {
    for transport in UNRELIABLE {
        for (size, packets) in [("1000", 500), ("1024", 500), ("0", 500)] {
            let v = json(&[transport, &["--size", size, "--count", "500", "--qps", "3", "--rtt", "50us"]].concat());
            assert_eq!((v["completed"].as_u64(), v["failed"].as_u64()), (Some(500), Some(0)), "{transport:?} {size}");
            assert_eq!((v["tx_packets"].as_u64(), v["retransmitted_packets"].as_u64()), (Some(packets), Some(0)));
            assert_eq!(v["transport"], transport[1]);
            assert!(v["fct_ms"]["mean"].as_f64() >= Some(0.025), "half a round trip at least: {v}");
            assert_eq!(v.as_object().map(serde_json::Map::len), Some(19), "the fields of the contract");
        }
    }
    let v = json(&["--transport", "uc", "--size", "10K", "--count", "200"]);
    assert_eq!((v["completed"].as_u64(), v["tx_packets"].as_u64()), (Some(200), Some(2000)));
}

#[test]
fn of_what_uc_and_ud_send_arrives_what_the_link_lets_through() {
    for transport in UNRELIABLE {
        let lossy = ["--size", "512", "--count", "20000", "--rtt", "20us", "--fault", "loss=0.01"];
        let v = json(&[transport, &lossy].concat());
        // 200 of 20,000 are lost, give or take six standard deviations of 14.
        let completed = v["completed"].as_u64().expect("a number");
        assert!((19_716..=19_884).contains(&completed), "{transport:?}: {completed}");
        assert_eq!((v["failed"].as_u64(), v["tx_packets"].as_u64()), (Some(0), Some(20_000)));
        assert_eq!(v, json(&[transport, &lossy].concat()), "the same seed gives the same run");
        assert_ne!(v["digest"], json(&[transport, &lossy, &["--seed", "9"]].concat())["digest"]);
    }
    // A message of ten packets arrives if all of them do: 0.99^10 = 0.904 of 2000, give or take six times 13.
    let v = json(&["--transport", "uc", "--size", "10K", "--count", "2000", "--fault", "loss=0.01"]);
    assert!((1730..=1888).contains(&v["completed"].as_u64().expect("a number")), "{v}");
}

#[test]
fn nothing_that_uc_and_ud_deliver_counts_twice_and_a_dead_link_is_no_failure() {
    for transport in UNRELIABLE {
        let v = json(&[transport, &["--size", "100", "--count", "5000", "--fault", "dup=0.1"]].concat());
        assert_eq!(v["completed"].as_u64(), Some(5000), "{transport:?}");
        let v = json(&[transport, &["--size", "100", "--count", "50", "--fault", "loss=1"]].concat());
        assert_eq!((v["completed"].as_u64(), v["failed"].as_u64()), (Some(0), Some(0)), "{transport:?}");
        // Faults of every kind, with and without payload.
        let args = ["--size", "900", "--count", "3000", "--fault", "loss=0.01,dup=0.01,corrupt=0.01,reorder=0.01:3"];
        let (real, none) =
            (json(&[transport, &args].concat()), json(&[transport, &args, &["--payload", "none"]].concat()));
        assert_eq!(real["tx_packets"], none["tx_packets"]);
        assert!(real["completed"].as_u64() > Some(2800) && none["completed"].as_u64() > Some(2800));
    }
}

#[test]
fn a_datagram_fills_the_mtu_where_no_size_is_given() {
    let v = json(&["--transport", "ud", "--mtu", "4096", "--count", "10"]);
    assert_eq!((v["completed"].as_u64(), v["tx_packets"].as_u64()), (Some(10), Some(10)));
    assert!(v["goodput_gbps"].as_f64().is_some_and(|g| g > 0.1), "{v}");
}

#[test]
fn a_run_that_stands_still_reports_what_was_done() {
    let out = sim(&["--timeout", "0", "--fault", "loss=0.05", "--size", "100K", "--count", "20", "--json"]);
    assert_eq!(out.status.code(), Some(1));
    let v: Value = serde_json::from_slice(&out.stdout).expect("JSON also then");
    assert!(v["completed"].as_u64().is_some_and(|n| n < 20) && v["failed"] == 0);
    assert!(String::from_utf8_lossy(&out.stderr).contains("nothing more happens"));
}

#[test]
fn many_queue_pairs_on_one_link_do_not_use_up_their_retries_while_they_wait_for_it() {
    let v = json(&["--qps", "200", "--rtt", "10us", "--size", "16K", "--count", "1000", "--fault", "loss=1e-3"]);
    assert_eq!((v["completed"].as_u64(), v["failed"].as_u64()), (Some(1000), Some(0)));
    let v = json(&["--rate", "100kbit", "--size", "10K", "--count", "3"]);
    assert_eq!((v["completed"].as_u64(), v["failed"].as_u64()), (Some(3), Some(0)));
}

#[test]
fn no_figure_exceeds_what_it_is_a_part_of() {
    let v = json(&["--size", "0", "--count", "5"]);
    assert!(v["fct_ms"]["max"].as_f64() <= v["virtual_ms"].as_f64(), "{v}");
    let v = json(&["--rate", "1Gbit", "--rtt", "0us", "--mtu", "4096", "--size", "64K", "--count", "10"]);
    assert!(v["link_utilization"].as_f64() <= Some(1.0), "{v}");
}

#[test]
fn wrong_arguments_get_one_clear_line() {
    for (args, line) in [
        (&["--fault", "los=1"][..], "there is no fault 'los'"),
        (&["--fault", "loss=2"], "a probability from 0 to 1"),
        (&["--fault", "queue=5K"], "queue needs the rate of the bottleneck"),
        (&["--fault", "delay=5"], "'5' is no value for delay: a time"),
        (&["--fault", "down=5s"], "when and for how long, e.g. 5s+2s"),
        (&["--fault", "stall=5s+2s/1s"], "every ten seconds again, which must be longer than it lasts"),
        (&["--fault", "delay=1ms,delay=2ms"], "delay is given twice"),
        (&["--size", "3G"], "more than a message can be"),
        (&["--size", "x"], "is no size"),
        (&["--rate", "10"], "is no rate"),
        (&["--rtt", "40"], "is no time"),
        (&["--mtu", "1500"], "is no path MTU"),
        (&["--op", "flush"], "possible values: write, send, read, atomic"),
        (
            &["--transport", "xq"],
            "there is no transport `xq`: choose from rc, sr[:PACKETS], lowar[:R,C], xp[:K=V,..], uc, ud",
        ),
        (&["--transport", "lowar:8,9"], "`8,9` are no blocks of lowar"),
        (&["--transport", "sr:many"], "`many` is no window of sr: it must be a number of packets from 64 to 2097152"),
        (&["--transport", "sr:3"], "`3` is no window of sr"),
    ] {
        let (code, said) = refusal(args);
        assert_eq!(code, Some(2), "{args:?}");
        assert!(said.contains(line), "{args:?}: {said}");
    }
    for (args, line) in [
        (&["--op", "atomic", "--size", "16"][..], "an atomic is of 8 bytes"),
        (&["--transport", "uc", "--op", "read"], "uc has no READs and no atomics"),
        (&["--transport", "uc", "--op", "atomic"], "uc has no READs and no atomics"),
        (&["--transport", "ud", "--op", "write"], "ud has SENDs only"),
        (&["--transport", "ud", "--op", "read", "--size", "8"], "ud has SENDs only"),
        (&["--transport", "ud", "--size", "1025"], "a datagram is no longer than the path MTU"),
        (&["--fault", "rx.loss=0.1"], "rx. is for what a device receives"),
        (&["--qps", "60000", "--depth", "1000000"], "queue pairs times depth must be at most"),
        (&["--qps", "10000", "--size", "1M"], "queue pairs times size must be at most 4G"),
        (&["--count", "0"], "the count must be at least 1"),
        (&["--depth", "0"], "the depth must be from 1"),
        (&["--retry", "8"], "the retry count must be from 0 to 7"),
        (&["--timeout", "32"], "the timeout code must be from 0 to 31"),
        (&["--pcap", "/no/such/folder/x.pcap"], "/no/such/folder/x.pcap: No such file"),
        // Linux's always full device.
        (&["--pcap", "/dev/full"], "cannot write the capture /dev/full: No space left"),
    ] {
        let (code, said) = refusal(args);
        assert_eq!(code, Some(1), "{args:?}");
        assert!(said.contains(line) && said.lines().count() == 1, "{args:?}: {said}");
    }
}

#[test]
fn help_shows_an_example() {
    let out = sim(&["--help"]);
    let text = String::from_utf8_lossy(&out.stdout);
    assert!(out.status.success() && text.contains("softnic sim --size 1M --count 400"), "{text}");
    assert!(text.contains("--fault @lost-response.toml") && text.contains("[[event]]"), "{text}");
}

#[test]
fn a_fixed_rate_and_a_window_bound_what_a_queue_pair_sends() {
    let run = |cc: &str, qps: &str| {
        let v = json(&["--size", "64K", "--count", "400", "--qps", qps, "--rtt", "100us", "--cc", cc]);
        assert_eq!((v["completed"].as_u64(), v["failed"].as_u64()), (Some(400), Some(0)), "{cc}: {v}");
        v["goodput_gbps"].as_f64().expect("goodput")
    };
    // 1024 bytes of payload in each frame of 1082, with preamble, FCS and gap 1106 (the first has a RETH, too).
    let share = 1024.0 / 1106.0;
    let close = |found: f64, expected: f64| (found / expected - 1.0).abs() < 0.02;
    assert!(close(run("fixed:2Gbit", "1"), 2.0 * share), "{}", run("fixed:2Gbit", "1"));
    assert!(close(run("fixed:2Gbit", "4"), 8.0 * share), "four queue pairs: {}", run("fixed:2Gbit", "4"));
    // A window of 16 KiB in a round trip of 100 µs and what it takes to put it on the wire.
    let round_trip = 100e-6 + 16.0 * 1106.0 * 8.0 / 10e9;
    let windowed = 16384.0 * 8.0 / round_trip / 1e9;
    let found = run("fixed:10Gbit:16K", "1");
    assert!(found < windowed * 1.02 && found > windowed * 0.8, "{found} of {windowed}");
}

#[test]
fn a_congestion_control_that_cannot_be_is_refused_with_one_line() {
    for (cc, why) in [
        ("dcqcn?", "there is no congestion control 'dcqcn?'"),
        ("dcqcn:fast=1", "dcqcn has no setting 'fast'"),
        ("dcqcn:ai=slow", "slow"),
        ("swift:target=5us", "swift has no setting 'target'"),
        ("fixed:fast", "fast"),
        ("fixed:1Gbit:0", "nothing would ever leave"),
        ("fixed:1Gbit:x", "x"),
    ] {
        let out = sim(&["--cc", cc]);
        let said = String::from_utf8(out.stderr).expect("UTF-8");
        assert!(out.status.code() == Some(2) && said.contains(why), "{cc}: {said}");
    }
    let said = String::from_utf8(sim(&["--transport", "ud", "--cc", "fixed:1Gbit"]).stderr).expect("UTF-8");
    assert!(said.contains("ud has no congestion control"), "{said}");
}

#[test]
fn dcqcn_keeps_a_bottleneck_full_and_its_queue_short() {
    for transport in ["rc", "sr"] {
        for op in ["write", "read"] {
            let run = |cc: &str| {
                let way = if op == "read" { "ba" } else { "ab" };
                let fault = format!("{way}.rate=5Gbit,{way}.queue=2M,{way}.ecn=5K:200K:0.01");
                let flow = ["--op", op, "--size", "64K", "--count", "2000", "--depth", "64", "--rtt", "10us"];
                let v = json(&[&flow[..], &["--transport", transport, "--cc", cc, "--fault", &fault]].concat());
                assert_eq!((v["completed"].as_u64(), v["cc"].as_str()), (Some(2000), cc.split(':').next()), "{v}");
                v
            };
            let (without, with) = (run("none"), run("dcqcn"));
            let [marks, sent] = ["np_ecn_marked_roce_packets", "np_cnp_sent"].map(|k| with[k].as_u64().expect(k));
            assert!(sent > 10 && sent <= marks && with["rp_cnp_handled"].as_u64() > Some(10), "{with}");
            assert_eq!(without["rp_cnp_handled"], 0);
            // sr has no more than a bandwidth-delay product under way, so its queue is short anyway.
            let unheeded = without["np_ecn_marked_roce_packets"].as_u64().expect("marks");
            assert!(if transport == "rc" { marks * 5 < unheeded } else { marks <= unheeded }, "{with} {without}");
            assert!(with["goodput_gbps"].as_f64() > Some(3.0), "{with}");
        }
    }
}

#[test]
fn a_capture_on_stdout_is_a_pipe_and_the_results_go_to_stderr() {
    let out = sim(&["--size", "4K", "--count", "3", "--pcap", "-"]);
    assert!(out.status.success());
    let mut reader = Reader::new(&out.stdout[..]).unwrap();
    let mut frames = 0;
    while reader.next_frame().unwrap().is_some() {
        frames += 1;
    }
    assert!(frames >= 12, "{frames} frames");
    let results = String::from_utf8(out.stderr).unwrap();
    assert!(results.contains("setting") && results.contains("10 Gbit/s, RTT 1 ms, path MTU 1024, seed 1"), "{results}");
}

#[test]
fn a_capture_that_cannot_be_written_is_named() {
    let out = sim(&["--size", "64K", "--count", "20", "--pcap", "/dev/full"]);
    let text = String::from_utf8_lossy(&out.stderr);
    assert!(!out.status.success() && text.contains("cannot write the capture /dev/full: No space left"), "{text}");
}

#[test]
fn datagrams_that_were_lost_are_counted() {
    let v = json(&["--transport", "ud", "--count", "500", "--fault", "loss=0.1"]);
    let (lost, completed) = (v["lost_datagrams"].as_u64().unwrap(), v["completed"].as_u64().unwrap());
    assert!(lost > 0 && lost + completed == 500, "{v}");
}

#[test]
fn a_line_that_parity_leaves_no_numbers_for_is_said_with_the_chunks_that_would_fill_it() {
    let line = ["--rate", "40Gbit", "--rtt", "50ms", "--mtu", "1024", "--size", "100K", "--count", "2", "--json"];
    let said = |args: &[&str]| {
        let out = sim(&[args, &line].concat());
        assert!(out.status.success());
        String::from_utf8_lossy(&out.stderr).into_owned()
    };
    let short = said(&["--transport", "sdr-ec:2,1", "--chunk", "1K"]);
    assert_eq!(
        short,
        "softnic: 67108864 bytes of submessages can be in flight, and the line has room for 250000000: chunks of 4096 bytes would fill it\n"
    );
    assert_eq!(said(&["--transport", "sdr-ec:2,1", "--chunk", "4K"]), "");
}
