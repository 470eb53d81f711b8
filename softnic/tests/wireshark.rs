//! The dissector that `softnic wireshark-plugin` writes, run by tshark: its fields are those of `softnic inspect --json`. Without tshark it is left out, unless
//! SOFTNIC_TSHARK is set.

use std::collections::BTreeMap;
use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;
use softnic_pcaps::{LinkType, PcapWriter, Reader};

const SOFTNIC: &str = env!("CARGO_BIN_EXE_softnic");

/// Removed with the test.
struct Folder(PathBuf);

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

impl Folder {
    fn new(name: &str) -> Folder {
        let folder = Folder(std::env::temp_dir().join(format!("softnic-lua-{}-{name}", std::process::id())));
        fs::create_dir_all(&folder.0).unwrap();
        folder
    }

    fn plugin(&self) -> PathBuf {
        let folder = self.0.join("new/plugins");
        let out = softnic(&["wireshark-plugin", folder.to_str().unwrap()]);
        assert!(out.starts_with(&format!("wrote {}/softnic.lua\n", folder.display())), "{out}");
        folder.join("softnic.lua")
    }
}

fn softnic(arguments: &[&str]) -> String {
    let out = Command::new(SOFTNIC).args(arguments).output().unwrap();
    assert!(out.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&out.stderr));
    String::from_utf8(out.stdout).unwrap()
}

fn has_tshark() -> bool {
    let found = Command::new("tshark").arg("--version").output().is_ok_and(|out| out.status.success());
    assert!(found || std::env::var_os("SOFTNIC_TSHARK").is_none(), "there is no tshark");
    if !found {
        let test = std::thread::current().name().unwrap_or("a test").to_string();
        let _ = writeln!(std::io::stderr(), "LEFT OUT: {test}: there is no tshark");
    }
    found
}

/// Fields of ours, by the path of `ext` in JSON.
const FIELDS: [(&str, &str); 66] = [
    ("sr.flags", "sr.flags"),
    ("sr.number", "sr.number"),
    ("sr.offset", "sr.offset"),
    ("sack.expected", "sr.ack.expected"),
    ("sack.first", "sr.ack.first"),
    ("sack.bits", "sr.ack.bits"),
    ("sack.received", "sr.ack.received"),
    ("sack.missing", "sr.ack.missing"),
    ("reth.va", "sr.reth.va"),
    ("reth.rkey", "sr.reth.rkey"),
    ("reth.len", "sr.reth.len"),
    ("atomic.va", "sr.atomic.va"),
    ("atomic.rkey", "sr.atomic.rkey"),
    ("atomic.swap_add", "sr.atomic.swap_add"),
    ("atomic.compare", "sr.atomic.compare"),
    ("aeth.syndrome", "sr.aeth.syndrome"),
    ("aeth.msn", "sr.aeth.msn"),
    ("atomic_ack", "sr.atomic_ack"),
    ("imm", "sr.imm"),
    ("ieth", "sr.ieth"),
    ("xp.wqe_seq", "xp.wqe_seq"),
    ("xp.offset", "xp.offset"),
    ("xp.length", "xp.length"),
    ("xp.last", "xp.last"),
    ("xp.stride", "xp.stride"),
    ("xp.receive", "xp.receive"),
    ("reth.va", "xp.reth.va"),
    ("reth.rkey", "xp.reth.rkey"),
    ("reth.len", "xp.reth.len"),
    ("imm", "xp.imm"),
    ("xp_time_left_us", "xp.time_left_us"),
    ("xp_feedback.held_ns", "xp.feedback.held_ns"),
    ("xp_feedback.marks", "xp.feedback.marks"),
    ("xp_feedback.bytes", "xp.feedback.bytes"),
    ("xp_feedback.credit", "xp.feedback.credit"),
    ("lowar.type", "lowar.type"),
    ("lowar.r", "lowar.r"),
    ("lowar.c", "lowar.c"),
    ("lowar.isn", "lowar.isn"),
    ("lowar.n", "lowar.n"),
    ("lowar.has_first", "lowar.has_first"),
    ("lowar.has_last", "lowar.has_last"),
    ("lowar.responses", "lowar.responses"),
    ("lowar.last_length", "lowar.last_length"),
    ("lowar.digest", "lowar.digest"),
    ("negotiation.type", "negotiation.type"),
    ("negotiation.status", "negotiation.status"),
    ("negotiation.tid", "negotiation.tid"),
    ("negotiation.version", "negotiation.version"),
    ("negotiation.sender_qpn", "negotiation.sender_qpn"),
    ("negotiation.receiver_qpn", "negotiation.receiver_qpn"),
    ("negotiation.lowar_r", "negotiation.lowar_r"),
    ("negotiation.lowar_c", "negotiation.lowar_c"),
    ("negotiation.sr_window", "negotiation.sr_window"),
    ("negotiation.auth_nonce", "negotiation.auth_nonce"),
    ("negotiation.sdr.scheme", "negotiation.sdr.scheme"),
    ("negotiation.sdr.parameters", "negotiation.sdr.parameters"),
    ("negotiation.sdr.info.split", "negotiation.sdr.split"),
    ("negotiation.sdr.info.mtu", "negotiation.sdr.mtu"),
    ("negotiation.sdr.info.slots", "negotiation.sdr.slots"),
    ("negotiation.sdr.info.max_message", "negotiation.sdr.max_message"),
    ("negotiation.sdr.info.token", "negotiation.sdr.token"),
    ("negotiation.sdr.info.control.qpn", "negotiation.sdr.control_qpn"),
    ("negotiation.sdr.info.control.psn", "negotiation.sdr.control_psn"),
    ("auth.epoch", "auth.epoch"),
    ("auth.tag", "auth.tag"),
];
/// Read by another way than as a field of their own name: opcodes, by how their names begin, and extensions.
const OPCODES: [(&str, &str); 2] = [("SR_", "sr.opcode"), ("XP_", "xp.opcode")];
const EXTENSIONS: [(&str, &str); 5] = [
    ("sr", "negotiation.extensions.sr"),
    ("lowar", "negotiation.extensions.lowar"),
    ("xp", "negotiation.extensions.xp"),
    ("sdr", "negotiation.extensions.sdr"),
    ("auth", "negotiation.extensions.auth"),
];

/// A number, a flag or a word of tshark's as one text.
fn normal(text: &str) -> String {
    match (text.strip_prefix("0x").map(|hex| u64::from_str_radix(hex, 16)), text) {
        (Some(Ok(number)), _) => number.to_string(),
        (_, "True") => "1".into(),
        (_, "False") => "0".into(),
        _ => text.replace(':', ""),
    }
}

/// What is in JSON as tshark would say it: of packets that are no extension's, nothing.
fn said(packet: &Value, path: &str, field: &str) -> String {
    let opcode = packet["opcode"].as_str().unwrap_or_default();
    let transport = field.split('.').next().unwrap().to_uppercase();
    let is_of = opcode.strip_prefix(&transport).is_some_and(|rest| rest.starts_with('_'));
    let own = ["sack", "lowar", "negotiation", "auth"].contains(&path.split('.').next().unwrap());
    let mut value = &packet["ext"];
    for name in path.split('.') {
        value = &value[name];
    }
    // An acknowledgement's header is its bitmap's.
    let ack = || match path {
        "sr.number" => packet["ext"]["sack"]["first"].clone(),
        "sr.offset" => packet["ext"]["sack"]["bits"].clone(),
        _ => Value::Null,
    };
    let of_ack = ack();
    let value = if value.is_null() { &of_ack } else { value };
    let one = |value: &Value| match value {
        Value::Null => String::new(),
        Value::Bool(flag) => u8::from(*flag).to_string(),
        Value::String(word) if path == "lowar.type" => {
            (1 + ["repair", "notice", "wish"].iter().position(|name| name == word).unwrap()).to_string()
        }
        Value::String(word) => word.clone(),
        other => other.to_string(),
    };
    match value {
        _ if !is_of && !own => String::new(),
        Value::Array(all) => all.iter().map(one).collect::<Vec<_>>().join(","),
        value => one(value),
    }
}

/// Compares all packets; how many values of each field were seen.
fn compare(plugin: &Path, capture: &Path) -> BTreeMap<&'static str, usize> {
    let json = softnic(&["inspect", "--json", capture.to_str().unwrap()]);
    let packets = json.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
    let packets: BTreeMap<u64, Value> = packets.filter_map(|packet| Some((packet["n"].as_u64()?, packet))).collect();
    let mut command = Command::new("tshark");
    command.arg("-X").arg(format!("lua_script:{}", plugin.display())).arg("-r").arg(capture);
    command.args(["-T", "fields", "-E", "separator=/t", "-E", "aggregator=,", "-e", "frame.number"]);
    let names = FIELDS
        .iter()
        .map(|(_, field)| *field)
        .chain(OPCODES.map(|(_, field)| field))
        .chain(EXTENSIONS.map(|(_, field)| field));
    command.args(names.clone().flat_map(|name| ["-e".to_string(), format!("softnic.{name}")]));
    let out = command.output().unwrap();
    let complaints = String::from_utf8_lossy(&out.stderr);
    assert!(out.status.success() && !complaints.contains("Lua"), "{complaints}");
    let text = String::from_utf8(out.stdout).unwrap();
    let mut seen: BTreeMap<&str, usize> = BTreeMap::new();
    for line in text.lines() {
        assert!(!line.contains("Lua Error"), "{line}");
        let mut columns = line.split('\t');
        let packet = &packets[&columns.next().unwrap().parse::<u64>().unwrap()];
        let shown: BTreeMap<&str, String> = names
            .clone()
            .zip(columns)
            .map(|(name, text)| (name, text.split(',').map(normal).collect::<Vec<_>>().join(",")))
            .collect();
        for (path, field) in FIELDS {
            let expected = match field {
                // There is no flags' value in an acknowledgement's JSON.
                "sr.flags" if packet["ext"]["sack"].is_object() => continue,
                _ => said(packet, path, field),
            };
            assert_eq!(shown[field], expected, "{field} of {packet}");
            *seen.entry(field).or_default() += usize::from(!expected.is_empty());
        }
        for (prefix, field) in OPCODES {
            let is_of = packet["opcode"].as_str().unwrap().starts_with(prefix);
            let opcode = packet["opcode_hex"].as_str().filter(|_| is_of).map(normal);
            assert_eq!(shown[field], opcode.unwrap_or_default(), "{packet}");
        }
        if let Some(extensions) = packet["ext"]["negotiation"]["extensions"].as_str() {
            let lower = extensions.to_lowercase();
            for (name, field) in EXTENSIONS {
                assert_eq!(shown[field] == "1", lower.contains(name), "{field} of {packet}");
            }
        }
    }
    assert_eq!(text.lines().count(), packets.len());
    seen
}

/// The first packet with this opcode, with each of these low bits: its bytes are other headers then.
fn all_opcodes(capture: &Path, opcode: u8, low: &[u8], out: &Path) -> PathBuf {
    const OPCODE_AT: usize = 14 + 20 + 8;
    let mut reader = Reader::new(fs::File::open(capture).unwrap()).unwrap();
    let mut writer = PcapWriter::new(fs::File::create(out).unwrap(), LinkType::Ethernet).unwrap();
    while let Some(frame) = reader.next_frame().unwrap() {
        if frame.data[OPCODE_AT] == opcode {
            let mut data = frame.data.to_vec();
            for low in low {
                data[OPCODE_AT] = (opcode & 0xe0) + low;
                writer.write(frame.time, &data, frame.original_len).unwrap();
            }
            return out.to_path_buf();
        }
    }
    panic!("no packet {opcode:#x} in {}", capture.display());
}

#[test]
fn every_field_of_the_dissector_is_what_inspect_says() {
    if !has_tshark() {
        return;
    }
    let folder = Folder::new("fields");
    let plugin = folder.plugin();
    let corpus = Path::new(env!("CARGO_MANIFEST_DIR")).join("../pcaps/corpus");
    let names = [
        "sr_read_loss",
        "sr_write_loss",
        "lowar_read_loss",
        "lowar_send_loss_ipv6",
        "rc_mixed_mtu256",
        "xp_send_loss",
        "xp_write_stride",
        "sdr_stream_loss",
        "sdr_nack_loss",
    ];
    let mut captures: Vec<PathBuf> = names.iter().map(|name| corpus.join(format!("{name}.pcap"))).collect();
    for (name, options) in [
        ("send", &["--transport", "sr", "--op", "send"][..]),
        ("atomic", &["--transport", "sr", "--op", "atomic"]),
        ("auth", &["--transport", "sr", "--auth"]),
        ("auth-lowar", &["--transport", "lowar:8,2", "--auth"]),
    ] {
        let file = folder.0.join(format!("{name}.pcap"));
        let loss = ["--fault", "loss=0.05", "--count", "20", "--size", "8K"];
        let loss = &loss[..if name == "atomic" { 4 } else { 6 }];
        softnic(&[&["sim"], loss, options, &["--pcap", file.to_str().unwrap()]].concat());
        captures.push(file);
    }
    let sr: Vec<u8> = (0x00..=0x14).chain([0x16, 0x17]).collect();
    captures.push(all_opcodes(&captures[1], 0xc7, &sr, &folder.0.join("opcodes-sr.pcap")));
    let xp = [0x04, 0x05, 0x0a, 0x0b, 0x0c, 0x10, 0x11];
    captures.push(all_opcodes(&captures[5], 0xe4, &xp, &folder.0.join("opcodes-xp.pcap")));
    let mut seen: BTreeMap<&str, usize> = BTreeMap::new();
    for capture in &captures {
        compare(&plugin, capture).into_iter().for_each(|(field, n)| *seen.entry(field).or_default() += n);
    }
    let never: Vec<_> = seen.iter().filter(|(_, n)| **n == 0).collect();
    assert!(never.is_empty(), "no value of {never:?}");
}

#[test]
fn without_a_folder_it_says_where_wireshark_looks() {
    let out = Command::new(SOFTNIC).arg("wireshark-plugin").env("HOME", "/home/someone").output().unwrap();
    let text = String::from_utf8(out.stdout).unwrap();
    assert!(
        out.status.success() && text.contains("softnic wireshark-plugin /home/someone/.local/lib/wireshark/plugins\n"),
        "{text}"
    );
    let out = Command::new(SOFTNIC).args(["wireshark-plugin", "/dev/null/plugins"]).output().unwrap();
    let said = String::from_utf8(out.stderr).unwrap();
    assert_eq!(out.status.code(), Some(1));
    assert!(said.starts_with("softnic: cannot write /dev/null/plugins/softnic.lua: "), "{said}");
}
