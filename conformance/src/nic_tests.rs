//! `cargo xtask nic-tests`: softnic over AF_XDP on drivers of PCI NICs, which QEMU emulates, in a guest with a newer kernel. There are two NICs
//! of each kind, wired to each other.

mod bench;
mod scenarios;

use std::time::Instant;

use crate::guest::{self, Error, Guest, Image, Link, Machine, NICS, NO_OFFLOADS};
use crate::programs;
use crate::steps::Outcome;
use crate::tshark::Scratch;
use bench::Bench;
use scenarios::{SCENARIOS, Scenario};

/// Memory in MiB: frames of two programs with two queues each, and the programs.
const MEMORY: u32 = 1024;
/// What is run against Linux Soft-RoCE at the far NIC.
const PERF_PEER: &str = "tools/perf_peer.py";

/// What to run.
#[derive(Debug, clap::Args)]
pub struct Options {
    /// Tests whose names, as in igb/rc, hold one of these; without any: those of the short form
    filters: Vec<String>,
    /// All of them; several minutes
    #[arg(long, conflicts_with = "filters")]
    all: bool,
    /// Show what the programs print
    #[arg(long, short)]
    verbose: bool,
}

/// How the tests ended.
#[derive(Debug, Default)]
struct Tally {
    passed: usize,
    failed: Vec<String>,
}

/// The command.
pub fn run(options: &Options) -> Result<(), String> {
    let (kernel, Tally { passed, failed }) = run_tests(options).map_err(|e| e.to_string())?;
    println!("\non Linux {kernel}, emulated: {passed} tests passed, {} failed", failed.len());
    match failed.len() {
        0 if passed == 0 => Err(format!("no test is called `{}`", options.filters.join(" "))),
        0 => Ok(()),
        n => Err(format!("{n} tests failed: {}", failed.join(", "))),
    }
}

/// The short form, as a layer of tests.
pub fn run_short() -> Outcome {
    println!("$ cargo xtask nic-tests");
    match run_tests(&Options { filters: vec![], all: false, verbose: false }) {
        Ok((kernel, Tally { passed, failed })) if failed.is_empty() => {
            Outcome::Passed(format!("{passed} tests on Linux {kernel}, emulated NICs"))
        }
        Ok((_, Tally { failed, .. })) => Outcome::Failed(failed.join(", ")),
        Err(Error::Missing(why)) => Outcome::LeftOut(why),
        Err(why) => Outcome::Failed(why.to_string()),
    }
}

/// The kinds of NICs in the guest: their drivers, in the order of the interfaces, and QEMU's words for them. Without `iommu_platform` the
/// driver of virtio_net has no zero-copy; with offloads, or without merged buffers, it attaches no program.
fn models() -> [(&'static str, String); 2] {
    [("igb", "igb".into()), ("virtio_net", format!("virtio-net-pci,iommu_platform=on,mrg_rxbuf=on,{NO_OFFLOADS}"))]
}

fn run_tests(options: &Options) -> Result<(String, Tally), Error> {
    guest::catch_interrupts();
    let image = Image::of(&NICS)?;
    let scratch = Scratch::new("nic-tests").map_err(Error::Failed)?;
    let softnic = programs::build_one("softnic", &["build", "-p", "softnic", "--locked"]).map_err(Error::Failed)?;
    let softnic = programs::stripped(&softnic, &scratch.0);
    let peer = crate::project::root().join(PERF_PEER);
    let machine = Machine {
        memory: MEMORY,
        programs: vec![("usr/bin/softnic".into(), softnic), ("usr/bin/perf_peer.py".into(), peer)],
        ..Machine::new(Link::Nics(models().map(|(_, model)| model).into()), "", &[], 0)
    };
    println!("nic-tests: booting the guest");
    let mut guest = Guest::boot(&image, &scratch.0, &machine, &mut nap)?;
    let kernel = guest.call(&serde_json::json!({"do": "kernel"}), &mut nap)?;
    println!("nic-tests: Linux {} is up after {:.1} s", kernel.as_str().unwrap_or("?"), guest.boot.as_secs_f64());
    let mut tally = Tally::default();
    for (n, (driver, _)) in models().into_iter().enumerate() {
        let chosen: Vec<&Scenario> = SCENARIOS.iter().filter(|s| is_chosen(options, driver, s)).collect();
        if chosen.is_empty() {
            continue;
        }
        let mut bench = Bench::new(&mut guest, driver, n)?;
        bench.verbose = options.verbose;
        for scenario in chosen {
            let (name, begin) = (format!("{driver}/{}", scenario.name), Instant::now());
            bench.set_mtu(scenarios::MTU)?;
            let result = (scenario.run)(&mut bench);
            let seconds = begin.elapsed().as_secs_f64();
            match result {
                Ok(said) => {
                    println!("  {name} ... ok, {seconds:.1} s{}{said}", if said.is_empty() { "" } else { ": " });
                    tally.passed += 1;
                }
                Err(Error::Failed(why)) => {
                    println!("  {name} ... FAILED, {seconds:.1} s: {why}");
                    tally.failed.push(name);
                }
                Err(other) => return Err(other),
            }
        }
        bench.end()?;
    }
    Ok((kernel.as_str().unwrap_or("?").to_owned(), tally))
}

fn is_chosen(options: &Options, driver: &str, scenario: &Scenario) -> bool {
    let name = format!("{driver}/{}", scenario.name);
    let asked = match &options.filters[..] {
        [] => options.all || scenario.short.contains(&driver),
        filters => filters.iter().any(|filter| name.contains(filter)),
    };
    asked && scenario.drivers.contains(&driver)
}

fn nap() -> Result<(), Error> {
    std::thread::sleep(std::time::Duration::from_millis(20));
    Ok(())
}
