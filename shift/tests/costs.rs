//! What is kept for a connection while its backup is used is bounded, whatever its program does.

use softnic_nic::transports::{Data, PostError, SendFlags, SendOp, SendWr, Sge};
use softnic_sim::dual_pair::DualPairConfig;
use softnic_sim::pair::{A, B};
use softnic_wire::failover::Phase;

use crate::traffic::{MS, SIZE, Traffic, config};

#[test]
fn a_program_that_never_signals_is_kept_no_more_sends_for_than_it_has_outstanding() {
    let mut traffic = Traffic::with(DualPairConfig { sig_all: false, ..config() });
    traffic.quiet = [true; 2];
    traffic.set_link(A, false);
    assert!(traffic.run_until(5 * MS, |t| t.phase(A) == Some(Phase::Fallback)));
    let (qpn, room) = (traffic.qpns[A], traffic.depths[0] as usize);
    let (mut posted, mut most) = (0u64, 0);
    let sges = [Sge { addr: traffic.buffers[A].addr(), len: SIZE as u32, lkey: traffic.keys[A] }];
    assert!(traffic.run_until(500 * MS, |t| {
        let now = t.pair.sim.now().instant();
        loop {
            let (data, flags) = (Data::Gather(&sges), SendFlags::default());
            let wr = SendWr { wr_id: posted, op: SendOp::Send, data, flags, best_effort: None, to: None };
            match t.pair.host(A).post_send(now, qpn, &wr) {
                Ok(()) => posted += 1,
                Err(PostError::QueueFull) => break,
                Err(error) => panic!("{error}"),
            }
        }
        most = most.max(t.pair.host(A).kept_sends(qpn));
        posted > 2000
    }));
    // As many in the queue that waits, as many at the backup, and our own beside them.
    assert!(most <= 2 * room + 4, "{most} sends are kept for a queue of {room}");
    assert_eq!((traffic.phase(A), traffic.errors), (Some(Phase::Fallback), [0; 2]));
    // How long the fallback took is known all the same.
    assert_eq!(traffic.pair.host(A).failover_counters().unwrap().times().len(), 0, "nothing waited for it");
    assert!(traffic.heard[B] > 1000);
}
