//! The lines that programs read: names and types of the fields are a contract.

use std::fs;

use serde_json::{Map, Value, json};

use super::program::{corpus, inspect, run};

fn objects(text: &str) -> Vec<Map<String, Value>> {
    text.lines().map(|l| serde_json::from_str(l).unwrap_or_else(|e| panic!("{e}: {l}"))).collect()
}

fn corpus_objects(name: &str) -> Vec<Map<String, Value>> {
    objects(&run(inspect().arg("--json").arg(corpus(name))).well().stdout)
}

/// Asserts that an object has exactly these fields, each an integer below its limit.
fn integers(v: &Value, fields: &[(&str, u64)]) {
    let o = v.as_object().unwrap_or_else(|| panic!("no object: {v}"));
    assert_eq!(o.len(), fields.len(), "{v}");
    for (name, limit) in fields {
        assert!(o[*name].as_u64().is_some_and(|n| n <= *limit), "{name} of {v}");
    }
}

const U24: u64 = 0xff_ffff;
const U32: u64 = u32::MAX as u64;

fn check_ext(name: &str, v: &Value) {
    match name {
        "reth" => integers(v, &[("va", u64::MAX), ("rkey", U32), ("len", U32)]),
        "deth" => integers(v, &[("qkey", U32), ("src_qp", U24)]),
        "atomic" => integers(v, &[("va", u64::MAX), ("rkey", U32), ("swap_add", u64::MAX), ("compare", u64::MAX)]),
        "atomic_ack" => assert!(v.is_u64()),
        "imm" | "ieth" => assert!(v.as_u64().is_some_and(|n| n <= U32)),
        "aeth" => {
            assert_eq!(v.as_object().unwrap().len(), 4);
            assert!(v["syndrome"].as_u64().is_some_and(|n| n <= 0xff));
            assert!(["ack", "nak", "rnr_nak"].contains(&v["kind"].as_str().unwrap()), "{v}");
            assert!(v["value"].as_u64().is_some_and(|n| n < 32));
            assert!(v["msn"].as_u64().is_some_and(|n| n <= U24));
        }
        "sr" => integers(v, &[("flags", 0xff), ("number", U24), ("offset", U32)]),
        "sack" => {
            assert!(["requests", "responses"].contains(&v["of"].as_str().unwrap()), "{v}");
            assert!(v["expected"].as_u64().is_some_and(|n| n <= U24) && v["first"].as_u64().is_some_and(|n| n <= U24));
            assert!(v["bits"].is_u64() && v["missing"].is_array() && v["received"].is_u64(), "{v}");
        }
        "lowar" => {
            assert!(["repair", "notice", "wish"].contains(&v["type"].as_str().unwrap()), "{v}");
            for name in ["r", "c", "isn", "n"] {
                assert!(v[name].as_u64().is_some_and(|n| n <= 0xff), "{name} of {v}");
            }
            for name in ["has_first", "has_last", "responses"] {
                assert!(v[name].is_boolean(), "{name} of {v}");
            }
            assert!(v["last_length"].as_u64().is_some_and(|n| n <= 0xffff), "{v}");
            assert!(v["digest"].as_u64().is_some_and(|n| n <= U32), "{v}");
            assert_eq!(v.as_object().unwrap().len(), 10, "{v}");
        }
        "negotiation" => {
            assert!(["offer", "answer"].contains(&v["type"].as_str().unwrap()), "{v}");
            assert!(v["tid"].is_u64() && v["extensions"].is_string() && v["sr_window"].is_u64(), "{v}");
            assert!(v["lowar_r"].is_u64() && v["lowar_c"].is_u64(), "{v}");
        }
        "xp" => {
            let numbers = ["wqe_seq", "offset", "length", "stride"].map(|name| v[name].is_u64());
            assert!(numbers == [true; 4] && v["last"].is_boolean(), "{v}");
            assert!(v["receive"].is_u64() || v["receive"].is_null(), "{v}");
        }
        "sdr" => integers(v, &[("msg", U32), ("packet", U32), ("user", U32)]),
        "sdr_control" => {
            let report = ["done", "msg", "len", "below", "chunks"];
            let fields = match v["kind"].as_str().unwrap() {
                "cts" | "ask" => &["count"][..],
                "ack" | "nack" => &report,
                "nack-rows" => &["done", "msg", "len", "below", "rows"],
                other => panic!("{other} is no control message: {v}"),
            };
            assert!(fields.iter().chain(&["token", "sequence"]).all(|&name| v[name].is_u64()), "{v}");
            assert_eq!(v.as_object().unwrap().len(), fields.len() + 3, "{v}");
        }
        "cm" => {
            assert!(v["type"].is_string() && v["tid"].is_u64(), "{v}");
        }
        other => panic!("{other} is not in the contract: {v}"),
    }
}

/// Fields that the contract does not name; a script may not rely on them, but they must not go unnoticed.
const BEYOND: [&str; 6] = ["fecn", "becn", "src_port", "traffic_class", "retransmission", "out_of_sequence"];

fn check_packet(o: &Map<String, Value>) {
    let unsigned = |name: &str, limit: u64| {
        assert!(o[name].as_u64().is_some_and(|n| n <= limit), "{name} is {}", o[name]);
    };
    unsigned("n", u64::MAX);
    assert!(o["time"].is_f64(), "time is {}", o["time"]);
    for name in ["src", "dst"] {
        o[name].as_str().unwrap().parse::<std::net::IpAddr>().unwrap();
    }
    assert!(matches!(o["roce"].as_u64(), Some(1 | 2)));
    let hex = o["opcode_hex"].as_str().unwrap();
    assert!(hex.len() == 4 && u8::from_str_radix(&hex[2..], 16).is_ok(), "{hex}");
    assert!(o["opcode"].as_str().unwrap().bytes().all(|b| b.is_ascii_uppercase() || b == b'_'));
    unsigned("dest_qp", U24);
    unsigned("psn", U24);
    for name in ["ack_req", "se", "mig", "fecn", "becn", "retransmission", "out_of_sequence"] {
        assert!(o[name].is_boolean(), "{name} is {}", o[name]);
    }
    unsigned("pad", 3);
    unsigned("pkey", 0xffff);
    unsigned("payload_len", 4096);
    unsigned("src_port", 0xffff);
    unsigned("traffic_class", 0xff);
    assert_eq!(o["icrc"], "ok");
    for (name, v) in o["ext"].as_object().unwrap() {
        check_ext(name, v);
    }
    let contract = 17; // n time src dst roce opcode opcode_hex dest_qp psn ack_req se mig pad pkey payload_len icrc ext
    assert_eq!(o.len(), contract + BEYOND.len(), "{o:?}");
}

#[test]
fn every_line_of_every_capture_keeps_the_contract() {
    for entry in fs::read_dir(corpus("")).unwrap() {
        let name = entry.unwrap().file_name().into_string().unwrap();
        if !name.ends_with(".pcap") {
            continue;
        }
        let mut all = corpus_objects(&name);
        let summary = all.pop().unwrap();
        assert_eq!(summary.keys().collect::<Vec<_>>(), ["summary"], "{name}: the last line is the summary");
        // In these, packets were damaged on purpose: any of their fields may be what it never is.
        let may_be_damaged =
            ["corrupt", "mixed"].iter().any(|word| name.starts_with("interop_") && name.contains(word));
        all.iter().filter(|o| !may_be_damaged || o["icrc"] == "ok").for_each(check_packet);
        let n: Vec<_> = all.iter().map(|o| o["n"].as_u64().unwrap()).collect();
        assert_eq!(n, (1..=all.len() as u64).collect::<Vec<_>>(), "{name}: frames are counted from 1");
        assert_eq!(summary["summary"]["packets"], all.len());
    }
}

#[test]
fn the_fields_are_in_a_fixed_order() {
    let out = run(inspect().arg("--json").arg(corpus("rc_send_inv.pcap"))).well();
    assert_eq!(
        out.lines()[0],
        r#"{"n":1,"time":1794702243.090030000,"src":"10.33.0.1","dst":"10.33.0.2","roce":2,"opcode":"RC_RDMA_WRITE_ONLY","opcode_hex":"0x0a","dest_qp":85,"psn":9523591,"ack_req":true,"se":false,"mig":false,"pad":0,"pkey":65535,"fecn":false,"becn":false,"src_port":56887,"traffic_class":0,"payload_len":64,"icrc":"ok","ext":{"reth":{"len":64,"rkey":134218435,"va":139636478693376}},"retransmission":false,"out_of_sequence":false}"#
    );
}

#[test]
fn extension_headers() {
    let ext = |file, n: usize| corpus_objects(file)[n - 1]["ext"].clone();
    assert_eq!(
        ext("rc_atomic.pcap", 3),
        json!({ "atomic": {
            "va": 0xd9de000, "rkey": 0x2171, "swap_add": 0xdead_beef_cafe_f00du64, "compare": 0x1122_3344_5566_7789u64,
        }})
    );
    assert_eq!(
        ext("rc_atomic.pcap", 2),
        json!({
            "aeth": { "syndrome": 31, "kind": "ack", "value": 31, "msn": 1 },
            "atomic_ack": 0x1122_3344_5566_7788u64,
        })
    );
    assert_eq!(ext("rc_send_inv.pcap", 3), json!({ "ieth": 0x0800_02c3 }));
    assert_eq!(ext("ud_send.pcap", 4), json!({ "deth": { "qkey": 0x1111_1111, "src_qp": 65 }, "imm": 0x4433_2211 }));
    assert_eq!(
        ext("loss_send_middle_nak.pcap", 7),
        json!({ "aeth": { "syndrome": 0x60, "kind": "nak", "value": 0, "msn": 0 } })
    );
    assert_eq!(
        ext("rc_rnr_nak.pcap", 2),
        json!({ "aeth": { "syndrome": 0x32, "kind": "rnr_nak", "value": 18, "msn": 0 } })
    );
    assert_eq!(ext("loss_send_middle_nak.pcap", 1), json!({}));
}

#[test]
fn connection_management() {
    let all = corpus_objects("cm_rping_ipv4.pcap");
    let types: Vec<_> = all.iter().filter_map(|o| o.get("ext")?["cm"]["type"].as_str()).collect();
    assert_eq!(types, ["REQ", "REP", "RTU", "DREQ", "DREP"]);
    let req = &all[0]["ext"]["cm"];
    assert_eq!(req["local_qpn"], 0x71);
    assert_eq!(req["starting_psn"], 2_506_631);
    assert_eq!(req["path_mtu"], 4096);
    assert_eq!(req["ip"]["dst"], "10.33.0.2");
}

#[test]
fn the_summary() {
    let out = corpus_objects("loss_send_middle_nak.pcap").pop().unwrap();
    let s = &out["summary"];
    for (name, value) in [
        ("frames", 25),
        ("packets", 25),
        ("other_frames", 0),
        ("fragments", 0),
        ("undecodable", 0),
        ("malformed", 0),
        ("retransmissions", 3),
        ("out_of_sequence", 0),
        ("naks", 1),
        ("rnr_naks", 0),
        ("bytes", 22970),
    ] {
        assert_eq!(s[name], value, "{name}");
    }
    assert_eq!(s["icrc"], json!({ "ok": 25, "bad": 0, "truncated": 0 }));
    let opcodes = json!({ "RC_SEND_FIRST": 3, "RC_SEND_MIDDLE": 14, "RC_SEND_LAST": 4, "RC_ACKNOWLEDGE": 4 });
    assert_eq!(s["opcodes"], opcodes);
    assert_eq!(s["seconds"], 0.00358);
    assert_eq!(s["qps"][0]["dest_qp"], 117);
    assert_eq!(s["qps"][0]["payload_bytes"], 21504);
    assert_eq!(s["qps"][1]["naks"], json!({ "psn sequence error": 1 }));
    assert_eq!(s["verdicts"], json!([]));
    let c = &s["connections"][0];
    assert_eq!(c["ends"], json!([{ "addr": "10.33.0.1", "qp": 0x7c }, { "addr": "10.33.0.2", "qp": 0x75 }]));
    assert_eq!(c["paired_by"], "answers");
    let there = &c["directions"][0];
    assert_eq!(
        (&there["payload_bytes"], &there["retransmissions"], &there["mtu"]),
        (&json!(18432), &json!(3), &json!(1024))
    );
    assert_eq!(there["round_trips"]["count"], 2);
    assert_eq!(there["round_trips"]["min_s"], 0.000289);
}

#[test]
fn the_option_may_stand_before_the_command() {
    let file = corpus("rc_atomic.pcap");
    let mut before = std::process::Command::new(env!("CARGO_BIN_EXE_softnic"));
    let before = run(before.arg("--json").arg("inspect").arg(&file)).well();
    assert_eq!(before.stdout, run(inspect().arg(&file).arg("--json")).well().stdout);
}
