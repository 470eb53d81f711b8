//! Packets that a client sends.

use softnic_wire::mad::ip_cm::ServiceId;
use softnic_wire::mad::{Class, MAD_LEN};
use softnic_wire::{ExtHeaders, Opcode, Path, Qpn};

use super::frames::*;
use super::*;

const OUT: u32 = TC_ACT_REDIRECT;

/// Checks that the client may send a frame to a peer on the wire: the frame is counted, and leaves by the interface.
fn allowed(port: &SharedPort, frame: &[u8], what: &str) {
    let before = port.client(SENDER);
    assert_eq!(port.run(&port.egress, frame), only(OUT), "{what}");
    let after = port.client(SENDER);
    let counted = (after.tx_frames - before.tx_frames, after.tx_bytes - before.tx_bytes);
    assert_eq!(counted, (1, frame.len() as u64), "{what}");
    assert_eq!((after.tx_denied, after.tx_policed), (before.tx_denied, before.tx_policed), "{what}");
}

fn denied(port: &SharedPort, frame: &[u8], what: &str) {
    let before = port.client(SENDER);
    assert_eq!(port.run(&port.egress, frame), only(TC_ACT_SHOT), "{what}");
    let expected = Client { tx_denied: before.tx_denied + 1, ..before };
    assert_eq!(port.client(SENDER), expected, "{what}");
}

#[test]
fn only_roce_of_the_ports_own_addresses_goes_out() {
    let Some(port) = SharedPort::new() else { return };
    for v6 in [false, true] {
        let path = outwards(v6, REMOTE_MAC);
        let good = rc(&path, Qpn::new(0x1234));
        allowed(&port, &good, "RC");
        let bth = good.len() - 12 - 64 - 4;
        // The kernel runs no classifier over a truncated IP header.
        for len in bth - 8..bth + 12 {
            denied(&port, &good[..len], "cut off");
        }
        allowed(&port, &good[..bth + 12], "nothing but a BTH");
        denied(&port, &rc(&Path { tags: inwards_with_tag().tags, ..path }, Qpn::new(0x1234)), "a tag");
        for at in (6..12).chain(if v6 { 22..38 } else { 26..30 }) {
            let mut bytes = good.clone();
            bytes[at] ^= 0x10;
            denied(&port, &bytes, "another source address");
        }
        let udp = bth - 8;
        for at in [udp + 2, udp + 3] {
            let mut bytes = good.clone();
            bytes[at] ^= 1;
            denied(&port, &bytes, "another port");
        }
        let ethertypes = [0x0806u16, 0x8915, if v6 { 0x0800 } else { 0x86dd }];
        for ethertype in ethertypes {
            let mut bytes = good.clone();
            bytes[12..14].copy_from_slice(&ethertype.to_be_bytes());
            denied(&port, &bytes, "another ethertype");
        }
        // IPv4: options, fragments, protocol. IPv6: next header.
        for (at, value) in if v6 { &[(20, 0), (20, 44)][..] } else { &[(14, 0x46), (20, 0x20), (21, 1), (23, 6)] } {
            let mut bytes = good.clone();
            bytes[*at] = *value;
            denied(&port, &bytes, "IP");
        }
    }
    port.maps.set_addresses(&[LOCAL_V6.into()]).unwrap();
    denied(&port, &rc(&outwards(false, REMOTE_MAC), Qpn::new(5)), "an address that the port no longer has");
    allowed(&port, &rc(&outwards(true, REMOTE_MAC), Qpn::new(5)), "one that it still has");
}

fn inwards_with_tag() -> Path {
    Path { tags: [Some(softnic_wire::ethernet::VlanTag::new(5, 0)), None], ..inwards(false) }
}

#[test]
fn a_datagram_is_from_a_queue_pair_of_the_client() {
    let Some(port) = SharedPort::new() else { return };
    for path in [false, true].map(|v6| outwards(v6, REMOTE_MAC)) {
        let peer = Qpn::new(0x77_0000);
        allowed(&port, &ud(&path, peer, qp(SENDER)), "its own");
        allowed(&port, &ud(&path, peer, Qpn::new(SENDER << 14)), "its first");
        allowed(&port, &ud(&path, peer, Qpn::new(SENDER << 14 | 0x3fff)), "its last");
        for other in [qp(SENDER + 1), qp(SENDER - 1), qp(1), qp(1022), Qpn::GSI, Qpn::new(0), Qpn::MULTICAST] {
            denied(&port, &ud(&path, peer, other), "another's");
            denied(&port, &ud(&path, Qpn::MULTICAST, other), "another's, to a group");
        }
        let deth = softnic_wire::ext::Deth { qkey: 1, src_qp: qp(1) };
        let ext = ExtHeaders { deth: Some(deth), imm: Some(1), ..ExtHeaders::default() };
        denied(&port, &frame(&path, peer, Opcode::UD_SEND_ONLY_WITH_IMMEDIATE, &ext, &[1; 8]), "with immediate");
        let good = ud(&path, peer, qp(SENDER));
        let deth_end = good.len() - 64 - 4;
        denied(&port, &good[..deth_end - 1], "cut off");
        allowed(&port, &good[..deth_end], "nothing but headers");
    }
}

#[test]
fn only_management_goes_to_the_queue_pair_of_management() {
    let Some(port) = SharedPort::new() else { return };
    let path = outwards(false, REMOTE_MAC);
    denied(&port, &rc(&path, Qpn::GSI), "RC");
    denied(&port, &ud(&path, Qpn::GSI, qp(SENDER)), "from a queue pair of its own");
    denied(&port, &ud(&path, Qpn::GSI, Qpn::GSI), "with another Q_Key");
    let good = cm(&path, &rej(id(SENDER), 5));
    allowed(&port, &good, "a message");
    const BTH: usize = 42;
    let mut with_immediate = good.clone();
    with_immediate[BTH] = 0x65;
    denied(&port, &with_immediate, "with immediate");
    for len in BTH + 20..BTH + 72 {
        denied(&port, &good[..len], "cut off");
    }
    for class in [Class::SUBN_ADM, Class::PERF, Class(0x4f), Class(0)] {
        let mut bytes = [0; MAD_LEN];
        bytes[1] = class.0;
        denied(&port, &mad(&path, &bytes), "another class");
    }
}

#[test]
fn a_message_of_the_connection_manager_has_an_id_of_the_client() {
    let Some(port) = SharedPort::new() else { return };
    for path in [false, true].map(|v6| outwards(v6, REMOTE_MAC)) {
        let all = |local| answers(local, 0x9999).into_iter().chain(requests(local, ServiceId(8)));
        for message in all(id(SENDER)) {
            allowed(&port, &cm(&path, &message), "its own");
        }
        for other in [id(STRANGER), id(1), u32::MAX, 1] {
            for message in all(other) {
                denied(&port, &cm(&path, &message), "another's");
            }
        }
        for message in all(0) {
            match message {
                softnic_wire::mad::cm::Message::Rej(_) => allowed(&port, &cm(&path, &message), "a refusal"),
                _ => denied(&port, &cm(&path, &message), "without an id"),
            }
        }
        allowed(&port, &cm(&path, &sidr_rep(id(1))), "the id of the question");
    }
}

#[test]
fn a_negotiation_is_about_a_queue_pair_of_the_client() {
    let Some(port) = SharedPort::new() else { return };
    for path in [false, true].map(|v6| outwards(v6, REMOTE_MAC)) {
        let peer = Qpn::new(0x77_0000);
        for kind in KINDS {
            allowed(&port, &mad(&path, &negotiation(qp(SENDER), peer, kind)), "its own");
        }
        for other in [qp(1), qp(STRANGER), Qpn::GSI] {
            denied(&port, &mad(&path, &negotiation(other, peer, KINDS[0])), "another's");
            denied(&port, &mad(&path, &negotiation(other, peer, KINDS[1])), "another's");
        }
    }
}

#[test]
fn nothing_goes_out_once_the_number_is_taken_back() {
    let Some(port) = SharedPort::with_members(&[1]) else { return };
    port.maps.clear_client(process(SENDER)).unwrap();
    for mac in [REMOTE_MAC, LOCAL_MAC, GROUP_MAC] {
        for frame in [ud(&outwards(false, mac), qp(1), qp(SENDER)), ud(&outwards(false, mac), qp(1), qp(1))] {
            assert_eq!(port.egress.test_run(&frame).unwrap(), TC_ACT_SHOT);
        }
    }
    assert_eq!((port.client(1).rx_frames, port.maps.port().unwrap().nobody), (0, 0));
}

#[test]
fn a_frame_for_another_client_goes_to_it() {
    let Some(port) = SharedPort::with_members(&[1, 77, 1022]) else { return };
    for path in [false, true].map(|v6| outwards(v6, LOCAL_MAC)) {
        for number in CLIENTS {
            assert_eq!(port.run(&port.egress, &rc(&path, qp(number))), to(OUT, number), "RC to {number}");
            assert_eq!(port.run(&port.egress, &ud(&path, qp(number), qp(SENDER))), to(OUT, number), "UD to {number}");
            for message in answers(id(SENDER), id(number)).into_iter().chain([sidr_rep(id(number))]) {
                assert_eq!(port.run(&port.egress, &cm(&path, &message)), to(OUT, number), "{message:?}");
            }
            for kind in KINDS {
                let bytes = negotiation(qp(SENDER), qp(number), kind);
                assert_eq!(port.run(&port.egress, &mad(&path, &bytes)), to(OUT, number), "{kind:?}");
            }
        }
        for message in requests(id(SENDER), SERVICE) {
            assert_eq!(port.run(&port.egress, &cm(&path, &message)), to(OUT, 2));
        }
        for message in requests(id(SENDER), ServiceId(9)) {
            assert_eq!(port.run(&port.egress, &cm(&path, &message)), to(OUT, WARDEN));
        }
        for nobody in [qp(STRANGER), Qpn::new(2), Qpn::new(0xff_fffe)] {
            assert_eq!(port.run(&port.egress, &rc(&path, nobody)), for_nobody(TC_ACT_SHOT));
        }
        let everybody = Outcome { verdict: TC_ACT_SHOT, receivers: vec![1, 1022], nobody: false };
        assert_eq!(port.run(&port.egress, &ud(&path, Qpn::MULTICAST, qp(SENDER))), everybody);
    }
}

#[test]
fn a_frame_for_a_group_goes_to_the_other_members_and_out() {
    let Some(port) = SharedPort::with_members(&[1, 77, 1022]) else { return };
    for path in [false, true].map(|v6| outwards(v6, GROUP_MAC)) {
        let frame = ud(&path, Qpn::MULTICAST, qp(SENDER));
        let before = port.client(SENDER).tx_frames;
        let outcome = Outcome { verdict: OUT, receivers: vec![1, 1022], nobody: false };
        assert_eq!(port.run(&port.egress, &frame), outcome);
        assert_eq!(port.client(SENDER).tx_frames, before + 1);
    }
    port.maps.set_members(&[]).unwrap();
    assert_eq!(port.run(&port.egress, &ud(&outwards(false, GROUP_MAC), Qpn::MULTICAST, qp(SENDER))), only(OUT));
}
