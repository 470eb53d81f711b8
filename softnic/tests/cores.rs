//! `--cpu` of `perf`, `switch` and `wire` (tests/run.rs has that of `run`): cores that are not there, or not allowed, are refused before anything starts.

use std::process::Command;

fn refused(arguments: &[&str]) -> String {
    let out = Command::new(env!("CARGO_BIN_EXE_softnic")).args(arguments).output().unwrap();
    let text = String::from_utf8_lossy(&out.stderr).into_owned();
    assert!(!out.status.success() && out.stdout.is_empty(), "{arguments:?}: {text}");
    text
}

#[test]
fn a_core_that_does_not_exist_is_refused() {
    for arguments in [
        &["perf", "write_bw", "--cpu", "0,9999"][..],
        &["perf", "write_bw", "--progress", "dedicated", "--cpu", "9999"],
        &["switch", "--config", "none.toml", "--cpu", "9999"],
        &["wire", "--a", "none0", "--b", "none1", "--cpu", "9999"],
    ] {
        let text = refused(arguments);
        assert!(text.contains("there is no core 9999"), "{arguments:?}: {text}");
    }
}

#[test]
fn a_core_outside_the_affinity_mask_is_refused() {
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    if cores < 2 {
        eprintln!("LEFT OUT: there is one core");
        return;
    }
    let out = Command::new("taskset")
        .args(["-c", "0", env!("CARGO_BIN_EXE_softnic"), "perf", "write_bw", "--cpu", "1"])
        .output();
    let Ok(out) = out else {
        eprintln!("LEFT OUT: there is no taskset");
        return;
    };
    let text = String::from_utf8_lossy(&out.stderr);
    assert!(!out.status.success() && text.contains("may not use core 1: its affinity mask allows 0"), "{text}");
}
