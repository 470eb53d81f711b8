//! What a packet of XP reads or writes of its queue pair (OptiNIC Table 4), beside the template of its frame.
//!
//! Every field that a packet in the middle of a message looks at is named here. Rings of work requests count with their pointers and positions:
//! what lies in them is the program's.

use super::reads::{Jobs, Reads};
use super::{Rest, Xp, XpSettings};
use crate::footprint::of_fields;
use crate::message::Link;

/// Of a packet that leaves.
fn sent() -> usize {
    of_fields!(Xp: state, limited, standard_took, requests_turn, tell_drained, congestion, rest)
        + super::receiver::touched_by_sending()
        + of_fields!(Rest: choice)
        + of_fields!(XpSettings: tail, spray)
        + of_fields!(Link: qpn, pd, mtu, payload)
        + Jobs::touched()
        + super::sender::touched()
}

/// Of a packet of a WRITE that comes.
fn received() -> usize {
    of_fields!(Xp: state, established, rest)
        + of_fields!(Link: qpn, pd, mtu, access)
        + of_fields!(Reads: outstanding)
        + super::receiver::touched()
}

#[test]
fn a_packet_touches_little_of_its_queue_pair() {
    let (sent, write) = (sent(), received());
    let send = write + crate::recv_queue::touched();
    let all = [sent, write, send];
    assert!(all.iter().all(|&bytes| bytes <= 128), "sent, a WRITE received, a SEND received: {all:?}");
}
