//! REQ: a peer requests a connection.

use softnic_wire::Qpn;
use softnic_wire::mad::cm::{Message, RejReason, Req, Responded, TransportService};

use super::connectable;
use crate::conn::{Conn, rej};
use crate::params::gid;
use crate::{Cm, CmId, Event, Route, State};

impl Cm {
    pub(super) fn handle_req(&mut self, route: &Route, tid: u64, req: &Req) {
        let peer = (route.remote, req.local_ca_guid);
        if let Some(&id) = self.by_remote_id.get(&(peer, req.local_comm_id)) {
            return self.handle_req_again(id, route, tid, req);
        }
        if !connectable(req.local_qpn) {
            self.counters.malformed += 1;
            return;
        }
        if let Some(reason) = unacceptable(route, req) {
            return self.refuse(route, tid, req, reason);
        }
        let remote_qpn = Qpn::new(req.local_qpn);
        if let Some(&old) = self.by_remote_qpn.get(&(peer, remote_qpn)) {
            self.refuse(route, tid, req, RejReason::STALE_CONNECTION);
            return self.end_stale(old);
        }
        let ip = req.ip_cm();
        let Some(listener) = self.find_listener(req.service_id, ip.as_ref()) else {
            return self.refuse(route, tid, req, RejReason::INVALID_SERVICE_ID);
        };
        let entry = &self.listeners[&listener];
        if self.events_are_many() || entry.is_full_for(route.remote) {
            self.counters.dropped += 1; // the peer sends it again
            return;
        }
        let round_trip = req.primary.local_ack_timeout.duration();
        let mut conn = Conn::new(State::ReqReceived, false, route, tid);
        conn.remote_id = req.local_comm_id;
        conn.remote_guid = req.local_ca_guid;
        conn.remote_qpn = remote_qpn;
        conn.interval = self.interval(req.local_cm_response_timeout, round_trip);
        conn.max_retries = req.max_cm_retries;
        let theirs = self.interval(req.remote_cm_response_timeout, round_trip);
        conn.horizon = self.bounded(theirs * (u32::from(req.max_cm_retries) + 1));
        conn.timewait = self.bounded(round_trip + self.config.ack_delay.duration());
        let Ok(id) = self.insert(conn) else {
            return self.refuse(route, tid, req, RejReason::NO_RESOURCES);
        };
        self.by_remote_id.insert((peer, req.local_comm_id), id);
        self.by_remote_qpn.insert((peer, remote_qpn), id);
        self.enter_backlog(id, listener);
        self.event(Event::ConnectRequest { id, listener, route: *route, request: Box::new(*req) });
    }

    /// The requesting side lacks the answer, or the network duplicated its request.
    fn handle_req_again(&mut self, id: CmId, route: &Route, tid: u64, req: &Req) {
        self.counters.duplicates += 1;
        let Some(conn) = self.conns.get_mut(&id) else { return };
        match conn.state {
            // Repeats an MRA or a REJ, if one was sent.
            State::ReqReceived | State::Lingering => self.answer_again(id),
            State::RepSent => {
                conn.repeat_due = true;
                self.queue(id);
            }
            // The connection was withdrawn or given up.
            State::Timewait if conn.refused() => self.answer_again(id),
            State::Timewait => self.refuse(route, tid, req, RejReason::STALE_CONNECTION),
            _ => {}
        }
    }

    fn refuse(&mut self, route: &Route, tid: u64, req: &Req, reason: RejReason) {
        self.counters.refused += 1;
        self.stray(route, tid, Message::Rej(rej(0, req.local_comm_id, Responded::REQ, reason)));
    }
}

/// Why such a request is refused without involving the program.
fn unacceptable(route: &Route, req: &Req) -> Option<RejReason> {
    if !matches!(req.transport_service, TransportService::RC | TransportService::UC) {
        return Some(RejReason::INVALID_TRANSPORT_TYPE);
    }
    if req.path_mtu.bytes().is_none() {
        return Some(RejReason::INVALID_MTU);
    }
    // The connection is made with the sender of the request, not with an address named in it: no peer can direct packets to a third party.
    if (req.primary.local_gid, req.primary.remote_gid) != (gid(route.remote), gid(route.local)) {
        return Some(RejReason::INVALID_GID);
    }
    None
}
