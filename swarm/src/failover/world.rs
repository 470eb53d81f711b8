//! Worlds of failover: what a seed decides.

use std::time::Duration;

use softnic_fault_injector::random::Random;
use softnic_nic::transports::Transport;
use softnic_nic::transports::lowar::Code;
use softnic_shift::Times;
use softnic_wire::PathMtu;

/// What a work request does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    Write,
    Read,
    Send,
    SendImm,
    WriteImm,
    FetchAdd,
    CompareSwap,
}

impl Kind {
    /// Whether the peer's program hears of it.
    pub(super) fn notifies(self) -> bool {
        matches!(self, Kind::Send | Kind::SendImm | Kind::WriteImm)
    }

    /// Whether it must never be carried out twice.
    pub(super) fn is_atomic(self) -> bool {
        matches!(self, Kind::FetchAdd | Kind::CompareSwap)
    }
}

/// A work request of a program.
#[derive(Debug, Clone, Copy)]
pub(super) struct Work {
    pub(super) kind: Kind,
    pub(super) len: usize,
    pub(super) signaled: bool,
    pub(super) inline: bool,
    pub(super) fence: bool,
}

/// A port goes down, or up again.
#[derive(Debug, Clone, Copy)]
pub(super) struct PortChange {
    pub(super) at: Duration,
    pub(super) host: usize,
    pub(super) backup: bool,
    pub(super) up: bool,
}

#[derive(Debug, Clone)]
pub(super) struct World {
    pub(super) seed: u64,
    pub(super) transport: Transport,
    pub(super) mtu: PathMtu,
    pub(super) delay: Duration,
    pub(super) timeout: u8,
    pub(super) retry: u8,
    pub(super) depth: u32,
    pub(super) receives: usize,
    pub(super) sig_all: bool,
    pub(super) faults: String,
    pub(super) backup_faults: String,
    pub(super) faulty_for: Duration,
    pub(super) ports: Vec<PortChange>,
    /// The backup fails, too: errors are allowed, and one end may never hear of those of the other.
    pub(super) backup_fails: bool,
    /// Programs have atomics: errors are allowed, and both ends hear of them.
    pub(super) atomics: bool,
    /// When programs begin to post receives.
    pub(super) receives_from: Duration,
    pub(super) times: Times,
    /// Of each connection, what each host does.
    pub(super) programs: Vec<[Vec<Work>; 2]>,
    /// The most time between two posts.
    pub(super) pause: Duration,
}

fn one_of<T: Clone>(r: &mut Random, of: &[T]) -> T {
    of[r.below(of.len() as u64) as usize].clone()
}

impl World {
    /// Whether a connection may end in errors.
    pub(super) fn may_fail(&self) -> bool {
        self.backup_fails || self.atomics
    }

    pub(super) fn new(seed: u64) -> World {
        let mut random = Random::stream(seed, 8600);
        let r = &mut random;
        let us = Duration::from_micros;
        let delay = us(one_of(r, &[2, 10, 50]));
        let mtu = one_of(r, &[PathMtu::B256, PathMtu::B1024]);
        let depth = one_of(r, &[2, 3, 8, 24]);
        let backup_fails = r.chance(0.15);
        let atomics = r.chance(0.15);
        let span = 1 + r.below(12);
        let faults = default_faults(r);
        let noise = one_of(r, &["", "", "loss=0.01", "dup=0.05", "corrupt=0.01", "jitter=20us", "reorder=0.05:3"]);
        let backup_faults = match backup_fails {
            true => format!("down={}us+{}us", 1000 + r.below(12_000), 500 + r.below(6000)),
            false => noise.to_owned(),
        };
        let connections = one_of(r, &[1, 1, 2, 3]);
        let programs = (0..connections).map(|_| [0, 1].map(|_| program(r, mtu, depth, atomics))).collect();
        World {
            seed,
            transport: transport(r),
            mtu,
            delay,
            timeout: one_of(r, &[6, 7, 8]),
            // With few of them a link that loses frames now and then fails by chance, on both sides.
            retry: if backup_fails { one_of(r, &[0, 1, 7]) } else { 7 },
            depth,
            receives: one_of(r, &[1, 2, 8, 16]),
            sig_all: r.chance(0.2),
            faults,
            backup_faults,
            faulty_for: Duration::from_millis(span + 4),
            ports: ports(r, delay, backup_fails),
            backup_fails,
            atomics,
            receives_from: us(if r.chance(0.2) { r.below(8000) } else { 0 }),
            times: Times {
                probe: us(one_of(r, &[200, 1000, 3000])),
                fence: us(one_of(r, &[100, 1000])),
                answer: Duration::from_millis(200),
            },
            programs,
            pause: us(one_of(r, &[0, 20, 200, 1000])),
        }
    }
}

fn transport(r: &mut Random) -> Transport {
    let blocks = one_of(r, &[(1, 1), (4, 1), (8, 2), (32, 4), (128, 1)]);
    match (r.below(8), Code::new(blocks.0, blocks.1)) {
        (0 | 1, _) => Transport::Sr { window: 1024 },
        (2, Some(code)) => Transport::Lowar(code),
        _ => Transport::Rc,
    }
}

/// How the link between the defaults fails.
fn default_faults(r: &mut Random) -> String {
    let (from, long) = (300 + r.below(4000), 200 + r.below(8000));
    let way = one_of(r, &["", "", "ab.", "ba."]);
    let noise = one_of(r, &["", "", ",loss=0.01", ",dup=0.05", ",corrupt=0.01", ",jitter=50us", ",reorder=0.05:3"]);
    match r.below(8) {
        0 => format!("{way}down={from}us+{long}us/{}us{noise}", from + long + 100 + r.below(4000)),
        1 => format!("ab.down={from}us+{long}us,ba.down={}us+{}us{noise}", 300 + r.below(4000), 200 + r.below(8000)),
        2 => format!("loss=0.{}", 3 + r.below(6)),
        // What was held comes when the connection is elsewhere, or back.
        3 => format!("{way}stall={from}us+{long}us{noise}"),
        4 => format!("{way}stall={from}us+{long}us/{}us{noise}", from + long + 100 + r.below(4000)),
        _ => format!("{way}down={from}us+{long}us{noise}"),
    }
}

/// Ports that go down and come back: those of the defaults, and of the backups where these fail. Now and then a second
/// failure follows within a round trip, at the same port or the peer's.
fn ports(r: &mut Random, delay: Duration, backup_fails: bool) -> Vec<PortChange> {
    let mut changes = Vec::new();
    let us = Duration::from_micros;
    for _ in 0..one_of(r, &[0, 0, 1, 2]) {
        let (at, host) = (us(300 + r.below(8000)), r.below(2) as usize);
        let soon = || Duration::from_nanos(1 + 2 * delay.as_nanos() as u64 / 5);
        let mut down = |at: Duration, host: usize, backup: bool, long: Duration| {
            changes.push(PortChange { at, host, backup, up: false });
            changes.push(PortChange { at: at + long, host, backup, up: true });
        };
        let long = us(100 + r.below(4000));
        let second = at + soon() * r.below(5) as u32;
        match r.below(6) {
            0 => {
                down(at, host, false, long);
                down(second, 1 - host, false, us(100 + r.below(4000)));
            }
            1 => {
                down(at, host, false, soon());
                down(at + soon() * 2, host, false, long);
            }
            2 if backup_fails => {
                down(at, host, false, long);
                down(second, r.below(2) as usize, true, us(100 + r.below(4000)));
            }
            _ => down(at, host, false, long),
        }
    }
    changes.sort_by_key(|change| change.at);
    changes
}

/// Data behind which a notification comes, again and again: as a receiver of NCCL's Simple protocol wants it (table 1, first row).
fn program(r: &mut Random, mtu: PathMtu, depth: u32, atomics: bool) -> Vec<Work> {
    let mtu = u64::from(mtu.bytes());
    let unsignaled = one_of(r, &[0.0, 0.5, 0.9]);
    let mut works: Vec<Work> = Vec::new();
    let mut silent = 0;
    for _ in 0..r.below(40) {
        let kind = match atomics && r.chance(0.1) {
            true => one_of(r, &[Kind::FetchAdd, Kind::CompareSwap]),
            false => one_of(r, &[Kind::Write, Kind::Write, Kind::Read, Kind::Send, Kind::SendImm, Kind::WriteImm]),
        };
        let len = match r.below(4) {
            0 => r.below(64),
            1 => mtu,
            2 => r.below(2 * mtu),
            _ => r.below(8 * mtu),
        } as usize;
        let len = if kind.is_atomic() { 8 } else { len };
        let inline = len <= 64 && kind != Kind::Read && !kind.is_atomic() && r.chance(0.3);
        let signaled = silent + 1 >= depth || !r.chance(unsignaled);
        silent = if signaled { 0 } else { silent + 1 };
        works.push(Work { kind, len, signaled, inline, fence: r.chance(0.1) });
    }
    if let Some(last) = works.last_mut() {
        last.signaled = true;
    }
    works
}
