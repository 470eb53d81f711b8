//! Which two directions are one connection, and how long requests wait for their answers.

use std::time::Duration;

use softnic_pcaps::analysis::{Analysis, PairedBy};

use super::capture::*;

/// Each connection in words, with what paired it.
fn connections(a: &Analysis) -> Vec<(String, Option<PairedBy>)> {
    a.connections().iter().map(|c| (c.to_string(), c.paired_by)).collect()
}

#[test]
fn the_connection_manager_names_both_queue_pairs() {
    let cm = Some(PairedBy::ConnectionManager);
    let expected = "10.33.0.2 qp 0x00006b <-> 10.33.0.1 qp 0x000071".to_owned();
    assert_eq!(connections(&corpus("cm_rping_ipv4.pcap")), [(expected, cm)]);
}

#[test]
fn a_negotiation_names_both_queue_pairs() {
    for file in ["sr_write_loss.pcap", "lowar_read_loss.pcap"] {
        let found = connections(&corpus(file));
        assert_eq!(found.len(), 1, "{file}: {found:?}");
        assert_eq!(found[0].1, Some(PairedBy::Negotiation), "{file}");
    }
}

#[test]
fn without_them_answers_do() {
    let answers = Some(PairedBy::Answers);
    for (file, expected) in [
        ("loss_send_middle_nak.pcap", "10.33.0.1 qp 0x00007c <-> 10.33.0.2 qp 0x000075"),
        ("rc_read_mtu1024.pcap", "10.33.0.1 qp 0x00003c <-> 10.33.0.2 qp 0x00003c"),
    ] {
        assert_eq!(connections(&corpus(file)), [(expected.to_owned(), answers)], "{file}");
    }
    // Five queue pairs with the same PSNs at the same time: of some, each answer comes before the next request.
    let five = connections(&corpus("interop_many_qps_rxe.pcap"));
    assert!(five.len() == 5 && five.iter().all(|(_, by)| *by == answers), "{five:?}");
    // Here nothing tells which answer is whose.
    let five = connections(&corpus("interop_many_qps_softnic.pcap"));
    assert!(five.len() == 10 && five.iter().all(|(_, by)| by.is_none()), "{five:?}");
}

#[test]
fn a_direction_alone_says_that_its_peer_is_unknown() {
    let a = Capture::of((0..4).map(|i| (i * 10, Packet::forth(SEND_ONLY, 0x11, i as u32)))).analyse();
    assert_eq!(connections(&a), [("10.0.0.1 qp unknown <-> 10.0.0.2 qp 0x000011".to_owned(), None)]);
    assert!(
        connections(&corpus("uc_send_mtu1024.pcap"))
            .iter()
            .all(|(words, by)| by.is_none() && words.contains("qp unknown"))
    );
}

/// Two connections with the same PSNs, whose answers go to queue pairs 0x21 and 0x22.
fn two_alike(ports: [u16; 2]) -> Capture {
    let mut packets = Vec::new();
    for (i, port) in ports.into_iter().enumerate() {
        let qp = i as u8;
        let mut request = Packet::forth(SEND_ONLY, 0x11 + qp, 7);
        request.port = port;
        packets.push((i as u64, request));
    }
    for (i, port) in ports.into_iter().enumerate() {
        let mut ack = Packet::back(ACK, 0x21 + i as u8, 7).ext(&GOOD);
        ack.port = port;
        packets.push((10 + i as u64, ack));
    }
    Capture::of(packets)
}

#[test]
fn where_two_fit_neither_is_guessed_and_the_udp_port_or_a_later_packet_decides() {
    let paired = |c: &Capture| c.analyse().connections().iter().filter(|c| c.paired_by.is_some()).count();
    assert_eq!(paired(&two_alike([0xc001, 0xc001])), 0);
    assert_eq!(paired(&two_alike([0xc001, 0xc002])), 2);
    let mut more = two_alike([0xc001, 0xc001]);
    let later = [(20, Packet::forth(SEND_ONLY, 0x12, 8)), (30, Packet::back(ACK, 0x22, 8).ext(&GOOD))];
    more.0.extend(later.map(|(us, p)| (us, p.frame())));
    let found = connections(&more.analyse());
    let pair = |n: u8| format!("10.0.0.1 qp 0x00002{n} <-> 10.0.0.2 qp 0x00001{n}");
    assert_eq!(found, [1, 2].map(|n| (pair(n), Some(PairedBy::Answers))), "the other one follows");
}

#[test]
fn round_trips_are_those_of_requests_that_were_sent_once() {
    let at = |us, p| (us, p);
    let a = Capture::of([
        at(0, Packet::forth(SEND_ONLY, 0x11, 1)),
        at(50, Packet::back(ACK, 0x22, 1).ext(&GOOD)),
        at(100, Packet::forth(READ_REQUEST, 0x11, 2).reth(2048)),
        at(130, Packet::back(READ_FIRST, 0x22, 2).ext(&GOOD).payload(1024)),
        at(140, Packet::back(0x0f, 0x22, 3).ext(&GOOD).payload(1024)),
        // Nobody knows which of the two the answer is to.
        at(1000, Packet::forth(SEND_ONLY, 0x11, 4)),
        at(2000, Packet::forth(SEND_ONLY, 0x11, 4)),
        at(2020, Packet::back(ACK, 0x22, 4).ext(&GOOD)),
    ])
    .analyse();
    let connections = a.connections();
    let there = connections[0].directions[0].unwrap();
    assert_eq!((there.packets, there.requests, there.retransmissions), (4, 4, 1));
    let r = &there.round_trips;
    let us = Duration::from_micros;
    assert_eq!((r.count(), r.min(), r.max()), (2, Some(us(30)), Some(us(50))));
    assert_eq!(connections[0].directions[1].unwrap().payload_bytes, 2048);
}

#[test]
fn a_long_window_is_thinned_out_and_still_measured() {
    // 20 000 packets are outstanding all the time.
    let requests = (0..60_000).map(|i| (i, Packet::forth(SEND_MIDDLE, 0x11, i as u32).payload(256)));
    let answers = (0..40_000).map(|i| (i + 20_000, Packet::back(ACK, 0x22, i as u32).ext(&GOOD)));
    let mut all: Vec<_> = requests.chain(answers).collect();
    all.sort_by_key(|(us, _)| *us);
    let a = Capture::of(all).analyse();
    let r = &a.connections()[0].directions[0].unwrap().round_trips;
    assert!(r.count() > 1000, "{}", r.count());
    assert_eq!((r.min(), r.max()), (Some(Duration::from_millis(20)), Some(Duration::from_millis(20))));
}

#[test]
fn a_new_connection_of_a_queue_pair_is_another_one() {
    let rping = corpus_frames("cm_rping_ipv4.pcap");
    let twice = rping.iter().chain(&rping).cloned().enumerate().map(|(i, f)| (i as u64 * 100, f));
    let a = Capture(twice.collect()).analyse();
    let packets: Vec<_> = a.connections().iter().map(|c| c.directions.map(|d| d.unwrap().packets)).collect();
    assert_eq!(packets.len(), 2);
    assert_eq!(packets[0], packets[1]);
}
