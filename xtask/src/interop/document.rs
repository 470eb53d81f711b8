//! The table of results in docs/interop.md: whatever stands between two marks is replaced.

use std::fs;

use super::report::Report;
use crate::project;

const FILE: &str = "docs/interop.md";
const BEGIN: &str = "<!-- made by `cargo xtask interop --all --write-docs`: do not edit -->\n";
const END: &str = "<!-- end of what is made -->\n";

/// Puts the report into the document.
pub(super) fn write(report: &Report) -> Result<(), String> {
    let path = project::root().join(FILE);
    let text = fs::read_to_string(&path).map_err(|e| format!("{FILE}: {e}"))?;
    let text = replace(&text, BEGIN, END, &section(report)).ok_or_else(|| format!("{FILE} has lost its marks"))?;
    fs::write(&path, text).map_err(|e| format!("{FILE}: {e}"))
}

fn section(report: &Report) -> String {
    let Report { kernel, wire, .. } = report;
    let (all, failed) = (report.len(), report.failed());
    let failures: String = report.failures().map(|f| format!("\nFailed: {f}\n")).collect();
    format!(
        "Guest: Linux {kernel}. Wire: {wire}. {all} scenarios: {} passed, {failed} failed.\n\n{}{failures}",
        all - failed,
        report.markdown(),
    )
}

/// `text` with `middle` between the two marks; `None` where they are missing.
pub(super) fn replace(text: &str, begin: &str, end: &str, middle: &str) -> Option<String> {
    let (before, rest) = text.split_once(begin)?;
    let (_, after) = rest.split_once(end)?;
    Some(format!("{before}{begin}{middle}{end}{after}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_is_between_the_marks_is_replaced() {
        assert_eq!(replace("a<old>b", "<", ">", "new").as_deref(), Some("a<new>b"));
        assert_eq!(replace("a old b", "<", ">", "new"), None);
    }

    #[test]
    fn the_document_has_the_marks() {
        let text = fs::read_to_string(project::root().join(FILE)).unwrap();
        assert!(replace(&text, BEGIN, END, "").is_some());
    }
}
