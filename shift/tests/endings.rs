//! Programs that destroy, reset or give up a queue pair, in each phase of its connection and at either end.

use std::time::Duration;

use softnic_nic::QpAttr;
use softnic_nic::transports::qp::QpState;
use softnic_sim::pair::{A, B};
use softnic_wire::failover::Phase;

use crate::traffic::{MS, Traffic};

const PHASES: [Phase; 5] = [Phase::Default, Phase::Moving, Phase::Fallback, Phase::WaitSignaled, Phase::WaitDrained];

#[derive(Debug, Clone, Copy, PartialEq)]
enum Ending {
    Destroy,
    Reset,
    Error,
}

/// Brings the connection of a host to a phase, with traffic both ways.
fn reach(traffic: &mut Traffic, host: usize, phase: Phase) {
    traffic.run_until(MS / 2, |_| false);
    if phase == Phase::Default {
        return;
    }
    traffic.set_link(host, false);
    if phase == Phase::Moving {
        assert_eq!(traffic.phase(host), Some(Phase::Moving));
        return;
    }
    assert!(traffic.run_until(5 * MS, |t| t.phase(host) == Some(Phase::Fallback)));
    traffic.run_until(MS / 2, |_| false);
    // A program that has signaled sends is not seen to wait for one.
    traffic.quiet[host] = phase == Phase::WaitSignaled;
    if phase != Phase::Fallback {
        traffic.set_link(host, true);
        assert!(traffic.run_until(50 * MS, |t| t.phase(host) == Some(phase)), "{phase:?}");
    }
}

fn end(traffic: &mut Traffic, host: usize, ending: Ending) {
    let (qpn, now) = (traffic.qpns[host], traffic.pair.sim.now().instant());
    let nic = traffic.pair.host(host);
    let to = |state| QpAttr { state: Some(state), ..QpAttr::default() };
    match ending {
        Ending::Destroy => nic.destroy_qp(qpn).unwrap(),
        Ending::Reset => nic.modify_qp(now, qpn, &to(QpState::Reset)).unwrap(),
        Ending::Error => nic.modify_qp(now, qpn, &to(QpState::Error)).unwrap(),
    }
    traffic.gone[host] = true;
    traffic.pair.sim.touch(host);
}

/// Nothing of a host is in its domain any more, at either NIC: neither queue pairs nor control memory.
fn assert_nothing_left(traffic: &mut Traffic, host: usize) {
    let (pd, key) = (traffic.pair.sides[host].pd, traffic.keys[host]);
    let nic = traffic.pair.host(host);
    assert_eq!(nic.nic.queue_pairs().count(), 0);
    assert_eq!(nic.backup().unwrap().queue_pairs().count(), 0);
    nic.forget_mr(key);
    nic.nic.dereg_mr(key).unwrap();
    nic.nic.dealloc_pd(pd).expect("control memory is left at the default");
    // Both NICs have made one domain, their first.
    nic.backup().unwrap().dealloc_pd(pd).expect("control memory is left at the backup");
}

fn try_ending(ending: Ending) {
    for host in [A, B] {
        for phase in PHASES {
            let what = format!("{ending:?} in {phase:?} by {}", ["A", "B"][host]);
            let mut traffic = Traffic::new();
            reach(&mut traffic, host, phase);
            end(&mut traffic, host, ending);
            // All that the peer has posted ends; its retries and ours take their time.
            let peer = 1 - host;
            let told = |t: &mut Traffic| {
                t.errors[peer] > 0 && t.done[peer] == t.posted[peer] && t.heard[peer] == t.recvs[peer]
            };
            assert!(traffic.run_until(Duration::from_secs(1), told), "{what}: {:?}", traffic.notices);
            if ending == Ending::Error {
                let all = (traffic.done[host], traffic.heard[host]);
                assert_eq!(all, (traffic.posted[host], traffic.recvs[host]), "{what}");
                assert!(traffic.errors[host] > 0, "{what}");
            }
            // Nothing more comes.
            let told = (traffic.done, traffic.heard);
            traffic.run_until(20 * MS, |_| false);
            assert_eq!((traffic.done, traffic.heard), told, "{what}");
            for host in [A, B] {
                let qpn = traffic.qpns[host];
                let nic = traffic.pair.host(host);
                if nic.nic.qp_state(qpn).is_some() {
                    nic.destroy_qp(qpn).unwrap();
                }
                assert_nothing_left(&mut traffic, host);
            }
        }
    }
}

#[test]
fn a_connection_that_is_destroyed_in_any_phase_leaves_nothing_and_the_peer_sees_errors() {
    try_ending(Ending::Destroy);
}

#[test]
fn a_connection_that_is_reset_in_any_phase_leaves_nothing_and_the_peer_sees_errors() {
    try_ending(Ending::Reset);
}

#[test]
fn a_connection_that_is_given_up_in_any_phase_flushes_all_and_the_peer_sees_errors() {
    try_ending(Ending::Error);
}

#[test]
fn a_peer_that_only_receives_hears_nothing_of_an_end_before_it_sends_and_then_errors() {
    for (host, ending) in [A, B].into_iter().flat_map(|host| [(host, Ending::Destroy), (host, Ending::Reset)]) {
        for phase in PHASES {
            let (what, peer) = (format!("{ending:?} in {phase:?} by {}", ["A", "B"][host]), 1 - host);
            let mut traffic = Traffic::new();
            traffic.quiet[peer] = true;
            reach(&mut traffic, host, phase);
            end(&mut traffic, host, ending);
            // Longer than an answer is waited for, and than all retries take.
            traffic.run_until(Duration::from_secs(1), |_| false);
            assert_eq!(traffic.errors[peer], 0, "{what}: {:?}", traffic.notices[peer]);
            traffic.post_send(peer).unwrap();
            let (posted, recvs) = (traffic.posted[peer], traffic.recvs[peer]);
            let told = |t: &mut Traffic| t.done[peer] == posted && t.heard[peer] == recvs;
            assert!(traffic.watch_until(Duration::from_secs(1), told), "{what}: {:?}", traffic.notices[peer]);
            assert!(traffic.errors[peer] > 0, "{what}");
            // It is over: nothing is sent for it any more.
            traffic.watch_until(100 * MS, |_| false);
            let sent = |t: &mut Traffic| {
                let nic = t.pair.host(peer);
                nic.nic.counters().sent_pkts + nic.backup().unwrap().counters().sent_pkts
            };
            let before = sent(&mut traffic);
            traffic.watch_until(Duration::from_secs(1), |_| false);
            assert_eq!(sent(&mut traffic), before, "{what}");
        }
    }
}

#[test]
fn a_connection_that_is_protected_again_gives_back_what_it_had() {
    let mut traffic = Traffic::new();
    let (qpn, now) = (traffic.qpns[A], traffic.pair.sim.now().instant());
    for _ in 0..3 {
        traffic.pair.host(A).protect(now, qpn).unwrap();
        assert_eq!(traffic.pair.host(A).backup().unwrap().queue_pairs().count(), 1);
    }
    traffic.pair.host(A).destroy_qp(qpn).unwrap();
    assert_nothing_left(&mut traffic, A);
}
