//! The experiments of DCQCN, SHIFT and SDR-RDMA.

use std::collections::HashMap;
use std::path::Path;
use std::process::Command;

use crate::support::*;

#[test]
fn flows_with_congestion_control_share_a_bottleneck_fairly_and_their_rates_are_in_the_files() {
    let folder = Folder::new("fairness");
    quick(&folder, "cc-fairness", &[]);
    let rows = csv(&folder.read("cc-fairness-quick.csv"));
    let of = |cc: &str, flows: &str, figure: &str| -> Vec<f64> {
        let is_of =
            |row: &HashMap<String, String>| row["cc"] == cc && row["flows"] == flows && row["transport"] == "rc";
        let fits = |row: &&HashMap<String, String>| is_of(row) && row["figure"] == figure;
        rows.iter().filter(fits).map(|row| number(row, "value")).collect()
    };
    for flows in ["2", "4"] {
        let n: usize = flows.parse().expect("a number");
        assert!(of("dcqcn", flows, "jain")[0] > 0.98 && of("dcqcn", flows, "share_gbps").len() == n);
        assert!(of("none", flows, "mean_queue_bytes")[0] > 10.0 * of("dcqcn", flows, "mean_queue_bytes")[0]);
        let (rates, queue) = (of("dcqcn", flows, "rate_gbps"), of("dcqcn", flows, "queue_bytes"));
        assert!(rates.len() == n * queue.len() && queue.len() > 100, "{} and {}", rates.len(), queue.len());
        assert!(rates.iter().all(|r| (0.0..40.1).contains(r)), "never above the line's rate");
        assert!(of("swift", flows, "jain")[0] > 0.98 && of("swift", flows, "utilization")[0] > 0.98);
    }
    assert!(of("none", "15", "incast_dropped")[0] > 0.0 && of("swift", "15", "incast_dropped")[0] == 0.0);
    assert!(of("swift", "15", "incast_slowdown")[0] < 1.2);
    let fits = |row: &&HashMap<String, String>| row["cc"] == "eqds" && row["figure"] == "jain";
    let eqds: Vec<f64> = rows.iter().filter(fits).map(|row| number(row, "value")).collect();
    assert!(eqds.len() == 6 && eqds.iter().all(|&jain| jain > 0.95), "2, 4 and 16 flows over rc and xp: {eqds:?}");
    assert_well_formed(&folder.read("cc-fairness-quick.svg"));
    let out = experiment(&["cc-fairness", "--transports", "sr", "--out", folder.path()]);
    let said = String::from_utf8_lossy(&out.stderr).into_owned();
    assert!(out.status.code() == Some(1) && said.contains("leave --transports out"), "{said}");
}

#[test]
fn connections_with_a_backup_go_on_at_the_rate_of_the_line_and_plain_ones_end() {
    let folder = Folder::new("shift");
    quick(&folder, "shift-throughput", &[]);
    let rows = csv(&folder.read("shift-throughput-quick.csv"));
    let rate = |backup: &str, second: &str| {
        let keys = [("operation", "WRITE"), ("failure", "switch port"), ("backup", backup), ("interval_ms", "1000")];
        figure(&rows, &[&keys[..], &[("time_s", second)]].concat(), "gbps")
    };
    let line = rate("no", "2");
    for second in ["2", "7", "13"] {
        assert!((rate("yes", second) / line - 1.0).abs() < 0.02, "second {second}: {} of {line}", rate("yes", second));
    }
    assert_eq!((rate("no", "7"), rate("no", "13")), (0.0, 0.0), "without a backup the program ends");
    assert_well_formed(&folder.read("shift-throughput-quick.svg"));
    quick(&folder, "shift-fallback", &[]);
    let rows = csv(&folder.read("shift-fallback-quick.csv"));
    assert_eq!(rows.len(), 3 * 3 * 10);
    // Two round trips of 50 µs, three where a key is asked for, and 64 KiB at 10 Gbit/s.
    let bound = |row: &HashMap<String, String>| if row["operation"] == "SEND" { 100.0 } else { 150.0 } * 1.1 + 57.6;
    assert!(rows.iter().all(|row| (50.0..=bound(row)).contains(&number(row, "fallback_us"))), "{rows:?}");
    assert_well_formed(&folder.read("shift-fallback-quick.svg"));
}

#[test]
fn a_training_job_with_a_backup_does_nothing_again() {
    let folder = Folder::new("training");
    quick(&folder, "shift-training", &[]);
    let rows = csv(&folder.read("shift-training-quick.csv"));
    let of = |setting: &str| -> Vec<(f64, f64)> {
        let rows = rows.iter().filter(|row| row["setting"].starts_with(setting));
        rows.map(|row| (number(row, "time_s"), number(row, "epochs"))).collect()
    };
    let end = |setting: &str| of(setting).last().expect("steps").0;
    let again = |setting: &str| of(setting).windows(2).any(|pair| pair[1].1 < pair[0].1);
    let settings = ["(1)", "(2)", "(3)", "(4)", "(5)"];
    assert!(settings.iter().all(|setting| of(setting).last().expect("steps").1 == 4.0), "all end");
    assert_eq!(settings.map(again), [false, true, false, false, false]);
    // To be scheduled takes 63 or 37 seconds; the failure is 0.78 of an epoch of 1124 s behind the checkpoint.
    assert!(end("(2)") - end("(1)") > 63.0 + 800.0 && end("(3)") - end("(1)") < 0.1 * (end("(2)") - end("(1)")));
    assert!(["(4)", "(5)"].iter().all(|setting| end(setting) < 1.01 * end("(1)")));
    assert_well_formed(&folder.read("shift-training-quick.svg"));
}

/// Together with the program's own crate, or all would be built again with fewer features of what they depend on.
const BUILD: [&str; 6] = ["build", "--locked", "-p", "softnic-verbs", "-p", "softnic-cli"];

/// What the program of these experiments needs, beside the library: that is built, as `cargo test` does not, so that none of an earlier build is taken.
fn lacks() -> Option<String> {
    let header = Path::new("/usr/include/infiniband/verbs.h");
    if !header.exists() {
        return Some(format!("there is no {}", header.display()));
    }
    if let Err(why) = Command::new("cc").arg("--version").output() {
        return Some(format!("cc: {why}"));
    }
    let built = Command::new(env!("CARGO")).args(BUILD).status();
    assert!(built.is_ok_and(|status| status.success()), "the library is not built");
    None
}

#[test]
fn verbs_latency_and_memory_are_measured_with_a_backup_and_without() {
    if let Some(lack) = lacks() {
        eprintln!("left out: {lack}");
        return;
    }
    let folder = Folder::new("verbs");
    quick(&folder, "shift-verbs", &[]);
    let rows = csv(&folder.read("shift-verbs-quick.csv"));
    for verb in ["ibv_alloc_pd", "ibv_modify_qp RTR", "ibv_destroy_qp", "ibv_post_send", "ibv_post_recv", "ibv_poll_cq"]
    {
        let of = |row: &&HashMap<String, String>| row["verb"] == verb && number(row, "ratio") > 0.0;
        assert_eq!(rows.iter().filter(of).count(), 3, "{verb} in each round");
    }
    assert_eq!(
        rows.iter().filter(|row| row["verb"] == "backup ready").count(),
        3 * 5,
        "each connection gets its backup"
    );
    assert_well_formed(&folder.read("shift-verbs-quick.svg"));
    quick(&folder, "shift-latency", &[]);
    let rows = csv(&folder.read("shift-latency-quick.csv"));
    assert_eq!(rows.len(), 2 * 5 * 3);
    assert!(rows.iter().all(|row| number(row, "lowest_us") > 0.0 && number(row, "messages") == 500.0), "{rows:?}");
    quick(&folder, "shift-memory", &[]);
    let rows = csv(&folder.read("shift-memory-quick.csv"));
    let qp = rows.iter().find(|row| row["object"] == "queue pair").expect("measured");
    // There is one more, which takes less than the one that the program knows.
    assert!(number(qp, "added_bytes") > 0.0 && number(qp, "added_bytes") < number(qp, "plain_bytes"), "{qp:?}");
}

#[test]
fn sdr_is_measured_beside_rc_and_uc_and_its_chunks_are_lost_as_the_formula_says() {
    let folder = Folder::new("sdr");
    let text = quick(&folder, "sdr-throughput", &[]);
    let rows = csv(&folder.read("sdr-throughput-quick.csv"));
    assert_eq!(rows.len(), 6, "{text}");
    for row in &rows {
        assert!(number(row, "gbps") > 0.0 && number(row, "runs") == 1.0, "{row:?}");
        assert_eq!(row["transport"] == "sdr", !row["repost_ns"].is_empty(), "{row:?}");
    }
    assert_well_formed(&folder.read("sdr-throughput-quick.svg"));
    let text = quick(&folder, "sdr-chunk", &[]);
    let rows = csv(&folder.read("sdr-chunk-quick.csv"));
    assert_eq!(rows.iter().map(|row| number(row, "chunk")).collect::<Vec<_>>(), [256.0, 16384.0], "{text}");
    // Of 64 packets at a loss of 1e-3.
    assert!(text.contains("0.0620"), "{text}");
}
