//! A capture becomes a script, and the script plays what the capture shows: the second capture is the first one again.

use softnic_fault_injector::{Script, Spec};
use softnic_pcaps::Reader;
use softnic_pcaps::analysis::Analysis;
use softnic_pcaps::decode::Decoder;
use softnic_pcaps::faults::{At, Header, Observer, Options as Search, Report as Found};
use softnic_pcaps::summary::Summary;
use softnic_sim::topology::{Capture, Hooks, Topology};
use softnic_sim::{Op, Options, Report, run};
use softnic_wire::PathMtu;
use std::time::Duration;

/// A packet as it leaves: sender, opcode, PSN, and what follows the BTH.
type Packet = (String, String, u32, String);

/// What a run puts on the wire, and the faults that are found in that.
fn capture(options: &Options, at: Option<At>) -> (Report, Vec<Packet>, Found) {
    let mut file = Vec::new();
    let report = run(options, Some(&mut file), &mut |_| {}).expect("a run");
    let (packets, found) = find(&file, at);
    (report, packets, found)
}

/// Two hosts with two switches between them: what is on the link of one of the hosts, while the faults are between the switches.
fn capture_at(op: &str, place: &str, seed: u64, faults: &Spec, at: Option<At>) -> (Vec<Packet>, Found) {
    let text = format!(
        "kind = \"dumbbell\"\nhosts = 1\ndelay = \"40us\"\nmtu = 256\n[[flow]]\nfrom = \"h0\"\nto = \"h1\"\nop = \"{op}\"\n\
         size = \"{}\"\ncount = 12\ndepth = 12\n[[link]]\nbetween = [\"s0\", \"s1\"]\n",
        if op == "atomic" { 8 } else { 1280 }
    );
    let mut topology: Topology = text.parse().expect("a topology");
    let between = topology.find_link("s0-s1").expect("it");
    topology.links[between].faults = faults.clone();
    let mut file = Vec::new();
    let capture = Some(Capture { out: &mut file, link: topology.find_link(place) });
    softnic_sim::topology::run(&topology, seed, Hooks { capture, ..Hooks::default() }).expect("a run");
    find(&file, at)
}

fn find(file: &[u8], at: Option<At>) -> (Vec<Packet>, Found) {
    let mut reader = Reader::new(file).expect("a capture");
    let (mut decoder, mut summary, mut analysis) = (Decoder::default(), Summary::default(), Analysis::default());
    let mut observer = Observer::new(Search { at, most: 10_000, ..Search::default() });
    let mut packets = Vec::new();
    while let Some(f) = reader.next_frame().expect("a frame") {
        let Ok(packet) = decoder.decode_ethernet(f.data) else { continue };
        let order = summary.add(&packet, f.time.nanos(), f.original_len);
        let event = analysis.add(f.number, f.time, &packet, order);
        observer.add(f.number, f.time, f.data, &packet, event);
        let psn = packet.psn.expect("a PSN").value();
        packets.push((
            packet.src.to_string(),
            packet.opcode.expect("an opcode").to_string(),
            psn,
            format!("{:?}", packet.ext),
        ));
    }
    analysis.finish();
    (packets, observer.finish(&analysis))
}

fn with(options: &Options, faults: Spec) -> Options {
    Options { faults, ..options.clone() }
}

fn played(options: &Options, found: &Found) -> Options {
    let mut text = String::new();
    found.write_script(&Header::default(), &mut text).expect("a text");
    let script = if found.events.is_empty() {
        Script::default()
    } else {
        Script::parse(&text).unwrap_or_else(|e| panic!("{e} in\n{text}"))
    };
    with(options, Spec { script, ..Spec::default() })
}

fn options(op: Op, seed: u64) -> Options {
    Options {
        op,
        size: 5 * 256,
        count: 12,
        depth: 12,
        mtu: PathMtu::B256,
        rtt: Duration::from_micros(200),
        seed,
        ..Options::default()
    }
}

const SEEDS: std::ops::RangeInclusive<u64> = 1..=8;

#[test]
fn losses_in_captures_of_what_both_ends_send_are_found_whether_or_not_the_place_is_told() {
    for op in [Op::Write, Op::Send, Op::Read] {
        for spec in ["ab.loss=0.03", "ba.loss=0.03"] {
            for at in [None, Some(At::Senders)] {
                for seed in SEEDS {
                    let o = options(op, seed);
                    let (_, first, found) = capture(&with(&o, spec.parse().unwrap()), at);
                    let (_, second, again) = capture(&played(&o, &found), at);
                    assert_eq!(first, second, "{op:?}, {spec}, {at:?}, seed {seed}: {}", again.counts());
                }
            }
        }
    }
}

/// At the place where the capture was taken, the program's own losses are before it or behind it, which what is sent again tells. One of these
/// runs in eight may be played in another way: where a loss shows in nothing that came before the next one, any of several explanations fits.
#[test]
fn faults_between_two_switches_are_found_in_captures_at_either_host() {
    let requests = [("ab.loss=0.03", true, true), ("ab.dup=0.05", false, true), ("ab.corrupt=0.03", true, true)];
    let answers = [("ba.loss=0.03", false, true), ("ba.dup=0.05", false, true), ("ba.corrupt=0.03", true, true)];
    let mut faults = 0;
    for op in ["write", "send", "read", "atomic"] {
        // A place that sees too little is left out: a copy that is made behind it, an answer that is lost before it and repaired by a later one.
        for (spec, at_requester, at_responder) in requests.into_iter().chain(answers) {
            for place in [("h0-s0", at_requester), ("h1-s1", at_responder)].iter().filter(|(_, sees)| *sees) {
                let mut other = Vec::new();
                for seed in SEEDS {
                    let (first, found) = capture_at(op, place.0, seed, &spec.parse().unwrap(), None);
                    let (second, _) = capture_at(op, place.0, seed, &script_of(&found), None);
                    faults += found.events.len();
                    if first != second {
                        other.push(seed);
                    }
                }
                assert!(other.len() <= 1, "{op}, {spec}, seen at {}: played otherwise with seeds {other:?}", place.0);
            }
        }
    }
    assert!(faults > 100, "only {faults} faults were found in all");
}

fn script_of(found: &Found) -> Spec {
    played(&Options::default(), found).faults
}
