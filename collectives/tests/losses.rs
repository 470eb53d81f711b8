//! Bytes that do not come: the result is of what came, ranges say what did not, and a log of them loses the same again.

use proptest::prelude::*;
use softnic_collectives::call::{Algorithm, Call, Element, Operation, Reduction};
use softnic_collectives::element::reduce;
use softnic_collectives::losses::LossLog;
use softnic_collectives::member::{MemberSettings, Outcome};
use softnic_collectives::plan::{Act, Plan};

use super::plain::operations;
use super::reference::draw;
use super::world::{Random, World};

/// What buffers are when plans are carried out, one step after the other, and bytes of some messages do not come.
pub(crate) fn carried_out(call: &Call, inputs: &[Vec<u8>], log: &LossLog) -> Vec<Vec<u8>> {
    let ranks = inputs.len();
    let plans: Vec<Plan> = (0..ranks).map(|rank| Plan::new(call, ranks, rank, true).unwrap()).collect();
    let mut buffers = inputs.to_vec();
    let mut lanes = vec![vec![std::collections::VecDeque::<Vec<u8>>::new(); ranks]; ranks];
    // Of each rank the steps that are done. A step is done when all before it that it conflicts with are.
    let mut done: Vec<Vec<bool>> = plans.iter().map(|plan| vec![false; plan.steps.len()]).collect();
    let mut went_on = true;
    while went_on {
        went_on = false;
        for rank in 0..ranks {
            for i in 0..plans[rank].steps.len() {
                let step = plans[rank].steps[i];
                let conflicts = |j: usize| {
                    let other = plans[rank].steps[j];
                    let overlap = other.at < step.range().end && step.at < other.range().end;
                    let in_order = other.peer == step.peer && other.is_receive() == step.is_receive();
                    !done[rank][j] && (overlap && (step.act != Act::Send || other.act != Act::Send) || in_order)
                };
                if done[rank][i] || (0..i).any(conflicts) {
                    continue;
                }
                let range = step.at as usize..step.range().end as usize;
                if step.act == Act::Send {
                    lanes[rank][step.peer].push_back(buffers[rank][range].to_vec());
                } else {
                    let Some(message) = lanes[step.peer][rank].pop_front() else { continue };
                    let missing = log.ranges(0, rank, i as u32);
                    let came = |at: usize| !missing.iter().any(|r| r.contains(&(at as u32)));
                    let size = call.element.size() as usize;
                    for at in (0..message.len()).step_by(size) {
                        let into = &mut buffers[rank][step.at as usize + at..step.at as usize + at + size];
                        match (came(at), step.act) {
                            (true, Act::Reduce) => {
                                reduce(call.element, call.reduction, into, &message[at..at + size]);
                            }
                            (true, _) => into.copy_from_slice(&message[at..at + size]),
                            (false, Act::Reduce) => {}
                            (false, _) => into.fill(0),
                        }
                    }
                }
                done[rank][i] = true;
                went_on = true;
            }
        }
    }
    assert!(done.iter().flatten().all(|done| *done), "plans come to their end");
    buffers
}

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
        prop_assert!(carried_out(&call, &inputs, &log) == buffers, "{}", call);

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
