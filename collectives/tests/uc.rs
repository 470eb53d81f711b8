//! Messages in fragments over UC of the standard: results, losses, keys that end with their message, and what a lane does with feedback.

use std::time::Duration;

use softnic_collectives::call::{Algorithm, Call, Element, Operation, Reduction};
use softnic_collectives::losses::{Loss, LossLog};
use softnic_collectives::member::{MemberSettings, Outcome};
use softnic_collectives::simulated::{Cluster, GroupConfig};
use softnic_collectives::uc::{immediate, of_immediate};
use softnic_sim::topology::Topology;

use super::plain::operations;
use super::reference::{draw, expected};
use super::simulated::{CALL, assert_results, config, get, log_of, set, star};
use super::world::Random;
use softnic_collectives::model::carried_out;

#[test]
fn an_immediate_says_which_fragment_of_which_collective() {
    for (collective, number) in [(0, 0), (7, 12_345), (15, (1 << 28) - 1)] {
        assert_eq!(of_immediate(immediate(collective, number)), (collective, number));
    }
    // Sixteen later it is the same number; the key is another one.
    assert_eq!(immediate(16, 5), immediate(0, 5));
}

#[test]
fn over_uc_every_operation_of_every_size_of_group_comes_to_the_plain_result() {
    let mut calls = 0;
    for ranks in 2..=7usize {
        let topology = star(ranks, "");
        for algorithm in [Algorithm::Ring, Algorithm::Tree, Algorithm::Bcube] {
            for operation in operations(ranks) {
                // Also nothing at all, less than a fragment, and blocks that do not divide.
                for bytes in [0, 12, 4 * 5003] {
                    let call = Call { algorithm, operation, bytes, element: Element::I32, ..CALL };
                    if call.check(ranks).is_err() {
                        continue;
                    }
                    let hosts: Vec<usize> = (0..ranks).collect();
                    let mut cluster = Cluster::new(&topology, 3).unwrap();
                    let group = cluster.add_group(config(&hosts, "uc", &[call])).unwrap();
                    for round in 0..2 {
                        let inputs = draw(&call, ranks, &mut Random(round));
                        set(&cluster, group, &inputs);
                        let outcomes = cluster.run(&[(group, call)], round == 0, &|| false).unwrap().remove(0);
                        assert_results(&call, &get(&cluster, group, &call, ranks), &expected(&call, &inputs), "uc");
                        assert!(outcomes.iter().all(|(outcome, _)| outcome.losses.is_empty()), "{call}: {outcomes:?}");
                        calls += 1;
                    }
                }
            }
        }
    }
    assert!(calls > 200, "{calls}");
}

#[test]
fn over_uc_the_result_is_of_what_came_in_time_and_of_no_stale_byte() {
    let (mut partial, mut whole) = (0, 0);
    for seed in 0..40u64 {
        let mut random = Random(seed);
        let ranks = 2 + random.below(6) as usize;
        let faults = ["loss=0.002", "loss=0.05", "loss=0.1", "jitter=20us", "loss=0.01,dup=0.05,corrupt=0.01"];
        let topology = star(ranks, faults[random.below(5) as usize]);
        let call = Call {
            operation: operations(seed as usize % ranks)[random.below(5) as usize],
            algorithm: [Algorithm::Ring, Algorithm::Tree, Algorithm::Bcube][random.below(3) as usize],
            reduction: [Reduction::Sum, Reduction::Max][random.below(2) as usize],
            bytes: 4 * random.below(60_000),
            ..CALL
        };
        if call.check(ranks).is_err() {
            continue;
        }
        let hosts: Vec<usize> = (0..ranks).collect();
        let mut cluster = Cluster::new(&topology, seed).unwrap();
        let usual = config(&hosts, "uc", &[call]);
        // Long enough, or too short for all of it.
        let fixed = Duration::from_micros([20_000, 300, 30][random.below(3) as usize]);
        let member = MemberSettings { fixed: Some(fixed), ..usual.member.clone() };
        let group = cluster.add_group(GroupConfig { member, ..usual }).unwrap();
        for round in 0..3 {
            let inputs = draw(&call, ranks, &mut Random(seed + round));
            set(&cluster, group, &inputs);
            let outcomes = cluster.run(&[(group, call)], false, &|| false).unwrap().remove(0);
            let outcomes: Vec<Outcome> = outcomes.into_iter().map(|(outcome, _)| outcome).collect();
            let mut log = LossLog::default();
            log_of(&outcomes).iter().for_each(|loss| log.add(Loss { collective: 0, ..loss.clone() }));
            let got = get(&cluster, group, &call, ranks);
            assert!(carried_out(&call, &inputs, &log, 0).unwrap() == got, "seed {seed}, round {round}: {call}");
            // What has been handed to the NIC leaves: half of a send queue at most.
            let end = fixed + Duration::from_micros(150);
            assert!(outcomes.iter().all(|outcome| outcome.elapsed <= end), "seed {seed}: {outcomes:?}");
            (partial, whole) = (partial + u64::from(!log.is_empty()), whole + u64::from(log.is_empty()));
        }
    }
    assert!(partial > 20 && whole > 5, "{partial} {whole}");
}

/// Two ranks of an AllGather, each with 100 000 bytes that the other lacks.
fn late(budget: Duration, fault: &str) -> (Topology, GroupConfig, Call) {
    let call = Call { operation: Operation::AllGather, algorithm: Algorithm::Ring, bytes: 200_000, ..CALL };
    let usual = config(&[0, 1], "uc", &[call]);
    let member = MemberSettings { fixed: Some(budget), ..usual.member.clone() };
    (star(2, fault), GroupConfig { member, ..usual }, call)
}

#[test]
fn a_write_that_comes_after_the_deadline_is_refused_and_changes_no_byte() {
    // 100 000 bytes need 90 us: what is on its way when the budget of 50 us is over comes by a key that is closed.
    let (topology, config, call) = late(Duration::from_micros(50), "");
    let mut cluster = Cluster::new(&topology, 1).unwrap();
    let group = cluster.add_group(config).unwrap();
    let inputs = [vec![1u8; 200_000], vec![2u8; 200_000]];
    set(&cluster, group, &inputs);
    let outcomes = cluster.run(&[(group, call)], false, &|| false).unwrap().remove(0);
    let before = get(&cluster, group, &call, 2);
    let refused = |cluster: &mut Cluster<'_>| -> u64 {
        (0..2).map(|host| cluster.network().nic(host).counters().resp_remote_access_errors).sum()
    };
    let early = refused(&mut cluster);
    cluster.pause(Duration::from_millis(1)).unwrap();
    let (all, after) = (refused(&mut cluster), get(&cluster, group, &call, 2));
    assert!(all > early, "no packet was late: {early} {all}");
    assert!(before == after, "a late packet changed the buffer");
    for (rank, (outcome, _)) in outcomes.iter().enumerate() {
        assert!(outcome.received > 0 && outcome.received < outcome.expected, "{outcome:?}");
        // What did not come is zero, and what came is the other's.
        let other = (1 - rank) * 100_000;
        let theirs = &after[rank][other..other + 100_000];
        let came = theirs.iter().filter(|byte| **byte == 2 - rank as u8).count() as u64;
        let zero = theirs.iter().filter(|byte| **byte == 0).count() as u64;
        assert_eq!((came, zero), (outcome.received, outcome.expected - outcome.received));
    }
}

#[test]
fn packets_of_an_old_collective_that_come_in_the_next_one_are_no_data_of_it() {
    // Packets take up to a hundred microseconds longer, and a collective no longer than 60.
    let (topology, config, call) = late(Duration::from_micros(60), "jitter=100us,dup=0.2");
    let mut cluster = Cluster::new(&topology, 5).unwrap();
    let group = cluster.add_group(config).unwrap();
    for round in 1..40u8 {
        // Each round has bytes of its own: whatever is of another round is stale.
        let inputs = [vec![2 * round; 200_000], vec![2 * round + 1; 200_000]];
        set(&cluster, group, &inputs);
        let outcomes = cluster.run(&[(group, call)], false, &|| false).unwrap().remove(0);
        let got = get(&cluster, group, &call, 2);
        for (rank, (outcome, _)) in outcomes.iter().enumerate() {
            let other = (1 - rank) * 100_000;
            let theirs = &got[rank][other..other + 100_000];
            let came = theirs.iter().filter(|byte| **byte == 2 * round + 1 - rank as u8).count() as u64;
            assert_eq!(came, outcome.received, "round {round}");
            assert!(theirs.iter().all(|byte| *byte == 0 || *byte == 2 * round + 1 - rank as u8), "round {round}");
        }
    }
}
