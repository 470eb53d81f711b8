//! `softnic experiment` as people and scripts use it.

mod lowar;
mod optinic;
mod output;
mod papers;
mod race;
mod support;

use serde_json::Value;

use support::experiment;

const NAMES: [&str; 19] = [
    "lowar-goodput",
    "lowar-fct",
    "lowar-burst",
    "lowar-small",
    "lowar-overhead",
    "cc-fairness",
    "sdr-throughput",
    "sdr-chunk",
    "sdr-ec-vs-xor",
    "shift-throughput",
    "shift-fallback",
    "shift-verbs",
    "shift-latency",
    "shift-memory",
    "shift-training",
    "optinic-size",
    "optinic-cct",
    "optinic-timeout",
    "optinic-state",
];

#[test]
fn without_a_name_all_are_listed_and_a_wrong_one_says_which_there_are() {
    let out = experiment(&[]);
    let text = String::from_utf8(out.stdout).expect("UTF-8");
    assert!(out.status.success() && NAMES.iter().all(|name| text.contains(name)), "{text}");
    let out = experiment(&["--json"]);
    let text = String::from_utf8(out.stdout).expect("UTF-8");
    let listed: Vec<Value> = text.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect();
    assert!(NAMES.iter().all(|name| listed.iter().any(|e| e["name"] == *name)), "{listed:?}");
    let out = experiment(&["lowar-gooput"]);
    let said = String::from_utf8_lossy(&out.stderr).into_owned();
    assert!(out.status.code() == Some(2) && NAMES.iter().all(|name| said.contains(name)), "{said}");
}
