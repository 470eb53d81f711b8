//! Two NICs on one link, with connected queue pairs: the smallest world, and the one most tests live in.

mod network;

use softnic_fault_injector::Direction;
use softnic_fault_injector::random::Random;
use softnic_nic::sharing::Process;
use softnic_nic::transports::congestion::EqdsConfig;
use softnic_nic::transports::memory::PdId;
use softnic_nic::transports::qp::{Caps, PayloadMode};
use softnic_nic::transports::{CqId, Secret, Transport};
use softnic_nic::{Connection, ModifyError, Nic, NicConfig, Port, QpInit, QpKind};
use softnic_wire::auth::TRAILER_LEN;
use softnic_wire::lowar::RepairHeader;
use softnic_wire::{PathMtu, Psn, Qpn};

use crate::link::{End, LinkConfig};
use crate::shared_port::{SharedPort, SharedPortCounters};
use crate::simulator::Simulator;

pub use network::{Between, Network};

/// Index of the first host: the requester of one-way workloads.
pub const A: usize = 0;
/// Index of the second host.
pub const B: usize = 1;
/// The Q_Key of all datagram queue pairs.
pub const QKEY: u32 = 0x0047_11aa;

/// What two hosts are connected with.
#[derive(Debug, Clone)]
pub struct PairConfig {
    /// The transport of the queue pairs that [`Pair::connect`] makes.
    pub transport: Transport,
    /// The link, the same in both directions, with independent faults.
    pub link: LinkConfig,
    /// Whether frames carry their payload.
    pub payload: PayloadMode,
    /// Path MTU.
    pub mtu: PathMtu,
    /// Local ACK timeout code.
    pub timeout: u8,
    /// Retries.
    pub retry_cnt: u8,
    /// Retries after RNR.
    pub rnr_retry: u8,
    /// RNR timer code.
    pub min_rnr_timer: u8,
    /// READs and atomics outstanding at a time.
    pub max_rd_atomic: u8,
    /// How much each queue pair holds.
    pub caps: Caps,
    /// Completions that each queue holds.
    pub cq_capacity: usize,
    /// Packets outstanding are limited to what a receiver in software has room for.
    pub limit_flight: bool,
    /// Seed of keys, numbers and faults.
    pub seed: u64,
    /// First PSN of each direction; drawn from the seed when `None`.
    pub first_psn: Option<Psn>,
}

/// One host's side: its protection domain and completion queues.
#[derive(Debug, Clone, Copy)]
pub struct Side {
    /// Protection domain.
    pub pd: PdId,
    /// Where sends complete.
    pub send_cq: CqId,
    /// Where receives complete.
    pub recv_cq: CqId,
}

/// Two hosts on a link, or on a network.
pub struct Pair<'a> {
    /// The world.
    pub sim: Simulator<'a>,
    /// What each NIC has: those of the first host, then those of the second. Where no host has several NICs, the number of a NIC is that of its host.
    pub sides: Vec<Side>,
    /// The links by which A and B send.
    pub links: [usize; 2],
    /// What is between them.
    pub network: Network,
    /// The host of each NIC, and the place of the NIC behind the host's port.
    places: Vec<(usize, usize)>,
    config: PairConfig,
    secret: Option<Secret>,
    credit: Option<EqdsConfig>,
    random: Random,
}

/// Room around a payload: headers, and a repair packet of LoWAR with the trailer of an authenticated connection has the most.
const AROUND: usize = 128 + TRAILER_LEN + RepairHeader::LEN;

impl<'a> Pair<'a> {
    /// Two hosts without queue pairs, on one link.
    pub fn new(config: PairConfig) -> Pair<'a> {
        Pair::over(Network::default(), config)
    }

    /// Two hosts without queue pairs.
    pub fn over(network: Network, config: PairConfig) -> Pair<'a> {
        Pair::sharing(network, config, [1, 1])
    }

    /// Two hosts without queue pairs, with so many NICs each. Several share the host's port.
    pub fn sharing(network: Network, config: PairConfig, nics: [usize; 2]) -> Pair<'a> {
        let max_frame = config.mtu.bytes() as usize + AROUND;
        let mut sim = Simulator::new(max_frame);
        let (mut sides, mut places) = (Vec::new(), Vec::new());
        for host in [A, B] {
            let (ip, mac) = network.address(host);
            let port = Port { mac, addresses: vec![ip], mtu: config.mtu };
            let mut make = |place: usize| {
                let nic_config = NicConfig { port: port.clone(), payload: config.payload };
                let mut keys = Random::stream(config.seed, 100 + host as u64 + 2 * place as u64);
                let mut nic = Nic::new(nic_config, Box::new(move || keys.next_u32()));
                nic.set_link_rate(config.link.rate);
                let pd = nic.alloc_pd();
                let (send_cq, recv_cq) = (nic.create_cq(config.cq_capacity), nic.create_cq(config.cq_capacity));
                sides.push(Side { pd, send_cq, recv_cq });
                places.push((host, place));
                nic
            };
            if nics[host] == 1 {
                sim.add_node(Box::new(make(0)));
                continue;
            }
            let mut shared = SharedPort::new(port.clone(), max_frame);
            let mut process = Process::FIRST;
            for place in 0..nics[host] {
                shared.add(process, make(place));
                process = process.next();
            }
            sim.add_node(Box::new(shared));
        }
        let links = network.lay(&mut sim, &config, max_frame);
        let random = Random::stream(config.seed, 3);
        Pair { sim, sides, links, network, places, config, secret: None, credit: None, random }
    }

    /// How many NICs there are.
    pub fn nics(&self) -> usize {
        self.places.len()
    }

    /// The host of a NIC.
    pub fn host_of(&self, nic: usize) -> usize {
        self.places[nic].0
    }

    /// A NIC. Call [`Pair::touch`] after giving it work.
    pub fn nic(&mut self, nic: usize) -> &mut Nic {
        let (host, place) = self.places[nic];
        self.sim.nic_at(host, place)
    }

    /// What the port of a host counted, where several NICs share it.
    pub fn shared_port(&mut self, host: usize) -> SharedPortCounters {
        self.sim.node::<SharedPort>(host).map(|port| port.counters()).unwrap_or_default()
    }

    /// [`Simulator::touch`] of the host of a NIC.
    pub fn touch(&mut self, nic: usize) {
        self.sim.touch(self.places[nic].0);
    }

    /// Connects each host to itself, by a link like the one between them, for queue pairs that talk to others of their NIC.
    /// Scripts take it for the direction in which that host sends.
    pub fn add_loopback(&mut self) {
        for (host, direction) in [(A, Direction::Ab), (B, Direction::Ba)] {
            let end = End { node: host, port: Nic::LOOPBACK };
            let seed = Random::stream(self.config.seed, 5 + host as u64).next_u64();
            self.sim.add_link(end, end, &self.config.link, direction, seed);
        }
    }

    /// From now on first PSNs are drawn, whatever they were.
    pub fn draw_psns(&mut self) {
        self.config.first_psn = None;
    }

    /// From now on queue pairs that [`Pair::connect`] makes authenticate each other. Their frames must carry their payload.
    pub fn authenticate(&mut self, secret: Secret) {
        self.secret = Some(secret);
    }

    /// From now on queue pairs that [`Pair::connect`] makes offer each other credit.
    pub fn use_credit(&mut self, credit: EqdsConfig) {
        self.credit = Some(credit);
    }

    /// Makes a queue pair on each side and connects them; their numbers.
    pub fn connect(&mut self) -> Result<[Qpn; 2], ModifyError> {
        let mut qpns = [Qpn::new(0); 2];
        for host in [A, B] {
            let Side { pd, send_cq, recv_cq } = self.sides[host];
            let init = QpInit {
                transport: self.config.transport,
                limit_flight: self.config.limit_flight,
                ..QpInit::new(self.config.transport.kind(), pd, send_cq, recv_cq, self.config.caps)
            };
            let nic = self.sim.nic(host);
            qpns[host] = nic.create_qp(&init).map_err(|_| ModifyError::NoSuchQp)?;
            if self.credit.is_some() {
                nic.use_credit(qpns[host], self.credit).map_err(|_| ModifyError::NoSuchQp)?;
            }
            if let Some(secret) = &self.secret {
                nic.authenticate(qpns[host], secret).map_err(|_| ModifyError::NoSuchQp)?;
            }
        }
        self.ready(self.config.transport.kind(), &[(A, qpns[A]), (B, qpns[B])])?;
        Ok(qpns)
    }

    /// Takes queue pairs, each with the number of its NIC, from RESET to RTS: two that are connected to each other, of two NICs or of one, or any datagram one.
    pub fn ready(&mut self, kind: QpKind, ends: &[(usize, Qpn)]) -> Result<(), ModifyError> {
        let psns = [0, 1].map(|_| self.config.first_psn.unwrap_or_else(|| Psn::new(self.random.next_u32())));
        let config = &self.config;
        for (i, &(nic, qpn)) in ends.iter().enumerate() {
            let (peer_nic, peer) = ends[ends.len() - 1 - i];
            let ((host, place), (peer_host, _)) = (self.places[nic], self.places[peer_nic]);
            let (ip, mac) = (self.network.address(peer_host).0, self.network.next_hop(host, peer_host));
            let nic = self.sim.nic_at(host, place);
            let connection = Connection {
                path: nic.path_to(ip, mac, qpn.value()),
                dest_qp: peer,
                qkey: (kind == QpKind::Ud).then_some(QKEY),
                mtu: config.mtu,
                sq_psn: psns[i],
                rq_psn: psns[1 - i],
                timeout: config.timeout,
                retry_cnt: config.retry_cnt,
                rnr_retry: config.rnr_retry,
                min_rnr_timer: config.min_rnr_timer,
                max_rd_atomic: config.max_rd_atomic,
                max_dest_rd_atomic: config.max_rd_atomic,
                ..Connection::default()
            };
            nic.connect(qpn, &connection)?;
        }
        Ok(())
    }
}

/// The smallest local ACK timeout code whose time is at least `d`.
pub fn timeout_code(d: std::time::Duration) -> u8 {
    (1..31).find(|&n| (4096u128 << n) >= d.as_nanos()).unwrap_or(31)
}
