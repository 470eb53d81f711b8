//! The captures of `pcaps/corpus` that show softnic and rxe: one for each operation and requester, and their rows in the index.

use std::fmt::Write;
use std::fs::{self, File};
use std::path::Path;

use softnic_pcaps::decode::{IcrcVerdict, decode_ethernet};
use softnic_pcaps::{LinkType, PcapWriter, Reader};
use softnic_wire::PathMtu;

use super::scenario::{self, Scenario};
use super::setup::{Setup, Side};
use crate::project;

/// What their names begin with.
const PREFIX: &str = "interop_";
const INDEX: &str = "pcaps/corpus/INDEX.md";
const BEGIN: &str = "<!-- made by `cargo xtask interop --write-corpus`: do not edit -->\n";
const END: &str = "<!-- end of what is made -->\n";
/// Nobody wants to read more.
const LONGEST: u64 = 20_000;

/// The scenarios with the shortest packets: what softnic asks for over IPv4, what rxe asks for over IPv6.
pub(super) fn scenarios() -> Vec<Scenario> {
    let chosen = |s: &Scenario| s.mtu == PathMtu::B256 && s.ipv6 == (s.requester == Side::Rxe);
    scenario::all().into_iter().filter(chosen).collect()
}

/// Fewer queue pairs, and faults that a few packets meet.
pub(super) fn smaller(setup: Setup) -> Setup {
    let faults = match setup.faults {
        "" => "",
        f if f.contains(',') => "loss=0.03,reorder=0.03:2,dup=0.03,corrupt=0.03",
        f if f.starts_with("loss=1") || f.starts_with("jitter") => f,
        f if f.starts_with("loss") => "loss=0.08",
        f if f.starts_with("reorder") => "reorder=0.08:2",
        f if f.starts_with("dup") => "dup=0.08",
        _ => "corrupt=0.08",
    };
    Setup { qps: setup.qps.min(5), faults, ..setup }
}

/// Takes the captures in `made` over into the corpus; says what there is now.
pub(super) fn write(made: &Path, corpus: &Path) -> Result<String, String> {
    let io = |e: std::io::Error| e.to_string();
    for entry in fs::read_dir(corpus).map_err(io)?.flatten() {
        if entry.file_name().to_string_lossy().starts_with(PREFIX) {
            fs::remove_file(entry.path()).map_err(io)?;
        }
    }
    let mut rows = String::from("| file | packets | what happens |\n|---|---|---|\n");
    let (mut files, mut bytes) = (0, 0);
    for scenario in scenarios() {
        let from = made.join(format!("{}.pcap", scenario.name().replace('/', "_")));
        let name = format!("{PREFIX}{}_{}.pcap", scenario.operation.name.replace('-', "_"), scenario.requester.name());
        let to = corpus.join(&name);
        let (packets, damaged) = copy_roce(&from, &to).map_err(|e| format!("{name}: {e}"))?;
        if packets == 0 {
            // On a wire that loses everything, what the other side sends never reaches the capture.
            fs::remove_file(&to).map_err(io)?;
            continue;
        }
        let size = fs::metadata(&to).map_err(io)?.len();
        if size > LONGEST {
            return Err(format!("{name} has {size} bytes, which is too long for the corpus"));
        }
        let damaged = if damaged > 0 { format!("; {damaged} damaged") } else { String::new() };
        let what = scenario.operation.what;
        // Writing to a String cannot fail.
        let _ = writeln!(rows, "| {name} | {packets} | {what}{damaged} |");
        (files, bytes) = (files + 1, bytes + size);
    }
    project::write_between_marks(INDEX, BEGIN, END, &rows)?;
    Ok(format!("pcaps/corpus: {files} captures, {bytes} bytes"))
}

/// Copies a capture without what is not RoCE; how many packets there are, and how many of them are damaged.
fn copy_roce(from: &Path, to: &Path) -> Result<(u64, u64), Box<dyn std::error::Error>> {
    let mut reader = Reader::new(File::open(from)?)?;
    let mut writer = PcapWriter::new(File::create(to)?, LinkType::Ethernet)?;
    let (mut packets, mut damaged) = (0, 0);
    while let Some(frame) = reader.next_frame()? {
        let Ok(d) = decode_ethernet(frame.data) else { continue };
        packets += 1;
        damaged += u64::from(d.icrc != IcrcVerdict::Ok || d.problem.is_some());
        writer.write(frame.time, frame.data, frame.original_len)?;
    }
    writer.flush()?;
    Ok((packets, damaged))
}
