//! `cargo xtask soak --self-test`: plants known bugs, one at a time, and counts the seeds until each is found.

use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use softnic_conformance::steps::Outcome;
use softnic_nic::transports::planted::Bug;
use softnic_switch::planted::Bug as SwitchBug;

use super::worker::{Worker, one_line};
use super::{Options, jobs, stopped};

/// Seeds that each bug is given.
const SEEDS: u64 = 3000;
/// Bugs that show within a few seeds, and seeds for them: what every test run does, to see that nothing is wrong with the
/// machinery itself. The first shows as memory that is wrong, the second as work that never ends, the third as a panic; the last
/// three are of Selective Repeat, of LoWAR and of groups.
const SHORT: [&str; 6] = [
    Bug::AckWithoutPlacing.name(),
    Bug::ResendsTooLate.name(),
    Bug::ClockStops.name(),
    Bug::SrNotPlaced.name(),
    Bug::LowarUnitsKept.name(),
    SwitchBug::MaximumForMinimum.name(),
];
const SHORT_SEEDS: u64 = 50;

/// How a bug was found.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Found {
    seed: u64,
    how: String,
}

pub(super) fn run(options: &Options) -> Result<(), String> {
    let mut bugs = Vec::new();
    for name in &options.bug {
        let known = all().find(|known| known == name);
        bugs.push(known.ok_or_else(|| format!("there is no bug '{name}'; there are {}", names()))?);
    }
    if bugs.is_empty() {
        bugs = all().collect();
    }
    let seeds = options.seeds.unwrap_or(SEEDS);
    options.seed.checked_add(seeds).ok_or("there are not so many seeds from there on: seeds have 64 bits")?;
    find_all(&bugs, options.seed, seeds, jobs(options.jobs)).map(|found| println!("{found}"))
}

/// The layer of `cargo xtask test`.
pub(crate) fn run_short() -> Outcome {
    match find_all(&SHORT, 0, SHORT_SEEDS, jobs(None)) {
        Ok(found) => Outcome::Passed(found),
        Err(why) => Outcome::Failed(why),
    }
}

/// The names of all bugs, those of switches last.
fn all() -> impl Iterator<Item = &'static str> {
    Bug::ALL.iter().map(|bug| bug.name()).chain(SwitchBug::ALL.iter().map(|bug| bug.name()))
}

fn names() -> String {
    all().collect::<Vec<_>>().join(", ")
}

/// Looks for all bugs, several at a time, and prints the table.
fn find_all(bugs: &[&str], first: u64, seeds: u64, jobs: usize) -> Result<String, String> {
    let worker = Worker::build(true)?;
    let (next, found) = (AtomicUsize::new(0), Mutex::new(vec![None; bugs.len()]));
    let look = || -> Result<(), String> {
        while let Some((i, bug)) = {
            let i = next.fetch_add(1, Ordering::Relaxed);
            bugs.get(i).map(|bug| (i, bug)).filter(|_| !stopped())
        } {
            let how = find(&worker, bug, first, seeds)?;
            if let Ok(mut all) = found.lock() {
                all[i] = how;
            }
        }
        Ok(())
    };
    std::thread::scope(|scope| {
        let threads: Vec<_> = (0..jobs).map(|_| scope.spawn(look)).collect();
        threads.into_iter().try_for_each(|t| t.join().unwrap_or_else(|_| Err("a thread panicked".into())))
    })?;
    let found = found.into_inner().unwrap_or_default();
    print!("{}", table(bugs, &found, first));
    if stopped() {
        return Err("stopped".into());
    }
    let missing: Vec<_> = bugs.iter().zip(&found).filter(|(_, f)| f.is_none()).map(|(bug, _)| *bug).collect();
    match missing.len() {
        0 => Ok(format!("all {} bugs were found", bugs.len())),
        n => Err(format!("{n} of {} bugs were not found within {seeds} seeds: {}", bugs.len(), missing.join(", "))),
    }
}

/// The first seed that a planted bug makes fail.
fn find(worker: &Worker, bug: &str, first: u64, seeds: u64) -> Result<Option<Found>, String> {
    let mut found = None;
    worker.run(first, seeds, Some(bug), |seed, outcome| {
        found = outcome.err().map(|how| Found { seed, how });
        found.is_none() && !stopped()
    })?;
    // The bug must be what makes it fail.
    if let Some(Found { seed, .. }) = found {
        let mut without = Ok(0);
        worker.run(seed, 1, None, |_, outcome| {
            without = outcome;
            true
        })?;
        without.map_err(|how| format!("seed {seed} fails without a planted bug too: {how}"))?;
    }
    Ok(found)
}

fn table(bugs: &[&str], found: &[Option<Found>], first: u64) -> String {
    let width = bugs.iter().map(|bug| bug.len()).max().unwrap_or(0);
    let mut out = format!("| {:width$} | seeds | how it showed |\n|{}|---:|---|\n", "bug", "-".repeat(width + 2));
    for (bug, found) in bugs.iter().zip(found) {
        let (seeds, how) = match found {
            Some(f) => ((f.seed - first + 1).to_string(), one_line(&f.how, 90).replace('|', "/")),
            None => ("–".into(), "NOT FOUND".into()),
        };
        out.push_str(&format!("| {bug:width$} | {seeds:>5} | {how} |\n"));
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bug_is_found_at_the_first_seed_that_fails_with_it_and_not_without_it() {
        // A worker without a third argument has no bug.
        let worker = Worker::script(
            "s=$1; while [ $s -lt $(($1 + $2)) ]; do
             [ $s = 12 ] && [ -n \"$3\" ] && echo broken 12 wrong || echo passed $s 1; s=$((s + 1)); done",
        );
        let found = find(&worker, Bug::PsnWrap.name(), 10, 100);
        assert_eq!(found, Ok(Some(Found { seed: 12, how: "wrong".into() })));
        assert_eq!(find(&worker, Bug::PsnWrap.name(), 20, 5), Ok(None));
        let always = Worker::script("echo broken $1 wrong");
        assert!(find(&always, Bug::PsnWrap.name(), 3, 1).unwrap_err().contains("without a planted bug"));
        let text = table(&[Bug::PsnWrap.name(), Bug::StaleKey.name()], &[found.unwrap(), None], 10);
        assert!(text.contains("| psn-wrap-off-by-one |     3 | wrong |"), "{text}");
        assert!(text.contains("NOT FOUND"), "{text}");
    }
}
