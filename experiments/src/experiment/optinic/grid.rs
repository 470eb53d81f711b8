//! Many cases, each with several seeds: made on all cores, put together, and shown as tables and figures.

use std::time::Duration;

use softnic_collectives::call::{Algorithm, Operation};
use softnic_collectives::member::MemberSettings;
use softnic_sim::Transport;

use super::super::Setting;
use super::super::outcome::{Figure, Figures, NOTHING, Table, percent, shown};
use super::network::Net;
use super::runner::{self, Case, Ran, Timeout};

/// A transport as it is run.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Contender {
    pub(super) label: &'static str,
    /// As `--transport` takes it.
    transport: &'static str,
    timeout: Timeout,
}

const fn contender(label: &'static str, transport: &'static str, timeout: Timeout) -> Contender {
    Contender { label, transport, timeout }
}

pub(super) const RC_14: &str = "rc, 67 ms";
pub(super) const RC_10: &str = "rc, 4.2 ms";
pub(super) const RC_LEAST: &str = "rc, least";
pub(super) const SR: &str = "sr";
pub(super) const LOWAR: &str = "lowar:32,1";
pub(super) const XP: &str = "xp";
pub(super) const XP_TAIL: &str = "xp:tail=2";

/// Those of every comparison.
pub(super) const ALL: [Contender; 7] = [
    contender(RC_14, "rc", Timeout::Code(14)),
    contender(RC_10, "rc", Timeout::Code(10)),
    contender(RC_LEAST, "rc", Timeout::Least),
    contender(SR, "sr", Timeout::Least),
    contender(LOWAR, "lowar:32,1", Timeout::Least),
    contender(XP, "xp", Timeout::Least),
    contender(XP_TAIL, "xp:tail=2", Timeout::Least),
];

/// XP as it can be set.
pub(super) const SETTINGS: [Contender; 4] = [
    contender(XP, "xp", Timeout::Least),
    contender(XP_TAIL, "xp:tail=2", Timeout::Least),
    contender("xp:spray=4", "xp:spray=4", Timeout::Least),
    contender("xp:tail=2,spray=4", "xp:tail=2,spray=4", Timeout::Least),
];

/// Some of those of every comparison.
pub(super) fn some(labels: &[&str]) -> Vec<Contender> {
    ALL.into_iter().filter(|c| labels.contains(&c.label)).collect()
}

/// A row of a table: a call on a network, under a control.
#[derive(Debug, Clone)]
pub(super) struct Row {
    /// The table that it is in.
    pub(super) group: &'static str,
    pub(super) label: String,
    pub(super) net: Net,
    pub(super) operation: Operation,
    pub(super) algorithm: Algorithm,
    pub(super) bytes: u64,
    pub(super) cc: &'static str,
    pub(super) collectives: u64,
    pub(super) most: Duration,
    pub(super) contenders: Vec<Contender>,
}

/// A row's case for a contender, with all runs that were made of it.
pub(super) struct Cell {
    pub(super) row: usize,
    pub(super) contender: Contender,
    pub(super) runs: Vec<(u64, Ran)>,
}

/// Rows and cells.
pub(super) struct Grid {
    pub(super) rows: Vec<Row>,
    pub(super) cells: Vec<Cell>,
    pub(super) made: usize,
    pub(super) of: usize,
}

/// What all runs of a case came to.
#[derive(Debug, Clone, Default)]
pub(super) struct Sum {
    pub(super) count: usize,
    pub(super) mean: f64,
    pub(super) deviation: f64,
    pub(super) p50: f64,
    pub(super) p99: f64,
    pub(super) most: f64,
    pub(super) missing: f64,
    pub(super) dropped: u64,
    pub(super) failed: bool,
}

impl Sum {
    /// Of all collectives of all runs; `None` where there is none.
    pub(super) fn of<'r>(runs: impl Iterator<Item = &'r Ran> + Clone) -> Option<Sum> {
        let mut times: Vec<f64> = runs.clone().flat_map(|run| run.times.iter().copied()).collect();
        times.sort_by(f64::total_cmp);
        let n = times.len() as f64;
        let most = *times.last()?;
        let mean = times.iter().sum::<f64>() / n;
        let quantile = |q: f64| times[((n * q).ceil() as usize).clamp(1, times.len()) - 1];
        Some(Sum {
            count: times.len(),
            mean,
            deviation: (times.iter().map(|time| (time - mean).powi(2)).sum::<f64>() / n).sqrt(),
            p50: quantile(0.5),
            p99: quantile(0.99),
            most,
            missing: runs.clone().flat_map(|run| &run.missing).sum::<f64>() / n,
            dropped: runs.clone().map(|run| run.dropped).sum(),
            failed: runs.clone().any(|run| run.failed.is_some()),
        })
    }
}

impl Grid {
    /// Makes all runs.
    pub(super) fn make(setting: &Setting, rows: Vec<Row>) -> Result<Grid, String> {
        let mut jobs = Vec::new();
        for (r, row) in rows.iter().enumerate() {
            for &contender in &row.contenders {
                let transport: Transport = contender.transport.parse().map_err(|e| format!("{e}"))?;
                let case = Case {
                    net: row.net,
                    operation: row.operation,
                    algorithm: row.algorithm,
                    bytes: row.bytes,
                    transport,
                    timeout: contender.timeout,
                    cc: row.cc,
                    member: MemberSettings::default(),
                    collectives: row.collectives,
                    most: row.most,
                };
                jobs.extend(setting.seeds().into_iter().map(|seed| (r, contender, case.clone(), seed)));
            }
        }
        let results = setting.each(jobs.clone(), |(_, _, case, seed)| runner::run(case, *seed))?;
        let (of, mut cells, mut made) = (jobs.len(), Vec::<Cell>::new(), 0);
        for ((row, contender, _, seed), run) in jobs.into_iter().zip(results) {
            if cells.last().is_none_or(|cell| cell.row != row || cell.contender != contender) {
                cells.push(Cell { row, contender, runs: Vec::new() });
            }
            if let (Some(cell), Some(run)) = (cells.last_mut(), run) {
                // What only other experiments look at need not be kept.
                cell.runs.push((seed, Ran { outcomes: Vec::new(), ..run }));
                made += 1;
            }
        }
        Ok(Grid { rows, cells, made, of })
    }

    /// What a case came to.
    pub(super) fn sum(&self, row: usize, label: &str) -> Option<Sum> {
        let cell = self.cells.iter().find(|cell| cell.row == row && cell.contender.label == label)?;
        Sum::of(cell.runs.iter().map(|(_, run)| run))
    }

    /// The first row that is so.
    pub(super) fn row(&self, is: impl Fn(&Row) -> bool) -> Option<usize> {
        self.rows.iter().position(is)
    }

    /// A table of each group: means ± deviations, with the 99th percentile behind them, and one of what is missing.
    pub(super) fn tables(&self) -> Vec<Table> {
        let mut groups: Vec<&'static str> = self.rows.iter().map(|row| row.group).collect();
        groups.dedup();
        let mut tables = Vec::new();
        for group in groups {
            let rows: Vec<usize> = (0..self.rows.len()).filter(|&r| self.rows[r].group == group).collect();
            let mut columns: Vec<&'static str> = Vec::new();
            for contender in rows.iter().flat_map(|&r| &self.rows[r].contenders) {
                if !columns.contains(&contender.label) {
                    columns.push(contender.label);
                }
            }
            let table = |title: String, columns: &[&'static str], cell: &dyn Fn(usize, &str) -> String| {
                let names = std::iter::once("").chain(columns.iter().copied()).map(String::from);
                let row = |&r: &usize| {
                    let label = std::iter::once(self.rows[r].label.clone());
                    label.chain(columns.iter().map(|column| cell(r, column))).collect()
                };
                Table { title, columns: names.collect(), rows: rows.iter().map(row).collect() }
            };
            tables.push(table(format!("{group}: ms, mean ±σ (p99)"), &columns, &|r, c| self.time_shown(r, c)));
            columns.retain(|column| column.starts_with("xp"));
            tables.push(table(
                format!("{group}: bytes missing of all, and budgets at the end over mean times"),
                &columns,
                &|r, c| self.missing_shown(r, c),
            ));
        }
        tables
    }

    fn time_shown(&self, row: usize, label: &str) -> String {
        let made = self.cells.iter().find(|cell| cell.row == row && cell.contender.label == label);
        let Some(made) = made else { return NOTHING.into() };
        match Sum::of(made.runs.iter().map(|(_, run)| run)) {
            _ if made.runs.iter().any(|(_, run)| run.failed.is_some()) => "gave up".into(),
            None => NOTHING.into(),
            Some(s) => {
                // Means of a few tell less than others.
                let few = if s.count < 20 { format!(", {}", s.count) } else { String::new() };
                format!("{:.2} ±{:.2} ({:.2}{few})", s.mean, s.deviation, s.p99)
            }
        }
    }

    fn missing_shown(&self, row: usize, label: &str) -> String {
        let Some(sum) = self.sum(row, label) else { return NOTHING.into() };
        let cell = self.cells.iter().find(|cell| cell.row == row && cell.contender.label == label);
        let last = cell.map(|cell| cell.runs.iter().filter_map(|(_, run)| run.budgets.last()).copied());
        let last = last.map(|last| last.clone().sum::<f64>() / last.count().max(1) as f64);
        format!("{:.3} %, {}", sum.missing * 100.0, shown(last.map(|last| last / sum.mean), 2))
    }

    /// One row for each run.
    pub(super) fn figures(&self) -> Figures {
        let row = |cell: &Cell, (seed, run): &(u64, Ran)| {
            let of = &self.rows[cell.row];
            let sum = Sum::of(std::iter::once(run));
            let part = |part: fn(&Sum) -> f64| Figure::from(sum.as_ref().map(part));
            vec![
                of.group.into(),
                of.net.name().into(),
                of.net.background.into(),
                of.net.loss.into(),
                (of.net.queue as f64).into(),
                of.operation.to_string().into(),
                of.algorithm.to_string().into(),
                (of.net.hosts as f64).into(),
                (of.bytes as f64).into(),
                of.cc.into(),
                cell.contender.transport.into(),
                f64::from(run.code).into(),
                (*seed as f64).into(),
                (run.times.len() as f64).into(),
                part(|s| s.mean),
                part(|s| s.deviation),
                part(|s| s.p50),
                part(|s| s.p99),
                part(|s| s.most),
                part(|s| s.missing),
                run.warm_up.into(),
                run.budgets.first().copied().into(),
                run.budgets.last().copied().into(),
                (run.dropped as f64).into(),
                (run.lost as f64).into(),
                run.failed.as_deref().unwrap_or_default().into(),
            ]
        };
        Figures {
            columns: vec![
                "table",
                "network",
                "background",
                "loss",
                "queue_bytes",
                "operation",
                "algorithm",
                "ranks",
                "size",
                "cc",
                "transport",
                "timeout_code",
                "seed",
                "collectives",
                "mean_ms",
                "deviation_ms",
                "p50_ms",
                "p99_ms",
                "max_ms",
                "missing_fraction",
                "warm_up_ms",
                "first_budget_ms",
                "last_budget_ms",
                "dropped",
                "lost",
                "failed",
            ],
            rows: self.cells.iter().flat_map(|cell| cell.runs.iter().map(|run| row(cell, run))).collect(),
        }
    }
}

/// The loss of a row, as its label has it.
pub(super) fn lossy(what: &str, loss: f64) -> String {
    format!("{what}, {}", percent(loss))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn collectives_of_all_runs_count_alike() {
        let run =
            |times: &[f64], missing: &[f64]| Ran { times: times.into(), missing: missing.into(), ..Ran::default() };
        let runs = [run(&[1.0, 2.0, 3.0], &[0.0, 0.0, 0.4]), run(&[4.0], &[0.4])];
        let sum = Sum::of(runs.iter()).unwrap();
        assert_eq!((sum.count, sum.mean, sum.p50, sum.p99, sum.most), (4, 2.5, 2.0, 4.0, 4.0));
        assert!((sum.missing - 0.2).abs() < 1e-12 && (sum.deviation - 1.118).abs() < 1e-3);
        assert!(Sum::of([Ran::default()].iter()).is_none());
    }
}
