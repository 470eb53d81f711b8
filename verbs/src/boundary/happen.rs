//! What happens by itself: asynchronous events with what follows from them, and events of the connection manager that no function asked for.

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

/// The first call of the program: what has a time counts from now.
pub(crate) fn begin(state: &'static State) {
    if state.has_begun.swap(true, Ordering::Relaxed) {
        return;
    }
    let now = Instant::now();
    let at_times: Vec<_> = state.decide(|decider| decider.at_times().collect());
    for (place, at, what) in at_times {
        state.timer.at(now.checked_add(at).unwrap_or(now), move || {
            state.decide(|decider| decider.happened(place));
            perform(state, what);
        });
    }
}

/// It happens now.
pub(crate) fn perform(state: &'static State, what: Happening) {
    match what {
        Happening::Cm(event) => {
            let ids = state.made().ids();
            for id in ids {
                // One that is destroyed hears of nothing.
                let _ = id.push_now(IdEvent::Played(event.code(), 0));
            }
        }
        Happening::Async { event: AsyncEvent::PortErr, lasts, .. } => {
            each_nic(|nic| set_link(&nic.runtime, false));
            if let Some(lasts) = lasts {
                let now = Instant::now();
                let mend = || each_nic(|nic| set_link(&nic.runtime, true));
                state.timer.at(now.checked_add(lasts).unwrap_or(now), mend);
            }
        }
        Happening::Async { event: AsyncEvent::CqErr, object, .. } => {
            let made = state.made();
            let Some(cq) = made.cq(object) else { return };
            drop(made);
            overrun(state, cq);
        }
        Happening::Async { event, object, .. } => of_object(&state.made(), state, event, object),
    }
}

fn of_object(made: &Made, state: &State, event: AsyncEvent, object: u32) {
    match event {
        AsyncEvent::QpFatal => made.qp(object).into_iter().for_each(fail_fatally),
        AsyncEvent::SrqLimitReached | AsyncEvent::SrqErr => {
            let Some(srq) = made.srq(object) else { return };
            srq.context().nic().owners.raise(event.code(), Some(srq.subject()));
            if event == AsyncEvent::SrqErr {
                let queue = (&raw const *srq).addr();
                made.qps().filter(|qp| qp.base.srq.addr() == queue).for_each(fail);
            }
        }
        AsyncEvent::DeviceFatal => {
            state.is_dead.store(true, Ordering::Relaxed);
            made.qps().for_each(fail);
            each_nic(|nic| nic.owners.raise(event.code(), None));
        }
        event => each_nic(|nic| nic.owners.raise(event.code(), None)),
    }
}

/// A completion queue is of no more use, as when it was full: its queue pairs neither.
pub(crate) fn overrun(state: &State, cq: &Cq) {
    state.held(cq).lock().unwrap_or_else(|p| p.into_inner()).overrun();
    let made = state.made();
    let queue = cq.as_c();
    cq.context().nic().owners.raise(AsyncEvent::CqErr.code(), Some(cq.subject()));
    made.qps().filter(|qp| qp.base.send_cq == queue || qp.base.recv_cq == queue).for_each(fail_fatally);
}

fn fail(qp: &Qp) {
    // One that is in RESET, or in error already, is as dead.
    let _ = qp.ours.qp.modify(&QpAttr { state: Some(QpState::Error), ..QpAttr::default() });
}

fn fail_fatally(qp: &Qp) {
    fail(qp);
    qp.context().nic().owners.raise(IBV_EVENT_QP_FATAL, Some(qp.subject()));
}

fn set_link(nic: &Context, up: bool) {
    nic.set_link(up);
}

/// The NICs that are open.
fn each_nic(act: impl Fn(&Nic)) {
    let mut seen = Vec::new();
    for nics in device_list::devices().iter().filter_map(|device| device.opened()) {
        if !seen.iter().any(|known| std::sync::Arc::ptr_eq(known, &nics)) {
            nics.iter().for_each(&act);
            seen.push(nics);
        }
    }
}
