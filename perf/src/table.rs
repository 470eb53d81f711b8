//! `softnic perf` without an operation: every transport on the wire in memory, side by side.

use std::collections::BTreeMap;
use std::io::{self, IsTerminal, Write};
use std::time::Duration;

use indicatif::{ProgressBar, ProgressStyle};
use softnic_runtime::api::Transport;

use super::plan::{Amount, Op, Plan};
use super::report::{self, Measured, written};
use super::session::{self, Setup};
use super::stop;

/// How long each of the figures is measured, unless somebody says.
const EACH: Duration = Duration::from_millis(800);

/// What a row measures: bandwidth, latency, message rate, each with its size.
type Cells = [(Op, u32); 3];

const WRITES: Cells = [(Op::WriteBw, 64 << 10), (Op::WriteLat, 64), (Op::WriteBw, 64)];
const SENDS: Cells = [(Op::SendBw, 4096), (Op::SendLat, 64), (Op::SendBw, 64)];
const RAW: Cells = [(Op::Raw, 4096), (Op::RawLat, 64), (Op::Raw, 64)];

/// Every transport, and the wire without any.
fn rows() -> Vec<(String, Transport, Cells)> {
    let row = |t: Transport| (t.to_string(), t, if t.has_write() { WRITES } else { SENDS });
    Transport::all().map(row).chain([("raw".into(), Transport::Rc, RAW)]).collect()
}

fn bar(rows: usize) -> ProgressBar {
    if !io::stderr().is_terminal() {
        return ProgressBar::hidden();
    }
    let style = ProgressStyle::with_template("{bar:40} {pos}/{len} {msg}");
    let count = rows as u64 * 3;
    ProgressBar::new(count).with_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()))
}

/// Measures all, and prints a row when it is whole.
pub fn run(setup: &Setup, each: Option<Duration>, as_json: bool) -> Result<(), String> {
    let rows = rows();
    let bar = bar(rows.len());
    if !as_json {
        written(writeln!(
            io::stdout(),
            "two NICs in this process, a wire in memory between them, one queue pair, MTU 4096\n\n{:<10} {:>22} {:>22} {:>22}",
            "",
            "bandwidth [Gb/sec]",
            "latency [usec]",
            "messages [Mpps]"
        ))?;
    }
    for (name, transport, cells) in rows {
        let mut row = Vec::new();
        for (op, size) in cells {
            bar.set_message(format!("{name} {}", op.name()));
            let amount = Amount::Seconds(each.unwrap_or(EACH).as_secs_f64());
            let plan = Plan::usual(op, transport, size, 4096, amount);
            let mut tell = |plan: &Plan, measured: &Measured, counters: &BTreeMap<String, u64>| {
                row.push(measured.clone());
                match as_json {
                    true => bar.suspend(|| written(report::print(plan, measured, counters, true))),
                    false => Ok(()),
                }
            };
            session::in_memory(setup, &plan, &mut |_, _| Ok(()), &mut tell)?;
            bar.inc(1);
            if stop::requested() {
                break;
            }
        }
        if !as_json {
            let line = line(&name, &row, &cells);
            bar.suspend(|| written(writeln!(io::stdout(), "{line}")))?;
        }
        if stop::requested() {
            break;
        }
    }
    bar.finish_and_clear();
    if !as_json {
        written(writeln!(
            io::stdout(),
            "\nraw: frames of the same length without any protocol, the limit to compare with"
        ))?;
    }
    Ok(())
}

fn line(name: &str, row: &[Measured], cells: &Cells) -> String {
    let mut line = format!("{name:<10}");
    for (i, (measured, (op, size))) in row.iter().zip(cells).enumerate() {
        let value = match measured {
            Measured::Bandwidth(rates) if i == 0 => format!("{:.2}", rates.average_gbps()),
            Measured::Bandwidth(rates) => format!("{:.3}", rates.mpps()),
            Measured::Latency(times) => format!("{:.2}", times.typical()),
        };
        let size = if *size >= 1024 { format!("{}K", size / 1024) } else { size.to_string() };
        line += &format!(" {:>22}", format!("{value} ({} {size})", op.name()));
    }
    line
}
