//! Congestion control without acknowledgements: notifications for a rate, feedback for a window.

use softnic_nic::transports::congestion::{Dcqcn, DcqcnConfig, Fixed};
use softnic_wire::transit::mark_ce;

use super::*;

fn with_window(bytes: u64) -> World {
    let mut w = world();
    let host = &mut w.hosts[A];
    host.nic.set_congestion_control(host.qpn, Some(Box::new(Fixed::new(10_000_000_000_000, bytes)))).unwrap();
    w
}

/// Lets time pass in small steps until nothing more leaves: pacing lets a packet go at a time.
fn leave(w: &mut World) -> Vec<Vec<u8>> {
    let mut all = Vec::new();
    for _ in 0..200 {
        all.extend(w.transmit(A));
        w.wait(10);
    }
    all
}

#[test]
fn a_window_is_opened_by_feedback_and_a_lost_packet_needs_no_state() {
    let mut w = with_window(4 * 300);
    w.recv(B, 1, 0, 40 * MTU);
    w.send(A, 1, SendOp::Send, 0, 40 * MTU);
    let (mut came, mut rounds) = (0, 0);
    while sent(&mut w).is_empty() {
        let frames = leave(&mut w);
        assert!((1..=5).contains(&frames.len()), "{} at a time", frames.len());
        came += frames.len();
        rounds += 1;
        // The second of each is lost; the first one asks.
        frames.iter().enumerate().filter(|(i, _)| *i != 1).for_each(|(_, f)| w.deliver(B, f));
        let feedback = w.transmit(B);
        assert_eq!(feedback.len(), 1);
        w.deliver_all(A, &feedback);
    }
    assert_eq!(came, 40);
    assert!(rounds >= 10 && w.counters(A).xp_feedback_received >= 10);
    assert_eq!(w.counters(B).xp_feedback_sent, rounds);
}

#[test]
fn a_window_that_nothing_opens_lets_a_packet_pass_now_and_then() {
    let mut w = with_window(600);
    w.send(A, 1, SendOp::Send, 0, 40 * MTU);
    let first = leave(&mut w).len();
    let mut later = 0;
    for _ in 0..3 {
        w.wait(5_000_000);
        later += leave(&mut w).len();
    }
    assert_eq!((first, later), (2, 3));
}

#[test]
fn a_receiver_in_software_is_not_overrun() {
    // Without a limit all 1600 packets would leave at once, and the last messages would find no room at the receiver.
    let mut w = agreed(Options { limit_flight: true, buffer: 800 * MTU, ..options("") });
    for id in 1..=2 {
        w.recv(B, id, 0, 800 * MTU);
        w.send(A, id, SendOp::Send, 0, 800 * MTU);
    }
    let mut frames = w.transmit(A);
    // Go-Back-N has 512 outstanding; here headers count, too.
    assert!((400..=512).contains(&frames.len()), "{}", frames.len());
    let mut came = 0;
    while !frames.is_empty() {
        came += frames.len();
        w.deliver_all(B, &frames);
        let feedback = w.transmit(B);
        assert!(!feedback.is_empty() && feedback.len() <= 2 * frames.len().div_ceil(16), "{}", feedback.len());
        w.deliver_all(A, &feedback);
        frames = w.transmit(A);
    }
    assert_eq!((came, w.counters(B).xp_partial_messages), (1600, 0));
    assert_eq!(received(&mut w).len(), 2);
}

#[test]
fn without_a_window_nobody_asks_for_feedback() {
    let mut w = world();
    let host = &mut w.hosts[A];
    let dcqcn = Dcqcn::new(10_000_000_000, DcqcnConfig::default());
    host.nic.set_congestion_control(host.qpn, Some(Box::new(dcqcn))).unwrap();
    w.recv(B, 1, 0, 40 * MTU);
    w.send(A, 1, SendOp::Send, 0, 40 * MTU);
    let mut frames = Vec::new();
    while sent(&mut w).is_empty() {
        frames.extend(w.transmit(A));
        w.wait(100);
    }
    assert!(frames.iter().all(|f| !w.parse(f).bth.ack_req));
    frames.iter_mut().for_each(|f| assert!(mark_ce(f)));
    w.deliver_all(B, &frames);
    let answers = w.transmit(B);
    assert!(answers.len() == 1 && w.show(&answers)[0].starts_with("CNP"));
    w.deliver_all(A, &answers);
    assert_eq!(w.counters(A).rp_cnp_handled, 1);
}
