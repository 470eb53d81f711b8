//! What a seed comes up with: the link and its faults, who talks to whom and how, and the habits of the programs.

use std::time::Duration;

use softnic_fault_injector::random::Random;
use softnic_fault_injector::{Fault, Spec};
use softnic_wire::{PathMtu, Psn};

/// The world of a seed.
#[derive(Debug, Clone)]
pub struct World {
    /// The seed.
    pub seed: u64,
    pub(super) mtu: PathMtu,
    pub(super) rate: u64,
    pub(super) rtt: Duration,
    pub(super) faults: Spec,
    /// Faults stop then.
    pub(super) faults_until: Duration,
    /// Something is lost, damaged or held back.
    pub(super) lossy: bool,
    pub(super) duplicates: bool,
    pub(super) reorders: bool,
    pub(super) depth: u32,
    /// Connections of each kind, and datagram queue pairs.
    pub(super) rc: usize,
    pub(super) uc: usize,
    pub(super) ud: usize,
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
    /// What the ACK timer allows for beside the round trip: on slow links all retries would be over before an answer can
    /// come, on fast ones it may do without.
    pub(super) patience: Duration,
    /// Receives are posted late with this chance at each look.
    pub(super) lazy_receiver: f64,
    /// Completion queues are not looked at with this chance.
    pub(super) lazy_poll: f64,
    /// Memory windows of each queue pair of a reliable connection.
    pub(super) windows: usize,
    /// The chance that a message uses a key that is good for nothing.
    pub(super) stale: f64,
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
        // Beside loss, each of the others in some of the worlds; and some worlds without anything wrong.
        let mut others = Random::stream(seed, 52);
        let perfect = others.chance(0.15);
        let mut pick = || if others.chance(0.3) { [0.001, 0.01, 0.05][others.below(3) as usize] } else { 0.0 };
        let [loss, dup, corrupt, reorder] = [loss, pick(), pick(), pick()].map(|p| if perfect { 0.0 } else { p });
        let mut faults = vec![Fault::Loss(loss), Fault::Duplicate(dup), Fault::Corrupt(corrupt)];
        faults.push(Fault::Reorder { chance: reorder, behind: 1 + r.below(6) as u32 });
        let max_len = [1, 64, mtu.bytes() * 2 + 1, 20_000][r.below(4) as usize];
        // Not all in every world: a few things at a time meet each other more often.
        let (mut rc, uc) = (r.below(3) as usize, r.below(3) as usize * usize::from(r.chance(0.6)));
        let ud = if r.chance(0.4) { 2 + r.below(3) as usize } else { 0 };
        if uc + ud == 0 {
            rc = rc.max(1);
        }
        let sometimes = |r: &mut Random, p: f64| if r.chance(0.4) { p } else { 0.0 };
        // All that can be in front of an answer on the way.
        let queued = Duration::from_nanos(300 * 8_000_000_000_000 / rate) * (1 + (rc + uc + ud) as u32 / 2);
        World {
            seed,
            mtu,
            rate,
            rtt,
            faults: Spec { faults, ..Spec::default() },
            faults_until: rtt * (20 + r.below(2000) as u32),
            lossy: loss + corrupt + reorder > 0.0,
            duplicates: dup > 0.0,
            reorders: reorder > 0.0,
            depth: 1 + r.below(24) as u32,
            rc,
            uc,
            ud,
            loopback: [0.0, 0.3, 1.0][r.below(3) as usize],
            shared: [0.0, 0.5, 1.0][r.below(3) as usize],
            by_limit: r.chance(0.5),
            by_event: [0.0, 0.5, 1.0][r.below(3) as usize],
            messages: (1 + r.below(60) as u32).min(4 + 400_000 / max_len),
            max_len,
            first_psn,
            min_rnr_timer: 1 + r.below(12) as u8,
            max_rd_atomic: 1 + r.below(8) as u8,
            patience: if rate < 10_000_000_000 || r.chance(0.5) { queued } else { Duration::ZERO },
            lazy_receiver: [0.0, 0.5, 0.95][r.below(3) as usize],
            lazy_poll: [0.0, 0.0, 0.5, 0.9][r.below(4) as usize],
            windows: if r.chance(0.5) { 1 + r.below(3) as usize } else { 0 },
            stale: sometimes(&mut r, 0.02),
            drains: sometimes(&mut r, 0.01),
        }
    }

    /// Every message arrives, because no link and no program loses any.
    pub(super) fn is_perfect(&self) -> bool {
        !self.lossy && !self.duplicates && self.lazy_receiver == 0.0 && self.lazy_poll == 0.0
    }
}
