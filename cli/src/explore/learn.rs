//! The runs without faults: whether the TEST is one that can be explored, and what all its runs have in common.

use std::fs;
use std::time::{Duration, Instant};

use softnic_explore::actor::{Cast, learn};
use softnic_explore::judge::{Baseline, Judge};
use softnic_explore::output::Expected;
use softnic_explore::pairs::known;
use softnic_explore::record::File;
use softnic_explore::thing::Thing;

use super::bench::{Bench, JudgeBy, Order, Run, STDERR};
use super::progress::{Progress, about, counted};
use crate::plain::plain;

/// Processes that end by themselves may take so long when the TEST has.
const PATIENCE: Duration = Duration::from_secs(3);
/// No TEST is given less than this.
const LEAST_LIMIT: Duration = Duration::from_secs(20);

/// What is known when the runs without faults are over.
pub(super) struct Lesson {
    pub(super) cast: Cast,
    pub(super) baseline: Baseline,
    /// All things of any run.
    pub(super) known: std::collections::HashSet<(usize, Thing)>,
    pub(super) limit: Duration,
    /// Processes are left even without faults: none is waited for.
    pub(super) leaves: bool,
    /// How long a run takes.
    pub(super) mean: Duration,
}

/// Runs the TEST without faults; `None` when it was interrupted.
pub(super) fn learn_from(
    bench: &Bench,
    count: usize,
    limit: Option<Duration>,
    budget: Option<Duration>,
    progress: &mut Progress,
) -> Result<Option<Lesson>, String> {
    let begin = Instant::now();
    let name = plain(&bench.test[0].to_string_lossy());
    let first_limit = limit.or(budget).unwrap_or(Duration::from_secs(600));
    let (mut runs, mut took): (Vec<Run>, Vec<Duration>) = (Vec::new(), Vec::new());
    for number in 1..=count {
        progress.tick(|| format!("run {number} of {count} without faults"));
        let order = Order { limit: first_limit, patience: Some(PATIENCE), is_recoverable: true, ..Order::default() };
        let Some(run) = bench.run(order)? else { return Ok(None) };
        if number == 1 {
            check_first(&run, &name, first_limit, budget.filter(|_| limit.is_none()), bench)?;
            check_budget(budget, run.took, count)?;
        }
        took.push(run.took);
        runs.push(run);
    }
    check_all(&runs, &name)?;
    let longest = took.iter().max().copied().unwrap_or_default();
    let mean = begin.elapsed() / count as u32;
    let left = runs.iter().filter(|run| run.facts.left > 0).count();
    if left > 0 {
        let most = runs.iter().map(|run| run.facts.left).max().unwrap_or(0);
        progress.say(&format!(
            "{name} leaves {} running in {left} of {count} runs, also without faults: they are killed",
            counted(most, "process", "processes")
        ));
    }
    let files: Vec<Vec<File>> = runs.iter_mut().map(|run| std::mem::take(&mut run.files)).collect();
    let cast = learn(&files);
    let outputs: Vec<String> = runs.iter().map(|run| run.facts.stdout.clone()).collect();
    let output = Expected::of(&outputs, cast.actors.len());
    if let Some(what) = output.leaves_out() {
        let distinct: std::collections::BTreeSet<&String> = outputs.iter().collect();
        progress.say(&format!("{what} ({} of {count} runs printed something else)", distinct.len() - 1));
    }
    tell(&cast, count, progress);
    let calls = &runs[0].facts.calls;
    let alike = runs.iter().all(|run| run.facts.calls == *calls).then(|| calls.clone());
    let findings = runs.iter().flat_map(|run| run.facts.findings.clone()).collect();
    let baseline = Baseline { exit: runs[0].facts.exit.unwrap_or(0), output, findings, calls: alike };
    if let (JudgeBy::Usual, false) = (&bench.judge, baseline.findings.is_empty()) {
        let errors = baseline.findings.len();
        progress
            .say(&format!("softnic check finds {errors} in it without faults, which are not told here again: run it"));
    }
    let known = known(&cast, &files);
    let limit = limit.unwrap_or((longest * 10).max(LEAST_LIMIT));
    Ok(Some(Lesson { cast, baseline, known, limit, leaves: left > 0, mean }))
}

/// What differs from run to run.
fn tell(cast: &Cast, count: usize, progress: &mut Progress) {
    if cast.left_out > 0 {
        let all = cast.left_out + cast.things();
        progress.say(&format!("{} of {all} things were not in all {count} runs: no fault is for these", cast.left_out));
    }
    if cast.strangers > 0 {
        progress.say(&format!("{} processes were not in all {count} runs: no fault is for these", cast.strangers));
    }
    if cast.lost > 0 {
        progress.say(&format!("{} things are beyond the first million of a process: no fault is for these", cast.lost));
    }
}

fn check_first(run: &Run, name: &str, limit: Duration, budget: Option<Duration>, bench: &Bench) -> Result<(), String> {
    let stderr = fs::read_to_string(run.folder.0.join(STDERR)).unwrap_or_default();
    let last = stderr.lines().rev().find(|line| !line.trim().is_empty()).map(plain);
    let Some(exit) = run.facts.exit else {
        if budget == Some(limit) {
            return Err(format!("--budget {} is too short: not one run without faults ends in it", about(limit)));
        }
        return Err(format!("{name} does not end within {} without faults (--limit)", about(limit)));
    };
    // `softnic run` says itself what is wrong.
    if let (125..=127, Some(line)) = (exit, last.as_deref().and_then(|line| line.strip_prefix("softnic: "))) {
        return Err(line.to_owned());
    }
    if run.files.is_empty() {
        return Err(format!(
            "{name} ended ({exit}) and never called a verb of softnic's library: there is nothing to explore (it uses no verbs, or it is \
             setuid or statically linked)"
        ));
    }
    if bench.judge == JudgeBy::Usual && exit != 0 {
        let said = last.map_or(String::new(), |line| format!("; its last line on stderr: {line}"));
        return Err(format!("{name} fails without faults: exit code {exit}{said}"));
    }
    Ok(())
}

fn check_budget(budget: Option<Duration>, run: Duration, count: usize) -> Result<(), String> {
    let least = run * (count as u32 + 1);
    match budget {
        Some(budget) if budget < least => Err(format!(
            "--budget {} is too short: a run takes {}, and {count} without faults come first: give it {} or more",
            about(budget),
            about(run),
            about(least * 2)
        )),
        _ => Ok(()),
    }
}

fn check_all(runs: &[Run], name: &str) -> Result<(), String> {
    let first = runs[0].facts.exit;
    let others = runs.iter().filter(|run| run.facts.exit != first).count();
    if others > 0 {
        let exit = |run: &Run| run.facts.exit.map_or("no end in time".into(), |exit| format!("exit code {exit}"));
        let all: Vec<String> = runs.iter().map(exit).collect();
        return Err(format!(
            "{name} ends otherwise in {others} of {} runs without faults: {}",
            runs.len(),
            all.join(", ")
        ));
    }
    let refused = runs.iter().filter(|run| run.by == Judge::Command(false)).count();
    match refused {
        0 => Ok(()),
        n => Err(format!("--judge: {name} fails {n} of {} runs without faults", runs.len())),
    }
}
