//! One queue pair's credit, packet by packet; and properties that hold under any loss, duplication, delay or forgery.

use proptest::prelude::*;

use super::*;

const LINE: u64 = 8_000_000_000; // one byte per nanosecond
const SPEC: u32 = 10_000;

fn at(us: u64) -> Instant {
    Instant::from_nanos(us * 1000)
}

fn config() -> EqdsConfig {
    EqdsConfig { speculative: SPEC, quantum: 4000, share: 1000, ..EqdsConfig::default() }
}

/// A sender and a receiver that agreed on credit.
fn pair() -> [Credit; 2] {
    [(1, 2), (2, 1)].map(|(own, peer)| {
        let mut credit = Credit::new(config());
        credit.connect(Qpn::new(own), Qpn::new(peer), 1, 4096);
        credit.set_agreed(true);
        credit
    })
}

/// The sender has `waiting` bytes and requests credit.
fn ask(sender: &mut Credit, receiver: &mut Credit, now: Instant, waiting: u32) {
    assert!(sender.has_something(waiting));
    let (psn, body) = sender.write(now, waiting);
    receiver.on_packet(now, psn, &body).unwrap();
}

/// The sender requests credit although little of it is new.
fn ask_anyway(sender: &mut Credit, receiver: &mut Credit, now: Instant, waiting: u32) {
    let (psn, body) = sender.write(now, waiting);
    receiver.on_packet(now, psn, &body).unwrap();
}

#[test]
fn who_was_idle_sends_a_speculative_window_and_then_waits_for_credit() {
    let [mut sender, mut receiver] = pair();
    let mut pacer = CreditPacer::new(LINE);
    let mut left = 0;
    while sender.may_send(1000 - FRAMING) {
        sender.on_sent(1000 - FRAMING);
        left += 1;
    }
    assert_eq!((left, sender.room()), (10, 0));
    ask(&mut sender, &mut receiver, at(1), 5000);
    // 15000 bytes in all: 4000 per turn, and the rest.
    let mut turns = Vec::new();
    loop {
        receiver.take_turn(at(1), &mut pacer);
        if receiver.due() == NEVER {
            break;
        }
        let turn = receiver.due();
        let (granted, _) = receiver.on_time(turn);
        assert!(receiver.has_something(0));
        let (psn, body) = receiver.write(turn, 0);
        sender.on_packet(turn, psn, &body).unwrap();
        turns.push((turn, granted, sender.room()));
    }
    let us = |n: u64| at(1 + n);
    assert_eq!(turns, [(us(0), 4000, 4000), (us(4), 4000, 8000), (us(8), 4000, 12_000), (us(12), 3000, 15_000)]);
    // All bytes were granted: when the last ones have left, the speculative window is free again.
    (0..5).for_each(|_| sender.on_sent(1000 - FRAMING));
    assert_eq!((sender.room(), sender.has_something(0), sender.due()), (SPEC, false, NEVER));
}

#[test]
fn more_than_can_be_asked_for_at_a_time_is_asked_for_in_parts() {
    let [mut sender, mut receiver] = pair();
    let mut pacer = CreditPacer::new(LINE);
    // Bytes sent in the speculative window count besides the waiting bytes.
    sender.on_sent(SPEC - FRAMING);
    ask(&mut sender, &mut receiver, at(0), u32::MAX);
    // The same when more is requested in between.
    let mut now = at(0);
    for _ in 0..100 {
        receiver.take_turn(now, &mut pacer);
        now = receiver.due();
        let (granted, _) = receiver.on_time(now);
        let (psn, body) = receiver.write(now, 0);
        sender.on_packet(now, psn, &body).unwrap();
        sender.on_sent(granted - FRAMING);
    }
    ask_anyway(&mut sender, &mut receiver, now, u32::MAX);
}

#[test]
fn short_messages_of_a_ping_pong_ask_once_for_half_of_the_window() {
    let [mut sender, mut receiver] = pair();
    let mut asked = 0;
    for n in 0..1000 {
        assert!(sender.may_send(100), "message {n}");
        sender.on_sent(100);
        if sender.has_something(0) {
            ask(&mut sender, &mut receiver, at(n), 0);
            asked += 1;
            receiver.take_turn(at(n), &mut CreditPacer::new(LINE));
            receiver.on_time(receiver.due());
            receiver.take_turn(at(n), &mut CreditPacer::new(LINE));
            receiver.on_time(receiver.due());
            let (psn, body) = receiver.write(at(n), 0);
            sender.on_packet(at(n), psn, &body).unwrap();
        }
    }
    assert_eq!(asked, 124 * 1000 / 5084, "124 bytes each, and 5084 are the first above a half");
}

#[test]
fn a_lost_packet_of_credit_costs_time_and_no_credit() {
    let [mut sender, mut receiver] = pair();
    let mut pacer = CreditPacer::new(LINE);
    sender.on_sent(SPEC - FRAMING);
    ask(&mut sender, &mut receiver, at(0), 8000);
    let mut last = at(0);
    for _ in 0..5 {
        receiver.take_turn(last, &mut pacer);
        last = receiver.due();
        receiver.on_time(last);
        receiver.write(last, 0); // and is lost
    }
    assert_eq!((receiver.due(), sender.room()), (NEVER, 0));
    // No further packet would arrive: the sender asks, and gets the total.
    let due = sender.due();
    assert_eq!(due, at(200));
    assert_eq!(sender.on_time(due), (0, true));
    ask(&mut sender, &mut receiver, due, 8000);
    assert!(receiver.has_something(0));
    let (psn, body) = receiver.write(due, 0);
    sender.on_packet(due, psn, &body).unwrap();
    assert_eq!((sender.room(), sender.due()), (SPEC + 8000, NEVER));
    assert!(!sender.has_something(8000) && !receiver.has_something(0), "neither answers an answer");
}

#[test]
fn a_sender_that_hears_nothing_asks_ever_more_seldom() {
    let [mut sender, _] = pair();
    sender.on_sent(SPEC);
    assert!(sender.has_something(8000));
    sender.write(at(0), 8000);
    let mut waits = Vec::new();
    let mut now = at(0);
    for _ in 0..9 {
        let due = sender.due();
        waits.push(due.saturating_since(now).as_micros());
        now = due;
        sender.on_time(due);
        assert!(sender.has_something(8000));
        let (_, body) = sender.write(now, 8000);
        assert_eq!(body.flags, XpCredit::ASKS);
    }
    assert_eq!(waits, [200, 400, 800, 1600, 3200, 6400, 12_800, 12_800, 12_800]);
}

#[test]
fn credit_that_was_never_given_or_twice_or_of_another_queue_pair_is_refused() {
    let [mut sender, _] = pair();
    sender.on_sent(SPEC);
    sender.write(at(0), 8000);
    let of = |granted| XpCredit { flags: 0, giver: 2, granted, wanted: 0 };
    let psn = Psn::new;
    let room = sender.room();
    let wrong = Err(Refused::Wrong);
    assert_eq!(sender.on_packet(at(1), psn(0), &of(SPEC + FRAMING + 8001)), wrong, "more than was asked for");
    assert_eq!(sender.on_packet(at(1), psn(0), &XpCredit { giver: 3, ..of(4000) }), wrong, "of another one");
    assert_eq!(sender.on_packet(at(1), psn(0), &XpCredit { wanted: 1 << 31, ..of(4000) }), wrong, "half of all");
    assert_eq!(sender.room(), room);
    assert_eq!(sender.on_packet(at(1), psn(1), &of(4000)), Ok(()));
    assert_eq!(sender.on_packet(at(1), psn(1), &of(4000)), Err(Refused::Stale), "twice");
    assert_eq!(sender.on_packet(at(1), psn(0), &of(2000)), Err(Refused::Stale), "it was overtaken");
    assert_eq!(sender.on_packet(at(1), psn(2), &of(3999)), wrong, "taken back");
    assert_eq!(sender.room(), room + 4000 - FRAMING);
}

#[test]
fn credit_that_nobody_needs_any_more_is_given_up() {
    let [mut sender, mut receiver] = pair();
    let mut pacer = CreditPacer::new(LINE);
    ask(&mut sender, &mut receiver, at(0), 40_000);
    receiver.take_turn(at(0), &mut pacer);
    let (granted, _) = receiver.on_time(receiver.due());
    let (psn, body) = receiver.write(at(1), 0);
    sender.on_packet(at(1), psn, &body).unwrap();
    assert_eq!(sender.room(), SPEC + granted);
    // The deadline of the message has passed.
    assert!(!sender.has_something(0));
    assert_eq!(sender.room(), SPEC);
}

#[test]
fn a_silent_peer_gets_no_credit_until_it_is_heard() {
    let [mut sender, mut receiver] = pair();
    let mut pacer = CreditPacer::new(LINE);
    ask(&mut sender, &mut receiver, at(0), 1 << 20);
    receiver.take_turn(at(100_000), &mut pacer);
    receiver.on_time(receiver.due());
    receiver.take_turn(at(100_001), &mut pacer);
    assert_eq!(receiver.due(), NEVER);
    receiver.on_heard(at(200_000));
    receiver.take_turn(at(200_000), &mut pacer);
    assert_eq!(receiver.due(), at(200_000));
}

#[test]
fn without_agreement_nothing_waits_and_nothing_is_told() {
    let [mut sender, mut receiver] = pair();
    let mut pacer = CreditPacer::new(LINE);
    ask(&mut sender, &mut receiver, at(0), 1 << 20);
    for credit in [&mut sender, &mut receiver] {
        credit.set_agreed(false);
        credit.on_sent(1 << 20);
        assert!(credit.may_send(4096) && !credit.has_something(1 << 20));
    }
    receiver.take_turn(at(0), &mut pacer);
    assert_eq!(receiver.due(), NEVER);
}

#[test]
fn who_has_not_heard_whether_its_peer_speaks_it_grants_what_is_asked_for_and_asks_for_nothing() {
    let [mut sender, mut receiver] = pair();
    let mut pacer = CreditPacer::new(LINE);
    receiver.set_open();
    ask(&mut sender, &mut receiver, at(0), 20_000);
    receiver.take_turn(at(0), &mut pacer);
    assert_eq!(receiver.on_time(at(0)), (4000, false));
    assert!(receiver.may_send(4096) && receiver.has_something(1 << 20));
    let (psn, body) = receiver.write(at(0), 1 << 20);
    assert_eq!((body.granted, body.wanted), (4000, 0));
    assert_eq!((sender.on_packet(at(1), psn, &body), sender.granted), (Ok(()), 4000));
    // The receiver has sent its report, and waits for nothing.
    receiver.take_turn(at(1), &mut pacer);
    assert!(!receiver.has_something(1 << 20) && receiver.due() != NEVER);
}

#[test]
fn a_peer_is_gone_when_it_was_asked_often_and_nothing_at_all_came_for_long() {
    let [mut sender, _] = pair();
    sender.on_heard(at(0));
    assert!(sender.has_something(1 << 20));
    sender.write(at(0), 1 << 20);
    let mut asked = 0;
    while !sender.is_deserted(sender.due()) {
        let now = sender.due();
        assert_eq!(sender.on_time(now), (0, true));
        sender.write(now, 1 << 20);
        asked += 1;
    }
    assert!(sender.due() > at(100_000) && (6..20).contains(&asked), "{asked}");
    let now = sender.due();
    sender.on_heard(now);
    assert!(!sender.is_deserted(now));
}

#[test]
fn who_has_more_waiting_is_granted_more_and_never_all() {
    assert_eq!([1, 65_535, 65_536, 1 << 20, 1 << 24, u32::MAX].map(weight), [1, 1, 2, 3, 4, 4]);
    let mut pacer = CreditPacer::new(LINE);
    let mut granted = [0u64; 3];
    let mut all = [30_000, 500_000, 800 << 20].map(|waiting| {
        let [mut sender, mut receiver] = pair();
        ask(&mut sender, &mut receiver, at(0), waiting);
        receiver.take_turn(at(0), &mut pacer);
        receiver
    });
    loop {
        let (i, receiver) = all.iter_mut().enumerate().min_by_key(|(_, r)| r.due()).unwrap();
        let now = receiver.due();
        // Three turns in rotation take 28 µs.
        if now >= at(56) {
            break;
        }
        granted[i] += u64::from(receiver.on_time(now).0);
        receiver.take_turn(now, &mut pacer);
    }
    assert_eq!(granted, [8000, 16_000, 32_000]);
}

proptest! {
    /// Under any loss, duplication and delay of packets, a sender never sends more than was granted plus its speculative window, never
    /// counts more than was granted, and receives all credit in the end.
    #[test]
    fn no_credit_is_made_or_lost(
        fates in prop::collection::vec((0..4u8, 1..50_000u32), 1..60),
        start in any::<u32>(),
    ) {
        let [mut sender, mut receiver] = pair();
        // Totals wrap around.
        for total in [&mut sender.sent, &mut sender.granted, &mut sender.said, &mut sender.said_most] {
            *total = start;
        }
        (receiver.given, receiver.wanted) = (start, start);
        let mut pacer = CreditPacer::new(LINE);
        let (mut now, mut waiting, mut held) = (0, 0u32, Vec::new());
        let quiet = [(0, 0); 200];
        for (fate, more) in fates.into_iter().chain(quiet) {
            waiting += more;
            now += 300;
            // The low bit is the fate of the request, the next one that of the answer: lost or not.
            sender.on_time(at(now));
            if sender.has_something(waiting) {
                let packet = sender.write(at(now), waiting);
                held.push(packet);
                if fate & 1 == 0 {
                    let _ = receiver.on_packet(at(now), packet.0, &packet.1);
                }
            }
            let old = held[held.len() / 2..].first().copied();
            if let Some((psn, body)) = old.filter(|_| fate == 3) {
                prop_assert!(receiver.on_packet(at(now), psn, &body) != Ok(()) || receiver.newest == Some(psn));
            }
            receiver.take_turn(at(now), &mut pacer);
            while receiver.due() <= at(now) {
                receiver.on_time(at(now));
                receiver.take_turn(at(now), &mut pacer);
            }
            if receiver.has_something(0) {
                let (psn, body) = receiver.write(at(now), 0);
                if fate & 2 == 0 {
                    sender.on_packet(at(now), psn, &body).unwrap();
                    prop_assert_eq!(sender.on_packet(at(now), psn, &body), Err(Refused::Stale));
                }
            }
            prop_assert!(ahead(receiver.given, sender.granted) >= 0, "no more is counted than was granted");
            while waiting > 0 && sender.may_send(1000) {
                sender.on_sent(1000);
                waiting -= waiting.min(1000 + FRAMING);
            }
            prop_assert!(ahead(sender.sent, receiver.given) <= SPEC as i32, "no more left than may");
        }
        prop_assert_eq!(waiting, 0, "in the end all has left");
    }
}
