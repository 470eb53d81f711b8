//! One run of the TEST: started, watched until it ends or its time is up, and looked at.

use std::ffi::{OsStr, OsString};
use std::fs::{self, DirBuilder, File};
use std::io::{self, Read};
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use softnic_check::Severity;
use softnic_explore::judge::{Facts, Finding, Judge, calls, told_crash};
use softnic_explore::record;

use super::isolation::isolate;
use super::processes::{self, Process, ask_for_stacks};
use super::stacks;
use crate::check::findings::Findings;
use crate::run::folder::Scratch;

/// More of an output is not looked at.
const MOST_OUTPUT: u64 = 16 << 20;
/// How often a run is looked at while it goes on.
const TICK: Duration = Duration::from_millis(5);

/// What every run is made with.
pub(super) struct Bench {
    /// This program.
    pub(super) softnic: PathBuf,
    pub(super) test: Vec<OsString>,
    pub(super) devices: Vec<String>,
    /// Options of `softnic run` beside devices.
    pub(super) options: Vec<String>,
    pub(super) own_network: bool,
    pub(super) checks: bool,
    pub(super) judge: JudgeBy,
    pub(super) scratch: Scratch,
    pub(super) interrupted: Arc<AtomicBool>,
    pub(super) count: AtomicUsize,
}

/// Who says what is wrong.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum JudgeBy {
    Usual,
    Exit,
    Command(String),
}

/// What a run is to be.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Order<'a> {
    pub(super) script: Option<&'a str>,
    /// The name of its faults, for the user's judge, and whether they are mended.
    pub(super) fault: &'a str,
    pub(super) is_recoverable: bool,
    /// With captures and traces.
    pub(super) is_recorded: bool,
    pub(super) limit: Duration,
    /// For so long after the TEST's end processes that it leaves are waited for; without it until the time is up.
    pub(super) patience: Option<Duration>,
}

/// A run that is over. Its folder goes with it.
pub(super) struct Run {
    pub(super) folder: RunFolder,
    pub(super) facts: Facts,
    pub(super) files: Vec<record::File>,
    pub(super) took: Duration,
    pub(super) by: Judge,
}

/// A folder that is removed when it is dropped.
pub(super) struct RunFolder(pub(super) PathBuf);

impl Drop for RunFolder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// Names in the folder of a run.
pub(super) const SCRIPT: &str = "script.toml";
pub(super) const STDOUT: &str = "stdout";
pub(super) const STDERR: &str = "stderr";
pub(super) const STACKS: &str = "stacks.txt";
pub(super) const FINDINGS: &str = "check";
pub(super) const PCAP: &str = "pcap";
pub(super) const TRACE: &str = "trace";

/// What the library must not be told by those who started us.
const OURS: [&str; 9] = [
    "SOFTNIC_DEV",
    "SOFTNIC_FAULT",
    "SOFTNIC_PCAP",
    "SOFTNIC_TRACE",
    "SOFTNIC_SEEN",
    "SOFTNIC_STACKS",
    "SOFTNIC_CHECK",
    "SOFTNIC_FILES",
    "SOFTNIC_COUNTERS",
];

impl Bench {
    /// Runs the TEST once; `None` when it was interrupted.
    pub(super) fn run(&self, order: Order<'_>) -> Result<Option<Run>, String> {
        let number = self.count.fetch_add(1, Ordering::Relaxed);
        let folder = RunFolder(self.scratch.path().join(number.to_string()));
        self.prepare(&folder.0, order)
            .map_err(|e| format!("cannot write to {}: {e}", self.scratch.path().display()))?;
        let mut command = self.command(&folder.0, order)?;
        let begin = Instant::now();
        let mut child = command.spawn().map_err(|e| format!("cannot start {}: {e}", self.softnic.display()))?;
        let mut exit = None;
        let mut left = Vec::new();
        let mut ended: Option<Instant> = None;
        while exit.is_none() || !left.is_empty() {
            if self.interrupted.load(Ordering::Relaxed) {
                processes::end(&folder.0, child.id());
                let _ = child.wait();
                return Ok(None);
            }
            if exit.is_none() {
                exit = child.try_wait().map_err(|e| format!("cannot wait for the TEST: {e}"))?;
                ended = exit.map(|_| Instant::now());
            }
            if let Some(at) = ended {
                left = processes::of_run(&folder.0);
                if order.patience.is_some_and(|patience| at.elapsed() > patience) {
                    break;
                }
            }
            if begin.elapsed() > order.limit {
                break;
            }
            if exit.is_none() || !left.is_empty() {
                std::thread::sleep(TICK);
            }
        }
        let took = ended.map_or(begin.elapsed(), |at| at.duration_since(begin));
        if exit.is_none() || (!left.is_empty() && order.patience.is_none()) {
            self.note_stacks(&folder.0);
        }
        processes::end(&folder.0, child.id());
        let status = child.wait().map_err(|e| format!("cannot wait for the TEST: {e}"))?;
        let exit = exit.map(|_| status.code().unwrap_or(-1));
        self.look(folder, order, exit, left.len(), took).map(Some)
    }

    fn prepare(&self, folder: &Path, order: Order<'_>) -> io::Result<()> {
        let made = ["seen", "stacks", "net"].into_iter().chain(self.checks.then_some(FINDINGS));
        let recorded = order.is_recorded.then_some([PCAP, TRACE]).into_iter().flatten();
        // Whoever could write into a network could have programs run what he likes.
        let create = |path: &Path| DirBuilder::new().mode(0o700).create(path);
        create(folder)?;
        made.chain(recorded).try_for_each(|name| create(&folder.join(name)))?;
        order.script.map_or(Ok(()), |script| fs::write(folder.join(SCRIPT), script))
    }

    fn command(&self, folder: &Path, order: Order<'_>) -> Result<Command, String> {
        let create = |name: &str| {
            let path = folder.join(name);
            File::create(&path).map_err(|e| format!("cannot write {}: {e}", path.display()))
        };
        let mut command = Command::new(&self.softnic);
        OURS.iter().for_each(|name| _ = command.env_remove(name));
        command.arg("run").args(&self.options);
        for device in &self.devices {
            command.arg("--dev").arg(here(device, folder));
        }
        if order.script.is_some() {
            command.arg("--fault").arg(with_at(&folder.join(SCRIPT)));
        }
        if order.is_recorded {
            command.arg("--pcap").arg(folder.join(PCAP)).arg("--trace").arg(folder.join(TRACE));
        }
        if self.checks {
            command.env("SOFTNIC_CHECK", folder.join(FINDINGS));
        }
        command.env("SOFTNIC_SEEN", folder.join("seen")).env("SOFTNIC_STACKS", folder.join("stacks"));
        command.arg("--").args(&self.test).stdin(Stdio::null());
        command.stdout(create(STDOUT)?).stderr(create(STDERR)?);
        isolate(&mut command, self.own_network);
        Ok(command)
    }

    /// What every thread waits for, as far as it can be told.
    fn note_stacks(&self, folder: &Path) {
        // `softnic run` itself waits for the program, and that is all.
        let ours = self.softnic.display().to_string();
        let mut all: Vec<Process> = processes::of_run(folder);
        all.retain(|process| !process.command.starts_with(&ours));
        let waits: Vec<Option<String>> = all.iter().map(|process| processes::waits_in(process.pid)).collect();
        ask_for_stacks(&all, &folder.join("stacks"));
        // Where the disk is full, there are none.
        let _ = fs::write(folder.join(STACKS), stacks::text(&all, &waits, &folder.join("stacks")));
    }

    fn look(
        &self,
        folder: RunFolder,
        order: Order<'_>,
        exit: Option<i32>,
        left: usize,
        took: Duration,
    ) -> Result<Run, String> {
        let failed = |what: &str| {
            let what = what.to_owned();
            move |e: io::Error| format!("cannot read {what} of a run: {e}")
        };
        let text = |name: &str| {
            let mut bytes = Vec::new();
            let file = File::open(folder.0.join(name))?;
            file.take(MOST_OUTPUT).read_to_end(&mut bytes)?;
            Ok(String::from_utf8_lossy(&bytes).into_owned())
        };
        let (stdout, stderr) = (text(STDOUT).map_err(failed("stdout"))?, text(STDERR).map_err(failed("stderr"))?);
        let files = seen(&folder.0.join("seen")).map_err(failed("what was seen"))?;
        let mut facts = Facts { exit, left, stdout, met: true, ..Facts::default() };
        facts.crashed = told_crash(&stderr).map(crate::plain::plain);
        facts.calls = calls(&files);
        if self.checks {
            let findings = Findings::read_unnamed(&folder.0.join(FINDINGS)).map_err(failed("findings"))?;
            let worth = findings.all.iter().filter(|finding| finding.severity != Severity::Note);
            let finding = |finding: &crate::check::findings::Finding| Finding {
                is_error: finding.severity == Severity::Error,
                what: finding.kind_and_place(),
            };
            facts.findings = worth.map(finding).collect();
        }
        let by = match &self.judge {
            JudgeBy::Usual => Judge::Usual,
            JudgeBy::Exit => Judge::Exit,
            JudgeBy::Command(command) => Judge::Command(ask(command, &folder.0, order, exit)?),
        };
        Ok(Run { folder, facts, files, took, by })
    }
}

/// What the user's judge says: whether all is well.
fn ask(command: &str, folder: &Path, order: Order<'_>, exit: Option<i32>) -> Result<bool, String> {
    let exit = exit.map_or("none".into(), |exit| exit.to_string());
    let sort = if order.is_recoverable { "recoverable" } else { "told" };
    let status = Command::new("sh")
        .args(["-c", command])
        .env("SOFTNIC_EXPLORE_EXIT", exit)
        .env("SOFTNIC_EXPLORE_STDOUT", folder.join(STDOUT))
        .env("SOFTNIC_EXPLORE_STDERR", folder.join(STDERR))
        .env("SOFTNIC_EXPLORE_FOLDER", folder)
        .env("SOFTNIC_EXPLORE_FAULT", order.fault)
        .env("SOFTNIC_EXPLORE_SORT", sort)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .status();
    status.map(|status| status.success()).map_err(|e| format!("--judge: cannot run sh: {e}"))
}

/// A network in memory is each run's own.
fn here(device: &str, folder: &Path) -> OsString {
    match device.strip_prefix("shm") {
        Some("") => with("shm:", &folder.join("net")),
        Some(name) => {
            let name: String = name.chars().filter(char::is_ascii_alphanumeric).collect();
            with("shm:", &folder.join("net").join(name))
        }
        None => device.into(),
    }
}

/// Whether a device is a network of this host's memory, which needs nothing of a real one.
pub(super) fn is_in_memory(device: &str) -> bool {
    device == "mem" || device == "shm" || device.starts_with("shm:")
}

fn with(prefix: &str, path: &Path) -> OsString {
    let mut text = OsString::from(prefix);
    text.push(path.as_os_str());
    text
}

fn with_at(path: &Path) -> OsString {
    with("@", path)
}

/// What all processes were seen to do.
fn seen(folder: &Path) -> io::Result<Vec<record::File>> {
    let mut all = Vec::new();
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        if path.extension() == Some(OsStr::new("seen")) {
            all.extend(read_seen(&path)?);
        }
    }
    Ok(all)
}

/// A file has room for far more than most processes do.
fn read_seen(path: &Path) -> io::Result<Option<record::File>> {
    let mut file = File::open(path)?;
    let mut bytes = vec![0; record::HEADER];
    if file.read_exact(&mut bytes).is_err() {
        return Ok(None);
    }
    let count = u64::from_ne_bytes(bytes[record::COUNT_AT..][..8].try_into().unwrap_or_default());
    let kept = count.min(record::MOST as u64) * record::RECORD as u64;
    file.take(kept).read_to_end(&mut bytes)?;
    Ok(record::read(&bytes))
}
