//! Datagrams to a group: from the wire to every member, and from a client to the wire and the other members.

use std::net::IpAddr;
use std::time::Instant;

use softnic_nic::QpKind;
use softnic_nic::transports::{Data, RecvWr, SendFlags, SendOp, SendWr, Status};
use softnic_runtime::api::{QpOptions, QueuePair};
use softnic_wire::Qpn;

use crate::veth::Veth;
use crate::world::{End, HALF, HERE, LIMIT, THERE, open, share, usual};

fn datagrams(end: &End) -> QueuePair {
    let qp = end.pd.create_qp(&QpOptions::new(QpKind::Ud, &end.cq)).unwrap();
    qp.open_datagrams(5).unwrap();
    qp
}

fn receive(end: &End, qp: &QueuePair) {
    qp.post_recv(&RecvWr { wr_id: 2, sges: &[end.mr.sge(HALF, HALF)], best_effort: None }).unwrap();
}

/// The length of the next datagram.
fn received(end: &End) -> usize {
    let begin = Instant::now();
    loop {
        if let Some(done) = end.cq.poll_one().unwrap() {
            assert_eq!(done.status, Status::Success);
            if done.wr_id == 2 {
                return done.byte_len as usize;
            }
        }
        assert!(begin.elapsed() < LIMIT, "no datagram: {:?}", end.context.counters());
    }
}

fn send(end: &End, qp: &QueuePair, group: IpAddr, len: usize) {
    let ah = end.pd.create_ah(&end.context.path_to(group, 1).unwrap()).unwrap();
    let (sges, to) = ([end.mr.sge(0, len)], Some(ah.to(Qpn::MULTICAST, 5)));
    let flags = SendFlags { signaled: true, ..SendFlags::default() };
    let wr = SendWr { wr_id: 1, op: SendOp::Send, data: Data::Gather(&sges), flags, best_effort: None, to };
    qp.post_send(&wr).unwrap();
    let begin = Instant::now();
    while end.cq.poll_one().unwrap().is_none() {
        assert!(begin.elapsed() < LIMIT, "it does not leave");
    }
}

#[test]
fn datagrams_to_a_group_reach_every_client_that_is_a_member_and_no_other() {
    for (mtu, len) in [(1500, 1000), (4200, 4000)] {
        let Some(veth) = Veth::new(1, mtu) else { return };
        let _daemon = share(&veth, usual(&veth)).unwrap();
        let peer = End::new(open(&veth, THERE, "afxdp").unwrap());
        let ends = [(); 3].map(|()| End::new(open(&veth, HERE, "shared").unwrap()));
        let from_peer = datagrams(&peer);
        let qps = ends.each_ref().map(datagrams);
        let group = IpAddr::from([239, 1, 2, 3]);
        veth.inside(THERE, || from_peer.attach_multicast(group)).unwrap();
        receive(&peer, &from_peer);
        for (end, qp) in ends.iter().zip(&qps).take(2) {
            veth.inside(HERE, || qp.attach_multicast(group)).unwrap();
            receive(end, qp);
        }
        send(&peer, &from_peer, group, len);
        assert_eq!(ends[..2].iter().map(received).collect::<Vec<_>>(), [len + 40; 2]);
        // A member itself gets what it sends, as its NIC hands it over, and so does everybody else.
        let _ = received(&peer);
        receive(&peer, &from_peer);
        ends[..2].iter().zip(&qps).for_each(|(end, qp)| receive(end, qp));
        send(&ends[2], &qps[2], group, len);
        assert_eq!(ends[..2].iter().map(received).collect::<Vec<_>>(), [len + 40; 2]);
        assert_eq!(received(&peer), len + 40);
        // The third was never one, and the first is none any more.
        qps[0].detach_multicast(group).unwrap();
        let before = ends.each_ref().map(|end| end.context.counters().rcvd_pkts);
        receive(&ends[1], &qps[1]);
        send(&peer, &from_peer, group, len);
        assert_eq!(received(&ends[1]), len + 40);
        let after = ends.each_ref().map(|end| end.context.counters().rcvd_pkts);
        assert_eq!((after[0], after[2]), (before[0], before[2]), "frames went to NICs that do not want any");
    }
}
