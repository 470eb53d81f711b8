//! The commands of a program: connect, accept, reject, establish, disconnect.

use softnic_wire::mad::cm::{
    Drep, Dreq, Failover, Message, Mra, Path, RejReason, Rep, Req, Responded, Rtu, TimeoutCode,
};
use softnic_wire::{Instant, Qpn};

use crate::conn::{Conn, rej, timed_out};
use crate::params::{private, private_with_ip};
use crate::{Accept, Cm, CmId, Connect, Error, MraTime, State};

impl Cm {
    /// Requests a connection. [`Event::ConnectResponse`](crate::Event::ConnectResponse), `Rejected` or `Unreachable` follows.
    pub fn connect(&mut self, c: &Connect<'_>) -> Result<CmId, Error> {
        let private_data = private_with_ip(c.ip.as_ref(), c.private_data)?;
        self.check_local_qpn(c.qpn)?;
        let round_trip = c.packet_life_time.duration() * 2;
        let mut conn = Conn::new(State::ReqSent, true, &c.route, 0);
        conn.interval = self.interval(c.response_timeout, round_trip);
        conn.max_retries = c.max_cm_retries & 0x0f;
        conn.horizon = self.bounded(conn.interval * (u32::from(conn.max_retries) + 1));
        conn.timewait = self.bounded(round_trip + self.config.ack_delay.duration());
        conn.local_qpn = Some(c.qpn);
        let id = self.insert(conn)?;
        self.by_local_qpn.insert(c.qpn, id);
        let tid = self.tid(id);
        let request = Req {
            local_comm_id: id.0,
            vendor_id: 0,
            service_id: c.service_id,
            local_ca_guid: self.config.ca_guid,
            local_qkey: 0,
            local_qpn: c.qpn.value(),
            responder_resources: c.responder_resources,
            local_eecn: 0,
            initiator_depth: c.initiator_depth,
            remote_eecn: 0,
            remote_cm_response_timeout: c.response_timeout,
            transport_service: c.transport,
            end_to_end_flow_control: c.flow_control,
            starting_psn: c.starting_psn,
            local_cm_response_timeout: c.response_timeout,
            retry_count: c.retry_count,
            pkey: c.route.pkey,
            path_mtu: c.path_mtu,
            rdc_exists: false,
            rnr_retry_count: c.rnr_retry_count,
            max_cm_retries: c.max_cm_retries,
            srq: c.srq,
            extended_transport: 0,
            primary: c.path(),
            alternate: Path::NONE,
            sap_supported: false,
            private_data,
        };
        self.request(id, tid, Message::Req(request));
        self.conns.entry(id).and_modify(|conn| conn.tid = tid);
        Ok(id)
    }

    /// Accepts a request. `Established` follows, or `Rejected`, `Unreachable`, or `Disconnected` at once.
    ///
    /// The queue pair must be able to receive before this call, because the peer's first data may arrive before its RTU.
    pub fn accept(&mut self, id: CmId, a: &Accept<'_>) -> Result<(), Error> {
        let private_data = private(a.private_data)?;
        let conn = self.in_state(id, &[State::ReqReceived])?;
        let (tid, remote_comm_id) = (conn.tid, conn.remote_id);
        self.check_local_qpn(a.qpn)?;
        let reply = Rep {
            local_comm_id: id.0,
            remote_comm_id,
            local_qkey: 0,
            local_qpn: a.qpn.value(),
            vendor_id: 0,
            local_eecn: 0,
            starting_psn: a.starting_psn,
            responder_resources: a.responder_resources,
            initiator_depth: a.initiator_depth,
            target_ack_delay: self.config.ack_delay,
            failover: Failover::UNSUPPORTED,
            end_to_end_flow_control: a.flow_control,
            rnr_retry_count: a.rnr_retry_count & 0x07,
            srq: a.srq,
            local_ca_guid: self.config.ca_guid,
            private_data,
        };
        self.by_local_qpn.insert(a.qpn, id);
        self.conns.entry(id).and_modify(|conn| (conn.local_qpn, conn.answer) = (Some(a.qpn), None));
        self.set_state(id, State::RepSent);
        self.request(id, tid, Message::Rep(reply));
        Ok(())
    }

    /// Rejects a request or a reply, or withdraws an acceptance that is not confirmed yet. After a withdrawal `TimewaitExit` follows;
    /// otherwise the id is no longer valid. There is room for 72 bytes of `info` and 148 of private data.
    pub fn reject(
        &mut self,
        now: Instant,
        id: CmId,
        reason: RejReason,
        info: &[u8],
        private_data: &[u8],
    ) -> Result<(), Error> {
        let (info_bytes, private_data) = (private::<72>(info)?, private(private_data)?);
        let conn = self.in_state(id, &[State::ReqReceived, State::RepReceived, State::RepSent])?;
        let (message, known) = match conn.state {
            // A peer that has not got the local id in an MRA does not know the id.
            State::ReqReceived => (Responded::REQ, conn.answer.is_some()),
            State::RepReceived => (Responded::REP, true),
            _ => (Responded::LAP_OR_NONE, true),
        };
        let mut refusal = rej(if known { id.0 } else { 0 }, conn.remote_id, message, reason);
        (refusal.info, refusal.info_len, refusal.private_data) = (info_bytes, info.len() as u8, private_data);
        let tid = conn.tid;
        if conn.state == State::RepSent {
            self.enter_timewait(now, id)
        } else {
            self.linger(now, id)
        }
        self.answer(id, tid, Message::Rej(refusal));
        Ok(())
    }

    /// Requests more time from the peer: its request, or its reply, will be answered within `service_timeout`.
    pub fn mra(&mut self, id: CmId, service_timeout: TimeoutCode, when: MraTime) -> Result<(), Error> {
        let conn = self.in_state(id, &[State::ReqReceived, State::RepReceived])?;
        let message = if conn.active { Responded::REP } else { Responded::REQ };
        let (tid, remote_comm_id) = (conn.tid, conn.remote_id);
        // A peer that waits longer also repeats its message for longer.
        let horizon = conn.horizon + service_timeout.duration() * (u32::from(conn.max_retries) + 1);
        let horizon = self.bounded(horizon);
        self.conns.entry(id).and_modify(|conn| conn.horizon = horizon);
        let mra = Mra { local_comm_id: id.0, remote_comm_id, message, service_timeout, private_data: [0; 222] };
        self.answer(id, tid, Message::Mra(mra));
        if when == MraTime::OnDuplicate {
            self.conns.entry(id).and_modify(|conn| conn.answer_due = false);
        }
        Ok(())
    }

    /// Confirms the peer's reply, with up to 224 bytes of private data: the connection is established.
    pub fn establish(&mut self, id: CmId, private_data: &[u8]) -> Result<(), Error> {
        let private_data = private(private_data)?;
        let conn = self.in_state(id, &[State::RepReceived])?;
        let (tid, remote_comm_id) = (conn.tid, conn.remote_id);
        self.set_state(id, State::Established);
        self.answer(id, tid, Message::Rtu(Rtu { local_comm_id: id.0, remote_comm_id, private_data }));
        Ok(())
    }

    /// Ends a connection, or confirms its end by the peer, with up to 220 bytes of private data (224 for a confirmation). The queue pair
    /// should be in its error state. `Disconnected` follows if this side ends the connection, and `TimewaitExit` in any case.
    pub fn disconnect(&mut self, now: Instant, id: CmId, private_data: &[u8]) -> Result<(), Error> {
        let conn = self.in_state(id, &[State::Established, State::DreqReceived])?;
        if conn.state == State::Established {
            let private_data = private(private_data)?;
            self.release(id, private_data);
        } else {
            let private_data = private(private_data)?;
            self.agree(now, id, private_data);
        }
        Ok(())
    }

    /// Removes a connection or exchange: the peer is notified as necessary, and no event follows. The number of its queue pair may not be
    /// reusable for a while, see [`Cm::holds`].
    pub fn destroy(&mut self, now: Instant, id: CmId) -> Result<(), Error> {
        self.state(id).ok_or(Error::NoSuchId)?;
        let conn = &self.conns[&id];
        let (tid, route, asked) = (conn.tid, conn.route, conn.sent > 0);
        match conn.state {
            State::ReqSent => {
                self.remove(id);
                if asked {
                    self.stray(&route, tid, Message::Rej(timed_out(id.0, 0, self.config.ca_guid)));
                }
            }
            State::ReqReceived | State::RepReceived | State::RepSent => {
                self.reject(now, id, RejReason::CONSUMER_DEFINED, &[], &[])?;
            }
            State::Established => self.release(id, [0; 220]),
            State::DreqReceived => self.agree(now, id, [0; 224]),
            State::SidrSent => self.remove(id),
            State::SidrReceived => self.refuse_sidr(now, id),
            State::DreqSent | State::Timewait | State::Lingering => {}
        }
        self.mute(id);
        Ok(())
    }

    /// Data arrived at a queue pair, so its peer is ready, although its RTU may be lost (IBA 12.9.6, communication established).
    pub fn handle_comm_est(&mut self, qpn: Qpn) {
        if let Some(&id) = self.by_local_qpn.get(&qpn)
            && self.conns[&id].state == State::RepSent
        {
            self.established(id, None);
        }
    }

    /// The connections whose DREQ has no answer yet.
    fn unanswered_dreqs(&self) -> impl Iterator<Item = CmId> {
        self.conns.iter().filter(|(_, conn)| conn.state == State::DreqSent).map(|(&id, _)| id)
    }

    /// Whether a DREQ has no answer yet.
    pub fn awaits_drep(&self) -> bool {
        self.unanswered_dreqs().next().is_some()
    }

    /// Sends every unanswered DREQ again at once: for a program that exits and cannot wait.
    pub fn repeat_dreqs(&mut self) {
        let ids: Vec<CmId> = self.unanswered_dreqs().collect();
        for id in ids {
            if let Some(conn) = self.conns.get_mut(&id) {
                conn.request_due = true;
                self.counters.retransmitted += 1;
                self.queue(id);
            }
        }
    }

    /// Sends a DREQ.
    pub(crate) fn release(&mut self, id: CmId, private_data: [u8; 220]) {
        let conn = &self.conns[&id];
        let (remote_comm_id, remote_qpn) = (conn.remote_id, conn.remote_qpn.value());
        self.set_state(id, State::DreqSent);
        let dreq = Dreq { local_comm_id: id.0, remote_comm_id, remote_qpn, private_data };
        self.request(id, self.tid(id), Message::Dreq(dreq));
    }

    /// Sends a DREP.
    pub(crate) fn agree(&mut self, now: Instant, id: CmId, private_data: [u8; 224]) {
        let conn = &self.conns[&id];
        let (tid, remote_comm_id) = (conn.tid, conn.remote_id);
        self.enter_timewait(now, id);
        self.answer(id, tid, Message::Drep(Drep { local_comm_id: id.0, remote_comm_id, private_data }));
    }

    pub(crate) fn in_state(&self, id: CmId, states: &[State]) -> Result<&Conn, Error> {
        let conn = self.conns.get(&id).filter(|c| c.state != State::Lingering && !c.muted).ok_or(Error::NoSuchId)?;
        if states.contains(&conn.state) { Ok(conn) } else { Err(Error::WrongState(conn.state)) }
    }

    fn check_local_qpn(&self, qpn: Qpn) -> Result<(), Error> {
        if matches!(qpn, Qpn::QP0 | Qpn::GSI | Qpn::MULTICAST) {
            return Err(Error::BadQpn);
        }
        if self.holds(qpn) { Err(Error::QpnInUse) } else { Ok(()) }
    }
}
