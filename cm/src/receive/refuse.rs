//! MRA and REJ: a peer requests more time, or refuses.

use softnic_wire::Instant;
use softnic_wire::mad::cm::{Mra, Rej, RejReason, Responded};

use crate::{Cm, CmId, Disconnect, Event, Route, State};

impl Cm {
    pub(super) fn handle_mra(&mut self, now: Instant, route: &Route, mra: &Mra) {
        let (id, longest_wait) = (CmId(mra.remote_comm_id), self.config.longest_wait);
        let Some(conn) = self.known(route, id) else { return };
        let fits = match (conn.state, mra.message) {
            (State::ReqSent, Responded::REQ) => true,
            (State::RepSent, Responded::REP) => conn.remote_id == mra.local_comm_id,
            _ => false,
        };
        if !fits || conn.sent == 0 {
            self.counters.unexpected += 1;
            return;
        }
        conn.request_due = false;
        // The peer is present, and has the local message.
        conn.patience_ends = conn.patience_ends.map(|_| now + longest_wait);
        let wait = conn.interval + mra.service_timeout.duration();
        let wait = self.bounded(wait);
        self.await_answer(id, now + wait);
    }

    pub(super) fn handle_rej(&mut self, now: Instant, route: &Route, rej: &Rej) {
        let Some(id) = self.rejected(route, rej) else {
            self.counters.unexpected += 1;
            return;
        };
        let Some(conn) = self.known(route, id) else { return };
        // The requesting side does not know the other's id before the answer, and the refusal may not contain it.
        let same = conn.remote_id == rej.local_comm_id;
        let of = rej.message;
        let none = of != Responded::REQ && of != Responded::REP;
        match conn.state {
            State::ReqSent if of == Responded::REQ || none => self.end_rejected(now, id, rej),
            State::ReqReceived if same && (none || rej.reason == RejReason::TIMEOUT) => self.end_rejected(now, id, rej),
            State::RepReceived if same && none => self.end_rejected(now, id, rej),
            State::RepSent if same && of != Responded::REQ => self.end_rejected(now, id, rej),
            State::Established if same && (none || of == Responded::REP && !conn.active) => {
                self.event(Event::Disconnected { id, how: Disconnect::Rejected(rej.reason) });
                self.enter_timewait(now, id);
            }
            _ => self.counters.unexpected += 1,
        }
    }

    /// The connection that a REJ refers to. A peer that gave up may not know the local id: then its GUID and its own id identify the
    /// connection (IBA 12.6.7).
    fn rejected(&self, route: &Route, rej: &Rej) -> Option<CmId> {
        let named = CmId(rej.remote_comm_id);
        if self.conns.contains_key(&named) {
            return Some(named);
        }
        if rej.reason != RejReason::TIMEOUT {
            return None;
        }
        let guid = u64::from_be_bytes(rej.info().get(..8)?.try_into().ok()?);
        self.by_remote_id.get(&((route.remote, guid), rej.local_comm_id)).copied()
    }

    fn end_rejected(&mut self, now: Instant, id: CmId, rej: &Rej) {
        self.event(Event::Rejected { id, rej: Box::new(*rej) });
        let Some(conn) = self.conns.get(&id) else { return };
        if rej.reason == RejReason::STALE_CONNECTION && conn.local_qpn.is_some() {
            self.enter_timewait(now, id);
        } else if conn.active {
            self.remove(id);
        } else {
            // The peer's request may arrive once more, and would be taken for a new one.
            self.linger(now, id);
        }
    }
}
