//! Repair packets, notices and requests, in words and as JSON; and what is said of those that are wrong.

use serde_json::{Value, json};
use softnic_pcaps::LinkType;
use softnic_wire::lowar::{RepairHeader, Type};
use softnic_wire::{Addresses, ExtHeaders, MacAddr, Opcode, PacketFields, Path, Psn, Qpn, Template, TxFrame};

use super::program::{corpus, ethernet, inspect, objects, pcap, run, run_with_input};

/// A packet with opcode 0x1f from 10.0.0.1 to 10.0.0.2 qp 0x11, and these bytes behind its BTH.
fn frame(psn: u32, payload: &[u8]) -> Vec<u8> {
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
    let (ack_req, solicited, becn) = (false, false, false);
    let psn = Psn::new(psn);
    let fields = PacketFields { opcode: Opcode::LOWAR, psn, ack_req, solicited, becn, payload_len: payload.len() };
    let mut room = [0; 512];
    let mut tx = TxFrame::new(&mut room);
    let template = Template::new(&path, Qpn::new(0x11), 0xffff);
    template.build(&mut tx, &fields, &ExtHeaders::default(), payload).unwrap();
    tx.segments().0.to_vec()
}

fn header(kind: Type) -> RepairHeader {
    RepairHeader {
        kind,
        has_first: kind == Type::Repair,
        has_last: false,
        responses: false,
        isn: 0,
        r: 8,
        c: 2,
        n: 8,
        last_len: 0,
        digest: 0,
    }
}

fn bytes(header: RepairHeader, sum: usize) -> Vec<u8> {
    let mut b = [0; RepairHeader::LEN];
    header.emit(&mut b);
    [&b[..], &vec![0x5a; sum]].concat()
}

fn conversation() -> Vec<Vec<u8>> {
    let repair =
        RepairHeader { isn: 1, n: 5, has_last: true, last_len: 180, digest: 0xdead_beef, ..header(Type::Repair) };
    vec![
        frame(0, &bytes(header(Type::Notice), 0)),
        frame(7, &bytes(repair, 100)),
        frame(9, &bytes(RepairHeader { responses: true, last_len: 276, ..header(Type::Repair) }, 288)),
        frame(0, &bytes(RepairHeader { r: 16, c: 4, n: 16, ..header(Type::Request) }, 0)),
    ]
}

#[test]
fn each_packet_in_words() {
    let out = run_with_input(&[], &ethernet(&conversation())).well();
    let words: Vec<_> = out.packets().iter().map(|l| l[18..].trim_start().to_owned()).collect();
    let expected = [
        "psn 0 len 12, lowar notice (8,2), icrc ok",
        "psn 7 len 112, lowar repair (8,2) isn 1 of 5 packets last 180 first last, icrc ok",
        "psn 9 len 300, lowar repair (8,2) isn 0 of 8 packets last 276 first of responses, icrc ok",
        "psn 0 len 12, lowar wish (16,4), icrc ok",
    ];
    assert_eq!(words, expected.map(|rest| format!("10.0.0.1 > 10.0.0.2 RC_LOWAR qp 0x000011 {rest}")));
    for line in [
        "        4  RC_LOWAR",
        "        4            0       0       0     0     0  10.0.0.1 > 10.0.0.2 qp 0x000011  2 repair",
    ] {
        assert!(out.lines().contains(&line), "{line}\n{}", out.stdout);
    }
}

#[test]
fn the_same_as_json() {
    let all = objects(&run_with_input(&["--json"], &ethernet(&conversation())).well().stdout);
    assert_eq!((&all[1]["opcode"], &all[1]["opcode_hex"]), (&json!("RC_LOWAR"), &json!("0x1f")));
    assert_eq!(
        all[1]["ext"],
        json!({ "lowar": {
            "type": "repair", "r": 8, "c": 2, "isn": 1, "n": 5, "has_first": true, "has_last": true,
            "responses": false, "last_length": 180, "digest": 0xdead_beefu32,
        }})
    );
    assert_eq!(
        (&all[2]["ext"]["lowar"]["responses"], &all[2]["ext"]["lowar"]["has_last"]),
        (&true.into(), &false.into())
    );
    assert_eq!((&all[0]["ext"]["lowar"]["type"], &all[3]["ext"]["lowar"]["type"]), (&"notice".into(), &"wish".into()));
    assert_eq!((&all[3]["ext"]["lowar"]["r"], &all[3]["ext"]["lowar"]["c"]), (&16.into(), &4.into()));
    let summary = &all[4]["summary"];
    assert_eq!((&summary["repairs"], &summary["qps"][0]["repairs"]), (&2.into(), &2.into()));
    assert_eq!(summary["qps"][0]["payload_bytes"], 0, "what repairs is no payload");
}

/// A loss that was repaired: nothing is sent again, and the negotiation is in the capture.
#[test]
fn the_captures_of_the_corpus() {
    for (name, repairs) in [("lowar_write_loss.pcap", 6), ("lowar_read_loss.pcap", 9), ("lowar_send_loss_ipv6.pcap", 8)]
    {
        let all = objects(&run(inspect().arg("--json").arg(corpus(name))).well().stdout);
        let summary = &all.last().unwrap()["summary"];
        assert_eq!(summary["repairs"], repairs, "{name}");
        let troubles = ["retransmissions", "naks", "malformed"].map(|name| summary[name].as_u64());
        assert_eq!(troubles, [Some(0); 3], "{name}");
        let offer = &all[0]["ext"]["negotiation"];
        assert_eq!((&offer["type"], &offer["extensions"]), (&"offer".into(), &"lowar".into()), "{name}");
        assert_eq!((&offer["lowar_r"], &offer["lowar_c"], &offer["status"]), (&8.into(), &2.into(), &Value::Null));
        assert_eq!(
            (&all[2]["ext"]["negotiation"]["type"], &all[2]["ext"]["negotiation"]["status"]),
            (&"answer".into(), &0.into())
        );
        assert_eq!(all[5]["ext"]["lowar"]["type"], "notice", "{name}");
    }
}

#[test]
fn what_was_cut_off_is_not_guessed() {
    let repair = frame(7, &bytes(header(Type::Repair), 100));
    let header_end = 14 + 20 + 8 + 12 + RepairHeader::LEN;
    let cut = pcap(LinkType::Ethernet, &[&repair], header_end + 1);
    let all = objects(&run_with_input(&["--json"], &cut).well().stdout);
    assert_eq!((&all[0]["ext"]["lowar"]["n"], &all[0]["icrc"]), (&8.into(), &"truncated".into()));
    let cut = pcap(LinkType::Ethernet, &[&repair], header_end - 1);
    let all = objects(&run_with_input(&["--json"], &cut).well().stdout);
    assert_eq!(all[0]["ext"], json!({ "lowar": null }));
    assert_eq!(all[0].get("error"), None, "nothing is wrong with it");
}

#[test]
fn what_is_no_packet_of_lowar_is_malformed() {
    let mut of_no_type = bytes(header(Type::Repair), 0);
    of_no_type[0] = 9;
    for (payload, why) in [
        (&[1, 0, 0][..], "too short for its header"),
        (&of_no_type, "it is of no type that there is"),
        (&bytes(header(Type::Request), 4), "something follows its header"),
    ] {
        let out = run_with_input(&[], &ethernet(&[frame(7, payload)])).well();
        assert!(out.stdout.contains(why) && out.stdout.contains("; 1 malformed"), "{}", out.stdout);
    }
}
