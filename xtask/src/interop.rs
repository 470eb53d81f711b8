//! `cargo xtask interop`: softnic against Linux Soft-RoCE (rdma_rxe), which runs in a virtual machine.

mod apt;
mod cpio;
mod guest;
mod image;
mod kernel;
mod operations;
mod report;
mod scenario;
mod session;
mod tree;
mod verbs;

use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use crate::setup;
use crate::steps::Outcome;
use crate::tshark::{self, Scratch};
use image::Image;
use report::{Report, Verdict};
use scenario::Scenario;
use session::Session;

/// The seed of runs that name none.
const SEED: u64 = 7;

/// What to run and what to show of it.
#[derive(Debug, clap::Args)]
pub(crate) struct Options {
    /// Scenarios, as --list names them; a name without its last parts means all that begin so
    names: Vec<String>,
    /// The set that every test run has: all operations on one path, some on another (what is run without any NAME)
    #[arg(long, conflicts_with_all = ["all", "names"])]
    short: bool,
    /// Every scenario
    #[arg(long, conflicts_with = "names")]
    all: bool,
    /// List the scenarios instead of running them; those of the short set have a star
    #[arg(long)]
    list: bool,
    /// Keep the captures, one for each scenario, and the guest's console in this folder
    #[arg(long, value_name = "DIR")]
    keep_pcap: Option<PathBuf>,
    /// Decides which packets are lost or come late in the scenarios that have such faults
    #[arg(long, default_value_t = SEED)]
    seed: u64,
    /// Print the table of results in Markdown
    #[arg(long)]
    markdown: bool,
}

/// Why a run ended early.
#[derive(Debug)]
pub(crate) enum Error {
    /// The machine lacks something that the guest is made with.
    Missing(String),
    /// Something went wrong.
    Failed(String),
    /// The agent in the guest refused a command.
    Refused(String),
}

impl std::fmt::Display for Error {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let (Error::Missing(why) | Error::Failed(why) | Error::Refused(why)) = self;
        f.write_str(why)
    }
}

/// Names the file or folder in an error.
fn failed(path: &Path) -> impl Fn(io::Error) -> Error {
    move |e| Error::Failed(format!("{}: {e}", path.display()))
}

fn create_folder(path: &Path) -> Result<(), Error> {
    std::fs::create_dir_all(path).map_err(failed(path))
}

fn write(path: &Path, bytes: &[u8]) -> Result<(), Error> {
    std::fs::write(path, bytes).map_err(failed(path))
}

static INTERRUPTED: AtomicBool = AtomicBool::new(false);

/// Whether Ctrl-C or SIGTERM came: then the guest must be ended before this process is.
fn interrupted() -> bool {
    INTERRUPTED.load(Ordering::Relaxed)
}

/// The command.
pub(crate) fn run(options: &Options) -> Result<(), String> {
    let scenarios = match (&options.names[..], options.all) {
        ([], true) => scenario::all(),
        ([], false) if options.list => scenario::all(),
        ([], false) => scenario::all().into_iter().filter(Scenario::is_short).collect(),
        (names, _) => scenario::named(names)?,
    };
    if options.list {
        for s in &scenarios {
            println!("{} {:32}  {}", if s.is_short() { "*" } else { " " }, s.name(), s.operation.what);
        }
        return Ok(());
    }
    let report = run_scenarios(&scenarios, options.keep_pcap.as_deref(), options.seed).map_err(|e| e.to_string())?;
    println!("\n{}", if options.markdown { report.markdown() } else { report.text() });
    for failure in report.failures() {
        println!("{failure}");
    }
    match report.failed() {
        0 => {
            println!("{} scenarios passed", report.len());
            Ok(())
        }
        n => Err(format!("{n} of {} scenarios failed", report.len())),
    }
}

/// The short set as a layer of tests.
pub(crate) fn run_short() -> Outcome {
    let scenarios: Vec<_> = scenario::all().into_iter().filter(Scenario::is_short).collect();
    println!("$ cargo xtask interop --short");
    match run_scenarios(&scenarios, None, SEED) {
        Ok(report) if report.failed() == 0 => Outcome::Passed(format!("{} scenarios", report.len())),
        Ok(report) => {
            println!("\n{}", report.text());
            Outcome::Failed(report.failures().collect::<Vec<_>>().join("; "))
        }
        Err(Error::Missing(why)) => Outcome::LeftOut(why),
        Err(why) => Outcome::Failed(why.to_string()),
    }
}

fn run_scenarios(scenarios: &[Scenario], keep: Option<&Path>, seed: u64) -> Result<Report, Error> {
    // An earlier run in this process has set it already.
    let _ = ctrlc::set_handler(|| INTERRUPTED.store(true, Ordering::Relaxed));
    let has_tshark = setup::is_installed("tshark") || setup::run().is_ok();
    if !has_tshark {
        println!("interop: there is no tshark, so the captures are not dissected by it");
    }
    let scratch = Scratch::new("interop").map_err(Error::Failed)?;
    let captures = match keep {
        Some(folder) => std::path::absolute(folder).map_err(failed(folder))?,
        None => scratch.0.clone(),
    };
    create_folder(&captures)?;
    let image = Image::get()?;
    println!("interop: booting the guest");
    let mut session = Session::start(&image, &scratch.0, seed)?;
    println!("interop: {}", session.describe()?);
    let mut report = Report::default();
    for scenario in scenarios {
        let begin = Instant::now();
        let file = captures.join(format!("{}.pcap", scenario.name().replace('/', "_")));
        let mut verdict = run_one(&mut session, scenario, &file)?;
        if verdict.is_ok() && has_tshark {
            verdict = tshark::check(&file, &scratch.0);
        }
        let seconds = begin.elapsed().as_secs_f64();
        match &verdict {
            Ok(()) => println!("interop: {:34} pass  {seconds:5.1} s", scenario.name()),
            Err(why) => println!("interop: {:34} FAIL  {seconds:5.1} s  {why}", scenario.name()),
        }
        report.add(*scenario, verdict);
    }
    if keep.is_some() {
        let console = session.console();
        std::fs::copy(console, captures.join("console.log")).map_err(failed(console))?;
    }
    Ok(report)
}

/// The outer error ends the whole run: the guest is lost, or there was a Ctrl-C.
fn run_one(session: &mut Session, scenario: &Scenario, file: &Path) -> Result<Verdict, Error> {
    session.record(file)?;
    let verdict = session.open(scenario.setup()).and_then(|()| (scenario.operation.run)(session));
    if interrupted() {
        return Err(Error::Failed("interrupted".into()));
    }
    // A scenario that failed has left both ends in any state; a guest that cannot even close is lost.
    session.close()?;
    Ok(verdict.map_err(|e| e.to_string()))
}
