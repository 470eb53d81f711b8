//! `cargo xtask verbs`: unmodified verbs programs on softnic, with each other and with Linux Soft-RoCE, and C tests of our own.

mod authenticated;
mod bench;
mod best_effort;
mod by_name;
mod c_tests;
mod checked;
mod described;
mod ends;
mod failed_over;
mod fio;
mod flaws;
mod host;
mod judge;
mod killed;
mod layouts;
mod libfabric;
mod mpi;
mod oracle;
mod pair;
mod places;
mod processes;
mod qperf;
mod recorded;
mod report;
mod rxe;
mod seen;
mod shared;
mod summarised;
mod tools;
mod ucx;

use std::path::{Path, PathBuf};

use crate::guest::{Error, catch_interrupts};
use crate::setup;
use crate::steps::Outcome;
pub(crate) use bench::Bench;
pub use failed_over::{FailoverOptions, run_failover, run_failover_short};
use places::{Lazy, run_tests};
use report::Report;

/// How many tests run at a time: most of their time they wait.
const JOBS: u8 = 2;

/// What to run.
#[derive(Debug, clap::Args)]
pub struct Options {
    /// Tests, as --list names them; a name without its last parts means all that begin so
    names: Vec<String>,
    /// Every test; without it and without names those of every test run
    #[arg(long, conflicts_with = "names")]
    all: bool,
    /// The C tests alone
    #[arg(long, conflicts_with_all = ["names", "all"])]
    c: bool,
    /// List the tests instead of running them; those of every test run have a star
    #[arg(long)]
    list: bool,
    /// Run the programs of pair/, host/, shared/ and mpi/ under the checker of `softnic check`, which must find no error in them, and say what
    /// else it finds; one at a time
    #[arg(long, conflicts_with_all = ["c", "list", "offsets", "oracle", "write_docs"])]
    check: bool,
    /// Measure what ibv_post_send, ibv_post_recv and ibv_poll_cq cost a program, and a round trip of programs that spin on memory, with the
    /// optimised build
    #[arg(long, conflicts_with_all = ["names", "all", "c", "list", "offsets"])]
    cost: bool,
    /// Print where each field of the structures of libibverbs and librdmacm lies, as the installed headers have it
    #[arg(long, conflicts_with_all = ["names", "all", "c", "list"])]
    offsets: bool,
    /// Run the C tests on Linux Soft-RoCE instead, in the guest, and say where it does otherwise
    #[arg(long, conflicts_with_all = ["all", "list", "offsets"])]
    oracle: bool,
    /// Run each test so often, one round of all after the other
    #[arg(long, default_value_t = 1, value_name = "N")]
    repeat: usize,
    /// How many tests run at a time: each has network namespaces of its own, and those of failover run alone
    #[arg(long, default_value_t = JOBS, value_name = "N", value_parser = clap::value_parser!(u8).range(1..=8))]
    jobs: u8,
    /// The optimised build, as users have it; takes minutes to build
    #[arg(long)]
    release: bool,
    /// Show what programs print even if all is well
    #[arg(long, short)]
    verbose: bool,
    /// Write the table of results into docs/verbs-programs.md
    #[arg(long, requires = "all")]
    write_docs: bool,
}

/// One test.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Test {
    /// A C program of verbs/tests/c.
    C(c_tests::CTest),
    /// A program at both ends of a veth pair.
    Pair(tools::Case),
    /// A program and its peer on one host, without privileges.
    Host(tools::Case),
    /// A program without privileges on a shared interface, and its client there or on the wire.
    Shared(tools::Case, shared::Client),
    /// Ranks of MPI on one host or two.
    Mpi(mpi::MpiTest),
    /// A program at both ends of a veth pair, with Soft-RoCE at one of them.
    Rxe(tools::Case, rxe::Softnic),
    /// What a program that was killed leaves behind.
    Killed(killed::Victim),
    /// What `softnic run --pcap` records.
    Recorded,
    /// What `softnic run --summary` counts.
    Summarised,
    /// What `softnic devinfo` says of a device, and what a program sees of it.
    Described,
    /// What `SOFTNIC_SEEN` says of two processes, and a script for one of them.
    Seen,
    /// `softnic run --backup`, with a link that goes down.
    FailedOver(failed_over::Scenario),
    /// The same under programs that connect by name.
    FailedOverByName(by_name::Scenario),
    /// `softnic run --auth`, with a peer that has the key or not.
    Authenticated(authenticated::Client),
}

impl Test {
    /// What it is called here.
    fn name(&self) -> String {
        match self {
            Test::C(test) => format!("c/{}", test.full_name()),
            Test::Pair(case) => format!("pair/{}", case.name()),
            Test::Host(case) => format!("host/{}", case.name()),
            Test::Shared(case, client) => format!("shared/{}/{}", case.name(), client.name()),
            Test::Mpi(test) => format!("mpi/{}", test.name()),
            Test::Rxe(case, softnic) => format!("rxe/{}/{}", case.name(), softnic.name()),
            Test::Killed(victim) => format!("killed/{}", victim.name()),
            Test::Recorded => "recorded/ibv_rc_pingpong".into(),
            Test::Summarised => "summary/ibv_rc_pingpong".into(),
            Test::Described => "devinfo/ibv_devinfo".into(),
            Test::Seen => "seen/ibv_rc_pingpong".into(),
            Test::FailedOver(scenario) => format!("shift/{}", scenario.name()),
            Test::FailedOverByName(scenario) => format!("shift/{}", scenario.name()),
            Test::Authenticated(client) => format!("auth/ibv_rc_pingpong/{}", client.name()),
        }
    }

    /// Whether every test run has it.
    fn is_short(&self) -> bool {
        match self {
            Test::C(test) => !test.is_on_another_wire(),
            Test::Killed(_) | Test::Recorded | Test::Summarised => true,
            Test::Described | Test::Seen | Test::Authenticated(_) => true,
            Test::Pair(case) | Test::Host(case) => case.short,
            Test::Rxe(case, _) | Test::Shared(case, _) => case.short,
            Test::Mpi(test) => test.short,
            // They are a layer of their own.
            Test::FailedOver(_) | Test::FailedOverByName(_) => false,
        }
    }

    /// Those of `cargo xtask shift`.
    fn of_failover() -> impl Iterator<Item = Test> {
        let by_name = by_name::Scenario::all().map(Test::FailedOverByName);
        failed_over::Scenario::all().into_iter().map(Test::FailedOver).chain(by_name)
    }

    /// All there are, in the order in which they run.
    fn all() -> Result<Vec<Test>, String> {
        let c = c_tests::all()?.into_iter().map(Test::C);
        let pair = tools::pair().into_iter().map(Test::Pair);
        let host = tools::host().into_iter().map(Test::Host);
        let anywhere = |case: tools::Case| shared::Client::ALL.map(|client| Test::Shared(case.clone(), client));
        let shared = tools::shared().into_iter().flat_map(anywhere);
        let mpi = mpi::all().into_iter().map(Test::Mpi);
        let killed = killed::Victim::ALL.into_iter().map(Test::Killed);
        let both = |case: tools::Case| {
            let client = case.clone().with_a_slow_server();
            [Test::Rxe(case, rxe::Softnic::Server), Test::Rxe(client, rxe::Softnic::Client)]
        };
        let authenticated = authenticated::Client::ALL.into_iter().map(Test::Authenticated);
        let more = mpi
            .chain(killed)
            .chain([Test::Recorded, Test::Summarised, Test::Described, Test::Seen])
            .chain(authenticated);
        let more = more.chain(Test::of_failover());
        Ok(c.chain(pair).chain(host).chain(shared).chain(more).chain(tools::rxe().into_iter().flat_map(both)).collect())
    }
}

/// The command.
pub fn run(options: &Options) -> Result<(), String> {
    if options.offsets {
        setup::install(&setup::VERBS)?;
        return c_tests::print_offsets();
    }
    if options.cost {
        return c_tests::measure_cost(&Bench::new(true, true)?);
    }
    let all = Test::all()?;
    let tests: Vec<Test> = match &options.names[..] {
        [] if options.c || options.oracle => {
            all.into_iter().filter(|t| matches!(t, Test::C(_)) && t.is_short()).collect()
        }
        [] if options.all || options.list => all,
        [] => all.into_iter().filter(Test::is_short).collect(),
        names => named(&all, names)?,
    };
    if options.list {
        tests.iter().for_each(|t| println!("{} {}", if t.is_short() { "*" } else { " " }, t.name()));
        return Ok(());
    }
    let mut bench = Bench::new(options.release, options.verbose)?;
    let (mut tests, mut jobs) = (tests, options.jobs);
    if options.check {
        tests.retain(|test| matches!(test, Test::Pair(_) | Test::Host(_) | Test::Shared(..) | Test::Mpi(_)));
        // What is found is of the test that ran.
        jobs = 1;
        bench.check()?;
    }
    if options.oracle {
        let c = tests.iter().filter_map(|test| match test {
            Test::C(test) if test.wire != c_tests::Wire::Valgrind => Some(test),
            _ => None,
        });
        catch_interrupts();
        return oracle::run(&c.collect::<Vec<_>>(), &bench).map_err(|e| e.to_string());
    }
    let tests: Vec<Test> = (0..options.repeat).flat_map(|_| tests.clone()).collect();
    let report = run_tests(&tests, &bench, jobs.into()).map_err(|e| e.to_string())?;
    println!("\n{}", report.text());
    if options.write_docs {
        report.write()?;
        println!("docs/verbs-programs.md has the table now");
    }
    match report.failed().count() {
        0 => Ok(()),
        n => Err(format!("{n} of {} tests failed", report.len())),
    }
}

/// The tests whose names begin so, part by part.
fn named(all: &[Test], names: &[String]) -> Result<Vec<Test>, String> {
    let begins = |test: &Test, name: &str| test.name() == name || test.name().starts_with(&format!("{name}/"));
    if let Some(unknown) = names.iter().find(|name| !all.iter().any(|t| begins(t, name))) {
        return Err(format!("there is no test {unknown}: `cargo xtask verbs --list` shows those that are"));
    }
    Ok(all.iter().filter(|t| names.iter().any(|name| begins(t, name))).cloned().collect())
}

/// The short set as a layer of tests.
pub fn run_short() -> Outcome {
    println!("$ cargo xtask verbs");
    if let Err(why) = setup::install(&setup::VERBS) {
        return Outcome::LeftOut(why);
    }
    let run = || {
        let tests: Vec<Test> = Test::all()?.into_iter().filter(Test::is_short).collect();
        run_tests(&tests, &Bench::new(false, false)?, JOBS.into()).map_err(|e| e.to_string())
    };
    as_layer(run())
}

/// What a layer of tests says of what ran.
fn as_layer(ran: Result<Report, String>) -> Outcome {
    match ran {
        Ok(report) => {
            println!("\n{}", report.text());
            let failed: Vec<&str> = report.failed().collect();
            match (failed.is_empty(), report.summary()) {
                (true, summary) => Outcome::Passed(summary),
                (false, _) => Outcome::Failed(format!("failed: {}", failed.join(", "))),
            }
        }
        Err(why) => Outcome::Failed(why),
    }
}

/// A C test, compiled into this folder.
pub(crate) fn compile_c(name: &str, folder: &Path) -> Result<PathBuf, Error> {
    c_tests::CTest::named(name).map_err(Error::Failed)?.compile(folder)
}

/// Nothing is left of any run.
fn clean(temporary: &Path) -> Result<(), Error> {
    let entries = std::fs::read_dir(temporary).into_iter().flatten().flatten();
    let left: Vec<String> = entries.map(|e| e.file_name().to_string_lossy().into_owned()).collect();
    match left.is_empty() {
        true => Ok(()),
        false => Err(Error::Failed(format!("programs left behind: {}", left.join(", ")))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_all_different_and_mean_what_begins_so() {
        let all = Test::all().unwrap();
        let mut names: Vec<String> = all.iter().map(Test::name).collect();
        names.sort();
        let count = names.len();
        names.dedup();
        assert_eq!(names.len(), count, "a name twice");
        let chosen = named(&all, &["rxe".into(), "pair/ibv_rc_pingpong".into()]).unwrap();
        assert!(chosen.iter().any(|t| matches!(t, Test::Rxe(..))) && chosen.iter().any(|t| matches!(t, Test::Pair(_))));
        assert!(!chosen.iter().any(|t| t.name().starts_with("pair/ibv_ud")));
        assert!(named(&all, &["pair/ibv_rc".into()]).is_err(), "half a name is none");
    }
}
