//! Many connections that fail at once: what they cost grows with their number, and no faster.

use std::time::Duration;

use softnic_nic::Buffer;
use softnic_nic::transports::memory::Access;
use softnic_nic::transports::{Data, RecvWr, SendFlags, SendOp, SendWr, Sge, Status};
use softnic_shift::Times;
use softnic_sim::Time;
use softnic_sim::dual_pair::{DualPair, DualPairConfig};
use softnic_sim::pair::{A, B};
use softnic_wire::failover::Phase;

use crate::traffic::{MS, config};

const SIZE: usize = 512;

/// So many connections with a message each lose the default and get it back; how often connections were looked at, by both hosts, for the
/// fallback and for the return.
fn fail_and_return(connections: usize) -> [u64; 2] {
    let mut pair = DualPair::new(DualPairConfig { cq_capacity: 4 * connections, ..config() });
    let buffers = [A, B].map(|host| Buffer::new(0x1000_0000 * (1 + host as u64), SIZE));
    let keys = [A, B].map(|host| pair.reg_mr(host, &buffers[host], Access::LOCAL_WRITE).unwrap());
    let all: Vec<_> = (0..connections).map(|_| pair.connect().unwrap()).collect();
    assert!(pair.protect_all(&all));
    let looks = |pair: &mut DualPair<'_>| pair.host(A).looks() + pair.host(B).looks();
    let met = looks(&mut pair);
    assert!(met <= 20 * connections as u64, "{met} looks until {connections} have met");
    let sge = |host: usize| [Sge { addr: buffers[host].addr(), len: SIZE as u32, lkey: keys[host] }];
    let now = pair.sim.now().instant();
    // The port goes first: all of it has to move.
    pair.host(A).nic.set_link(false);
    for (wr_id, qpns) in (0..).zip(&all) {
        pair.host(B).post_recv(qpns[B], &RecvWr { wr_id, sges: &sge(B), best_effort: None }).unwrap();
        let (sges, flags) = (sge(A), SendFlags::default());
        let wr = SendWr { wr_id, op: SendOp::Send, data: Data::Gather(&sges), flags, best_effort: None, to: None };
        pair.host(A).post_send(now, qpns[A], &wr).unwrap();
    }
    let is_everywhere = |pair: &mut DualPair<'_>, phase: Phase| {
        [A, B].into_iter().all(|host| {
            let nic = pair.host(host);
            all.iter().all(|qpns| nic.machine(qpns[host]).unwrap().phase() == phase)
        })
    };
    let (mut done, mut steps) = (0, 0u64);
    let end = Time(pair.sim.now().0 + Duration::from_secs(30).as_nanos() as u64 * 1000);
    let mut counted = Vec::new();
    for phase in [Phase::Fallback, Phase::Default] {
        let before = looks(&mut pair);
        if phase == Phase::Default {
            pair.host(A).nic.set_link(true);
        }
        [A, B].into_iter().for_each(|host| pair.sim.touch(host));
        loop {
            assert!(pair.sim.now() < end, "{done} of {connections} are done");
            let Some(node) = pair.sim.step() else { break };
            pair.attend(node);
            steps += 1;
            let cq = pair.sides[A].send_cq;
            while let Some(completion) = pair.host(A).poll_cq(cq).unwrap() {
                assert_eq!(completion.status, Status::Success);
                done += 1;
            }
            // The question costs as much as there are connections, so it is not asked each time.
            if done == connections && steps.is_multiple_of(256) && is_everywhere(&mut pair, phase) {
                break;
            }
        }
        assert!(is_everywhere(&mut pair, phase));
        counted.push(looks(&mut pair) - before);
    }
    let counters = pair.host(A).failover_counters().unwrap();
    let n = connections as u64;
    assert_eq!((counters.failovers, counters.failbacks, counters.refused), (n, n, 0));
    counted.try_into().unwrap()
}

#[test]
fn a_thousand_connections_that_fail_at_once_fall_back_and_return_without_looks_at_one_another() {
    let [few, many] = [100, 1000].map(fail_and_return);
    for (few, many) in few.into_iter().zip(many) {
        // Ten times as many connections are ten times as many looks; twenty would be a start of a hundred.
        assert!(many <= 20 * few, "{few} looks at a hundred connections, {many} at a thousand");
        assert!(many <= 100 * 1000, "{many} looks at a thousand connections");
    }
}

#[test]
fn frames_of_others_ask_for_no_look_at_a_connection_that_is_in_fallback() {
    // One of the connections that are in fallback sends; nobody is probed meanwhile.
    let times = Times { probe: Duration::from_secs(10), ..config().times };
    let mut pair = DualPair::new(DualPairConfig { cq_capacity: 4096, times, ..config() });
    let buffers = [A, B].map(|host| Buffer::new(0x1000_0000 * (1 + host as u64), SIZE));
    let keys = [A, B].map(|host| pair.reg_mr(host, &buffers[host], Access::LOCAL_WRITE).unwrap());
    let all: Vec<_> = (0..50).map(|_| pair.connect().unwrap()).collect();
    assert!(pair.protect_all(&all));
    pair.host(A).nic.set_link(false);
    pair.sim.touch(A);
    let settle = |pair: &mut DualPair<'_>, span: Duration| {
        let end = Time(pair.sim.now().0 + span.as_nanos() as u64 * 1000);
        pair.sim.wake_at(end, A);
        while pair.sim.now() < end
            && let Some(node) = pair.sim.step()
        {
            pair.attend(node);
        }
    };
    // All have fallen back.
    settle(&mut pair, 5 * MS);
    let before = pair.host(A).looks();
    let [to, from] = [B, A].map(|host| [Sge { addr: buffers[host].addr(), len: SIZE as u32, lkey: keys[host] }]);
    const MESSAGES: u64 = 8;
    for wr_id in 0..MESSAGES {
        let now = pair.sim.now().instant();
        pair.host(B).post_recv(all[0][B], &RecvWr { wr_id, sges: &to, best_effort: None }).unwrap();
        let (data, flags) = (Data::Gather(&from[..]), SendFlags::default());
        let wr = SendWr { wr_id, op: SendOp::Send, data, flags, best_effort: None, to: None };
        pair.host(A).post_send(now, all[0][A], &wr).unwrap();
        [A, B].into_iter().for_each(|host| pair.sim.touch(host));
        settle(&mut pair, MS / 10);
    }
    let looks = pair.host(A).looks() - before;
    assert!(looks <= 4 * MESSAGES, "{looks} looks for {MESSAGES} messages of one connection");
}
