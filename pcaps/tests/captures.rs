//! Whole captures decoded: ours, and, where `SOFTNIC_CAPTURES` names a folder of them, those of real hardware.

mod common;

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use common::{captures_in, corpus, frames};
use softnic_pcaps::decode::{IcrcVerdict, decode_ethernet};
use softnic_pcaps::summary::Summary;

fn summary(path: &Path) -> Summary {
    let mut s = Summary::default();
    for f in frames(path) {
        match decode_ethernet(&f.data) {
            Ok(d) => {
                let whole = d.icrc == IcrcVerdict::Truncated || d.headers_complete();
                assert!(whole, "{} frame {}: headers are missing", path.display(), f.number);
                s.add(&d, f.time.nanos(), f.original_len);
            }
            Err(e) => s.add_other(&e),
        }
    }
    s
}

/// Packets and damaged packets of all rows of our index.
fn our_index() -> (u64, BTreeMap<String, u64>) {
    let text = fs::read_to_string(corpus().join("INDEX.md")).unwrap();
    let (mut packets, mut damaged) = (0, BTreeMap::new());
    for line in text.lines() {
        let cells: Vec<_> = line.trim_matches('|').split('|').map(str::trim).collect();
        let [name, count, what] = cells[..] else { continue };
        if name.ends_with(".pcap") {
            packets += count.parse::<u64>().unwrap();
            let count = what.strip_suffix(" damaged").and_then(|w| w.rsplit_once("; "));
            damaged.insert(name.to_owned(), count.map_or(0, |(_, n)| n.parse().unwrap()));
        }
    }
    (packets, damaged)
}

#[test]
fn every_packet_of_ours_decodes_and_has_a_right_icrc_but_where_the_index_says_damaged() {
    let (sum, damaged) = our_index();
    let mut packets = 0;
    for path in captures_in(&corpus()) {
        let s = summary(&path);
        let name = path.file_name().unwrap().to_str().unwrap();
        assert_eq!((s.packets, s.other_frames, s.fragments, s.undecodable), (s.frames, 0, 0, 0), "{name}");
        let wrong = s.icrc_bad + s.icrc_truncated;
        assert_eq!((s.icrc_ok, wrong), (s.frames - damaged[name], damaged[name]), "{name}");
        assert!(s.malformed <= wrong, "{name}: {} packets make no sense", s.malformed);
        packets += s.packets;
    }
    assert_eq!(packets, sum, "the sum of the index");
}

/// `right/all` of the last column of `INDEX.md`, by file.
fn index(folder: &Path) -> BTreeMap<String, (u64, u64)> {
    let path = folder.join("INDEX.md");
    let text = fs::read_to_string(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
    let row = |line: &str| {
        let cells: Vec<_> = line.trim().trim_matches('|').split('|').map(str::trim).collect();
        let name = cells.first().filter(|n| n.ends_with(".pcap") || n.ends_with(".pcapng"))?;
        // Behind the numbers there may be a remark.
        let (right, rest) = cells.last()?.split_once('/')?;
        let all = rest.split(|c: char| !c.is_ascii_digit()).next()?;
        Some((name.to_string(), (right.parse().ok()?, all.parse().ok()?)))
    };
    text.lines().filter_map(row).collect()
}

#[test]
fn captures_of_hardware_have_the_icrcs_that_their_index_says() {
    let Some(folder) = std::env::var_os("SOFTNIC_CAPTURES").filter(|v| !v.is_empty()).map(PathBuf::from) else {
        eprintln!("left out: SOFTNIC_CAPTURES does not name a folder with captures of hardware");
        return;
    };
    let index = index(&folder);
    assert!(!index.is_empty(), "INDEX.md in {} has no table of captures", folder.display());
    let mut found = BTreeMap::new();
    for path in captures_in(&folder) {
        let s = summary(&path);
        let name = path.file_name().unwrap().to_str().unwrap().to_owned();
        assert_eq!((s.undecodable, s.fragments, s.malformed), (0, 0, 0), "{name}");
        assert_eq!(s.icrc_ok + s.icrc_bad, s.packets, "{name}: a packet is cut off");
        found.insert(name, (s.icrc_ok, s.packets));
    }
    assert_eq!(found, index);
}
