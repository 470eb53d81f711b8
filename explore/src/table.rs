//! The result as a table: faults of each kind, and how the runs with them ended.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use crate::fault::{Family, Fault};
use crate::judge::Outcome;

/// How many runs of each kind of fault ended how.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Table {
    rows: BTreeMap<(Rank, String), Row>,
}

/// Families in their order; `None` is that of pairs, which come behind them.
type Rank = Option<Family>;

#[derive(Debug, Clone, PartialEq, Eq, Default)]
struct Row {
    planned: usize,
    outcomes: BTreeMap<Outcome, usize>,
}

/// What pairs of faults are called.
const PAIRS: &str = "pairs";

/// The name of the row of faults.
pub fn row_of(faults: &[Fault]) -> String {
    match faults {
        [fault] => match (fault.family().name(), fault.what.row()) {
            (family, what) if what.starts_with(family) => what.into(),
            (family, what) => format!("{family}: {what}"),
        },
        _ => PAIRS.into(),
    }
}

impl Table {
    /// The row with a name.
    fn row(&mut self, name: &str) -> &mut Row {
        let family = name.split_once(':').map_or(name, |(family, _)| family);
        self.rows.entry((Family::named(family), name.into())).or_default()
    }

    /// A fault that could be tried.
    pub fn planned(&mut self, faults: &[Fault]) {
        self.row(&row_of(faults)).planned += 1;
    }

    /// One that was, by the name of its row.
    pub fn ran(&mut self, row: &str, outcome: Outcome) {
        *self.row(row).outcomes.entry(outcome).or_default() += 1;
    }

    /// For people: outcomes that came, and what was not run.
    pub fn text(&self) -> String {
        let came: Vec<Outcome> = Outcome::ALL
            .into_iter()
            .filter(|outcome| {
                *outcome == Outcome::Same || self.rows.values().any(|row| row.outcomes.contains_key(outcome))
            })
            .collect();
        let left: usize = self.rows.values().map(Row::not_run).sum();
        let mut head: Vec<String> = vec!["fault".into(), "runs".into()];
        head.extend(came.iter().map(|outcome| outcome.name().to_owned()));
        head.extend((left > 0).then(|| "not run".into()));
        let mut lines = vec![head];
        let mut total = Row::default();
        let cells = |name: &str, row: &Row| {
            let mut cells = vec![name.to_owned(), row.runs().to_string()];
            let count = |outcome| row.outcomes.get(outcome).copied().unwrap_or(0);
            cells.extend(came.iter().map(|outcome| blank_if_zero(count(outcome))));
            cells.extend((left > 0).then(|| blank_if_zero(row.not_run())));
            cells
        };
        let (pairs, singles): (Vec<_>, Vec<_>) = self.rows.iter().partition(|((rank, _), _)| rank.is_none());
        for ((_, name), row) in singles.into_iter().chain(pairs) {
            total.planned += row.planned;
            row.outcomes.iter().for_each(|(outcome, count)| *total.outcomes.entry(*outcome).or_default() += count);
            lines.push(cells(name, row));
        }
        if self.rows.len() > 1 {
            lines.push(cells("all", &total));
        }
        aligned(&lines)
    }
}

impl Row {
    fn runs(&self) -> usize {
        self.outcomes.values().sum()
    }

    fn not_run(&self) -> usize {
        self.planned.saturating_sub(self.runs())
    }
}

fn blank_if_zero(count: usize) -> String {
    if count == 0 { String::new() } else { count.to_string() }
}

/// Columns, the first to the left and numbers to the right.
fn aligned(lines: &[Vec<String>]) -> String {
    let columns = lines.iter().map(Vec::len).max().unwrap_or(0);
    let width = |column: usize| lines.iter().filter_map(|line| line.get(column)).map(|cell| cell.chars().count()).max();
    let widths: Vec<usize> = (0..columns).map(|column| width(column).unwrap_or(0)).collect();
    let mut out = String::new();
    for line in lines {
        let mut text = String::new();
        for (column, cell) in line.iter().enumerate() {
            // Writing to a string does not fail.
            let _ = match column {
                0 => write!(text, "{cell:<width$}", width = widths[0]),
                _ => write!(text, "  {cell:>width$}", width = widths[column]),
            };
        }
        let _ = writeln!(out, "{}", text.trim_end());
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::actor::learn;
    use crate::fault::What;
    use crate::thing::tests::{call, file, packet};
    use softnic_fault_injector::calls::Verb;

    #[test]
    fn rows_are_kinds_of_faults_and_columns_what_came() {
        let cast = learn(&[vec![file("./x", 1, &[packet(4, 0, 1), call(Verb::RegMr, 0)])]]);
        let fault = |at: usize, what| Fault { actor: 0, at: cast.actors[0].things[at], what };
        let (lost, failed) = (fault(0, What::Drop), fault(1, What::Errno("ENOMEM")));
        let mut table = Table::default();
        for faults in [&[lost][..], &[failed], &[failed], &[lost, failed]] {
            table.planned(faults);
        }
        table.ran(&row_of(&[lost]), Outcome::Same);
        table.ran(&row_of(&[failed]), Outcome::Crash);
        table.ran(&row_of(&[lost, failed]), Outcome::Hang);
        let expected = "\
fault         runs  same  crash  hang  not run
loss             1     1
verbs: errno     1            1              1
pairs            1                  1
all              3     1      1     1        1
";
        assert_eq!(table.text(), expected);
    }
}
