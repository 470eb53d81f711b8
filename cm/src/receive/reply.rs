//! REP and RTU: a peer accepts, or confirms.

use softnic_wire::mad::cm::{Message, RejReason, Rep, Responded, Rtu};
use softnic_wire::{Instant, Qpn};

use super::connectable;
use crate::conn::rej;
use crate::{Cm, CmId, Event, Route, State};

impl Cm {
    pub(super) fn handle_rep(&mut self, now: Instant, route: &Route, tid: u64, rep: &Rep) {
        let id = CmId(rep.remote_comm_id);
        if !self.conns.contains_key(&id) {
            // A peer that accepts an unknown request must not wait for the RTU.
            self.counters.unexpected += 1;
            return self.refuse_rep(route, tid, rep, RejReason::INVALID_COMM_ID);
        }
        let Some(conn) = self.known(route, id) else { return };
        if !conn.active {
            self.counters.unexpected += 1;
            return;
        }
        let same = conn.remote_id == rep.local_comm_id;
        let refused = conn.refused();
        match conn.state {
            State::ReqSent => self.accept_rep(now, id, route, tid, rep),
            // Repeats an MRA, if one was sent; or the RTU that was lost.
            State::RepReceived | State::Established | State::DreqSent if same => {
                self.counters.duplicates += 1;
                self.answer_again(id);
            }
            State::DreqReceived if same => self.counters.duplicates += 1,
            State::Lingering if same && refused => {
                self.counters.duplicates += 1;
                self.answer_again(id);
            }
            _ => {
                self.counters.unexpected += 1;
                self.refuse_rep(route, tid, rep, RejReason::INVALID_COMM_ID);
            }
        }
    }

    fn accept_rep(&mut self, now: Instant, id: CmId, route: &Route, tid: u64, rep: &Rep) {
        if !connectable(rep.local_qpn) {
            self.counters.malformed += 1;
            return;
        }
        let (peer, remote_qpn) = ((route.remote, rep.local_ca_guid), Qpn::new(rep.local_qpn));
        if let Some(&old) = self.by_remote_qpn.get(&(peer, remote_qpn)) {
            let refusal = rej(id.0, rep.local_comm_id, Responded::REP, RejReason::STALE_CONNECTION);
            self.event(Event::Rejected { id, rej: Box::new(refusal) });
            self.enter_timewait(now, id);
            self.refuse_rep(route, tid, rep, RejReason::STALE_CONNECTION);
            return self.end_stale(old);
        }
        self.note_round_trip(now, id);
        self.request_is_answered(id);
        self.set_state(id, State::RepReceived);
        if let Some(conn) = self.conns.get_mut(&id) {
            (conn.remote_id, conn.remote_guid, conn.remote_qpn) = (rep.local_comm_id, rep.local_ca_guid, remote_qpn);
            let timewait = conn.timewait + rep.target_ack_delay.duration();
            conn.timewait = timewait.min(self.config.longest_wait);
        }
        self.by_remote_qpn.insert((peer, remote_qpn), id);
        self.event(Event::ConnectResponse { id, reply: Box::new(*rep) });
    }

    fn refuse_rep(&mut self, route: &Route, tid: u64, rep: &Rep, reason: RejReason) {
        self.stray(route, tid, Message::Rej(rej(rep.remote_comm_id, rep.local_comm_id, Responded::REP, reason)));
    }

    pub(super) fn handle_rtu(&mut self, route: &Route, tid: u64, rtu: &Rtu) {
        let id = CmId(rtu.remote_comm_id);
        if !self.conns.contains_key(&id) {
            // The peer is notified that the connection is unknown here.
            self.counters.unexpected += 1;
            let (ours, theirs) = (rtu.remote_comm_id, rtu.local_comm_id);
            let refusal = rej(ours, theirs, Responded::LAP_OR_NONE, RejReason::INVALID_COMM_ID);
            return self.stray(route, tid, Message::Rej(refusal));
        }
        let Some(conn) = self.known(route, id) else { return };
        if conn.active || conn.remote_id != rtu.local_comm_id {
            self.counters.unexpected += 1;
            return;
        }
        match conn.state {
            State::RepSent => self.established(id, Some(Box::new(rtu.private_data))),
            // The connection was given up or withdrawn, and the peer did not get the refusal.
            State::Timewait if conn.refused() => self.answer_again(id),
            State::ReqReceived => self.counters.unexpected += 1,
            _ => self.counters.duplicates += 1,
        }
    }

    /// The peer is ready.
    pub(crate) fn established(&mut self, id: CmId, private_data: Option<Box<[u8; 224]>>) {
        self.request_is_answered(id);
        self.set_state(id, State::Established);
        self.conns.entry(id).and_modify(|conn| conn.confirmed = true);
        self.event(Event::Established { id, private_data });
    }
}
