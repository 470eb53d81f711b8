//! What a seed draws of a world with a group: the network and its faults, what is sent, and how slow receivers are.

use std::net::{IpAddr, Ipv6Addr};
use std::time::Duration;

use softnic_fault_injector::random::Random;
use softnic_fault_injector::{BurstLen, Direction, Fault, Outage, Policy, Red, Spec};
use softnic_nic::transports::ack_timeout;
use softnic_sim::pair::timeout_code;
use softnic_wire::{MacAddr, PathMtu, Psn};

/// What lies between the sender's switch and those receivers that are not at it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Between {
    /// All receivers are at the sender's switch; frames are routed there, or not.
    Nothing { routed: bool },
    /// Leaves, each by so many parallel links.
    Leaves { leaves: usize, links: usize },
    /// So many spines, and leaves behind them.
    Spines { leaves: usize, spines: usize },
}

/// An operation that a group has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    Send,
    SendImm,
    SendInv,
    Write,
    WriteImm,
}

impl Kind {
    pub(super) fn uses_receive(self) -> bool {
        self != Kind::Write
    }
}

/// The last message of some worlds, which fails.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Ending {
    /// A READ.
    Read,
    /// A WRITE to memory that is in no range.
    Beyond,
    /// A WRITE with a key that one receiver does not have.
    WrongKey(usize),
}

/// A world, as its seed says.
#[derive(Debug, Clone)]
pub(super) struct World {
    pub(super) seed: u64,
    pub(super) receivers: usize,
    pub(super) between: Between,
    /// The leaf of each receiver; `None` for those at the sender's switch.
    pub(super) leaf_of: Vec<Option<usize>>,
    /// Which switches copy, beside the sender's.
    pub(super) spines_copy: bool,
    pub(super) leaves_copy: bool,
    pub(super) ipv6: bool,
    pub(super) mtu: PathMtu,
    pub(super) rate: u64,
    /// Links of receivers are slower by this.
    pub(super) slower: u64,
    pub(super) delay: Duration,
    /// Of all ports but the sender's, in whose queue nothing is dropped where the merge is compared with the model.
    pub(super) queue: Policy,
    pub(super) faults: Vec<Faulty>,
    pub(super) faults_until: Duration,
    pub(super) timeout: u8,
    pub(super) first_psn: Psn,
    pub(super) min_rnr_timer: u8,
    /// Receives are posted late with this chance at each look.
    pub(super) lazy: f64,
    /// Receives that a receiver has posted at a time, and whether it takes them from a shared queue, which gives no credits.
    pub(super) receives: Vec<(usize, bool)>,
    pub(super) messages: Vec<(Kind, usize)>,
    pub(super) depth: usize,
    pub(super) ranges: usize,
    pub(super) ending: Option<Ending>,
    pub(super) modelled: bool,
}

/// A link with faults: that of a host, or one between switches, by its place.
#[derive(Debug, Clone)]
pub(super) struct Faulty {
    pub(super) place: Place,
    pub(super) spec: Spec,
}

/// A link.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Place {
    /// Of a host, the sender's being 0; from the host to its switch is `ab`.
    Host(usize),
    /// Of two switches, in the order in which they are made; from the sender's switch away is `ab`.
    Between(usize),
}

/// The longest message.
const MAX_LEN: usize = 12_000;

pub(super) fn one_of<T: Copy>(r: &mut Random, of: &[T]) -> T {
    of[r.below(of.len() as u64) as usize]
}

impl World {
    pub(super) fn new(seed: u64) -> World {
        let mut r = Random::stream(seed, 8400);
        let r = &mut r;
        let receivers = one_of(r, &[1, 2, 3, 3, 4, 5, 8, 16]);
        let between = match r.below(3) {
            0 => Between::Nothing { routed: r.chance(0.5) },
            1 => Between::Leaves { leaves: 1 + r.below(3) as usize, links: 1 + r.below(3) as usize },
            _ => Between::Spines { leaves: 1 + r.below(4) as usize, spines: 1 + r.below(3) as usize },
        };
        let leaf_of = (0..receivers).map(|_| match between {
            Between::Nothing { .. } => None,
            Between::Leaves { leaves, .. } | Between::Spines { leaves, .. } => {
                (!r.chance(0.2)).then(|| r.below(leaves as u64) as usize)
            }
        });
        let leaf_of: Vec<_> = leaf_of.collect();
        let mtu = PathMtu::ALL[r.below(5) as usize];
        let frame = u64::from(mtu.bytes()) + 100;
        let rate = one_of(r, &[1_000_000_000, 10_000_000_000, 100_000_000_000]);
        let delay = Duration::from_nanos(one_of(r, &[500, 2_000, 20_000]));
        let slower = one_of(r, &[1, 1, 2, 4]);
        let depth = 1 + r.below(8) as usize;
        let messages = draw_messages(r, mtu.bytes() as usize);
        // Copies for all receivers may meet before one port: no queue is so short that some of them never get through.
        let shortest = 2 * frame * receivers as u64 + 2000;
        let limit = if r.chance(0.4) { shortest * (1 + r.below(3)) } else { 1 << 30 };
        let red = r.chance(0.4).then(|| Red { min: one_of(r, &[0, 5_000]), max: 50_000, chance: 0.3 });
        let mut world = World {
            seed,
            receivers,
            between,
            leaf_of,
            spines_copy: r.chance(0.6),
            leaves_copy: r.chance(0.6),
            ipv6: r.chance(0.4),
            mtu,
            rate,
            slower,
            delay,
            queue: Policy { limit, red },
            faults: Vec::new(),
            faults_until: Duration::ZERO,
            timeout: 0,
            first_psn: if r.chance(0.5) { Psn::MAX.sub(r.below(120) as u32) } else { Psn::new(r.next_u32()) },
            min_rnr_timer: 1 + r.below(10) as u8,
            lazy: one_of(r, &[0.0, 0.5, 0.97]),
            receives: (0..receivers).map(|_| (1 + r.below(16) as usize, r.chance(0.3))).collect(),
            messages,
            depth,
            ranges: 1 + r.below(4) as usize,
            ending: None,
            modelled: r.chance(0.5),
        };
        if r.chance(0.15) {
            let wrong = Ending::WrongKey(r.below(receivers as u64) as usize);
            world.ending = Some(one_of(r, &[Ending::Read, Ending::Beyond, wrong]));
        }
        world.timeout = timeout_code(world.patience());
        let timeout = ack_timeout(world.timeout).unwrap_or_default();
        // Who retries seven times is not done with it before faults are.
        world.faults_until = timeout.mul_f64(0.1 + r.below(40) as f64 / 10.0);
        if !r.chance(0.15) {
            world.draw_faults(r, timeout);
        }
        world
    }

    /// Longer than an answer may take, without faults.
    fn patience(&self) -> Duration {
        let frame = u64::from(self.mtu.bytes()) + 100;
        let copies = self.receivers as u64;
        // What is under way at a time, once for each receiver where copies share a link, at a bottleneck of a third of the rate.
        let message = MAX_LEN as u64 * 5 / 4 + 2 * frame;
        let bytes = (self.depth as u64 * message).min(self.queue.limit) * copies * 3 * self.slower;
        Duration::from_nanos(2 * bytes * 8_000_000_000 / self.rate) + self.delay * 40
    }

    fn draw_faults(&mut self, r: &mut Random, timeout: Duration) {
        let places = self.receivers + 1 + self.between_links();
        for _ in 0..1 + r.below(4) {
            let n = r.below(places as u64) as usize;
            // A way that all take more often than its share.
            let n = if r.chance(0.2) { 0 } else { n };
            let place = if n <= self.receivers { Place::Host(n) } else { Place::Between(n - self.receivers - 1) };
            let mut spec = Spec::default();
            for direction in [Direction::Ab, Direction::Ba] {
                if r.chance(0.3) {
                    continue;
                }
                let to_host = matches!(place, Place::Host(_)) && direction == Direction::Ba;
                // What reaches the sender's switch is whole where that is compared with the model: who is spoken to by a frame whose MAC
                // address is damaged is anybody.
                let away = matches!(place, Place::Between(_)) && direction == Direction::Ab;
                let damage = to_host || away || !self.modelled;
                let faults = draw_spec(r, self, timeout, damage);
                if direction == Direction::Ab { spec.ab = faults } else { spec.ba = faults }
            }
            self.faults.retain(|faulty| faulty.place != place);
            self.faults.push(Faulty { place, spec });
        }
    }

    /// Links between switches.
    pub(super) fn between_links(&self) -> usize {
        match self.between {
            Between::Nothing { .. } => 0,
            Between::Leaves { leaves, links } => leaves * links,
            Between::Spines { leaves, spines } => spines + spines * leaves,
        }
    }

    /// The faults of a link.
    pub(super) fn spec(&self, place: Place) -> Spec {
        self.faults.iter().find(|faulty| faulty.place == place).map(|faulty| faulty.spec.clone()).unwrap_or_default()
    }

    /// Whether any link damages frames.
    pub(super) fn damages(&self) -> bool {
        let is_damage = |fault: &Fault| matches!(fault, Fault::Corrupt(_));
        self.faults.iter().any(|faulty| faulty.spec.ab.iter().chain(&faulty.spec.ba).any(is_damage))
    }

    /// The address of a host, the sender's being 0.
    pub(super) fn ip(&self, host: usize) -> IpAddr {
        let n = host as u16 + 1;
        match self.ipv6 {
            true => Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 7, n).into(),
            false => IpAddr::from([10, 7, 0, n as u8]),
        }
    }

    pub(super) fn mac(host: usize) -> MacAddr {
        MacAddr([2, 0, 0, 0, 0, host as u8 + 1])
    }

    pub(super) fn is_routed(&self) -> bool {
        self.between != Between::Nothing { routed: false }
    }
}

fn draw_messages(r: &mut Random, mtu: usize) -> Vec<(Kind, usize)> {
    let (mut messages, mut left) = (Vec::new(), 20_000 + r.below(60_000) as usize);
    while messages.len() < 40 {
        let kind = one_of(r, &[Kind::Send, Kind::SendImm, Kind::SendInv, Kind::Write, Kind::Write, Kind::WriteImm]);
        let len = match r.below(6) {
            0 => 0,
            1 => 1 + r.below(mtu as u64) as usize,
            2 => mtu + r.below(2) as usize,
            3 => 2 * mtu + r.below(mtu as u64) as usize,
            _ => 1 + r.below(20 * mtu as u64) as usize,
        };
        let len = len.min(MAX_LEN);
        messages.push((kind, len));
        match left.checked_sub(len + 100) {
            Some(less) => left = less,
            None => break,
        }
    }
    messages
}

fn draw_spec(r: &mut Random, world: &World, timeout: Duration, damage: bool) -> Vec<Fault> {
    let mut faults = Vec::new();
    let chance = |r: &mut Random| one_of(r, &[0.01, 0.05, 0.15]);
    if r.chance(0.5) {
        faults.push(Fault::Loss(chance(r)));
    }
    if r.chance(0.15) {
        let len = if r.chance(0.5) { BurstLen::Exactly(1 + r.below(4) as u32) } else { BurstLen::Mean(3.0) };
        faults.push(Fault::Burst { enter: 0.02, loss: 0.9, len });
    }
    if r.chance(0.25) {
        faults.push(Fault::Duplicate(chance(r)));
    }
    if damage && r.chance(0.5) {
        faults.push(Fault::Corrupt(chance(r)));
    }
    if r.chance(0.25) {
        faults.push(Fault::Reorder { chance: chance(r), behind: 1 + r.below(6) as u32 });
    }
    if r.chance(0.1) {
        let lasts = timeout.mul_f64(0.1 + r.below(15) as f64 / 10.0);
        faults.push(Fault::Down(Outage { from: timeout.mul_f64(r.below(20) as f64 / 10.0), lasts, every: None }));
    }
    if r.chance(0.1) {
        faults.push(Fault::Delay(world.delay * r.below(4) as u32));
    }
    if r.chance(0.15) {
        // Go-back-N makes no way where packets hardly ever come in order.
        let packet = Duration::from_nanos((u64::from(world.mtu.bytes()) + 100) * 8_000_000_000 / world.rate);
        faults.push(Fault::Jitter(packet.mul_f64(one_of(r, &[0.5, 1.5, 2.5]))));
    }
    if r.chance(0.15) {
        faults.push(Fault::Rate(world.rate / (1 + r.below(3))));
        if r.chance(0.5) {
            faults.push(Fault::Queue(world.queue.limit.min(200_000)));
        }
        if r.chance(0.5) {
            faults.push(Fault::Ecn(Red { min: 1_000, max: 20_000, chance: 0.5 }));
        }
    }
    faults
}
