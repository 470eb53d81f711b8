//! Two hosts with two NICs: what fails, and what the program sees of it.

use std::time::Duration;

use softnic_fault_injector::Spec;
use softnic_nic::Buffer;
use softnic_nic::transports::memory::Access;
use softnic_nic::transports::negotiation::Choice;
use softnic_nic::transports::qp::Caps;
use softnic_nic::transports::{Data, RecvWr, SendFlags, SendOp, SendWr, Sge, Status};
use softnic_shift::{Notice, Times};
use softnic_sim::dual_pair::{DualPair, DualPairConfig};
use softnic_sim::pair::{A, B};
use softnic_sim::{LinkConfig, Time, Transport};
use softnic_wire::PathMtu;
use softnic_wire::failover::{Phase, Side};

fn config(faults: &str, backup: Option<&str>) -> DualPairConfig {
    let spec = |text: &str| if text.is_empty() { Spec::default() } else { text.parse().unwrap() };
    DualPairConfig {
        transport: Transport::Rc,
        link: LinkConfig { rate: 10_000_000_000, delay: Duration::from_micros(10), faults: spec(faults) },
        backup: backup.map(spec),
        mtu: PathMtu::B1024,
        timeout: 8,
        retry_cnt: 3,
        rnr_retry: 7,
        caps: Caps { max_send_wr: 16, max_recv_wr: 64, max_send_sge: 2, max_recv_sge: 2, max_inline: 64 },
        sig_all: false,
        cq_capacity: 256,
        times: Times { probe: Duration::from_millis(2), fence: Duration::from_millis(2), ..Times::default() },
        seed: 7,
    }
}

#[test]
fn a_program_that_sends_goes_on_by_the_backup_and_returns() {
    const SIZE: usize = 3000;
    const COUNT: u64 = 4000;
    let mut pair = DualPair::new(config("down=1ms+10ms", Some("")));
    let access = Access::LOCAL_WRITE | Access::REMOTE_WRITE | Access::REMOTE_READ;
    let buffers = [A, B].map(|host| Buffer::new(0x1000_0000 * (1 + host as u64), 64 * SIZE));
    let keys = [A, B].map(|host| pair.reg_mr(host, &buffers[host], access).unwrap());
    let qpns = pair.connect().unwrap();
    assert!(pair.protect(qpns));
    let (mut posted, mut done, mut received, mut recvs) = (0u64, 0u64, 0u64, 0u64);
    let mut moved = Vec::new();
    loop {
        let now = pair.sim.now().instant();
        while recvs < received + 32 {
            let at = buffers[B].addr() + recvs % 64 * SIZE as u64;
            let sges = [Sge { addr: at, len: SIZE as u32, lkey: keys[B] }];
            pair.host(B).post_recv(qpns[B], &RecvWr { wr_id: recvs, sges: &sges, best_effort: None }).unwrap();
            recvs += 1;
        }
        while posted < COUNT && posted < done + 8 {
            buffers[A].write_at((posted % 64) as usize * SIZE, &[posted as u8; SIZE]);
            let at = buffers[A].addr() + posted % 64 * SIZE as u64;
            let sges = [Sge { addr: at, len: SIZE as u32, lkey: keys[A] }];
            let flags = SendFlags { signaled: true, ..SendFlags::default() };
            let data = Data::Gather(&sges);
            let wr = SendWr { wr_id: posted, op: SendOp::Send, data, flags, best_effort: None, to: None };
            pair.host(A).post_send(now, qpns[A], &wr).unwrap();
            posted += 1;
        }
        pair.sim.touch(A);
        pair.sim.touch(B);
        if done == COUNT && received == COUNT {
            break;
        }
        let node = pair.sim.step().expect("it stalls");
        for notice in pair.attend(node) {
            if let Notice::Moved(qpn, side, _) = notice {
                moved.push((qpn == qpns[A], side));
            }
        }
        let (send_cq, recv_cq) = (pair.sides[A].send_cq, pair.sides[B].recv_cq);
        while let Some(completion) = pair.host(A).poll_cq(send_cq).unwrap() {
            assert_eq!((completion.status, completion.wr_id), (Status::Success, done));
            assert_eq!(completion.qpn, qpns[A]);
            done += 1;
        }
        while let Some(completion) = pair.host(B).poll_cq(recv_cq).unwrap() {
            assert_eq!((completion.status, completion.wr_id), (Status::Success, received));
            assert_eq!(completion.qpn, qpns[B]);
            let mut bytes = [0; SIZE];
            buffers[B].read_at((received % 64) as usize * SIZE, &mut bytes);
            assert!(bytes.iter().all(|&byte| byte == received as u8), "message {received}");
            received += 1;
        }
    }
    let sides: Vec<Side> = moved.iter().filter(|(is_a, _)| *is_a).map(|(_, side)| *side).collect();
    assert_eq!(sides, [Side::Backup, Side::Default], "at {:?}", pair.sim.now());
    let counters = pair.host(A).failover_counters().unwrap();
    assert_eq!((counters.failovers, counters.failbacks, counters.refused), (1, 1, 0));
}

#[test]
fn a_connection_keeps_its_reliability_when_its_path_was_dead_for_longer_than_offers_are_made() {
    // Offers are given up after a second.
    for transport in [Transport::SR, Transport::LOWAR] {
        let mut pair = DualPair::new(DualPairConfig { transport, ..config("down=2s+4s", Some("")) });
        let qpns = pair.connect().unwrap();
        assert!(pair.protect(qpns));
        let agreed = |pair: &mut DualPair<'_>| {
            [A, B].map(|host| {
                (pair.host(host).nic.choice(qpns[host]), pair.host(host).machine(qpns[host]).unwrap().phase())
            })
        };
        let run_to = |pair: &mut DualPair<'_>, seconds: u64| {
            let end = Time(seconds * 1_000_000_000_000);
            pair.sim.wake_at(end, A);
            while pair.sim.now() < end {
                let Some(node) = pair.sim.step() else { break };
                pair.attend(node);
            }
        };
        run_to(&mut pair, 1);
        assert_eq!(agreed(&mut pair), [(Some(Choice::Agreed), Phase::Default); 2], "{transport}");
        run_to(&mut pair, 3);
        pair.host(A).set_port(Side::Default, false);
        pair.sim.touch(A);
        run_to(&mut pair, 5);
        assert!(agreed(&mut pair).iter().all(|&(_, phase)| phase == Phase::Fallback), "{transport}");
        pair.host(A).set_port(Side::Default, true);
        run_to(&mut pair, 8);
        assert_eq!(agreed(&mut pair), [(Some(Choice::Agreed), Phase::Default); 2], "{transport}");
    }
}
