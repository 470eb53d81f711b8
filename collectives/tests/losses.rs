//! Bytes that do not come: the result is of what came, ranges say what did not, and a log of them loses the same again.

use proptest::prelude::*;
use softnic_collectives::call::{Algorithm, Call, Element, Operation, Reduction};
use softnic_collectives::losses::LossLog;
use softnic_collectives::member::{MemberSettings, Outcome};
use softnic_collectives::model::carried_out;

use super::plain::operations;
use super::reference::draw;
use super::world::{Random, World};

fn log_of(outcomes: &[Outcome]) -> LossLog {
    let mut log = LossLog::default();
    outcomes.iter().flat_map(|outcome| &outcome.losses).for_each(|loss| log.add(loss.clone()));
    log
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]
    #[test]
    fn the_result_is_of_what_came_and_a_log_loses_the_same_again(
        ranks in 2usize..=13,
        operation in 0usize..5,
        algorithm in 0usize..3,
        reduction in 0usize..3,
        elements in 0u64..4000,
        loss in 1u64..60,
        seed in any::<u64>(),
    ) {
        let call = Call {
            operation: operations(seed as usize % ranks)[operation],
            algorithm: [Algorithm::Ring, Algorithm::Tree, Algorithm::Bcube][algorithm],
            element: Element::F32,
            reduction: [Reduction::Sum, Reduction::Min, Reduction::Max][reduction],
            bytes: elements * 4,
        };
        prop_assume!(call.check(ranks).is_ok());
        let inputs = draw(&call, ranks, &mut Random(seed));
        let mut world = World::new(ranks, seed, &MemberSettings { bounded: true, ..MemberSettings::default() });
        world.loss = loss;
        let mut buffers = inputs.clone();
        let outcomes = world.run(&call, &mut buffers).unwrap();
        let log = log_of(&outcomes);
        let missing: u64 = outcomes.iter().map(|outcome| outcome.expected - outcome.received).sum();
        prop_assert_eq!(missing, log.bytes());
        if loss == 1 {
            prop_assert_eq!(outcomes.iter().map(|outcome| outcome.received).sum::<u64>(), 0);
        }
        prop_assert!(carried_out(&call, &inputs, &log, 0).unwrap() == buffers, "{}", call);

        // Over a network that loses nothing and has another order, with the log read from its file.
        let text = log.to_string();
        let mut again = World::replaying(ranks, seed ^ 0xffff, text.parse().unwrap());
        let mut replayed = inputs.clone();
        let outcomes = again.run(&call, &mut replayed).unwrap();
        prop_assert!(replayed == buffers, "{} again", call);
        prop_assert_eq!(log_of(&outcomes).to_string(), text);
    }
}

#[test]
fn a_sum_without_one_message_is_that_of_all_others() {
    // Rank 2 of 4 does not get the first message of the ring: block 0 then lacks what ranks before it had.
    let call = Call {
        operation: Operation::AllReduce,
        algorithm: Algorithm::Ring,
        element: Element::I32,
        reduction: Reduction::Sum,
        bytes: 16,
    };
    let log = "# softnic collective losses 1\ncollective 0 rank 2 step 1 from 1: 0..4\n";
    let mut world = World::replaying(4, 1, log.parse().unwrap());
    let mut buffers: Vec<Vec<u8>> = (0..4).map(|rank| (1i32 << rank).to_le_bytes().repeat(4)).collect();
    let outcomes = world.run(&call, &mut buffers).unwrap();
    assert_eq!(outcomes[2].losses.len(), 1);
    let as_numbers =
        |bytes: &[u8]| -> Vec<i32> { bytes.as_chunks().0.iter().map(|b| i32::from_le_bytes(*b)).collect() };
    for buffer in &buffers {
        assert_eq!(as_numbers(buffer), [0b1101, 15, 15, 15]);
    }
}
