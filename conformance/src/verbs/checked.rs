//! C programs with a mistake that is planted: `softnic check` finds it by its kind and place, and nothing in the program without it.

use std::path::Path;
use std::process::{Command, ExitStatus};

use serde_json::Value;

use super::Bench;
use crate::guest::Error;

/// The exit code of a program that succeeds, and has findings that are errors.
const FOUND: i32 = 121;

/// Runs a program twice: with its mistake, and mended.
pub(super) fn run(
    kind: &str,
    program: &Path,
    bench: &Bench,
    mut execute: impl FnMut(Command) -> Result<(ExitStatus, String), Error>,
) -> Result<(), Error> {
    for is_mended in [false, true] {
        let mut command = Command::new(&bench.softnic);
        command.args(["check", "--json", "--dev", "mem", "--"]).arg(program).args(is_mended.then_some("mended"));
        let (status, text) = execute(command)?;
        let judged = report(&text).and_then(|report| match is_mended {
            false => with_mistake(kind, &report, status.code()),
            true => mended(&report, status.code()),
        });
        let which = if is_mended { "mended" } else { "with its mistake" };
        judged.map_err(|why| Error::Failed(format!("{which}: {why}; it printed:\n{text}")))?;
    }
    Ok(())
}

/// The last line of JSON.
fn report(text: &str) -> Result<Value, String> {
    let lines = text.lines().rev().filter_map(|line| serde_json::from_str::<Value>(line).ok());
    lines.into_iter().find(|line| line["findings"].is_array()).ok_or_else(|| "there is no report".into())
}

fn findings(report: &Value) -> impl Iterator<Item = &Value> {
    report["findings"].as_array().into_iter().flatten()
}

fn with_mistake(kind: &str, report: &Value, code: Option<i32>) -> Result<(), String> {
    let found: Vec<&Value> = findings(report).filter(|finding| finding["kind"] == kind).collect();
    let [finding] = found[..] else { return Err(format!("{kind} is found {} times", found.len())) };
    let calls = ["stack", "made"].into_iter().flat_map(|stack| finding[stack].as_array().into_iter().flatten());
    let names: Vec<&str> = calls.filter_map(|call| call["function"].as_str()).collect();
    if !names.contains(&"main") {
        return Err(format!("its stacks do not come to main: {names:?}"));
    }
    // What else is found follows from it.
    let others = findings(report).filter(|other| other["kind"] != kind && other["severity"] != "note");
    if let Some(other) = others.into_iter().next() {
        return Err(format!("{} is found, too", other["kind"]));
    }
    let must = if finding["severity"] == "error" { FOUND } else { 0 };
    if code == Some(must) { Ok(()) } else { Err(format!("the exit code is {code:?}, not {must}")) }
}

fn mended(report: &Value, code: Option<i32>) -> Result<(), String> {
    match findings(report).next() {
        Some(finding) => Err(format!("{} is found", finding["kind"])),
        None if code == Some(0) => Ok(()),
        None => Err(format!("the exit code is {code:?}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(severity: &str, function: &str) -> Value {
        let text = format!(
            "started\n{{\"findings\":[{{\"kind\":\"leak\",\"severity\":\"{severity}\",\"stack\":[{{\"function\":\"{function}\"}}],\"made\":[]}}]}}\n"
        );
        report(&text).unwrap()
    }

    #[test]
    fn a_mistake_is_found_once_with_its_place_and_exit_code() {
        assert_eq!(with_mistake("leak", &of("error", "main"), Some(FOUND)), Ok(()));
        assert_eq!(with_mistake("leak", &of("warning", "main"), Some(0)), Ok(()));
        assert!(with_mistake("leak", &of("error", "main"), Some(0)).is_err());
        assert!(with_mistake("leak", &of("error", "??"), Some(FOUND)).is_err());
        assert!(with_mistake("stale-rkey", &of("error", "main"), Some(FOUND)).is_err());
    }

    #[test]
    fn what_is_mended_has_no_findings_at_all() {
        assert!(mended(&of("note", "main"), Some(0)).is_err());
        let none = report("{\"findings\":[]}").unwrap();
        assert_eq!(mended(&none, Some(0)), Ok(()));
        assert!(mended(&none, Some(1)).is_err());
        assert!(report("no JSON").is_err());
    }
}
