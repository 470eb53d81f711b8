//! What a packet of XP reads or writes of its queue pair (OptiNIC Table 4), beside the template of its frame, where nothing limits what is in
//! flight.
//!
//! Every field that a packet in the middle of a message meets is named here. Rings of work requests count with their pointers and positions:
//! what lies in them is the program's.

use super::{Xp, XpSettings, receiver, sender};
use crate::footprint::of_fields;
use crate::message::Link;
use crate::{congestion, recv_queue};

/// Whichever way it goes: states, whom it is for, when a deadline comes, and whether something else has to leave.
fn looked_at() -> usize {
    of_fields!(Xp: state, limited, answers, settled, due)
        + of_fields!(Link: qpn, mtu)
        + congestion::looked_at()
        + receiver::looked_at()
}

/// Of a packet that leaves.
fn sent() -> usize {
    looked_at()
        + of_fields!(Xp: requests_turn, tell_drained)
        + of_fields!(XpSettings: tail, spray)
        + of_fields!(Link: pd, payload)
        + sender::written()
}

/// Of a packet of a WRITE that comes.
fn received() -> usize {
    looked_at() + of_fields!(Link: pd, access) + receiver::written() + recv_queue::looked_at()
}

/// Of a packet of a SEND that comes.
fn received_into_a_receive() -> usize {
    looked_at() + receiver::written() + recv_queue::read()
}

#[test]
fn what_a_packet_touches_of_its_queue_pair_does_not_grow() {
    // docs/xp.md has these.
    let all = [sent(), received(), received_into_a_receive()];
    let fit = all.iter().zip([109, 84, 125]).all(|(&bytes, most)| bytes <= most);
    assert!(fit, "sent, a WRITE received, a SEND received: {all:?}");
}
