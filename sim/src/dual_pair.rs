//! Two hosts with two NICs each, and a link for each pair of NICs: what failover is tried on.

use std::net::IpAddr;

use softnic_fault_injector::random::Random;
use softnic_fault_injector::{Direction, Spec};
use softnic_nic::transports::memory::Access;
use softnic_nic::transports::qp::{Caps, ModifyError, PayloadMode, QpKind};
use softnic_nic::{Buffer, Connection, MrError, Nic, NicConfig, Port, QpInit};
use softnic_shift::{Config, DualNic, Notice, Request, Times};
use softnic_transports::Transport;
use softnic_wire::{MacAddr, PathMtu, Psn, Qpn};

use crate::link::{End, LinkConfig};
use crate::pair::{A, B, PairConfig, Side};
use crate::simulator::Simulator;

/// What two hosts are made with.
#[derive(Debug, Clone)]
pub struct DualPairConfig {
    /// The transport of queue pairs.
    pub transport: Transport,
    /// The link between the default NICs, each way.
    pub link: LinkConfig,
    /// The faults of the link between the backups, which is like the other beside that; `None`: there are no backups.
    pub backup: Option<Spec>,
    /// Path MTU.
    pub mtu: PathMtu,
    /// Local ACK timeout code.
    pub timeout: u8,
    /// Retries.
    pub retry_cnt: u8,
    /// Retries where the peer has no receive.
    pub rnr_retry: u8,
    /// How much queue pairs hold.
    pub caps: Caps,
    /// All sends are signaled.
    pub sig_all: bool,
    /// Completions that a queue holds.
    pub cq_capacity: usize,
    /// Times of failover.
    pub times: Times,
    /// Everything random follows from it.
    pub seed: u64,
}

/// Two hosts with two NICs each.
pub struct DualPair<'a> {
    /// Time, links, hosts: [`A`] and [`B`].
    pub sim: Simulator<'a>,
    /// The objects of each host.
    pub sides: [Side; 2],
    /// The links: of the default by which A and B send, and of the backup.
    pub links: [[usize; 2]; 2],
    config: DualPairConfig,
    random: Random,
}

impl DualPairConfig {
    /// Two hosts like those of a pair, with a backup beside each NIC.
    pub(crate) fn like(pair: &PairConfig, backup: Option<Spec>, times: Times) -> DualPairConfig {
        DualPairConfig {
            transport: pair.transport,
            link: pair.link.clone(),
            backup,
            mtu: pair.mtu,
            timeout: pair.timeout,
            retry_cnt: pair.retry_cnt,
            rnr_retry: pair.rnr_retry,
            caps: pair.caps,
            sig_all: false,
            cq_capacity: pair.cq_capacity,
            times,
            seed: pair.seed,
        }
    }
}

const AROUND: usize = 256;

/// Where a NIC is: the default ones on one network, the backups on another.
pub(crate) fn address(host: usize, backup: bool) -> (IpAddr, MacAddr) {
    let (net, n) = (u8::from(backup), host as u8 + 1);
    (IpAddr::from([10, net, 0, n]), MacAddr([2, 0, net, 0, 0, n]))
}

impl<'a> DualPair<'a> {
    /// Two hosts without queue pairs.
    pub fn new(config: DualPairConfig) -> DualPair<'a> {
        let max_frame = config.mtu.bytes() as usize + AROUND;
        let mut sim = Simulator::new(max_frame);
        let sides = [A, B].map(|host| {
            let make = |backup: bool| {
                let (ip, mac) = address(host, backup);
                let port = Port { mac, addresses: vec![ip], mtu: config.mtu };
                let stream = 100 + host as u64 + if backup { 10 } else { 0 };
                let mut keys = Random::stream(config.seed, stream);
                let nic = NicConfig { port, payload: PayloadMode::Real };
                let mut nic = Nic::new(nic, Box::new(move || keys.next_u32()));
                nic.set_link_rate(config.link.rate);
                nic
            };
            let mut nic = match &config.backup {
                None => DualNic::single(make(false)),
                Some(_) => {
                    let mut draws = Random::stream(config.seed, 120 + host as u64);
                    let random = Box::new(move || draws.next_u32());
                    DualNic::new(make(false), make(true), Config { times: config.times, ..Config::default() }, random)
                }
            };
            let pd = nic.nic.alloc_pd();
            nic.shadow_pd(pd);
            let side = Side {
                pd,
                send_cq: nic.nic.create_cq(config.cq_capacity),
                recv_cq: nic.nic.create_cq(config.cq_capacity),
            };
            sim.add_node(Box::new(nic));
            side
        });
        let mut links = [[0; 2]; 2];
        for (side, port) in [Nic::WIRE, DualNic::BACKUP].into_iter().enumerate() {
            let faults = match side {
                0 => config.link.faults.clone(),
                _ => config.backup.clone().unwrap_or_default(),
            };
            let link = LinkConfig { faults, ..config.link.clone() };
            for (from, direction) in [(A, Direction::Ab), (B, Direction::Ba)] {
                if side == 1 && config.backup.is_none() {
                    continue;
                }
                // The same streams as a pair without backups has.
                let seed = Random::stream(config.seed, 1 + from as u64 + 20 * side as u64).next_u64();
                let (near, far) = (End { node: from, port }, End { node: 1 - from, port });
                links[side][from] = sim.add_link(near, far, &link, direction, seed);
            }
        }
        let random = Random::stream(config.seed, 3);
        DualPair { sim, sides, links, config, random }
    }

    /// A host. Call [`Simulator::touch`] after giving it work.
    ///
    /// # Panics
    /// When there is no such host.
    pub fn host(&mut self, host: usize) -> &mut DualNic {
        self.sim.dual(host).unwrap_or_else(|| panic!("Node {host} has no two NICs"))
    }

    /// Registers memory at a host, and at its backup; the key.
    pub fn reg_mr(&mut self, host: usize, buffer: &std::sync::Arc<Buffer>, access: Access) -> Result<u32, MrError> {
        let (pd, backup) = (self.sides[host].pd, self.config.backup.is_some());
        let nic = self.host(host);
        let key = nic.nic.reg_mr(pd, buffer, access)?;
        if backup {
            nic.shadow_mr(key, pd, buffer, access, None)?;
        }
        Ok(key)
    }

    /// Makes a queue pair on each side and connects them; their numbers.
    pub fn connect(&mut self) -> Result<[Qpn; 2], ModifyError> {
        let mut qpns = [Qpn::new(0); 2];
        for host in [A, B] {
            let Side { pd, send_cq, recv_cq } = self.sides[host];
            let usual = QpInit::new(QpKind::Rc, pd, send_cq, recv_cq, self.config.caps);
            let init = QpInit { transport: self.config.transport, sig_all: self.config.sig_all, ..usual };
            qpns[host] = self.host(host).create_qp(&init).map_err(|_| ModifyError::NoSuchQp)?;
        }
        let psns = [0, 1].map(|_| Psn::new(self.random.next_u32()));
        for host in [A, B] {
            let (ip, mac) = address(1 - host, false);
            let qpn = qpns[host];
            let settings = Connection {
                dest_qp: qpns[1 - host],
                mtu: self.config.mtu,
                sq_psn: psns[host],
                rq_psn: psns[1 - host],
                timeout: self.config.timeout,
                retry_cnt: self.config.retry_cnt,
                rnr_retry: self.config.rnr_retry,
                ..Connection::default()
            };
            let nic = &mut self.host(host).nic;
            let path = nic.path_to(ip, mac, qpn.value());
            nic.connect(qpn, &Connection { path, ..settings })?;
        }
        Ok(qpns)
    }

    /// Protects the connection of two queue pairs, and lets both ends meet; whether they did.
    pub fn protect(&mut self, qpns: [Qpn; 2]) -> bool {
        self.protect_all(&[qpns])
    }

    /// Protects connections, and lets the ends of each meet; whether all did.
    pub fn protect_all(&mut self, connections: &[[Qpn; 2]]) -> bool {
        let now = self.sim.now().instant();
        for host in [A, B] {
            for qpns in connections {
                if self.host(host).protect(now, qpns[host]).is_err() {
                    return false;
                }
            }
            self.sim.touch(host);
        }
        for qpns in connections {
            while !(self.host(A).is_protected(qpns[A]) && self.host(B).is_protected(qpns[B])) {
                let Some(node) = self.sim.step() else { return false };
                self.attend(node);
            }
        }
        true
    }

    /// Answers what a host asks; what happened to its connections.
    pub fn attend(&mut self, host: usize) -> Vec<Notice> {
        let now = self.sim.now().instant();
        while let Some(Request::Path { qpn, peer }) = self.host(host).poll_request() {
            let to = [A, B].into_iter().find(|&host| address(host, true).0 == peer);
            let nic = self.host(host);
            let path = to.and_then(|to| nic.backup()?.path_to(peer, address(to, true).1, qpn.value()));
            nic.set_backup_path(now, qpn, path);
            self.sim.touch(host);
        }
        std::iter::from_fn(|| self.host(host).poll_notice()).collect()
    }
}
