//! The table of results: a row for each operation and requester, a column for each path.

use std::fmt::Write;

use super::scenario::{PATHS, Scenario, path_name};

/// How a scenario ended: the error says why it failed.
pub(super) type ScenarioResult = Result<(), String>;

/// What became of the scenarios that ran, in their order.
#[derive(Default)]
pub(super) struct Report {
    /// The guest's kernel.
    pub(super) kernel: String,
    /// What the frames went over.
    pub(super) wire: &'static str,
    rows: Vec<(Scenario, ScenarioResult)>,
}

impl Report {
    pub(super) fn add(&mut self, scenario: Scenario, verdict: ScenarioResult) {
        self.rows.push((scenario, verdict));
    }

    pub(super) fn failed(&self) -> usize {
        self.rows.iter().filter(|(_, v)| v.is_err()).count()
    }

    pub(super) fn len(&self) -> usize {
        self.rows.len()
    }

    /// Names of what failed, with the reasons.
    pub(super) fn failures(&self) -> impl Iterator<Item = String> {
        self.rows.iter().filter_map(|(s, v)| v.as_ref().err().map(|why| format!("{}: {why}", s.name())))
    }

    /// Cells of the table, heading first.
    fn cells(&self) -> Vec<Vec<String>> {
        let mut table = vec![vec!["operation".to_owned(), "requester".to_owned()]];
        table[0].extend(PATHS.map(path_name));
        for (scenario, verdict) in &self.rows {
            let name = scenario.operation.name;
            let requester = scenario.requester.name();
            if table.last().is_none_or(|row| row[0] != name || row[1] != requester) {
                let mut row = vec![name.to_owned(), requester.to_owned()];
                row.resize(2 + PATHS.len(), String::new());
                table.push(row);
            }
            let column = PATHS.iter().position(|&p| p == (scenario.ipv6, scenario.mtu)).unwrap_or(0);
            if let Some(row) = table.last_mut() {
                row[2 + column] = if verdict.is_ok() { "pass" } else { "FAIL" }.to_owned();
            }
        }
        table
    }

    /// The table for people.
    pub(super) fn text(&self) -> String {
        let cells = self.cells();
        let width = |column: usize| cells.iter().map(|row| row[column].len()).max().unwrap_or(0);
        let mut out = String::new();
        for row in &cells {
            let line: String = row.iter().enumerate().map(|(i, cell)| format!("{cell:w$}  ", w = width(i))).collect();
            // Writing to a String cannot fail.
            let _ = writeln!(out, "{}", line.trim_end());
        }
        out
    }

    /// The table for a document.
    pub(super) fn markdown(&self) -> String {
        let cells = self.cells();
        let mut out = String::new();
        for (i, row) in cells.iter().enumerate() {
            let _ = writeln!(out, "| {} |", row.join(" | "));
            if i == 0 {
                let _ = writeln!(out, "|{}", "---|".repeat(row.len()));
            }
        }
        out
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::interop::scenario;

    #[test]
    fn a_row_for_each_operation_and_requester() {
        let mut report = Report::default();
        for s in scenario::named(&["write/rxe".into(), "read/softnic/ipv6".into()]).unwrap() {
            let verdict = if s.name() == "write/rxe/ipv6/1024" { Err("broken".into()) } else { Ok(()) };
            report.add(s, verdict);
        }
        assert_eq!((report.len(), report.failed()), (15, 1));
        assert_eq!(report.failures().collect::<Vec<_>>(), ["write/rxe/ipv6/1024: broken"]);
        let text = report.text();
        let lines: Vec<Vec<_>> = text.lines().map(|l| l.split_whitespace().collect()).collect();
        assert_eq!(lines[0][..3], ["operation", "requester", "ipv4/256"]);
        assert_eq!(lines[1][..3], ["write", "rxe", "pass"]);
        assert_eq!(lines[1].iter().position(|&w| w == "FAIL"), lines[0].iter().position(|&w| w == "ipv6/1024"));
        assert_eq!(lines[2][..2], ["read", "softnic"]);
        let (blank, pass) = (" |".repeat(5).replace(" |", "  |"), " pass |".repeat(5));
        assert!(report.markdown().contains(&format!("\n| read | softnic |{blank}{pass}\n")), "{}", report.markdown());
    }
}
