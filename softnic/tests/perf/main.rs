//! `softnic perf`, `counters` and `devinfo` as people and scripts use them.

mod afxdp;
#[path = "../common/meeting.rs"]
mod meeting;
#[path = "../common/namespaces.rs"]
mod namespaces;
mod processes;
mod reliable;

use std::path::PathBuf;
use std::process::{Command, Output};
use std::time::{Duration, Instant};

use serde_json::Value;

fn softnic(args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_softnic"));
    command.args(args);
    command
}

fn perf(args: &[&str]) -> Output {
    softnic(&["perf"]).args(args).output().expect("softnic runs")
}

fn lines(out: &Output) -> Vec<Value> {
    assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
    let text = String::from_utf8(out.stdout.clone()).expect("UTF-8");
    text.lines().map(|line| serde_json::from_str(line).expect("an object a line")).collect()
}

fn json(args: &[&str]) -> Value {
    let mut lines = lines(&perf(&[args, &["--json"]].concat()));
    assert_eq!(lines.len(), 1);
    lines.remove(0)
}

/// The exit code and the only line of an error.
fn refusal(args: &[&str]) -> (Option<i32>, String) {
    let out = perf(args);
    assert!(!out.status.success() && out.stdout.is_empty(), "{args:?}");
    (out.status.code(), String::from_utf8_lossy(&out.stderr).into_owned())
}

fn scratch(name: &str) -> PathBuf {
    std::env::temp_dir().join(format!("softnic-perf-{}-{name}", std::process::id()))
}

fn counter(v: &Value, name: &str) -> u64 {
    v["counters"][name].as_u64().unwrap_or(0)
}

fn check_fields(v: &Value, transport: &str, op: &str, bytes: u64, iterations: u64) {
    assert_eq!((v["transport"].as_str(), v["op"].as_str()), (Some(transport), Some(op)));
    assert_eq!((v["bytes"].as_u64(), v["iterations"].as_u64()), (Some(bytes), Some(iterations)), "{v}");
    assert!(v["counters"].is_object());
    // A peer that got no core for long counts as silent.
    let negotiated = v["negotiated"].as_str();
    let more = match transport {
        "sr" | "lowar" => {
            assert!(negotiated.is_some_and(|spoken| spoken == transport || spoken == "rc"), "{v}");
            1 + usize::from(transport == "lowar")
        }
        _ => usize::from(negotiated.is_some()),
    };
    let positive = |v: &Value, names: &[&str]| {
        names.iter().for_each(|name| assert!(v[name].as_f64().is_some_and(|x| x > 0.0), "{name} of {v}"));
    };
    if op.ends_with("_lat") {
        positive(&v["lat_us"], &["min", "typical", "avg", "p99", "p999", "max", "stdev"]);
        let at = |name: &str| v["lat_us"][name].as_f64().unwrap_or(0.0);
        assert!(at("min") <= at("avg") && at("avg") <= at("max"), "{v}");
        assert_eq!(v.as_object().map(serde_json::Map::len), Some(6 + more), "nothing else: {v}");
    } else {
        positive(v, &["bw_peak_gbps", "bw_avg_gbps", "msg_rate_mpps"]);
        assert!(v["bw_peak_gbps"].as_f64() >= v["bw_avg_gbps"].as_f64());
        assert_eq!(v.as_object().map(serde_json::Map::len), Some(8 + more), "nothing else: {v}");
    }
}

#[test]
fn every_operation_of_every_transport_and_the_data_is_right() {
    let all = [
        ("rc", &["write_bw", "read_bw", "send_bw", "write_lat", "read_lat", "send_lat"][..]),
        ("sr", &["write_bw", "read_bw", "send_bw", "write_lat", "read_lat", "send_lat"]),
        ("lowar", &["write_bw", "read_bw", "send_bw", "write_lat", "read_lat", "send_lat"]),
        ("uc", &["write_bw", "send_bw", "write_lat", "send_lat"]),
        ("ud", &["send_bw", "send_lat"]),
    ];
    for (transport, ops) in all {
        for op in ops {
            let v = json(&[op, "--transport", transport, "--size", "3000", "--iters", "200", "--verify"]);
            check_fields(&v, transport, op, 3000, 200);
            assert_eq!(counter(&v, "rx_icrc_encapsulated"), 0);
        }
    }
    for op in ["atomic_bw", "atomic_lat"] {
        check_fields(&json(&[op, "--iters", "200", "--verify"]), "rc", op, 8, 200);
        check_fields(&json(&[op, "--transport", "sr", "--iters", "200", "--verify"]), "sr", op, 8, 200);
        check_fields(&json(&[op, "--transport", "lowar:4,4", "--iters", "200", "--verify"]), "lowar", op, 8, 200);
    }
}

#[test]
fn what_was_lost_is_sent_again_selectively_and_the_run_says_what_was_negotiated() {
    for op in ["write_bw", "read_bw", "send_bw"] {
        let fault = "loss=0.01,reorder=0.02:4";
        let args = [op, "--transport", "sr:512", "--size", "20000", "--iters", "300", "--verify", "--fault", fault];
        let v = json(&args);
        check_fields(&v, "sr", op, 20000, 300);
        assert!(v["negotiated"] == "rc" || counter(&v, "packet_seq_err") == 0, "nobody goes back: {v}");
    }
    let text = perf(&["send_lat", "--transport", "sr", "--iters", "20"]);
    let text = String::from_utf8_lossy(&text.stdout).into_owned();
    assert!(text.lines().next().is_some_and(|line| line.contains("; sr")), "{text}");
}

#[test]
fn what_was_lost_is_repaired_and_the_run_says_with_which_blocks() {
    for op in ["write_bw", "read_bw", "send_bw"] {
        let fault = "loss=0.01,reorder=0.01:2,dup=0.01";
        let args = [op, "--transport", "lowar:8,2", "--size", "100000", "--iters", "300", "--verify", "--fault", fault];
        let v = json(&args);
        check_fields(&v, "lowar", op, 100_000, 300);
        assert_eq!(v["code"], "8,2");
        let recovered = counter(&v, "lowar_recovered_packets") > 0;
        assert!(v["negotiated"] == "rc" || op != "read_bw" || recovered, "what comes to the client: {v}");
    }
    let text = perf(&["send_lat", "--transport", "lowar", "--iters", "20"]);
    let text = String::from_utf8_lossy(&text.stdout).into_owned();
    assert!(text.lines().next().is_some_and(|line| line.contains("; lowar:32,1")), "{text}");
}

#[test]
fn raw_frames_are_counted_where_they_arrive() {
    check_fields(&json(&["raw", "--size", "1000", "--iters", "5000"]), "raw", "raw", 1000, 5000);
    check_fields(&json(&["raw_lat", "--iters", "300"]), "raw", "raw_lat", 64, 300);
    let lossy = json(&["raw", "--size", "64", "--iters", "5000", "--fault", "loss=0.2"]);
    let (came, lost) = (lossy["iterations"].as_u64().unwrap_or(0), counter(&lossy, "lost_messages"));
    assert_eq!(came + lost, 5000);
    assert!((500..1500).contains(&lost), "a fifth: {lost}");
}

#[test]
fn all_sizes_from_2_bytes_to_8_mebibytes() {
    let sizes = |args: &[&str]| -> Vec<u64> {
        lines(&perf(args)).iter().map(|v| v["bytes"].as_u64().expect("bytes")).collect()
    };
    let powers = |last| (1..=last).map(|bit| 1u64 << bit).collect::<Vec<_>>();
    assert_eq!(sizes(&["write_bw", "-a", "--iters", "5", "--json", "--verify"]), powers(23));
    assert_eq!(sizes(&["send_lat", "-a", "--iters", "5", "--json", "--transport", "ud", "--mtu", "1024"]), powers(10));
}

#[test]
fn people_get_the_columns_of_perftest_and_a_line_that_says_what_ran() {
    let out = perf(&["write_bw", "--size", "4K", "--iters", "100", "--mtu", "1024", "--qps", "3"]);
    let text = String::from_utf8_lossy(&out.stdout).into_owned();
    let lines: Vec<&str> = text.lines().collect();
    assert!(out.status.success() && out.stderr.is_empty() && lines.len() == 3, "{text}");
    for word in ["mem", "rc", "mtu 1024", "depth 128", "3 queue pairs", "inline"] {
        assert!(lines[0].contains(word), "{word}: {}", lines[0]);
    }
    for column in ["#bytes", "#iterations", "BW peak[Gb/sec]", "BW average[Gb/sec]", "MsgRate[Mpps]"] {
        assert!(lines[1].contains(column), "{column}");
    }
    assert!(lines[2].trim_start().starts_with("4096"), "{text}");
    let out = perf(&["read_lat", "--iters", "20"]);
    let text = String::from_utf8_lossy(&out.stdout).into_owned();
    for column in ["t_min[usec]", "t_typical[usec]", "t_stdev[usec]", "99% percentile[usec]", "99.9% percentile[usec]"]
    {
        assert!(text.contains(column), "{column}");
    }
}

#[test]
fn many_queue_pairs_share_the_messages() {
    let v = json(&["write_bw", "--size", "2K", "--qps", "16", "--iters", "1000", "--depth", "4", "--verify"]);
    check_fields(&v, "rc", "write_bw", 2048, 1000);
    let v = json(&["send_bw", "--size", "100", "--qps", "5", "--iters", "1000", "--verify", "--progress", "dedicated"]);
    check_fields(&v, "rc", "send_bw", 100, 1000);
}

#[test]
fn a_run_takes_as_long_as_asked() {
    let start = Instant::now();
    let v = json(&["write_bw", "--size", "64", "--duration", "300ms"]);
    assert!(start.elapsed() >= Duration::from_millis(300));
    assert!(v["iterations"].as_u64().is_some_and(|n| n > 0));
}

#[test]
fn loss_is_repaired_and_counted() {
    for op in ["write_bw", "read_bw", "send_bw"] {
        let v = json(&[op, "--size", "8K", "--iters", "300", "--fault", "loss=0.01", "--timeout", "12", "--verify"]);
        check_fields(&v, "rc", op, 8192, 300);
        assert!(counter(&v, "retransmitted_packets") > 0, "{v}");
    }
    // Fewer than there are receives posted, so that no other reason loses any.
    let v =
        json(&["send_bw", "--transport", "ud", "--size", "64", "--iters", "400", "--fault", "loss=0.2", "--verify"]);
    let lost = counter(&v, "lost_messages");
    assert!((40..160).contains(&lost), "a fifth: {lost}");
    assert_eq!(v["iterations"].as_u64(), Some(400 - lost));
}

#[test]
fn a_peer_that_never_answers_is_an_error_that_names_the_work_request() {
    let (code, text) = refusal(&["write_bw", "--fault", "loss=1", "--json"]);
    assert_eq!((code, text.lines().count()), (Some(1), 1), "{text}");
    // From the middle on: the neighbours have found each other.
    let out = perf(&["write_bw", "--duration", "20", "--fault", "down=1s+1000s", "--timeout", "8", "--retry", "2"]);
    let text = String::from_utf8_lossy(&out.stderr).into_owned();
    assert_eq!((out.status.code(), text.lines().count()), (Some(1), 1), "{text}");
    assert!(text.contains("work request") && text.contains("transport retry counter exceeded"), "{text}");
}

#[test]
fn mistakes_get_one_line() {
    for (args, word) in [
        (&["read_bw", "--transport", "uc"][..], "uc has no read_bw"),
        (&["write_lat", "--transport", "ud"], "only send"),
        (&["send_bw", "--transport", "ud", "--size", "5000"], "at most"),
        (&["write_lat", "--transport", "sr", "--size", "5000"], "send_lat"),
        (&["raw", "--size", "5000"], "MTU"),
        (&["raw", "--verify"], "--verify"),
        (&["atomic_bw", "--size", "16"], "8 bytes"),
        (&["send_lat", "--qps", "2"], "one queue pair"),
        (&["write_bw", "--server"], "--dev"),
        (&["write_bw", "--dev", "afxdp:no-such-if", "--connect", "127.0.0.1"], "no-such-if"),
        (&["write_bw", "--dev", "dgram:/tmp/a,/tmp/b,ip=10.0.0.1/24"], "--connect"),
        (&["--size", "64"], "what to measure"),
        (&["send_bw", "--transport", "ud", "--cc", "dcqcn"], "ud and raw frames have no congestion control"),
    ] {
        let (code, text) = refusal(args);
        assert_eq!((code, text.lines().count()), (Some(1), 1), "{args:?}: {text}");
        assert!(text.contains(word), "{args:?}: {text}");
    }
    for args in [
        &["write"][..],
        &["write_bw", "--size", "0"],
        &["write_bw", "--mtu", "1500"],
        &["write_bw", "--dev", "eth0/1"],
        &["write_bw", "--fault", "lots"],
        &["write_bw", "--cc", "reno"],
        &["write_bw", "--cc", "dcqcn:ai=fast"],
        &["write_bw", "--iters", "0"],
        &["write_bw", "--iters", "5", "--duration", "1"],
    ] {
        assert_eq!(refusal(args).0, Some(2), "{args:?}");
    }
    for (transport, word) in [
        ("lowar:0,1", "`0,1` are no blocks of lowar: it must be R,C as in 32,1"),
        ("lowar:8,9", "`8,9` are no blocks of lowar"),
        ("lowar:x", "`x` are no blocks of lowar"),
        ("lowr", "there is no transport `lowr`: choose from rc, sr[:PACKETS], lowar[:R,C], xp[:K=V,..], uc, ud"),
        ("sr:3", "`3` is no window of sr"),
    ] {
        let (code, text) = refusal(&["write_bw", "--transport", transport]);
        assert_eq!(code, Some(2), "{text}");
        assert!(text.contains(word), "{text}");
    }
}

#[test]
fn without_an_operation_there_is_a_row_for_each_transport() {
    let out = lines(&perf(&["--duration", "50ms", "--json"]));
    let cells: Vec<_> = out.iter().map(|v| (v["transport"].as_str(), v["op"].as_str(), v["bytes"].as_u64())).collect();
    let row = |t, ops: [&'static str; 2], size| {
        [(Some(t), Some(ops[0]), Some(size)), (Some(t), Some(ops[1]), Some(64)), (Some(t), Some(ops[0]), Some(64))]
    };
    let writes = ["write_bw", "write_lat"];
    let expected = [
        row("rc", writes, 65536),
        row("sr", writes, 65536),
        row("lowar", writes, 65536),
        row("xp", writes, 65536),
        row("uc", writes, 65536),
        row("ud", ["send_bw", "send_lat"], 4096),
        row("sdr", ["write_bw", "none"], 65536),
        row("sdr-sr", ["write_bw", "none"], 65536),
        row("sdr-nack", ["write_bw", "none"], 65536),
        row("raw", ["raw", "raw_lat"], 4096),
    ];
    let expected: Vec<_> = expected.concat().into_iter().filter(|&(_, op, _)| op != Some("none")).collect();
    assert_eq!(cells, expected);
    let text = perf(&["--duration", "50ms"]);
    let text = String::from_utf8_lossy(&text.stdout).into_owned();
    for transport in ["rc", "sr", "lowar:32,1", "xp", "uc", "ud", "raw"] {
        assert!(text.lines().any(|line| line.starts_with(transport) && line.contains("_lat 64)")), "{text}");
    }
    let sdr: Vec<&str> =
        text.lines().find(|line| line.starts_with("sdr ")).expect("a row").split_whitespace().collect();
    assert_eq!((sdr[3], sdr[4], sdr[7], sdr.len()), ("64K)", "-", "64)", 8), "{text}");
}

#[test]
fn devinfo_tells_of_devices_and_needs_no_root() {
    let out = softnic(&["devinfo", "--json"]).output().expect("softnic runs");
    // Behind the interfaces are the devices of DPDK, where that is built in.
    let known = |d: &str| d.starts_with("afxdp:") || cfg!(feature = "dpdk") && d.starts_with("dpdk:");
    lines(&out).iter().for_each(|v| assert!(v["device"].as_str().is_some_and(known), "{v}"));
    let mem = lines(&softnic(&["devinfo", "--dev", "mem", "--json"]).output().expect("softnic runs")).remove(0);
    assert_eq!((mem["path_mtu"].as_u64(), mem["gids"][0]["gid"].as_str()), (Some(4096), Some("::ffff:10.0.0.1")));
    let out = softnic(&["devinfo", "--dev", "afxdp:no-such-if"]).output().expect("softnic runs");
    let text = String::from_utf8_lossy(&out.stderr).into_owned();
    assert_eq!((out.status.code(), text.lines().count()), (Some(1), 1), "{text}");
    assert!(text.contains("no-such-if"), "{text}");
}

#[test]
fn counters_of_nobody_is_an_error() {
    let out = softnic(&["counters", "4294967295"]).output().expect("softnic runs");
    let text = String::from_utf8_lossy(&out.stderr).into_owned();
    assert_eq!((out.status.code(), text.lines().count()), (Some(1), 1), "{text}");
}

#[test]
fn packets_of_both_ends_have_the_traffic_class_that_was_asked_for() {
    let pcap = scratch("tclass.pcap");
    let name = pcap.display().to_string();
    json(&["write_bw", "--iters", "3", "--tclass", "104", "--pcap", &name]);
    let out = softnic(&["inspect", "--json", &name]).output().expect("softnic runs");
    let packets: Vec<Value> = lines(&out).into_iter().filter(|v| v.get("opcode").is_some()).collect();
    // DSCP 26, and ECT(0), which is the NIC's own.
    assert!(packets.iter().all(|v| v["traffic_class"] == 106), "{:?}", packets.first());
    assert!(packets.iter().any(|v| v["opcode"] == "RC_ACKNOWLEDGE"), "both ends");
    std::fs::remove_file(pcap).expect("it is there");
}

#[test]
fn a_run_with_intervals_prints_a_line_for_each_and_they_add_up() {
    let args = ["write_bw", "--size", "64K", "--duration", "0.4", "--interval", "100ms", "--fault", "loss=1e-3"];
    let v = json(&args);
    let intervals = v["intervals"].as_array().expect("an array");
    assert!(intervals.len() >= 2, "{v}");
    let sum = |name: &str| intervals.iter().map(|i| i[name].as_u64().expect("a number")).sum::<u64>();
    assert_eq!(
        (sum("messages"), sum("bytes")),
        (v["iterations"].as_u64().unwrap(), v["iterations"].as_u64().unwrap() << 16)
    );
    // The warm-up before them is in the counters.
    assert!(sum("sent_again") <= counter(&v, "retransmitted_packets"), "{v}");
    assert_eq!(intervals[0]["begin"], 0.0);
    assert!(intervals.windows(2).all(|two| two[0]["end"] == two[1]["begin"]), "{v}");

    let text = String::from_utf8(perf(&args).stdout).expect("UTF-8");
    let lines: Vec<&str> = text.lines().collect();
    let columns = lines.iter().position(|line| line.starts_with(" #bytes")).expect("perftest's columns");
    assert!(lines[1].contains("interval [s]") && columns >= 4, "{text}");
    assert!(lines[1..columns].iter().all(|line| line.len() <= 80), "{text}");
    assert!(lines[columns + 1].trim_start().starts_with("65536"), "{text}");
    let none = String::from_utf8(perf(&["write_bw", "--duration", "0.2"]).stdout).expect("UTF-8");
    assert!(!none.contains("interval"), "{none}");
}

#[test]
fn a_capture_that_cannot_be_written_ends_the_run_and_is_named() {
    for (path, why) in [("/dev/full", "No space left"), ("/no/such/folder/x.pcap", "No such file")] {
        let out = softnic(&["perf", "write_bw", "--iters", "10", "--pcap", path]).output().expect("softnic runs");
        let said = String::from_utf8_lossy(&out.stderr);
        assert_eq!(out.status.code(), Some(1), "{said}");
        assert!(said.starts_with(&format!("softnic: cannot write the capture {path}: {why}")), "{said}");
    }
    // One that fails later, as on a disk that fills up: a pipe whose reader goes away after the head of the file.
    let pipe = std::env::temp_dir().join(format!("softnic-perf-pipe-{}", std::process::id()));
    nix::unistd::mkfifo(&pipe, nix::sys::stat::Mode::S_IRWXU).expect("a pipe");
    let path = pipe.clone();
    let reader = std::thread::spawn(move || {
        let mut head = [0; 24];
        std::io::Read::read_exact(&mut std::fs::File::open(path).expect("a pipe"), &mut head).expect("a head");
    });
    let name = pipe.to_str().expect("UTF-8");
    let out = softnic(&["perf", "write_bw", "--duration", "60", "--pcap", name]).output().expect("softnic runs");
    reader.join().expect("it read the head");
    std::fs::remove_file(&pipe).expect("ours");
    let said = String::from_utf8_lossy(&out.stderr);
    assert_eq!(out.status.code(), Some(1), "{said}");
    assert!(said.contains(&format!("softnic: the capture cannot be written: {name}: Broken pipe")), "{said}");
}

#[test]
fn over_xp_all_bytes_that_come_are_right_and_all_others_are_counted() {
    const SIZE: u64 = 20_000;
    for (op, stride) in [("send_bw", "1"), ("read_bw", "1"), ("write_bw", "1"), ("send_bw", "4"), ("read_bw", "4")] {
        let what = ["--transport", "xp", "--size", "20000", "--mtu", "256", "--depth", "4", "--iters", "300"];
        let within = ["--deadline", "50ms", "--stride", stride, "--verify", "--fault", "loss=0.02"];
        let v = json(&[&[op], &what[..], &within].concat());
        let of = |name: &str| v[name].as_u64().unwrap_or_else(|| panic!("{name} of {v}"));
        // Those of the warm-up count, too.
        assert_eq!(of("delivered_bytes") + of("missing_bytes"), (300 + 30) * SIZE, "{op}: {v}");
        assert!(of("missing_bytes") > 0 && of("delivered_bytes") > of("missing_bytes"), "{op}: {v}");
        assert!(of("partial") > 0 && of("preempted") + of("expired") <= of("partial"), "{op}: {v}");
        assert!(of("late_packets") < u64::MAX && v["negotiated"] == "xp", "{op}: {v}");
        // A message is lost as a whole only where its receiver had no receive for it.
        assert!(v["counters"]["lost_messages"].as_u64().unwrap_or(0) <= of("no_receive"), "{op}: {v}");
    }
    let plain = json(&["send_bw", "--transport", "xp", "--iters", "100"]);
    assert_eq!(plain["missing_bytes"], plain["no_receive"].as_u64().expect("a count") * 65536, "{plain}");
    assert!(json(&["send_bw", "--iters", "100"]).get("missing_bytes").is_none(), "rc delivers all");
}

#[test]
fn deadlines_and_strides_are_for_xp_alone() {
    for args in [&["write_bw", "--deadline", "1ms"][..], &["send_bw", "--transport", "uc", "--stride", "4"]] {
        let (code, said) = refusal(args);
        assert_eq!(code, Some(1));
        assert_eq!(said, "softnic: only xp has deadlines and strides: leave --deadline and --stride out\n");
    }
    let (_, said) = refusal(&["write_bw", "--transport", "xp", "--stride", "12"]);
    assert_eq!(said, "softnic: --stride is a power of two up to 2048, not 12\n");
}

#[test]
fn sdr_tells_of_chunks_and_compares_those_that_came() {
    let what =
        ["write_bw", "--transport", "sdr", "--size", "100000", "--chunk", "8K", "--mtu", "1024", "--iters", "300"];
    let of = |v: &Value, name: &str| v[name].as_u64().unwrap_or_else(|| panic!("{name}: {v}"));
    for channels in ["1", "3"] {
        let whole = json(&[&what[..], &["--verify", "--channels", channels]].concat());
        // 100,000 bytes are 13 chunks; 30 messages go before, and do not count otherwise.
        assert_eq!((whole["transport"].as_str(), of(&whole, "iterations")), (Some("sdr"), 300));
        assert_eq!((of(&whole, "chunks"), of(&whole, "chunks_missing")), (330 * 13, 0), "{whole}");
        assert!(of(&whole, "cts_sent") > 0 && of(&whole, "repost_ns") > 0, "{whole}");
        let lossy = json(&[&what[..], &["--verify", "--channels", channels, "--fault", "loss=1e-3,dup=1e-3"]].concat());
        assert_eq!((of(&lossy, "iterations"), of(&lossy, "chunks")), (300, 330 * 13), "{lossy}");
        let missing = of(&lossy, "chunks_missing");
        assert!(missing > 0 && missing < 330 * 13 / 2, "{lossy}");
    }
    // Of a message of one packet all comes, or nothing.
    let short =
        ["write_bw", "--transport", "sdr", "--size", "16", "--depth", "1", "--iters", "100", "--fault", "loss=0.05"];
    assert_eq!(of(&json(&short), "iterations"), 100);
    for (args, why) in [
        (&["write_lat", "--transport", "sdr"][..], "only write_bw"),
        (&["write_bw", "--transport", "sdr", "--qps", "2"], "--channels"),
        (&["write_bw", "--transport", "sdr", "--chunk", "5000"], "8192 is"),
        (&["write_bw", "--chunk", "4K"], "are for --transport sdr"),
    ] {
        let (_, said) = refusal(args);
        assert!(said.contains(why), "{said}");
    }
}
