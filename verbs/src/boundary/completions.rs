//! Verbs that poll, as they are in tables where somebody is at the boundary: completions pass the faults on their way.

use std::sync::{Mutex, MutexGuard};
use std::time::Instant;

use softnic_runtime::api::call_faults::{CompletionAction, CompletionSeen, Verb};
use softnic_runtime::api::{Completion, Status};

use super::before::{About, Early, before};
use super::data::failed;
use super::happen::overrun;
use super::held::{Given, Held, side_of};
use super::observe;
use super::recorded;
use super::state::{State, faults};
use crate::abi::*;
use crate::calls::poll;
use crate::codes::status_code;
use crate::objects::completion_queue::{self, Cq, CqReaders};

fn lock(held: &Mutex<Held>) -> MutexGuard<'_, Held> {
    held.lock().unwrap_or_else(|p| p.into_inner())
}

/// What happens to a completion.
fn decide(state: &State, completion: &Completion) -> Option<CompletionAction> {
    let qpn = completion.qpn.value();
    let place = state.made().place_of(qpn);
    let is_success = completion.status == Status::Success;
    let seen = CompletionSeen { side: side_of(completion), qp: (qpn, place), wr_id: completion.wr_id, is_success };
    state.decide(|decider| decider.completion(seen))
}

/// Takes at most `max` completions that the faults let go; an error when none will ever come.
fn take(state: &'static State, cq: &Cq, max: usize) -> Result<Vec<Given>, ()> {
    let held = state.held(cq);
    let now = Instant::now();
    let (mut came, mut failures, mut is_lost) = (Vec::new(), Vec::new(), false);
    let result = cq.ours.queue.poll_each(max.max(64), |completion| came.push(completion));
    {
        let mut held = lock(&held);
        held.polled();
        for completion in came {
            let action = decide(state, &completion);
            match action {
                Some(CompletionAction::Status(..)) => failures.push((completion.qpn.value(), side_of(&completion))),
                Some(CompletionAction::Overrun) => is_lost = true,
                _ => {}
            }
            if let Some(due) = held.take_in(completion, action, now) {
                // A program that sleeps until it comes is woken then.
                let queue = cq.ours.queue.clone();
                state.timer.at(due, move || queue.raise());
            }
        }
    }
    // Before the program sees what failed, its queue pair is in the state that follows.
    failures.into_iter().for_each(|(qpn, side)| state.made().fail(qpn, side));
    if is_lost {
        overrun(state, cq);
    }
    let mut held = lock(&held);
    let given = held.hand_out(max, now)?;
    // A program that armed the queue before it polled may sleep now, and what waits for polls would wait for ever.
    if given.is_empty() && held.is_armed && held.sleeps(now) {
        cq.ours.queue.raise();
    }
    drop(held);
    if given.is_empty() && result.is_err() { Err(()) } else { Ok(given) }
}

/// A completion as the program gets it.
fn to_c(given: &Given) -> ibv_wc {
    let wc = poll::to_c(&given.completion);
    match given.changed {
        None => wc,
        Some((status, vendor_err)) => ibv_wc { status, vendor_err, ..wc },
    }
}

/// The program has these now.
fn polled(cq: &Cq, completions: &[ibv_wc]) {
    recorded::completions(completions);
    observe::polled(cq, completions);
}

/// `ibv_poll_cq`.
pub(crate) extern "C" fn poll_cq(cq: &Cq, max: c_int, out: *mut ibv_wc) -> c_int {
    if let Err(early) = before(Verb::PollCq, About::default()) {
        if let Early::Failed { errno, .. } = early {
            errno.set();
        }
        return -1;
    }
    let taken = match faults() {
        Some(state) if max > 0 && cq.ours.made_in.check().is_ok() => match take(state, cq, max as usize) {
            Err(()) => -1,
            Ok(given) => {
                for (place, given) in given.iter().enumerate() {
                    // SAFETY: the program has room for `max` completions, and no more are taken.
                    unsafe { out.add(place).write(to_c(given)) };
                }
                given.len() as c_int
            }
        },
        _ => poll::poll(cq, max, out),
    };
    match usize::try_from(taken) {
        Ok(0) => polled(cq, &[]),
        // SAFETY: so many were just written.
        Ok(count) => polled(cq, unsafe { std::slice::from_raw_parts(out, count) }),
        Err(_) => {}
    }
    taken
}

/// `ibv_req_notify_cq`.
pub(crate) extern "C" fn req_notify_cq(cq: &Cq, solicited_only: c_int) -> c_int {
    if let Err(Early::Failed { errno, .. }) = before(Verb::ReqNotifyCq, About::default()) {
        return failed(errno);
    }
    let result = completion_queue::req_notify(cq, solicited_only);
    if let (0, Some(state)) = (result, faults()) {
        // What is held is in the queue no more, so the queue does not see it.
        let held = state.held(cq);
        let mut held = lock(&held);
        held.is_armed = true;
        if held.sleeps(Instant::now()) {
            cq.ours.queue.raise();
        }
    }
    observe::armed(cq, solicited_only != 0, result);
    result
}

/// The functions of an extended completion queue.
pub(crate) fn wrap_readers(readers: &mut CqReaders) {
    (readers.start_poll, readers.next_poll) = (start_poll, next_poll);
    readers.read_vendor_err = read_vendor_err;
}

/// Takes the next completion, to be read field by field: ENOENT when there is none.
fn take_next(cq: &Cq) -> c_int {
    let Some(state) = faults() else { return observed(cq, poll::take(cq)) };
    match take(state, cq, 1).map(|given| given.first().copied()) {
        Err(()) => libc::EIO,
        Ok(None) => {
            polled(cq, &[]);
            libc::ENOENT
        }
        Ok(Some(given)) => {
            let (status, vendor_err) = match given.changed {
                None => (status_code(given.completion.status), None),
                Some((status, vendor_err)) => (status, Some(vendor_err)),
            };
            lock(&state.held(cq)).vendor_err = vendor_err;
            poll::show(cq, given.completion, status);
            polled(cq, &[to_c(&given)]);
            0
        }
    }
}

/// A completion was taken, or not.
fn observed(cq: &Cq, result: c_int) -> c_int {
    match poll::current(cq) {
        Some(completion) if result == 0 => polled(cq, &[poll::to_c(completion)]),
        _ if result == libc::ENOENT => polled(cq, &[]),
        _ => {}
    }
    result
}

extern "C" fn start_poll(cq: &Cq, attr: *mut c_void) -> c_int {
    if let Err(Early::Failed { errno, .. }) = before(Verb::PollCq, About::default()) {
        return failed(errno);
    }
    poll::start_with(cq, attr, take_next)
}

extern "C" fn next_poll(cq: &Cq) -> c_int {
    take_next(cq)
}

extern "C" fn read_vendor_err(cq: &Cq) -> u32 {
    let changed = faults().and_then(|state| lock(&state.held(cq)).vendor_err);
    changed.unwrap_or_else(|| poll::read_vendor_err(cq))
}
