//! The NIC's adapter, in virtual time: every transport, losses, several groups, ranks that are late or gone.

use std::time::Duration;

use softnic_collectives::call::{Algorithm, Call, Element, Operation, Reduction};
use softnic_collectives::losses::LossLog;
use softnic_collectives::member::{MemberSettings, Outcome};
use softnic_collectives::model::carried_out;
use softnic_collectives::run::Options;
use softnic_collectives::simulated::{Cluster, GroupConfig, run};
use softnic_nic::transports::qp::PayloadMode;
use softnic_sim::topology::{self, Flow, Hooks, Kind, Link, Topology};
use softnic_sim::{Cc, Op};

use super::plain::operations;
use super::reference::{draw, expected};
use super::world::Random;

pub(crate) const CALL: Call = Call {
    operation: Operation::AllReduce,
    algorithm: Algorithm::Ring,
    element: Element::F32,
    reduction: Reduction::Sum,
    bytes: 300_000,
};

pub(crate) fn network(kind: Kind, fault: &str) -> Topology {
    let mut topology = Topology::new(kind);
    let faults: softnic_fault_injector::Spec = fault.parse().unwrap();
    let link = |(a, b)| Link { a, b, rate: 10_000_000_000, delay: Duration::from_micros(1), faults: faults.clone() };
    topology.links = kind.links().into_iter().map(link).collect();
    topology
}

pub(crate) fn star(hosts: usize, fault: &str) -> Topology {
    network(Kind::Star { hosts: hosts.max(2) }, fault)
}

pub(crate) fn config(hosts: &[usize], transport: &str, calls: &[Call]) -> GroupConfig {
    GroupConfig {
        hosts: hosts.to_vec(),
        transport: transport.parse().unwrap(),
        stride: 1,
        cc: Cc::None,
        timeout: None,
        calls: calls.to_vec(),
        member: MemberSettings { patience: Duration::from_millis(500), ..MemberSettings::default() },
    }
}

pub(crate) fn set(cluster: &Cluster<'_>, group: usize, inputs: &[Vec<u8>]) {
    for (rank, input) in inputs.iter().enumerate() {
        cluster.endpoint(group, rank).buffer().unwrap().write_at(0, input);
    }
}

pub(crate) fn get(cluster: &Cluster<'_>, group: usize, call: &Call, ranks: usize) -> Vec<Vec<u8>> {
    let of = |rank| {
        let mut bytes = vec![0; call.bytes as usize];
        cluster.endpoint(group, rank).buffer().unwrap().read_at(0, &mut bytes);
        bytes
    };
    (0..ranks).map(of).collect()
}

pub(crate) fn assert_results(call: &Call, got: &[Vec<u8>], wanted: &[Vec<u8>], what: &str) {
    for rank in 0..got.len() {
        let range = call.result(got.len(), rank);
        let range = range.start as usize..range.end as usize;
        assert!(got[rank][range.clone()] == wanted[rank][range], "{call}, {what}, at rank {rank}");
    }
}

pub(crate) fn log_of(outcomes: &[Outcome]) -> LossLog {
    let mut log = LossLog::default();
    outcomes.iter().flat_map(|outcome| &outcome.losses).for_each(|loss| log.add(loss.clone()));
    log
}

#[test]
fn results_are_the_same_bit_for_bit_over_every_transport_and_network() {
    let networks = [
        star(6, ""),
        network(Kind::Dumbbell { hosts: 3 }, ""),
        network(Kind::LeafSpine { leaves: 3, spines: 2, hosts: 2 }, ""),
        network(Kind::FatTree { k: 4 }, ""),
    ];
    for (i, transport) in ["rc", "sr", "lowar", "xp", "xp:tail=2,linger=20us", "uc"].into_iter().enumerate() {
        for (j, algorithm) in [Algorithm::Ring, Algorithm::Tree, Algorithm::Bcube].into_iter().enumerate() {
            for operation in operations(4) {
                let call = Call { algorithm, operation, bytes: 30_004, ..CALL };
                if call.check(6).is_err() {
                    continue;
                }
                let topology = &networks[(i + j) % networks.len()];
                let mut cluster = Cluster::new(topology, 3).unwrap();
                // Ranks are not in the order of hosts.
                let group = cluster.add_group(config(&[5, 0, 3, 1, 4, 2], transport, &[call])).unwrap();
                for round in 0..3 {
                    let inputs = draw(&call, 6, &mut Random(round));
                    set(&cluster, group, &inputs);
                    let outcomes = cluster.run(&[(group, call)], round == 0, &|| false).unwrap();
                    let got = get(&cluster, group, &call, 6);
                    assert_results(&call, &got, &expected(&call, &inputs), transport);
                    assert!(outcomes[0].iter().all(|(outcome, _)| outcome.losses.is_empty()));
                }
            }
        }
    }
}

#[test]
fn reliable_transports_come_to_the_same_result_through_losses() {
    let topology = star(5, "loss=0.01,reorder=0.001:3,dup=0.005");
    for transport in ["rc", "sr", "lowar"] {
        for algorithm in [Algorithm::Ring, Algorithm::Tree, Algorithm::Bcube] {
            let call = Call { algorithm, bytes: 200_000, ..CALL };
            let mut cluster = Cluster::new(&topology, 8).unwrap();
            let group = cluster.add_group(config(&[0, 1, 2, 3, 4], transport, &[call])).unwrap();
            for round in 0..3 {
                let inputs = draw(&call, 5, &mut Random(round));
                set(&cluster, group, &inputs);
                cluster.run(&[(group, call)], false, &|| false).unwrap();
                assert_results(&call, &get(&cluster, group, &call, 5), &expected(&call, &inputs), transport);
            }
        }
    }
}

#[test]
fn over_xp_the_result_is_of_what_came_in_time_and_a_log_loses_the_same_again_over_rc() {
    let (mut partial, mut whole) = (0, 0);
    for seed in 0..40u64 {
        let mut random = Random(seed);
        let ranks = 2 + random.below(8) as usize;
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
        let usual = config(&hosts, ["xp", "xp:tail=2", "xp:linger=30us"][random.below(3) as usize], &[call]);
        let stride = [1, 8][random.below(2) as usize];
        // Long enough, or too short for all of it.
        let fixed = Duration::from_micros([20_000, 300, 30][random.below(3) as usize]);
        let member = MemberSettings { fixed: Some(fixed), ..usual.member.clone() };
        let group = cluster.add_group(GroupConfig { stride, member, ..usual.clone() }).unwrap();
        for round in 0..3 {
            let inputs = draw(&call, ranks, &mut Random(seed + round));
            set(&cluster, group, &inputs);
            let outcomes = cluster.run(&[(group, call)], false, &|| false).unwrap().remove(0);
            let outcomes: Vec<Outcome> = outcomes.into_iter().map(|(outcome, _)| outcome).collect();
            // A plan carried out once counts from 0.
            let mut log = LossLog::default();
            log_of(&outcomes).iter().for_each(|loss| {
                log.add(softnic_collectives::losses::Loss { collective: 0, ..loss.clone() });
            });
            let got = get(&cluster, group, &call, ranks);
            assert!(carried_out(&call, &inputs, &log, 0).unwrap() == got, "seed {seed}, round {round}: {call}");
            // A packet that is leaving is not cut off.
            let end = fixed + Duration::from_micros(3);
            assert!(outcomes.iter().all(|outcome| outcome.elapsed <= end), "seed {seed}: {outcomes:?}");
            (partial, whole) = (partial + u64::from(!log.is_empty()), whole + u64::from(log.is_empty()));

            let quiet = star(ranks, "");
            let mut again = Cluster::new(&quiet, seed + 1).unwrap();
            let rc = config(&hosts, "rc", &[call]);
            let replay = std::sync::Arc::new(log.to_string().parse().unwrap());
            let member = MemberSettings { replay, ..rc.member.clone() };
            let group = again.add_group(GroupConfig { member, ..rc }).unwrap();
            set(&again, group, &inputs);
            let outcomes = again.run(&[(group, call)], false, &|| false).unwrap().remove(0);
            assert!(get(&again, group, &call, ranks) == got, "seed {seed}, round {round}: {call} again");
            let outcomes: Vec<Outcome> = outcomes.into_iter().map(|(outcome, _)| outcome).collect();
            assert_eq!(log_of(&outcomes), log);
        }
    }
    assert!(partial > 20 && whole > 5, "{partial} {whole}");
}

#[test]
fn several_groups_share_hosts_and_do_not_disturb_each_other() {
    let topology = star(6, "");
    let calls = [
        CALL,
        Call { operation: Operation::AllToAll, element: Element::I32, ..CALL },
        Call { algorithm: Algorithm::Tree, element: Element::Bf16, ..CALL },
    ];
    let hosts: [&[usize]; 3] = [&[0, 1, 2, 3], &[5, 3, 1], &[4, 2, 0, 1, 5]];
    let mut cluster = Cluster::new(&topology, 2).unwrap();
    let transports = ["rc", "sr", "xp"];
    let groups: Vec<usize> =
        (0..3).map(|i| cluster.add_group(config(hosts[i], transports[i], &[calls[i]])).unwrap()).collect();
    let inputs: Vec<Vec<Vec<u8>>> =
        (0..3).map(|i| draw(&calls[i], hosts[i].len(), &mut Random(7 + i as u64))).collect();
    (0..3).for_each(|i| set(&cluster, groups[i], &inputs[i]));
    let all: Vec<(usize, Call)> = groups.iter().copied().zip(calls).collect();
    let outcomes = cluster.run(&all, false, &|| false).unwrap();
    for i in 0..3 {
        assert_eq!(outcomes[i].len(), hosts[i].len());
        let got = get(&cluster, groups[i], &calls[i], hosts[i].len());
        assert_results(&calls[i], &got, &expected(&calls[i], &inputs[i]), transports[i]);
    }
}

fn options(call: Call, ranks: usize, transport: &str, iterations: u64) -> Options {
    Options {
        call,
        ranks,
        transport: transport.parse().unwrap(),
        stride: 1,
        cc: Cc::None,
        timeout: None,
        iterations,
        pause: Duration::ZERO,
        member: MemberSettings::default(),
        seed: 1,
    }
}

/// The goodput of one flow of a transport in a network, in Gbit/s.
fn goodput(topology: &Topology, transport: &str) -> f64 {
    let flow = Flow {
        from: 0,
        to: 1,
        transport: transport.parse().unwrap(),
        scheme: None,
        chunk: None,
        deadline: None,
        stride: 1,
        op: Op::Send,
        size: 4 << 20,
        count: 20,
        depth: 4,
        start: Duration::ZERO,
        stop: None,
        cc: Cc::None,
        dscp: 0,
    };
    let topology = Topology { flows: vec![flow], ..topology.clone() };
    topology::run(&topology, 1, Hooks::default()).unwrap().goodput_gbps
}

#[test]
fn a_ring_comes_within_5_percent_of_its_bound_over_rc_and_xp() {
    for ranks in [2, 4, 8] {
        let topology = Topology { payload: PayloadMode::Elided, ..star(ranks, "") };
        for transport in ["rc", "xp"] {
            let call = Call { bytes: 20 << 20, ..CALL };
            let report = run(&topology, &options(call, ranks, transport, 3), &|_| true).unwrap();
            let bound = goodput(&topology, transport);
            let ratio = report.bus_gbps / bound;
            assert!(ratio >= 0.95, "{ranks} ranks, {transport}: {:.3} of {bound:.3} Gbit/s", report.bus_gbps);
            assert_eq!(report.missing_fraction(), 0.0);
        }
    }
}

#[test]
fn the_same_seed_gives_the_same_run_and_frames_without_payload_the_same_times() {
    let topology = star(4, "loss=0.002");
    let elided = Topology { payload: PayloadMode::Elided, ..topology.clone() };
    for transport in ["rc", "xp"] {
        let options = options(Call { bytes: 1 << 20, ..CALL }, 4, transport, 5);
        let [one, other, without] = [&topology, &topology, &elided].map(|t| run(t, &options, &|_| true).unwrap());
        assert_eq!(one.digest, other.digest);
        assert_eq!((one.times, &one.losses), (without.times, &without.losses));
        assert_eq!(one.losses.is_empty(), transport == "rc");
    }
}

#[test]
fn a_host_that_is_cut_off_is_named_and_nobody_waits_for_ever() {
    for transport in ["rc", "xp"] {
        let topology = star(4, "");
        let mut cluster = Cluster::new(&topology, 1).unwrap();
        let group = cluster.add_group(config(&[0, 1, 2, 3], transport, &[CALL])).unwrap();
        cluster.run(&[(group, CALL)], true, &|| false).unwrap();
        let began = cluster.network().now();
        cluster.network().nic(2).set_link(false);
        let error = cluster.run(&[(group, CALL)], false, &|| false).unwrap_err().to_string();
        let took = cluster.network().now().0 - began.0;
        assert!(took <= 600_000_000_000, "{took} ps");
        assert!(error.contains("rank 2") || error.contains("rank 0, 1, 3"), "{error}");
        assert_eq!(error.lines().count(), 1);
    }
}

#[test]
fn over_xp_a_rank_that_is_cut_off_under_way_costs_the_others_their_budget_and_no_more() {
    let (mut in_time, mut lossy) = (0, 0);
    for after in [2, 4, 6, 8, 10, 15, 30, 100, 200] {
        let topology = star(4, "");
        let mut cluster = Cluster::new(&topology, 1).unwrap();
        let usual = config(&[0, 1, 2, 3], "xp", &[CALL]);
        let budget = Duration::from_millis(2);
        let member = MemberSettings { fixed: Some(budget), ..usual.member.clone() };
        let group = cluster.add_group(GroupConfig { member, ..usual }).unwrap();
        for rank in 0..4 {
            cluster.start(group, rank, &CALL, false).unwrap();
        }
        cluster.pause(Duration::from_micros(after)).unwrap();
        cluster.network().nic(2).set_link(false);
        let mut step = || {
            while !cluster.is_over(group) {
                cluster.step()?;
            }
            Ok::<_, softnic_collectives::simulated::ClusterError>(())
        };
        match step() {
            Ok(()) => {
                let outcomes = cluster.take_outcomes(group);
                let end = budget + Duration::from_micros(3);
                assert!(outcomes.iter().all(|(outcome, _)| outcome.elapsed <= end), "{after}: {outcomes:?}");
                in_time += 1;
                lossy += u64::from(outcomes.iter().filter(|(outcome, _)| !outcome.losses.is_empty()).count() >= 2);
            }
            // Its words were still on their way.
            Err(error) => assert!(after < 10 && error.to_string().contains("rank "), "{after}: {error}"),
        }
    }
    assert!(in_time >= 5 && lossy >= 5, "{in_time} {lossy}");
}

#[test]
fn transports_that_promise_nothing_are_refused() {
    let topology = star(2, "");
    let error = Cluster::new(&topology, 1).unwrap().add_group(config(&[0, 1], "ud", &[CALL])).unwrap_err();
    assert!(error.to_string().contains("neither delivers every message nor says what is missing"), "{error}");
    let error = Cluster::new(&topology, 1).unwrap().add_group(config(&[0, 1, 1], "rc", &[CALL])).unwrap_err();
    assert!(error.to_string().contains("two ranks are on one"), "{error}");
}
