//! What messages of communication management and negotiations say about connections.

use std::collections::HashMap;
use std::net::IpAddr;

use softnic_wire::mad::cm::Message;
use softnic_wire::mad::vendor::Negotiation;
use softnic_wire::{Opcode, Qpn};

use crate::decode::Dissection;

/// Connections that are remembered by their communication ids; of more, the pairing is found by answers.
const KNOWN: usize = 1 << 16;

/// Two ends that a message names: the sender's address and queue pair, then the receiver's.
pub(super) type Ends = [(IpAddr, Qpn); 2];

/// What a management datagram says about a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Said {
    /// These are the ends of a new connection.
    Connected(Ends),
    /// These negotiate: they are the ends of one connection.
    Negotiated(Ends),
}

/// Follows the messages of communication management.
#[derive(Debug, Default)]
pub(super) struct ConnectionManager {
    /// The queue pair of a REQ, by sender, receiver and communication id.
    requests: HashMap<(IpAddr, IpAddr, u32), Qpn>,
}

impl ConnectionManager {
    /// Takes a packet; `None` where it says nothing that matters here.
    pub(super) fn follow(&mut self, d: &Dissection<'_>) -> Option<Said> {
        if d.dest_qp != Some(Qpn::GSI) || d.opcode != Some(Opcode::UD_SEND_ONLY) {
            return None;
        }
        if let Ok(n) = Negotiation::parse(d.payload) {
            return Some(Said::Negotiated([(d.src, Qpn::new(n.sender_qpn)), (d.dst, Qpn::new(n.receiver_qpn))]));
        }
        let (_, message) = Message::parse(d.payload).ok()?;
        match message {
            Message::Req(req) => {
                if self.requests.len() < KNOWN {
                    self.requests.insert((d.src, d.dst, req.local_comm_id), Qpn::new(req.local_qpn));
                }
                None
            }
            Message::Rep(rep) => {
                // A REP that is sent again is no new connection: the REQ was used up.
                let asked = self.requests.remove(&(d.dst, d.src, rep.remote_comm_id))?;
                Some(Said::Connected([(d.src, Qpn::new(rep.local_qpn)), (d.dst, asked)]))
            }
            _ => None,
        }
    }
}
