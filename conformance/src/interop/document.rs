//! The table of results in docs/interop.md: whatever stands between two marks is replaced.

use super::report::Report;
use crate::project;

const FILE: &str = "docs/interop.md";
const BEGIN: &str = "<!-- made by `cargo xtask interop --all --write-docs`: do not edit -->\n";
const END: &str = "<!-- end of what is made -->\n";

/// Puts the report into the document.
pub(super) fn write(report: &Report) -> Result<(), String> {
    project::write_between_marks(FILE, BEGIN, END, &section(report))
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_document_has_the_marks() {
        let text = std::fs::read_to_string(project::root().join(FILE)).unwrap();
        assert!(project::replace_between(&text, BEGIN, END, "").is_some());
    }
}
