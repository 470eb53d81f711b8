//! A peer without XP: the queue pair is RC or UC, says so, and takes no deadline that it would not keep.

use softnic_nic::transports::memory::{Access, Bind};
use softnic_nic::transports::negotiation::FallbackReason;
use softnic_nic::transports::qp::QpState;
use softnic_nic::transports::{Event, PostError};
use softnic_nic::{WindowType, next_key};

use super::*;

fn one_sided(settings: &str) -> Options {
    let options = options(settings);
    Options { offers: [options.offers[A], None], ..options }
}

#[test]
fn with_a_peer_that_has_no_xp_it_is_rc_or_uc() {
    for (settings, opcode) in [("", 0x04), ("uc", 0x24)] {
        let mut w = World::new(one_sided(settings));
        w.recv(B, 8, 0, 100);
        w.recv(A, 9, 4096, 100);
        // Posted while nobody knows.
        w.send(A, 1, SendOp::Send, 0, 50);
        w.run();
        let (qpn, peer) = (w.hosts[A].qpn, address(B).0);
        let fell_back = Event::FellBack(qpn, peer, FallbackReason::NothingInCommon);
        assert_eq!((w.events(A), w.received_status(B)), (vec![fell_back], vec![(8, Status::Success)]));
        w.send(B, 2, SendOp::Send, 0, 50);
        w.run();
        assert_eq!((w.received_status(A), w.sent_status(A)), (vec![(9, Status::Success)], vec![(1, Status::Success)]));
        w.recv(B, 10, 0, 100);
        w.send(A, 3, SendOp::Send, 0, 50);
        let frames = w.transmit(A);
        assert_eq!(w.parse(&frames[0]).bth.opcode.0, opcode);
        w.deliver_all(B, &frames);
        w.run();
        assert_eq!(w.sent_status(A), [(3, Status::Success)]);
    }
}

#[test]
fn a_deadline_that_nobody_would_keep_is_refused() {
    let mut w = World::new(one_sided(""));
    w.run();
    let (sges, work) = ([w.sge(A, 0, 10)], within(&w, 1000));
    let send = SendWr { best_effort: Some(&work), ..wr(1, SendOp::Send, Data::Gather(&sges)) };
    assert_eq!(w.post(A, &send), Err(PostError::NoDeadlines));
    let recv = RecvWr { wr_id: 1, sges: &sges, best_effort: Some(&work) };
    assert_eq!(w.post_recv(A, &recv), Err(PostError::NoDeadlines));
    assert_eq!(w.state(A), QpState::ReadyToSend);
}

/// It was taken before the peer had answered: the queue pair ends, and all work is flushed.
#[test]
fn work_with_a_deadline_ends_with_the_queue_pair_when_the_peer_turns_out_to_have_no_xp() {
    for recv in [false, true] {
        let mut w = World::new(one_sided(""));
        let (sges, work) = ([w.sge(A, 0, 10)], within(&w, 1_000_000_000));
        match recv {
            true => w.post_recv(A, &RecvWr { wr_id: 1, sges: &sges, best_effort: Some(&work) }).unwrap(),
            false => {
                w.post(A, &SendWr { best_effort: Some(&work), ..wr(1, SendOp::Send, Data::Gather(&sges)) }).unwrap()
            }
        }
        w.run();
        w.wait(1);
        w.run();
        assert_eq!(w.state(A), QpState::Error);
        let ended = if recv { w.received_status(A) } else { w.sent_status(A) };
        assert_eq!(ended, [(1, Status::WrFlushErr)]);
    }
}

/// The standard is taken until the first packet of XP has come; then it is not.
#[test]
fn of_the_two_one_is_spoken() {
    let mut w = World::new(options(""));
    w.recv(B, 1, 0, 100);
    w.recv(B, 2, 0, 100);
    let rc = w.forge(B, 0x04, 0, true, Default::default(), b"standard");
    w.deliver(B, &rc);
    assert_eq!(w.received_status(B), [(1, Status::Success)]);
    w.run();
    w.send(A, 1, SendOp::Send, 0, 100);
    w.run();
    assert_eq!(w.received_status(B), [(2, Status::Success)]);
    w.recv(B, 3, 0, 100);
    let rc = w.forge(B, 0x04, 1, true, Default::default(), b"standard");
    w.deliver(B, &rc);
    assert_eq!((w.received_status(B), w.counters(B).rx_malformed), (vec![], 1));
}

#[test]
fn a_link_too_narrow_for_its_packets_has_none_of_them() {
    let mut w = World::unconnected(options(""));
    w.hosts[A].nic.set_link_mtu(256 + 90);
    for h in [A, B] {
        w.modify(h, &init_attr(&w.options));
        let rtr = rtr_attr(&w.options, w.path(h), w.hosts[1 - h].qpn);
        w.modify(h, &rtr);
        w.modify(h, &rts_attr(&w.options));
    }
    w.run();
    let reason = FallbackReason::LinkMtu(256 + 100);
    assert_eq!(w.events(A), [Event::FellBack(w.hosts[A].qpn, address(B).0, reason)]);
}

/// It needs no packet, so it is carried out while nobody knows what the peer speaks.
#[test]
fn a_window_that_was_bound_before_the_peer_turned_out_to_have_no_xp_stays_bound() {
    let mut w = World::new(one_sided(""));
    let pd = w.hosts[A].pd;
    let window = w.hosts[A].nic.alloc_mw(pd, WindowType::Type1).unwrap();
    let (lkey, addr) = (w.hosts[A].key, w.hosts[A].buffer.addr());
    let rkey = next_key(window);
    let bind = Bind { window, rkey, lkey, addr, len: 100, access: Access::REMOTE_READ, zero_based: false };
    w.send(A, 1, SendOp::BindWindow(bind), 0, 0);
    assert_eq!(w.sent_status(A), [(1, Status::Success)]);
    w.recv(B, 2, 0, 100);
    w.send(A, 3, SendOp::Send, 0, 100);
    w.run();
    assert_eq!((w.received_status(B), w.sent_status(A)), (vec![(2, Status::Success)], vec![(3, Status::Success)]));
}
