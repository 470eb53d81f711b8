//! Frames as other links carry them: VLAN tags, RoCEv1, cooked captures, bare IP, pcapng.

use serde_json::Value;
use softnic_pcaps::{LinkType, PcapngWriter};
use softnic_wire::icrc::Icrc;

use super::program::{corpus, ethernet, frames, inspect, pcap, run, run_with_input, time};

/// The summary's ICRC counts and the first line of a capture.
fn first_and_icrc(capture: &[u8]) -> (Value, Value) {
    let out = run_with_input(&["--json"], capture).well();
    let parse = |line: &str| serde_json::from_str::<Value>(line).unwrap();
    (parse(out.lines()[0]), parse(out.lines().last().unwrap())["summary"]["icrc"].clone())
}

/// What must be the same whatever carries the packet.
fn same(a: &Value, b: &Value) {
    for field in ["src", "dst", "opcode", "dest_qp", "psn", "pad", "payload_len", "icrc", "ext"] {
        assert_eq!(a[field], b[field], "{field}");
    }
}

fn expected(file: &str) -> Value {
    let out = run(inspect().arg("--json").arg(corpus(file))).well();
    serde_json::from_str(out.lines()[0]).unwrap()
}

const V4: &str = "rc_write_mtu1024.pcap";
const V6: &str = "rc_mixed_mtu1024_ipv6.pcap";

#[test]
fn vlan_tags() {
    for file in [V4, V6] {
        for tags in [&[0x81, 0, 0x20, 7][..], &[0x88, 0xa8, 0, 100, 0x81, 0, 0x20, 7], &[0x91, 0, 0, 1, 0x81, 0, 0, 2]]
        {
            let tag = |f: Vec<u8>| [&f[..12], tags, &f[12..]].concat();
            let all: Vec<_> = frames(file).into_iter().map(tag).collect();
            let (first, icrc) = first_and_icrc(&ethernet(&all));
            same(&first, &expected(file));
            assert_eq!(icrc["ok"], all.len());
        }
    }
}

#[test]
fn three_tags_are_one_too_many() {
    let tag = [0x81, 0, 0, 7];
    let f = &frames(V4)[0];
    let out = run_with_input(&[], &ethernet(&[[&f[..12], &tag, &tag, &tag, &f[12..]].concat()])).well();
    assert_eq!(out.stdout, "\n0 RoCE packets in 1 frames (1 of other protocols, 0 fragments, 0 not decoded)\n");
}

#[test]
fn bare_ip() {
    for (file, links) in [(V4, [LinkType::RawIp, LinkType::Ipv4]), (V6, [LinkType::RawIp, LinkType::Ipv6])] {
        let all: Vec<_> = frames(file).into_iter().map(|f| f[14..].to_vec()).collect();
        for link in links {
            let (first, icrc) = first_and_icrc(&pcap(link, &all, usize::MAX));
            same(&first, &expected(file));
            assert_eq!(icrc["ok"], all.len(), "{link:?}");
        }
    }
}

#[test]
fn cooked_captures() {
    for file in [V4, V6] {
        let all = frames(file);
        // Packet type 0, ARPHRD 1, address of 6 bytes, then the protocol.
        let v1 = |f: &Vec<u8>| [&[0, 0, 0, 1, 0, 6], &f[6..12], &[0, 0], &f[12..]].concat();
        // Protocol, reserved, interface index, ARPHRD 1, packet type 0, address of 6 bytes.
        let v2 = |f: &Vec<u8>| [&f[12..14], &[0, 0, 0, 0, 0, 2, 0, 1, 0, 6], &f[6..12], &[0, 0], &f[14..]].concat();
        let captures = [
            pcap(LinkType::LinuxSll, &all.iter().map(v1).collect::<Vec<_>>(), usize::MAX),
            pcap(LinkType::LinuxSll2, &all.iter().map(v2).collect::<Vec<_>>(), usize::MAX),
        ];
        for capture in captures {
            let (first, icrc) = first_and_icrc(&capture);
            same(&first, &expected(file));
            assert_eq!(icrc["ok"], all.len());
        }
    }
}

#[test]
fn roce_version_1() {
    let f = &frames(V6)[0];
    let (grh, body) = (&f[14..54], &f[62..f.len() - 4]);
    let mut packet = [grh, body].concat();
    packet[4..6].copy_from_slice(&(body.len() as u16 + 4).to_be_bytes());
    packet[6] = 0x1b;
    let mut masked = packet.clone();
    masked[0] |= 0x0f;
    masked[1..4].fill(0xff);
    masked[7] = 0xff;
    masked[44] = 0xff;
    let mut crc = Icrc::new();
    crc.update(&masked);
    let frame = [&f[..12], &[0x89, 0x15], &packet, &crc.finish()].concat();
    let (first, icrc) = first_and_icrc(&ethernet(&[frame]));
    same(&first, &expected(V6));
    assert_eq!((&first["roce"], &first["src_port"], &icrc["ok"]), (&1.into(), &Value::Null, &1.into()));
}

#[test]
fn pcapng_with_several_links() {
    let (v4, v6) = (frames(V4), frames(V6));
    let mut w = PcapngWriter::new(Vec::new()).unwrap();
    let eth = w.add_interface(LinkType::Ethernet, "eth0").unwrap();
    let tun = w.add_interface(LinkType::RawIp, "").unwrap();
    w.write(eth, time(0), &v4[0], v4[0].len() as u32).unwrap();
    w.write(tun, time(1), &v6[0][14..], v6[0].len() as u32 - 14).unwrap();
    let out = run_with_input(&["--json"], &w.into_inner()).well();
    let lines: Vec<Value> = out.lines().iter().map(|l| serde_json::from_str(l).unwrap()).collect();
    same(&lines[0], &expected(V4));
    same(&lines[1], &expected(V6));
    assert_eq!(lines[1]["time"], 1000.000001);
    assert_eq!(lines[2]["summary"]["icrc"]["ok"], 2);
}

#[test]
fn an_unknown_link_is_named() {
    let out = run_with_input(&[], &pcap(LinkType::Other(127), &[[0; 60]], usize::MAX));
    assert_eq!(
        (out.code, &*out.stderr),
        (Some(0), "softnic: some frames are of link type 127, which is not understood\n")
    );
    assert!(out.stdout.contains("0 RoCE packets in 1 frames (0 of other protocols, 0 fragments, 1 not decoded)"));
}

#[test]
fn other_protocols_are_only_counted() {
    let mut arp = vec![0xff; 60];
    arp[12..14].copy_from_slice(&[0x08, 0x06]);
    let mut fragment = frames(V4)[0].clone();
    fragment[20] = 0x20; // more fragments
    let mut other_port = frames(V4)[0].clone();
    other_port[37] += 1;
    let out = run_with_input(&[], &ethernet(&[arp, fragment, other_port])).well();
    assert_eq!(
        out.stdout,
        "    2    0.000000 not decoded: an IP fragment, which RoCE does not allow\n\
         \n0 RoCE packets in 3 frames (2 of other protocols, 1 fragments, 0 not decoded)\n"
    );
}
