//! Packets of authenticated connections: the trailer is told apart where the capture has the negotiation.

use std::collections::BTreeMap;
use std::fs::{self, File, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::process::Command;

use serde_json::Value;
use softnic_pcaps::{LinkType, Reader};

use super::program::{ethernet, pcap, run, run_with_input, scratch};

const MTU: u64 = 1024;
/// Bytes of a message: two packets, the second with padding.
const SIZE: u64 = 1501;
const TRAILER: u64 = 24;
/// Bytes of a frame with a MAD.
const MAD: usize = 14 + 20 + 8 + 12 + 8 + 256 + 4;

/// The frames of three WRITEs over an authenticated connection.
fn capture(test: &str, transport: &str) -> Vec<Vec<u8>> {
    let key = scratch(&format!("auth-{test}-{transport}.key"), b"any thirty-two bytes of a secret");
    fs::set_permissions(&key, Permissions::from_mode(0o600)).unwrap();
    let file = scratch(&format!("auth-{test}-{transport}.pcap"), b"");
    let mut command = Command::new(env!("CARGO_BIN_EXE_softnic"));
    command.args(["perf", "write_bw", "--iters", "3", "--size", "1501", "--mtu", "1024", "--transport", transport]);
    let ran = run(command.arg("--auth").arg(&key).arg("--pcap").arg(&file));
    assert_eq!(ran.code, Some(0), "{}", ran.stderr);
    let mut reader = Reader::new(File::open(&file).unwrap()).unwrap();
    let mut frames = Vec::new();
    while let Some(f) = reader.next_frame().unwrap() {
        frames.push(f.data.to_vec());
    }
    [key, file].iter().for_each(|path| fs::remove_file(path).unwrap());
    frames
}

/// The packets of a capture file that are not for QP1.
fn packets(capture: &[u8]) -> Vec<Value> {
    let out = run_with_input(&["--json"], capture).well();
    let all = out.stdout.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
    all.filter(|v| v["dest_qp"].as_u64().is_some_and(|qp| qp != 1)).collect()
}

fn is_write(v: &Value) -> bool {
    v["opcode"].as_str().unwrap().contains("RDMA_WRITE")
}

/// The lengths of what WRITEs carry, each once.
fn lengths(packets: &[Value]) -> Vec<u64> {
    let mut all: Vec<u64> =
        packets.iter().filter(|v| is_write(v)).map(|v| v["payload_len"].as_u64().unwrap()).collect();
    all.sort_unstable();
    all.dedup();
    all
}

#[test]
fn the_trailer_is_named_behind_a_negotiation_and_is_no_payload() {
    for transport in ["rc", "sr", "lowar:8,2"] {
        let frames = capture("named", transport);
        let packets = packets(&ethernet(&frames));
        assert_eq!(lengths(&packets), [SIZE - MTU, MTU], "{transport}");
        let mut epochs: BTreeMap<&str, Vec<u64>> = BTreeMap::new();
        for v in &packets {
            assert_eq!((v["icrc"].as_str(), v["error"].as_str()), (Some("ok"), None), "{transport}: {v}");
            assert_eq!(v["ext"]["auth"]["tag"].as_str().map(str::len), Some(32), "{transport}: {v}");
            let epoch = v["ext"]["auth"]["epoch"].as_u64().unwrap();
            epochs.entry(v["src"].as_str().unwrap()).or_default().push(epoch);
        }
        assert_eq!(epochs.len(), 2, "{transport}: both ends");
        for of_one in epochs.values() {
            let counted: Vec<u64> = (1..=of_one.len() as u64).collect();
            assert_eq!(of_one, &counted, "{transport}: every packet of a sender is counted");
        }
        let words = run_with_input(&[], &ethernet(&frames)).well();
        assert!(words.packets().iter().any(|line| line.contains(", auth epoch 1, icrc ok")), "{}", words.stdout);
    }
}

#[test]
fn a_trailer_that_was_cut_off_is_no_payload_either() {
    // Whole MADs, and of longer frames what a snap length of as much leaves.
    let packets = packets(&pcap(LinkType::Ethernet, &capture("cut", "rc"), MAD));
    assert_eq!(lengths(&packets), [SIZE - MTU, MTU]);
    assert!(packets.iter().filter(|v| is_write(v)).all(|v| v["ext"].get("auth").is_none()));
}

#[test]
fn without_the_negotiation_a_trailer_is_the_end_of_the_payload() {
    let frames = capture("alone", "rc");
    let behind: Vec<Vec<u8>> = frames.iter().filter(|f| f.len() != MAD).cloned().collect();
    let packets = packets(&ethernet(&behind));
    assert_eq!(lengths(&packets), [SIZE - MTU + TRAILER, MTU + TRAILER]);
    assert!(packets.iter().all(|v| v["ext"].get("auth").is_none()));
}
