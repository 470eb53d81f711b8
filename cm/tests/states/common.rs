//! Two communication managers and the MADs between them, in virtual time: tests decide what becomes of each.

use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use softnic_cm::{Accept, Cm, CmId, Config, Connect, Event, Listen, ListenId, PortSpace, Route};
use softnic_fault_injector::random::Random;
use softnic_wire::mad::cm::Message;
use softnic_wire::mad::{Attribute, MAD_LEN};
use softnic_wire::{Instant, Psn, Qpn};

pub(crate) const PORT: u16 = 7174;

/// A MAD on its way.
#[derive(Clone)]
pub(crate) struct Mad {
    pub(crate) route: Route,
    pub(crate) bytes: [u8; MAD_LEN],
}

impl Mad {
    pub(crate) fn message(&self) -> Message {
        Message::parse(&self.bytes).expect("what is sent is a CM message").1
    }

    pub(crate) fn kind(&self) -> Attribute {
        self.message().attribute()
    }

    /// Changes what it says.
    pub(crate) fn with(mut self, change: impl FnOnce(&mut Message)) -> Mad {
        let (header, mut message) = Message::parse(&self.bytes).unwrap();
        change(&mut message);
        message.emit(&header, &mut self.bytes);
        self
    }
}

/// Who receives a MAD sees its addresses the other way round.
pub(crate) fn turned(route: &Route) -> Route {
    Route { local: route.remote, remote: route.local, ..*route }
}

pub(crate) fn cm(config: Config, seed: u64) -> Cm {
    let mut random = Random::new(seed);
    Cm::new(config, move || random.next_u32())
}

/// The asking side `a` and the asked side `b`, which listens.
pub(crate) struct Pair {
    pub(crate) now: Instant,
    pub(crate) a: Cm,
    pub(crate) b: Cm,
    pub(crate) listener: ListenId,
    pub(crate) ips: [IpAddr; 2],
}

impl Pair {
    pub(crate) fn new() -> Pair {
        Pair::with(Config::default(), ["10.0.0.1", "10.0.0.2"])
    }

    pub(crate) fn with(config: Config, ips: [&str; 2]) -> Pair {
        let ips = ips.map(|ip| ip.parse::<IpAddr>().unwrap());
        let mut b = cm(Config { ca_guid: 0xb, ..config }, 2);
        let listener = b.listen(&Listen::port(PortSpace::Tcp, SocketAddr::new(ips[1], PORT))).unwrap();
        Pair { now: Instant::ZERO, a: cm(Config { ca_guid: 0xa, ..config }, 1), b, listener, ips }
    }

    pub(crate) fn connect(&self, qpn: u32) -> Connect<'static> {
        let [from, to] = [SocketAddr::new(self.ips[0], 40000), SocketAddr::new(self.ips[1], PORT)];
        Connect::ip(from, to, Qpn::new(qpn), Psn::new(qpn * 10)).unwrap()
    }

    pub(crate) fn accept(qpn: u32) -> Accept<'static> {
        Accept::new(Qpn::new(qpn), Psn::new(qpn * 10))
    }

    /// All that `a` has to send now.
    pub(crate) fn sent_by_a(&mut self) -> Vec<Mad> {
        drain(&mut self.a, self.now)
    }

    /// All that `b` has to send now.
    pub(crate) fn sent_by_b(&mut self) -> Vec<Mad> {
        drain(&mut self.b, self.now)
    }

    pub(crate) fn deliver_to_a(&mut self, mads: &[Mad]) {
        mads.iter().for_each(|m| self.a.handle_mad(self.now, &turned(&m.route), &m.bytes));
    }

    pub(crate) fn deliver_to_b(&mut self, mads: &[Mad]) {
        mads.iter().for_each(|m| self.b.handle_mad(self.now, &turned(&m.route), &m.bytes));
    }

    /// Delivers all there is, until both are silent.
    pub(crate) fn carry(&mut self) {
        loop {
            let (a, b) = (self.sent_by_a(), self.sent_by_b());
            if a.is_empty() && b.is_empty() {
                return;
            }
            self.deliver_to_b(&a);
            self.deliver_to_a(&b);
        }
    }

    pub(crate) fn pass(&mut self, time: Duration) {
        self.now = self.now + time;
        self.a.handle_timeout(self.now);
        self.b.handle_timeout(self.now);
    }

    /// To the next deadline of `a`.
    pub(crate) fn wait_for_a(&mut self) {
        let at = self.a.poll_timeout().expect("a timer runs");
        self.now = at;
        self.a.handle_timeout(at);
    }

    /// To the next deadline of `b`.
    pub(crate) fn wait_for_b(&mut self) {
        let at = self.b.poll_timeout().expect("a timer runs");
        self.now = at;
        self.b.handle_timeout(at);
    }

    pub(crate) fn event_a(&mut self) -> Option<Event> {
        self.a.poll_event()
    }

    pub(crate) fn event_b(&mut self) -> Option<Event> {
        self.b.poll_event()
    }

    /// `b` has a request: its id.
    pub(crate) fn request(&mut self) -> CmId {
        match self.b.poll_event() {
            Some(Event::ConnectRequest { id, .. }) => id,
            other => panic!("a request was expected, not {other:?}"),
        }
    }

    /// Up to the REP, which `a` knows of.
    pub(crate) fn replied(&mut self, qpns: [u32; 2]) -> [CmId; 2] {
        let a = self.a.connect(&self.connect(qpns[0])).unwrap();
        self.carry();
        let b = self.request();
        self.b.accept(b, &Pair::accept(qpns[1])).unwrap();
        self.carry();
        assert!(matches!(self.event_a(), Some(Event::ConnectResponse { id, .. }) if id == a));
        [a, b]
    }

    /// A whole connection.
    pub(crate) fn connected(&mut self, qpns: [u32; 2]) -> [CmId; 2] {
        let [a, b] = self.replied(qpns);
        self.a.establish(a, &[]).unwrap();
        self.carry();
        assert!(matches!(self.event_b(), Some(Event::Established { id, .. }) if id == b));
        [a, b]
    }

    pub(crate) fn no_more_events(&mut self) {
        assert_eq!((self.a.poll_event(), self.b.poll_event()), (None, None));
    }

    /// Lets time pass until nothing is left of anything, on either side.
    pub(crate) fn until_empty(&mut self) {
        for _ in 0..1000 {
            self.carry();
            let next = self.a.poll_timeout().into_iter().chain(self.b.poll_timeout()).min();
            let Some(next) = next else { break };
            self.pass(next.saturating_since(self.now));
        }
        assert!(self.a.is_empty() && self.b.is_empty(), "{:?} {:?}", self.a, self.b);
    }
}

pub(crate) fn drain(cm: &mut Cm, now: Instant) -> Vec<Mad> {
    let mut mads = Vec::new();
    let mut bytes = [0xee; MAD_LEN];
    while let Some(route) = cm.poll_transmit(now, &mut bytes) {
        mads.push(Mad { route, bytes });
    }
    mads
}

pub(crate) fn kinds(mads: &[Mad]) -> Vec<&'static str> {
    mads.iter().map(|m| m.kind().name(softnic_wire::mad::Class::CM).unwrap()).collect()
}
