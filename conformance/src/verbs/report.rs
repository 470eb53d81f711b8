//! The table of results, for people and for docs/verbs-programs.md.

use std::fmt::Write;
use std::time::Duration;

use crate::guest::Error;
use crate::project;

const FILE: &str = "docs/verbs-programs.md";
const BEGIN: &str = "<!-- made by `cargo xtask verbs --all --write-docs`: do not edit -->\n";
const END: &str = "<!-- end of what is made -->\n";

/// How a test ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum CaseVerdict {
    Passed,
    Failed(String),
    LeftOut(String),
}

impl From<Result<(), Error>> for CaseVerdict {
    fn from(result: Result<(), Error>) -> CaseVerdict {
        match result {
            Ok(()) => CaseVerdict::Passed,
            Err(Error::Missing(why)) => CaseVerdict::LeftOut(why),
            Err(e) => CaseVerdict::Failed(e.to_string()),
        }
    }
}

/// A test and how it ended.
#[derive(Debug)]
pub(super) struct Row {
    pub(super) name: String,
    pub(super) verdict: CaseVerdict,
    pub(super) took: Duration,
}

impl Row {
    /// As it is shown when it has just ended.
    pub(super) fn line(&self) -> String {
        let seconds = self.took.as_secs_f64();
        match &self.verdict {
            CaseVerdict::Passed => format!("{:60} pass  {seconds:5.1} s", self.name),
            CaseVerdict::LeftOut(why) => format!("{:60} left out: {why}", self.name),
            CaseVerdict::Failed(why) => format!("{:60} FAIL  {seconds:5.1} s  {why}", self.name),
        }
    }
}

/// What became of the tests that ran, in their order.
#[derive(Debug, Default)]
pub(super) struct Report {
    /// The guest's kernel, where there was a guest.
    pub(super) kernel: Option<String>,
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
        self.rows.iter().filter(|r| matches!(r.verdict, CaseVerdict::Failed(_))).map(|r| &*r.name)
    }

    fn count(&self, is: fn(&CaseVerdict) -> bool) -> usize {
        self.rows.iter().filter(|r| is(&r.verdict)).count()
    }

    /// One line.
    pub(super) fn summary(&self) -> String {
        let passed = self.count(|v| matches!(v, CaseVerdict::Passed));
        let left_out = self.count(|v| matches!(v, CaseVerdict::LeftOut(_)));
        let failed = self.failed().count();
        let more = [(failed, "failed"), (left_out, "left out")];
        let more: String = more.iter().filter(|(n, _)| *n > 0).map(|(n, what)| format!(", {n} {what}")).collect();
        format!("{passed} passed{more}")
    }

    /// The table for people: what each group did, and what was not well.
    pub(super) fn text(&self) -> String {
        let mut out = String::new();
        for row in self.rows.iter().filter(|r| r.verdict != CaseVerdict::Passed) {
            // Only the reason: what was printed stands above.
            let why = match &row.verdict {
                CaseVerdict::Failed(why) => format!("FAIL      {}", why.lines().next().unwrap_or_default()),
                CaseVerdict::LeftOut(why) => format!("left out  {why}"),
                CaseVerdict::Passed => String::new(),
            };
            // Writing to a String cannot fail.
            let _ = writeln!(out, "{:60} {why}", row.name);
        }
        out + &self.summary()
    }

    /// A row for each program, with what its options were and how many of those runs passed.
    fn markdown(&self) -> String {
        let mut out = String::from("| where | program | options | result |\n|---|---|---|---|\n");
        for row in &self.rows {
            let mut parts = row.name.splitn(3, '/');
            let place = match parts.next().unwrap_or_default() {
                "c" => "one process, two devices",
                "pair" => "softnic and softnic, AF_XDP",
                "host" => "two processes of one host, `shm`, no privileges",
                "shared" => "a client of `softnic share`, no privileges",
                "killed" => "softnic and softnic, AF_XDP, SIGKILL",
                "recorded" => "softnic and softnic, AF_XDP, `--pcap`",
                "auth" => "softnic and softnic, AF_XDP, `--auth`",
                "mpi" => "four ranks over UCX",
                "rxe" => "softnic and Soft-RoCE, AF_XDP",
                other => other,
            };
            let (program, options) = (parts.next().unwrap_or_default(), parts.next().unwrap_or_default());
            let options = match options.split_once('/') {
                Some((options, end)) => format!("`{options}`, {end}"),
                None if options.is_empty() || options == "plain" => String::new(),
                None => format!("`{options}`"),
            };
            let result = match &row.verdict {
                CaseVerdict::Passed => "passed".to_owned(),
                CaseVerdict::Failed(why) => format!("**failed**: {}", why.lines().next().unwrap_or_default()),
                CaseVerdict::LeftOut(why) => format!("left out: {why}"),
            };
            let _ = writeln!(out, "| {place} | `{program}` | {options} | {} |", result.replace('|', "\\|"));
        }
        out
    }

    /// Puts the table into the document.
    pub(super) fn write(&self) -> Result<(), String> {
        let guest = self.kernel.as_ref().map(|k| format!(" Soft-RoCE is that of Linux {k}.")).unwrap_or_default();
        let text = format!("{} tests: {}.{guest}\n\n{}", self.len(), self.summary(), self.markdown());
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
    fn what_was_left_out_is_not_counted_as_passed() {
        let mut report = Report::default();
        for (name, verdict) in [
            ("c/errors", CaseVerdict::Passed),
            ("pair/ib_write_bw/-a -n 20", CaseVerdict::Failed("slow\nall that it printed".into())),
            ("rxe/ib_read_bw/plain/softnic is the client", CaseVerdict::LeftOut("no root".into())),
        ] {
            report.add(Row { name: name.into(), verdict, took: Duration::ZERO });
        }
        assert_eq!(report.summary(), "1 passed, 1 failed, 1 left out");
        assert_eq!(report.failed().collect::<Vec<_>>(), ["pair/ib_write_bw/-a -n 20"]);
        let table = report.markdown();
        assert!(table.contains("| `ib_write_bw` | `-a -n 20` | **failed**: slow |\n"), "{table}");
        assert!(table.contains("| `plain`, softnic is the client | left out: no root |"), "{table}");
    }
}
