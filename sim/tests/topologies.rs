//! Networks of NICs and switches: what flows get of them, and what is said of a file that is wrong.

use softnic_sim::topology::{Hooks, PortReport, Topology, TopologyReport, run};

fn topology(text: &str) -> Topology {
    text.parse().unwrap_or_else(|e| panic!("{e} in\n{text}"))
}

fn result(text: &str, seed: u64) -> TopologyReport {
    run(&topology(text), seed, Hooks::default()).expect("data as sent")
}

fn flow(from: usize, to: usize, keys: &str) -> String {
    format!("[[flow]]\nfrom = \"h{from}\"\nto = \"h{to}\"\n{keys}\n")
}

fn port<'a>(r: &'a TopologyReport, switch: &str, to: &str) -> &'a PortReport {
    r.ports.iter().find(|p| p.switch == switch && p.to == to).expect("such a port")
}

fn dropped(r: &TopologyReport) -> u64 {
    r.ports.iter().map(|p| p.stats.dropped).sum()
}

pub(crate) const EXAMPLES: [(&str, &str); 6] = [
    ("best-effort", include_str!("../../docs/topologies/best-effort.toml")),
    ("dumbbell", include_str!("../../docs/topologies/dumbbell.toml")),
    ("star", include_str!("../../docs/topologies/star.toml")),
    ("leaf-spine", include_str!("../../docs/topologies/leaf-spine.toml")),
    ("fat-tree", include_str!("../../docs/topologies/fat-tree.toml")),
    ("groups", include_str!("../../docs/topologies/groups.toml")),
];

#[test]
fn every_example_completes_and_is_the_same_run_for_the_same_seed() {
    for (name, text) in EXAMPLES {
        let (a, b, c) = (result(text, 1), result(text, 1), result(text, 2));
        let done = a.flows.iter().chain(a.groups.iter().map(|group| &group.work));
        for (f, (flow, _)) in done.zip(topology(text).work()) {
            assert_eq!((f.completed, f.failed), (flow.count, 0), "{name}");
        }
        assert_eq!((a.digest, a.discarded, a.stalled), (b.digest, 0, false), "{name}");
        assert_ne!(a.digest, c.digest, "{name}");
    }
}

const DUMBBELL: &str = "kind = \"dumbbell\"\nhosts = 3\nrate = \"10Gbit\"\ndelay = \"5us\"\nqueue = \"1M\"\n";

#[test]
fn equal_windows_share_a_bottleneck_equally_and_use_all_of_it() {
    let keys = "size = \"64K\"\ncount = 300\ndepth = 4";
    let text = [DUMBBELL, "bottleneck = \"5Gbit\"\n", &flow(0, 3, keys), &flow(1, 4, keys)].concat();
    let r = result(&text, 1);
    let [a, b] = [0, 1].map(|i| r.flows[i].goodput_gbps);
    assert!((0.9..1.1).contains(&(a / b)), "{a} and {b}");
    let middle = port(&r, "s0", "s1");
    assert!(middle.utilization > 0.97 && middle.utilization <= 1.0, "{}", middle.utilization);
    assert_eq!((dropped(&r), r.retransmitted_packets), (0, 0), "512 KiB outstanding fit the queue");
    // 1024 bytes of payload in 1106 on the wire.
    assert!((r.goodput_gbps / (5.0 * 1024.0 / 1106.0) - 1.0).abs() < 0.03, "{}", r.goodput_gbps);
}

#[test]
fn a_flow_that_starts_later_gets_its_share_then_and_windows_weigh() {
    let long = flow(0, 3, "size = \"64K\"\ncount = 400\ndepth = 6");
    let late = flow(1, 4, "size = \"64K\"\ncount = 100\ndepth = 2\nstart = \"5ms\"");
    let r = result(&[DUMBBELL, &long, &late].concat(), 1);
    let ratio = r.flows[0].goodput_gbps / r.flows[1].goodput_gbps;
    assert!((2.5..5.0).contains(&ratio), "three times the window, and 5 ms alone: {ratio}");
    // Eight messages of 57 µs each are before the bottleneck at a time.
    assert!(r.flows[1].completion_times.max_ms() > 0.4, "{}", r.flows[1].completion_times.max_ms());
    assert!(r.flows[1].duration_ms <= r.virtual_ms - 5.0 + 1e-6);
}

#[test]
fn every_op_crosses_switches_and_its_data_is_checked() {
    for (op, size) in [("write", 5000), ("send", 3000), ("read", 9001), ("atomic", 8)] {
        let keys = format!("op = \"{op}\"\nsize = {size}\ncount = 100\ndepth = 4");
        for kind in KINDS {
            let lossy = [kind, "fault = \"loss=0.01\"\n", &flow(0, 3, &keys), &flow(2, 1, &keys)].concat();
            let r = result(&lossy, 3);
            assert!(r.flows.iter().all(|f| (f.completed, f.failed) == (100, 0)), "{op} in {kind}");
        }
    }
}

const KINDS: [&str; 3] =
    [DUMBBELL, "kind = \"star\"\nhosts = 4\n", "kind = \"leaf-spine\"\nleaves = 2\nspines = 3\nhosts = 3\n"];

#[test]
fn every_reliable_transport_delivers_everything_over_every_network_with_loss() {
    for transport in ["sr", "sr:64", "lowar:8,2"] {
        for (op, size) in [("write", 5000), ("send", 3000), ("read", 9001), ("atomic", 8)] {
            let keys = format!("transport = \"{transport}\"\nop = \"{op}\"\nsize = {size}\ncount = 100\ndepth = 4");
            for kind in KINDS {
                let flows = [flow(0, 3, &keys), flow(2, 1, &keys)].concat();
                let r = result(&[kind, "fault = \"loss=0.01\"\n", &flows].concat(), 3);
                assert!(r.flows.iter().all(|f| (f.completed, f.failed) == (100, 0)), "{op} of {transport} in {kind}");
            }
        }
    }
}

#[test]
fn transports_share_a_network_and_each_recovers_in_its_own_way() {
    let of = |from, to, transport: &str| {
        flow(from, to, &format!("transport = \"{transport}\"\nsize = \"16K\"\ncount = 200\ndepth = 2"))
    };
    let net = [DUMBBELL, "payload = \"none\"\nfault = \"loss=0.005\"\n"].concat();
    let lowar = result(&[&net, of(0, 3, "lowar:8,2").as_str()].concat(), 1);
    let rc = result(&[&net, of(0, 3, "rc").as_str()].concat(), 1);
    assert!(lowar.retransmitted_packets * 5 < rc.retransmitted_packets, "repair packets spare most of them");
    // Two repair packets behind each block of eight.
    assert!(lowar.tx_packets - lowar.retransmitted_packets >= 200 * 16 * 10 / 8, "{}", lowar.tx_packets);
    let all = result(&[net, of(0, 3, "lowar:8,2"), of(1, 4, "sr"), of(2, 5, "rc"), of(3, 0, "uc")].concat(), 1);
    assert_eq!(all.flows[..3].iter().map(|f| f.completed).collect::<Vec<_>>(), [200; 3]);
}

#[test]
fn of_what_nobody_acknowledges_the_receiver_counts_what_arrives() {
    for (transport, op, size) in [("uc", "write", 5000), ("uc", "send", 3000), ("ud", "send", 1024), ("ud", "send", 0)]
    {
        let keys = format!("transport = \"{transport}\"\nop = \"{op}\"\nsize = {size}\ncount = 300\ndepth = 4");
        for kind in KINDS {
            let flows = [flow(0, 3, &keys), flow(2, 1, &keys)].concat();
            let r = result(&[kind, &flows].concat(), 3);
            assert!(
                r.flows.iter().all(|f| (f.sent, f.completed, f.failed) == (300, 300, 0)),
                "{op} of {transport} in {kind}"
            );
            let lossy = result(&[kind, "fault = \"loss=0.02\"\n", &flows].concat(), 3);
            assert!(!lossy.stalled && lossy.retransmitted_packets == 0);
            for f in &lossy.flows {
                // A message of five packets over three or four links is lost once in three times or so.
                assert_eq!((f.sent, f.failed), (300, 0));
                assert!((100..300).contains(&f.completed), "{} of {op} of {transport} in {kind}", f.completed);
            }
        }
    }
}

#[test]
fn a_run_ends_although_nothing_that_was_sent_arrives() {
    let dead = flow(0, 1, "transport = \"ud\"\ncount = 10");
    let busy = flow(2, 3, "size = \"64K\"\ncount = 20\ncc = \"dcqcn\"");
    let link = "[[link]]\nbetween = [\"s0\", \"h1\"]\nfault = \"loss=1\"\n";
    let r = result(&["kind = \"star\"\nhosts = 4\n", link, &dead, &busy].concat(), 1);
    assert_eq!((r.flows[0].sent, r.flows[0].completed, r.flows[1].completed, r.stalled), (10, 0, 20, false));
    assert_eq!(r.flows[0].goodput_gbps, 0.0);
}

#[test]
fn an_incast_of_fifteen_completes_despite_drops() {
    let mut text = String::from("kind = \"star\"\nhosts = 16\nrate = \"10Gbit\"\ndelay = \"1us\"\nqueue = \"100K\"\n");
    for from in 1..16 {
        text += &flow(from, 0, "op = \"send\"\nsize = \"32K\"\ncount = 10\ndepth = 1");
    }
    let r = result(&text, 1);
    assert!(r.flows.iter().all(|f| (f.completed, f.failed) == (10, 0)));
    let hot = port(&r, "s0", "h0");
    assert!(hot.stats.dropped > 100 && r.retransmitted_packets >= hot.stats.dropped, "{:?}", hot.stats);
    assert_eq!(dropped(&r), hot.stats.dropped, "nowhere else");
    assert!(hot.stats.max_queue <= 100 << 10);
}

#[test]
fn marks_are_set_only_above_the_threshold_and_all_arrive() {
    let keys = "size = \"64K\"\ncount = 100\ndepth = 2";
    let net = |ecn: &str| [DUMBBELL, ecn, &flow(0, 3, keys), &flow(1, 4, keys)].concat();
    let marks = |r: &TopologyReport| r.ports.iter().map(|p| p.stats.marked).sum::<u64>();
    let plain = result(&net(""), 1);
    let most = port(&plain, "s0", "s1").stats.max_queue;
    let at = |bytes: u64| result(&net(&format!("ecn = \"{bytes}:{bytes}:0\"\n")), 1);
    let never = at(most);
    assert_eq!((marks(&never), marks(&plain), most > 50_000), (0, 0, true));
    let low = at(20_000);
    assert!(marks(&low) > 1000, "{}", marks(&low));
    assert_eq!(low.marks_received, marks(&low));
    assert_eq!(low.ports.iter().filter(|p| p.stats.marked > 0).count(), 1, "one queue only is ever that long");
}

#[test]
fn a_leaf_spine_spreads_flows_over_the_spines_and_reorders_none() {
    let mut text =
        String::from("kind = \"leaf-spine\"\nleaves = 2\nspines = 4\nhosts = 8\nqueue = \"4M\"\npayload = \"none\"\n");
    for i in 0..64 {
        text += &flow(i % 8, 8 + i / 8, "size = \"16K\"\ncount = 5\ndepth = 2");
    }
    let r = result(&text, 1);
    assert_eq!((r.retransmitted_packets, r.discarded), (0, 0), "packets of a flow stay in order");
    let up = [0, 1, 2, 3].map(|s| port(&r, "leaf0", &format!("spine{s}")).stats.sent);
    // 64 flows of 80 packets: 16 flows a spine, with a standard deviation of 3.5.
    assert_eq!(up.iter().sum::<u64>(), 64 * 5 * 16);
    assert!(up.iter().all(|n| (2 * 80..=30 * 80).contains(n) && n % 80 == 0), "whole flows: {up:?}");
    let within = result(&[&text[..text.find("[[").unwrap()], &flow(0, 1, "size = \"16K\"")].concat(), 1);
    assert!(within.ports.iter().filter(|p| p.switch != "leaf0").all(|p| p.stats.sent == 0), "a leaf keeps its own");
}

#[test]
fn faults_and_rates_of_one_link_are_for_that_link() {
    let keys = "size = \"64K\"\ncount = 50\ndepth = 2";
    let link = "[[link]]\nbetween = [\"s0\", \"h0\"]\nfault = \"ba.loss=0.01\"\nrate = \"1Gbit\"\n";
    let r = result(&[DUMBBELL, link, &flow(0, 3, keys), &flow(1, 4, keys)].concat(), 1);
    assert!(r.lost_before_switches > 0 && r.ports.iter().all(|p| p.lost == 0), "from h0 to s0 alone");
    assert!(r.flows[0].goodput_gbps < 1.0 && r.flows[1].goodput_gbps > 5.0);
}

#[test]
fn without_payload_it_is_the_same_but_for_the_bytes() {
    let (_, text) = EXAMPLES[2];
    let elided = result(&format!("payload = \"none\"\n{text}"), 1);
    let real = result(text, 1);
    assert_eq!(
        (elided.virtual_ms, elided.tx_packets, dropped(&elided)),
        (real.virtual_ms, real.tx_packets, dropped(&real))
    );
    assert!(dropped(&real) > 0);
}

#[test]
fn what_is_wrong_is_said_in_one_line_that_names_the_place() {
    let good = flow(0, 1, "");
    let star = "kind = \"star\"\nhosts = 4\n";
    for (text, line) in [
        (
            format!("hosts = 4\n{good}"),
            "kind: it must be there: \"dumbbell\", \"star\", \"leaf-spine\" or \"fat-tree\"",
        ),
        (format!("kind = \"ring\"\nhosts = 4\n{good}"), "kind: one of \"dumbbell\", \"star\", \"leaf-spine\""),
        (format!("kind = \"star\"\n{good}"), "hosts: it must be there"),
        (format!("kind = \"star\"\nhosts = 1\n{good}"), "hosts: a star has at least 2"),
        (format!("{star}spines = 2\n{good}"), "spines: only a leaf-spine has any"),
        (format!("{star}k = 4\n{good}"), "k: only a fat-tree has it"),
        (format!("kind = \"fat-tree\"\n{good}"), "k: it must be there"),
        (format!("kind = \"fat-tree\"\nk = 3\n{good}"), "k: an even number from 2 to 14"),
        (format!("kind = \"fat-tree\"\nk = 16\n{good}"), "k: a whole number from 1 to 14"),
        (format!("kind = \"fat-tree\"\nk = 4\nhosts = 3\n{good}"), "hosts: a fat-tree has k·k·k/4 of them"),
        (format!("{star}parallel = 2\n{good}"), "parallel: there is one switch"),
        (format!("{star}parallel = 0\n{good}"), "parallel: a whole number from 1 to 16"),
        (
            format!("{star}[[link]]\nbetween = [\"h0\", \"s0\"]\nparallel = 2\n{good}"),
            "link 1: parallel: a host has one link",
        ),
        (format!("{star}host = 2\n{good}"), "there is no key 'host' here: kind, hosts"),
        (format!("{star}rate = 10\n{good}"), "rate: '10' is no rate"),
        (format!("{star}ecn = \"50K\"\n{good}"), "ecn: '50K' is no value for ecn: two sizes"),
        (format!("{star}fault = \"rx.loss=1\"\n{good}"), "fault: rx. is for what a device receives"),
        (format!("{star}mtu = 1500\n{good}"), "mtu: 256, 512, 1024, 2048 or 4096"),
        (format!("{star}names = [\"a\"]\n{good}"), "names: a list of 4 names"),
        (format!("{star}names = [\"a\", \"b\", \"a\", \"c\"]\n{good}"), "names: 'a' is there twice"),
        (star.to_string(), "flow: there is none"),
        (format!("{star}[flow]\nfrom = \"h0\""), "flow: each begins with a line [[flow]]"),
        (format!("{star}{good}{}", flow(0, 9, "")), "flow 2: to: a host: h0 to h3"),
        (format!("{star}{}", flow(1, 1, "")), "flow 1: to: a flow goes to another host"),
        (format!("{star}{}", flow(0, 1, "op = \"push\"")), "flow 1: op: one of \"write\", \"send\""),
        (format!("{star}{}", flow(0, 1, "size = \"1X\"")), "flow 1: size: '1X' is no size"),
        (format!("{star}{}", flow(0, 1, "op = \"atomic\"\nsize = 16")), "flow 1: size: an atomic is of 8 bytes"),
        (format!("{star}{}", flow(0, 1, "start = \"20000s\"")), "flow 1: start: '20000s' is too long"),
        (format!("{star}{}", flow(0, 1, "count = 0")), "flow 1: count: a whole number from 1"),
        (
            format!("{star}{}", flow(0, 1, "transport = \"xq\"")),
            "flow 1: transport: there is no transport `xq`: choose from rc, sr",
        ),
        (format!("{star}{}", flow(0, 1, "transport = \"lowar:9\"")), "flow 1: transport: `9` are no blocks of lowar"),
        (
            format!("{star}{good}{}", flow(0, 1, "transport = \"ud\"\nop = \"write\"")),
            "flow 2: op: ud has SENDs only: \"send\"",
        ),
        (
            format!("{star}{}", flow(0, 1, "transport = \"ud\"\nsize = \"2K\"")),
            "flow 1: size: a datagram is no longer than the path MTU, 1024",
        ),
        (
            format!("{star}{}", flow(0, 1, "transport = \"uc\"\nop = \"read\"")),
            "flow 1: op: uc has no READs and no atomics: \"write\" or \"send\"",
        ),
        (
            format!("{star}{}", flow(0, 1, "transport = \"ud\"\ncc = \"dcqcn\"")),
            "flow 1: cc: ud has no congestion control",
        ),
        (format!("{star}[[link]]\nbetween = [\"h0\"]\n{good}"), "link 1: between: two places"),
        (format!("{star}[[link]]\nbetween = [\"h0\", \"h1\"]\n{good}"), "link 1: between: there is no link"),
        (format!("{star}size = = 2\n{good}"), "line 3: "),
    ] {
        let said = text.parse::<Topology>().map(|_| ()).unwrap_err().to_string();
        assert!(said.starts_with(line) && said.lines().count() == 1, "{text}\n{said}");
    }
}

#[test]
fn what_the_documentation_shows_is_a_topology_with_every_key() {
    let text = include_str!("../../docs/simulator.md");
    let shown = text.split("```toml\n").nth(1).and_then(|s| s.split("```").next()).expect("an example");
    assert_eq!(topology(shown).flows.len(), 2);
    for table in [
        "x = 1",
        "pfc = { x = 1 }",
        "[[link]]\nx = 1",
        "[[switch]]\nx = 1",
        "[[event]]\nx = 1",
        "[[flow]]\nx = 1",
        "[[group]]\nx = 1",
        "[[background]]\nx = 1",
    ] {
        let said =
            format!("kind = \"star\"\nhosts = 2\n{table}").parse::<Topology>().map(|_| ()).unwrap_err().to_string();
        let keys = said.split("here: ").nth(1).unwrap_or_else(|| panic!("the list of all keys: {said}"));
        for key in keys.split(", ").filter(|k| !["link", "switch", "event", "flow", "group", "background"].contains(k))
        {
            assert!(shown.contains(&format!("{key} = ")), "{key} is not shown");
        }
    }
}

#[test]
fn whatever_is_typed_wrong_gets_one_line_and_never_a_panic() {
    let good = EXAMPLES[1].1;
    let mut refused = 0;
    for (at, _) in good.char_indices() {
        for put in ["", "\n", "\"", "[", "=", "0", "-", "é", "'''"] {
            let rest = &good[at..];
            let text = [&good[..at], put, &rest[rest.chars().next().map_or(0, char::len_utf8)..]].concat();
            if let Err(e) = text.parse::<Topology>() {
                refused += 1;
                assert_eq!(e.to_string().lines().count(), 1, "{text}\n{e}");
            }
        }
    }
    assert!(refused > 1000, "{refused}");
}

#[test]
fn hosts_may_have_names() {
    let named = "kind = \"star\"\nhosts = 2\nnames = [\"client\", \"server\"]\n[[flow]]\nfrom = \"client\"\nto = \"server\"\nsize = 100";
    let t = topology(named);
    assert_eq!((t.flows[0].from, t.flows[0].to), (0, 1));
    assert_eq!(port(&result(named, 1), "s0", "server").stats.sent, 1);
}

#[test]
fn what_is_wrong_is_said_in_one_line_even_where_what_it_quotes_is_several() {
    let said = |text: &str| text.parse::<Topology>().unwrap_err().to_string();
    assert!(said("\"a\\nb\" = 1").starts_with(r"there is no key 'a\nb' here"));
    let hosts = "kind = \"star\"\nhosts = 2\n";
    assert_eq!(
        said(&format!("{hosts}names = [\"a\\nb\", \"a\\nb\"]")),
        r"names: 'a\nb' is there twice (switches have names too)"
    );
    assert!(said(&format!("{hosts}rate = \"1\\nbit\"")).starts_with(r"rate: '1\nbit' is no rate"));
}

#[test]
fn reliable_messages_over_sdr_share_a_lossy_bottleneck_with_each_other_and_with_rc() {
    let keys = |transport: &str| format!("transport = \"{transport}\"\nsize = \"200K\"\ncount = 60\ndepth = 4");
    let lossy = "[[link]]\nbetween = [\"s0\", \"s1\"]\nfault = \"loss=0.01\"\n";
    for [a, b] in [["sdr-sr", "sdr-nack"], ["sdr-ec:16,4", "sdr-xor:8,2"], ["sdr-nack", "rc"]] {
        // Two of one host, so that its NIC has several, and one that comes back.
        let flows = [flow(0, 3, &keys(a)), flow(0, 4, &keys(b)), flow(3, 0, &keys(a))].concat();
        let text = [DUMBBELL, "bottleneck = \"5Gbit\"\n", lossy, &flows].concat();
        let (r, again) = (result(&text, 1), result(&text, 1));
        for f in &r.flows {
            assert_eq!((f.completed, f.failed), (60, 0), "{a} {b}");
            assert!(f.goodput_gbps > 0.1 && f.completion_times.quantile_ms(0.5) > 0.0, "{a} {b}: {}", f.goodput_gbps);
        }
        assert_eq!((r.digest, r.stalled), (again.digest, false));
        let elided = result(&["payload = \"none\"\n", &text].concat(), 1);
        assert_eq!((elided.virtual_ms, elided.tx_packets), (r.virtual_ms, r.tx_packets), "{a} {b}");
        assert!(r.retransmitted_packets > 0 || a.contains(':'), "{a} {b}");
    }
}

#[test]
fn what_a_flow_of_reliable_messages_has_not_is_refused() {
    for (keys, why) in [
        ("transport = \"sdr-ec:0,2\"", "sdr-ec:0,2"),
        ("transport = \"sdr-fec\"", "is none of sdr-sr, sdr-nack, sdr-ec:K,M[,I] and sdr-xor:K,M[,I]"),
        ("transport = \"sdr-sr\"\nop = \"read\"", "sdr-sr has no READs"),
        ("transport = \"sdr-sr\"\nchunk = \"1500\"", "a multiple of the path MTU, 1024"),
        ("chunk = \"2K\"", "for transports whose names begin with sdr-"),
        ("transport = \"sdr-sr\"\ncc = \"dcqcn\"", "sdr-sr has no congestion control"),
    ] {
        let said = [DUMBBELL, &flow(0, 3, keys)].concat().parse::<Topology>().unwrap_err().to_string();
        assert!(said.contains(why), "{said}");
    }
}
