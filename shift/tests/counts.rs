//! What an end counts of its receives, and when.

use softnic_shift::Notice;
use softnic_sim::pair::{A, B};
use softnic_wire::failover::Phase;

use crate::traffic::{MS, Traffic};

#[test]
fn a_count_from_before_the_last_messages_of_the_backup_came_is_no_lie() {
    let mut traffic = Traffic::new();
    for host in [A, B] {
        traffic.post_send(host).unwrap();
    }
    // Neither has a receive. Both fall back, find that the default works, and send a fence behind their message.
    traffic.set_link(A, false);
    assert!(
        traffic.watch_until(5 * MS, |t| t.phase(A) == Some(Phase::Fallback) && t.phase(B) == Some(Phase::Fallback))
    );
    traffic.set_link(A, true);
    let drain = |t: &mut Traffic| t.phase(A) == Some(Phase::WaitDrained) && t.phase(B) == Some(Phase::WaitDrained);
    assert!(traffic.watch_until(50 * MS, drain));
    // A counts no receive; its status waits behind its message.
    traffic.set_link(A, false);
    assert!(traffic.watch_until(5 * MS, |t| t.phase(A) == Some(Phase::Fallback)));
    // Then B's message comes, and B is about to return.
    traffic.post_recv(A).unwrap();
    assert!(traffic.watch_until(50 * MS, |t| t.done[B] == 1));
    // A's message comes, and behind it what A counted.
    traffic.post_recv(B).unwrap();
    assert!(traffic.watch_until(50 * MS, |t| t.done[A] == 1 && t.heard[B] == 1));
    traffic.set_link(A, true);
    assert!(traffic.run_until(50 * MS, |t| t.done[A] > 100 && t.done[B] > 100), "{:?}", traffic.notices);
    assert_eq!(traffic.errors, [0, 0]);
    assert!(!traffic.notices.iter().flatten().any(|notice| matches!(notice, Notice::Failed(..))));
}
