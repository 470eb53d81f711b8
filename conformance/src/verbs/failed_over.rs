//! `cargo xtask shift`: programs on `softnic run --backup`, whose default path fails under them and comes back.
//!
//! Scenarios stand in tables, one file for each kind of program, which [`Scenario::all`] puts together.

mod course;
mod hosts;
mod measure;
mod peers;
mod perftest;
mod scenario;

use super::{Bench, Test, run_tests};
use crate::guest::Error;
use crate::steps::Outcome;
use crate::{programs, setup};
pub(super) use scenario::Scenario;
use scenario::Trouble;

/// Which scenarios of failover run.
#[derive(Debug, clap::Args)]
pub struct FailoverOptions {
    /// Only those whose names have one of these in them, as in ib_send_bw or responder
    #[arg(value_name = "PART")]
    parts: Vec<String>,
    /// Every scenario; without it and without names those of every test run
    #[arg(long, conflicts_with = "parts")]
    all: bool,
    /// List the scenarios instead of running them; those of every test run have a star
    #[arg(long)]
    list: bool,
    /// So many fallbacks of `softnic perf`, one after the other, and how long they took; half of them must take less than 10 ms
    #[arg(long, value_name = "N", conflicts_with_all = ["parts", "all", "list"], value_parser = clap::value_parser!(u32).range(1..))]
    fallbacks: Option<u32>,
    /// Rates of `softnic perf` and ib_write_bw with a backup that is not needed and without one, in so many rounds of four turns, and their ratio
    /// with its error; 7 rounds where no number is given
    #[arg(long, value_name = "ROUNDS", num_args = 0..=1, default_missing_value = "7", conflicts_with_all = ["parts", "all", "list", "fallbacks"], value_parser = clap::value_parser!(u32).range(1..))]
    cost: Option<u32>,
    /// The optimised build, as users have it; takes minutes to build
    #[arg(long)]
    release: bool,
    /// Show what programs print even if all is well
    #[arg(long, short)]
    verbose: bool,
}

impl Scenario {
    /// The tables of all kinds of programs.
    pub(super) fn all() -> Vec<Scenario> {
        [perftest::scenarios(), peers::scenarios()].concat()
    }

    /// Runs it, between hosts of its own.
    pub(super) fn run(&self, bench: &Bench) -> Result<(), Error> {
        if self.trouble == Trouble::SoftRoce {
            return peers::run_with_soft_roce(&self.case, bench);
        }
        let said = course::run(self, bench)?;
        if !said.is_empty() {
            println!("shift: {}: {said}", self.name());
        }
        Ok(())
    }
}

/// The command.
pub fn run_failover(options: &FailoverOptions) -> Result<(), String> {
    if let Some(count) = options.fallbacks {
        let bench = built(options)?;
        return measure::fallbacks(&bench, count as usize).map_err(|e| e.to_string());
    }
    if let Some(rounds) = options.cost {
        return measure::cost(&built(options)?, rounds as usize).map_err(|e| e.to_string());
    }
    let chosen = |test: &Test| match &options.parts[..] {
        [] => options.all || options.list || is_short(test),
        parts => parts.iter().any(|part| test.name().contains(part)),
    };
    let tests: Vec<Test> = Test::of_failover().filter(chosen).collect();
    if tests.is_empty() {
        return Err("no scenario has that in its name: `cargo xtask shift --list` shows those that are".into());
    }
    if options.list {
        tests.iter().for_each(|test| println!("{} {}", if is_short(test) { "*" } else { " " }, test.name()));
        return Ok(());
    }
    let report = run_tests(&tests, &built(options)?, 1).map_err(|e| e.to_string())?;
    println!("\n{}", report.text());
    match report.failed().count() {
        0 => Ok(()),
        n => Err(format!("{n} of {} scenarios failed", report.len())),
    }
}

/// Whether every test run has it.
fn is_short(test: &Test) -> bool {
    matches!(test, Test::FailedOver(scenario) if scenario.is_short())
}

/// What scenarios run with: as it is built for people, without what tests of the library alone need.
fn built(options: &FailoverOptions) -> Result<Bench, String> {
    println!("{}", setup::install(&setup::VERBS)?);
    let release: &[&str] = if options.release { &["--release"] } else { &[] };
    let words = [&["build", "--locked", "-p", "softnic", "-p", "softnic-verbs"], release].concat();
    Bench::with(programs::build_one("softnic", &words)?, options.verbose)
}

/// The short set as a layer of tests.
pub fn run_failover_short() -> Outcome {
    println!("$ cargo xtask shift");
    if let Err(why) = setup::install(&setup::VERBS) {
        return Outcome::LeftOut(why);
    }
    let tests: Vec<Test> = Test::of_failover().filter(is_short).collect();
    super::as_layer(Bench::new(false, false).and_then(|bench| run_tests(&tests, &bench, 1).map_err(|e| e.to_string())))
}
