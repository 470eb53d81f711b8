//! The fuzz bodies on stable Rust: random bytes, valid frames damaged on purpose, and the kept corpus.

mod common;

use common::*;
use proptest::prelude::*;
use proptest::strategy::ValueTree;
use proptest::test_runner::TestRunner;
use softnic_wire::opcode::Service;
use softnic_wire::{Carrier, Layout, Opcode, failover, fuzz, icrc, mad, rewrite};

type Body = fn(&[u8]);
const BODIES: [(&str, Body); 8] = [
    ("frame", fuzz::frame),
    ("rewrite", rewrite::fuzz_rewrite),
    ("ext_headers", fuzz::ext_headers),
    ("grh", fuzz::grh),
    ("repair_header", fuzz::repair_header),
    ("segmentation", fuzz::segmentation),
    ("mad", mad::fuzz_mad),
    ("failover", failover::fuzz_failover),
];

/// Runs a body; when it panics the input is printed, so that it can be kept.
fn run(name: &str, body: Body, input: &[u8]) {
    if std::panic::catch_unwind(|| body(input)).is_err() {
        let hex: String = input.iter().map(|b| format!("{b:02x}")).collect();
        panic!("fuzz body {name} failed on {hex}");
    }
}

#[test]
fn random_bytes() {
    let mut s = Seeded(1);
    for (name, body) in BODIES {
        for _ in 0..5000 {
            let len = s.below(200);
            run(name, body, &noise(len, s.draw()));
        }
    }
}

/// Frames of every kind that the template can build.
fn valid_frames(n: usize) -> Vec<Vec<u8>> {
    let mut runner = TestRunner::deterministic();
    let strategy = any_case(200);
    (0..n).map(|_| strategy.new_tree(&mut runner).unwrap().current().frame()).collect()
}

/// Writes the ICRC that a damaged frame ought to have, so that what lies behind the check is reached too.
fn reseal(frame: &mut [u8]) {
    let Ok(l) = Layout::locate(frame) else { return };
    if l.check(frame.len()).is_err() {
        return;
    }
    let udp = (l.carrier.roce_version() == 2).then_some(l.udp - l.network);
    let crc = slow_icrc(&frame[l.network..l.end - icrc::LEN], udp, l.bth - l.network);
    frame[l.end - icrc::LEN..l.end].copy_from_slice(&crc);
    assert_eq!(icrc::verify_shared(frame, &l), Ok(()));
}

/// One kind of damage, drawn.
fn damage(frame: &mut Vec<u8>, other: &[u8], s: &mut Seeded) {
    let at = s.below(frame.len());
    match s.below(7) {
        0 => frame[at] ^= 1 << s.below(8),
        1 => frame[at] = s.draw() as u8,
        2 => frame.truncate(at.max(1)),
        3 => {
            frame.truncate(at);
            frame.extend(&other[s.below(other.len())..]);
        }
        4 => frame.insert(at, s.draw() as u8),
        // A length field, found by what it says: IP, UDP, GRH or whatever else lies there.
        5 => {
            let at = at.min(frame.len().saturating_sub(2));
            let near = (frame.len() as u16).wrapping_sub(s.below(64) as u16);
            frame[at..].iter_mut().zip(near.to_be_bytes()).for_each(|(b, v)| *b = v);
        }
        // A header byte: 12 … 63 hold all of them in most frames.
        _ => {
            let at = (12 + s.below(52)).min(frame.len() - 1);
            frame[at] = s.draw() as u8;
        }
    }
    if frame.is_empty() {
        frame.push(0);
    }
}

#[test]
fn damaged_frames() {
    let frames = valid_frames(400);
    for service in [Service::Rc, Service::Uc, Service::Ud, Service::Cnp, Service::Xrc, Service::Sr] {
        let of = |f: &Vec<u8>| Opcode(f[Layout::locate(f).unwrap().bth]).service() == service;
        assert!(frames.iter().any(of), "no frame of {service:?} is damaged");
    }
    let mut s = Seeded(2);
    for (i, good) in frames.iter().enumerate() {
        run("frame", fuzz::frame, good);
        for _ in 0..60 {
            let mut frame = good.clone();
            for _ in 0..=s.below(3) {
                damage(&mut frame, &frames[(i + 1) % frames.len()], &mut s);
            }
            run("frame", fuzz::frame, &frame);
            reseal(&mut frame);
            run("frame", fuzz::frame, &frame);
        }
    }
}

/// Any changes to frames of every kind, damaged or not.
#[test]
fn rewrites_of_damaged_frames() {
    let frames = valid_frames(400);
    let mut s = Seeded(6);
    for (i, good) in frames.iter().enumerate() {
        let v6 = Layout::locate(good).unwrap().carrier == Carrier::Ipv6;
        for round in 0..60 {
            let mut frame = good.clone();
            for _ in 0..s.below(3) {
                damage(&mut frame, &frames[(i + 1) % frames.len()], &mut s);
            }
            if round % 2 == 0 {
                reseal(&mut frame);
            }
            let mut input = noise(72, s.draw());
            // Addresses of the packet's version, mostly.
            if round % 8 != 0 {
                input[0] = input[0] & 0x7f | if v6 { 0x80 } else { 0 };
            }
            input.extend(frame);
            run("rewrite", rewrite::fuzz_rewrite, &input);
        }
    }
}

/// Every opcode with the bytes behind its BTH, each length that is too short and one that is not.
#[test]
fn headers_of_every_opcode_and_length() {
    let mut s = Seeded(5);
    for op in 0..=255 {
        for len in 0..=Opcode(op).headers_len() + 3 {
            run("ext_headers", fuzz::ext_headers, &[vec![op], noise(len, s.draw())].concat());
        }
    }
}

/// The IP and UDP lengths moved together, with a right ICRC: short packets whose headers do not fit.
#[test]
fn consistent_lengths_too_short_for_the_headers() {
    for mut frame in valid_frames(300) {
        let l = Layout::locate(&frame).unwrap();
        let ip_len = if frame[l.network] >> 4 == 4 { l.network + 2 } else { l.network + 4 };
        for cut in 1..=(l.end - l.bth).min(80) as u16 {
            let good = frame.clone();
            for at in [ip_len, l.udp + 4] {
                let v = u16::from_be_bytes([frame[at], frame[at + 1]]) - cut;
                frame[at..at + 2].copy_from_slice(&v.to_be_bytes());
            }
            reseal(&mut frame);
            run("frame", fuzz::frame, &frame);
            frame = good;
        }
    }
}

#[test]
fn the_forms_of_a_grh() {
    let mut s = Seeded(3);
    for frame in valid_frames(300) {
        let l = Layout::locate(&frame).unwrap();
        let mut b = softnic_wire::grh::Grh::of_frame(&frame, &l).unwrap();
        for _ in 0..30 {
            run("grh", fuzz::grh, &b);
            b[s.below(40)] ^= 1 << s.below(8);
        }
    }
}

/// Packets that mostly follow each other, so that long messages are reached too.
#[test]
fn packets_in_likely_orders() {
    let mut s = Seeded(4);
    let likely = [0x00, 0x01, 0x02, 0x04, 0x06, 0x07, 0x08, 0x0a, 0x0d, 0x0e, 0x0f, 0x10, 0x20, 0x27, 0xc0, 0xc7];
    for _ in 0..3000 {
        let mut input = noise(8, s.draw());
        for _ in 0..s.below(24) {
            let mut p = noise(8, s.draw());
            p[0] = likely[s.below(likely.len())];
            input.extend(p);
        }
        run("segmentation", fuzz::segmentation, &input);
    }
}

#[test]
fn the_kept_corpus() {
    for (name, body) in BODIES {
        let folder = format!("{}/../fuzz/corpus/{name}", env!("CARGO_MANIFEST_DIR"));
        for file in std::fs::read_dir(folder).unwrap() {
            run(name, body, &std::fs::read(file.unwrap().path()).unwrap());
        }
    }
}
