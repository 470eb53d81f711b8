//! Failures in quick succession: the second one comes before the handshake of the first is done.

use std::time::Duration;

use softnic_sim::pair::{A, B};
use softnic_wire::failover::Phase;

use crate::traffic::{MS, Traffic};

/// The round trip of [`crate::traffic::config`], and something more for messages on the wire.
const ROUND_TRIP_US: u64 = 24;
/// How long everything may take to settle, in virtual time.
const LIMIT: Duration = Duration::from_millis(200);

/// Traffic both ways, and the default port of A has just gone down.
fn failing() -> Traffic {
    let mut traffic = Traffic::new();
    traffic.run_until(MS / 2, |_| false);
    traffic.set_link(A, false);
    traffic
}

/// Both ends go on by their backups, return when the links are there again, and no program sees an error.
fn assert_goes_on_and_returns(mut traffic: Traffic, what: &str) {
    let before = traffic.done;
    let moved = |t: &mut Traffic| {
        [A, B].iter().all(|&host| t.phase(host) == Some(Phase::Fallback) && t.done[host] > before[host] + 20)
    };
    assert!(traffic.run_until(LIMIT, moved), "{what}: {:?} {:?}", traffic.notices, traffic.errors);
    traffic.set_link(A, true);
    traffic.set_link(B, true);
    let returned = |t: &mut Traffic| [A, B].iter().all(|&host| t.phase(host) == Some(Phase::Default));
    assert!(traffic.run_until(LIMIT, returned), "{what}: {:?} {:?}", traffic.notices, traffic.errors);
    let before = traffic.done;
    let more = |t: &mut Traffic| [A, B].iter().all(|&host| t.done[host] > before[host] + 20);
    assert!(traffic.run_until(LIMIT, more), "{what}: {:?} {:?}", traffic.notices, traffic.errors);
    assert_eq!(traffic.errors, [0; 2], "{what}");
}

#[test]
fn the_other_port_fails_within_a_round_trip() {
    for us in 0..=2 * ROUND_TRIP_US {
        let mut traffic = failing();
        traffic.run_until(Duration::from_micros(us), |_| false);
        traffic.set_link(B, false);
        assert_goes_on_and_returns(traffic, &format!("B fails {us} us after A"));
    }
}

#[test]
fn a_port_comes_back_and_fails_again_within_a_round_trip() {
    for us in 0..=ROUND_TRIP_US {
        let mut traffic = failing();
        let half = Duration::from_nanos(us * 500);
        traffic.run_until(half, |_| false);
        traffic.set_link(A, true);
        traffic.run_until(half, |_| false);
        traffic.set_link(A, false);
        assert_goes_on_and_returns(traffic, &format!("A fails again after {us} us"));
    }
}

/// Whoever has moved waits for its link, as `--link-down wait` has it: then both go on, or both end.
#[test]
fn both_paths_fail_within_a_round_trip_and_both_ends_go_on_or_end_when_the_backup_is_back() {
    for us in 0..=2 * ROUND_TRIP_US {
        let mut traffic = failing();
        traffic.run_until(Duration::from_micros(us), |_| false);
        let set_backups = |traffic: &mut Traffic, up| {
            for host in [A, B] {
                traffic.pair.host(host).backup().unwrap().set_link(up);
                traffic.pair.sim.touch(host);
            }
        };
        set_backups(&mut traffic, false);
        traffic.run_until(20 * MS, |_| false);
        set_backups(&mut traffic, true);
        let before = traffic.done;
        let settled = |t: &mut Traffic| {
            let ended = |h: usize| t.errors[h] > 0 && t.done[h] == t.posted[h] && t.heard[h] == t.recvs[h];
            let goes_on = |h: usize| t.errors[h] == 0 && t.done[h] > before[h] + 20;
            [A, B].into_iter().all(ended) || [A, B].into_iter().all(goes_on)
        };
        let what = |t: &Traffic| format!("{us} us: {:?} {:?}", t.notices, t.errors);
        assert!(traffic.run_until(Duration::from_secs(20), settled), "{}", what(&traffic));
    }
}

/// One end has returned to the default and keeps its queue full when the backup, by which the other one still sends, fails: its status waits
/// for room there.
#[test]
fn the_backup_fails_when_one_end_has_returned_and_its_queue_is_full() {
    let mut tried = 0;
    for (us, host) in (0..=200).step_by(8).flat_map(|us| [(us, A), (us, B)]) {
        let mut traffic = failing();
        traffic.run_until(5 * MS, |_| false);
        traffic.set_link(A, true);
        let one = |t: &mut Traffic| [A, B].iter().any(|&host| t.phase(host) == Some(Phase::Default));
        assert!(traffic.run_until(LIMIT, one), "{us} us: {:?}", traffic.notices);
        traffic.run_until(Duration::from_micros(us), |_| false);
        tried += usize::from([A, B].iter().any(|&host| traffic.phase(host) != Some(Phase::Default)));
        traffic.pair.host(host).backup().unwrap().set_link(false);
        traffic.pair.sim.touch(host);
        let (before, what) = (traffic.done, format!("{us} us, backup of {host}"));
        let more = |t: &mut Traffic| [A, B].iter().all(|&host| t.done[host] > before[host] + 40);
        assert!(traffic.run_until(LIMIT, more), "{what}: {:?} {:?}", traffic.notices, traffic.errors);
        assert_eq!(traffic.errors, [0; 2], "{what}");
    }
    assert!(tried > 5, "{tried} of them were between");
}
