//! `softnic perf` without an operation: every transport on the wire in memory, side by side.

use std::collections::BTreeMap;
use std::io::{self, IsTerminal, Write};
use std::time::Duration;

use indicatif::{ProgressBar, ProgressStyle};
use softnic_runtime::api::Transport;
use softnic_runtime::api::sdr::Scheme;

use super::plan::{Amount, Op, Plan, ReliablePlan, SdrPlan};
use super::report::{self, Measured, written};
use super::session::{self, Setup};
use super::stop;

/// How long each of the figures is measured, unless somebody says.
const EACH: Duration = Duration::from_millis(800);

/// What a row measures: bandwidth, latency, message rate, each with its size, where there is one.
type Cells = [Option<(Op, u32)>; 3];

const WRITES: Cells = [Some((Op::WriteBw, 64 << 10)), Some((Op::WriteLat, 64)), Some((Op::WriteBw, 64))];
const SENDS: Cells = [Some((Op::SendBw, 4096)), Some((Op::SendLat, 64)), Some((Op::SendBw, 64))];
/// Of SDR there is `write_bw` alone, and of reliable messages no latency.
const MESSAGES: Cells = [WRITES[0], None, WRITES[2]];
const RAW: Cells = [Some((Op::Raw, 4096)), Some((Op::RawLat, 64)), Some((Op::Raw, 64))];

struct Row {
    name: String,
    transport: Transport,
    sdr: Option<SdrPlan>,
    reliable: Option<ReliablePlan>,
    cells: Cells,
}

impl Row {
    fn new(name: &str, transport: Transport, cells: Cells) -> Row {
        Row { name: name.into(), transport, sdr: None, reliable: None, cells }
    }

    fn plan(&self, op: Op, size: u32, amount: Amount) -> Plan {
        let plan = Plan::usual(op, self.transport, size, 4096, amount);
        match self.sdr.is_some() || self.reliable.is_some() {
            true => Plan { sdr: self.sdr, reliable: self.reliable, depth: SdrPlan::DEPTH, ..plan },
            false => plan,
        }
    }
}

/// Every transport, messages on top of one, and the wire without any.
fn rows() -> Vec<Row> {
    let row = |t: Transport| Row::new(&t.to_string(), t, if t.has_write() { WRITES } else { SENDS });
    let sdr = Row { sdr: Some(SdrPlan::default()), ..Row::new("sdr", Transport::Uc, MESSAGES) };
    let reliable = [Scheme::Sr, Scheme::Nack].map(|scheme| Row {
        reliable: Some(ReliablePlan::usual(scheme)),
        ..Row::new(&scheme.to_string(), Transport::Rc, MESSAGES)
    });
    Transport::all().map(row).chain([sdr]).chain(reliable).chain([Row::new("raw", Transport::Rc, RAW)]).collect()
}

fn bar(rows: &[Row]) -> ProgressBar {
    if !io::stderr().is_terminal() {
        return ProgressBar::hidden();
    }
    let style = ProgressStyle::with_template("{bar:40} {pos}/{len} {msg}");
    let count = rows.iter().flat_map(|row| row.cells.iter().flatten()).count();
    ProgressBar::new(count as u64).with_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()))
}

/// Measures all, and prints a row when it is whole.
pub fn run(setup: &Setup, each: Option<Duration>, as_json: bool) -> Result<(), String> {
    let rows = rows();
    let bar = bar(&rows);
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
    for row in rows {
        let mut line = format!("{:<10}", row.name);
        for (column, cell) in row.cells.iter().enumerate() {
            let &Some((op, size)) = cell else {
                line += &format!(" {:>22}", "-");
                continue;
            };
            bar.set_message(format!("{} {}", row.name, op.name()));
            let plan = row.plan(op, size, Amount::Seconds(each.unwrap_or(EACH).as_secs_f64()));
            let mut tell = |plan: &Plan, measured: &Measured, counters: &BTreeMap<String, u64>| {
                line += &format!(" {:>22}", shown(column, measured, op, size));
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

/// A figure, with what it is of. The first column is of bytes, the last one of messages.
fn shown(column: usize, measured: &Measured, op: Op, size: u32) -> String {
    let value = match measured {
        Measured::Bandwidth(rates) if column == 0 => format!("{:.2}", rates.average_gbps()),
        Measured::Bandwidth(rates) => format!("{:.3}", rates.mpps()),
        Measured::Latency(times) => format!("{:.2}", times.typical()),
    };
    let size = if size >= 1024 { format!("{}K", size / 1024) } else { size.to_string() };
    format!("{value} ({} {size})", op.name())
}
