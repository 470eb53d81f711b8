//! Processes that run seeds (`swarm/examples/swarm_worker.rs`). A seed that panics takes its process with it, in the very build that
//! is shipped, which does not unwind: it counts as that seed's failure, and another process goes on behind it.

use std::io::{BufRead, BufReader, Read};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::PathBuf;
use std::process::{Child, Command, ExitStatus, Stdio};

use softnic_conformance::programs;

/// How a seed went: the messages that completed, or what went wrong.
pub(super) type Outcome = Result<u64, String>;

/// A program that runs seeds.
#[derive(Debug, Clone)]
pub(super) struct Worker {
    program: PathBuf,
    /// Arguments before the seeds.
    arguments: Vec<String>,
}

impl Worker {
    /// Builds it with optimisation and invariants, and with bugs that can be planted if asked for.
    pub(super) fn build(planted: bool) -> Result<Worker, String> {
        let features = if planted { "invariants,planted-bugs" } else { "invariants" };
        let words = [
            "build",
            "--release",
            "--locked",
            "-p",
            "softnic-swarm",
            "--example",
            "swarm_worker",
            "--features",
            features,
        ];
        let program = programs::build_one("swarm_worker", &words)?;
        Ok(Worker { program, arguments: Vec::new() })
    }

    /// Runs seeds in order and tells `each` how they went, until all have or it says `false`.
    pub(super) fn run(
        &self,
        first: u64,
        count: u64,
        bug: Option<&str>,
        mut each: impl FnMut(u64, Outcome) -> bool,
    ) -> Result<(), String> {
        let end = first + count;
        let mut next = first;
        while next < end {
            let mut process = self.start(next, end - next, bug)?;
            let mut lines = BufReader::new(process.stdout()?).lines();
            if !matches!(lines.next(), Some(Ok(line)) if line == "ready") {
                return Err(format!("{} does not start: {}", self.program.display(), process.last_words()));
            }
            while let Some((seed, outcome)) = lines.next().and_then(|line| parse(&line.ok()?)) {
                if seed != next {
                    return Err(format!("the swarm ran seed {seed} instead of {next}"));
                }
                next += 1;
                if !each(seed, outcome) {
                    return Ok(());
                }
            }
            if next < end {
                next += 1;
                if !each(next - 1, Err(process.last_words())) {
                    return Ok(());
                }
            }
        }
        Ok(())
    }

    fn start(&self, first: u64, count: u64, bug: Option<&str>) -> Result<Process, String> {
        let mut command = Command::new(&self.program);
        command.args(&self.arguments).args([first.to_string(), count.to_string()]).args(bug);
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).env("RUST_BACKTRACE", "0");
        // Ctrl-C is for us alone: a process that dies of it would look like a seed that failed.
        command.process_group(0);
        command.spawn().map(Process).map_err(|e| format!("{} cannot be started: {e}", self.program.display()))
    }

    /// A worker that is a script of the shell, for tests.
    #[cfg(test)]
    pub(super) fn script(script: &str) -> Worker {
        let script = format!("echo ready; {script}");
        Worker { program: "/bin/sh".into(), arguments: vec!["-c".into(), script, "worker".into()] }
    }
}

/// A process that is gone when nobody holds it any more.
struct Process(Child);

impl Drop for Process {
    fn drop(&mut self) {
        // It may be gone already, and that is as well.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

impl Process {
    fn stdout(&mut self) -> Result<impl Read + use<>, String> {
        self.0.stdout.take().ok_or_else(|| "no output to read".into())
    }

    /// What a process that ended said of it. Only to be called when it has closed its output.
    fn last_words(&mut self) -> String {
        let mut words = Vec::new();
        if let Some(mut stderr) = self.0.stderr.take() {
            let _ = stderr.read_to_end(&mut words);
        }
        let ended = self.0.wait().map_or_else(|e| e.to_string(), how_it_ended);
        match panic_message(&String::from_utf8_lossy(&words)) {
            message if message.is_empty() => ended,
            message => format!("{message} ({ended})"),
        }
    }
}

fn how_it_ended(status: ExitStatus) -> String {
    match (status.code(), status.signal()) {
        (Some(code), _) => format!("exit code {code}"),
        (None, Some(6)) => "panic".into(),
        (None, signal) => format!("signal {}", signal.unwrap_or(0)),
    }
}

/// `passed SEED MESSAGES` or `broken SEED WHAT`.
fn parse(line: &str) -> Option<(u64, Outcome)> {
    let mut words = line.splitn(3, ' ');
    let (verdict, seed, rest) = (words.next()?, words.next()?.parse().ok()?, words.next()?);
    match verdict {
        "passed" => Some((seed, Ok(rest.parse().ok()?))),
        "broken" => Some((seed, Err(rest.to_owned()))),
        _ => None,
    }
}

/// What a panic says, in one line and without the thread and the advice.
fn panic_message(stderr: &str) -> String {
    let from = stderr.find("panicked at ").map_or(0, |at| at + "panicked at ".len());
    let lines = stderr[from..].lines().map(str::trim).filter(|l| !l.is_empty() && !l.starts_with("note:"));
    lines.take(4).collect::<Vec<_>>().join(" ")
}

/// A line of at most so many characters.
pub(super) fn one_line(text: &str, most: usize) -> String {
    let flat = text.replace(['\n', '\t'], " ");
    match flat.char_indices().nth(most) {
        None => flat,
        Some((end, _)) => format!("{}…", &flat[..end]),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(script: &str, first: u64, count: u64) -> Result<Vec<(u64, Outcome)>, String> {
        let mut found = Vec::new();
        Worker::script(script).run(first, count, None, |seed, outcome| {
            found.push((seed, outcome));
            true
        })?;
        Ok(found)
    }

    #[test]
    fn a_seed_that_ends_its_process_fails_and_the_others_are_run() {
        let script = "s=$1; while [ $s -lt $(($1 + $2)) ]; do
            [ $s = 5 ] && { echo \"thread 'main' (7) panicked at a.rs:1:2:\nno room\nnote: run with\" >&2; kill -6 $$; }
            [ $s = 6 ] && echo broken 6 safety: lost || echo passed $s 10; s=$((s + 1)); done";
        let found = run(script, 4, 4).unwrap();
        assert_eq!(
            found,
            [(4, Ok(10)), (5, Err("a.rs:1:2: no room (panic)".into())), (6, Err("safety: lost".into())), (7, Ok(10))]
        );
    }

    #[test]
    fn a_program_that_is_no_swarm_is_an_error_and_no_failed_seed() {
        let worker = Worker { program: "/bin/false".into(), arguments: Vec::new() };
        let refused = worker.run(0, 10, None, |_, _| panic!("no seed was run")).unwrap_err();
        assert!(refused.contains("does not start"), "{refused}");
        assert!(run("echo passed 99 1", 0, 10).unwrap_err().contains("seed 99 instead of 0"));
    }

    #[test]
    fn lines_are_cut_at_characters() {
        assert_eq!((one_line("a\nb\tc", 9), one_line("äöü", 2)), ("a b c".into(), "äö…".into()));
    }
}
