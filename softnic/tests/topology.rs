//! `softnic sim --topology` as people and scripts use it.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use serde_json::Value;

fn sim(args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_softnic")).arg("sim").args(args).output().expect("softnic runs")
}

fn example(name: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/topologies").join(name);
    path.to_str().expect("UTF-8").to_owned()
}

fn scratch(name: &str, text: &str) -> PathBuf {
    let path = std::env::temp_dir().join(format!("softnic-topology-{}-{name}", std::process::id()));
    std::fs::write(&path, text).expect("written");
    path
}

#[test]
fn there_is_an_object_for_each_flow_and_a_summary() {
    let run = |seed| {
        let out = sim(&["--topology", &example("star.toml"), "--json", "--seed", seed]);
        assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
        String::from_utf8(out.stdout).expect("UTF-8")
    };
    let text = run("1");
    let lines: Vec<Value> = text.lines().map(|l| serde_json::from_str(l).expect("JSON")).collect();
    let (summary, flows) = lines.split_last().expect("lines");
    assert_eq!(flows.len(), 15);
    for (i, f) in flows.iter().enumerate() {
        assert_eq!((f["flow"].as_u64(), f["from"].as_str()), (Some(i as u64 + 1), Some(&*format!("h{}", i + 1))));
        assert_eq!((f["to"].as_str(), f["completed"].as_u64(), f["failed"].as_u64()), (Some("h0"), Some(20), Some(0)));
        assert!(f["goodput_gbps"].as_f64() > Some(0.0) && f["fct_ms"]["p999"].as_f64() > Some(0.0));
    }
    let s = &summary["summary"];
    assert_eq!((s["flows"].as_u64(), s["completed"].as_u64()), (Some(15), Some(300)));
    let ports = s["ports"].as_array().expect("ports");
    let sum = |field: &str| ports.iter().map(|p| p[field].as_u64().expect(field)).sum::<u64>();
    assert_eq!(ports.len(), 16);
    assert_eq!((s["dropped"].as_u64(), s["marked"].as_u64()), (Some(sum("dropped")), Some(sum("marked"))));
    assert!(sum("dropped") > 0 && sum("marked") > 0 && s["retransmitted_packets"].as_u64() > Some(0));
    assert!(ports[0]["link_utilization"].as_f64().is_some_and(|u| (0.5..=1.0).contains(&u)), "{}", ports[0]);
    assert_eq!(s["digest"].as_str().map(str::len), Some(16));
    assert_eq!(run("1"), text);
    assert_ne!(run("2"), text);
}

#[test]
fn the_table_has_flows_ports_and_a_digest() {
    let out = sim(&["--topology", &example("dumbbell.toml")]);
    let text = String::from_utf8(out.stdout).expect("UTF-8");
    assert!(out.status.success());
    assert_eq!(text.lines().filter(|l| l.starts_with("s0") || l.starts_with("s1")).count(), 6, "{text}");
    for part in ["flow  from", "switch  port  to", "goodput ", "digest "] {
        assert!(text.contains(part), "{part}: {text}");
    }
}

#[test]
fn flows_of_any_transport_are_reported_with_what_arrived() {
    let flow = |keys: &str| format!("[[flow]]\nfrom = \"h0\"\nto = \"h1\"\ncount = 200\n{keys}\n");
    let net = "kind = \"star\"\nhosts = 2\nfault = \"loss=0.02\"\n";
    let flows = ["transport = \"ud\"", "transport = \"lowar:8,1\"\nop = \"read\"\nsize = \"4K\""].map(flow).concat();
    let path = scratch("mixed.toml", &format!("{net}{flows}"));
    let file = path.to_str().expect("UTF-8");
    let json = sim(&["--topology", file, "--json"]);
    assert!(json.status.success(), "{}", String::from_utf8_lossy(&json.stderr));
    let text = String::from_utf8(json.stdout).expect("UTF-8");
    let lines: Vec<Value> = text.lines().map(|l| serde_json::from_str(l).expect("JSON")).collect();
    let delivered = lines[0]["completed"].as_u64().expect("a count");
    assert_eq!((lines[0]["transport"].as_str(), lines[0]["sent"].as_u64()), (Some("ud"), Some(200)));
    assert!((150..200).contains(&delivered), "{delivered}");
    assert_eq!((lines[1]["transport"].as_str(), lines[1]["completed"].as_u64()), (Some("lowar:8,1"), Some(200)));
    assert!(lines[1].get("sent").is_none(), "of a reliable flow it is what completed");
    let table = String::from_utf8(sim(&["--topology", file]).stdout).expect("UTF-8");
    let line = table.lines().find(|l| l.starts_with("uc and ud")).expect("a line about them");
    assert!(line.ends_with(&format!(" 200 messages sent, {delivered} delivered")), "{line}");
    std::fs::remove_file(path).expect("removed");
}

#[test]
fn what_of_a_flow_of_xp_did_not_come_is_reported() {
    let file = example("best-effort.toml");
    let json = sim(&["--topology", &file, "--json"]);
    assert!(json.status.success(), "{}", String::from_utf8_lossy(&json.stderr));
    let text = String::from_utf8(json.stdout).expect("UTF-8");
    let lines: Vec<Value> = text.lines().map(|l| serde_json::from_str(l).expect("JSON")).collect();
    let number = |flow: usize, field: &str| lines[flow][field].as_u64().unwrap_or_else(|| panic!("{field}: {text}"));
    for field in
        ["delivered_bytes", "missing_bytes", "missing_ranges", "partial", "preempted", "expired", "late_packets"]
    {
        assert!(lines[0].get(field).is_none() && lines[1].get(field).is_none(), "{field} of a reliable flow");
        assert!(lines[2][field].is_u64() && lines[3][field].is_u64(), "{field}");
    }
    for flow in [2, 3] {
        let (size, sent) = (256 << 10, number(flow, "sent"));
        assert_eq!((sent, number(flow, "completed"), lines[flow]["deadline_ms"].as_f64()), (200, 200, Some(1.0)));
        assert_eq!(number(flow, "delivered_bytes") + number(flow, "missing_bytes"), sent * size);
    }
    // A lost packet leaves a range in each of 64 blocks, or of fewer at the end of a message.
    assert!(number(3, "missing_ranges") > 10 * number(3, "partial") && number(2, "missing_ranges") > 0);
    let table = String::from_utf8(sim(&["--topology", &file]).stdout).expect("UTF-8");
    let line = table.lines().find(|l| l.contains("in ranges")).expect("a second table of flows");
    assert!(line.starts_with("flow  transport ") && !table.contains("uc and ud"), "{table}");
}

#[test]
fn background_is_reported_beside_what_was_asked_for() {
    let all = "from = \"all\"\nto = \"all\"\nshare = 0.2\nstop = \"20ms\"\n";
    let net = "kind = \"star\"\nhosts = 4\n[[background]]\npattern = \"incast\"\nevery = \"1ms\"\n";
    let path = scratch("background.toml", &format!("{net}{all}"));
    let file = path.to_str().expect("UTF-8");
    let json = sim(&["--topology", file, "--json"]);
    assert!(json.status.success(), "{}", String::from_utf8_lossy(&json.stderr));
    let text = String::from_utf8(json.stdout).expect("UTF-8");
    let first: Value = serde_json::from_str(text.lines().next().expect("a background")).expect("JSON");
    assert_eq!((first["background"].as_u64(), first["pattern"].as_str()), (Some(1), Some("incast")));
    assert!(first["offered_share"].as_f64().is_some_and(|share| (0.198..0.202).contains(&share)), "{first}");
    assert_eq!(
        (first["messages"].as_u64(), first["failed"].as_u64(), first["waiting"].as_u64()),
        (Some(60), Some(0), Some(0))
    );
    let table = String::from_utf8(sim(&["--topology", file]).stdout).expect("UTF-8");
    assert!(table.lines().any(|l| l.starts_with("         1  incast     20.0 %    20.0 %")), "{table}");
    std::fs::remove_file(path).expect("removed");
}

#[test]
fn a_network_is_captured_whole_or_one_link_of_it() {
    let path = scratch("run.pcapng", "");
    let (file, pcap) = (example("dumbbell.toml"), path.to_str().expect("UTF-8"));
    let frames = |link: &[&str]| {
        let out = sim(&[&["--topology", &file, "--pcap", pcap], link].concat());
        assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
        let inspect = Command::new(env!("CARGO_BIN_EXE_softnic")).args(["inspect", "--json", pcap]).output();
        let inspected = inspect.expect("softnic runs");
        assert!(inspected.status.success(), "{}", String::from_utf8_lossy(&inspected.stderr));
        let text = String::from_utf8(inspected.stdout).expect("UTF-8");
        let last: Value = serde_json::from_str(text.lines().last().expect("a summary")).expect("JSON");
        last["summary"]["frames"].as_u64().expect("a count")
    };
    let (middle, all) = (frames(&["--pcap-link", "s1-s0"]), frames(&[]));
    assert_eq!(middle, 64000 + 2989, "as the port's counters say");
    assert_eq!(all, 3 * middle, "every frame crosses three links");
    for (args, said) in [
        (
            &["--topology", &file, "--pcap", pcap, "--pcap-link", "s0-s9"][..],
            "there is no link 's0-s9': a link is named by its two ends, as in h0-s0",
        ),
        (&["--topology", &file, "--pcap-link", "s0-s1"], "--pcap <FILE>"),
        (&["--pcap", pcap, "--pcap-link", "s0-s1"], "--topology <FILE>"),
    ] {
        let out = sim(args);
        let text = String::from_utf8_lossy(&out.stderr).into_owned();
        assert!(!out.status.success() && text.contains(said), "{text}");
    }
    std::fs::remove_file(path).expect("removed");
}

#[test]
fn work_that_fails_is_said_and_counted() {
    let flow = "kind = \"star\"\nhosts = 2\nfault = \"loss=1\"\n[[flow]]\nfrom = \"h0\"\nto = \"h1\"\ncount = 3\n";
    let path = scratch("dead.toml", flow);
    let out = sim(&["--topology", path.to_str().expect("UTF-8"), "--json"]);
    std::fs::remove_file(path).expect("removed");
    assert_eq!(out.status.code(), Some(1));
    let text = String::from_utf8_lossy(&out.stdout).into_owned();
    let first: Value = serde_json::from_str(text.lines().next().expect("a flow")).expect("JSON also then");
    assert_eq!((first["completed"].as_u64(), first["failed"].as_u64()), (Some(0), Some(3)));
    assert!(String::from_utf8_lossy(&out.stderr).contains("3 work requests failed"), "{text}");
}

#[test]
fn what_is_wrong_gets_one_line_with_the_file() {
    let path = scratch("wrong.toml", "kind = \"star\"\nhosts = 2\n[[flow]]\nfrom = \"h0\"\nto = \"h7\"\n");
    let file = path.to_str().expect("UTF-8");
    for (args, line) in [
        (&["--topology", file][..], format!("softnic: {file}: flow 1: to: a host: h0 to h1")),
        (&["--topology", "/no/such.toml"], "softnic: /no/such.toml: No such file".into()),
        (&["--topology", "/dev/zero"], "softnic: /dev/zero: more than 1 MiB is no topology".into()),
    ] {
        let out = sim(args);
        let said = String::from_utf8_lossy(&out.stderr).into_owned();
        assert_eq!((out.status.code(), said.lines().count()), (Some(1), 1), "{said}");
        assert!(said.starts_with(&line) && out.stdout.is_empty(), "{said}");
    }
    let out = sim(&["--topology", file, "--size", "4K"]);
    let said = String::from_utf8_lossy(&out.stderr).into_owned();
    assert!(out.status.code() == Some(2) && said.contains("cannot be used with"), "{said}");
    std::fs::remove_file(path).expect("removed");
}

#[test]
fn a_capture_that_cannot_be_written_is_named() {
    for (path, why) in [("/dev/full", "No space left"), ("/no/such/folder/x.pcapng", "No such file")] {
        let out = sim(&["--topology", &example("dumbbell.toml"), "--pcap", path]);
        let said = String::from_utf8_lossy(&out.stderr);
        assert_eq!(out.status.code(), Some(1), "{said}");
        assert!(said.starts_with(&format!("softnic: cannot write the capture {path}: {why}")), "{said}");
        assert_eq!((said.lines().count(), out.stdout.len()), (1, 0), "{said}");
    }
}

#[test]
fn flows_that_cannot_fill_their_line_are_named_with_the_chunks_that_would() {
    let flow = |to: &str, more: &str| {
        format!("[[flow]]\nfrom = \"h0\"\nto = \"{to}\"\ntransport = \"sdr-ec:4,2\"\nsize = \"100K\"\n{more}\n")
    };
    let network =
        "kind = \"star\"\nhosts = 4\nrate = \"100Gbit\"\ndelay = \"10ms\"\nqueue = \"1M\"\npayload = \"none\"\n";
    let text = [network, &flow("h1", "chunk = \"8K\""), &flow("h2", ""), &flow("h3", "")].concat();
    let file = scratch("shortfall.toml", &text);
    let out = sim(&["--topology", file.to_str().expect("UTF-8"), "--json"]);
    let said = String::from_utf8_lossy(&out.stderr).into_owned();
    std::fs::remove_file(file).expect("it was written");
    assert!(out.status.success(), "{said}");
    assert_eq!(
        said,
        "softnic: flow 2 and 1 more: 134217728 bytes of submessages can be in flight, and the line has room for 500000000: chunks of 4096 bytes would fill it\n"
    );
}
