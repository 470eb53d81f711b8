//! The table of goodput by loss and round-trip time, held against the one that was reviewed.
//!
//! `cargo run --release -p softnic-sim --example goodput_table` checks it, `-- --update` writes it anew.
#![allow(clippy::print_stdout)] // printing is what it is for

use std::path::Path;
use std::process::ExitCode;

use softnic_sim::table;

/// How far a cell may be from the formula.
const TOLERANCE: f64 = 0.2;

fn main() -> ExitCode {
    let update = std::env::args().any(|a| a == "--update");
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("snapshots/goodput-rc.txt");
    let threads = std::thread::available_parallelism().map_or(1, Into::into);
    let runs = table::LOSSES.len() * table::RTTS.len() * table::SEEDS.len();
    let cells = match table::measure(threads, &|done| eprintln!("{done} of {runs} runs done")) {
        Ok(cells) => cells,
        Err(e) => {
            eprintln!("goodput_table: {e}");
            return ExitCode::FAILURE;
        }
    };
    let text = table::render(&cells);
    println!("{text}");
    let far: Vec<_> = cells.iter().flatten().filter(|c| (c.ratio() - 1.0).abs() > TOLERANCE).collect();
    if !far.is_empty() {
        eprintln!("goodput_table: {} cells are more than 20 % from the formula: {far:?}", far.len());
        return ExitCode::FAILURE;
    }
    if update {
        return match std::fs::write(&path, &text) {
            Ok(()) => ExitCode::SUCCESS,
            Err(e) => {
                eprintln!("goodput_table: {}: {e}", path.display());
                ExitCode::FAILURE
            }
        };
    }
    if std::fs::read_to_string(&path).is_ok_and(|reviewed| reviewed == text) {
        return ExitCode::SUCCESS;
    }
    eprintln!(
        "goodput_table: not what sim/snapshots/goodput-rc.txt says. If the change is meant, review it and run this with --update"
    );
    ExitCode::FAILURE
}
