//! The programs and `sharing::addressee` agree about frames of every kind.

use proptest::prelude::*;
use proptest::sample::{Index, select};
use softnic_nic::sharing::{Addressee, addressee};
use softnic_wire::ethernet::VlanTag;
use softnic_wire::mad::MAD_LEN;
use softnic_wire::mad::ip_cm::ServiceId;
use softnic_wire::{Carrier, ExtHeaders, Layout, Opcode, Path, Qpn};

use super::frames::*;
use super::*;

/// A process number: mostly that of an existing process.
fn number() -> impl Strategy<Value = u32> {
    prop_oneof![3 => select(&CLIENTS[..]), 1 => 1u32..1023]
}

fn any_qpn() -> impl Strategy<Value = Qpn> {
    let special = select(vec![Qpn::new(0), Qpn::GSI, Qpn::MULTICAST]);
    prop_oneof![3 => number().prop_map(qp), 1 => special, 1 => (0u32..1 << 24).prop_map(Qpn::new)]
}

fn any_id() -> impl Strategy<Value = u32> {
    prop_oneof![4 => number().prop_map(id), 1 => any::<u32>(), 1 => Just(0)]
}

fn any_path() -> impl Strategy<Value = Path> {
    (any::<bool>(), 0usize..3, select(vec![LOCAL_MAC, GROUP_MAC])).prop_map(|(v6, tags, dst_mac)| {
        let tag = |at| (tags > at).then(|| VlanTag::new(5, 0));
        Path { tags: [tag(0), tag(1)], dst_mac, ..inwards(v6) }
    })
}

/// A frame that softnic, or a peer, may send.
fn valid() -> impl Strategy<Value = Vec<u8>> {
    prop_oneof![
        (any_path(), any_qpn()).prop_map(|(path, to)| rc(&path, to)),
        (any_path(), any_qpn(), any_qpn()).prop_map(|(path, to, from)| ud(&path, to, from)),
        any_path().prop_map(|path| ud(&path, Qpn::MULTICAST, Qpn::new(9))),
        (any_path(), any_qpn(), 0u8..=255).prop_map(|(path, to, opcode)| {
            // The builder has no headers for most opcodes.
            let mut bytes = frame(&path, to, Opcode::RC_SEND_ONLY, &ExtHeaders::default(), &[3; 280]);
            let bth = Layout::locate(&bytes).unwrap().bth;
            bytes[bth] = opcode;
            bytes
        }),
        (any_path(), any_id(), any_id(), any::<Index>()).prop_map(|(path, local, remote, which)| {
            let mut messages = answers(local, remote);
            messages.push(sidr_rep(local));
            cm(&path, &messages[which.index(messages.len())])
        }),
        (any_path(), any_id(), select(vec![SERVICE, ServiceId(SERVICE.0 + 1)]), any::<bool>())
            .prop_map(|(path, id, service, first)| cm(&path, &requests(id, service)[usize::from(first)])),
        (any_path(), any_qpn(), any_qpn(), select(&KINDS[..]), 0x0010u16..=0x0013).prop_map(
            |(path, from, to, kind, attribute)| {
                // MADs about failover start as those of the negotiation do.
                let mut bytes = negotiation(from, to, kind);
                bytes[16..18].copy_from_slice(&attribute.to_be_bytes());
                mad(&path, &bytes)
            }
        ),
        (any_path(), proptest::collection::vec(any::<u8>(), MAD_LEN))
            .prop_map(|(path, bytes)| mad(&path, &bytes.try_into().unwrap())),
    ]
}

/// A frame with some changed bytes, most of them in its headers, and possibly truncated.
fn mutated() -> impl Strategy<Value = Vec<u8>> {
    let header_byte = (0usize..160, any::<u8>());
    (valid(), proptest::collection::vec(header_byte, 0..4), prop_oneof![3 => Just(usize::MAX), 1 => 54usize..400])
        .prop_map(|(mut bytes, changes, len)| {
            for (at, value) in changes {
                if let Some(byte) = bytes.get_mut(at) {
                    *byte = value;
                }
            }
            bytes.truncate(len);
            bytes
        })
}

/// Whether the programs inspect a frame with these headers: tags of the two standard types, no options, no extension headers, RoCEv2.
fn is_plain(frame: &[u8], layout: &Layout) -> bool {
    let standard = |tag: &[u8]| tag.starts_with(&[0x81, 0x00]) || tag.starts_with(&[0x88, 0xa8]);
    if !frame[12..layout.network - 2].chunks(4).all(standard) {
        return false;
    }
    match layout.carrier {
        Carrier::Ipv4 => layout.bth == layout.network + 28,
        Carrier::Ipv6 => layout.bth == layout.network + 48,
        Carrier::RoceV1 => false,
    }
}

/// The outcome for a frame that a rule assigns to this addressee.
fn expected(port: &SharedPort, whose: Addressee) -> Outcome {
    let process = match whose {
        Addressee::Everybody => return only(XDP_PASS),
        Addressee::Nobody => return for_nobody(XDP_DROP),
        Addressee::Process(process) => process,
        Addressee::Service(service) => port.maps.owner(service).unwrap().unwrap_or(process(WARDEN)),
    };
    match port.maps.client(process).unwrap() {
        Some(_) => to(XDP_REDIRECT, process.number()),
        None => for_nobody(XDP_DROP),
    }
}

/// A frame to QP1 with room for a MAD, and with matching length fields: `addressee` checks these, and the programs do not.
fn with_room(frame: &[u8], layout: &Layout) -> Vec<u8> {
    let end = layout.bth + 12 + 8 + MAD_LEN + 4;
    let mut bytes = frame.to_vec();
    bytes.resize(end, 0);
    layout.set_end(&mut bytes, end);
    // The padding, and the version of the transport.
    bytes[layout.bth + 1] &= 0xc0;
    bytes
}

fn check(port: &SharedPort, frame: &[u8]) {
    // Not RoCE, or contradictory headers, which the programs do not inspect.
    let Ok(layout) = Layout::locate(frame) else { return };
    let got = port.receive(frame);
    let mut everybody = false;
    if is_plain(frame, &layout) {
        let whose = addressee(frame, &layout);
        everybody = whose == Addressee::Everybody;
        if whose == Addressee::Nobody && got.verdict == XDP_REDIRECT {
            let repaired = with_room(frame, &layout);
            let whose = addressee(&repaired, &Layout::locate(&repaired).unwrap());
            assert_eq!(got, expected(port, whose), "{frame:x?}");
            assert_eq!(frame[layout.bth + 5..layout.bth + 8], [0, 0, 1], "to QP1");
        } else {
            assert_eq!(got, expected(port, whose), "{frame:x?}");
        }
    } else {
        assert_eq!(got, only(XDP_PASS), "{frame:x?}");
    }
    // `receive` has compared the classifier if XDP does not leave the frame to the classifier. The kernel runs no classifier over a
    // truncated IP header.
    if got.verdict == XDP_PASS
        && let Ok(verdict) = port.spread.test_run(frame)
    {
        assert_eq!(verdict, if everybody { TC_ACT_SHOT } else { TC_ACT_UNSPEC }, "{frame:x?}");
    }
}

#[test]
fn ingress_picks_the_process_that_the_rules_pick() {
    let Some(port) = SharedPort::new() else { return };
    proptest!(ProptestConfig::with_cases(2000), |(frame in valid())| {
        check(&port, &frame);
        // The lengths are right and the headers are plain, so the results are equal.
        let layout = Layout::locate(&frame).unwrap();
        prop_assert_eq!(port.receive(&frame), expected(&port, addressee(&frame, &layout)));
    });
    proptest!(ProptestConfig::with_cases(4000), |(frame in mutated())| check(&port, &frame));
}
