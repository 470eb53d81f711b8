//! Groups of a switch: copies, and acknowledgements that became one.

use std::collections::BTreeMap;
use std::fs::{self, File};

use serde_json::{Value, json};
use softnic_pcaps::{LinkType, PcapngWriter, Reader, Timestamp};

use super::program::{corpus, inspect, run};

const FILES: [&str; 3] = ["group_at_sender.pcap", "group_at_receiver_1.pcap", "group_at_receiver_2.pcap"];

fn objects(arguments: &[String]) -> Vec<Value> {
    let out = run(inspect().arg("--json").args(arguments)).well();
    out.stdout.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

fn together() -> Vec<String> {
    FILES.iter().map(|name| corpus(name).display().to_string()).collect()
}

/// The same three captures as one file with an interface for each, as a switch writes it.
fn one_file(path: &std::path::Path) {
    let mut frames = Vec::new();
    for (interface, name) in FILES.iter().enumerate() {
        let mut reader = Reader::new(File::open(corpus(name)).unwrap()).unwrap();
        while let Some(frame) = reader.next_frame().unwrap() {
            frames.push((frame.time.nanos(), interface, frame.data.to_vec()));
        }
    }
    frames.sort_by_key(|(time, ..)| *time);
    let mut file = PcapngWriter::new(Vec::new()).unwrap();
    let ids = ["p0", "p1", "p2"].map(|name| file.add_interface(LinkType::Ethernet, name).unwrap());
    for (time, interface, data) in &frames {
        file.write(ids[*interface], Timestamp::from_nanos(*time), data, data.len() as u32).unwrap();
    }
    fs::write(path, file.into_inner()).unwrap();
}

/// How many packets of each part there are.
fn parts(packets: &[Value]) -> BTreeMap<String, u64> {
    let mut parts = BTreeMap::new();
    for part in packets.iter().filter_map(|p| p["group"]["part"].as_str()) {
        *parts.entry(part.to_owned()).or_insert(0) += 1;
    }
    parts
}

#[test]
fn group_member_and_merged_psn_are_shown_of_captures_at_all_hosts() {
    let all = objects(&together());
    let (summary, packets) = all.split_last().unwrap();
    assert_eq!(packets[0]["group"]["part"], "sent", "known from the first packet on: {}", packets[0]);
    let expected = [("sent", 38), ("copy", 71), ("said", 31), ("merged", 9)];
    assert_eq!(parts(packets), expected.map(|(name, n)| (name.to_owned(), n)).into());
    let group = &summary["summary"]["groups"];
    let member = |host, qpn| json!({ "address": format!("10.0.0.{host}"), "qpn": qpn, "acked_psn": 9 });
    assert_eq!(
        *group,
        json!([{
            "sender": "10.0.0.1", "mc_id": 0x77_7777, "sender_qpn": 0x260, "packets_in": 38, "copies": 71, "acks_in": 31,
            "acks_out": 9, "merged_psn": 9, "members": [member(2, 0x40e0), member(3, 0x7f60)]
        }])
    );
    // What the sender is told is never ahead of what any receiver has said.
    let mut has: BTreeMap<String, i64> = BTreeMap::new();
    let unwrapped = |psn: i64| if psn < 1 << 23 { psn + (1 << 24) } else { psn };
    for p in packets {
        match p["group"]["part"].as_str() {
            Some("said") => {
                let nak = i64::from(p["ext"]["aeth"]["kind"] == "nak");
                let acked = unwrapped(p["psn"].as_i64().unwrap()) - nak;
                let member = has.entry(p["group"]["member"].as_str().unwrap().to_owned()).or_insert(0);
                *member = acked.max(*member);
            }
            Some("merged") => {
                let told = unwrapped(p["group"]["merged_psn"].as_i64().unwrap());
                let first = (1 << 24) - 6;
                assert!(told < first || has.len() == 2 && has.values().all(|acked| told <= *acked), "{p}: {has:?}");
            }
            _ => {}
        }
    }
}

#[test]
fn interfaces_of_one_file_are_places_like_files() {
    let folder = std::env::temp_dir().join(format!("softnic-groups-{}", std::process::id()));
    fs::create_dir_all(&folder).unwrap();
    let path = folder.join("switch.pcapng");
    one_file(&path);
    let one = objects(&[path.display().to_string()]);
    let text = run(inspect().arg("--summary").arg(&path)).well().stdout;
    fs::remove_dir_all(&folder).unwrap();
    let apart = objects(&together());
    assert_eq!(one.last().unwrap()["summary"]["groups"], apart.last().unwrap()["summary"]["groups"]);
    assert_eq!(parts(&one), parts(&apart));
    let group = "  10.0.0.1 > 0x777777 (its queue pair 0x000260): 38 packets, 71 copies; 31 answers, 9 of them told\n";
    assert!(text.contains(group), "{text}");
    assert!(text.contains("    10.0.0.3 qp 0x007f60 has all to psn 9\n"), "{text}");
}

#[test]
fn what_passes_a_switch_as_it_is_is_no_group() {
    let name = corpus("loss_send_middle_nak.pcap").display().to_string();
    let all = objects(&[name.clone(), name]);
    assert_eq!(all.last().unwrap()["summary"]["groups"], json!([]));
    assert!(all.iter().all(|line| line.get("group").is_none()));
}
