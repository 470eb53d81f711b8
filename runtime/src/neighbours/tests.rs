//! The responder against frames made by hand, and its own frames as smoltcp reads them.

use std::time::Duration;

use softnic_wire::PathMtu;

use super::table::INTERVAL;
use super::*;

const MAC: MacAddr = MacAddr([2, 0, 0, 0, 0, 1]);
const PEER: MacAddr = MacAddr([2, 0, 0, 0, 0, 2]);
const IP: Ipv4Addr = Ipv4Addr::new(10, 33, 0, 1);
const PEER_IP: Ipv4Addr = Ipv4Addr::new(10, 33, 0, 2);
const IP6: Ipv6Addr = Ipv6Addr::new(0xfd33, 0, 0, 0, 0, 0, 0, 1);
const PEER_IP6: Ipv6Addr = Ipv6Addr::new(0xfd33, 0, 0, 0, 0, 0, 0, 2);

fn responder() -> Neighbours {
    Neighbours::new(&Port { mac: MAC, addresses: vec![IP.into(), IP6.into()], mtu: PathMtu::B4096 })
}

fn give(n: &mut Neighbours, frame: &[u8]) -> Vec<Vec<u8>> {
    n.handle_frame(Instant::ZERO, 0, &mut frame.to_vec());
    sent(n, Instant::ZERO)
}

fn sent(n: &mut Neighbours, now: Instant) -> Vec<Vec<u8>> {
    let mut frames = Vec::new();
    let mut room = [0; 2048];
    loop {
        let mut tx = TxFrame::new(&mut room);
        if !n.poll_transmit(now, 0, &mut tx) {
            return frames;
        }
        frames.push(tx.segments().0.to_vec());
    }
}

/// An ARP packet byte by byte, as a kernel sends it.
fn arp(operation: u8, sender: (MacAddr, Ipv4Addr), target: (MacAddr, Ipv4Addr), to: MacAddr) -> Vec<u8> {
    let fixed = [0x08, 0x06, 0, 1, 8, 0, 6, 4, 0, operation];
    let (src, src_ip, dst, dst_ip) = (sender.0.0, sender.1.octets(), target.0.0, target.1.octets());
    [&to.0[..], &sender.0.0, &fixed, &src, &src_ip, &dst, &dst_ip].concat()
}

#[test]
fn an_arp_request_for_our_address_is_answered() {
    let everybody = MacAddr([0xff; 6]);
    let nobody = MacAddr([0; 6]);
    let request = |ip| arp(1, (PEER, PEER_IP), (nobody, ip), everybody);
    let answers = give(&mut responder(), &request(IP));
    assert_eq!(answers, [arp(2, (MAC, IP), (PEER, PEER_IP), PEER)]);
    assert_eq!(give(&mut responder(), &request(Ipv4Addr::new(10, 33, 0, 9))), Vec::<Vec<u8>>::new());
    let to_another = arp(1, (PEER, PEER_IP), (nobody, IP), MacAddr([2, 0, 0, 0, 0, 9]));
    assert_eq!(give(&mut responder(), &to_another), Vec::<Vec<u8>>::new());
}

#[test]
fn solicitations_for_the_global_and_the_link_local_address_are_answered() {
    let local = link_local(MAC);
    assert_eq!(local.to_string(), "fe80::ff:fe00:1");
    for target in [IP6, local] {
        let answers = give(&mut responder(), &frames::solicitation(PEER, None, PEER_IP6, target));
        let [answer] = &answers[..] else { panic!("{} answers", answers.len()) };
        assert_eq!(answer[..6], PEER.0);
        let ip = Ipv6Packet::new_checked(&answer[14..]).unwrap();
        let icmp = Icmpv6Packet::new_checked(ip.payload()).unwrap();
        assert!(icmp.verify_checksum(&ip.src_addr(), &ip.dst_addr()));
        let flags = NdiscNeighborFlags::SOLICITED | NdiscNeighborFlags::OVERRIDE;
        assert_eq!((ip.src_addr(), ip.dst_addr(), ip.hop_limit()), (target, PEER_IP6, 255));
        assert_eq!((icmp.target_addr(), icmp.neighbor_flags()), (target, flags));
    }
}

#[test]
fn a_solicitation_that_a_router_passed_on_or_whose_checksum_is_wrong_is_not_answered() {
    let good = frames::solicitation(PEER, None, PEER_IP6, IP6);
    let (mut routed, mut broken) = (good.clone(), good.clone());
    routed[14 + 7] = 254;
    broken[14 + 40 + 2] ^= 1;
    assert_eq!(give(&mut responder(), &good).len(), 1);
    assert_eq!(give(&mut responder(), &routed).len(), 0);
    assert_eq!(give(&mut responder(), &broken).len(), 0);
}

#[test]
fn who_looks_whether_our_address_is_taken_is_told_so_with_all_others() {
    let answers = give(&mut responder(), &frames::solicitation(PEER, None, Ipv6Addr::UNSPECIFIED, IP6));
    let [answer] = &answers[..] else { panic!("{} answers", answers.len()) };
    let ip = Ipv6Packet::new_checked(&answer[14..]).unwrap();
    assert_eq!((&answer[..6], ip.dst_addr()), (&[0x33, 0x33, 0, 0, 0, 1][..], frames::ALL_NODES));
    assert_eq!(Icmpv6Packet::new_checked(ip.payload()).unwrap().neighbor_flags(), NdiscNeighborFlags::OVERRIDE);
}

#[test]
fn echo_requests_are_answered_with_their_data() {
    let v4 = Icmpv4Repr::EchoRequest { ident: 7, seq_no: 9, data: b"ping" };
    let answers = give(&mut responder(), &frames::icmpv4(PEER, MAC, PEER_IP, IP, &v4));
    let back = Icmpv4Repr::EchoReply { ident: 7, seq_no: 9, data: b"ping" };
    assert_eq!(answers, [frames::icmpv4(MAC, PEER, IP, PEER_IP, &back)]);
    let ip = Ipv4Packet::new_checked(&answers[0][14..]).unwrap();
    assert!(ip.verify_checksum() && Icmpv4Packet::new_checked(ip.payload()).unwrap().verify_checksum());
    let v6 = Icmpv6Repr::EchoRequest { ident: 7, seq_no: 9, data: b"ping" };
    let answers = give(&mut responder(), &frames::icmpv6(PEER, MAC, PEER_IP6, IP6, 64, &v6));
    let back = Icmpv6Repr::EchoReply { ident: 7, seq_no: 9, data: b"ping" };
    assert_eq!(answers, [frames::icmpv6(MAC, PEER, IP6, PEER_IP6, 64, &back)]);
    // The port does not answer for other addresses.
    let elsewhere = frames::icmpv4(PEER, MAC, PEER_IP, Ipv4Addr::new(10, 33, 0, 7), &v4);
    assert_eq!(give(&mut responder(), &elsewhere).len(), 0);
}

#[test]
fn a_neighbour_is_asked_for_and_its_answer_believed() {
    let now = Instant::from_nanos(5);
    for (address, answer) in [
        (IpAddr::from(PEER_IP), arp(2, (PEER, PEER_IP), (MAC, IP), MAC)),
        (IpAddr::from(PEER_IP6), frames::advertisement(PEER, MAC, PEER_IP6, IP6, NdiscNeighborFlags::SOLICITED)),
    ] {
        let mut n = responder();
        assert_eq!(give(&mut n, &answer).len(), 0);
        assert_eq!(n.mac_of(now, address), Ok(None), "an answer that nobody asked for is not believed");
        let questions = sent(&mut n, now);
        assert_eq!(questions.len(), 1, "{address}");
        // Another responder answers the request.
        let other = Port { mac: PEER, addresses: vec![address], mtu: PathMtu::B4096 };
        assert_eq!(give(&mut Neighbours::new(&other), &questions[0]).len(), 1);
        give(&mut n, &answer);
        assert_eq!(n.mac_of(now, address), Ok(Some(PEER)));
        assert_eq!(n.poll_timeout(), None);
    }
}

#[test]
fn who_never_answers_is_given_up() {
    let mut n = responder();
    assert_eq!(n.mac_of(Instant::ZERO, PEER_IP.into()), Ok(None));
    let mut questions = sent(&mut n, Instant::ZERO).len();
    while let Some(at) = n.poll_timeout() {
        n.handle_timeout(at);
        questions += sent(&mut n, at).len();
        assert!(questions <= TRIES as usize);
    }
    assert_eq!(questions, TRIES as usize);
    let refused = n.mac_of(Instant::ZERO, PEER_IP.into()).unwrap_err();
    assert_eq!(refused.to_string(), "10.33.0.2 does not answer: asked 4 times for its MAC address");
    assert_eq!(n.mac_of(Instant::ZERO, PEER_IP.into()), Ok(None), "asked anew");
}

#[test]
fn without_an_address_of_that_version_nobody_can_be_asked() {
    let mut n = Neighbours::new(&Port { mac: MAC, addresses: vec![IP6.into()], mtu: PathMtu::B4096 });
    assert_eq!(n.mac_of(Instant::ZERO, PEER_IP.into()), Err(NeighbourError::NoSource(PEER_IP.into())));
}

/// Input may be arbitrary: frames truncated anywhere and with any byte changed.
#[test]
fn broken_frames_do_no_harm() {
    let ping = Icmpv6Repr::EchoRequest { ident: 1, seq_no: 2, data: &[7; 40] };
    let ping4 = Icmpv4Repr::EchoRequest { ident: 1, seq_no: 2, data: &[7; 40] };
    let all = [
        arp(1, (PEER, PEER_IP), (MAC, IP), MAC),
        frames::solicitation(PEER, None, PEER_IP6, IP6),
        frames::advertisement(PEER, MAC, PEER_IP6, IP6, NdiscNeighborFlags::SOLICITED),
        frames::icmpv6(PEER, MAC, PEER_IP6, IP6, 64, &ping),
        frames::icmpv4(PEER, MAC, PEER_IP, IP, &ping4),
    ];
    let mut answered = 0;
    for frame in all {
        for len in 0..=frame.len() {
            answered += give(&mut responder(), &frame[..len]).len();
        }
        for at in 0..frame.len() {
            for bits in 1..=255 {
                let mut changed = frame.clone();
                changed[at] ^= bits;
                // An ICMPv6 message with a right checksum is parsed further.
                if changed[12..14] == [0x86, 0xdd] && at > 56 && changed[20] == 58 {
                    changed[56..58].fill(0);
                    let sum = icmpv6_checksum(&changed);
                    changed[56..58].copy_from_slice(&sum.to_be_bytes());
                }
                answered += give(&mut responder(), &changed).len();
            }
        }
    }
    assert!(answered > 1000, "{answered}: most changes leave a question a question");
}

fn icmpv6_checksum(frame: &[u8]) -> u16 {
    let pseudo = [&frame[22..54], &[0, 0], &frame[18..20], &[0, 0, 0, 58], &frame[54..]].concat();
    let words = pseudo.chunks(2).map(|c| u32::from(c[0]) << 8 | c.get(1).copied().map_or(0, u32::from));
    let mut sum: u32 = words.sum();
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    !(sum as u16)
}

#[test]
fn the_kept_corpus_of_the_fuzzer() {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../fuzz/corpus/neighbours");
    for file in std::fs::read_dir(folder).unwrap() {
        fuzz_neighbours(&std::fs::read(file.unwrap().path()).unwrap());
    }
}

#[test]
fn a_neighbour_that_is_needed_again_is_asked_again_and_one_that_went_silent_is_forgotten() {
    let mut n = responder();
    let reply = |mac| arp(2, (mac, PEER_IP), (MAC, IP), MAC);
    let at = |seconds| Instant::ZERO + Duration::from_secs(seconds);
    assert_eq!(n.mac_of(Instant::ZERO, PEER_IP.into()), Ok(None));
    assert_eq!(sent(&mut n, Instant::ZERO).len(), 1);
    n.handle_frame(Instant::ZERO, 0, &mut reply(PEER));
    assert_eq!((n.mac_of(at(29), PEER_IP.into()), n.poll_timeout()), (Ok(Some(PEER)), None), "it is fresh");
    let new = MacAddr([2, 0, 0, 0, 0, 7]);
    assert_eq!(n.mac_of(at(30), PEER_IP.into()), Ok(Some(PEER)), "the old one is used meanwhile");
    assert_eq!(sent(&mut n, at(30)), [frames::arp_request(MAC, Some(PEER), IP, PEER_IP)], "and asked");
    n.handle_frame(at(30), 0, &mut reply(new));
    assert_eq!((n.mac_of(at(31), PEER_IP.into()), n.poll_timeout()), (Ok(Some(new)), None));
    // From here on the neighbour does not answer.
    assert_eq!(n.mac_of(at(90), PEER_IP.into()), Ok(Some(new)));
    while let Some(next) = n.poll_timeout() {
        n.handle_timeout(next);
    }
    assert_eq!(n.mac_of(at(100), PEER_IP.into()), Err(NeighbourError::NoAnswer(PEER_IP.into())));
}

#[test]
fn a_question_that_finds_no_room_is_no_try() {
    let mut n = responder();
    let many = 3 * QUEUE as u32;
    let address = |i: u32| IpAddr::from((u32::from(PEER_IP) + i).to_be_bytes());
    for i in 0..many {
        assert_eq!(n.mac_of(Instant::ZERO, address(i)).unwrap(), None);
    }
    let mut now = Instant::ZERO;
    let mut asked = sent(&mut n, now).len();
    while asked < many as usize {
        let next = n.poll_timeout().expect("questions wait");
        assert!(next < Instant::ZERO + INTERVAL, "{asked} of {many} were asked");
        now = next.max(now);
        n.handle_timeout(now);
        asked += sent(&mut n, now).len();
    }
    assert!((0..many).all(|i| n.mac_of(now, address(i)).unwrap().is_none()), "nobody is given up");
}

#[test]
fn who_is_beyond_the_gateway_has_the_gateways_mac_address_and_one_question_is_enough_for_many() {
    let port = Port { mac: MAC, addresses: vec![IP.into()], mtu: PathMtu::B4096 };
    let links = Links { addresses: vec![(IP.into(), 24)], gateways: vec![PEER_IP.into()] };
    let mut n = Neighbours::with_links(&port, links);
    let far = |i| IpAddr::from([192, 0, 2, i]);
    for i in 1..=9 {
        assert_eq!(n.mac_of(Instant::ZERO, far(i)), Ok(None));
    }
    assert_eq!(sent(&mut n, Instant::ZERO), [frames::arp_request(MAC, None, IP, PEER_IP)]);
    give(&mut n, &arp(2, (PEER, PEER_IP), (MAC, IP), MAC));
    assert_eq!(n.mac_of(Instant::ZERO, far(1)), Ok(Some(PEER)));
    assert_eq!(n.mac_of(Instant::ZERO, far(200)), Ok(Some(PEER)));
    let elsewhere = IpAddr::from(PEER_IP6);
    assert_eq!(n.mac_of(Instant::ZERO, elsewhere), Err(NeighbourError::NoGateway(elsewhere)));
}

/// All messages by which a host tells that its MAC address has changed.
#[test]
fn a_neighbour_that_says_that_it_moved_is_believed_and_nobody_is_remembered_for_saying_so() {
    let new = MacAddr([2, 0, 0, 0, 0, 7]);
    let (all, nobody) = (MacAddr([0xff; 6]), MacAddr([0; 6]));
    let over = NdiscNeighborFlags::OVERRIDE;
    let to_all = frames::multicast_mac(frames::ALL_NODES);
    for (address, moved) in [
        (IpAddr::from(PEER_IP), arp(1, (new, PEER_IP), (nobody, PEER_IP), all)),
        (PEER_IP.into(), arp(2, (new, PEER_IP), (nobody, PEER_IP), all)),
        (PEER_IP.into(), arp(1, (new, PEER_IP), (nobody, IP), all)),
        (PEER_IP6.into(), frames::advertisement(new, to_all, PEER_IP6, frames::ALL_NODES, over)),
        (PEER_IP6.into(), frames::solicitation(new, None, PEER_IP6, IP6)),
    ] {
        let mut n = responder();
        give(&mut n, &moved);
        assert_eq!(n.table.len(), 0);
        n.mac_of(Instant::ZERO, address).unwrap();
        give(&mut n, &arp(2, (PEER, PEER_IP), (MAC, IP), MAC));
        give(&mut n, &frames::advertisement(PEER, MAC, PEER_IP6, IP6, NdiscNeighborFlags::SOLICITED));
        assert_eq!(n.mac_of(Instant::ZERO, address), Ok(Some(PEER)));
        give(&mut n, &moved);
        assert_eq!(n.mac_of(Instant::ZERO, address), Ok(Some(new)), "{moved:x?}");
    }
    // Without the override flag the old address stays.
    let mut n = responder();
    n.mac_of(Instant::ZERO, PEER_IP6.into()).unwrap();
    give(&mut n, &frames::advertisement(PEER, MAC, PEER_IP6, IP6, NdiscNeighborFlags::SOLICITED));
    give(&mut n, &frames::advertisement(new, to_all, PEER_IP6, frames::ALL_NODES, NdiscNeighborFlags::empty()));
    assert_eq!(n.mac_of(Instant::ZERO, PEER_IP6.into()), Ok(Some(PEER)));
    assert_eq!(sent(&mut n, Instant::ZERO).len(), 1, "but is asked");
}

#[test]
fn a_port_that_comes_up_tells_its_addresses_and_who_has_one_already_is_told_to_its_owner() {
    let mut n = responder();
    n.announce(Instant::ZERO);
    let mut other = Neighbours::new(&Port { mac: PEER, addresses: vec![IP.into(), IP6.into()], mtu: PathMtu::B4096 });
    let probes = sent(&mut n, Instant::ZERO);
    assert_eq!(probes.len(), 3, "two addresses and the link-local one");
    assert_eq!(probes[0], arp(1, (MAC, Ipv4Addr::UNSPECIFIED), (MacAddr([0; 6]), IP), MacAddr([0xff; 6])));
    for answer in probes.iter().flat_map(|probe| give(&mut other, probe)) {
        give(&mut n, &answer);
    }
    let conflicts: Vec<_> = std::iter::from_fn(|| n.poll_conflict()).collect();
    let (four, six) = (Conflict { address: IP.into(), mac: PEER }, Conflict { address: IP6.into(), mac: PEER });
    assert!(conflicts.len() == 2 && conflicts.contains(&four) && conflicts.contains(&six), "{conflicts:?}");
    // No other host has the third address.
    let mut announced = Vec::new();
    while let Some(next) = n.poll_timeout() {
        n.handle_timeout(next);
        announced.extend(sent(&mut n, next));
    }
    let own = link_local(MAC);
    let to_all = frames::multicast_mac(frames::ALL_NODES);
    let announcement = frames::advertisement(MAC, to_all, own, frames::ALL_NODES, NdiscNeighborFlags::OVERRIDE);
    assert_eq!(announced, [announcement.clone(), announcement]);
}

#[test]
fn an_announcement_of_another_for_our_address_is_answered_with_ours_and_not_by_a_storm() {
    let mut n = responder();
    let all = MacAddr([0xff; 6]);
    let claim = arp(1, (PEER, IP), (MacAddr([0; 6]), IP), all);
    let ours = arp(1, (MAC, IP), (MacAddr([0; 6]), IP), all);
    assert!(give(&mut n, &claim).contains(&ours));
    assert!(!give(&mut n, &claim).contains(&ours));
    give(&mut n, &ours);
    assert_eq!(n.poll_conflict(), Some(Conflict { address: IP.into(), mac: PEER }), "once for both");
    assert_eq!(n.poll_conflict(), None, "our own frame that came back is none");
}

#[test]
fn only_addresses_that_are_new_are_announced_when_they_change() {
    let mut n = responder();
    let new = Ipv4Addr::new(10, 33, 0, 5);
    n.set_links(Instant::ZERO, Links { addresses: vec![(IP.into(), 24), (new.into(), 24)], gateways: Vec::new() });
    let probe = arp(1, (MAC, Ipv4Addr::UNSPECIFIED), (MacAddr([0; 6]), new), MacAddr([0xff; 6]));
    assert_eq!(sent(&mut n, Instant::ZERO), [probe]);
    assert!(n.is_ours(new) && !n.is_ours(IP6));
}
