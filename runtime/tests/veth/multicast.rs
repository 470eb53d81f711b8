//! Datagrams to a group.

use std::net::IpAddr;

use softnic_nic::QpKind;
use softnic_nic::transports::{Data, SendOp, SendWr};
use softnic_runtime::api::MulticastError;
use softnic_wire::Qpn;

use crate::veth::left_out;
use crate::world::{World, send_wr};

fn groups(w: &World, group: IpAddr) {
    let [a, b] = &w.sides;
    let [sender, member] = w.queue_pairs(QpKind::Ud, |_| ());
    sender.open_datagrams(5).unwrap();
    member.open_datagrams(5).unwrap();
    let joined = || w.veth.ip(1, &format!("maddress show dev {}", w.veth.interface(1))).unwrap();
    assert!(!joined().contains(&group.to_string()));
    w.veth.inside(1, || member.attach_multicast(group)).unwrap();
    assert!(joined().contains(&group.to_string()), "the kernel is a member, too: {}", joined());
    let path = a.context.path_to(group, 1).unwrap();
    let ah = a.pd.create_ah(&path).unwrap();
    let send = |seed| {
        let data = a.fill(333, seed);
        let (sge, to) = ([a.mr.sge(0, 333)], Some(ah.to(Qpn::MULTICAST, 5)));
        sender.post_send(&SendWr { to, ..send_wr(1, SendOp::Send, Data::Gather(&sge)) }).unwrap();
        w.success(0, 1);
        data
    };
    for seed in 0..3 {
        b.clear();
        b.post_recv(&member, 2, 400);
        let data = send(seed);
        let got = w.success(1, 2);
        assert_eq!((got.byte_len, got.src_qp), (373, Some(sender.qpn())));
        assert!(b.received(373)[40..] == data);
    }
    member.detach_multicast(group).unwrap();
    assert!(!joined().contains(&group.to_string()), "{}", joined());
    // Nobody is a member any more: it is dropped and counted, by the kernel or by us.
    b.post_recv(&member, 3, 400);
    send(9);
    // What comes behind it would come after it.
    let qps = w.connected(QpKind::Rc, None);
    w.write_and_compare(&qps, 0, 64, 1);
    assert_eq!(b.cq.poll_one().unwrap(), None, "it left the group");
}

#[test]
fn a_member_hears_its_group_until_it_leaves() {
    let Some(veth) = crate::veth::Veth::new(1, 1500) else { return };
    let v6 = veth.add_ipv6();
    let w = World::on(veth, Default::default());
    groups(&w, [239, 1, 2, 3].into());
    match v6 {
        Ok(()) => groups(&w, "ff05::1:7".parse().unwrap()),
        Err(why) => left_out(&format!("IPv6: {why}")),
    }
}

#[test]
fn a_group_that_the_kernel_does_not_join_is_refused_and_not_heard() {
    let Some(veth) = crate::veth::Veth::new(1, 1500) else { return };
    let w = World::on(veth, Default::default());
    let [_, member] = w.queue_pairs(QpKind::Ud, |_| ());
    member.open_datagrams(5).unwrap();
    w.veth.ip(1, &format!("link delete {}", w.veth.interface(1))).unwrap();
    let group = [239, 1, 2, 3].into();
    let refused = w.veth.inside(1, || member.attach_multicast(group)).unwrap_err();
    assert!(matches!(refused, MulticastError::Kernel(_)), "{refused}");
    assert!(member.detach_multicast(group).is_err(), "it was never a member");
}
