//! The posting verbs in tables if the boundary is in use.

use softnic_runtime::api::call_faults::Verb;

use super::before::{About, Early, before};
use super::observe;
use super::state::known;
use crate::abi::*;
use crate::calls::{builder, post};
use crate::errno::Errno;
use crate::objects::building::Building;
use crate::objects::queue_pair::{BuilderTable, Qp};
use crate::objects::shared_receive::Srq;

/// A work request in a list of the program.
trait Listed: Sized {
    fn wr_id(&self) -> u64;
    fn next(&self) -> *mut Self;
    fn set_next(&mut self, next: *mut Self);
}

impl Listed for ibv_send_wr {
    fn wr_id(&self) -> u64 {
        self.wr_id
    }
    fn next(&self) -> *mut ibv_send_wr {
        self.next
    }
    fn set_next(&mut self, next: *mut ibv_send_wr) {
        self.next = next;
    }
}

impl Listed for ibv_recv_wr {
    fn wr_id(&self) -> u64 {
        self.wr_id
    }
    fn next(&self) -> *mut ibv_recv_wr {
        self.next
    }
    fn set_next(&mut self, next: *mut ibv_recv_wr) {
        self.next = next;
    }
}

/// The work requests of a list, in order.
fn all<W: Listed>(mut wr: *mut W) -> Vec<*mut W> {
    let mut found = Vec::new();
    // SAFETY: NULL, or a work request of the program, which may be constant.
    while let Some(this) = unsafe { wr.as_ref() } {
        found.push(wr);
        wr = this.next();
    }
    found
}

/// Posts a list, or the part of it before the work request that a fault fails.
fn post_list<W: Listed>(
    verb: Verb,
    qp: Option<u32>,
    list: *mut W,
    bad: &mut *mut W,
    post: impl FnOnce(*mut W, &mut *mut W) -> c_int,
) -> c_int {
    if known().is_none() {
        return post(list, bad);
    }
    let requests = all(list);
    // SAFETY: the work requests belong to the program, and the call is still in progress.
    let wr_ids: Vec<u64> = requests.iter().map(|&wr| unsafe { &*wr }.wr_id()).collect();
    let (errno, at) = match before(verb, About { qp, wr_ids: &wr_ids, id: None }) {
        Ok(()) => return post(list, bad),
        Err(Early::Failed { errno, at }) => (errno, at),
        Err(Early::Done) => return 0,
    };
    // The list belongs to the program, so a copy of it is truncated.
    // SAFETY: as above.
    let mut before: Vec<W> = requests[..at.min(requests.len())].iter().map(|&wr| unsafe { wr.read() }).collect();
    let places: Vec<*mut W> = before.iter_mut().map(|wr| &raw mut *wr).collect();
    for (place, &wr) in places.iter().enumerate() {
        let next = places.get(place + 1).copied().unwrap_or(std::ptr::null_mut());
        // SAFETY: this is an element of the copy, which no other code uses.
        unsafe { (*wr).set_next(next) };
    }
    if let Some(&first) = places.first() {
        let mut refused = first;
        let result = post(first, &mut refused);
        if result != 0 {
            let place = places.iter().position(|&wr| wr == refused).unwrap_or(0);
            *bad = requests[place];
            return result;
        }
    }
    *bad = requests.get(at).copied().unwrap_or(list);
    failed(errno)
}

/// Returns the errno of a fault as a verb does.
pub(super) fn failed(e: Errno) -> c_int {
    e.set();
    e.0
}

/// The position of the failure in a list, for the observer.
fn refused<W>(result: c_int, bad: &*mut W) -> *const W {
    if result == 0 { std::ptr::null() } else { *bad }
}

/// `ibv_post_send`.
pub(crate) extern "C" fn post_send(qp: &Qp, list: *mut ibv_send_wr, bad: &mut *mut ibv_send_wr) -> c_int {
    post_list(Verb::PostSend, Some(qp.qpn()), list, bad, |list, bad| {
        observe::posting_send(qp, list);
        let result = post::send(qp, list, bad);
        observe::posted_send(qp, list, refused(result, bad), result);
        result
    })
}

/// `ibv_post_recv`.
pub(crate) extern "C" fn post_recv(qp: &Qp, list: *mut ibv_recv_wr, bad: &mut *mut ibv_recv_wr) -> c_int {
    post_list(Verb::PostRecv, Some(qp.qpn()), list, bad, |list, bad| {
        observe::posting_recv(qp, list);
        let result = post::recv(qp, list, bad);
        observe::posted_recv(qp, list, refused(result, bad), result);
        result
    })
}

/// `ibv_post_srq_recv`.
pub(crate) extern "C" fn post_srq_recv(srq: &Srq, list: *mut ibv_recv_wr, bad: &mut *mut ibv_recv_wr) -> c_int {
    post_list(Verb::PostSrqRecv, None, list, bad, |list, bad| {
        observe::posting_srq_recv(srq, list);
        let result = post::srq_recv(srq, list, bad);
        observe::posted_srq_recv(srq, list, refused(result, bad), result);
        result
    })
}

/// The functions of a queue pair's builder interface.
pub(crate) fn wrap_builder(table: &mut BuilderTable) {
    table.complete = wr_complete;
}

/// `ibv_wr_complete`: posts all work requests or none.
extern "C" fn wr_complete(qp: &Qp) -> c_int {
    let building: &Building = builder::building(qp);
    let ids = || building.requests.iter().map(|request| request.wr_id).collect();
    let wr_ids: Vec<u64> = known().map_or_else(Vec::new, |_| ids());
    if let Err(early) = before(Verb::PostSend, About { qp: Some(qp.qpn()), wr_ids: &wr_ids, id: None }) {
        builder::abort(qp);
        return match early {
            Early::Failed { errno, .. } => failed(errno),
            Early::Done => 0,
        };
    }
    observe::posting_built(qp, building);
    let result = builder::post_built(qp, building);
    observe::posted_built(qp, building, result);
    builder::abort(qp);
    result
}
