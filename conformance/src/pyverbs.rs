//! `cargo xtask pyverbs`: rdma-core's own tests of libibverbs, which Debian has in python3-pyverbs, on softnic.

mod judge;
mod place;
mod process;
mod report;
mod suite;

use crate::guest::{Error, catch_interrupts, create_folder, interrupted};
use crate::steps::Outcome;
use crate::tshark::Scratch;
use crate::{programs, setup};
use place::Place;
use process::Runner;
use report::Report;
use suite::Suite;

/// What to run.
#[derive(Debug, clap::Args)]
pub struct Options {
    /// Modules, classes or tests, as --list names them; without any, all
    names: Vec<String>,
    /// List the tests instead of running them
    #[arg(long)]
    list: bool,
    /// On a wire in memory, as without root, instead of AF_XDP
    #[arg(long)]
    mem: bool,
    /// Run each test so often, one round of all after the other
    #[arg(long, default_value_t = 1, value_name = "N")]
    repeat: usize,
    /// The optimised build, as users have it; takes minutes to build
    #[arg(long)]
    release: bool,
    /// Show what tests print even if all is well
    #[arg(long, short)]
    verbose: bool,
    /// Run the tests under the checker of `softnic check`, each in a process of its own: errors that it finds fail them, and it says what
    /// else it finds
    #[arg(long)]
    check: bool,
    /// Write the table of results into docs/verbs.md
    #[arg(long, conflicts_with_all = ["names", "list", "mem", "repeat", "check"])]
    write_docs: bool,
}

/// The command.
pub fn run(options: &Options) -> Result<(), String> {
    println!("{}", setup::install(&setup::PYVERBS)?);
    let scratch = Scratch::new("pyverbs")?;
    let suite = Suite::gather(&scratch.0).map_err(|e| e.to_string())?;
    let tests = named(&suite.tests, &options.names)?;
    if options.list {
        tests.iter().for_each(|test| println!("{test}"));
        return Ok(());
    }
    let place = match options.mem {
        true => Place::Memory,
        false => find_place().map_err(|e| e.to_string())?,
    };
    let how = How { release: options.release, verbose: options.verbose, rounds: options.repeat, check: options.check };
    let report = run_tests(&suite, &tests, &place, &scratch, how)?;
    println!("\n{}", report.text());
    if options.write_docs {
        report.write(&suite, place.name())?;
        println!("docs/verbs.md has the table now");
    }
    match report.failed().count() {
        0 => Ok(()),
        n => Err(format!("{n} of {} tests failed", report.len())),
    }
}

/// All of it as a layer of tests: it takes some seconds.
pub fn run_as_layer() -> Outcome {
    println!("$ cargo xtask pyverbs");
    if let Err(why) = setup::install(&setup::PYVERBS) {
        return Outcome::LeftOut(why);
    }
    let run = || -> Result<Report, Error> {
        let scratch = Scratch::new("pyverbs").map_err(Error::Failed)?;
        let suite = Suite::gather(&scratch.0)?;
        let how = How { release: false, verbose: false, rounds: 1, check: false };
        run_tests(&suite, &suite.tests, &find_place()?, &scratch, how).map_err(Error::Failed)
    };
    match run() {
        Ok(report) => {
            println!("\n{}", report.text());
            let failed: Vec<&str> = report.failed().collect();
            match failed.is_empty() {
                true => Outcome::Passed(report.summary()),
                false => Outcome::Failed(format!("failed: {}", failed.join(", "))),
            }
        }
        Err(Error::Missing(why)) => Outcome::LeftOut(why),
        Err(e) => Outcome::Failed(e.to_string()),
    }
}

/// AF_XDP where that is permitted.
fn find_place() -> Result<Place, Error> {
    match Place::veth() {
        Err(Error::Missing(why)) => {
            println!("pyverbs: on a wire in memory: {why}");
            Ok(Place::Memory)
        }
        other => other,
    }
}

/// The tests whose names begin so, part by part.
fn named(all: &[String], names: &[String]) -> Result<Vec<String>, String> {
    let begins = |test: &str, name: &str| {
        let name = name.strip_prefix("tests.").unwrap_or(name);
        test.strip_prefix(name).is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
    };
    if let Some(unknown) = names.iter().find(|name| !all.iter().any(|test| begins(test, name))) {
        return Err(format!("there is no test {unknown}: `cargo xtask pyverbs --list` shows those that are"));
    }
    let wanted = |test: &&String| names.is_empty() || names.iter().any(|name| begins(test, name));
    Ok(all.iter().filter(wanted).cloned().collect())
}

/// How tests are run.
#[derive(Debug, Clone, Copy)]
struct How {
    release: bool,
    verbose: bool,
    rounds: usize,
    check: bool,
}

/// Runs them, module by module.
fn run_tests(suite: &Suite, tests: &[String], place: &Place, scratch: &Scratch, how: How) -> Result<Report, String> {
    let words = ["build", "--locked", "-p", "softnic", "-p", "softnic-verbs"];
    let words = [&words[..], if how.release { &["--release"] } else { &[] }].concat();
    let softnic = programs::build_one("softnic", &words)?;
    let temporary = scratch.0.join("tmp");
    create_folder(&temporary).map_err(|e| e.to_string())?;
    let findings = how.check.then(|| scratch.0.join("findings"));
    findings.iter().try_for_each(|folder| create_folder(folder)).map_err(|e| e.to_string())?;
    catch_interrupts();
    let runner = Runner {
        suite,
        softnic: &softnic,
        place,
        scratch: &scratch.0,
        temporary: &temporary,
        verbose: how.verbose,
        findings: findings.as_deref(),
    };
    let mut report = Report::default();
    for (module, tests) in (0..how.rounds).flat_map(|_| Suite::modules(tests)) {
        for row in runner.run(module, tests).map_err(|e| e.to_string())? {
            println!("pyverbs: {:3} {}", report.len() + 1, row.line());
            report.add(row);
        }
        if interrupted() {
            println!("\n{}", report.text());
            return Err("interrupted".into());
        }
    }
    Ok(report)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_means_what_begins_so_part_by_part() {
        let all = ["test_cq.A.x", "test_cq.A.xy", "test_cqex.B.z"].map(str::to_owned);
        let count = |name: &str| named(&all, &[name.into()]).map(|tests| tests.len());
        assert_eq!((count("test_cq"), count("tests.test_cq.A.x"), count("test_cqex.B")), (Ok(2), Ok(1), Ok(1)));
        assert!(count("test_c").is_err());
        assert_eq!(named(&all, &[]).unwrap().len(), 3);
    }
}
