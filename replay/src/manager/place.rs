//! Our manager in the place of one side of an exchange.

use std::collections::BTreeSet;

use softnic_cm::{Accept, Cm, CmId, Config, Connect, Event, Listen, MraTime, Resolve, Route, SidrReply, State};
use softnic_wire::mad::cm::{Message, RejReason, Responded};
use softnic_wire::mad::ip_cm::{IpCm, ServiceId};
use softnic_wire::mad::{Attribute, MAD_LEN};
use softnic_wire::{Instant, Qpn};

use super::exchange::{CapturedMad, Exchange};
use crate::findings::Findings;
use crate::report::Role;

/// Plays an exchange with our manager in the place of one side, and compares what that side said.
///
/// A message that was captured may have been lost behind that point. So where ours does not say what the captured side said, it is
/// tried once more without what it heard just before.
pub(crate) fn take(exchange: &Exchange, role: Role, found: &mut Findings) {
    let mut lost = BTreeSet::new();
    let (mut best, mut stopped) = play(exchange, role, &lost, found.flow);
    while let Some(at) = stopped {
        let mut more = lost.clone();
        let heard = exchange.messages[..at].iter().rev().take_while(|m| m.of_asking != exchange.messages[at].of_asking);
        more.extend(heard.map(|m| m.number));
        let (again, then) = play(exchange, role, &more, found.flow);
        if more == lost || then.is_some_and(|then| then <= at) {
            break;
        }
        (best, stopped, lost) = (again, then, more);
    }
    best.counts.lost_requests += lost.len() as u64;
    found.counts.add(&best.counts);
    found.differences.append(&mut best.differences);
    found.undetermined.append(&mut best.undetermined);
}

/// Plays it once, with some messages lost; where it had to stop, and what was found by then.
fn play(exchange: &Exchange, role: Role, lost: &BTreeSet<u64>, flow: usize) -> (Findings, Option<usize>) {
    let mut found = Findings::new(flow);
    let mut place = Place::new(exchange, role == Role::Requester);
    for (at, captured) in exchange.messages.iter().enumerate() {
        if captured.of_asking != place.asking {
            if !lost.contains(&captured.number) {
                place.hear(captured);
            }
        } else if !place.say(captured, role, &mut found) {
            // What follows from another answer is another exchange.
            return (found, Some(at));
        }
    }
    found.counts.answers_not_captured += place.unsaid.len() as u64;
    (found, None)
}

struct Place<'a> {
    exchange: &'a Exchange,
    asking: bool,
    cm: Cm,
    /// Only goes on where a message was sent again.
    now: Instant,
    route: Route,
    id: Option<CmId>,
    /// The queue pair that was accepted with.
    qpn: Option<Qpn>,
    /// What ours has said and the captured side has not (yet).
    unsaid: Vec<(u64, Message)>,
    /// Our transaction, and the captured one: of the request, which each chooses.
    tids: Option<(u64, u64)>,
}

impl<'a> Place<'a> {
    fn new(exchange: &'a Exchange, asking: bool) -> Place<'a> {
        let (local, remote, id) = if asking {
            (exchange.asking, exchange.asked, exchange.asking_id)
        } else {
            (exchange.asked, exchange.asking, exchange.asked_id)
        };
        let guid = exchange.messages.iter().filter(|m| m.of_asking == asking).find_map(|m| match &m.message {
            Message::Req(m) => Some(m.local_ca_guid),
            Message::Rep(m) => Some(m.local_ca_guid),
            _ => None,
        });
        let config = Config { ca_guid: guid.unwrap_or(0), ..Config::default() };
        // The first number is for transactions, the second is the connection's id.
        let mut numbers = [0, id].into_iter();
        let mut next = 0;
        let mut cm = Cm::new(config, move || {
            next += 1;
            numbers.next().unwrap_or(next)
        });
        if !asking && let Some(service) = exchange.service().filter(|_| exchange.is_served()) {
            cm.listen(&Listen::service(service)).expect("nobody else listens");
        }
        let route = Route::new(local, remote);
        Place { exchange, asking, cm, now: Instant::ZERO, route, id: None, qpn: None, unsaid: Vec::new(), tids: None }
    }

    /// The other side says something.
    fn hear(&mut self, captured: &CapturedMad) {
        if matches!(captured.message, Message::Dreq(_)) {
            self.be_ready();
        }
        self.cm.handle_mad(self.now, &self.route, &captured.mad);
        while let Some(event) = self.cm.poll_event() {
            self.id = Some(event.id()).filter(|_| !matches!(event, Event::Rejected { .. })).or(self.id);
        }
        self.listen_to_ours();
    }

    /// A connection that is ended was ready before, whether its RTU was captured or not.
    fn be_ready(&mut self) {
        let Some(id) = self.id else { return };
        // In any other state there is nothing to do.
        let _ = match self.cm.state(id) {
            Some(State::RepReceived) => self.cm.establish(id, &[]),
            _ => Ok(()),
        };
        if !self.asking
            && let Some(qpn) = self.qpn
        {
            self.cm.handle_comm_est(qpn);
        }
    }

    fn listen_to_ours(&mut self) {
        let mut mad = [0; MAD_LEN];
        while self.cm.poll_transmit(self.now, &mut mad).is_some() {
            if let Ok((header, message)) = Message::parse(&mad) {
                self.unsaid.push((header.transaction_id, message));
            }
        }
    }

    /// Our side says something in the capture: ours must say the same. `false` if it does not.
    fn say(&mut self, captured: &CapturedMad, role: Role, found: &mut Findings) -> bool {
        let kind = captured.message.attribute();
        let is_said = |place: &Place<'_>| place.unsaid.iter().position(|(_, m)| m.attribute() == kind);
        let mut at = is_said(self);
        if at.is_none() {
            if let Message::Rej(rej) = &captured.message
                && self.cannot_be_told(rej.reason)
            {
                found.unknown(
                    captured.number,
                    "whether the connection manager had a reason to refuse is not in the packets",
                );
                return false;
            }
            if !self.exchange.is_asked_for(captured) {
                found.unknown(captured.number, "what comes before it is not in the capture");
                return false;
            }
            self.command(&captured.message);
            self.listen_to_ours();
            at = is_said(self);
        }
        if at.is_none()
            && self.exchange.said_before(captured)
            && let Some(deadline) = self.cm.poll_timeout()
        {
            // Nothing but time makes a side say it again.
            self.now = self.now.max(deadline);
            self.cm.handle_timeout(self.now);
            self.listen_to_ours();
            at = is_said(self);
            found.counts.timeouts += u64::from(at.is_some());
        }
        let theirs = captured.message.to_string();
        let Some(at) = at else {
            let ours = self.unsaid.last().map_or("nothing".to_owned(), |(_, m)| m.to_string());
            found.differ(role, captured.number, ours, theirs, "it does not follow from what was said before");
            return false;
        };
        let (tid, ours) = self.unsaid.remove(at);
        let answers = !matches!(captured.message, Message::Req(_) | Message::SidrReq(_) | Message::Dreq(_));
        if self.asking && self.tids.is_none() {
            self.tids = Some((tid, captured.header.transaction_id));
        }
        let tid = self.tids.filter(|&(ours, _)| ours == tid).map_or(tid, |(_, captured)| captured);
        if let Some(why) = differ(&ours, &captured.message) {
            found.differ(role, captured.number, ours.to_string(), theirs, why);
            return false;
        }
        if answers && tid != captured.header.transaction_id {
            let line = |tid: u64| format!("{} tid {tid:#018x}", captured.message);
            let why = "an answer carries the transaction of what it answers";
            found.differ(role, captured.number, line(tid), line(captured.header.transaction_id), why);
            return false;
        }
        match role {
            Role::Requester => found.counts.requests_equal += 1,
            Role::Responder => found.counts.answers_equal += 1,
        }
        true
    }

    /// Whether a refusal comes from what no packet tells: resources, earlier connections, the patience of who waits.
    fn cannot_be_told(&self, reason: RejReason) -> bool {
        let known = [
            RejReason::CONSUMER_DEFINED,
            RejReason::INVALID_SERVICE_ID,
            RejReason::INVALID_TRANSPORT_TYPE,
            RejReason::INVALID_MTU,
            RejReason::INVALID_GID,
        ];
        let gave_up = self.asking && reason == RejReason::TIMEOUT;
        !(gave_up || known.contains(&reason))
    }

    /// What a program does to have such a message sent. Where the state does not allow it, nothing is.
    fn command(&mut self, message: &Message) {
        let (cm, now) = (&mut self.cm, self.now);
        let Some(id) = self.id else {
            self.id = match message {
                Message::Req(m) => connect(cm, &self.route, m),
                Message::SidrReq(m) => resolve(cm, &self.route, m),
                _ => None,
            };
            return;
        };
        let done = match message {
            Message::Rep(m) => {
                let accept = Accept {
                    responder_resources: m.responder_resources,
                    initiator_depth: m.initiator_depth,
                    flow_control: m.end_to_end_flow_control,
                    rnr_retry_count: m.rnr_retry_count,
                    srq: m.srq,
                    private_data: &m.private_data,
                    ..Accept::new(Qpn::new(m.local_qpn), m.starting_psn)
                };
                self.qpn = Some(accept.qpn);
                cm.accept(id, &accept)
            }
            Message::Rej(m) if m.reason == RejReason::TIMEOUT && self.asking => cm.destroy(now, id),
            Message::Rej(m) if m.reason == RejReason::CONSUMER_DEFINED => {
                cm.reject(now, id, m.reason, m.info(), &m.private_data)
            }
            // Refused by the manager, without a program.
            Message::Rej(_) => Ok(()),
            Message::Mra(m) => cm.mra(id, m.service_timeout, MraTime::Now),
            Message::Rtu(m) => cm.establish(id, &m.private_data),
            Message::Dreq(m) => {
                self.be_ready();
                self.cm.disconnect(now, id, &m.private_data)
            }
            Message::Drep(m) => cm.disconnect(now, id, &m.private_data),
            Message::SidrRep(m) => {
                let (status, qpn, qkey) = (m.status, Qpn::new(m.qpn), m.qkey);
                cm.sidr_reply(now, id, &SidrReply { status, qpn, qkey, private_data: &m.private_data })
            }
            Message::Req(_) | Message::SidrReq(_) | Message::Other { .. } => Ok(()),
        };
        // A refused command sends nothing, and that is found.
        let _ = done;
    }
}

/// The program's words behind the RDMA-CM's header.
fn words(ip: Option<IpCm>, private_data: &[u8]) -> &[u8] {
    if ip.is_some() { IpCm::consumer_data(private_data) } else { private_data }
}

fn connect(cm: &mut Cm, route: &Route, m: &softnic_wire::mad::cm::Req) -> Option<CmId> {
    let path = &m.primary;
    let route = Route {
        traffic_class: path.traffic_class,
        flow_label: path.flow_label,
        hop_limit: path.hop_limit,
        pkey: m.pkey,
        ..*route
    };
    let connect = Connect {
        service_id: m.service_id,
        ip: m.ip_cm(),
        route,
        qpn: Qpn::new(m.local_qpn),
        starting_psn: m.starting_psn,
        transport: m.transport_service,
        srq: m.srq,
        responder_resources: m.responder_resources,
        initiator_depth: m.initiator_depth,
        flow_control: m.end_to_end_flow_control,
        retry_count: m.retry_count,
        rnr_retry_count: m.rnr_retry_count,
        path_mtu: m.path_mtu,
        packet_life_time: path.local_ack_timeout,
        ack_timeout: path.local_ack_timeout,
        response_timeout: m.remote_cm_response_timeout,
        max_cm_retries: m.max_cm_retries,
        private_data: words(m.ip_cm(), &m.private_data),
    };
    cm.connect(&connect).ok()
}

fn resolve(cm: &mut Cm, route: &Route, m: &softnic_wire::mad::cm::SidrReq) -> Option<CmId> {
    let any = Connect::ip(([0, 0, 0, 0], 0).into(), ([0, 0, 0, 0], 0).into(), Qpn::QP0, Default::default()).ok()?;
    let resolve = Resolve {
        service_id: m.service_id,
        ip: m.ip_cm(),
        route: Route { pkey: m.pkey, ..*route },
        packet_life_time: any.packet_life_time,
        response_timeout: any.response_timeout,
        max_cm_retries: any.max_cm_retries,
        private_data: words(m.ip_cm(), &m.private_data),
    };
    cm.resolve(&resolve).ok()
}

/// Why ours and the captured message are not the same; what a side is free to choose does not count.
fn differ(ours: &Message, captured: &Message) -> Option<&'static str> {
    const IDS: &str = "both sides know a connection by both ids";
    let (same, why) = match (ours, captured) {
        (Message::Req(a), Message::Req(b)) => {
            let of = |m: &softnic_wire::mad::cm::Req| (m.primary.local_gid, m.primary.remote_gid);
            (of(a) == of(b), "the path of a request is the one that it came by")
        }
        (Message::Mra(a), Message::Mra(b)) => {
            let of = |m: &softnic_wire::mad::cm::Mra| (m.local_comm_id, m.remote_comm_id, m.message);
            (of(a) == of(b), IDS)
        }
        (Message::Rej(a), Message::Rej(b)) => {
            // Whether the sender of a refusal gives its id is up to it, as long as nobody has to know it.
            let unknown = a.message == Responded::REQ && (a.local_comm_id == 0 || b.local_comm_id == 0);
            let of = |m: &softnic_wire::mad::cm::Rej| {
                (if unknown { 0 } else { m.local_comm_id }, m.remote_comm_id, m.message, m.reason)
            };
            (of(a) == of(b), "a refusal says what it refuses, and why")
        }
        (Message::Rep(a), Message::Rep(b)) => {
            ((a.local_comm_id, a.remote_comm_id) == (b.local_comm_id, b.remote_comm_id), IDS)
        }
        (Message::Rtu(a), Message::Rtu(b)) => {
            ((a.local_comm_id, a.remote_comm_id) == (b.local_comm_id, b.remote_comm_id), IDS)
        }
        (Message::Dreq(a), Message::Dreq(b)) => {
            let of = |m: &softnic_wire::mad::cm::Dreq| (m.local_comm_id, m.remote_comm_id, m.remote_qpn);
            (of(a) == of(b), "a DREQ names both ids and the receiver's queue pair")
        }
        (Message::Drep(a), Message::Drep(b)) => {
            ((a.local_comm_id, a.remote_comm_id) == (b.local_comm_id, b.remote_comm_id), IDS)
        }
        (Message::SidrReq(a), Message::SidrReq(b)) => (a == b, IDS),
        (Message::SidrRep(a), Message::SidrRep(b)) => {
            let of = |m: &softnic_wire::mad::cm::SidrRep| (m.request_id, m.service_id, m.status);
            (of(a) == of(b), "an answer names the request and the service that it is for")
        }
        _ => (false, "it is another message"),
    };
    (!same).then_some(why)
}

impl Exchange {
    fn service(&self) -> Option<ServiceId> {
        match &self.messages.first()?.message {
            Message::Req(m) => Some(m.service_id),
            Message::SidrReq(m) => Some(m.service_id),
            _ => None,
        }
    }

    /// Whether somebody listened, by what was answered.
    fn is_served(&self) -> bool {
        let refused = |m: &CapturedMad| match &m.message {
            Message::Rej(m) => m.reason == RejReason::INVALID_SERVICE_ID,
            Message::SidrRep(m) => m.status == softnic_wire::mad::cm::SidrStatus::UNSUPPORTED,
            _ => false,
        };
        !self.messages.iter().any(|m| !m.of_asking && refused(m))
    }

    /// Whether what a message answers was said before, where it answers something; nothing ends before it was accepted.
    fn is_asked_for(&self, captured: &CapturedMad) -> bool {
        let before = |of_asking: bool, kind: Attribute| {
            let mut earlier = self.messages.iter().take_while(|m| m.number < captured.number);
            earlier.any(|m| m.of_asking == of_asking && m.message.attribute() == kind)
        };
        match &captured.message {
            Message::Rtu(_) | Message::Dreq(_) => before(false, Attribute::CM_REP),
            Message::Drep(_) => before(false, Attribute::CM_REP) && before(!captured.of_asking, Attribute::CM_DREQ),
            _ => true,
        }
    }

    /// Whether the same side has said the same before.
    fn said_before(&self, captured: &CapturedMad) -> bool {
        let same = |m: &&CapturedMad| {
            m.of_asking == captured.of_asking && m.message.attribute() == captured.message.attribute()
        };
        self.messages.iter().take_while(|m| m.number < captured.number).any(|m| same(&m))
    }
}
