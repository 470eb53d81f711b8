//! The objects of a world: completion and shared receive queues, queue pairs of all kinds, windows, addresses, groups.

use std::net::IpAddr;

use softnic_fault_injector::random::Random;
use softnic_nic::transports::memory::Access;
use softnic_nic::transports::qp::{Caps, PayloadMode};
use softnic_nic::transports::{AhId, CqId, Transport};
use softnic_nic::{AddressAttr, Notify, QpInit, QpKind, WindowType};
use softnic_sim::LinkConfig;
use softnic_sim::pair::{Pair, PairConfig};
use softnic_wire::{MacAddr, Qpn, grh};

use super::ground::{Content, Ground};
use super::receiving::Queue;
use super::windows::Window;
use super::{Cq, Drain, Qp, Swarm, World};

/// Bytes of a window.
pub(super) const WINDOW: usize = 4096;
/// Receives that a queue pair of its own holds.
const RECEIVES: usize = 16;
const SRQ_RECEIVES: usize = 24;
const SRQ_LIMIT: u32 = 12;

/// The groups that datagrams are sent to.
pub(super) fn groups(ipv6: bool) -> [IpAddr; 2] {
    [3, 4].map(|n| match ipv6 {
        false => IpAddr::from([239, 1, 2, n]),
        true => IpAddr::from([0xff15, 0, 0, 0, 0, 0, 1, u16::from(n)]),
    })
}

impl Swarm {
    pub(super) fn new(world: World) -> Result<Swarm, String> {
        let caps =
            Caps { max_send_wr: world.depth, max_recv_wr: 16, max_send_sge: 16, max_recv_sge: 16, max_inline: 64 };
        let config = PairConfig {
            transport: Transport::Rc,
            link: LinkConfig { rate: world.rate, delay: world.rtt / 2, faults: world.faults.clone() },
            payload: PayloadMode::Real,
            mtu: world.mtu,
            timeout: world.timeout,
            retry_cnt: 7,
            rnr_retry: 7,
            min_rnr_timer: world.min_rnr_timer,
            max_rd_atomic: world.max_rd_atomic,
            caps,
            limit_flight: false,
            cq_capacity: 4096,
            seed: world.seed,
            first_psn: world.first_psn,
        };
        let mut pair = Pair::sharing(world.network, config, world.nics);
        pair.add_loopback();
        if let Some((units, packets)) = world.lowar_buffers {
            for host in 0..pair.nics() {
                let mtu = world.mtu.bytes() as usize;
                pair.nic(host).shim_pools().lowar.provide_some(mtu, units, packets);
            }
        }
        let mut swarm = Swarm {
            random: Random::stream(world.seed, 51),
            sr_random: Random::stream(world.seed, 57),
            lowar_random: Random::stream(world.seed, 59),
            changing: Vec::new(),
            cc_random: Random::stream(world.seed, 61),
            credit_random: Random::stream(world.seed, 64),
            qps: Vec::new(),
            grounds: Vec::new(),
            queues: Vec::new(),
            cqs: Vec::new(),
            windows: Vec::new(),
            sharing_random: Random::stream(world.seed, 63),
            ahs: vec![Vec::new(); pair.nics()],
            members: [Vec::new(), Vec::new()],
            life: 1,
            pair,
            done: super::Passed::default(),
            world,
        };
        swarm.make_cqs()?;
        let shared = (0..swarm.pair.nics()).map(|nic| swarm.make_srq(nic)).collect::<Result<Vec<_>, _>>()?;
        let (rc, uc, ud) = (swarm.world.rc, swarm.world.uc, swarm.world.ud);
        for kind in [QpKind::Rc].repeat(rc).into_iter().chain([QpKind::Uc].repeat(uc)) {
            let first = swarm.random.below(2) as usize;
            let second = if swarm.random.chance(swarm.world.loopback) { first } else { 1 - first };
            let [first, second] = [first, second].map(|host| swarm.any_nic(host));
            let [ours, theirs] = swarm.draw_offers(kind);
            let ends = [swarm.make_qp(kind, first, &shared, ours)?, swarm.make_qp(kind, second, &shared, theirs)?];
            swarm.connect(kind, ends)?;
        }
        for _ in 0..ud {
            let host = swarm.random.below(2) as usize;
            let host = swarm.any_nic(host);
            let q = swarm.make_qp(QpKind::Ud, host, &shared, Transport::Rc)?;
            let end = (host, swarm.qps[q].qpn);
            swarm.pair.ready(QpKind::Ud, &[end]).map_err(|e| e.to_string())?;
            for (members, group) in swarm.members.iter_mut().zip(groups(swarm.world.network.ipv6)) {
                if swarm.random.chance(0.5) {
                    swarm.pair.nic(host).attach_multicast(end.1, group).map_err(|e| e.to_string())?;
                    members.push(q);
                }
            }
        }
        swarm.make_addresses()?;
        Ok(swarm)
    }

    fn make_cqs(&mut self) -> Result<(), String> {
        for host in 0..self.pair.nics() {
            for _ in 0..1 + self.random.below(3) {
                let nic = self.pair.nic(host);
                let id = nic.create_cq(4096);
                let armed = self.random.chance(self.world.by_event).then_some(Notify::Next);
                if let Some(what) = armed {
                    nic.req_notify_cq(id, what).map_err(|e| e.to_string())?;
                }
                self.cqs.push(Cq { host, id, armed, event: false });
            }
        }
        Ok(())
    }

    /// The least room of a receive that every message fits into.
    fn receive_len(&self) -> usize {
        self.world.max_len as usize + grh::LEN
    }

    fn make_srq(&mut self, host: usize) -> Result<usize, String> {
        let receives = SRQ_RECEIVES + 2 * (self.world.rc + self.world.uc) + self.world.ud;
        let ground = self.make_ground(host, receives * (self.receive_len() + 16) + 64)?;
        let pd = self.pair.sides[host].pd;
        let nic = self.pair.nic(host);
        let id = nic.create_srq(pd, receives as u32, 16).map_err(|e| e.to_string())?;
        let limit = if self.world.by_limit { SRQ_LIMIT } else { 0 };
        let queue = Queue::new(host, ground, Some(id), limit);
        self.add_queue(queue, receives)
    }

    fn add_queue(&mut self, mut queue: Queue, receives: usize) -> Result<usize, String> {
        let len = self.receive_len();
        let ground = &mut self.grounds[queue.ground];
        for _ in 0..receives {
            let area = ground.room(len, Content::Any)?;
            ground.wipe(area, super::ground::UNTOUCHED);
            queue.free.push(area);
        }
        self.queues.push(queue);
        Ok(self.queues.len() - 1)
    }

    fn make_ground(&mut self, host: usize, size: usize) -> Result<usize, String> {
        let mut ground = Ground::new(0x1_0000_0000 * (1 + self.grounds.len() as u64), size);
        let access = Access::LOCAL_WRITE | Access::REMOTE | Access::MW_BIND;
        let pd = self.pair.sides[host].pd;
        let nic = self.pair.nic(host);
        let other = nic.alloc_pd();
        let mut register = |pd, access| nic.reg_mr(pd, &ground.buffer, access).map_err(|e| e.to_string());
        ground.key = register(pd, access)?;
        ground.read_only = register(pd, Access::LOCAL_WRITE | Access::REMOTE_READ)?;
        let (gone, foreign) = (register(pd, access)?, register(other, access)?);
        ground.no_access = vec![gone, foreign];
        nic.dereg_mr(gone).map_err(|e| e.to_string())?;
        self.grounds.push(ground);
        Ok(self.grounds.len() - 1)
    }

    fn make_qp(&mut self, kind: QpKind, host: usize, shared: &[usize], offers: Transport) -> Result<usize, String> {
        let q = self.qps.len();
        let (messages, max_len) = ((self.world.messages * self.world.lives) as usize, self.world.max_len as usize);
        // What it sends from and what it is sent to, each message apart, and a range for each time a window may be bound.
        let size = (RECEIVES + 1) * (self.receive_len() + 16) + messages * (2 * max_len + 20 * 16 + WINDOW + 64);
        let ground = self.make_ground(host, size + 4096)?;
        let counter_at = self.grounds[ground].reserve(8, 8)?;
        let counter_area = self.grounds[ground].area(counter_at, 8, Content::Any);
        self.grounds[ground].wipe(counter_area, 0);
        let srq = self.random.chance(self.world.shared);
        let queue = if srq { shared[host] } else { self.add_queue(Queue::new(host, ground, None, 0), RECEIVES)? };
        let (send_cq, recv_cq) = (self.any_cq(host), self.any_cq(host));
        let pd = self.pair.sides[host].pd;
        let caps = Caps {
            max_send_wr: self.world.depth,
            max_recv_wr: RECEIVES as u32,
            max_send_sge: 16,
            max_recv_sge: 16,
            max_inline: 64,
        };
        let usual = QpInit::new(kind, pd, send_cq, recv_cq, caps);
        let transport = if kind == QpKind::Rc { offers } else { usual.transport };
        let init = QpInit { srq: self.queues[queue].srq, transport, ..usual };
        let qpn = self.pair.nic(host).create_qp(&init).map_err(|e| e.to_string())?;
        if !srq {
            self.queues[queue].owner = Some(qpn);
        }
        self.queues[queue].partial |= kind == QpKind::Uc;
        self.qps.push(Qp {
            kind,
            offers,
            credit: false,
            host,
            qpn,
            peer: q,
            ground,
            queue,
            send_cq,
            counter: 0,
            counter_area,
            messages: Vec::new(),
            completed: 0,
            receiving: Default::default(),
            last: None,
            drain: Drain::No,
            dying: false,
            gave_up: false,
            life_start: 0,
            reborn: false,
            failed: false,
            dead: false,
        });
        self.draw_congestion_control(q)?;
        self.draw_credit(q)?;
        for _ in 0..if kind == QpKind::Rc { self.world.windows } else { 0 } {
            let kind = if self.random.chance(0.5) { WindowType::Type1 } else { WindowType::Type2B };
            let key = self.pair.nic(host).alloc_mw(pd, kind).map_err(|e| e.to_string())?;
            self.windows.push(Window::new(q, kind, key));
        }
        Ok(q)
    }

    fn any_cq(&mut self, host: usize) -> CqId {
        let ids: Vec<CqId> = self.cqs.iter().filter(|cq| cq.host == host).map(|cq| cq.id).collect();
        ids[self.random.below(ids.len() as u64) as usize]
    }

    pub(super) fn connect(&mut self, kind: QpKind, ends: [usize; 2]) -> Result<(), String> {
        let named = ends.map(|q| (self.qps[q].host, self.qps[q].qpn));
        self.pair.ready(kind, &named).map_err(|e| e.to_string())?;
        (self.qps[ends[0]].peer, self.qps[ends[1]].peer) = (ends[1], ends[0]);
        Ok(())
    }

    /// A NIC of a host.
    fn any_nic(&mut self, host: usize) -> usize {
        let nics: Vec<usize> = (0..self.pair.nics()).filter(|&nic| self.pair.host_of(nic) == host).collect();
        match nics[..] {
            [nic] => nic,
            _ => nics[self.sharing_random.below(nics.len() as u64) as usize],
        }
    }

    /// Address handles of each NIC: for both hosts, then for the groups.
    fn make_addresses(&mut self) -> Result<(), String> {
        for nic in 0..self.pair.nics() {
            let (pd, host) = (self.pair.sides[nic].pd, self.pair.host_of(nic));
            let network = self.world.network;
            let hosts = [0, 1].map(|to| (network.address(to).0, network.next_hop(host, to))).into_iter();
            for (i, (ip, mac)) in hosts.chain(groups(network.ipv6).map(|g| (g, MacAddr([0; 6])))).enumerate() {
                let attr = AddressAttr::new(ip, mac, 0, i as u32);
                let ah: AhId = self.pair.nic(nic).create_ah(pd, &attr).map_err(|e| e.to_string())?;
                self.ahs[nic].push(ah);
            }
        }
        Ok(())
    }

    /// The queue pair of a host with a number, which no other NIC behind the host's port has.
    pub(super) fn qp_at(&self, host: usize, qpn: Qpn) -> Result<usize, String> {
        let found = self.qps.iter().position(|qp| self.pair.host_of(qp.host) == host && qp.qpn == qpn);
        found.ok_or_else(|| format!("host {host} has no queue pair {qpn:?}"))
    }

    /// The queue pair of a NIC with a number.
    pub(super) fn qp_of(&self, host: usize, qpn: Qpn) -> Result<usize, String> {
        let found = self.qps.iter().position(|qp| qp.host == host && qp.qpn == qpn);
        found.ok_or_else(|| format!("NIC {host} has no queue pair {qpn:?}"))
    }
}
