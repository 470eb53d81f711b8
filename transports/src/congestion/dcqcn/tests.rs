//! Each phase compared with hand-computed figures, and properties that hold after any sequence of events.

use proptest::prelude::*;

use super::*;

const LINE: u64 = 40_000_000_000;
const GBIT: u64 = 1_000_000_000;

fn us(n: u64) -> Instant {
    Instant::from_nanos(n * 1000)
}

fn dcqcn() -> Dcqcn {
    Dcqcn::new(LINE, DcqcnConfig::default())
}

fn notify(cc: &mut Dcqcn, at: Instant) {
    cc.on_feedback(at, Feedback::CongestionNotification);
}

#[test]
fn it_starts_at_the_line_rate_and_paces_nothing() {
    let mut cc = dcqcn();
    for n in 0..1000 {
        assert!(cc.next_send() <= us(0));
        cc.on_sent(us(n / 100), 4154);
    }
    assert_eq!((cc.rate(), cc.target(), cc.alpha()), (LINE, LINE, 1.0));
    assert_eq!(cc.window(), u64::MAX);
}

#[test]
fn a_notification_cuts_by_half_of_alpha_and_raises_alpha() {
    let mut cc = dcqcn();
    notify(&mut cc, us(1000));
    // α = 1: a cut by half; α = 255/256 · 1 + 1/256 = 1.
    assert_eq!((cc.rate(), cc.target(), cc.alpha()), (20 * GBIT, 40 * GBIT, 1.0));
    notify(&mut cc, us(1050));
    assert_eq!((cc.rate(), cc.target()), (10 * GBIT, 20 * GBIT));
}

#[test]
fn alpha_falls_by_a_256th_for_each_55_us_without_a_notification() {
    let mut cc = dcqcn();
    notify(&mut cc, us(0));
    // 109 µs contain one whole period: α = 255/256 when this notification arrives, and then 255/256 · 255/256 + 1/256.
    notify(&mut cc, us(109));
    assert_eq!(cc.alpha(), 255.0 * 255.0 / 65536.0 + 1.0 / 256.0);
    // The cut was by half of the first α. Before it the rate rose once, half of the way from 20 to 40.
    assert_eq!((cc.target(), cc.rate()), (30 * GBIT, 30 * GBIT - 30 * GBIT * 255 / 512));
}

#[test]
fn alpha_goes_down_to_nothing_and_up_again_slowly() {
    let mut cc = dcqcn();
    notify(&mut cc, us(0));
    notify(&mut cc, us(55 * 100_000));
    // α was almost 0, so the cut was almost nothing; now α is 1/256.
    assert_eq!(cc.target(), LINE);
    assert!(cc.rate() > LINE - LINE / 1_000_000, "{}", cc.rate());
    assert!((cc.alpha() - 1.0 / 256.0).abs() < 1e-6, "{}", cc.alpha());
}

#[test]
fn fast_recovery_goes_half_of_the_way_five_times() {
    let mut cc = dcqcn();
    notify(&mut cc, us(0));
    let mut rates = Vec::new();
    for period in 1..=5 {
        cc.advance(us(55 * period));
        rates.push((cc.rate() / 1_000_000, cc.target() / GBIT));
    }
    // 40 − 20/2^n Gbit/s.
    assert_eq!(rates, [(30_000, 40), (35_000, 40), (37_500, 40), (38_750, 40), (39_375, 40)]);
}

#[test]
fn additive_increase_follows_when_one_of_the_two_has_passed_five() {
    let mut cc = dcqcn();
    for n in 0..3 {
        notify(&mut cc, us(n)); // 20, 10, 5; target 10
    }
    cc.advance(us(2 + 55 * 5));
    assert_eq!((cc.target(), cc.rate()), (10 * GBIT, 10 * GBIT - 5 * GBIT / 32));
    cc.advance(us(2 + 55 * 6));
    let expected = (10_040_000_000 + 10 * GBIT - 5 * GBIT / 32) / 2;
    assert_eq!((cc.target(), cc.rate()), (10_040_000_000, expected));
    cc.advance(us(2 + 55 * 8));
    assert_eq!(cc.target(), 10_120_000_000);
}

#[test]
fn bytes_raise_the_rate_as_periods_do() {
    let mut cc = dcqcn();
    notify(&mut cc, us(0));
    // Two events of 10 MB within one period of the timer.
    for _ in 0..2500 {
        cc.on_sent(us(1), 4000);
    }
    assert_eq!((cc.rate(), cc.by_bytes), (30 * GBIT, 1));
    for _ in 0..2500 {
        cc.on_sent(us(2), 4000);
    }
    assert_eq!((cc.rate(), cc.by_bytes, cc.by_timer), (35 * GBIT, 2, 0));
}

#[test]
fn hyper_increase_follows_when_both_have_passed_five_and_grows() {
    let mut cc = dcqcn();
    for n in 0..4 {
        notify(&mut cc, us(n)); // 2.5; target 5
    }
    let from = 3;
    let ten_megabytes = |cc: &mut Dcqcn, at| (0..2500).for_each(|_| cc.on_sent(at, 4000));
    // Six events by bytes, of which the sixth is additive; then six by timer, all additive until the sixth, which is the first hyper
    // increase.
    for _ in 0..6 {
        ten_megabytes(&mut cc, us(from));
    }
    assert_eq!((cc.by_bytes, cc.target()), (6, 5 * GBIT + 40_000_000));
    cc.advance(us(from + 55 * 5));
    assert_eq!(cc.target(), 5 * GBIT + 6 * 40_000_000);
    cc.advance(us(from + 55 * 6));
    assert_eq!(cc.target(), 5 * GBIT + 240_000_000 + 400_000_000, "both at six: once");
    ten_megabytes(&mut cc, us(from + 55 * 6));
    assert_eq!(cc.target(), 5 * GBIT + 640_000_000 + 400_000_000, "seven by bytes, six by timer: once again");
    cc.advance(us(from + 55 * 7));
    assert_eq!(cc.target(), 5 * GBIT + 1_040_000_000 + 800_000_000, "both at seven: twice");
}

#[test]
fn a_notification_starts_timers_counters_and_phases_anew() {
    let mut cc = dcqcn();
    notify(&mut cc, us(0));
    cc.on_sent(us(54), 4000);
    cc.advance(us(54 + 55 * 9));
    notify(&mut cc, us(600));
    assert_eq!((cc.by_timer, cc.by_bytes, cc.bytes), (0, 0, 0));
    let rate = cc.rate();
    cc.advance(us(654));
    assert_eq!(cc.rate(), rate, "54 µs later no period has passed");
    cc.advance(us(655));
    assert_eq!(cc.rate(), rate + (cc.target() - rate).div_ceil(2));
}

#[test]
fn the_rate_stops_at_the_floor_and_at_the_line() {
    let mut cc = dcqcn();
    for n in 0..100 {
        notify(&mut cc, us(n));
    }
    assert_eq!(cc.rate(), 10_000_000);
    cc.advance(us(100_000_000));
    assert_eq!((cc.rate(), cc.target()), (LINE, LINE));
    assert_eq!(cc.next_send(), Instant::ZERO);
}

#[test]
fn packets_leave_at_the_rate() {
    let mut cc = dcqcn();
    notify(&mut cc, us(1000));
    // 4976 bytes and 24 bytes of framing at 20 Gbit/s: 2 µs each.
    let mut now = us(1000);
    for n in 0..20 {
        assert_eq!(now, us(1000 + 2 * n));
        cc.on_sent(now, 4976);
        now = cc.next_send();
    }
}

#[test]
fn a_packet_that_waits_leaves_earlier_when_the_rate_rises_meanwhile() {
    let mut cc = Dcqcn::new(80_000_000, DcqcnConfig::default());
    notify(&mut cc, us(0));
    // 1000 bytes at 40 Mbit/s would take 200 µs. 275 bytes are paid for in 55 µs; then 412.5 bytes at 60 Mbit/s; then 70 Mbit/s, at which
    // the other 312.5 take 35.714 µs.
    cc.on_sent(us(0), 976);
    assert_eq!(cc.next_send(), Instant::from_nanos(110_000 + 35_715));
    // A later query returns the same time.
    cc.advance(us(100));
    assert_eq!(cc.next_send(), Instant::from_nanos(110_000 + 35_715));
    // A notification undoes the increase. At 100 µs 387.5 bytes are still to be paid for, α is 255/256, and the rate falls from 60 to
    // 30.117 Mbit/s. In 55 µs that pays for 207.056 bytes; at 45.059 the other 180.444 take 32.037 µs.
    notify(&mut cc, us(100));
    assert_eq!(cc.rate(), 60_000_000 - 60_000_000 * 255 / 512);
    let expected = 155_000 + 32_037;
    assert!(cc.next_send().as_nanos().abs_diff(expected) <= 2, "{:?}", cc.next_send());
}

#[test]
fn a_long_pause_costs_little_and_ends_at_the_line_rate() {
    let slow = DcqcnConfig { additive: 1, hyper: 1, ..DcqcnConfig::default() };
    let mut cc = Dcqcn::new(LINE, slow);
    notify(&mut cc, us(0));
    cc.on_sent(Instant::from_nanos(u64::MAX / 2), 100);
    assert_eq!(cc.rate(), LINE, "the target was the line's rate");
    let mut never = Dcqcn::new(LINE, slow);
    (0..100).for_each(|n| notify(&mut never, us(n)));
    never.on_sent(Instant::from_nanos(u64::MAX / 2), 100);
    assert!(never.rate() < 11_000_000);
    assert!(never.timer_since > Instant::from_nanos(u64::MAX / 2 - 55_001));
}

#[derive(Debug, Clone, Copy)]
enum Step {
    Wait(u64),
    Notify,
    Send(u32),
    Other(u8),
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        (0u64..200_000).prop_map(Step::Wait),
        (0u64..10_000_000_000).prop_map(Step::Wait),
        Just(Step::Notify),
        (64u32..4200).prop_map(Step::Send),
        (0u8..3).prop_map(Step::Other),
    ]
}

fn config() -> impl Strategy<Value = DcqcnConfig> {
    let times = (0u64..1_000_000, 0u64..1_000_000, 0u64..1_000_000).prop_map(|(a, b, c)| [a, b, c]);
    let numbers = (0u32..10_000, 0u32..20, 0u64..100_000);
    let rates = (0u64..1_000_000_000, 0u64..u64::MAX, 0u64..1 << 40);
    (times, numbers, rates).prop_map(|([a, t, b], (gain, f, bytes), (ai, hai, floor))| DcqcnConfig {
        gain,
        alpha_timer: Duration::from_nanos(a),
        increase_timer: Duration::from_nanos(t),
        byte_counter: bytes,
        fast_recovery: f,
        additive: ai,
        hyper: hai,
        floor,
        burst: Duration::from_nanos(b),
    })
}

proptest! {
    #[test]
    fn whatever_happens_rates_and_alpha_stay_in_their_bounds(
        line in 0u64..1_000_000_000_000,
        config in config(),
        steps in prop::collection::vec(step(), 1..200),
    ) {
        let mut cc = Dcqcn::new(line, config);
        let (line, floor) = (line.max(1), config.floor.clamp(1, line.max(1)));
        let mut now = Instant::ZERO;
        for step in steps {
            match step {
                Step::Wait(ns) => now = now + Duration::from_nanos(ns),
                Step::Notify => notify(&mut cc, now),
                Step::Send(bytes) => cc.on_sent(now, bytes),
                Step::Other(0) => cc.on_feedback(now, Feedback::Loss),
                Step::Other(1) => cc.on_feedback(now, Feedback::Timeout),
                Step::Other(_) => cc.on_feedback(now, Feedback::Acknowledged { bytes: 1000, rtt: None }),
            }
            prop_assert!((floor..=line).contains(&cc.rate()), "{}", cc.rate());
            prop_assert!(cc.rate() <= cc.target() && cc.target() <= line);
            prop_assert!(cc.alpha() > 0.0 && cc.alpha() <= 1.0);
        }
    }

    /// A sender that sends as early as permitted, whatever the notifications are, never exceeds the link rate and the burst; and it makes
    /// progress.
    #[test]
    fn what_leaves_fits_the_rates_that_there_were(gaps in prop::collection::vec(10u64..500, 1..100)) {
        let mut cc = Dcqcn::new(10 * GBIT, DcqcnConfig::default());
        notify(&mut cc, Instant::ZERO);
        let (mut now, mut sent, mut allowed, mut last) = (Instant::ZERO, 0.0, 0.0, 0);
        let mut next_cnp = 0;
        for (n, gap) in gaps.iter().enumerate() {
            next_cnp += gap * 1000;
            let mut packets = 0;
            while cc.next_send().as_nanos() <= next_cnp && packets < 2000 {
                now = now.max(cc.next_send());
                cc.on_sent(now, 1000);
                sent += 1024.0 * 8.0;
                packets += 1;
            }
            now = Instant::from_nanos(next_cnp);
            // The rate only rises between notifications, so the current rate is the highest.
            cc.advance(now);
            allowed += cc.rate() as f64 * (next_cnp - last) as f64 / 1e9 + 1024.0 * 8.0;
            prop_assert!(sent <= allowed, "after {n}: {sent} bits of {allowed}");
            last = next_cnp;
            notify(&mut cc, now);
        }
    }
}
