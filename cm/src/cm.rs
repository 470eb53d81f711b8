//! The communication manager itself: its tables, its timers, and what goes out.

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

/// Answers to messages that belong to no connection, waiting to be sent.
const MAX_STRAYS: usize = 4096;

/// Round trips that wait to be asked for, at most.
const MAX_ROUND_TRIPS: usize = 64;

/// The communication manager of one NIC.
pub struct Cm {
    pub(crate) config: Config,
    random: Box<dyn FnMut() -> u32 + Send>,
    /// Upper half of our transaction ids.
    tid_high: u32,
    pub(crate) conns: BTreeMap<CmId, Conn>,
    pub(crate) listeners: BTreeMap<ListenId, Listener>,
    pub(crate) next_listener: u32,
    /// Connections that were asked for, by the asking side's id.
    pub(crate) by_remote_id: BTreeMap<(Peer, u32), CmId>,
    /// Connections by the peer's queue pair, from its first message until its number may be used again.
    pub(crate) by_remote_qpn: BTreeMap<(Peer, Qpn), CmId>,
    /// Connections by our queue pair, until its number may be used again.
    pub(crate) by_local_qpn: BTreeMap<Qpn, CmId>,
    /// Service id resolutions that were asked for.
    pub(crate) by_sidr_request: BTreeMap<(IpAddr, u32), CmId>,
    timers: BTreeSet<(Instant, CmId)>,
    /// What could make room for something new, the oldest first.
    lingering: BTreeSet<(Instant, CmId)>,
    /// What was accepted and the peer has not confirmed, the oldest first: it makes room where nothing lingers.
    half_open: BTreeSet<(u64, CmId)>,
    /// How many were accepted so far.
    accepted: u64,
    ready: VecDeque<CmId>,
    strays: VecDeque<(Route, Outgoing)>,
    /// Whether the last MAD that left was one of them.
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
    /// Without connections. Communication ids come from `random`: a cryptographic generator on a real wire, the seed in a
    /// simulation.
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

    /// The next thing that the program must know.
    pub fn poll_event(&mut self) -> Option<Event> {
        self.events.pop_front()
    }

    /// The next round trip to a peer that was measured, by a REQ that was sent once and its REP. The peer's program had its part in it: it
    /// is an upper bound. Unless it is asked for, older ones are forgotten.
    pub fn poll_round_trip(&mut self) -> Option<(IpAddr, Duration)> {
        self.round_trips.pop_front()
    }

    /// A REQ was answered: the round trip is known, unless nobody knows which of several was.
    pub(crate) fn note_round_trip(&mut self, now: Instant, id: CmId) {
        let Some(conn) = self.conns.get(&id).filter(|conn| conn.sent == 1) else { return };
        if self.round_trips.len() == MAX_ROUND_TRIPS {
            self.round_trips.pop_front();
        }
        self.round_trips.push_back((conn.route.remote, now - conn.asked));
    }

    /// Writes the next MAD that goes out now, and says where to; `None` when there is none.
    pub fn poll_transmit(&mut self, now: Instant, mad: &mut [u8; MAD_LEN]) -> Option<Route> {
        // In turn, so that strangers, however many, do not keep connections from sending.
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
                // One that is repeated is an answer to what the peer lacks.
                let why = if due { Why::Request { retries: conn.sent } } else { Why::Answer };
                let route = conn.way(why, self.ports);
                if due {
                    if conn.sent == 0 {
                        conn.asked = now;
                        // Retries and times of a connection that a peer asked for are the peer's, and must not hold a place here for long.
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

    /// When [`Cm::handle_timeout`] wants to be called.
    pub fn poll_timeout(&self) -> Option<Instant> {
        self.timers.first().map(|&(at, _)| at)
    }

    /// Time has passed.
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
                // These wait for the program, without a deadline.
                State::ReqReceived
                | State::RepReceived
                | State::Established
                | State::DreqReceived
                | State::SidrReceived => {}
            }
        }
    }

    /// The peer did not answer, however often it was asked.
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

    /// Where a connection or exchange stands; `None` when all is over for the program.
    pub fn state(&self, id: CmId) -> Option<State> {
        self.conns.get(&id).filter(|c| !c.muted).map(|c| c.state).filter(|&s| s != State::Lingering)
    }

    /// Whether a queue pair number must not be given to a new queue pair: its connection lives, or rests in timewait.
    pub fn holds(&self, qpn: Qpn) -> bool {
        self.by_local_qpn.contains_key(&qpn)
    }

    /// Connections and exchanges that there are, those that only wait for their time to be over included.
    pub fn len(&self) -> usize {
        self.conns.len()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.conns.is_empty()
    }

    /// What was counted since the beginning.
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

    /// No event of this one reaches the program any more.
    pub(crate) fn mute(&mut self, id: CmId) {
        if let Some(conn) = self.conns.get_mut(&id) {
            conn.muted = true;
        }
        self.events.retain(|e| e.id() != id);
    }

    /// A transaction id of our own.
    pub(crate) fn tid(&self, id: CmId) -> u64 {
        u64::from(self.tid_high) << 32 | u64::from(id.0)
    }

    /// A time that a peer may ask for.
    pub(crate) fn bounded(&self, time: Duration) -> Duration {
        time.min(self.config.longest_wait)
    }

    /// In what time a message must be answered: by the peer's manager, and there and back.
    pub(crate) fn interval(&self, response: TimeoutCode, round_trip: Duration) -> Duration {
        self.bounded(response.duration() + round_trip)
    }

    /// Makes a name that nobody has, and room for it.
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

    /// The oldest refusal goes; without one the oldest connection that a peer asked for and never confirmed. So requests in the names of
    /// addresses that nobody has, however many a program accepts, keep nobody else out. No data came for such a connection, and its peer
    /// was never ready: the number of its queue pair need not rest.
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
        self.set_state(id, State::Lingering); // leaves the backlog
        self.free_numbers(id);
        let Some(conn) = self.conns.remove(&id) else { return };
        if conn.queued {
            self.ready.retain(|&other| other != id);
        }
        take(&mut self.by_remote_id, &(conn.peer(), conn.remote_id), id);
        take(&mut self.by_sidr_request, &(conn.route.remote, conn.remote_id), id);
    }

    /// Both queue pair numbers may be used again.
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

    /// An answer to the request that was sent is awaited until then, or until the peer's time is over.
    pub(crate) fn await_answer(&mut self, id: CmId, until: Instant) {
        let end = self.conns.get(&id).and_then(|conn| conn.patience_ends);
        self.set_deadline(id, Some(end.map_or(until, |end| until.min(end))));
    }

    /// A new state; who leaves those that wait for the program also leaves its listener's backlog.
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

    /// Over, but for packets that may still be on their way: the numbers of the queue pairs rest.
    pub(crate) fn enter_timewait(&mut self, now: Instant, id: CmId) {
        self.set_state(id, State::Timewait);
        if let Some(conn) = self.conns.get_mut(&id) {
            (conn.request, conn.request_due, conn.repeat_due) = (None, false, false);
            let end = now + conn.timewait;
            self.set_deadline(id, Some(end));
        }
    }

    /// Over; only what comes again is still known, so that it is not taken for something new, and a refusal can be repeated.
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

    /// Sends a message that wants an answer, again and again until it comes.
    pub(crate) fn request(&mut self, id: CmId, tid: u64, message: Message) {
        self.set_deadline(id, None);
        if let Some(conn) = self.conns.get_mut(&id) {
            conn.request = Some(Box::new(Outgoing { tid, message }));
            (conn.request_due, conn.sent) = (true, 0);
            self.queue(id);
        }
    }

    /// Nothing waits for an answer any more.
    pub(crate) fn request_is_answered(&mut self, id: CmId) {
        self.set_deadline(id, None);
        if let Some(conn) = self.conns.get_mut(&id) {
            (conn.request, conn.request_due, conn.repeat_due) = (None, false, false);
        }
    }

    /// Sends an answer, and keeps it for when it is asked for again.
    pub(crate) fn answer(&mut self, id: CmId, tid: u64, message: Message) {
        if let Some(conn) = self.conns.get_mut(&id) {
            conn.answer = Some(Box::new(Outgoing { tid, message }));
            conn.answer_due = true;
            self.queue(id);
        }
    }

    /// Sends the answer that is kept, if there is one.
    pub(crate) fn answer_again(&mut self, id: CmId) {
        if let Some(conn) = self.conns.get_mut(&id)
            && conn.answer.is_some()
        {
            conn.answer_due = true;
            self.queue(id);
        }
    }

    /// Answers a message that belongs to no connection. Who gets none for lack of room will ask again.
    pub(crate) fn stray(&mut self, route: &Route, tid: u64, message: Message) {
        if self.strays.len() < MAX_STRAYS {
            self.strays.push_back((*route, Outgoing { tid, message }));
        }
    }
}

/// Takes an entry out of an index if it is this one's.
fn take<K: Ord>(index: &mut BTreeMap<K, CmId>, key: &K, id: CmId) {
    if index.get(key) == Some(&id) {
        index.remove(key);
    }
}
