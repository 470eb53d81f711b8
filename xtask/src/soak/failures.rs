//! The file with the seeds that failed: written as they come, so that it is there however the soak ends.

use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};

use super::worker::one_line;

pub(super) struct Failures {
    path: PathBuf,
    file: File,
}

impl Failures {
    /// An empty file.
    pub(super) fn create(path: &Path, first: u64, end: u64) -> Result<Failures, String> {
        let path = path.to_path_buf();
        let made = path.parent().map_or(Ok(()), std::fs::create_dir_all).and_then(|()| File::create(&path));
        let mut failures = Failures { file: made.map_err(|e| format!("{}: {e}", path.display()))?, path };
        failures.line(&format!(
            "# soak of the seeds from {first} to {}: seed, what went wrong, how to run it again",
            end - 1
        ))?;
        Ok(failures)
    }

    pub(super) fn add(&mut self, seed: u64, why: &str) -> Result<(), String> {
        let test = match why.split(':').next() {
            Some("multicast") => "--lib multicast",
            Some("failover") => "--lib failover",
            _ => "--test swarm every_seed",
        };
        let again = format!("SOFTNIC_SEED={seed} cargo test --release -p softnic-swarm --features invariants {test}");
        self.line(&format!("{seed}\t{}\t{again}", one_line(why, usize::MAX)))
    }

    /// The last line.
    pub(super) fn end(&mut self, summary: &str) -> Result<(), String> {
        self.line(&format!("# {summary}"))
    }

    fn line(&mut self, line: &str) -> Result<(), String> {
        let written = writeln!(self.file, "{line}").and_then(|()| self.file.flush());
        written.map_err(|e| format!("{}: {e}", self.path.display()))
    }
}
