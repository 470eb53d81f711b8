//! `cargo xtask switch`: `softnic switch` between two machines with Linux Soft-RoCE and a softnic, none of which know of groups: one
//! sends, the others receive, and all packets go through the switch's copying and merging.

mod bench;
mod hosts;
mod ours;
mod scenario;

use std::path::{Path, PathBuf};
use std::time::Instant;

use softnic_runtime::bump::{Bump, Faults, Options as WireOptions};
use softnic_runtime::switch::{Options as SwitchOptions, PortOptions, WireSwitch};

use crate::guest::{Error, Image, SOFT_ROCE, Space, catch_interrupts, create_folder, failed, interrupted};
use crate::scenarios::{as_layer, choose, opened, sum_up};
use crate::steps::Outcome;
use crate::tshark::Scratch;
use hosts::{BRANCH, Hosts, MACS, PORTS};
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
    /// Measure instead: forwarding against `softnic wire`, a group against fan-out; boots nobody
    #[arg(long, conflicts_with_all = ["names", "list", "keep_pcap"])]
    bench: bool,
    /// Keep what came in and left at the switch, one capture for each scenario, in this folder
    #[arg(long, value_name = "DIR")]
    keep_pcap: Option<PathBuf>,
    /// Decides which packets the faults are for
    #[arg(long, default_value_t = SEED)]
    seed: u64,
}

/// The command.
pub fn run(options: &Options) -> Result<(), String> {
    if options.list {
        SCENARIOS.iter().for_each(|s| println!("{:12}  {}", s.name, s.describe()));
        return Ok(());
    }
    if options.bench {
        return bench::run().map_err(|e| e.to_string());
    }
    let chosen = choose(SCENARIOS, |s| s.name, &options.names, "switch")?;
    let failures = run_all(&chosen, options.keep_pcap.as_deref(), options.seed).map_err(|e| e.to_string())?;
    sum_up(&failures, chosen.len())
}

/// All of them as a layer of tests.
pub fn run_as_layer() -> Outcome {
    println!("$ cargo xtask switch");
    as_layer(run_all(&SCENARIOS.iter().collect::<Vec<_>>(), None, SEED), SCENARIOS.len())
}

/// Runs scenarios one after the other; what failed, and why.
fn run_all(scenarios: &[&Scenario], keep: Option<&Path>, seed: u64) -> Result<Vec<String>, Error> {
    catch_interrupts();
    let space = Space::new("switch")?;
    let image = Image::of(&SOFT_ROCE)?;
    let scratch = Scratch::new("switch").map_err(Error::Failed)?;
    if let Some(folder) = keep {
        create_folder(folder)?;
    }
    println!("switch: booting two guests");
    let mut hosts = Hosts::boot(&image, &scratch.0, &space)?;
    println!("switch: {}", hosts.describe()?);
    let mut failures = Vec::new();
    for (earlier, scenario) in scenarios.iter().enumerate() {
        let begin = Instant::now();
        // The switch goes first, so that nothing is under way when the wire does.
        let wire = opened(wire(&space, scenario, seed), earlier)?;
        let switch = opened(switch(&space, scenario, keep, seed), earlier)?;
        let verdict = scenario.run(&mut hosts, &switch.handle());
        let ended = switch.stop().map_err(|e| Error::Failed(e.to_string()));
        let faults = wire.stop().map_err(|e| Error::Failed(e.to_string()))?;
        if interrupted() {
            return Err(Error::Failed("interrupted".into()));
        }
        let seconds = begin.elapsed().as_secs_f64();
        match verdict.and_then(|seen| seen.judge(scenario, &ended?, &faults).map_err(Error::Failed)) {
            Ok(said) => println!("switch: {:12} pass  {seconds:5.1} s  {said}", scenario.name),
            Err(why) => {
                println!("switch: {:12} FAIL  {seconds:5.1} s  {why}", scenario.name);
                failures.push(format!("{}: {why}", scenario.name));
            }
        }
        // One that failed left all ends in any state; a guest that cannot even close is lost.
        hosts.close()?;
    }
    Ok(failures)
}

/// The wire with faults, between the first guest and its port of the switch.
fn wire(space: &Space, scenario: &Scenario, seed: u64) -> Result<Bump, Error> {
    let spec = scenario.faults.parse().map_err(|e| Error::Failed(format!("scenario {}: {e}", scenario.name)))?;
    let [a, b] = BRANCH.map(String::from);
    let options = WireOptions { a, b, faults: Faults { text: String::new(), spec }, seed, ..WireOptions::default() };
    space.inside(|| Bump::start(&options).map_err(|e| Error::Missing(e.to_string())))
}

fn switch(space: &Space, scenario: &Scenario, keep: Option<&Path>, seed: u64) -> Result<WireSwitch, Error> {
    let pcap = match keep {
        Some(folder) => {
            let folder = std::path::absolute(folder).map_err(failed(folder))?;
            Some(folder.join(format!("{}.pcapng", scenario.name)))
        }
        None => None,
    };
    let options = SwitchOptions {
        ports: PORTS.iter().map(|name| PortOptions::new(*name)).collect(),
        macs: MACS.into_iter().zip(0..).collect(),
        seed,
        pcap,
        ..SwitchOptions::default()
    };
    space.inside(|| WireSwitch::start(&options).map_err(|e| Error::Missing(e.to_string())))
}
