//! Before the first packet: who offers what and when, peers that know only RC, and halves that speak differently.

use softnic_nic::transports::negotiation::FallbackReason;
use softnic_nic::transports::negotiation::vendor::{Kind, Negotiation};
use softnic_nic::transports::qp::QpState;
use softnic_nic::transports::{SendOp, Status};
use softnic_wire::mad::MAD_LEN;
use softnic_wire::{Node, RocePacket};

use super::*;

/// A SEND each way; what A's and B's requests were.
fn talk(w: &mut World) -> [String; 2] {
    let said = [A, B].map(|h| {
        w.recv(1 - h, 8, 1024, 100);
        w.send(h, 7, SendOp::Send, 0, 100);
        let frames = fly(w, h);
        w.deliver_all(1 - h, &frames);
        let mut opcodes = frames.iter().map(|f| w.parse(f).bth.opcode);
        opcodes.find(|opcode| !opcode.is_response()).expect("a request").to_string()
    });
    settle(w);
    for h in [A, B] {
        assert_eq!(w.sent_status(h), [(7, Status::Success)]);
        assert_eq!(w.received_status(h), [(8, Status::Success)]);
    }
    said
}

#[test]
fn with_a_peer_that_offers_nothing_rc_is_spoken() {
    let mut w = World::new(Options { offers: [both_offer().offers[0], None], ..both_offer() });
    assert_eq!(choice(&w, A), Some(Choice::Waiting));
    exchange(&mut w);
    exchange(&mut w);
    assert_eq!((choice(&w, A), choice(&w, B)), (Some(Choice::Standard(FallbackReason::NothingInCommon)), None));
    assert_eq!(talk(&mut w), ["RC_SEND_ONLY", "RC_SEND_ONLY"]);
}

#[test]
fn with_a_peer_that_says_nothing_rc_is_spoken_after_a_while_and_what_was_posted_before_goes_then() {
    let mut w = World::new(Options { offers: [both_offer().offers[0], None], ..both_offer() });
    w.recv(B, 8, 0, 100);
    w.send(A, 7, SendOp::Send, 0, 100);
    let mut offers = w.transmit(A).len();
    while choice(&w, A) == Some(Choice::Waiting) {
        w.wait_for_timer(A).expect("somebody waits");
        if choice(&w, A) == Some(Choice::Waiting) {
            offers += w.transmit(A).len();
        }
    }
    assert_eq!((offers, choice(&w, A)), (5, Some(Choice::Standard(FallbackReason::Silent))));
    settle(&mut w);
    assert_eq!((w.sent_status(A), w.received_status(B)), (vec![(7, Status::Success)], vec![(8, Status::Success)]));
}

#[test]
fn an_offer_that_comes_before_its_receiver_is_ready_is_answered_when_it_is() {
    let o = both_offer();
    let mut w = World::unconnected(o);
    w.modify(A, &init_attr(&o));
    w.modify(B, &init_attr(&o));
    let rtr = rtr_attr(&o, w.path(A), w.hosts[B].qpn);
    w.modify(A, &rtr);
    w.modify(A, &rts_attr(&o));
    let offer = fly(&mut w, A);
    assert_eq!(offer.len(), 1);
    w.deliver_all(B, &offer);
    assert!(w.transmit(B).is_empty());
    let rtr = rtr_attr(&o, w.path(B), w.hosts[A].qpn);
    w.modify(B, &rtr);
    w.modify(B, &rts_attr(&o));
    assert_eq!(choice(&w, B), Some(Choice::Waiting), "anybody could have sent it");
    let [answer, offer]: [_; 2] = fly(&mut w, B).try_into().unwrap();
    assert_eq!([&answer, &offer].map(|mad| is_offer(mad)), [false, true]);
    w.deliver(A, &answer);
    assert_eq!(choice(&w, A), Some(Choice::Agreed));
    w.deliver(A, &offer);
    settle(&mut w);
    assert_eq!(choice(&w, B), Some(Choice::Agreed));
    assert_eq!(talk(&mut w), ["SR_SEND_ONLY", "SR_SEND_ONLY"]);
}

#[test]
fn who_only_receives_answers_as_far_ahead_as_the_peer_s_bitmap_goes() {
    let o = both_offer();
    let mut w = World::unconnected(o);
    for h in [A, B] {
        w.modify(h, &init_attr(&o));
        let rtr = rtr_attr(&o, w.path(h), w.hosts[1 - h].qpn);
        w.modify(h, &rtr);
    }
    w.modify(A, &rts_attr(&o));
    settle(&mut w);
    let read = w.read_from(B, 0);
    w.send(A, 1, read, 0, 200 * MTU);
    let request = fly(&mut w, A);
    w.deliver_all(B, &request);
    // A quarter of the window of 256, where no round trip was measured.
    assert_eq!(w.transmit(B).len(), 64);
}

/// Whether a frame is an offer of extensions, not an answer.
fn is_offer(frame: &[u8]) -> bool {
    let payload = RocePacket::parse(frame).unwrap().payload;
    Negotiation::parse(&frame[payload][..MAD_LEN]).unwrap().kind == Kind::Offer
}

/// All answers of B are lost, so A speaks RC; B hears A's answer and speaks Selective Repeat. Returns what was lost.
fn halves() -> (World, Vec<Vec<u8>>) {
    let mut w = World::new(both_offer());
    let mut lost = Vec::new();
    for _ in 0..10 {
        let (offers, answers): (Vec<_>, Vec<_>) = w.transmit(B).into_iter().partition(|mad| is_offer(mad));
        lost.extend(answers);
        w.deliver_all(A, &offers);
        let said = w.transmit(A);
        w.wait(200_000_000);
        w.deliver_all(B, &said);
    }
    lost.extend(w.transmit(B));
    assert_eq!((choice(&w, A), choice(&w, B)), (Some(Choice::Standard(FallbackReason::Silent)), Some(Choice::Agreed)));
    (w, lost)
}

#[test]
fn each_direction_may_speak_its_own() {
    let (mut w, _) = halves();
    assert_eq!(talk(&mut w), ["RC_SEND_ONLY", "SR_SEND_ONLY"]);
}

#[test]
fn an_answer_that_comes_after_standard_requests_comes_too_late() {
    let (mut w, answers) = halves();
    w.recv(B, 8, 0, 100);
    w.send(A, 7, SendOp::Send, 0, 100);
    settle(&mut w);
    w.deliver_all(A, &answers);
    assert_eq!(choice(&w, A), Some(Choice::Standard(FallbackReason::Silent)));
    assert_eq!(w.sent_status(A), [(7, Status::Success)]);
    w.received(B);
    assert_eq!(talk(&mut w), ["RC_SEND_ONLY", "SR_SEND_ONLY"]);
}

#[test]
fn standard_requests_are_taken_until_the_first_other_one_and_no_more_then() {
    let mut w = agreed(both_offer());
    let (va, rkey) = (w.hosts[B].buffer.addr(), w.hosts[B].key);
    let write = |w: &World, opcode, psn, byte: u8| {
        let reth = softnic_wire::ext::Reth { va, rkey, len: 8 };
        w.forge(B, opcode, psn, true, softnic_wire::ExtHeaders { reth: Some(reth), ..Default::default() }, &[byte; 8])
    };
    let standard = write(&w, 0x0a, 0, 1);
    w.deliver(B, &standard);
    assert_eq!((w.read(B, 0, 8), w.shown(B)), (vec![1; 8], vec!["ACK +0 credits 0 msn 1".into()]));
    let selective = write(&w, 0xca, 0, 2);
    w.deliver(B, &selective);
    assert_eq!((w.read(B, 0, 8), shown(&mut w, B)), (vec![2; 8], vec!["ACK +1 []".into()]));
    for psn in [0, 1] {
        let late = write(&w, 0x0a, psn, 3);
        w.deliver(B, &late);
    }
    assert_eq!((w.read(B, 0, 8), w.counters(B).rx_malformed), (vec![2; 8], 2));
    assert!(w.transmit(B).is_empty());
}

/// The half that spoke RC stopped the queue pair, and the other one's clock ran on for ever.
#[test]
fn when_one_half_stops_the_queue_pair_no_clock_of_the_other_runs_on() {
    let (mut w, _) = halves();
    w.send(B, 7, SendOp::Send, 0, 100);
    assert_eq!(w.transmit(B).len(), 1);
    let bad = SendOp::Write { remote_addr: w.hosts[B].buffer.addr(), rkey: w.hosts[B].key ^ 0x5a00 };
    w.send(A, 8, bad, 0, 10);
    let frames = fly(&mut w, A);
    w.deliver_all(B, &frames);
    assert_eq!((w.state(B), w.sent_status(B)), (QpState::Error, vec![(7, Status::WrFlushErr)]));
    let nak = fly(&mut w, B);
    w.deliver_all(A, &nak);
    assert_eq!(w.sent_status(A), [(8, Status::RemAccessErr)]);
    for _ in 0..3 {
        if w.hosts[B].nic.poll_timeout().is_none() {
            return;
        }
        w.wait_for_timer(B);
    }
    panic!("a clock runs in a queue pair that stopped");
}

/// A silence of three times 50 ms was taken for a no: with a round trip of 160 ms and one side ready later, one direction stayed plain RC.
#[test]
fn with_a_far_peer_that_is_ready_later_both_directions_speak_the_extension() {
    let o = both_offer();
    let mut w = World::unconnected(o);
    let ready = |w: &mut World, h: usize| {
        let rtr = rtr_attr(&o, w.path(h), w.hosts[1 - h].qpn);
        w.modify(h, &rtr);
        w.modify(h, &rts_attr(&o));
    };
    w.modify(A, &init_attr(&o));
    w.modify(B, &init_attr(&o));
    ready(&mut w, A);
    for one_way in 0..30 {
        if one_way == 5 {
            ready(&mut w, B);
        }
        let (from_a, from_b) = (w.transmit(A), w.transmit(B));
        w.wait(80_000_000);
        w.deliver_all(B, &from_a);
        w.deliver_all(A, &from_b);
    }
    assert_eq!((choice(&w, A), choice(&w, B)), (Some(Choice::Agreed), Some(Choice::Agreed)));
    assert_eq!(talk(&mut w), ["SR_SEND_ONLY", "SR_SEND_ONLY"]);
}
