//! Connections with Selective Repeat and with LoWAR: our own NIC recognises itself at both ends, and what was altered is found.

mod common;

use std::time::Duration;

use common::{Frame, explain, play, play_with, simulate};
use softnic_replay::{Options, Report, Skip};
use softnic_sim::{Op, Options as Sim};
use softnic_wire::opcode::{Kind, Service};
use softnic_wire::{Opcode, RocePacket};

const OPS: [Op; 4] = [Op::Send, Op::Write, Op::Read, Op::Atomic];
const FAULTS: [&str; 6] = ["", "loss=0.02", "ab.loss=0.05", "ba.loss=0.05", "reorder=0.02:3", "dup=0.02"];

fn options(transport: &str, seed: u64) -> Sim {
    let op = OPS[seed as usize % OPS.len()];
    Sim {
        transport: transport.parse().unwrap(),
        op,
        size: if op == Op::Atomic { 8 } else { [1, 1000, 5000, 40_000][seed as usize / 24 % 4] },
        count: 30,
        // Each place of the queue has its own memory: with few, atomics find what others left.
        depth: [1, 4, if op == Op::Atomic { 2 } else { 16 }][seed as usize / 5 % 3],
        qps: 1 + (seed / 7 % 2) as u32,
        rtt: Duration::from_micros(200),
        faults: FAULTS[seed as usize / 4 % FAULTS.len()].parse().unwrap(),
        seed,
        ..Sim::default()
    }
}

/// All but the MADs of the negotiation, and notices.
fn packets(frames: &[Frame]) -> u64 {
    let counts = |p: &RocePacket| p.bth.opcode.service() != Service::Ud;
    frames.iter().filter_map(Frame::packet).filter(counts).count() as u64
}

fn notices(report: &Report) -> u64 {
    report.skipped.get(&Skip::Lowar).copied().unwrap_or(0)
}

#[test]
fn connections_with_selective_repeat_have_no_difference_whatever_is_lost() {
    let (mut requests, mut answers) = (0, 0);
    for seed in 0..96 {
        let frames = simulate(&options("sr", seed));
        let report = play(&frames);
        assert_eq!(report.exit_code(), 0, "seed {seed}: {}", explain(&report));
        assert!(report.undetermined.is_empty(), "seed {seed}: {}", explain(&report));
        assert_eq!(report.packets, packets(&frames), "seed {seed}: all take part");
        requests += report.counts().requests_equal;
        answers += report.counts().answers_equal;
    }
    assert!(requests > 10_000 && answers > 5_000, "{requests} requests and {answers} answers");
}

#[test]
fn connections_with_lowar_have_no_difference_whatever_is_lost() {
    let (mut repairs, mut answers) = (0, 0);
    for seed in 0..96 {
        let frames = simulate(&options(["lowar", "lowar:8,2", "lowar:1,1"][seed as usize % 3], seed));
        let report = play(&frames);
        assert_eq!(report.exit_code(), 0, "seed {seed}: {}", explain(&report));
        assert_eq!(report.packets + notices(&report), packets(&frames), "seed {seed}: all take part");
        repairs += report.counts().repairs_equal;
        answers += report.counts().answers_equal;
    }
    assert!(repairs > 1_000 && answers > 2_000, "{repairs} repair packets and {answers} answers");
}

/// One byte of one packet in many runs; the ICRC made right.
fn alterations(frames: &[Frame], lowar: bool) -> Vec<(&'static str, Vec<Frame>)> {
    let middle = |wanted: &dyn Fn(&RocePacket) -> bool| {
        let all: Vec<usize> = (0..frames.len()).filter(|&i| frames[i].packet().is_some_and(|p| wanted(&p))).collect();
        (all.len() > 8).then(|| all[all.len() / 2])
    };
    let mut changed: Vec<(&str, Vec<Frame>)> = Vec::new();
    let mut change = |what, at: Option<usize>, f: &dyn Fn(&mut Frame)| {
        if let Some(at) = at {
            let mut copy = frames.to_vec();
            f(&mut copy[at]);
            changed.push((what, copy));
        }
    };
    let is = |kind: Kind| move |p: &RocePacket| p.bth.opcode.kind() == kind && p.bth.opcode.service() != Service::Ud;
    let ack = middle(&is(Kind::Acknowledge));
    change("ACK PSN +1000", ack, &|f| f.add_to_psn(1000));
    change("ACK PSN +1", ack.filter(|_| !lowar), &|f| f.add_to_psn(1));
    let aeth = if lowar { 12 } else { 20 };
    change("MSN", ack, &|f| f.change(|bth| bth[aeth + 2] ^= 1));
    if !lowar {
        change("number of the bitmap", ack, &|f| f.change(|bth| bth[15] ^= 1));
        let with_bits = |p: &RocePacket| p.bth.opcode == Opcode::SR_ACKNOWLEDGE && !p.payload.is_empty();
        change("bit of the bitmap", middle(&with_bits), &|f| f.change(|bth| bth[24] ^= 1));
        change("request of a response", middle(&is(Kind::ReadResponse)), &|f| f.change(|bth| bth[15] ^= 1));
        change("receive of a SEND", middle(&is(Kind::Send)), &|f| f.change(|bth| bth[15] ^= 1));
    }
    let value = middle(&is(Kind::AtomicAcknowledge));
    change("value", value, &|f| f.change(|bth| bth[if lowar { 16 } else { 20 } + 7] ^= 0x11));
    change("READ PSN", middle(&is(Kind::ReadResponse)), &|f| f.add_to_psn(5000));
    change(
        "address of a WRITE",
        middle(&|p: &RocePacket| {
            p.bth.opcode.kind() == Kind::Write && p.ext.reth.is_some() && !p.bth.opcode.begins_message()
        }),
        &|f| {
            f.change(|bth| bth[19] ^= 1);
        },
    );
    if lowar {
        let repair = middle(&is(Kind::Repair));
        change("bPSN", repair, &|f| f.add_to_psn(3));
        change("digest", repair, &|f| f.change(|bth| bth[20] ^= 1));
        change("N", repair, &|f| f.change(|bth| bth[17] ^= 0x40));
        change("sum", repair, &|f| f.change(|bth| bth[24 + 9] ^= 1));
    }
    changed
}

#[test]
fn what_is_altered_in_connections_with_selective_repeat_is_found() {
    let mut altered = 0;
    for seed in 0..48 {
        for (what, frames) in alterations(&simulate(&options("sr", seed)), false) {
            altered += 1;
            let report = play(&frames);
            assert_eq!(report.exit_code(), 1, "seed {seed}, {what}: not found\n{}", explain(&report));
        }
    }
    assert!(altered > 150, "{altered} alterations");
}

#[test]
fn what_is_altered_in_connections_with_lowar_is_found() {
    let mut altered = 0;
    for seed in 0..48 {
        for (what, frames) in alterations(&simulate(&options("lowar:8,2", seed)), true) {
            altered += 1;
            let report = play(&frames);
            assert_eq!(report.exit_code(), 1, "seed {seed}, {what}: not found\n{}", explain(&report));
        }
    }
    assert!(altered > 150, "{altered} alterations");
}

#[test]
fn what_a_capture_lacks_is_recovered_from_repair_packets() {
    let frames = simulate(&Sim { op: Op::Write, size: 40_000, ..options("lowar:8,2", 1) });
    let data: Vec<usize> =
        (0..frames.len()).filter(|&i| frames[i].packet().is_some_and(|p| p.bth.opcode.kind() == Kind::Write)).collect();
    for &at in data.iter().skip(3).step_by(97) {
        let mut lost = frames.clone();
        lost.remove(at);
        let report = play(&lost);
        assert_eq!((report.exit_code(), report.counts().recovered), (0, 1), "frame {at}: {}", explain(&report));
        assert_eq!(report.counts().requests_not_captured, 0, "frame {at}");
    }
}

#[test]
fn selective_repeat_without_its_negotiation_needs_to_be_told_that_it_begins() {
    let frames = simulate(&options("sr", 0));
    let is_mad = |f: &Frame| f.packet().is_some_and(|p| p.bth.opcode.service() == Service::Ud);
    let rest: Vec<Frame> = frames.iter().filter(|f| !is_mad(f)).cloned().collect();
    assert!(rest.len() < frames.len(), "the simulator negotiates");
    let untold = play(&rest);
    assert_eq!((untold.exit_code(), untold.skipped.get(&Skip::SelectiveRepeat)), (2, Some(&(rest.len() as u64))));
    let told = play_with(&rest, &Options { begins: true, ..Options::default() });
    assert_eq!((told.exit_code(), told.packets), (0, rest.len() as u64), "{}", explain(&told));
}

#[test]
fn a_request_of_selective_repeat_that_is_not_there_is_noticed() {
    let frames = simulate(&Sim { faults: "".parse().unwrap(), ..options("sr", 48) });
    let requests: Vec<usize> =
        (0..frames.len()).filter(|&i| frames[i].packet().is_some_and(|p| p.bth.opcode.kind() == Kind::Send)).collect();
    let mut lost = frames.clone();
    lost.remove(requests[requests.len() / 2]);
    let report = play(&lost);
    assert!(report.exit_code() == 1 || !report.undetermined.is_empty(), "{}", explain(&report));
    assert!(report.counts().requests_not_captured > 0, "{}", explain(&report));
}
