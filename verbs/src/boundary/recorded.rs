//! The record of a program in a file, by the names that scripts use: queue pairs by their place in the order of creation.

use softnic_explore::record::Seen;
use softnic_runtime::api::call_faults::{Side, Verb};

use super::state::known;
use crate::abi::*;
use crate::objects::queue_pair::Qp;
use crate::rdmacm::cm_event::CmEvent;
use crate::seen;

/// IBV_WC_RECV: completions of receives have this bit in their opcode.
const RECV: c_int = 1 << 7;

/// The place of a queue pair by its number; 0 if there is none.
fn place_of(qpn: Option<u32>) -> u32 {
    qpn.and_then(|qpn| Some(known()?.made().place_of(qpn))).unwrap_or(0)
}

/// A call is about to be made, unless a fault decides otherwise.
pub(crate) fn call(verb: Verb, qpn: Option<u32>, wr_ids: &[u64]) {
    if seen::is_wanted() {
        seen::call(verb, place_of(qpn), wr_ids);
    }
}

/// The program polled these completions.
pub(crate) fn completions(completions: &[ibv_wc]) {
    if !seen::is_wanted() {
        return;
    }
    for wc in completions {
        let side = if wc.opcode & RECV != 0 { Side::Recv } else { Side::Send };
        let qp = place_of(Some(wc.qp_num));
        seen::other(Seen::Completion { side, qp, wr_id: wc.wr_id, status: wc.status as u8 });
    }
}

/// The program took an event of the connection manager; NULL if there was none.
pub(crate) fn cm_event(event: *const CmEvent) {
    // SAFETY: NULL, or an event that the program has just taken and has not seen yet.
    if let (true, Some(event)) = (seen::is_wanted(), unsafe { event.as_ref() }) {
        seen::other(Seen::CmEvent(event.base.event as u32));
    }
}

/// The program tried to take an asynchronous event.
pub(crate) fn async_event(event: &ibv_async_event, result: c_int) {
    if result == 0 && seen::is_wanted() {
        seen::other(Seen::AsyncEvent(event.event_type as u32));
    }
}

/// The peer of a queue pair was set.
pub(crate) fn connected(qp: &Qp, destination: u32) {
    if !seen::is_wanted() {
        return;
    }
    let Some(state) = known() else { return };
    let place = {
        let mut made = state.made();
        // A function of librdmacm may not have reported the queue pair yet.
        made.add_qp(qp);
        made.place_of(qp.qpn())
    };
    seen::other(Seen::Connected { qp: place, number: qp.qpn(), destination });
}
