//! NICs with two wire ports: which port a queue pair's frames take, and what a link that is down stops.

use softnic_nic::transports::{SendOp, Status};
use softnic_nic::{AddressAttr, Connection, ModifyError, Nic, Port, QpInit, QpKind};
use softnic_wire::{MacAddr, Node, PathMtu, Psn, Qpn, TxFrame};

use crate::common::*;

const SECOND: usize = Nic::WIRE + 1;

fn second_address(host: usize) -> (std::net::IpAddr, MacAddr) {
    let n = host as u8 + 1;
    ([10, 0, 1, n].into(), MacAddr([2, 0, 0, 1, 0, n]))
}

/// Two hosts with two ports each, and a connection of queue pairs of their own on the second ports.
fn world() -> (World, [Qpn; 2]) {
    let mut w = World::new(Options::default());
    for h in [A, B] {
        let (ip, mac) = second_address(h);
        let number = w.hosts[h].nic.add_port(Port { mac, addresses: vec![ip], mtu: PathMtu::B1024 });
        assert_eq!((number, w.hosts[h].nic.ports()), (SECOND, 2));
    }
    let qpns = [A, B].map(|h| {
        let Host { pd, send_cq, recv_cq, .. } = w.hosts[h];
        w.hosts[h].nic.create_qp(&QpInit::new(QpKind::Rc, pd, send_cq, recv_cq, w.options.caps)).unwrap()
    });
    for h in [A, B] {
        let (ip, mac) = second_address(1 - h);
        let path = w.hosts[h].nic.path_from(SECOND, ip, mac, 7);
        let (sq_psn, rq_psn) = (Psn::new(h as u32), Psn::new(1 - h as u32));
        let connection =
            Connection { port: 2, path, dest_qp: qpns[1 - h], timeout: 10, sq_psn, rq_psn, ..Connection::default() };
        w.hosts[h].nic.connect(qpns[h], &connection).unwrap();
    }
    (w, qpns)
}

/// Carries what the hosts send by a port to the same port of the other one; how many frames there were.
fn carry(w: &mut World, port: usize) -> usize {
    let mut frames = 0;
    loop {
        let before = frames;
        for h in [A, B] {
            let mut buffer = [0; 2048];
            let mut tx = TxFrame::new(&mut buffer);
            while w.hosts[h].nic.poll_transmit(w.now, port, &mut tx) {
                let len = tx.segments().0.len();
                w.hosts[1 - h].nic.handle_frame(w.now, port, &mut buffer[..len]);
                frames += 1;
                tx = TxFrame::new(&mut buffer);
            }
        }
        if frames == before {
            return frames;
        }
    }
}

/// A WRITE on the connection of the second ports.
fn write(w: &mut World, qpn: Qpn, wr_id: u64) {
    let op = w.write_to(B, 0);
    w.send_on(A, qpn, wr_id, op, 0, 100);
}

/// The sends of A that completed, on whichever queue pair.
fn sent(w: &mut World) -> Vec<(u64, Status)> {
    w.all_sent(A).into_iter().map(|(_, wr_id, status)| (wr_id, status)).collect()
}

#[test]
fn a_queue_pair_s_frames_take_the_port_that_it_was_given() {
    let (mut w, [a, _]) = world();
    write(&mut w, a, 1);
    assert_eq!(carry(&mut w, Nic::WIRE), 0, "nothing of it is on the first wire");
    assert_eq!(carry(&mut w, SECOND), 2, "a packet and its acknowledgement");
    assert_eq!(sent(&mut w), [(1, Status::Success)]);
}

#[test]
fn a_frame_that_comes_in_by_another_port_is_not_taken() {
    let (mut w, [a, _]) = world();
    write(&mut w, a, 1);
    let mut buffer = [0; 2048];
    let mut tx = TxFrame::new(&mut buffer);
    assert!(w.hosts[A].nic.poll_transmit(w.now, SECOND, &mut tx));
    let len = tx.segments().0.len();
    w.hosts[B].nic.handle_frame(w.now, Nic::WIRE, &mut buffer[..len]);
    assert_eq!(w.counters(B).rx_not_for_us, 1);
    w.hosts[B].nic.handle_frame(w.now, SECOND, &mut buffer[..len]);
    assert_eq!(w.counters(B).rx_write_requests, 1);
}

#[test]
fn a_link_that_is_down_stops_its_own_port_alone() {
    let (mut w, [a, _]) = world();
    w.hosts[A].nic.set_link_of(SECOND, false);
    write(&mut w, a, 1);
    let first = w.write_to(B, 0);
    w.send(A, 2, first, 0, 100);
    assert_eq!((carry(&mut w, SECOND), carry(&mut w, Nic::WIRE)), (0, 2));
    assert_eq!(sent(&mut w), [(2, Status::Success)]);
    w.hosts[A].nic.set_link_of(SECOND, true);
    assert_eq!(carry(&mut w, SECOND), 2);
    assert_eq!(sent(&mut w), [(1, Status::Success)]);
}

#[test]
fn ports_that_are_not_there_and_addresses_of_another_port_are_refused() {
    let (mut w, _) = world();
    let Host { pd, send_cq, recv_cq, .. } = w.hosts[A];
    let nic = &mut w.hosts[A].nic;
    let qpn = nic.create_qp(&QpInit::new(QpKind::Rc, pd, send_cq, recv_cq, w.options.caps)).unwrap();
    let (ip, mac) = second_address(B);
    let path = nic.path_from(SECOND, ip, mac, 7);
    for (port, error) in [(3, ModifyError::Range("port")), (0, ModifyError::Range("port"))] {
        assert_eq!(nic.connect(qpn, &Connection { port, path, ..Connection::default() }), Err(error));
    }
    let wrong = Connection { port: 1, path, ..Connection::default() };
    assert_eq!(nic.connect(qpn, &wrong), Err(ModifyError::NotOurAddress));
    let attr = AddressAttr { port: 3, ..AddressAttr::new(ip, mac, 0, 1) };
    assert!(nic.create_ah(pd, &attr).is_err());
}

#[test]
fn the_two_ports_of_a_nic_reach_each_other_by_loopback() {
    let (mut w, _) = world();
    let Host { pd, send_cq, recv_cq, .. } = w.hosts[A];
    let nic = &mut w.hosts[A].nic;
    let caps = w.options.caps;
    let qpns = [1, 2].map(|_| nic.create_qp(&QpInit::new(QpKind::Rc, pd, send_cq, recv_cq, caps)).unwrap());
    for (i, port) in [(0, 1), (1, 2)] {
        let (ip, mac) = if port == 1 { second_address(A) } else { address(A) };
        let path = nic.path_from(usize::from(port), ip, mac, 3);
        let connection = Connection { port, path, dest_qp: qpns[1 - i], ..Connection::default() };
        nic.connect(qpns[i], &connection).unwrap();
    }
    let op = SendOp::Write { remote_addr: w.hosts[A].buffer.addr(), rkey: w.hosts[A].key };
    w.send_on(A, qpns[0], 5, op, 0, 64);
    assert_eq!((carry(&mut w, Nic::WIRE), carry(&mut w, SECOND)), (0, 0));
    assert!(w.hosts[A].nic.loop_back(w.now));
    assert_eq!(sent(&mut w), [(5, Status::Success)]);
}
