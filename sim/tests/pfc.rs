//! Priority-based flow control: nothing is lost however much is sent, with copies of groups as without, and priorities do not hold each
//! other up.

use softnic_fault_injector::random::Random;
use softnic_sim::topology::{Capture, Hooks, Topology, TopologyReport, run};

fn topology(text: &str) -> Topology {
    text.parse().unwrap_or_else(|e| panic!("{e} in\n{text}"))
}

fn result(text: &str) -> TopologyReport {
    run(&topology(text), 1, Hooks::default()).unwrap_or_else(|e| panic!("{e} in\n{text}"))
}

fn flow(from: usize, to: usize, keys: &str) -> String {
    format!("[[flow]]\nfrom = \"h{from}\"\nto = \"h{to}\"\n{keys}\n")
}

fn dropped(r: &TopologyReport) -> u64 {
    r.ports.iter().map(|p| p.stats.dropped).sum()
}

fn pauses(r: &TopologyReport) -> u64 {
    r.ports.iter().map(|p| p.pfc.pauses_sent).sum()
}

/// Fifteen hosts send to one.
fn incast(pfc: &str) -> String {
    let flows = (1..16).map(|from| flow(from, 0, "size = \"64K\"\ncount = 5\ndepth = 4"));
    format!("kind = \"star\"\nhosts = 16\npayload = \"none\"\n{pfc}\n{}", flows.collect::<String>())
}

#[test]
fn an_incast_loses_frames_without_flow_control_and_none_with_it() {
    let lossy = result(&incast("queue = \"100K\""));
    assert!(dropped(&lossy) > 100);
    let lossless = result(&incast("pfc = { xoff = \"10K\", xon = \"5K\" }"));
    assert_eq!((dropped(&lossless), lossless.retransmitted_packets), (0, 0));
    assert!(lossless.flows.iter().all(|f| f.completed == 5));
    assert!(pauses(&lossless) > 100 && lossless.virtual_ms < lossy.virtual_ms, "{}", pauses(&lossless));
    // The fifteen share the link evenly, and it is never idle.
    assert!((lossless.goodput_gbps / (10.0 * 1024.0 / 1106.0) - 1.0).abs() < 0.03, "{}", lossless.goodput_gbps);
}

#[test]
fn without_headroom_frames_are_lost() {
    let r = result(&incast("pfc = { xoff = \"10K\", xon = \"5K\", headroom = 0 }"));
    assert!(dropped(&r) > 0 && r.retransmitted_packets > 0);
    assert!(r.flows.iter().all(|f| (f.completed, f.failed) == (5, 0)), "and sent again");
}

#[test]
fn a_pause_holds_up_its_own_priority_alone() {
    let goodput = |other: u8| {
        let keys = |dscp: u8| format!("size = \"64K\"\ncount = 40\ndepth = 8\ndscp = {dscp}");
        // h1 sends to the crowded h0, and to h3, where nobody else sends to.
        let flows =
            [flow(1, 0, &keys(8)), flow(1, 3, &keys(other)), flow(2, 0, &keys(8)), flow(4, 0, &keys(8))].concat();
        let r = result(&format!("kind = \"star\"\nhosts = 5\npfc = {{ xoff = \"20K\", xon = \"10K\" }}\n{flows}"));
        assert_eq!((dropped(&r), r.retransmitted_packets), (0, 0));
        r.flows[1].goodput_gbps
    };
    let (same, apart) = (goodput(8), goodput(16));
    assert!(apart > 1.5 * same, "{apart} Gbit/s in a priority of its own, {same} behind the pauses of another");
}

#[test]
fn a_pause_that_lasts_longer_than_a_frame_can_say_is_told_again() {
    // A frame pauses for 3.4 ms at 10 Gbit/s; the slow receiver takes 50 ms.
    let slow = "[[link]]\nbetween = [\"s0\", \"h1\"]\nrate = \"100Mbit\"\n";
    let text = format!(
        "kind = \"star\"\nhosts = 2\npfc = {{ xoff = \"600K\", xon = \"10K\" }}\n{slow}{}",
        flow(0, 1, "size = \"1M\"\ncount = 2\ndepth = 2")
    );
    let r = result(&text);
    assert_eq!((dropped(&r), r.retransmitted_packets, r.flows[0].completed), (0, 0, 2));
    let said = r.ports.iter().find(|p| p.to == "h0").map(|p| p.pfc.pauses_sent);
    assert!(said > Some(10), "{said:?}");
}

/// A network and a load that are drawn: many to one, and groups in place of fan-out or beside it.
fn drawn(random: &mut Random, with_groups: bool) -> String {
    let mut pick = |of: &[&str]| of[random.next_u64() as usize % of.len()].to_string();
    let (kind, hosts) = [
        ("kind = \"star\"\nhosts = 8", 8),
        ("kind = \"dumbbell\"\nhosts = 4", 8),
        ("kind = \"dumbbell\"\nhosts = 4\nparallel = 2", 8),
        ("kind = \"leaf-spine\"\nleaves = 4\nspines = 2\nhosts = 3", 12),
        ("kind = \"fat-tree\"\nk = 4", 16),
    ][pick(&["0", "1", "2", "3", "4"]).parse::<usize>().unwrap()];
    let mut text = format!(
        "{kind}\npayload = \"none\"\nrate = \"{}\"\nbottleneck = \"{}\"\ndelay = \"{}\"\nmtu = {}\n",
        pick(&["10Gbit", "25Gbit", "100Gbit"]),
        pick(&["5Gbit", "10Gbit", "40Gbit"]),
        pick(&["0us", "1us", "20us"]),
        pick(&["256", "1024", "4096"]),
    );
    let (xoff, xon) = [("5K", "0"), ("20K", "20K"), ("200K", "100K")][pick(&["0", "1", "2"]).parse::<usize>().unwrap()];
    text += &format!("pfc = {{ xoff = \"{xoff}\", xon = \"{xon}\" }}\n");
    if pick(&["ecn", ""]) == "ecn" {
        text += "ecn = \"10K:50K:0.1\"\n";
    }
    let mut random = Random::stream(random.next_u64(), 1);
    let mut any = |n: usize| random.next_u64() as usize % n;
    let victim = any(hosts);
    for _ in 0..3 + any(8) {
        let from = (victim + 1 + any(hosts - 1)) % hosts;
        let keys = format!(
            "size = {}\ncount = {}\ndepth = {}\ndscp = {}\ncc = \"{}\"\nop = \"{}\"",
            1 + any(60_000),
            1 + any(20),
            1 + any(8),
            [0, 0, 26, 34][any(4)],
            ["none", "none", "dcqcn"][any(3)],
            ["write", "send"][any(2)],
        );
        let mut to: Vec<usize> = (0..hosts).filter(|h| *h != from && *h != victim && any(3) == 0).collect();
        to.insert(any(to.len() + 1), victim);
        if with_groups {
            let names: Vec<String> = to.iter().map(|h| format!("\"h{h}\"")).collect();
            text += &format!("[[group]]\nfrom = \"h{from}\"\nto = [{}]\n{keys}\n", names.join(", "));
        } else {
            text.extend(to.iter().map(|to| flow(from, *to, &keys)));
        }
    }
    text
}

#[test]
fn with_flow_control_no_frame_is_lost_at_any_load_and_copies_need_no_more_headroom_than_unicast() {
    let mut paused = [0, 0];
    for seed in 0..60 {
        for with_groups in [false, true] {
            let text = drawn(&mut Random::stream(seed, 7), with_groups);
            let r = result(&text);
            assert_eq!((dropped(&r), r.discarded, r.retransmitted_packets), (0, 0, 0), "seed {seed}:\n{text}");
            let done = r.flows.iter().chain(r.groups.iter().map(|g| &g.work));
            assert!(done.into_iter().all(|f| f.failed == 0) && !r.stalled, "seed {seed}:\n{text}");
            for (work, all) in topology(&text)
                .work()
                .map(|(work, _)| work.count)
                .zip(r.flows.iter().chain(r.groups.iter().map(|g| &g.work)).map(|f| f.completed))
            {
                assert_eq!(work, all, "seed {seed}:\n{text}");
            }
            paused[usize::from(with_groups)] += u64::from(pauses(&r) > 0);
        }
    }
    assert!(paused.iter().all(|n| *n > 20), "most loads are more than the links carry: {paused:?}");
}

#[test]
fn what_is_wrong_with_flow_control_is_said_in_one_line() {
    for (keys, line) in [
        ("pfc = true", "pfc: e.g. { xoff ="),
        ("pfc = {}", "pfc: xoff: it must be there"),
        ("pfc = { xoff = 0 }", "pfc: xoff: it must be there, and at least 1 byte"),
        ("pfc = { xoff = \"10K\", xon = \"11K\" }", "pfc: xon: at most xoff"),
        ("pfc = { xoff = \"10K\", headroom = \"a\" }", "pfc: headroom: 'a' is no size"),
        ("pfc = { xof = \"10K\" }", "pfc: there is no key 'xof' here: xoff, xon, headroom"),
        ("queue = \"1M\"\npfc = { xoff = \"10K\" }", "queue: with pfc nothing is dropped"),
    ] {
        let text = format!("kind = \"star\"\nhosts = 2\n{keys}\n{}", flow(0, 1, ""));
        let said = text.parse::<Topology>().map(|_| ()).unwrap_err().to_string();
        assert!(said.starts_with(line) && said.lines().count() == 1, "{said}");
    }
    let text = format!("kind = \"star\"\nhosts = 2\n{}", flow(0, 1, "dscp = 64"));
    assert_eq!(text.parse::<Topology>().unwrap_err().to_string(), "flow 1: dscp: a whole number from 0 to 63");
}

#[test]
fn pause_frames_are_in_captures_as_the_standard_has_them() {
    let topology = topology(&incast("pfc = { xoff = \"10K\", xon = \"5K\" }"));
    let mut out = Vec::new();
    let capture = Some(Capture { out: &mut out, link: topology.find_link("h3-s0") });
    let r = run(&topology, 1, Hooks { capture, ..Hooks::default() }).unwrap();
    let head = [1, 0x80, 0xc2, 0, 0, 1, 2, 1, 0, 0, 0, 0, 0x88, 0x08, 1, 1, 0, 1];
    let seen = out.windows(head.len()).filter(|bytes| *bytes == head).count() as u64;
    let sent = r.ports.iter().find(|p| p.to == "h3").map(|p| p.pfc.pauses_sent);
    assert!(seen > 1 && Some(seen) == sent, "{seen} of {sent:?}");
}
