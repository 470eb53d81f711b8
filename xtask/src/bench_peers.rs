//! `cargo xtask bench-peers`: softnic, UCX over TCP, UDP and raw frames race over one veth pair, in turns, in one run. With `--dpdk` softnic
//! races over a memif with testpmd, and with itself over AF_XDP; then over DPDK on a PCI NIC,
//! which is emulated in a guest, with AF_XDP and Linux Soft-RoCE on the same.

mod chart;
mod emulated;
mod memif;
mod pair;
mod racers;
mod report;

use std::fs;

use softnic_conformance::guest::{catch_interrupts, interrupted};
use softnic_conformance::{project, setup};

use pair::Pair;
use racers::Programs;
use report::{Counts, Results};

const DOCUMENT: &str = "docs/performance.md";
const CHART: &str = "docs/bench-peers.svg";
const BEGIN: &str = "<!-- made by `cargo xtask bench-peers --write-docs`: do not edit -->\n";
const BEGIN_DPDK: &str = "<!-- made by `cargo xtask bench-peers --dpdk --write-docs`: do not edit -->\n";
const END: &str = "<!-- end of what is made -->\n";

/// The MTUs of the interfaces: a plain one, and one that path MTU 4096 fits in.
const MTUS: [u32; 2] = [1500, 4200];

/// How long to race.
#[derive(Debug, clap::Args)]
pub(crate) struct Options {
    /// How often each of them has its turn [default: 7, whose medians count; with --dpdk 3, the best of which counts]
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..=100))]
    rounds: Option<u32>,
    /// Seconds that each sends in its turn
    #[arg(long, default_value_t = 0.5)]
    seconds: f64,
    /// Over a memif of DPDK's instead, beside testpmd, and on emulated PCI NICs in a guest; installs libdpdk-dev and dpdk-dev with apt where they are missing
    #[arg(long)]
    dpdk: bool,
    /// Put the table and the chart into docs/performance.md
    #[arg(long)]
    write_docs: bool,
}

/// The command.
pub(crate) fn run(options: &Options) -> Result<(), String> {
    if !(0.05..=60.0).contains(&options.seconds) {
        return Err("--seconds must be between 0.05 and 60".into());
    }
    let (programs, counts, rounds) = if options.dpdk {
        for tools in [&setup::LINK[..], &setup::DPDK, &setup::TESTPMD] {
            println!("{}", setup::install(tools)?);
        }
        (Programs::with_dpdk()?, Counts::Best, options.rounds.unwrap_or(3))
    } else {
        println!("{}", setup::install(&setup::RACE)?);
        (Programs::build()?, Counts::Median, options.rounds.unwrap_or(7))
    };
    catch_interrupts();
    let mut all = Vec::new();
    for mtu in MTUS {
        let pair = Pair::new(mtu).map_err(|e| e.to_string())?;
        let mut results = Results::new(mtu, programs.races(), counts);
        for round in 1..=rounds {
            for &race in programs.races() {
                if interrupted() {
                    return Err("interrupted".into());
                }
                let value = programs.run(race, &pair, options.seconds)?;
                results.add(race, value);
            }
            println!("bench-peers: MTU {mtu}, round {round} of {rounds}: {}", results.last());
        }
        all.push(results);
    }
    let mut table = report::table(&all, rounds);
    if options.dpdk {
        table += &emulated::table(programs.softnic(), rounds)?;
    }
    println!("\n{table}");
    if options.write_docs && options.dpdk {
        project::write_between_marks(DOCUMENT, BEGIN_DPDK, END, &table)?;
        println!("bench-peers: wrote {DOCUMENT}");
    } else if options.write_docs {
        let chart = project::root().join(CHART);
        fs::write(&chart, chart::svg(&all)).map_err(|e| format!("{CHART}: {e}"))?;
        project::write_between_marks(DOCUMENT, BEGIN, END, &format!("{table}\n![bars](bench-peers.svg)\n"))?;
        println!("bench-peers: wrote {DOCUMENT} and {CHART}");
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_document_has_the_marks() {
        let text = fs::read_to_string(project::root().join(DOCUMENT)).unwrap();
        assert!([BEGIN, BEGIN_DPDK].iter().all(|begin| project::replace_between(&text, begin, END, "").is_some()));
    }
}
