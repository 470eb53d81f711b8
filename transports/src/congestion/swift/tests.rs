//! Each rule of the paper compared with hand-computed figures, and properties that hold after any sequence of events.

use proptest::prelude::*;

use super::*;

const LINE: u64 = 40_000_000_000;
const US: Duration = Duration::from_micros(1);

fn at(us: u64) -> Instant {
    Instant::from_nanos(us * 1000)
}

/// Without flow scaling and hops: the target is 25 µs. Packets of 1000 bytes.
fn plain(start: u32) -> Swift {
    let mut swift = Swift::new(LINE, SwiftConfig { range: Duration::ZERO, hops: 0, start, ..SwiftConfig::default() });
    (swift.packet, swift.shortest) = (1000, Some(5 * US));
    swift
}

fn acknowledge(swift: &mut Swift, now: u64, packets: u64, rtt: u64) {
    let rtt = Some(Duration::from_micros(rtt));
    swift.on_feedback(at(now), Feedback::Acknowledged { bytes: packets * 1000, rtt });
}

#[test]
fn below_the_target_the_window_grows_by_one_packet_a_round_trip() {
    let mut swift = plain(10_000);
    acknowledge(&mut swift, 0, 10, 20);
    assert_eq!(swift.window_in_packets(), 11_000);
    // Half a window of acknowledgements increases it by half a packet.
    acknowledge(&mut swift, 10, 11, 20);
    let half = swift.window_in_packets();
    assert_eq!(half, 12_000);
    acknowledge(&mut swift, 20, 6, 20);
    assert_eq!(swift.window_in_packets(), 12_500);
    // An answer without a time counts as the last one with a time.
    swift.on_feedback(at(30), Feedback::Acknowledged { bytes: 6250, rtt: None });
    assert_eq!(swift.window_in_packets(), 13_000);
}

#[test]
fn below_one_packet_it_grows_by_as_many_as_come() {
    let mut swift = plain(100);
    acknowledge(&mut swift, 0, 1, 20);
    assert_eq!(swift.window_in_packets(), 1099, "a tenth, in fixed point, and one");
}

#[test]
fn above_the_target_it_is_cut_by_beta_of_the_excess_once_a_round_trip() {
    let mut swift = plain(20_000);
    // (50 − 25) / 50 · 0.8 = 0.4
    acknowledge(&mut swift, 100, 1, 50);
    assert_eq!(swift.window_in_packets(), 12_000);
    acknowledge(&mut swift, 149, 1, 50);
    assert_eq!(swift.window_in_packets(), 12_000, "49 µs after the last cut");
    acknowledge(&mut swift, 150, 1, 50);
    assert_eq!(swift.window_in_packets(), 7199);
    // (1000 − 25) / 1000 · 0.8 is more than a half, the maximum.
    acknowledge(&mut swift, 2000, 1, 1000);
    assert_eq!(swift.window_in_packets(), 3599);
}

#[test]
fn a_loss_halves_it_once_a_round_trip_and_five_timeouts_leave_the_least() {
    let mut swift = plain(16_000);
    acknowledge(&mut swift, 0, 0, 20);
    swift.on_feedback(at(100), Feedback::Loss);
    swift.on_feedback(at(110), Feedback::Loss);
    assert_eq!(swift.window_in_packets(), 8000);
    for n in 0..4 {
        swift.on_feedback(at(1000 + 100 * n), Feedback::Timeout);
    }
    assert_eq!(swift.window_in_packets(), 500);
    swift.on_feedback(at(2000), Feedback::Timeout);
    assert_eq!(swift.window_in_packets(), 9, "a hundredth of a packet, in fixed point");
    assert!(swift.window() < 1000 && swift.window() > 0);
    // A mark has no effect.
    swift.on_feedback(at(3000), Feedback::CongestionNotification);
    assert_eq!(swift.window_in_packets(), 9);
}

#[test]
fn a_window_of_less_than_a_packet_paces() {
    let mut swift = plain(250);
    swift.delay = Some(40 * US);
    swift.on_sent(at(100), 1000);
    assert_eq!(swift.next_send(), at(260), "four round trips");
    swift.on_sent(at(300), 500);
    assert_eq!(swift.next_send(), at(380), "half a packet, two");
    let mut wide = plain(1000);
    wide.on_sent(at(100), 1000);
    assert_eq!(wide.next_send(), Instant::ZERO, "the window alone keeps the pace");
}

#[test]
fn the_target_grows_with_hops_and_as_the_window_shrinks() {
    let config = SwiftConfig { hops: 3, ..SwiftConfig::default() };
    let target = |window| Swift::new(LINE, SwiftConfig { start: window, ..config }).target();
    let near = |a: Duration, b: Duration| a.abs_diff(b) < Duration::from_nanos(50);
    assert!(near(target(100_000), 28 * US), "{:?}: nothing from 100 packets on", target(100_000));
    assert!(near(target(500_000), 28 * US));
    assert!(near(target(100), 128 * US), "{:?}: all of the range at 0.1", target(100));
    assert!(near(target(10), 128 * US), "and no more below");
    // α = 100 / (1/√0.1 − 1/√100) = 32.654; at 4 packets 32.654 · (0.5 − 0.1)
    assert!(near(target(4000), Duration::from_nanos(28_000 + 13_061)), "{:?}", target(4000));
}

#[test]
fn on_a_path_longer_than_any_target_the_target_counts_from_the_shortest_round_trip() {
    let mut swift = Swift::new(LINE, SwiftConfig { start: 100_000, ..SwiftConfig::default() });
    acknowledge(&mut swift, 0, 0, 120);
    assert!(swift.target() < 30 * US, "26 µs and 100 for flow scaling are more: {:?}", swift.target());
    let mut far = swift;
    far.shortest = None;
    acknowledge(&mut far, 0, 0, 40_000);
    assert!(far.target() > 40_025 * US && far.target() < 40_127 * US, "{:?}", far.target());
    // A shorter round trip shows that the longer ones included a queue.
    acknowledge(&mut far, 50_000, 0, 30);
    assert!(far.target() < 127 * US, "{:?}", far.target());
}

#[test]
fn a_sender_with_little_to_send_gets_no_window_that_would_flood_a_path() {
    let mut swift = plain(16_000);
    for n in 0..100_000 {
        acknowledge(&mut swift, n * 20, 1, 20);
    }
    // 25 µs of 40 Gbit/s, and two packets.
    assert_eq!(swift.window_in_packets(), 127_000);
}

#[test]
fn it_asks_eight_times_a_window_and_begins_anew() {
    let mut swift = plain(16_000);
    assert_eq!((swift.window(), swift.ask_every()), (16_000, 2000));
    acknowledge(&mut swift, 0, 1, 1000);
    swift.reset();
    assert_eq!((swift.window_in_packets(), swift.rate()), (16_000, None));
}

proptest! {
    #[test]
    fn the_window_stays_within_its_bounds(
        events in prop::collection::vec((0..4u8, 0..10_000_000u64, 0..100_000_000u64, 1..5000u32), 1..200),
        start in 1..1_000_000u32,
    ) {
        let mut swift = Swift::new(LINE, SwiftConfig { start, ..SwiftConfig::default() });
        let (mut now, mut most) = (Instant::ZERO, fixed(start));
        for (what, bytes, nanos, packet) in events {
            now = now + Duration::from_nanos(nanos / 10);
            let before = swift.window();
            let rtt = Duration::from_nanos(nanos);
            match what {
                0 => swift.on_feedback(now, Feedback::Acknowledged { bytes, rtt: Some(rtt) }),
                1 => swift.on_feedback(now, Feedback::Acknowledged { bytes, rtt: None }),
                2 => swift.on_feedback(now, Feedback::Loss),
                _ => swift.on_sent(now, packet),
            }
            if what == 2 {
                prop_assert!(swift.window() <= before);
            }
            prop_assert!(swift.window >= fixed(10) && swift.window() > 0);
            // A path that was taken for a longer one had a higher ceiling.
            most = most.max(swift.ceiling());
            prop_assert!(swift.window <= most);
            let wait = swift.next_send().saturating_since(now);
            // A hundred round trips, for a packet of any length up to the longest one.
            prop_assert!(wait <= swift.delay.unwrap_or(swift.config.base) * 130, "{wait:?}");
        }
    }
}
