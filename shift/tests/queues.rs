//! Completion queues in the middle of a failover: sized for the program's work alone, resized, destroyed.

use std::time::Duration;

use softnic_nic::transports::qp::QpState;
use softnic_nic::{CqError, QpAttr};
use softnic_sim::dual_pair::DualPairConfig;
use softnic_sim::pair::{A, B};
use softnic_wire::failover::Phase;

use crate::traffic::{MS, Traffic, config};

/// A host in fallback with a probe outstanding.
fn in_fallback(config: DualPairConfig) -> Traffic {
    let mut traffic = Traffic::with(config);
    traffic.run_until(MS / 2, |_| false);
    traffic.set_link(A, false);
    assert!(traffic.run_until(20 * MS, |t| t.phase(A) == Some(Phase::Fallback)));
    traffic.run_until(5 * MS, |_| false);
    let qpn = traffic.qpns[A];
    assert!(traffic.pair.host(A).machine(qpn).unwrap().awaits_probe());
    traffic
}

#[test]
fn a_completion_queue_with_room_for_the_program_s_work_does_not_overflow_by_ours() {
    let mut config = config();
    let depth = config.caps.max_send_wr.max(config.caps.max_recv_wr);
    (config.caps.max_send_wr, config.caps.max_recv_wr, config.cq_capacity) = (depth, depth, depth as usize);
    let mut traffic = in_fallback(config);
    // The peer takes nothing more: all sends stay outstanding, and the queue is empty.
    traffic.gone[B] = true;
    let full =
        |t: &mut Traffic| t.posted[A] == t.done[A] + u64::from(depth) && t.recvs[A] == t.heard[A] + u64::from(depth);
    assert!(traffic.run_until(50 * MS, full));
    let (qpn, now) = (traffic.qpns[A], traffic.pair.sim.now().instant());
    let error = QpAttr { state: Some(QpState::Error), ..QpAttr::default() };
    traffic.pair.host(A).modify_qp(now, qpn, &error).unwrap();
    // Polling says so where it did.
    assert!(traffic.watch_until(MS, |t| t.done[A] == t.posted[A] && t.heard[A] == t.recvs[A]));
}

#[test]
fn a_completion_queue_is_resized_in_the_middle_of_a_failover() {
    for phase in [Phase::Moving, Phase::Fallback] {
        let mut traffic = Traffic::new();
        traffic.run_until(MS / 2, |_| false);
        traffic.set_link(A, false);
        assert!(traffic.run_until(20 * MS, |t| t.phase(A) == Some(phase)));
        let [send_cq, recv_cq] = [traffic.pair.sides[A].send_cq, traffic.pair.sides[A].recv_cq];
        let nic = &mut traffic.pair.host(A).nic;
        // The program's own room is enough, now and later.
        for capacity in [32, 1024, 32] {
            [send_cq, recv_cq].into_iter().for_each(|cq| nic.resize_cq(cq, capacity).unwrap());
        }
        assert_eq!(nic.destroy_cq(send_cq), Err(CqError::Busy));
        let done = traffic.done;
        assert!(traffic.run_until(20 * MS, |t| t.phase(A) == Some(Phase::Fallback) && t.done[A] > done[A] + 50));
        traffic.set_link(A, true);
        let back = |t: &mut Traffic| t.phase(A) == Some(Phase::Default) && t.phase(B) == Some(Phase::Default);
        assert!(traffic.run_until(Duration::from_secs(2), back), "{phase:?}");
        assert_eq!(traffic.errors, [0; 2]);
    }
}

#[test]
fn a_completion_queue_that_is_destroyed_behind_its_queue_pair_in_fallback_gets_nothing_more() {
    let mut traffic = in_fallback(config());
    let (qpn, sides) = (traffic.qpns[A], traffic.pair.sides[A]);
    // What the backup has completed, and has not told yet, is of a queue pair that is gone.
    traffic.watch_until(MS / 100, |_| false);
    let host = traffic.pair.host(A);
    host.destroy_qp(qpn).unwrap();
    traffic.gone[A] = true;
    let nic = &mut traffic.pair.host(A).nic;
    for cq in [sides.send_cq, sides.recv_cq] {
        nic.destroy_cq(cq).unwrap();
    }
    // Others have their numbers from now on.
    let new = [nic.create_cq(16), nic.create_cq(16)];
    assert!(new.contains(&sides.send_cq) && new.contains(&sides.recv_cq));
    traffic.watch_until(20 * MS, |_| false);
    for cq in new {
        assert_eq!(traffic.pair.host(A).poll_cq(cq), Ok(None));
    }
}
