//! `cargo xtask test`: every layer of tests, from fast to real. A new layer is a line in [`STEPS`].

use softnic_conformance::programs::TESTED;
use softnic_conformance::project::{self, CAPTURES_VARIABLE};
use softnic_conformance::steps::{Outcome, Report, Step, cargo_test, shell, shell_with, succeeds};
use softnic_conformance::{between, guest_tests, interop, nic_tests, pyverbs, setup, switch, tshark, verbs};

use crate::{commands, dist, fuzz, soak};

/// Features with which layers build the swarm. Not all of them need all of these; but then what is optimised is built once, not three times.
const OF_THE_SWARM: &str = "invariants,planted-bugs";

const GOODPUT_TABLE: [&str; 10] = [
    "cargo",
    "run",
    "--release",
    "--locked",
    "-p",
    "softnic-swarm",
    "--features",
    OF_THE_SWARM,
    "--example",
    "goodput_table",
];

const STEPS: &[Step] = &[
    Step::new("format", || shell(&["cargo", "fmt", "--all", "--check"])),
    Step::new("clippy", || {
        shell(&["cargo", "clippy", "--workspace", "--all-targets", "--locked", "--", "-D", "warnings"])
    }),
    Step::new("unit and property tests", || {
        // Network namespaces are made with `ip`; without it, or without root, the tests that need them say so. So does the comparison of
        // erasure codes with ISA-L's.
        if setup::lacks_for_unit_tests()
            && let Err(why) = setup::run()
        {
            println!("{why}");
        }
        // Tests of `softnic explore` run programs with the library, which `cargo test` does not build; later layers need it anyway.
        match shell(&["cargo", "build", "-p", "softnic", "-p", "softnic-verbs", "--locked"]) {
            // The captures of real hardware are a layer of their own below.
            Outcome::Passed(_) => cargo_test(&[&["cargo", "test"], &TESTED[..]].concat(), &[(CAPTURES_VARIABLE, "")]),
            failed => failed,
        }
    }),
    Step::new("wire without std", || {
        shell(&["cargo", "build", "-p", "softnic-wire", "--no-default-features", "--locked"])
    }),
    Step::new("documentation", || {
        shell_with(&["cargo", "doc", "--workspace", "--no-deps", "--locked"], &[("RUSTDOCFLAGS", "-D warnings")])
    }),
    Step::new("commands of the documents", commands::run_as_layer),
    Step::new("files of the package", dist::run_as_layer),
    Step::new("reports in a browser", reports),
    Step::new("loom", || {
        // With a folder of its own: the flag is for every crate, and would have all built again each time.
        let env = [("RUSTFLAGS", "--cfg loom"), ("CARGO_TARGET_DIR", "target/loom")];
        cargo_test(&["cargo", "test", "-p", "softnic-sync", "--lib", "--locked"], &env)
    }),
    Step::new("swarm of seeds", || {
        let test = [
            "cargo",
            "test",
            "--release",
            "-p",
            "softnic-swarm",
            "--test",
            "swarm",
            // Some of these take a minute without optimisation.
            "--test",
            "fairness",
            "--locked",
            "--features",
            OF_THE_SWARM,
        ];
        cargo_test(&test, &[("SOFTNIC_SEEDS", "1500")])
    }),
    Step::new("planted bugs are found", soak::run_short),
    Step::new("table of goodput", || shell(&GOODPUT_TABLE)),
    Step::new("devices of DPDK", with_dpdk),
    // With DPDK, as the layer before: what it builds is here.
    Step::new("AF_XDP and DPDK on emulated NICs", nic_tests::run_short),
    Step::new("captures of hardware", hardware_captures),
    Step::new("tshark", compare_with_tshark),
    Step::waiting("Linux Soft-RoCE", interop::run_short),
    Step::waiting("a wire between two Soft-RoCE", between::run_as_layer),
    Step::waiting("a switch among two Soft-RoCE and a softnic", switch::run_as_layer),
    Step::waiting("VLAN and an older kernel", guest_tests::run_short),
    Step::new("verbs programs", verbs::run_short),
    Step::new("failover under programs", verbs::run_failover_short),
    Step::new("rdma-core's own tests", pyverbs::run_as_layer),
    Step::long("table of goodput, all seeds", || shell(&[&GOODPUT_TABLE[..], &["--", "--all"]].concat())),
    Step::long("all tests on emulated NICs", nic_tests::run_all),
    Step::long("miri", miri),
    Step::long("fuzzers", fuzz::run_as_layer),
];

/// Runs all steps, or those whose names have a part of `only`, and prints the table; the error counts the failures.
pub(crate) fn run(all: bool, only: &[String]) -> Result<(), String> {
    let has = |step: &Step, part: &String| step.name.to_lowercase().contains(&part.to_lowercase());
    if let Some(part) = only.iter().find(|&part| !STEPS.iter().any(|step| has(step, part))) {
        let names: Vec<_> = STEPS.iter().map(|step| step.name).collect();
        return Err(format!("no layer is called `{part}`; there are: {}", names.join(", ")));
    }
    let steps: Vec<&Step> =
        STEPS.iter().filter(|step| only.is_empty() || only.iter().any(|part| has(step, part))).collect();
    let report = Report::of(&steps, all);
    println!("{}", report.table());
    match report.failed() {
        0 => Ok(()),
        n => Err(format!("{n} layers of tests failed")),
    }
}

/// Without the browser, these tests are among the unit tests, and say that they are left out.
fn reports() -> Outcome {
    match setup::install(&setup::BROWSER) {
        Ok(done) => println!("{done}"),
        Err(why) => return Outcome::LeftOut(why),
    }
    cargo_test(&[&["cargo", "test", "--test", "report"], &TESTED[..], &["--", "browser"]].concat(), &[])
}

/// The feature has all of it built once more from the runtime on, so it is one test, of processes.
fn with_dpdk() -> Outcome {
    match setup::install(&setup::DPDK).and_then(|_| setup::install(&setup::DPDK_TESTS)) {
        Ok(done) => println!("{done}"),
        Err(why) => return Outcome::LeftOut(why),
    }
    // With the library for verbs programs, which tests do not build.
    let both = ["--features", "dpdk", "-p", "softnic", "-p", "softnic-verbs", "--locked"];
    match shell(&[&["cargo", "build"], &both[..]].concat()) {
        Outcome::Passed(_) => cargo_test(&[&["cargo", "test", "--test", "dpdk"], &both[..]].concat(), &[]),
        failed => failed,
    }
}

fn hardware_captures() -> Outcome {
    let folder = match project::hardware_captures() {
        Ok(folder) => folder,
        Err(why) => return Outcome::LeftOut(why),
    };
    let Some(name) = folder.to_str() else {
        return Outcome::Failed(format!("the name of {} is not UTF-8", folder.display()));
    };
    // Their ICRCs, and what our NIC says to them.
    let test = [&["cargo", "test", "--test", "captures", "--test", "corpus"], &TESTED[..]].concat();
    match (cargo_test(&test, &[(CAPTURES_VARIABLE, name)]), project::captures_in(&folder)) {
        (Outcome::Passed(_), Ok(files)) => Outcome::Passed(format!("{} captures", files.len())),
        (Outcome::Passed(_), Err(why)) => Outcome::Failed(why),
        (other, _) => other,
    }
}

fn compare_with_tshark() -> Outcome {
    if !setup::is_installed("tshark") {
        match setup::run() {
            Ok(done) => println!("{done}"),
            Err(why) => return Outcome::LeftOut(why),
        }
    }
    println!("$ cargo xtask tshark");
    match tshark::run(&[]) {
        Ok(report) => {
            println!("{report}");
            // The dissector that is written for it: left out by `cargo test` where tshark was not there yet.
            match cargo_test(&["cargo", "test", "-p", "softnic", "--test", "wireshark"], &[("SOFTNIC_TSHARK", "1")]) {
                Outcome::Passed(_) => Outcome::Passed(report.to_string()),
                other => other,
            }
        }
        Err(why) => Outcome::Failed(why),
    }
}

/// A cargo command of the nightly toolchain. Not `cargo +nightly`: below `cargo xtask` the toolchain is chosen already.
fn nightly<'a>(arguments: &[&'a str]) -> Vec<&'a str> {
    [&["rustup", "run", "nightly", "cargo"], arguments].concat()
}

fn miri() -> Outcome {
    if !succeeds(&nightly(&["miri", "--version"])) {
        return Outcome::LeftOut("no nightly toolchain with miri".into());
    }
    // Property tests write down what failed, which miri's isolation forbids; under it a few cases must do.
    let env = [("MIRIFLAGS", "-Zmiri-disable-isolation"), ("PROPTEST_CASES", "4")];
    // The codec; then bits that several threads set, and what of SDR fills bitmaps and memory by them.
    let tests: [&[&str]; 4] = [
        &["-p", "softnic-wire", "--lib"],
        &["-p", "softnic-sync", "--lib", "bits::"],
        &["-p", "softnic-sdr", "--lib", "bitmap::"],
        &["-p", "softnic-sdr", "--test", "sdr", "engines::"],
    ];
    let run = |test: &&[&str]| shell_with(&nightly(&[&["miri", "test", "--locked"], *test].concat()), &env);
    let failed = tests.iter().map(run).find(|outcome| !matches!(outcome, Outcome::Passed(_)));
    failed.unwrap_or(Outcome::Passed("wire; bits of several threads; bitmaps and engines of SDR".into()))
}
