//! Fat-trees, and several links between two switches.

use softnic_sim::topology::{Hooks, Topology, TopologyReport, run};

fn result(text: &str) -> TopologyReport {
    let topology: Topology = text.parse().unwrap_or_else(|e| panic!("{e} in\n{text}"));
    run(&topology, 1, Hooks::default()).expect("data as sent")
}

fn flow(from: usize, to: usize, keys: &str) -> String {
    format!("[[flow]]\nfrom = \"h{from}\"\nto = \"h{to}\"\n{keys}\n")
}

/// Frames that left the ports of switches whose names begin so, to those whose names begin so.
fn sent(r: &TopologyReport, from: &str, to: &str) -> Vec<u64> {
    let ports = r.ports.iter().filter(|p| p.switch.starts_with(from) && p.to.starts_with(to));
    ports.map(|p| p.stats.sent).collect()
}

#[test]
fn a_fat_tree_has_the_hosts_switches_and_links_that_its_ports_make() {
    for k in [2, 4, 6, 14] {
        let t: Topology = format!("kind = \"fat-tree\"\nk = {k}\n{}", flow(0, 1, "")).parse().unwrap();
        assert_eq!((t.hosts.len(), t.switches.len()), (k * k * k / 4, 5 * k * k / 4));
        assert_eq!(t.links.len(), 3 * k * k * k / 4, "as many on each of the three levels");
        for switch in &t.switches {
            let ports = t.links.iter().filter(|l| [l.a, l.b].iter().any(|end| t.name(*end) == switch)).count();
            assert_eq!(ports, k, "{switch}");
        }
    }
}

#[test]
fn all_hosts_of_a_fat_tree_reach_each_other_by_as_many_switches_as_they_are_apart() {
    for k in [2, 4] {
        let hosts = k * k * k / 4;
        let pairs = (0..hosts).flat_map(|a| (0..hosts).filter(move |b| *b != a).map(move |b| (a, b)));
        let flows: String = pairs.map(|(a, b)| flow(a, b, "size = 100")).collect();
        let r = result(&format!("kind = \"fat-tree\"\nk = {k}\nqueue = \"4M\"\n{flows}"));
        assert!(r.flows.iter().all(|f| (f.completed, f.failed) == (1, 0)), "{k}");
        assert_eq!((r.discarded, r.retransmitted_packets), (0, 0));
        let half = k / 2;
        let (of_pod, of_others) = (half * half, hosts - half * half);
        // A request and an acknowledgement of each flow, once by every level that it needs.
        let up: u64 = sent(&r, "edge", "agg").iter().sum();
        assert_eq!(up as usize, 2 * hosts * (of_pod - half + of_others));
        let over_the_top: u64 = sent(&r, "core", "agg").iter().sum();
        assert_eq!(over_the_top as usize, 2 * hosts * of_others);
    }
}

#[test]
fn a_fat_tree_spreads_flows_over_all_shortest_paths_and_reorders_none() {
    // Every host of a pod to every host of the next one, four times.
    let pairs = (0..16).flat_map(|a| (0..4).map(move |n| (a, (a / 4 * 4 + 4 + n) % 16)));
    let flows: String = pairs.flat_map(|(a, b)| vec![flow(a, b, "size = \"16K\"\ncount = 2\ndepth = 2"); 4]).collect();
    let r = result(&format!("kind = \"fat-tree\"\nk = 4\nqueue = \"4M\"\npayload = \"none\"\n{flows}"));
    assert_eq!((r.discarded, r.retransmitted_packets), (0, 0), "packets of a flow stay in order");
    for (from, to, ports) in [("edge", "agg", 16), ("agg", "core", 16), ("core", "agg", 16), ("agg", "edge", 16)] {
        let frames = sent(&r, from, to);
        assert_eq!(frames.len(), ports);
        let (least, most) = (frames.iter().min().unwrap(), frames.iter().max().unwrap());
        // 256 flows of 32 packets: 16 of them a port on average.
        assert!(*least > 0 && *most < 4 * frames.iter().sum::<u64>() / ports as u64, "{from} to {to}: {frames:?}");
    }
}

#[test]
fn a_group_in_a_fat_tree_is_copied_at_every_level() {
    let group = "[[group]]\nfrom = \"h0\"\nto = [\"h1\", \"h2\", \"h4\", \"h5\", \"h12\"]\nsize = 10240\ncount = 10\n";
    let net = "kind = \"fat-tree\"\nk = 4\n";
    let r = result(&[net, group].concat());
    let g = &r.groups[0];
    assert_eq!((g.work.completed, g.merged_at.as_str()), (10, "edge0"));
    assert!(g.members.iter().all(|m| m.bytes == 102_400), "{:?}", g.members);
    let copies = |level: &str| g.switches.iter().filter(|(s, ..)| s.starts_with(level)).map(|(_, _, n)| n).sum::<u64>();
    // h1 beside the sender, h2 in its pod, two on one edge of another pod, one in a third. Towards other pods any aggregation switch
    // leads, towards h2 as well: one copy goes up.
    assert_eq!((copies("edge"), copies("agg"), copies("core")), (400, 200, 200));
    let tor = result(&[net, "programmable = \"tor\"\n", group].concat());
    assert_eq!(tor.groups[0].work.completed, 10);
    let at_own = tor.groups[0].switches.iter().find(|(s, ..)| s == "edge0").map(|(_, _, copies)| *copies);
    assert_eq!(at_own, Some(400), "h1, h2, one for both on edge2, h12");
}

#[test]
fn parallel_links_share_flows_and_have_names() {
    let flows: String = (0..4).flat_map(|a| (4..8).map(move |b| flow(a, b, "size = \"16K\"\ncount = 4"))).collect();
    let net = "kind = \"dumbbell\"\nhosts = 4\nparallel = 3\nqueue = \"4M\"\n";
    let text = [net, &flows].concat();
    let t: Topology = text.parse().unwrap();
    assert_eq!(["s0-s1", "s0-s1#2", "s1-s0#3", "s0-s1#4"].map(|n| t.find_link(n)), [Some(8), Some(9), Some(10), None]);
    assert_eq!(t.link_name(9), "s0-s1#2");
    let r = result(&text);
    let over = sent(&r, "s0", "s1");
    assert_eq!((over.len(), over.iter().sum::<u64>()), (3, 16 * 64));
    assert!(over.iter().all(|n| *n > 0 && n % 64 == 0), "whole flows: {over:?}");
    assert_eq!((r.retransmitted_packets, r.discarded), (0, 0));
    let one = "[[link]]\nbetween = [\"leaf0\", \"spine1\"]\nparallel = 2\nrate = \"1Gbit\"\n";
    let clos = ["kind = \"leaf-spine\"\nleaves = 2\nspines = 2\nhosts = 1\n", one, &flow(0, 1, "")].concat();
    let t: Topology = clos.parse().unwrap();
    assert_eq!((t.links.len(), t.links.iter().filter(|l| l.rate == 1_000_000_000).count()), (7, 2));
    assert_eq!(result(&clos).flows[0].completed, 1);
}
