//! `cargo xtask nic-tests`: softnic over AF_XDP and over DPDK on PCI NICs emulated by QEMU, in a guest with a newer kernel. There are two NICs
//! of each kind, wired to each other.

mod bench;
mod dpdk;
mod race;
mod scenarios;

use std::path::{Path, PathBuf};
use std::time::Instant;

use crate::guest::{self, Error, Guest, Image, Link, Machine, NICS, NO_OFFLOADS};
use crate::programs;
use crate::setup;
use crate::steps::Outcome;
use crate::tshark::Scratch;
use bench::Bench;
pub use race::{Racer, Turn, race};
use scenarios::{SCENARIOS, Scenario};

/// The guest's memory in MiB: the frames of two programs with two queues each, and the programs themselves.
const MEMORY: u32 = 2048;
/// The verbs library that `softnic run` preloads into a program, installed beside it.
const VERBS: &str = "libsoftnic_verbs.so";
/// C tests of the library that run over DPDK on a NIC.
const C_PROGRAMS: [&str; 2] = ["open_again", "exec"];
/// The script that runs against Linux Soft-RoCE at the far NIC.
const PERF_PEER: &str = "tools/perf_peer.py";

/// What to run.
#[derive(Debug, clap::Args)]
pub struct Options {
    /// Tests whose names, as in igb/reliable or dpdk/igb/rxe, hold one of these; without any: those of the short form
    filters: Vec<String>,
    /// All of them; several minutes
    #[arg(long, conflicts_with = "filters")]
    all: bool,
    /// Instead have RC over DPDK, RC over AF_XDP and Linux Soft-RoCE race on a pair of igb, so many turns each; with the optimised build
    /// `cargo xtask bench-peers --dpdk` does so
    #[arg(long, conflicts_with_all = ["filters", "all"], value_name = "TURNS")]
    race: Option<u32>,
    /// Show what the programs print
    #[arg(long, short)]
    verbose: bool,
}

/// The results of the tests.
#[derive(Debug, Default)]
struct Tally {
    passed: usize,
    failed: Vec<String>,
}

/// Runs the command.
pub fn run(options: &Options) -> Result<(), String> {
    if let Some(turns) = options.race {
        return run_race(turns).map_err(|e| e.to_string());
    }
    let (kernel, Tally { passed, failed }) = run_tests(options).map_err(|e| e.to_string())?;
    println!("\non Linux {kernel}, emulated: {passed} tests passed, {} failed", failed.len());
    match failed.len() {
        0 if passed == 0 => Err(format!("no test is called `{}`", options.filters.join(" "))),
        0 => Ok(()),
        n => Err(format!("{n} tests failed: {}", failed.join(", "))),
    }
}

/// Builds softnic as the test layer of DPDK's virtual devices does.
fn build_softnic() -> Result<PathBuf, Error> {
    setup::install(&setup::DPDK).map_err(Error::Missing)?;
    let features = ["build", "--features", "dpdk", "-p", "softnic", "-p", "softnic-verbs", "--locked"];
    programs::build_one("softnic", &features).map_err(Error::Failed)
}

fn run_race(turns: u32) -> Result<(), Error> {
    let mut tell = |turn: &Turn| {
        println!("  {:?}: {:.4} Gbit/s, {:.1} us", turn.racer, turn.bandwidth, turn.latency);
    };
    race(&build_softnic()?, turns, &mut tell).map(|kernel| println!("on Linux {kernel}, emulated"))
}

/// Runs the short form, as a layer of tests.
pub fn run_short() -> Outcome {
    println!("$ cargo xtask nic-tests");
    run_as_layer(false)
}

/// Runs all tests, as a layer.
pub fn run_all() -> Outcome {
    println!("$ cargo xtask nic-tests --all");
    run_as_layer(true)
}

fn run_as_layer(all: bool) -> Outcome {
    match run_tests(&Options { filters: vec![], all, race: None, verbose: false }) {
        Ok((kernel, Tally { passed, failed })) if failed.is_empty() => {
            Outcome::Passed(format!("{passed} tests on Linux {kernel}, emulated NICs"))
        }
        Ok((_, Tally { failed, .. })) => Outcome::Failed(failed.join(", ")),
        Err(Error::Missing(why)) => Outcome::LeftOut(why),
        Err(why) => Outcome::Failed(why.to_string()),
    }
}

/// A driver, and the QEMU arguments for its NICs.
type Model = (&'static str, String);

/// The kinds of NICs in the guest: their drivers, in the order of the interfaces, and the QEMU arguments for them. The driver of virtio_net
/// has no zero-copy without `iommu_platform`; with offloads, or without merged buffers, it attaches no program.
fn models() -> [Model; 4] {
    [
        ("igb", "igb".into()),
        ("virtio_net", format!("virtio-net-pci,iommu_platform=on,ats=on,mrg_rxbuf=on,{NO_OFFLOADS}")),
        ("e1000e", "e1000e".into()),
        ("vmxnet3", "vmxnet3".into()),
    ]
}

/// A group of tests, by the owner of the NICs.
#[derive(Clone, Copy)]
struct Group {
    /// The prefix of the names of its tests.
    prefix: &'static str,
    scenarios: &'static [Scenario],
    open: for<'a> fn(&'a mut Guest, &'static str, usize) -> Result<Bench<'a>, Error>,
    before: fn(&mut Bench<'_>) -> Result<(), Error>,
    close: for<'a> fn(Bench<'a>) -> Result<(), Error>,
}

const GROUPS: [Group; 2] = [
    Group {
        prefix: "",
        scenarios: SCENARIOS,
        open: |guest, driver, n| Bench::new(guest, driver, n),
        before: |bench| bench.set_mtu(scenarios::MTU),
        close: |bench| bench.end(),
    },
    Group {
        prefix: "dpdk/",
        scenarios: dpdk::SCENARIOS,
        open: |guest, driver, n| Bench::for_dpdk(guest, driver, n),
        before: |_| Ok(()),
        close: |bench| bench.end_dpdk(),
    },
];

fn run_tests(options: &Options) -> Result<(String, Tally), Error> {
    guest::catch_interrupts();
    // Check for the image first: without it, nothing needs to be built.
    Image::of(&NICS)?;
    let scratch = Scratch::new("nic-tests").map_err(Error::Failed)?;
    let softnic = build_softnic()?;
    setup::install(&setup::COMPILER).map_err(Error::Missing)?;
    let mut more = vec![(format!("usr/bin/{VERBS}"), programs::stripped(&softnic.with_file_name(VERBS), &scratch.0))];
    for name in C_PROGRAMS {
        more.push((format!("usr/bin/{name}"), crate::verbs::compile_c(name, &scratch.0)?));
    }
    let chosen = |group: &Group, driver: &'static str| {
        let chosen = group.scenarios.iter().filter(|s| is_chosen(options, group.prefix, driver, s));
        chosen.collect::<Vec<_>>()
    };
    // NICs that no test needs would only slow down booting.
    let is_needed = |driver| GROUPS.iter().any(|group| !chosen(group, driver).is_empty());
    let count = models().iter().rposition(|(driver, _)| is_needed(driver)).map_or(0, |last| last + 1);
    let models: Vec<_> = models().into_iter().take(count).collect();
    let (mut guest, kernel) = boot(&softnic, more, &models, &scratch)?;
    let mut tally = Tally::default();
    for group in GROUPS {
        for (n, &(driver, _)) in models.iter().enumerate() {
            let chosen = chosen(&group, driver);
            if chosen.is_empty() {
                continue;
            }
            let mut bench = (group.open)(&mut guest, driver, n)?;
            bench.verbose = options.verbose;
            for scenario in chosen {
                let name = format!("{}{driver}/{}", group.prefix, scenario.name);
                run_one(name, scenario, group.before, &mut bench, &mut tally)?;
            }
            (group.close)(bench)?;
        }
    }
    Ok((kernel, tally))
}

/// Boots the guest with softnic and other programs, and two NICs of each of these kinds. Also returns the guest's kernel version.
fn boot(
    softnic: &Path,
    more: Vec<(String, PathBuf)>,
    models: &[Model],
    scratch: &Scratch,
) -> Result<(Guest, String), Error> {
    let image = Image::of(&NICS)?;
    let mut programs = programs::libraries(softnic).map_err(Error::Failed)?;
    programs.push(("usr/bin/softnic".into(), programs::stripped(softnic, &scratch.0)));
    programs.extend(more);
    programs.push(("usr/bin/perf_peer.py".into(), crate::project::root().join(PERF_PEER)));
    let link = Link::Nics { models: models.iter().map(|(_, model)| model.clone()).collect(), iommu: true };
    let machine = Machine { memory: MEMORY, programs, ..Machine::new(link, "", &[], 0) };
    println!("nic-tests: booting the guest");
    let mut guest = Guest::boot(&image, &scratch.0, &machine, &mut nap)?;
    let kernel = guest.call(&serde_json::json!({"do": "kernel"}), &mut nap)?;
    let kernel = kernel.as_str().unwrap_or("?").to_owned();
    println!("nic-tests: Linux {kernel} is up after {:.1} s", guest.boot.as_secs_f64());
    Ok((guest, kernel))
}

fn run_one(
    name: String,
    scenario: &Scenario,
    before: fn(&mut Bench<'_>) -> Result<(), Error>,
    bench: &mut Bench<'_>,
    tally: &mut Tally,
) -> Result<(), Error> {
    let begin = Instant::now();
    before(bench)?;
    let result = (scenario.run)(bench);
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
    Ok(())
}

fn is_chosen(options: &Options, prefix: &str, driver: &str, scenario: &Scenario) -> bool {
    let name = format!("{prefix}{driver}/{}", scenario.name);
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
