//! A seed's world: hosts, a network with faults, and time.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::ops::Add;
use std::time::Duration;

use softnic_cm::{Accept, CmId, Connect, Disconnect, Event, MraTime, Resolve, Route, SidrReply, State};
use softnic_fault_injector::random::Random;
use softnic_wire::mad::cm::{RejReason, SidrStatus, TimeoutCode};
use softnic_wire::mad::ip_cm::IpCm;
use softnic_wire::mad::{HEADER_LEN, MAD_LEN};
use softnic_wire::{Instant, Psn, Qpn};

use crate::attempt::{self, Attempt, Side, token, words};
use crate::host::{Do, Host, PORT};

/// What a world came to; sums tell whether the worlds were worth running.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Passed {
    pub(crate) connected: u64,
    pub(crate) rejected: u64,
    pub(crate) stale: u64,
    pub(crate) unreachable: u64,
    pub(crate) disconnected: u64,
    pub(crate) no_answer: u64,
    pub(crate) comm_est: u64,
    pub(crate) resolved: u64,
    pub(crate) retransmitted: u64,
    pub(crate) duplicates: u64,
    pub(crate) reused: u64,
    pub(crate) crashes: u64,
    pub(crate) mads: u64,
}

impl Add for Passed {
    type Output = Passed;
    fn add(self, o: Passed) -> Passed {
        Passed {
            connected: self.connected + o.connected,
            rejected: self.rejected + o.rejected,
            stale: self.stale + o.stale,
            unreachable: self.unreachable + o.unreachable,
            disconnected: self.disconnected + o.disconnected,
            no_answer: self.no_answer + o.no_answer,
            comm_est: self.comm_est + o.comm_est,
            resolved: self.resolved + o.resolved,
            retransmitted: self.retransmitted + o.retransmitted,
            duplicates: self.duplicates + o.duplicates,
            reused: self.reused + o.reused,
            crashes: self.crashes + o.crashes,
            mads: self.mads + o.mads,
        }
    }
}

enum Action {
    Mad {
        to: usize,
        route: Route,
        mad: Box<[u8; MAD_LEN]>,
    },
    /// A data packet of a try's asking side, or of its asked one.
    Data {
        to: usize,
        qpn: Qpn,
        attempt: usize,
        from_asking: bool,
    },
    Do {
        host: usize,
        id: CmId,
        what: Do,
    },
    /// With a number that became free just now, or with any.
    Connect(Option<(usize, Qpn)>),
    Resolve,
    Toggle,
    Crash,
}

struct World {
    random: Random,
    now: Instant,
    hosts: Vec<Host>,
    agenda: BTreeMap<(Instant, u64), Action>,
    order: u64,
    attempts: Vec<Attempt>,
    /// Which try a communication id belongs to.
    names: BTreeMap<u32, usize>,
    /// How often a program was asked, and how many answers each resolution has got, by token.
    resolutions: Vec<[u64; 2]>,
    loss: f64,
    dup: f64,
    faults_end: Instant,
    /// Programs make nothing new any more.
    closing: bool,
    life_time: TimeoutCode,
    response: TimeoutCode,
    retries: u8,
    passed: Passed,
}

pub(crate) fn run_seed(seed: u64) -> Passed {
    let mut world = World::draw(seed);
    world.run();
    world.attempts.iter().for_each(Attempt::check_agreement);
    world.end_all();
    world.run();
    for host in &world.hosts {
        assert!(host.cm.is_empty(), "something is left: {:?}", host.cm);
        world.passed.retransmitted += host.cm.counters().retransmitted;
        world.passed.duplicates += host.cm.counters().duplicates;
    }
    let asks = if world.passed.crashes > 0 { 2 } else { 1 };
    world.resolutions.iter().for_each(|&[asked, answers]| assert!(asked <= asks && answers <= 1));
    world.passed
}

impl World {
    fn draw(seed: u64) -> World {
        let mut random = Random::stream(seed, 0);
        let v6 = random.chance(0.5);
        let hosts = (0..2 + random.below(3))
            .map(|n| {
                let ip = if v6 { format!("fd33::{}", n + 1) } else { format!("10.0.0.{}", n + 1) };
                Host::new(ip.parse().unwrap(), n + 1, n == 0 || random.chance(0.9), random.next_u64())
            })
            .collect();
        let pick = |random: &mut Random, of: &[f64]| of[random.below(of.len() as u64) as usize];
        let mut world = World {
            now: Instant::ZERO,
            hosts,
            agenda: BTreeMap::new(),
            order: 0,
            attempts: Vec::new(),
            names: BTreeMap::new(),
            resolutions: Vec::new(),
            loss: pick(&mut random, &[0.0, 0.02, 0.2, 0.5]),
            dup: pick(&mut random, &[0.0, 0.1, 0.5]),
            faults_end: Instant::ZERO,
            closing: false,
            life_time: TimeoutCode::new(4 + random.below(5) as u8),
            response: TimeoutCode::new(5 + random.below(6) as u8),
            retries: 1 + random.below(15) as u8,
            passed: Passed::default(),
            random,
        };
        let span = world.interval() * 30;
        world.faults_end = world.now + span;
        for _ in 0..5 + world.random.below(25) {
            world.later(span, Action::Connect(None));
        }
        for _ in 0..world.random.below(6) {
            world.later(span, Action::Resolve);
        }
        for _ in 0..world.random.below(4) {
            world.later(span, Action::Toggle);
        }
        if world.random.chance(0.2) {
            world.later(span, Action::Crash);
        }
        world
    }

    fn interval(&self) -> Duration {
        self.response.duration() + self.life_time.duration() * 2
    }

    fn later(&mut self, within: Duration, action: Action) {
        let wait = Duration::from_nanos(self.random.below(within.as_nanos() as u64));
        self.order += 1;
        self.agenda.insert((self.now + wait, self.order), action);
    }

    /// Until nothing happens any more.
    fn run(&mut self) {
        for _ in 0..1_000_000 {
            self.pump();
            let timers = self.hosts.iter().filter_map(|h| h.cm.poll_timeout());
            let Some(next) = timers.chain(self.agenda.keys().next().map(|&(at, _)| at)).min() else { return };
            self.now = self.now.max(next);
            while let Some(entry) = self.agenda.first_entry()
                && entry.key().0 <= self.now
            {
                let action = entry.remove();
                self.act(action);
                self.pump();
            }
            let now = self.now;
            self.hosts.iter_mut().for_each(|h| h.cm.handle_timeout(now));
        }
        panic!("this never ends");
    }

    /// Takes what managers have to send and to say.
    fn pump(&mut self) {
        for host in 0..self.hosts.len() {
            let mut mad = [0; MAD_LEN];
            while let Some(route) = self.hosts[host].cm.poll_transmit(self.now, &mut mad) {
                assert_eq!(route.local, self.hosts[host].ip);
                let to = self.hosts.iter().position(|h| h.ip == route.remote).expect("to one of us");
                let route = Route { local: route.remote, remote: route.local, ..route };
                self.passed.mads += 1;
                self.send(|| Action::Mad { to, route, mad: Box::new(mad) });
            }
            while let Some(event) = self.hosts[host].cm.poll_event() {
                self.handle(host, event);
            }
        }
    }

    /// Over the network: once, twice, or never; within a packet's life time.
    fn send(&mut self, action: impl Fn() -> Action) {
        let faulty = self.now < self.faults_end;
        let copies = 1 + usize::from(faulty && self.random.chance(self.dup));
        for _ in 0..copies {
            if !(faulty && self.random.chance(self.loss)) {
                self.later(self.life_time.duration(), action());
            } else if let Action::Mad { mad, .. } = action() {
                self.note_loss(&mad);
            }
        }
    }

    fn note_loss(&mut self, mad: &[u8; MAD_LEN]) {
        // Both ids are at the front of every message of a connection; the second one of a REQ is something else.
        let id = |at| u32::from_be_bytes(mad[at..at + 4].try_into().unwrap());
        if let Some(&n) = self.names.get(&id(HEADER_LEN)).or(self.names.get(&id(HEADER_LEN + 4))) {
            self.attempts[n].lost += 1;
        }
    }

    fn act(&mut self, action: Action) {
        match action {
            Action::Mad { to, route, mad } => self.hosts[to].cm.handle_mad(self.now, &route, &mad[..]),
            Action::Data { to, qpn, attempt, from_asking } => self.data(to, qpn, attempt, from_asking),
            Action::Do { host, id, what } => self.do_it(host, id, what),
            Action::Connect(with) => self.connect(with),
            Action::Resolve => self.resolve(),
            Action::Toggle => {
                let [host, _] = self.two_hosts();
                self.hosts[host].toggle();
            }
            Action::Crash => self.crash(),
        }
    }

    fn two_hosts(&mut self) -> [usize; 2] {
        [(); 2].map(|()| self.random.below(self.hosts.len() as u64) as usize)
    }

    fn connect(&mut self, with: Option<(usize, Qpn)>) {
        let [mut from, to] = self.two_hosts();
        let mut qpn = self.hosts[from].free_qpn(&mut self.random);
        if let Some((host, again)) = with.filter(|(host, qpn)| !self.hosts[*host].cm.holds(*qpn)) {
            (from, qpn) = (host, Some(again));
        }
        let Some(qpn) = qpn else { return };
        let (n, psn) = (self.attempts.len(), Psn::new(self.random.next_u32()));
        let words = words(n as u64, attempt::REQ);
        let [source, destination] = [(from, 40000), (to, PORT)].map(|(h, p)| SocketAddr::new(self.hosts[h].ip, p));
        let connect = Connect {
            packet_life_time: self.life_time,
            ack_timeout: TimeoutCode::new(self.life_time.code() + 1),
            response_timeout: self.response,
            max_cm_retries: self.retries,
            private_data: &words,
            ..Connect::ip(source, destination, qpn, psn).unwrap()
        };
        let id = self.hosts[from].cm.connect(&connect).expect("the number is free");
        self.hosts[from].ids.insert(id, (n, true));
        self.names.insert(id.comm_id(), n);
        self.passed.reused += u64::from(self.hosts[from].qpns.insert(qpn, (n, true)).is_some());
        let asking = Side { host: from, id: Some(id), qpn, psn, ..Side::default() };
        let asked = Side { host: to, ..Side::default() };
        let enough = u64::from(self.retries + 1).saturating_sub(4);
        self.attempts.push(Attempt { token: n as u64, asking, asked, shaken: false, lost: 0, enough });
        if self.random.chance(0.05) {
            self.later(self.interval() * 5, Action::Do { host: from, id, what: Do::Destroy });
        }
    }

    fn resolve(&mut self) {
        let [from, to] = self.two_hosts();
        let [source, destination] = [(from, 40000), (to, PORT)].map(|(h, p)| SocketAddr::new(self.hosts[h].ip, p));
        let token = self.resolutions.len() as u64;
        let resolve = Resolve {
            packet_life_time: self.life_time,
            response_timeout: self.response,
            max_cm_retries: self.retries,
            private_data: &words(token, attempt::REQ),
            ..Resolve::ip(source, destination).unwrap()
        };
        let id = self.hosts[from].cm.resolve(&resolve).unwrap();
        self.hosts[from].sidr.insert(id, (token, true));
        self.resolutions.push([0; 2]);
    }

    fn crash(&mut self) {
        let [host, _] = self.two_hosts();
        let seed = self.random.next_u64();
        self.hosts[host].crash(seed);
        for attempt in &mut self.attempts {
            for side in [&mut attempt.asking, &mut attempt.asked] {
                side.crashed |= side.host == host;
            }
            attempt.shaken |= attempt.asking.crashed || attempt.asked.crashed;
        }
        self.passed.crashes += 1;
    }

    fn data(&mut self, to: usize, qpn: Qpn, attempt: usize, from_asking: bool) {
        let of = &self.attempts[attempt];
        let receiver = if from_asking { &of.asked } else { &of.asking };
        let same = self.hosts[to].qpns.get(&qpn) == Some(&(attempt, !from_asking));
        // Where one side ended it without the other's knowledge, the other may go on sending for ever.
        assert!(same || receiver.gave_up() || of.shaken, "data of {of:?} came to a queue pair that is used anew");
        if same && from_asking && !of.shaken {
            self.passed.comm_est += u64::from(!receiver.established);
            self.hosts[to].cm.handle_comm_est(qpn);
        }
    }

    fn handle(&mut self, host: usize, event: Event) {
        let id = event.id();
        if matches!(event, Event::SidrRequest { .. } | Event::SidrResponse { .. })
            || self.hosts[host].sidr.contains_key(&id)
        {
            return self.handle_sidr(host, event);
        }
        let (n, asking) = match &event {
            Event::ConnectRequest { request, .. } => {
                let n = token(IpCm::consumer_data(&request.private_data)) as usize;
                self.hosts[host].ids.insert(id, (n, false));
                (n, false)
            }
            _ => self.hosts[host].ids[&id],
        };
        let shaken = self.attempts[n].shaken;
        if shaken && matches!(event, Event::ConnectRequest { .. }) {
            // One that comes again after all was forgotten is a new one, and no program takes it.
            self.hosts[host].ids.remove(&id);
            self.hosts[host].cm.destroy(self.now, id).unwrap();
            return;
        }
        self.attempts[n].check(asking, &event);
        if matches!(event, Event::ConnectRequest { .. }) {
            self.names.insert(id.comm_id(), n);
            self.check_stale(n);
        }
        match &event {
            Event::Established { .. } => self.passed.connected += 1,
            Event::Rejected { rej, .. } if rej.reason == RejReason::STALE_CONNECTION => self.passed.stale += 1,
            Event::Rejected { .. } => self.passed.rejected += 1,
            Event::Unreachable { .. } => self.passed.unreachable += 1,
            Event::Disconnected { how: Disconnect::NoAnswer, .. } => self.passed.no_answer += 1,
            Event::Disconnected { .. } => self.passed.disconnected += 1,
            Event::TimewaitExit { qpn, .. } if !self.closing && self.random.chance(0.5) && self.attempts.len() < 60 => {
                self.later(self.life_time.duration(), Action::Connect(Some((host, *qpn))));
            }
            _ => {}
        }
        let what = match event {
            Event::ConnectRequest { .. } => {
                let code = TimeoutCode::new(self.response.code() + 2);
                match self.random.below(4) {
                    0 => self.hosts[host].cm.mra(id, code, MraTime::Now).unwrap(),
                    1 => self.hosts[host].cm.mra(id, code, MraTime::OnDuplicate).unwrap(),
                    _ => {}
                }
                Do::Answer
            }
            Event::ConnectResponse { .. } => {
                if self.random.chance(0.2) {
                    self.hosts[host].cm.mra(id, self.response, MraTime::Now).unwrap();
                }
                Do::Establish
            }
            Event::Established { .. } if self.random.chance(0.5) => Do::End,
            Event::Disconnected { how: Disconnect::Peer, .. } if self.random.chance(0.8) => Do::End,
            Event::Disconnected { how: Disconnect::Peer, .. } => Do::Destroy,
            _ => return,
        };
        self.after(host, id, what);
    }

    /// Who asks must not be connected here already, with the same queue pair.
    fn check_stale(&self, n: usize) {
        let new = &self.attempts[n];
        for (_, old) in self.attempts.iter().enumerate().filter(|&(other, _)| other != n) {
            let same = (old.asking.host, old.asking.qpn, old.asked.host);
            let stale = same == (new.asking.host, new.asking.qpn, new.asked.host) && old.asked.up();
            assert!(!stale, "{new:?} is asked for while there is {old:?}");
        }
    }

    fn after(&mut self, host: usize, id: CmId, what: Do) {
        self.later(self.interval() * 3, Action::Do { host, id, what });
    }

    fn handle_sidr(&mut self, host: usize, event: Event) {
        let id = event.id();
        match event {
            Event::SidrRequest { request, .. } => {
                let token = token(IpCm::consumer_data(&request.private_data));
                self.hosts[host].sidr.insert(id, (token, false));
                self.resolutions[token as usize][0] += 1;
                self.after(host, id, Do::SidrReply);
            }
            Event::SidrResponse { reply, .. } => {
                let (token, asking) = self.hosts[host].sidr[&id];
                assert!(asking);
                self.resolutions[token as usize][1] += 1;
                if reply.status == SidrStatus::VALID {
                    assert_eq!(
                        (u64::from(reply.qpn), &reply.private_data[..9]),
                        (token, &words(token, attempt::REP)[..])
                    );
                    self.passed.resolved += 1;
                }
            }
            Event::Unreachable { .. } => self.resolutions[self.hosts[host].sidr[&id].0 as usize][1] += 1,
            other => panic!("{other:?} of a resolution"),
        }
    }

    fn do_it(&mut self, host: usize, id: CmId, what: Do) {
        let now = self.now;
        if what == Do::SidrReply {
            if let Some(&(token, false)) = self.hosts[host].sidr.get(&id) {
                let words = words(token, attempt::REP);
                let qpn = Qpn::new(token as u32);
                let reply = SidrReply { status: SidrStatus::VALID, qpn, qkey: 1, private_data: &words };
                self.hosts[host].cm.sidr_reply(now, id, &reply).unwrap();
            }
            return;
        }
        // A crash may have come between.
        let Some(&(n, asking)) = self.hosts[host].ids.get(&id) else { return };
        let Some(state) = self.hosts[host].cm.state(id) else { return };
        let (of, cm) = (&mut self.attempts[n], &mut self.hosts[host].cm);
        let own = if asking { &mut of.asking } else { &mut of.asked };
        let reject = |cm: &mut softnic_cm::Cm, what| {
            cm.reject(now, id, RejReason::CONSUMER_DEFINED, &[], &words(n as u64, what)).unwrap();
        };
        match (what, state) {
            (Do::Answer, State::ReqReceived) => self.answer(host, id, n),
            (Do::TakeBack, State::RepSent) => {
                reject(cm, attempt::TAKEN_BACK);
                own.refused = true;
            }
            (Do::Establish, State::RepReceived) if self.random.chance(0.1) => {
                reject(cm, attempt::NO_TO_REP);
                own.refused = true;
            }
            (Do::Establish, State::RepReceived) => {
                cm.establish(id, &words(n as u64, attempt::RTU)).unwrap();
                (own.agreed, own.established) = (true, true);
                for _ in 0..self.random.below(4) {
                    self.after(host, id, Do::Data);
                }
                if self.random.chance(0.5) {
                    self.after(host, id, Do::End);
                }
            }
            (Do::Data, State::Established) => {
                let other = if asking { &of.asked } else { &of.asking };
                let (to, qpn) = (other.host, other.qpn);
                self.send(|| Action::Data { to, qpn, attempt: n, from_asking: asking });
                if self.random.chance(0.7) {
                    self.after(host, id, Do::Data);
                }
            }
            (Do::End, State::Established | State::DreqReceived) => {
                own.ended = true;
                cm.disconnect(now, id, &[]).unwrap();
                let other = if asking { &of.asked } else { &of.asking };
                let (to, qpn) = (other.host, other.qpn);
                if state == State::Established {
                    // The last data left just before.
                    self.send(|| Action::Data { to, qpn, attempt: n, from_asking: asking });
                }
            }
            (Do::Destroy, _) => {
                own.destroyed = true;
                cm.destroy(now, id).unwrap();
            }
            _ => {}
        }
    }

    fn answer(&mut self, host: usize, id: CmId, n: usize) {
        let now = self.now;
        let qpn = self.hosts[host].free_qpn(&mut self.random).filter(|_| self.random.chance(0.8));
        let own = &mut self.attempts[n].asked;
        let Some(qpn) = qpn else {
            if self.random.chance(0.1) {
                own.destroyed = true;
                self.hosts[host].cm.destroy(now, id).unwrap();
            } else {
                own.refused = true;
                let words = words(n as u64, attempt::NO_TO_REQ);
                self.hosts[host].cm.reject(now, id, RejReason::CONSUMER_DEFINED, &[], &words).unwrap();
            }
            return;
        };
        let psn = Psn::new(self.random.next_u32());
        (own.agreed, own.qpn, own.psn) = (true, qpn, psn);
        let words = words(n as u64, attempt::REP);
        self.hosts[host].cm.accept(id, &Accept { private_data: &words, ..Accept::new(qpn, psn) }).unwrap();
        self.passed.reused += u64::from(self.hosts[host].qpns.insert(qpn, (n, false)).is_some());
        for _ in 0..self.random.below(3) {
            self.after(host, id, Do::Data);
        }
        match self.random.below(20) {
            0 => self.after(host, id, Do::TakeBack),
            1 => self.after(host, id, Do::Destroy),
            _ => {}
        }
    }

    /// Programs end what they still have: one side of it, or both.
    fn end_all(&mut self) {
        self.closing = true;
        for n in 0..self.attempts.len() {
            let ends = 1 + self.random.below(3);
            for (side, asking) in [(1, true), (2, false)] {
                let of = &self.attempts[n];
                let (own, other) = if asking { (&of.asking, &of.asked) } else { (&of.asked, &of.asking) };
                let Some(id) = own.id else { continue };
                if own.up() && (ends & side != 0 || !other.up()) {
                    let host = own.host;
                    self.after(host, id, Do::End);
                }
            }
        }
    }
}
