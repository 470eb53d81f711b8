//! What the swarm of `softnic-sim` found, packet by packet.

mod common;

use common::{A, B, Options, World};
use softnic_nic::transports::qp::QpState;
use softnic_nic::transports::{Event, Status};
use softnic_nic::{Node, QpAttr};
use softnic_wire::TxFrame;

/// One frame of `h`, and no more.
fn transmit_one(w: &mut World, h: usize) -> Vec<u8> {
    let mut buffer = vec![0; 4096 + 256];
    let mut tx = TxFrame::new(&mut buffer);
    assert!(w.hosts[h].nic.poll_transmit(w.now, 0, &mut tx), "a frame is due");
    tx.segments().0.to_vec()
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
    let first = transmit_one(&mut w, A);
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
