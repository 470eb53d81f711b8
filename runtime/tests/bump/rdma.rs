//! Two NICs of ours with a faulty wire between them: the data is right, and both sides' counters tell what the wire did.

use std::time::{Duration, Instant};

use softnic_fault_injector::Script;
use softnic_nic::QpKind;
use softnic_nic::transports::Counters as NicCounters;
use softnic_runtime::api::OpenOptions;
use softnic_runtime::bump::{Bump, Counters, Options, Summary};

use crate::path::{adds_up, options, start, wired};
use crate::veth::Veth;
use crate::world::{HALF, World};

/// Data both ways through faults; what the wire did, and what the NICs counted.
fn exchange(world: &World, bump: Bump, rounds: u8, len: usize) -> (Summary, [NicCounters; 2]) {
    let qps = world.queue_pairs(QpKind::Rc, |_| ());
    world.connect(&qps, [world.address(0), world.address(1)], |c| c.timeout = 14);
    for round in 0..rounds {
        world.write_and_compare(&qps, 0, len, 2 * round);
        world.write_and_compare(&qps, 1, len, 2 * round + 1);
    }
    // What is under way has arrived when nothing moves any more.
    let mut before = bump.counters();
    loop {
        std::thread::sleep(Duration::from_millis(250));
        world.progress();
        let now = bump.counters();
        let frames = |c: &[Counters; 2]| [c[0].roce_frames, c[1].roce_frames, c[0].tx_frames, c[1].tx_frames];
        if frames(&now) == frames(&before) {
            break;
        }
        before = now;
    }
    let summary = bump.stop().unwrap();
    world.progress();
    drop(qps);
    summary.counters.iter().for_each(adds_up);
    (summary, world.sides.each_ref().map(|side| side.context.counters()))
}

#[test]
fn the_counters_of_wire_and_nics_agree_on_every_fault() {
    for (mtu, faults) in [(1500, "loss=2e-2"), (4200, "dup=5e-2"), (1500, "corrupt=2e-2"), (1500, "reorder=2e-2:3")]
        .into_iter()
        .chain([(4200, "loss=1e-2,dup=1e-2,corrupt=5e-3,reorder=1e-2:2")])
    {
        let Some((veth, bump)) = wired(1, mtu, faults) else { return };
        let world = World::on(veth, [OpenOptions::default(), OpenOptions::default()]);
        let (summary, nics) = exchange(&world, bump, 3, HALF);
        let retransmitted: u64 = nics.iter().map(|c| c.retransmitted_packets).sum();
        assert_eq!(retransmitted > 0, faults != "dup=5e-2", "{faults}: {nics:?}");
        for (c, [from, to]) in summary.counters.iter().zip([[0, 1], [1, 0]]) {
            let what = format!("{faults}: {c:?} {:?} {:?}", nics[from], nics[to]);
            // A kernel that gets no core for long may drop frames itself; it counts them.
            let [mine, theirs] = [from, to].map(|side| world.sides[side].context.lost_frames());
            assert!((c.roce_frames..=c.roce_frames + c.rx_missed + mine).contains(&nics[from].sent_pkts), "{what}");
            let arrived = c.roce_frames + c.duplicated - c.fault_lost - c.overflowed - c.under_way;
            let n = &nics[to];
            // A flipped bit may make anything of a frame: one that does not reach the NIC, one that the ICRC finds, and now and then one
            // in which it does not matter, in the MAC addresses or the TTL.
            let elsewhere = arrived.checked_sub(n.rcvd_pkts).expect(&what);
            let found = n.rx_icrc_encapsulated + n.rx_malformed + n.rx_not_for_us + n.rx_bad_qp + n.rx_wrong_source;
            assert!(elsewhere + found <= c.corrupted + c.tx_refused + theirs && 2 * found >= c.corrupted, "{what}");
            for (key, count) in
                [("loss", c.fault_lost), ("dup", c.duplicated), ("corrupt", c.corrupted), ("reorder", c.reordered)]
            {
                assert_eq!(count > 0, faults.contains(key), "{key}: {what}");
            }
        }
    }
}

#[test]
fn without_faults_nothing_is_sent_again() {
    let Some((veth, bump)) = wired(2, 4200, "") else { return };
    let world = World::on(veth, [OpenOptions::default(), OpenOptions::default()]);
    let (summary, nics) = exchange(&world, bump, 4, HALF);
    for (c, n) in summary.counters.iter().zip(&nics) {
        assert_eq!((c.roce_frames, n.retransmitted_packets), (n.sent_pkts, 0), "{c:?} {n:?}");
    }
    assert!(summary.residence.iter().all(|r| r.frames > 100 && r.p50 > 0 && r.p50 <= r.p99 && r.p99 <= r.max));
}

#[test]
fn a_script_drops_one_packet_and_it_is_sent_again() {
    let Some(veth) = Veth::with_middle(1, [1500; 2]) else { return };
    let script = "[[event]]\naction = \"drop\"\ndirection = \"ab\"\npsn = \"+2\"\niteration = 1\n\
                  [[event]]\naction = \"drop\"\nopcode = \"RC_COMPARE_SWAP\"\n";
    let mut options = options("");
    options.faults.spec.script = Script::parse(script).unwrap();
    let bump = start(&veth, &options).unwrap();
    let world = World::on(veth, [OpenOptions::default(), OpenOptions::default()]);
    let (summary, nics) = exchange(&world, bump, 1, 20_000);
    assert_eq!(summary.applied, [1, 0]);
    assert_eq!([summary.counters[0].fault_lost, summary.counters[1].fault_lost], [1, 0]);
    assert!(nics[0].retransmitted_packets > 0 && nics[1].sent_seq_naks == 1, "{nics:?}");
    assert_eq!(nics[1].retransmitted_packets, 0);
}

#[test]
fn delay_and_rate_are_kept_in_real_time() {
    let Some((veth, bump)) = wired(1, 1500, "ab.delay=20ms,ba.delay=30ms,ab.rate=50Mbit") else { return };
    let world = World::on(veth, [OpenOptions::default(), OpenOptions::default()]);
    let qps = world.connected(QpKind::Rc, None);
    let begin = Instant::now();
    world.write_and_compare(&qps, 0, 100, 1);
    assert!(begin.elapsed() >= Duration::from_millis(50));
    // 500 KB at 50 Mbit/s take 80 ms, headers aside.
    let begin = Instant::now();
    world.write_and_compare(&qps, 0, 500_000, 2);
    assert!(begin.elapsed() >= Duration::from_millis(130));
    let summary = bump.stop().unwrap();
    assert!(summary.counters[0].overflowed == 0 && summary.residence[0].frames < 100, "{summary:?}");
}

#[test]
fn the_same_seed_loses_the_same_packets_and_both_ways_are_different() {
    let run = |seed| {
        let veth = Veth::with_middle(1, [1500; 2])?;
        let bump = start(&veth, &Options { seed, ..options("loss=0.3") }).unwrap();
        let world = World::on(veth, [OpenOptions::default(), OpenOptions::default()]);
        let qps = world.connected(QpKind::Uc, None);
        // Nobody answers, so what is sent does not depend on what is lost.
        for (from, to) in [(0, 1), (1, 0)] {
            for n in 0..40 {
                let op = world.sides[to].write_op();
                let sge = world.sides[from].mr.sge(0, 10);
                crate::world::post(&qps[from], n, op, softnic_nic::transports::Data::Gather(&[sge]));
                world.success(from, n);
            }
        }
        let begin = Instant::now();
        while bump.counters().iter().any(|c| c.roce_frames < 40) {
            assert!(begin.elapsed() < crate::world::LIMIT, "{:?}", bump.counters());
            world.progress();
        }
        Some(bump.stop().unwrap().counters.map(|c| c.fault_lost))
    };
    let Some(first) = run(1) else { return };
    assert_eq!(run(1), Some(first));
    let others: Vec<_> = (2..6).filter_map(run).collect();
    assert!(others.iter().any(|other| *other != first));
    assert!(others.iter().chain([&first]).any(|[there, back]| there != back));
}
