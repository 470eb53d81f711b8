//! Groups in networks: one packet on the sender's link for all receivers, over one level of switches and over several.

use softnic_sim::topology::{GroupReport, Hooks, Topology, TopologyReport, run};

fn topology(text: &str) -> Topology {
    text.parse().unwrap_or_else(|e| panic!("{e} in\n{text}"))
}

fn result(text: &str, seed: u64) -> TopologyReport {
    run(&topology(text), seed, Hooks::default()).unwrap_or_else(|e| panic!("{e} in\n{text}"))
}

fn names(hosts: &[usize]) -> String {
    hosts.iter().map(|h| format!("\"h{h}\"")).collect::<Vec<_>>().join(", ")
}

fn group(from: usize, to: &[usize], keys: &str) -> String {
    format!("[[group]]\nfrom = \"h{from}\"\nto = [{}]\n{keys}\n", names(to))
}

fn fan_out(from: usize, to: &[usize], keys: &str) -> String {
    to.iter().map(|to| format!("[[flow]]\nfrom = \"h{from}\"\nto = \"h{to}\"\n{keys}\n")).collect()
}

const STAR: &str = "kind = \"star\"\nhosts = 8\nqueue = \"4M\"\n";
const DUMBBELL: &str = "kind = \"dumbbell\"\nhosts = 7\nqueue = \"4M\"\n";
const LEAF_SPINE: &str = "kind = \"leaf-spine\"\nleaves = 4\nspines = 3\nhosts = 3\nqueue = \"4M\"\n";
/// Where receivers are: on the sender's own switch, behind another one, and everywhere.
const NETWORKS: [(&str, &str, [usize; 7]); 3] = [
    ("one level", STAR, [1, 2, 3, 4, 5, 6, 7]),
    ("two levels", DUMBBELL, [7, 8, 9, 10, 11, 12, 13]),
    ("three levels", LEAF_SPINE, [3, 1, 6, 4, 9, 7, 10]),
];

fn copies_at<'a>(group: &'a GroupReport, switch: &str) -> Option<&'a (String, u64, u64)> {
    group.switches.iter().find(|(name, ..)| name == switch)
}

#[test]
fn a_group_of_n_receivers_uses_an_nth_of_fan_outs_bytes_on_the_senders_link_to_the_frame() {
    for (levels, net, hosts) in NETWORKS {
        for n in [2, 3, 7] {
            for (op, size) in [("write", 100_000), ("send", 3000), ("write", 0), ("send", 1024)] {
                for payload in ["real", "none"] {
                    let to = &hosts[..n];
                    let keys = format!("op = \"{op}\"\nsize = {size}\ncount = 20\ndepth = 2");
                    let net = format!("{net}payload = \"{payload}\"\n");
                    let one = result(&[&net, group(0, to, &keys).as_str()].concat(), 1);
                    let many = result(&[&net, fan_out(0, to, &keys).as_str()].concat(), 1);
                    assert_eq!((one.retransmitted_packets, many.retransmitted_packets), (0, 0), "{levels}");
                    assert_eq!(one.groups[0].work.completed, 20, "{levels}");
                    assert!(many.flows.iter().all(|f| f.completed == 20), "{levels}");
                    let [one_link, many_link] = [&one, &many].map(|r| (r.hosts[0].frames, r.hosts[0].wire_bytes));
                    let n = n as u64;
                    assert_eq!((one_link.0 * n, one_link.1 * n), many_link, "{levels}, {n} receivers, {op} of {size}");
                    let packets = 20 * u64::from((size as u32).div_ceil(1024).max(1));
                    assert_eq!(one_link.0, packets, "nothing but the packets themselves");
                    for member in &one.groups[0].members {
                        assert_eq!((member.bytes, member.behind), (20 * size, 0), "{levels}: {}", member.host);
                    }
                }
            }
        }
    }
}

#[test]
fn packets_part_as_late_as_they_can_and_acknowledgements_meet_at_the_senders_own_switch() {
    let keys = "size = 10240\ncount = 10";
    let dumbbell = &result(&[DUMBBELL, &group(0, &[1, 7, 8, 9], keys)].concat(), 1).groups[0];
    assert_eq!((dumbbell.merged_at.as_str(), dumbbell.counters.packets_in), ("s0", 100));
    assert_eq!(copies_at(dumbbell, "s0"), Some(&("s0".into(), 100, 200)), "one to h1, one to s1");
    assert_eq!(copies_at(dumbbell, "s1"), Some(&("s1".into(), 100, 300)));
    // Two hosts on each of two leaves: one copy up, two down, two on each leaf.
    let clos = &result(&[LEAF_SPINE, &group(0, &[3, 4, 6, 7], keys)].concat(), 1).groups[0];
    assert_eq!(copies_at(clos, "leaf0"), Some(&("leaf0".into(), 100, 100)));
    let spines: Vec<u64> = ["spine0", "spine1", "spine2"].iter().map(|s| copies_at(clos, s).unwrap().2).collect();
    assert_eq!(spines.iter().sum::<u64>(), 200, "{spines:?}");
    assert_eq!(spines.iter().filter(|n| **n > 0).count(), 1, "a flow takes one of the spines: {spines:?}");
    assert_eq!(["leaf1", "leaf2"].map(|s| copies_at(clos, s).unwrap().2), [200, 200]);
    assert_eq!(copies_at(clos, "leaf3"), None);
}

#[test]
fn where_a_switch_cannot_copy_packets_part_earlier() {
    let keys = "size = 10240\ncount = 10";
    let to = [3, 4, 6, 7];
    let copies = |net: &str| {
        let r = result(&[LEAF_SPINE, net, &group(0, &to, keys)].concat(), 1);
        assert!(r.groups[0].members.iter().all(|m| m.bytes == 102_400), "{net}");
        let switches = r.groups[0].switches.iter().filter(|(_, _, copies)| *copies > 0);
        switches.map(|(name, _, copies)| (name.clone(), *copies)).collect::<Vec<_>>()
    };
    let of = |list: &[(&str, u64)]| list.iter().map(|(name, n)| (name.to_string(), *n)).collect::<Vec<_>>();
    assert_eq!(copies("programmable = \"tor\"\n"), of(&[("leaf0", 200), ("leaf1", 200), ("leaf2", 200)]));
    let one_leaf = "[[switch]]\nname = \"leaf1\"\nprogrammable = false\n";
    let with_one = copies(one_leaf);
    let spines: u64 = with_one.iter().filter(|(name, _)| name.starts_with("spine")).map(|(_, n)| n).sum();
    assert_eq!((spines, with_one.len()), (300, 3), "two for leaf1, one for leaf2: {with_one:?}");
    let only_own = ["leaf1", "leaf2"].map(|s| format!("[[switch]]\nname = \"{s}\"\nprogrammable = false\n")).concat();
    assert_eq!(copies(&format!("programmable = \"tor\"\n{only_own}")), of(&[("leaf0", 400)]), "fan-out by the switch");
}

#[test]
fn a_switch_further_on_merges_where_the_senders_own_cannot() {
    let own = "[[switch]]\nname = \"s0\"\nprogrammable = false\n";
    let r = result(&[DUMBBELL, own, &group(0, &[7, 8], "size = 5000\ncount = 5")].concat(), 1);
    assert_eq!((r.groups[0].merged_at.as_str(), r.groups[0].work.completed), ("s1", 5));
    let beside = [DUMBBELL, own, &group(0, &[7, 1], "")].concat().parse::<Topology>().unwrap_err();
    assert_eq!(
        beside.to_string(),
        "group 1: to: packets part at s0, which is not programmable, before any switch that is"
    );
}

#[test]
fn losses_on_every_link_change_nothing_but_the_time() {
    for (levels, net, hosts) in NETWORKS {
        for (op, size) in [("write", 20_000), ("send", 5000)] {
            let keys = format!("op = \"{op}\"\nsize = {size}\ncount = 30\ndepth = 3");
            // A damaged MAC address is flooded, and must not go round where links form a circle.
            let lossy = format!("{net}fault = \"loss=0.01,dup=0.01,reorder=0.01:3,corrupt=0.005\"\n");
            for payload in ["real", "none"] {
                let net = format!("{lossy}payload = \"{payload}\"\n");
                let both = [group(0, &hosts[..3], &keys), group(hosts[0], &[0, hosts[5]], &keys)].concat();
                let r = result(&[net, both].concat(), 5);
                for g in &r.groups {
                    assert_eq!((g.work.completed, g.work.failed), (30, 0), "{levels}, {op}");
                    assert!(g.members.iter().all(|m| m.bytes == 30 * size), "{levels}, {op}: {:?}", g.members);
                    assert!(g.counters.naks > 0 && g.counters.acks_out <= g.counters.acks_in, "{:?}", g.counters);
                }
                assert!(r.retransmitted_packets > 0, "{levels}");
            }
        }
    }
}

#[test]
fn groups_and_flows_share_a_network_and_groups_obey_congestion_control() {
    let keys = "size = \"64K\"\ncount = 50\ndepth = 4";
    let ecn = "ecn = \"20K:80K:0.2\"\n";
    let text = [
        LEAF_SPINE,
        ecn,
        &group(0, &[3, 6, 9], &format!("{keys}\ncc = \"dcqcn\"")),
        &group(1, &[3, 4], keys),
        &fan_out(2, &[3], keys),
    ];
    let r = result(&text.concat(), 1);
    assert!(r.groups.iter().all(|g| g.work.completed == 50) && r.flows[0].completed == 50);
    assert!(r.groups[0].counters.cnps_out > 0 && r.cnps_handled > 0, "{:?}", r.groups[0].counters);
    assert_eq!(r.digest, result(&text.concat(), 1).digest);
}

#[test]
fn what_is_wrong_with_a_group_is_said_in_one_line_that_names_the_place() {
    for (text, line) in [
        (group(0, &[], ""), "group 1: to: a group has at least one receiver"),
        (group(0, &[1, 0], ""), "group 1: to: the sender h0 is among the receivers"),
        (group(0, &[1, 2, 1], ""), "group 1: to: 'h1' is there twice"),
        (group(0, &[1, 9], ""), "group 1: to: a host: h0 to h7"),
        (group(9, &[1, 2], ""), "group 1: from: a host: h0 to h7"),
        ("[[group]]\nfrom = \"h0\"\nto = \"h1\"".into(), "group 1: to: its receivers, e.g. [\"h1\", \"h2\"]"),
        ("[[group]]\nfrom = \"h0\"".into(), "group 1: to: its receivers"),
        (group(0, &[1], "op = \"read\""), "group 1: op: a group has no READs and no atomics"),
        (group(0, &[1], "transport = \"sr\""), "group 1: there is no key 'transport' here: from, to"),
        ("[group]\nfrom = \"h0\"".into(), "group: each begins with a line [[group]]"),
        (format!("programmable = 3\n{}", group(0, &[1], "")), "programmable: one of \"all\", \"tor\", \"none\""),
        (format!("programmable = \"none\"\n{}", group(0, &[1], "")), "group 1: to: packets part at s0"),
        (format!("[[switch]]\nname = \"s1\"\n{}", group(0, &[1], "")), "switch 1: name: a switch: s0 to s0"),
        (
            format!("[[switch]]\nname = \"s0\"\nprogrammable = \"no\"\n{}", group(0, &[1], "")),
            "switch 1: programmable: true or false",
        ),
    ] {
        let said = [STAR, &text].concat().parse::<Topology>().map(|_| ()).unwrap_err().to_string();
        assert!(said.starts_with(line) && said.lines().count() == 1, "{text}\n{said}");
    }
}
