//! `cargo xtask interop`: softnic against Linux Soft-RoCE (rdma_rxe), which runs in a virtual machine.

mod corpus;
mod document;
mod operations;
mod report;
mod scenario;
mod session;
mod setup;
mod verbs;
mod wire;

use std::path::{Path, PathBuf};
use std::time::Instant;

use crate::guest::{Error, Image, SOFT_ROCE, Space, catch_interrupts, create_folder, failed, interrupted};
use crate::steps::Outcome;
use crate::tshark::{self, Scratch};
use crate::{project, setup as tools};
use report::{Report, ScenarioResult};
use scenario::Scenario;
use session::Session;
use wire::Wire;

/// The seed of runs that name none.
const SEED: u64 = 7;

/// What to run and what to show of it.
#[derive(Debug, clap::Args)]
pub struct Options {
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
    /// How frames get to the guest; by AF_XDP where that is possible
    #[arg(long)]
    wire: Option<wire::Kind>,
    /// Keep the captures, one for each scenario, and the guest's console in this folder
    #[arg(long, value_name = "DIR")]
    keep_pcap: Option<PathBuf>,
    /// Decides which packets are lost or come late in the scenarios that have such faults
    #[arg(long, default_value_t = SEED)]
    seed: u64,
    /// Print the table of results in Markdown
    #[arg(long)]
    markdown: bool,
    /// Write the table of results into docs/interop.md
    #[arg(long, requires = "all")]
    write_docs: bool,
    /// Make the captures of pcaps/corpus anew that show softnic and rxe: each operation, as short as shows what it is about
    #[arg(long, conflicts_with_all = ["all", "short", "names", "keep_pcap", "write_docs"])]
    write_corpus: bool,
}

/// How scenarios are run.
struct Plan<'a> {
    scenarios: Vec<Scenario>,
    wire: Option<wire::Kind>,
    keep: Option<&'a Path>,
    seed: u64,
    /// Whether scenarios do as little as possible.
    small: bool,
}

/// The command.
pub fn run(options: &Options) -> Result<(), String> {
    let scenarios = match (&options.names[..], options.all) {
        _ if options.write_corpus => corpus::scenarios(),
        ([], true) => scenario::all(),
        ([], false) if options.list => scenario::all(),
        ([], false) => short_set(),
        (names, _) => scenario::named(names)?,
    };
    if options.list {
        for s in &scenarios {
            println!("{} {:36}  {}", if s.is_short() { "*" } else { " " }, s.name(), s.operation.what);
        }
        return Ok(());
    }
    let Options { wire, seed, write_corpus: small, .. } = *options;
    let made = if small { Some(Scratch::new("corpus")?) } else { None };
    let keep = made.as_ref().map(|m| &*m.0).or(options.keep_pcap.as_deref());
    let report = run_scenarios(&Plan { scenarios, wire, keep, seed, small }).map_err(|e| e.to_string())?;
    println!("\n{}", if options.markdown { report.markdown() } else { report.text() });
    for failure in report.failures() {
        println!("{failure}");
    }
    if options.write_docs {
        document::write(&report)?;
        println!("docs/interop.md has the table now");
    }
    if report.failed() > 0 {
        return Err(format!("{} of {} scenarios failed", report.failed(), report.len()));
    }
    if let Some(made) = made {
        println!("{}", corpus::write(&made.0, &project::corpus())?);
    }
    println!("{} scenarios passed", report.len());
    Ok(())
}

fn short_set() -> Vec<Scenario> {
    scenario::all().into_iter().filter(Scenario::is_short).collect()
}

/// The short set as a layer of tests.
pub fn run_short() -> Outcome {
    println!("$ cargo xtask interop --short");
    match run_scenarios(&Plan { scenarios: short_set(), wire: None, keep: None, seed: SEED, small: false }) {
        Ok(report) if report.failed() == 0 => {
            Outcome::Passed(format!("{} scenarios over {}", report.len(), report.wire))
        }
        Ok(report) => {
            println!("\n{}", report.text());
            Outcome::Failed(report.failures().collect::<Vec<_>>().join("; "))
        }
        Err(Error::Missing(why)) => Outcome::LeftOut(why),
        Err(why) => Outcome::Failed(why.to_string()),
    }
}

fn run_scenarios(plan: &Plan<'_>) -> Result<Report, Error> {
    catch_interrupts();
    let image = Image::of(&SOFT_ROCE)?;
    let scratch = Scratch::new("interop").map_err(Error::Failed)?;
    if plan.wire != Some(wire::Kind::Dgram) {
        // The sockets and the programs of this run belong to the namespace of the thread that opens and starts them.
        let over_afxdp = Space::new("interop").and_then(|space| {
            space.inside(|| match Wire::afxdp(&space) {
                Ok(wire) => run_over(wire, plan, &image, &scratch.0).map(Ok),
                Err(Error::Missing(why)) => Ok(Err(why)),
                Err(e) => Err(e),
            })
        });
        let why = match over_afxdp {
            Ok(Ok(report)) => return Ok(report),
            Ok(Err(why)) | Err(Error::Missing(why)) => why,
            Err(e) => return Err(e),
        };
        if plan.wire.is_some() {
            return Err(Error::Missing(format!("no AF_XDP here: {why}")));
        }
        println!("interop: frames go over a datagram socket, because there is no AF_XDP here: {why}");
    }
    run_over(Wire::dgram(&scratch.0)?, plan, &image, &scratch.0)
}

fn run_over(wire: Wire, plan: &Plan<'_>, image: &Image, scratch: &Path) -> Result<Report, Error> {
    let has_tshark = tools::is_installed("tshark") || tools::run().is_ok();
    if !has_tshark {
        println!("interop: there is no tshark, so the captures are not dissected by it");
    }
    let captures = match plan.keep {
        Some(folder) => std::path::absolute(folder).map_err(failed(folder))?,
        None => scratch.to_owned(),
    };
    create_folder(&captures)?;
    println!("interop: booting the guest; frames go over {}", wire.description);
    let mut report = Report::default();
    report.wire = wire.name;
    let mut session = Session::start(image, scratch, wire, plan.seed, plan.small)?;
    report.kernel = session.kernel()?;
    println!("interop: Linux {}, up in {:.1} s", report.kernel, session.boot_time().as_secs_f64());
    for (n, scenario) in (1..).zip(&plan.scenarios) {
        let begin = Instant::now();
        let file = captures.join(format!("{}.pcap", scenario.name().replace('/', "_")));
        // What was found until then is worth showing, whatever ends the run.
        let mut verdict = run_one(&mut session, scenario, &file)
            .inspect_err(|_| println!("\n{}\n{} scenarios were run", report.text(), report.len()))?;
        if verdict.is_ok() && has_tshark {
            verdict = tshark::check(&file, scratch);
        }
        let seconds = begin.elapsed().as_secs_f64();
        let (name, of) = (scenario.name(), plan.scenarios.len());
        match &verdict {
            Ok(()) => println!("interop: {n:3}/{of} {name:36} pass  {seconds:5.1} s"),
            Err(why) => println!("interop: {n:3}/{of} {name:36} FAIL  {seconds:5.1} s  {why}"),
        }
        report.add(*scenario, verdict);
        if plan.keep.is_none() {
            // A whole run would fill the temporary folder.
            let _ = std::fs::remove_file(&file);
        }
    }
    if plan.keep.is_some() {
        let console = session.console();
        std::fs::copy(console, captures.join("console.log")).map_err(failed(console))?;
    }
    Ok(report)
}

/// The outer error ends the whole run: the guest is lost, or there was a Ctrl-C.
fn run_one(session: &mut Session, scenario: &Scenario, file: &Path) -> Result<ScenarioResult, Error> {
    session.record(file)?;
    let setup = if session.small { corpus::smaller(scenario.setup()) } else { scenario.setup() };
    let verdict = session.open(setup).and_then(|()| (scenario.operation.run)(session));
    if interrupted() {
        return Err(Error::Failed("interrupted".into()));
    }
    // A scenario that failed has left both ends in any state; a guest that cannot even close is lost.
    session.close()?;
    Ok(verdict.map_err(|e| e.to_string()))
}
