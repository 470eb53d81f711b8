//! Steps of a chore: each runs, passes, fails or is left out for a reason, and all end up in one table.

use std::fmt::Write;
use std::io::{BufRead, BufReader};
use std::process::{Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use crate::processors::Processors;
use crate::project;

/// How a step ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Outcome {
    /// It ran and all was well; with what is worth saying of it.
    Passed(String),
    /// It ran and something was wrong.
    Failed(String),
    /// It did not run, and why.
    LeftOut(String),
}

/// One layer of tests.
pub struct Step {
    /// What the table calls it.
    pub name: &'static str,
    /// Whether it only runs when everything is asked for.
    long: bool,
    /// Whether it may run beside others of this kind, which stand next to it.
    waits: bool,
    /// Runs it.
    run: fn() -> Outcome,
}

impl Step {
    /// A step of every run.
    pub const fn new(name: &'static str, run: fn() -> Outcome) -> Step {
        Step { name, long: false, waits: false, run }
    }

    /// A step of every run that waits most of the time, as for a guest, with nothing of its own that others use: two of them run at a time.
    pub const fn waiting(name: &'static str, run: fn() -> Outcome) -> Step {
        Step { name, long: false, waits: true, run }
    }

    /// A step of `--all`.
    pub const fn long(name: &'static str, run: fn() -> Outcome) -> Step {
        Step { name, long: true, waits: false, run }
    }
}

/// What became of each step.
#[derive(Debug, Default)]
pub struct Report {
    rows: Vec<ReportRow>,
    /// All of them together.
    took: Cost,
}

/// What something took.
#[derive(Debug, Default, Clone, Copy)]
struct Cost {
    time: Duration,
    /// Of the whole machine: what ran beside it is in there.
    processors: Option<Processors>,
}

impl Cost {
    /// Runs it; what it took, and what it returned.
    fn of<T>(run: impl FnOnce() -> T) -> (Cost, T) {
        let (begin, before) = (Instant::now(), Processors::now());
        let result = run();
        let processors = Processors::now().zip(before).map(|(now, before)| now - before);
        (Cost { time: begin.elapsed(), processors }, result)
    }
}

impl Report {
    /// Runs the steps in order, those that wait two at a time; a failure does not keep the later ones from running.
    pub fn of(steps: &[&Step], all: bool) -> Report {
        let (took, rows) = Cost::of(|| Report::rows_of(steps, all));
        Report { rows, took }
    }

    fn rows_of(steps: &[&Step], all: bool) -> Vec<ReportRow> {
        let mut done = Vec::new();
        for together in steps.chunk_by(|a, b| a.waits && b.waits) {
            let rows = Mutex::new(together.iter().map(|_| None).collect::<Vec<_>>());
            let next = AtomicUsize::new(0);
            let work = || {
                loop {
                    let n = next.fetch_add(1, Ordering::Relaxed);
                    let Some(step) = together.get(n) else { break };
                    let row = run_one(step, all);
                    rows.lock().unwrap_or_else(PoisonError::into_inner)[n] = Some(row);
                }
            };
            thread::scope(|scope| (0..together.len().min(2)).for_each(|_| drop(scope.spawn(work))));
            done.extend(rows.into_inner().unwrap_or_else(PoisonError::into_inner).into_iter().flatten());
        }
        done
    }

    /// Steps that failed.
    pub fn failed(&self) -> usize {
        self.rows.iter().filter(|(_, o, _)| matches!(o, Outcome::Failed(_))).count()
    }

    /// The table, the total cost and the line that counts. `worked` and `stolen` are seconds of all processors of the machine together.
    pub fn table(&self) -> String {
        let width = self.rows.iter().map(|(name, ..)| name.len()).max().unwrap_or(0);
        let mut out = format!("\n{:width$}  result    seconds   worked  stolen\n", "layer");
        for (name, outcome, took) in &self.rows {
            let (result, remark) = match outcome {
                Outcome::Passed(s) => ("passed", s),
                Outcome::Failed(s) => ("FAILED", s),
                Outcome::LeftOut(s) => ("left out", s),
            };
            let of_machine = match took.processors {
                Some(Processors { busy, stolen }) => format!("{busy:7.1} {stolen:7.1}"),
                None => format!("{:15}", ""),
            };
            let line = format!("{name:width$}  {result:8}  {:7.1}  {of_machine}  {remark}", took.time.as_secs_f64());
            // Writing to a String cannot fail.
            let _ = writeln!(out, "{}", line.trim_end());
        }
        let passed = self.rows.iter().filter(|(_, o, _)| matches!(o, Outcome::Passed(_))).count();
        if let Some(processors) = self.took.processors {
            let _ = writeln!(out, "\nin {:.0} s; {processors}", self.took.time.as_secs_f64());
        }
        let _ = write!(out, "\n{passed} passed, {} failed", self.failed());
        out
    }
}

/// A row of the table.
type ReportRow = (&'static str, Outcome, Cost);

fn run_one(step: &Step, all: bool) -> ReportRow {
    println!("== {}", step.name);
    let (took, outcome) = Cost::of(|| match step.long && !all {
        true => Outcome::LeftOut("runs with --all".into()),
        // A layer that panics does not keep the later ones from running either.
        false => std::panic::catch_unwind(step.run).unwrap_or_else(|_| Outcome::Failed("it panicked".into())),
    });
    match &outcome {
        // Another may have printed below its title.
        Outcome::Passed(_) if step.waits => println!("== {}: passed", step.name),
        Outcome::Passed(_) => {}
        Outcome::Failed(why) => println!("FAILED: {}: {why}", step.name),
        Outcome::LeftOut(why) => println!("left out: {why}"),
    }
    (step.name, outcome, took)
}

/// A command in the repository's root, with nothing to read from.
pub fn command(words: &[&str]) -> Command {
    let mut c = Command::new(words[0]);
    c.args(&words[1..]).current_dir(project::root()).stdin(Stdio::null());
    c
}

/// Prints a command, runs it, and says how it went.
pub fn shell(words: &[&str]) -> Outcome {
    shell_with(words, &[])
}

/// Like [`shell`], with environment variables.
pub fn shell_with(words: &[&str], env: &[(&str, &str)]) -> Outcome {
    let shown: String = env.iter().map(|(k, v)| format!("{k}='{v}' ")).collect();
    println!("$ {shown}{}", words.join(" "));
    match command(words).envs(env.iter().copied()).status() {
        Ok(status) if status.success() => Outcome::Passed(String::new()),
        Ok(status) => Outcome::Failed(format!("`{}`: {status}", words.join(" "))),
        Err(e) => Outcome::Failed(format!("`{}` cannot be started: {e}", words[0])),
    }
}

/// Like [`shell_with`], for `cargo test`: also counts the tests, by what each test program says at its end. A test that cannot do its
/// work here says `LEFT OUT` on stderr, and is not counted among those that passed.
///
/// A test program that fails does not keep those behind it from running.
pub fn cargo_test(words: &[&str], env: &[(&str, &str)]) -> Outcome {
    let words = &all_programs(words)[..];
    let shown: String = env.iter().map(|(k, v)| format!("{k}='{v}' ")).collect();
    println!("$ {shown}{}", words.join(" "));
    let run = || -> std::io::Result<(ExitStatus, u64, u64, u64, u64)> {
        let mut child =
            command(words).envs(env.iter().copied()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn()?;
        let errors = BufReader::new(child.stderr.take().expect("it was asked for"));
        let left_out = std::thread::spawn(move || {
            let shown = errors.lines().map_while(Result::ok).inspect(|line| eprintln!("{line}"));
            shown.filter(|line| line.starts_with("LEFT OUT: ")).count() as u64
        });
        let (mut passed, mut failed, mut ignored) = (0, 0, 0);
        for line in BufReader::new(child.stdout.take().expect("it was asked for")).lines() {
            let line = line?;
            println!("{line}");
            passed += count(&line, "passed");
            failed += count(&line, "failed");
            ignored += count(&line, "ignored");
        }
        let status = child.wait()?;
        Ok((status, passed, failed, ignored, left_out.join().unwrap_or(0)))
    };
    match run() {
        Ok((status, 0, ..)) if status.success() => Outcome::Failed("not a single test was run".into()),
        Ok((status, passed, _, ignored, left_out)) if status.success() => {
            let more = [(ignored, "ignored"), (left_out, "left out, named above")];
            let more: String = more.iter().filter(|(n, _)| *n > 0).map(|(n, what)| format!(", {n} {what}")).collect();
            Outcome::Passed(format!("{} tests{more}", passed.saturating_sub(left_out)))
        }
        Ok((_, passed, failed, ..)) if failed > 0 => Outcome::Failed(format!("{failed} tests of {}", passed + failed)),
        Ok((status, ..)) => Outcome::Failed(format!("`{}`: {status}", words.join(" "))),
        Err(e) => Outcome::Failed(format!("`{}`: {e}", words[0])),
    }
}

/// A `cargo test` that runs all test programs, whichever fail.
fn all_programs<'a>(words: &[&'a str]) -> Vec<&'a str> {
    let test = words.iter().position(|&word| word == "test").map_or(words.len(), |at| at + 1);
    [&words[..test], &["--no-fail-fast"], &words[test..]].concat()
}

/// The number before `what` in `test result: ok. 41 passed; 0 failed; …`; 0 in any other line.
fn count(line: &str, what: &str) -> u64 {
    let Some(counts) = line.strip_prefix("test result: ") else { return 0 };
    let mut words = counts.split([' ', ';']).rev().skip_while(|&w| w != what).skip(1);
    words.next().and_then(|n| n.parse().ok()).unwrap_or(0)
}

/// Whether a command runs and succeeds; what it prints is not shown.
pub fn succeeds(words: &[&str]) -> bool {
    let quiet = command(words).stdout(Stdio::null()).stderr(Stdio::null()).status();
    quiet.is_ok_and(|s| s.success())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tests_are_counted() {
        let line = "test result: ok. 41 passed; 0 failed; 2 ignored; 0 measured; 37 filtered out; finished in 0.18s";
        assert_eq!((count(line, "passed"), count(line, "ignored"), count("41 passed", "passed")), (41, 2, 0));
    }

    #[test]
    fn a_failure_hides_neither_test_programs_nor_layers() {
        let words = all_programs(&["cargo", "test", "-p", "softnic-nic", "--", "ports"]);
        assert_eq!(words, ["cargo", "test", "--no-fail-fast", "-p", "softnic-nic", "--", "ports"]);
        let steps =
            [Step::new("panics", || panic!("on purpose")), Step::new("good", || Outcome::Passed(String::new()))];
        let report = Report::of(&steps.each_ref(), false);
        assert_eq!(report.failed(), 1);
        assert!(report.table().ends_with("\n1 passed, 1 failed"), "{}", report.table());
    }

    #[test]
    fn layers_that_wait_run_beside_each_other_and_the_others_alone() {
        // At most two at a time; each of the two that wait ends only when the other is there, too.
        static AT_WORK: AtomicUsize = AtomicUsize::new(0);
        static MET: std::sync::Barrier = std::sync::Barrier::new(2);
        fn meets() -> Outcome {
            AT_WORK.fetch_add(1, Ordering::SeqCst);
            MET.wait();
            AT_WORK.fetch_sub(1, Ordering::SeqCst);
            Outcome::Passed(String::new())
        }
        fn alone() -> Outcome {
            match AT_WORK.load(Ordering::SeqCst) {
                0 => Outcome::Passed(String::new()),
                n => Outcome::Failed(format!("{n} others")),
            }
        }
        let steps = [
            Step::new("before", alone),
            Step::waiting("one", meets),
            Step::waiting("other", meets),
            Step::new("behind", alone),
        ];
        let report = Report::of(&steps.each_ref(), false);
        assert_eq!(report.failed(), 0, "{}", report.table());
        assert!(report.rows.iter().map(|row| row.0).eq(["before", "one", "other", "behind"]));
    }

    #[test]
    fn what_was_left_out_does_not_count_as_passed() {
        let steps = [
            Step::new("good", || Outcome::Passed("3 things".into())),
            Step::new("absent", || Outcome::LeftOut("no such tool".into())),
            Step::new("bad", || Outcome::Failed("broken".into())),
            Step::long("slow", || Outcome::Passed(String::new())),
        ];
        let report = Report::of(&steps.each_ref(), false);
        assert_eq!(report.failed(), 1);
        let table = report.table();
        assert!(table.ends_with("\n1 passed, 1 failed"), "{table}");
        let row = |name: &str| table.lines().find(|line| line.starts_with(name)).unwrap_or_default().to_owned();
        assert!(row("absent").starts_with("absent  left out      0.0 ") && row("absent").ends_with("  no such tool"));
        assert!(row("slow").starts_with("slow    left out      0.0 ") && row("slow").ends_with("  runs with --all"));
    }
}
