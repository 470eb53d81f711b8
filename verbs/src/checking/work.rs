//! Passes posted work and polled completions to the model.

use std::cell::Cell;

use softnic_check::{
    Completed, NicId, ObjectId, Outcome, QpState, ReceiveQueue, ReceiveWork, Refusal, SendOp, SendWork, Sge, Tickets,
};
use softnic_runtime::api::{self, MAX_SGE};

use super::domains::domain_of;
use super::memory::{Done, Posted};
use super::{id_of, is_wanted, state_of, tell, tell_of};
use crate::abi::*;
use crate::objects::building::{Building, Built, Source};
use crate::objects::completion_queue::Cq;
use crate::objects::queue_pair::Qp;
use crate::objects::shared_receive::Srq;

thread_local! {
    /// The work that this thread's current call posts, until the result of the verb is known.
    static POSTING: Cell<Tickets> = Cell::default();
    /// The handle of the completion queue that this thread last found empty; handles are never reused. Programs poll empty queues millions
    /// of times.
    static POLLED: Cell<u32> = const { Cell::new(0) };
}

/// A list of scatter/gather elements.
struct Elements {
    room: [Sge; MAX_SGE as usize],
    len: usize,
}

impl Elements {
    fn of(all: impl Iterator<Item = Sge>) -> Elements {
        let mut elements = Elements { room: [Sge { address: 0, len: 0, lkey: 0 }; MAX_SGE as usize], len: 0 };
        for (place, sge) in elements.room.iter_mut().zip(all) {
            *place = sge;
            elements.len += 1;
        }
        elements
    }

    /// # Safety
    /// `list` has `count` elements.
    unsafe fn of_program(list: *const ibv_sge, count: c_int) -> Elements {
        let count = if list.is_null() { 0 } else { usize::try_from(count).unwrap_or(0) };
        // Longer lists are refused by the verb.
        let each = (0..count.min(MAX_SGE as usize)).map(|i| {
            // SAFETY: guaranteed by the contract.
            let &ibv_sge { addr: address, length: len, lkey } = unsafe { &*list.add(i) };
            Sge { address, len, lkey }
        });
        Elements::of(each)
    }

    fn get(&self) -> &[Sge] {
        &self.room[..self.len]
    }
}

/// Calls `call` for each work request of a list.
///
/// # Safety
/// The list consists of work requests, each with a pointer to the next one or NULL.
unsafe fn each<W>(mut list: *const W, next: impl Fn(&W) -> *mut W, mut call: impl FnMut(&W)) {
    // SAFETY: guaranteed by the contract.
    while let Some(wr) = unsafe { list.as_ref() } {
        call(wr);
        list = next(wr);
    }
}

/// Number of work requests in a list before a given one.
fn count_before<W>(list: *const W, bad: *const W, next: impl Fn(&W) -> *mut W) -> u64 {
    let mut count = 0;
    let mut is_before = true;
    // SAFETY: the list of the program, which the program does not change during its own verb.
    unsafe {
        each(list, next, |wr| {
            is_before &= !std::ptr::eq(wr, bad);
            count += u64::from(is_before);
        });
    }
    count
}

fn op_of(opcode: c_int) -> SendOp {
    match opcode {
        IBV_WR_RDMA_WRITE | IBV_WR_RDMA_WRITE_WITH_IMM => SendOp::Write,
        IBV_WR_RDMA_READ => SendOp::Read,
        IBV_WR_ATOMIC_CMP_AND_SWP | IBV_WR_ATOMIC_FETCH_AND_ADD => SendOp::Atomic,
        IBV_WR_LOCAL_INV | IBV_WR_BIND_MW => SendOp::Local,
        _ => SendOp::Send,
    }
}

/// Before `ibv_post_send`.
pub(crate) fn posting_send(qp: &Qp, list: *const ibv_send_wr) {
    let mut tickets = Tickets::default();
    tell(|model, place| {
        let post = |wr: &ibv_send_wr| {
            let op = op_of(wr.opcode);
            // SAFETY: all members of the union are plain numbers; the operation determines which are valid.
            let (rdma, atomic) = unsafe { (wr.wr.rdma, wr.wr.atomic) };
            let remote = match op {
                SendOp::Write | SendOp::Read => Some((rdma.remote_addr, rdma.rkey)),
                SendOp::Atomic => Some((atomic.remote_addr, atomic.rkey)),
                SendOp::Send | SendOp::Local => None,
            };
            // SAFETY: the program has as many elements as it states.
            let elements = unsafe { Elements::of_program(wr.sg_list, wr.num_sge) };
            let work = SendWork {
                wr_id: wr.wr_id,
                op,
                sges: if op == SendOp::Local { &[] } else { elements.get() },
                is_inline: wr.send_flags & IBV_SEND_INLINE != 0,
                is_signaled: wr.send_flags & IBV_SEND_SIGNALED != 0,
                is_fenced: wr.send_flags & IBV_SEND_FENCE != 0,
                remote,
            };
            model.send_posted(id_of::<Qp>(qp), &work, &Posted, place, &mut tickets);
        };
        // SAFETY: the list of the program.
        unsafe { each(list, |wr| wr.next, post) };
    });
    POSTING.set(tickets);
}

/// After `ibv_post_send`.
pub(crate) fn posted_send(qp: &Qp, list: *const ibv_send_wr, bad: *const ibv_send_wr, result: c_int) {
    match result {
        0 => taken_sends(qp),
        _ if is_wanted() => refused_sends(qp, count_before(list, bad, |wr| wr.next), result),
        _ => {}
    }
}

fn taken_sends(qp: &Qp) {
    let id = id_of::<Qp>(qp);
    tell_of(|model| model.sends_taken(id, POSTING.take()));
}

fn refused_sends(qp: &Qp, done: u64, result: c_int) {
    let takes_sends = |state: &QpState| !matches!(state, QpState::Reset | QpState::Init | QpState::Rtr);
    let why = match state_of(qp) {
        Some(state) if result == libc::EINVAL && !takes_sends(&state) => Refusal::State(state),
        _ if result == libc::ENOMEM => Refusal::Full,
        _ => Refusal::Other,
    };
    let id = id_of::<Qp>(qp);
    tell(|model, place| model.sends_refused(id, POSTING.take(), done, why, place));
}

/// Before `ibv_wr_complete`.
pub(crate) fn posting_built(qp: &Qp, built: &Building) {
    let mut tickets = Tickets::default();
    if built.error.is_none() {
        tell(|model, place| {
            for request in &built.requests {
                let elements = match &request.data {
                    Source::Sges(range) => Elements::of(built.sges[range.clone()].iter().map(of_runtime)),
                    Source::Inline(_) => Elements::of(std::iter::empty()),
                };
                let work = work_of(request, elements.get());
                model.send_posted(id_of::<Qp>(qp), &work, &Posted, place, &mut tickets);
            }
        });
    }
    POSTING.set(tickets);
}

fn of_runtime(sge: &api::Sge) -> Sge {
    Sge { address: sge.addr, len: sge.len, lkey: sge.lkey }
}

fn work_of<'a>(request: &Built, sges: &'a [Sge]) -> SendWork<'a> {
    use api::SendOp as Op;
    let (op, remote) = match request.op {
        Op::Write { remote_addr, rkey } | Op::WriteImm { remote_addr, rkey, .. } => {
            (SendOp::Write, Some((remote_addr, rkey)))
        }
        Op::Read { remote_addr, rkey } => (SendOp::Read, Some((remote_addr, rkey))),
        Op::CompareSwap { remote_addr, rkey, .. } | Op::FetchAdd { remote_addr, rkey, .. } => {
            (SendOp::Atomic, Some((remote_addr, rkey)))
        }
        Op::BindWindow(..) | Op::LocalInv { .. } => (SendOp::Local, None),
        _ => (SendOp::Send, None),
    };
    SendWork {
        wr_id: request.wr_id,
        op,
        sges,
        is_inline: matches!(request.data, Source::Inline(_)),
        is_signaled: request.flags.signaled,
        is_fenced: request.flags.fence,
        remote,
    }
}

/// After `ibv_wr_complete` and `ibv_bind_mw`: all work requests were posted, or none.
pub(crate) fn posted_built(qp: &Qp, result: c_int) {
    match result {
        0 => taken_sends(qp),
        _ if is_wanted() => refused_sends(qp, 0, result),
        _ => {}
    }
}

/// Before `ibv_bind_mw`, which posts a work request, or none.
pub(crate) fn binding_mw(qp: &Qp, bind: &ibv_mw_bind) {
    let work = SendWork {
        wr_id: bind.wr_id,
        op: SendOp::Local,
        sges: &[],
        is_inline: false,
        is_signaled: bind.send_flags & IBV_SEND_SIGNALED != 0,
        is_fenced: false,
        remote: None,
    };
    let mut tickets = Tickets::default();
    tell(|model, place| model.send_posted(id_of::<Qp>(qp), &work, &Posted, place, &mut tickets));
    POSTING.set(tickets);
}

fn posting_receives(to: ReceiveQueue, of_shared: Option<(NicId, ObjectId)>, list: *const ibv_recv_wr) {
    let mut tickets = Tickets::default();
    tell(|model, place| {
        let post = |wr: &ibv_recv_wr| {
            // SAFETY: the program has as many elements as it states.
            let elements = unsafe { Elements::of_program(wr.sg_list, wr.num_sge) };
            let work = ReceiveWork { wr_id: wr.wr_id, sges: elements.get() };
            model.receive_posted(to, &work, of_shared, place, &mut tickets);
        };
        // SAFETY: the list of the program.
        unsafe { each(list, |wr| wr.next, post) };
    });
    POSTING.set(tickets);
}

/// Before `ibv_post_recv`.
pub(crate) fn posting_recv(qp: &Qp, list: *const ibv_recv_wr) {
    posting_receives(ReceiveQueue::Own(id_of::<Qp>(qp)), None, list);
}

/// After `ibv_post_recv`.
pub(crate) fn posted_recv(qp: &Qp, list: *const ibv_recv_wr, bad: *const ibv_recv_wr, result: c_int) {
    let to = ReceiveQueue::Own(id_of::<Qp>(qp));
    if result == 0 {
        tell(|model, place| model.receives_taken(to, POSTING.take(), place));
    }
    if result == 0 || !is_wanted() {
        return;
    }
    let why = match state_of(qp) {
        Some(state @ QpState::Reset) if result == libc::EINVAL => Refusal::State(state),
        _ => Refusal::Other,
    };
    refused_receives(to, list, bad, why);
}

fn refused_receives(to: ReceiveQueue, list: *const ibv_recv_wr, bad: *const ibv_recv_wr, why: Refusal) {
    let done = count_before(list, bad, |wr| wr.next);
    tell(|model, place| model.receives_refused(to, POSTING.take(), done, why, place));
}

/// Before `ibv_post_srq_recv`.
pub(crate) fn posting_srq_recv(srq: &Srq, list: *const ibv_recv_wr) {
    let domain = domain_of(srq.pd().as_c());
    posting_receives(ReceiveQueue::Shared(id_of::<Srq>(srq)), domain, list);
}

/// After `ibv_post_srq_recv`.
pub(crate) fn posted_srq_recv(srq: &Srq, list: *const ibv_recv_wr, bad: *const ibv_recv_wr, result: c_int) {
    if result != 0 && is_wanted() {
        refused_receives(ReceiveQueue::Shared(id_of::<Srq>(srq)), list, bad, Refusal::Other);
    }
}

/// The program polled these completions, possibly none.
pub(crate) fn polled(cq: &Cq, completions: &[ibv_wc]) {
    let id = id_of::<Cq>(cq);
    if completions.is_empty() {
        if POLLED.replace(cq.base.cq.handle) != cq.base.cq.handle {
            tell_of(|model| model.polled(id));
        }
        return;
    }
    tell_of(|model| {
        for completion in completions {
            let outcome = match completion.status {
                0 => Outcome::Success,
                5 => Outcome::Flushed,
                10 => Outcome::RemoteAccess,
                _ => Outcome::Failed,
            };
            let completed = Completed {
                qp_number: completion.qp_num,
                wr_id: completion.wr_id,
                outcome,
                is_receive: completion.opcode & 1 << 7 != 0,
            };
            model.completed(id, &completed, &Done);
        }
    });
}
