//! Background traffic in networks: as much as was asked for, the same for the same seed, and nothing changes where there is none.

use std::time::Duration;

use softnic_sim::topology::{Hooks, Network, Topology, TopologyReport, run};

fn report(text: &str, seed: u64) -> TopologyReport {
    let topology: Topology = text.parse().unwrap_or_else(|e| panic!("{e} in\n{text}"));
    run(&topology, seed, Hooks::default()).expect("a run")
}

const STAR: &str = "kind = \"star\"\nhosts = 8\nrate = \"10Gbit\"\ndelay = \"1us\"\nqueue = \"16M\"\n";

fn background(pattern: &str, share: f64, keys: &str) -> String {
    format!("[[background]]\npattern = \"{pattern}\"\nshare = {share}\n{keys}\n")
}

const ALL: &str = "from = \"all\"\nto = \"all\"\nstop = \"100ms\"\n";

#[test]
fn as_much_is_offered_and_sent_as_was_asked_for() {
    for (pattern, keys, tolerance) in [
        ("bursts", "on = \"50us\"", 0.05),
        ("poisson", "size = \"16K\"", 0.05),
        ("poisson", "size = [[\"2K\", 9], [\"64K\", 1]]", 0.05),
        ("incast", "every = \"500us\"", 0.01),
        ("incast", "every = \"100us\"\nhosts = 3", 0.01),
    ] {
        for share in [0.1, 0.5] {
            for net in [STAR, &format!("payload = \"none\"\n{STAR}")] {
                let text = [net, &background(pattern, share, &[ALL, keys].concat())].concat();
                let (r, what) = (report(&text, 1), format!("{pattern}, {share}, {keys}"));
                let b = &r.background[0];
                assert!((b.offered_share / share - 1.0).abs() < tolerance, "{what}: {b:?}");
                // The last of them are still on the line.
                assert!(b.completed <= b.messages && b.completed + 16 >= b.messages, "{what}: {b:?}");
                assert_eq!((b.failed, b.waiting), (0, 0), "{what}: {b:?}");
                // An incast offers its share of one line, the others that of each.
                let lines = if pattern == "incast" { 10.0 } else { 80.0 };
                assert!((b.offered_gbps / (share * lines) - 1.0).abs() < tolerance, "{what}: {b:?}");
                let sent: u64 = r.hosts.iter().map(|host| host.wire_bytes).sum();
                let of_time = sent as f64 * 8.0 / 0.1 / 1e9;
                assert!((of_time / b.offered_gbps - 1.0).abs() < 0.01, "{what}: {of_time} Gbit/s, {b:?}");
                assert!((99.9..100.1).contains(&r.virtual_ms), "{what}: {} ms", r.virtual_ms);
            }
        }
    }
}

#[test]
fn it_is_the_same_for_the_same_seed_and_another_for_another() {
    let text = [
        STAR,
        &background("bursts", 0.3, ALL),
        &background("poisson", 0.1, ALL),
        &background("incast", 0.2, &[ALL, "every = \"1ms\""].concat()),
    ]
    .concat();
    let (a, b, c) = (report(&text, 1), report(&text, 1), report(&text, 2));
    assert_eq!((a.digest, &a.background), (b.digest, &b.background));
    assert!(a.digest != c.digest && a.background != c.background);
}

#[test]
fn flows_are_the_same_until_it_begins() {
    for (_, text) in super::topologies::EXAMPLES {
        let later =
            "[[background]]\npattern = \"bursts\"\nfrom = \"all\"\nto = [\"h0\"]\nshare = 0.5\nstart = \"900s\"\n";
        let (alone, with) = (report(text, 1), report(&[text, later].concat(), 1));
        assert_eq!((alone.digest, alone.virtual_ms), (with.digest, with.virtual_ms), "{text}");
        assert_eq!(with.background[0].messages, 0);
    }
}

#[test]
fn flows_share_lines_with_it_and_what_does_not_fit_waits_or_is_dropped() {
    let flow = "[[flow]]\nfrom = \"h0\"\nto = \"h1\"\nsize = \"256K\"\ncount = 200\ndepth = 2\n";
    let goodput = |share: f64, queue: &str| {
        let keys = "from = [\"h2\", \"h3\"]\nto = [\"h1\"]\n";
        let net = STAR.replace("16M", queue);
        let r = report(&[&net, flow, &background("poisson", share, keys)].concat(), 1);
        assert_eq!((r.flows[0].completed, r.stalled), (200, false));
        (r.flows[0].goodput_gbps, r.ports.iter().map(|p| p.stats.dropped).sum::<u64>())
    };
    let (light, none) = goodput(0.05, "16M");
    let (heavy, _) = goodput(0.3, "16M");
    let (_, dropped) = goodput(0.3, "60K");
    assert_eq!(none, 0);
    assert!(light > 7.5 && heavy < 5.5 && heavy > 3.0, "{light} {heavy}");
    assert!(dropped > 10, "{dropped}");
}

#[test]
fn it_goes_by_any_connected_transport_and_heeds_congestion_control() {
    for transport in ["rc", "sr", "lowar:32,1", "xp", "uc"] {
        let keys = format!("transport = \"{transport}\"\ncc = \"dcqcn\"\n");
        let net = [STAR, "ecn = \"5K:50K:0.1\"\n"].concat();
        let text = [net, background("incast", 0.6, &[ALL, "every = \"1ms\"\n", &keys].concat())].concat();
        let r = report(&text, 1);
        let b = &r.background[0];
        assert!((b.offered_share - 0.6).abs() < 0.01 && b.failed == 0, "{transport}: {b:?}");
        assert!(b.completed + 8 >= b.messages && b.messages >= 700, "{transport}: {b:?}");
        assert!(r.cnps_handled > 0, "{transport}");
    }
}

#[test]
fn a_flow_that_stands_still_is_found_although_the_background_would_go_on() {
    let net = "kind = \"star\"\nhosts = 3\nrate = \"10Mbit\"\ntimeout = 0\n";
    let link = "[[link]]\nbetween = [\"h0\", \"s0\"]\nfault = \"ab.loss=1\"\n";
    let flow = "[[flow]]\nfrom = \"h0\"\nto = \"h1\"\nsize = 100\n";
    let text =
        [net, link, flow, &background("poisson", 0.01, "from = [\"h2\"]\nto = [\"h1\"]\nsize = \"1K\"")].concat();
    let r = report(&text, 1);
    assert_eq!((r.flows[0].completed, r.stalled), (0, true));
    assert!(r.background[0].messages > 10);
}

#[test]
fn it_is_there_in_a_network_that_a_caller_steps() {
    let topology = Topology::of_network(include_str!("../../docs/topologies/ranks.toml")).expect("a topology");
    let run = |seed| {
        let mut network = Network::new(&topology, seed).expect("a network");
        while network.now().instant().as_nanos() < 2_000_000 {
            network.step().expect("a step").expect("background has no end");
        }
        assert!(network.flows_are_done(), "there are none");
        network.report().expect("a report")
    };
    let (a, b) = (run(1), run(1));
    assert_eq!((a.digest, &a.background), (b.digest, &b.background));
    assert!(a.background.iter().all(|b| b.messages > 0), "{:?}", a.background);
    assert!(a.virtual_ms >= 2.0 && Duration::from_secs_f64(a.virtual_ms / 1e3) < Duration::from_millis(3));
}

#[test]
fn what_is_wrong_is_said_in_one_line_that_names_the_place() {
    let flow = "[[flow]]\nfrom = \"h0\"\nto = \"h1\"\n";
    let pair = "from = [\"h0\"]\nto = [\"h1\"]\n";
    for (keys, line) in [
        (format!("pattern = \"bursts\"\n{pair}"), "background 1: share: a part of the line"),
        (format!("pattern = \"bursts\"\nshare = 1.5\n{pair}"), "background 1: share: a part of the line"),
        (format!("pattern = \"bursts\"\nshare = \"0.5\"\n{pair}"), "background 1: share: a part of the line"),
        (format!("share = 0.5\n{pair}"), "background 1: pattern: it must be there"),
        (format!("pattern = \"constant\"\nshare = 0.5\n{pair}"), "background 1: pattern: one of \"bursts\""),
        (format!("pattern = \"bursts\"\nshare = 0.5\nsize = 1\n{pair}"), "background 1: size: only poisson has it"),
        (format!("pattern = \"poisson\"\nshare = 0.5\non = \"1ms\"\n{pair}"), "background 1: on: only bursts have it"),
        (format!("pattern = \"poisson\"\nshare = 0.5\nsize = [1]\n{pair}"), "background 1: size: a size, or several"),
        (format!("pattern = \"poisson\"\nshare = 0.5\nsize = []\n{pair}"), "background 1: size: a size, or several"),
        (format!("pattern = \"poisson\"\nshare = 0.5\nsize = 0\n{pair}"), "background 1: size: '0' is no size"),
        (format!("pattern = \"incast\"\nshare = 0.5\n{pair}"), "background 1: every: it must be there"),
        (format!("pattern = \"incast\"\nshare = 0.05\nevery = \"1us\"\n{pair}"), "background 1: every: in this time"),
        (
            format!("pattern = \"incast\"\nshare = 0.1\nevery = \"1ms\"\nhosts = 2\n{pair}"),
            "background 1: hosts: a whole",
        ),
        (format!("pattern = \"bursts\"\nshare = 0.5\non = \"1ns\"\n{pair}"), "background 1: on: at least 1us"),
        ("pattern = \"bursts\"\nshare = 0.5\nfrom = []\nto = \"all\"".into(), "background 1: from: hosts, e.g."),
        ("pattern = \"bursts\"\nshare = 0.5\nto = \"all\"".into(), "background 1: from: hosts, e.g."),
        (
            "pattern = \"bursts\"\nshare = 0.5\nfrom = [\"h9\"]\nto = \"all\"".into(),
            "background 1: from: a host: h0 to h7",
        ),
        (
            "pattern = \"bursts\"\nshare = 0.5\nfrom = [\"h1\"]\nto = [\"h1\"]".into(),
            "background 1: to: h1 has nobody to send to",
        ),
        (
            "pattern = \"bursts\"\nshare = 0.5\nfrom = [\"h1\", \"h1\"]\nto = \"all\"".into(),
            "background 1: from: 'h1' is there twice",
        ),
        (format!("pattern = \"bursts\"\nshare = 0.5\nstop = \"0s\"\n{pair}"), "background 1: stop: later than start"),
        (
            format!("pattern = \"bursts\"\nshare = 0.5\ntransport = \"ud\"\n{pair}"),
            "background 1: transport: background traffic is WRITEs",
        ),
        (
            format!("pattern = \"bursts\"\nshare = 0.5\ntransport = \"tcp\"\n{pair}"),
            "background 1: transport: there is no",
        ),
        (format!("pattern = \"bursts\"\nshare = 0.5\ncc = \"cubic\"\n{pair}"), "background 1: cc: "),
        (format!("pattern = \"bursts\"\nshare = 0.5\nrate = 1\n{pair}"), "background 1: there is no key 'rate' here"),
    ] {
        let text = [STAR, flow, "[[background]]\n", &keys].concat();
        let said = text.parse::<Topology>().map(|_| ()).unwrap_err().to_string();
        assert!(said.starts_with(line) && said.lines().count() == 1, "{text}\n{said}");
    }
    let endless = [STAR, &background("bursts", 0.5, pair)].concat();
    let said = endless.parse::<Topology>().map(|_| ()).unwrap_err().to_string();
    assert_eq!(said, "flow: there is none, and not every background has a stop: such a run has no end");
}
