//! `softnic replay` as people call it: exit codes, lines, JSON.

use std::path::PathBuf;
use std::process::{Command, Output};

use softnic_wire::{Addresses, ExtHeaders, MacAddr, Opcode, PacketFields, Path, Psn, Qpn, Template, TxFrame};

fn corpus(name: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../pcaps/corpus").join(name)
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
fn what_is_left_out_of_sdr_is_said_in_one_line() {
    for (name, packets) in [("sdr_stream_loss.pcap", 18), ("sdr_nack_loss.pcap", 21), ("sdr_sr_loss.pcap", 14)] {
        let file = corpus(name);
        let out = replay(&[file.to_str().unwrap()]);
        assert_eq!(out.status.code(), Some(0), "{}", stdout(&out));
        let said: Vec<String> = stdout(&out).lines().filter(|line| line.contains("SDR")).map(str::to_owned).collect();
        let must = format!(
            "left out: {packets} packets of SDR-RDMA are replayed as those of UC that they are; its bitmaps, late packets and control messages are not"
        );
        assert_eq!(said, [must], "{}", stdout(&out));
        let json = replay(&["--json", file.to_str().unwrap()]);
        let value: serde_json::Value = serde_json::from_str(&stdout(&json)).unwrap();
        assert_eq!((&value["verdict"], &value["sdr_packets"]), (&"same".into(), &packets.into()));
    }
    let other = replay(&[corpus("rc_atomic.pcap").to_str().unwrap()]);
    assert!(!stdout(&other).contains("SDR"), "{}", stdout(&other));
}

/// A capture of Selective Repeat, behind `before` of another.
fn of_selective_repeat(name: &str, before: &[u8]) -> PathBuf {
    let mut file = before.to_vec();
    let path = Path {
        src_mac: MacAddr([2, 0, 0, 0, 0, 1]),
        dst_mac: MacAddr([2, 0, 0, 0, 0, 2]),
        tags: [None, None],
        addresses: Addresses::V4 { src: [10, 0, 0, 1].into(), dst: [10, 0, 0, 2].into() },
        traffic_class: 0,
        flow_label: 0,
        hop_limit: 64,
        src_port: 0xc001,
    };
    let template = Template::new(&path, Qpn::new(0x11), 0xffff);
    for opcode in (0xc0..0xe0).map(Opcode).filter(|o| o.is_known()) {
        let (ack_req, solicited, becn) = (true, false, false);
        let fields = PacketFields { opcode, psn: Psn::new(7), ack_req, solicited, becn, payload_len: 0 };
        let ext = ExtHeaders::parse(opcode, &[0; 64]).unwrap();
        let mut room = [0; 256];
        let mut tx = TxFrame::new(&mut room);
        template.build(&mut tx, &fields, &ext, &[]).unwrap();
        let frame = tx.segments().0;
        let len = (frame.len() as u32).to_le_bytes();
        file.extend([&[0; 8], &len[..], &len, frame].concat());
    }
    let path = std::env::temp_dir().join(format!("softnic-replay-{name}-{}.pcap", std::process::id()));
    std::fs::write(&path, file).unwrap();
    path
}

#[test]
fn selective_repeat_that_began_before_the_capture_is_named_as_what_is_not_replayed() {
    // The header of a capture of Ethernet, and nothing else of it.
    let header = &std::fs::read(corpus("rc_atomic.pcap")).unwrap()[..24];
    let path = of_selective_repeat("alone", header);
    let out = replay(&[path.to_str().unwrap()]);
    let json = replay(&["--json", path.to_str().unwrap()]);
    std::fs::remove_file(&path).unwrap();
    assert_eq!((out.status.code(), json.status.code()), (Some(2), Some(2)), "{}", stdout(&out));
    let said = "skipped: 23 of Selective Repeat (sr), without the negotiation of their connections (see --begins)\n";
    assert!(stdout(&out).starts_with(said) && stdout(&out).contains("\nnothing can be replayed: "), "{}", stdout(&out));
    let value: serde_json::Value = serde_json::from_str(&stdout(&json)).unwrap();
    assert_eq!((&value["verdict"], &value["skipped"]["sr"]), (&"cannot_replay".into(), &23.into()));
}

/// Connection managers that set such a connection up are replayed, but that is not what was asked for.
#[test]
fn a_connection_of_selective_repeat_without_its_negotiation_is_not_replayed_behind_managers_either() {
    let managers = std::fs::read(corpus("cm_rping_ipv4.pcap")).unwrap();
    let only_managers = without_data(&managers);
    let alone = of_selective_repeat("managers", &only_managers);
    let beside = of_selective_repeat("beside", &managers);
    let out = [&alone, &beside].map(|path| replay(&[path.to_str().unwrap()]));
    for path in [alone, beside] {
        std::fs::remove_file(path).unwrap();
    }
    for out in &out {
        assert!(stdout(out).contains("skipped: 23 of Selective Repeat (sr), "), "{}", stdout(out));
    }
    assert_eq!(out[0].status.code(), Some(2), "{}", stdout(&out[0]));
    assert!(stdout(&out[0]).contains("nothing can be replayed: 0 differences"), "{}", stdout(&out[0]));
    assert_eq!(out[1].status.code(), Some(0), "RC beside it is replayed: {}", stdout(&out[1]));
}

#[test]
fn connections_of_best_effort_are_left_out_and_it_is_said() {
    let xp = std::fs::read(corpus("xp_send_loss.pcap")).unwrap();
    let rc = std::fs::read(corpus("rc_atomic.pcap")).unwrap();
    let path = std::env::temp_dir().join(format!("softnic-replay-xp-{}.pcap", std::process::id()));
    for (file, code) in [(xp.clone(), 2), ([&rc[..], &xp[24..]].concat(), 0)] {
        std::fs::write(&path, file).unwrap();
        let out = replay(&[path.to_str().unwrap()]);
        std::fs::remove_file(&path).unwrap();
        assert_eq!(out.status.code(), Some(code), "{}", stdout(&out));
        assert!(stdout(&out).contains("skipped: 26 of best effort (xp), whose deadlines are in no packet"));
    }
}

#[test]
fn repair_packets_of_lowar_are_compared_beside_what_they_protect() {
    let lowar = std::fs::read(corpus("lowar_write_loss.pcap")).unwrap();
    let rc = std::fs::read(corpus("rc_atomic.pcap")).unwrap();
    let path = std::env::temp_dir().join(format!("softnic-replay-lowar-{}.pcap", std::process::id()));
    for file in [lowar.clone(), [&rc[..], &lowar[24..]].concat()] {
        std::fs::write(&path, file).unwrap();
        let out = replay(&[path.to_str().unwrap()]);
        let json = replay(&["--json", path.to_str().unwrap()]);
        std::fs::remove_file(&path).unwrap();
        assert_eq!((out.status.code(), json.status.code()), (Some(0), Some(0)), "{}", stdout(&out));
        let value: serde_json::Value = serde_json::from_str(&stdout(&json)).unwrap();
        let repairs = value["counts"]["repairs_equal"].as_u64().unwrap();
        assert!(stdout(&out).contains(&format!("inferred: {repairs} repair packets are the sums")), "{}", stdout(&out));
        assert!(repairs > 0, "{value}");
    }
}

/// Of a capture the packets to QP1.
fn without_data(file: &[u8]) -> Vec<u8> {
    let mut out = file[..24].to_vec();
    let mut at = 24;
    while let Some(len) = file.get(at + 8..at + 12) {
        let end = at + 16 + u32::from_le_bytes(len.try_into().unwrap()) as usize;
        let frame = &file[at + 16..end];
        if softnic_wire::RocePacket::parse(frame).is_ok_and(|p| p.bth.dest_qp == Qpn::GSI) {
            out.extend(&file[at..end]);
        }
        at = end;
    }
    out
}

#[test]
fn the_table_of_allowed_differences_is_printed() {
    let out = replay(&["--allowed"]);
    assert_eq!(out.status.code(), Some(0));
    assert!(stdout(&out).contains("rxe: rxe's departure"));
}

#[test]
fn a_direction_that_was_recorded_late_is_told() {
    // Two requests and two answers, recorded 5 µs too early, in a capture with nanoseconds.
    let run = std::env::temp_dir().join(format!("softnic-mirror-{}.pcap", std::process::id()));
    let sim = ["sim", "--op", "send", "--size", "8", "--count", "20", "--depth", "1", "--rtt", "4us", "--pcap"];
    let made = Command::new(env!("CARGO_BIN_EXE_softnic")).args(sim).arg(&run).output().unwrap();
    assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
    let mut reader = softnic_pcaps::Reader::new(std::fs::File::open(&run).unwrap()).unwrap();
    let mut frames = Vec::new();
    while let Some(f) = reader.next_frame().unwrap() {
        let early = f.data[26..30] != [10, 0, 0, 1];
        frames.push((f.time.nanos() + if early { 0 } else { 5_000 }, f.data.to_vec()));
    }
    frames.sort_by_key(|f| f.0);
    let mut out = Vec::new();
    let mut writer = softnic_pcaps::PcapWriter::new(&mut out, softnic_pcaps::LinkType::Ethernet).unwrap();
    for (time, data) in &frames {
        writer.write(softnic_pcaps::Timestamp::from_nanos(*time), data, data.len() as u32).unwrap();
    }
    std::fs::write(&run, &out).unwrap();
    let (text, json) = (replay(&[run.to_str().unwrap()]), replay(&["--json", run.to_str().unwrap()]));
    std::fs::remove_file(&run).unwrap();
    assert_eq!(text.status.code(), Some(0), "{}", stdout(&text));
    assert!(
        stdout(&text).contains("inferred: packets from 10.0.0.1 to 10.0.0.2 were recorded at least"),
        "{}",
        stdout(&text)
    );
    let skew = &serde_json::from_str::<serde_json::Value>(&stdout(&json)).unwrap()["skew"][0];
    assert_eq!((skew["from"].as_str(), skew["bound_nanos"].as_u64()), (Some("10.0.0.1"), Some(100_000)));
    assert!(skew["moved"].as_u64().unwrap() > 10 && skew["nanos"].as_u64().unwrap() < 5_000, "{skew}");
}
