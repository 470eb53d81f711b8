//! Somebody who knows addresses, queue pair numbers, PSNs and rkeys, and has recorded every packet, but not the secret.

use softnic_nic::transports::negotiation::vendor::{Extensions, Kind, Negotiation, Settings, VERSION};
use softnic_nic::transports::negotiation::{Choice, write};
use softnic_nic::transports::qp::QpState;
use softnic_nic::transports::{Counters, Misfits, SendOp, Status, Transport};
use softnic_wire::ext::Reth;
use softnic_wire::mad::{self, MAD_LEN};
use softnic_wire::sr::SrSettings;
use softnic_wire::{ExtHeaders, Node, Qpn, Template, TxFrame, bth};

use super::{TRAILER, TRANSPORTS, options, stripped, world};
use crate::common::*;

/// A forged frame with and without bytes where the trailer must be: zeros, and that of a packet that was seen.
fn dressed(frame: &[u8], seen: &[u8]) -> [Vec<u8>; 3] {
    let with = |trailer: &[u8]| {
        let mut frame = frame.to_vec();
        let layout = softnic_wire::Layout::locate(&frame).unwrap();
        frame.splice(layout.end - 4..layout.end - 4, trailer.iter().copied());
        layout.set_end(&mut frame, layout.end + TRAILER);
        resign(&mut frame);
        frame
    };
    let at = softnic_wire::Layout::locate(seen).unwrap().end - 4 - TRAILER;
    let mut later = seen[at..at + TRAILER].to_vec();
    later[7] = later[7].wrapping_add(100);
    [frame.to_vec(), with(&[0; TRAILER]), with(&later)]
}

/// All that a packet could have moved.
fn picture(w: &World, h: usize) -> (QpState, Vec<u8>, Option<softnic_wire::Instant>, Counters) {
    let c = w.counters(h);
    let unmoved = Counters { rcvd_pkts: 0, rcvd_bytes: 0, rx_auth_failed: 0, rx_auth_replayed: 0, ..c };
    (w.state(h), w.read(h, 0, BUFFER), w.hosts[h].nic.poll_timeout(), unmoved)
}

/// Delivers frames that must do nothing but be counted, and are answered by nothing.
fn assert_without_effect(w: &mut World, h: usize, frames: &[Vec<u8>], name: &str) {
    let before = picture(w, h);
    let count = |w: &World| w.counters(h).rx_auth_failed + w.counters(h).rx_auth_replayed;
    let misfits = |w: &World| w.hosts[h].nic.misfits().map(|(_, m)| m).next().unwrap_or_default();
    let (counted, of_qp) = (count(w), misfits(w));
    for frame in frames {
        w.deliver(h, frame);
        assert!(w.shown(h).is_empty(), "{name}: no answer");
        assert!(w.sent(h).is_empty() && w.received(h).is_empty() && w.events(h).is_empty(), "{name}");
    }
    let n = frames.len() as u64;
    assert_eq!(count(w), counted + n, "{name}: counted");
    assert_eq!(misfits(w), Misfits { tag: of_qp.tag + n, ..of_qp }, "{name}: for the queue pair, too");
    assert!(picture(w, h) == before, "{name}: {before:?}");
}

/// A has a WRITE, a READ and a SEND outstanding, none of which has reached B; and the frames in which they are.
fn outstanding(transport: Transport) -> (World, Vec<Vec<u8>>) {
    let mut w = world(options(transport));
    w.recv(B, 50, 40_000, 1000);
    w.fill(A, 0, &pattern(1, 1000));
    w.send(A, 1, w.write_to(B, 0), 0, 300);
    w.send(A, 2, w.read_from(B, 20_000), 20_000, 300);
    w.send(A, 3, SendOp::Send, 0, 300);
    let frames = w.transmit(A);
    assert!(frames.len() >= 5, "{transport}");
    (w, frames)
}

/// What was outstanding goes on as if nothing had happened.
fn assert_goes_on(mut w: World, frames: &[Vec<u8>]) {
    w.deliver_all(B, frames);
    w.settle(1000);
    assert_eq!(w.sent_status(A), [1, 2, 3].map(|id| (id, Status::Success)));
    assert_eq!(w.received_status(B), [(50, Status::Success)]);
    assert_eq!((w.read(B, 0, 300), w.read(B, 40_000, 300)), (pattern(1, 300), pattern(1, 300)));
}

#[test]
fn forged_acks_naks_writes_reads_and_cnps_have_no_effect_and_are_counted() {
    for transport in TRANSPORTS {
        let (mut w, frames) = outstanding(transport);
        let reth = Reth { va: w.hosts[B].buffer.addr(), rkey: w.hosts[B].key, len: 4 };
        let with_reth = ExtHeaders { reth: Some(reth), ..ExtHeaders::default() };
        let to_b = [
            ("WRITE", w.forge(B, 0x0a, 0, true, with_reth, b"evil")),
            ("READ", w.forge(B, 0x0c, 0, true, with_reth, &[])),
            ("SEND", w.forge(B, 0x04, 0, true, ExtHeaders::default(), b"evil")),
            ("CNP", w.forge(B, 0x81, 0, false, ExtHeaders::default(), &[0; 16])),
            ("repair", w.forge(B, 0x1f, 0, false, ExtHeaders::default(), &[1; 60])),
        ];
        let to_a = [
            ("ACK", w.forge_aeth(A, 1, 0x1f, 1)),
            ("NAK of the sequence", w.forge_aeth(A, 0, 0x60, 0)),
            ("NAK that ends it", w.forge_aeth(A, 0, 0x62, 0)),
            ("RNR NAK", w.forge_aeth(A, 0, 0x20, 0)),
            ("CNP", w.forge(A, 0x81, 0, false, ExtHeaders::default(), &[0; 16])),
        ];
        for (h, forged) in [(B, &to_b), (A, &to_a)] {
            for (name, frame) in forged {
                assert_without_effect(&mut w, h, &dressed(frame, &frames[0]), &format!("{transport}: {name}"));
            }
        }
        // The genuine ones, without their tags.
        let plain: Vec<_> = frames.iter().map(|f| stripped(f)).collect();
        assert_without_effect(&mut w, B, &plain, "without a trailer");
        assert_goes_on(w, &frames);
    }
}

#[test]
fn a_genuine_packet_with_other_content_or_to_the_other_end_has_no_effect() {
    for transport in TRANSPORTS {
        let (mut w, frames) = outstanding(transport);
        let mut changed = frames.clone();
        for frame in &mut changed {
            // The last byte before the trailer: of the payload, or of a header.
            let at = frame.len() - 4 - TRAILER - 1;
            frame[at] ^= 1;
            resign(frame);
        }
        assert_without_effect(&mut w, B, &changed, &format!("{transport}: changed"));
        // Its own packets, sent back to A as if they were B's.
        let template = Template::new(&w.path(B), w.hosts[A].qpn, bth::DEFAULT_PKEY);
        let bounced: Vec<_> = frames.iter().map(|f| bounced(&w, &template, f)).collect();
        assert_without_effect(&mut w, A, &bounced, &format!("{transport}: reflected"));
        assert_goes_on(w, &frames);
    }
}

/// A frame of the other direction with everything from the BTH's opcode to its trailer as in `frame`.
fn bounced(w: &World, template: &Template, frame: &[u8]) -> Vec<u8> {
    let at = softnic_wire::Layout::locate(frame).unwrap();
    let mut made = w.forge_with(template, 0x04, 0, false, ExtHeaders::default(), &frame[at.bth + 12..at.end - 4]);
    let bth = softnic_wire::Layout::locate(&made).unwrap().bth;
    made[bth..bth + 5].copy_from_slice(&frame[at.bth..at.bth + 5]);
    made[bth + 8..bth + 12].copy_from_slice(&frame[at.bth + 8..at.bth + 12]);
    resign(&mut made);
    made
}

#[test]
fn replayed_packets_have_no_effect_and_are_counted() {
    for transport in TRANSPORTS {
        let (mut w, frames) = outstanding(transport);
        w.deliver_all(B, &frames);
        let answers = w.transmit(B);
        w.deliver_all(A, &answers);
        w.settle(1000);
        assert_eq!(w.sent_status(A).len(), 3, "{transport}");
        w.received(B);
        w.fill(B, 0, &[0x11; 300]);
        w.recv(B, 51, 50_000, 1000);
        assert_without_effect(&mut w, B, &frames, &format!("{transport}: requests again"));
        let sealed: Vec<_> = answers.into_iter().collect();
        assert_without_effect(&mut w, A, &sealed, &format!("{transport}: answers again"));
        assert_eq!(w.counters(B).rx_auth_replayed, frames.len() as u64, "{transport}");
        assert_eq!(w.counters(A).rx_auth_failed, 0, "{transport}");
    }
}

fn mad_frame(w: &World, to: usize, mad: &Negotiation<'_>, mac: u8) -> Vec<u8> {
    let template = Template::new(&w.path(1 - to), Qpn::GSI, bth::DEFAULT_PKEY);
    let mut buffer = [0; 1000];
    let mut tx = TxFrame::new(&mut buffer);
    assert!(write(&mut tx, &template, mad));
    let mut frame = tx.segments().0.to_vec();
    let at = frame.len() - 4 - MAD_LEN;
    frame[at + 88..at + 104].fill(mac);
    resign(&mut frame);
    frame
}

#[test]
fn forged_mads_of_the_negotiation_have_no_effect_and_are_counted() {
    for transport in TRANSPORTS {
        let mut w = World::new(options(transport));
        let offers = [w.transmit(A), w.transmit(B)];
        let own = w.hosts[A].qpn.value();
        let genuine = {
            let f = &offers[A][0];
            Negotiation::parse(&f[f.len() - 4 - MAD_LEN..f.len() - 4]).unwrap()
        };
        assert!(genuine.extensions.contains(Extensions::AUTH));
        let forged = Negotiation {
            // Read off the wire.
            transaction_id: genuine.transaction_id,
            kind: Kind::Answer(mad::Status::SUCCESS),
            version: VERSION,
            sender_qpn: w.hosts[B].qpn.value(),
            receiver_qpn: own,
            extensions: Extensions::NONE,
            settings: Settings::NONE,
            sdr: None,
        };
        let all = genuine.extensions;
        let settings = genuine.settings.with(SrSettings { window: 64 });
        let mads = [
            forged,
            Negotiation { extensions: all.without(Extensions::AUTH), settings, ..forged },
            Negotiation { extensions: all, settings, ..forged },
            Negotiation { kind: Kind::Offer, extensions: all, settings, ..forged },
            Negotiation { kind: Kind::Offer, extensions: Extensions::SR, settings, ..forged },
            Negotiation { kind: Kind::Answer(mad::Status(0x000c)), ..forged },
        ];
        for mad in &mads {
            let frames = [0, 0x5a].map(|mac| mad_frame(&w, A, mad, mac));
            assert_without_effect(&mut w, A, &frames, &format!("{transport}: {mad}"));
            assert_eq!(w.hosts[A].nic.choice(w.hosts[A].qpn), Some(Choice::Waiting));
        }
        // Nor has A's own offer, sent back.
        let mut back = mad_frame(&w, A, &Negotiation { kind: Kind::Offer, ..genuine }, 0);
        let n = back.len();
        let f = &offers[A][0];
        back[n - 4 - MAD_LEN..n - 4].copy_from_slice(&f[f.len() - 4 - MAD_LEN..f.len() - 4]);
        resign(&mut back);
        let before = w.counters(A).rx_auth_failed;
        w.deliver(A, &back);
        assert_eq!(w.counters(A).rx_auth_failed + w.counters(A).rx_bad_qp + w.counters(A).rx_wrong_source, before + 1);
        for h in [A, B] {
            w.deliver_all(1 - h, &offers[h]);
        }
        w.run();
        for h in [A, B] {
            assert_eq!(w.hosts[h].nic.choice(w.hosts[h].qpn), Some(Choice::Agreed), "{transport}");
        }
    }
}

#[test]
fn a_recorded_offer_of_an_earlier_connection_is_answered_and_decides_nothing() {
    let mut w = World::new(options(Transport::Rc));
    let old = w.transmit(B);
    for h in [A, B] {
        w.modify(h, &to_state(QpState::Reset));
    }
    for h in [A, B] {
        let rtr = rtr_attr(&w.options, w.path(h), w.hosts[1 - h].qpn);
        for attr in [init_attr(&w.options), rtr, rts_attr(&w.options)] {
            w.modify(h, &attr);
        }
    }
    w.deliver_all(A, &old);
    assert_eq!(w.hosts[A].nic.choice(w.hosts[A].qpn), Some(Choice::Waiting));
    w.run();
    for h in [A, B] {
        assert_eq!(w.hosts[h].nic.choice(w.hosts[h].qpn), Some(Choice::Agreed));
    }
    w.send(A, 1, w.write_to(B, 0), 0, 100);
    w.run();
    assert_eq!(w.sent_status(A), [(1, Status::Success)]);
    assert_eq!([A, B].map(|h| w.counters(h).rx_auth_failed), [0, 0]);
}
