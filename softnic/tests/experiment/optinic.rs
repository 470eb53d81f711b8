//! The experiments of OptiNIC.

use std::collections::HashMap;

use crate::support::*;

/// A figure of a run of `optinic-size` or `optinic-cct`.
fn of(rows: &[HashMap<String, String>], keys: &[(&str, &str)], column: &str) -> f64 {
    figure(rows, keys, column)
}

#[test]
fn queue_pairs_are_counted_beside_table_4_and_what_does_not_follow_from_its_bytes_is_said() {
    let folder = Folder::new("optinic-state");
    let text = quick(&folder, "optinic-state", &[]);
    assert!(text.contains("is 6.7K") && text.contains("is 16.5K"), "{text}");
    let rows = csv(&folder.read("optinic-state-quick.csv"));
    let of = |transport: &str, column: &str| of(&rows, &[("transport", transport)], column);
    assert_eq!((of("IRN", "queue_pairs"), of("IRN", "stated_queue_pairs")), (6711.0, 8000.0));
    assert_eq!((of("SRNIC", "queue_pairs"), of("SRNIC", "stated_queue_pairs")), (16528.0, 20000.0));
    assert_eq!((of("OptiNIC", "queue_pairs"), of("UCCL", "nodes")), (76923.0, 38.0));
    let [rc, sr, xp] = ["softnic rc", "softnic sr", "softnic xp"].map(|name| of(name, "bytes"));
    assert!(xp < sr && (400.0..2000.0).contains(&rc), "rc {rc}, sr {sr}, xp {xp}");
    assert_well_formed(&folder.read("optinic-state-quick.svg"));
}

#[test]
fn collectives_lose_bytes_over_xp_alone_and_the_same_seed_gives_the_same_bytes() {
    let run = |name: &str, args: &[&str]| {
        let folder = Folder::new(&format!("optinic-rtt-{name}"));
        quick(&folder, "optinic-cct", &[&["--rtt", "1ms"], args].concat());
        (folder.read("optinic-cct-rtt-quick.csv"), folder.read("optinic-cct-rtt-quick.svg"))
    };
    let one = run("one", &["--threads", "1"]);
    assert_eq!(one, run("two", &["--threads", "2"]), "whatever the number of threads");
    assert_well_formed(&one.1);
    let rows = csv(&one.0);
    let of = |transport: &str, column: &str| of(&rows, &[("transport", transport)], column);
    assert!(rows.iter().all(|row| row["failed"].is_empty() && number(row, "collectives") > 0.0), "{rows:?}");
    for reliable in ["rc", "sr", "lowar:32,1"] {
        assert_eq!(of(reliable, "missing_fraction"), 0.0, "{reliable}");
    }
    let missing = of("xp:tail=2", "missing_fraction");
    assert!((1e-4..1e-2).contains(&missing), "about one packet in a thousand: {missing}");
    assert!(of("xp:tail=2", "mean_ms") < of("rc", "mean_ms"), "who sends nothing again is sooner through");
}

#[test]
fn round_trips_are_for_one_experiment_alone() {
    let folder = Folder::new("optinic-args");
    for (args, line) in [
        (&["optinic-size", "--rtt", "1ms"][..], "--rtt is for optinic-cct"),
        (&["optinic-cct", "--rtt", "1s"], "it is a time from 10us to 200ms"),
        (&["optinic-cct", "--transports", "rc"], "leave --transports out"),
        (&["optinic-state", "--seeds", "2"], "all seeds are alike"),
    ] {
        let out = experiment(&[args, &["--out", folder.path()]].concat());
        let said = String::from_utf8_lossy(&out.stderr).into_owned();
        assert!(out.status.code() == Some(1) && said.contains(line) && said.lines().count() == 1, "{args:?}: {said}");
    }
}
