//! Loss detection: which packets count as lost, and when.

use proptest::prelude::*;

use super::*;

const RTT: Option<Duration> = Some(Duration::from_micros(100));

fn at(us: u64) -> Instant {
    Instant::from_nanos(us * 1000)
}

fn sent(n: u32) -> Flight {
    let mut f = Flight::new(256, 64);
    (0..n).for_each(|_| f.on_sent());
    f
}

/// An acknowledgement of all packets before `expected`, and of these.
fn acknowledge(f: &mut Flight, us: u64, expected: u64, also: &[u64]) -> Progress {
    let mut bytes = [0u8; 32];
    also.iter().for_each(|n| bytes[(n - expected) as usize / 8] |= 1 << ((n - expected) % 8));
    let selective = Selective { first: expected, bits: 256, bytes: &bytes, furthest: true };
    let progress = f.acknowledge(at(us), expected, selective, RTT);
    f.check_invariants();
    progress
}

fn resend_all(f: &mut Flight, us: u64) -> Vec<u64> {
    std::iter::from_fn(|| f.next_lost().inspect(|&n| f.on_resent(at(us), n, RTT))).collect()
}

#[test]
fn just_what_is_missing_is_sent_again() {
    let mut f = sent(10);
    assert_eq!(acknowledge(&mut f, 100, 2, &[3, 4, 7]), Progress { came: 5, lost: 3 });
    assert_eq!(f.in_flight(), 2, "8 and 9 may still come");
    assert_eq!(resend_all(&mut f, 100), [2, 5, 6]);
    assert_eq!(f.in_flight(), 5);
    assert_eq!(acknowledge(&mut f, 150, 2, &[3, 4, 7, 8, 9]).lost, 0, "what was sent again left after those");
    assert_eq!(acknowledge(&mut f, 200, 10, &[]), Progress { came: 3, lost: 0 });
    assert!(f.is_empty() && f.in_flight() == 0 && !f.has_lost());
}

#[test]
fn a_lost_retransmission_is_found_by_what_was_sent_after_it() {
    let mut f = sent(4);
    acknowledge(&mut f, 100, 1, &[2, 3]);
    assert_eq!(resend_all(&mut f, 100), [1]);
    f.on_sent();
    assert_eq!(acknowledge(&mut f, 200, 1, &[2, 3, 4]).lost, 1);
    assert_eq!(resend_all(&mut f, 200), [1]);
    // And by another packet that was sent again after it.
    let mut f = sent(6);
    acknowledge(&mut f, 100, 1, &[2, 4, 5]);
    assert_eq!(resend_all(&mut f, 100), [1, 3]);
    assert_eq!(acknowledge(&mut f, 200, 1, &[2, 3, 4, 5]), Progress { came: 1, lost: 1 });
    assert_eq!(resend_all(&mut f, 200), [1]);
}

#[test]
fn an_answer_that_comes_too_early_for_a_retransmission_proves_nothing() {
    let mut f = sent(20);
    acknowledge(&mut f, 100, 1, &[2]);
    assert_eq!(resend_all(&mut f, 100), [1]);
    // The first transmission of 1 was late, not lost: 3 to 19 are in flight.
    assert_eq!(acknowledge(&mut f, 110, 3, &[]).lost, 0);
    assert_eq!(f.in_flight(), 17);
}

#[test]
fn what_is_behind_the_bitmap_is_not_lost() {
    let mut f = sent(20);
    acknowledge(&mut f, 100, 1, &[2]);
    assert_eq!(resend_all(&mut f, 100), [1]);
    (0..5).for_each(|_| f.on_sent());
    // Packet 1 has arrived, and its acknowledgement shows no others, although 3 to 19 have all arrived.
    let partial = Selective { first: 1, bits: 2, bytes: &[0b10], furthest: false };
    assert_eq!(f.acknowledge(at(200), 3, partial, RTT).lost, 0);
    let furthest: Vec<u64> = (4..20).collect();
    assert_eq!(acknowledge(&mut f, 201, 3, &furthest).lost, 1, "3 has not; of 20 to 24 none was sent before");
}

#[test]
fn where_packets_overtake_each_other_more_are_awaited_for_a_while() {
    let mut f = sent(40);
    // 0 and 1 count as lost, but arrive, too early to be the retransmissions.
    acknowledge(&mut f, 100, 0, &[2]);
    assert_eq!(resend_all(&mut f, 100), [0, 1]);
    acknowledge(&mut f, 101, 3, &[]);
    assert_eq!(acknowledge(&mut f, 102, 3, &[4, 5, 6]).lost, 0, "three may overtake");
    assert_eq!(acknowledge(&mut f, 103, 3, &[4, 5, 6, 7]).lost, 1);
    resend_all(&mut f, 103);
    acknowledge(&mut f, 203, 40, &[]);
    f.on_sent();
    f.on_sent();
    acknowledge(&mut f, 301, 41, &[]);
    f.on_sent();
    f.on_sent();
    assert_eq!(acknowledge(&mut f, 302, 41, &[42, 43]).lost, 1, "the tolerance has shrunk");
}

#[test]
fn a_probe_takes_the_oldest_and_the_newest_and_giving_up_takes_all() {
    let mut f = sent(5);
    f.probe();
    assert_eq!(resend_all(&mut f, 100), [0, 4]);
    f.probe();
    assert_eq!(resend_all(&mut f, 200), [0, 4], "again, if those too were lost");
    let mut lone = sent(1);
    lone.probe();
    assert_eq!(resend_all(&mut lone, 100), [0]);
    lone.probe();
    lone.probe();
    assert_eq!((lone.in_flight(), resend_all(&mut lone, 200)), (0, vec![0]));
    acknowledge(&mut f, 300, 1, &[3]);
    f.give_up();
    assert_eq!((f.in_flight(), resend_all(&mut f, 300)), (0, vec![1, 2, 4]));
}

#[test]
fn the_window_and_the_flight_are_bounded() {
    let mut f = Flight::new(64, 8);
    (0..8).for_each(|_| f.on_sent());
    assert!(!f.has_room() && !f.has_room_for_new());
    // The oldest packet stays missing while others arrive: there is room in flight, and finally the window is full.
    let mut us = 0;
    while f.has_room_for_new() || f.next() < 64 {
        us += 1000;
        let (una, next) = (f.una(), f.next());
        let others: Vec<u64> = (una + 1..next).collect();
        acknowledge(&mut f, us, una, &others);
        while f.has_room_for_new() {
            f.on_sent();
        }
    }
    assert_eq!((f.una(), f.next()), (0, 64));
}

proptest! {
    /// Under any loss, all packets arrive in the end, and no acknowledged packet is sent again.
    #[test]
    fn everything_comes_through_a_lossy_line(drops in prop::collection::vec(prop::bool::weighted(0.3), 4000), total in 1u64..200) {
        let mut f = Flight::new(128, 32);
        let mut came = std::collections::BTreeSet::new();
        let mut drops = drops.into_iter().chain(std::iter::repeat(false));
        let mut us = 0;
        for round in 0.. {
            prop_assert!(round < 500, "no progress");
            us += 100;
            let mut arrived = Vec::new();
            while f.has_room() || f.in_flight() == 0 {
                let n = match f.next_lost() {
                    Some(n) => {
                        prop_assert!(!came.contains(&n) || f.una() <= n);
                        f.on_resent(at(us), n, RTT);
                        n
                    }
                    None if f.next() < total && f.has_room_for_new() => {
                        f.on_sent();
                        f.next() - 1
                    }
                    None => break,
                };
                if drops.next() == Some(false) {
                    arrived.push(n);
                }
            }
            came.extend(arrived);
            let expected = (0..).find(|n| !came.contains(n)).unwrap_or(0);
            let others: Vec<u64> = came.range(expected..).copied().collect();
            us += 100;
            // An acknowledgement may be lost, too; then the timeout helps.
            if drops.next() == Some(false) {
                acknowledge(&mut f, us, expected, &others);
            } else {
                f.give_up();
            }
            if f.una() == total {
                return Ok(());
            }
            if !f.has_lost() && f.next() == total {
                f.probe();
            }
        }
    }
}

#[test]
fn when_all_has_come_and_the_peer_did_not_say_that_it_is_done_the_oldest_is_sent_once_more() {
    for high in [false, true] {
        let mut f = sent(4);
        acknowledge(&mut f, 100, 0, &[2, 3]);
        assert_eq!(resend_all(&mut f, 100), [0, 1]);
        // A READ's data shows that all earlier packets were executed, and nothing about later ones.
        f.acknowledge(at(250), 2, Selective::NONE, RTT);
        assert!(!f.is_empty() && f.in_flight() == 0 && !f.has_lost());
        for us in [500, 600] {
            if high {
                f.give_up()
            } else {
                f.probe()
            }
            f.check_invariants();
            assert_eq!(resend_all(&mut f, us), [2]);
            f.check_invariants();
        }
        assert_eq!(acknowledge(&mut f, 700, 4, &[]).came, 1);
        assert!(f.is_empty() && f.in_flight() == 0);
    }
}

#[test]
fn however_much_packets_overtake_each_other_there_is_room_for_new_ones_when_all_have_come() {
    let mut f = Flight::new(64, 32);
    for round in 0..200u64 {
        let us = 1000 * round;
        assert!(f.has_room_for_new(), "round {round}");
        (0..20).for_each(|_| f.on_sent());
        // The first packet is late, not lost: it arrives right after it was sent again.
        let first = f.una();
        acknowledge(&mut f, us, first, &[first + 19]);
        resend_all(&mut f, us);
        acknowledge(&mut f, us + 1, first + 20, &[]);
        assert!(f.is_empty());
    }
    assert!(f.tolerance > 0);
}
