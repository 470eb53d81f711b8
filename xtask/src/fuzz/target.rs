//! One fuzz target under libFuzzer: its inputs, its time, and what it says at its end.

use std::collections::BTreeSet;
use std::fs;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// A line of progress comes at most this often.
const LINE_EVERY: Duration = Duration::from_secs(30);
/// Lines of a target that failed which are shown.
const SHOWN: usize = 60;

/// A target's program and its folders.
pub(super) struct Target {
    pub(super) program: PathBuf,
    /// Where new inputs go.
    pub(super) found: PathBuf,
    /// Inputs of the repository, which a run does not change.
    pub(super) kept: PathBuf,
    /// Where inputs go that the target does not survive.
    pub(super) artifacts: PathBuf,
}

/// What a target did.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Ran {
    pub(super) executions: u64,
    pub(super) new_inputs: u64,
    /// Inputs that the target did not survive.
    pub(super) crashes: Vec<PathBuf>,
    pub(super) ended_well: bool,
}

impl Ran {
    pub(super) fn passed(&self) -> bool {
        self.ended_well && self.crashes.is_empty()
    }
}

impl Target {
    /// Runs it for this long, or until an input that it does not survive.
    pub(super) fn run(&self, limit: Duration) -> Result<Ran, String> {
        for folder in [&self.found, &self.artifacts] {
            fs::create_dir_all(folder).map_err(|e| format!("{}: {e}", folder.display()))?;
        }
        let before = files(&self.artifacts);
        let mut command = Command::new(&self.program);
        // New inputs go into the first folder.
        command.arg(&self.found).args(self.kept.is_dir().then_some(&self.kept));
        command.arg(format!("-max_total_time={}", limit.as_secs().max(1)));
        command.arg("-print_final_stats=1").arg(format!("-artifact_prefix={}/", self.artifacts.display()));
        let cannot = |e| format!("{}: {e}", self.program.display());
        let mut child = command.stdin(Stdio::null()).stderr(Stdio::piped()).spawn().map_err(cannot)?;
        let mut ran = Ran::default();
        let mut last = std::collections::VecDeque::with_capacity(SHOWN);
        let mut shown = Instant::now();
        // What it says need not be UTF-8: an input may be printed.
        let said = BufReader::new(child.stderr.take().expect("it was asked for")).split(b'\n');
        for line in said.map_while(Result::ok) {
            let line = String::from_utf8_lossy(&line).into_owned();
            ran.take(&line);
            if line.starts_with('#') && shown.elapsed() >= LINE_EVERY {
                shown = Instant::now();
                println!("{line}");
            }
            if last.len() == SHOWN {
                last.pop_front();
            }
            last.push_back(line);
        }
        ran.ended_well = child.wait().map_err(cannot)?.success();
        ran.crashes = files(&self.artifacts).difference(&before).cloned().collect();
        if !ran.passed() {
            last.iter().for_each(|line| println!("{line}"));
        }
        Ok(ran)
    }
}

impl Ran {
    /// A line of libFuzzer's: progress, or one of the counters at its end.
    fn take(&mut self, line: &str) {
        let number = |text: &str| text.trim().parse().ok();
        if let Some(executions) = line.strip_prefix("stat::number_of_executed_units:").and_then(number) {
            self.executions = executions;
        } else if let Some(new) = line.strip_prefix("stat::new_units_added:").and_then(number) {
            self.new_inputs = new;
        } else if let Some(executions) = line.strip_prefix('#').and_then(|rest| number(rest.split('\t').next()?)) {
            // One that is killed prints no counters.
            self.executions = executions;
        }
    }
}

fn files(folder: &Path) -> BTreeSet<PathBuf> {
    fs::read_dir(folder).into_iter().flatten().flatten().map(|entry| entry.path()).collect()
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    /// A target that is a script, with empty folders.
    fn script(name: &str, text: &str) -> (PathBuf, Target) {
        let folder = std::env::temp_dir().join(format!("softnic-fuzz-{name}-{}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        let program = folder.join("program");
        fs::write(&program, format!("#!/bin/sh\n{text}\n")).unwrap();
        fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).unwrap();
        let [found, kept, artifacts] = ["found", "kept", "artifacts"].map(|name| folder.join(name));
        (folder, Target { program, found, kept, artifacts })
    }

    #[test]
    fn what_libfuzzer_says_at_the_end_is_counted() {
        let text =
            r"printf '#200\tpulse\n#300\tDONE\nstat::number_of_executed_units: 345\nstat::new_units_added: 6\n' >&2";
        let (folder, target) = script("counts", text);
        let ran = target.run(Duration::from_secs(1)).unwrap();
        fs::remove_dir_all(folder).unwrap();
        assert_eq!(ran, Ran { executions: 345, new_inputs: 6, crashes: Vec::new(), ended_well: true });
        assert!(ran.passed());
    }

    #[test]
    fn an_input_that_is_not_survived_fails_and_is_named_and_an_older_one_is_not() {
        let (folder, target) =
            script("crash", r"printf '#17\tNEW\n' >&2; touch ${4#-artifact_prefix=}crash-2 && exit 77");
        fs::create_dir_all(&target.artifacts).unwrap();
        fs::write(target.artifacts.join("crash-1"), "").unwrap();
        let ran = target.run(Duration::from_secs(1)).unwrap();
        fs::remove_dir_all(folder).unwrap();
        assert_eq!(ran.crashes, [target.artifacts.join("crash-2")]);
        assert_eq!((ran.executions, ran.passed()), (17, false));
    }
}
