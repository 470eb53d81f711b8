//! Packets that arrive at the interface.

use softnic_wire::Qpn;
use softnic_wire::ethernet::VlanTag;
use softnic_wire::mad::ip_cm::ServiceId;
use softnic_wire::mad::{Attribute, Class, MAD_LEN, Method, failover};

use super::frames::*;
use super::*;

fn paths() -> Vec<softnic_wire::Path> {
    let tag = |id| Some(VlanTag::new(id, 0));
    let tags = [[None; 2], [tag(5), None], [tag(5), tag(6)]];
    tags.into_iter().flat_map(|tags| [false, true].map(|v6| softnic_wire::Path { tags, ..inwards(v6) })).collect()
}

#[test]
fn a_frame_goes_to_the_process_of_its_queue_pair() {
    let Some(port) = SharedPort::new() else { return };
    for path in paths() {
        for number in CLIENTS {
            assert_eq!(port.receive(&rc(&path, qp(number))), to(XDP_REDIRECT, number));
            assert_eq!(port.receive(&ud(&path, qp(number), Qpn::new(9))), to(XDP_REDIRECT, number));
            let last = Qpn::new(qp(number).value() | 0x3fff);
            assert_eq!(port.receive(&rc(&path, last)), to(XDP_REDIRECT, number));
        }
        for nobody in [qp(STRANGER), Qpn::new(0), Qpn::new(2), Qpn::new(0x3fff), qp(1023), Qpn::new(0xff_fffe)] {
            assert_eq!(port.receive(&rc(&path, nobody)), for_nobody(XDP_DROP), "{nobody:?}");
        }
    }
    port.maps.clear_client(process(2)).unwrap();
    assert_eq!(port.ingress.test_run(&rc(&inwards(false), qp(2))).unwrap(), XDP_DROP);
}

#[test]
fn an_answer_goes_to_the_process_that_drew_the_id() {
    let Some(port) = SharedPort::new() else { return };
    for path in paths() {
        for number in CLIENTS {
            let mut messages = answers(id(1), id(number));
            messages.push(sidr_rep(id(number)));
            for message in messages {
                assert_eq!(port.receive(&cm(&path, &message)), to(XDP_REDIRECT, number), "{message:?}");
            }
        }
        for message in answers(id(1), id(STRANGER)).into_iter().chain(answers(id(1), 0)).chain([sidr_rep(0)]) {
            assert_eq!(port.receive(&cm(&path, &message)), for_nobody(XDP_DROP), "{message:?}");
        }
    }
}

#[test]
fn a_request_goes_to_who_has_the_service_or_to_the_warden() {
    let Some(port) = SharedPort::new() else { return };
    let free = ServiceId(SERVICE.0 + 1);
    for path in paths() {
        for message in requests(id(STRANGER), SERVICE) {
            assert_eq!(port.receive(&cm(&path, &message)), to(XDP_REDIRECT, 2));
        }
        for message in requests(id(1), free) {
            assert_eq!(port.receive(&cm(&path, &message)), to(XDP_REDIRECT, WARDEN));
        }
    }
    port.maps.set_port(2_000_000, LOCAL_MAC, None).unwrap();
    for message in requests(id(1), free) {
        assert_eq!(port.receive(&cm(&inwards(false), &message)), for_nobody(XDP_DROP));
    }
}

#[test]
fn a_negotiation_goes_to_the_process_of_the_queue_pair_that_it_is_about() {
    let Some(port) = SharedPort::new() else { return };
    for path in paths() {
        for (kind, number) in KINDS.into_iter().flat_map(|kind| CLIENTS.map(|number| (kind, number))) {
            let bytes = negotiation(Qpn::new(77), qp(number), kind);
            assert_eq!(port.receive(&mad(&path, &bytes)), to(XDP_REDIRECT, number), "{kind:?}");
            let bytes = negotiation(qp(1), qp(STRANGER), kind);
            assert_eq!(port.receive(&mad(&path, &bytes)), for_nobody(XDP_DROP), "{kind:?}");
        }
    }
    let good = negotiation(Qpn::new(77), qp(1), KINDS[0]);
    // MADs about failover start as those of the negotiation do.
    for attribute in [failover::FAILOVER_HELLO, failover::FAILOVER_REGION, failover::FAILOVER_PROOF] {
        let mut bytes = good;
        bytes[16..18].copy_from_slice(&attribute.0.to_be_bytes());
        assert_eq!(port.receive(&mad(&inwards(false), &bytes)), to(XDP_REDIRECT, 1), "{attribute}");
    }
    // Attribute, OUI, RMPP, format version, method: each with another value.
    for (at, value) in [(17, 0x14), (37, 0x0f), (39, 0x4f), (26, 1), (40, 0), (3, Method::SET.0)] {
        let mut bytes = good;
        bytes[at] = value;
        assert_eq!(port.receive(&mad(&inwards(false), &bytes)), for_nobody(XDP_DROP), "byte {at}");
    }
}

#[test]
fn other_frames_to_the_queue_pair_of_management_are_for_nobody() {
    let Some(port) = SharedPort::new() else { return };
    let path = inwards(true);
    assert_eq!(port.receive(&rc(&path, Qpn::GSI)), for_nobody(XDP_DROP));
    let good = cm(&path, &rej(id(1), id(2)));
    assert_eq!(port.receive(&good), to(XDP_REDIRECT, 2));
    const BTH: usize = 14 + 40 + 8;
    const MAD: usize = BTH + 20;
    let opcode_with_immediate = (BTH, 0x65);
    let another_qkey = [(BTH + 12, 0x81), (BTH + 13, 0), (BTH + 14, 1), (BTH + 15, 1)];
    let another_class = (MAD + 1, Class::PERF.0);
    for (at, value) in another_qkey.into_iter().chain([opcode_with_immediate, another_class]) {
        let mut bytes = good.clone();
        bytes[at] = value;
        assert_eq!(port.receive(&bytes), for_nobody(XDP_DROP), "byte {at}");
    }
    // Truncated before the end of the inspected part.
    for len in BTH..MAD + 52 {
        assert_eq!(port.receive(&good[..len]), for_nobody(XDP_DROP), "{len} bytes");
    }
    assert_eq!(port.receive(&good[..MAD + 52]), to(XDP_REDIRECT, 2));
    let mut unknown = [0; MAD_LEN];
    (unknown[1], unknown[17]) = (Class::SUBN_ADM.0, Attribute::CM_REQ.0 as u8);
    assert_eq!(port.receive(&mad(&path, &unknown)), for_nobody(XDP_DROP));
}

#[test]
fn what_is_not_roce_goes_to_the_kernel() {
    let Some(port) = SharedPort::with_members(&[1, 2]) else { return };
    let good = rc(&inwards(false), qp(1));
    for len in 14..34 {
        assert_eq!(port.receive(&good[..len]), only(XDP_PASS), "{len} bytes");
    }
    // The kernel runs no classifier over a truncated IP header.
    let mut others: Vec<Vec<u8>> = (34..42).map(|len| good[..len].to_vec()).collect();
    // Ethertype, options, fragments, protocol, port.
    for (at, value) in [(13, 6), (14, 0x46), (20, 0x20), (21, 1), (23, 6), (36, 0x13), (37, 0xb6)] {
        let mut bytes = good.clone();
        bytes[at] = value;
        others.push(bytes);
    }
    for frame in others {
        assert_eq!(port.receive(&frame), only(XDP_PASS), "{frame:x?}");
        assert_eq!(port.run(&port.spread, &frame), only(TC_ACT_UNSPEC), "{frame:x?}");
    }
}

#[test]
fn a_frame_for_a_group_goes_to_every_member() {
    let Some(port) = SharedPort::new() else { return };
    let all_but_one = [2, 77, 600, 1022];
    for path in paths() {
        let path = softnic_wire::Path { dst_mac: GROUP_MAC, ..path };
        let frame = ud(&path, Qpn::MULTICAST, Qpn::new(9));
        for members in [&[][..], &[77], &[1, 1022], &all_but_one] {
            port.maps.set_members(&members.iter().map(|&n| process(n)).collect::<Vec<_>>()).unwrap();
            assert_eq!(port.receive(&frame), only(XDP_PASS));
            let spread = Outcome { verdict: TC_ACT_SHOT, receivers: members.to_vec(), nobody: false };
            assert_eq!(port.run(&port.spread, &frame), spread);
        }
    }
    // A member that is gone does not prevent delivery to the others.
    port.maps.set_members(&[1, STRANGER, 2].map(process)).unwrap();
    let frame = ud(&inwards(false), Qpn::MULTICAST, Qpn::new(9));
    assert_eq!(port.run(&port.spread, &frame).receivers, [1, 2]);
    let everybody: Vec<_> = (1..=1022).map(process).collect();
    port.maps.set_members(&everybody).unwrap();
    assert_eq!(port.run(&port.spread, &frame).receivers, CLIENTS);
}

#[test]
fn a_new_daemon_finds_the_maps_by_any_of_the_programs() {
    let Some(port) = SharedPort::with_members(&[1, 77]) else { return };
    for (program, number) in [(&port.ingress, 1), (&port.spread, 2), (&port.egress, 77)] {
        let found = Maps::of_program(&Program::by_id(program.id().unwrap()).unwrap()).unwrap();
        assert_eq!(found.clients().unwrap(), port.maps.clients().unwrap());
        assert_eq!(found.members().unwrap(), [1, 77].map(process));
        found.clear_client(process(number)).unwrap();
        assert_eq!(port.maps.client(process(number)).unwrap(), None);
    }
}
