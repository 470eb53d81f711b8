//! What the swarm of `softnic-swarm` found, packet by packet.

use crate::common::{A, B, Options, World, wr};
use softnic_nic::transports::qp::QpState;
use softnic_nic::transports::{Data, Event, SendOp, SendWr, Status};
use softnic_nic::{Nic, QpAttr, QpKind};
use softnic_wire::{Node, TxFrame};

/// One frame of `h` by a port, and no more.
fn transmit_one(w: &mut World, h: usize, port: usize) -> Option<Vec<u8>> {
    let mut buffer = vec![0; 4096 + 256];
    let mut tx = TxFrame::new(&mut buffer);
    w.hosts[h].nic.poll_transmit(w.now, port, &mut tx).then(|| tx.segments().0.to_vec())
}

/// A packet does not ask for an acknowledgement when the next one is about to leave and will. When the send queue is drained
/// between the two, the next one does not leave, and without anybody who asks the queue would never be drained.
#[test]
fn a_send_queue_drains_although_the_last_packet_before_it_asked_for_no_answer() {
    let mut w = World::new(Options::default());
    for wr_id in [1, 2] {
        let op = w.write_to(B, 1000 * wr_id as usize);
        w.send(A, wr_id, op, 0, 10);
    }
    let first = transmit_one(&mut w, A, Nic::WIRE).unwrap();
    assert_eq!(w.show(std::slice::from_ref(&first)), ["RDMA_WRITE_ONLY +0"]);
    w.deliver(B, &first);
    w.modify(A, &QpAttr { state: Some(QpState::SendQueueDrain), sqd_notify: Some(true), ..QpAttr::default() });
    assert_eq!(w.hosts[A].nic.poll_event(), None, "the first WRITE is unanswered");
    let again = w.transmit(A);
    assert_eq!(w.show(&again), ["RDMA_WRITE_ONLY +0 A"], "the packet again, and now it asks; the second WRITE waits");
    w.deliver_all(B, &again);
    w.run();
    assert_eq!(w.sent_status(A), [(1, Status::Success)]);
    assert_eq!(w.hosts[A].nic.poll_event(), Some(Event::SqDrained(w.hosts[A].qpn)));
    w.modify(A, &QpAttr { state: Some(QpState::ReadyToSend), ..QpAttr::default() });
    w.run();
    assert_eq!(w.sent_status(A), [(2, Status::Success)]);
}

/// Whose turn it is may send several short packets in a row. A datagram that is posted in between, to the NIC itself, must not
/// leave by the wire because the one before did.
#[test]
fn a_datagram_posted_while_its_queue_pair_has_its_turn_leaves_by_its_own_port() {
    let mut w = World::new(Options { kind: QpKind::Ud, ..Options::default() });
    let (to_peer, to_self) = (w.datagram(A, B), w.datagram(A, A));
    for (to, port, other) in [(to_peer, Nic::WIRE, Nic::LOOPBACK), (to_self, Nic::LOOPBACK, Nic::WIRE)].repeat(2) {
        w.post(A, &SendWr { to: Some(to), ..wr(1, SendOp::Send, Data::Inline(b"short")) }).unwrap();
        assert_eq!(transmit_one(&mut w, A, other), None, "not by port {other}");
        assert!(transmit_one(&mut w, A, port).is_some(), "by port {port}");
    }
}
