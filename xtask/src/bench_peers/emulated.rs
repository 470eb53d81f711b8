//! The race in a guest, on a pair of PCI NICs that QEMU emulates: RC over DPDK, RC over AF_XDP, Linux Soft-RoCE.

use std::path::Path;

use softnic_conformance::guest::Error;
use softnic_conformance::nic_tests::{Racer, Turn, race};

use super::racers::Race;
use super::report::{self, Counts, EMULATED_MTU, Results};

/// The table; a line that says why where there is no such guest.
pub(super) fn table(softnic: &Path, rounds: u32) -> Result<String, String> {
    let mut results = Results::new(EMULATED_MTU, &Race::IGB, Counts::Best);
    let mut turns = 0;
    let ran = race(softnic, rounds, &mut |turn: &Turn| {
        let [bandwidth, latency] = races(turn.racer);
        results.add(bandwidth, turn.bandwidth);
        results.add(latency, turn.latency);
        turns += 1;
        if turns % Racer::ALL.len() == 0 {
            println!("bench-peers: emulated, round {} of {rounds}: {}", turns / Racer::ALL.len(), results.last());
        }
    });
    match ran {
        Ok(kernel) => Ok(format!("\n{}", text(&results, rounds, &kernel))),
        Err(Error::Missing(why)) => Ok(format!("\nOn emulated PCI NICs: left out, {why}.\n")),
        Err(why) => Err(why.to_string()),
    }
}

fn races(racer: Racer) -> [Race; 2] {
    match racer {
        Racer::Dpdk => [Race::IgbDpdk, Race::IgbDpdkLatency],
        Racer::Afxdp => [Race::IgbAfxdp, Race::IgbAfxdpLatency],
        Racer::Rxe => [Race::IgbRxe, Race::IgbRxeLatency],
    }
}

fn text(results: &Results, rounds: u32, kernel: &str) -> String {
    let of = |ours, theirs| results.ratio(ours, theirs);
    format!(
        "**Emulated**: a pair of igb NICs of QEMU's without KVM, Linux {kernel}, path MTU 2048, AF_XDP in zero-copy. The ratios are \
         what counts.\n\n{}| over DPDK / Linux Soft-RoCE at both ends: bandwidth, latency | {:.2}, {:.2} | |\n",
        report::table(std::slice::from_ref(results), rounds),
        of(Race::IgbDpdk, Race::IgbRxe),
        of(Race::IgbDpdkLatency, Race::IgbRxeLatency),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_says_that_the_nics_are_emulated_and_judges_both_goals() {
        let mut results = Results::new(EMULATED_MTU, &Race::IGB, Counts::Best);
        for (racer, bandwidth, latency) in
            [(Racer::Dpdk, 0.9, 25.0), (Racer::Afxdp, 0.3, 100.0), (Racer::Rxe, 0.3, 50.0)]
        {
            let [of_bandwidth, of_latency] = races(racer);
            results.add(of_bandwidth, bandwidth);
            results.add(of_latency, latency);
        }
        let text = text(&results, 1, "7.2");
        assert!(text.starts_with("**Emulated**") && text.contains("Linux 7.2"), "{text}");
        assert!(text.contains("at least 2 | 3.00 | reached |"), "{text}");
        assert!(text.contains("at most 0.2 | 0.25 | **not reached** |"), "{text}");
        assert!(text.contains("bandwidth, latency | 3.00, 0.50 |"), "{text}");
    }
}
