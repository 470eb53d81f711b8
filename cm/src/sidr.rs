//! Service id resolution: from a service to the datagram queue pair that provides it (IBA 12.11).

use softnic_wire::mad::cm::{Message, SidrRep, SidrReq, SidrStatus};
use softnic_wire::{Instant, Qpn};

use crate::conn::Conn;
use crate::params::{private, private_with_ip};
use crate::{Cm, CmId, Error, Event, ListenId, Resolve, Route, SidrReply, State};

impl Cm {
    /// Asks which queue pair provides a service. [`Event::SidrResponse`] or [`Event::Unreachable`] follows.
    pub fn resolve(&mut self, r: &Resolve<'_>) -> Result<CmId, Error> {
        let private_data = private_with_ip(r.ip.as_ref(), r.private_data)?;
        let mut conn = Conn::new(State::SidrSent, true, &r.route, 0);
        conn.interval = self.interval(r.response_timeout, r.packet_life_time.duration() * 2);
        conn.max_retries = r.max_cm_retries & 0x0f;
        let id = self.insert(conn)?;
        let request = SidrReq { request_id: id.0, pkey: r.route.pkey, service_id: r.service_id, private_data };
        self.request(id, self.tid(id), Message::SidrReq(request));
        Ok(id)
    }

    /// Answers a service id resolution; the id is no longer valid afterwards.
    pub fn sidr_reply(&mut self, now: Instant, id: CmId, reply: &SidrReply<'_>) -> Result<(), Error> {
        let private_data = private(reply.private_data)?;
        let conn = self.in_state(id, &[State::SidrReceived])?;
        let Some(request) = conn.request.as_deref() else { return Err(Error::NoSuchId) };
        let Message::SidrReq(request) = &request.message else { return Err(Error::NoSuchId) };
        let answer = SidrRep {
            request_id: request.request_id,
            status: reply.status,
            info_len: 0,
            vendor_id: 0,
            qpn: reply.qpn.value(),
            service_id: request.service_id,
            qkey: reply.qkey,
            info: [0; 72],
            private_data,
        };
        let tid = conn.tid;
        self.linger(now, id);
        self.answer(id, tid, Message::SidrRep(answer));
        Ok(())
    }

    pub(crate) fn refuse_sidr(&mut self, now: Instant, id: CmId) {
        let no = SidrReply { status: SidrStatus::REJECT, qpn: Qpn::QP0, qkey: 0, private_data: &[] };
        // The state is right and no data can be too long, so this succeeds.
        let _ = self.sidr_reply(now, id, &no);
    }

    pub(crate) fn handle_sidr_req(&mut self, route: &Route, tid: u64, req: &SidrReq) {
        if let Some(&id) = self.by_sidr_request.get(&(route.remote, req.request_id)) {
            self.counters.duplicates += 1;
            return self.answer_again(id);
        }
        let ip = req.ip_cm();
        let Some(listener) = self.find_listener(req.service_id, ip.as_ref()) else {
            return self.refuse_service(route, tid, req, SidrStatus::UNSUPPORTED);
        };
        let entry = &self.listeners[&listener];
        if self.events_are_many() || entry.is_full_for(route.remote) {
            self.counters.dropped += 1; // the peer sends it again
            return;
        }
        let mut conn = Conn::new(State::SidrReceived, false, route, tid);
        conn.remote_id = req.request_id;
        conn.horizon = self.config.sidr_hold;
        conn.request = Some(Box::new(crate::conn::Outgoing { tid, message: Message::SidrReq(*req) }));
        let Ok(id) = self.insert(conn) else {
            return self.refuse_service(route, tid, req, SidrStatus::NO_QP);
        };
        self.by_sidr_request.insert((route.remote, req.request_id), id);
        self.enter_backlog(id, listener);
        self.event(Event::SidrRequest { id, listener, route: *route, request: Box::new(*req) });
    }

    fn refuse_service(&mut self, route: &Route, tid: u64, req: &SidrReq, status: SidrStatus) {
        self.counters.refused += 1;
        let answer = SidrRep {
            request_id: req.request_id,
            status,
            info_len: 0,
            vendor_id: 0,
            qpn: 0,
            service_id: req.service_id,
            qkey: 0,
            info: [0; 72],
            private_data: [0; 136],
        };
        self.stray(route, tid, Message::SidrRep(answer));
    }

    pub(crate) fn handle_sidr_rep(&mut self, route: &Route, rep: &SidrRep) {
        let id = CmId(rep.request_id);
        let fits = |c: &Conn| c.state == State::SidrSent && c.route.remote == route.remote;
        if !self.conns.get(&id).is_some_and(fits) {
            self.counters.unexpected += 1;
            return;
        }
        self.event(Event::SidrResponse { id, reply: Box::new(*rep) });
        self.remove(id);
    }

    /// Adds a request to the backlog of its listener.
    pub(crate) fn enter_backlog(&mut self, id: CmId, listener: ListenId) {
        if let (Some(conn), Some(entry)) = (self.conns.get_mut(&id), self.listeners.get_mut(&listener)) {
            conn.listener = Some(listener);
            entry.enter(conn.route.remote);
        }
    }
}
