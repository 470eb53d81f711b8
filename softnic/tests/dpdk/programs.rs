//! Unmodified verbs programs on devices of DPDK's, through the library beside the program: it must be built with the feature, too.
//! Where it is not, or a program is not there, these say that they are left out.

use std::io::Write;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use crate::ends::{Ends, Running};

/// Whether there is a program, and a library to run it on; what is missing is said.
fn can_run(program: &str) -> bool {
    let library = Path::new(env!("CARGO_BIN_EXE_softnic")).with_file_name("libsoftnic_verbs.so");
    let version = Command::new(program).arg("--version").stdout(Stdio::null()).stderr(Stdio::null()).status();
    let lack = match version {
        Err(_) => format!("there is no {program}"),
        _ if !library.exists() => format!("there is no {}", library.display()),
        _ if !has_dpdk() => format!("{} is without DPDK", library.display()),
        _ => return true,
    };
    let test = std::thread::current().name().unwrap_or("a test").to_string();
    let _ = writeln!(std::io::stderr(), "LEFT OUT: {test}: {lack}");
    false
}

fn has_dpdk() -> bool {
    let mut command = Command::new(env!("CARGO_BIN_EXE_softnic"));
    let out = command.args(["run", "--dev", "dpdk:net_null0,ip=10.9.0.1/24", "--", "ibv_devices"]).output();
    !String::from_utf8_lossy(&out.expect("softnic runs").stderr).contains("built without DPDK")
}

fn run(ends: &Ends, end: usize, words: &[&str]) -> Running {
    let mut command = (ends.softnic[end])();
    Running::start(command.args(["run", "--dev", &ends.meeting.devices[end], "--"]).args(words))
}

/// A server that serves one client, and the client, which comes again while the server does not listen yet.
fn meet(ends: &Ends, server: &[&str], client: &[&str]) -> String {
    let mut serving = run(ends, 0, server);
    let start = Instant::now();
    let text = loop {
        let (code, text) = run(ends, 1, client).end();
        if code == Some(0) {
            break text;
        }
        if serving.has_ended() || start.elapsed() > Duration::from_secs(60) {
            panic!("{client:?}: {text}\n{server:?}: {:?}", serving.end());
        }
    };
    let (code, said) = serving.end();
    assert_eq!(code, Some(0), "{server:?}: {said}");
    text
}

#[test]
fn rping_meets_by_the_connection_manager_of_the_nics() {
    if !can_run("rping") {
        return;
    }
    let ends = Ends::memif("rping");
    let text = meet(
        &ends,
        &["rping", "-s", "-a", "10.9.0.1", "-C", "20"],
        &["rping", "-c", "-a", "10.9.0.1", "-C", "20", "-v"],
    );
    assert_eq!(text.lines().filter(|line| line.starts_with("ping data:")).count(), 20, "{text}");
}

#[test]
fn perftest_meets_by_the_connection_manager_of_the_nics() {
    if !can_run("ib_write_bw") {
        return;
    }
    let ends = Ends::memif("perftest");
    let words = ["ib_write_bw", "-R", "-u", "18", "-s", "65536", "-n", "200"];
    let text = meet(&ends, &words, &[&words[..], &["10.9.0.1"]].concat());
    let row = text.lines().find(|line| line.trim_start().starts_with("65536 ")).unwrap_or_else(|| panic!("{text}"));
    assert_eq!(row.split_whitespace().nth(1), Some("200"), "{row}");
}

/// A C program of the library's own tests, compiled; what is missing for that is said.
fn compiled(ends: &Ends, name: &str) -> Option<String> {
    let source = format!("{}/../verbs/tests/c/{name}.c", env!("CARGO_MANIFEST_DIR"));
    let program = ends.folder.join(name).to_str().expect("UTF-8").to_string();
    let words = ["-std=gnu11", "-O1", "-pthread", "-o", &program, &source, "-libverbs"];
    match Command::new("gcc").args(words).output() {
        Ok(out) if out.status.success() => return Some(program),
        Ok(out) => drop(writeln!(std::io::stderr(), "LEFT OUT: {name}: {}", String::from_utf8_lossy(&out.stderr))),
        Err(e) => drop(writeln!(std::io::stderr(), "LEFT OUT: {name}: gcc: {e}")),
    }
    None
}

/// The device is a memif without a peer: both ends of a program are on it.
#[test]
fn programs_that_open_the_device_twice_or_again_or_end_without_closing_it_run_and_leave_it_to_nobody() {
    if !can_run("ibv_devices") {
        return;
    }
    for name in ["descriptors", "exit_without_close", "basic", "exec", "open_again"] {
        let ends = Ends::memif(name);
        let Some(program) = compiled(&ends, name) else { continue };
        // The driver leaves the socket open at which a memif's server listens, one each time.
        let leaves: &[&str] = if name == "open_again" { &["1"] } else { &[] };
        let (code, text) = run(&ends, 0, &[&[&*program], leaves].concat()).end();
        assert_eq!(code, Some(0), "{name}: {text}");
    }
}
