//! Keys that are invalidated, here by LOCAL_INV or by the peer's SEND.

use softnic_nic::transports::qp::QpState;
use softnic_nic::transports::{Data, Event, SendFlags, SendOp, SendWr, Status, Transport};
use softnic_nic::{MrError, QpKind, WindowType};

use super::{OK, SIGNALED, at, bind_of, bound, local, window, write};
use crate::common::*;

#[test]
fn invalidated_here_a_key_is_dead_and_the_window_can_be_bound_again() {
    let (mut w, key) = bound(WindowType::Type2B, |_| {});
    let to = at(&w, 1000);
    assert_eq!(write(&mut w, to, key, 10), OK);
    assert_eq!(local(&mut w, SendOp::LocalInv { rkey: key }), OK);
    let again = bind_of(&w, key);
    assert_eq!(local(&mut w, SendOp::BindWindow(again)), OK);
    assert_eq!(write(&mut w, to, again.rkey, 10), OK);
    assert_eq!(local(&mut w, SendOp::LocalInv { rkey: again.rkey }), OK);
    assert_eq!(write(&mut w, to, again.rkey, 10), Status::RemAccessErr);
}

#[test]
fn invalidated_by_the_peer_a_key_is_dead_and_the_receive_says_which() {
    for len in [0, 10, 700] {
        each_psn(Options::default(), |mut w| {
            let mw = window(&mut w, WindowType::Type2B);
            let bind = bind_of(&w, mw);
            assert_eq!(local(&mut w, SendOp::BindWindow(bind)), OK);
            w.recv(B, 50, 20_000, 700);
            w.send(A, 1, SendOp::SendInv { rkey: bind.rkey }, 0, len);
            let frames = w.transmit(A);
            let last = w.parse(frames.last().unwrap());
            assert_eq!(last.ext.ieth, Some(bind.rkey));
            // Twice: a duplicate takes nothing away a second time.
            w.deliver_all(B, &frames);
            w.deliver_all(B, &frames);
            w.run();
            assert_eq!(w.sent_status(A), [(1, OK)], "{len} bytes");
            let got = w.received(B);
            assert_eq!((got.len(), got[0].wr_id, got[0].invalidated), (1, 50, Some(bind.rkey)), "{len} bytes");
            assert_eq!(got[0].byte_len as usize, len);
            let again = bind_of(&w, bind.rkey);
            assert_eq!(local(&mut w, SendOp::BindWindow(again)), OK);
            let to = at(&w, 1000);
            assert_eq!(write(&mut w, to, bind.rkey, 1), Status::RemAccessErr, "the old key");
        });
    }
}

#[test]
fn a_send_without_a_receive_invalidates_nothing_before_it_arrives() {
    let (mut w, rkey) = bound(WindowType::Type2B, |_| {});
    w.send(A, 1, SendOp::SendInv { rkey }, 0, 10);
    w.run();
    assert_eq!((w.counters(B).out_of_buffer, w.sent(A).len()), (1, 0));
    assert_eq!(w.hosts[B].nic.dereg_mr(w.hosts[B].key), Err(MrError::Busy), "still bound");
    w.recv(B, 50, 20_000, 10);
    w.wait_for_timer(A);
    w.run();
    assert_eq!((w.sent_status(A), w.received(B)[0].invalidated), (vec![(1, OK)], Some(rkey)));
    assert_eq!(w.hosts[B].nic.dereg_mr(w.hosts[B].key), Ok(()));
}

#[test]
fn a_key_that_the_peer_may_not_invalidate_stops_the_queue_pair_without_a_nak() {
    // A region, a window of type 1, nothing at all, a free window, one of another queue pair; each over both kinds of recovery.
    for (case, sr) in (0..5).flat_map(|case| [(case, false), (case, true)]) {
        let offers = [sr.then_some(Transport::Sr { window: 256 }); 2];
        let mut w = World::new(Options { offers, ..Options::default() });
        w.run();
        let kind = if case == 1 { WindowType::Type1 } else { WindowType::Type2B };
        let mw = window(&mut w, kind);
        let bind = bind_of(&w, mw);
        let rkey = match case {
            0 => w.hosts[B].key,
            1 => {
                assert_eq!(local(&mut w, SendOp::BindWindow(bind)), OK);
                bind.rkey
            }
            2 => mw ^ 0x100,
            3 => mw,
            _ => {
                let [_, b] = w.another_pair(QpKind::Rc, [A, B]);
                w.post_on(B, b, &wr(1, SendOp::BindWindow(bind), Data::Gather(&[]))).unwrap();
                w.run();
                assert_eq!(w.all_sent(B), [(b, 1, OK)]);
                bind.rkey
            }
        };
        w.recv(B, 50, 20_000, 10);
        w.recv(B, 51, 20_000, 10);
        w.send(A, 1, SendOp::SendInv { rkey }, 0, 10);
        let frames = w.transmit(A);
        w.deliver_all(B, &frames);
        assert!(w.transmit(B).is_empty(), "case {case}: class J of IBA 9.9.2.4");
        while w.wait_for_timer(A).is_some() {
            w.run();
        }
        assert_eq!(w.sent_status(A), [(1, Status::RetryExcErr)], "case {case}");
        assert_eq!(w.received_status(B), [(50, Status::RemInvReqErr), (51, Status::WrFlushErr)], "case {case}");
        assert_eq!((w.state(A), w.state(B)), (QpState::Error, QpState::Error));
        assert!(w.events(B).is_empty(), "the receive tells of it");
    }
}

#[test]
fn what_cannot_be_invalidated_here_fails_and_stops_the_connection() {
    for case in 0..4 {
        let mut w = World::new(Options::default());
        let kind = if case == 1 { WindowType::Type1 } else { WindowType::Type2B };
        let mw = window(&mut w, kind);
        let rkey = [w.hosts[B].key, mw, mw, 0x1234][case];
        if case == 1 {
            let bind = bind_of(&w, mw);
            assert_eq!(local(&mut w, SendOp::BindWindow(bind)), OK);
        }
        assert_eq!(local(&mut w, SendOp::LocalInv { rkey }), Status::MwBindErr, "case {case}");
        assert_eq!(w.state(B), QpState::Error);
    }
}

#[test]
fn a_fence_keeps_the_key_alive_until_the_read_before_it_is_done() {
    for fence in [false, true] {
        let (mut w, rkey) = bound(WindowType::Type2B, |_| {});
        w.recv(B, 50, 20_000, 10);
        let remote_addr = at(&w, 1000);
        w.send(A, 1, SendOp::Read { remote_addr, rkey }, 0, 700);
        let flags = SendFlags { fence, ..SIGNALED };
        w.post(A, &SendWr { flags, ..wr(2, SendOp::SendInv { rkey }, Data::Inline(b"x")) }).unwrap();
        w.run();
        // Without it the key is gone before the responses leave (IBA 10.8.3.3: the program must ask for the order).
        let expected = if fence { [(1, OK), (2, OK)] } else { [(1, Status::RemAccessErr), (2, Status::WrFlushErr)] };
        assert_eq!(w.sent_status(A), expected, "fence {fence}");
        assert_eq!(w.received(B)[0].invalidated, Some(rkey));
        let told: Vec<Event> = std::iter::from_fn(|| w.hosts[B].nic.poll_event()).collect();
        let (state, events) = if fence {
            (QpState::ReadyToSend, vec![])
        } else {
            (QpState::Error, vec![Event::QpAccessErr(w.hosts[B].qpn)])
        };
        assert_eq!(
            (w.state(B), told),
            (state, events),
            "what the peer may not read stops the queue pair, fence {fence}"
        );
    }
}
