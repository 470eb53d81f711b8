//! `cargo xtask between`: `softnic wire` between two machines with Linux Soft-RoCE, which know nothing of us: their recovery
//! from what our wire does to them, and their counters, are a test of the wire and of the faults.

mod pair;
mod scenario;

use std::path::{Path, PathBuf};
use std::time::Instant;

use softnic_runtime::bump::{Bump, Faults, Options as WireOptions};

use crate::guest::{Error, Image, SOFT_ROCE, Space, catch_interrupts, create_folder, failed, interrupted};
use crate::scenarios::{as_layer, choose, opened, sum_up};
use crate::steps::Outcome;
use crate::tshark::Scratch;
use pair::{Pair, TAPS};
use scenario::{SCENARIOS, Scenario};

/// The seed of runs that name none.
const SEED: u64 = 7;

/// What to run and what to keep of it.
#[derive(Debug, clap::Args)]
pub struct Options {
    /// Scenarios, as --list names them; without any: all
    names: Vec<String>,
    /// List the scenarios instead of running them
    #[arg(long)]
    list: bool,
    /// Keep what came in at the wire, one capture for each scenario, in this folder
    #[arg(long, value_name = "DIR")]
    keep_pcap: Option<PathBuf>,
    /// Decides which packets the faults are for
    #[arg(long, default_value_t = SEED)]
    seed: u64,
}

/// The command.
pub fn run(options: &Options) -> Result<(), String> {
    if options.list {
        SCENARIOS.iter().for_each(|s| println!("{:10}  {}", s.name, s.faults));
        return Ok(());
    }
    let chosen = choose(SCENARIOS, |s| s.name, &options.names, "between")?;
    let failures = run_all(&chosen, options.keep_pcap.as_deref(), options.seed).map_err(|e| e.to_string())?;
    sum_up(&failures, chosen.len())
}

/// All of them as a layer of tests.
pub fn run_as_layer() -> Outcome {
    println!("$ cargo xtask between");
    as_layer(run_all(&SCENARIOS.iter().collect::<Vec<_>>(), None, SEED), SCENARIOS.len())
}

/// Runs scenarios one after the other; what failed, and why.
fn run_all(scenarios: &[&Scenario], keep: Option<&Path>, seed: u64) -> Result<Vec<String>, Error> {
    catch_interrupts();
    let space = Space::new("between")?;
    let image = Image::of(&SOFT_ROCE)?;
    let scratch = Scratch::new("between").map_err(Error::Failed)?;
    if let Some(folder) = keep {
        create_folder(folder)?;
    }
    println!("between: booting two guests");
    let mut pair = Pair::boot(&image, &scratch.0, &space)?;
    println!("between: {}", pair.describe()?);
    let mut failures = Vec::new();
    for (earlier, scenario) in scenarios.iter().enumerate() {
        let begin = Instant::now();
        let wire = opened(wire(&space, scenario, keep, seed), earlier)?;
        let verdict = scenario.run(&mut pair, wire, seed);
        if interrupted() {
            return Err(Error::Failed("interrupted".into()));
        }
        let seconds = begin.elapsed().as_secs_f64();
        match verdict {
            Ok(said) => println!("between: {:10} pass  {seconds:5.1} s  {said}", scenario.name),
            Err(why) => {
                println!("between: {:10} FAIL  {seconds:5.1} s  {why}", scenario.name);
                failures.push(format!("{}: {why}", scenario.name));
            }
        }
        // One that failed left both ends in any state; a guest that cannot even close is lost.
        pair.close()?;
    }
    Ok(failures)
}

/// The wire of a scenario, between the taps of both guests.
fn wire(space: &Space, scenario: &Scenario, keep: Option<&Path>, seed: u64) -> Result<Bump, Error> {
    let pcap = match keep {
        Some(folder) => {
            let folder = std::path::absolute(folder).map_err(failed(folder))?;
            Some(folder.join(format!("{}.pcap", scenario.name)))
        }
        None => None,
    };
    let [a, b] = TAPS.map(String::from);
    let faults = Faults { text: String::new(), spec: scenario.spec()? };
    let options = WireOptions { a, b, faults, seed, pcap, ..WireOptions::default() };
    space.inside(|| Bump::start(&options).map_err(|e| Error::Missing(e.to_string())))
}
