//! Captures of simulated runs, with every fault there is: our own NIC must recognise itself, and what was altered.

mod common;

use std::time::Duration;

use common::{Altered, Frame, explain, play, simulate};
use softnic_sim::{Op, Options as Sim, Transport};
use softnic_wire::opcode::Kind;

const OPS: [Op; 4] = [Op::Send, Op::Write, Op::Read, Op::Atomic];
const FAULTS: [&str; 7] =
    ["", "loss=0.02", "ab.loss=0.05", "ba.loss=0.05", "reorder=0.02:3", "dup=0.02", "corrupt=0.02"];
/// Several at once, heavy ones, and packets that are all late by a random time.
const COMBINED: [&str; 13] = [
    "jitter=50us",
    "loss=0.02,reorder=0.02:3,dup=0.02",
    "ab.reorder=0.1:5",
    "ba.reorder=0.1:5",
    "ab.dup=0.1",
    "ba.dup=0.1",
    "ab.jitter=50us,loss=0.01",
    "ba.jitter=50us,loss=0.01",
    "loss=0.03,reorder=0.03:2,dup=0.03,corrupt=0.03",
    "loss=0.02,jitter=20us",
    "reorder=0.05:8,dup=0.05",
    "loss=0.1",
    "jitter=50us,dup=0.03,loss=0.03,reorder=0.03:3",
];

fn options(seed: u64) -> Sim {
    let op = OPS[seed as usize % OPS.len()];
    let size = [1, 1000, 5000, 20_000][seed as usize / 28 % 4];
    Sim {
        op,
        size: if matches!(op, Op::Atomic) { 8 } else { size },
        count: 30,
        depth: 4,
        qps: 1 + (seed / 5 % 3) as u32,
        rtt: Duration::from_micros(200),
        faults: FAULTS[seed as usize / 4 % FAULTS.len()].parse().unwrap(),
        seed,
        ..Sim::default()
    }
}

#[test]
fn our_own_captures_have_no_difference_whatever_went_wrong_on_the_way() {
    for seed in 0..168 {
        let report = play(&simulate(&options(seed)));
        assert_eq!(report.exit_code(), 0, "seed {seed}: {}", explain(&report));
        assert!(report.undetermined.is_empty(), "seed {seed}: {}", explain(&report));
        assert_eq!(report.packets, report.frames, "seed {seed}: all take part");
    }
}

#[test]
fn our_own_captures_have_no_difference_whatever_faults_come_together() {
    for (n, faults) in COMBINED.iter().enumerate() {
        for round in 0..72 {
            let seed = 1000 + n as u64 * 72 + round;
            let depth = [1, 1, 4, 16][round as usize / 4 % 4];
            let sim = Sim { faults: faults.parse().unwrap(), depth, ..options(seed) };
            let report = play(&simulate(&sim));
            assert_eq!(report.exit_code(), 0, "seed {seed}, {faults}, depth {depth}: {}", explain(&report));
        }
    }
}

#[test]
fn unreliable_services_are_compared_packet_by_packet() {
    for (seed, transport, op) in
        [(1, Transport::Uc, Op::Write), (2, Transport::Uc, Op::Send), (3, Transport::Ud, Op::Send)]
    {
        let size = if transport == Transport::Ud { 700 } else { 5000 };
        let frames = simulate(&Sim { transport, op, size, ..options(seed) });
        let report = play(&frames);
        assert_eq!(report.exit_code(), 0, "{}", explain(&report));
        assert_eq!(report.counts().requests_equal, frames.len() as u64);
    }
}

/// One byte of one packet in many runs; the ICRC made right.
#[test]
fn what_is_altered_in_our_own_captures_is_found() {
    let mut altered = 0;
    for seed in 0..56 {
        let frames = simulate(&options(seed));
        let mut copies = Altered::new(&frames);
        let (ack, value) = (|f: &Frame| f.is(Kind::Acknowledge), |f: &Frame| f.is(Kind::AtomicAcknowledge));
        copies.alter("ACK PSN", ack, |f| f.add_to_psn(1000));
        copies.alter("MSN", ack, |f| f.change(|bth| bth[14] ^= 1));
        copies.alter("atomic", value, |f| f.change(|bth| bth[20] ^= 1));
        copies.alter("MSN of an atomic", value, |f| f.change(|bth| bth[14] ^= 1));
        copies.alter("READ PSN", |f| f.is(Kind::ReadResponse), |f| f.add_to_psn(5000));
        copies.alter("request PSN", Frame::is_request, |f| f.add_to_psn(-3));
        for (what, frames) in copies.copies {
            altered += 1;
            let report = play(&frames);
            assert_eq!(report.exit_code(), 1, "seed {seed}, {what}: not found\n{}", explain(&report));
        }
    }
    assert!(altered > 100, "{altered} alterations");
}

#[test]
fn a_connection_whose_psns_wrap_is_like_any_other() {
    // The simulator draws first PSNs; all of a capture's are moved, so that they wrap in its middle.
    for seed in 0..8 {
        let mut frames = simulate(&Sim { qps: 1, ..options(seed) });
        let first = frames[0].packet().unwrap().bth.psn.value() as i32;
        frames.iter_mut().for_each(|f| f.add_to_psn(0xff_fff0 - first));
        let report = play(&frames);
        assert_eq!(report.exit_code(), 0, "seed {seed}: {}", explain(&report));
        assert!(report.undetermined.is_empty() && report.packets == frames.len() as u64);
    }
}
