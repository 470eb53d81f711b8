//! Groups that make no sense, and tables that are full.

use super::*;

fn ip(n: u8) -> IpAddr {
    IpAddr::from([10, 0, 0, n])
}

fn receiver(n: u8) -> Receiver {
    Receiver { address: ip(n), qpn: Qpn::new(u32::from(n) + 100), mac: None, branch: None }
}

fn spec(receivers: &[u8]) -> GroupSpec {
    GroupSpec {
        sender: ip(1),
        mc_id: Qpn::new(0x77),
        merge: Some(MergeSpec { qpn: Qpn::new(0x11), psn: Psn::new(0) }),
        receivers: receivers.iter().copied().map(receiver).collect(),
        ranges: Vec::new(),
    }
}

#[test]
fn a_group_that_makes_no_sense_is_refused_with_the_reason() {
    let error = |change: fn(&mut GroupSpec)| {
        let mut spec = spec(&[2, 3]);
        change(&mut spec);
        Groups::default().add(spec).expect_err("refused").to_string()
    };
    assert!(error(|s| s.receivers.clear()).contains("at least one receiver"));
    assert!(error(|s| s.receivers.push(receiver(2))).contains("two receivers have the address 10.0.0.2"));
    assert!(error(|s| s.receivers.push(receiver(1))).contains("the sender 10.0.0.1 is among the receivers"));
    assert!(error(|s| s.receivers[1].address = "fd00::1".parse().unwrap()).contains("fd00::1 is not of the sender's"));
    for qpn in [0, 1, 0xff_ffff] {
        let mut spec = spec(&[2]);
        spec.mc_id = Qpn::new(qpn);
        assert!(matches!(Groups::default().add(spec), Err(GroupError::ReservedQpn { what: "MC_ID", .. })));
    }
    assert!(error(|s| s.merge.as_mut().unwrap().qpn = Qpn::new(1)).contains("reserved"));
    assert!(error(|s| s.receivers[0].qpn = Qpn::new(0)).contains("reserved"));
}

#[test]
fn groups_are_told_apart_and_go_whole() {
    let mut groups = Groups::default();
    groups.add(spec(&[2, 3])).unwrap();
    assert_eq!(groups.add(spec(&[4])), Err(GroupError::Exists(ip(1), 0x77)));
    let mut other = spec(&[4]);
    other.mc_id = Qpn::new(0x78);
    assert_eq!(groups.add(other.clone()), Err(GroupError::SenderTaken(ip(1), 0x11)));
    other.merge.as_mut().unwrap().qpn = Qpn::new(0x12);
    groups.add(other).unwrap();
    let (a, b) = (groups.of_sender(ip(1), Qpn::new(0x77)).unwrap(), groups.to_sender(ip(1), Qpn::new(0x12)).unwrap());
    assert_ne!(a, b);
    assert_eq!((groups.member(a, ip(3)), groups.member(b, ip(3)), groups.member(b, ip(4))), (Some(1), None, Some(0)));
    groups.remove(ip(1), Qpn::new(0x77)).unwrap();
    assert_eq!(groups.remove(ip(1), Qpn::new(0x77)), Err(GroupError::Unknown(ip(1), 0x77)));
    assert_eq!(
        (groups.member(a, ip(3)), groups.to_sender(ip(1), Qpn::new(0x11)), groups.fill().groups),
        (None, None, 1)
    );
    groups.add(spec(&[2, 3])).unwrap();
}

#[test]
fn receivers_of_one_branch_get_one_copy_that_keeps_the_mc_id() {
    let mut shared = spec(&[2, 3, 4, 5]);
    for (i, branch) in [Some(1), None, Some(1), Some(2)].into_iter().enumerate() {
        shared.receivers[i].branch = branch;
    }
    let mut groups = Groups::default();
    groups.add(shared).unwrap();
    let group = groups.get(ip(1), Qpn::new(0x77)).unwrap();
    let seen: Vec<_> = group.branches.iter().map(|b| (b.to, b.last)).collect();
    assert_eq!(seen, [(ip(2), None), (ip(3), Some(1)), (ip(5), Some(3))]);
}

#[test]
fn tables_that_are_full_refuse_and_what_was_there_stays() {
    let mut groups = Groups::default();
    let range = |i: u64, targets| Range {
        start: i << 20,
        len: 1 << 20,
        rkey: 1,
        targets: vec![Target { start: 0, rkey: 2 }; targets],
    };
    let mut large = spec(&[2, 3]);
    large.ranges = (0..(MAX_RANGES / 2) as u64).map(|i| range(i, 2)).collect();
    groups.add(large).unwrap();
    let mut more = spec(&[2]);
    (more.mc_id, more.merge, more.ranges) = (Qpn::new(0x99), None, vec![range(0, 1)]);
    assert_eq!(groups.add(more.clone()), Err(GroupError::RangesFull(0)));
    more.ranges.clear();
    for i in 1..MAX_GROUPS as u32 {
        more.mc_id = Qpn::new(0x1000 + i);
        groups.add(more.clone()).unwrap();
    }
    more.mc_id = Qpn::new(0x99);
    assert_eq!(groups.add(more), Err(GroupError::GroupsFull));
    assert_eq!(groups.fill(), Fill { groups: MAX_GROUPS, ranges: MAX_RANGES });
    groups.remove(ip(1), Qpn::new(0x77)).unwrap();
    assert_eq!(groups.fill(), Fill { groups: MAX_GROUPS - 1, ranges: 0 });
}
