//! All processes of a run, by the folder of the run in their environment: also those that nobody waits for any more.

use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use super::isolation::{signal_thread, stack_signal};
use crate::plain::plain;

/// How long threads may take to write their stacks.
const PATIENCE: Duration = Duration::from_millis(500);

/// So often it is looked whether the launcher ends by itself.
const ROUNDS_OF_LAUNCHER: usize = 100;

/// A process of a run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Process {
    pub(super) pid: u32,
    /// Its command line.
    pub(super) command: String,
}

/// Those that run now; what has ended, and is waited for, is none.
pub(super) fn of_run(folder: &Path) -> Vec<Process> {
    let needle = [folder.as_os_str().as_bytes(), b"/"].concat();
    let numbers = fs::read_dir("/proc").into_iter().flatten().flatten();
    let pids = numbers.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
    let of_run = pids.filter(|pid| {
        let environment = fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
        *pid != std::process::id() && environment.windows(needle.len()).any(|window| window == needle)
    });
    let command = |pid: u32| {
        let words = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        let words = words.split(|byte| *byte == 0).map(|word| plain(&String::from_utf8_lossy(word)));
        words.collect::<Vec<_>>().join(" ").trim_end().to_owned()
    };
    of_run.map(|pid| Process { pid, command: command(pid) }).collect()
}

/// Ends all of them; the launcher of the rest at last, unless it ends by itself then, and cleans up.
pub(super) fn end(folder: &Path, launcher: u32) {
    // One that forks meanwhile is found in the next round.
    for round in 0..200 {
        let mut all = of_run(folder);
        if all.is_empty() {
            return;
        }
        if round < ROUNDS_OF_LAUNCHER {
            all.retain(|process| process.pid != launcher);
        }
        for process in all {
            let _ = kill(Pid::from_raw(process.pid as i32), Signal::SIGKILL);
        }
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Asks all threads of those that listen for it to write their stacks to `stacks`, and waits until they did.
pub(super) fn ask_for_stacks(all: &[Process], stacks: &Path) {
    let mut asked = 0;
    for process in all.iter().filter(|process| catches(process.pid, stack_signal())) {
        // A process that stands still writes nothing.
        let _ = kill(Pid::from_raw(process.pid as i32), Signal::SIGCONT);
        let threads = fs::read_dir(format!("/proc/{}/task", process.pid)).into_iter().flatten().flatten();
        for thread in threads.filter_map(|entry| entry.file_name().to_str()?.parse().ok()) {
            signal_thread(process.pid, thread, stack_signal());
            asked += 1;
        }
    }
    let begin = Instant::now();
    let lines = || {
        let files = fs::read_dir(stacks).into_iter().flatten().flatten();
        files
            .map(|file| fs::read(file.path()).unwrap_or_default().iter().filter(|b| **b == b'\n').count())
            .sum::<usize>()
    };
    while lines() < asked && begin.elapsed() < PATIENCE {
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// Whether a process has a handler for a signal.
fn catches(pid: u32, signal: i32) -> bool {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let mask = status.lines().find_map(|line| line.strip_prefix("SigCgt:"));
    let mask = mask.and_then(|hex| u64::from_str_radix(hex.trim(), 16).ok()).unwrap_or(0);
    mask >> (signal - 1) & 1 == 1
}

/// What a process waits for in the kernel, where that is told.
pub(super) fn waits_in(pid: u32) -> Option<String> {
    let text = fs::read_to_string(format!("/proc/{pid}/wchan")).ok()?;
    (!text.is_empty() && text != "0").then(|| plain(&text))
}

#[cfg(test)]
mod tests {
    use std::process::{Command, Stdio};

    use super::*;

    #[test]
    fn processes_are_found_by_their_environment_and_ended_with_their_children() {
        let folder = std::env::temp_dir().join(format!("softnic-explore-test-{}", std::process::id()));
        let mut command = Command::new("sh");
        command.args(["-c", "sleep 1000 & wait"]).env("FOLDER", folder.join("seen")).stdin(Stdio::null());
        let mut child = command.spawn().unwrap();
        // The child of the shell is a shell itself until it begins the other program.
        while !of_run(&folder).into_iter().any(|process| process.command == "sleep 1000") {
            std::thread::sleep(Duration::from_millis(1));
        }
        assert_eq!(of_run(&folder).len(), 2, "{:?}", of_run(&folder));
        assert_eq!(of_run(&folder.join("seen")), [], "another folder");
        assert!(!catches(child.id(), stack_signal()));
        end(&folder, 0);
        child.wait().unwrap();
        assert_eq!(of_run(&folder), []);
    }
}
