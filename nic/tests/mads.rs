//! MADs of software: sent without an owner of QP1, taken by software that asked for them, and refused where nobody did.

use crate::common::*;
use softnic_nic::transports::negotiation::write_mad;
use softnic_nic::{Nic, ReceivedMad, negotiated_qp};
use softnic_wire::mad::failover::{FAILOVER_HELLO, FAILOVER_PROOF, FAILOVER_REGION};
use softnic_wire::mad::vendor::{self, Oui};
use softnic_wire::mad::{Attribute, BASE_VERSION, Class, MAD_LEN, Method, Repr, Status};
use softnic_wire::{Addresses, Layout, MacAddr, Node, Opcode, Path, Qpn, Template, TxFrame, bth};

const TID: u64 = 0x1122_3344_5566_7788;

/// A MAD about the queue pair 0x123456 of the receiver's.
fn mad(attribute: Attribute, method: Method, status: Status) -> [u8; MAD_LEN] {
    let header = Repr {
        base_version: BASE_VERSION,
        mgmt_class: vendor::CLASS,
        class_version: vendor::CLASS_VERSION,
        method,
        status,
        class_specific: 0,
        transaction_id: TID,
        attribute_id: attribute,
        attribute_modifier: 0,
    };
    let mut bytes = [0; MAD_LEN];
    header.emit(&mut bytes);
    let mut packet = vendor::Packet::new_unchecked(&mut bytes);
    packet.set_oui(Oui::SOFTNIC);
    let data = packet.data_mut();
    data[0] = 1;
    data[9..12].copy_from_slice(&[0x12, 0x34, 0x56]);
    data[100] = 0xee;
    bytes
}

fn hello() -> [u8; MAD_LEN] {
    mad(FAILOVER_HELLO, Method::GET, Status::SUCCESS)
}

/// What A posts to B.
fn post(w: &mut World, mad: &[u8; MAD_LEN]) {
    let path = w.path(A);
    w.hosts[A].nic.post_mad(Nic::WIRE, &path, mad);
}

/// All MADs that wait for the software of a host.
fn polled(w: &mut World, h: usize) -> Vec<ReceivedMad> {
    std::iter::from_fn(|| w.hosts[h].nic.poll_mad()).collect()
}

/// A frame to B with a MAD in it, by a path.
fn frame(path: &Path, mad: &[u8; MAD_LEN]) -> Vec<u8> {
    let mut buffer = [0; 1024];
    let mut tx = TxFrame::new(&mut buffer);
    assert!(write_mad(&mut tx, &Template::new(path, Qpn::GSI, bth::DEFAULT_PKEY), mad));
    tx.segments().0.to_vec()
}

#[test]
fn mads_go_both_ways_before_other_traffic_and_wait_for_software() {
    for ipv6 in [false, true] {
        let mut w = World::new(Options { ipv6, ..Options::default() });
        w.hosts.iter_mut().for_each(|host| host.nic.take_mads(true));
        let op = w.write_to(B, 0);
        w.send(A, 1, op, 0, 100);
        let region = mad(FAILOVER_REGION, Method::GET, Status::SUCCESS);
        post(&mut w, &hello());
        post(&mut w, &region);
        let before = w.counters(A).sent_pkts;
        let frames = w.transmit(A);
        assert_eq!(w.counters(A).sent_pkts - before, 3);
        let opcodes: Vec<_> = frames.iter().map(|f| w.parse(f).bth.opcode).collect();
        assert_eq!(opcodes, [Opcode::UD_SEND_ONLY, Opcode::UD_SEND_ONLY, Opcode::RC_RDMA_WRITE_ONLY]);
        let packet = w.parse(&frames[0]);
        let deth = packet.ext.deth.unwrap();
        assert_eq!((packet.bth.dest_qp, deth.src_qp, deth.qkey), (Qpn::GSI, Qpn::GSI, 0x8001_0000));
        w.deliver_all(B, &frames);
        let got = polled(&mut w, B);
        assert_eq!(got.iter().map(|m| m.mad).collect::<Vec<_>>(), [hello(), region]);
        let Path { addresses, src_mac, .. } = w.path(A);
        for m in &got {
            assert_eq!((m.port, m.src, m.dst, m.src_mac), (Nic::WIRE, addresses.src(), addresses.dst(), src_mac));
        }
        // The answer goes to where the question came from.
        let answer = mad(FAILOVER_HELLO, Method::GET_RESP, Status::SUCCESS);
        let back = w.hosts[B].nic.path_to(got[0].src, got[0].src_mac, 5).unwrap();
        w.hosts[B].nic.post_mad(got[0].port, &back, &answer);
        w.run();
        assert_eq!(polled(&mut w, A).iter().map(|m| m.mad).collect::<Vec<_>>(), [answer]);
        assert_eq!((w.sent(A).len(), w.counters(B).rx_malformed), (1, 0));
    }
}

#[test]
fn where_nobody_takes_mads_a_request_is_refused_at_once_and_an_answer_dropped() {
    for (ipv6, attribute) in [(false, FAILOVER_HELLO), (true, FAILOVER_REGION)] {
        let mut w = World::new(Options { ipv6, ..Options::default() });
        w.hosts[A].nic.take_mads(true);
        let request = mad(attribute, Method::GET, Status::SUCCESS);
        post(&mut w, &request);
        w.run();
        let got = polled(&mut w, A);
        let refusal = Status::UNSUPPORTED_METHOD_ATTRIB;
        assert_eq!(got.iter().map(|m| m.mad).collect::<Vec<_>>(), [mad(attribute, Method::GET_RESP, refusal)]);
        assert_eq!(got[0].src, w.path(A).addresses.dst());
        post(&mut w, &mad(attribute, Method::GET_RESP, Status::SUCCESS));
        post(&mut w, &mad(attribute, Method::GET_RESP, refusal));
        w.run();
        assert_eq!((w.counters(B).rx_unasked_answers, polled(&mut w, A).len()), (2, 0));
        // From now on they are taken; and then no more.
        w.hosts[B].nic.take_mads(true);
        post(&mut w, &request);
        w.run();
        assert_eq!(polled(&mut w, B).len(), 1);
        post(&mut w, &request);
        w.run();
        w.hosts[B].nic.take_mads(false);
        assert!(polled(&mut w, B).is_empty() && polled(&mut w, A).is_empty());
        post(&mut w, &request);
        w.run();
        assert_eq!(polled(&mut w, A).len(), 1);
    }
}

#[test]
fn a_refusal_comes_from_the_address_that_was_asked() {
    let mut w = World::new(Options::default());
    let second = std::net::IpAddr::from([10, 0, 0, 99]);
    let addresses = vec![address(B).0, second];
    w.hosts[B].nic.set_addresses(addresses);
    w.hosts[A].nic.take_mads(true);
    let path = Path { addresses: Addresses::new(address(A).0, second).unwrap(), ..w.path(A) };
    w.hosts[A].nic.post_mad(Nic::WIRE, &path, &hello());
    w.run();
    assert_eq!(polled(&mut w, A).iter().map(|m| m.src).collect::<Vec<_>>(), [second]);
}

#[test]
fn mads_from_no_unicast_address_and_damaged_ones_are_counted_and_dropped() {
    let mut w = World::new(Options::default());
    let path = w.path(A);
    let from = |src: [u8; 4]| Addresses::new(src.into(), address(B).0).unwrap();
    let sources = [[224, 0, 0, 5], [255; 4], [0; 4], [10, 0, 0, 2]].map(from);
    let mut wrong: Vec<Path> = vec![Path { src_mac: MacAddr([3, 0, 0, 0, 0, 1]), ..path }];
    for addresses in sources {
        wrong.push(Path { addresses, ..path });
    }
    for taken in [false, true] {
        w.hosts[B].nic.take_mads(taken);
        let before = w.counters(B);
        for path in &wrong {
            w.deliver(B, &frame(path, &hello()));
        }
        let mut damaged = frame(&path, &hello());
        let at = damaged.len() - 20;
        damaged[at] ^= 1;
        w.deliver(B, &damaged);
        // Of another vendor; of no version; with another method.
        let (mut foreign, mut versionless) = (hello(), hello());
        foreign[37] ^= 1;
        versionless[40] = 0;
        for mad in [foreign, versionless, mad(FAILOVER_HELLO, Method::SET, Status::SUCCESS)] {
            w.deliver(B, &frame(&path, &mad));
        }
        let after = w.counters(B);
        assert_eq!(after.rx_wrong_source - before.rx_wrong_source, wrong.len() as u64);
        assert_eq!(after.rx_icrc_encapsulated - before.rx_icrc_encapsulated, 1);
        assert_eq!(after.rx_malformed - before.rx_malformed, 3);
        assert!(w.transmit(B).is_empty() && polled(&mut w, B).is_empty());
    }
}

#[test]
fn of_more_mads_than_wait_the_oldest_is_lost_when_sent_and_the_newest_when_received() {
    let mut w = World::new(Options::default());
    w.hosts[B].nic.take_mads(true);
    let numbered = |n: u16| {
        let mut bytes = hello();
        bytes[200..202].copy_from_slice(&n.to_be_bytes());
        bytes
    };
    let number = |m: &ReceivedMad| u16::from_be_bytes([m.mad[200], m.mad[201]]);
    (0..300).for_each(|n| post(&mut w, &numbered(n)));
    w.run();
    let got = polled(&mut w, B);
    assert_eq!((got.len(), number(&got[0]), number(&got[255])), (256, 44, 299));
    for half in [0..200, 200..300] {
        half.for_each(|n| post(&mut w, &numbered(n)));
        w.run();
    }
    let got = polled(&mut w, B);
    assert_eq!((got.len(), number(&got[0]), number(&got[255])), (256, 0, 255));
}

#[test]
fn mads_wait_while_the_link_is_down_and_to_ourselves_they_go_by_loopback() {
    let mut w = World::new(Options::default());
    w.hosts[B].nic.take_mads(true);
    w.hosts[A].nic.set_link(false);
    post(&mut w, &hello());
    assert!(w.transmit(A).is_empty());
    w.hosts[A].nic.set_link(true);
    w.run();
    assert_eq!(polled(&mut w, B).len(), 1);
    let (ip, mac) = address(A);
    let nic = &mut w.hosts[A].nic;
    let path = nic.path_to(ip, mac, 3).unwrap();
    // Refused by itself, to nobody.
    nic.post_mad(Nic::WIRE, &path, &hello());
    assert!(nic.loop_back(w.now));
    assert_eq!(nic.counters().rx_unasked_answers, 1);
    nic.take_mads(true);
    nic.post_mad(Nic::WIRE, &path, &hello());
    assert!(nic.loop_back(w.now));
    let got = nic.poll_mad().unwrap();
    assert_eq!((got.port, got.src, got.mad), (Nic::LOOPBACK, ip, hello()));
    assert!(w.transmit(A).is_empty());
    let nic = &mut w.hosts[A].nic;
    // A port that is not there.
    let path = nic.path_to(address(B).0, address(B).1, 3).unwrap();
    nic.post_mad(7, &path, &hello());
    let mut buffer = [0; 1024];
    assert!(!nic.poll_transmit(w.now, 7, &mut TxFrame::new(&mut buffer)));
}

#[test]
fn a_mad_is_handed_to_the_queue_pair_that_it_names_and_a_refusal_to_the_one_that_asked() {
    let w = World::new(Options::default());
    let about = |mad: &[u8; MAD_LEN]| {
        let frame = frame(&w.path(A), mad);
        negotiated_qp(&frame, &Layout::locate(&frame).unwrap()).map(Qpn::value)
    };
    let refusal = Status::UNSUPPORTED_METHOD_ATTRIB;
    for attribute in [FAILOVER_HELLO, FAILOVER_REGION, FAILOVER_PROOF] {
        assert_eq!(about(&mad(attribute, Method::GET, Status::SUCCESS)), Some(0x12_3456));
        assert_eq!(about(&mad(attribute, Method::GET_RESP, Status::SUCCESS)), Some(0x12_3456));
        assert_eq!(about(&mad(attribute, Method::GET_RESP, refusal)), Some(TID as u32 & 0x00ff_ffff));
        assert_eq!(about(&mad(attribute, Method::SET, Status::SUCCESS)), None);
    }
    assert_eq!(about(&mad(Attribute(0x0014), Method::GET, Status::SUCCESS)), None);
}

#[test]
fn mads_of_the_connection_manager_wait_only_where_software_takes_them() {
    let mut cm = mad(Attribute::CM_DREQ, Method::SEND, Status::SUCCESS);
    cm[1] = Class::CM.0;
    for taken in [false, true] {
        let mut w = World::new(Options::default());
        w.hosts[B].nic.take_mads(true);
        if taken {
            w.hosts[B].nic.take_cm_mads();
        }
        post(&mut w, &cm);
        post(&mut w, &hello());
        w.run();
        let got: Vec<_> = polled(&mut w, B).iter().map(|m| m.mad).collect();
        let expected = if taken { vec![cm, hello()] } else { vec![hello()] };
        assert_eq!((got, w.counters(B).rx_bad_qp), (expected, u64::from(!taken)), "nobody has QP1");
    }
    let mut w = World::new(Options::default());
    w.hosts[B].nic.take_cm_mads();
    let path = w.path(A);
    // From an address that nobody can have, and damaged.
    let group = Path { src_mac: MacAddr([1, 0, 0, 0, 0, 9]), ..path };
    let mut damaged = frame(&path, &cm);
    *damaged.last_mut().unwrap() ^= 1;
    w.deliver_all(B, &[frame(&group, &cm), damaged]);
    assert_eq!((w.counters(B).rx_wrong_source, w.counters(B).rx_icrc_encapsulated), (1, 1));
    assert!(polled(&mut w, B).is_empty());
}
