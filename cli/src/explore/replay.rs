//! `--replay`: a failure that was kept, once more.

use std::fs;
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde_json::{Value, json};
use softnic_explore::expected::{baseline_of, sort_of};
use softnic_explore::journal::Settings;
use softnic_explore::judge::{Baseline, Outcome, Sort, judge, was_told};

use super::bench::{Order, SCRIPT, STDERR};
use super::results::{ABOUT, FAILURES};
use super::{Args, FAILURES_FOUND, INTERRUPTED, bench};
use crate::Common;
use crate::plain::plain;

/// When the TEST always leaves processes, they are given so long.
const LEAVING: Duration = Duration::from_millis(300);

/// A failure as it was kept.
struct Kept {
    folder: PathBuf,
    fault: String,
    outcome: Outcome,
    sort: Sort,
    baseline: Baseline,
    settings: Settings,
    script: String,
    limit: Duration,
    may_leave: bool,
}

/// Runs one failure again, or all of a folder of results.
pub(super) fn run(folder: &Path, args: &Args, common: &Common) -> Result<u8, String> {
    let mut all = Vec::new();
    let failures = folder.join(FAILURES);
    if folder.join(ABOUT).exists() {
        all.push(Kept::read(folder)?);
    } else if failures.is_dir() {
        let entries =
            fs::read_dir(&failures).map_err(|e| format!("--replay: cannot read {}: {e}", failures.display()))?;
        let mut folders: Vec<(u64, PathBuf)> =
            entries.flatten().filter_map(|e| Some((e.file_name().to_str()?.parse().ok()?, e.path()))).collect();
        folders.sort();
        // One that was cut off before it was whole is left out.
        let whole = folders.iter().filter(|(_, folder)| folder.join(ABOUT).exists());
        all = whole.map(|(_, folder)| Kept::read(folder)).collect::<Result<_, _>>()?;
    }
    if all.is_empty() {
        return Err(format!("--replay: there is no failure in {}", folder.display()));
    }
    let mut again = Vec::new();
    for kept in &all {
        let Some((outcome, why)) = kept.again(args)? else { return Ok(INTERRUPTED) };
        let verdict = match (outcome == kept.outcome, outcome.fails()) {
            (true, _) => "it fails as before",
            (false, true) => "it fails otherwise",
            (false, false) => "it does not fail any more",
        };
        if !common.json {
            let why = why.as_deref().map_or(String::new(), |why| format!(": {why}"));
            let name = outcome.name();
            // Nobody may be there to read it.
            let _ = writeln!(io::stdout(), "{}\n  {verdict}: {name}{why}\n  {}", kept.fault, kept.folder.display());
        }
        again.push(json!({
            "fault": kept.fault, "folder": kept.folder, "before": kept.outcome.name(), "outcome": outcome.name(), "why": why,
            "fails": outcome.fails()
        }));
    }
    if common.json {
        let _ = writeln!(io::stdout(), "{}", json!({ "replayed": again }));
    }
    Ok(if again.iter().any(|entry| entry["fails"] == true) { FAILURES_FOUND } else { 0 })
}

impl Kept {
    fn read(folder: &Path) -> Result<Kept, String> {
        let path = folder.join(ABOUT);
        let text = fs::read_to_string(&path).map_err(|e| format!("--replay: cannot read {}: {e}", path.display()))?;
        let script = fs::read_to_string(folder.join(SCRIPT))
            .map_err(|e| format!("--replay: cannot read {}: {e}", folder.join(SCRIPT).display()))?;
        let parsed = || {
            let value: Value = serde_json::from_str(&text).ok()?;
            Some(Kept {
                folder: folder.to_owned(),
                fault: plain(value["fault"].as_str()?),
                outcome: Outcome::named(value["outcome"].as_str()?)?,
                sort: sort_of(&value["sort"])?,
                baseline: baseline_of(&value["expected"])?,
                settings: Settings::parse(value["settings"].as_str()?)?,
                script,
                limit: Duration::from_millis(value["limit_ms"].as_u64()?),
                may_leave: value["may_leave"].as_bool()?,
            })
        };
        parsed()
            .filter(|kept| !kept.settings.test.is_empty())
            .ok_or_else(|| format!("--replay: {} is none of softnic explore", path.display()))
    }

    /// `None` when it was interrupted.
    fn again(&self, args: &Args) -> Result<Option<(Outcome, Option<String>)>, String> {
        let home = &self.settings.folder;
        std::env::set_current_dir(home).map_err(|e| format!("--replay: the TEST ran in {home}: {e}"))?;
        let (bench, _) = bench(args, &self.settings)?;
        let order = Order {
            script: Some(&self.script),
            fault: &self.fault,
            is_recoverable: self.sort.is_recoverable,
            is_recorded: false,
            limit: self.limit,
            patience: self.may_leave.then_some(LEAVING),
        };
        let Some(run) = bench.run(order)? else { return Ok(None) };
        let mut facts = run.facts.clone();
        facts.was_told = was_told(self.sort, &run.files);
        if self.may_leave {
            facts.left = 0;
        }
        // Which thing the fault is for says the script alone; the library says what was for nothing.
        let stderr = fs::read_to_string(run.folder.0.join(STDERR)).unwrap_or_default();
        facts.met = !stderr.lines().any(|line| line.contains(" of the script was for no "));
        Ok(Some(judge(&self.baseline, self.sort, &facts, run.by)))
    }
}
