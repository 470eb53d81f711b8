//! What is found in the captures of `corpus/`: a table that was read against what its index says was done to each.

use std::fmt::Write as _;
use std::path::Path;

use softnic_pcaps::faults::{Event, Options};

use crate::common::{captures_in, corpus, frames};
use crate::observe;

/// As in `ab drop RC_SEND_MIDDLE #1 +3 (1) packet 4`; `x3` stands for the third of its opcode.
fn line(e: &Event) -> String {
    let opcode = e.opcode.map_or("?".to_owned(), |o| o.to_string());
    let action = format!("{:?}", e.action).to_lowercase();
    let mut line = format!("{} {action} {opcode}", e.way);
    let _ = match e.destination {
        Some(n) => write!(line, " #{n}"),
        None => write!(line, " {}", e.dest_qp),
    };
    let _ = match (e.after_first, e.iteration, e.nth) {
        (Some(n), Some(i), _) => write!(line, " +{n} ({i})"),
        (_, _, Some(n)) => write!(line, " x{n}"),
        _ => Ok(()),
    };
    let _ = match e.packet {
        Some(n) => write!(line, " packet {n}"),
        None => write!(line, " unseen"),
    };
    line
}

fn found_in(path: &Path) -> Vec<String> {
    observe(&frames(path), Options::default()).events.iter().map(line).collect()
}

#[test]
fn show() {
    for path in captures_in(&corpus()) {
        let found = found_in(&path);
        if !found.is_empty() {
            println!("(\"{}\", &[", path.file_stem().unwrap().to_str().unwrap());
            found.iter().for_each(|l| println!("    \"{l}\","));
            println!("]),");
        }
    }
}
