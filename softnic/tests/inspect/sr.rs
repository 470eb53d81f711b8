//! Packets of Selective Repeat, written out by hand: what each says, in words and in JSON, and how they are followed.

use serde_json::{Value, json};
use softnic_pcaps::LinkType;
use softnic_wire::{Error, Layout, icrc};

use super::program::{Run, ethernet, pcap, run_with_input};

/// A frame with a right ICRC: from 10.0.0.1 to 10.0.0.2 qp 0x11, or the other way to qp 0x22.
fn frame(to_responder: bool, opcode: u8, psn: u8, ext: &[&[u8]], payload: &[u8]) -> Vec<u8> {
    let pad = (4 - payload.len() % 4) % 4;
    let ext = ext.concat();
    let len = 8 + 12 + ext.len() + payload.len() + pad + 4;
    let (src, dst, qp) = if to_responder { (1, 2, 0x11) } else { (2, 1, 0x22) };
    let mut f = vec![2, 0, 0, 0, 0, dst, 2, 0, 0, 0, 0, src, 0x08, 0x00];
    f.extend([0x45, 0, 0, 20 + len as u8, 0, 0, 0x40, 0, 64, 17, 0, 0, 10, 0, 0, src, 10, 0, 0, dst]);
    f.extend([0xc0, 0x01, 0x12, 0xb7, 0, len as u8, 0, 0]);
    f.extend([opcode, 0x40 | (pad as u8) << 4, 0xff, 0xff, 0, 0, 0, qp, 0, 0, 0, psn]);
    f.extend(ext);
    f.extend(payload);
    f.resize(f.len() + pad + icrc::LEN, 0);
    let layout = Layout::locate(&f).unwrap();
    let Err(Error::Icrc { expected, .. }) = icrc::verify_shared(&f, &layout) else { panic!("lengths contradict") };
    let at = f.len() - icrc::LEN;
    f[at..].copy_from_slice(&expected.to_le_bytes());
    f
}

/// Address 0x1000 and `at`, key 0xabcd, `len` bytes.
fn reth(at: u8, len: u8) -> [u8; 16] {
    [0, 0, 0, 0, 0, 0, 0x10, at, 0, 0, 0xab, 0xcd, 0, 0, 0, len]
}

/// Requests with PSN 5 to 11, of which 8 was lost before the capture and 9 came; answers with PSNs of their own, 5 and 8.
fn conversation() -> Vec<Vec<u8>> {
    let aeth = [0x1f, 0, 0, 2];
    let cas = [&reth(0x80, 0)[..12], &[0, 0, 0, 0, 0, 0, 0, 7], &[0; 8]].concat();
    vec![
        frame(true, 0xc6, 5, &[&reth(0, 88)], &[1; 40]),
        frame(true, 0xc7, 6, &[&reth(40, 48)], &[1; 40]),
        frame(true, 0xc9, 7, &[&[0, 0, 0, 0, 0, 0, 0, 80], &reth(80, 8), &[0, 0, 0, 9]], &[1; 8]),
        frame(true, 0xc4, 9, &[&[0, 0, 0, 2, 0, 0, 0, 0]], &[1; 3]),
        frame(true, 0xcc, 10, &[&reth(0, 88)], &[]),
        frame(true, 0xd3, 11, &[&cas], &[]),
        // Expects 8; the bitmap is of 8 … 11.
        frame(false, 0xd1, 8, &[&[0, 0, 0, 8, 0, 0, 0, 4], &aeth], &[0b1110]),
        frame(false, 0xcd, 5, &[&[0, 0, 0, 10, 0, 0, 0, 0]], &[1; 40]),
        frame(false, 0xd2, 8, &[&[0, 0, 0, 11, 0, 0, 0, 0], &[0, 0, 0, 0, 0, 0, 0, 6]], &[]),
        // Of responses: expects 6; the bitmap is of 6 … 15, though of 9 and beyond none was sent.
        frame(true, 0xd1, 6, &[&[0x80, 0, 0, 6, 0, 0, 0, 10], &aeth], &[0b100, 0]),
        frame(true, 0xc4, 8, &[&[0, 0, 0, 1, 0, 0, 0, 0]], &[]),
        // All has come; a receiver that is not ready has words of its own.
        frame(false, 0xd1, 12, &[&[0, 0, 0, 12, 0, 0, 0, 0], &[0x03, 0, 0, 6]], &[]),
        frame(false, 0xd1, 8, &[&[0, 0, 0, 9, 0, 0, 0, 3], &[0x2e, 0, 0, 2]], &[0b111]),
    ]
}

#[test]
fn each_packet_in_words() {
    let out = run_with_input(&[], &ethernet(&conversation())).well();
    let words: Vec<_> = out.packets().iter().map(|l| l[18..].trim_start().to_owned()).collect();
    let (there, back) = ("10.0.0.1 > 10.0.0.2 SR_", "10.0.0.2 > 10.0.0.1 SR_");
    let expected = [
        (there, "RDMA_WRITE_FIRST qp 0x000011 psn 5 len 40, va 0x1000 rkey 0x0000abcd dma len 88, icrc ok"),
        (there, "RDMA_WRITE_MIDDLE qp 0x000011 psn 6 len 40, va 0x1028 rkey 0x0000abcd dma len 48, icrc ok"),
        (
            there,
            "RDMA_WRITE_LAST_WITH_IMMEDIATE qp 0x000011 psn 7 len 8, sr 0 at 80, va 0x1050 rkey 0x0000abcd dma len 8, \
             imm 0x00000009, icrc ok",
        ),
        (there, "SEND_ONLY qp 0x000011 psn 9 len 3, sr 2 at 0, icrc ok (out of sequence)"),
        (there, "RDMA_READ_REQUEST qp 0x000011 psn 10 len 0, va 0x1000 rkey 0x0000abcd dma len 88, icrc ok"),
        (there, "COMPARE_SWAP qp 0x000011 psn 11 len 0, va 0x1080 rkey 0x0000abcd swap/add 0x7 compare 0x0, icrc ok"),
        (back, "ACKNOWLEDGE qp 0x000022 psn 8 len 1, ack msn 2, sack 8..12 missing 8, icrc ok"),
        (back, "RDMA_READ_RESPONSE_FIRST qp 0x000022 psn 5 len 40, sr 10 at 0, icrc ok"),
        (back, "ATOMIC_ACKNOWLEDGE qp 0x000022 psn 8 len 0, sr 11 at 0, original 0x6, icrc ok (out of sequence)"),
        (
            there,
            "ACKNOWLEDGE qp 0x000011 psn 6 len 2, ack msn 2, sack of responses 6..16 missing 6 7 9 10 11 12 13 14 15, \
             icrc ok",
        ),
        (there, "SEND_ONLY qp 0x000011 psn 8 len 0, sr 1 at 0, icrc ok (retransmission)"),
        (back, "ACKNOWLEDGE qp 0x000022 psn 12 len 0, ack credits 3 msn 6, sack empty, icrc ok"),
        (back, "ACKNOWLEDGE qp 0x000022 psn 8 len 1, rnr nak 1.28ms msn 2, sack 9..12 missing none, icrc ok"),
    ];
    assert_eq!(words, expected.map(|(way, rest)| format!("{way}{rest}")));
    for line in [
        "        4  SR_ACKNOWLEDGE",
        "        8           93       1       1     0     0  10.0.0.1 > 10.0.0.2 qp 0x000011",
        "        5           42       0       1     0     1  10.0.0.2 > 10.0.0.1 qp 0x000022",
    ] {
        assert!(out.lines().contains(&line), "{line}\n{}", out.stdout);
    }
}

fn exts(out: &Run) -> Vec<Value> {
    let all = out.stdout.lines().map(|l| serde_json::from_str::<Value>(l).unwrap());
    all.filter(|v| v.get("ext").is_some()).map(|v| v["ext"].clone()).collect()
}

#[test]
fn the_same_as_json() {
    let ext = exts(&run_with_input(&["--json"], &ethernet(&conversation())).well());
    assert_eq!(ext[1], json!({ "reth": { "va": 0x1028, "rkey": 0xabcd, "len": 48 } }));
    assert_eq!(
        ext[2],
        json!({
            "sr": { "flags": 0, "number": 0, "offset": 80 },
            "reth": { "va": 0x1050, "rkey": 0xabcd, "len": 8 }, "imm": 9,
        })
    );
    assert_eq!(ext[3], json!({ "sr": { "flags": 0, "number": 2, "offset": 0 } }));
    assert_eq!(
        ext[6],
        json!({
            "sack": { "of": "requests", "expected": 8, "first": 8, "bits": 4, "missing": [8], "received": 3 },
            "aeth": { "syndrome": 0x1f, "kind": "ack", "value": 31, "msn": 2 },
        })
    );
    assert_eq!(ext[8], json!({ "sr": { "flags": 0, "number": 11, "offset": 0 }, "atomic_ack": 6 }));
    assert_eq!(
        ext[9]["sack"],
        json!({
            "of": "responses", "expected": 6, "first": 6, "bits": 10,
            "missing": [6, 7, 9, 10, 11, 12, 13, 14, 15], "received": 1,
        })
    );
    assert_eq!(
        ext[11]["sack"],
        json!({ "of": "requests", "expected": 12, "first": 12, "bits": 0, "missing": [], "received": 0 })
    );
}

/// Of what is missing the first 32 are named.
#[test]
fn a_long_list_of_what_is_missing_is_cut() {
    let ack = frame(false, 0xd1, 0, &[&[0, 0, 0, 0, 0, 0, 0, 45], &[0x1f, 0, 0, 0]], &[0, 0, 0, 0, 0, 0x10]);
    let capture = ethernet(&[ack]);
    let sack = &exts(&run_with_input(&["--json"], &capture).well())[0]["sack"];
    assert_eq!(sack["missing"], json!((0..32).collect::<Vec<_>>()));
    assert_eq!((&sack["bits"], &sack["received"]), (&json!(45), &json!(1)));
    let out = run_with_input(&[], &capture).well();
    assert!(out.stdout.contains(", sack 0..45 missing 0 1 2 3 "), "{}", out.stdout);
    assert!(out.stdout.contains(" 31 and 12 more, icrc ok"), "{}", out.stdout);
}

#[test]
fn a_bitmap_that_was_cut_off_is_not_guessed() {
    let ack = frame(false, 0xd1, 8, &[&[0, 0, 0, 9, 0, 0, 0, 16], &[0x1f, 0, 0, 2]], &[0xff, 0xff]);
    let header_end = 14 + 20 + 8 + 12 + 12;
    let cut = pcap(LinkType::Ethernet, &[&ack], header_end + 1);
    let ext = exts(&run_with_input(&["--json"], &cut).well());
    assert_eq!(
        ext[0]["sack"],
        json!({ "of": "requests", "expected": 8, "first": 9, "bits": 16, "missing": null, "received": null })
    );
    let out = run_with_input(&[], &cut).well();
    assert!(out.stdout.contains(", ack msn 2, sack 9..25 ?, icrc truncated"), "{}", out.stdout);
    // Within the header there is nothing left to tell.
    let cut = pcap(LinkType::Ethernet, &[&ack], header_end - 9);
    assert_eq!(exts(&run_with_input(&["--json"], &cut).well())[0], json!({ "sack": null, "aeth": null }));
}

#[test]
fn a_bitmap_that_is_not_as_long_as_its_header_says_is_malformed() {
    for bits in [1u32, 8, 17, u32::MAX] {
        let ext: [&[u8]; 3] = [&[0, 0, 0, 9], &bits.to_be_bytes(), &[0x1f, 0, 0, 2]];
        let ack = frame(false, 0xd1, 8, &ext, &[0xff, 0xff]);
        let out = run_with_input(&[], &ethernet(&[&ack])).well();
        assert!(out.stdout.contains(" ?, icrc ok (malformed: "), "{}", out.stdout);
        assert!(out.stdout.contains("; 1 malformed"), "{}", out.stdout);
    }
}
