//! The table of a race: medians, ratios round by round, and the goals.

use std::fmt::Write;

use super::racers::Race;

/// Results of all rounds at one MTU.
pub(super) struct Results {
    pub(super) mtu: u32,
    values: Vec<(Race, Vec<f64>)>,
}

/// What softnic is to reach: `ours` over `theirs`, at least or at most.
struct Goal {
    mtu: u32,
    ours: Race,
    theirs: Race,
    bound: Bound,
}

#[derive(Debug, Clone, Copy)]
enum Bound {
    AtLeast(f64),
    AtMost(f64),
}

const GOALS: [Goal; 24] = [
    Goal { mtu: 1500, ours: Race::Softnic, theirs: Race::Ucx, bound: Bound::AtLeast(1.3) },
    Goal { mtu: 4200, ours: Race::Softnic, theirs: Race::Ucx, bound: Bound::AtLeast(1.1) },
    Goal { mtu: 1500, ours: Race::SoftnicLatency, theirs: Race::UcxLatency, bound: Bound::AtMost(0.5) },
    Goal { mtu: 4200, ours: Race::SoftnicLatency, theirs: Race::UcxLatency, bound: Bound::AtMost(0.5) },
    Goal { mtu: 1500, ours: Race::Softnic, theirs: Race::Raw, bound: Bound::AtLeast(0.8) },
    Goal { mtu: 4200, ours: Race::Softnic, theirs: Race::Raw, bound: Bound::AtLeast(0.8) },
    Goal { mtu: 1500, ours: Race::SoftnicLatency, theirs: Race::RawLatency, bound: Bound::AtMost(1.5) },
    Goal { mtu: 4200, ours: Race::SoftnicLatency, theirs: Race::RawLatency, bound: Bound::AtMost(1.5) },
    Goal { mtu: 1500, ours: Race::Perftest, theirs: Race::Softnic, bound: Bound::AtLeast(0.9) },
    Goal { mtu: 4200, ours: Race::Perftest, theirs: Race::Softnic, bound: Bound::AtLeast(0.9) },
    Goal { mtu: 1500, ours: Race::PerftestLatency, theirs: Race::SoftnicLatency, bound: Bound::AtMost(1.1) },
    Goal { mtu: 4200, ours: Race::PerftestLatency, theirs: Race::SoftnicLatency, bound: Bound::AtMost(1.1) },
    Goal { mtu: 1500, ours: Race::PerftestLatency, theirs: Race::SoftnicLatencyWaiting, bound: Bound::AtMost(1.1) },
    Goal { mtu: 4200, ours: Race::PerftestLatency, theirs: Race::SoftnicLatencyWaiting, bound: Bound::AtMost(1.1) },
    Goal { mtu: 1500, ours: Race::MemifRaw, theirs: Race::Testpmd, bound: Bound::AtLeast(0.8) },
    Goal { mtu: 4200, ours: Race::MemifRaw, theirs: Race::Testpmd, bound: Bound::AtLeast(0.6) },
    Goal { mtu: 1500, ours: Race::MemifRawSmall, theirs: Race::TestpmdSmall, bound: Bound::AtLeast(0.8) },
    Goal { mtu: 4200, ours: Race::MemifRawSmall, theirs: Race::TestpmdSmall, bound: Bound::AtLeast(0.8) },
    Goal { mtu: 1500, ours: Race::MemifSoftnic, theirs: Race::MemifRaw, bound: Bound::AtLeast(0.7) },
    Goal { mtu: 4200, ours: Race::MemifSoftnic, theirs: Race::MemifRaw, bound: Bound::AtLeast(0.8) },
    Goal { mtu: 1500, ours: Race::MemifSoftnic, theirs: Race::Softnic, bound: Bound::AtLeast(1.5) },
    Goal { mtu: 4200, ours: Race::MemifSoftnic, theirs: Race::Softnic, bound: Bound::AtLeast(1.0) },
    Goal { mtu: 1500, ours: Race::MemifSoftnicLatency, theirs: Race::SoftnicLatency, bound: Bound::AtMost(0.65) },
    Goal { mtu: 4200, ours: Race::MemifSoftnicLatency, theirs: Race::SoftnicLatency, bound: Bound::AtMost(0.65) },
];

impl Results {
    pub(super) fn new(mtu: u32, races: &[Race]) -> Results {
        Results { mtu, values: races.iter().map(|&race| (race, Vec::new())).collect() }
    }

    fn races(&self) -> impl Iterator<Item = Race> {
        self.values.iter().map(|(race, _)| *race)
    }

    pub(super) fn add(&mut self, race: Race, value: f64) {
        if let Some((_, values)) = self.values.iter_mut().find(|(r, _)| *r == race) {
            values.push(value);
        }
    }

    fn of(&self, race: Race) -> &[f64] {
        self.values.iter().find(|(r, _)| *r == race).map_or(&[], |(_, values)| values)
    }

    pub(super) fn median(&self, race: Race) -> f64 {
        median(self.of(race).to_vec())
    }

    /// The median of the ratios of each round: what slows the machine down for a while slows both.
    fn ratio(&self, ours: Race, theirs: Race) -> f64 {
        median(self.of(ours).iter().zip(self.of(theirs)).map(|(a, b)| a / b).collect())
    }

    /// The last round, in a line.
    pub(super) fn last(&self) -> String {
        let short = |race: Race| self.of(race).last().map_or(String::new(), |v| format!("{v:.2}"));
        let join = |latency: bool| {
            let races = Race::ALL[..Race::ON_VETH].iter().copied().filter(|r| r.is_latency() == latency);
            races.map(short).collect::<Vec<_>>().join(" ")
        };
        let memif: Vec<_> = self.races().skip(Race::ON_VETH).map(short).collect();
        let memif = match &memif[..] {
            [] => String::new(),
            figures => format!("; memif: {}", figures.join(" ")),
        };
        format!(
            "raw, softnic, perftest, UCX, UDP: {} Gbit/s; raw, softnic, waiting, perftest, UCX, UDP: {} us{memif}",
            join(false),
            join(true)
        )
    }
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    match values.len() {
        0 => f64::NAN,
        n if n % 2 == 1 => values[n / 2],
        n => (values[n / 2 - 1] + values[n / 2]) / 2.0,
    }
}

/// The table, in Markdown, and what became of the goals.
pub(super) fn table(all: &[Results], rounds: u32) -> String {
    let mut out = format!("Medians of {rounds} turns each; lowest and highest in brackets.\n\n|");
    // Writing to a String cannot fail.
    for results in all {
        let _ = write!(out, " | MTU {}", results.mtu);
    }
    let _ = writeln!(out, " |\n|---|{}", "---|".repeat(all.len()));
    for race in all.first().into_iter().flat_map(Results::races) {
        let unit = if race.is_latency() { "µs" } else { "Gbit/s" };
        let _ = write!(out, "| {}, {unit}", race.name());
        for results in all {
            let values = results.of(race);
            let (low, high) = (values.iter().copied().reduce(f64::min), values.iter().copied().reduce(f64::max));
            let (low, high) = (low.unwrap_or(f64::NAN), high.unwrap_or(f64::NAN));
            let _ = write!(out, " | {:.2} ({low:.2}–{high:.2})", results.median(race));
        }
        out.push_str(" |\n");
    }
    out.push_str("\n| goal | ratio, median of the turns | |\n|---|---|---|\n");
    for goal in GOALS {
        let raced = |r: &&Results| r.mtu == goal.mtu && r.races().any(|race| race == goal.ours);
        let Some(results) = all.iter().find(raced) else { continue };
        let ratio = results.ratio(goal.ours, goal.theirs);
        let (bound, reached) = match goal.bound {
            Bound::AtLeast(b) => (format!("at least {b}"), ratio >= b),
            Bound::AtMost(b) => (format!("at most {b}"), ratio <= b),
        };
        let verdict = if reached { "reached" } else { "**not reached**" };
        let (ours, theirs) = (goal.ours.name(), goal.theirs.name());
        let _ = writeln!(out, "| {ours} / {theirs}, MTU {}: {bound} | {ratio:.2} | {verdict} |", goal.mtu);
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    fn results(mtu: u32, ours: f64, theirs: f64) -> Results {
        let races = &Race::ALL[..Race::ON_VETH];
        let mut results = Results::new(mtu, races);
        for &race in races {
            let ours_runs = matches!(race, Race::Softnic | Race::SoftnicLatency);
            results.add(race, if ours_runs { ours } else { theirs });
        }
        results
    }

    #[test]
    fn a_ratio_is_the_median_of_the_rounds() {
        let mut results = Results::new(1500, &Race::ALL);
        for (ours, theirs) in [(1.0, 1.0), (4.0, 2.0), (9.0, 1.0)] {
            results.add(Race::Softnic, ours);
            results.add(Race::Ucx, theirs);
        }
        assert_eq!(results.ratio(Race::Softnic, Race::Ucx), 2.0);
        assert_eq!(median(vec![1.0, 4.0, 2.0, 3.0]), 2.5);
    }

    #[test]
    fn goals_that_were_missed_are_said_to_be() {
        let text = table(&[results(1500, 1.2, 1.0), results(4200, 1.2, 1.0)], 1);
        assert!(text.contains("MTU 1500: at least 1.3 | 1.20 | **not reached** |"), "{text}");
        assert!(text.contains("MTU 4200: at least 1.1 | 1.20 | reached |"), "{text}");
        assert!(text.contains("at most 0.5 | 1.20 | **not reached** |"), "{text}");
        assert!(!text.contains("memif"), "who did not race has no row: {text}");
    }
}
