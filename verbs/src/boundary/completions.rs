//! The polling verbs in tables if the boundary is in use: completions pass through the faults.

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

/// The fault for a completion, if any.
fn decide(state: &State, completion: &Completion) -> Option<CompletionAction> {
    if !state.judges_completions {
        return None;
    }
    let qpn = completion.qpn.value();
    let place = state.made().place_of(qpn);
    let is_success = completion.status == Status::Success;
    let seen = CompletionSeen { side: side_of(completion), qp: (qpn, place), wr_id: completion.wr_id, is_success };
    state.decide(|decider| decider.completion(seen))
}

/// Takes at most `max` completions that the faults let pass; an error if there will never be any more.
fn take(state: &'static State, cq: &Cq, max: usize) -> Result<Vec<Given>, ()> {
    let held = state.held(cq);
    // Locked for the whole call: concurrent polls of one queue take its completions in one after the other.
    let mut held = lock(&held);
    let now = Instant::now();
    // Rules that reorder need to look further ahead. Without such rules the completions stay in the queue, which can overrun as usual.
    let ahead = if state.judges_completions { max.max(64) } else { max };
    let (mut came, mut is_lost) = (Vec::new(), false);
    let result = cq.ours.queue.poll_each(ahead, |completion| came.push(completion));
    held.polled();
    for completion in came {
        let action = decide(state, &completion);
        match action {
            // Before the program sees the failed completion, its queue pair is in the resulting state.
            Some(CompletionAction::Status(..)) => state.made().fail(completion.qpn.value(), side_of(&completion)),
            Some(CompletionAction::Overrun) => is_lost = true,
            _ => {}
        }
        if let Some(due) = held.take_in(completion, action, now) {
            // Wakes a program that sleeps until the completion arrives.
            let queue = cq.ours.queue.clone();
            state.timer.at(due, move || queue.raise());
        }
    }
    if is_lost {
        overrun(&state.made(), cq);
    }
    let given = held.hand_out(max, now)?;
    // A program that armed the queue before it polled may sleep now, and completions that wait for polls would wait forever.
    if given.is_empty() && held.is_armed && held.sleeps(now) {
        cq.ours.queue.raise();
    }
    drop(held);
    if given.is_empty() && result.is_err() { Err(()) } else { Ok(given) }
}

/// Converts a completion to the form that the program gets.
fn to_c(given: &Given) -> ibv_wc {
    let wc = poll::to_c(&given.completion);
    match given.changed {
        None => wc,
        Some((status, vendor_err)) => ibv_wc { status, vendor_err, ..wc },
    }
}

/// These completions were returned to the program.
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
        // SAFETY: this number of completions was just written.
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
        // A held completion is no longer in the queue, so the queue does not see it.
        let held = state.held(cq);
        let mut held = lock(&held);
        held.is_armed = true;
        if held.sleeps(Instant::now()) {
            cq.ours.queue.raise();
        }
    }
    result
}

/// The functions of an extended completion queue.
pub(crate) fn wrap_readers(readers: &mut CqReaders) {
    (readers.start_poll, readers.next_poll) = (start_poll, next_poll);
    readers.read_vendor_err = read_vendor_err;
}

/// Takes the next completion, to be read field by field: ENOENT if there is none.
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

/// Reports whether a completion was taken.
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
