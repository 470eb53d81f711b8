//! The two hosts of a run: with one NIC each, or with a backup beside it. The workload is the same on both.

use std::sync::Arc;
use std::time::Duration;

use softnic_fault_injector::random::Random;
use softnic_nic::transports::memory::Access;
use softnic_nic::transports::negotiation::Choice;
use softnic_nic::transports::qp::Caps;
use softnic_nic::transports::{Completion, Counters, CqId, PostError, RecvWr, Secret, SendWr};
use softnic_nic::{Buffer, CqError, ModifyError, MrError};
use softnic_shift::Times;
use softnic_wire::{Instant, Qpn};

use super::SECRET;
use super::options::{Backup, Options, SimError};
use crate::Time;
use crate::dual_pair::{DualPair, DualPairConfig};
use crate::link::LinkConfig;
use crate::pair::{A, B, Pair, PairConfig, Side, timeout_code};
use crate::report::Failover;
use crate::simulator::Simulator;

/// Two hosts on the link of a run.
pub(super) fn pair_of<'p>(o: &Options) -> Pair<'p> {
    Pair::new(o.pair_config())
}

impl Options {
    /// What the two hosts are made with.
    fn pair_config(&self) -> PairConfig {
        let (depth, receives) = (self.depth, self.receives());
        PairConfig {
            transport: self.transport,
            link: LinkConfig { rate: self.rate, delay: self.rtt / 2, faults: self.faults.clone() },
            payload: self.payload,
            mtu: self.mtu,
            timeout: self.timeout.unwrap_or_else(|| timeout_code(self.longest_round_trip() * 4)),
            retry_cnt: self.retry,
            rnr_retry: 7,
            min_rnr_timer: 12,
            max_rd_atomic: 16,
            caps: Caps { max_send_wr: depth, max_recv_wr: receives, max_send_sge: 1, max_recv_sge: 1, max_inline: 0 },
            limit_flight: self.cc.limits_flight(),
            cq_capacity: receives as usize * self.qps as usize,
            seed: self.seed,
            first_psn: None,
        }
    }
}

/// Two hosts.
pub(super) enum Hosts<'p> {
    Plain(Box<Pair<'p>>),
    Protected(Box<DualPair<'p>>),
}

impl<'p> Hosts<'p> {
    pub(super) fn new(o: &Options) -> Result<Hosts<'p>, SimError> {
        if let Some(Backup { faults, probe }) = &o.backup {
            let times = Times { probe: *probe, ..Times::default() };
            let config = DualPairConfig::like(&o.pair_config(), Some(faults.clone()), times);
            return Ok(Hosts::Protected(Box::new(DualPair::new(config))));
        }
        let mut pair = pair_of(o);
        o.cc.credit(Duration::ZERO).into_iter().for_each(|credit| pair.use_credit(credit));
        if o.auth {
            let mut secret = Random::stream(o.seed, SECRET);
            let secret = Secret::new(&std::array::from_fn::<u8, 32, _>(|_| secret.next_u32() as u8));
            pair.authenticate(secret.map_err(|_| SimError::Options("there is no such secret"))?);
        }
        Ok(Hosts::Plain(Box::new(pair)))
    }

    pub(super) fn sim(&mut self) -> &mut Simulator<'p> {
        match self {
            Hosts::Plain(pair) => &mut pair.sim,
            Hosts::Protected(pair) => &mut pair.sim,
        }
    }

    pub(super) fn now(&self) -> Instant {
        match self {
            Hosts::Plain(pair) => pair.sim.now().instant(),
            Hosts::Protected(pair) => pair.sim.now().instant(),
        }
    }

    pub(super) fn side(&self, host: usize) -> Side {
        match self {
            Hosts::Plain(pair) => pair.sides[host],
            Hosts::Protected(pair) => pair.sides[host],
        }
    }

    /// The links by which A and B send; of the default NICs, where there are backups.
    pub(super) fn links(&self) -> [usize; 2] {
        match self {
            Hosts::Plain(pair) => pair.links,
            Hosts::Protected(pair) => pair.links[0],
        }
    }

    pub(super) fn connect(&mut self) -> Result<[Qpn; 2], ModifyError> {
        match self {
            Hosts::Plain(pair) => pair.connect(),
            Hosts::Protected(pair) => pair.connect(),
        }
    }

    pub(super) fn reg_mr(&mut self, host: usize, buffer: &Arc<Buffer>, access: Access) -> Result<u32, MrError> {
        match self {
            Hosts::Plain(pair) => pair.sim.nic(host).reg_mr(pair.sides[host].pd, buffer, access),
            Hosts::Protected(pair) => pair.reg_mr(host, buffer, access),
        }
    }

    #[inline]
    pub(super) fn post_send(&mut self, host: usize, qpn: Qpn, wr: &SendWr<'_>) -> Result<(), PostError> {
        let now = self.now();
        match self {
            Hosts::Plain(pair) => pair.sim.nic(host).post_send(now, qpn, wr),
            Hosts::Protected(pair) => pair.host(host).post_send(now, qpn, wr),
        }
    }

    #[inline]
    pub(super) fn post_recv(&mut self, host: usize, qpn: Qpn, wr: &RecvWr<'_>) -> Result<(), PostError> {
        match self {
            Hosts::Plain(pair) => pair.sim.nic(host).post_recv(qpn, wr),
            Hosts::Protected(pair) => pair.host(host).post_recv(qpn, wr),
        }
    }

    #[inline]
    pub(super) fn poll_cq(&mut self, host: usize, cq: CqId) -> Result<Option<Completion>, CqError> {
        match self {
            Hosts::Plain(pair) => pair.sim.nic(host).poll_cq(cq),
            Hosts::Protected(pair) => pair.host(host).poll_cq(cq),
        }
    }

    /// Goes to the next event; the host that it happened to.
    #[inline]
    pub(super) fn step(&mut self) -> Option<usize> {
        match self {
            Hosts::Plain(pair) => pair.sim.step(),
            Hosts::Protected(pair) => {
                let host = pair.sim.step()?;
                pair.attend(host);
                Some(host)
            }
        }
    }

    /// Lets the queue pairs agree on how they speak, and on their backups.
    pub(super) fn meet(&mut self, o: &Options, connections: &[[Qpn; 2]]) {
        self.sim().touch(A);
        self.sim().touch(B);
        for qpns in connections {
            while [A, B].into_iter().any(|host| self.sim().nic(host).choice(qpns[host]) == Some(Choice::Waiting)) {
                if self.step().is_none() {
                    return;
                }
            }
        }
        if let Hosts::Protected(pair) = self {
            // Those that stay without go on without, and the report says so.
            pair.protect_all(connections);
            // Until the last answer is off the line: from then on the default link is as if there was no backup.
            let quiet = Time::from_instant(self.now() + o.longest_round_trip() * 2);
            self.sim().wake_at(quiet, A);
            while self.sim().now() < quiet && self.step().is_some() {}
        }
    }

    /// What a host counted, on both of its NICs.
    pub(super) fn counters(&mut self, host: usize) -> Counters {
        let mut counters = *self.sim().nic(host).counters();
        if let Hosts::Protected(pair) = self
            && let Some(backup) = pair.host(host).backup()
        {
            counters.add(backup.counters());
        }
        counters
    }

    /// What failover did, as the requester tells it.
    pub(super) fn failover(&mut self, o: &Options) -> Option<Failover> {
        let Hosts::Protected(pair) = self else { return None };
        let counters = pair.host(A).failover_counters()?.clone();
        let links = pair.links[1];
        let mut applied_events = vec![0; o.backup.as_ref()?.faults.script.events.len()];
        pair.sim.count_applied(&links, &mut applied_events);
        Some(Failover { counters, links: links.map(|link| pair.sim.link_stats(link)), applied_events })
    }
}
