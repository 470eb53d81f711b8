//! What is in a page, by its data.

use super::{Folder, corpus, report, softnic, succeed};
use serde_json::Value;

/// A count of the only connection of a transport.
fn count(data: &Value, transport: &str, name: &str) -> u64 {
    let connections = data["connections"].as_array().unwrap();
    let of: Vec<_> = connections.iter().filter(|c| c["transport"].as_str().unwrap().starts_with(transport)).collect();
    assert_eq!(of.len(), 1, "{connections:?}");
    of[0]["counts"][name].as_u64().unwrap()
}

#[test]
fn a_capture_has_its_connection_its_loss_and_its_nak() {
    let data = report(&[&corpus("loss_send_middle_nak.pcap")]);
    assert_eq!(data["files"][0]["packets"], 25);
    assert_eq!(data["connections"][0]["ends"][0], "10.33.0.1 qp 0x00007c");
    assert_eq!((count(&data, "rc", "naks"), count(&data, "rc", "lost")), (1, 1));
    assert!(count(&data, "rc", "again") > 0 && count(&data, "rc", "completions") > 0);
    let columns = data["packets"]["columns"].as_array().unwrap();
    assert!(columns.iter().any(|c| c["name"] == "sequence" && !c["data"].as_str().unwrap().is_empty()));
}

#[test]
fn verdicts_name_their_packets_and_their_connection() {
    let data = report(&[&corpus("loss_send_middle_nak.pcap"), &corpus("interop_bad_rkey_write_softnic.pcap")]);
    let verdict = &data["verdicts"][0];
    assert_eq!((&verdict["name"], &verdict["file"]), (&"access-error".into(), &1.into()));
    assert_eq!(verdict["packets"], serde_json::json!([1, 4]));
    let connection = verdict["connection"].as_u64().unwrap() as usize;
    assert_eq!(data["connections"][connection]["ends"][0], "10.33.0.1 qp 0x38605c");
}

#[test]
fn packets_behind_one_that_found_no_receive_are_not_lost() {
    let data = report(&[&corpus("rc_rnr_nak.pcap")]);
    assert_eq!(count(&data, "rc", "lost"), 0);
    assert!(count(&data, "rc", "not_ready") > 0 && count(&data, "rc", "naks") > 0);
}

fn lost_on_the_link(printed: &str) -> u64 {
    let line = printed.lines().find_map(|line| line.strip_prefix("on the link")).expect("sim's count of lost frames");
    line.split_whitespace().next().unwrap().parse().unwrap()
}

/// A trace of both ends knows each loss: as many as the link counts.
#[test]
fn a_trace_has_as_many_lost_packets_as_the_link_lost() {
    let folder = Folder::new("trace");
    for (transport, op) in [("rc", "send"), ("rc", "read"), ("sr", "write"), ("sr", "read"), ("lowar", "send")] {
        let trace = folder.file("run.sqlog");
        let arguments =
            ["--transport", transport, "--op", op, "--size", "64K", "--count", "10", "--fault", "loss=0.01"];
        let run = succeed(&[&["sim", "--trace", &trace], &arguments[..]].concat());
        let data = report(&[&trace]);
        let (lost, repaired) = (count(&data, transport, "lost"), count(&data, transport, "repaired"));
        let on_the_link = lost_on_the_link(&String::from_utf8(run.stdout).unwrap());
        assert_eq!(lost + repaired, on_the_link, "{transport} {op}");
        assert!(on_the_link > 0 && (transport == "lowar") == (repaired > 0), "{transport} {op}: {lost} {repaired}");
        assert_eq!(count(&data, transport, "completions"), 10, "{transport} {op}");
    }
}

#[test]
fn a_packet_that_the_capture_skips_is_lost_all_the_same() {
    let folder = Folder::new("missing");
    let whole = std::fs::read(corpus("loss_send_middle_nak.pcap")).unwrap();
    // Where records begin: behind the file's header, each as long as it says.
    let next = |at: &usize| Some(at + 16 + u32::from_le_bytes(whole[at + 8..at + 12].try_into().unwrap()) as usize);
    let begins: Vec<usize> = std::iter::successors(Some(24), next).take(5).collect();
    // Packet 4 is the one that the NAK is about: this capture was taken behind its loss.
    let skipping = folder.file("skipping.pcap");
    std::fs::write(&skipping, [&whole[..begins[3]], &whole[begins[4]..]].concat()).unwrap();
    let data = report(&[&skipping]);
    assert_eq!((count(&data, "rc", "packets"), count(&data, "rc", "lost")), (24, 1));
    assert_eq!(data["packets"]["count"], 25, "the one that is missing has a row, too");
}

/// A timer belongs to no packet: the trace names the NIC alone.
#[test]
fn what_a_trace_says_of_a_nic_with_one_queue_pair_is_said_of_the_queue_pair() {
    let folder = Folder::new("timeout");
    let trace = folder.file("run.sqlog");
    let arguments = ["--op", "send", "--size", "8K", "--count", "40", "--rate", "1Gbit", "--rtt", "50us"];
    succeed(&[&["sim", "--fault", "loss=0.02", "--seed", "3", "--trace", &trace], &arguments[..]].concat());
    let data = report(&[&trace]);
    assert_eq!(data["connections"].as_array().unwrap().len(), 1, "{}", data["connections"]);
    let texts = data["texts"].as_array().unwrap();
    assert!(texts.contains(&"loss detected: ack timeout".into()), "{texts:?}");
}

#[test]
fn differences_of_a_replay_belong_to_the_capture_before_it() {
    let folder = Folder::new("replay");
    let capture = corpus("loss_send_middle_nak.pcap");
    let replay = folder.file("replay.json");
    std::fs::write(&replay, softnic(&["replay", "--json", &capture]).stdout).unwrap();
    let data = report(&[&corpus("rc_rnr_nak.pcap"), &capture, &replay]);
    assert_eq!((&data["replays"][0]["file"], &data["replays"][0]["verdict"]), (&1.into(), &"same".into()));
}
