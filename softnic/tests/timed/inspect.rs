//! A run of `softnic sim` as `softnic inspect` shows it: the negotiation, and the header of each packet.

use std::path::PathBuf;
use std::process::Command;

use serde_json::{Value, json};

fn softnic(arguments: &[&str]) -> String {
    let out = Command::new(env!("CARGO_BIN_EXE_softnic")).args(arguments).output().unwrap();
    assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
    String::from_utf8(out.stdout).unwrap()
}

/// Two SENDs of three packets each, captured.
fn capture(name: &str) -> String {
    let path = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(name);
    let path = path.to_str().unwrap();
    softnic(&["sim", "--transport", "timed", "--op", "send", "--size", "2500", "--count", "2", "--pcap", path]);
    path.to_owned()
}

#[test]
fn the_header_of_each_packet_is_shown() {
    let shown = softnic(&["inspect", &capture("timed.pcap")]);
    let lines: Vec<&str> = shown.lines().collect();
    assert!(lines.iter().any(|l| l.contains("offer") && l.contains("timed")), "{shown}");
    let packets: Vec<&&str> = lines.iter().filter(|l| l.contains(" TIMED_SEND_") && l.contains(" psn ")).collect();
    let message = |number| {
        let at = |position, offset| (position, format!(", timed {number} at {offset}, "));
        [at("FIRST", 0), at("MIDDLE", 1024), at("LAST_WITH_IMMEDIATE", 2048)]
    };
    let expected = [message(0), message(3)].concat();
    assert_eq!(packets.len(), expected.len(), "{shown}");
    for (line, (position, header)) in packets.iter().zip(expected) {
        assert!(line.contains(&format!(" TIMED_SEND_{position} ")) && line.contains(&header), "{line}");
        assert!(line.ends_with("icrc ok"), "{line}");
    }
}

#[test]
fn in_json_it_is_an_object_of_its_own() {
    let shown = softnic(&["inspect", "--json", &capture("timed-json.pcap")]);
    let packets: Vec<Value> = shown.lines().map(|l| serde_json::from_str(l).unwrap()).collect();
    let headers: Vec<&Value> = packets.iter().filter_map(|p| p["ext"].get("timed")).collect();
    assert_eq!(headers.len(), 6, "{shown}");
    assert_eq!(*headers[4], json!({ "number": 3, "offset": 1024 }));
}
