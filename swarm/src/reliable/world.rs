//! What a seed draws of a world of reliable messages.

use std::time::Duration;

use softnic_fault_injector::Spec;
use softnic_fault_injector::random::Random;
use softnic_sdr::reliable::{Fallback, Family, Protection, ReliableAttr, Scheme};
use softnic_sdr::{QpAttr, Split};
use softnic_wire::PathMtu;

/// How a peer stops.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Stop {
    /// Its program ends the connection.
    Ends,
    /// It is gone, and its NIC takes what comes.
    Vanishes,
}

/// A world, as its seed says.
#[derive(Debug, Clone)]
pub(super) struct World {
    pub(super) seed: u64,
    pub(super) attr: ReliableAttr,
    pub(super) faults: Spec,
    /// Faults stop after this time.
    pub(super) faulty_for: Duration,
    pub(super) rtt: Duration,
    /// The lengths of the messages from each host.
    pub(super) lengths: [Vec<usize>; 2],
    /// Messages that a host has not over, at most.
    pub(super) window: usize,
    /// The host that stops when so many messages to it are over.
    pub(super) stops: Option<(usize, usize, Stop)>,
}

/// Packets of all messages of a host together, more or less.
const PACKETS: usize = 400;
/// Round trips that a message has. Faults last for much less.
const TIMEOUT: u32 = 5000;

pub(super) fn one_of<T: Copy>(r: &mut Random, of: &[T]) -> T {
    of[r.below(of.len() as u64) as usize]
}

fn scheme(r: &mut Random) -> Scheme {
    let family = match r.below(6) {
        0 => return Scheme::Sr,
        1 => return Scheme::Nack,
        2..5 => Family::Mds,
        _ => Family::Xor,
    };
    let k = one_of(r, &[1, 2, 3, 4, 8, 8, 32]) + r.below(4) as u8;
    let m = r.below(7) as u8;
    Scheme::Ec(Protection { family, k, m, interleave: one_of(r, &[1, 1, 1, 2, 3, 4]) })
}

/// Rows are drawn apart, so that all else of a seed is as it was before there were any.
fn fallback(r: &mut Random, seed: u64, scheme: Scheme) -> Fallback {
    let by_chunks = if r.chance(0.2) { Fallback::Submessages } else { Fallback::Missing };
    match scheme {
        Scheme::Ec(p) if p.family == Family::Mds && Random::stream(seed, 8201).chance(0.5) => Fallback::Rows,
        _ => by_chunks,
    }
}

impl World {
    pub(super) fn new(seed: u64) -> World {
        let mut r = Random::stream(seed, 8200);
        let r = &mut r;
        let scheme = scheme(r);
        let mtu = one_of(r, &[PathMtu::B256, PathMtu::B1024]);
        let chunk = (1 + r.below(3)) as u32 * mtu.bytes();
        let (k, rows, least) = match scheme {
            Scheme::Sr | Scheme::Nack => (8, 0, 1),
            Scheme::Ec(p) => (u64::from(p.k), u64::from(p.m), 2 * u64::from(p.interleave)),
        };
        // As few numbers as there can be, or a few more.
        let slots = least + one_of(r, &[0, 0, 1, 2, 7, 30]);
        let bits = (u64::BITS - (slots - 1).leading_zeros()).max(1) as u8 + r.below(2) as u8;
        let user = one_of(r, &[0, 4]);
        let screened = r.chance(0.5);
        let qp = QpAttr {
            max_message: 1 << 20,
            chunk,
            split: Split::new(bits, 32 - bits - user, user).unwrap_or(Split::PAPER),
            slots: slots as u32,
            generations: 3 + r.below(3) as u8,
            channels: 1 + r.below(4) as u8,
            mtu,
            key_per_generation: !screened || r.chance(0.5),
            screened,
            send_depth: 4 + r.below(60) as u32,
            ..QpAttr::default()
        };
        let rtt = Duration::from_micros(one_of(r, &[200, 200, 1000]));
        let attr = ReliableAttr {
            qp,
            scheme,
            // What is known of the round trip in the beginning need not be right.
            rtt: rtt.mul_f64(one_of(r, &[0.5, 1.0, 1.0, 1.0, 4.0])),
            alpha: one_of(r, &[0.5, 2.0, 2.0]),
            acks_per_rtt: one_of(r, &[1, 4, 16]),
            reordering: one_of(r, &[1, 3, 8]),
            rate: r.chance(0.5).then_some(10_000_000_000),
            parity_pool: one_of(r, &[0, 1, 2, 64, 64]) * rows * u64::from(chunk),
            fallback: fallback(r, seed, scheme),
            clock: None,
            timeout: rtt * TIMEOUT,
        };
        let faults = ["", "loss=0.02", "loss=0.1", "loss=0.3", "dup=0.1", "corrupt=0.05", "burst=5e-3:0.9:~20"];
        let faults = match r.below(3) {
            0 => format!("loss=0.05,dup=0.05,jitter={}us", rtt.as_micros() / 4),
            _ => one_of(r, &faults).to_owned(),
        };
        let lengths = [0, 1].map(|_| lengths(r, k as usize, &qp));
        let stops = r.chance(0.15).then(|| {
            let host = r.below(2) as usize;
            let after = r.below(lengths[1 - host].len() as u64) as usize;
            (host, after, one_of(r, &[Stop::Ends, Stop::Vanishes]))
        });
        let (faulty_for, window) = (rtt * one_of(r, &[5, 40, 150]), 1 + r.below(6) as usize);
        World { seed, attr, faults: faults.parse().unwrap_or_default(), faulty_for, rtt, lengths, window, stops }
    }
}

/// Messages of no bytes, of one packet, of about a submessage, and of many.
fn lengths(r: &mut Random, k: usize, qp: &QpAttr) -> Vec<usize> {
    let (mtu, chunk) = (qp.mtu.bytes() as usize, qp.chunk as usize);
    let (mut lengths, mut left) = (Vec::new(), r.below((PACKETS * mtu) as u64) as usize);
    loop {
        let len = match r.below(6) {
            0 => 0,
            1 => 1 + r.below(mtu as u64) as usize,
            2 => mtu + r.below(2) as usize,
            3 => k * chunk - 1 + r.below(3) as usize,
            4 => k * chunk * (1 + r.below(4) as usize) + r.below(chunk as u64) as usize,
            _ => 1 + r.below((20 * chunk) as u64) as usize,
        };
        lengths.push(len);
        match left.checked_sub(len + 4 * mtu) {
            Some(less) => left = less,
            None => return lengths,
        }
    }
}
