//! Faults that are not tied to a call: asynchronous events with their consequences, and events of the connection manager without a cause.

use std::sync::atomic::Ordering;
use std::time::Instant;

use softnic_runtime::api::call_faults::{AsyncEvent, Happening};
use softnic_runtime::api::{Context, QpAttr, QpState};

use super::made::Made;
use super::state::State;
use crate::calls::device_list;
use crate::objects::completion_queue::Cq;
use crate::objects::event_queue::IBV_EVENT_QP_FATAL;
use crate::objects::nic::Nic;
use crate::objects::queue_pair::Qp;
use crate::rdmacm::pending::IdEvent;

/// The first call of the program: the times of rules count from now.
pub(crate) fn begin(state: &'static State) {
    if state.has_begun.swap(true, Ordering::Relaxed) {
        return;
    }
    let now = Instant::now();
    let at_times: Vec<_> = state.decide(|decider| decider.at_times().collect());
    for (place, at, what) in at_times {
        state.timer.at(now.checked_add(at).unwrap_or(now), move || {
            happen(state, place, what);
        });
    }
}

/// Executes a fault now, given by the place of its rule.
pub(crate) fn happen(state: &'static State, place: usize, what: Happening) {
    if perform(state, what) {
        state.decide(|decider| decider.happened(place));
    }
}

/// Executes the fault; returns whether its subject existed.
fn perform(state: &'static State, what: Happening) -> bool {
    match what {
        Happening::Cm(event) => {
            let ids = state.made().ids();
            // An id that is destroyed gets no event.
            ids.iter().filter(|id| id.push_now(IdEvent::Played(event.code(), 0)).is_ok()).count() > 0
        }
        Happening::Async { event: AsyncEvent::PortErr, lasts, .. } => {
            let any = each_nic(|nic| set_link(&nic.runtime, false));
            if let Some(lasts) = lasts {
                let now = Instant::now();
                let mend = || {
                    each_nic(|nic| set_link(&nic.runtime, true));
                };
                state.timer.at(now.checked_add(lasts).unwrap_or(now), mend);
            }
            any
        }
        Happening::Async { event: AsyncEvent::CqErr, object, .. } => queue_fails(state, object),
        Happening::Async { event, object, .. } => of_object(&state.made(), state, event, object),
    }
}

fn of_object(made: &Made, state: &State, event: AsyncEvent, object: u32) -> bool {
    match event {
        AsyncEvent::QpFatal => made.qp(object).map(fail_fatally).is_some(),
        AsyncEvent::SrqLimitReached | AsyncEvent::SrqErr => {
            let Some(srq) = made.srq(object) else { return false };
            srq.context().nic().owners.raise(event.code(), Some(srq.subject()));
            if event == AsyncEvent::SrqErr {
                let queue = (&raw const *srq).addr();
                made.qps().filter(|qp| qp.base.srq.addr() == queue).for_each(fail);
            }
            true
        }
        AsyncEvent::DeviceFatal => {
            state.is_dead.store(true, Ordering::Relaxed);
            made.qps().for_each(fail);
            each_nic(|nic| nic.owners.raise(event.code(), None))
        }
        event => each_nic(|nic| nic.owners.raise(event.code(), None)),
    }
}

/// Makes a completion queue fail, given by its place in the order of creation.
fn queue_fails(state: &State, object: u32) -> bool {
    let found = |made: &Made| made.cq(object).map(|cq| (&raw const *cq).addr());
    let Some(address) = found(&state.made()) else { return false };
    let held = state.held_at(address);
    // Both locks are held to the end, in this order: a program that destroys the queue meanwhile waits, and a queue destroyed before is
    // detected.
    let mut held = held.lock().unwrap_or_else(|p| p.into_inner());
    let made = state.made();
    let Some(cq) = made.cq(object) else { return false };
    held.overrun();
    overrun(&made, cq);
    true
}

/// Makes a completion queue fail as after an overrun, and its queue pairs with it.
pub(crate) fn overrun(made: &Made, cq: &Cq) {
    let queue = cq.as_c();
    cq.context().nic().owners.raise(AsyncEvent::CqErr.code(), Some(cq.subject()));
    made.qps().filter(|qp| qp.base.send_cq == queue || qp.base.recv_cq == queue).for_each(fail_fatally);
}

fn fail(qp: &Qp) {
    // A queue pair in RESET, or already in error, needs no change.
    let _ = qp.ours.qp.modify(&QpAttr { state: Some(QpState::Error), ..QpAttr::default() });
}

fn fail_fatally(qp: &Qp) {
    fail(qp);
    qp.context().nic().owners.raise(IBV_EVENT_QP_FATAL, Some(qp.subject()));
}

fn set_link(nic: &Context, up: bool) {
    nic.set_link(up);
}

/// Calls `act` for each open NIC; returns whether there is any.
fn each_nic(act: impl Fn(&Nic)) -> bool {
    let mut seen = Vec::new();
    for nics in device_list::devices().iter().filter_map(|device| device.opened()) {
        if !seen.iter().any(|known| std::sync::Arc::ptr_eq(known, &nics)) {
            nics.iter().for_each(&act);
            seen.push(nics);
        }
    }
    !seen.is_empty()
}
