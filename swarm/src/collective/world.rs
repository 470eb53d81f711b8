//! A world of collectives, as its seed says.

use std::time::Duration;

use softnic_collectives::call::{Algorithm, Call, Element, Operation, Reduction};
use softnic_collectives::member::MemberSettings;
use softnic_collectives::simulated::GroupConfig;
use softnic_collectives::timeouts::TimeoutSettings;
use softnic_collectives::uc::is_bounded;
use softnic_fault_injector::Spec;
use softnic_fault_injector::random::Random;
use softnic_nic::transports::Transport;
use softnic_nic::transports::congestion::{DcqcnConfig, EqdsConfig, SwiftConfig};
use softnic_sim::Cc;
use softnic_sim::topology::{Kind, Link, Topology};
use softnic_wire::PathMtu;

/// A rank of which nothing is heard is waited for so long.
const PATIENCE: Duration = Duration::from_secs(1);
const MTUS: [PathMtu; 3] = [PathMtu::B256, PathMtu::B1024, PathMtu::B4096];

/// A group of a world.
#[derive(Debug, Clone)]
pub(super) struct GroupWorld {
    pub(super) hosts: Vec<usize>,
    pub(super) transport: Transport,
    stride: u16,
    pub(super) cc: Cc,
    pub(super) calls: Vec<Call>,
    pub(super) timeouts: TimeoutSettings,
    pub(super) fixed: Option<Duration>,
    /// Collectives, warm-ups too.
    pub(super) rounds: usize,
    warms_up: bool,
}

/// A world.
#[derive(Debug, Clone)]
pub(super) struct World {
    pub(super) seed: u64,
    kind: Kind,
    pub(super) rate: u64,
    delay: Duration,
    mtu: PathMtu,
    faults: Spec,
    queue: u64,
    pub(super) faults_stop: Duration,
    /// A host that is cut off, and when.
    pub(super) cut: Option<(usize, Duration)>,
    pub(super) groups: Vec<GroupWorld>,
}

fn one_of<T: Copy>(r: &mut Random, of: &[T]) -> T {
    of[r.below(of.len() as u64) as usize]
}

impl World {
    pub(super) fn new(seed: u64) -> World {
        let mut r = Random::stream(seed, 12_000);
        let hosts = 2 + r.below(7) as usize;
        let (kind, hosts) = match r.below(4) {
            0 => (Kind::LeafSpine { leaves: 2, spines: 2, hosts: hosts.div_ceil(2) }, 2 * hosts.div_ceil(2)),
            1 => (Kind::Dumbbell { hosts: hosts.div_ceil(2) }, 2 * hosts.div_ceil(2)),
            _ => (Kind::Star { hosts }, hosts),
        };
        let faults = one_of(
            &mut r,
            &[
                "",
                "",
                "loss=0.002",
                "loss=0.02",
                "loss=0.01,dup=0.02,reorder=0.01:3",
                "jitter=20us",
                "corrupt=0.01,dup=0.01",
                "stall=1ms+200us/2ms",
            ],
        );
        let cut = r.chance(0.15).then(|| (r.below(hosts as u64) as usize, Duration::from_micros(r.below(3000))));
        let groups = 1 + r.below(2) as usize;
        World {
            seed,
            kind,
            rate: one_of(&mut r, &[10_000_000_000, 10_000_000_000, 40_000_000_000]),
            delay: Duration::from_nanos(one_of(&mut r, &[500, 1000, 10_000])),
            mtu: one_of(&mut r, &MTUS),
            faults: faults.parse().unwrap_or_default(),
            // A queue that is full is another thing than packets that are lost now and then: Go-Back-N may run out of retries.
            // And ACK timeouts follow from how long a full queue would be.
            queue: 2 << 20,
            faults_stop: Duration::from_micros(one_of(&mut r, &[500, 3000, 20_000])),
            cut,
            groups: (0..groups).map(|_| GroupWorld::new(&mut r, hosts)).collect(),
        }
    }

    pub(super) fn topology(&self) -> Topology {
        let mut topology = Topology::new(self.kind);
        let link = |(a, b)| Link { a, b, rate: self.rate, delay: self.delay, faults: self.faults.clone() };
        topology.links = self.kind.links().into_iter().map(link).collect();
        topology.policy.limit = self.queue;
        topology.mtu = self.mtu;
        topology
    }

    /// Nothing goes wrong in it.
    pub(super) fn is_calm(&self) -> bool {
        self.faults == Spec::default() && self.cut.is_none()
    }

    /// No round trip is shorter: there is a switch between any two hosts.
    pub(super) fn shortest_round_trip(&self) -> Duration {
        4 * self.delay
    }

    /// A packet that is leaving when its message ends is not cut off.
    pub(super) fn slack(&self) -> Duration {
        Duration::from_nanos(2 * (u64::from(self.mtu.bytes()) + 200) * 8_000_000_000 / self.rate)
    }

    /// A collective is over after this time, whoever is gone: everybody waits once for whom they miss, and once for whom that one missed.
    pub(super) fn longest_wait(&self) -> Duration {
        4 * PATIENCE
    }
}

impl GroupWorld {
    fn new(r: &mut Random, hosts: usize) -> GroupWorld {
        let ranks = 1 + r.below(hosts as u64) as usize;
        // Ranks are not in the order of hosts.
        let mut order: Vec<usize> = (0..hosts).collect();
        (1..hosts).rev().for_each(|i| order.swap(i, r.below(i as u64 + 1) as usize));
        order.truncate(ranks);
        let name = one_of(r, &["rc", "sr", "lowar", "xp", "xp", "xp:tail=2", "xp:linger=20us", "xp:spray=4", "uc"]);
        let transport: Transport = name.parse().unwrap_or(Transport::XP);
        let longest = one_of(r, &[300, 20_000, 200_000]);
        let wanted = 1 + r.below(3) as usize;
        let mut calls = Vec::new();
        while calls.len() < wanted {
            let element = one_of(r, &[Element::F32, Element::F16, Element::Bf16, Element::I32]);
            let root = r.below(ranks as u64) as usize;
            let call = Call {
                operation: one_of(
                    r,
                    &[
                        Operation::AllReduce,
                        Operation::AllReduce,
                        Operation::ReduceScatter,
                        Operation::AllGather,
                        Operation::AllToAll,
                        Operation::Broadcast { root },
                        Operation::Barrier,
                    ],
                ),
                algorithm: one_of(r, &[Algorithm::Ring, Algorithm::Tree, Algorithm::Bcube]),
                element,
                reduction: one_of(r, &[Reduction::Sum, Reduction::Min, Reduction::Max]),
                bytes: r.below(longest) * element.size(),
            };
            if call.check(ranks).is_ok() {
                calls.push(call);
            }
        }
        let bounded = is_bounded(transport);
        let fixed = [None, None, Some(30), Some(400), Some(200_000)][r.below(5) as usize].map(Duration::from_micros);
        let timeouts = TimeoutSettings {
            alpha: one_of(r, &[0.2, 0.2, 0.5, 1.0]),
            margin: one_of(r, &[0.0, 0.5, 0.5, 2.0]),
            bound: one_of(r, &[8.0, 2.0]),
            ..TimeoutSettings::default()
        };
        let cc = draw_cc(r, transport);
        let stride = one_of(r, &[1, 1, 4, 64]);
        GroupWorld {
            hosts: order,
            transport,
            stride,
            cc,
            timeouts,
            fixed: fixed.filter(|_| bounded),
            rounds: calls.len() + 2 + r.below(5) as usize,
            calls,
            warms_up: r.chance(0.8),
        }
    }

    /// Warm-ups come first, one of each call.
    pub(super) fn warm_ups(&self) -> usize {
        if self.warms_up { self.calls.len() } else { 0 }
    }

    /// A budget that nothing needs that goes well.
    pub(super) fn is_ample(&self) -> bool {
        self.fixed.is_some_and(|fixed| fixed >= Duration::from_millis(100))
    }

    pub(super) fn patience(&self) -> Duration {
        PATIENCE
    }

    pub(super) fn most(&self) -> Duration {
        self.timeouts.most.min(PATIENCE)
    }

    pub(super) fn config(&self) -> GroupConfig {
        GroupConfig {
            hosts: self.hosts.clone(),
            transport: self.transport,
            stride: self.stride,
            cc: self.cc,
            timeout: None,
            calls: self.calls.clone(),
            member: MemberSettings {
                fixed: self.fixed,
                timeouts: self.timeouts,
                patience: PATIENCE,
                ..MemberSettings::default()
            },
        }
    }
}

/// Any control that there is for a transport.
fn draw_cc(r: &mut Random, transport: Transport) -> Cc {
    let swift = SwiftConfig {
        // A responder may wait 20 µs with its answer: whoever aims at less has a window of next to nothing.
        base: Duration::from_micros(one_of(r, &[50, 100])),
        range: Duration::from_micros(one_of(r, &[50, 100])),
        start: one_of(r, &[500, 16_000, 200_000]),
        floor: 200,
        ..SwiftConfig::default()
    };
    let eqds = EqdsConfig {
        speculative: one_of(r, &[10_000, 32 << 10]),
        quantum: one_of(r, &[4000, 16 << 10]),
        ..EqdsConfig::default()
    };
    let all = [
        Cc::None,
        Cc::Window,
        Cc::Dcqcn(DcqcnConfig::default()),
        Cc::Swift(swift),
        Cc::Swift(swift),
        Cc::Eqds(eqds),
        Cc::Eqds(eqds),
    ];
    let cc = one_of(r, &all);
    if cc.is_for(transport) { cc } else { Cc::None }
}
