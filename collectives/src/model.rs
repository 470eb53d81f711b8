//! What a collective comes to when its plans are carried out one step after the other, without a network: tests compare runs with this.

use std::collections::VecDeque;

use crate::call::Call;
use crate::element::reduce;
use crate::losses::LossLog;
use crate::plan::{Act, Plan, Step};

/// Whether a step waits until another one before it is done.
fn conflicts(step: &Step, other: &Step) -> bool {
    let overlap = other.at < step.range().end && step.at < other.range().end;
    let in_order = other.peer == step.peer && other.is_receive() == step.is_receive();
    overlap && (step.act != Act::Send || other.act != Act::Send) || in_order
}

/// Takes a message into a buffer: what is missing is zero, or not in the sum.
fn take(call: &Call, step: &Step, message: &[u8], missing: &[std::ops::Range<u32>], buffer: &mut [u8]) {
    let size = call.element.size() as usize;
    for at in (0..message.len()).step_by(size) {
        let came = !missing.iter().any(|range| range.contains(&(at as u32)));
        let into = &mut buffer[step.at as usize + at..step.at as usize + at + size];
        match (came, step.act) {
            (true, Act::Reduce) => reduce(call.element, call.reduction, into, &message[at..at + size]),
            (true, _) => into.copy_from_slice(&message[at..at + size]),
            (false, Act::Reduce) => {}
            (false, _) => into.fill(0),
        }
    }
}

/// The buffers of all ranks afterwards, where `log` says which bytes of collective `number` do not come. `None` where no group
/// of that size can make the call, or plans do not come to their end.
pub fn carried_out(call: &Call, inputs: &[Vec<u8>], log: &LossLog, number: u64) -> Option<Vec<Vec<u8>>> {
    let ranks = inputs.len();
    let plans: Vec<Plan> = (0..ranks).map(|rank| Plan::new(call, ranks, rank, true).ok()).collect::<Option<_>>()?;
    let mut buffers = inputs.to_vec();
    let mut lanes = vec![vec![VecDeque::<Vec<u8>>::new(); ranks]; ranks];
    let mut done: Vec<Vec<bool>> = plans.iter().map(|plan| vec![false; plan.steps.len()]).collect();
    let mut went_on = true;
    while went_on {
        went_on = false;
        for (rank, plan) in plans.iter().enumerate() {
            for (i, step) in plan.steps.iter().enumerate() {
                let waits = |j: usize| !done[rank][j] && conflicts(step, &plan.steps[j]);
                if done[rank][i] || (0..i).any(waits) {
                    continue;
                }
                if step.act == Act::Send {
                    let range = step.at as usize..step.range().end as usize;
                    lanes[rank][step.peer].push_back(buffers[rank][range].to_vec());
                } else {
                    let Some(message) = lanes[step.peer][rank].pop_front() else { continue };
                    take(call, step, &message, log.ranges(number, rank, i as u32), &mut buffers[rank]);
                }
                done[rank][i] = true;
                went_on = true;
            }
        }
    }
    done.iter().flatten().all(|done| *done).then_some(buffers)
}
