//! Several captures, read as one.

use std::fs::{self, File};
use std::io::Write;
use std::path::PathBuf;

use serde_json::{Value, json};
use softnic_pcaps::{LinkType, PcapWriter, Reader, Timestamp};

use super::program::{corpus, inspect, run};

/// A lost packet and its NAK: 25 packets, of which 21 go one way.
const LOSS: &str = "loss_send_middle_nak.pcap";
/// The packet that is not captured by the receiver: the one that is lost.
const LOST: u64 = 3;

/// Captures that are removed with the test.
struct Files(PathBuf);

impl Drop for Files {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

impl Files {
    fn new(name: &str) -> Files {
        let folder = std::env::temp_dir().join(format!("softnic-files-{}-{name}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        Files(folder)
    }

    /// Writes those frames of a corpus file that are wanted, `late` nanoseconds later.
    fn part(&self, name: &str, late: i128, wanted: impl Fn(u64, &[u8]) -> bool) -> String {
        let mut reader = Reader::new(File::open(corpus(LOSS)).unwrap()).unwrap();
        let mut writer = PcapWriter::new(Vec::new(), LinkType::Ethernet).unwrap();
        while let Some(frame) = reader.next_frame().unwrap() {
            if wanted(frame.number, frame.data) {
                let time = Timestamp::from_nanos(frame.time.nanos() + late);
                writer.write(time, frame.data, frame.original_len).unwrap();
            }
        }
        let path = self.0.join(name);
        fs::write(&path, writer.into_inner()).unwrap();
        path.display().to_string()
    }
}

fn from_a(frame: &[u8]) -> bool {
    frame[26..30] == [10, 33, 0, 1]
}

fn objects(arguments: &[&str]) -> Vec<Value> {
    let out = run(inspect().arg("--json").args(arguments)).well();
    out.stdout.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

#[test]
fn two_one_sided_captures_make_one_conversation() {
    let files = Files::new("sides");
    let a = files.part("a.pcap", 0, |_, frame| from_a(frame));
    let b = files.part("b.pcap", 0, |_, frame| !from_a(frame));
    // Packed, and named first: times decide, not the order of names.
    let mut packed = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::default());
    packed.write_all(&fs::read(&b).unwrap()).unwrap();
    fs::write(format!("{b}.gz"), packed.finish().unwrap()).unwrap();
    let whole = objects(&[&corpus(LOSS).display().to_string()]);
    let parts = objects(&[&format!("{b}.gz"), &a]);
    assert_eq!(parts.len(), whole.len());
    for (part, whole) in parts.iter().zip(&whole).take(25) {
        assert_eq!(part["file"], if whole["src"] == "10.33.0.1" { 2 } else { 1 });
        for same in ["time", "src", "psn", "opcode", "retransmission", "out_of_sequence", "icrc"] {
            assert_eq!(part[same], whole[same], "{same}");
        }
        assert!(whole.get("file").is_none() && whole.get("copy_of").is_none() && part.get("copy_of").is_none());
    }
    let [parts, whole] = [&parts, &whole].map(|all| &all[25]["summary"]);
    for same in ["connections", "packets", "qps"] {
        assert_eq!(parts[same], whole[same], "{same}");
    }
    assert_eq!(parts["copies"], 0);
    assert_eq!(parts["files"], json!([format!("{b}.gz"), a]));
    assert!(whole.get("files").is_none() && whole.get("copies").is_none());
    let shown = run(inspect().args([&a, &b])).well();
    assert!(shown.packets()[0].starts_with("    1:1 ") && shown.stdout.contains("\n    2:1 "), "{}", shown.stdout);
}

#[test]
fn a_packet_that_both_ends_captured_counts_once_and_the_lost_one_is_in_one_file() {
    let files = Files::new("ends");
    let sender = files.part("sender.pcap", 0, |_, _| true);
    let receiver = files.part("receiver.pcap", 10_000, |number, _| number != LOST);
    let whole = objects(&[&sender]);
    let both = objects(&[&sender, &receiver]);
    assert_eq!(both.len(), 25 + 24 + 1);
    let copies: Vec<&Value> = both.iter().filter(|packet| packet.get("copy_of").is_some()).collect();
    assert_eq!(copies.len(), 24);
    for copy in &copies {
        let number = copy["n"].as_u64().unwrap();
        let original = if number >= LOST { number + 1 } else { number };
        assert_eq!((copy["file"].as_u64(), &copy["copy_of"]), (Some(2), &json!(format!("1:{original}"))));
        assert_eq!(copy["retransmission"], false);
    }
    let [both, whole] = [&both[49], &whole[25]].map(|last| &last["summary"]);
    for same in ["connections", "packets", "qps", "opcodes"] {
        assert_eq!(both[same], whole[same], "{same}");
    }
    assert_eq!((both["copies"].as_u64(), both["frames"].as_u64()), (Some(24), Some(49)));
    let shown = run(inspect().args([&sender, &receiver])).well();
    assert!(shown.stdout.contains("(the same as 1:1)"), "{}", shown.stdout);
    assert!(shown.stdout.contains("24 packets are in more than one file, and count once"), "{}", shown.stdout);
}

#[test]
fn verdicts_name_packets_by_file() {
    let files = ["rc_access_err_nak.pcap", "loss_send_middle_nak.pcap"].map(|name| corpus(name).display().to_string());
    let both = objects(&["--summary", &files[1], &files[0]]);
    let verdict = &both[0]["summary"]["verdicts"][0];
    assert_eq!(verdict["name"], "access-error");
    assert!(verdict["packets"].as_array().unwrap().iter().all(|n| n.as_str().unwrap().starts_with("2:")), "{verdict}");
    let shown = run(inspect().args(["--problems", &files[1], &files[0]])).well();
    assert!(shown.packets().iter().all(|line| line.trim_start().starts_with("2:")), "{}", shown.stdout);
    assert!(!shown.packets().is_empty() && shown.stdout.contains("packets 2:"), "{}", shown.stdout);
}

#[test]
fn a_capture_that_cannot_be_read_is_named_and_the_others_are_shown() {
    let files = Files::new("broken");
    let good = files.part("good.pcap", 0, |_, _| true);
    let mut bytes = fs::read(&good).unwrap();
    bytes.truncate(bytes.len() - 10);
    let broken = files.0.join("broken.pcap").display().to_string();
    fs::write(&broken, bytes).unwrap();
    let out = run(inspect().args(["--summary", &broken, &good]));
    assert_eq!(out.code, Some(1));
    assert!(out.stderr.starts_with(&format!("softnic: {broken}: ")), "{}", out.stderr);
    assert!(out.stdout.contains("25 RoCE packets in 49 frames"), "{}", out.stdout);
    run(inspect().args([&good, "-"]))
        .failed_with("standard input is a capture for itself: it cannot be read together with files");
}
