//! The tables of goodput by loss and round-trip time, and of flow completion times, held against those that were reviewed.
//!
//! `cargo run --release -p softnic-swarm --example goodput_table` checks them with a part of the runs; `-- --all` makes all of
//! them, `-- --update` does and writes the tables anew. `rc`, `sr` and `flows` name one of them.
#![allow(clippy::print_stdout)] // printing is what it is for

use std::path::PathBuf;
use std::process::ExitCode;

use softnic_sim::table::{self, Run, flows, selective};

/// How far a cell of `rc` may be from the formula.
const TOLERANCE: f64 = 0.2;
const RC: &str = "goodput-rc.txt";
const SR: &str = "goodput-sr.txt";
const FLOWS: &str = "flows.txt";

fn main() -> ExitCode {
    match tables(&std::env::args().skip(1).collect::<Vec<_>>()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(why) => {
            eprintln!("goodput_table: {why}");
            ExitCode::FAILURE
        }
    }
}

fn tables(arguments: &[String]) -> Result<(), String> {
    let (mut all, mut update, mut named) = (false, false, Vec::new());
    for argument in arguments {
        match &**argument {
            "--all" => all = true,
            "--update" => update = true,
            table @ ("rc" | "sr" | "flows") => named.push(table),
            other => return Err(format!("there is no table '{other}': choose rc, sr, flows, --all, --update")),
        }
    }
    for table in if named.is_empty() { vec!["rc", "sr", "flows"] } else { named } {
        match table {
            "rc" => go_back_n(all || update, update)?,
            "sr" => selective_repeat(all || update, update)?,
            _ => completion_times(all || update, update)?,
        }
    }
    Ok(())
}

fn go_back_n(all: bool, update: bool) -> Result<(), String> {
    let goodput = measure(RC, &table::runs(false), all)?;
    hold(RC, &table::render(&goodput), update)?;
    let cells = table::cells(&table::means(&goodput));
    let far: Vec<_> = cells.iter().flatten().filter(|c| (c.ratio() - 1.0).abs() > TOLERANCE).collect();
    if far.is_empty() {
        return Ok(());
    }
    Err(format!("{} cells are more than 20 % from the formula: {far:?}", far.len()))
}

fn selective_repeat(all: bool, update: bool) -> Result<(), String> {
    let rc = table::means(&reviewed(RC, &table::runs(false)).ok_or_else(|| no_table(RC))?);
    let goodput = measure(SR, &selective::runs(), all)?;
    hold(SR, &selective::render(&rc, &goodput), update)?;
    none(&selective::missed(&rc, &goodput))
}

/// All rows, or those of `sr`, of which something is aimed at.
fn completion_times(all: bool, update: bool) -> Result<(), String> {
    let mut rows = match (all, read(FLOWS).and_then(|text| flows::parse(&text))) {
        (false, None) => return Err(no_table(FLOWS)),
        (_, reviewed) => reviewed.unwrap_or_else(flows::rows),
    };
    let mut made: Vec<_> = rows.iter_mut().filter(|row| all || row.selective).collect();
    let count = made.len();
    let progress = |done| eprintln!("{FLOWS}: {done} of {count} runs done");
    flows::measure(&mut made, threads(), &progress).map_err(|e| e.to_string())?;
    hold(FLOWS, &flows::render(&rows), update)?;
    none(&flows::missed(&rows))
}

fn none(missed: &[String]) -> Result<(), String> {
    if missed.is_empty() { Ok(()) } else { Err(format!("sr misses what it aims at:\n{}", missed.join("\n"))) }
}

fn threads() -> usize {
    std::thread::available_parallelism().map_or(1, Into::into)
}

/// The goodput of each of `runs`: all made now, or the quick ones; what is not made is what it was when it was reviewed.
fn measure(name: &str, runs: &[Run], all: bool) -> Result<Vec<f64>, String> {
    let mut goodput = match (all, reviewed(name, runs)) {
        (false, None) => return Err(no_table(name)),
        (_, reviewed) => reviewed.unwrap_or_else(|| vec![0.0; runs.len()]),
    };
    let (places, made): (Vec<_>, Vec<Run>) =
        runs.iter().enumerate().filter(|(_, run)| all || table::is_quick(run)).unzip();
    let progress = |done| eprintln!("{name}: {done} of {} runs done", made.len());
    let values = table::measure(&made, threads(), &progress).map_err(|e| e.to_string())?;
    for (place, value) in places.into_iter().zip(values) {
        goodput[place] = table::rounded(value);
    }
    Ok(goodput)
}

fn reviewed(name: &str, runs: &[Run]) -> Option<Vec<f64>> {
    read(name).and_then(|text| table::parse(&text, runs))
}

fn read(name: &str) -> Option<String> {
    std::fs::read_to_string(path(name)).ok()
}

fn no_table(name: &str) -> String {
    format!("swarm/snapshots/{name} is no such table: make it with --update")
}

fn path(name: &str) -> PathBuf {
    [env!("CARGO_MANIFEST_DIR"), "snapshots", name].iter().collect()
}

/// Prints a table; it must be the one that was reviewed, or becomes it.
fn hold(name: &str, text: &str, update: bool) -> Result<(), String> {
    println!("{text}");
    let path = path(name);
    if update {
        return std::fs::write(&path, text).map_err(|e| format!("{}: {e}", path.display()));
    }
    if std::fs::read_to_string(&path).is_ok_and(|reviewed| reviewed == text) {
        return Ok(());
    }
    Err(format!("not what swarm/snapshots/{name} says. If the change is meant, review it and run this with --update"))
}
