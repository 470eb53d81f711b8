//! What a seed comes up with: the link and its faults, who talks to whom and how, and the habits of the programs.

use std::time::Duration;

use softnic_fault_injector::random::Random;
use softnic_fault_injector::{BurstLen, Direction, Fault, Outage, Red, Spec};
use softnic_nic::transports::ack_timeout;
use softnic_sim::pair::{Between, Network, timeout_code};
use softnic_wire::{PathMtu, Psn};

use super::congestion::SLOWEST;

/// The share of worlds where several NICs are behind one port.
const SHARED_PORTS: f64 = 0.125;

/// The world of a seed.
#[derive(Debug, Clone)]
pub struct World {
    /// The seed.
    pub seed: u64,
    pub(super) mtu: PathMtu,
    pub(super) rate: u64,
    pub(super) rtt: Duration,
    pub(super) network: Network,
    /// How many NICs share the port of each host.
    pub(super) nics: [usize; 2],
    pub(super) faults: Spec,
    /// Faults stop then.
    pub(super) faults_until: Duration,
    /// Something is lost, damaged or held back.
    pub(super) lossy: bool,
    /// A queue on the way can be full. Who sends the same again after the same time may find it full for ever, and gives up.
    pub(super) drops: bool,
    pub(super) duplicates: bool,
    pub(super) reorders: bool,
    pub(super) depth: u32,
    /// Connections of each kind, and datagram queue pairs.
    pub(super) rc: usize,
    pub(super) uc: usize,
    pub(super) ud: usize,
    /// The chance that an end of a reliable connection offers Selective Repeat.
    pub(super) sr: f64,
    /// The chance that it would offer LoWAR.
    pub(super) lowar: f64,
    /// Coding units and places in the reordering ring of each host, where there are fewer than usual.
    pub(super) lowar_buffers: Option<(u16, u32)>,
    /// The chance that an end of a reliable connection has congestion control.
    pub(super) cc: f64,
    /// How often an end of a reliable connection offers credit.
    pub(super) credit: f64,
    /// The chance that a connection is between two queue pairs of one NIC.
    pub(super) loopback: f64,
    /// The chance that a queue pair takes its receives from its host's shared queue.
    pub(super) shared: f64,
    /// The shared queues are filled up only when their limit's event says so.
    pub(super) by_limit: bool,
    /// The chance that a completion queue is looked at because of its events.
    pub(super) by_event: f64,
    pub(super) messages: u32,
    pub(super) max_len: u32,
    pub(super) first_psn: Option<Psn>,
    pub(super) min_rnr_timer: u8,
    pub(super) max_rd_atomic: u8,
    /// Local ACK timeout code.
    pub(super) timeout: u8,
    /// Receives are posted late with this chance at each look.
    pub(super) lazy_receiver: f64,
    /// Completion queues are not looked at with this chance.
    pub(super) lazy_poll: f64,
    /// Memory windows of each queue pair of a reliable connection.
    pub(super) windows: usize,
    /// The chance that a message uses a key that is good for nothing.
    pub(super) stale: f64,
    /// The chance that a message is for memory that ends a byte too early, or that its peer may not use so.
    pub(super) beyond: f64,
    /// How often connections are made.
    pub(super) lives: u32,
    /// The chance, at each look, that a send queue is drained.
    pub(super) drains: f64,
}

impl World {
    /// The world of a seed.
    pub fn new(seed: u64) -> World {
        let mut r = Random::stream(seed, 50);
        let mtu = PathMtu::ALL[r.below(5) as usize];
        let rtt = Duration::from_nanos([2_000, 10_000, 100_000, 2_000_000][r.below(4) as usize] + r.below(1000));
        // Near the wrap half of the time.
        let first_psn = r.chance(0.5).then(|| Psn::MAX.sub(r.below(300) as u32));
        let rate = [100_000_000, 1_000_000_000, 10_000_000_000, 400_000_000_000][r.below(4) as usize];
        let loss = [0.0, 0.001, 0.01, 0.03, 0.06][r.below(5) as usize];
        let network = draw_network(&mut Random::stream(seed, 53));
        // Beside loss, each of the others in some of the worlds; and some worlds without anything wrong.
        let mut others = Random::stream(seed, 52);
        let perfect = others.chance(0.15);
        let mut pick = || if others.chance(0.3) { [0.001, 0.01, 0.05][others.below(3) as usize] } else { 0.0 };
        let [loss, dup, corrupt, reorder] = [loss, pick(), pick(), pick()].map(|p| if perfect { 0.0 } else { p });
        // There is no check sequence of Ethernet in the simulator: a damaged MAC address would be flooded between spines for ever.
        let last_hop = network.faulty_hop + 1 == network.between.hops();
        let corrupt = if last_hop || network.between != Between::LeafSpine { corrupt } else { 0.0 };
        let mut faults = vec![Fault::Loss(loss), Fault::Duplicate(dup), Fault::Corrupt(corrupt)];
        faults.push(Fault::Reorder { chance: reorder, behind: 1 + r.below(6) as u32 });
        let max_len = [1, 64, mtu.bytes() * 2 + 1, 20_000][r.below(4) as usize];
        // Not all in every world: a few things at a time meet each other more often.
        let (mut rc, uc) = (r.below(3) as usize, r.below(3) as usize * usize::from(r.chance(0.6)));
        let ud = if r.chance(0.4) { 2 + r.below(3) as usize } else { 0 };
        if uc + ud == 0 {
            rc = rc.max(1);
        }
        // Of streams of their own: worlds without them stay what they were.
        let sr = [0.0, 0.0, 0.7, 1.0][Random::stream(seed, 56).below(4) as usize];
        let (lowar, lowar_buffers, crowd) = draw_lowar(&mut Random::stream(seed, 58));
        if sr == 0.0 {
            rc = rc.max(crowd);
        }
        let sometimes = |r: &mut Random, p: f64| if r.chance(0.4) { p } else { 0.0 };
        // All that can be in front of an answer on the way.
        let queued = Duration::from_nanos(300 * 8_000_000_000_000 / rate) * (1 + (rc + uc + ud) as u32 / 2);
        let faults_until = rtt * (20 + r.below(2000) as u32);
        let depth = 1 + r.below(24) as u32;
        let messages = (1 + r.below(60) as u32).min(4 + 400_000 / max_len);
        // On slow links all retries would be over before an answer can come, on fast ones it may do without.
        let mut patience = if rate < 10_000_000_000 || r.chance(0.5) { queued } else { Duration::ZERO };
        // Of its own stream, as Selective Repeat below.
        let cc = [0.0, 0.0, 0.7, 1.0][Random::stream(seed, 62).below(4) as usize];
        let mut shape = Shape::default();
        if !perfect {
            let all = (2 * (rc + uc) + ud) as u64 * u64::from(messages) * (u64::from(max_len) * 2 + 1000);
            shape = draw_shape(&mut Random::stream(seed, 54), rate, rtt, all);
            let slow = shape.faults.iter().any(|f| matches!(f, Fault::Rate(_)));
            if cc > 0.0 && !slow {
                draw_marks(&mut Random::stream(seed, 60), &mut shape, rate, all);
            }
        }
        faults.extend(shape.faults);
        let mut faults = Spec { faults, ..Spec::default() };
        // Each hop but the first keeps a packet until all of it is there.
        let packet = Duration::from_nanos((u64::from(mtu.bytes()) + 200) * 8_000_000_000 / rate);
        patience += packet * 4 * (network.between.hops() as u32 - 1);
        patience += (faults.shape(Direction::Ab).longest() + shape.queued) * 2;
        if cc > 0.0 {
            patience += packet * SLOWEST as u32 * 2;
        }
        let timeout = timeout_code(rtt * 4 + patience);
        let mut downs = Random::stream(seed, 55);
        // It takes two or three of seven retries: that is too much where others need them.
        let down = !perfect && loss + corrupt + reorder < 0.03 && downs.chance(0.3);
        if down {
            let longest = ack_timeout(timeout).unwrap_or_default().as_nanos() as u64 * 2;
            let from = Duration::from_nanos(downs.below(faults_until.as_nanos() as u64 / 2));
            let lasts = Duration::from_nanos(1 + downs.below(longest));
            let every = downs.chance(0.3).then(|| lasts * 8 + Duration::from_nanos(downs.below(longest)));
            faults.faults.push(Fault::Down(Outage { from, lasts, every }));
        }
        World {
            seed,
            nics: draw_nics(&mut Random::stream(seed, 112)),
            mtu,
            rate,
            rtt,
            network,
            faults,
            faults_until,
            lossy: loss + corrupt + reorder > 0.0 || shape.loses || down,
            drops: shape.drops,
            duplicates: dup > 0.0,
            reorders: reorder > 0.0 || shape.reorders,
            depth,
            rc,
            uc,
            ud,
            sr,
            lowar,
            lowar_buffers,
            cc,
            credit: [0.0, 0.0, 0.7, 1.0][Random::stream(seed, 65).below(4) as usize],
            loopback: [0.0, 0.3, 1.0][r.below(3) as usize],
            shared: [0.0, 0.5, 1.0][r.below(3) as usize],
            by_limit: r.chance(0.5),
            by_event: [0.0, 0.5, 1.0][r.below(3) as usize],
            messages,
            max_len,
            first_psn,
            min_rnr_timer: 1 + r.below(12) as u8,
            max_rd_atomic: 1 + r.below(8) as u8,
            timeout,
            lazy_receiver: [0.0, 0.5, 0.95][r.below(3) as usize],
            lazy_poll: [0.0, 0.0, 0.5, 0.9][r.below(4) as usize],
            windows: if r.chance(0.5) { 1 + r.below(3) as usize } else { 0 },
            stale: sometimes(&mut r, 0.02),
            beyond: sometimes(&mut r, 0.004),
            drains: sometimes(&mut r, 0.01),
            lives: if r.chance(0.3) { 2 } else { 1 },
        }
    }

    /// Every message arrives, because no link and no program loses any.
    pub(super) fn is_perfect(&self) -> bool {
        !self.lossy && !self.duplicates && self.lazy_receiver == 0.0 && self.lazy_poll == 0.0
    }
}

/// What is between the hosts, and what addresses they have.
fn draw_network(r: &mut Random) -> Network {
    let between = [Between::Link, Between::Link, Between::Switch, Between::LeafSpine][r.below(4) as usize];
    let faulty_hop = r.below(between.hops() as u64) as usize;
    Network { between, ipv6: r.chance(0.4), faulty_hop }
}

/// How many NICs share the port of each host.
fn draw_nics(r: &mut Random) -> [usize; 2] {
    if r.chance(1.0 - SHARED_PORTS) {
        return [1, 1];
    }
    let (few, many) = (1 + r.below(3) as usize, 2 + r.below(3) as usize);
    if r.chance(0.5) { [few, many] } else { [many, few] }
}

/// How many offer LoWAR, and what they have for it: often too little for all. Sometimes many connections share it.
fn draw_lowar(r: &mut Random) -> (f64, Option<(u16, u32)>, usize) {
    let chance = [0.0, 0.8, 1.0, 1.0][r.below(4) as usize];
    let crowd = if chance > 0.0 && r.chance(0.4) { 3 + r.below(4) as usize } else { 0 };
    let short = if crowd > 0 { 0.8 } else { 0.3 };
    let few = r.chance(short).then(|| ([0, 2, 5, 20, 1024][r.below(5) as usize], 1 << r.below(5)));
    (chance, few, crowd)
}

/// What else is wrong with a link: bursts, delay and jitter, a bottleneck.
#[derive(Default)]
struct Shape {
    faults: Vec<Fault>,
    loses: bool,
    reorders: bool,
    /// A queue that can be full.
    drops: bool,
    /// How long the queue of a bottleneck without a limit may get.
    queued: Duration,
}

/// Draws it so that seven retries are enough, but where a queue can be full: bursts are short. `all` is how many bytes
/// the world sends if nothing is sent again.
fn draw_shape(r: &mut Random, rate: u64, rtt: Duration, all: u64) -> Shape {
    let mut shape = Shape::default();
    if r.chance(0.15) {
        let len = if r.chance(0.5) { BurstLen::Exactly(1 + r.below(3) as u32) } else { BurstLen::Mean(2.0) };
        let loss = if matches!(len, BurstLen::Exactly(_)) { 1.0 } else { 0.5 };
        shape.faults.push(Fault::Burst { enter: [0.001, 0.01][r.below(2) as usize], loss, len });
        shape.loses = true;
    }
    if r.chance(0.1) {
        shape.faults.push(Fault::Delay(rtt.mul_f64(r.below(300) as f64 / 100.0)));
    }
    if r.chance(0.15) {
        // From less than a packet to half a round trip.
        let most = [Duration::from_nanos(8_000_000_000_000 / rate), rtt / 2][r.below(2) as usize];
        shape.faults.push(Fault::Jitter(most.mul_f64(r.below(100) as f64 / 100.0)));
        (shape.loses, shape.reorders) = (true, true);
    }
    if r.chance(0.3) {
        let queue = [10_000, 30_000, 100_000][r.below(3) as usize];
        let slow = if r.chance(0.5) {
            shape.faults.push(Fault::Queue(queue));
            (shape.loses, shape.drops) = (true, true);
            rate / 10 * 8
        } else {
            rate / [2, 3, 10][r.below(3) as usize]
        };
        shape.queued = Duration::from_nanos((u128::from(all) * 8_000_000_000 / u128::from(slow)) as u64);
        shape.faults.push(Fault::Rate(slow));
        if r.chance(0.6) {
            shape.faults.push(Fault::Ecn(Red { min: queue / 10, max: queue / 2, chance: 0.1 }));
        }
    }
    shape
}

/// Worlds with congestion control have, more often than others, something for it to do: a bottleneck that marks and loses nothing.
fn draw_marks(r: &mut Random, shape: &mut Shape, rate: u64, all: u64) {
    if !r.chance(0.6) {
        return;
    }
    let slow = rate / (1 + r.below(4));
    let (min, max) = [(0, 1_000), (0, 20_000), (5_000, 200_000)][r.below(3) as usize];
    shape.queued = Duration::from_nanos((u128::from(all) * 8_000_000_000 / u128::from(slow)) as u64);
    shape.faults.push(Fault::Rate(slow));
    shape.faults.push(Fault::Ecn(Red { min, max, chance: [0.01, 0.3, 1.0][r.below(3) as usize] }));
}
