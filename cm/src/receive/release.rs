//! DREQ and DREP: a peer ends a connection, or confirms its end.

use softnic_wire::Instant;
use softnic_wire::mad::cm::{Drep, Dreq, Message};

use crate::{Cm, CmId, Disconnect, Event, Route, State};

impl Cm {
    pub(super) fn handle_dreq(&mut self, now: Instant, route: &Route, tid: u64, dreq: &Dreq) {
        let id = CmId(dreq.remote_comm_id);
        if !self.conns.contains_key(&id) {
            // An unknown connection has ended, so the DREQ is confirmed and the peer need not repeat it.
            self.counters.unexpected += 1;
            return self.agree_to_nothing(route, tid, dreq);
        }
        let Some(conn) = self.known(route, id) else { return };
        let ours = conn.local_qpn.is_none_or(|qpn| qpn.value() == dreq.remote_qpn);
        if conn.remote_id != dreq.local_comm_id || !ours {
            self.counters.unexpected += 1;
            return;
        }
        match conn.state {
            // In the state RepSent the RTU is lost, or late.
            State::RepSent | State::Established => {
                (conn.tid, conn.confirmed) = (tid, true);
                self.request_is_answered(id);
                self.set_state(id, State::DreqReceived);
                self.event(Event::Disconnected { id, how: Disconnect::Peer });
            }
            // Both sides end the connection at the same time.
            State::DreqSent => {
                conn.tid = tid;
                self.event(Event::Disconnected { id, how: Disconnect::Agreed });
                self.agree(now, id, [0; 224]);
            }
            State::DreqReceived => self.counters.duplicates += 1,
            State::Timewait => {
                let said = conn.answer.as_deref().is_some_and(|out| matches!(out.message, Message::Drep(_)));
                self.counters.duplicates += 1;
                if said { self.answer_again(id) } else { self.agree_to_nothing(route, tid, dreq) }
            }
            State::Lingering => self.agree_to_nothing(route, tid, dreq),
            State::ReqSent | State::ReqReceived | State::RepReceived | State::SidrSent | State::SidrReceived => {
                self.counters.unexpected += 1;
            }
        }
    }

    fn agree_to_nothing(&mut self, route: &Route, tid: u64, dreq: &Dreq) {
        let (ours, theirs) = (dreq.remote_comm_id, dreq.local_comm_id);
        let drep = Drep { local_comm_id: ours, remote_comm_id: theirs, private_data: [0; 224] };
        self.stray(route, tid, Message::Drep(drep));
    }

    pub(super) fn handle_drep(&mut self, now: Instant, route: &Route, drep: &Drep) {
        let id = CmId(drep.remote_comm_id);
        let Some(conn) = self.known(route, id) else { return };
        if conn.state != State::DreqSent || conn.remote_id != drep.local_comm_id {
            self.counters.unexpected += 1;
            return;
        }
        self.event(Event::Disconnected { id, how: Disconnect::Agreed });
        self.enter_timewait(now, id);
    }
}
