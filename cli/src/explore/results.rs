//! The folder of results: a journal with a line for each run, and a folder for each failure.

use std::ffi::OsStr;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use serde_json::json;
use softnic_explore::expected;
use softnic_explore::journal::{Entry, Journal, Settings};
use softnic_explore::judge::{Baseline, Sort};

use super::bench::{FINDINGS, PCAP, Run, SCRIPT, STACKS, STDERR, STDOUT, TRACE};
use crate::check::findings::Findings;
use crate::check::symbols::Symbols;
use crate::check::text;

/// Names in the folder.
const JOURNAL: &str = "explore.jsonl";
pub(super) const FAILURES: &str = "failures";
pub(super) const ABOUT: &str = "failure.json";

/// A folder that is written to.
pub(super) struct Results {
    folder: PathBuf,
    journal: File,
    next_failure: usize,
}

/// A failure that is kept.
pub(super) struct Failure<'a> {
    pub(super) entry: &'a Entry,
    pub(super) sort: Sort,
    pub(super) settings: &'a Settings,
    pub(super) baseline: &'a Baseline,
    pub(super) limit_ms: u64,
    pub(super) may_leave: bool,
}

impl Results {
    /// A new folder.
    pub(super) fn create(folder: &Path, settings: &Settings) -> Result<Results, String> {
        make(folder)?;
        let path = folder.join(JOURNAL);
        let mut journal = File::create_new(&path).map_err(|e| match e.kind() {
            io::ErrorKind::AlreadyExists => taken(folder),
            _ => cannot_write(&path, &e),
        })?;
        writeln!(journal, "{}", settings.line()).map_err(|e| cannot_write(&path, &e))?;
        Ok(Results { folder: folder.to_owned(), journal, next_failure: 1 })
    }

    /// Whether a new one can be made.
    pub(super) fn check_new(folder: &Path) -> Result<(), String> {
        match fs::read_dir(folder) {
            Ok(mut entries) => match entries.next() {
                None => Ok(()),
                Some(_) => Err(taken(folder)),
            },
            // Whether it can be made is known before anything runs; it is there when there is something for it.
            Err(e) if e.kind() == io::ErrorKind::NotFound => {
                make(folder)?;
                fs::remove_dir(folder).map_err(|e| format!("cannot write {}: {e}", folder.display()))
            }
            Err(e) => Err(format!("cannot write {}: {e}", folder.display())),
        }
    }

    /// One that is there, and what it has.
    pub(super) fn resume(folder: &Path, settings: &Settings) -> Result<(Results, Journal), String> {
        let path = folder.join(JOURNAL);
        let read = fs::read_to_string(&path);
        let text = read.map_err(|e| format!("--resume: cannot read {}: {e}", path.display()))?;
        let journal = Journal::parse(&text)
            .ok_or_else(|| format!("--resume: {} is no journal of softnic explore", path.display()))?;
        let before = &journal.settings;
        if before.test != settings.test || before.folder != settings.folder {
            return Err(format!(
                "--resume: {} is of another TEST: {}, in {}",
                folder.display(),
                before.test.join(" "),
                before.folder
            ));
        }
        let differs = settings.options.iter().find(|option| !before.options.contains(option));
        if let Some((name, _)) = differs.or(before.options.iter().find(|option| !settings.options.contains(option))) {
            return Err(format!(
                "--resume: {name} is not as it was in {}: runs could not be compared",
                folder.display()
            ));
        }
        let mut file = OpenOptions::new().append(true).open(&path).map_err(|e| cannot_write(&path, &e))?;
        // A line that was cut off ends here.
        if !text.ends_with('\n') {
            writeln!(file).map_err(|e| cannot_write(&path, &e))?;
        }
        let results = Results { folder: folder.to_owned(), journal: file, next_failure: journal.next_failure() };
        Ok((results, journal))
    }

    /// A line more. What is written is kept, however this process ends.
    pub(super) fn append(&mut self, entry: &Entry) -> Result<(), String> {
        let line = format!("{}\n", entry.json());
        self.journal.write_all(line.as_bytes()).map_err(|e| cannot_write(&self.folder.join(JOURNAL), &e))
    }

    /// The number of the next failure.
    pub(super) fn number(&mut self) -> usize {
        self.next_failure += 1;
        self.next_failure - 1
    }
}

fn make(folder: &Path) -> Result<(), String> {
    fs::create_dir_all(folder).map_err(|e| format!("cannot write {}: {e}", folder.display()))
}

fn taken(folder: &Path) -> String {
    format!("{} is there already: choose another --out, or go on with it by --resume", folder.display())
}

fn cannot_write(path: &Path, e: &io::Error) -> String {
    format!("cannot write {}: {e}; what is there stays, and --resume goes on with it", path.display())
}

/// Keeps a failure: what the run left, with `recorded` the captures and traces of another.
pub(super) fn keep(
    to: &Path,
    run: &Run,
    recorded: Option<&Run>,
    failure: &Failure<'_>,
    softnic: &Path,
) -> Result<(), String> {
    write_failure(to, run, recorded, failure, softnic).map_err(|e| cannot_write(to, &e))
}

fn write_failure(
    to: &Path,
    run: &Run,
    recorded: Option<&Run>,
    failure: &Failure<'_>,
    softnic: &Path,
) -> io::Result<()> {
    fs::create_dir_all(to)?;
    let from = &run.folder.0;
    for name in [SCRIPT, STDOUT, STDERR, STACKS] {
        match fs::copy(from.join(name), to.join(name)) {
            Err(e) if e.kind() != io::ErrorKind::NotFound => return Err(e),
            _ => {}
        }
    }
    if let Ok(findings) = Findings::read(&from.join(FINDINGS), &mut Symbols::default()) {
        fs::write(to.join("check.json"), format!("{:#}\n", findings.json()))?;
        fs::write(to.join("check.txt"), text::of(&findings, 0))?;
    }
    let mut captures = Vec::new();
    for folder in recorded.into_iter().flat_map(|run| [run.folder.0.join(PCAP), run.folder.0.join(TRACE)]) {
        for entry in fs::read_dir(&folder).into_iter().flatten().flatten() {
            fs::copy(entry.path(), to.join(entry.file_name()))?;
            captures.push(entry.file_name());
        }
    }
    captures.sort();
    if !captures.is_empty() {
        report(to, &captures, softnic);
    }
    fs::write(to.join("command"), format!("{}\n", command(to, failure)))?;
    let Failure { entry, sort, settings, baseline, limit_ms, may_leave } = failure;
    let about = json!({
        "softnic_explore_failure": 1, "fault": entry.fault, "outcome": entry.outcome.name(), "why": entry.why,
        "times": entry.times.map(|(failed, of)| [failed, of]), "sort": expected::json_of_sort(*sort),
        "expected": expected::json_of(baseline), "settings": settings.line(), "limit_ms": limit_ms, "may_leave": may_leave
    });
    fs::write(to.join(ABOUT), format!("{about:#}\n"))?;
    fs::write(to.join("README"), readme(to, failure, !captures.is_empty()))
}

/// A page of captures and traces; without it they are there all the same.
fn report(to: &Path, captures: &[std::ffi::OsString], softnic: &Path) {
    let mut command = Command::new(softnic);
    command.arg("report").args(captures).args(["-o", "report.html", "--packets", "100000"]).current_dir(to);
    let _ = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).status();
}

/// What shows the failure without this command.
fn command(to: &Path, failure: &Failure<'_>) -> String {
    let script = std::path::absolute(to.join(SCRIPT)).unwrap_or_else(|_| to.join(SCRIPT));
    let mut words =
        vec!["cd".to_owned(), quoted(&failure.settings.folder), "&&".into(), "softnic".into(), "run".into()];
    for (name, value) in &failure.settings.options {
        if ["--dev", "--transport", "--cc", "--seed"].contains(&name.as_str()) {
            words.extend([name.clone(), quoted(value)]);
        }
    }
    words.extend(["--fault".into(), quoted(&format!("@{}", script.display())), "--".into()]);
    words.extend(failure.settings.test.iter().map(|word| quoted(word)));
    words.join(" ")
}

/// A word as a shell takes it.
pub(super) fn quoted(word: &str) -> String {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "-_./=:,@%+".contains(c);
    match !word.is_empty() && word.chars().all(is_plain) {
        true => word.into(),
        false => format!("'{}'", word.replace('\'', "'\\''")),
    }
}

fn readme(to: &Path, failure: &Failure<'_>, has_captures: bool) -> String {
    let Failure { entry, .. } = failure;
    let times = entry.times.map_or(String::new(), |(failed, of)| format!(", {failed} of {of} times"));
    let mut out =
        format!("{}\n{}{times}: {}\n\n", entry.fault, entry.outcome.name(), entry.why.as_deref().unwrap_or("-"));
    let exists = |name: &str| to.join(name).exists();
    out += &format!("Again, judged:       softnic explore --replay {}\n", quoted(&to.display().to_string()));
    out += &format!("Again, by hand:      {}\n\n", command(to, failure));
    let mut about = |name: &str, what: &str| {
        if exists(name) {
            out += &format!("{name:<20} {what}\n");
        }
    };
    about(SCRIPT, "the fault, for --fault @FILE");
    about(STDOUT, "what the TEST printed");
    about(STDERR, "the same on stderr");
    about(STACKS, "what every thread was doing when the time was up");
    about("check.txt", "what softnic check found, also without faults");
    if has_captures {
        out += "*.pcap, *.qlog       captures and traces of each process and device\n";
        out += "report.html          the same as a page\n";
    }
    out
}

/// Text of a word that may be no UTF-8: such a TEST cannot be kept in a journal.
pub(super) fn word(word: &OsStr) -> Result<String, String> {
    let text = std::str::from_utf8(word.as_bytes()).map(str::to_owned);
    text.map_err(|_| format!("`{}` is not UTF-8, and could not be kept", word.to_string_lossy()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_quoted_for_a_shell_where_they_must_be() {
        assert_eq!(quoted("--dev=shm:a/b"), "--dev=shm:a/b");
        assert_eq!(quoted("a b"), "'a b'");
        assert_eq!(quoted("it's"), "'it'\\''s'");
        assert_eq!(quoted(""), "''");
    }
}
