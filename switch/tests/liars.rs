//! Members that lie, strangers that speak, and packets that contradict themselves: what the sender is told, and what receivers get.

mod hostile;

use hostile::{KEY, OWN, SENDER_QP, Says, VIRTUAL, group, ip, mac, pass, report, switch};
use softnic_switch::Switch;
use softnic_switch::group::{Fill, GroupError, GroupSpec, MAX_GROUPS, MergeSpec};
use softnic_wire::aeth::{NakCode, Syndrome};
use softnic_wire::ext::Reth;
use softnic_wire::{Instant, Node, Opcode, Psn, Qpn, RocePacket, icrc};

const ACK: u8 = 31;
const LOST: u8 = 0x60;
const CNP: Says = Says { opcode: Opcode::CNP, ..BARE };
/// A constant cannot call functions, so what differs is put in later.
const BARE: Says = Says {
    src: std::net::IpAddr::V4(std::net::Ipv4Addr::UNSPECIFIED),
    dst: std::net::IpAddr::V4(std::net::Ipv4Addr::UNSPECIFIED),
    dst_mac: OWN,
    dest_qp: SENDER_QP,
    opcode: Opcode::RC_ACKNOWLEDGE,
    psn: Psn::new(0),
    reth: Reth { va: 0, rkey: 0, len: 0 },
    aeth: softnic_wire::Aeth { syndrome: Syndrome::Reserved(0), msn: 0 },
    payload: 0,
};

/// A group of three, and ten packets that passed.
fn world() -> Switch {
    let mut switch = switch();
    switch.add_group(group(3)).expect("it makes sense");
    for psn in 0..10 {
        assert_eq!(pass(&mut switch, 0, &Says::write(psn).frame()).len(), 3);
    }
    switch
}

/// What the sender hears when a member speaks: PSN and syndrome; nobody else hears anything.
fn told(switch: &mut Switch, says: Says) -> Option<(u32, Syndrome)> {
    let out = pass(switch, 1, &says.frame());
    assert!(out.len() <= 1 && out.iter().all(|(port, _)| *port == 0), "{} frames", out.len());
    let (_, frame) = out.first()?;
    let packet = RocePacket::parse(frame).expect("a packet");
    assert_eq!(icrc::verify_shared(frame, &packet.layout), Ok(()));
    assert_eq!((packet.layout.addresses(frame), packet.bth.dest_qp), (Some((ip(1), ip(0))), SENDER_QP));
    Some((packet.bth.psn.value(), packet.ext.aeth?.syndrome))
}

#[test]
fn what_was_never_sent_is_acknowledged_to_nobody() {
    let mut switch = world();
    for psn in [10, 11, 0x7f_ffff, 0x40_0000] {
        for member in 1..=3 {
            for syndrome in [ACK, LOST, 0x61, 0x62, 0x63, 0x25] {
                assert_eq!(told(&mut switch, Says::answer(member, psn, syndrome)), None, "{psn:#x} {syndrome:#x}");
            }
        }
    }
    let report = report(&switch);
    assert_eq!((report.merged_psn, report.counters.acks_out), (Some(Psn::MAX), 0));
    assert_eq!(report.counters.bad, 4 * 3 * 6);
    assert_eq!((1..=3).filter_map(|m| told(&mut switch, Says::answer(m, 9, ACK))).last().map(|t| t.0), Some(9));
}

#[test]
fn a_member_that_is_ahead_by_a_lie_does_not_take_the_others_along() {
    let mut switch = world();
    // It says that it has all, and has nothing: nobody can know; but the group has no more than its last member.
    assert_eq!(told(&mut switch, Says::answer(2, 9, ACK)), None);
    assert_eq!(told(&mut switch, Says::answer(1, 4, ACK)), None);
    assert_eq!(told(&mut switch, Says::answer(3, 2, ACK)).map(|t| t.0), Some(2));
}

#[test]
fn the_sender_s_own_congestion_notifications_end_at_the_switch() {
    let mut switch = world();
    let cnp = Says { opcode: Opcode::CNP, psn: Psn::new(0), ..Says::write(0) };
    assert_eq!(pass(&mut switch, 0, &cnp.frame()).len(), 0);
    let report = report(&switch);
    assert_eq!((report.counters.packets_in, report.counters.bad, report.counters.cnps_in), (10, 0, 0));
}

#[test]
fn strangers_are_not_heard() {
    let mut switch = world();
    for says in [
        Says::answer(4, 3, ACK),
        Says { src: [192, 0, 2, 1].into(), ..Says::answer(1, 3, ACK) },
        Says::answer(4, 3, LOST),
        Says { src: ip(4), dst: ip(0), dst_mac: mac(0), ..CNP },
    ] {
        assert_eq!(pass(&mut switch, 4, &says.frame()), [], "{says:?}");
    }
    assert_eq!((report(&switch).counters.bad, report(&switch).counters.acks_in), (4, 0));
}

#[test]
fn a_member_of_one_group_says_nothing_in_another() {
    let mut switch = world();
    let mut other = group(4);
    other.mc_id = Qpn::new(0x8888);
    other.merge = Some(MergeSpec { qpn: Qpn::new(0x2222), psn: Psn::new(0) });
    other.receivers.remove(1);
    other.ranges.clear();
    switch.add_group(other).expect("it makes sense");
    let write = Says { dest_qp: Qpn::new(0x8888), opcode: Opcode::RC_SEND_ONLY, ..Says::write(0) };
    assert_eq!(pass(&mut switch, 0, &write.frame()).len(), 3);
    let to_other = |from| Says { dest_qp: Qpn::new(0x2222), ..Says::answer(from, 0, ACK) };
    assert_eq!(pass(&mut switch, 2, &to_other(2).frame()), [], "it is a member of the first alone");
    assert_eq!(pass(&mut switch, 4, &Says::answer(4, 0, ACK).frame()), [], "and this one of the second");
    assert_eq!(report(&switch).members.iter().filter(|m| m.last_heard.is_some()).count(), 0);
    let out: Vec<_> = [1, 3, 4].iter().flat_map(|&m| pass(&mut switch, m, &to_other(m).frame())).collect();
    assert_eq!(out.len(), 1, "all of the second have it");
    assert_eq!(report(&switch).merged_psn, Some(Psn::MAX), "and the first is where it was");
}

#[test]
fn a_storm_of_naks_is_one_nak() {
    let mut switch = world();
    let storm = |switch: &mut Switch| {
        let all = (0..3000).map(|n| Says::answer(1 + n as usize % 3, n / 3 % 10, LOST));
        all.filter_map(|says| told(switch, says)).collect::<Vec<_>>()
    };
    let first = storm(&mut switch);
    // Who says NAK 9 has all up to 8: the minimum moves as they go on, and each step may be told once.
    assert!(first.len() <= 10, "{} NAKs", first.len());
    assert_eq!(first.last(), Some(&(9, Syndrome::Nak(NakCode::PSN_SEQUENCE_ERROR))));
    assert_eq!(storm(&mut switch), [], "nothing was sent again");
    assert_eq!(report(&switch).counters.naks, 6000);
    pass(&mut switch, 0, &Says::write(9).frame());
    assert_eq!(storm(&mut switch).len(), 1);
}

#[test]
fn a_flood_of_cnps_brings_no_more_than_came_and_from_the_peer_alone() {
    let mut switch = world();
    for n in 0..2000 {
        let from = 1 + n % 3;
        let cnp = Says { src: ip(from), dst: ip(0), dst_mac: mac(0), ..CNP };
        let out = pass(&mut switch, from, &cnp.frame());
        assert_eq!(out.len(), 1);
        let packet = RocePacket::parse(&out[0].1).expect("a packet");
        assert_eq!(packet.layout.addresses(&out[0].1).map(|a| a.0), Some(ip(1)));
        assert_eq!(icrc::verify_shared(&out[0].1, &packet.layout), Ok(()));
    }
    let counters = report(&switch).counters;
    assert_eq!((counters.cnps_in, counters.cnps_out, counters.acks_in), (2000, 2000, 0));
    // What nobody takes away fills the queue of its port, and no more than that.
    let cnp = Says { src: ip(1), dst: ip(0), dst_mac: mac(0), ..CNP }.frame();
    for _ in 0..100_000 {
        softnic_wire::Node::handle_frame(&mut switch, softnic_wire::Instant::ZERO, 1, &mut cnp.clone());
    }
    assert!(switch.queued(0) <= 1 << 20, "{} bytes", switch.queued(0));
}

#[test]
fn writes_that_wrap_or_leave_their_range_touch_nobody_and_are_refused() {
    for (va, len) in [
        (VIRTUAL - 1, 1),
        (VIRTUAL + (1 << 16) - 1, 2),
        (VIRTUAL, (1 << 16) + 1),
        (u64::MAX, 2),
        (u64::MAX - 10, u32::MAX),
        (VIRTUAL, u32::MAX),
    ] {
        let mut switch = world();
        let write = Says { reth: Reth { va, rkey: KEY, len }, ..Says::write(10) };
        assert_eq!(pass(&mut switch, 0, &write.frame()), [], "nobody gets {va:#x}, {len}, and it is not yet its turn");
        assert_eq!(report(&switch).counters.refused, 1);
        let said: Vec<_> = (1..=3).filter_map(|m| told(&mut switch, Says::answer(m, 9, ACK))).collect();
        assert_eq!(said.last(), Some(&(10, Syndrome::Nak(NakCode::REMOTE_ACCESS_ERROR))));
    }
}

#[test]
fn lengths_that_disagree_are_copied_to_nobody() {
    let good = Says::write(10).frame();
    let udp = 14 + 20;
    let mut wrong = Vec::new();
    let with = |at: usize, value: u16| {
        let mut frame = good.clone();
        frame[at..at + 2].copy_from_slice(&value.to_be_bytes());
        frame
    };
    let (ip_len, udp_len) = ((good.len() - 14) as u16, (good.len() - udp) as u16);
    // Of IP, of UDP; and frames that end before either.
    wrong.extend([0, 19, 27, ip_len - 1, ip_len + 1, u16::MAX].map(|len| with(16, len)));
    wrong.extend([0, 7, 8, udp_len - 1, udp_len + 1, u16::MAX].map(|len| with(udp + 4, len)));
    wrong.extend((0..good.len()).map(|len| good[..len].to_vec()));
    let mut switch = world();
    for frame in wrong {
        let out = pass(&mut switch, 0, &frame);
        // What is not RoCE at all goes where its MAC address says, as it is; or nowhere.
        assert!(out.is_empty() || out == [(1, frame.clone())], "{} bytes", frame.len());
    }
    let counters = report(&switch).counters;
    assert_eq!((counters.packets_in, counters.copies), (10, 30));
    assert_eq!(pass(&mut switch, 0, &good).len(), 3, "and it goes on");
}

#[test]
fn a_damaged_packet_moves_nothing_and_stays_damaged() {
    let mut switch = world();
    for bit in 0..8 {
        let mut answer = Says::answer(1, 5, ACK).frame();
        let last = answer.len() - 5;
        answer[last] ^= 1 << bit;
        assert_eq!(pass(&mut switch, 1, &answer), []);
        let mut ahead = Says::write(12).frame();
        ahead[14 + 20 + 8 + 12 + 16] ^= 1 << bit;
        assert_eq!(pass(&mut switch, 0, &ahead), [], "it would say that all before it was sent");
        let mut next = Says::write(10).frame();
        next[14 + 20 + 8 + 12 + 16] ^= 1 << bit;
        for (_, frame) in pass(&mut switch, 0, &next) {
            let packet = RocePacket::parse(&frame).expect("a packet");
            assert!(icrc::verify_shared(&frame, &packet.layout).is_err(), "no switch makes it right");
        }
    }
    assert_eq!(report(&switch).members[0].acked_psn, Some(Psn::MAX));
}

#[test]
fn full_tables_refuse_and_what_is_there_goes_on() {
    let mut switch = world();
    let mut more = group(1);
    (more.merge, more.ranges) = (None, Vec::new());
    for n in 1..MAX_GROUPS as u32 {
        more.mc_id = Qpn::new(0x10_0000 + n);
        switch.add_group(more.clone()).expect("there is room");
    }
    more.mc_id = Qpn::new(0x9999);
    assert_eq!(switch.add_group(more.clone()), Err(GroupError::GroupsFull));
    assert_eq!(switch.fill(), Fill { groups: MAX_GROUPS, ranges: 3 });
    assert_eq!(pass(&mut switch, 0, &Says::write(10).frame()).len(), 3);
    assert_eq!((1..=3).filter_map(|m| told(&mut switch, Says::answer(m, 10, ACK))).last().map(|t| t.0), Some(10));
    // The refused one is nobody's group: its packets go to the one whose address they have.
    let unknown = Says { dest_qp: Qpn::new(0x9999), ..Says::write(0) }.frame();
    assert_eq!(pass(&mut switch, 0, &unknown), [(1, unknown.clone())]);
    switch.remove_group(ip(0), Qpn::new(0x10_0001)).expect("it is there");
    switch.add_group(more).expect("there is room again");
}

#[test]
fn frames_that_wait_before_one_port_leave_the_others_their_memory() {
    let mut switch = switch();
    switch.set_most_frames(1, 3);
    let frame = |to: usize| [&mac(to).0[..], &mac(0).0, &[0x08, 0x06], &[0; 46]].concat();
    for _ in 0..10 {
        switch.handle_frame(Instant::ZERO, 0, &mut frame(1));
        switch.handle_frame(Instant::ZERO, 0, &mut frame(2));
    }
    let waiting = |port| switch.queued(port) / 60;
    assert_eq!((waiting(1), switch.port_stats(1).dropped, waiting(2), switch.port_stats(2).dropped), (3, 7, 10, 0));
}

#[test]
fn groups_are_told_by_pages_of_their_table() {
    let mut switch = switch();
    for n in 0..5 {
        let merge = Some(MergeSpec { qpn: Qpn::new(0x100 + n), psn: Psn::new(0) });
        switch.add_group(GroupSpec { mc_id: Qpn::new(0x200 + n), merge, ..group(2) }).expect("another one");
    }
    switch.remove_group(ip(0), Qpn::new(0x201)).expect("it is there");
    let page = |from| {
        let (page, more) = switch.groups_page(Instant::ZERO, from, 2);
        (page.iter().map(|g| g.mc_id.value() - 0x200).collect::<Vec<_>>(), more)
    };
    assert_eq!([page(0), page(2), page(4)], [(vec![0], true), (vec![2, 3], true), (vec![4], false)]);
    assert_eq!(page(6), (vec![], false));
}

#[test]
fn a_sender_that_jumps_through_all_numbers_confuses_nobody() {
    let mut switch = world();
    for psn in [0x80_0008, 0xff_fffe, 0x40_0000, 0x7f_ffff, 9] {
        pass(&mut switch, 0, &Says::write(psn).frame());
        let report = report(&switch);
        assert!(report.members.iter().all(|m| m.behind.is_some_and(|behind| behind < 1 << 24)), "{report:?}");
    }
    assert_eq!((1..=3).filter_map(|m| told(&mut switch, Says::answer(m, 9, ACK))).last().map(|t| t.0), Some(9));
}

#[test]
fn frames_for_one_link_alone_are_not_forwarded() {
    let mut switch = world();
    for last in [0, 1, 2, 0x0e, 0x0f] {
        let frame = [&[0x01, 0x80, 0xc2, 0, 0, last][..], &mac(0).0, &[0x88, 0x08], &[0; 46]].concat();
        assert_eq!(pass(&mut switch, 0, &frame).len(), 0, "{last}");
    }
    assert_eq!(switch.counters().filtered, 5);
}
