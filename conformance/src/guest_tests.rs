//! `cargo xtask guest-tests`: the tests of softnic-runtime that need a network namespace, run inside the guest. Its kernel has what this machine's
//! may lack (VLAN interfaces), and is older (6.1: AF_XDP without frames in several buffers).

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::guest::{self, Error, Guest, Image, Link, Machine, SOFT_ROCE};
use crate::programs;
use crate::steps::Outcome;
use crate::tshark::Scratch;

/// The test programs.
const PROGRAMS: [&str; 3] = ["host_network", "afxdp", "veth"];
/// Of these the tests that only the guest can run: what their names hold.
const SHORT: [&str; 2] = ["vlan", "before_6_6"];
/// One program takes no longer: the guest is emulated.
const LIMIT: Duration = Duration::from_secs(900);
/// Memory for the programs and what they do, beside what the guest needs anyway.
const MEMORY: u32 = 1024;

/// What to run.
#[derive(Debug, clap::Args)]
pub struct Options {
    /// Tests whose names hold one of these; without any: those that only the guest can run
    filters: Vec<String>,
    /// All tests of these programs; several minutes
    #[arg(long, conflicts_with = "filters")]
    all: bool,
}

/// How the tests of all programs ended.
#[derive(Debug, Default)]
struct Tally {
    passed: u64,
    failed: Vec<String>,
    left_out: Vec<String>,
}

/// The command.
pub fn run(options: &Options) -> Result<(), String> {
    let filters: Vec<&str> = match (options.all, &options.filters[..]) {
        (true, _) => vec![],
        (_, []) => SHORT.to_vec(),
        (_, some) => some.iter().map(|f| &**f).collect(),
    };
    let (kernel, tally) = run_tests(&filters).map_err(|e| e.to_string())?;
    let Tally { passed, failed, left_out } = tally;
    println!("\non Linux {kernel}: {passed} tests passed, {} failed, {} left out", failed.len(), left_out.len());
    match failed.len() {
        0 => Ok(()),
        n => Err(format!("{n} tests failed: {}", failed.join(", "))),
    }
}

/// The tests that only the guest can run, as a layer of tests.
pub fn run_short() -> Outcome {
    println!("$ cargo xtask guest-tests");
    match run_tests(&SHORT) {
        Ok((kernel, Tally { passed, failed, left_out })) if failed.is_empty() && left_out.is_empty() => {
            Outcome::Passed(format!("{passed} tests on Linux {kernel}"))
        }
        Ok((_, Tally { failed, left_out, .. })) => Outcome::Failed([failed, left_out].concat().join(", ")),
        Err(Error::Missing(why)) => Outcome::LeftOut(why),
        Err(why) => Outcome::Failed(why.to_string()),
    }
}

fn run_tests(filters: &[&str]) -> Result<(String, Tally), Error> {
    guest::catch_interrupts();
    let image = Image::of(&SOFT_ROCE)?;
    let scratch = Scratch::new("guest-tests").map_err(Error::Failed)?;
    let built = build()?;
    let machine = Machine {
        memory: MEMORY,
        programs: PROGRAMS
            .iter()
            .map(|&p| {
                let path = built.get(p).ok_or_else(|| Error::Failed(format!("cargo built no test program {p}")))?;
                Ok((inside(p), programs::stripped(path, &scratch.0)))
            })
            .collect::<Result<_, _>>()?,
        ..Machine::new(Link::None, "", &[], 0)
    };
    println!("guest-tests: booting the guest");
    let mut guest = Guest::boot(&image, &scratch.0, &machine, &mut nap)?;
    let kernel = guest.call(&json!({"do": "kernel"}), &mut nap)?;
    let mut tally = Tally::default();
    for program in PROGRAMS {
        run_program(&mut guest, program, filters, &mut tally)?;
    }
    Ok((kernel.as_str().unwrap_or("?").to_owned(), tally))
}

/// Where a program lies in the guest.
fn inside(program: &str) -> String {
    format!("tests/{program}")
}

fn nap() -> Result<(), Error> {
    std::thread::sleep(Duration::from_millis(20));
    Ok(())
}

/// Runs a test program; what it prints is shown as it comes.
fn run_program(guest: &mut Guest, program: &str, filters: &[&str], tally: &mut Tally) -> Result<(), Error> {
    // One at a time: there is one processor, and tests wait for what threads do.
    let mut argv = vec![format!("/{}", inside(program)), "--test-threads=1".into()];
    argv.extend(filters.iter().map(ToString::to_string));
    println!("guest-tests: {}", argv.join(" "));
    let env = json!({"RUST_BACKTRACE": "1"});
    guest.call(&json!({"do": "start", "argv": argv, "env": env}), &mut nap)?;
    let (begin, mut text) = (Instant::now(), String::new());
    let mut summary = false;
    loop {
        let answer = guest.call(&json!({"do": "output"}), &mut nap)?;
        text += answer["text"].as_str().unwrap_or_default();
        while let Some((line, rest)) = text.split_once('\n') {
            summary |= tally.take(program, line);
            println!("  {line}");
            text = rest.to_owned();
        }
        match &answer["status"] {
            Value::Null if begin.elapsed() > LIMIT => {
                guest.call(&json!({"do": "stop"}), &mut nap)?;
                tally.failed.push(format!("{program}: not done after {} s; it was at: {text}", LIMIT.as_secs()));
                return Ok(());
            }
            Value::Null => nap()?,
            // A program that ends without its summary was killed, whatever it said before.
            status if !summary => {
                tally.failed.push(format!("{program}: ended with {status} in the middle of its tests"));
                return Ok(());
            }
            _ => return Ok(()),
        }
    }
}

impl Tally {
    /// Takes a line of a test program into account; whether it is the last one.
    fn take(&mut self, program: &str, line: &str) -> bool {
        if let Some(rest) = line.strip_prefix("test result: ") {
            let word = |what: &str| rest.split("; ").find_map(|part| part.strip_suffix(what)?.split(' ').next_back());
            let left_out = self.left_out.iter().filter(|t| t.starts_with(&format!("{program}: "))).count() as u64;
            let passed = word(" passed").and_then(|n| n.parse::<u64>().ok()).unwrap_or(0);
            self.passed += passed.saturating_sub(left_out);
            return true;
        }
        // A test that is left out says so while its own line is not at its end.
        if let Some((_, why)) = line.split_once("LEFT OUT: ") {
            self.left_out.push(format!("{program}: {why}"));
        } else if let Some(test) = line.strip_prefix("test ").and_then(|l| l.strip_suffix(" ... FAILED")) {
            self.failed.push(format!("{program}: {test}"));
        }
        false
    }
}

/// Builds the test programs; where each is.
fn build() -> Result<BTreeMap<String, PathBuf>, Error> {
    let mut words = [&["test", "--no-run"], &programs::TESTED[..]].concat();
    PROGRAMS.iter().for_each(|program| words.extend(["--test", program]));
    programs::build(&words).map_err(Error::Failed)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_test_program_prints_is_counted() {
        let mut tally = Tally::default();
        let printed = "\nrunning 4 tests
test a::b ... ok
test a::c ... LEFT OUT: a::c: no such interface
ok
test a::d ... FAILED
test a::e ... ignored, why
";
        assert!(!printed.lines().any(|line| tally.take("veth", line)));
        let last = "test result: FAILED. 2 passed; 1 failed; 1 ignored; 0 measured; 3 filtered out; finished in 0.01s";
        assert!(tally.take("veth", last));
        assert_eq!((tally.passed, &tally.failed[..]), (1, &["veth: a::d".to_owned()][..]));
        assert_eq!(tally.left_out, ["veth: a::c: no such interface"]);
    }
}
