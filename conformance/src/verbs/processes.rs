//! All processes of a program, also those that it forked.
//!
//! The job processes of fio have sessions of their own and outlive a killed parent, so neither the process that was started nor its process group leads
//! to all of them. A variable does: children inherit the environment.

use std::fs;
use std::process::Command;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

/// The variable.
pub(super) const NAME: &str = "SN_VERBS_PROGRAM";
/// How long the kernel may take to end processes that were killed.
const LIMIT: Duration = Duration::from_secs(5);

/// What the processes of one program have in their environment.
#[derive(Debug)]
pub(super) struct Mark(String);

impl Mark {
    /// `value` must be that of no other program.
    pub(super) fn new(value: &str) -> Mark {
        Mark(value.into())
    }

    /// Has the process of a command, and all that it forks, carry the mark.
    pub(super) fn put_on(&self, command: &mut Command) {
        command.env(NAME, &self.0);
    }

    /// The processes that carry the mark; not those that have ended and are not waited for yet, which have no environment.
    fn processes(&self) -> Vec<Pid> {
        let mark = format!("{NAME}={}", self.0);
        let is_ours = |pid: i32| {
            let environment = fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
            environment.split(|&byte| byte == 0).any(|variable| variable == mark.as_bytes())
        };
        let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
        let pids = entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
        pids.filter(|&pid| is_ours(pid)).filter_map(Pid::from_raw).collect()
    }

    /// Kills all processes that carry the mark, but for one.
    pub(super) fn kill_others(&self, spared: Option<Pid>) {
        for pid in self.processes().into_iter().filter(|&pid| Some(pid) != spared) {
            let _ = kill_process(pid, Signal::KILL);
        }
    }

    /// Kills all processes that carry the mark, and waits until they have ended.
    pub(super) fn end_all(&self) {
        let begin = Instant::now();
        while !self.processes().is_empty() && begin.elapsed() < LIMIT {
            self.kill_others(None);
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}

#[cfg(test)]
mod tests {
    use std::process::Stdio;

    use super::*;

    #[test]
    fn a_child_with_a_session_of_its_own_is_ended_with_its_program() {
        let mark = Mark::new(&format!("test {}", std::process::id()));
        let mut command = Command::new("sh");
        // It ends when its child is the other program: in between a process has no environment for a moment.
        let script = "setsid sleep 60 & until grep -q sleep /proc/$!/comm; do :; done";
        command.args(["-c", script]).stdout(Stdio::null()).stderr(Stdio::null());
        mark.put_on(&mut command);
        let ended = command.status().expect("a shell");
        assert!(ended.success() && mark.processes().len() == 1, "the shell has ended, its child has not");
        mark.end_all();
        assert_eq!(mark.processes(), []);
    }
}
