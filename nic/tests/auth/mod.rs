//! Authenticated connections: what they carry, what an attacker who knows everything but the secret can do, and whom they refuse.

mod attacks;
mod faults;
mod refusals;

use softnic_nic::transports::negotiation::Choice;
use softnic_nic::transports::{SendOp, Status, Transport};
use softnic_wire::{Layout, Psn, RocePacket};

use crate::common::*;

/// Bytes of the trailer.
const TRAILER: usize = 24;

/// All that have authentication.
const TRANSPORTS: [Transport; 3] = [Transport::Rc, Transport::SR, Transport::LOWAR];

fn options(transport: Transport) -> Options {
    Options { offers: [Some(transport); 2], secrets: [Some(7); 2], ..Options::default() }
}

/// Two hosts that agreed.
fn world(options: Options) -> World {
    let mut w = World::new(options);
    w.run();
    for h in [A, B] {
        assert_eq!(w.hosts[h].nic.choice(w.hosts[h].qpn), Some(Choice::Agreed));
        assert_eq!((w.counters(h).rx_auth_failed, w.events(h)), (0, vec![]));
    }
    w
}

/// The epoch of a sealed frame.
fn epoch(frame: &[u8]) -> u64 {
    let at = Layout::locate(frame).unwrap().end - 4 - TRAILER;
    u64::from_be_bytes(frame[at..at + 8].try_into().unwrap())
}

/// The frame without its trailer, right in all else.
fn stripped(frame: &[u8]) -> Vec<u8> {
    let mut frame = frame.to_vec();
    let layout = Layout::locate(&frame).unwrap();
    layout.set_end(&mut frame, layout.end - TRAILER);
    frame.truncate(layout.end - TRAILER);
    resign(&mut frame);
    frame
}

#[test]
fn every_operation_works_over_every_transport_and_address_with_the_psn_wrapping() {
    for (n, transport) in TRANSPORTS.into_iter().cycle().take(12).enumerate() {
        let (psn, ipv6) = (FIRST_PSNS[n % 4], n % 2 == 1);
        let mut w = world(Options { psn, ipv6, ..options(transport) });
        w.fill(A, 0, &pattern(1, 10_000));
        w.fill(B, 20_000, &pattern(2, 10_000));
        w.fill(B, 60_000, &7u64.to_ne_bytes());
        w.recv(B, 50, 40_000, 10_000);
        w.send(A, 1, w.write_to(B, 0), 0, 10_000);
        w.send(A, 2, SendOp::Send, 0, 9_999);
        w.send(A, 3, w.read_from(B, 20_000), 20_000, 10_000);
        w.send(A, 4, w.add_to(B, 60_000, 5), 60_000, 8);
        w.settle(1000);
        assert_eq!(w.sent_status(A), [1, 2, 3, 4].map(|id| (id, Status::Success)), "{transport}");
        assert_eq!(w.received_status(B), [(50, Status::Success)]);
        assert_eq!(w.read(B, 0, 10_000), pattern(1, 10_000));
        assert_eq!(w.read(B, 40_000, 9_999), pattern(1, 9_999));
        assert_eq!(w.read(A, 20_000, 10_000), pattern(2, 10_000));
        assert_eq!(
            (w.read(A, 60_000, 8), w.read(B, 60_000, 8)),
            (7u64.to_ne_bytes().into(), 12u64.to_ne_bytes().into())
        );
        for h in [A, B] {
            let c = w.counters(h);
            assert_eq!(c.rx_auth_failed + c.rx_auth_replayed + c.rx_malformed + c.lowar_rejected, 0, "{transport}");
        }
    }
}

#[test]
fn a_frame_in_two_pieces_is_sealed_as_a_whole() {
    let mut w = world(Options { mtu: softnic_wire::PathMtu::B4096, ..options(Transport::Rc) });
    w.fill(A, 0, &pattern(1, 8192));
    w.send(A, 1, w.write_to(B, 0), 0, 8192);
    let frames = w.transmit_split(A);
    assert_eq!(frames.len(), 2);
    w.deliver_all(B, &frames);
    w.run();
    assert_eq!((w.sent_status(A), w.read(B, 0, 8192)), (vec![(1, Status::Success)], pattern(1, 8192)));
}

#[test]
fn what_is_sent_again_has_another_epoch() {
    for transport in TRANSPORTS {
        let mut w = world(options(transport));
        w.send(A, 1, w.write_to(B, 0), 0, 100);
        let mut seen = Vec::new();
        for _ in 0..3 {
            let frames = w.transmit(A);
            let psn = |f: &Vec<u8>| RocePacket::parse(f).unwrap().bth.psn;
            seen.extend(frames.iter().filter(|f| psn(f) == Psn::new(100)).map(|f| epoch(f)));
            w.wait_for_timer(A);
        }
        assert!(seen.len() >= 2 && seen.windows(2).all(|w| w[0] < w[1]), "{transport}: {seen:?}");
        w.settle(1000);
        assert_eq!(w.sent_status(A), [(1, Status::Success)], "{transport}");
    }
}

#[test]
fn another_life_of_the_queue_pair_has_other_keys() {
    let mut w = world(options(Transport::Rc));
    let op = w.write_to(B, 0);
    w.send(A, 1, op, 0, 100);
    let old = w.transmit(A);
    for h in [A, B] {
        w.modify(h, &to_state(softnic_nic::transports::qp::QpState::Reset));
    }
    for h in [A, B] {
        let rtr = rtr_attr(&w.options, w.path(h), w.hosts[1 - h].qpn);
        for attr in [init_attr(&w.options), rtr, rts_attr(&w.options)] {
            w.modify(h, &attr);
        }
    }
    w.run();
    w.deliver_all(B, &old);
    assert_eq!((w.counters(B).rx_auth_failed, w.read(B, 0, 100)), (1, vec![UNTOUCHED; 100]));
    w.fill(A, 0, &pattern(3, 100));
    w.send(A, 2, op, 0, 100);
    w.run();
    assert_eq!((w.sent_status(A), w.read(B, 0, 100)), (vec![(2, Status::Success)], pattern(3, 100)));
}
