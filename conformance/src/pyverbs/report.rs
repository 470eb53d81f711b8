//! The table of results, for people and for docs/verbs.md.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::time::Duration;

use super::judge::{Lacks, TestVerdict};
use super::suite::{Suite, module_of};
use crate::project;

const FILE: &str = "docs/verbs.md";
const BEGIN: &str = "<!-- made by `cargo xtask pyverbs --write-docs`: do not edit -->\n";
const END: &str = "<!-- end of what pyverbs made -->\n";

/// A test and how it ended.
#[derive(Debug)]
pub(super) struct Row {
    pub(super) test: String,
    pub(super) verdict: TestVerdict,
    pub(super) took: Duration,
}

impl Row {
    /// As it is shown when it has just ended.
    pub(super) fn line(&self) -> String {
        let seconds = self.took.as_secs_f64();
        match &self.verdict {
            TestVerdict::Passed => format!("{:80} pass  {seconds:5.1} s", self.test),
            TestVerdict::Skipped { reason, .. } => format!("{:80} skipped: {reason}", self.test),
            TestVerdict::Failed(why) => format!("{:80} FAIL  {seconds:5.1} s  {why}", self.test),
        }
    }
}

/// How many tests ended how.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
struct Counts {
    passed: usize,
    skipped: usize,
    failed: usize,
}

impl Counts {
    fn add(&mut self, verdict: &TestVerdict) {
        match verdict {
            TestVerdict::Passed => self.passed += 1,
            TestVerdict::Skipped { .. } => self.skipped += 1,
            TestVerdict::Failed(_) => self.failed += 1,
        }
    }
}

/// What became of the tests, in their order.
#[derive(Debug, Default)]
pub(super) struct Report {
    rows: Vec<Row>,
}

impl Report {
    pub(super) fn add(&mut self, row: Row) {
        self.rows.push(row);
    }

    pub(super) fn len(&self) -> usize {
        self.rows.len()
    }

    /// Names of what failed.
    pub(super) fn failed(&self) -> impl Iterator<Item = &str> {
        self.rows.iter().filter(|r| matches!(r.verdict, TestVerdict::Failed(_))).map(|r| &*r.test)
    }

    fn counts(rows: &[Row]) -> Counts {
        let mut counts = Counts::default();
        rows.iter().for_each(|row| counts.add(&row.verdict));
        counts
    }

    /// One line.
    pub(super) fn summary(&self) -> String {
        let Counts { passed, skipped, failed } = Report::counts(&self.rows);
        let more = if skipped > 0 { format!(", {skipped} skipped by the suite") } else { String::new() };
        format!("{passed} passed, {failed} failed{more}")
    }

    /// What was not run to its end, by its reason, with how many tests of which modules.
    fn reasons(&self) -> BTreeMap<String, BTreeMap<&str, usize>> {
        let mut reasons: BTreeMap<String, BTreeMap<&str, usize>> = BTreeMap::new();
        for row in &self.rows {
            let why = match &row.verdict {
                TestVerdict::Skipped { lacks: Lacks::Softnic(what), .. } => format!("skipped: softnic has no {what}"),
                TestVerdict::Skipped { lacks: Lacks::Machine(what), .. } => {
                    format!("skipped: the machine has no {what}")
                }
                TestVerdict::Passed | TestVerdict::Failed(_) => continue,
            };
            *reasons.entry(why).or_default().entry(module_of(&row.test)).or_default() += 1;
        }
        reasons
    }

    /// For people: why tests were skipped, then what failed.
    pub(super) fn text(&self) -> String {
        let mut out = String::new();
        for (why, modules) in self.reasons() {
            // Writing to a String cannot fail.
            let _ = writeln!(out, "{:4} {why}", modules.values().sum::<usize>());
        }
        for row in &self.rows {
            if let TestVerdict::Failed(why) = &row.verdict {
                let _ = writeln!(out, "FAIL {}: {}", row.test, why.lines().next().unwrap_or_default());
            }
        }
        out + &self.summary()
    }

    fn markdown(&self) -> String {
        let mut out = String::from("| module | passed | skipped by the suite | failed |\n|---|---|---|---|\n");
        for rows in self.rows.chunk_by(|a, b| module_of(&a.test) == module_of(&b.test)) {
            let Counts { passed, skipped, failed } = Report::counts(rows);
            let module = module_of(&rows[0].test);
            let _ = writeln!(out, "| `{module}` | {passed} | {skipped} | {failed} |");
        }
        out += "\n| result | tests |\n|---|---|\n";
        for row in &self.rows {
            if let TestVerdict::Failed(why) = &row.verdict {
                let why = why.lines().next().unwrap_or_default().replace('|', "\\|");
                let _ = writeln!(out, "| **failed**: {why} | `{}` |", row.test);
            }
        }
        for (why, modules) in self.reasons() {
            let modules: Vec<String> = modules.iter().map(|(module, n)| format!("{n} of `{module}`")).collect();
            let _ = writeln!(out, "| {why} | {} |", modules.join(", "));
        }
        out
    }

    /// Puts the table into the document.
    pub(super) fn write(&self, suite: &Suite, place: &str) -> Result<(), String> {
        let Suite { version, vendors, .. } = suite;
        let vendors: Vec<String> = vendors.iter().map(|module| format!("`{module}`")).collect();
        let text = format!(
            "{} tests of rdma-core {version}, on {place}: {}.\n\n{}\nLeft out, as they are for devices of other vendors: {}.\n",
            self.len(),
            self.summary(),
            self.markdown(),
            vendors.join(", "),
        );
        project::write_between_marks(FILE, BEGIN, END, &text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_document_has_the_marks() {
        let text = std::fs::read_to_string(project::root().join(FILE)).unwrap();
        assert!(project::replace_between(&text, BEGIN, END, "").is_some());
    }

    #[test]
    fn what_was_skipped_is_not_counted_as_passed() {
        let mut report = Report::default();
        let lacks = Lacks::Softnic("XRC");
        for (test, verdict) in [
            ("test_atomic.A.good", TestVerdict::Passed),
            ("test_atomic.A.xrc", TestVerdict::Skipped { reason: "Create XRCD is not supported".into(), lacks }),
            ("test_mr.M.bad", TestVerdict::Failed("broken\nwith a trace".into())),
        ] {
            report.add(Row { test: test.into(), verdict, took: Duration::ZERO });
        }
        assert_eq!(report.summary(), "1 passed, 1 failed, 1 skipped by the suite");
        assert_eq!(report.failed().collect::<Vec<_>>(), ["test_mr.M.bad"]);
        let table = report.markdown();
        assert!(table.contains("| `test_atomic` | 1 | 1 | 0 |\n"), "{table}");
        assert!(table.contains("| **failed**: broken | `test_mr.M.bad` |\n"), "{table}");
        assert!(table.contains("| skipped: softnic has no XRC | 1 of `test_atomic` |\n"), "{table}");
    }
}
