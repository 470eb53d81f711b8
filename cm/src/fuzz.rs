//! The fuzz body: a manager, a program and peers that do anything, byte by byte.

use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use softnic_wire::mad::cm::{Message, RejReason, SidrStatus, TimeoutCode};
use softnic_wire::mad::{Attribute, BASE_VERSION, Class, HEADER_LEN, MAD_LEN, Method, Repr, Status};
use softnic_wire::{Instant, Psn, Qpn};

use crate::{Accept, Cm, CmId, Config, Connect, Event, Listen, MraTime, PortSpace, Resolve, Route, SidrReply, State};

const LOCAL: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(10, 0, 0, 1));
const PEERS: [IpAddr; 2] = [
    IpAddr::V4(std::net::Ipv4Addr::new(10, 0, 0, 2)),
    IpAddr::V6(std::net::Ipv6Addr::new(0xfd33, 0, 0, 0, 0, 0, 0, 2)),
];
const CONFIG: Config = Config {
    ca_guid: 1,
    ack_delay: TimeoutCode::new(3),
    max_connections: 6,
    max_events: 8,
    longest_wait: Duration::from_secs(1),
    backup_is_shared: false,
    sidr_hold: Duration::from_millis(1),
};

/// Decisions, read from the input; zeros after its end.
struct Input<'a>(&'a [u8]);

impl Input<'_> {
    fn byte(&mut self) -> u8 {
        let Some((&first, rest)) = self.0.split_first() else { return 0 };
        self.0 = rest;
        first
    }

    fn below(&mut self, n: usize) -> usize {
        usize::from(self.byte()) % n.max(1)
    }
}

struct World<'a> {
    input: Input<'a>,
    cm: Cm,
    now: Instant,
    ids: Vec<CmId>,
    /// MADs sent by the manager: peers return them, or answer them with their ids.
    sent: Vec<[u8; MAD_LEN]>,
    /// A peer that follows the rules; its messages may be changed in flight.
    peer: Cm,
    reached: Vec<State>,
}

/// Passes arbitrary decisions to a manager. Panics if a limit is exceeded, if a message sent is not a CM message, or if anything is left
/// after the program has ended everything and the peers are silent. Returns the states that were reached.
#[doc(hidden)]
pub fn fuzz_cm(data: &[u8]) -> Vec<State> {
    let mut seed = 1_u32;
    let mut numbers = move || {
        seed = seed.wrapping_mul(0x9e37_79b1).wrapping_add(0x7f4a_7c15);
        seed
    };
    let mut world = World {
        input: Input(data),
        cm: Cm::new(CONFIG, numbers),
        now: Instant::ZERO,
        ids: vec![],
        sent: vec![],
        peer: Cm::new(Config { ca_guid: 2, ..CONFIG }, move || numbers() ^ 0x5555),
        reached: vec![],
    };
    for space in [PortSpace::Tcp, PortSpace::Udp] {
        let listen = Listen::port(space, SocketAddr::new(LOCAL, 7));
        world.cm.listen(&Listen { backlog: 3, ..listen }).expect("nobody listens there yet");
        world.peer.listen(&Listen::port(space, SocketAddr::new(PEERS[0], 7))).expect("nobody listens there yet");
    }
    while !world.input.0.is_empty() {
        world.step();
        world.look();
    }
    world.end();
    world.reached
}

impl World<'_> {
    fn step(&mut self) {
        match self.input.below(12) {
            0 | 1 => self.mad_of_a_peer(),
            2 => self.mad_that_comes_back(),
            3 => self.time(),
            4 => self.ask(),
            5 => self.peer_asks(),
            6..=8 => self.peer_talks(),
            9 => self.cm.handle_comm_est(Qpn::new(2 + self.input.below(6) as u32)),
            _ => self.command(),
        }
    }

    fn peer_asks(&mut self) {
        let [from, to] = [SocketAddr::new(PEERS[0], 5), SocketAddr::new(LOCAL, 7)];
        let qpn = Qpn::new(2 + self.input.below(6) as u32);
        // An error, because the number is in use, is ignored.
        let _ = match self.input.below(4) {
            0 => self.peer.resolve(&Resolve::ip(from, to).expect("both are IPv4")),
            _ => self.peer.connect(&Connect::ip(from, to, qpn, Psn::new(6)).expect("both are IPv4")),
        };
    }

    /// The peer's program accepts everything, and ends some of the connections.
    fn peer_talks(&mut self) {
        while let Some(event) = self.peer.poll_event() {
            let (id, qpn) = (event.id(), Qpn::new(2 + self.input.below(6) as u32));
            let _ = match event {
                Event::ConnectRequest { .. } => self.peer.accept(id, &Accept::new(qpn, Psn::new(4))),
                Event::ConnectResponse { .. } => self.peer.establish(id, &[]),
                Event::Established { .. } if self.input.below(2) == 0 => self.peer.disconnect(self.now, id, &[]),
                Event::Disconnected { .. } => self.peer.destroy(self.now, id),
                _ => Ok(()),
            };
        }
        let mut mad = [0; MAD_LEN];
        while let Some(route) = self.peer.poll_transmit(self.now, &mut mad) {
            match self.input.below(8) {
                0 => continue, // lost
                1 => mad[self.input.below(MAD_LEN)] = self.input.byte(),
                _ => {}
            }
            self.cm.handle_mad(self.now, &Route { local: route.remote, remote: route.local, ..route }, &mad);
        }
    }

    fn id(&mut self) -> Option<CmId> {
        let n = self.input.below(self.ids.len());
        self.ids.get(n).copied()
    }

    /// A message of any kind, mostly with meaningful ids.
    fn mad_of_a_peer(&mut self) {
        let mut mad = [0; MAD_LEN];
        let header = Repr {
            base_version: BASE_VERSION,
            mgmt_class: Class::CM,
            class_version: 2,
            method: Method::SEND,
            status: Status::SUCCESS,
            class_specific: 0,
            transaction_id: 9,
            attribute_id: Attribute(0x10 + self.input.below(12) as u16),
            attribute_modifier: 0,
        };
        header.emit(&mut mad);
        // The manager's last message is a good starting point for a request; then anything may be changed.
        if let Some(last) = self.sent.last().filter(|_| self.input.below(2) == 0) {
            mad[HEADER_LEN..].copy_from_slice(&last[HEADER_LEN..]);
        }
        for _ in 0..self.input.below(12) {
            let at = self.input.below(HEADER_LEN + 60);
            mad[at] = self.input.byte();
        }
        let theirs = u32::from(self.input.byte() & 3);
        mad[HEADER_LEN..HEADER_LEN + 4].copy_from_slice(&theirs.to_be_bytes());
        if let Some(ours) = self.id() {
            mad[HEADER_LEN + 4..HEADER_LEN + 8].copy_from_slice(&ours.comm_id().to_be_bytes());
        }
        let whole = if self.input.below(16) == 0 { self.input.below(MAD_LEN) } else { MAD_LEN };
        self.deliver(&mad[..whole]);
    }

    /// A message of the manager itself: from a peer that sends such messages, or returned by a broken network.
    fn mad_that_comes_back(&mut self) {
        let n = self.input.below(self.sent.len());
        let Some(mut mad) = self.sent.get(n).copied() else { return };
        if self.input.below(2) == 0 {
            // As an answer: the ids are swapped.
            let (a, b) = (HEADER_LEN, HEADER_LEN + 4);
            (0..4).for_each(|i| mad.swap(a + i, b + i));
            mad[17] = 0x10 + self.input.below(9) as u8;
        }
        self.deliver(&mad);
    }

    fn deliver(&mut self, mad: &[u8]) {
        let remote = PEERS[self.input.below(16) / 15];
        self.cm.handle_mad(self.now, &Route::new(LOCAL, remote), mad);
    }

    fn time(&mut self) {
        self.now = match self.input.below(3) {
            0 => self.now + Duration::from_micros(self.input.byte().into()),
            _ => self.cm.poll_timeout().unwrap_or(self.now).max(self.now),
        };
        self.cm.handle_timeout(self.now);
        self.peer.handle_timeout(self.now);
    }

    fn ask(&mut self) {
        let [from, to] = [SocketAddr::new(LOCAL, 5), SocketAddr::new(PEERS[0], 7)];
        let code = TimeoutCode::new(self.input.byte());
        let qpn = Qpn::new(self.input.below(8) as u32);
        let asked = if self.input.below(4) == 0 {
            let resolve = Resolve::ip(from, to).expect("both are IPv4");
            self.cm.resolve(&Resolve { response_timeout: code, max_cm_retries: 2, ..resolve })
        } else {
            let connect = Connect::ip(from, to, qpn, Psn::new(5)).expect("both are IPv4");
            self.cm.connect(&Connect { response_timeout: code, max_cm_retries: 2, ..connect })
        };
        self.ids.extend(asked);
    }

    fn command(&mut self) {
        let Some(id) = self.id() else { return };
        let (now, before) = (self.now, self.cm.state(id));
        let qpn = Qpn::new(self.input.below(8) as u32);
        let code = TimeoutCode::new(self.input.byte());
        let reply = SidrReply { status: SidrStatus::VALID, qpn, qkey: 1, private_data: b"here" };
        let done = match self.input.below(8) {
            0 => self.cm.accept(id, &Accept::new(qpn, Psn::new(3))),
            1 => self.cm.reject(now, id, RejReason::CONSUMER_DEFINED, &[], b"no"),
            2 => self.cm.mra(id, code, MraTime::Now),
            3 => self.cm.mra(id, code, MraTime::OnDuplicate),
            4 => self.cm.establish(id, b"yes"),
            5 => self.cm.disconnect(now, id, &[]),
            6 => self.cm.sidr_reply(now, id, &reply),
            _ => self.cm.destroy(now, id),
        };
        assert!(done.is_ok() || self.cm.state(id) == before, "a refused command changed something");
    }

    /// Takes the outgoing messages, and checks the invariants.
    fn look(&mut self) {
        let mut mad = [0; MAD_LEN];
        while let Some(route) = self.cm.poll_transmit(self.now, &mut mad) {
            let (_, message) = Message::parse(&mad).expect("what goes out is a CM message");
            // The only message without a type is the answer to a LAP.
            assert!(!matches!(message, Message::Other { attribute, .. } if attribute != Attribute::CM_APR));
            assert!(route.local == LOCAL && PEERS.contains(&route.remote));
            self.sent.push(mad);
            if route.remote == PEERS[0] && self.input.below(8) != 7 {
                self.peer.handle_mad(self.now, &Route { local: route.remote, remote: route.local, ..route }, &mad);
            }
        }
        // A program that polls its events only now and then.
        if self.input.below(4) != 0 {
            while let Some(event) = self.cm.poll_event() {
                self.ids.push(event.id());
            }
        }
        self.ids.drain(..self.ids.len().saturating_sub(16));
        self.sent.drain(..self.sent.len().saturating_sub(16));
        assert!(self.cm.len() <= CONFIG.max_connections);
        for conn in self.cm.conns.values() {
            if !self.reached.contains(&conn.state) {
                self.reached.push(conn.state);
            }
        }
    }

    /// The program ends everything, and the peers are silent.
    fn end(&mut self) {
        for id in self.cm.conns.keys().copied().collect::<Vec<_>>() {
            let _ = self.cm.destroy(self.now, id);
        }
        for _ in 0..1000 {
            self.look();
            let Some(at) = self.cm.poll_timeout() else { break };
            self.now = self.now.max(at);
            self.cm.handle_timeout(self.now);
        }
        let cm = &self.cm;
        assert!(cm.is_empty(), "something is left: {cm:?}");
        let indexes = (cm.by_remote_id.len(), cm.by_remote_qpn.len(), cm.by_local_qpn.len(), cm.by_sidr_request.len());
        assert_eq!(indexes, (0, 0, 0, 0));
        assert!(cm.listeners.values().all(|l| l.waiting == 0), "a backlog without requests");
    }
}
