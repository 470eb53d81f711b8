//! How long flows take: WRITEs of 1 MiB, one at a time, of `rc` and `sr`, with loss.

use std::fmt::Write;
use std::time::Duration;

use softnic_fault_injector::{Fault, Spec};
use softnic_transports::qp::PayloadMode;

use super::{RATE, SIZE, each, show_loss};
use crate::{Options, SimError};

const LOSSES: [f64; 4] = [0.0, 1e-5, 1e-4, 1e-3];
const RTT: Duration = Duration::from_millis(40);
/// At the lowest loss one in a hundred of them is hit.
const FLOWS: u64 = 4000;

/// Completion times of a transport at a chance of loss.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Row {
    /// Selective Repeat; else Go-Back-N.
    pub selective: bool,
    /// The chance.
    pub loss: f64,
    /// Milliseconds: the mean, nine in ten, ninety-nine in a hundred, all.
    pub ms: [f64; 4],
}

/// The rows, without their figures.
pub fn rows() -> Vec<Row> {
    let row = |loss, selective| Row { selective, loss, ms: [0.0; 4] };
    LOSSES.iter().flat_map(|&loss| [row(loss, false), row(loss, true)]).collect()
}

/// The rows of a table as [`render`] writes it; `None` for any other text.
pub fn parse(text: &str) -> Option<Vec<Row>> {
    let mut rows = rows();
    let first = text.lines().position(|line| line.trim_start().starts_with("loss "))? + 1;
    let lines: Vec<&str> = text.lines().skip(first).collect();
    if lines.len() != rows.len() {
        return None;
    }
    for (row, line) in rows.iter_mut().zip(lines) {
        let [loss, transport, figures @ ..] = &line.split_whitespace().collect::<Vec<_>>()[..] else { return None };
        let is_of_row = *loss == show_loss(row.loss) && *transport == row.transport();
        let figures = figures.iter().map(|f| f.parse().ok()).collect::<Option<Vec<f64>>>()?;
        row.ms = figures.try_into().ok().filter(|_| is_of_row)?;
    }
    Some(rows)
}

/// Runs the flows of these rows on `threads` threads; `progress` is told how many of the rows are done.
pub fn measure(rows: &mut [&mut Row], threads: usize, progress: &(dyn Fn(usize) + Sync)) -> Result<(), SimError> {
    let options = |row: &Row| {
        let options = Options {
            size: SIZE as u32,
            count: FLOWS,
            depth: 1,
            rate: RATE,
            rtt: RTT,
            faults: Spec { faults: vec![Fault::Loss(row.loss)], ..Spec::default() },
            payload: PayloadMode::Elided,
            ..Options::default()
        };
        if row.selective { options.over_wide_sr() } else { options }
    };
    let all: Vec<_> = rows.iter().map(|row| options(row)).collect();
    let ms = each(&all, threads, progress, |report| {
        let times = report.completion_times;
        // As many digits as the text has: what is read from it is what was written.
        let rounded = |ms: f64| (ms * 1e3).round() / 1e3;
        [times.mean_ms(), times.quantile_ms(0.9), times.quantile_ms(0.99), times.max_ms()].map(rounded)
    })?;
    rows.iter_mut().zip(ms).for_each(|(row, ms)| row.ms = ms);
    Ok(())
}

impl Row {
    fn transport(&self) -> &'static str {
        if self.selective { "sr" } else { "rc" }
    }
}

/// The table as text.
pub fn render(rows: &[Row]) -> String {
    let mut s = format!(
        "Flow completion times in ms: {FLOWS} WRITEs of 1 MiB one after the other, 10 Gbit/s, RTT {RTT:?}, MTU 1024, payload elided,\n\
         seed 1. A round trip and the time on the wire are 41 ms.\n\n\
         {:>8}  {:>9}  {:>9}  {:>9}  {:>9}  {:>9}\n",
        "loss", "transport", "mean", "p90", "p99", "max"
    );
    for row in rows {
        let _ = write!(s, "{:>8}  {:>9}", show_loss(row.loss), row.transport());
        for figure in row.ms {
            let _ = write!(s, "  {figure:>9.3}");
        }
        s.push('\n');
    }
    s
}

/// What was aimed at and missed, a line for each: of a hundred flows of `sr` 99 lose no more than a round trip and a quarter.
pub fn missed(rows: &[Row]) -> Vec<String> {
    let sr: Vec<_> = rows.iter().filter(|row| row.selective).collect();
    let most = sr[0].ms[2] + RTT.as_secs_f64() * 1e3 * 1.25;
    let slow = |row: &&&Row| row.ms[2] > most;
    let told =
        |row: &&Row| format!("loss {}: p99 of sr is {:.3} ms, more than {most:.3}", show_loss(row.loss), row.ms[2]);
    sr.iter().filter(slow).map(told).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_table_is_read_as_it_was_written_and_another_text_is_none() {
        let mut written = rows();
        written.iter_mut().zip(1..).for_each(|(row, n)| row.ms = [0.125 * f64::from(n), 2.0, 3.5, 400.001]);
        let text = render(&written);
        assert_eq!(parse(&text), Some(written));
        for other in [text.replace("1e-4", "2e-4"), text.replace("sr", "rc"), format!("{text}more\n"), String::new()] {
            assert_eq!(parse(&other), None, "{other}");
        }
    }

    #[test]
    fn a_high_quantile_that_is_too_slow_is_told() {
        let row = |loss, selective, p99| Row { selective, loss, ms: [41.0, 41.0, p99, 400.0] };
        let rows = |p99| [row(0.0, false, 41.0), row(0.0, true, 41.0), row(1e-3, false, 200.0), row(1e-3, true, p99)];
        assert_eq!(missed(&rows(90.9)), [""; 0]);
        assert_eq!(missed(&rows(91.1)), ["loss 1e-3: p99 of sr is 91.100 ms, more than 91.000"]);
    }
}
