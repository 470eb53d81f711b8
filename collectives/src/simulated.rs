//! Groups of hosts in virtual time, on any network that the simulator has: N ranks, one thread.

mod run;

use std::time::Duration;

use softnic_nic::transports::Transport;
use softnic_nic::transports::negotiation::Choice;
use softnic_nic::{ModifyError, QpInit};
use softnic_sim::pair::timeout_code;
use softnic_sim::topology::{Connecting, Network, Topology, TopologyReport};
use softnic_sim::{Cc, SimError, Time};
use softnic_wire::Qpn;

use crate::call::{Call, CallError};
use crate::endpoint::{Endpoint, EndpointConfig, Noted, VerbsFabric};
use crate::fabric::Refused;
use crate::member::{Member, MemberError, MemberSettings, Outcome, Progress};
use crate::on_nic::NicPlace;
use crate::plan::Exchanges;
use crate::uc::is_bounded;

pub use run::run;

/// What a group is made with.
#[derive(Debug, Clone)]
pub struct GroupConfig {
    /// The host of each rank.
    pub hosts: Vec<usize>,
    /// The transport of the data.
    pub transport: Transport,
    /// Blocks that each packet of XP has a part of.
    pub stride: u16,
    /// Congestion control of the data.
    pub cc: Cc,
    /// ACK timeout of the data and of warm-ups; by default that of the network.
    pub timeout: Option<u8>,
    /// Everything that it will be called for: queue pairs are made for these.
    pub calls: Vec<Call>,
    /// How its members work; `bounded` follows from the transport.
    pub member: MemberSettings,
}

/// What keeps a group from its work.
#[derive(Debug, thiserror::Error)]
pub enum ClusterError {
    /// A rank says so.
    #[error("rank {rank}: {why}")]
    Member {
        /// Which.
        rank: usize,
        /// What.
        why: MemberError,
    },
    /// The group cannot make the call.
    #[error(transparent)]
    Call(#[from] CallError),
    /// A NIC refused something.
    #[error("rank {rank}: {why}")]
    Refused {
        /// Whose.
        rank: usize,
        /// What.
        why: String,
    },
    /// The transport keeps no promise that a collective could stand on.
    #[error("{0} neither delivers every message nor says what is missing: rc, sr, lowar, xp and uc do")]
    Transport(Transport),
    /// A host that is not there, or stands for two ranks.
    #[error("the network has no {0} hosts for as many ranks, or two ranks are on one")]
    Hosts(usize),
    /// The network cannot be made so, or a NIC in it refused a queue pair.
    #[error(transparent)]
    Network(#[from] SimError),
    /// Nothing more happens.
    #[error("nothing more happens, and the collective is not over")]
    Stalled,
    /// It was ended from outside.
    #[error("interrupted")]
    Interrupted,
}

/// Groups of ranks on the hosts of a network.
pub struct Cluster<'t> {
    network: Network<'t>,
    groups: Vec<Group>,
    /// For each host the ranks on it, each as a group and its place there.
    ranks_at: Vec<Vec<(usize, usize)>>,
    /// For each host when it is looked at next.
    wakes: Vec<Option<Time>>,
    events: u64,
}

struct Group {
    config: GroupConfig,
    members: Vec<Member>,
    ends: Vec<Endpoint>,
    places: Vec<NicPlace>,
    /// The outcome of the collective under way, of each rank that is through, and when that was.
    outcomes: Vec<Option<(Outcome, Time)>>,
    /// Of each rank that gave up, why, and when that was.
    given_up: Vec<Option<(MemberError, Time)>>,
}

impl<'t> Cluster<'t> {
    /// No group yet.
    ///
    /// # Errors
    /// When a flow of the topology cannot be made.
    pub fn new(topology: &'t Topology, seed: u64) -> Result<Cluster<'t>, ClusterError> {
        let hosts = topology.hosts.len();
        let network = Network::new(topology, seed)?;
        Ok(Cluster {
            network,
            groups: Vec::new(),
            ranks_at: vec![Vec::new(); hosts],
            wakes: vec![None; hosts],
            events: 0,
        })
    }

    /// The network.
    pub fn network(&mut self) -> &mut Network<'t> {
        &mut self.network
    }

    /// What hosts, switches and links counted.
    ///
    /// # Errors
    /// When a flow of the topology got other bytes than were sent.
    pub fn report(self) -> Result<TopologyReport, ClusterError> {
        Ok(self.network.report()?)
    }

    /// The members of a group, by rank.
    pub fn members(&self, group: usize) -> &[Member] {
        &self.groups[group].members
    }

    /// Why and when a rank of a group gave up.
    pub fn given_up(&self, group: usize, rank: usize) -> Option<&(MemberError, Time)> {
        self.groups[group].given_up[rank].as_ref()
    }

    /// From now on what happens to messages of a group is noted.
    pub fn watch(&mut self, group: usize) {
        self.groups[group].ends.iter_mut().for_each(Endpoint::watch);
    }

    /// What happened to messages of a rank since the last time.
    pub fn take_notes(&mut self, group: usize, rank: usize) -> Vec<Noted> {
        self.groups[group].ends[rank].take_notes()
    }

    /// A rank's memory.
    pub fn endpoint(&self, group: usize, rank: usize) -> &Endpoint {
        &self.groups[group].ends[rank]
    }

    /// Makes a group: its ranks with their memory and queue pairs. Its number.
    ///
    /// # Errors
    /// When it cannot be made so.
    pub fn add_group(&mut self, config: GroupConfig) -> Result<usize, ClusterError> {
        let ranks = config.hosts.len();
        let mut taken = vec![false; self.ranks_at.len()];
        if !config.hosts.iter().all(|host| taken.get_mut(*host).is_some_and(|taken| !std::mem::replace(taken, true))) {
            return Err(ClusterError::Hosts(ranks));
        }
        let bounded = is_bounded(config.transport);
        if !bounded && !config.transport.is_reliable() {
            return Err(ClusterError::Transport(config.transport));
        }
        let settings = MemberSettings { bounded, ..config.member.clone() };
        let exchanges = Exchanges::of(&config.calls, ranks, bounded)?;
        let bytes = config.calls.iter().map(|call| call.bytes).max().unwrap_or(0);
        let number = self.groups.len();
        let (mut ends, mut places) = (Vec::new(), Vec::new());
        for (rank, &host) in config.hosts.iter().enumerate() {
            let end = EndpointConfig {
                transport: config.transport,
                mtu: self.network.topology().mtu,
                stride: config.stride,
                lane: exchanges.lane(),
                group: number as u64,
            };
            let nic = self.network.nic(host);
            let place = NicPlace::new(nic, Endpoint::completions(&end, ranks, exchanges.peers(rank)));
            let made = Endpoint::new(&mut place.verbs(nic), end, ranks, bytes);
            ends.push(made.map_err(|Refused(why)| ClusterError::Refused { rank, why })?);
            places.push(place);
            self.ranks_at[host].push((number, rank));
        }
        let mut group = Group {
            members: (0..ranks).map(|rank| Member::new(rank, ranks, settings.clone())).collect(),
            outcomes: vec![None; ranks],
            given_up: vec![None; ranks],
            config,
            ends,
            places,
        };
        for pair in exchanges.all_pairs() {
            self.connect(&mut group, pair, exchanges.has(pair[0], pair[1]))?;
        }
        self.groups.push(group);
        self.negotiate(number)?;
        Ok(number)
    }

    /// Connects two ranks.
    fn connect(&mut self, group: &mut Group, ranks: [usize; 2], has_data: bool) -> Result<(), ClusterError> {
        let Group { config, ends, places, .. } = group;
        let limit_flight = config.cc.limits_flight();
        let hosts = ranks.map(|rank| config.hosts[rank]);
        // Where a word and its Tail are lost everybody waits: the timeout is one of the longest round trips, not four.
        let timeout = Some(timeout_code(self.network.round_trip(true)));
        let qpns = self.make(
            hosts,
            ranks.map(|rank| places[rank].words(&ends[rank])),
            &Connecting { timeout, ..Connecting::default() },
        )?;
        for i in 0..2 {
            let mut verbs = places[ranks[i]].verbs(self.network.nic(hosts[i]));
            let set = ends[ranks[i]].set_words(&mut verbs, ranks[1 - i], qpns[i]);
            set.map_err(|Refused(why)| ClusterError::Refused { rank: ranks[i], why })?;
        }
        if !has_data {
            return Ok(());
        }
        let how = Connecting { timeout: config.timeout, cc: config.cc, ..Connecting::default() };
        let data = self.make(hosts, ranks.map(|rank| places[rank].data(&ends[rank], limit_flight)), &how)?;
        let mut warm_up = [None::<Qpn>; 2];
        if let [Some(a), Some(b)] = ranks.map(|rank| places[rank].warm_up(&ends[rank], limit_flight)) {
            warm_up = self.make(hosts, [a, b], &how)?.map(Some);
        }
        for i in 0..2 {
            ends[ranks[i]].set_data(ranks[1 - i], data[i], warm_up[i]);
        }
        Ok(())
    }

    /// Makes a queue pair at each of two hosts and connects them; their numbers.
    fn make(&mut self, hosts: [usize; 2], init: [QpInit; 2], how: &Connecting) -> Result<[Qpn; 2], ClusterError> {
        let mut qpns = [Qpn::new(0); 2];
        for ((qpn, init), host) in qpns.iter_mut().zip(&init).zip(hosts) {
            let nic = self.network.nic(host);
            *qpn = nic.create_qp(init).map_err(|_| SimError::from(ModifyError::NoSuchQp))?;
            // Not every transport has credit.
            let _ = nic.use_credit(*qpn, how.cc.credit(Duration::ZERO));
        }
        self.network.connect(hosts, qpns, how)?;
        Ok(qpns)
    }

    /// Lets queue pairs agree on their transport, while nothing is lost: a bootstrap is no part of what is measured.
    fn negotiate(&mut self, group: usize) -> Result<(), ClusterError> {
        self.network.set_faults_enabled(false);
        for rank in 0..self.groups[group].ends.len() {
            let host = self.groups[group].config.hosts[rank];
            self.network.touch(host);
        }
        for rank in 0..self.groups[group].ends.len() {
            let host = self.groups[group].config.hosts[rank];
            for qpn in self.groups[group].ends[rank].data_queue_pairs().collect::<Vec<_>>() {
                while self.network.nic(host).choice(qpn) == Some(Choice::Waiting) {
                    self.network.step()?.ok_or(ClusterError::Stalled)?;
                }
            }
        }
        self.network.set_faults_enabled(true);
        Ok(())
    }

    /// Has a rank begin a collective, now.
    ///
    /// # Errors
    /// When it cannot.
    pub fn start(&mut self, group: usize, rank: usize, call: &Call, warm_up: bool) -> Result<(), ClusterError> {
        let Group { config, members, ends, places, outcomes, .. } = &mut self.groups[group];
        outcomes[rank] = None;
        let host = config.hosts[rank];
        let now = self.network.now().instant();
        ends[rank].set_warming_up(warm_up);
        let verbs = places[rank].verbs(self.network.nic(host));
        let mut fabric = VerbsFabric::new(verbs, &mut ends[rank], now);
        let started = match warm_up {
            true => members[rank].warm_up(call, &mut fabric),
            false => members[rank].start(call, &mut fabric),
        };
        started.map_err(|why| ClusterError::Member { rank, why })?;
        self.attend(host)
    }

    /// Has the ranks of a host go on, all of them: whoever gives up does not keep the others from it.
    fn attend(&mut self, host: usize) -> Result<(), ClusterError> {
        let mut attended = Ok(());
        for at in 0..self.ranks_at[host].len() {
            let (group, rank) = self.ranks_at[host][at];
            attended = attended.and(self.attend_rank(host, group, rank));
        }
        attended
    }

    fn attend_rank(&mut self, host: usize, group: usize, rank: usize) -> Result<(), ClusterError> {
        if self.groups[group].given_up[rank].is_some() {
            return Ok(());
        }
        self.advance(host, group, rank)?;
        // What is posted when its time is over has ended by now, and no event tells of it.
        while self.groups[group].places[rank].has_news(self.network.nic(host)) {
            self.advance(host, group, rank)?;
        }
        Ok(())
    }

    fn advance(&mut self, host: usize, group: usize, rank: usize) -> Result<(), ClusterError> {
        let time = self.network.now();
        let Group { members, ends, places, outcomes, given_up, .. } = &mut self.groups[group];
        let verbs = places[rank].verbs(self.network.nic(host));
        let mut fabric = VerbsFabric::new(verbs, &mut ends[rank], time.instant());
        let progress = members[rank].advance(&mut fabric);
        if let Some(wake) = ends[rank].take_wake() {
            let wake = Time::from_instant(wake);
            if self.wakes[host].is_none_or(|at| at <= time || wake < at) {
                self.wakes[host] = Some(wake);
                self.network.wake_at(wake, host);
            }
        }
        self.network.touch(host);
        match progress {
            Ok(Progress::Done(outcome)) => outcomes[rank] = Some((outcome, time)),
            Ok(_) => {}
            Err(why) => {
                given_up[rank] = Some((why.clone(), time));
                return Err(ClusterError::Member { rank, why });
            }
        }
        Ok(())
    }

    /// Goes on until something has happened to a host.
    ///
    /// # Errors
    /// When a rank gives up, once for each, or nothing more happens.
    pub fn step(&mut self) -> Result<(), ClusterError> {
        let node = self.network.step()?.ok_or(ClusterError::Stalled)?;
        self.events += 1;
        if node < self.ranks_at.len() && !self.ranks_at[node].is_empty() { self.attend(node) } else { Ok(()) }
    }

    /// Whether all ranks of a group are through.
    pub fn is_over(&self, group: usize) -> bool {
        self.groups[group].outcomes.iter().all(Option::is_some)
    }

    /// Whether a rank of a group is through.
    pub fn has_outcome(&self, group: usize, rank: usize) -> bool {
        self.groups[group].outcomes[rank].is_some()
    }

    /// The outcomes of all ranks of a group that is through, each with when that was.
    pub fn take_outcomes(&mut self, group: usize) -> Vec<(Outcome, Time)> {
        self.groups[group].outcomes.iter_mut().filter_map(Option::take).collect()
    }

    /// Runs one collective of each of some groups, all begun now.
    ///
    /// # Errors
    /// When one does not come to its end; [`ClusterError::Interrupted`] when `stop` says so.
    pub fn run(
        &mut self,
        calls: &[(usize, Call)],
        warm_up: bool,
        stop: &dyn Fn() -> bool,
    ) -> Result<Vec<Vec<(Outcome, Time)>>, ClusterError> {
        for &(group, call) in calls {
            for rank in 0..self.groups[group].members.len() {
                self.start(group, rank, &call, warm_up)?;
            }
        }
        while !calls.iter().all(|(group, _)| self.is_over(*group)) {
            self.step()?;
            if self.events.is_multiple_of(1 << 14) && stop() {
                return Err(ClusterError::Interrupted);
            }
        }
        Ok(calls.iter().map(|(group, _)| self.take_outcomes(*group)).collect())
    }

    /// Lets time pass in which nobody begins anything.
    ///
    /// # Errors
    /// As [`Cluster::step`].
    pub fn pause(&mut self, time: Duration) -> Result<(), ClusterError> {
        let until = self.network.now().after(time);
        self.network.wake_at(until, 0);
        while self.network.now() < until {
            self.step()?;
        }
        Ok(())
    }
}
