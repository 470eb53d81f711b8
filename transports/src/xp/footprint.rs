//! How much of a queue pair's state a packet of XP reads or writes (OptiNIC Table 4), besides the template of its frame, if nothing limits
//! the data in flight.
//!
//! All fields that a packet in the middle of a message accesses are listed here. Rings of work requests count with their pointers and
//! positions; their contents belong to the program.

use super::{Xp, XpSettings, receiver, sender};
use crate::footprint::of_fields;
use crate::message::Link;
use crate::{congestion, recv_queue};

/// In both directions: the states, the destination, the next deadline, and whether another packet has to be sent.
fn looked_at() -> usize {
    of_fields!(Xp: state, limited, answers, settled, due)
        + of_fields!(Link: qpn, mtu)
        + congestion::looked_at()
        + receiver::looked_at()
}

/// For a packet that is sent.
fn sent() -> usize {
    looked_at()
        + of_fields!(Xp: requests_turn, tell_drained)
        + of_fields!(XpSettings: tail, spray)
        + of_fields!(Link: pd, payload)
        + sender::written()
}

/// For a received packet of a WRITE.
fn received() -> usize {
    looked_at() + of_fields!(Link: pd, access) + receiver::written() + recv_queue::looked_at()
}

/// For a received packet of a SEND.
fn received_into_a_receive() -> usize {
    looked_at() + receiver::written() + recv_queue::read()
}

#[test]
fn what_a_packet_touches_of_its_queue_pair_does_not_grow() {
    // docs/xp.md has these figures.
    let all = [sent(), received(), received_into_a_receive()];
    let fit = all.iter().zip([109, 84, 125]).all(|(&bytes, most)| bytes <= most);
    assert!(fit, "sent, a WRITE received, a SEND received: {all:?}");
}
