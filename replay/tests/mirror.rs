//! Captures of mirror ports, which record one direction later than the other: what is right is recognised, what was altered found.

mod common;

use std::collections::HashSet;
use std::net::IpAddr;
use std::time::Duration;

use common::{Altered, Frame, explain, load, play, simulate};
use softnic_pcaps::Timestamp;
use softnic_pcaps::decode::decode_ethernet;
use softnic_replay::Report;
use softnic_sim::{Op, Options as Sim};
use softnic_wire::opcode::{Kind, Service};

const OPS: [Op; 4] = [Op::Send, Op::Write, Op::Read, Op::Atomic];

fn source(frame: &Frame) -> Option<IpAddr> {
    decode_ethernet(&frame.data).ok().map(|d| d.src)
}

/// The capture as a mirror port takes it that records what one address sends so much later.
fn late(frames: &[Frame], from: IpAddr, nanos: i128) -> Vec<Frame> {
    let mut frames = frames.to_vec();
    for f in frames.iter_mut().filter(|f| source(f) == Some(from)) {
        f.time = Timestamp::from_nanos(f.time.nanos() + nanos);
    }
    frames.sort_by_key(|f| f.time.nanos());
    frames
}

/// A connection on a short link: answers leave 2 µs behind their requests, and the ACK timeout is far longer.
fn short_link(seed: u64) -> Sim {
    let op = OPS[seed as usize % OPS.len()];
    Sim {
        op,
        size: if op == Op::Atomic { 8 } else { [1, 1000, 5000, 20_000][seed as usize / 4 % 4] },
        count: 30,
        depth: [1, 4][seed as usize / 16 % 2],
        // Where READs of several queue pairs wait for each other, they are asked for again, and their MSNs are those of any time since.
        qps: if op == Op::Read { 1 } else { 1 + (seed / 5 % 3) as u32 },
        rtt: Duration::from_micros(4),
        faults: ["", "loss=0.02", "dup=0.02"][if op == Op::Read { 0 } else { seed as usize / 3 % 3 }].parse().unwrap(),
        seed,
        ..Sim::default()
    }
}

/// The first frame of a simulated run is a request.
fn requester(frames: &[Frame]) -> IpAddr {
    source(&frames[0]).unwrap()
}

/// What a report says is wrong, or cannot be told.
fn findings(r: &Report) -> (u8, usize, u64) {
    (r.exit_code(), r.undetermined.len(), r.counts().requests_not_captured)
}

#[test]
fn a_capture_whose_requests_were_recorded_late_is_like_any_other() {
    let mut moved = 0;
    for seed in 0..96 {
        let frames = simulate(&short_link(seed));
        let from = requester(&frames);
        let plain = play(&frames);
        assert_eq!((plain.exit_code(), plain.skews.len()), (0, 0), "seed {seed}: {}", explain(&plain));
        // Where a NAK makes a requester send again after 5 µs, 3 µs can still be told from that.
        let mut seen = HashSet::new();
        let is_again = |f: &Frame| f.packet().is_some_and(|p| !seen.insert((p.bth.dest_qp, p.bth.psn)));
        let again = frames.iter().filter(|f| f.is_request()).any(is_again);
        for nanos in [3_000, if again { 2_500 } else { 20_000 }] {
            let report = play(&late(&frames, from, nanos));
            assert_eq!(report.exit_code(), 0, "seed {seed}, {nanos} ns: {}", explain(&report));
            assert_eq!(report.packets, report.frames, "seed {seed}, {nanos} ns: all take part");
            for skew in &report.skews {
                assert_eq!(skew.from, from, "seed {seed}");
                assert!(i128::from(skew.nanos) < nanos && skew.nanos <= skew.bound, "seed {seed}: {skew:?}");
                assert!(skew.moved > 0, "seed {seed}: {skew:?}");
                moved += skew.moved;
            }
        }
    }
    assert!(moved > 5_000, "{moved} packets were moved");
}

#[test]
fn a_capture_whose_answers_were_recorded_late_needs_no_skew() {
    for seed in 0..12 {
        let frames = simulate(&short_link(seed));
        let from = frames.iter().filter_map(source).find(|&a| a != requester(&frames)).unwrap();
        let report = play(&late(&frames, from, 3_000));
        assert_eq!((report.exit_code(), report.skews.len()), (0, 0), "seed {seed}: {}", explain(&report));
    }
}

#[test]
fn what_is_altered_in_a_capture_with_skew_is_found_as_without() {
    let mut altered = 0;
    for seed in 0..48 {
        let frames = simulate(&Sim { faults: "".parse().unwrap(), ..short_link(seed) });
        let from = requester(&frames);
        let mut copies = Altered::new(&frames);
        let ack = |f: &Frame| f.is(Kind::Acknowledge);
        copies.alter("the ACK of what was never sent", ack, |f| f.add_to_psn(5000));
        copies.alter("an ACK too early", ack, |f| f.add_to_psn(1));
        copies.alter("MSN", ack, |f| f.change(|bth| bth[14] ^= 1));
        copies.alter("value", |f| f.is(Kind::AtomicAcknowledge), |f| f.change(|bth| bth[20] ^= 1));
        copies.alter("READ PSN", |f| f.is(Kind::ReadResponse), |f| f.add_to_psn(5000));
        copies.alter("request PSN", Frame::is_request, |f| f.add_to_psn(-3));
        let gone = copies.middle(Frame::is_request);
        for (what, altered_frames) in copies.copies {
            let plain = play(&altered_frames);
            let report = play(&late(&altered_frames, from, 7_500));
            altered += 1;
            let open = what == "an ACK too early" || !plain.undetermined.is_empty();
            assert!(plain.exit_code() == 1 || open, "seed {seed}, {what}: {}", explain(&plain));
            let same = findings(&report) == findings(&plain);
            assert!(same || report.exit_code() == 1, "seed {seed}, {what}: {}", explain(&report));
        }
        // A request that is not there: what is known of it is the same.
        let Some(gone) = gone else { continue };
        let mut removed = frames.clone();
        removed.remove(gone);
        let (plain, skewed) = (play(&removed), play(&late(&removed, from, 7_500)));
        assert_eq!(findings(&skewed), findings(&plain), "seed {seed}: {}\n{}", explain(&skewed), explain(&plain));
        let seen = plain.counts().requests_not_captured > 0 || plain.exit_code() == 1 || !plain.undetermined.is_empty();
        assert!(seen, "seed {seed}: {}", explain(&plain));
    }
    assert!(altered > 100, "{altered} alterations");
}

#[test]
fn changed_data_in_a_capture_with_skew_is_found() {
    // Written, then read: what is read is known.
    let frames = load("rc_mixed_mtu1024_ipv6.pcap");
    let from = requester(&frames);
    let shifted = |frames: &[Frame]| late(frames, from, 60_000);
    assert_eq!(play(&shifted(&frames)).exit_code(), 0);
    for at in (0..frames.len()).filter(|&i| frames[i].is(Kind::ReadResponse)) {
        let payload = frames[at].packet().unwrap().payload;
        if payload.is_empty() {
            continue;
        }
        let mut altered = frames.clone();
        altered[at].data[payload.start] ^= 0x40;
        common::sign(&mut altered[at].data);
        let report = play(&shifted(&altered));
        assert_eq!(report.exit_code(), 1, "packet {}: {}", at + 1, explain(&report));
    }
}

#[test]
fn a_direction_that_was_recorded_later_than_a_mirror_port_can_is_wrong() {
    for seed in 0..16 {
        let frames = simulate(&Sim { count: 1000, faults: "".parse().unwrap(), ..short_link(seed) });
        let report = play(&late(&frames, requester(&frames), 150_000));
        assert_eq!(report.exit_code(), 1, "seed {seed}: {}", explain(&report));
        assert!(report.skews.is_empty(), "seed {seed}: {:?}", report.skews);
    }
}

#[test]
fn the_skew_is_well_below_the_time_after_which_a_request_is_sent_again() {
    // The ACK timeout of the simulated requester is 33 µs: what comes again after that may have been answered before.
    let mut bounds = Vec::new();
    for seed in 0..40 {
        let op = [Op::Send, Op::Write][seed as usize % 2];
        let faults = "ba.loss=0.05".parse().unwrap();
        let frames = simulate(&Sim { op, faults, timeout: Some(3), depth: 1, qps: 1, ..short_link(seed) });
        for (nanos, code) in [(10_000, 0), (60_000, 1)] {
            let report = play(&late(&frames, requester(&frames), nanos));
            let again = play(&frames).counts().timeouts > 0;
            assert!(!again || report.exit_code() == code, "seed {seed}, {nanos} ns: {}", explain(&report));
            bounds.extend(report.skews.iter().map(|s| s.bound));
        }
    }
    assert!(bounds.iter().any(|&b| b < 50_000), "{bounds:?}");
}

#[test]
fn one_answer_before_its_request_is_no_skew() {
    let frames =
        simulate(&Sim { op: Op::Send, size: 20_000, depth: 1, qps: 1, faults: "".parse().unwrap(), ..short_link(0) });
    let acks: Vec<usize> = (0..frames.len()).filter(|&i| frames[i].is(Kind::Acknowledge)).collect();
    let at = acks[acks.len() / 2];
    // Before all packets of its message.
    let before = acks[acks.len() / 2 - 1] + 1;
    let mut altered = frames.clone();
    let ack = altered.remove(at);
    altered.insert(before, Frame { time: altered[before].time, ..ack });
    let report = play(&altered);
    assert_eq!((report.exit_code(), report.skews.len()), (1, 0), "{}", explain(&report));
}

#[test]
fn connections_with_extensions_have_a_skew_too() {
    let mut moved = 0;
    for seed in 0..24 {
        let transport = ["sr", "lowar"][seed as usize / 4 % 2].parse().unwrap();
        let sim = Sim { transport, count: 300, faults: "".parse().unwrap(), depth: 1, qps: 1, ..short_link(seed) };
        let frames = simulate(&sim);
        let is_data = |f: &&Frame| f.is_request() && f.packet().is_some_and(|p| p.bth.opcode.service() != Service::Ud);
        let from = frames.iter().find(is_data).and_then(source).unwrap();
        let report = play(&late(&frames, from, 5_000));
        assert_eq!(report.exit_code(), 0, "seed {seed}: {}", explain(&report));
        moved += report.skews.iter().map(|s| s.moved).sum::<u64>();
        let beyond = play(&late(&frames, from, 150_000));
        assert!(beyond.exit_code() != 0 && beyond.skews.is_empty(), "seed {seed}: {}", explain(&beyond));
    }
    assert!(moved > 300, "{moved} packets were moved");
}

#[test]
fn answers_to_requests_that_a_capture_ended_before_are_undetermined() {
    let mut ended = 0;
    for seed in [0, 1, 16, 17] {
        let sim = Sim { size: 1000, depth: 4, qps: 1, faults: "".parse().unwrap(), ..short_link(seed) };
        let frames = simulate(&sim);
        let mirrored = late(&frames, requester(&frames), 7_500);
        for len in mirrored.len() / 2..mirrored.len() / 2 + 8 {
            let cut = &mirrored[..len];
            let report = play(cut);
            assert_eq!(report.exit_code(), 0, "seed {seed}, {len} frames: {}", explain(&report));
            ended += report.undetermined.len();
            // One that counts no message more is no answer to a later one.
            let Some(u) = report.undetermined.last() else { continue };
            let mut altered = cut.to_vec();
            altered[u.packet as usize - 1].add_to_psn(500);
            assert_eq!(play(&altered).exit_code(), 1, "seed {seed}, {len} frames");
        }
    }
    assert!(ended > 8, "{ended} answers");
}
