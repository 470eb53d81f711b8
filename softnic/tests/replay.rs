//! `softnic replay` as people call it: exit codes, lines, JSON.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

fn corpus(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../pcaps/corpus").join(name)
}

fn replay(args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_softnic")).arg("replay").args(args).output().unwrap()
}

fn stdout(out: &Output) -> String {
    String::from_utf8_lossy(&out.stdout).into_owned()
}

#[test]
fn exit_0_and_a_summary_where_nothing_is_different() {
    let out = replay(&[corpus("loss_send_middle_nak.pcap").to_str().unwrap()]);
    assert_eq!(out.status.code(), Some(0), "{}", stdout(&out));
    assert!(stdout(&out).contains("0 differences, 0 undetermined, 0 allowed; 21 requests and 4 answers equal"));
    assert!(stdout(&out).contains("inferred: 1 requests were lost before the responder"));
}

#[test]
fn exit_1_and_the_packet_named_where_an_answer_was_altered() {
    // The NAK of packet 11 asks for another packet; its ICRC is made right.
    let mut file = std::fs::read(corpus("loss_send_middle_nak.pcap")).unwrap();
    let mut at = 24;
    for _ in 1..11 {
        at += 16 + u32::from_le_bytes(file[at + 8..at + 12].try_into().unwrap()) as usize;
    }
    let len = u32::from_le_bytes(file[at + 8..at + 12].try_into().unwrap()) as usize;
    let frame = &mut file[at + 16..at + 16 + len];
    let layout = softnic_wire::Layout::locate(frame).unwrap();
    frame[layout.bth + 12] = 0x61;
    let Err(softnic_wire::Error::Icrc { expected, .. }) = softnic_wire::icrc::verify_shared(frame, &layout) else {
        panic!("the packet is not the one that was meant");
    };
    frame[layout.end - 4..layout.end].copy_from_slice(&expected.to_le_bytes());
    let path = std::env::temp_dir().join(format!("softnic-replay-{}.pcap", std::process::id()));
    std::fs::write(&path, &file).unwrap();
    let out = replay(&[path.to_str().unwrap()]);
    let json = replay(&["--json", path.to_str().unwrap()]);
    std::fs::remove_file(&path).unwrap();
    assert_eq!(out.status.code(), Some(1), "{}", stdout(&out));
    assert!(stdout(&out).contains("packet 11: captured RC_ACKNOWLEDGE"), "{}", stdout(&out));
    let value: serde_json::Value = serde_json::from_str(&stdout(&json)).unwrap();
    assert_eq!((value["verdict"].as_str(), value["differences"][0]["packet"].as_u64()), (Some("differs"), Some(11)));
}

#[test]
fn exit_2_and_one_line_where_nothing_can_be_replayed() {
    for (arg, part) in [("/no/such/file.pcap", "No such file"), (env!("CARGO_MANIFEST_DIR"), "directory")] {
        let out = replay(&[arg]);
        let error = String::from_utf8_lossy(&out.stderr);
        assert_eq!((out.status.code(), error.lines().count()), (Some(2), 1), "{error}");
        assert!(error.contains(part), "{error}");
    }
}

#[test]
fn the_table_of_allowed_differences_is_printed() {
    let out = replay(&["--allowed"]);
    assert_eq!(out.status.code(), Some(0));
    assert!(stdout(&out).contains("rxe: rxe's departure"));
}
