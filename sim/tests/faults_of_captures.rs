//! A capture becomes a script, and the script plays what the capture shows: the second capture is the first one again.

use softnic_fault_injector::{Script, Spec};
use softnic_pcaps::analysis::Analysis;
use softnic_pcaps::decode::Decoder;
use softnic_pcaps::faults::{At, Header, Observer, Options as Search, Report as Found};
use softnic_pcaps::summary::Summary;
use softnic_pcaps::{PacketNumber, Reader};
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

fn show(packets: &[Packet]) -> Vec<String> {
    packets.iter().map(|(src, opcode, psn, ext)| format!("{src} {opcode} {psn} {ext}")).collect()
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

#[test]
fn explore() {
    for (op, name) in [(Op::Write, "write"), (Op::Send, "send"), (Op::Read, "read")] {
        for spec in ["ab.loss=0.03", "ba.loss=0.03", "loss=0.03", "ab.loss=0.1", "loss=0.1"] {
            for at in [None, Some(At::Senders)] {
                let (mut same, mut wrong) = (0, Vec::new());
                for seed in 1..=60 {
                    let o = options(op, seed);
                    let (_, first, found) = capture(&with(&o, spec.parse().unwrap()), at);
                    let (_, second, _) = capture(&played(&o, &found), at);
                    if first == second { same += 1 } else { wrong.push(seed) }
                }
                println!("{name} {spec} {at:?}: {same} of 60; wrong {wrong:?}");
            }
        }
    }
    let _ = (show(&[]), PacketNumber(1));
}

fn script_of(found: &Found) -> Spec {
    played(&Options::default(), found).faults
}

#[test]
fn explore_places() {
    let var = |name: &str| std::env::var(name).unwrap_or_default();
    let show_seed: u64 = var("SEED").parse().unwrap_or(0);
    for op in ["write", "send", "read", "atomic"] {
        for spec in [
            "ab.loss=0.03",
            "ba.loss=0.03",
            "loss=0.02",
            "ab.dup=0.05",
            "ba.dup=0.05",
            "ab.reorder=0.01:2",
            "ba.reorder=0.02:2",
            "ab.corrupt=0.03",
            "ba.corrupt=0.03",
        ] {
            for place in ["h0-s0", "h1-s1"] {
                if show_seed > 0 && (op != var("OP") || spec != var("SPEC") || place != var("PLACE")) {
                    continue;
                }
                let seeds = if show_seed > 0 { show_seed..=show_seed } else { 1..=60 };
                let (mut same, mut wrong, mut none) = (0, Vec::new(), 0);
                for seed in seeds {
                    let (first, found) = capture_at(op, place, seed, &spec.parse().unwrap(), None);
                    let (second, _) = capture_at(op, place, seed, &script_of(&found), None);
                    if found.events.is_empty() {
                        none += 1
                    }
                    if first == second {
                        same += 1
                    } else {
                        wrong.push(seed)
                    }
                    if show_seed > 0 {
                        let mut text = String::new();
                        found.write_script(&Header::default(), &mut text).unwrap();
                        println!("{text}");
                        for (i, line) in show(&first).iter().enumerate() {
                            println!("{} {line}", i + 1);
                        }
                        println!("=== second");
                        let same = first.iter().zip(&second).take_while(|(a, b)| a == b).count();
                        for (i, line) in show(&second).iter().enumerate().skip(same.saturating_sub(3)) {
                            println!("{} {line}", i + 1);
                        }
                    }
                }
                println!("{op} {spec} {place}: {same} of 60 ({none} none); wrong {wrong:?}");
            }
        }
    }
}

#[test]
fn look() {
    let var = |name: &str| std::env::var(name).unwrap_or_default();
    let op = match var("OP").as_str() {
        "read" => Op::Read,
        "send" => Op::Send,
        "atomic" => Op::Atomic,
        _ => Op::Write,
    };
    let o = options(op, var("SEED").parse().unwrap());
    let (_, first, found) = capture(&with(&o, var("SPEC").parse().unwrap()), None);
    let (_, second, again) = capture(&played(&o, &found), None);
    let mut text = String::new();
    found.write_script(&Header::default(), &mut text).unwrap();
    println!("{text}");
    for (i, line) in show(&first).iter().enumerate() {
        println!("{} {line}", i + 1);
    }
    println!("=== second");
    let same = first.iter().zip(&second).take_while(|(a, b)| a == b).count();
    for (i, line) in show(&second).iter().enumerate().skip(same.saturating_sub(3)) {
        println!("{} {line}", i + 1);
    }
    println!("{}", again.counts());
}
