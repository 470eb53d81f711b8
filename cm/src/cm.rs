//! The communication manager itself: its tables, its timers, and its outgoing messages.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::fmt;
use std::net::IpAddr;
use std::time::Duration;

use softnic_wire::mad::MAD_LEN;
use softnic_wire::mad::cm::{Message, TimeoutCode};
use softnic_wire::{Instant, Qpn};

use crate::backup::Why;
use crate::conn::{Conn, Outgoing, Peer, timed_out};
use crate::listen::Listener;
use crate::{CmId, Config, Counters, Disconnect, Error, Event, ListenId, Route, State};

/// Maximum number of waiting answers to messages that belong to no connection.
const MAX_STRAYS: usize = 4096;

/// Maximum number of measured round-trip times that wait to be polled.
const MAX_ROUND_TRIPS: usize = 64;

/// The communication manager of one NIC.
pub struct Cm {
    pub(crate) config: Config,
    random: Box<dyn FnMut() -> u32 + Send>,
    /// Upper half of the local transaction ids.
    tid_high: u32,
    pub(crate) conns: BTreeMap<CmId, Conn>,
    pub(crate) listeners: BTreeMap<ListenId, Listener>,
    pub(crate) next_listener: u32,
    /// Requested connections, by the requesting side's id.
    pub(crate) by_remote_id: BTreeMap<(Peer, u32), CmId>,
    /// Connections by the peer's queue pair, from the peer's first message until that number may be reused.
    pub(crate) by_remote_qpn: BTreeMap<(Peer, Qpn), CmId>,
    /// Connections by the local queue pair, until its number may be reused.
    pub(crate) by_local_qpn: BTreeMap<Qpn, CmId>,
    /// Requested service id resolutions.
    pub(crate) by_sidr_request: BTreeMap<(IpAddr, u32), CmId>,
    timers: BTreeSet<(Instant, CmId)>,
    /// Entries that can be removed to make room for a new one, the oldest first.
    lingering: BTreeSet<(Instant, CmId)>,
    /// Accepted connections that the peer has not confirmed, the oldest first: one is removed to make room if no entry lingers.
    half_open: BTreeSet<(u64, CmId)>,
    /// Number of connections accepted so far.
    accepted: u64,
    ready: VecDeque<CmId>,
    strays: VecDeque<(Route, Outgoing)>,
    /// Whether the last MAD sent was a stray answer.
    stray_was_last: bool,
    events: VecDeque<Event>,
    round_trips: VecDeque<(IpAddr, Duration)>,
    pub(crate) counters: Counters,
    /// Whether the default's port is up, and the backup's.
    pub(crate) ports: [bool; 2],
}

impl fmt::Debug for Cm {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let states: BTreeMap<_, _> = self.conns.iter().map(|(id, c)| (id, c.state)).collect();
        f.debug_struct("Cm").field("config", &self.config).field("conns", &states).finish_non_exhaustive()
    }
}

impl Cm {
    /// Creates a manager without connections. Communication ids come from `random`: a cryptographic generator on a real wire, a seeded one
    /// in a simulation.
    pub fn new(config: Config, mut random: impl FnMut() -> u32 + Send + 'static) -> Cm {
        Cm {
            config,
            tid_high: random(),
            random: Box::new(random),
            conns: BTreeMap::new(),
            listeners: BTreeMap::new(),
            next_listener: 1,
            by_remote_id: BTreeMap::new(),
            by_remote_qpn: BTreeMap::new(),
            by_local_qpn: BTreeMap::new(),
            by_sidr_request: BTreeMap::new(),
            timers: BTreeSet::new(),
            lingering: BTreeSet::new(),
            half_open: BTreeSet::new(),
            accepted: 0,
            ready: VecDeque::new(),
            strays: VecDeque::new(),
            stray_was_last: false,
            events: VecDeque::new(),
            round_trips: VecDeque::new(),
            counters: Counters::default(),
            ports: [true; 2],
        }
    }

    /// The next event for the program.
    pub fn poll_event(&mut self) -> Option<Event> {
        self.events.pop_front()
    }

    /// The next measured round-trip time to a peer, from a REQ that was sent once and its REP. It includes the time of the peer's program,
    /// so it is an upper bound. If the times are not polled, older ones are dropped.
    pub fn poll_round_trip(&mut self) -> Option<(IpAddr, Duration)> {
        self.round_trips.pop_front()
    }

    /// A REQ was answered: records the round-trip time, unless the REQ was sent several times and the answered one is unknown.
    pub(crate) fn note_round_trip(&mut self, now: Instant, id: CmId) {
        let Some(conn) = self.conns.get(&id).filter(|conn| conn.sent == 1) else { return };
        if self.round_trips.len() == MAX_ROUND_TRIPS {
            self.round_trips.pop_front();
        }
        self.round_trips.push_back((conn.route.remote, now - conn.asked));
    }

    /// Writes the next MAD that is due, and returns its route; `None` if there is none.
    pub fn poll_transmit(&mut self, now: Instant, mad: &mut [u8; MAD_LEN]) -> Option<Route> {
        // Alternates, so that answers to strangers, however many, do not delay connections.
        if !std::mem::take(&mut self.stray_was_last)
            && let Some((route, out)) = self.strays.pop_front()
        {
            self.stray_was_last = true;
            return Some(self.emit(&route, &out, mad));
        }
        while let Some(&id) = self.ready.front() {
            let conn = self.conns.get_mut(&id).expect("who is removed leaves the list");
            if std::mem::take(&mut conn.answer_due)
                && let Some(out) = conn.answer.clone()
            {
                let route = conn.way(Why::Answer, self.ports);
                return Some(self.emit(&route, &out, mad));
            }
            let (due, repeat) = (std::mem::take(&mut conn.request_due), std::mem::take(&mut conn.repeat_due));
            if (due || repeat)
                && let Some(out) = conn.request.clone()
            {
                // A repeated message is an answer to a peer that lacks it.
                let why = if due { Why::Request { retries: conn.sent } } else { Why::Answer };
                let route = conn.way(why, self.ports);
                if due {
                    if conn.sent == 0 {
                        conn.asked = now;
                        // The retries and times of a connection requested by a peer are the peer's, and must not occupy an entry here for
                        // long.
                        conn.patience_ends = (!conn.active).then_some(now + self.config.longest_wait);
                    }
                    conn.sent = conn.sent.saturating_add(1);
                    let interval = conn.interval;
                    self.await_answer(id, now + interval);
                }
                return Some(self.emit(&route, &out, mad));
            }
            conn.queued = false;
            self.ready.pop_front();
        }
        let (route, out) = self.strays.pop_front()?;
        Some(self.emit(&route, &out, mad))
    }

    fn emit(&mut self, route: &Route, out: &Outgoing, mad: &mut [u8; MAD_LEN]) -> Route {
        out.message.emit(&out.message.header(out.tid), mad);
        self.counters.sent += 1;
        *route
    }

    /// When to call [`Cm::handle_timeout`].
    pub fn poll_timeout(&self) -> Option<Instant> {
        self.timers.first().map(|&(at, _)| at)
    }

    /// Handles a timeout.
    pub fn handle_timeout(&mut self, now: Instant) {
        while let Some(&(at, id)) = self.timers.first()
            && at <= now
        {
            self.set_deadline(id, None);
            let Some(conn) = self.conns.get_mut(&id) else { continue };
            match conn.state {
                State::ReqSent | State::RepSent | State::DreqSent | State::SidrSent
                    if conn.sent <= conn.max_retries && conn.patience_ends.is_none_or(|end| at < end) =>
                {
                    conn.request_due = true;
                    self.counters.retransmitted += 1;
                    self.queue(id);
                }
                State::ReqSent | State::RepSent | State::DreqSent | State::SidrSent => self.give_up(now, id),
                State::Timewait => {
                    let (qpn, confirmed) = (conn.local_qpn.unwrap_or_default(), conn.confirmed);
                    self.event(Event::TimewaitExit { id, qpn });
                    if confirmed { self.remove(id) } else { self.linger(at, id) }
                }
                State::Lingering => self.remove(id),
                // In these states the program has to act, without a deadline.
                State::ReqReceived
                | State::RepReceived
                | State::Established
                | State::DreqReceived
                | State::SidrReceived => {}
            }
        }
    }

    /// The peer did not answer within all retries.
    fn give_up(&mut self, now: Instant, id: CmId) {
        let guid = self.config.ca_guid;
        let Some(conn) = self.conns.get(&id) else { return };
        let (state, tid, route) = (conn.state, conn.tid, conn.route);
        let rej = Message::Rej(timed_out(id.0, conn.remote_id, guid));
        match state {
            State::ReqSent => {
                self.event(Event::Unreachable { id });
                self.remove(id);
                self.stray(&route, tid, rej);
            }
            State::RepSent => {
                self.event(Event::Unreachable { id });
                self.enter_timewait(now, id);
                self.answer(id, tid, rej);
            }
            State::DreqSent => {
                self.event(Event::Disconnected { id, how: Disconnect::NoAnswer });
                self.enter_timewait(now, id);
            }
            _ => {
                self.event(Event::Unreachable { id });
                self.remove(id);
            }
        }
    }

    /// The state of a connection or exchange; `None` when it has ended for the program.
    pub fn state(&self, id: CmId) -> Option<State> {
        self.conns.get(&id).filter(|c| !c.muted).map(|c| c.state).filter(|&s| s != State::Lingering)
    }

    /// Whether a queue pair number must not be assigned to a new queue pair: its connection exists, or is in timewait.
    pub fn holds(&self, qpn: Qpn) -> bool {
        self.by_local_qpn.contains_key(&qpn)
    }

    /// Number of connections and exchanges, including those that only wait for their end.
    pub fn len(&self) -> usize {
        self.conns.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.conns.is_empty()
    }

    /// The counters since creation.
    pub fn counters(&self) -> &Counters {
        &self.counters
    }

    pub(crate) fn events_are_many(&self) -> bool {
        self.events.len() >= self.config.max_events
    }

    pub(crate) fn event(&mut self, event: Event) {
        if self.conns.get(&event.id()).is_some_and(|c| !c.muted) {
            self.events.push_back(event);
        }
    }

    /// Suppresses further events of this connection.
    pub(crate) fn mute(&mut self, id: CmId) {
        if let Some(conn) = self.conns.get_mut(&id) {
            conn.muted = true;
        }
        self.events.retain(|e| e.id() != id);
    }

    /// A local transaction id.
    pub(crate) fn tid(&self, id: CmId) -> u64 {
        u64::from(self.tid_high) << 32 | u64::from(id.0)
    }

    /// Limits a time requested by a peer.
    pub(crate) fn bounded(&self, time: Duration) -> Duration {
        time.min(self.config.longest_wait)
    }

    /// The time in which a message must be answered: the response time of the peer's manager, plus the round trip.
    pub(crate) fn interval(&self, response: TimeoutCode, round_trip: Duration) -> Duration {
        self.bounded(response.duration() + round_trip)
    }

    /// Assigns an unused id, and makes room for the connection.
    pub(crate) fn insert(&mut self, conn: Conn) -> Result<CmId, Error> {
        if self.conns.len() >= self.config.max_connections {
            self.make_room()?;
        }
        let id = loop {
            let id = CmId((self.random)());
            if id.0 != 0 && !self.conns.contains_key(&id) {
                break id;
            }
        };
        self.conns.insert(id, conn);
        Ok(id)
    }

    /// Removes the oldest refusal; if there is none, the oldest connection that a peer requested and never confirmed. So requests with
    /// spoofed addresses, however many a program accepts, keep no other peer out. No data arrived for such a connection, and its peer was
    /// never ready, so the number of its queue pair can be reused at once.
    fn make_room(&mut self) -> Result<(), Error> {
        if let Some(&(_, oldest)) = self.lingering.first() {
            self.remove(oldest);
            return Ok(());
        }
        let &(_, oldest) = self.half_open.first().ok_or(Error::TooMany)?;
        let qpn = self.conns.get(&oldest).and_then(|conn| conn.local_qpn).unwrap_or_default();
        self.event(Event::Unreachable { id: oldest });
        self.event(Event::TimewaitExit { id: oldest, qpn });
        self.remove(oldest);
        Ok(())
    }

    pub(crate) fn remove(&mut self, id: CmId) {
        self.set_deadline(id, None);
        self.set_state(id, State::Lingering); // removes it from the backlog
        self.free_numbers(id);
        let Some(conn) = self.conns.remove(&id) else { return };
        if conn.queued {
            self.ready.retain(|&other| other != id);
        }
        take(&mut self.by_remote_id, &(conn.peer(), conn.remote_id), id);
        take(&mut self.by_sidr_request, &(conn.route.remote, conn.remote_id), id);
    }

    /// Both queue pair numbers may be reused.
    fn free_numbers(&mut self, id: CmId) {
        let Some(conn) = self.conns.get(&id) else { return };
        take(&mut self.by_remote_qpn, &(conn.peer(), conn.remote_qpn), id);
        if let Some(qpn) = conn.local_qpn {
            take(&mut self.by_local_qpn, &qpn, id);
        }
    }

    pub(crate) fn set_deadline(&mut self, id: CmId, deadline: Option<Instant>) {
        let Some(conn) = self.conns.get_mut(&id) else { return };
        if let Some(old) = std::mem::replace(&mut conn.deadline, deadline) {
            self.timers.remove(&(old, id));
            self.lingering.remove(&(old, id));
        }
        if let Some(new) = deadline {
            self.timers.insert((new, id));
        }
    }

    /// Waits for an answer to the request that was sent, until `until` or the end of the peer's time.
    pub(crate) fn await_answer(&mut self, id: CmId, until: Instant) {
        let end = self.conns.get(&id).and_then(|conn| conn.patience_ends);
        self.set_deadline(id, Some(end.map_or(until, |end| until.min(end))));
    }

    /// Changes the state. When a connection no longer waits for the program, it also leaves its listener's backlog.
    pub(crate) fn set_state(&mut self, id: CmId, state: State) {
        let Some(conn) = self.conns.get_mut(&id) else { return };
        if conn.state == State::RepSent {
            self.half_open.remove(&(conn.accepted, id));
        }
        conn.state = state;
        if state == State::RepSent {
            self.accepted += 1;
            conn.accepted = self.accepted;
            self.half_open.insert((conn.accepted, id));
        }
        let source = conn.route.remote;
        if let Some(listener) = conn.listener.take().and_then(|l| self.listeners.get_mut(&l)) {
            listener.leave(source);
        }
    }

    /// The connection has ended, except for packets that may be in flight: the queue pair numbers are not reused yet.
    pub(crate) fn enter_timewait(&mut self, now: Instant, id: CmId) {
        self.set_state(id, State::Timewait);
        if let Some(conn) = self.conns.get_mut(&id) {
            (conn.request, conn.request_due, conn.repeat_due) = (None, false, false);
            let end = now + conn.timewait;
            self.set_deadline(id, Some(end));
        }
    }

    /// The connection has ended. Only repeated messages are still recognised, so that they are not taken for new ones, and a refusal can be
    /// repeated.
    pub(crate) fn linger(&mut self, now: Instant, id: CmId) {
        self.set_state(id, State::Lingering);
        self.free_numbers(id);
        if let Some(conn) = self.conns.get_mut(&id) {
            (conn.request, conn.request_due, conn.repeat_due) = (None, false, false);
            conn.local_qpn = None;
            if !conn.refused() {
                (conn.answer, conn.answer_due) = (None, false);
            }
            let end = now + conn.horizon;
            self.set_deadline(id, Some(end));
            self.lingering.insert((end, id));
        }
    }

    pub(crate) fn queue(&mut self, id: CmId) {
        if let Some(conn) = self.conns.get_mut(&id)
            && !std::mem::replace(&mut conn.queued, true)
        {
            self.ready.push_back(id);
        }
    }

    /// Sends a message that requires an answer, repeatedly until the answer arrives.
    pub(crate) fn request(&mut self, id: CmId, tid: u64, message: Message) {
        self.set_deadline(id, None);
        if let Some(conn) = self.conns.get_mut(&id) {
            conn.request = Some(Box::new(Outgoing { tid, message }));
            (conn.request_due, conn.sent) = (true, 0);
            self.queue(id);
        }
    }

    /// No answer is awaited any more.
    pub(crate) fn request_is_answered(&mut self, id: CmId) {
        self.set_deadline(id, None);
        if let Some(conn) = self.conns.get_mut(&id) {
            (conn.request, conn.request_due, conn.repeat_due) = (None, false, false);
        }
    }

    /// Sends an answer, and stores it for repetitions.
    pub(crate) fn answer(&mut self, id: CmId, tid: u64, message: Message) {
        if let Some(conn) = self.conns.get_mut(&id) {
            conn.answer = Some(Box::new(Outgoing { tid, message }));
            conn.answer_due = true;
            self.queue(id);
        }
    }

    /// Sends the stored answer again, if there is one.
    pub(crate) fn answer_again(&mut self, id: CmId) {
        if let Some(conn) = self.conns.get_mut(&id)
            && conn.answer.is_some()
        {
            conn.answer_due = true;
            self.queue(id);
        }
    }

    /// Answers a message that belongs to no connection. A peer that gets no answer for lack of room will ask again.
    pub(crate) fn stray(&mut self, route: &Route, tid: u64, message: Message) {
        if self.strays.len() < MAX_STRAYS {
            self.strays.push_back((*route, Outgoing { tid, message }));
        }
    }
}

/// Removes an entry from an index if it belongs to this connection.
fn take<K: Ord>(index: &mut BTreeMap<K, CmId>, key: &K, id: CmId) {
    if index.get(key) == Some(&id) {
        index.remove(key);
    }
}
