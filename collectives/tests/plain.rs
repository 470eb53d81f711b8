//! Every algorithm, type, reduction and group size, against what a collective is.

use proptest::prelude::*;
use softnic_collectives::call::{Algorithm, Call, Element, Operation, Reduction};
use softnic_collectives::member::MemberSettings;
use softnic_collectives::plan::{Exchanges, Plan};

use super::reference::{draw, expected, numbers, plainly, tolerance};
use super::world::{Random, World};

const ALGORITHMS: [Algorithm; 3] = [Algorithm::Ring, Algorithm::Tree, Algorithm::Bcube];
const ELEMENTS: [Element; 4] = [Element::F32, Element::F16, Element::Bf16, Element::I32];
const REDUCTIONS: [Reduction; 3] = [Reduction::Sum, Reduction::Min, Reduction::Max];

pub(crate) fn operations(root: usize) -> [Operation; 6] {
    [
        Operation::AllReduce,
        Operation::ReduceScatter,
        Operation::AllGather,
        Operation::AllToAll,
        Operation::Broadcast { root },
        Operation::Barrier,
    ]
}

/// Runs a call twice over one group, and compares.
fn check(call: &Call, ranks: usize, seed: u64, bounded: bool) {
    // Nobody keeps deadlines here: none may pass.
    let fixed = Some(std::time::Duration::from_secs(1000));
    let settings = MemberSettings { bounded, fixed, ..MemberSettings::default() };
    let mut world = World::new(ranks, seed, &settings);
    for round in 0..2 {
        let inputs = draw(call, ranks, &mut Random(seed + round));
        let mut buffers = inputs.clone();
        let outcomes = world.run(call, &mut buffers).unwrap_or_else(|e| panic!("{call}, {ranks} ranks: {e}"));
        let wanted = expected(call, &inputs);
        for rank in 0..ranks {
            let range = call.result(ranks, rank);
            let range = range.start as usize..range.end as usize;
            assert!(buffers[rank][range.clone()] == wanted[rank][range], "{call}, {ranks} ranks, at rank {rank}");
            assert!(outcomes[rank].losses.is_empty() && outcomes[rank].received == outcomes[rank].expected);
        }
        if matches!(call.operation, Operation::AllReduce) {
            let (plain, got) = (plainly(call, &inputs), numbers(call, &buffers[0]));
            let off = plain.iter().zip(&got).map(|(a, b)| (a - b).abs()).fold(0.0, f64::max);
            assert!(off <= tolerance(call, ranks), "{call}, {ranks} ranks: {off} from the plain sum");
        }
    }
}

#[test]
fn every_operation_algorithm_type_and_reduction_for_groups_of_1_to_17() {
    for ranks in 1..=17 {
        for operation in operations(ranks / 2) {
            for (i, algorithm) in ALGORITHMS.into_iter().enumerate() {
                for element in ELEMENTS {
                    for (j, reduction) in REDUCTIONS.into_iter().enumerate() {
                        // No element, one, fewer than ranks, and a number that nothing divides.
                        let elements = [0, 1, 5, 331][(i + j + ranks) % 4];
                        let call = Call { operation, algorithm, element, reduction, bytes: elements * element.size() };
                        if call.check(ranks).is_ok() {
                            check(&call, ranks, ranks as u64, j == 1);
                        }
                    }
                }
            }
        }
    }
}

#[test]
fn an_alltoall_by_bcube_has_connections_along_the_dimensions_alone() {
    let (element, reduction) = (Element::F32, Reduction::Sum);
    for (ranks, by_bcube) in [(2, 1), (8, 3), (12, 4), (16, 4), (17, 16), (64, 6)] {
        let peers = |algorithm| {
            let call = Call { operation: Operation::AllToAll, algorithm, element, reduction, bytes: 1 << 16 };
            let exchanges = Exchanges::of(&[call], ranks, false).expect("it can be made");
            (0..ranks).map(|rank| exchanges.peers(rank)).max()
        };
        assert_eq!((peers(Algorithm::Bcube), peers(Algorithm::Ring)), (Some(by_bcube), Some(ranks - 1)), "{ranks}");
    }
}

#[test]
fn messages_of_many_pieces_go_by_trees_and_chains() {
    for (ranks, algorithm) in [(7, Algorithm::Tree), (12, Algorithm::Tree), (6, Algorithm::Ring), (9, Algorithm::Bcube)]
    {
        for operation in [Operation::AllReduce, Operation::Broadcast { root: 3 }] {
            let (element, reduction) = (Element::F32, Reduction::Sum);
            check(&Call { operation, algorithm, element, reduction, bytes: 1_000_004 }, ranks, 5, true);
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]
    #[test]
    fn any_call_is_what_it_says(
        ranks in 1usize..=17,
        operation in 0usize..6,
        algorithm in 0usize..3,
        element in 0usize..4,
        reduction in 0usize..3,
        elements in 0u64..3000,
        seed in any::<u64>(),
    ) {
        let call = Call {
            operation: operations(seed as usize % ranks)[operation],
            algorithm: ALGORITHMS[algorithm],
            element: ELEMENTS[element],
            reduction: REDUCTIONS[reduction],
            bytes: elements * ELEMENTS[element].size(),
        };
        prop_assume!(call.check(ranks).is_ok());
        check(&call, ranks, seed, seed & 1 == 0);
    }

    #[test]
    fn what_a_rank_sends_is_what_its_peer_expects_in_the_same_order(
        ranks in 2usize..40,
        operation in 0usize..6,
        algorithm in 0usize..3,
        elements in 0u64..200_000,
        bounded in any::<bool>(),
    ) {
        let call = Call {
            operation: operations(ranks / 3)[operation],
            algorithm: ALGORITHMS[algorithm],
            element: Element::F16,
            reduction: Reduction::Sum,
            bytes: elements * 2,
        };
        prop_assume!(call.check(ranks).is_ok());
        let plans: Vec<Plan> = (0..ranks).map(|rank| Plan::new(&call, ranks, rank, bounded).unwrap()).collect();
        for from in 0..ranks {
            for to in 0..ranks {
                let sent = plans[from].sends_to(to).iter().map(|i| plans[from].steps[*i as usize]);
                let expected = plans[to].receives_from(from).iter().map(|i| plans[to].steps[*i as usize]);
                let key = |s: &softnic_collectives::plan::Step| (s.len, s.phase);
                prop_assert!(sent.map(|s| key(&s)).eq(expected.map(|s| key(&s))), "{} from {from} to {to}", call);
            }
            // Nothing is sent to oneself, and the last phase ends with the budget.
            prop_assert!(plans[from].sends_to(from).is_empty());
            let last = plans.iter().flat_map(|p| &p.steps).map(|s| s.phase).max();
            if let Some(last) = last {
                let (part, all) = plans[from].share(last);
                prop_assert_eq!(part, all);
            }
        }
    }
}
