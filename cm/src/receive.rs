//! Received MADs: each is parsed and passed to the handler of its message.

mod lap;
mod refuse;
mod release;
mod reply;
mod request;

use softnic_wire::failover::Side;
use softnic_wire::mad::cm::{CLASS_VERSION, Message, RejReason, Responded};
use softnic_wire::mad::{Attribute, BASE_VERSION, Method, Repr, Status};
use softnic_wire::{Instant, Qpn};

use crate::conn::{Conn, rej};
use crate::{Cm, CmId, Route, State};

impl Cm {
    /// Handles a MAD that arrived at QP1. It is answered as the rules require, or counted and dropped.
    pub fn handle_mad(&mut self, now: Instant, route: &Route, mad: &[u8]) {
        self.counters.received += 1;
        let Ok((header, message)) = Message::parse(mad) else {
            self.counters.malformed += 1;
            return;
        };
        if header.base_version != BASE_VERSION || header.method != Method::SEND || header.status != Status::SUCCESS {
            self.counters.malformed += 1;
            return;
        }
        if route.side == Side::Backup && !self.is_heard_at_backup(&message) {
            self.counters.unexpected += 1;
            return;
        }
        if header.class_version != CLASS_VERSION {
            return self.handle_other_version(route, &header, &message);
        }
        let tid = header.transaction_id;
        match &message {
            Message::Req(m) => self.handle_req(route, tid, m),
            Message::Mra(m) => self.handle_mra(now, route, m),
            Message::Rej(m) => self.handle_rej(now, route, m),
            Message::Rep(m) => self.handle_rep(now, route, tid, m),
            Message::Rtu(m) => self.handle_rtu(route, tid, m),
            Message::Dreq(m) => self.handle_dreq(now, route, tid, m),
            Message::Drep(m) => self.handle_drep(now, route, m),
            Message::SidrReq(m) => self.handle_sidr_req(route, tid, m),
            Message::SidrRep(m) => self.handle_sidr_rep(route, m),
            Message::Other { attribute: Attribute::CM_LAP, data } => self.handle_lap(route, tid, data),
            Message::Other { .. } => self.counters.unsupported += 1,
        }
    }

    /// Answers a request in another version with the supported version (IBA 12.6.7, reason 31).
    fn handle_other_version(&mut self, route: &Route, header: &Repr, message: &Message) {
        self.counters.malformed += 1;
        if let Message::Req(m) = message {
            let mut refusal = rej(0, m.local_comm_id, Responded::REQ, RejReason::INVALID_CLASS_VERSION);
            (refusal.info[0], refusal.info_len) = (CLASS_VERSION, 1);
            self.stray(route, header.transaction_id, Message::Rej(refusal));
        }
    }

    /// The connection that a message names by the local id, if the message comes from an address of its peer; otherwise the message is
    /// counted.
    fn known(&mut self, route: &Route, id: CmId) -> Option<&mut Conn> {
        let Some(conn) = self.conns.get_mut(&id) else {
            self.counters.unexpected += 1;
            return None;
        };
        if !conn.is_peer(route) {
            self.counters.wrong_address += 1;
            return None;
        }
        conn.hear(route);
        Some(conn)
    }

    /// The peer uses a queue pair again that belongs to a local connection: that connection is gone at the peer (IBA 12.9.8.3.1).
    fn end_stale(&mut self, id: CmId) {
        if self.conns.get(&id).is_some_and(|c| c.state == State::Established) {
            self.release(id, [0; 220]);
        }
    }
}

/// Whether a queue pair with this number can be connected.
fn connectable(qpn: u32) -> bool {
    !matches!(Qpn::new(qpn), Qpn::QP0 | Qpn::GSI | Qpn::MULTICAST)
}
