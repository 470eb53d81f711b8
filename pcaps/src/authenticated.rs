//! Which connections of a capture are authenticated, as the negotiations say that are in it.

use std::collections::HashSet;
use std::net::IpAddr;

use softnic_wire::mad::Status;
use softnic_wire::mad::vendor::{Extensions, Kind, Negotiation};
use softnic_wire::{Opcode, Qpn};

use crate::decode::Dissection;

/// Source, destination and destination queue pair of packets that have a trailer.
#[derive(Debug, Default)]
pub(crate) struct Authenticated(HashSet<(IpAddr, IpAddr, Qpn)>);

impl Authenticated {
    pub(crate) fn contains(&self, src: IpAddr, dst: IpAddr, dest_qp: Qpn) -> bool {
        self.0.contains(&(src, dst, dest_qp))
    }

    /// An answer decides: the queue pairs that it names authenticate each other when it accepts that, and else not any more.
    pub(crate) fn follow(&mut self, d: &Dissection<'_>) {
        if d.dest_qp != Some(Qpn::GSI) || d.opcode != Some(Opcode::UD_SEND_ONLY) {
            return;
        }
        let Ok(answer) = Negotiation::parse(d.payload) else { return };
        let Kind::Answer(status) = answer.kind else { return };
        let accepted = status == Status::SUCCESS && answer.extensions.contains(Extensions::AUTH);
        let ends = [(d.src, d.dst, Qpn::new(answer.receiver_qpn)), (d.dst, d.src, Qpn::new(answer.sender_qpn))];
        for end in ends {
            match accepted {
                true => self.0.insert(end),
                false => self.0.remove(&end),
            };
        }
    }
}
