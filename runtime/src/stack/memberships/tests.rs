//! Memberships against queries made by hand, in virtual time.

use super::*;

fn ip(text: &str) -> IpAddr {
    text.parse().unwrap()
}

fn at(milliseconds: u64) -> Instant {
    Instant::ZERO + Duration::from_millis(milliseconds)
}

fn groups(texts: &[&str]) -> BTreeSet<IpAddr> {
    texts.iter().map(|text| ip(text)).collect()
}

fn sources() -> (Option<Ipv4Addr>, Option<Ipv6Addr>) {
    (Some(Ipv4Addr::new(10, 0, 0, 1)), Some(Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0, 1)))
}

/// All packets sent before `end`, with their times.
fn sent(memberships: &mut Memberships, end: Instant) -> Vec<(Instant, Vec<u8>)> {
    let mut all = Vec::new();
    while let Some(next) = memberships.next().filter(|&next| next < end) {
        all.extend(memberships.poll(next, sources()).into_iter().map(|(_, packet)| (next, packet)));
    }
    all
}

/// The checksum of `bytes`.
fn sum(bytes: &[u8]) -> [u8; 2] {
    let words = bytes.chunks(2).map(|c| u32::from(c[0]) << 8 | u32::from(c.get(1).copied().unwrap_or(0)));
    let sum: u32 = words.sum();
    (!((sum & 0xffff) + (sum >> 16)) as u16).to_be_bytes()
}

/// An IGMP query: version 2 with 8 bytes, else version 3.
fn igmp_query(group: [u8; 4], code: u8, len: usize) -> Vec<u8> {
    let mut message = [&[0x11, code, 0, 0][..], &group, &[0, 0, 0, 0]].concat();
    message.truncate(len);
    let check = sum(&message);
    message[2..4].copy_from_slice(&check);
    let mut ip = vec![0x45, 0, 0, (20 + len) as u8, 0, 0, 0, 0, 1, 2, 0, 0, 10, 0, 0, 254, 224, 0, 0, 1];
    let check = sum(&ip);
    ip[10..12].copy_from_slice(&check);
    [ip, message].concat()
}

/// An MLD query: version 1 with 24 bytes, else version 2.
fn mld_query(group: Ipv6Addr, milliseconds: u16, len: usize) -> Vec<u8> {
    let mut message = [&[130, 0, 0, 0][..], &milliseconds.to_be_bytes(), &[0, 0], &group.octets(), &[0; 4]].concat();
    message.truncate(len);
    let src = Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0, 0xfe).octets();
    let dst = Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, 1).octets();
    let check = sum(&[&src[..], &dst, &[0, 0, 0, len as u8, 0, 0, 0, 58], &message].concat());
    message[2..4].copy_from_slice(&check);
    let head = [0x60, 0, 0, 0, 0, (8 + len) as u8, 0, 1];
    [&head[..], &src, &dst, &[58, 0, 5, 2, 0, 0, 1, 0], &message].concat()
}

#[test]
fn who_joins_and_leaves_says_so_twice() {
    let mut memberships = Memberships::new(1);
    memberships.set(at(0), &groups(&["239.1.2.3", "224.0.0.1"])).unwrap();
    let joined = sent(&mut memberships, at(5000));
    assert_eq!(joined.len(), 2);
    assert!(joined[0].0 == at(0) && joined[1].0 < at(1000));
    for (_, packet) in &joined {
        // To 224.0.0.22, with the router alert option, a TTL of 1, and right checksums.
        assert_eq!((packet[8], &packet[16..24]), (1, &[224, 0, 0, 22, 0x94, 4, 0, 0][..]));
        assert_eq!((sum(&packet[..24]), sum(&packet[24..])), ([0; 2], [0; 2]));
        assert_eq!((packet[24], &packet[30..]), (0x22, &[0, 1, 4, 0, 0, 0, 239, 1, 2, 3][..]));
    }
    memberships.set(at(6000), &groups(&[])).unwrap();
    let left = sent(&mut memberships, at(9000));
    assert_eq!((left.len(), left[0].1[32], left[1].1[32]), (2, 3, 3));
    assert!(memberships.groups.is_empty() && memberships.next().is_none());
}

#[test]
fn a_report_of_mld_is_for_the_link_and_from_it() {
    let mut memberships = Memberships::new(1);
    memberships.set(at(0), &groups(&["ff0e::7", "ff02::1", "ff01::5"])).unwrap();
    let joined = sent(&mut memberships, at(5000));
    let packet = &joined[0].1;
    assert_eq!((joined.len(), packet[6], packet[7]), (2, 0, 1));
    assert_eq!(packet[8..40], [sources().1.unwrap().octets(), messages_to().octets()].concat());
    assert_eq!(packet[40..48], [58, 0, 5, 2, 0, 0, 1, 0]);
    let pseudo = [&packet[8..40], &[0, 0, 0, 28, 0, 0, 0, 58], &packet[48..]].concat();
    assert_eq!((packet[48], &packet[54..60], sum(&pseudo)), (143, &[0, 1, 4, 0, 0, 0][..], [0; 2]));
}

fn messages_to() -> Ipv6Addr {
    Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, 0x16)
}

#[test]
fn a_query_is_answered_once_within_its_time_and_not_by_all_at_the_same_time() {
    for six in [false, true] {
        let query = match six {
            false => igmp_query([0; 4], 20, 12),
            true => mld_query(Ipv6Addr::UNSPECIFIED, 2000, 28),
        };
        let mut times = BTreeSet::new();
        for seed in 1..=20 {
            let mut memberships = Memberships::new(seed);
            memberships.set(at(0), &groups(&["239.1.2.3", "239.1.2.4", "ff0e::7", "ff0e::8"])).unwrap();
            sent(&mut memberships, at(5000));
            assert!(memberships.handle_packet(at(5000), &query));
            assert!(memberships.handle_packet(at(5000), &query), "a second one changes nothing");
            let answers = sent(&mut memberships, at(20_000));
            assert_eq!(answers.len(), 1, "for both groups");
            let record = if six { 56 } else { 32 };
            assert_eq!(answers[0].1[record - 2..][..3], [0, 2, 2]);
            assert!(answers[0].0 < at(7000));
            times.insert(answers[0].0);
        }
        assert!(times.len() > 15, "{times:?}");
    }
}

#[test]
fn a_query_for_one_group_is_answered_by_its_members() {
    let mut memberships = Memberships::new(1);
    memberships.set(at(0), &groups(&["239.1.2.3", "239.1.2.4"])).unwrap();
    sent(&mut memberships, at(5000));
    memberships.handle_packet(at(5000), &igmp_query([239, 1, 2, 9], 10, 12));
    assert_eq!(memberships.next(), None);
    memberships.handle_packet(at(5000), &igmp_query([239, 1, 2, 4], 10, 12));
    let answers = sent(&mut memberships, at(9000));
    assert_eq!((answers.len(), &answers[0].1[30..]), (1, &[0, 1, 2, 0, 0, 0, 239, 1, 2, 4][..]));
}

#[test]
fn queriers_of_old_versions_get_reports_and_leaves_that_they_can_read() {
    let mut memberships = Memberships::new(1);
    memberships.set(at(0), &groups(&["239.1.2.3", "ff0e::7"])).unwrap();
    sent(&mut memberships, at(5000));
    memberships.handle_packet(at(5000), &igmp_query([0; 4], 10, 8));
    memberships.handle_packet(at(5000), &mld_query(Ipv6Addr::UNSPECIFIED, 1000, 24));
    let kinds = |sent: Vec<(Instant, Vec<u8>)>| {
        let kind = |packet: &[u8]| if packet[0] >> 4 == 4 { packet[24] } else { packet[48] };
        sent.iter().map(|(_, packet)| kind(packet)).collect::<BTreeSet<_>>()
    };
    assert_eq!(kinds(sent(&mut memberships, at(9000))), BTreeSet::from([0x16, 131]));
    memberships.set(at(10_000), &groups(&[])).unwrap();
    assert_eq!(kinds(sent(&mut memberships, at(20_000))), BTreeSet::from([0x17, 132]));
    // The old queriers have expired, and the new versions are in use again.
    memberships.set(at(300_000), &groups(&["239.1.2.3"])).unwrap();
    assert_eq!(kinds(sent(&mut memberships, at(310_000))), BTreeSet::from([0x22]));
}

#[test]
fn queries_that_a_router_passed_on_or_that_are_damaged_are_not_answered() {
    let mut memberships = Memberships::new(1);
    for good in [igmp_query([0; 4], 10, 12), mld_query(Ipv6Addr::UNSPECIFIED, 1000, 28)] {
        assert!(memberships.handle_packet(at(0), &good));
        for len in 0..good.len() {
            assert!(!memberships.handle_packet(at(0), &good[..len]), "{len}");
        }
        for place in 0..good.len() {
            let mut bad = good.clone();
            bad[place] ^= 0x40;
            // No checksum covers the first bytes of IPv6 and the hop-by-hop option.
            let summed = good[0] == 0x45 || !(1..4).contains(&place) && !(42..48).contains(&place);
            assert!(!summed || !memberships.handle_packet(at(0), &bad), "{place}");
        }
    }
}

#[test]
fn there_is_a_limit_to_groups_and_to_answers() {
    let mut memberships = Memberships::new(1);
    let many = |n: u32| (0..n).map(|n| IpAddr::from(Ipv4Addr::from(0xef00_0000 + n))).collect::<BTreeSet<_>>();
    assert_eq!(memberships.set(at(0), &many(257)), Err(TooManyGroups));
    memberships.set(at(0), &many(256)).unwrap();
    assert_eq!(memberships.poll(at(0), sources()).len(), 5, "each with at most 60 groups");
    sent(&mut memberships, at(5000));
    // A querier sends queries all the time, for immediate answers.
    let mut answers = 0;
    for n in 0..1000 {
        memberships.handle_packet(at(5000 + n), &igmp_query([0; 4], 0, 12));
        answers += usize::from(!memberships.poll(at(5000 + n), sources()).is_empty());
    }
    assert!((9..=11).contains(&answers), "{answers}");
}
