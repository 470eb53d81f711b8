//! Routes that change while flows and groups run.

use softnic_sim::topology::{Hooks, Topology, TopologyReport, run};

const NET: &str = "kind = \"leaf-spine\"\nleaves = 3\nspines = 2\nhosts = 2\nqueue = \"4M\"\n";

fn result(text: &str) -> TopologyReport {
    let topology: Topology = text.parse().unwrap_or_else(|e| panic!("{e} in\n{text}"));
    run(&topology, 1, Hooks::default()).expect("data as sent")
}

fn event(at: &str, switch: &str, to: &str, via: &str) -> String {
    format!("[[event]]\nat = \"{at}\"\nswitch = \"{switch}\"\nto = \"{to}\"\nvia = [{via}]\n")
}

fn sent(r: &TopologyReport, switch: &str, to: &str) -> u64 {
    r.ports.iter().find(|p| p.switch == switch && p.to == to).expect("such a port").stats.sent
}

const FLOW: &str = "[[flow]]\nfrom = \"h0\"\nto = \"h2\"\nsize = \"64K\"\ncount = 100\ndepth = 2\n";

#[test]
fn packets_take_another_spine_from_a_time_on() {
    let first = event("0s", "leaf0", "leaf1", "\"spine0\"");
    let r = result(&[NET, &first, FLOW].concat());
    assert_eq!((sent(&r, "leaf0", "spine0"), sent(&r, "leaf0", "spine1")), (6400, 0));
    // Written in any order: what counts is when.
    let then = event("2ms", "leaf0", "h2", "\"spine1\"");
    let r = result(&[NET, &then, &first, FLOW].concat());
    let spines = [sent(&r, "leaf0", "spine0"), sent(&r, "leaf0", "spine1")];
    assert_eq!((spines.iter().sum::<u64>(), r.retransmitted_packets), (6400, 0), "{spines:?}");
    // 2 ms at 10 Gbit/s are 2260 packets.
    assert!((2200..2300).contains(&spines[0]), "{spines:?}");
}

#[test]
fn a_route_that_goes_away_and_comes_back_costs_packets_and_nothing_else() {
    let gone = [event("1ms", "leaf0", "leaf1", ""), event("2ms", "leaf0", "leaf1", "\"spine0\", \"spine1\"")].concat();
    let r = result(&[NET, &gone, FLOW].concat());
    assert_eq!((r.flows[0].completed, r.flows[0].failed), (100, 0));
    assert!(r.discarded > 0 && r.retransmitted_packets >= r.discarded, "{}", r.discarded);
    let never = result(&[NET, "timeout = 5\nretry = 2\n", &event("1ms", "leaf0", "leaf1", ""), FLOW].concat());
    assert!(never.flows[0].failed > 0 && never.flows[0].completed < 100);
}

#[test]
fn a_group_is_right_before_a_change_and_after_it() {
    let group =
        "[[group]]\nfrom = \"h0\"\nto = [\"h2\", \"h3\", \"h4\", \"h1\"]\nsize = \"64K\"\ncount = 100\ndepth = 2\n";
    for programmable in ["all", "tor"] {
        let first = event("0s", "leaf0", "leaf1", "\"spine0\"");
        let changes =
            [event("2ms", "leaf0", "leaf1", "\"spine1\""), event("4ms", "leaf0", "h4", "\"spine0\"")].concat();
        let r = result(&[NET, &format!("programmable = \"{programmable}\"\n"), &first, &changes, group].concat());
        assert_eq!((r.groups[0].work.completed, r.groups[0].work.failed), (100, 0), "{programmable}");
        assert!(r.groups[0].members.iter().all(|m| m.bytes == 6_553_600), "{:?}", r.groups[0].members);
        assert!(["spine0", "spine1"].iter().all(|spine| sent(&r, "leaf0", spine) > 1000), "{programmable}");
    }
}

#[test]
fn what_is_wrong_with_a_change_is_said_in_one_line_that_names_the_place() {
    let star = "kind = \"star\"\nhosts = 4\n";
    for (net, text, line) in [
        (star, event("1ms", "s0", "h0", ""), "event 1: switch: frames go by MAC address in this network"),
        (NET, "[[event]]\nswitch = \"leaf0\"\n".into(), "event 1: at: when, e.g. \"5ms\""),
        (NET, event("x", "leaf0", "leaf1", ""), "event 1: at: 'x' is no time"),
        (NET, event("1ms", "leaf9", "leaf1", ""), "event 1: switch: a switch: leaf0 to spine1"),
        (NET, event("1ms", "leaf0", "spine1", ""), "event 1: to: a host of another switch"),
        (NET, event("1ms", "leaf0", "h1", ""), "event 1: to: a host of another switch"),
        (NET, event("1ms", "leaf0", "leaf1", "\"leaf1\""), "event 1: via: switches that have a link with this one"),
        (
            NET,
            event("1ms", "spine0", "leaf1", "\"leaf0\"") + &event("0s", "leaf0", "leaf1", "\"spine0\""),
            "event 1: via: packets to h2 would go round in a circle",
        ),
        (NET, "[[event]]\nx = 1\n".into(), "event 1: there is no key 'x' here: at, switch, to, via"),
    ] {
        let said = [net, &text, FLOW].concat().parse::<Topology>().map(|_| ()).unwrap_err().to_string();
        assert!(said.starts_with(line) && said.lines().count() == 1, "{text}\n{said}");
    }
}
