//! The captures in `corpus/` and their index.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::path::PathBuf;

use softnic_pcaps::{LinkType, Reader};

fn corpus() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("corpus")
}

/// File name and packet count of every row of the index.
fn index() -> BTreeMap<String, u64> {
    let text = fs::read_to_string(corpus().join("INDEX.md")).unwrap();
    let rows = text.lines().filter_map(|line| {
        let mut cells = line.split('|').map(str::trim).skip(1);
        let name = cells.next().filter(|n| n.ends_with(".pcap"))?;
        Some((name.to_owned(), cells.next()?.parse().unwrap()))
    });
    rows.collect()
}

#[test]
fn every_capture_is_in_the_index_with_its_packets() {
    let mut found = BTreeMap::new();
    for entry in fs::read_dir(corpus()).unwrap() {
        let path = entry.unwrap().path();
        if path.extension().is_none_or(|e| e != "pcap") {
            continue;
        }
        let mut reader = Reader::new(File::open(&path).unwrap()).unwrap();
        let mut count = 0;
        while let Some(frame) = reader.next_frame().unwrap() {
            count += 1;
            assert_eq!(frame.number, count);
            assert_eq!(frame.link, LinkType::Ethernet);
            assert_eq!(frame.data.len(), frame.original_len as usize, "{} has a cut packet", path.display());
        }
        found.insert(path.file_name().unwrap().to_str().unwrap().to_owned(), count);
    }
    assert_eq!(found, index());
    let ours = found.keys().filter(|name| name.starts_with("interop_")).count();
    let managers = found.keys().filter(|name| name.starts_with("cm_softnic_")).count();
    let selective = found.keys().filter(|name| name.starts_with("sr_")).count();
    let repaired = found.keys().filter(|name| name.starts_with("lowar_")).count();
    let best_effort = found.keys().filter(|name| name.starts_with("xp_")).count();
    let groups = found.keys().filter(|name| name.starts_with("group_")).count();
    let over_dpdk = found.keys().filter(|name| name.starts_with("softnic_igb_")).count();
    let messages = found.keys().filter(|name| name.starts_with("sdr_")).count();
    assert_eq!(
        (
            found.len() - ours - managers - selective - repaired - best_effort - messages - groups - over_dpdk,
            managers,
            selective,
            repaired,
            best_effort,
            messages,
            groups,
            over_dpdk
        ),
        (33, 8, 2, 3, 2, 4, 3, 2),
        "those of rxe with itself, and with our connection manager; of our NICs with each other"
    );
    // Each operation with each requester; but nothing of rxe gets through a wire that loses everything.
    assert!(ours >= 60 && ours % 2 == 1, "{ours}");
    assert!(!found.contains_key("interop_retry_exceeded_rxe.pcap"));
}
