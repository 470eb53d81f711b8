//! Packets and files that are cut off or wrong: shown as far as they go, never called right.

use std::fs;
use std::io::Write;
use std::process::Stdio;

use serde_json::{Value, json};
use softnic_pcaps::LinkType;

use super::program::{corpus, ethernet, frames, inspect, pcap, run, run_with_input, scratch};

fn first(capture: &[u8]) -> Value {
    let out = run_with_input(&["--json"], capture).well();
    serde_json::from_str(out.lines()[0]).unwrap()
}

const WRITE: &str = "rc_write_mtu1024.pcap";

/// A WRITE ONLY over IPv4: BTH at 42, RETH at 54, payload at 70.
fn write_only() -> Vec<u8> {
    let f = frames(WRITE).swap_remove(0);
    assert_eq!(f[42], 0x0a);
    f
}

#[test]
fn what_a_snap_length_cut_off_is_null() {
    let whole = first(&ethernet(&[write_only()]));
    let cut = |len| first(&pcap(LinkType::Ethernet, &[write_only()], len));

    let payload = cut(74);
    assert_eq!(payload["icrc"], "truncated");
    assert_eq!((&payload["payload_len"], &payload["ext"]), (&whole["payload_len"], &whole["ext"]));

    let reth = cut(60);
    assert_eq!((&reth["icrc"], &reth["ext"]), (&json!("truncated"), &json!({ "reth": null })));
    assert_eq!((&reth["psn"], &reth["ack_req"]), (&whole["psn"], &whole["ack_req"]));

    let psn = cut(53);
    assert_eq!((&psn["psn"], &psn["dest_qp"], &psn["ack_req"]), (&Value::Null, &whole["dest_qp"], &whole["ack_req"]));

    let opcode = cut(43);
    assert_eq!(opcode["opcode"], "RC_RDMA_WRITE_ONLY");
    for field in ["dest_qp", "psn", "ack_req", "se", "mig", "pad", "pkey", "payload_len"] {
        assert_eq!(opcode[field], Value::Null, "{field}");
    }

    let nothing = cut(42);
    assert_eq!((&nothing["opcode"], &nothing["opcode_hex"]), (&Value::Null, &Value::Null));
    assert_eq!((&nothing["src"], &nothing["icrc"], &nothing["ext"]), (&whole["src"], &json!("truncated"), &json!({})));
    assert!([payload, reth, psn, opcode, nothing].iter().all(|v| v.get("error").is_none()), "cut is not malformed");
}

#[test]
fn people_see_question_marks_for_what_was_cut_off() {
    let out = run_with_input(&[], &pcap(LinkType::Ethernet, &[write_only()], 50)).well();
    assert_eq!(
        out.lines()[0],
        "    1    0.000000 10.33.0.1 > 10.33.0.2 RC_RDMA_WRITE_ONLY qp 0x00003b psn ? len 8, icrc truncated"
    );
    let out = run_with_input(&[], &pcap(LinkType::Ethernet, &[write_only()], 40)).well();
    assert_eq!(
        out.lines()[0],
        "    1    0.000000 not decoded: UDP header is cut off: it takes 8 bytes and 6 are there"
    );
    assert!(out.stdout.contains("0 RoCE packets in 1 frames (0 of other protocols, 0 fragments, 1 not decoded)"));
}

#[test]
fn a_capture_cut_at_any_length_shows_every_frame() {
    let all = frames("rc_mixed_mtu256.pcap");
    for len in (0..120).step_by(7) {
        let out = run_with_input(&["--json"], &pcap(LinkType::Ethernet, &all, len)).well();
        let last: Value = serde_json::from_str(out.lines().last().unwrap()).unwrap();
        assert_eq!(last["summary"]["frames"], all.len(), "cut at {len}");
    }
}

#[test]
fn one_wrong_bit_makes_a_bad_icrc() {
    let mut f = write_only();
    f[75] ^= 1;
    let v = first(&ethernet(&[&f]));
    assert_eq!((&v["icrc"], v.get("error")), (&json!("bad"), None));
    let out = run_with_input(&[], &ethernet(&[f])).well();
    assert!(out.lines()[0].ends_with(", icrc BAD"), "{}", out.stdout);
    assert!(out.stdout.contains("\nICRC: 0 ok, 1 bad, 0 truncated; 0 malformed\n"), "{}", out.stdout);
}

#[test]
fn a_wrong_ip_length_is_malformed() {
    let mut f = write_only();
    f[17] -= 4;
    let v = first(&ethernet(&[&f]));
    assert_eq!(v["icrc"], "bad");
    assert_eq!(v["error"], "UDP header: its length and the IP header's do not agree");
    let out = run_with_input(&[], &ethernet(&[f])).well();
    let end = ", icrc BAD (malformed: UDP header: its length and the IP header's do not agree)";
    assert!(out.lines()[0].ends_with(end), "{}", out.stdout);
    assert!(out.stdout.contains("; 1 malformed\n"), "{}", out.stdout);
}

#[test]
fn lengths_too_small_for_the_headers_are_malformed() {
    let with_len = |udp: u16| {
        let mut f = write_only();
        f[16..18].copy_from_slice(&(udp + 20).to_be_bytes());
        f[38..40].copy_from_slice(&udp.to_be_bytes());
        first(&ethernet(&[f]))
    };
    assert_eq!(with_len(8 + 15)["error"], "RoCE packet: too short for a BTH and an ICRC");
    let v = with_len(8 + 12 + 10 + 4);
    assert_eq!(v["error"], "RoCE packet: too short for the headers of its opcode");
    assert_eq!((&v["payload_len"], &v["ext"]["reth"]), (&Value::Null, &Value::Null));
}

#[test]
fn more_padding_than_payload_is_malformed() {
    let mut f = frames("rc_atomic.pcap").swap_remove(0);
    f[43] |= 0x30;
    let v = first(&ethernet(&[f]));
    assert_eq!((&v["pad"], &v["payload_len"], &v["icrc"]), (&json!(3), &Value::Null, &json!("bad")));
    assert_eq!(v["error"], "BTH: more padding than payload");
}

#[test]
fn an_empty_file() {
    let path = scratch("empty.pcap", &[]);
    let why = format!("{}: the capture is empty: not even a file header was written", path.display());
    assert_eq!(run(inspect().arg(&path)).failed_with(&why).stdout, "");
    assert_eq!(run(inspect().arg("--json").arg(&path)).failed_with(&why).stdout, "");
    run_with_input(&[], &[]).failed_with("standard input: the capture is empty: not even a file header was written");
}

#[test]
fn a_capture_of_nothing_is_no_failure() {
    let none: [&[u8]; 0] = [];
    let out = run_with_input(&[], &ethernet(&none)).well();
    assert_eq!(out.stdout, "\n0 RoCE packets in 0 frames (0 of other protocols, 0 fragments, 0 not decoded)\n");
}

#[test]
fn half_a_file_shows_what_is_there() {
    let bytes = fs::read(corpus("loss_send_middle_nak.pcap")).unwrap();
    let path = scratch("half.pcap", &bytes[..bytes.len() / 2]);
    let out = run(inspect().arg(&path));
    assert_eq!(out.code, Some(1));
    let shown = out.packets().len();
    let whole = run(inspect().arg(corpus("loss_send_middle_nak.pcap"))).well();
    assert!((8..20).contains(&shown), "{shown} packets");
    assert_eq!(out.packets(), whole.packets()[..shown]);
    assert!(out.stdout.contains(&format!("\n{shown} RoCE packets in {shown} frames ")), "the summary is there as well");
    let start = format!("softnic: {}: the capture is cut off after {shown} packets: ", path.display());
    assert!(out.stderr.starts_with(&start) && out.stderr.lines().count() == 1, "{}", out.stderr);

    let json = run(inspect().arg("--json").arg(&path));
    assert_eq!((json.code, json.lines().len()), (Some(1), shown + 1));
}

#[test]
fn no_capture_at_all() {
    let path = scratch("notes.txt", b"Dear diary, ");
    let why = format!("{}: not a pcap or pcapng capture: it begins with the bytes 44 65 61 72", path.display());
    assert_eq!(run(inspect().arg(&path)).failed_with(&why).stdout, "");
    let path = scratch("packed.pcap.gz", &[0x1f, 0x8b, 8, 0, 0, 0, 0, 0]);
    let why = format!("{}: the capture cannot be read: unexpected end of file", path.display());
    run(inspect().arg(&path)).failed_with(&why);
}

#[test]
fn a_capture_that_gzip_packed_is_read_and_one_cut_off_is_read_as_far_as_it_goes() {
    let frames: Vec<_> = (0..2000).map(|_| write_only()).collect();
    let plain = ethernet(&frames);
    let mut packed = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::none());
    packed.write_all(&plain).unwrap();
    let packed = packed.finish().unwrap();
    let whole = run(inspect().arg(scratch("plain.pcap", &plain)));
    assert_eq!(whole.code, Some(0), "{}", whole.stderr);
    assert_eq!(run(inspect().arg(scratch("whole.pcap.gz", &packed))).stdout, whole.stdout);
    let cut = run(inspect().arg(scratch("cut.pcap.gz", &packed[..packed.len() / 2])));
    assert_eq!(cut.code, Some(1));
    assert!(
        cut.stderr.contains("incomplete deflate stream") && cut.stdout.contains("RoCE packets in"),
        "{}",
        cut.stderr
    );
}

#[test]
fn a_missing_file_and_a_folder() {
    let out = run(inspect().arg("no/such/file.pcap"));
    assert_eq!((out.code, &*out.stdout), (Some(1), ""));
    assert!(out.stderr.starts_with("softnic: no/such/file.pcap: No such file"), "{}", out.stderr);
    let folder = env!("CARGO_TARGET_TMPDIR");
    run(inspect().arg(folder)).failed_with(&format!("{folder}: is a directory, not a capture"));
}

#[test]
fn whoever_reads_may_stop_early() {
    let mut big = Vec::new();
    for _ in 0..2000 {
        big.push(write_only());
    }
    let path = scratch("big.pcap", &ethernet(&big));
    let mut child = inspect().arg(&path).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    drop(child.stdout.take()); // as `| head` does when it has seen enough
    let out = child.wait_with_output().unwrap();
    assert_eq!((out.status.code(), &*String::from_utf8_lossy(&out.stderr)), (Some(0), ""));
}
