//! A process that runs tests and tells of each as it begins and ends. So one that hangs or crashes is known by its name, and those behind
//! it run in another process.

use std::collections::VecDeque;
use std::fs::{self, File};
use std::path::Path;
use std::process::{Child, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

use super::judge::{self, TestVerdict};
use super::place::Place;
use super::report::Row;
use super::suite::{PYTHON, Suite};
use crate::findings;
use crate::guest::{Error, failed, interrupted};

/// The longest a test may take; nearly all take some milliseconds.
const LIMIT: Duration = Duration::from_secs(30);
/// How long a process may take to end when it is asked to, or when its last test has ended.
const GRACE: Duration = Duration::from_secs(5);
const NAP: Duration = Duration::from_millis(5);
/// Lines of what was printed that are shown with a failure.
const SHOWN: usize = 40;

/// What runs tests.
pub(super) struct Runner<'a> {
    pub(super) suite: &'a Suite,
    pub(super) softnic: &'a Path,
    pub(super) place: &'a Place,
    pub(super) scratch: &'a Path,
    pub(super) temporary: &'a Path,
    pub(super) verbose: bool,
    /// Where the checker puts what it finds, if tests run under it: each has a process of its own then.
    pub(super) findings: Option<&'a Path>,
}

/// A line of the runner: a test began, or ended.
#[derive(Debug, PartialEq, Eq)]
enum RunnerLine {
    Began(String),
    Ended { test: String, verdict: TestVerdict },
}

/// Reads a line of the runner.
fn parse_line(line: &str) -> Option<RunnerLine> {
    let value: Value = serde_json::from_str(line).ok()?;
    if let Some(test) = value["begin"].as_str() {
        return Some(RunnerLine::Began(test.into()));
    }
    let (test, why) = (value["end"].as_str()?, value["why"].as_str()?);
    let trace = value["trace"].as_str().unwrap_or_default().trim_end();
    let verdict = match value["result"].as_str()? {
        "passed" => TestVerdict::Passed,
        "skipped" => judge::skipped(test, why),
        _ if trace.is_empty() => TestVerdict::Failed(why.into()),
        _ => TestVerdict::Failed(format!("{why}{}", indented(trace))),
    };
    Some(RunnerLine::Ended { test: test.into(), verdict })
}

/// Lines below a reason.
fn indented(text: &str) -> String {
    text.lines().map(|line| format!("\n    {line}")).collect()
}

/// The tests of one process: what became of them.
#[derive(Default)]
struct Progress {
    rows: Vec<Row>,
    running: Option<(String, Instant)>,
    lines: usize,
}

impl Progress {
    /// Takes in the lines written since; whether there were any.
    fn follow(&mut self, text: &str) -> bool {
        // The last line may be half written.
        let whole = text.rfind('\n').map_or("", |end| &text[..end]);
        let new: Vec<&str> = whole.lines().skip(self.lines).collect();
        self.lines += new.len();
        for line in new.iter().filter_map(|line| parse_line(line)) {
            match line {
                RunnerLine::Began(test) => self.running = Some((test, Instant::now())),
                RunnerLine::Ended { test, verdict } => {
                    let took = self.running.take().map_or(Duration::ZERO, |(_, since)| since.elapsed());
                    self.rows.push(Row { test, verdict, took });
                }
            }
        }
        !new.is_empty()
    }

    /// The process is gone: what it was at has failed.
    fn give_up(&mut self, why: String) {
        if let Some((test, since)) = self.running.take() {
            self.rows.push(Row { test, verdict: TestVerdict::Failed(why), took: since.elapsed() });
        }
    }
}

impl Runner<'_> {
    /// Runs the tests of a module, in as many processes as it takes.
    pub(super) fn run(&self, module: &str, tests: &[String]) -> Result<Vec<Row>, Error> {
        let mut rows: Vec<Row> = Vec::new();
        let mut left: VecDeque<&String> = tests.iter().collect();
        while !left.is_empty() && !interrupted() {
            let at_once = if self.findings.is_some() { 1 } else { left.len() };
            let (mut done, end) = self.run_process(module, &left.make_contiguous()[..at_once])?;
            self.check(&mut done)?;
            let before = left.len();
            left.retain(|test| !done.iter().any(|row| row.test == **test));
            rows.extend(done);
            // Whatever does not belong to a test belongs to them all.
            let did_nothing = left.len() == before;
            if let Some(why) = end.filter(|_| left.is_empty() || did_nothing || self.findings.is_some()) {
                rows.push(Row {
                    test: format!("{module}.(the end)"),
                    verdict: TestVerdict::Failed(why),
                    took: Duration::ZERO,
                });
            }
            if did_nothing {
                break;
            }
        }
        Ok(rows)
    }

    /// Takes the findings of a process: errors are those of its test.
    fn check(&self, done: &mut [Row]) -> Result<(), Error> {
        let (Some(folder), Some(row)) = (self.findings, done.first_mut()) else { return Ok(()) };
        match findings::judge(folder, &row.test) {
            Err(Error::Failed(why)) if row.verdict == TestVerdict::Passed => row.verdict = TestVerdict::Failed(why),
            Err(Error::Failed(_)) | Ok(()) => {}
            Err(e) => return Err(e),
        }
        Ok(())
    }

    /// Runs tests in one process: what it did, and what was wrong at its end though no test ran.
    fn run_process(&self, module: &str, tests: &[&String]) -> Result<(Vec<Row>, Option<String>), Error> {
        let [results, printed] = ["json", "out"].map(|end| self.scratch.join(format!("{module}.{end}")));
        File::create(&results).map_err(failed(&results))?;
        let out = File::create(&printed).map_err(failed(&printed))?;
        let errors = out.try_clone().map_err(failed(&printed))?;
        let mut command = self.place.command(module, self.softnic);
        command.args([PYTHON, "-X", "faulthandler"]).arg(&self.suite.runner).arg(&self.suite.folder).arg(&results);
        command.args(tests).stdin(Stdio::null()).stdout(out).stderr(errors);
        command.env("TMPDIR", self.temporary).env("PYTHONDONTWRITEBYTECODE", "1");
        // Where a network in memory is.
        command.env("XDG_RUNTIME_DIR", self.scratch);
        command.envs(self.findings.iter().map(|folder| ("SOFTNIC_CHECK", folder)));
        let mut child = command.spawn().map_err(|e| Error::Failed(format!("it cannot be started: {e}")))?;
        let mut progress = Progress::default();
        let status = self.watch(&mut child, &results, &mut progress)?;
        progress.follow(&fs::read_to_string(&results).map_err(failed(&results))?);
        let text = String::from_utf8_lossy(&fs::read(&printed).unwrap_or_default()).into_owned();
        if self.verbose && !text.is_empty() {
            println!("{text}");
        }
        let why = match &status {
            Some(status) => format!("the process ends with {status}{}", tail(&text)),
            None => format!("not done after {LIMIT:?}{}", tail(&text)),
        };
        let good = status.is_some_and(|status| status.success());
        let in_a_test = progress.running.is_some();
        progress.give_up(why.clone());
        Ok((progress.rows, (!good && !in_a_test).then_some(why)))
    }

    /// Waits for the end of a process; `None` when it had to be ended.
    fn watch(&self, child: &mut Child, results: &Path, progress: &mut Progress) -> Result<Option<ExitStatus>, Error> {
        let mut last = Instant::now();
        loop {
            if let Some(status) = child.try_wait().map_err(failed(results))? {
                return Ok(Some(status));
            }
            if progress.follow(&fs::read_to_string(results).map_err(failed(results))?) {
                last = Instant::now();
            }
            if last.elapsed() > LIMIT || interrupted() {
                stop(child);
                return Ok(None);
            }
            std::thread::sleep(NAP);
        }
    }
}

/// Ends a process: `softnic run` passes the signal on, and removes its folder.
fn stop(child: &mut Child) {
    let _ = Pid::from_raw(child.id() as i32).map(|pid| kill_process(pid, Signal::TERM));
    let begin = Instant::now();
    while let Ok(None) = child.try_wait() {
        if begin.elapsed() > GRACE {
            let _ = child.kill();
        }
        std::thread::sleep(NAP);
    }
}

/// The end of what was printed.
fn tail(text: &str) -> String {
    let lines: Vec<&str> = text.lines().collect();
    let shown = indented(&lines[lines.len().saturating_sub(SHOWN)..].join("\n"));
    if shown.is_empty() { shown } else { format!("; it printed:{shown}") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_test_that_began_and_did_not_end_has_failed_by_its_name() {
        let mut progress = Progress::default();
        assert!(progress.follow("{\"begin\": \"test_a.A.x\"}\n{\"end\": \"test_a.A.x\", \"resu"));
        assert_eq!(progress.rows.len(), 0, "half a line is none yet");
        let text = "{\"begin\": \"test_a.A.x\"}\n\
            {\"end\": \"test_a.A.x\", \"result\": \"passed\", \"why\": \"\", \"trace\": \"\"}\n\
            {\"begin\": \"test_a.A.y\"}\n";
        assert!(progress.follow(text));
        assert!(!progress.follow(text), "nothing is told twice");
        progress.give_up("the process ends with signal 11".into());
        let ends: Vec<_> = progress.rows.iter().map(|row| (&*row.test, row.verdict == TestVerdict::Passed)).collect();
        assert_eq!(ends, [("test_a.A.x", true), ("test_a.A.y", false)]);
    }

    #[test]
    fn the_reason_of_a_failure_comes_before_its_trace() {
        let line = "{\"end\": \"test_a.A.x\", \"result\": \"failed\", \"why\": \"Errno 22\", \"trace\": \"one\\ntwo\"}";
        let Some(RunnerLine::Ended { verdict: TestVerdict::Failed(why), .. }) = parse_line(line) else {
            panic!("not a failure")
        };
        assert_eq!(why, "Errno 22\n    one\n    two");
        assert_eq!(parse_line("what somebody printed"), None);
    }
}
