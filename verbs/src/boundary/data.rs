//! Verbs that post and poll, as they are in tables where somebody is at the boundary.

use softnic_runtime::api::call_faults::Verb;

use super::before::{About, before};
use super::observe;
use crate::abi::*;
use crate::calls::{builder, poll, post};
use crate::errno::Errno;
use crate::objects::completion_queue::{self, Cq, CqReaders};
use crate::objects::queue_pair::{BuilderTable, Qp};
use crate::objects::shared_receive::Srq;

/// An errno of a fault, as a verb returns it.
fn failed(e: Errno) -> c_int {
    e.set();
    e.0
}

/// `ibv_post_send`.
pub(crate) extern "C" fn post_send(qp: &Qp, list: *mut ibv_send_wr, bad: &mut *mut ibv_send_wr) -> c_int {
    if let Err(e) = before(Verb::PostSend, About { qp: Some(qp.qpn()), wr_id: None }) {
        *bad = list;
        return failed(e);
    }
    observe::posting_send(qp, list);
    let result = post::send(qp, list, bad);
    observe::posted_send(qp, list, if result == 0 { std::ptr::null() } else { *bad }, result);
    result
}

/// `ibv_post_recv`.
pub(crate) extern "C" fn post_recv(qp: &Qp, list: *mut ibv_recv_wr, bad: &mut *mut ibv_recv_wr) -> c_int {
    if let Err(e) = before(Verb::PostRecv, About { qp: Some(qp.qpn()), wr_id: None }) {
        *bad = list;
        return failed(e);
    }
    observe::posting_recv(qp, list);
    let result = post::recv(qp, list, bad);
    observe::posted_recv(qp, list, if result == 0 { std::ptr::null() } else { *bad }, result);
    result
}

/// `ibv_post_srq_recv`.
pub(crate) extern "C" fn post_srq_recv(srq: &Srq, list: *mut ibv_recv_wr, bad: &mut *mut ibv_recv_wr) -> c_int {
    if let Err(e) = before(Verb::PostSrqRecv, About::default()) {
        *bad = list;
        return failed(e);
    }
    observe::posting_srq_recv(srq, list);
    let result = post::srq_recv(srq, list, bad);
    observe::posted_srq_recv(srq, list, if result == 0 { std::ptr::null() } else { *bad }, result);
    result
}

/// `ibv_poll_cq`.
pub(crate) extern "C" fn poll_cq(cq: &Cq, max: c_int, out: *mut ibv_wc) -> c_int {
    if let Err(e) = before(Verb::PollCq, About::default()) {
        e.set();
        return -1;
    }
    let taken = poll::poll(cq, max, out);
    match usize::try_from(taken) {
        Ok(0) => observe::polled(cq, &[]),
        // SAFETY: so many were just written.
        Ok(count) => observe::polled(cq, unsafe { std::slice::from_raw_parts(out, count) }),
        Err(_) => {}
    }
    taken
}

/// `ibv_req_notify_cq`.
pub(crate) extern "C" fn req_notify_cq(cq: &Cq, solicited_only: c_int) -> c_int {
    if let Err(e) = before(Verb::ReqNotifyCq, About::default()) {
        return failed(e);
    }
    let result = completion_queue::req_notify(cq, solicited_only);
    observe::armed(cq, solicited_only != 0, result);
    result
}

/// The builder's functions of a queue pair.
pub(crate) fn wrap_builder(table: &mut BuilderTable) {
    table.complete = wr_complete;
}

/// `ibv_wr_complete`.
extern "C" fn wr_complete(qp: &Qp) -> c_int {
    if let Err(e) = before(Verb::PostSend, About { qp: Some(qp.qpn()), wr_id: None }) {
        builder::abort(qp);
        return failed(e);
    }
    let building = builder::building(qp);
    observe::posting_built(qp, building);
    let result = builder::post_built(qp, building);
    observe::posted_built(qp, building, result);
    builder::abort(qp);
    result
}

/// The functions of an extended completion queue.
pub(crate) fn wrap_readers(readers: &mut CqReaders) {
    (readers.start_poll, readers.next_poll) = (start_poll, next_poll);
}

/// A completion of an extended queue was taken, or not.
fn observe_current(cq: &Cq, result: c_int) -> c_int {
    match poll::current(cq) {
        Some(completion) if result == 0 => observe::polled(cq, &[poll::to_c(completion)]),
        _ if result == libc::ENOENT => observe::polled(cq, &[]),
        _ => {}
    }
    result
}

extern "C" fn start_poll(cq: &Cq, attr: *mut c_void) -> c_int {
    if let Err(e) = before(Verb::PollCq, About::default()) {
        return failed(e);
    }
    observe_current(cq, poll::start_poll(cq, attr))
}

extern "C" fn next_poll(cq: &Cq) -> c_int {
    observe_current(cq, poll::next_poll(cq))
}
