//! Whether the boundary is in use, decided once: at the first function that a program calls.

use std::sync::Once;
use std::sync::atomic::{AtomicU8, Ordering};

use super::{completions, data, late, observe, recorded, state, table_verbs};
use crate::calls::open::{ibv_context_ops, verbs_context};
use crate::calls::{builder, open, poll, qp_attributes};
use crate::rdmacm::pending;
use crate::{exit, fork, seen, stacks};

const UNDECIDED: u8 = 0;
const OFF: u8 = 1;
const ON: u8 = 2;

/// The child of a fork has the environment and the tables of its parent, so the decision holds for the child.
static STATE: AtomicU8 = AtomicU8::new(UNDECIDED);

/// Whether the boundary is in use.
#[inline]
pub(crate) fn is_on() -> bool {
    match STATE.load(Ordering::Acquire) {
        UNDECIDED => decide(),
        state => state == ON,
    }
}

/// Concurrent threads decide alike.
#[cold]
fn decide() -> bool {
    let on = state::is_wanted() || observe::is_wanted() || seen::is_wanted();
    if on {
        // The state of the process does not apply to its children, including a child forked before the devices are listed.
        fork::watch();
        open::OPS.wrap(wrap_ops);
        open::TABLE.wrap(wrap_table);
        builder::TABLE.wrap(data::wrap_builder);
        poll::READERS.wrap(completions::wrap_readers);
        exit::at_last(end);
        // An earlier caller has set the same functions.
        let _ = pending::HOLD.set(late::hold);
        let _ = qp_attributes::CONNECTED.set(recorded::connected);
        exit::watch();
    }
    static STACKS: Once = Once::new();
    STACKS.call_once(stacks::watch);
    STATE.store(if on { ON } else { OFF }, Ordering::Release);
    on
}

fn end() {
    observe::process_ends();
    state::tell_unused();
}

fn wrap_ops(ops: &mut ibv_context_ops) {
    ops.alloc_mw = table_verbs::alloc_mw;
    ops.bind_mw = table_verbs::bind_mw;
    ops.dealloc_mw = table_verbs::dealloc_mw;
    ops.poll_cq = completions::poll_cq;
    ops.req_notify_cq = completions::req_notify_cq;
    ops.post_srq_recv = data::post_srq_recv;
    ops.post_send = data::post_send;
    ops.post_recv = data::post_recv;
}

fn wrap_table(table: &mut verbs_context) {
    table.query_port = table_verbs::query_port;
    table.alloc_null_mr = table_verbs::alloc_null_mr;
    table.alloc_parent_domain = table_verbs::alloc_parent_domain;
    table.dealloc_td = table_verbs::dealloc_td;
    table.alloc_td = table_verbs::alloc_td;
    table.create_cq_ex = table_verbs::create_cq_ex;
    table.query_device_ex = table_verbs::query_device_ex;
    table.create_qp_ex = table_verbs::create_qp_ex;
    table.create_srq_ex = table_verbs::create_srq_ex;
}
