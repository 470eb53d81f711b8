//! Files of switches: what the documentation shows, and what is refused.

use super::*;

#[test]
fn every_example_of_the_documentation_is_understood() {
    let page = include_str!("../../../../docs/switch.md");
    let examples: Vec<&str> = page.split("```toml\n").skip(1).filter_map(|rest| rest.split("```").next()).collect();
    assert!(examples.len() >= 3, "{}", examples.len());
    for example in &examples {
        parse(example).unwrap_or_else(|e| panic!("{e} in\n{example}"));
    }
    let all = parse(examples[0]).unwrap();
    assert!(!all.ports.is_empty() && !all.addresses.is_empty() && !all.routes.is_empty() && !all.groups.is_empty());
    assert!(all.mac.is_some() && !all.macs.is_empty());
    assert!(all.ports.iter().any(|port| port.rate.is_some() && port.policy.red.is_some()));
}

#[test]
fn every_line_of_json_in_the_documentation_is_understood() {
    let page = include_str!("../../../../docs/switch.md");
    let blocks = page.split("```json\n").skip(1).filter_map(|rest| rest.split("```").next());
    let mut requests = 0;
    for line in blocks.flat_map(str::lines) {
        let value: serde_json::Value = serde_json::from_str(line).unwrap_or_else(|e| panic!("{e}: {line}"));
        if value.get("command").is_some() {
            super::super::control::request(line).unwrap_or_else(|e| panic!("{e}: {line}"));
            requests += 1;
        }
    }
    assert!(requests >= 4, "{requests}");
}

const PORTS: &str = "[[port]]\ninterface = \"e0\"\nmacs = [\"02:00:00:00:00:01\"]\n[[port]]\ninterface = \"e1\"\n";

#[test]
fn what_is_wrong_is_told_with_line_and_key() {
    let group = "[[group]]\nsender = \"10.0.0.1\"\nmc_id = 0x777777\nqpn = 17\npsn = 0\n\
                 receivers = [{ address = \"10.0.0.2\", qpn = 34 }]\n";
    let with = |more: &str| format!("{PORTS}{more}");
    let range = |start: u32| {
        format!("[[group.ranges]]\nstart = {start}\nlength = 100\nrkey = 1\ntargets = [{{ start = 0, rkey = 1 }}]\n")
    };
    for (text, line, words) in [
        (String::new(), 1, "port: there is none"),
        ("port = 1\n".into(), 1, "port"),
        ("[[port]]\nqueue = 1\n".into(), 1, "missing field `interface`"),
        ("[[port]]\ninterface = \"e0\"\ncolour = \"red\"\n".into(), 3, "unknown field `colour`"),
        ("colour = 1\n".into(), 1, "unknown field `colour`"),
        ("mac = \"02:00\"\n".into(), 1, "mac: '02:00' is no MAC address"),
        ("mac = \"01:00:00:00:00:01\"\n".into(), 1, "mac: 01:00:00:00:00:01 is no address of one"),
        ("addresses = [\n  \"10.0.0.1\",\n]\n".into(), 2, "addresses: '10.0.0.1' is no subnet"),
        ("addresses = [\"10.0.0.1/33\"]\n".into(), 1, "addresses: '10.0.0.1/33' is no subnet"),
        ("[[port]]\ninterface = \"e0\"\nqueue = \"much\"\n".into(), 3, "queue: 'much' is no size"),
        ("[[port]]\ninterface = \"e0\"\nqueue = 0\n".into(), 1, "queue: at least 1 byte"),
        ("[[port]]\ninterface = \"e0\"\necn = \"often\"\n".into(), 3, "ecn: 'often' is not understood"),
        ("[[port]]\ninterface = \"e0\"\nrate = \"fast\"\n".into(), 3, "rate: 'fast' is not understood"),
        ("[[port]]\ninterface = \"e0\"\nrate = 7\n".into(), 3, "rate: invalid type"),
        (with("[[port]]\ninterface = \"e0\"\n"), 6, "interface: 'e0' is a port already"),
        (with("macs = [\"02:00:00:00:00:01\"]\n"), 6, "macs: 02:00:00:00:00:01 is at a port already"),
        (with("[[route]]\nto = \"10.0.0.0/8\"\n"), 6, "missing field `via`"),
        (with("[[route]]\nto = \"10.0.0.0/8\"\nvia = []\n"), 6, "via: at least one"),
        (with("[[route]]\nto = \"10.0.0.0/8\"\nvia = [\"there\"]\n"), 8, "via: invalid value: string \"there\""),
        (with("[[route]]\nto = \"10.0.0.0/8\"\nvia = [\"fd00::1\"]\n"), 8, "via: fd00::1 is not of the IP version"),
        (
            with("[[route]]\nto = \"10.0.0.0/8\"\nvia = [{ port = \"e9\", mac = \"02:00:00:00:00:01\" }]\n"),
            8,
            "port: there is no port 'e9': e0, e1",
        ),
        (
            with("[[route]]\nto = \"10.0.0.0/8\"\nvia = [{ mac = \"02:00:00:00:00:09\" }]\n"),
            8,
            "mac: 02:00:00:00:00:09 is at no port",
        ),
        (with("[[route]]\nto = \"10.0.0.0/8\"\nvia = [{ mac = \"x\" }]\n"), 8, "mac: 'x' is no MAC address"),
        (
            with(
                "[[route]]\nto = \"10.0.0.0/8\"\nvia = [\"direct\"]\n[[route]]\nto = \"10.1.0.0/8\"\nvia = [\"direct\"]\n",
            ),
            9,
            "to: there is a route to 10.1.0.0/8 already",
        ),
        (with("[[group]]\nsender = \"10.0.0.1\"\nmc_id = 7\n"), 6, "group: a group has at least one receiver"),
        (with("[[group]]\nsender = \"10.0.0.1\"\nmc_id = 1\n"), 6, "group: MC_ID 0x1 is reserved"),
        (with("[[group]]\nsender = \"10.0.0.1\"\nmc_id = 0x1000000\n"), 8, "mc_id: invalid value"),
        (with("[[group]]\nsender = \"ten\"\nmc_id = 7\n"), 7, "sender: 'ten' is"),
        (with(&format!("{group}{group}")), 12, "group: there is a group of the sender 10.0.0.1"),
        (with(&format!("{group}{}{}", range(0), range(99))), 6, "group: the ranges at 0x0 and 0x63 overlap"),
        (
            with(&format!("{group}[[group.ranges]]\nstart = 0\nlength = 1\nrkey = 1\n")),
            6,
            "names the memory of 0 receivers",
        ),
        (with(&format!("{group}[group.speed]\n")), 12, "unknown field `speed`"),
        ("[[port]\n".into(), 1, ""),
    ] {
        let said = parse(&text).unwrap_err();
        assert!(said.starts_with(&format!("line {line}: ")) && said.contains(words), "{said}\nfor\n{text}");
        assert_eq!(said.lines().count(), 1, "{said}");
    }
    let many: String = (0..65).map(|i| format!("[[port]]\ninterface = \"e{i}\"\n")).collect();
    assert_eq!(parse(&many).unwrap_err(), "line 129: port: at most 64, and here are 65");
}

#[test]
fn a_key_whose_value_is_over_is_not_blamed() {
    let mac = "mac = \"02:00:00:00:00:01\"\n";
    for (text, line) in [
        (format!("{mac}[[port]\n"), 2),
        (format!("{mac}[port]\ninterface = \"e0\"\n"), 2),
        (format!("{mac}  [[port]\n"), 2),
        (format!("{mac}# mac = 5\nport\n"), 3),
    ] {
        let said = parse(&text).unwrap_err();
        assert!(said.starts_with(&format!("line {line}: ")), "{said}\nfor\n{text}");
        assert!(!said.contains("mac: ") && !said.contains("interface: "), "{said}\nfor\n{text}");
    }
}

#[test]
fn the_key_of_a_value_is_that_of_the_value_which_is_open() {
    for (text, key) in [
        ("a = ", Some("a")),
        ("a = [1,\n# b = 3 ]\n 2, ", None),
        ("a = [\"x, y\", # ]\n 'z]', ", Some("a")),
        ("a = \"b \\\" \n", Some("a")),
        ("a = { b = 1, c = ", Some("c")),
        ("a = [{ b = 1 }, ", None),
        ("a = 1\nb", None),
        ("a = 1 # more\nb", None),
        ("a = [\n  [b]", None),
        ("a", None),
    ] {
        assert_eq!(key_before(text, text.len()), key, "{text}");
    }
}

#[test]
fn a_file_is_what_it_says() {
    let text = format!(
        "mac = \"02:00:00:00:00:fe\"\naddresses = [\"10.0.1.254/24\"]\n{PORTS}rate = \"1Gbit/s\"\nqueue = \"64K\"\n\
         [[route]]\nto = \"10.9.0.0/16\"\nvia = [\"10.0.1.7\", {{ mac = \"02:00:00:00:00:01\" }}, \"direct\"]\n"
    );
    let options = parse(&text).unwrap();
    assert_eq!(options.mac, Some(MacAddr([2, 0, 0, 0, 0, 0xfe])));
    assert_eq!((options.ports[0].rate, options.ports[0].policy.limit), (None, 1 << 20));
    assert_eq!((options.ports[1].rate, options.ports[1].policy.limit), (Some(1_000_000_000), 64 << 10));
    let mac = MacAddr([2, 0, 0, 0, 0, 1]);
    assert_eq!(options.macs, [(mac, 0)]);
    let hops = [NextHop::Via("10.0.1.7".parse().unwrap()), NextHop::Fixed { port: 0, mac }, NextHop::Direct];
    assert_eq!(options.routes, [(Prefix { addr: "10.9.0.0".parse().unwrap(), len: 16 }, hops.to_vec())]);
}

#[test]
fn a_file_that_cannot_be_read_is_named() {
    assert!(read("/no/such/file.toml").unwrap_err().starts_with("/no/such/file.toml: No such file"));
}
