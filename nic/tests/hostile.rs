//! Frames that are not right: dropped and counted, never a panic, never a byte outside what the peer may write.

use crate::common::*;
use softnic_nic::QpKind;
use softnic_nic::transports::negotiation::vendor::{Extensions, Kind, Negotiation, Settings, VERSION};
use softnic_nic::transports::negotiation::{Choice, FallbackReason, write};
use softnic_nic::transports::qp::QpState;
use softnic_nic::transports::{Counters, Data, Misfits, SendOp, SendWr, Status, Transport};
use softnic_wire::ext::Reth;
use softnic_wire::{Addresses, ExtHeaders, Node, Path, Qpn, Template, TxFrame, bth, mad};

/// Where the BTH of a frame without tags over IPv4 begins.
const IP: usize = 14;
const UDP: usize = 34;
const BTH: usize = 42;

fn write_only(w: &World, psn: i32) -> (u8, i32, ExtHeaders) {
    let reth = Reth { va: w.hosts[B].buffer.addr(), rkey: w.hosts[B].key, len: 4 };
    (0x0a, psn, ExtHeaders { reth: Some(reth), ..ExtHeaders::default() })
}

/// A WRITE of four bytes to B that is right in everything.
fn right(w: &World) -> Vec<u8> {
    let (op, psn, ext) = write_only(w, 0);
    w.forge(B, op, psn, true, ext, b"evil")
}

/// Repairs the IPv4 header checksum.
fn fix_ip(frame: &mut [u8]) {
    frame[IP + 10..IP + 12].fill(0);
    let sum: u32 = frame[IP..IP + 20].chunks(2).map(|c| u32::from(u16::from_be_bytes([c[0], c[1]]))).sum();
    let sum = !((sum & 0xffff) + (sum >> 16)) as u16;
    frame[IP + 10..IP + 12].copy_from_slice(&sum.to_be_bytes());
}

/// Delivers a frame that must change nothing but one counter, and then a right one that must work.
fn assert_dropped(name: &str, frame: &[u8], counter: fn(&Counters) -> u64) {
    let mut w = World::new(Options::default());
    w.recv(B, 60, 4096, 100);
    let before = w.counters(B);
    w.deliver(B, frame);
    let after = w.counters(B);
    assert_eq!(counter(&after), counter(&before) + 1, "{name}: counted\n{after:#?}");
    let dropped = |c: &Counters| {
        c.rx_icrc_encapsulated
            + c.rx_not_for_us
            + c.rx_malformed
            + c.rx_bad_qp
            + c.rx_wrong_source
            + c.rx_bad_pkey
            + c.eqds_credit_rejected
    };
    assert_eq!(dropped(&after), 1, "{name}: counted once");
    assert!(w.shown(B).is_empty() && w.received(B).is_empty() && w.sent(B).is_empty(), "{name}");
    assert!(w.hosts[B].nic.poll_timeout().is_none(), "{name}");
    assert_eq!(w.read(B, 0, BUFFER), vec![UNTOUCHED; BUFFER], "{name}: memory");
    let op = w.write_to(B, 0);
    w.fill(A, 0, b"good");
    w.send(A, 1, op, 0, 4);
    w.send(A, 2, SendOp::Send, 0, 4);
    w.run();
    assert_eq!(w.sent_status(A), [(1, Status::Success), (2, Status::Success)], "{name}");
    assert_eq!((w.read(B, 0, 4), w.received(B).len()), (b"good".to_vec(), 1), "{name}");
    assert_eq!(w.counters(B).duplicate_request + w.counters(B).out_of_sequence, 0, "{name}: no PSN was used up");
}

#[test]
fn the_frame_that_is_damaged_below_would_be_taken_when_it_is_whole() {
    let mut w = World::new(Options::default());
    let frame = right(&w);
    w.deliver(B, &frame);
    assert_eq!(w.read(B, 0, 4), b"evil");
}

#[test]
fn a_flipped_bit_anywhere_under_the_icrc_is_found() {
    let frame = right(&World::new(Options::default()));
    for byte in BTH..frame.len() {
        // The queue pair number decides whose packet it is, before the ICRC is looked at; the fifth byte is not covered.
        if (BTH + 4..BTH + 8).contains(&byte) {
            continue;
        }
        let mut bad = frame.clone();
        bad[byte] ^= 1 << (byte % 8);
        assert_dropped(&format!("byte {byte}"), &bad, |c| c.rx_icrc_encapsulated);
    }
}

#[test]
fn packets_of_strangers_are_dropped() {
    let w = World::new(Options::default());
    let (op, psn, ext) = write_only(&w, 0);
    let mut path = w.path(A);
    path.addresses = Addresses::new([10, 0, 0, 3].into(), path.addresses.dst()).unwrap();
    let template = Template::new(&path, w.hosts[B].qpn, bth::DEFAULT_PKEY);
    let frame = w.forge_with(&template, op, psn, true, ext, b"evil");
    assert_dropped("another source", &frame, |c| c.rx_wrong_source);

    let mut path = w.path(A);
    path.addresses = Addresses::new(path.addresses.src(), [10, 0, 0, 9].into()).unwrap();
    let template = Template::new(&path, w.hosts[B].qpn, bth::DEFAULT_PKEY);
    let frame = w.forge_with(&template, op, psn, true, ext, b"evil");
    assert_dropped("another destination", &frame, |c| c.rx_not_for_us);
}

#[test]
fn packets_of_other_queue_pairs_partitions_services_and_versions_are_dropped() {
    let w = World::new(Options::default());
    let (op, psn, ext) = write_only(&w, 0);
    for qpn in [0, 1, 0xff_ffff, w.hosts[B].qpn.value() ^ 1, w.hosts[B].qpn.value() ^ 0x80_0000] {
        let template = Template::new(&w.path(A), Qpn::new(qpn), bth::DEFAULT_PKEY);
        let frame = w.forge_with(&template, op, psn, true, ext, b"evil");
        assert_dropped("unknown queue pair", &frame, |c| c.rx_bad_qp);
    }
    for pkey in [0, 0x8000, 0x7ffe, 0xfffe, 0x1234] {
        let template = Template::new(&w.path(A), w.hosts[B].qpn, pkey);
        let frame = w.forge_with(&template, op, psn, true, ext, b"evil");
        assert_dropped("another partition", &frame, |c| c.rx_bad_pkey);
    }
    // Every opcode of every other service, also those in the range of congestion notifications that mean nothing.
    for opcode in (0x20..=0xff).filter(|&o| o != 0x81 && o != 0xf5) {
        let frame = w.forge(B, opcode, 0, true, ExtHeaders::default(), &[0; 40]);
        assert_dropped(&format!("opcode {opcode:#x}"), &frame, |c| c.rx_malformed);
    }
    let credit = w.forge(B, 0xf5, 0, true, ExtHeaders::default(), &[0; 40]);
    assert_dropped("credit", &credit, |c| c.eqds_credit_rejected);
    for tver in 1..16 {
        let mut frame = right(&w);
        frame[BTH + 1] |= tver;
        resign(&mut frame);
        assert_dropped("header version", &frame, |c| c.rx_malformed);
    }
}

#[test]
fn a_limited_member_of_the_partition_is_heard() {
    let mut w = World::new(Options::default());
    let (op, psn, ext) = write_only(&w, 0);
    let template = Template::new(&w.path(A), w.hosts[B].qpn, 0x7fff);
    let frame = w.forge_with(&template, op, psn, true, ext, b"fine");
    w.deliver(B, &frame);
    assert_eq!(w.read(B, 0, 4), b"fine");
}

#[test]
fn lengths_that_do_not_agree_are_malformed() {
    let w = World::new(Options::default());
    let frame = right(&w);
    for cut in [1, 4, 8, 20] {
        assert_dropped("cut off", &frame[..frame.len() - cut], |c| c.rx_malformed);
    }
    for (at, name) in [(IP + 2, "IP length"), (UDP + 4, "UDP length")] {
        for by in [-8i16, -4, 4, 400] {
            let mut bad = frame.clone();
            let len = i16::from_be_bytes([bad[at], bad[at + 1]]) + by;
            bad[at..at + 2].copy_from_slice(&len.to_be_bytes());
            fix_ip(&mut bad);
            assert_dropped(name, &bad, |c| c.rx_malformed);
        }
    }
    let mut bad = frame.clone();
    bad[IP + 10] ^= 1;
    assert_dropped("IP checksum", &bad, |c| c.rx_malformed);
    // A pad count that is more than there is.
    let (op, psn, _) = write_only(&w, 0);
    let reth = Reth { va: w.hosts[B].buffer.addr(), rkey: w.hosts[B].key, len: 0 };
    let ext = ExtHeaders { reth: Some(reth), ..ExtHeaders::default() };
    let mut bad = w.forge(B, op, psn, true, ext, &[]);
    bad[BTH + 1] |= 0x30;
    resign(&mut bad);
    assert_dropped("padding", &bad, |c| c.rx_malformed);
    // A WRITE without room for its RETH.
    let mut bad = w.forge(B, 0x04, 0, true, ExtHeaders::default(), &[1; 12]);
    bad[BTH] = 0x0a;
    resign(&mut bad);
    assert_dropped("no RETH", &bad, |c| c.rx_malformed);
}

#[test]
fn what_is_not_roce_is_not_for_us_and_half_a_frame_is_malformed() {
    let frame = right(&World::new(Options::default()));
    let change = |at: usize, to: u8| {
        let mut f = frame.clone();
        f[at] = to;
        fix_ip(&mut f);
        f
    };
    assert_dropped("ARP", &change(13, 6), |c| c.rx_not_for_us);
    assert_dropped("TCP", &change(IP + 9, 6), |c| c.rx_not_for_us);
    assert_dropped("another port", &change(UDP + 3, 0xb8), |c| c.rx_not_for_us);
    assert_dropped("a fragment", &change(IP + 6, 0x20), |c| c.rx_malformed);
    assert_dropped("nothing", &[], |c| c.rx_malformed);
    assert_dropped("zeros", &[0; 60], |c| c.rx_not_for_us);
}

#[test]
fn ethernet_padding_behind_the_packet_is_no_damage() {
    let mut w = World::new(Options::default());
    let mut frame = right(&w);
    frame.extend([0xee; 30]);
    w.deliver(B, &frame);
    assert_eq!(w.read(B, 0, 4), b"evil");
}

/// A world in which A has four packets of two messages outstanding, and all that A could do with an answer.
fn outstanding(psn: u32) -> World {
    let mut w = World::new(Options { psn, ..Options::default() });
    let op = w.write_to(B, 0);
    // Some progress first, so that there are PSNs that were acknowledged before.
    w.send(A, 0, op, 0, 1000);
    w.run();
    assert_eq!(w.sent_status(A), [(0, Status::Success)]);
    w.send(A, 1, op, 0, 500);
    w.send(A, 2, op, 0, 500);
    assert_eq!(w.transmit(A).len(), 4);
    w
}

/// Nothing became of an answer: no completion, no packet, no error, and the real answer still counts.
fn assert_ignored(mut w: World, name: &str) {
    assert!(w.shown(A).is_empty() && w.sent(A).is_empty(), "{name}");
    assert_eq!(w.state(A), QpState::ReadyToSend, "{name}");
    let timer = w.hosts[A].nic.poll_timeout();
    assert!(timer.is_some(), "{name}: the clock still runs");
    w.wait(4096 << 10);
    assert_eq!(w.counters(A).local_ack_timeout_err, 1, "{name}: and was not set anew");
    assert_eq!(w.transmit(A).len(), 4, "{name}: all four are still outstanding");
    let ack = w.forge_aeth(A, 7, 0x1f, 3);
    w.deliver(A, &ack);
    assert_eq!(w.sent_status(A), [(1, Status::Success), (2, Status::Success)], "{name}");
}

#[test]
fn answers_to_what_was_never_sent_or_is_long_acknowledged_do_nothing() {
    for psn in FIRST_PSNS.into_iter().chain([0xff_fffa, 0xff_fff8]) {
        // +4 to +7 are outstanding.
        for at in [-1, 0, 3, 8, 9, 100, 1 << 23, -(1 << 23)] {
            for syndrome in [0x00, 0x1f, 0x60, 0x61, 0x62, 0x63, 0x20, 0x3f] {
                let mut w = outstanding(psn);
                let frame = w.forge_aeth(A, at, syndrome, 2);
                w.deliver(A, &frame);
                assert_eq!(w.counters(A).stale_acks, 1);
                assert_eq!(w.counters(A).rnr_naks_received + w.counters(A).packet_seq_err, 0);
                assert_ignored(w, &format!("syndrome {syndrome:#x} for {at:+}"));
            }
        }
    }
}

#[test]
fn reserved_syndromes_do_nothing() {
    // Reserved NAK codes, the code of reliable datagrams, and all values with reserved upper bits.
    for syndrome in (0x64..=0x7f).chain(0x40..=0x5f).chain(0x80..=0xff) {
        for at in [4, 5, 7] {
            let mut w = outstanding(0xff_fffa);
            let frame = w.forge_aeth(A, at, syndrome, 2);
            w.deliver(A, &frame);
            assert_ignored(w, &format!("syndrome {syndrome:#x} for {at:+}"));
        }
    }
}

#[test]
fn a_frame_from_the_wire_with_our_own_address_is_not_ours() {
    let mut w = World::new(Options { kind: softnic_nic::QpKind::Ud, ..Options::default() });
    w.recv(B, 1, 0, 100);
    let to = w.datagram(A, B);
    w.post(A, &SendWr { to: Some(to), ..wr(1, SendOp::Send, Data::Inline(b"hello")) }).unwrap();
    let mut frame = w.transmit(A).remove(0);
    let own = match address(B).0 {
        std::net::IpAddr::V4(ip) => ip.octets(),
        std::net::IpAddr::V6(_) => unreachable!("the tests' first address is of IPv4"),
    };
    let genuine = frame.clone();
    let mut ip = softnic_wire::ipv4::Packet::new_unchecked(&mut frame[14..]);
    let repr = softnic_wire::ipv4::Repr { src: own.into(), ..softnic_wire::ipv4::Repr::parse(&ip).unwrap() };
    repr.emit(&mut ip).unwrap();
    resign(&mut frame);
    w.deliver(B, &frame);
    assert_eq!((w.received(B).len(), w.counters(B).rx_wrong_source), (0, 1));
    w.deliver(B, &genuine);
    assert_eq!(w.received_status(B), [(1, Status::Success)]);
}

#[test]
fn what_comes_for_another_address_of_the_port_is_not_the_queue_pairs() {
    for kind in [QpKind::Rc, QpKind::Uc] {
        let mut w = World::new(Options { kind, ..Options::default() });
        let (own, _) = address(B);
        let second = std::net::Ipv4Addr::new(10, 0, 0, 77);
        w.hosts[B].nic.set_addresses(vec![own, address_v6(B), second.into()]);
        let path = w.path(A);
        let Addresses::V4 { src, .. } = path.addresses else { unreachable!() };
        let elsewhere = Path { addresses: Addresses::V4 { src, dst: second }, ..path };
        let opcode = if kind == QpKind::Rc { 0x0a } else { 0x2a };
        let (_, psn, ext) = write_only(&w, 0);
        for (path, taken) in [(elsewhere, false), (path, true)] {
            let template = Template::new(&path, w.hosts[B].qpn, bth::DEFAULT_PKEY);
            let frame = w.forge_with(&template, opcode, psn, true, ext, b"evil");
            w.deliver(B, &frame);
            assert_eq!(w.read(B, 0, 4) == b"evil", taken);
        }
        assert_eq!(w.counters(B).rx_wrong_source, 1);
    }
}

#[test]
fn answers_of_the_negotiation_to_no_offer_decide_nothing_and_are_counted() {
    let offers = [Some(Transport::Sr { window: 256 }), None];
    let mut w = World::new(Options { offers, ..Options::default() });
    let offer = w.transmit(A);
    assert_eq!(offer.len(), 1);
    let template = Template::new(&w.path(B), Qpn::GSI, bth::DEFAULT_PKEY);
    let [own, peer] = [A, B].map(|h| w.hosts[h].qpn.value());
    for (n, status) in [mad::Status::SUCCESS, mad::Status(0x000c)].into_iter().enumerate() {
        let answer = Negotiation {
            // What comes back in a refusal ends with the number of the queue pair.
            transaction_id: 0x1234_5678_0000_0000 | u64::from(own),
            kind: Kind::Answer(status),
            version: VERSION,
            sender_qpn: peer,
            receiver_qpn: own,
            extensions: Extensions::SR,
            settings: Settings::NONE,
            sdr: None,
        };
        let mut buffer = [0; 1000];
        let mut tx = TxFrame::new(&mut buffer);
        assert!(write(&mut tx, &template, &answer));
        let frame = tx.segments().0.to_vec();
        w.deliver(A, &frame);
        assert_eq!(w.counters(A).rx_unasked_answers, n as u64 + 1);
        assert_eq!(w.hosts[A].nic.choice(w.hosts[A].qpn), Some(Choice::Waiting));
    }
    w.deliver_all(B, &offer);
    w.run();
    assert_eq!(w.counters(A).rx_unasked_answers, 2);
    let outcome = Choice::Standard(FallbackReason::NothingInCommon);
    assert_eq!(w.hosts[A].nic.choice(w.hosts[A].qpn), Some(outcome));
}

#[test]
fn guessed_sequence_numbers_and_keys_are_counted_for_the_queue_pair_that_they_are_for() {
    let misfits = |w: &World| w.hosts[B].nic.misfits().collect::<Vec<_>>();
    // Unreliable, so that no guess ends it.
    let mut w = World::new(Options { kind: QpKind::Uc, ..Options::default() });
    w.another_pair(QpKind::Uc, [A, B]);
    let qpn = w.hosts[B].qpn;
    assert_eq!(misfits(&w), []);
    let (_, _, right) = write_only(&w, 0);
    let wrong = ExtHeaders { reth: right.reth.map(|r| Reth { rkey: r.rkey ^ 1, ..r }), ..right };
    for (psn, ext) in [(0, right), (1, wrong), (7, right), (8, wrong), (-4000, right)] {
        let frame = w.forge(B, 0x2a, psn, false, ext, b"evil");
        w.deliver(B, &frame);
    }
    assert_eq!(misfits(&w), [(qpn, Misfits { psn: 2, rkey: 2, tag: 0 })]);
    let mut w = World::new(Options::default());
    w.another_pair(QpKind::Rc, [A, B]);
    let qpn = w.hosts[B].qpn;
    let (opcode, ..) = write_only(&w, 0);
    for psn in [5, -5, 1 << 22, -(1 << 22)] {
        let frame = w.forge(B, opcode, psn, false, right, b"evil");
        w.deliver(B, &frame);
    }
    let ack = w.forge_aeth(B, 3, 0, 0);
    w.deliver(B, &ack);
    assert_eq!(misfits(&w), [(qpn, Misfits { psn: 5, rkey: 0, tag: 0 })]);
    let frame = w.forge(B, opcode, 0, false, wrong, b"evil");
    w.deliver(B, &frame);
    assert_eq!(misfits(&w), [(qpn, Misfits { psn: 5, rkey: 1, tag: 0 })], "the one that ends the connection");
}
