//! The table of a race: medians and ratios round by round, or the best rounds, and the goals.

use std::fmt::Write;

use super::racers::Race;

/// Results of all rounds at one MTU.
pub(super) struct Results {
    pub(super) mtu: u32,
    values: Vec<(Race, Vec<f64>)>,
    counts: Counts,
}

/// What counts of several rounds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Counts {
    Median,
    Best,
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

/// The MTU of the emulated NICs: AF_XDP has zero-copy there.
pub(super) const EMULATED_MTU: u32 = 3000;

const GOALS: [Goal; 25] = [
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
    Goal { mtu: 1500, ours: Race::MemifSoftnic, theirs: Race::MemifRaw, bound: Bound::AtLeast(0.7) },
    Goal { mtu: 4200, ours: Race::MemifSoftnic, theirs: Race::MemifRaw, bound: Bound::AtLeast(0.8) },
    Goal { mtu: 1500, ours: Race::MemifSoftnic, theirs: Race::Softnic, bound: Bound::AtLeast(1.5) },
    Goal { mtu: 4200, ours: Race::MemifSoftnic, theirs: Race::Softnic, bound: Bound::AtLeast(1.0) },
    Goal { mtu: 1500, ours: Race::MemifSoftnicLatency, theirs: Race::SoftnicLatency, bound: Bound::AtMost(0.65) },
    Goal { mtu: 4200, ours: Race::MemifSoftnicLatency, theirs: Race::SoftnicLatency, bound: Bound::AtMost(0.65) },
    Goal { mtu: EMULATED_MTU, ours: Race::IgbDpdk, theirs: Race::IgbAfxdp, bound: Bound::AtLeast(2.0) },
    Goal { mtu: EMULATED_MTU, ours: Race::IgbDpdkLatency, theirs: Race::IgbAfxdpLatency, bound: Bound::AtMost(0.2) },
];

impl Results {
    pub(super) fn new(mtu: u32, races: &[Race], counts: Counts) -> Results {
        Results { mtu, values: races.iter().map(|&race| (race, Vec::new())).collect(), counts }
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

    /// The median of the ratios of each round: what slows the machine down for a while slows both. Or the ratio of the best rounds.
    pub(super) fn ratio(&self, ours: Race, theirs: Race) -> f64 {
        match self.counts {
            Counts::Median => median(self.of(ours).iter().zip(self.of(theirs)).map(|(a, b)| a / b).collect()),
            Counts::Best => self.best(ours) / self.best(theirs),
        }
    }

    fn best(&self, race: Race) -> f64 {
        let better = if race.is_latency() { f64::min } else { f64::max };
        self.of(race).iter().copied().reduce(better).unwrap_or(f64::NAN)
    }

    /// What counts of a race.
    pub(super) fn figure(&self, race: Race) -> f64 {
        match self.counts {
            Counts::Median => self.median(race),
            Counts::Best => self.best(race),
        }
    }

    /// What RC adds to the latency of raw frames, over a memif and over AF_XDP, where both raced.
    fn added(&self) -> Option<[f64; 2]> {
        let added = |rc: Race, raw: Race| Some(self.figure(rc) - self.figure(raw)).filter(|added| !added.is_nan());
        let over_memif = added(Race::MemifSoftnicLatency, Race::MemifRawLatency)?;
        Some([over_memif, added(Race::SoftnicLatency, Race::RawLatency)?])
    }

    /// The last round, in a line.
    pub(super) fn last(&self) -> String {
        let last = |race: Race| Some(format!("{} {:.2}", race.name(), self.of(race).last()?));
        self.races().filter_map(last).collect::<Vec<_>>().join(", ")
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
    let counts = all.first().map_or(Counts::Median, |results| results.counts);
    let (what, ratio_of) = match counts {
        Counts::Median => ("Medians", "median of the turns"),
        Counts::Best => ("The best", "best turns"),
    };
    let mut out = format!("{what} of {rounds} turns each; lowest and highest in brackets.\n\n|");
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
            let _ = write!(out, " | {:.2} ({low:.2}–{high:.2})", results.figure(race));
        }
        out.push_str(" |\n");
    }
    let _ = writeln!(out, "\n| goal | ratio, {ratio_of} | |\n|---|---|---|");
    for goal in GOALS {
        let has = |r: &Results, wanted| r.races().any(|race| race == wanted);
        let raced = |r: &&Results| r.mtu == goal.mtu && has(r, goal.ours) && has(r, goal.theirs);
        let Some(results) = all.iter().find(raced) else { continue };
        let ratio = results.ratio(goal.ours, goal.theirs);
        let (bound, reached) = match goal.bound {
            Bound::AtLeast(b) => (format!("at least {b}"), ratio >= b),
            Bound::AtMost(b) => (format!("at most {b}"), ratio <= b),
        };
        let verdict = verdict(reached);
        let (ours, theirs) = (goal.ours.name(), goal.theirs.name());
        let _ = writeln!(out, "| {ours} / {theirs}, MTU {}: {bound} | {ratio:.2} | {verdict} |", goal.mtu);
    }
    for results in all {
        let Some([memif, veth]) = results.added() else { continue };
        let _ = writeln!(
            out,
            "| what RC adds to the latency of raw frames, over memif / over AF_XDP, MTU {}: at most 1 | {memif:.2} µs / {veth:.2} µs | {} |",
            results.mtu,
            verdict(memif <= veth)
        );
    }
    out
}

fn verdict(reached: bool) -> &'static str {
    if reached { "reached" } else { "**not reached**" }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn results(mtu: u32, races: &[Race], counts: Counts, ours: f64, theirs: f64) -> Results {
        let mut results = Results::new(mtu, races, counts);
        for &race in races {
            let ours_runs = matches!(race, Race::Softnic | Race::SoftnicLatency);
            results.add(race, if ours_runs { ours } else { theirs });
        }
        results
    }

    #[test]
    fn a_ratio_is_the_median_of_the_rounds_or_that_of_the_best() {
        let rounds = [(1.0, 1.0), (4.0, 2.0), (9.0, 1.0)];
        let of = |counts| {
            let mut results = Results::new(1500, &Race::VETH, counts);
            for (ours, theirs) in rounds {
                results.add(Race::Softnic, ours);
                results.add(Race::Ucx, theirs);
                results.add(Race::SoftnicLatency, ours);
            }
            results
        };
        assert_eq!(of(Counts::Median).ratio(Race::Softnic, Race::Ucx), 2.0);
        assert_eq!(of(Counts::Best).ratio(Race::Softnic, Race::Ucx), 4.5);
        assert_eq!(of(Counts::Best).figure(Race::SoftnicLatency), 1.0);
        assert_eq!(median(vec![1.0, 4.0, 2.0, 3.0]), 2.5);
    }

    #[test]
    fn goals_that_were_missed_are_said_to_be() {
        let of = |mtu| results(mtu, &Race::VETH, Counts::Median, 1.2, 1.0);
        let text = table(&[of(1500), of(4200)], 1);
        assert!(text.contains("MTU 1500: at least 1.3 | 1.20 | **not reached** |"), "{text}");
        assert!(text.contains("MTU 4200: at least 1.1 | 1.20 | reached |"), "{text}");
        assert!(text.contains("at most 0.5 | 1.20 | **not reached** |"), "{text}");
        assert!(!text.contains("memif"), "who did not race has no row: {text}");
    }

    #[test]
    fn what_rc_adds_to_latency_is_a_goal_over_a_memif() {
        let mut results = results(1500, &Race::DPDK, Counts::Best, 3.0, 2.0);
        let text = table(&[results], 3);
        assert!(text.contains("MTU 1500: at most 1 | 0.00 µs / 1.00 µs | reached |"), "{text}");
        results = self::results(1500, &Race::DPDK, Counts::Best, 2.0, 2.0);
        results.add(Race::MemifRawLatency, 1.5);
        let text = table(&[results], 3);
        assert!(text.contains("MTU 1500: at most 1 | 0.50 µs / 0.00 µs | **not reached** |"), "{text}");
        assert!(!text.contains("UCX"), "{text}");
    }
}
