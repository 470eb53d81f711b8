//! After a call: updates the state that faults and the recorder need.

use std::cell::Cell;

use softnic_runtime::api::QpState;

use super::made::Kind;
use super::state::{faults, known};
use crate::abi::*;
use crate::codes::state_code;
use crate::objects::completion_queue::Cq;
use crate::objects::handle::Pointer;
use crate::objects::queue_pair::Qp;
use crate::rdmacm::cm_event::CmEvent;
use crate::rdmacm::id::Id;

/// A queue pair was created; NULL if that failed.
pub(crate) fn made_qp(qp: *mut ibv_qp) {
    let Some(state) = known() else { return };
    // SAFETY: NULL, or a queue pair that a verb has just created.
    if let Some(qp) = unsafe { qp.cast::<Qp>().as_ref() } {
        state.made().add_qp(qp);
    }
}

/// A queue was created; NULL if that failed.
pub(crate) fn made<T>(kind: Kind, queue: *mut T) {
    if let Some(state) = known() {
        state.made().add(kind, queue.expose_provenance());
    }
}

/// A program took an event of a completion queue; NULL if there was none.
pub(crate) fn took_completion_event(cq: *mut ibv_cq) {
    // SAFETY: NULL, or the queue of an event that is not acknowledged yet, so that the queue stays.
    if let (Some(state), Some(cq)) = (faults(), unsafe { cq.cast::<Cq>().as_ref() }) {
        state.held(cq).lock().unwrap_or_else(|p| p.into_inner()).is_armed = false;
    }
}

/// An object is about to be destroyed.
pub(crate) fn going<T>(kind: Kind, object: *mut T) {
    if let Some(state) = known() {
        state.made().note(kind, object.addr(), false);
    }
}

thread_local! {
    /// The number of the queue pair that this thread is destroying.
    static GOING: Cell<Option<u32>> = const { Cell::new(None) };
}

/// A queue pair is about to be destroyed.
pub(crate) fn going_qp(qp: Pointer<Qp>) {
    if let (Some(_), Ok(qp)) = (known(), qp.get()) {
        going(Kind::Qp, (&raw const *qp).cast_mut());
        GOING.set(Some(qp.qpn()));
    }
}

/// The object was destroyed, with its completions; or it stays, because the call failed.
pub(crate) fn gone<T>(kind: Kind, object: *mut T, result: c_int) {
    let Some(state) = known() else { return };
    match kind {
        _ if result != 0 => state.made().note(kind, object.addr(), true),
        Kind::Cq => state.forget_queue(object.addr()),
        Kind::Qp => forget_completions(GOING.take(), 0),
        Kind::Srq => {}
    }
}

/// A queue pair with this number was destroyed, with its completions.
pub(crate) fn forget_completions(qpn: Option<u32>, result: c_int) {
    if let (Some(state), Some(qpn), 0) = (known(), qpn, result) {
        state.each_held(|held| held.forget(qpn));
    }
}

/// A queue pair has changed its state. In RESET it starts again, and its send queue may work again.
pub(crate) fn modified(qp: Pointer<Qp>, attr: &ibv_qp_attr, mask: c_int, result: c_int) {
    if result != 0 || mask & IBV_QP_STATE == 0 {
        return;
    }
    if attr.qp_state == state_code(QpState::Reset) {
        forget_completions(qp.get().ok().map(Qp::qpn), 0);
    } else if attr.qp_state == state_code(QpState::ReadyToSend)
        && let (Some(state), Ok(qp)) = (known(), qp.get())
    {
        state.each_held(|held| held.mend(qp.qpn()));
    }
}

/// Functions have created objects for an id.
pub(crate) fn made_for(id: &Id) {
    let Some(state) = known() else { return };
    // SAFETY: the id is alive while one of its functions runs.
    let (qp, cqs, srq) = unsafe {
        let base = &*id.as_c();
        (base.qp, [base.send_cq, base.recv_cq], base.srq)
    };
    let mut all = state.made();
    all.add_id(&id.shared);
    cqs.into_iter().for_each(|cq| all.add(Kind::Cq, cq.expose_provenance()));
    all.add(Kind::Srq, srq.expose_provenance());
    drop(all);
    made_qp(qp);
}

/// The shared receive queue of an id is about to be destroyed, if it has one.
pub(crate) fn unmaking_srq_of(id: &Id) {
    if known().is_some() {
        // SAFETY: as in `made_for`.
        going(Kind::Srq, unsafe { (*id.as_c()).srq });
    }
}

/// The objects created for an id are about to be destroyed.
pub(crate) fn unmaking_for(id: &Id) {
    if known().is_none() {
        return;
    }
    // SAFETY: as in `made_for`.
    let (qp, cqs) = unsafe {
        let base = &*id.as_c();
        (base.qp, [base.send_cq, base.recv_cq])
    };
    // SAFETY: NULL, or a queue pair that is alive until this function of the id destroys it.
    let qpn = unsafe { qp.cast::<Qp>().as_ref() }.map(Qp::qpn);
    going(Kind::Qp, qp);
    forget_completions(qpn, 0);
    for cq in cqs.into_iter().filter(|cq| !cq.is_null()) {
        going(Kind::Cq, cq);
        gone(Kind::Cq, cq, 0);
    }
}

/// A program got this id; NULL if there is none.
pub(crate) fn has_id(id: *mut rdma_cm_id) {
    // SAFETY: NULL, or an id that a function has just created.
    if let Some(id) = unsafe { id.cast::<Id>().as_ref() } {
        made_for(id);
    }
}

/// A program took an event: a request contains an id.
pub(crate) fn took_event(event: *const CmEvent) {
    // SAFETY: NULL, or an event that the program has just taken and has not seen yet.
    if let Some(event) = unsafe { event.as_ref() }
        && event.base.event == CONNECT_REQUEST
    {
        has_id(event.base.id);
    }
}
