//! What a packet of XP reads or writes of its queue pair (OptiNIC Table 4), beside the template of its frame, where nothing limits what is in
//! flight.
//!
//! Every field that a packet in the middle of a message meets is named here. Rings of work requests count with their pointers and positions:
//! what lies in them is the program's.

use super::reads::Jobs;
use super::{Rest, Xp, XpSettings, receiver, sender};
use crate::footprint::of_fields;
use crate::message::Link;
use crate::recv_queue;

/// Whichever way it goes: states, whom it is for, and whether a deadline comes or something else has to leave.
fn looked_at() -> usize {
    of_fields!(Xp: state, limited, standard_took, congestion, paced, rest)
        + of_fields!(Rest: choice, unkept, standard)
        + of_fields!(Link: qpn, pd, mtu)
        + Jobs::looked_at()
        + sender::looked_at()
        + receiver::looked_at()
        + recv_queue::looked_at()
}

/// Of a packet that leaves.
fn sent() -> usize {
    looked_at()
        + of_fields!(Xp: requests_turn, tell_drained)
        + of_fields!(XpSettings: tail, spray)
        + of_fields!(Link: payload)
        + sender::written()
}

/// Of a packet of a WRITE that comes.
fn received() -> usize {
    looked_at() + of_fields!(Xp: established) + of_fields!(Link: access) + receiver::written()
}

#[test]
fn what_a_packet_touches_of_its_queue_pair_does_not_grow() {
    // docs/xp.md has these.
    let all = [sent(), received(), received() + recv_queue::read()];
    let fit = all.iter().zip([165, 158, 202]).all(|(&bytes, most)| bytes <= most);
    assert!(fit, "sent, a WRITE received, a SEND received: {all:?}");
}
